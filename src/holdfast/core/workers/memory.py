"""Extracts from the journal what a resumed controller must know about its agents. Pure.

`controller.loop` replays the core's own state.
"""

from msgspec import UNSET, Struct

from holdfast.model.events import (
    AnyEvent,
    AttemptStarted,
    ControllerResumed,
    FindingNoted,
    JobMoved,
    Numbers,
    WorkerExited,
    WorkersPlaced,
)

MOVED = "job-moved"  # kind of the finding that the scheduler restarts the job
FOR_OTHERS = "for_others"  # a number of that finding; 1: another job may use the nodes meanwhile
RENDEZVOUS = "rendezvous"  # kind of the finding that records an attempt's rendezvous


class Rendezvous(Struct, frozen=True, kw_only=True):
    """Address, port and name at which the ranks of one attempt meet.

    The name keeps out ranks of an older attempt.
    """

    attempt: int
    address: str
    port: int
    run_id: str

    def noted(self, at_s: float) -> FindingNoted:
        """Returns the finding that records the rendezvous before agents get it, so that a resumed controller
        uses the same one.
        """
        numbers: Numbers = {"address": self.address, "port": self.port, "run_id": self.run_id}
        text = f"attempt {self.attempt} meets at {self.address}:{self.port} as {self.run_id}"
        return FindingNoted(at_s=at_s, finding=RENDEZVOUS, text=text, attempt=self.attempt, numbers=numbers)


class Memory(Struct):
    """What the journal contains about the agents of a resumed controller.

    `seen`: the highest sequence number of each stream of reports. `exited`: workers of `attempt` that have
    ended. `nodes`: where each worker was placed last, even if its place was taken away: it may still run
    there. `moved`: the scheduler ended all processes of the job to restart it, and no controller has resumed
    it since. `left_s`: when the job was moved, if no other job could use its nodes meanwhile.
    """

    resumes: int = 0
    rendezvous: Rendezvous | None = None
    started: int = 0  # the last attempt that was reported to run in every worker
    attempt: int = 0
    exited: set[int] = set()
    seen: dict[str, int] = {}
    moved: bool = False
    left_s: float | None = None
    nodes: dict[int, str] = {}

    def hear(self, event: AnyEvent) -> None:
        """Updates the memory with one event of the journal."""
        if event.via is not UNSET:
            stream, _, number = str(event.via).rpartition("/")
            if number.isdigit():
                self.seen[stream] = max(self.seen.get(stream, 0), int(number))
        match event:
            case ControllerResumed():
                self.resumes += 1
                self.moved, self.left_s = False, None
            case FindingNoted(finding=finding) if finding == MOVED:
                self.moved = True
                self.left_s = None if event.numbers.get(FOR_OTHERS) else event.at_s
            case JobMoved():
                self.nodes = {}
            case WorkersPlaced():
                self.nodes |= {placed.worker: placed.node for placed in event.placed}
            case AttemptStarted():
                self.started = max(self.started, event.attempt)
            case WorkerExited():
                if event.attempt > self.attempt:
                    self.attempt, self.exited = event.attempt, set()
                if event.attempt == self.attempt:
                    self.exited.add(event.worker)
            case FindingNoted(finding=finding) if finding == RENDEZVOUS:
                self.rendezvous = _read(event) or self.rendezvous


def _read(event: FindingNoted) -> Rendezvous | None:
    address, port, run_id = (event.numbers.get(key) for key in ("address", "port", "run_id"))
    if event.attempt is None or not isinstance(port, int):
        return None
    return Rendezvous(attempt=event.attempt, address=str(address), port=port, run_id=str(run_id))
