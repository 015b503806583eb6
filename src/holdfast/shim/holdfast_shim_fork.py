"""Part of the shim: turns a fork of the zygote into the process that a launcher has started (its stub).

The fork takes over the stub's descriptors, environment, arguments, limits, signals and further attributes. Its
command line and environment in /proc are changed as well, so that every reader of /proc takes the fork for that
process. If the stub ends for any reason, so does the fork: the kernel kills it when the socket between them closes.
Loaded by `holdfast_shim_zygote.py`.
"""

import atexit
import ctypes
import fcntl
import os
import resource
import runpy
import select
import signal
import socket
import struct
import sys
import threading
from importlib.machinery import SourceFileLoader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

KNOWN_START = 3, 13  # the last version of Python whose start has been tried
HIGH_FD = 500
MOVED_FD = 600
PR_SET_PDEATHSIG, PR_SET_MM, PR_SET_MM_MAP = 1, 35, 14
FAULTS = {
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGABRT,
}  # faulthandler has them
LIBC = ctypes.CDLL(None, use_errno=True)
KEPT = []  # type: list[Any]  # memory that the kernel reads for /proc


def adopt(given: "dict[str, Any]", fds: "list[int]", life: int, folder: int, parent: int) -> None:
    """Turns this fork into the process that its stub stands for.

    `given`: the stub's request. `fds`: the stub's descriptors, as they arrived. `life`: this end of the socket whose
    other end the stub keeps open. `folder`: descriptor of the stub's working directory. `parent`: process id of the
    fork server.

    raises: OSError, ValueError, if an attribute cannot be taken over
    """
    if given["session"]:
        os.setsid()
    else:
        os.setpgid(0, 0)
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    die_with(life)
    os.fchdir(folder)
    os.close(folder)
    _take_limits(given)
    _take_signals(given)
    show(given["words"], given["env"])
    with open("/proc/self/comm", "wb") as file:
        file.write(given["comm"])
    _take_descriptors(fds, given["fds"])


def die_with(life: int) -> None:
    """Has the kernel kill this process when the other end of the socket closes."""
    fcntl.fcntl(life, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(life, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC)
    poll = select.poll()
    poll.register(life, select.POLLIN)
    if poll.poll(0):
        os._exit(1)  # it had closed before


def _take_limits(given: "dict[str, Any]") -> None:
    os.umask(given["umask"])
    for number, limits in given["limits"].items():
        if resource.getrlimit(number) != tuple(limits):
            resource.setrlimit(number, tuple(limits))
    if sorted(os.sched_getaffinity(0)) != given["affinity"]:
        os.sched_setaffinity(0, given["affinity"])
    if os.getpriority(os.PRIO_PROCESS, 0) != given["nice"]:
        os.setpriority(os.PRIO_PROCESS, 0, given["nice"])
    with open("/proc/self/oom_score_adj", "rb") as file:
        oom = file.read()
    if oom != given["oom"]:
        with open("/proc/self/oom_score_adj", "wb") as file:
            file.write(given["oom"])


def _take_signals(given: "dict[str, Any]") -> None:
    signal.set_wakeup_fd(-1)
    ignored = set(given["ignored"])
    for number in range(1, 65):
        if number in (signal.SIGKILL, signal.SIGSTOP, 32, 33) or number in FAULTS:
            continue
        usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        wanted = signal.SIG_IGN if number in ignored else usual
        if signal.getsignal(number) != wanted:
            signal.signal(number, wanted)
    signal.pthread_sigmask(signal.SIG_SETMASK, given["mask"])


def _take_descriptors(fds: "list[int]", places: "list[tuple[int, bool]]") -> None:
    """Moves each to its number in the stub. Numbers below HIGH_FD that the stub has not open are closed."""
    moved = []
    for fd in fds:
        moved.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, MOVED_FD))
        os.close(fd)
    for name in os.listdir("/proc/self/fd"):
        if int(name) < HIGH_FD:
            try:
                os.close(int(name))
            except OSError:
                pass  # the folder's own
    for fd, (place, inheritable) in zip(moved, places):
        os.dup2(fd, place, inheritable=inheritable)
        os.close(fd)


def show(words: "list[str]", env: "dict[bytes, bytes]") -> None:
    """Changes the command line and the environment that /proc/PID/cmdline and /proc/PID/environ show for this
    process.

    raises: OSError, for a kernel without CONFIG_CHECKPOINT_RESTORE, or one that refuses the change
    """
    line = b"".join(os.fsencode(word) + b"\0" for word in words)
    variables = b"".join(key + b"=" + value + b"\0" for key, value in env.items())
    memory = ctypes.create_string_buffer(line + variables)
    KEPT.append(memory)
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b") ")[2].split()
    LIBC.sbrk.restype = ctypes.c_void_p
    at = ctypes.addressof(memory)
    # source: struct prctl_mm_map of linux/prctl.h, numbers of the fields of /proc/PID/stat in proc(5)
    code = [int(fields[number - 3]) for number in (26, 27, 45, 46, 47)]
    middle, end = at + len(line), at + len(line) + len(variables)
    layout = struct.pack(
        "=11QQII", *code, LIBC.sbrk(0), int(fields[28 - 3]), at, middle, middle, end, 0, 0, 0xFFFFFFFF
    )
    asked = ctypes.create_string_buffer(layout, len(layout))
    if LIBC.prctl(PR_SET_MM, PR_SET_MM_MAP, ctypes.c_ulong(ctypes.addressof(asked)), len(layout), 0):
        number = ctypes.get_errno()
        raise OSError(number, "the kernel does not set /proc/PID/cmdline: %s" % os.strerror(number))


def take_python(given: "dict[str, Any]", added: "dict[bytes, bytes]") -> None:
    """Sets the attributes of the process that Python itself stores: environment, arguments, module path, streams,
    seeds.

    `added`: variables that preloaded modules have set.
    """
    env = {**added, **given["env"]}
    for key in list(os.environ):
        if os.fsencode(key) not in env:
            del os.environ[key]
    for name, value in env.items():
        os.environ[os.fsdecode(name)] = os.fsdecode(value)
    set_environ({key: os.environ._data[key] for key in env})  # type: ignore[attr-defined]
    sys.argv[:] = given["argv"]
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[:] = given["words"]
    sys.path[:] = given["path"]
    for stream, by_lines in zip((sys.stdout, sys.stderr), given["lines"]):
        if stream is not None and stream.line_buffering != by_lines:
            stream.reconfigure(line_buffering=by_lines)  # type: ignore[union-attr]
    _take_seeds()


def set_environ(data: "dict[bytes, bytes]") -> None:
    """Replaces the environment of this process, also as `os.environ` and `os.environb` show it."""
    os.environ._data = os.environb._data = data  # type: ignore[attr-defined]


def _take_seeds() -> None:
    """Module `random` reseeds itself in a fork; others would draw the same numbers in all ranks, as in no fresh start."""
    legacy = sys.modules.get("numpy.random.mtrand")
    if legacy is not None:
        legacy.seed()
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None:
        processes.current_process().authkey = os.urandom(32)
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "default_generator"):
        torch.default_generator.seed()
    if hasattr(threading.main_thread(), "_set_native_id"):
        threading.main_thread()._set_native_id()  # type: ignore[attr-defined]


def run_instead(kind: str, what: str, own: "tuple[str, str]", cwd: str) -> None:
    """Has Python run another program than it was started for, and then end this process.

    `own`: what it was started for, in `cwd`: see `program_of` of `holdfast_shim_stub.py`. May return: then Python's own start,
    which goes on, runs the program, with no frame below it. torchrun walks its stack dozens of times, and `inspect` goes
    through all modules for each frame whose file is of none: with the shim's frames below that took a second of a core.
    """
    path = list(sys.path)
    if sys.version_info[:2] > KNOWN_START or own[0] == "code":
        run(kind, what)
    elif own[0] == "module":
        was = runpy._run_module_as_main  # type: ignore[attr-defined]

        def instead(*given: object) -> None:
            runpy._run_module_as_main = was  # type: ignore[attr-defined]
            sys.path[:] = path
            run(kind, what)

        runpy._run_module_as_main = instead  # type: ignore[attr-defined]
    else:
        script = os.path.abspath(os.path.join(cwd, own[1]))

        def hook(place: str) -> "Any":  # asked about the script, which may be a folder or an archive
            if os.path.abspath(os.path.join(cwd, place)) != script:
                raise ImportError
            sys.path_hooks.remove(hook)
            run(kind, what)

        sys.path_hooks.insert(0, hook)
        for known in (script, own[1]):
            sys.path_importer_cache.pop(known, None)


def run(kind: str, what: str) -> "NoReturn":
    """Runs a program as Python's own start would, then ends this process."""
    code = 0
    try:
        _run(kind, what)
    except SystemExit as end:
        code = _exit_code(end.code)
    except BaseException as error:
        error.__traceback__ = _without_ours(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1 if not isinstance(error, KeyboardInterrupt) else -int(signal.SIGINT)
    _finish(code)


def _run(kind: str, what: str) -> None:
    main = sys.modules["__main__"]
    if kind == "module":
        sys.path.insert(0, os.getcwd())
        runpy._run_module_as_main(what, alter_argv=True)  # type: ignore[attr-defined]
        return
    if kind == "code":
        sys.path.insert(0, "")
        exec(compile(what, "<string>", "exec", dont_inherit=True), main.__dict__)
        return
    with open(what, "rb") as file:
        text = file.read()
    path = os.path.abspath(what)
    sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
    main.__file__ = path
    main.__loader__ = SourceFileLoader("__main__", path)
    main.__dict__["__cached__"] = None
    _know_file(path, "__main__")
    _know_file(__file__, __name__)
    exec(compile(text, path, "exec", dont_inherit=True), main.__dict__)


def _know_file(path: str, name: str) -> None:
    """Tells `inspect` of one more file: see `know_files` of `holdfast_shim_preload.py`."""
    known = getattr(sys.modules.get("inspect"), "modulesbyfile", None)
    if isinstance(known, dict):
        known[path] = name


def _without_ours(trace: "Any") -> "Any":
    """The part of a traceback that begins below this file."""
    while trace is not None and trace.tb_frame.f_code.co_filename != __file__:
        trace = trace.tb_next
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace


def _exit_code(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    if sys.stderr is not None:
        sys.stderr.write("%s\n" % (code,))
    return 1


def _finish(code: int) -> "NoReturn":
    """What the end of an interpreter does that others can see."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    finally:
        if code < 0:
            signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        os._exit(code)


def high(fd: int) -> int:
    """Duplicates a file descriptor to a high number, which scripts do not use, and returns it.

    raises: OSError, if this process may not have descriptors that high
    """
    found = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, HIGH_FD)
    os.close(fd)
    return found


def received(connection: "socket.socket") -> "list[int]":
    """Returns the descriptors that the next message on the connection carries; empty at its end."""
    size = socket.CMSG_SPACE(253 * struct.calcsize("i"))
    data, extra, _, _ = connection.recvmsg(4096, size, socket.MSG_CMSG_CLOEXEC)
    found = []  # type: list[int]
    for level, kind, rights in extra:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found.extend(struct.unpack("%di" % (len(rights) // 4), rights[: len(rights) // 4 * 4]))
    return found if data else []
