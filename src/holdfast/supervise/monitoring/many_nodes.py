"""Exports the metrics of a multi-node job from its controller."""

from collections.abc import Callable

from holdfast.controller.hang_watch import HangWatching
from holdfast.controller.straggler_watch import StragglersWatching
from holdfast.controller.worker_group import WorkerGroupEngine
from holdfast.journal.jobdir import JobDir
from holdfast.journal.recorder import Recorder
from holdfast.model.settings import RunSettings
from holdfast.observe.clock import JobClock
from holdfast.supervise.monitoring.job import JobMetrics, Live
from holdfast.supervise.wheel import Wheel


def of_many_nodes(
    settings: RunSettings,
    clock: JobClock,
    tell: Callable[[str], None],
    job: JobDir,
    record: Recorder,
    wheel: Wheel,
    hangs: HangWatching,
    stragglers: StragglersWatching,
    machine: WorkerGroupEngine,
) -> JobMetrics:
    live = Live(lambda: hangs.output_s, lambda: stragglers.now, lambda: len(machine.connected))
    return JobMetrics(settings, job, record, wheel, live, clock, tell)
