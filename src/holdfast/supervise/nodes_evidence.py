"""Writes the evidence bundles of a multi-node job: their contents, and whose logs come first."""

from collections import deque
from collections.abc import Mapping

import msgspec

from holdfast.agent.bundle import BundleWriter, JobScene, WorkerScene
from holdfast.controller.conclusion import Case
from holdfast.journal.jobdir import JobDir
from holdfast.model.samples import RankSample
from holdfast.model.settings import RunSettings

WAIT_S = 10.0  # at the end, for one that is being written


class NodesEvidence:
    """Writer of evidence bundles in threads; neither the restart nor the main loop waits for one."""

    def __init__(self, job: JobDir, settings: RunSettings, env: Mapping[str, str]) -> None:
        self._job, self._settings, self._env = job, settings, env
        self._errors: deque[str] = deque()
        self._writer = BundleWriter(job.incidents, self._errors.append)

    def save(self, case: Case, samples: tuple[RankSample, ...]) -> None:
        """Writes the bundle of an incident.

        `samples`: the last ones of all ranks, if the workers' files are not visible here.
        """
        self._writer.write_job(job_scene(case, self._job, self._settings, self._env, samples))

    def news(self) -> list[str]:
        """Returns the errors of writing bundles since the last call, each once."""
        return [self._errors.popleft() for _ in range(len(self._errors))]

    def close(self) -> None:
        self._writer.wait(WAIT_S)


def job_scene(
    case: Case,
    job: JobDir,
    settings: RunSettings,
    env: Mapping[str, str],
    samples: tuple[RankSample, ...] = (),
) -> JobScene:
    offsets = {one.worker: one.offsets for one in case.evidence}
    return JobScene(
        incident=case.incident,
        attempt=case.attempt,
        failure=case.failure,
        verdict=case.verdict,
        settings=msgspec.json.encode(settings),
        env=env,
        at_s=case.at_s,
        checks=case.checks,
        workers=tuple(
            WorkerScene(
                worker=worker,
                folder=job.worker(case.attempt, worker),
                offsets=offsets.get(worker, {}),
                samples=samples if place == 0 else (),
            )
            for place, worker in enumerate(_most_telling_first(case))
        ),
    )


def _most_telling_first(case: Case) -> list[int]:
    """Returns workers in the order of their logs: culprits, those with a failure, worker 0 (which logs the
    steps), others.
    """
    named = [one.worker for one in case.verdict.culprits]
    failed = [one.worker for one in (*case.failure.errors, *case.failure.tracebacks)]
    ended = [one.worker for one in case.failure.exits if one.code]
    known = set(case.nodes) | {one.worker for one in case.evidence}
    order = [*named, *failed, *ended, 0, *sorted(known)]
    return [worker for worker in dict.fromkeys(order) if worker is not None and worker in known]
