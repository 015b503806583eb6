"""Implements `holdfast k8s`: commands for users who run training on Kubernetes.

Each command imports its modules only when it is used.
"""

import importlib
import os
import sys
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import click

from holdfast.cli.line.flags import App, Argument, Exit, Option
from holdfast.cli.line.output import put, put_json, say
from holdfast.views.cluster_report import document, lines

NOT_ENOUGH, REFUSED = 1, 2
EXTRA = "this command needs the extra for Kubernetes: pip install 'holdfast[k8s]'"
STDIN = "-"
_WRAP = "holdfast.engines.kubernetes.wrap"
_OWN_FLAGS = (
    *(
        "--engine",
        "--state-dir",
        "--job",
        "--nnodes",
        "--nodes",
        "--spares",
        "--kind",
        "--image",
        "--gpus",
        "--env",
    ),
    *("--namespace", "--context", "--state-claim", "--detach", "--no-detach"),
)
_OF_EXTRA = ("lightkube", "httpx2", "ruamel", "yaml")

app = App()


@app.callback()
def k8s() -> None:
    """Kubernetes: wraps manifests of training jobs, checks rights and features of a cluster, prints the admission
    policy.
    """


_Words = Annotated[
    list[str] | None,
    Argument(
        "FILE... [-- FLAGS...]", help="Manifests; -: stdin. After --: flags of holdfast run for the job."
    ),
]
_Container = Annotated[
    str,
    Option("--container", metavar="[GROUP/]NAME", help="The container that trains, if there are several."),
]
_AgentImage = Annotated[
    str,
    Option(
        "--agent-image",
        metavar="IMAGE",
        help="Image that contains the agent's folder. Default: the training's image contains it.",
    ),
]
_ImageVolume = Annotated[
    bool,
    Option(
        "--image-volume",
        help="Mount that image as a volume (Kubernetes 1.33), without an init container.",
    ),
]
_Image = Annotated[
    str,
    Option(
        "--image",
        metavar="IMAGE",
        help="Image of the controller's pod. Default: the agent's, else the training's.",
    ),
]
_Secret = Annotated[
    str,
    Option(
        "--secret",
        metavar="NAME",
        help="Existing Secret of the job, with 64 hexadecimal digits as key secret.",
    ),
]
_StateClaim = Annotated[
    str,
    Option("--state-claim", metavar="NAME", help="PersistentVolumeClaim for the job's journal."),
]
_RestartContainers = Annotated[
    bool,
    Option(
        "--restart-containers",
        help="Restart all containers of a pod in place where one beside the training failed (Kubernetes 1.36).",
    ),
]


@app.command(context_settings={"allow_interspersed_args": True})
def wrap(
    words: _Words = None,
    container: _Container = "",
    spares: Annotated[
        int, Option("--spares", min=0, help="Additional pods that wait to replace a failed one at once.")
    ] = 1,
    agent_image: _AgentImage = "",
    image_volume: _ImageVolume = False,
    image: _Image = "",
    secret: _Secret = "",
    state_claim: _StateClaim = "",
    restart_containers: _RestartContainers = False,
    namespace: Annotated[
        str,
        Option(
            "--namespace", metavar="NAME", help="Namespace of the new objects, if the manifest names none."
        ),
    ] = "",
    job: Annotated[
        list[str] | None, Option("--job", metavar="NAME", help="Wrap only objects of this name.")
    ] = None,
    diff: Annotated[bool, Option("--diff", help="Print what would change instead of the manifests.")] = False,
) -> None:
    """Wraps the manifests of training jobs: their pods run the agent, and a controller is added. Prints the result."""
    given = {
        "container": container,
        "spares": spares,
        "image": image,
        "agent_image": agent_image,
        "image_volume": image_volume,
        "secret": secret,
        "state_claim": state_claim,
        "restart_containers": restart_containers,
        "namespace": namespace,
        "jobs": tuple(job or ()),
    }
    _wrap(*_split(words or []), given, shows_diff=diff)


@app.command()
def doctor(
    kind: Annotated[
        str, Option("--kind", help="Owner of the pods: job, jobset, trainjob, volcano or pytorchjob.")
    ] = "job",
    namespace: Annotated[
        str,
        Option("--namespace", metavar="NAME", help="Namespace; default: that of the kubeconfig's context."),
    ] = "",
    context: Annotated[str, Option("--context", metavar="NAME", help="Context of the kubeconfig.")] = "",
    json: Annotated[bool, Option("--json", help="One JSON document instead.")] = False,
) -> None:
    """Reports which features a cluster has, which rights you have there, what does not work without the rest, and the
    roles that grant the rights.

    Changes nothing. Exits with 1 if jobs cannot run there yet.
    """
    module = _loaded("holdfast.engines.kubernetes.doctor")
    if kind not in module.OWNERS:
        say(f"--kind {kind!r} is none of {', '.join(module.OWNERS)}")
        raise Exit(REFUSED)
    try:
        report = module.examined(os.environ, context, namespace, kind)
    except module.NoReport as error:
        say(str(error))
        raise Exit(REFUSED) from error
    if json:
        put_json(document(report))
    else:
        put("\n".join(lines(report)))
    if not report.is_enough:
        raise Exit(NOT_ENOUGH)


@app.command()
def policy(
    agent_image: Annotated[
        str, Option("--agent-image", metavar="IMAGE", help="Image with the agent's folder. Required.")
    ] = "",
) -> None:
    """Prints the admission policy by which one annotation on a pod or a Job puts Holdfast into it (Kubernetes 1.36)."""
    if not agent_image or not agent_image.isprintable() or set(agent_image) & set(' "\\'):
        say(
            "--agent-image IMAGE is required: the image that make agent-image builds, as your registry names it"
        )
        raise Exit(REFUSED)
    text = files("holdfast.engines.kubernetes").joinpath("policy.yaml").read_text()
    sys.stdout.write(text.replace("AGENT_IMAGE", agent_image))


def _wrap(names: list[str], flags: list[str], given: dict[str, object], *, shows_diff: bool) -> None:
    _check(flags)
    whole, asked = _loaded(f"{_WRAP}.whole"), _loaded(f"{_WRAP}.asked")
    texts = _loaded(f"{_WRAP}.texts")
    read = [(name, _read(name, texts.BYTES_MAX)) for name in names]
    try:
        wrapped = whole.wrap(read, asked.Asked(**given, run_flags=tuple(flags)))
    except asked.Refused as error:
        for reason in error.reasons:
            say(reason)
        raise Exit(REFUSED) from error
    for note in wrapped.notes:
        say(note)
    text = wrapped.text
    sys.stdout.write(texts.diff("".join(one for _, one in read), text, names[0]) if shows_diff else text)


def _check(flags: list[str]) -> None:
    """Refuses flags that the controller would refuse in its pod, where the error is hard to see."""
    for flag in flags:
        if flag.partition("=")[0] in _OWN_FLAGS:
            say(f"{flag} after -- is set from the manifest or a flag of k8s wrap: leave it out")
            raise Exit(REFUSED)
    command = _loaded("holdfast.cli.run").run_app.built("run")
    try:
        command.make_context("holdfast run", [*flags, "--", "command"])
    except click.ClickException as error:
        say(f"the flags after -- are not flags of holdfast run: {error.format_message()}")
        raise Exit(REFUSED) from error


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Files, and the flags of `holdfast run` after `--`: click has taken that word out, so the line is read again."""
    given = sys.argv[1:]
    after = given[given.index("--") + 1 :] if "--" in given else []
    count = len(words) - len(after)
    if count < 1:
        say("no file is given; - reads stdin")
        raise Exit(REFUSED)
    return words[:count], words[count:]


def _read(name: str, most: int) -> str:
    try:
        raw = sys.stdin.buffer.read(most + 1) if name == STDIN else _file(name, most)
        text = raw.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        say(f"{name} cannot be read: {error}")
        raise Exit(REFUSED) from error
    if len(raw) > most:
        say(f"{name} is larger than {most >> 20} MiB: give the manifests of training jobs only")
        raise Exit(REFUSED)
    return text


def _file(name: str, most: int) -> bytes:
    with Path(name).open("rb") as file:
        return file.read(most + 1)


def _loaded(module: str) -> Any:
    """Returns a module of an optional package, by its name."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _OF_EXTRA:
            raise
        say(f"{EXTRA} ({error})")
        raise Exit(REFUSED) from error
