"""Samples one worker once a second: its ranks, their progress in collectives, its node, its GPUs.

Never waits: a query to a rank is read a tenth of a second later, and drivers are queried in threads of their
own.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from holdfast.agent.watch.collectives import Collectives
from holdfast.agent.watch.signals import Signals
from holdfast.core.nodes.busy import is_busy
from holdfast.model.nodes.samples import DeviceSample, Moment
from holdfast.model.samples import RankSample, Utilisation
from holdfast.observe.processes.procs import RankReader

SAMPLE_S = 1.0
SPREAD_S = 0.25
USED_S = 10.0  # the rule wants four readings in a minute


class Sampled(Protocol):
    """Interface to a rank of the attempt, as far as the sampler needs it."""

    pid: int
    reader: RankReader
    code: int | None
    gone: bool


class Sampler:
    """Sampler of one worker.

    `node_busy_s`: when the node's disks or network links last carried much data; None until known.

    `spread`: vary the sampling interval, so that samples do not fall on the same moment of each step. The
    share of samples in which a rank waits then estimates how long it waits.
    """

    def __init__(self, folder: Path, env: Mapping[str, str], clock: Callable[[], float]) -> None:
        self.node_busy_s: float | None = None
        self.spread = False
        self.signals = Signals(folder, env)
        self._clock = clock
        self._collectives = Collectives(folder)
        self._before: Moment | None = None
        self._asked_s: float | None = None
        self._sampled_s = 0.0
        self._period_s = SAMPLE_S
        self._counters: tuple[tuple[int, int | None, int | None], ...] = ()
        self._used_sent_s = float("-inf")

    def look(self, ranks: Mapping[int, Sampled], step: int | None) -> tuple[RankSample, ...] | None:
        """Takes a sample of all ranks. Call it ten times a second. Returns None if no sample is due yet."""
        at_s = self._clock()
        if self._asked_s is None:
            if at_s - self._sampled_s >= self._period_s:
                self._collectives.ask(rank for rank, seen in ranks.items() if not seen.gone)
                self._asked_s = at_s
            return None
        self._sampled_s, self._asked_s = self._asked_s, None
        self._period_s = SAMPLE_S + random.uniform(-SPREAD_S, SPREAD_S) if self.spread else SAMPLE_S
        samples = tuple(self._sample(rank, seen, at_s, step) for rank, seen in sorted(ranks.items()))
        self._weigh(self.signals.take(at_s, samples))
        return samples

    @property
    def moment(self) -> Moment | None:
        """Returns the last sample with the state of the node; None if none was taken."""
        return self._before

    def utilisation(self) -> tuple[Utilisation, ...]:
        """Returns the GPU utilisation, for the hang rule of training platforms."""
        moment = self._before
        if moment is None or moment.devices_age_s is None:
            return ()
        at_s = moment.at_s - moment.devices_age_s
        return tuple(_used(one, at_s) for one in moment.devices if one.utilization is not None)

    def used_while_still(self, samples: Sequence[RankSample]) -> tuple[Utilisation, ...]:
        """Returns the GPU utilisation, sampled at intervals while no rank of this worker reads or writes.

        It is used by the hang rule of training platforms.
        """
        counters = tuple((one.pid, one.io_bytes, one.disk_bytes) for one in samples)
        before, self._counters = self._counters, counters
        if counters != before or not samples or samples[0].at_s - self._used_sent_s < USED_S:
            return ()
        self._used_sent_s = samples[0].at_s
        return self.utilisation()

    def close(self) -> None:
        self._collectives.close()
        self.signals.close()

    def _sample(self, rank: int, seen: Sampled, at_s: float, step: int | None) -> RankSample:
        groups = None if seen.gone else self._collectives.read(rank)
        sample = seen.reader.sample(at_s, step=step, thread=self._collectives.thread(rank))
        if seen.gone:
            return msgspec.structs.replace(sample, exit_code=seen.code)
        return msgspec.structs.replace(sample, groups=groups)

    def _weigh(self, moment: Moment) -> None:
        before, self._before = self._before, moment
        if before is None or before.node is None or moment.node is None:
            return
        if not moment.node.disks:  # where no disk can be seen, nothing is known of what they carry
            return
        if self.node_busy_s is None or is_busy(before.node, moment.node, moment.at_s - before.at_s):
            self.node_busy_s = moment.at_s


def _used(device: DeviceSample, at_s: float) -> Utilisation:
    assert device.utilization is not None
    return Utilisation(
        at_s=at_s, device=device.address or str(device.index), percent=100 * device.utilization
    )
