"""Writes the logs of a job that never was: ranks on hosts, one cause, and what all the others say of it afterwards.

The same failure can be written in many ways: a file for each rank or one for all, clocks that differ, heads that are
lost, colours, lines said again and again. Whatever the writing, the first cause stays the same.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

BEGIN = datetime(2026, 3, 1, 10, 0, 0, tzinfo=UTC)
PER_HOST = 4
DOWN_S = 60.0  # after the start, the cause
TIMEOUT_S = 600.0


class Line(NamedTuple):
    """`at_s`: after the start, by the true clock. `rank` None: of `host`'s kernel, or with `rank` -1 of its launcher."""

    at_s: float
    rank: int | None
    host: int
    text: str
    is_bare: bool = False  # without a stamp of its own, as tracebacks are


class Cause(NamedTuple):
    """What the ranks and the kernel wrote of it, and what is to come out."""

    name: str
    lines: tuple[Line, ...]
    category: str
    first: str  # a part of the first error
    rank: int | None = None
    host: str | None = None
    lost: int | None = None  # the rank that is gone, as the launcher has it
    code: int = 1


def of_rank(rank: int, at_s: float, *texts: str, is_bare: bool = True) -> tuple[Line, ...]:
    return tuple(Line(at_s, rank, rank // PER_HOST, text, is_bare) for text in texts)


def of_kernel(host: int, at_s: float, *texts: str) -> tuple[Line, ...]:
    return tuple(Line(at_s, None, host, text) for text in texts)


def traceback(*last: str) -> tuple[str, ...]:
    return (
        "Traceback (most recent call last):",
        '  File "/job/train.py", line 88, in <module>',
        "    main()",
        '  File "/job/train.py", line 61, in main',
        "    loss = step(batch)",
        *last,
    )


CAUSES = (
    Cause(
        "memory",
        of_rank(
            3,
            DOWN_S,
            *traceback(
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of "
                "79.11 GiB of which 1.10 GiB is free. Including non-PyTorch memory, this process has 78.00 GiB memory in use."
            ),
        ),
        "gpu_oom",
        "Tried to allocate 2.00 GiB",
        rank=3,
        lost=3,
    ),
    Cause(
        "data",
        of_rank(
            6,
            DOWN_S,
            *traceback("FileNotFoundError: [Errno 2] No such file or directory: '/data/shard-0007.bin'"),
        ),
        "data_error",
        "shard-0007.bin",
        rank=6,
        lost=6,
    ),
    Cause(
        "code",
        of_rank(1, DOWN_S, *traceback("ZeroDivisionError: float division by zero")),
        "python_exception",
        "ZeroDivisionError",
        rank=1,
        lost=1,
    ),
    Cause(
        "assert",
        of_rank(
            5,
            DOWN_S,
            "../aten/src/ATen/native/cuda/Indexing.cu:1284: indexSelectLargeIndex: block: [7,0,0], thread: [120,0,0] "
            "Assertion `srcIndex < srcSelectDimSize` failed.",
            *traceback("RuntimeError: CUDA error: device-side assert triggered"),
        ),
        "device_side_assert",
        "srcIndex < srcSelectDimSize",
        rank=5,
        lost=5,
    ),
    Cause(
        "xid",
        of_kernel(
            1, DOWN_S, "NVRM: Xid (PCI:0000:5d:00): 79, pid=4107, name=python, GPU has fallen off the bus."
        ),
        "xid_79",
        "fallen off the bus",
        host="node-1",
    ),
    Cause(
        "oom-killer",
        (
            *of_kernel(
                0,
                DOWN_S,
                "python invoked oom-killer: gfp_mask=0x100cca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0",
                "Out of memory: Killed process 4102 (python) total-vm:99999999kB, anon-rss:88888888kB, file-rss:0kB",
            ),
        ),
        "host_oom",
        "oom-killer",
        host="node-0",
        lost=2,
        code=-9,
    ),
)


def stamp(at_s: float) -> str:
    at = BEGIN + timedelta(seconds=at_s)
    return f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03d}"


def glog(at_s: float) -> str:
    at = BEGIN + timedelta(seconds=at_s)
    return f"E{at.month}{at:%d %H:%M:%S.%f}000"


def steps(ranks: int, until_s: float = DOWN_S) -> list[Line]:
    """One line of each rank for a step of two seconds."""
    return [
        Line(2.0 * n + rank / 1000, rank, rank // PER_HOST, f"INFO train: step {n} loss {5 - n / 20:.4f}")
        for n in range(int(until_s / 2))
        for rank in range(ranks)
    ]


def followers(cause: Cause, ranks: int, *, late_s: float = TIMEOUT_S) -> list[Line]:
    """What the others say when nobody answers them any more: the watchdog, or a connection that is closed."""
    said: list[Line] = []
    for rank in range(ranks):
        if rank == cause.lost:
            continue
        at_s = DOWN_S + late_s + rank / 100
        if rank % 2:
            text = (
                f"[rank{rank}]:[{{glog}} ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective operation "
                f"timeout: WorkNCCL(SeqNum=130, OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096, Timeout(ms)=600000) ran "
                f"for {600000 + rank} milliseconds before timing out."
            )
            said.append(Line(at_s, rank, rank // PER_HOST, text, True))
        else:
            said += of_rank(
                rank,
                at_s,
                *traceback(
                    "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:77, "
                    "remote process exited or there was a network error, NCCL version 2.21.5"
                ),
            )
    return said


def launchers(cause: Cause, ranks: int, *, late_s: float = TIMEOUT_S) -> list[Line]:
    """torchrun, one on each host: it saw its own first rank fail."""
    said = []
    for host in range((ranks + PER_HOST - 1) // PER_HOST):
        mine = cause.lost is not None and cause.lost // PER_HOST == host
        local = cause.lost % PER_HOST if mine and cause.lost is not None else 0
        code, at_s = (cause.code, DOWN_S + 2) if mine else (1, DOWN_S + late_s + 2)
        text = (
            f"{{glog}} 4000 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: {code}) "
            f"local_rank: {local} (pid: {4100 + host * PER_HOST + local}) of binary: /usr/bin/python"
        )
        said.append(Line(at_s, -1, host, text, True))
    return said


def job(cause: Cause, ranks: int = 8, *, late_s: float = TIMEOUT_S) -> list[Line]:
    return [
        *steps(ranks),
        *cause.lines,
        *followers(cause, ranks, late_s=late_s),
        *launchers(cause, ranks, late_s=late_s),
    ]


Said = Callable[[Line, float], str]


def said(line: Line, ahead_s: float = 0.0) -> str:
    """The line as its writer has it, whose clock is so far ahead."""
    at_s = line.at_s + ahead_s
    text = line.text.replace("{glog}", glog(at_s))
    if line.rank is None:
        at = BEGIN + timedelta(seconds=at_s)
        return f"{at:%b %d %H:%M:%S} node-{line.host} kernel: {text}"
    return text if line.is_bare else f"{stamp(at_s)} {text}"


def by_rank(
    lines: Iterable[Line], ahead_s: Callable[[Line], float] = lambda line: 0.0
) -> dict[str, list[str]]:
    """A file for each rank, for each kernel and for each launcher, in the order in which each wrote."""
    files: dict[str, list[str]] = {}
    for line in sorted(lines, key=lambda line: line.at_s):
        name = (
            f"node-{line.host}/dmesg.log"
            if line.rank is None
            else f"node-{line.host}/launcher.log"
            if line.rank < 0
            else f"node-{line.host}/rank-{line.rank}.log"
        )
        files.setdefault(name, []).append(said(line, ahead_s(line)))
    return files


def in_one(lines: Iterable[Line]) -> dict[str, list[str]]:
    """All ranks in one file as srun --label writes it, the kernels in their own."""
    files: dict[str, list[str]] = {"job.out": []}
    for line in sorted(lines, key=lambda line: line.at_s):
        if line.rank is None:
            files.setdefault(f"node-{line.host}/dmesg.log", []).append(said(line))
        elif line.rank < 0:
            files["job.out"].append(f"{line.host * PER_HOST}: {said(line)}")
        else:
            files["job.out"].append(f"{line.rank}: {said(line)}")
    return files
