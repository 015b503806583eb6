"""Collects the evidence bundle of an incident, and writes it in a thread while the training goes on.

A restart never waits for a bundle: the files of the ended attempt that the bundle needs stay on the disk.
"""

import importlib
import os
import platform
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from holdfast import __version__
from holdfast.agent.watch.sample_ring import NEW, OLD, read_samples
from holdfast.model.checks import NodeChecks
from holdfast.model.events import NodesChecked
from holdfast.model.failures import Failure
from holdfast.model.nodes.samples import Moment
from holdfast.model.samples import RankSample
from holdfast.model.steps import StepFinding, StepRecord
from holdfast.model.verdicts import Verdict
from holdfast.observe.logs.bundles import FAILURE, Member, excerpt, write_bundle
from holdfast.observe.logs.step_file import NAME as STEPS
from holdfast.observe.logs.tree import WORKS

VERDICT = "verdict.json"
FLIGHT_BYTES_MAX = 8 << 20
SAMPLES_S = 1800.0
SAMPLES_FULL_S = 120.0
THINNED = 10
WORKERS_WHOLE = 8  # of many: with the whole of their logs
WORKERS_MAX = 256
MOMENTS_MAX = 400  # with 8 ranks about 3 MiB
VARIABLES = (
    "HOLDFAST_",
    "NCCL_",
    "TORCH_",
    "CUDA_",
    "GLOO_",
    "OMP_",
    "PYTORCH_",
    "MASTER_",
    "HCCL_",
    "UCX_",
    "SLURM_",
)
PACKAGES = ("torch", "numpy", "deepspeed", "transformers", "lightning", "accelerate", "megatron-core", "vllm")


class Scene(Struct, frozen=True):
    """What is known about an incident at the moment of the verdict, from which the bundle is collected.

    `offsets`: for each log, the byte offsets of signature matches.
    """

    incident: int
    attempt: int
    folder: Path  # of the worker, in the attempt
    failure: Failure
    verdict: Verdict
    offsets: Mapping[str, tuple[int, ...]]
    kernel: tuple[bytes, ...]
    kernel_why_not: str
    samples: tuple[RankSample, ...]
    settings: bytes
    env: Mapping[str, str]
    at_s: float
    steps: tuple[StepRecord, ...] = ()  # the last ones
    checks: tuple[NodeChecks, ...] = ()  # of the node: the last before the start, and after the failure
    findings: tuple[StepFinding, ...] = ()  # of steps and stragglers, of the whole attempt


class WorkerScene(Struct, frozen=True, kw_only=True):
    """What is known about one worker of a multi-node job at the moment of the verdict.

    `folder`: the worker's folder, if the job's file system is shared. `offsets`, `samples`: as in Scene.
    """

    worker: int
    folder: Path
    offsets: Mapping[str, tuple[int, ...]] = {}
    samples: tuple[RankSample, ...] = ()


class JobScene(Struct, frozen=True, kw_only=True):
    """What is known about a failed attempt with many workers at the moment of the verdict. `workers`: those
    at fault first.
    """

    incident: int
    attempt: int
    failure: Failure
    verdict: Verdict
    settings: bytes
    env: Mapping[str, str]
    at_s: float
    workers: tuple[WorkerScene, ...]
    checks: tuple[NodesChecked, ...] = ()


def members(scene: Scene) -> Iterator[Member]:
    """Yields the files of a bundle, the most important first, because the bundle has a size limit."""
    yield from _heads(scene)
    kernel = scene.kernel or ((scene.kernel_why_not.encode(),) if scene.kernel_why_not else ())
    yield Member("kernel.log" if scene.kernel else "kernel-not-read.txt", b"\n".join(kernel) + b"\n")
    yield Member("samples.jsonl", b"\n".join(sample_lines(scene)) + b"\n")
    yield from _logs(scene.attempt, scene.folder, scene.offsets)


def job_members(scene: JobScene) -> Iterator[Member]:
    """Yields the files of the bundle of a multi-node job, the most important first.

    Only the first workers contribute whole logs; the others contribute small files and the ends of their
    logs.
    """
    yield from _heads(scene)
    first = scene.workers[:WORKERS_WHOLE]
    for one in first:
        place = Scene(
            incident=scene.incident,
            attempt=scene.attempt,
            folder=one.folder,
            failure=scene.failure,
            verdict=scene.verdict,
            offsets=one.offsets,
            kernel=(),
            kernel_why_not="",
            samples=one.samples,
            settings=scene.settings,
            env=scene.env,
            at_s=scene.at_s,
        )
        lines = sample_lines(place)
        yield Member(
            f"attempt-{scene.attempt:03d}/{one.folder.name}/samples.jsonl", b"\n".join(lines) + b"\n"
        )
        yield from _logs(scene.attempt, one.folder, one.offsets)
    for one in scene.workers[WORKERS_WHOLE:WORKERS_MAX]:
        for path in _files(one.folder):
            if path.suffix in (".json", ".stacks", ".pickle"):
                yield Member(_name(scene.attempt, path), _content(path, ()), _time(path))


def _heads(scene: Scene | JobScene) -> Iterator[Member]:
    yield Member(VERDICT, _json(scene.verdict))
    yield Member(FAILURE, _json(scene.failure))
    if scene.checks:
        yield Member("checks.json", _json(scene.checks))
    yield Member("settings.json", scene.settings)
    yield Member("versions.json", _json(_versions()))
    yield Member(
        "environment.json", _json({k: v for k, v in sorted(scene.env.items()) if k.startswith(VARIABLES)})
    )


def _logs(attempt: int, folder: Path, offsets: Mapping[str, tuple[int, ...]]) -> Iterator[Member]:
    for path in _files(folder):
        yield Member(_name(attempt, path), _content(path, offsets.get(path.name, ())), _time(path))


def _name(attempt: int, path: Path) -> str:
    """Returns the name of a file in the bundle: its path relative to the job's folder."""
    return f"attempt-{attempt:03d}/{path.parent.name}/{path.name}"


def sample_lines(scene: Scene) -> list[bytes]:
    """Returns the samples of the last minutes as JSON lines for the bundle, the oldest first.

    Each has its `kind` (rank, node, device, ras); the last steps (step) and findings about steps
    (step-finding) follow. The samples are taken from the worker's ring buffer: every second of the last
    SAMPLES_FULL_S seconds, and before that one in THINNED. Samples that are not in the ring buffer yet are
    taken from the scene.
    """
    moments: deque[Moment] = deque(maxlen=MOMENTS_MAX)
    for number, moment in enumerate(read_samples(scene.folder, scene.at_s - SAMPLES_S)):
        if moment.at_s >= scene.at_s - SAMPLES_FULL_S or number % THINNED == 0:
            moments.append(moment)
    last_s = moments[-1].at_s if moments else float("-inf")
    lines = [line for moment in moments for line in _lines_of(moment)]
    lines += [_line("rank", sample) for sample in scene.samples if sample.at_s > last_s]
    lines += [_line("step", record) for record in scene.steps]
    for one in scene.findings:
        lines.append(_line("step-finding", one, finding=one.kind))
    return lines


def _lines_of(moment: Moment) -> Iterator[bytes]:
    yield from (_line("rank", sample) for sample in moment.ranks)
    if moment.node is not None:
        yield _line("node", moment.node, at_s=moment.at_s)
    for device in moment.devices:
        yield _line("device", device, at_s=moment.at_s, age_s=moment.devices_age_s)
    if moment.ras is not None:
        yield _line("ras", moment.ras, at_s=moment.at_s, age_s=moment.ras_age_s)


def _line(kind: str, sample: Struct, **more: float | str | None) -> bytes:
    return msgspec.json.encode({"kind": kind, **more, **msgspec.to_builtins(sample)} | {"kind": kind})


class BundleWriter:
    """Writes each bundle in its own thread. `tell`: receives a sentence when writing fails."""

    def __init__(self, folder: Path, tell: Callable[[str], None]) -> None:
        self._folder = folder
        self._tell = tell
        self._threads: list[threading.Thread] = []

    def write(self, scene: Scene) -> Path:
        """Starts to write a bundle, and returns at once the path that it will have."""
        return self._begin(scene.incident, members(scene), scene.at_s)

    def write_job(self, scene: JobScene) -> Path:
        """Starts to write the bundle of a multi-node job, and returns at once the path that it will have."""
        return self._begin(scene.incident, job_members(scene), scene.at_s)

    def _begin(self, incident: int, content: Iterator[Member], at_s: float) -> Path:
        path = self._folder / f"incident-{incident:03d}.tar.zst"
        given = (path, incident, content, at_s)
        thread = threading.Thread(target=self._write, args=given, name="holdfast-bundle", daemon=True)
        self._threads = [one for one in self._threads if one.is_alive()]
        self._threads.append(thread)
        thread.start()
        return path

    def wait(self, timeout_s: float) -> None:
        """Waits for bundles that are being written, at most `timeout_s` for each."""
        for thread in self._threads:
            thread.join(timeout_s)

    def _write(self, path: Path, incident: int, content: Iterator[Member], at_s: float) -> None:
        try:
            left_out = write_bundle(path, content, at_s)
        except (OSError, ValueError) as error:
            self._tell(f"the evidence of incident {incident} could not be saved as {path}: {error}")
            return
        if left_out:
            self._tell(f"{path} would have become too large: it does not contain {', '.join(left_out[:5])}")


def _files(folder: Path) -> list[Path]:
    """Returns the files of a folder for the bundle: small informative ones first, then logs by name.

    Files for Holdfast's internal use are left out.
    """
    try:
        found = [path for path in folder.iterdir() if path.is_file() and not path.is_symlink()]
    except OSError:
        return []
    kept = [path for path in found if not WORKS.fullmatch(path.name) and path.name not in (NEW, OLD, STEPS)]
    order = {".json": 0, ".jsonl": 0, ".stacks": 1, ".txt": 1, ".pickle": 1}
    return sorted(kept, key=lambda path: (order.get(path.suffix, 2), path.name))


def _content(path: Path, offsets: Iterable[int]) -> bytes:
    if path.suffix != ".pickle":
        return excerpt(path, offsets)
    try:
        return path.read_bytes() if path.stat().st_size <= FLIGHT_BYTES_MAX else b""
    except OSError:
        return b""


def _time(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _versions() -> dict[str, str]:
    # With `email` and more: not to be paid for at every agent's start.
    metadata = importlib.import_module("importlib.metadata")
    found = {"holdfast": __version__, "python": platform.python_version(), "kernel": os.uname().release}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _json(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1)
