"""The rank of lines that do not say it."""

from holdfast.core.diagnosis.seats import with_ranks
from holdfast.model.matches import NO_WRITER, Match, Search, Source, Writer


def ranks(*writers, of_file=NO_WRITER):
    seen = tuple(
        Match(signature="crash", category="segfault", source=0, offset=at, line=1, text="", writer=writer)
        for at, writer in enumerate(writers)
    )
    found = with_ranks(Search(sources=(Source(name="a", writer=of_file),), matches=seen))
    return [one.writer.rank for one in found.matches]


def test_a_place_on_a_node_has_one_rank():
    known = Writer(host="n2", local_rank=1, rank=9)
    assert ranks(Writer(host="n2", local_rank=1), known, Writer(host="n1", local_rank=1)) == [9, 9, None]


def test_a_process_has_one_rank():
    assert ranks(Writer(host="n2", pid=70), Writer(host="n2", pid=70, rank=3), Writer(pid=70)) == [3, 3, None]


def test_where_two_ranks_sit_at_one_place_nothing_is_known():
    places = [Writer(local_rank=0, rank=0), Writer(local_rank=0, rank=8), Writer(local_rank=0)]
    assert ranks(*places) == [0, 8, None]


def test_the_log_of_a_rank_needs_none():
    assert ranks(Writer(local_rank=0), of_file=Writer(rank=4)) == [None]


def test_a_log_of_two_nodes_that_names_neither_tells_no_place():
    places = [Writer(local_rank=0, rank=0), Writer(local_rank=3, rank=7), Writer(local_rank=3)]
    assert ranks(*places) == [0, 7, None]
