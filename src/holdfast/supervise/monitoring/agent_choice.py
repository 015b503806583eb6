"""Starts what an agent exports if the settings enable it. Apart from `choice.py`, because a controller needs no agent.

Modules are imported by name, to save memory otherwise.
"""

import importlib
from collections.abc import Callable, Mapping

from holdfast.agent.worker import WorkerAgent
from holdfast.model.settings import RunSettings
from holdfast.observe.clock import JobClock
from holdfast.supervise.monitoring.choice import Metrics, NoMetrics, Several, is_asked

TRAINER_ENV = "KUBEFLOW_TRAINER_SERVER_URL"  # set where Kubeflow Trainer takes the progress of a TrainJob


def of_agent(
    settings: RunSettings,
    job: str,
    worker: WorkerAgent,
    link: Callable[[], tuple[bool, int, int, int, int]],
    faults: Callable[[], int],
    clock: JobClock,
    tell: Callable[[str], None],
    env: Mapping[str, str],
) -> Metrics:
    """Creates what an agent exports: metrics, and progress for Kubeflow Trainer.

    `link`: returns connected, entries, bytes, dropped, lost.
    """
    found: list[Metrics] = []
    if is_asked(settings):
        module = importlib.import_module("holdfast.supervise.monitoring.node")
        found.append(module.AgentMetrics(settings, job, worker, link, faults, clock, tell))
    if env.get(TRAINER_ENV):
        module = importlib.import_module("holdfast.supervise.monitoring.trainer_status")
        if module.is_on(env):
            found.append(module.TrainerStatus(worker, env, clock, tell))
    return Several(*found) if found else NoMetrics()
