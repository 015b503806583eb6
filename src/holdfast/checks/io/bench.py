"""Benchmarks the file systems that a training writes to: its working folder and its checkpoint folder."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast.checks.readers.disk_speed import DiskSpeed, NoRoom, measured, room
from holdfast.checks.registry import Check, Seen
from holdfast.core.checks.bench import Bench, Measure, OptionRefused, judged, option
from holdfast.model.checks import FAIL, MANUAL, NODE, RULE, SKIP, WARN, Finding, Scene, Spec
from holdfast.model.signatures import Words

NAME = "io-disk-speed"
FOLDERS = ("work", "checkpoint")
SPREAD_MIN = 0.1  # disks are shared, and their own caches come and go
MEBI = float(1 << 20)


class Mount(tuple[str, str, str]):
    """One mounted file system: mount point, file system type, source."""


def io_disk_speed(scene: Scene) -> Iterator[Seen]:
    try:
        seconds = option(scene, NAME, "seconds", 3.0, 0.1, 600.0)
        wanted = int(option(scene, NAME, "mebibytes", 256, 16, 1 << 20)) << 20
    except OptionRefused as error:
        yield Finding(status=SKIP, why=str(error))
        return
    mounts = mounts_of(_text(scene, "proc/self/mountinfo"))
    benches: list[Bench] = []
    done: dict[int, str] = {}
    for kind in FOLDERS:
        folder = scene.folders.get(kind, "")
        if not folder:
            continue
        try:
            device = os.stat(folder).st_dev
            if device in done:
                continue  # the same file system
            done[device] = kind
            speed = measured(folder, room(folder, wanted), seconds)
        except NoRoom as error:
            yield Finding(status=SKIP, device=kind, why=str(error))
            continue
        except OSError as error:
            yield _broken(kind, folder, error)
            continue
        yield from judged_content(folder, speed)
        benches.append(
            bench_of(folder, speed, mount_of(os.path.realpath(folder), mounts), _disk(scene, device))
        )
    yield from judged(benches, scene.baseline)


def judged_content(folder: str, speed: DiskSpeed) -> Iterator[Finding]:
    """Yields a finding if data read back from the disk differs from the data written. Pure."""
    if speed.wrong_chunks:
        yield Finding(
            status=FAIL,
            device=folder,
            measured=f"{speed.wrong_chunks} pieces of 4 MiB differ",
            expected="what was written",
            whence=RULE,
            why=f"{folder} returned other data than was written, in {speed.wrong_chunks} pieces of 4 MiB",
            advice=Words(
                en=(
                    "Do not write checkpoints here; check the disk (smartctl, kernel log) or contact the "
                    "administrator of the file system."
                ),
                zh="请勿在此写入检查点；检查磁盘（smartctl、内核日志）或联系文件系统管理员。",
            ),
            category="storage_io",
        )


def bench_of(folder: str, speed: DiskSpeed, mount: Mount, disk: str) -> Bench:
    """Returns the measurements of a file system as a benchmark result. Pure.

    `disk`: model of the local disk, or empty.
    """
    point, kind, source = mount
    size = f"{speed.file_bytes >> 20} MiB"
    around = "" if speed.is_direct else ", through the page cache"
    found = (
        (f"sequential write, {size}{around}", speed.write, "MiB/s", MEBI),
        (f"sequential read, {size}", speed.read, "MiB/s", MEBI),
        ("random reads of 4 KiB", speed.reads, "a second", 1.0),
        (f"synced writes of 4 KiB{around}", speed.syncs, "a second", 1.0),
    )
    measures = tuple(_measure(name, rates, unit, per) for name, rates, unit, per in found if rates)
    is_network = not source.startswith("/")
    model = f"{kind} {source}" if is_network else f"{kind} on {disk or 'a disk'}"
    return Bench(key=f"disk:{point}", model=model, measures=measures, where=folder, beside=kind)


def _measure(name: str, rates: Sequence[float], unit: str, per: float) -> Measure:
    """Returns one measurement: the median of a few rates, and their spread."""
    ordered = sorted(rates)
    middle = ordered[len(ordered) // 2]
    spread = (ordered[-1] - ordered[0]) / middle if middle > 0 else 0.0
    return Measure(name=name, value=middle / per, unit=unit, spread=max(SPREAD_MIN, spread))


def _broken(kind: str, folder: str, error: OSError) -> Finding:
    return Finding(
        status=WARN,
        device=kind,
        measured=error.strerror or str(error),
        expected="a file that can be written and read",
        whence=RULE,
        why=f"a file in {folder} could not be written and read: {error.strerror or error}",
        advice=Words(
            en="Check free space, quota and the kernel log; run `holdfast check --only io` for details.",
            zh="请检查该文件系统的空间、配额与内核日志；`holdfast check --only io` 可进一步检查。",
        ),
        category="filesystem_error",
    )


# Where it lies -------------------------------------------------------------------------------------------


def mounts_of(text: str) -> list[Mount]:
    r"""Parses /proc/self/mountinfo and returns the mounts. A space in a path is written there as \040.

    source: proc_pid_mountinfo(5)
    """
    found = []
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        words, more = left.split(), right.split()
        if len(words) > 4 and len(more) > 1:
            found.append(Mount((words[4].replace("\\040", " "), more[0], more[1])))
    return found


def mount_of(path: str, mounts: Sequence[Mount]) -> Mount:
    """Returns the mount that a path lies on: the longest mount point above it, and the last of several on
    one mount point.
    """
    best = Mount(("/", "unknown", ""))
    length = 0
    for mount in mounts:
        point = mount[0]
        is_below = path == point or path.startswith(point.rstrip("/") + "/")
        if is_below and len(point) >= length:
            best, length = mount, len(point)
    return best


def _disk(scene: Scene, device: int) -> str:
    """Returns the model of the disk behind a block device or partition; empty if the kernel names none."""
    folder = f"sys/dev/block/{os.major(device)}:{os.minor(device)}"
    for place in (f"{folder}/device/model", f"{folder}/../device/model"):
        if text := " ".join(_text(scene, place).split()):
            return text
    return ""


def _text(scene: Scene, place: str) -> str:
    try:
        return (Path(scene.root) / place).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


CHECKS = (
    Check(
        Spec(
            name=NAME,
            area="io",
            what=Words(
                en="speed of the working and checkpoint folders: sequential and random 4 KiB access",
                zh="工作目录与检查点目录的读写速度：顺序与 4 KiB 随机",
            ),
            contexts=(MANUAL,),
            cost=NODE,
            timeout_s=3000.0,
            bench=True,
            hang_advice=Words(
                en="The file system does not respond: check its server, its mount and the kernel log.",
                zh="文件系统无响应：请检查其服务器、挂载与内核日志。",
            ),
        ),
        io_disk_speed,
    ),
)
