"""Exports the metrics of a job: its ledger of time, its steps, and on a single node the node's."""

from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast import __version__
from holdfast.agent.worker import WorkerAgent
from holdfast.core.job.decision import Decision
from holdfast.core.metrics.job_samples import JobFacts, job_samples, rates_of
from holdfast.core.metrics.ledger import Ledger
from holdfast.core.metrics.node_samples import node_samples
from holdfast.journal.jobdir import JobDir
from holdfast.journal.recorder import Recorder
from holdfast.metrics.exporter import Exported, Exporter, Own
from holdfast.model.events import AnyEvent
from holdfast.model.monitoring.metrics import AnySample
from holdfast.model.settings import RunSettings
from holdfast.model.steps import Straggler
from holdfast.observe.clock import JobClock
from holdfast.observe.logs import step_file
from holdfast.supervise.monitoring.node import VERSIONS, node_facts, of_agents
from holdfast.supervise.wheel import Wheel


class Live:
    """Functions that return the current state of a running job, as far as the job's events do not contain it."""

    def __init__(
        self,
        output_s: Callable[[], float | None],
        stragglers: Callable[[], Sequence[Straggler]],
        agents: Callable[[], int | None],
    ) -> None:
        self.output_s, self.stragglers, self.agents = output_s, stragglers, agents


class JobMetrics:
    """The metrics export of a job.

    `node`: set if the agent runs in this process. `worker`: its number in a job of several workers without a
    controller.
    """

    def __init__(
        self,
        settings: RunSettings,
        job: JobDir,
        record: Recorder,
        wheel: Wheel,
        live: Live,
        clock: JobClock,
        tell: Callable[[str], None],
        node: WorkerAgent | None = None,
        worker: int = 0,
    ) -> None:
        self._settings, self._job, self._live, self._clock, self._node = settings, job, live, clock, node
        self._ledger = Ledger(settings.policy)
        self.exporter = Exporter(
            of_agents(settings, f"worker-{worker}")
            if worker
            else Exported(address=settings.metrics_address, textfile=settings.metrics_textfile),
            "controller",
            VERSIONS,
            self._collect,
            lambda: Own(faults=wheel.faults, journal=not record.trouble, rows_lost=record.lost_rows),
            tell,
        )

    def hear(self, event: AnyEvent, decision: Decision) -> None:
        self._ledger.hear(event, decision)

    def channels(self) -> list[int]:
        return self.exporter.channels()

    def turn(self) -> None:
        self.exporter.turn()

    def close(self) -> None:
        self.exporter.close()

    def _collect(self) -> Callable[[], Sequence[AnySample]]:
        """Copies the changing values in the main loop. The returned function reads the step file and builds samples."""
        state, accounts = self._ledger.state, self._ledger.now(self._clock())
        output_s, stragglers, agents = self._live.output_s(), self._live.stragglers(), self._live.agents()
        folder = self._job.worker(state.job.attempt, 0)
        node = node_facts(state.job.name, self._node, self._clock) if self._node is not None else None

        def rest() -> list[AnySample]:
            facts = self._facts(folder, output_s, stragglers, agents)
            found = job_samples(state, accounts, facts)
            return found + node_samples(node) if node is not None else found

        return rest

    def _facts(
        self, folder: Path, output_s: float | None, stragglers: Sequence[Straggler], agents: int | None
    ) -> JobFacts:
        file = step_file.read(folder)
        common = JobFacts(
            engine=self._settings.engine,
            version=__version__,
            max_restarts=self._settings.policy.max_restarts,
            stragglers=stragglers,
            last_output_s=output_s,
            agents=agents,
        )
        return common if file is None else with_steps(common, file)


def with_steps(facts: JobFacts, file: step_file.StepFile) -> JobFacts:
    return JobFacts(
        engine=facts.engine,
        version=facts.version,
        max_restarts=facts.max_restarts,
        stragglers=facts.stragglers,
        last_output_s=facts.last_output_s,
        agents=facts.agents,
        steps=file.now,
        rates=rates_of(file.batch, file.batch_counts, file.sequence, file.now.median_s),
        findings=frozenset(one.kind for one in file.findings),
    )


def of_one_machine(
    settings: RunSettings,
    clock: JobClock,
    tell: Callable[[str], None],
    job: JobDir,
    record: Recorder,
    wheel: Wheel,
    agent: WorkerAgent,
    worker: int,
) -> JobMetrics:
    def output_s() -> float | None:
        return agent.attempt.output_s if agent.attempt is not None else None

    def stragglers() -> Sequence[Straggler]:
        return agent.attempt.steps.stragglers.slower if agent.attempt is not None else ()

    live = Live(output_s, stragglers, lambda: None)
    return JobMetrics(settings, job, record, wheel, live, clock, tell, node=agent, worker=worker)
