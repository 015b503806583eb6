"""Combines all samples except those of ranks once a second, and stores them in the worker's ring buffer.

Never waits, and never raises on bad input.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from holdfast.agent.watch.sample_ring import SampleRing
from holdfast.model.nodes.samples import Moment, RasReport
from holdfast.model.samples import GONE_STATES, RankSample
from holdfast.observe.host.aside import Answer
from holdfast.observe.host.devices import Devices
from holdfast.observe.host.gpus import gpus_of
from holdfast.observe.host.node_counters import NodeCounters
from holdfast.observe.host.ras import RasWitness

GPUS_EVERY = 10  # samples between two looks at whether a rank has opened a GPU; ranks open them once, early
STUCK_S = 10.0


class Signals:
    """Sampler of the node, devices and NCCL for one attempt. `folder`: the worker's folder. `env`:
    environment of the ranks. `clock`: in seconds, to compute ages.
    """

    def __init__(
        self,
        folder: Path,
        env: Mapping[str, str],
        *,
        clock: Callable[[], float] = time.monotonic,
        counters: NodeCounters | None = None,
        devices: Devices | None = None,
    ) -> None:
        self.ring = SampleRing(folder)
        self._counters = counters or NodeCounters(clock=clock)
        self._devices = devices or Devices(clock)
        self._ras = RasWitness(env, clock)
        self._ras_kept: RasReport | None = None
        self._has_gpus = False
        self._taken = 0
        self._stuck_reported = False

    def take(self, at_s: float, ranks: tuple[RankSample, ...]) -> Moment:
        """Samples the node, devices and NCCL once a second, and stores the result together with the ranks'
        samples in the ring buffer.
        """
        if not self._has_gpus and self._taken % GPUS_EVERY == 0:
            self._has_gpus = bool(gpus_of(one.pid for one in ranks if one.state not in GONE_STATES))
        self._taken += 1
        devices = self._devices.last()
        if self._has_gpus:
            self._devices.ask()
        ras = self._new_report()
        moment = Moment(
            at_s=at_s,
            ranks=ranks,
            node=self._counters.sample(),
            devices=devices.value if devices else (),
            devices_age_s=round(devices.age_s, 1) if devices else None,
            ras=ras.value if ras else None,
            ras_age_s=round(ras.age_s, 1) if ras else None,
        )
        self.ring.add(moment)
        return moment

    def step_seen(self) -> None:
        """Records that the job has made its first step: from now on NCCL may be queried."""
        self._ras.allow()

    def suspect(self) -> bool:
        """Starts a query of NCCL's RAS service because a hang is suspected. `ras` returns its result.

        Returns whether the query was started: False if the last query is too recent, or one is still running.
        """
        return self._ras.ask()

    def ras(self) -> Answer[RasReport] | None:
        """Returns the last report of NCCL's RAS service."""
        return self._ras.last()

    def news(self) -> str:
        """Returns a sentence, once, if a driver has stopped responding; otherwise ""."""
        stuck_s = self._devices.stuck_s()
        if stuck_s < STUCK_S:
            self._stuck_reported = False
            return ""
        if self._stuck_reported:
            return ""
        self._stuck_reported = True
        return (
            f"the GPU driver has not answered for {stuck_s:.0f} s: "
            "check the kernel log for Xid lines; the GPU values shown are old"
        )

    def close(self) -> None:
        self._counters.close()
        self._devices.close()
        self._ras.close()
        self.ring.close()

    def _new_report(self) -> Answer[RasReport] | None:
        """Returns a report of the RAS service the first time only; otherwise None."""
        answer = self._ras.last()
        if answer is None or answer.value is self._ras_kept:
            return None
        self._ras_kept = answer.value
        return answer
