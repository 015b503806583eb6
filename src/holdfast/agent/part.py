"""Describes which part of an attempt one worker runs, and the attempt's rendezvous address."""

from msgspec import Struct

LOOPBACK = "127.0.0.1"


class Part(Struct, frozen=True, kw_only=True):
    """The part of an attempt that one worker runs: worker number `worker` of `workers`, counted from 0.

    `master_address`, `master_port`: address of worker 0 for the other workers; empty if not known. `run_id`:
    id of this attempt's rendezvous, never used before, so that no process of an older attempt can join it.
    """

    worker: int = 0
    workers: int = 1
    master_address: str = LOOPBACK
    master_port: int
    run_id: str


def unmet(worker: int, workers: int) -> Part:
    """Returns a worker's part of a future attempt, whose rendezvous address is not known yet."""
    return Part(worker=worker, workers=workers, master_address="", master_port=0, run_id="")
