"""A hang over many nodes: judged over all ranks, looked at everywhere, and joined into one."""

import pytest
from msgspec.structs import replace

from controller.worker_group_bench import POLICY, WorkerGroupBench
from holdfast.core.flight.digest import digest
from holdfast.core.hang import platform_rule
from holdfast.model.events import FindingNoted, HangFound, VerdictReached
from holdfast.model.flight.records import FlightRecord, GroupStatus
from holdfast.model.nodes.workers import LookCloser, Looked, Sampled, SampleStacks
from holdfast.model.samples import RankSample, Utilisation


@pytest.fixture
def bench(tmp_path):
    made = WorkerGroupBench(tmp_path, nodes=3, workers=2, policy=replace(POLICY, hang_restart=True))
    yield made
    made.close()


class Training:
    """Four ranks, two on each of two nodes; from `still_s` on rank `stuck` does not come to the next collective."""

    def __init__(self, bench, stuck=3, state="S"):
        self.bench, self.stuck, self.state = bench, stuck, state
        self.began_s = bench.clock()
        self.still_s = None
        self.sent_s = {}
        self.used = lambda agent, at_s: ()

    def groups(self, rank, at_s):
        done = int((self.still_s or at_s) - self.began_s) * 10
        ahead = 1 if self.still_s is not None and at_s >= self.still_s and rank != self.stuck else 0
        return (GroupStatus(0, done + ahead, done, done),)

    def sample(self, rank, at_s, job_s):
        moving_s = min(job_s, self.still_s or job_s) - self.began_s
        return RankSample(
            at_s=at_s,
            rank=rank,
            pid=100 + rank,
            state="S" if self.still_s else "R",
            main_cpu_s=moving_s,
            tree_cpu_s=moving_s,
            io_bytes=int(moving_s * 1e6),
            disk_bytes=0,
            wait_channel="futex_wait_queue",
            groups=self.groups(rank, job_s),
        )

    def turn(self, step_s=0.25):
        job_s = self.bench.clock()
        for agent in self.bench.agents.values():
            if agent.worker is None or job_s - self.sent_s.get(agent.name, 0.0) < 1.0:
                continue
            self.sent_s[agent.name] = job_s
            at_s = agent.clock()
            ranks = (2 * agent.worker, 2 * agent.worker + 1)
            step = int(min(job_s, self.still_s or job_s) - self.began_s)
            agent.send(
                Sampled(
                    attempt=agent.attempt,
                    worker=agent.worker,
                    at_s=at_s,
                    ranks=tuple(self.sample(rank, at_s, job_s) for rank in ranks),
                    world_size=4,
                    log_bytes=100 * step,
                    step=step,
                    first_step=0,
                    used=self.used(agent, at_s),
                )
            )
        self.bench.turn(step_s)

    def train(self, seconds):
        until_s = self.bench.clock() + seconds
        while self.bench.clock() < until_s:
            self.turn()

    def until(self, done, seconds=60.0):
        until_s = self.bench.clock() + seconds
        while not done():
            assert self.bench.clock() < until_s, self.bench.events[-5:]
            self.turn()

    def look(self, agent):
        def looked(asked: LookCloser) -> Looked:
            ranks = (2 * agent.worker, 2 * agent.worker + 1)
            records = [
                FlightRecord(rank=rank, status=self.groups(rank, self.bench.clock())) for rank in ranks
            ]
            return Looked(
                attempt=asked.attempt,
                worker=agent.worker,
                look=asked.look,
                digests=tuple(digest(one, {}, taken_ns=0) for one in records),
            )

        return looked


def test_a_rank_that_others_on_another_node_wait_for_is_named(bench):
    bench.begin()
    training = Training(bench)
    for agent in bench.agents.values():
        agent.looked = training.look(agent)
    training.train(30.0)
    assert not bench.told(HangFound)
    training.still_s = bench.clock()
    training.until(lambda: bench.told(HangFound))
    (hang,) = bench.told(HangFound)
    assert hang.culprits == (3,)
    assert bench.clock() - training.still_s < 20.0
    looks = [one for agent in bench.agents.values() for one in agent.commands if isinstance(one, LookCloser)]
    assert len(looks) == 2
    training.until(lambda: bench.told(VerdictReached))
    (culprit,) = bench.told(VerdictReached)[0].verdict.culprits
    assert (culprit.rank, culprit.worker, culprit.host) == (3, 1, "n1")


def test_nodes_whose_clocks_are_hours_apart_hang_alike(bench):
    bench.agent("n1", ahead_s=-5000.0)
    bench.begin()
    training = Training(bench)
    training.train(30.0)
    assert not bench.told(HangFound)
    training.still_s = bench.clock()
    training.until(lambda: bench.told(HangFound))
    assert bench.told(HangFound)[0].culprits == (3,)


@pytest.mark.parametrize("busy", ["steady", "moving"])
def test_the_platforms_rule_asks_for_the_use_of_devices_on_all_nodes(bench, busy):
    bench.begin()
    training = Training(bench)
    own = training.sample
    training.sample = lambda *where: replace(
        own(*where), io_bytes=5
    )  # they go on, and read and write nothing
    bench.hangs._platform_settings = platform_rule.Settings(detect_min=0.5, window_s=40.0)
    percents = iter(range(10_000))

    def used(agent, at_s):
        moves = busy == "moving" and agent.name == "n1"
        percent = float(next(percents) % 90) if moves else 100.0
        return (Utilisation(at_s=at_s, device="0000:5d:00.0", percent=percent),)

    training.used = used
    training.train(110.0)
    told = [one.text for one in bench.told(FindingNoted) if one.finding == "platform-hang"]
    assert len(told) == (busy == "steady")
    assert all("device utilisation stood still" in text for text in told)


def test_what_a_silent_node_showed_last_is_no_hang(bench):
    bench.begin()
    training = Training(bench)
    training.train(30.0)
    silent = bench.agents.pop("n1")
    training.train(10.0)
    assert not bench.told(HangFound)
    bench.agents["n1"] = silent


def test_a_worker_that_does_not_answer_the_look_holds_the_hang_up_for_a_while_only(bench):
    bench.begin()
    training = Training(bench)
    training.train(30.0)
    training.still_s = bench.clock()
    training.until(lambda: bench.told(HangFound))
    assert bench.clock() - training.still_s < 25.0


def test_a_rank_that_runs_while_others_wait_has_its_stack_sampled_where_it_is(bench):
    bench.begin()
    training = Training(bench)
    training.train(30.0)
    training.still_s = bench.clock()
    own = training.sample

    def sample(rank, at_s, job_s):
        one = own(rank, at_s, job_s)
        if rank == training.stuck:
            return replace(one, state="R", main_cpu_s=job_s - training.began_s, tree_cpu_s=job_s)
        return one

    training.sample = sample
    training.until(lambda: any(isinstance(one, SampleStacks) for one in bench.agents["n1"].commands))
    (asked, *_) = [one for one in bench.agents["n1"].commands if isinstance(one, SampleStacks)]
    assert asked.ranks == (3,)
    assert not any(isinstance(one, SampleStacks) and one.ranks for one in bench.agents["n0"].commands)
