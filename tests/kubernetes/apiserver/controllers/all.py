"""Runs the emulated controllers, one after the other, after each change and ten times a second."""

import asyncio
import time

from kubernetes.apiserver.controllers.collector import Collector
from kubernetes.apiserver.controllers.job import Jobs
from kubernetes.apiserver.controllers.jobset import JobSets
from kubernetes.apiserver.controllers.kueue import Kueue
from kubernetes.apiserver.controllers.node_lifecycle import NodeLifecycle
from kubernetes.apiserver.controllers.pytorchjob import PyTorchJobs
from kubernetes.apiserver.controllers.scheduler import Scheduler
from kubernetes.apiserver.controllers.trainjob import TrainJobs
from kubernetes.apiserver.controllers.volcano import VolcanoJobs

TURN_S = 0.1
TROUBLES_MAX = 20


class Controllers:
    def __init__(self, store, trainer, node_grace_s=50.0, backoff_s=10.0):
        self._store = store
        self.troubles = []  # faults of the emulation itself, for tests to see
        self.kueue = Kueue(store)
        self.trainer = trainer
        self._all = [
            Collector(store),
            self.kueue,  # before the Jobs: a webhook of the real one suspends a Job at its creation
            TrainJobs(store, trainer),
            JobSets(store),
            VolcanoJobs(store),
            PyTorchJobs(store),
            Jobs(store, backoff_s),
            NodeLifecycle(store, node_grace_s),
            Scheduler(store),
        ]

    async def run(self, faults):
        while True:
            if not faults.is_down:
                for controller in self._all:
                    self._turn(controller)
            self._store.changed.clear()
            try:
                await asyncio.wait_for(self._store.changed.wait(), TURN_S)
                await asyncio.sleep(0.02)
            except TimeoutError:
                pass

    def _turn(self, controller):
        try:
            controller.turn(time.time())
        except Exception as error:  # noqa: BLE001 - the others go on; a test asserts that there was none
            if len(self.troubles) < TROUBLES_MAX:
                self.troubles.append(f"{type(controller).__name__}: {error!r}")
