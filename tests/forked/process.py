"""Starts `holdfast` processes of tests: by forks of one process that has imported the command (`server.py`).

A start takes 0.4 s of a processor, two thirds of it for imports; the tests do it hundreds of times.
"""

import atexit
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

SERVER = Path(__file__).with_name("server.py")
STARTS_S = 100.0  # a guard, for a busy machine
PASSED_ON = ("PATH", "HOME")
ITS_OWN = ("PYTHON", "LC_", "LANG")  # variables that the start of an interpreter reads
AT_START = ("sitecustomize.py", "usercustomize.py")  # modules that it imports
REPORT = struct.Struct("=ci")  # of the server: a process id, or an exit code


class _Server:
    """Started at the first use, and kept until the end of this process."""

    def __init__(self):
        self._lock = threading.Lock()
        self._channel = None
        self._is_refused = False

    def start(self, words, env, cwd, streams):
        """raises: NotForked"""
        with self._lock:
            if self._channel is None:
                self._begin()
            reading, writing = os.pipe()
            request = json.dumps({"words": words, "env": env, "cwd": str(cwd)}).encode()
            socket.send_fds(self._channel, [request], [*streams, writing])
            os.close(writing)
        return reading

    def _begin(self):
        if self._is_refused:
            raise NotForked
        self._is_refused = True
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(SERVER), str(its.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={key: os.environ[key] for key in PASSED_ON if key in os.environ},
                pass_fds=[its.fileno()],
                start_new_session=True,
            )
        ours.settimeout(STARTS_S)
        if ours.recv(16) != b"ready":
            raise NotForked  # a kernel that does not set /proc/PID/environ, by which tests find what they started
        self._channel, self._is_refused = ours, False
        atexit.register(self._end)

    def _end(self):
        self._channel.close()
        self._process.wait()


SERVER_OF_ALL = _Server()


def begun(words, env, cwd, streams, is_forked=True):
    """Starts `holdfast` in a session of its own, by a fork where that makes no difference to it.

    `words`: its command line, by the script or by `-P -m`. `streams`: files or descriptors of stdin, stdout and stderr.
    """
    if is_forked and not _is_read_at_start(env):
        numbers = [one if isinstance(one, int) else one.fileno() for one in streams]
        with suppress(NotForked):
            return Forked(words, env, cwd, numbers)
    none, out, err = streams
    return subprocess.Popen(
        words, stdin=none, stdout=out, stderr=err, env=env, cwd=cwd, start_new_session=True
    )


def _is_read_at_start(env):
    """Whether the interpreter would start in another way with these variables; modules can be found in more folders."""
    folders = filter(None, env.get("PYTHONPATH", "").split(":"))
    if any(Path(folder, name).exists() for folder in folders for name in AT_START):
        return True
    return any(key.startswith(ITS_OWN) for key in env if key != "PYTHONPATH")


class NotForked(RuntimeError):
    """A process has to be started by `execve`."""


class Forked:
    """What `subprocess.Popen` offers, of a process of `holdfast` that leads a session of its own.

    `streams`: descriptors of its stdin, stdout and stderr.

    raises: NotForked
    """

    def __init__(self, words, env, cwd, streams):
        self.returncode = None
        self._reports = SERVER_OF_ALL.start(words, env, cwd, streams)
        kind, self.pid = REPORT.unpack(os.read(self._reports, REPORT.size))
        assert kind == b"p", f"the fork ended with code {self.pid} before it had taken its command line"

    def poll(self):
        self._read(0.0)
        return self.returncode

    def wait(self, timeout=None):
        until_s = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            self._read(None if until_s is None else max(0.0, until_s - time.monotonic()))
            if self.returncode is None and until_s is not None and time.monotonic() >= until_s:
                raise subprocess.TimeoutExpired("holdfast", timeout)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def _read(self, wait_s):
        if self.returncode is not None or not select.select([self._reports], [], [], wait_s)[0]:
            return
        _, self.returncode = REPORT.unpack(os.read(self._reports, REPORT.size))
        os.close(self._reports)
