"""The made-up failure is diagnosed as a real one is."""

import threading

from holdfast.agent.rehearsal import rehearse
from holdfast.agent.watch.logs import Signatures
from known import KNOWN

WAIT_S = 300.0


def test_the_killed_rank_is_found():
    loaded = Signatures(lambda: KNOWN, None)
    assert loaded.wait(WAIT_S)
    done = rehearse(loaded)
    assert done.verdict.category == "process_killed"
    assert [one.rank for one in done.verdict.culprits] == [1]
    assert done.matches > 3


def test_it_follows_the_loading_and_its_fault_is_none_of_the_run():
    asked = threading.Event()

    def fails(signatures):
        asked.set()
        raise RuntimeError(signatures.is_over)

    loaded = Signatures(lambda: KNOWN, None, then=fails)
    assert asked.wait(WAIT_S)
    assert loaded.is_over and not loaded.why_not
