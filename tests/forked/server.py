"""Forks `holdfast` processes for tests (`process.py`): the imports of a start, half of its processor time, are done once here.

A fork has what `execve` would give it: its arguments, environment, folder, session, streams and signals are those of the
request, in /proc too. It runs the command's own entry point, and ends as an interpreter does.
"""

import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import sys
from pathlib import Path

import holdfast
from holdfast.shim.holdfast_shim_fork import KEPT, show, take_python

MODULE = [sys.executable, "-P", "-m", "holdfast"]
# Of a request: stdin, stdout, stderr, and a pipe for its process id, once it is what was asked for, and its exit code.
DESCRIPTORS = 4
REPORT = struct.Struct("=ci")
REQUEST_BYTES_MAX = 1 << 20
# What every `holdfast run`, `attach` and `status` imports.
LOADED = (
    "holdfast.cli.main",
    "holdfast.cli.line.command_line",
    "holdfast.cli.run",
    "holdfast.cli.job.status",
    "holdfast.supervise.one_machine",
    "holdfast.supervise.engine_choice",
)


def serve(channel):
    """Forks for each request until the other side has closed; returns in the forks."""
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    own, added = os.getpid(), {}
    if "LC_CTYPE" in os.environ:  # of the C locale Python makes UTF-8 in its own environment
        added[b"LC_CTYPE"] = os.fsencode(os.environ["LC_CTYPE"])
    poll = select.poll()
    poll.register(woken, select.POLLIN)
    poll.register(channel, select.POLLIN)
    reports = {}
    while True:
        for fd, _ in poll.poll():
            if fd == woken:
                _report_ends(woken, reports)
                continue
            data, fds, _, _ = socket.recv_fds(channel, REQUEST_BYTES_MAX, DESCRIPTORS)
            if not data:
                os._exit(0)
            pid = os.fork()
            if pid == 0:
                assert os.getppid() == own, "the server is gone"
                channel.detach()
                adopt(json.loads(data), fds, added)
                return
            reports[pid] = fds.pop()
            for one in fds:
                os.close(one)


def _report_ends(woken, reports):
    os.read(woken, 4096)
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        out = reports.pop(pid)
        try:
            os.write(out, REPORT.pack(b"e", os.waitstatus_to_exitcode(status)))
        except BrokenPipeError:
            pass  # no reader is left
        os.close(out)


def adopt(given, fds, added):
    """Makes this fork the process that was asked for."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    os.chdir(given["cwd"])
    for number, fd in enumerate(fds[:3]):
        os.dup2(fd, number)
    line, env = given["words"], {os.fsencode(key): os.fsencode(value) for key, value in given["env"].items()}
    if line[: len(MODULE)] == MODULE:
        argv, path = [holdfast.__file__.replace("__init__", "__main__"), *line[len(MODULE) :]], sys.path
    else:  # the script, which the kernel has Python run
        more = filter(None, given["env"].get("PYTHONPATH", "").split(":"))
        argv, path, line = line, [str(Path(line[0]).parent), *more, *sys.path], [sys.executable, *line]
        Path("/proc/self/comm").write_text(Path(argv[0]).name)
    show(line, env)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(KEPT[-1]))  # the kernel reads it until the process has ended
    take_python({"argv": argv, "words": line, "path": path, "lines": (False, True), "env": env}, added)
    os.write(fds[3], REPORT.pack(b"p", os.getpid()))
    os.closerange(3, 1 << 16)


def main():
    gc.disable()  # as the command itself does for its imports
    for name in LOADED:
        importlib.import_module(name)
    show(
        [sys.executable, "-P", *sys.argv],
        {os.fsencode(key): os.fsencode(value) for key, value in os.environ.items()},
    )
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.send(b"ready")
    serve(channel)
    sys.modules["holdfast.cli.main"].main()


if __name__ == "__main__":
    main()
