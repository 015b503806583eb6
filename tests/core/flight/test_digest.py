"""What one rank tells: small, and true to its record."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.flight.flight_kit import Call, Job, Layout, training
from holdfast.core.flight import signature
from holdfast.core.flight.digest import digest
from holdfast.core.flight.members import ranks_of, runs
from holdfast.model.flight.digests import Digest
from holdfast.model.flight.records import FlightRecord, Group, GroupStatus, Operation

SIZE_MAX = 2048


def operation(sequence: int, **fields: object) -> Operation:
    usual = {
        "group": "0",
        "group_id": 0,
        "kind": "all_reduce",
        "input_sizes": ((4096, 5120),),
        "created_ns": 10**18,
    }
    return Operation(sequence=sequence, **{**usual, **fields})  # type: ignore[arg-type]


def size(record: FlightRecord) -> int:
    return len(msgspec.msgpack.encode(digest(record)))


@given(st.lists(st.integers(0, 2000), max_size=60, unique=True).map(sorted))
def test_members_come_back_as_they_were(ranks):
    told = runs(ranks)
    assert ranks_of(told) == tuple(ranks) or told == ()


def test_many_members_in_a_pattern_take_little():
    assert runs(range(16_384)) == ((0, 16_384, 1),)
    assert runs(range(3, 16_384, 64)) == ((3, 256, 64),)
    assert runs([0, 1, 2, 3, 8, 9, 10, 11]) == ((0, 4, 1), (8, 4, 1))


def test_runs_that_lie_about_their_length_are_cut():
    assert len(ranks_of(((0, 1 << 40, 1),))) == 1 << 20


@pytest.mark.parametrize("many_ranks", [16, 16_384])
def test_thirteen_groups_fit(many_ranks):
    groups = {
        f"group_{at}": Group(
            name=f"group_{at}",
            about=f"SOME_LONG_PARALLEL_GROUP_{at}",
            ranks=tuple(range(at, many_ranks + at)),
        )
        for at in range(13)
    }
    operations = tuple(
        operation(
            80_000 + at // 13,
            group=f"group_{at % 13}",
            group_about=f"SOME_LONG_PARALLEL_GROUP_{at % 13}",
            group_id=at % 13,
            kind="_reduce_scatter_base",
            input_types=("BFloat16",),
            created_ns=10**18 + at * 10**7,
            retired=at < 1980,
        )
        for at in range(2000)
    )
    status = tuple(GroupStatus(at, 90_000, -1, 80_000) for at in range(13))
    assert (
        size(FlightRecord(rank=9999, version="2.10", groups=groups, status=status, operations=operations))
        <= SIZE_MAX
    )


def test_it_comes_back_from_the_wire():
    job = training(Layout(2, 2, 2)).run()
    for one in job.digests():
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(one), type=Digest) == one


def test_on_gloo_only_what_has_not_retired_waits():
    done, waits = operation(1, retired=True), operation(2)
    told = digest(FlightRecord(rank=0, operations=(done, waits)))
    assert [one.sequence for one in told.groups[told.oldest].waiting] == [2]
    assert (told.groups[0].enqueued, told.groups[0].completed) == (2, 1)


def test_counters_tell_what_the_ring_no_longer_holds():
    record = FlightRecord(
        rank=0, status=(GroupStatus(0, 90, -1, 88),), operations=(operation(89), operation(90))
    )
    group = digest(record).groups[0]
    assert (group.enqueued, group.completed, group.first) == (90, 88, 89)


def test_an_entry_that_later_ones_overtook_was_left_over():
    record = FlightRecord(rank=0, operations=(operation(1), operation(2, retired=True)))
    assert digest(record).oldest == -1


def test_counters_of_a_group_with_sends_are_not_taken_for_collectives():
    send = operation(26, kind="send 0->1", is_p2p=True, p2p_sequence=11_981)
    batch = operation(26, kind="coalesced", p2p_sequence=11_981)
    record = FlightRecord(rank=0, status=(GroupStatus(0, 11_981, -1, 11_980),), operations=(send, batch))
    group = digest(record).groups[0]
    assert group.enqueued == -1
    assert group.p2p == ((1, 1, 0),)
    assert [one.kind for one in group.waiting] == ["send"]


def test_a_group_of_which_the_ring_shows_nothing_is_distinguished():
    groups = {"7": Group(name="7", ranks=(0, 4))}
    told = digest(FlightRecord(rank=4, groups=groups, status=(GroupStatus(3, 5, -1, 5),)))
    assert [group.name for group in told.groups] == ["7"]
    assert told.unnamed == (GroupStatus(3, 5, -1, 5),)


def test_uneven_splits_are_no_mismatch():
    first, second = (operation(1, kind="nccl:all_to_all", input_sizes=((rows, 5),)) for rows in (3, 4))
    assert signature.key(first) == signature.key(second)
    first, second = (operation(1, kind="nccl:all_reduce", input_sizes=((rows, 5),)) for rows in (3, 4))
    assert signature.key(first) != signature.key(second)


@pytest.mark.parametrize(
    ("kind", "peer"),
    [
        ("nccl:send 0->3", (3, True)),
        ("recv 2<-1", (1, False)),
        ("send", (-1, True)),
        ("recv 1<-x", (-1, False)),
    ],
)
def test_the_other_side_of_a_send(kind, peer):
    assert signature.peer(kind) == peer


def test_keys_are_those_around_the_oldest_that_waits():
    job = Job({"world": (0, 1)}, [[Call("world", size=at) for at in range(60)]] * 2)
    job.ranks[1].stops_at = 40
    group = digest(job.run().record(0)).groups[0]
    assert group.keys_from <= 41 <= group.keys_from + len(group.keys) // 2
    assert group.waits == 12
