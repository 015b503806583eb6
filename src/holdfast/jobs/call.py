"""Runs one call on the nodes of a running job (a command, or a collection of stacks), and collects the
results.

Prints nothing.
"""

import secrets
import time
from collections.abc import Callable, Collection

from holdfast.core.answer_groups import Answer
from holdfast.jobs.line import AnyLine, NoLine
from holdfast.model.calls import (
    OUTPUT_BYTES_MAX,
    OUTPUT_BYTES_MIN,
    OUTPUTS_BYTES_MAX,
    AnyCallWord,
    AskCall,
    AskPlaces,
    CallEnded,
    CallPlace,
    CallPlaces,
    CallRefused,
    CancelCall,
    Output,
    OutputTaken,
    What,
)

PLACES_S = 10.0
CANCEL_S = 12.0  # the controller waits a little less


class CallNotMade(Exception):
    """Raised when the controller refused the call. The message is one line: why, and what to do."""


def made_up() -> str:
    """Returns a new random id for a call."""
    return secrets.token_hex(12)


def places(line: AnyLine, workers: Collection[int] | None, nodes: Collection[str] | None) -> CallPlaces:
    """Returns the nodes on which a call would run. Raises CallNotMade and NoLine."""
    call = made_up()
    line.say(
        AskPlaces(
            call=call,
            workers=None if workers is None else tuple(sorted(workers)),
            nodes=None if nodes is None else tuple(nodes),
        )
    )
    until_s = time.monotonic() + PLACES_S
    while time.monotonic() < until_s:
        for word in line.words(until_s - time.monotonic()):
            if isinstance(word, CallPlaces) and word.call == call:
                return word
            if isinstance(word, CallRefused) and word.call == call:
                raise CallNotMade(word.why)
    raise NoLine(f"the controller of job {line.job.name} did not list its nodes within {PLACES_S:g} s")


def output_bytes_max(count: int) -> int:
    """Returns the maximum output in bytes to keep of each result, for this number of results."""
    return max(OUTPUT_BYTES_MIN, min(OUTPUT_BYTES_MAX, OUTPUTS_BYTES_MAX // max(1, count)))


class Gathering:
    """Collects the results of one call. `by`: the user who made it."""

    def __init__(self, line: AnyLine, chosen: Collection[CallPlace], what: What, by: str) -> None:
        self._line = line
        self._call = made_up()
        self._waiting = {place.node: place for place in chosen}
        self._output = {place.node: bytearray() for place in chosen}
        self._answers: list[Answer] = []
        workers = tuple(place.worker for place in chosen if place.worker is not None)
        nodes = tuple(place.node for place in chosen if place.worker is None)
        line.say(AskCall(call=self._call, what=what, by=by, workers=workers, nodes=nodes))

    @property
    def is_over(self) -> bool:
        return not self._waiting

    @property
    def waiting(self) -> list[CallPlace]:
        return list(self._waiting.values())

    def gather(self, until_s: float, go_on: Callable[[], bool] = lambda: True) -> None:
        """Waits until all results have arrived, or until `until_s` of the monotonic clock.

        `go_on`: called ten times a second; False ends the wait. Raises CallNotMade, and NoLine if the
        connection is lost; `answers` keeps what arrived before.
        """
        while self._waiting and time.monotonic() < until_s and go_on():
            for word in self._line.words(until_s - time.monotonic()):
                if word.call == self._call:
                    self._hear(word)

    def cancel(self) -> None:
        """Cancels commands that still run. Raises NoLine."""
        self._line.say(CancelCall(call=self._call))

    def answers(self, why_not: str) -> list[Answer]:
        """Returns all results. `why_not`: the reason to give for nodes without a result."""
        missing = [
            Answer(
                node=place.node,
                worker=place.worker,
                outcome="no-answer",
                output=bytes(self._output[place.node]),
                why=why_not,
            )
            for place in self._waiting.values()
        ]
        return self._answers + missing

    def _hear(self, word: AnyCallWord) -> None:
        match word:
            case Output(node=node) if node in self._output:
                self._output[node] += word.data
                self._line.say(OutputTaken(call=self._call, node=node, total_bytes=len(self._output[node])))
            case CallEnded(node=node) if node in self._waiting:
                del self._waiting[node]
                self._answers.append(
                    Answer(
                        node=node,
                        worker=word.worker,
                        outcome=word.outcome,
                        code=word.code,
                        output=bytes(self._output[node]),
                        cut_bytes=word.cut_bytes,
                        took_s=word.took_s,
                        why=word.why,
                    )
                )
            case CallRefused():
                raise CallNotMade(word.why)
