"""Logs of trainings that never ran, and event files, for the tests of what reads them."""

import random
import struct
from collections.abc import Iterable, Iterator

from holdfast.parsers.steps.tfevents import masked_crc

CLOCK = "[2025-04-21 {h:02}:{m:02}:{s:02}]"


def times(
    count: int, *, base_s: float = 1.0, slow_from: int = 0, ratio: float = 1.3, seed: int = 1
) -> list[float]:
    """Step times in seconds with 1 % of jitter; from step `slow_from` on `ratio` times as long."""
    dice = random.Random(seed)
    return [
        base_s * (1 + dice.gauss(0, 0.01)) * (ratio if slow_from and step >= slow_from else 1.0)
        for step in range(1, count + 1)
    ]


def megatron(
    times_s: Iterable[float],
    *,
    first: int = 1,
    stamp: str = CLOCK,
    begin_s: float = 15 * 3600.0,
    batch: int = 512,
) -> str:
    """A Megatron-LM log. `stamp`: what stands before each line, of h, m and s; "" for none."""
    return "\n".join(_megatron(times_s, first, stamp, begin_s, batch)) + "\n"


def _megatron(times_s: Iterable[float], first: int, stamp: str, at_s: float, batch: int) -> Iterator[str]:
    for step, time_s in enumerate(times_s, first):
        at_s += time_s
        minutes, seconds = divmod(int(at_s), 60)
        head = stamp.format(h=minutes // 60, m=minutes % 60, s=seconds)
        yield (
            f"{head} iteration {step:8d}/   10000 | consumed samples: {step * batch:12d} | "
            f"elapsed time per iteration (ms): {time_s * 1000:.1f} | learning rate: 1.000E-04 | "
            f"global batch size: {batch:5d} | lm loss: {10 - step / 1000:.6E} | loss scale: 1.0 | grad norm: 1.000 | "
            "number of skipped iterations:   0 | number of nan iterations:   0 |"
        )


# Event files ---------------------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def event(at_s: float, step: int, **tags: float) -> bytes:
    """One record with these scalars."""
    values = b"".join(
        field(1, field(1, tag.encode()) + b"\x15" + struct.pack("<f", value)) for tag, value in tags.items()
    )
    return framed(b"\x09" + struct.pack("<d", at_s) + b"\x10" + varint(step) + field(5, values))


def framed(body: bytes) -> bytes:
    size = struct.pack("<Q", len(body))
    return size + struct.pack("<I", masked_crc(size)) + body + struct.pack("<I", masked_crc(body))
