"""Part of the shim: holds a standby process at its gate until Holdfast releases it.

Loaded by `sitecustomize`.

While it waits it imports what the training imports. A standby that is not released ends here. Syntax of
Python 3.6.
"""

import fcntl
import json
import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from holdfast.shim.holdfast_shim_launcher import HeldLauncher

POLL_S = 0.02


def stand_by_as_rank(attempt: "Callable[..., Any]", gate: str, ready: str) -> None:
    """Imports the script's modules ahead, then waits until this standby becomes the attempt."""

    def prepare() -> None:
        listing = os.environ.get("HOLDFAST_PRELOAD", "")
        _preload(gate, _names_in(listing) if listing and not _is_open(gate) else [])

    _stand_by(attempt, gate, prepare, ready)


def stand_by_as_launcher(
    attempt: "Callable[..., Any]", gate: str, held: "HeldLauncher | None", ranks: str
) -> None:
    """Starts the ranks that it holds, imports a launcher's modules, then waits at the gate."""

    def prepare() -> None:
        if held is not None:
            attempt(held.start_ranks, ranks)
            _preload(gate, held.imports)

    attempt(_touch, gate + ".held")
    _stand_by(attempt, gate, prepare, gate + ".ready")


def _stand_by(attempt: "Callable[..., Any]", gate: str, prepare: "Callable[[], None]", ready: str) -> None:
    """Prepares, then waits at the gate.

    Returns once it is open, with its variables in the environment; else exits.
    """
    try:
        fd = os.open(gate, os.O_RDONLY)
    except OSError:
        _leave_unless_released(gate)
        return
    handles_interrupt = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if handles_interrupt:  # there is no script yet that could
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        attempt(prepare)
        attempt(_touch, ready)
        attempt(_wait, fd)
    finally:
        os.close(fd)
        if handles_interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    _leave_unless_released(gate)
    attempt(_take_environment, gate)


def _leave_unless_released(gate: str) -> None:
    """Exits if this standby was not released: if it ran the script, it would be a second copy of the
    training.
    """
    if not _is_open(gate):
        os._exit(0)


def _is_open(gate: str) -> bool:
    return os.path.exists(gate + ".go")


def _of_worker(gate: str, ending: str) -> str:
    """Returns the path of a file that all gates of a worker share, those of its launcher and of its ranks."""
    folder, name = os.path.split(gate)
    return os.path.join(folder, name.partition(".rank-")[0] + ending)


def _preload(gate: str, names: "list[str]") -> None:
    """Imports modules, in one process at a time while a training needs the cores.

    Gives up as soon as the gate opens.
    """
    if not names or _is_open(gate):
        return
    lock = os.open(_of_worker(gate, ".preload"), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if _may_import(lock, gate):
            _import(names, gate)
    finally:
        os.close(lock)


def _names_in(listing: str) -> "list[str]":
    """Returns the modules listed in a file; waits while Holdfast locks it, because a starting training
    needs all cores.
    """
    with open(listing, encoding="utf-8", errors="replace") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        return [line.strip() for line in file if line.strip() and not line.startswith("env:")]


def _may_import(lock: int, gate: str) -> bool:
    """Waits until it is this rank's turn, or nothing trains. Returns False if the gate has opened first."""
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
        if (
            name not in sys.modules
        ):  # a fork of the zygote has most: to ask for each would copy 6 MiB of shared pages
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
    fcntl.flock(fd, fcntl.LOCK_SH)
    return True


def _take_environment(gate: str) -> None:
    with open(gate + ".go", encoding="utf-8") as file:
        changes = json.load(file)
    os.environ.update({key: value for key, value in changes.items() if isinstance(value, str)})
    for key in [key for key, value in changes.items() if value is None]:
        os.environ.pop(key, None)
