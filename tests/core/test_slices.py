"""Long work in pieces: each bounded, and the same result as at once."""

from holdfast.core.hang import detect as hang
from holdfast.core.slices import RANKS_AT_ONCE, finished, pieces
from holdfast.core.stragglers.limits import StragglerSettings
from holdfast.core.stragglers.waits import Waits
from holdfast.model.flight.records import GroupStatus
from holdfast.model.samples import RankSample

RANKS = RANKS_AT_ONCE + 5
TRAINS = hang.Learned(marks=50, calls=50, has_steps=True, has_collectives=True)
SETTINGS = hang.Settings(world_size=RANKS)


def samples(second, stuck=None):
    """All ranks at one moment; `stuck`: from the third second on all others wait for it."""
    moved = second if stuck is None else min(second, 3)
    return [
        RankSample(
            at_s=1000.0 + second,
            rank=rank,
            pid=100 + rank,
            state="S",
            main_cpu_s=moved * 0.5,
            tree_cpu_s=moved * 0.5,
            io_bytes=moved << 20,
            wait_channel="futex_wait_queue",
            step=moved,
            groups=(GroupStatus(0, moved + (second > moved and rank != stuck), moved, moved),),
        )
        for rank in range(RANKS)
    ]


def test_pieces_are_all_of_it_in_order():
    assert [list(part) for part in pieces(range(5), 2)] == [[0, 1], [2, 3], [4]]
    assert list(pieces([])) == []


def test_a_hang_of_many_ranks_is_seen_in_pieces_as_it_is_at_once():
    whole = piecemeal = hang.start(TRAINS)
    for second in range(14):
        seen = samples(second, stuck=7)
        at_s = 1000.5 + second
        whole, found = hang.observe(whole, seen, at_s, SETTINGS, step=min(second, 3), first_step=0)
        work = hang.observing(piecemeal, seen, at_s, SETTINGS, step=min(second, 3), first_step=0)
        count = 0
        while True:
            try:
                next(work)
            except StopIteration as end:
                piecemeal, found_in_pieces = end.value
                break
            count += 1
        assert found_in_pieces == found
        assert piecemeal == whole
        assert count >= 4 or second == 0
        if found is not None:
            break
    assert found.culprits == (7,)


def test_waits_are_counted_in_pieces_as_they_are_at_once():
    whole, piecemeal = Waits(StragglerSettings()), Waits(StragglerSettings())
    for second in range(4, 16):
        seen = samples(second, stuck=7)
        whole.add(seen, {})
        work = piecemeal.adding(seen, {})
        for _ in range(2):
            next(work)
        assert finished(work) is None
        assert vars(piecemeal) == vars(whole)
    assert whole.share(7) == 1.0
