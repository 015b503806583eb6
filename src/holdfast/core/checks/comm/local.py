"""Judges whether the ranks of one node could connect, and whether their all-reduce sums are correct. Pure.

Bus bandwidth of an all-reduce of n ranks: bytes / seconds * 2 (n - 1) / n. source: nccl-tests, PERFORMANCE.md
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holdfast.core.plurals import counted
from holdfast.late_pattern import late
from holdfast.model.checks import (
    ASKED,
    DEVICE_FAULT,
    ENVIRONMENT_FAULT,
    FAIL,
    PASS,
    RULE,
    SKIP,
    WARN,
    Fact,
    Finding,
)
from holdfast.model.signatures import Words

GLOO, NCCL = "gloo", "nccl"
_SOURCE_PLACE = late(r"\[enforce fail at [^]]*\]\s*(?:\S+ != \S+\.\s*)?|\[[^]]*\.cpp:\d+\]\s*")


def bus_bandwidth(size_bytes: int, seconds: float, ranks: int) -> float:
    """Returns the bus bandwidth of an all-reduce in GB/s (10^9)."""
    return size_bytes / seconds * 2 * (ranks - 1) / ranks / 1e9 if seconds > 0 and ranks else 0.0


def trouble(
    said: Sequence[Mapping[str, Any]], backend: str, ended: bool, within_s: float, errors: str
) -> Finding | None:
    """Returns a finding with the reason why the ranks failed; None if they succeeded.

    `said`: the JSON lines of their output, in order. `ended`: the process ended before its time limit `within_s`.
    `errors`: what it printed to stderr.
    """
    stages = {str(one.get("stage")): one for one in said}
    if "import" in stages:
        return _no_import(str(stages["import"].get("error", "")))
    if "absent" in stages:
        return Finding(status=SKIP, why=f"torch of the run is built without {backend}")
    if "ready" not in stages:
        why = f"torch was not ready within {within_s:g} s" if not ended else f"torch did not start: {errors}"
        return Finding(status=SKIP, why=why)
    if "done" not in stages:
        return (
            _hangs(backend, within_s)
            if not ended
            else _failed(backend, errors or "the ranks ended without output")
        )
    wrong = [(one.get("rank", "?"), str(one["error"])) for one in stages["done"]["ranks"] if "error" in one]
    if wrong:
        rank, error = wrong[0]
        return _failed(backend, f"rank {rank}: {_SOURCE_PLACE.sub('', error)}")
    return None


def _no_import(error: str) -> Finding:
    return Finding(
        status=FAIL,
        measured=error,
        expected="torch can be imported",
        whence=ASKED,
        why=f"import torch fails in the Python of the run: {error}",
        advice=Words(
            en="Run `python -c 'import torch'` in the environment of the run, and install torch again there.",
            zh="请在运行环境中执行 `python -c 'import torch'` 排查，并重装 torch。",
        ),
        fault=ENVIRONMENT_FAULT,
        category="import_error",
    )


def _hangs(backend: str, within_s: float) -> Finding:
    return Finding(
        status=WARN,
        measured=f"no answer within {within_s:g} s",
        expected="the ranks of this node complete a rendezvous",
        whence=RULE,
        why=f"ranks of this node with {backend} did not finish within {within_s:g} s",
        advice=_advice(backend),
        category="nccl_init_failure" if backend == NCCL else "rendezvous_timeout",
    )


def _failed(backend: str, error: str) -> Finding:
    return Finding(
        status=FAIL,
        measured=error,
        expected="the ranks of this node complete a rendezvous",
        whence=RULE,
        why=f"ranks of this node cannot communicate with {backend}: {error}",
        advice=_advice(backend),
        category="nccl_init_failure" if backend == NCCL else "rendezvous_timeout",
    )


def _advice(backend: str) -> Words:
    if backend == NCCL:
        return Words(
            en="Run it again with NCCL_DEBUG=INFO; check the NCCL_* variables, /dev/shm, the driver and the fabric manager.",
            zh="请加 NCCL_DEBUG=INFO 重试，检查 NCCL_* 变量、/dev/shm、驱动与 fabric manager。",
        )
    return Words(
        en="Check GLOO_SOCKET_IFNAME, the host's name in DNS or /etc/hosts, and the loopback interface.",
        zh="请检查 GLOO_SOCKET_IFNAME、主机名解析（DNS 或 /etc/hosts）与回环网卡。",
    )


def of_meeting(done: Mapping[str, Any], backend: str) -> Finding:
    """Returns the finding that the ranks connected to each other, with the time that it took."""
    met_s = max(float(one["met_s"]) for one in done["ranks"])
    return Finding(
        status=PASS,
        measured=f"{counted(len(done['ranks']), 'rank')} completed the rendezvous in {met_s:.2f} s ({backend})",
        expected="the ranks of this node complete a rendezvous",
        whence=RULE,
    )


def of_sums(done: Mapping[str, Any], backend: str, model: str) -> Iterator[Finding | Fact]:
    """Yields findings: whether the all-reduce sums are exact, and the bus bandwidth of the largest message."""
    ranks = done["ranks"]
    wrong = [(one["rank"], one_sum) for one in ranks for one_sum in one["sums"] if one_sum["wrong"]]
    if wrong:
        rank, one_sum = wrong[0]
        yield _corrupt(backend, rank, one_sum, model)
        return
    largest = max(ranks[0]["sums"], key=lambda one_sum: one_sum["bytes"])
    slowest_s = max(one["sums"][ranks[0]["sums"].index(largest)]["best_s"] for one in ranks)
    speed = bus_bandwidth(int(largest["bytes"]), slowest_s, len(ranks))
    said = f", {speed:.2f} GB/s" if len(ranks) > 1 else ""
    if len(ranks) > 1:
        # gloo's speed depends on idle cores and is not compared; NCCL's is that of the links.
        yield Fact(
            name=f"all-reduce-{backend}",
            value=speed,
            unit="GB/s",
            model=model,
            peers=backend == NCCL and bool(model),
        )
    yield Finding(
        status=PASS,
        measured=f"{len(ranks)} ranks, {int(largest['bytes']) >> 20} MiB{said} ({backend})",
        expected="correct sums",
        whence=RULE,
    )


def _corrupt(backend: str, rank: int, one_sum: Mapping[str, Any], model: str) -> Finding:
    where = f" of {model}" if model else ""
    return Finding(
        status=FAIL,
        device=f"rank {rank}",
        measured=f"{counted(one_sum['wrong'], 'wrong number')} in sums of {one_sum['bytes']} bytes",
        expected="0 wrong numbers",
        whence=RULE,
        why=f"an all-reduce among the ranks of this node with {backend}{where} gave wrong sums",
        advice=Words(
            en="Keep the node out of training and test its memory, GPUs and links: its results are wrong.",
            zh="请隔离该节点并检测内存、GPU 与互连；在此训练会得到错误数值。",
        ),
        fault=DEVICE_FAULT,
        category="p2p_failure" if backend == NCCL else "mce_edac",
    )
