"""Gives each training rank a log of its own, error records and stacks, without changes to the script.

Python loads it at start through PYTHONPATH. In the process that owns a rank it redirects output to the rank's
log, records uncaught exceptions, lets faulthandler dump stacks on a signal, records imports of large
packages, holds a standby at its gate (`holdfast_shim_gate.py`), and once torch.distributed is imported loads
`holdfast_shim_torch.py`, which reports the rank's progress. The launcher of a multi-node job is held at a
gate when it stands by (`holdfast_shim_launcher.py`). With `--deterministic`, `holdfast_shim_deterministic.py`
makes runs repeatable. Any other process becomes a rank when it joins a group (`holdfast_shim_join.py`), and
registers with the reaper.

It never imports holdfast, never raises, never starts a process: if a part fails, the script runs as if there
were no shim. It runs under the training's Python, so its syntax is that of 3.6. Imports are inside functions
here and nowhere else: each module loaded at start would cost every Python process of the job.
"""

import _thread
import os
import sys

TYPE_CHECKING = False  # read by type checkers only: importing typing would cost more than all else here
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import ModuleType, TracebackType
    from typing import Any, TypeVar

    from holdfast.shim.holdfast_shim_imports import Imports
    from holdfast.shim.holdfast_shim_launcher import HeldLauncher

    T = TypeVar("T")

GATE_KEYS = ("HOLDFAST_GATE", "HOLDFAST_PRELOAD", "HOLDFAST_RANKS", "HOLDFAST_HELD", "HOLDFAST_HOLDS")
# A script that closes descriptors it did not open is given the low numbers again, and must not find us there.
FD_MIN = 500
START_THREAD = _thread.start_new_thread  # as it is now: gevent, for one, replaces it
TORCH_DISTRIBUTED = "torch.distributed.distributed_c10d"
# By these a process joins a group, or an exception ends it unseen by the hook; `holdfast_shim_join.WATCHED` says how.
JOINED_BY = {TORCH_DISTRIBUTED, "jax._src.distributed", "horovod.common.basics", "mpi4py.MPI"}
JOINED_BY |= {"torch.multiprocessing.spawn", "multiprocessing.process"}
JOINED_BY |= {"torch.distributed.elastic.multiprocessing.errors.error_handler"}
JOINED_BY |= {"paddle.distributed.parallel", "mindspore.communication.management"}
JOINED_BY.add("ray.train.v2._internal.execution.worker_group.thread_runner")
JOINED_BY.add("tensorflow.python.distribute.cluster_resolver.tfconfig_cluster_resolver")
HERE = []  # type: list[Rank]
COUNTS = []  # type: list[Callable[[], bytes]]  # what else than torch says how far the rank is
LAUNCHERS = {"torchrun", "torch.distributed.run", "torch.distributed.launch"}
LAUNCHERS |= {"accelerate", "accelerate-launch", "accelerate.commands.launch"}
LAUNCHERS |= {"deepspeed", "deepspeed.launcher.launch"}


class Rank:
    """This process as the owner of a rank. A forked child has this object too, but does not own the rank."""

    def __init__(self, number: int, folder: str) -> None:
        self.number = number
        self.pid = os.getpid()
        self.folder = os.path.abspath(folder)
        self.last_words = []  # type: list[Callable[[], None]]
        self.written = {}  # type: dict[str, bytes]
        self.reopen = None  # type: Callable[[], None] | None

    def path(self, ending: str) -> str:
        return os.path.join(self.folder, f"rank-{self.number}.{ending}")

    def is_here(self) -> bool:
        return os.getpid() == self.pid

    def write(self, ending: str, data: bytes) -> None:
        """Writes a file of the rank, completely or not at all."""
        path = self.path(ending)
        if ending.endswith(".json"):  # small, and another process with the same rank may replace it
            self.written[ending] = data
        new = f"{path}.{os.getpid()}.new"
        try:
            with open(new, "wb") as file:
                file.write(data)
            os.rename(new, path)
        except OSError:
            os.unlink(new)
            raise


# Whose process this is


def _rank(*, claims: bool = True) -> "Rank | None":
    """Returns the rank that this process owns: it is the first process whose environment names that rank.

    `claims`: later processes with these variables do not own it.
    """
    env = os.environ
    named = _attempt(_named) if _is_watched() else None
    if named is None:
        return None
    rank = Rank(named["rank"], env["HOLDFAST_WORKER_DIR"])
    owned, _, owner = env.get("HOLDFAST_RANK_OWNER", "").rpartition(":")
    if owned == str(rank.number) and owner != str(rank.pid):
        return None
    if not named["direct"] and _is_launcher():
        return None
    if claims:
        env["HOLDFAST_RANK_OWNER"] = f"{rank.number}:{rank.pid}"
    return rank


def _is_watched() -> bool:
    """Returns True if Holdfast watches ranks here, and gave a folder for their files."""
    return os.environ.get("HOLDFAST_SHIM") == "1" and bool(os.environ.get("HOLDFAST_WORKER_DIR"))


def _named() -> "dict[str, Any] | None":
    """Returns what the environment says of the rank, by the table of variables that the reaper uses."""
    from _frozen_importlib_external import SourceFileLoader

    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    table = {}  # type: dict[str, Any]
    loader = SourceFileLoader("rank_names", os.path.join(package, "agent", "reaper", "rank_names.py"))
    exec(loader.get_code("rank_names") or "", table)
    found = table["named"](lambda key: os.environ.get(key, ""))  # type: dict[str, Any] | None
    return found


def _is_launcher() -> bool:
    """Returns True if this process is a launcher; some platforms set RANK for a whole pod, but not
    LOCAL_RANK.
    """
    try:
        with open("/proc/self/cmdline", "rb") as file:
            words = [os.fsdecode(word) for word in file.read(4096).split(b"\0")[1:]]
    except OSError:
        return False
    while words and words[0].startswith("-") and words[0] != "-m":
        del words[: 2 if words[0] in ("-W", "-X") else 1]
    program = words[1:2] if words[:1] == ["-m"] else words[:1]
    return bool(program) and os.path.basename(program[0]) in LAUNCHERS


# Its output


def _own_output(rank: Rank) -> None:
    """Redirects each stream that goes to a file shared by all ranks of the worker to the rank's own log."""
    shared = [_identity(os.path.join(rank.folder, name)) for name in ("stdout", "stderr")]
    streams = [fd for fd in (1, 2) if _identity(fd) is not None and _identity(fd) in shared]
    if not streams:
        return
    for stream in (sys.stdout, sys.stderr):  # what it has printed before it was known to be a rank
        if stream is not None:
            _attempt(stream.flush)
    log = os.open(rank.path("log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for fd in streams:
        os.dup2(log, fd)
    if log not in streams:
        os.close(log)


def _identity(file: "int | str") -> "tuple[int, int] | None":
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino


# Its last words


def _record_exceptions() -> None:
    """Installs an exception hook. Hooks installed later (as by init_process_group) call this one."""
    previous = sys.excepthook

    def hook(kind: "type[BaseException]", error: BaseException, trace: "TracebackType | None") -> None:
        try:
            _raised(kind, error, trace)
        finally:
            previous(kind, error, trace)

    sys.excepthook = hook


def _raised(kind: "type[BaseException]", error: BaseException, trace: "TracebackType | None") -> None:
    """Records the exception that ends this process, if it is a rank."""
    for rank in HERE:
        if rank.is_here() and not issubclass(kind, (KeyboardInterrupt, SystemExit)):
            _attempt(_write_error, rank, kind, error, trace)
            for part in rank.last_words:
                _attempt(part)


def _write_error(*given: object) -> None:
    _beside("holdfast_shim_errors").write_error(*given)


# Its stacks, on request


def _register_stacks(rank: Rank) -> int:
    """Registers faulthandler on a signal, and returns the signal."""
    import _signal  # type: ignore[import-not-found]  # not signal: its enumerations cost 3 ms
    import faulthandler

    number = int(_signal.SIGRTMIN) + 7
    faulthandler.register(number, file=_append(rank.path("stacks")), all_threads=True, chain=False)
    return number


def _append(path: str) -> int:
    return _high(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644))


def _high(low: int) -> int:
    """Returns the same open file under a high number, if this process may have one."""
    import fcntl

    try:
        high = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, FD_MIN)
    except OSError:
        return low
    os.close(low)
    return high


def _write_note(rank: Rank, stack_signal: "int | None") -> None:
    """Writes the shim's note as JSON, without the json module, which would cost more than all else here."""
    import time

    python = "%d.%d.%d" % sys.version_info[:3]
    facts = (rank.pid, rank.number, stack_signal or 0, python, time.time())
    text = '{"pid": %d, "rank": %d, "stack_signal": %d, "python": "%s", "time": %f}\n' % facts
    rank.write("shim.json", text.encode())


# What it imports, for the next standby


def _note_imports(rank: Rank) -> "Imports":
    imports = _beside("holdfast_shim_imports").Imports(rank, _append, _attempt)  # type: Imports
    sys.meta_path.insert(0, imports)
    return imports


def _learn(rank: "Rank | None") -> None:
    """Records imports of the first rank, of a launcher, and of a script that is no rank yet, for the next zygote."""
    if os.environ.get("HOLDFAST_LEARNS") != "1" or not _is_watched():
        return
    if rank is not None and rank.number != 0 and os.environ.get("LOCAL_RANK") != "0":
        return
    if rank is not None or not os.environ.get("HOLDFAST_RANK_OWNER"):
        name = "imports.launcher" if rank is None and _is_launcher() else "imports.learned"
        path = os.path.join(os.path.abspath(os.environ["HOLDFAST_WORKER_DIR"]), name)
        imports = _beside("holdfast_shim_imports")
        if rank is None:
            imports.note_reached(os.path.dirname(path))
        sys.meta_path.insert(0, imports.Learning(path, _append, _attempt))


# Which rank it is, once it joins a group


class Joins:
    """Import hook that waits for a module by which processes join a group; it wraps its loader."""

    def __init__(self) -> None:
        self.finding = set()  # type: set[tuple[int, str]]

    def find_spec(self, name: str, path: object = None, target: object = None) -> "ModuleSpec | None":
        if name not in JOINED_BY:
            return None
        me = (_thread.get_ident(), name)
        if me in self.finding:
            return None
        try:
            self.finding.add(me)
            watched_spec = _beside("holdfast_shim_join").watched_spec
            return _attempt(watched_spec, name, _become, _raised, _counted, _attempt)
        finally:
            self.finding.discard(me)


def _become(number: int) -> None:
    """Makes this process a rank after its start, or gives it another number."""
    known = HERE[0] if HERE else None
    if known is not None and known.is_here() and known.number == number:
        _attempt(_beside("holdfast_shim_join").settle, known)
        return
    if known is not None and known.is_here():  # its environment names it another rank than its group does
        _attempt(_beside("holdfast_shim_join").renumber, known, number)
        return
    rank = Rank(number, os.environ["HOLDFAST_WORKER_DIR"])
    os.environ["HOLDFAST_RANK_OWNER"] = f"{number}:{rank.pid}"
    _begin(rank)
    if TORCH_DISTRIBUTED in sys.modules:
        _attempt(_reach, rank, Tools())


def _begin(rank: Rank) -> None:
    HERE[:] = [rank]
    _attempt(_own_output, rank)
    _attempt(_record_exceptions)
    _attempt(_write_note, rank, _attempt(_register_stacks, rank))


# How far it is, once it imports torch.distributed


class Tools:
    """Functions of this file that other files of the shim need."""

    def __init__(self) -> None:
        self.attempt = _attempt
        self.high = _high
        self.thread = START_THREAD
        self.counts = COUNTS
        self.lock = _thread.allocate_lock


class Reach:
    """Import hook that waits for torch.distributed. It finds no module itself, and wraps none."""

    def __init__(self, rank: Rank, tools: Tools) -> None:
        self.rank = rank
        self.tools = tools
        self.is_done = False

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Starts the progress reports. Always returns None, so that the next finder is used."""
        if name == TORCH_DISTRIBUTED and not self.is_done:
            self.is_done = True
            if self.rank.is_here():
                _attempt(_reach, self.rank, self.tools)


def _reach(rank: Rank, tools: Tools) -> None:
    if rank.reopen is None:
        rank.last_words.append(_beside("holdfast_shim_torch").start(rank, tools))


def _counted(file: str, module: "ModuleType") -> None:
    """Starts to count calls of `module` in which a rank waits for others; the rank's socket reports them."""
    COUNTS.append(_beside(file).count(module))
    for rank in HERE:
        if rank.is_here():
            _reach(rank, Tools())


def _beside(name: str) -> "ModuleType":
    """Imports a file beside this one by its path, so that no other module on sys.path can be taken for it."""
    # Not importlib.util: it imports contextlib and types.
    from _frozen_importlib import module_from_spec
    from _frozen_importlib_external import spec_from_file_location

    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".py")
    spec = spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Its gate, when it is a standby


def _stand_by_as_rank(rank: Rank, gate: str) -> None:
    """Imports what the script will import, then waits until this standby becomes the attempt."""
    _attempt(_gate_part, "stand_by_as_rank", gate, rank.path("ready"))
    _leave_unless_released(gate)


def _stand_by_as_launcher() -> None:
    """Holds a launcher, or a command that cannot run twice, until its gate is open."""
    env = os.environ
    gate, ranks = env.get("HOLDFAST_GATE", ""), env.get("HOLDFAST_RANKS", "")
    if env.get("HOLDFAST_SHIM") != "1" or not gate or not ranks:
        return
    if not env.get("HOLDFAST_HOLDS") and not _is_launcher():
        return
    held = _attempt(_held_launcher, gate)
    _attempt(_gate_part, "stand_by_as_launcher", gate, held, ranks)
    _leave_unless_released(gate)
    for key in GATE_KEYS:
        env.pop(key, None)
    if held is not None:
        held.go_on()


def _gate_part(name: str, *given: object) -> None:
    getattr(_beside("holdfast_shim_gate"), name)(_attempt, *given)


def _held_launcher(gate: str) -> "HeldLauncher":
    held = _beside("holdfast_shim_launcher").HeldLauncher(gate, _attempt)  # type: HeldLauncher
    return held


def _leave_unless_released(gate: str) -> None:
    """Exits if this standby was not released: if it ran the script, it would be a second copy of the
    training.
    """
    if not os.path.exists(gate + ".go"):
        os._exit(0)


# All of it


def _attempt(part: "Callable[..., T]", *given: object) -> "T | None":
    """Calls a function and returns its result; None if it fails.

    It keeps errors of the shim from the script.
    """
    try:
        return part(*given)
    except Exception:
        return None


def _set_up() -> None:
    rank = _attempt(_rank)
    _attempt(_learn, rank)
    if _is_watched():
        if not any(isinstance(finder, Joins) for finder in sys.meta_path):
            sys.meta_path.insert(0, Joins())
        if os.environ.get("HOLDFAST_DETERMINISTIC_SEED"):
            _attempt(_deterministic)
    if rank is None:
        _attempt(_stand_by_as_launcher)
        return
    _begin(rank)
    is_first = rank.number == 0 or os.environ.get("LOCAL_RANK") == "0"  # of its worker
    imports = _attempt(_note_imports, rank) if is_first else None
    gate = os.environ.get("HOLDFAST_GATE", "")
    if gate:
        _attempt(_stand_by_as_rank, rank, gate)
        for key in GATE_KEYS:
            os.environ.pop(key, None)
        if imports is not None:
            imports.env = dict(os.environ)
    if TORCH_DISTRIBUTED in sys.modules:  # imported at the gate, or by a hidden sitecustomize
        _attempt(_reach, rank, Tools())
    else:
        sys.meta_path.insert(0, Reach(rank, Tools()))


def _deterministic() -> None:
    _beside("holdfast_shim_deterministic").install(_attempt)


def _load_hidden() -> None:
    """Loads the user's or the system's own `sitecustomize`, which this one hides.

    Its errors are not caught.
    """
    spec = _attempt(_find_hidden)
    if spec is None or spec.loader is None:  # None: a mere folder of that name
        return
    from _frozen_importlib import module_from_spec

    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _find_hidden() -> "ModuleSpec | None":
    from _frozen_importlib_external import PathFinder

    here = os.path.dirname(os.path.abspath(__file__))
    places = [os.path.abspath(place) for place in sys.path]
    rest = places[places.index(here) + 1 :] if here in places else places
    return PathFinder.find_spec("sitecustomize", [place for place in rest if place != here])


# A fork of the worker's zygote in its place


def _ask_for_fork() -> None:
    """Returns if this process is to start as usual."""
    path = os.environ.get("HOLDFAST_FORK_SERVER", "")
    if path and _is_watched():
        is_ours = _rank(claims=False) is not None or _is_launcher()
        _beside("holdfast_shim_stub").ask(path, is_ours=is_ours)


def _start() -> None:
    other = None
    zygote = None
    if os.environ.get("HOLDFAST_ZYGOTE_FD"):
        sys.meta_path.insert(0, Joins())
        zygote = _beside("holdfast_shim_zygote")
        other = zygote.serve(_beside)  # goes on in forks only
    else:
        _attempt(_ask_for_fork)
    try:
        _load_hidden()
    finally:
        _attempt(_set_up)
    if other is not None:
        other()


_start()
