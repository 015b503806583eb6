"""Exports the metrics of one node: its worker, devices, RDMA ports and link."""

import platform
from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast import __version__
from holdfast.agent.worker import WorkerAgent
from holdfast.core.job.decision import Decision
from holdfast.core.metrics.node_samples import NodeFacts, Spooled, node_samples
from holdfast.metrics.exporter import Exported, Exporter, Own
from holdfast.model.events import AnyEvent
from holdfast.model.monitoring.metrics import AnySample
from holdfast.model.settings import RunSettings
from holdfast.observe.clock import JobClock

VERSIONS = (__version__, platform.python_version())


def node_facts(job: str, worker: WorkerAgent, clock: JobClock, link: Spooled | None = None) -> NodeFacts:
    """Returns the agent's current facts without I/O."""
    attempt = worker.attempt
    if attempt is None:
        return NodeFacts(job=job, node=worker.node, version=__version__, link=link)
    moment = attempt.looks.sampler.moment
    ended = sum(rank.gone for rank in attempt.ranks.values())
    age_s = None
    if moment is not None and moment.devices_age_s is not None:
        age_s = moment.devices_age_s + max(0.0, clock() - moment.at_s)
    return NodeFacts(
        job=job,
        node=worker.node,
        version=__version__,
        ranks_running=len(attempt.ranks) - ended,
        ranks_ended=ended,
        step=attempt.step,
        last_output_s=attempt.output_s,
        devices=moment.devices if moment is not None else (),
        devices_age_s=age_s,
        sample=moment.node if moment is not None else None,
        link=link,
    )


class AgentMetrics:
    """The metrics export of an agent with a remote controller, on the first free port after the
    controller's.
    """

    def __init__(
        self,
        settings: RunSettings,
        job: str,
        worker: WorkerAgent,
        link: Callable[[], tuple[bool, int, int, int, int]],
        faults: Callable[[], int],
        clock: JobClock,
        tell: Callable[[str], None],
    ) -> None:
        self._job, self._worker, self._link, self._clock = job, worker, link, clock
        self.exporter = Exporter(
            of_agents(settings, worker.node),
            "agent",
            VERSIONS,
            self._collect,
            lambda: Own(faults=faults()),
            tell,
        )

    def hear(self, event: AnyEvent, decision: Decision) -> None:
        """Does nothing: the controller exports decisions."""

    def channels(self) -> list[int]:
        return self.exporter.channels()

    def turn(self) -> None:
        self.exporter.turn()

    def close(self) -> None:
        self.exporter.close()

    def _collect(self) -> Callable[[], Sequence[AnySample]]:
        connected, entries, memory_bytes, dropped, lost = self._link()
        link = Spooled(
            connected=connected, entries=entries, memory_bytes=memory_bytes, dropped=dropped, lost=lost
        )
        facts = node_facts(self._job, self._worker, self._clock, link)
        return lambda: node_samples(facts)


def of_agents(settings: RunSettings, node: str) -> Exported:
    """Returns the agents' export settings: the next port, and NAME-NODE.prom for NAME.prom."""
    address = settings.metrics_address
    if address:
        host, _, port = address.rpartition(":")
        address = f"{host}:{int(port) + 1}" if int(port) else address
    file = Path(settings.metrics_textfile) if settings.metrics_textfile else None
    textfile = str(file.with_name(f"{file.stem}-{node}{file.suffix}")) if file else None
    return Exported(address=address, textfile=textfile, exact=False)
