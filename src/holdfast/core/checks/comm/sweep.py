"""Judges an all-reduce over many message sizes, and formats the results as nccl-tests does. Pure.

Algorithm bandwidth is size divided by time; bus bandwidth is that times 2(n-1)/n, which does not depend on
the number of ranks. source: nccl-tests, PERFORMANCE.md. torch reduces in place, so only those columns are
printed.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from holdfast.core.checks.comm.local import NCCL, bus_bandwidth
from holdfast.core.plurals import counted
from holdfast.model.checks import DEVICE_FAULT, FAIL, PASS, RULE, Fact, Finding
from holdfast.model.signatures import Words

TELLING_BYTES = 1 << 20  # smaller messages measure the latency, which varies with the load of a CPU


class Row(Struct, frozen=True, kw_only=True):
    """The result for one message size in bytes.

    `time_s`: of the slowest rank. Bandwidths in GB/s (10^9). `wrong`: number of wrong elements.
    """

    size: int
    time_s: float
    algbw: float
    busbw: float
    wrong: int


def rows(ranks: Sequence[Mapping[str, Any]]) -> tuple[Row, ...]:
    """Returns the rows from each rank's result for each size: `bytes`, `best_s`, `wrong`.

    The slowest rank's time counts.
    """
    found = []
    for place, first in enumerate(ranks[0]["sums"]):
        size = int(first["bytes"])
        time_s = max(float(rank["sums"][place]["best_s"]) for rank in ranks)
        found.append(
            Row(
                size=size,
                time_s=time_s,
                algbw=size / time_s / 1e9 if time_s > 0 else 0.0,
                busbw=bus_bandwidth(size, time_s, len(ranks)),
                wrong=sum(int(rank["sums"][place]["wrong"]) for rank in ranks),
            )
        )
    return tuple(found)


def table(swept: Sequence[Row]) -> list[str]:
    """Returns the lines of the table that nccl-tests prints.

    #                                                              in-place
    #       size         count      type   redop    root     time   algbw   busbw #wrong
    #        (B)    (elements)                               (us)  (GB/s)  (GB/s)
         1048576        262144     float     sum      -1   412.33    2.54    2.54      0
    # Out of bounds values : 0 OK
    # Avg bus bandwidth    : 2.54302
    """
    lines = [
        f"#{'':>10} {'':>13} {'':>9} {'':>7} {'':>7}  {'in-place':>22}".rstrip(),
        "#       size         count      type   redop    root     time   algbw   busbw #wrong",
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)",
    ]
    for row in swept:
        shape = f"{row.size:12}  {max(row.size // 4, 1):12}  {'float':>8}  {'sum':>6}  {'-1':>6}"
        lines.append(
            f"{shape}  {_time(row.time_s * 1e6):>7}  {row.algbw:6.2f}  {row.busbw:6.2f}  {row.wrong:5}"
        )
    wrong = sum(row.wrong for row in swept)
    mean = sum(row.busbw for row in swept) / len(swept) if swept else 0.0
    return [
        *lines,
        f"# Out of bounds values : {wrong} {'OK' if not wrong else 'FAILED'}",
        f"# Avg bus bandwidth    : {mean:g}",
    ]


def _time(microseconds: float) -> str:
    """Returns a time with as many digits as nccl-tests prints."""
    if microseconds >= 10_000:
        return f"{microseconds:.0f}"
    return f"{microseconds:.1f}" if microseconds >= 100 else f"{microseconds:.2f}"


def of_sweep(swept: Sequence[Row], ranks: int, backend: str, model: str) -> Iterator[Finding | Fact]:
    """Yields a finding with the table, a fact for each message size that measures bandwidth, and whether every sum
    was correct.
    """
    wrong = [row for row in swept if row.wrong]
    lines = "\n".join(table(swept))
    if wrong:
        yield _corrupt(wrong[0], lines, backend)
        return
    for row in swept:
        # gloo's speed depends on idle cores and is not compared; NCCL's is that of the links.
        is_telling = row.size >= TELLING_BYTES and ranks > 1 and backend == NCCL
        yield Fact(
            name=f"all-reduce {_size(row.size)}",
            value=round(row.busbw, 6),
            unit="GB/s",
            model=f"{model} {backend} {ranks} ranks".strip(),
            learn=is_telling,
            peers=is_telling,
        )
    best = max(swept, key=lambda row: row.busbw)
    yield Finding(
        status=PASS,
        measured=f"{best.busbw:.2f} GB/s of bus bandwidth at {_size(best.size)}, {ranks} ranks ({backend})\n{lines}",
        expected="correct sums",
        whence=RULE,
    )


def _corrupt(row: Row, lines: str, backend: str) -> Finding:
    return Finding(
        status=FAIL,
        measured=f"{counted(row.wrong, 'wrong number')} in sums of {row.size} bytes\n{lines}",
        expected="0 wrong numbers",
        whence=RULE,
        why=f"an all-reduce of {row.size} bytes among the ranks of this node with {backend} gave wrong sums",
        fault=DEVICE_FAULT,
        advice=Words(
            en="Keep the node out of training and test its memory, devices and links: its results are wrong.",
            zh="请隔离该节点并检测内存、设备与互连；在此训练会得到错误数值。",
        ),
    )


def _size(count: int) -> str:
    """Returns a size as text: "8 MiB"."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:g} {name}"
    return f"{count} B"
