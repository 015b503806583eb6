"""The made-up failure is diagnosed as a real one is."""

import threading

from holdfast.agent.rehearsal import rehearse_evidence
from holdfast.agent.rehearsed_verdict import rehearse
from holdfast.agent.watch.logs import Signatures
from known import KNOWN

WAIT_S = 300.0


def test_the_killed_rank_is_found(cache_home):
    loaded = Signatures(lambda: KNOWN, cache_home / "holdfast")
    assert loaded.wait(WAIT_S)
    done = rehearse(loaded)
    assert done.verdict.category == "process_killed"
    assert [one.rank for one in done.verdict.culprits] == [1]
    assert done.matches > 3


def test_it_is_found_the_same_way_where_no_logs_are_searched_and_nothing_is_compiled(tmp_path):
    loaded = Signatures(lambda: KNOWN, tmp_path, searches_logs=False)
    assert loaded.wait(WAIT_S)
    done = rehearse(loaded)
    assert done.verdict.category == "process_killed"
    assert done.matches > 3
    assert not list(tmp_path.iterdir())


def test_an_agent_that_makes_no_verdict_rehearses_the_same_evidence(cache_home):
    loaded = Signatures(lambda: KNOWN, cache_home / "holdfast")
    assert loaded.wait(WAIT_S)
    made_up = rehearse_evidence(loaded)
    assert [one.rank for one in made_up.first.culprits] == [1]
    assert len(made_up.search.matches) == rehearse(loaded).matches


def test_it_follows_the_loading_and_its_fault_is_none_of_the_run(cache_home):
    asked = threading.Event()

    def fails(signatures):
        asked.set()
        raise RuntimeError(signatures.is_over)

    loaded = Signatures(lambda: KNOWN, cache_home / "holdfast", then=fails)
    assert asked.wait(WAIT_S)
    assert loaded.is_over and not loaded.why_not
