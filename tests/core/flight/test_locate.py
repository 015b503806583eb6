"""Planted faults in modelled jobs: the set of culprits is exact, and a healthy job is healthy."""

import random
from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.flight.flight_kit import Call, Job, Layout, step, training
from holdfast.core.flight.digest import digest
from holdfast.core.flight.locate import locate
from holdfast.model.flight.digests import Located, RankLife
from holdfast.model.flight.records import FlightRecord, Operation

LAYOUTS = [
    Layout(2, 1, 2),
    Layout(2, 2, 4),
    Layout(4, 2, 2),
    Layout(1, 1, 8),
    Layout(2, 4, 4),
    Layout(4, 4, 4),
]
STEPS, BAD_STEP = 6, 4
BAD_OPERATIONS: dict[str, Callable[[Call], Call]] = {
    "operation": lambda call: replace(call, kind="broadcast"),
    "size": lambda call: replace(call, size=call.size + 1),
    "dtype": lambda call: replace(call, dtype="Half"),
}

every_layout = pytest.mark.parametrize(
    "layout", LAYOUTS, ids=lambda one: f"{one.tensor}x{one.pipeline}x{one.data}"
)
every_backend = pytest.mark.parametrize("backend", ["nccl", "gloo"])
two_seeds = pytest.mark.parametrize("seed", range(2))


def found(job: Job, **options: object) -> Located | None:
    digests = job.run().digests(**options)  # type: ignore[arg-type]
    told = {one.rank for one in digests}
    lives = (
        {rank: life for rank, life in job.lives().items() if rank in told} if job.backend == "gloo" else {}
    )
    return locate(digests, len(job.ranks), lives)


def planted(layout: Layout, backend: str, rank: int, change: Callable[[list[Call]], list[Call]]) -> Job:
    return training(
        layout,
        STEPS,
        backend=backend,
        change=lambda who, when, calls: change(calls) if (who, when) == (rank, BAD_STEP) else calls,
    )


def shared(layout: Layout, calls: list[Call]) -> list[int]:
    """Places of collectives in which others take part."""
    groups = layout.groups()
    return [at for at, call in enumerate(calls) if not call.is_p2p and len(groups[call.group]) > 1]


@every_layout
@every_backend
def test_a_job_that_ended_is_healthy(layout, backend):
    assert found(training(layout, STEPS, backend=backend)) is None


@every_layout
@every_backend
@two_seeds
@pytest.mark.parametrize("ring", [2000, 20])
def test_a_rank_that_never_comes(layout, backend, seed, ring):
    dice = random.Random(seed)
    rank = dice.randrange(layout.world)
    job = training(layout, STEPS, backend=backend)
    many = len(job.ranks[rank].program)
    job.ranks[rank].stops_at = dice.randrange(many // 2, many - 1)
    located = found(job, ring=ring)
    assert located is not None
    assert (located.culprits, located.category) == ((rank,), "collective_missing_rank")
    assert rank not in located.waiting


@every_layout
@two_seeds
def test_a_record_of_active_operations_only_tells_as_much(layout, seed):
    rank = random.Random(seed).randrange(layout.world)
    job = training(layout, STEPS)
    job.ranks[rank].stops_at = len(job.ranks[rank].program) * 2 // 3
    located = found(job, active_only=True)
    assert located is not None
    assert located.culprits == (rank,)


@every_layout
@every_backend
@two_seeds
def test_a_rank_without_a_record_was_killed(layout, backend, seed):
    dice = random.Random(seed)
    rank = dice.randrange(layout.world)
    job = training(layout, STEPS, backend=backend)
    many = len(job.ranks[rank].program)
    job.ranks[rank].stops_at = dice.randrange(many // 2, many - 1)
    located = found(job, without=[rank])
    assert located is not None
    assert (located.culprits, located.category) == ((rank,), "process_killed")


def test_many_lost_records_make_nobody_a_culprit():
    job = training(Layout(2, 1, 8), STEPS)
    job.ranks[3].stops_at = 9
    located = found(job, without=[1, 3, 5, 7])
    assert located is not None
    assert (located.kind, located.culprits) == ("records_missing", ())
    assert "records of 4 ranks are missing" in located.why.en


def test_a_lost_record_does_not_hide_a_rank_that_is_seen_to_be_missing():
    job = training(Layout(2, 1, 4), STEPS)
    job.ranks[3].stops_at = 9
    located = found(job, without=[6])
    assert located is not None
    assert located.culprits == (3,)


@every_layout
@two_seeds
@pytest.mark.parametrize("active_only", [False, True])
def test_a_device_that_stands_still(layout, seed, active_only):
    dice = random.Random(seed)
    rank = dice.randrange(layout.world)
    job = training(layout, STEPS)
    places = [at for at, call in enumerate(job.ranks[rank].program) if not call.is_p2p]
    job.ranks[rank].device_stops_at = dice.choice(places[len(places) // 2 : -1])
    located = found(job, active_only=active_only)
    assert located is not None
    assert (located.kind, located.culprits, located.category) == ("lag", (rank,), "gpu_fault")


@every_layout
@every_backend
@two_seeds
@pytest.mark.parametrize("fault", BAD_OPERATIONS)
def test_another_operation_than_the_others(layout, backend, seed, fault):
    dice = random.Random(seed)
    rank = dice.randrange(layout.world)

    def change(calls: list[Call]) -> list[Call]:
        at = dice.choice(shared(layout, calls))
        return [*calls[:at], BAD_OPERATIONS[fault](calls[at]), *calls[at + 1 :]]

    located = found(planted(layout, backend, rank, change))
    assert located is not None
    assert (located.kind, located.culprits, located.category) == ("mismatch", (rank,), "collective_mismatch")
    assert located.got != located.expected or fault == "dtype"


@every_layout
@two_seeds
def test_a_skipped_collective(layout, seed):
    dice = random.Random(seed)
    rank = dice.randrange(layout.world)

    def change(calls: list[Call]) -> list[Call]:
        at = dice.choice(shared(layout, calls))
        return [*calls[:at], *calls[at + 1 :]]

    located = found(planted(layout, "nccl", rank, change))
    assert located is not None
    assert (located.culprits, located.category) == ((rank,), "collective_mismatch")


@two_seeds
@pytest.mark.parametrize("layout", [Layout(2, 1, 2), Layout(2, 1, 4)], ids=str)
def test_two_groups_in_the_wrong_order(layout, seed):
    rank = random.Random(seed).randrange(layout.world)

    def change(calls: list[Call]) -> list[Call]:
        return [*calls[:-2], calls[-1], calls[-2]]  # the world before the data parallel group

    located = found(planted(layout, "gloo", rank, change))
    assert located is not None
    assert (located.kind, located.culprits) == ("order", (rank,))


@every_layout
@every_backend
def test_uneven_data_ends_in_a_barrier(layout, backend):
    rank, barrier = layout.world - 1, Call("world", "barrier", 1)

    def change(who: int, when: int, calls: list[Call]) -> list[Call]:
        if who == rank and when >= BAD_STEP:
            return [barrier] if when == BAD_STEP else []
        return [*calls, barrier] if when == STEPS - 1 else calls

    located = found(training(layout, STEPS, backend=backend, change=change))
    assert located is not None
    assert (located.kind, located.culprits, located.category) == ("uneven", (rank,), "uneven_data")


def test_a_pipeline_stage_that_does_not_receive():
    layout = Layout(2, 4, 1)
    job = planted(layout, "nccl", 4, lambda calls: [call for call in calls if call.kind != "recv"][:0])
    job.ranks[4].stops_at = len(step(layout, 4)) * BAD_STEP
    located = found(job)
    assert located is not None
    assert located.culprits == (4,)


def test_a_hang_inside_a_subgroup_is_followed_to_its_root():
    # 0 waits for 1 in a, 1 for 2 in b, 2 for 3 in c; all others wait for 0
    groups = {"world": (0, 1, 2, 3, 4, 5), "a": (0, 1), "b": (1, 2), "c": (2, 3)}
    usual = Call("world", is_sync=True)
    programs = [
        [usual, Call("a"), usual],
        [usual, Call("b"), Call("a"), usual],
        [usual, Call("c"), Call("b"), usual],
    ]
    programs += [[usual, Call("c"), usual], [usual, usual], [usual, usual]]
    job = Job(groups, programs, backend="gloo")
    job.ranks[3].stops_at = 1
    located = found(job)
    assert located is not None
    assert (located.culprits, located.waiting, located.group) == ((3,), (0, 1, 2, 4, 5), "c")


def test_a_tie_is_decided_by_what_went_before():
    groups = {"world": (0, 1)}
    usual = [Call("world", size=10), Call("world", size=20)] * 4
    other = [*usual[:5], Call("world", "broadcast", 99)]
    for culprit, programs in ((1, [usual, other]), (0, [other, usual])):
        located = found(Job(groups, programs, backend="gloo"))
        assert located is not None
        assert (located.culprits, located.kind) == ((culprit,), "mismatch")


def test_a_tie_without_a_history_names_both():
    job = Job({"world": (0, 1)}, [[Call("world", size=1)], [Call("world", size=2)]], backend="gloo")
    located = found(job)
    assert located is not None
    assert (located.culprits, located.kind) == ((0, 1), "mismatch")
    assert located.confidence < 0.7


def test_in_a_group_of_two_the_whole_job_decides():
    groups = {"world": (0, 1, 2, 3), "pair": (2, 3)}
    step = [Call("pair"), Call("world", size=10)]
    programs = [[Call("world", size=10)] * 5 + [Call("world", "barrier", 1)] for _ in range(2)]
    programs += [
        step * 5 + [Call("world", "barrier", 1)],
        [*step * 5, Call("pair"), Call("world", "barrier", 1)],
    ]
    located = found(Job(groups, programs, backend="gloo"))
    assert located is not None
    assert (located.culprits, located.kind) == ((3,), "order")


def test_a_tie_of_two_is_decided_by_what_the_other_ranks_wait_in():
    groups = {"world": (0, 1, 2, 3), "right": (2, 3)}
    barrier = Call("world", "barrier", 1)
    programs = [[barrier], [barrier], [Call("right", "barrier", 1), barrier], [Call("right"), barrier]]
    located = found(Job(groups, programs, backend="gloo"))
    assert located is not None
    assert (located.culprits, located.kind) == ((3,), "mismatch")


def wrong_size(received: int, own: int) -> RankLife:
    # as gloo prints it: torch 2.13, a 4-rank all_reduce of 1000 floats with one of 1001
    return RankLife(
        rank_class="dead",
        exit_code=-6,
        error=f"[enforce fail at gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. {received} vs {own}. "
        "Received data size doesn't match expected size.",
    )


@pytest.mark.parametrize(
    ("lives", "culprit"),
    [
        ({0: wrong_size(504, 500), 1: wrong_size(500, 476)}, 1),  # both died; the size of one is usual
        ({1: wrong_size(504, 500)}, 2),  # its neighbour lives, and runs what it never ran
    ],
)
def test_ranks_that_gloo_ended_tell_whose_size_was_odd(lives, culprit):
    programs = [[Call("world"), Call("world", size=1001 if rank == culprit else 1000)] for rank in range(4)]
    programs = [[Call("world")] * 6 + program for program in programs]
    job = Job({"world": (0, 1, 2, 3)}, programs, backend="gloo").run()
    located = locate(job.digests(without=list(lives)), 4, lives)
    assert located is not None
    assert (located.culprits, located.category) == ((culprit,), "collective_mismatch")


def test_an_asynchronous_operation_of_healthy_ranks_is_no_verdict():
    record = _waiting_since(0, taken_s=0.3)
    assert locate([digest(record, taken_ns=record.operations[-1].created_ns + 300_000_000)], 1) is None


def test_two_looks_tell_that_it_moves():
    layout = Layout(2, 1, 2)
    early = training(layout, 3)
    early.ranks[1].stops_at = 9
    late = training(layout, 3)
    late.ranks[1].stops_at = 10
    looks = [*early.run().digests(), *late.run().digests()]
    assert locate(looks[:4], 4) is not None
    assert locate(looks, 4) is None


def test_all_arrived_and_none_ended_is_the_network_or_a_device():
    digests = [digest(_waiting_since(rank)) for rank in range(4)]
    located = locate(digests, 4)
    assert located is not None
    assert (located.kind, located.culprits, located.category) == (
        "network_or_device",
        (),
        "collective_timeout",
    )


def test_a_rank_stopped_inside_the_operation_is_named():
    digests = [digest(_waiting_since(rank)) for rank in range(4)]
    located = locate(digests, 4, {2: RankLife(rank_class="stopped")})
    assert located is not None
    assert (located.kind, located.culprits, located.category) == ("stopped", (2,), "process_stopped")


def _waiting_since(rank: int, taken_s: float = 0.0) -> FlightRecord:
    operation = Operation(
        group="0", group_about="default_pg", sequence=1, kind="all_reduce", created_ns=10**18
    )
    return FlightRecord(rank=rank, operations=(operation,))


LIVES: list[tuple[RankLife, str, str]] = [
    (RankLife(rank_class="stopped"), "stopped", "process_stopped"),
    (RankLife(rank_class="dead", exit_code=-9), "killed", "process_killed"),
    (RankLife(rank_class="dead", exit_code=-11), "killed", "segfault"),
    (RankLife(rank_class="dead", exit_code=0), "uneven", "uneven_data"),
    (RankLife(rank_class="dead", exit_code=1, error="ValueError: bad batch"), "missing", "python_exception"),
    (RankLife(rank_class="blocked", wait_channel="rpc_wait_bit_killable"), "missing", "nfs_lustre_stall"),
    (RankLife(rank_class="blocked", wait_channel="io_schedule"), "missing", "storage_io"),
    (RankLife(frames=("/d/train.py:12 load_batch",)), "dataloader", "dataloader_stuck"),
    (
        RankLife(frames=("/v/torch/utils/data/dataloader.py:99 _try_get_data",)),
        "dataloader",
        "dataloader_stuck",
    ),
    (RankLife(frames=("/d/train.py:88 work",)), "missing", "collective_missing_rank"),
]


@pytest.mark.parametrize(("life", "kind", "category"), LIVES)
def test_the_reason_is_in_what_else_is_known(life, kind, category):
    job = training(Layout(2, 1, 2), STEPS)
    job.ranks[2].stops_at = 9
    located = locate(job.run().digests(), 4, {2: life})
    assert located is not None
    assert (located.culprits, located.kind, located.category) == ((2,), kind, category)


def test_the_verdict_in_words():
    job = training(Layout(2, 1, 2), STEPS, backend="gloo")
    job.ranks[2].stops_at = 8
    life = RankLife(
        rank_class="waiting_outside", frames=("/usr/lib/python3.11/threading.py:1 wait", "/d/train.py:88 f")
    )
    located = locate(job.run().digests(), 4, {2: life})
    assert located is not None
    assert (
        located.why.en
        == "rank 2 waits at train.py:88 in f; 3 ranks wait for it in all_reduce #2 of group DP_GROUP"
    )
    assert (
        located.why.zh
        == "rank 2 在等待，位于 train.py:88 in f；3 个 rank 在通信组 DP_GROUP 的 all_reduce #2 中等待它"
    )


# --- what always holds


def relabelled(job: Job, to: list[int]) -> Job:
    groups = {name: tuple(sorted(to[rank] for rank in members)) for name, members in job.groups.items()}
    programs: list[list[Call]] = [[] for _ in job.ranks]
    for rank in job.ranks:
        programs[to[rank.rank]] = [
            replace(call, peer=to[call.peer]) if call.is_p2p else call for call in rank.program
        ]
    other = Job(groups, programs, backend=job.backend)
    for rank in job.ranks:
        other.ranks[to[rank.rank]].stops_at = rank.stops_at
    return other


@settings(max_examples=25, deadline=None)
@given(
    st.permutations(range(8)),
    st.integers(0, 7),
    st.integers(4, 20),
    st.sampled_from(["nccl", "gloo"]),
    st.booleans(),
)
def test_no_rank_is_favoured(to, rank, stops_at, backend, mismatched):
    layout = Layout(2, 2, 2)

    def job() -> Job:
        if mismatched:
            return planted(
                layout, backend, rank, lambda calls: [*calls[:-2], replace(calls[-2], size=7), calls[-1]]
            )
        one = training(layout, STEPS, backend=backend)
        one.ranks[rank].stops_at = stops_at
        return one

    plain, other = found(job()), found(relabelled(job(), list(to)))
    assert plain is not None
    assert other is not None
    assert other.culprits == tuple(sorted(to[culprit] for culprit in plain.culprits))
    assert other.waiting == tuple(sorted(to[waiter] for waiter in plain.waiting))
    assert (other.kind, other.category, other.confidence) == (plain.kind, plain.category, plain.confidence)


@settings(max_examples=20, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 7), st.integers(4, 30))
def test_the_order_of_digests_and_a_healthy_neighbour_change_nothing(dice, rank, stops_at):
    job = training(Layout(2, 2, 2), STEPS)
    job.ranks[rank].stops_at = stops_at
    digests = job.run().digests()
    plain = locate(digests, 8)
    dice.shuffle(digests)
    assert locate(digests, 8) == plain
    neighbours = Job({"apart": (8, 9)}, [[]] * 8 + [[Call("apart")] * 3] * 2).run().digests()[8:]
    assert locate([*digests, *neighbours], 10) == plain


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_record_makes_it_fail(data):
    numbers = st.integers(-3, 30)
    names = st.sampled_from(["0", "1", "tp0", ""])
    operations = st.builds(
        Operation,
        group=names,
        group_about=names,
        group_id=numbers,
        sequence=numbers,
        p2p_sequence=numbers,
        kind=st.sampled_from(["all_reduce", "send 0->1", "recv 1<-9", "coalesced", "send", ""]),
        is_p2p=st.booleans(),
        retired=st.booleans(),
        created_ns=st.integers(0, 2**62),
    )
    records = st.builds(
        FlightRecord, rank=st.integers(0, 5), operations=st.lists(operations, max_size=12).map(tuple)
    )
    digests = [digest(record) for record in data.draw(st.lists(records, max_size=5))]
    sent = (
        msgspec.msgpack.decode(msgspec.msgpack.encode(digests), type=list[type(digests[0])])
        if digests
        else []
    )
    located = locate(sent, data.draw(st.sampled_from([None, 2, 6])))
    assert located is None or located.why.en
