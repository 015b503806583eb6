"""Who is slower than the others over many nodes: by what agents tell of their ranks, each with a clock of its own."""

import random

import pytest

from controller.worker_group_bench import WorkerGroupBench
from holdfast.model.events import FindingNoted
from holdfast.model.flight.records import Entered, GroupStatus
from holdfast.model.nodes.workers import FetchRecords, RecordsReport, Sampled
from holdfast.model.samples import RankSample
from holdfast.model.steps import RankStep


@pytest.fixture
def bench(tmp_path):
    made = WorkerGroupBench(tmp_path, nodes=3, workers=3)
    yield made
    made.close()


class Training:
    """Six ranks, two on each of three nodes, in steps of half a second. `slow`: rank -> by how much of its own work."""

    def __init__(self, bench, logs=False, records=False, looks=True):
        self.bench, self.logs, self.records, self.looks = bench, logs, records, looks
        self.slow = {}
        self.dice = random.Random(1)
        self.began_s = bench.clock()
        self.sent_s = {}
        self.entered = {rank: {} for rank in range(6)}
        self.step, self.step_ends_s = 0, self.began_s
        self.logged = {}
        self.asked = dict.fromkeys(bench.agents, 0)

    def go_on(self, job_s):
        while self.step_ends_s <= job_s:
            own = {
                rank: 0.4 * (1 + self.slow.get(rank, 0.0)) * self.dice.uniform(0.99, 1.01)
                for rank in range(6)
            }
            self.step += 1
            for rank, own_s in own.items():
                self.entered[rank][self.step] = self.step_ends_s + own_s
                self.logged.setdefault(rank, []).append(RankStep(self.step, rank, 0.5, own_s))
            self.step_ends_s += max(own.values()) + 0.02

    def sample(self, rank, job_s, at_s):
        done = self.step - 1
        groups = None
        if self.looks:
            groups = (GroupStatus(0, done + (self.entered[rank][self.step] <= job_s), -1, done),)
        return RankSample(at_s=at_s, rank=rank, pid=100 + rank, state="R", io_bytes=done, groups=groups)

    def turn(self):
        job_s = self.bench.clock()
        self.go_on(job_s)
        for agent in self.bench.agents.values():
            if agent.worker is None or job_s - self.sent_s.get(agent.name, 0.0) < self.dice.uniform(
                0.75, 1.25
            ):
                continue
            self.sent_s[agent.name] = job_s
            ranks = (2 * agent.worker, 2 * agent.worker + 1)
            at_s = agent.clock()
            agent.send(
                Sampled(
                    attempt=agent.attempt,
                    worker=agent.worker,
                    at_s=at_s,
                    ranks=tuple(self.sample(rank, job_s, at_s) for rank in ranks),
                    world_size=6,
                    step=self.step,
                    first_step=1,
                    steps=tuple(one for rank in ranks for one in self.logged.pop(rank, ()))
                    if self.logs
                    else (),
                )
            )
            asks = [one for one in agent.commands if isinstance(one, FetchRecords)]
            if self.records and len(asks) > self.asked[agent.name]:
                self.asked[agent.name] = len(asks)
                agent.send(self.told(agent, ranks, job_s, at_s - job_s))
        self.bench.turn(0.25)

    def told(self, agent, ranks, job_s, ahead_s):
        entered = []
        for rank in ranks:
            at = {step: at_s + ahead_s for step, at_s in self.entered[rank].items() if at_s <= job_s}
            entered.append(Entered(rank=rank, group="0", sequences=tuple(at), at_s=tuple(at.values())))
        return RecordsReport(attempt=agent.attempt, worker=agent.worker, entered=tuple(entered))

    def train(self, seconds, until=lambda: False):
        end_s = self.bench.clock() + seconds
        while self.bench.clock() < end_s and not until():
            self.turn()

    def found(self):
        return [
            (one.finding, one.numbers["ranks"], one.numbers.get("node"), one.numbers.get("source"))
            for one in self.bench.told(FindingNoted)
            if one.finding.startswith("straggler")
        ]


def test_a_node_that_enters_its_collectives_late_is_named_by_its_records(bench):
    bench.agent("n1", ahead_s=-5000.0)
    bench.begin()
    worker = bench.agents["n1"].worker
    training = Training(bench, records=True)
    training.train(70.0)
    assert training.found() == []
    training.slow = {2 * worker: 0.3, 2 * worker + 1: 0.3}
    training.train(
        90.0, until=lambda: any(node == "n1" and len(ranks) == 2 for _, ranks, node, _ in training.found())
    )
    last = training.found()[-1]
    assert last == ("straggler", [2.0 * worker, 2.0 * worker + 1], "n1", "arrivals")
    assert {node for _, _, node, _ in training.found()} == {"n1"}


def test_one_rank_is_named_by_what_ranks_log_of_their_own(bench):
    bench.begin()
    training = Training(bench, logs=True, looks=False)
    training.train(20.0)
    training.slow = {3: 0.5}
    training.train(40.0, until=training.found)
    ((_, ranks, _, source),) = training.found()
    assert (ranks, source) == ([3.0], "log-times")


def test_where_all_nodes_are_slow_none_is_named(bench):
    bench.begin()
    training = Training(bench, logs=True, records=True)
    training.train(40.0)
    training.slow = dict.fromkeys(range(6), 0.8)
    training.train(120.0)
    assert training.found() == []


def test_a_node_that_is_silent_ends_the_comparison_and_not_the_watch(bench):
    bench.begin()
    training = Training(bench, logs=True, looks=False)
    training.train(20.0)
    silent = bench.agents.pop("n2")
    training.train(10.0)
    bench.agents["n2"] = silent
    training.train(10.0)
    assert training.found() == []
    training.slow = {0: 0.5}
    training.train(40.0, until=training.found)
    assert training.found()[0][1] == [0.0]


def test_what_cannot_be_compared_costs_the_findings_alone(bench):
    bench.begin()
    training = Training(bench, logs=True)
    training.train(5.0)
    training.logged = {0: [RankStep(1 << 60, 0, float("nan"), -1.0)]}
    training.train(10.0)
    assert training.found() == []
