"""How the calls of a communicator are counted: a class as mpi4py's is, whose methods cannot be replaced in place."""

import json
import threading
import types

import pytest

from holdfast.observe.processes.worker_server import MPI_CALLS, parse_status
from holdfast.shim import holdfast_shim_mpi


class Communicator:
    """Waits in `allreduce` until the others have come."""

    __slots__ = ("handle", "others")

    def __init__(self, world=None):
        self.handle = world.handle if world else 7
        self.others = world.others if world else threading.Event()

    def __eq__(self, other):
        return self.handle == other.handle

    __hash__ = None

    def allreduce(self, value, op="sum"):
        """Sums."""
        if value < 0:
            raise ValueError("no such value")
        self.others.wait()
        return 2 * value

    def Get_rank(self):
        return 1

    def Split(self):
        return type(self)(self)


@pytest.fixture
def counted():
    world = Communicator()
    module = types.SimpleNamespace(COMM_WORLD=world)
    status = holdfast_shim_mpi.count(module)

    def calls():
        (group,) = parse_status(b'{"at": 1, %s}' % status())
        assert group.group_id == MPI_CALLS
        return group.enqueued, group.completed

    return world, module.COMM_WORLD, calls


def test_a_rank_that_waits_has_begun_more_than_it_has_done(counted):
    world, comm, calls = counted
    assert calls() == (0, 0)
    waits = threading.Thread(target=comm.allreduce, args=(1,))
    waits.start()
    while calls() != (1, 0):
        pass
    world.others.set()
    waits.join()
    assert calls() == (1, 1)


def test_a_thread_that_listens_is_no_rank_that_waits(counted):
    world, comm, calls = counted
    world.others.set()
    comm.allreduce(1)
    world.others.clear()
    listens = threading.Thread(target=comm.allreduce, args=(1,), daemon=True)
    listens.start()
    assert calls() == (1, 1)
    world.others.set()
    listens.join()


def test_the_communicator_is_the_same_for_the_script(counted):
    world, comm, calls = counted
    world.others.set()
    assert isinstance(comm, Communicator) and comm == world
    assert (type(comm).__name__, type(comm).__module__) == ("Communicator", __name__)
    assert comm.allreduce(3, op="max") == 6
    assert comm.Get_rank() == 1
    assert comm.__reduce__() == "COMM_WORLD"  # as mpi4py does: by its name in the module
    assert comm.allreduce.__doc__ == "Sums."
    with pytest.raises(ValueError, match="no such value"):
        comm.allreduce(-1)
    assert calls() == (2, 2)


def test_what_is_split_off_counts_too(counted):
    world, comm, calls = counted
    world.others.set()
    comm.Split().allreduce(1)
    assert calls() == (2, 2)


def test_what_it_says_is_json(counted):
    *_, calls = counted
    assert json.loads(b"{%s}" % holdfast_shim_mpi.Calls().status())["mpi"]["pg_status"]["0"]
