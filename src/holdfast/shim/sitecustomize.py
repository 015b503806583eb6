"""Reaches into a training rank without touching the script: Python loads it at start, by way of PYTHONPATH.

In the process that owns a RANK it gives the rank a log of its own, saves what an uncaught exception says, lets
faulthandler dump stacks on a signal, notes which parts of torch are imported, keeps a standby waiting at its gate,
and once torch.distributed is imported loads `holdfast_shim_torch.py`, which answers how far the rank is.
The launcher of a job on many nodes is kept waiting at a gate where it stands by (`holdfast_shim_launcher.py`).
In every other process it does nothing but load the `sitecustomize` that it hides.

It never imports holdfast, never raises, never starts a process: where a part fails the script runs as if
there were no shim. It runs under the training's Python, so its syntax is that of 3.6. Imports stand inside
functions here and nowhere else: each module loaded at start would cost every Python process of the job.
"""

import _thread
import os
import sys

TYPE_CHECKING = False  # read by type checkers only: importing typing would cost more than all else here
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import ModuleType, TracebackType
    from typing import TypeVar

    from holdfast.shim.holdfast_shim_launcher import HeldLauncher

    T = TypeVar("T")

GATE_KEYS = ("HOLDFAST_GATE", "HOLDFAST_PRELOAD", "HOLDFAST_RANKS", "HOLDFAST_HELD")
NAMES_MAX = 3000  # torch 2.13 with torch.distributed: 730
MESSAGE_BYTES_MAX = 4 << 10
TRACEBACK_BYTES_MAX = 64 << 10
POLL_S = 0.02
# A script that closes descriptors it did not open is given the low numbers again, and must not find us there.
FD_MIN = 500
START_THREAD = _thread.start_new_thread  # as it is now: gevent, for one, replaces it
TORCH_DISTRIBUTED = "torch.distributed.distributed_c10d"
LAUNCHERS = {"torchrun", "torch.distributed.run", "torch.distributed.launch"}
LAUNCHERS |= {"accelerate", "accelerate-launch", "accelerate.commands.launch"}
LAUNCHERS |= {"deepspeed", "deepspeed.launcher.launch"}


class Rank:
    """This process as the owner of a rank. After a fork the child has this object too, but does not own the rank."""

    def __init__(self, number: int, folder: str) -> None:
        self.number = number
        self.pid = os.getpid()
        self.folder = os.path.abspath(folder)
        self.last_words = []  # type: list[Callable[[], None]]

    def path(self, ending: str) -> str:
        return os.path.join(self.folder, f"rank-{self.number}.{ending}")

    def is_here(self) -> bool:
        return os.getpid() == self.pid

    def write(self, ending: str, data: bytes) -> None:
        """A file of the rank, whole or not at all."""
        path = self.path(ending)
        new = f"{path}.{os.getpid()}.new"
        try:
            with open(new, "wb") as file:
                file.write(data)
            os.rename(new, path)
        except OSError:
            os.unlink(new)
            raise


# Whose process this is


def _rank() -> "Rank | None":
    """The rank that this process owns: the first process with that RANK, which tells its children so."""
    env = os.environ
    number, folder = env.get("RANK", ""), env.get("HOLDFAST_WORKER_DIR", "")
    if env.get("HOLDFAST_SHIM") != "1" or not folder or not _digits(number):
        return None
    rank = Rank(int(number), folder)
    owned, _, owner = env.get("HOLDFAST_RANK_OWNER", "").rpartition(":")
    if owned == str(rank.number) and owner != str(rank.pid):
        return None
    if "LOCAL_RANK" not in env and _is_launcher():
        return None
    env["HOLDFAST_RANK_OWNER"] = f"{rank.number}:{rank.pid}"
    return rank


def _digits(text: str) -> bool:
    return 0 < len(text) < 10 and all(one in "0123456789" for one in text)


def _is_launcher() -> bool:
    """Some platforms give a whole pod a RANK; then the launcher has one too, but no LOCAL_RANK."""
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
    """Each stream that goes to a file which all ranks of the worker share goes to the rank's own; others stay."""
    shared = [_identity(os.path.join(rank.folder, name)) for name in ("stdout", "stderr")]
    streams = [fd for fd in (1, 2) if _identity(fd) is not None and _identity(fd) in shared]
    if not streams:
        return
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


def _record_exceptions(rank: Rank) -> None:
    """Hooks set later (PyTorch's, at init_process_group) call the one they found, so this one still hears."""
    previous = sys.excepthook

    def hook(kind: "type[BaseException]", error: BaseException, trace: "TracebackType | None") -> None:
        try:
            if rank.is_here() and not issubclass(kind, (KeyboardInterrupt, SystemExit)):
                _attempt(_write_error, rank, kind, error, trace)
                for part in rank.last_words:
                    _attempt(part)
        finally:
            previous(kind, error, trace)

    sys.excepthook = hook


def _write_error(
    rank: Rank, kind: "type[BaseException]", error: BaseException, trace: "TracebackType | None"
) -> None:
    import json
    import time
    import traceback

    try:
        message = str(error)
    except Exception:  # a broken __str__ of the user's; the traceback has its own words for it
        message = "<exception str() failed>"
    lines = traceback.format_exception(kind, error, trace)
    record = {
        "rank": rank.number,
        "pid": rank.pid,
        "type": kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}",
        "message": _cut(message, MESSAGE_BYTES_MAX),
        "traceback": _cut("".join(lines), TRACEBACK_BYTES_MAX),
        "frame": _cut(_frame(trace), MESSAGE_BYTES_MAX),
        "time": time.time(),
    }
    rank.write("error.json", (json.dumps(record) + "\n").encode())


def _frame(trace: "TracebackType | None") -> str:
    """The innermost frame of the user's own code, "train.py:88 main"; without one, the innermost of all."""
    library = os.path.dirname(os.__file__) + os.sep
    innermost = own = ""
    while trace is not None:
        code = trace.tb_frame.f_code
        file = code.co_filename
        innermost = f"{os.path.basename(file)}:{trace.tb_lineno} {code.co_name}"
        if not (file.startswith((library, "<frozen")) or "-packages" + os.sep in file):
            own = innermost
        trace = trace.tb_next
    return own or innermost


def _cut(text: str, bytes_max: int) -> str:
    """Its two ends, where it is too long: the first cause stands at the start, the last line at the end."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) > bytes_max:
        half = bytes_max // 2 - 8
        data = data[:half] + b"\n[...]\n" + data[-half:]
    return data.decode("utf-8", "ignore")


# Its stacks, on request


def _register_stacks(rank: Rank) -> int:
    """The signal that makes the rank write its stacks."""
    import faulthandler
    import signal

    number = int(signal.SIGRTMIN) + 7
    faulthandler.register(number, file=_append(rank.path("stacks")), all_threads=True, chain=False)
    return number


def _append(path: str) -> int:
    return _high(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644))


def _high(low: int) -> int:
    """The same open file under a high number, where this process may have one."""
    import fcntl

    try:
        high = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, FD_MIN)
    except OSError:
        return low
    os.close(low)
    return high


def _write_note(rank: Rank, stack_signal: "int | None") -> None:
    """By hand: the json module would cost more than all else here."""
    import time

    python = "%d.%d.%d" % sys.version_info[:3]
    facts = (rank.pid, rank.number, stack_signal or 0, python, time.time())
    text = '{"pid": %d, "rank": %d, "stack_signal": %d, "python": "%s", "time": %f}\n' % facts
    rank.write("shim.json", text.encode())


# What it imports, for the next standby


class Imports:
    """Writes down which modules of torch are asked for, in their order. Finds none itself."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        self.env = dict(os.environ)
        self.names = {""}
        self.fd = -1

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """None, always: the next finder is asked."""
        if name.startswith("torch") and (name == "torch" or name[5] == ".") and name not in self.names:
            _attempt(self._note, name)

    def _note(self, name: str) -> None:
        if len(self.names) > NAMES_MAX or not self.rank.is_here():
            return
        self.names.add(name)
        lines = self._changed() if name == "torch" else []
        if self.fd < 0:
            self.fd = _append(os.path.join(self.rank.folder, "imports"))
        os.write(self.fd, "".join(line + "\n" for line in [*lines, name]).encode("utf-8", "backslashreplace"))

    def _changed(self) -> "list[str]":
        """What the script has done to its environment before torch could see it: a standby would be too late."""
        keys = sorted(set(self.env) | set(os.environ))
        return [
            "env:" + key
            for key in keys
            if self.env.get(key) != os.environ.get(key) and not key.startswith("HOLDFAST_")
        ]


# How far it is, once it imports torch.distributed


class Tools:
    """What the other file needs of this one."""

    def __init__(self) -> None:
        self.attempt = _attempt
        self.high = _high
        self.thread = START_THREAD
        self.lock = _thread.allocate_lock


class Reach:
    """Waits for torch.distributed. Finds no module itself, and wraps none."""

    def __init__(self, rank: Rank, tools: Tools) -> None:
        self.rank = rank
        self.tools = tools
        self.is_done = False

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """None, always: the next finder is asked."""
        if name == TORCH_DISTRIBUTED and not self.is_done:
            self.is_done = True
            if self.rank.is_here():
                _attempt(_reach, self.rank, self.tools)


def _reach(rank: Rank, tools: Tools) -> None:
    rank.last_words.append(_beside("holdfast_shim_torch").start(rank, tools))


def _beside(name: str) -> "ModuleType":
    """A file beside this one, by its path: no name on sys.path can be mistaken for it."""
    from importlib.util import module_from_spec, spec_from_file_location

    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".py")
    spec = spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Its gate, when it is a standby


def _stand_by_as_rank(rank: Rank, gate: str) -> None:
    """Imports what the script will import, then waits until this standby becomes the attempt."""

    def prepare() -> None:
        listing = os.environ.get("HOLDFAST_PRELOAD", "")
        _preload(gate, _names_in(listing) if listing and not _is_open(gate) else [])

    _stand_by(gate, prepare, rank.path("ready"))


def _stand_by(gate: str, prepare: "Callable[[], None]", ready: str) -> None:
    """Returns once the gate is open, with what came through it in the environment; else this process ends here."""
    import signal

    try:
        fd = os.open(gate, os.O_RDONLY)
    except OSError:
        _leave_unless_released(gate)
        return
    handles_interrupt = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if handles_interrupt:  # there is no script yet that could
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        _attempt(prepare)
        _attempt(_touch, ready)
        _attempt(_wait, fd)
    finally:
        os.close(fd)
        if handles_interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    _leave_unless_released(gate)
    _attempt(_take_environment, gate)


def _stand_by_as_launcher() -> None:
    """A launcher that reads its environment only once the gate is open: where it meets others is not known before."""
    env = os.environ
    gate, ranks = env.get("HOLDFAST_GATE", ""), env.get("HOLDFAST_RANKS", "")
    if env.get("HOLDFAST_SHIM") != "1" or not gate or not ranks or not _is_launcher():
        return
    held = _attempt(_held_launcher, gate)

    def prepare() -> None:
        if held is not None:
            _attempt(held.start_ranks, ranks)
            _preload(gate, held.imports)

    _attempt(_touch, gate + ".held")
    _stand_by(gate, prepare, gate + ".ready")
    for key in GATE_KEYS:
        env.pop(key, None)
    if held is not None:
        held.go_on()


def _held_launcher(gate: str) -> "HeldLauncher":
    held = _beside("holdfast_shim_launcher").HeldLauncher(gate, _attempt)  # type: HeldLauncher
    return held


def _leave_unless_released(gate: str) -> None:
    """A standby that nobody released must never run the script: it would be a second copy of the training."""
    if not _is_open(gate):
        os._exit(0)


def _is_open(gate: str) -> bool:
    return os.path.exists(gate + ".go")


def _of_worker(gate: str, ending: str) -> str:
    """What all gates of a worker share: that of its launcher, and those by which that holds its ranks."""
    folder, name = os.path.split(gate)
    return os.path.join(folder, name.partition(".rank-")[0] + ending)


def _preload(gate: str, names: "list[str]") -> None:
    """One process at a time while something trains, which needs the cores. Gives up as soon as the gate opens."""
    if not names or _is_open(gate):
        return
    lock = os.open(_of_worker(gate, ".preload"), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if _may_import(lock, gate):
            _import(names, gate)
    finally:
        os.close(lock)


def _names_in(listing: str) -> "list[str]":
    """Waits for as long as Holdfast holds the list: while the training starts, it needs all cores for itself."""
    import fcntl

    with open(listing, encoding="utf-8", errors="replace") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        return [line.strip() for line in file if line.strip() and not line.startswith("env:")]


def _may_import(lock: int, gate: str) -> bool:
    """When it is this rank's turn, or nothing trains any more. False: the gate has opened first."""
    import fcntl
    import time

    while not _is_open(gate):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if os.path.exists(_of_worker(gate, ".hurry")):
                return True
            time.sleep(POLL_S)
    return False


def _import(names: "list[str]", gate: str) -> None:
    path, folder = list(sys.path), os.getcwd()
    no_arguments = not hasattr(sys, "argv")  # Python before 3.8 sets them later
    if no_arguments:
        sys.argv = [""]
    for name in names:
        if _is_open(gate):
            break
        _import_one(name)
    if no_arguments:
        del sys.argv
    sys.path[:] = path
    os.chdir(folder)


def _import_one(name: str) -> bool:
    try:
        __import__(name)
    except BaseException:  # SystemExit too: the script's own import will say it again
        return False
    return True


def _touch(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o644))


def _wait(fd: int) -> bool:
    import fcntl

    fcntl.flock(fd, fcntl.LOCK_SH)
    return True


def _take_environment(gate: str) -> None:
    import json

    with open(gate + ".go", encoding="utf-8") as file:
        changes = json.load(file)
    os.environ.update({key: value for key, value in changes.items() if isinstance(value, str)})
    for key in [key for key, value in changes.items() if value is None]:
        os.environ.pop(key, None)


# All of it


def _attempt(part: "Callable[..., T]", *given: object) -> "T | None":
    """What `part` gives back; None where it failed: the fence between the shim and the script."""
    try:
        return part(*given)
    except Exception:
        return None


def _set_up() -> None:
    rank = _attempt(_rank)
    if rank is None:
        _attempt(_stand_by_as_launcher)
        return
    _attempt(_own_output, rank)
    _attempt(_record_exceptions, rank)
    _attempt(_write_note, rank, _attempt(_register_stacks, rank))
    imports = Imports(rank)
    if rank.number == 0 or os.environ.get("LOCAL_RANK") == "0":  # the first of its worker
        sys.meta_path.insert(0, imports)
    gate = os.environ.get("HOLDFAST_GATE", "")
    if gate:
        _attempt(_stand_by_as_rank, rank, gate)
        for key in GATE_KEYS:
            os.environ.pop(key, None)
        imports.env = dict(os.environ)
    if TORCH_DISTRIBUTED in sys.modules:  # imported at the gate, or by a hidden sitecustomize
        _attempt(_reach, rank, Tools())
    else:
        sys.meta_path.insert(0, Reach(rank, Tools()))


def _load_hidden() -> None:
    """The user's or the system's `sitecustomize`, which this one hides. What it raises is theirs to see."""
    spec = _attempt(_find_hidden)
    if spec is None or spec.loader is None:  # None: a mere folder of that name
        return
    from importlib.util import module_from_spec

    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _find_hidden() -> "ModuleSpec | None":
    from importlib.machinery import PathFinder

    here = os.path.dirname(os.path.abspath(__file__))
    places = [os.path.abspath(place) for place in sys.path]
    rest = places[places.index(here) + 1 :] if here in places else places
    return PathFinder.find_spec("sitecustomize", [place for place in rest if place != here])


try:
    _load_hidden()
finally:
    _attempt(_set_up)
