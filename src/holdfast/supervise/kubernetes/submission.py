"""Submits a job to Kubernetes: creates its objects on the cluster, and notes them in the state folder.

kubernetes/<job>.json      namespace and context of the job's objects
"""

import re
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.kubernetes.connection import Connection, RequestFailed, ServerAway
from holdfast.engines.kubernetes.kinds import KINDS, OWNERS, OwnerKind
from holdfast.engines.kubernetes.manifests import STATE, Document, Wanted, owner, the_rest
from holdfast.engines.kubernetes.trials import missing_rights, restarts_containers
from holdfast.jobs.elsewhere import SUBMITTED as FOLDER
from holdfast.journal.jobdir import check_name
from holdfast.model.settings import RunSettings
from holdfast.settings.table import SETTINGS

NAME_MAX = 40  # of the job: names of its pods and labels are longer, and end at 63
TRIES, AGAIN_S = 5, 1.0
UNAUTHORIZED = 401
_LETTERS = "bcdfghjkmnpqrstvwxz23456789"
_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")  # of a Service: RFC 1035
_LOCAL = (
    "--state-dir",
    "--image",
    "--namespace",
    "--context",
    "--gpus",
    "--state-claim",
    "--env",
    "--job",
    "--engine",
)  # with a value
_LOCAL_ALONE = ("--detach", "--no-detach")
_NOT_PASSED = ("HOLDFAST_STATE_DIR", "HOLDFAST_CONFIG", "HOLDFAST_JOB", "HOLDFAST_ENGINE", "HOLDFAST_DETACH")
_PATHS = {
    "TrainingRuntime": "/apis/trainer.kubeflow.org/v1alpha1/namespaces/{}/trainingruntimes",
    "Lease": "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
    "Secret": "/api/v1/namespaces/{}/secrets",
    "Service": "/api/v1/namespaces/{}/services",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
}


class NotSubmitted(Exception):
    """Raised when the job was not started. The message says why and what to change."""


class PodFlags(Struct, frozen=True, kw_only=True):
    """Flags of `holdfast run` for pods. `env`: "NAME=VALUE" each. `reschedule_pods`: a reschedule deletes and creates
    all pods.

    `state_claim`: PersistentVolumeClaim for the job's journal.
    """

    image: str = ""
    gpus: int = 0
    kind: str = "job"
    namespace: str = ""
    context: str = ""
    env: tuple[str, ...] = ()
    reschedule_pods: bool = False
    state_claim: str = ""


class Submission(Struct, frozen=True, kw_only=True):
    """Location of a job's objects in the cluster. `kind`: a key of OWNERS."""

    name: str
    namespace: str
    context: str = ""
    kind: str = "job"

    @property
    def owner(self) -> OwnerKind:
        return OWNERS[self.kind]


def submission(state_dir: str, name: str | None) -> Submission | None:
    """Returns the job of that name, or the newest, that was submitted from this state folder; None if
    there is none.
    """
    folder = Path(state_dir) / FOLDER
    found: list[Path] = []
    with suppress(OSError):
        found = sorted(
            folder.glob(f"{name or '*'}.json"), key=lambda path: path.stat().st_mtime, reverse=True
        )
    for path in found:
        with suppress(OSError, msgspec.MsgspecError):
            return msgspec.json.decode(path.read_bytes(), type=Submission)
    return None


def submit(
    connection: Connection,
    settings: RunSettings,
    flags: PodFlags,
    argv: Sequence[str],
    env: Mapping[str, str],
) -> Submission:
    """Creates the job's objects. `argv`: arguments of this `holdfast`, from `run` on. Raises NotSubmitted."""
    wanted = wanted_of(connection.namespace, settings, flags, argv, env)
    with suppress(ServerAway):  # the first object says so
        if missing := missing_rights(connection, wanted.kind):
            raise NotSubmitted(
                f"no permission in the namespace {wanted.namespace} to {'; '.join(missing)}: nothing was created. holdfast k8s "
                f"doctor --kind {wanted.kind} --namespace {wanted.namespace} prints the roles that grant it; or give --namespace"
            )
        wanted = replace(wanted, restart_containers=restarts_containers(connection))
    one = Submission(name=wanted.job, namespace=wanted.namespace, context=flags.context, kind=wanted.kind)
    made = _create(connection, owner(wanted))
    try:
        for document in the_rest(wanted, made):
            _create(connection, document)
        if one.owner.suspends:
            _resume(connection, one)
    except NotSubmitted:
        with suppress(ServerAway, RequestFailed):
            remove(connection, one)
        raise
    keep(settings.state_dir, one)
    return one


def wanted_of(
    namespace: str, settings: RunSettings, flags: PodFlags, argv: Sequence[str], env: Mapping[str, str]
) -> Wanted:
    """Returns what the job's objects are built from. Raises NotSubmitted."""
    if not flags.image:
        raise NotSubmitted(
            "--engine kubernetes needs --image IMAGE: a container image that contains the training and "
            "Holdfast"
        )
    if flags.kind not in KINDS:
        raise NotSubmitted(f"--kind {flags.kind!r} is none of {', '.join(KINDS)}")
    for pair in flags.env:
        if not pair.partition("=")[0] or "=" not in pair:
            raise NotSubmitted(f"--env {pair!r} is not NAME=VALUE")
    name = settings.job or _made_up()
    try:
        check_name(name)
    except ValueError as error:
        raise NotSubmitted(str(error)) from error
    if len(name) > NAME_MAX or not _NAME.fullmatch(name):
        raise NotSubmitted(
            f"--job {name!r} cannot name objects of Kubernetes: use lower-case letters, digits and -, beginning with a letter, "
            f"{NAME_MAX} at most"
        )
    known = {setting.env_name for setting in SETTINGS} - set(_NOT_PASSED)
    known |= {setting.foreign.name for setting in SETTINGS if setting.foreign is not None}
    passed = {key: value for key, value in env.items() if key in known}
    given = dict(pair.split("=", 1) for pair in flags.env)
    return Wanted(
        job=name,
        namespace=namespace,
        image=flags.image,
        pods=settings.nnodes + settings.spares,
        gpus=flags.gpus,
        kind=flags.kind,
        run=words_again(argv, name),
        secret=secrets.token_hex(32),
        env=tuple({**passed, **given}.items()),
        state_claim=flags.state_claim,
    )


def words_again(argv: Sequence[str], name: str) -> tuple[str, ...]:
    """Returns the arguments of `holdfast` for the controller's pod: `argv` without those meant for this machine."""
    assert argv and argv[0] == "run"
    kept: list[str] = []
    words = iter(argv[1:])
    for word in words:
        if word == "--":
            kept += [word, *words]
            break
        flag, has_value = word.partition("=")[0], "=" in word
        if flag in _LOCAL:
            if not has_value:
                next(words, None)
        elif flag not in _LOCAL_ALONE:
            kept.append(word)
    return ("run", "--engine", "kubernetes", "--state-dir", STATE, "--job", name, *kept)


def keep(state_dir: str, one: Submission) -> None:
    """Stores where a submitted job is in the cluster. If that fails, the job runs anyway, and `attach` needs its
    namespace.
    """
    folder = Path(state_dir) / FOLDER
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{one.name}.json").write_bytes(msgspec.json.encode(one))


def remove(connection: Connection, one: Submission) -> None:
    """Deletes the owner of the pods, and everything else with it. Raises ServerAway and RequestFailed."""
    connection.request("DELETE", one.owner.path(one.namespace, one.name), {"propagationPolicy": "Background"})


def _create(connection: Connection, document: Document) -> Document:
    """Creates an object. Raises NotSubmitted."""
    kind, meta = document["kind"], document["metadata"]
    path = _path_of(document)
    for again in range(TRIES):
        try:
            made: Document = connection.request("POST", path, document).json()
            return made
        except RequestFailed as error:
            if error.code == 409 and again:  # the answer to the first try was lost
                found: Document = connection.request("GET", f"{path}/{meta['name']}").json()
                return found
            if not error.may_pass or again == TRIES - 1:
                raise NotSubmitted(_refused(kind, meta["name"], error)) from error
        except ServerAway as error:
            if again == TRIES - 1:
                raise NotSubmitted(f"{kind} {meta['name']} was not created: {error}") from error
        time.sleep(AGAIN_S)
    raise NotSubmitted(f"{kind} {meta['name']} was not created")


def _path_of(document: Document) -> str:
    namespace = document["metadata"]["namespace"]
    for one in KINDS.values():
        if (one.api_version, one.kind) == (document["apiVersion"], document["kind"]):
            return one.path(namespace)
    return _PATHS[document["kind"]].format(namespace)


def _refused(kind: str, name: str, error: RequestFailed) -> str:
    if error.code == 409:
        return f"{kind} {name} exists already: choose another --job, or remove it with kubectl delete {kind.lower()} {name}"
    if error.code == UNAUTHORIZED:
        return f"{kind} {name} was not created: the API server does not accept these credentials (401): log in again, or choose another --context"
    if error.is_forbidden:
        return (
            f"no permission to create {kind} {name}: {error}. Ask for this permission in the namespace, or "
            "give --namespace"
        )
    return f"{kind} {name} was rejected: {error}"


def _resume(connection: Connection, one: Submission) -> None:
    patch = {"spec": {"suspend": False}}
    path = one.owner.path(one.namespace, one.name)
    for again in range(TRIES):
        try:
            connection.request("PATCH", path, patch, kind="application/merge-patch+json")
            return
        except (RequestFailed, ServerAway) as error:
            if again == TRIES - 1:
                raise NotSubmitted(f"the job was created but could not be started: {error}") from error
        time.sleep(AGAIN_S)


def _made_up() -> str:
    suffix = "".join(secrets.choice(_LETTERS) for _ in range(4))
    return f"job-{datetime.now().astimezone():%m%d-%H%M}-{suffix}"
