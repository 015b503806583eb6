"""Simulated step times, healthy and slow, of which everything is known. The same seed gives the same series.

A series is made of what real logs show: jitter, checkpoints, evaluation, a swing through the day, random spikes, steps
that take turns, ramps of the batch. `KINDS` names the mixtures; `series` makes one, `slow` makes it slower.
"""

import math
import random
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from holdfast.model.steps import StepRecord


class Kind(Struct, frozen=True, kw_only=True):
    """How long steps take, in units of a usual one."""

    jitter: float = 0.015  # standard deviation
    checkpoint_every: int = 0
    checkpoint: float = 8.0
    evaluation_every: int = 0
    evaluation: float = 30.0
    swing: float = 0.0  # amplitude through a day of 2,000 to 6,000 steps
    spikes: float = 0.0  # share of steps that take 2 to 10 times as long
    turns: tuple[float, ...] = (1.0,)  # steps take turns in these
    batch_every: int = 0  # steps after which the batch doubles, and with it the step; the log tells
    compiles_at: tuple[int, ...] = (0,)  # steps that take 60 times as long: compilation
    epoch_steps: int = 0  # batches are ordered by length, from half to one and a half of the usual
    digits: int | None = None  # printed so coarsely, of 0.07 s
    collects_every: int = 0  # garbage, twice the time
    lengths: float = 0.0  # log-normal spread of generated lengths, a step each


_USUAL = Kind(checkpoint_every=100, evaluation_every=250, swing=0.02, spikes=0.005)
# The mixtures of the list; "all" is what the promised figures are measured on, and each other beside it.
KINDS: dict[str, Kind] = {
    "jitter only": Kind(),
    "checkpoints, 8 x every 100": Kind(checkpoint_every=100),
    "evaluation, 30 x every 250": Kind(evaluation_every=250),
    "swing of 2 % through the day": Kind(swing=0.02),
    "spikes of 2-10 x at 0.5 %": Kind(spikes=0.005),
    "alternating lengths, 1 and 1.25": Kind(turns=(1.0, 1.25)),
    "every tenth step 5 x": Kind(turns=(*(1.0,) * 9, 5.0)),
    "batch doubles every 700 steps": Kind(batch_every=700),
    "garbage collection every 37": Kind(collects_every=37),
    "all of them": replace(_USUAL, collects_every=37),
    "all, alternating": replace(_USUAL, turns=(1.0, 1.25)),
    "all, batch ramp": replace(_USUAL, batch_every=700),
}
# Healthy too, but so irregular that a 10 % slowdown cannot be expected to be found at once: false alarms only.
ROUGH: dict[str, Kind] = {
    "jitter of 5 %": replace(_USUAL, jitter=0.05),
    "jitter of 30 %": Kind(jitter=0.3),
    "generated lengths": Kind(lengths=0.3),
    "ordered by length, epochs of 400": Kind(epoch_steps=400),
    "printed as 0.07 and 0.08": Kind(digits=2),
    "compiles again at 300, 301, 900": Kind(compiles_at=(0, 1, 300, 301, 900)),
    "12.4 s and 0.002 s in turn": Kind(turns=(1.0, 0.0002)),
}


def series(kind: Kind, steps: int, seed: str) -> Iterator[StepRecord]:
    """A healthy training: steps 1 to `steps`."""
    dice = random.Random(seed)
    day, phase = dice.uniform(2000, 6000), dice.uniform(0, 2 * math.pi)
    for step in range(1, steps + 1):
        time_s = kind.turns[step % len(kind.turns)] * (
            1 + kind.swing * math.sin(2 * math.pi * step / day + phase)
        )
        time_s *= max(dice.gauss(1, kind.jitter), 0.05)
        if kind.lengths:
            time_s *= math.exp(dice.gauss(0, kind.lengths))
        if kind.epoch_steps:
            time_s *= 0.5 + (step % kind.epoch_steps) / kind.epoch_steps
        batch = 2 ** (step // kind.batch_every) if kind.batch_every else 1
        time_s *= batch
        time_s *= _pause(kind, step, dice)
        if kind.digits is not None:
            time_s = round(0.0752 * time_s, kind.digits)
        yield StepRecord(
            step=step,
            time_s=time_s,
            batch=64.0 * batch,
            epoch=step // kind.epoch_steps if kind.epoch_steps else None,
        )


def _pause(kind: Kind, step: int, dice: random.Random) -> float:
    if step - 1 in kind.compiles_at:
        return 60.0
    if kind.checkpoint_every and step % kind.checkpoint_every == 0:
        return kind.checkpoint
    if kind.evaluation_every and step % kind.evaluation_every == 0:
        return kind.evaluation
    if kind.spikes and dice.random() < kind.spikes:
        return dice.uniform(2, 10)
    return 2.0 if kind.collects_every and step % kind.collects_every == 0 else 1.0


def slow(records: Iterator[StepRecord], ratio: float, onset: int) -> Iterator[StepRecord]:
    """The same training, but from step `onset` on every step takes `ratio` as long."""
    for record in records:
        assert record.step is not None and record.time_s is not None
        yield replace(record, time_s=record.time_s * ratio) if record.step >= onset else record
