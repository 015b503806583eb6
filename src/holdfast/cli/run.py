"""Implements `holdfast run` and `holdfast attach`: flags, settings, and the call of the supervisor."""

import importlib
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from msgspec import MsgspecError
from msgspec.structs import replace

from holdfast.cli.line.flags import App, Argument, BadParameter, Context, Exit, Option
from holdfast.cli.line.output import say
from holdfast.jobs.elsewhere import JobElsewhere, is_elsewhere
from holdfast.jobs.places import found_job
from holdfast.journal.jobdir import JobDir, StateDir
from holdfast.journal.store import JournalUnusable, NewerJournal
from holdfast.model.settings import RunSettings
from holdfast.settings.read import SettingsRefused, settle, state_root
from holdfast.settings.table import BY_KEY, Setting
from holdfast.settings.values import allowed, spelled
from holdfast.slurm_names import BadNodeList, allocation
from holdfast.supervise.start import recorded

REFUSED = 2
ANY_PORT = "127.0.0.1:0"
FILES = ("metrics-textfile", "notify")
_COUNT = re.compile(r"[1-9]\d*|auto|gpu|cpu")
_DEFAULTS = RunSettings(command=(), state_dir="")

run_app = App()
attach_app = App()


def _flag(key: str) -> Any:
    """Returns the flag of a setting, with name and help from the table of settings."""
    setting = BY_KEY[key]
    help_ = f"{setting.help} [{_range(setting)}{setting.env_name}]"
    if setting.kind == "yes":
        return Option(f"{setting.flag_name}/--no-{key}", help=help_, show_default=False)
    metavar = {
        "whole": "N",
        "length": "TIME",
        "size": "SIZE",
        "path": "FILE" if key in FILES else "DIR",
        "address": "HOST:PORT",
        "url": "URL",
        "labels": "KEY=VALUE,...",
        "choice": "|".join(setting.choices),
    }.get(setting.kind, "TEXT")
    names = filter(None, (setting.flag_name, setting.also))
    optional = ANY_PORT if key == "page" else None
    return Option(*names, help=help_, metavar=metavar, show_default=False, without_value=optional)


def _sbatch(name: str, what: str) -> Any:
    """Returns a flag that is passed to sbatch unchanged."""
    return Option(name, help=f"For sbatch: {what}", metavar="TEXT", show_default=False)


def _sbatch_flags(context: Context) -> tuple[str, ...]:
    given = [(key, context.params.get(key)) for key in ("gres", "partition", "account", "time", "qos")]
    named = [f"--{key}={value}" for key, value in given if value]
    return (*named, *(context.params.get("sbatch_arg") or ()))


def _of_pods(name: str, what: str) -> Any:
    """Returns a flag for --engine kubernetes."""
    return Option(name, help=f"For pods: {what}", metavar="TEXT", show_default=False)


def _pod_flags(context: Context) -> dict[str, object]:
    """raises: BadParameter"""
    given = {key: context.params.get(key) for key in ("image", "namespace", "state_claim")}
    gpus = context.params.get("gpus") or "0"
    if not gpus.isdigit():
        raise BadParameter(f"--gpus {gpus!r} is not a number of GPUs for each pod")
    env = tuple(context.params.get("env") or ())
    given["kind"] = context.params.get("kind") or "job"
    given["context"] = context.params.get("kube_context")
    anew = bool(context.params.get("reschedule_pods"))
    flags = {"gpus": int(gpus), "env": env, "reschedule_pods": anew}
    return {**{key: value or "" for key, value in given.items()}, **flags}


def _range(setting: Setting) -> str:
    if setting.kind not in ("whole", "length", "size"):
        return ""
    holder: object = _DEFAULTS.policy if setting.field.startswith("policy.") else _DEFAULTS
    default = spelled(setting, getattr(holder, setting.field.rpartition(".")[2]))
    return f"{allowed(setting)}; default {default}; "


_CONFIG = Option("--config", metavar="FILE", help="Settings file (TOML). [HOLDFAST_CONFIG]")
_RESCHEDULE_PODS = Option(
    "--reschedule-pods", help="For pods: a reschedule of the job recreates all of them."
)
_NPROC = Option(
    "--nproc-per-node", metavar="N", help="Short form: run the script that follows with torchrun, N ranks."
)


@run_app.command(context_settings={"allow_interspersed_args": False})
def run(
    context: Context,
    command: Annotated[list[str] | None, Argument("-- COMMAND...")] = None,
    job: Annotated[str | None, _flag("job")] = None,
    state_dir: Annotated[str | None, _flag("state-dir")] = None,
    config: Annotated[str | None, _CONFIG] = None,
    labels: Annotated[str | None, _flag("labels")] = None,
    policy: Annotated[str | None, _flag("policy")] = None,
    max_restarts: Annotated[str | None, _flag("max-restarts")] = None,
    unconditional_restart: Annotated[bool | None, _flag("unconditional-restart")] = None,
    hang_restart: Annotated[bool | None, _flag("hang-restart")] = None,
    replace_workers: Annotated[str | None, _flag("replace-workers")] = None,
    hang_timeout: Annotated[str | None, _flag("hang-timeout")] = None,
    grace: Annotated[str | None, _flag("grace")] = None,
    keep_on_failure: Annotated[str | None, _flag("keep-on-failure")] = None,
    shadow: Annotated[bool | None, _flag("shadow")] = None,
    quiet: Annotated[bool | None, _flag("quiet")] = None,
    detach: Annotated[bool | None, _flag("detach")] = None,
    shim: Annotated[bool | None, _flag("shim")] = None,
    standby: Annotated[bool | None, _flag("standby")] = None,
    zygote: Annotated[bool | None, _flag("zygote")] = None,
    slowdown_rule: Annotated[str | None, _flag("slowdown-rule")] = None,
    step_pattern: Annotated[str | None, _flag("step-pattern")] = None,
    boot_check: Annotated[str | None, _flag("boot-check")] = None,
    checks_act: Annotated[bool | None, _flag("checks-act")] = None,
    nnodes: Annotated[str | None, _flag("nnodes")] = None,
    spares: Annotated[str | None, _flag("spares")] = None,
    engine: Annotated[str | None, _flag("engine")] = None,
    hosts: Annotated[str | None, _flag("hosts")] = None,
    link_tls: Annotated[bool | None, _flag("link-tls")] = None,
    node_silence: Annotated[str | None, _flag("node-silence")] = None,
    fleet_dir: Annotated[str | None, _flag("fleet-dir")] = None,
    isolation_share: Annotated[str | None, _flag("isolation-share")] = None,
    page: Annotated[str | None, _flag("page")] = None,
    server: Annotated[str | None, _flag("server")] = None,
    notify: Annotated[str | None, _flag("notify")] = None,
    metrics_address: Annotated[str | None, _flag("metrics-address")] = None,
    metrics_textfile: Annotated[str | None, _flag("metrics-textfile")] = None,
    prometheus: Annotated[str | None, _flag("prometheus")] = None,
    deterministic: Annotated[bool | None, _flag("deterministic")] = None,
    checkpoint_advice: Annotated[bool | None, _flag("checkpoint-advice")] = None,
    ram_checkpoints: Annotated[str | None, _flag("ram-checkpoints")] = None,
    nproc_per_node: Annotated[str | None, _NPROC] = None,
    gres: Annotated[str | None, _sbatch("--gres", "of each node, such as gpu:8.")] = None,
    partition: Annotated[str | None, _sbatch("--partition", "partition of the job.")] = None,
    account: Annotated[str | None, _sbatch("--account", "account to charge.")] = None,
    time: Annotated[str | None, _sbatch("--time", "the time limit.")] = None,
    qos: Annotated[str | None, _sbatch("--qos", "quality of service.")] = None,
    sbatch_arg: Annotated[list[str] | None, _sbatch("--sbatch-arg", "any other flag; repeatable.")] = None,
    image: Annotated[
        str | None, _of_pods("--image", "container image that contains the training and Holdfast.")
    ] = None,
    gpus: Annotated[str | None, _of_pods("--gpus", "GPUs of each pod (nvidia.com/gpu).")] = None,
    kind: Annotated[
        str | None, _of_pods("--kind", "kind of object that owns them: job, jobset, trainjob, volcano.")
    ] = None,
    reschedule_pods: Annotated[bool, _RESCHEDULE_PODS] = False,
    state_claim: Annotated[
        str | None, _of_pods("--state-claim", "PersistentVolumeClaim for the job's journal.")
    ] = None,
    namespace: Annotated[str | None, _of_pods("--namespace", "namespace of the pods.")] = None,
    kube_context: Annotated[str | None, _of_pods("--context", "context of the kubeconfig.")] = None,
    env: Annotated[
        list[str] | None, _of_pods("--env", "environment variable NAME=VALUE; repeatable.")
    ] = None,
) -> None:
    """Runs a training command and keeps it going. Exits with the training's own exit code."""
    raise Exit(_run(context, command or (), config, nproc_per_node))


def _run(context: Context, command: Sequence[str], config: str | None, nproc_per_node: str | None) -> int:
    """Runs the job and returns the exit code of `holdfast run`.

    Flags are read by the names of their settings.
    """
    flags = {key: context.params.get(key.replace("-", "_")) for key in BY_KEY}
    try:
        settled = settle(flags, os.environ, config=config)
    except SettingsRefused as error:
        say(str(error))
        return REFUSED
    for note in settled.notes:
        say(note)
    start = settled.run
    if settled.sources["engine"] == "default" and in_slurm_allocation(os.environ):
        start = replace(start, engine="slurm")  # a user's own batch script
    words = full_command(command, nproc_per_node, alone=start.nnodes == 1 and start.engine == "local")
    settings = replace(start, command=words)
    if settings.is_one_machine:
        return int(_here().run_job(settings))
    code: int = _elsewhere().run_elsewhere(settings, os.environ, _sbatch_flags(context), _pod_flags(context))
    return code


@attach_app.command()
def attach(
    job: Annotated[str | None, Argument("[JOB]", help="Default: the newest.")] = None,
    state_dir: Annotated[str | None, _flag("state-dir")] = None,
    quiet: Annotated[bool, Option("--quiet", help=BY_KEY["quiet"].help)] = False,
    when_alone: Annotated[
        bool,
        Option("--when-alone", help="In a Slurm job: wait until its controller has ended.", hidden=True),
    ] = False,
) -> None:
    """Reattaches to a job whose supervisor has died; the training was not interrupted."""
    try:
        root = state_root(state_dir, os.environ)
    except SettingsRefused as error:
        say(str(error))
        raise Exit(REFUSED) from error
    if when_alone and job:
        raise Exit(_elsewhere().stand_by_slurm(str(root), job, os.environ))
    if (code := _followed(root, job, quiet=quiet)) is not None:
        raise Exit(code)
    root = _place_of(job, root)
    of_many = job_of_many(StateDir(root), job)
    if of_many is None:
        raise Exit(_here().attach_job(str(root), job, quiet=quiet))
    raise Exit(_elsewhere().attach_elsewhere(of_many, quiet=quiet))


def _place_of(name: str | None, root: Path) -> Path:
    """Returns the state folder of this job, which is another than `root` if that could not be written when
    the job started. Raises JobElsewhere for a job that may be on a cluster.
    """
    try:
        job = found_job(name, root)
    except ValueError:
        return root
    except LookupError as error:
        if name is not None and is_elsewhere(name, root, os.environ):
            raise JobElsewhere(name, root, str(error)) from error
        return root
    return job.path.parent.parent if job is not None else root


def _followed(root: Path, job: str | None, *, quiet: bool) -> int | None:
    """Follows a job that was submitted from here to Slurm or Kubernetes, and returns its exit code; None
    for other jobs.
    """
    code: int | None
    if any((root / "kubernetes").glob(f"{job or '*'}.json")) and not os.environ.get(
        "HOLDFAST_KUBERNETES_ROLE"
    ):
        code = _elsewhere().attach_kubernetes(str(root), job, os.environ, quiet=quiet)
        return code
    if not (root / "slurm" / (job or "")).is_dir():
        return None
    code = _elsewhere().attach_slurm(str(root), job, os.environ, quiet=quiet)
    return code


def in_slurm_allocation(env: Mapping[str, str]) -> bool:
    """Returns True in the batch script of a multi-node Slurm job, but not in one of its steps."""
    try:
        found = allocation(env)
    except BadNodeList:
        return False
    return found is not None and len(found.nodes) > 1 and not found.in_step


def job_of_many(jobs: StateDir, name: str | None) -> JobDir | None:
    """Returns the multi-node job named `name`; for None the newest job if it has several nodes. None if there is no
    such job.
    """
    try:
        job = jobs.job(name) if name else next(iter(jobs.jobs()), None)
        return job if job is not None and not recorded(job)[0].is_one_machine else None
    except (LookupError, ValueError, OSError, NewerJournal, JournalUnusable, MsgspecError):
        return None


def _here() -> Any:
    """Imports the supervisor of a job on this machine only when needed: who submits or follows a job does not need it."""
    return importlib.import_module("holdfast.supervise.one_machine")


def _elsewhere() -> Any:
    """Imports the module for several nodes only when needed, because it imports the link and all engines."""
    return importlib.import_module("holdfast.supervise.engine_choice")


def full_command(words: Sequence[str], ranks: str | None, *, alone: bool = True) -> tuple[str, ...]:
    """Returns the command to run: the given words, or torchrun with the script that they name.

    `ranks`: number of ranks for torchrun; None: the words are the whole command. `alone`: there is no other worker;
    otherwise torchrun reads its node rank and rendezvous address from the environment. Raises BadParameter.
    """
    if not words or not words[0]:
        raise BadParameter(
            "holdfast run [FLAGS] -- torchrun … train.py …", param_hint="COMMAND (there is none)"
        )
    if ranks is None:
        return tuple(words)
    if not _COUNT.fullmatch(ranks):
        raise BadParameter(f"{ranks!r} is neither a number of at least 1 nor auto, gpu or cpu")
    where = ("--standalone",) if alone else ()
    return (*_launcher(), *where, "--nproc-per-node", ranks, *words)


def _launcher() -> tuple[str, ...]:
    """Returns the command that starts torchrun as the user's shell would find it, never that of Holdfast's
    own installation.
    """
    if shutil.which("torchrun"):
        return ("torchrun",)
    python = next((name for name in ("python", "python3") if shutil.which(name)), None)
    if python is None:
        raise BadParameter("neither torchrun nor python is on PATH; give the full command after --")
    return (python, "-m", "torch.distributed.run")
