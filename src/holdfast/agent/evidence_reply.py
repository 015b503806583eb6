"""Reports one worker's evidence about a failing attempt to the controller: at once, and again after each
change.

It uses the same rules by which a single-worker job waits for its verdict, but makes no verdict. Never waits.
"""

from collections.abc import Callable
from contextlib import suppress

from msgspec.structs import replace

from holdfast.agent.attempt import Attempt
from holdfast.agent.evidence import diagnosis, needs_look, waits_for_launcher
from holdfast.agent.nodes.fitness import Fitness
from holdfast.agent.nodes.log import NodeLog
from holdfast.agent.watch.hang_scene import Seen
from holdfast.agent.watch.logs import KERNEL, Signatures
from holdfast.model.failures import Failure
from holdfast.model.nodes.workers import FetchEvidence, Looked, WorkerEvidence
from holdfast.model.orders import Diagnose

SETTLE_S = 1.5  # how long a complaint about a lost peer waits for the peer's own error
LOOK_S = 3.0  # for the flight records and stacks of ranks, which have deadlines of their own
SIGNATURES_WAIT_S = 2.0  # a job that fails in its first seconds on this machine: they are being compiled
FRESH_S = 0.3  # what is known is put together so often at most, unless it is the last word


def looked_of(attempt: Attempt, seen: Seen, look: int = 0) -> Looked:
    """Converts the result of an examination of ranks to its wire format. `look`: number of the controller's
    request.
    """
    return Looked(
        attempt=attempt.number,
        worker=attempt.worker,
        look=look,
        digests=seen.digests,
        lives=dict(seen.lives),
        stacks=seen.stacks,
        usual_bytes=tuple(sorted(attempt.looks.usual_bytes)),
        notes=seen.notes,
    )


class EvidenceReply:
    """One request of the controller for evidence. Call `turn` ten times a second, until `is_over`."""

    def __init__(
        self,
        asked: FetchEvidence,
        worker: int,
        clock: Callable[[], float],
        fitness: Fitness,
        node_log: NodeLog,
        signatures: Signatures,
    ) -> None:
        self.asked = asked
        self.is_over = False
        self._worker = worker
        self._clock = clock
        self._fitness = fitness
        self._node_log = node_log
        self._signatures = signatures
        self._asked_s = clock()
        self._sent_s = float("-inf")
        self._last: WorkerEvidence | None = None
        self._order = Diagnose(
            incident=asked.incident, attempt=asked.attempt, boot=asked.boot, known=asked.known
        )

    def turn(self, attempt: Attempt | None, no_start: str) -> WorkerEvidence | None:
        """Returns the worker's evidence if it has changed, else None. `no_start`: why the command could not
        start here; empty if it started.
        """
        if self.is_over:
            return None
        if no_start:
            return self._if_changed(
                self._evidence(Failure(command_error=no_start), certain=True, is_all=True)
            )
        if (
            attempt is None or attempt.number != self.asked.attempt
        ):  # it has been judged, and the next one runs
            self._fitness.report_found(self._order)
            return self._if_changed(self._evidence(Failure(), certain=False, is_all=True))
        return self._of(attempt)

    def _of(self, attempt: Attempt) -> WorkerEvidence | None:
        for_s = self._clock() - self._asked_s
        early = diagnosis(attempt)
        checking = not attempt.start_error and self._fitness.troubleshoot(
            self._order, early, living=bool(attempt.living)
        )
        # Records are taken at once, before a launcher ends the ranks that have them; evidence from their ends is added.
        looks = needs_look(attempt, early)
        seen = attempt.looks.look_at_failure() if looks else None
        waits = (
            (not early.certain and for_s <= SETTLE_S)
            or waits_for_launcher(attempt, early, for_s)
            or (looks and bool(attempt.living) and for_s <= SETTLE_S)
            or (looks and seen is None and for_s <= LOOK_S)
            # The ends of ranks whose launcher is gone come a moment after its own: who was killed is to be named.
            or (attempt.command_code is not None and bool(attempt.living) and for_s <= SETTLE_S)
            or (not self._signatures.is_over and for_s <= SIGNATURES_WAIT_S)
            or checking
        )
        is_all = not waits or for_s >= self.asked.until_s
        if not is_all and self._clock() - self._sent_s < FRESH_S and early.certain == self._was_certain:
            return None
        self._sent_s = self._clock()
        attempt.scan(self._node_log.poll(self._clock(), now=True), now=True)
        if is_all:
            attempt.report_last_step()
            self._fitness.report_found(self._order)
            _keep_kernel(attempt)
        evidence = replace(
            self._evidence(early.failure, certain=early.certain, is_all=is_all),
            search=attempt.logs.search(),
            looked=None if seen is None else looked_of(attempt, seen),
            offsets=attempt.logs.offsets(),
            kernel_why_not=self._node_log.why_not,
        )
        return self._if_changed(evidence)

    @property
    def _was_certain(self) -> bool:
        return self._last is not None and self._last.certain

    def _evidence(self, failure: Failure, *, certain: bool, is_all: bool) -> WorkerEvidence:
        return WorkerEvidence(
            incident=self.asked.incident,
            attempt=self.asked.attempt,
            worker=self._worker,
            revision=0,
            failure=failure,
            certain=certain,
            is_all=is_all,
        )

    def _if_changed(self, evidence: WorkerEvidence) -> WorkerEvidence | None:
        """Returns the evidence with its revision; None if it was already sent."""
        before = 0 if self._last is None else self._last.revision
        evidence = replace(evidence, revision=before + 1)
        self.is_over = evidence.is_all
        if self._last is not None and replace(self._last, revision=evidence.revision) == evidence:
            return None
        self._last = evidence
        return evidence


def _keep_kernel(attempt: Attempt) -> None:
    """Writes the kernel messages of the attempt to a file beside the worker's output, as evidence."""
    lines = attempt.logs.kernel_lines
    if lines:
        with suppress(OSError):
            (attempt.folder / KERNEL).write_bytes(b"\n".join(lines) + b"\n")
