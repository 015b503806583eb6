"""Part of the shim: counts the calls of mpi4py in which a rank waits for other ranks, those begun and those
completed.

Loaded by `holdfast_shim_join` once one of several ranks imports mpi4py. A rank that waits in MPI spins, and
looks busy from outside; the counts show that it waits, and which rank has not made its call.

COMM_WORLD becomes an instance of a subclass of its own class, because mpi4py's classes are written in C and
cannot be changed. It has the same handle, compares equal, and the results of Split and Dup are of that
subclass too. Calls that do not wait, and waits for requests (Wait, Waitall), are not counted. Syntax of
Python 3.6.
"""

import functools
import threading
from _thread import get_ident

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# source: the classes Comm and Intracomm of mpi4py 3.0 to 4.1
WAITING = frozenset(
    ("Barrier", "Bcast", "Gather", "Gatherv", "Scatter", "Scatterv", "Allgather", "Allgatherv")
    + ("Alltoall", "Alltoallv", "Alltoallw", "Reduce", "Allreduce", "Reduce_scatter", "Reduce_scatter_block")
    + ("Scan", "Exscan", "Send", "Ssend", "Recv", "Sendrecv", "Sendrecv_replace", "Probe", "Mprobe")
    + ("barrier", "bcast", "gather", "scatter", "allgather", "alltoall", "reduce", "allreduce", "scan")
    + ("exscan", "send", "ssend", "recv", "sendrecv", "probe", "mprobe")
    + ("Split", "Split_type", "Dup", "Create")
)


class Calls:
    """The calls of this process, by thread.

    Those of the main thread are reported, or else of the first thread with a call.

    A thread that listens for messages waits while the training continues.
    """

    def __init__(self) -> None:
        self.by_thread = {}  # type: dict[int, list[int]]
        self.main = threading.main_thread().ident or 0

    def waiting(self, function: "Callable[..., Any]") -> "Callable[..., Any]":
        """Wraps a function so that its beginning and its end are counted."""
        by_thread = self.by_thread

        @functools.wraps(function)
        def waits_for_ranks(*args: "Any", **kwargs: "Any") -> "Any":
            me = get_ident()
            counts = by_thread.get(me) or by_thread.setdefault(me, [0, 0])
            counts[0] += 1
            try:
                return function(*args, **kwargs)
            finally:
                counts[1] += 1

        return waits_for_ranks

    def status(self) -> bytes:
        """Returns how many collectives the main thread has begun and completed, as JSON in the format of PyTorch's flight recorders."""
        begun, done = self.by_thread.get(self.main) or next(iter(list(self.by_thread.values())), [0, 0])
        words = (
            '"last_enqueued_collective": %d, "last_started_collective": %d, "last_completed_collective": %d'
        )
        return ('"mpi": {"pg_status": {"0": {' + words % (begun, begun, done) + "}}}").encode()


def count(module: "Any") -> "Callable[[], bytes]":
    """Wraps the communicator of `module` (mpi4py.MPI, just imported), and returns a function that returns
    the counts.
    """
    calls, base = Calls(), type(module.COMM_WORLD)

    def reduced(comm: "Any") -> "Any":
        """Pickled as ever: mpi4py asks whether it is the very object that it calls COMM_WORLD."""
        if comm is module.COMM_WORLD:
            return "COMM_WORLD"
        _, given = base(comm).__reduce__()[:2]
        return base, given[1:]

    body = {name: calls.waiting(getattr(base, name)) for name in WAITING if hasattr(base, name)}  # type: dict[str, Any]
    body.update(__module__=base.__module__, __reduce__=reduced)
    module.COMM_WORLD = type(base.__name__, (base,), body)(module.COMM_WORLD)
    return calls.status
