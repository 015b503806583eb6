"""Part of the shim: detects when a process joins the process group of its training, whatever launched it.

`sitecustomize` loads it once a module is imported by which processes join: PyTorch (and DeepSpeed, Lightning,
Accelerate and Ray Train, which call it), JAX, Horovod, mpi4py, Paddle, MindSpore, TensorFlow. It wraps the
function that joins: before the call it reports what arguments and environment say, so that a rank that waits
for others is known; afterwards what the framework says. The call, its result and its exceptions are
unchanged.

Where a launcher's own code catches the exception that ends a rank (torch.multiprocessing, multiprocessing,
torch.distributed's elastic launcher for functions, Ray Train), that is recorded on its way.

It imports no framework and raises nothing. Syntax of Python 3.6.
"""

import functools
import json
import os
import socket
import sys
from importlib.util import find_spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any, Optional

    Says = dict[str, object]
    Become = Callable[[int], None]
    Raised = Callable[..., None]
    Counted = Callable[[str, object], None]

    class Rank:
        """`sitecustomize.Rank`."""

        number: int
        pid: int
        written: dict[str, bytes]
        reopen: Callable[[], None] | None

        def path(self, ending: str) -> str: ...
        def write(self, ending: str, data: bytes) -> None: ...

    Attempt = Callable[..., Any]


REAPER_S = 1.0  # for its answer; it has other things to do, and may be stopped
SOCKET_PATH_BYTES_MAX = 107
NOTE = "shim.json"
RAY_THREADS = "ray.train.v2._internal.execution.worker_group.thread_runner"
RAY_CONTEXT = "ray.train.v2._internal.execution.context"


class Joining:
    """Wrapper of the functions by which processes join a group.

    `become`: makes this process the rank of that number. `raised`: the work of the exception hook. `attempt`:
    runs a function and returns None if it fails.
    """

    def __init__(self, become: "Become", raised: "Raised", counted: "Counted", attempt: "Attempt") -> None:
        self.become = become
        self.raised = raised
        self.counted = counted
        self.attempt = attempt

    def report(self, says: "Says") -> None:
        """Reports this process to the reaper as a rank, and takes the rank number that it returns."""
        answer = self.attempt(ask_reaper, dict(says, do="join")) or {}
        number = answer.get("rank")
        self.become(says["rank"] if number is None else number)  # type: ignore[arg-type]

    def watch(self, name: str, module: "ModuleType") -> None:
        """Wraps the joining function of `module`, which has just been imported under that name."""
        WATCHED[name](self, module)

    def around(
        self,
        owner: "Any",
        name: str,
        before: "Callable[..., Says | None]",
        after: "Callable[..., Says | None]",
    ) -> None:
        """Wraps a call. `before` and `after` get its arguments and return what to report; None if unknown."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def joined(*args: "Any", **kwargs: "Any") -> "Any":
            self.attempt(self.tell, before, args, kwargs)
            result = original(*args, **kwargs)
            self.attempt(self.tell, after, args, kwargs)
            return result

        setattr(owner, name, joined)

    def tell(
        self, about: "Callable[..., Says | None]", args: "Sequence[Any]", kwargs: "Mapping[str, Any]"
    ) -> None:
        says = about(*args, **kwargs)
        if says is not None:
            self.report(says)

    # One method for each framework

    def torch(self, module: "Any") -> None:
        """Wraps torch's init_process_group.

        source: init_process_group of torch/distributed/distributed_c10d.py, 1.13 to 2.13
        """

        def before(
            backend: "Any" = None,
            init_method: "Optional[str]" = None,
            timeout: "Any" = None,
            world_size: "Optional[int]" = -1,
            rank: "Optional[int]" = -1,
            store: "Any" = None,
            **rest: "Any",
        ) -> "Says | None":
            asked = _of_url(init_method)
            number = _first(rank, asked.get("rank"), os.environ.get("RANK"))
            size = _first(world_size, asked.get("world_size"), os.environ.get("WORLD_SIZE"))
            return _says(number, size, _meeting_point(init_method, store))

        def after(*args: "Any", **kwargs: "Any") -> "Says | None":
            names = ("backend", "init_method", "timeout", "world_size", "rank", "store")
            given = dict(zip(names, args), **kwargs)
            point = _meeting_point(given.get("init_method"), given.get("store"))
            return _says(module.get_rank(), module.get_world_size(), point)

        self.around(module, "init_process_group", before, after)

    def jax(self, module: "Any") -> None:
        """Wraps JAX's distributed.initialize. source: jax/_src/distributed.py"""

        def before(
            coordinator_address: "Optional[str]" = None,
            num_processes: "Optional[int]" = None,
            process_id: "Optional[int]" = None,
            *rest: "Any",
            **more: "Any",
        ) -> "Says | None":
            return _says(process_id, num_processes, _port(coordinator_address or ""))

        def after(*args: "Any", **kwargs: "Any") -> "Says | None":
            state = module.global_state
            return _says(state.process_id, state.num_processes, _port(state.coordinator_address or ""))

        self.around(module, "initialize", before, after)

    def horovod(self, module: "Any") -> None:
        """Wraps Horovod's init. source: horovod/common/basics.py, HorovodBasics"""

        def after(basics: "Any", *args: "Any", **kwargs: "Any") -> "Says | None":
            return _says(basics.rank(), basics.size(), "horovod", basics.local_rank(), basics.local_size())

        self.around(module.HorovodBasics, "init", _nothing, after)

    def mpi(self, module: "Any") -> None:
        """Reports an MPI process, which joins at import.

        A single process is no group: libraries import mpi4py just to test it.
        """
        if module.Is_initialized() and module.COMM_WORLD.Get_size() > 1:
            self.report_known(module.COMM_WORLD.Get_rank(), module.COMM_WORLD.Get_size(), "mpi")
            self.attempt(self.counted, "holdfast_shim_mpi", module)

    def paddle(self, module: "Any") -> None:
        """Wraps Paddle's init_parallel_env. source: paddle/distributed/parallel.py, init_parallel_env"""

        def known(*args: "Any", **kwargs: "Any") -> "Says | None":
            env = os.environ
            point = _port(
                env.get("PADDLE_MASTER") or env.get("PADDLE_TRAINER_ENDPOINTS", "").partition(",")[0]
            )
            return _says(_first(env.get("PADDLE_TRAINER_ID")), _first(env.get("PADDLE_TRAINERS_NUM")), point)

        self.around(module, "init_parallel_env", known, known)

    def mindspore(self, module: "Any") -> None:
        """Wraps MindSpore's init. source: mindspore/communication/management.py"""

        def after(*args: "Any", **kwargs: "Any") -> "Says | None":
            return _says(module.get_rank(), module.get_group_size(), "mindspore")

        self.around(module, "init", _nothing, after)

    def tensorflow(self, module: "Any") -> None:
        """Reports a TensorFlow process by TF_CONFIG, read when the resolver is created, because a script may
        set it.

        source: tensorflow/python/distribute/cluster_resolver/tfconfig_cluster_resolver.py
        """

        def before(*args: "Any", **kwargs: "Any") -> "Says | None":
            config = json.loads(os.environ.get("TF_CONFIG") or "{}")
            cluster, task = config.get("cluster", {}), config.get("task", {})
            chiefs, workers = len(cluster.get("chief", ())), len(cluster.get("worker", ()))
            if task.get("type") not in ("chief", "worker"):
                return None
            number = int(task["index"]) + (chiefs if task["type"] == "worker" else 0)
            return _says(number, chiefs + workers, "tensorflow")

        self.around(module.TFConfigClusterResolver, "__init__", before, _nothing)

    # Exceptions that no hook sees

    def recording(self, function: "Callable[..., Any]") -> "Callable[..., Any]":
        """Wraps a function so that its exceptions are recorded."""

        @functools.wraps(function)
        def recorded(*args: "Any", **kwargs: "Any") -> "Any":
            try:
                return function(*args, **kwargs)
            except Exception as error:
                self.attempt(self.raised, type(error), error, error.__traceback__)
                raise

        return recorded

    def processes(self, module: "Any") -> None:
        """Wraps multiprocessing, so that exceptions of its processes are recorded.

        source: BaseProcess of multiprocessing/process.py, whose _bootstrap prints what run raises
        """
        module.BaseProcess.run = self.recording(module.BaseProcess.run)

    def spawned(self, module: "Any") -> None:
        """Wraps torch's spawn, so that exceptions of its processes are recorded.

        source: _wrap of torch/multiprocessing/spawn.py, which passes them to its parent
        """
        wrap = module._wrap

        @functools.wraps(wrap)
        def wrapped(function: "Any", *args: "Any", **kwargs: "Any") -> "Any":
            return wrap(self.recording(function), *args, **kwargs)

        module._wrap = wrapped

    def elastic(self, module: "Any") -> None:
        """Wraps torch's elastic launcher, so that exceptions of its processes are recorded.

        source: ErrorHandler of torch/distributed/elastic/multiprocessing/errors/error_handler.py
        """
        original = module.ErrorHandler.record_exception

        @functools.wraps(original)
        def record_exception(handler: "Any", error: BaseException) -> "Any":
            self.attempt(self.raised, type(error), error, error.__traceback__)
            return original(handler, error)

        module.ErrorHandler.record_exception = record_exception

    def ray(self, module: "Any") -> None:
        """Wraps Ray Train, so that exceptions of the training function are recorded, unless Ray may restart
        workers by itself.

        Ray Train passes the exception on, and its driver polls for it every few seconds.

        source: ray/train/v2/_internal/execution/worker_group/thread_runner.py
        """
        original = module.construct_user_exception_with_traceback

        @functools.wraps(original)
        def construct(error: BaseException, *args: "Any", **kwargs: "Any") -> "Any":
            if self.attempt(_ray_gives_up):
                self.attempt(self.raised, type(error), error, error.__traceback__)
            return original(error, *args, **kwargs)

        module.construct_user_exception_with_traceback = construct

    def report_known(self, rank: int, size: int, point: str) -> None:
        says = _says(rank, size, point)
        if says is not None:
            self.report(says)


def watched_spec(
    name: str, become: "Become", raised: "Raised", counted: "Counted", attempt: "Attempt"
) -> "ModuleSpec | None":
    """Returns the spec of a module with a loader that wraps the module after it was loaded; None if it is
    not found.
    """
    spec = find_spec(name)
    loader = spec.loader if spec is not None else None  # type: Any
    if spec is None or not hasattr(loader, "exec_module"):
        return spec
    load = loader.exec_module

    def exec_module(module: "ModuleType") -> None:
        del loader.exec_module
        load(module)
        attempt(Joining(become, raised, counted, attempt).watch, name, module)

    loader.exec_module = exec_module
    return spec


def ask_reaper(says: "Says") -> "dict[str, Any]":
    """Sends a report to the reaper and returns its reply: {"rank": 1}, or None instead of the number.

    Raises OSError and ValueError if the reaper does not exist or does not respond in time.
    """
    path, folder = os.path.join(os.environ["HOLDFAST_WORKER_DIR"], "reaper.sock"), -1
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX:
        folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        path = "/proc/self/fd/%d/reaper.sock" % folder
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        channel.settimeout(REAPER_S)
        channel.connect(path)
        channel.sendall(json.dumps(says).encode() + b"\n")
        data = b""
        while not data.endswith(b"\n"):
            more = channel.recv(1 << 12)
            if not more:
                raise OSError("the reaper has hung up")
            data += more
    finally:
        channel.close()
        if folder >= 0:
            os.close(folder)
    answer = json.loads(data.decode())  # type: dict[str, Any]
    return answer


def renumber(rank: "Rank", number: int) -> None:
    """Gives this process another rank number, and renames its files.

    An inherited variable may have named several processes as one rank, so only files that this process wrote
    are renamed.
    """
    log_before = rank.path("log")
    for ending, data in rank.written.items():
        if _content(rank.path(ending)) == data:
            os.unlink(rank.path(ending))
    rank.number = number
    os.environ["HOLDFAST_RANK_OWNER"] = "%d:%d" % (number, rank.pid)
    settle(rank)
    log = os.open(rank.path("log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for fd in (1, 2):
        if _is(fd, log_before):
            os.dup2(log, fd)
    os.close(log)


def settle(rank: "Rank") -> None:
    """Writes the rank's files again under its number, in case another process overwrote them; reopens its
    socket there.
    """
    if NOTE in rank.written:
        note = json.loads(rank.written[NOTE].decode())
        if note["rank"] != rank.number:
            rank.written[NOTE] = (json.dumps(dict(note, rank=rank.number)) + "\n").encode()
    for ending, data in list(rank.written.items()):
        if _content(rank.path(ending)) != data:
            rank.write(ending, data)
    if rank.reopen is not None:
        rank.reopen()


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _is(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except OSError:
        return False


WATCHED = {
    "torch.distributed.distributed_c10d": Joining.torch,
    "torch.multiprocessing.spawn": Joining.spawned,
    "torch.distributed.elastic.multiprocessing.errors.error_handler": Joining.elastic,
    "multiprocessing.process": Joining.processes,
    RAY_THREADS: Joining.ray,
    "jax._src.distributed": Joining.jax,
    "horovod.common.basics": Joining.horovod,
    "mpi4py.MPI": Joining.mpi,
    "paddle.distributed.parallel": Joining.paddle,
    "mindspore.communication.management": Joining.mindspore,
    "tensorflow.python.distribute.cluster_resolver.tfconfig_cluster_resolver": Joining.tensorflow,
}


def _nothing(*args: "Any", **kwargs: "Any") -> None:
    """Returns None: nothing is known before, or after, the call."""


def _ray_gives_up() -> bool:
    """Returns True if Ray Train does not restart workers, so that the first failure ends the run."""
    config = sys.modules[RAY_CONTEXT].get_train_context().train_run_context.run_config.failure_config
    return config is None or config.max_failures == 0


def _says(
    rank: "Optional[int]",
    size: "Optional[int]",
    point: str,
    local_rank: "Optional[int]" = None,
    local_size: "Optional[int]" = None,
) -> "Says | None":
    """Returns the report of a rank: its number, the number of ranks, and the rendezvous point; None if it
    is invalid.
    """
    if rank is None or not size or not 0 <= rank < size:
        return None
    env = os.environ
    return {
        "rank": int(rank),
        "world_size": int(size),
        "local_rank": _first(local_rank, env.get("LOCAL_RANK")),
        "local_world_size": _first(local_size, env.get("LOCAL_WORLD_SIZE")),
        "group": point,
        "master_addr": env.get("MASTER_ADDR", ""),
        "master_port": _first(env.get("MASTER_PORT")),
    }


def _first(*given: "Any") -> "Optional[int]":
    """Returns the first value that is a number and not negative; None if there is none."""
    for one in given:
        try:
            number = int(one)
        except (TypeError, ValueError):
            continue
        if number >= 0:
            return number
    return None


def _meeting_point(init_method: "Optional[str]", store: "Any") -> str:
    """Returns the port or file of the rendezvous, which is the same in all processes, however they name
    their host.
    """
    if store is not None:
        while hasattr(store, "underlying_store"):
            store = store.underlying_store
        return str(getattr(store, "port", "") or getattr(store, "path", ""))
    url = init_method or "env://"
    if url.startswith("env:"):
        return os.environ.get("MASTER_PORT", "")
    scheme, _, rest = url.partition("://")
    return rest.partition("?")[0] if scheme == "file" else _port(rest)


def _port(address: str) -> str:
    """Returns the port of an address: `29500` for `host:29500/path?query`."""
    return address.partition("?")[0].partition("/")[0].rpartition(":")[2]


def _of_url(init_method: "Optional[str]") -> "dict[str, str]":
    """Returns the query of a URL: {"rank": "1", "world_size": "4"} for
    `tcp://host:29500?rank=1&world_size=4`.
    """
    query = (init_method or "").partition("?")[2]
    return dict(pair.split("=", 1) for pair in query.split("&") if "=" in pair)
