"""Follows a job on Kubernetes from outside: prints its output and problems, and returns its exit code at the
end.

The job does not need a follower. The output is the log of the controller's pod, which has the lines of all
workers.
"""

import os
import queue
import re
import signal
import sys
import threading
import time
from contextlib import suppress
from types import FrameType
from typing import Literal

import httpx2
import msgspec
from msgspec import Struct

from holdfast.core.kubernetes.words import wait_of
from holdfast.engines.kubernetes.connection import Connection, RequestFailed, ServerAway
from holdfast.engines.kubernetes.names import LABEL_JOB, ROLE_CONTROLLER, selector
from holdfast.model.kubernetes import OwnerState, PodState
from holdfast.parsers.kubernetes.objects import NotRead, owner_of, page, pod_of
from holdfast.supervise.kubernetes.submission import Submission, remove
from holdfast.views.console import Console

LOOK_S, LOOK_SOON_S, TURN_S = 2.0, 0.5, 0.1
LOG_QUIET_S = 300.0  # a log connection without a line for longer is opened anew
AGAIN_S = 0.5
GONE_LOOKS_MAX = 3
LINES_WAITING_MAX = 10_000
INTERRUPTED = 128
UNKNOWN = 1
Read = Literal["whole", "gone", "refused"]  # of a log: read to its end; the pod is gone; not read
_STAMPED = re.compile(rb"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z) ?")


class Outcome(Struct, frozen=True, kw_only=True):
    """The termination message of a controller's container: the job has ended, and how."""

    holdfast: str = ""  # the job's name
    code: int = UNKNOWN
    outcome: str = ""
    reason: str = ""


def outcome_of(pod: PodState) -> Outcome | None:
    """Returns the outcome of the job from the controller's pod; None if that controller has not ended the
    job.
    """
    if pod.ended is None or not pod.ended.message.startswith("{"):
        return None
    with suppress(msgspec.MsgspecError):
        found = msgspec.json.decode(pod.ended.message, type=Outcome)
        return found if found.holdfast else None
    return None


class LogReader:
    """Reader of the log of one pod in a thread; it resumes where the connection broke."""

    def __init__(self, connection: Connection, one: Submission, pod: str, since: str = "") -> None:
        self._connection, self._one, self.pod = connection, one, pod
        self.lines: queue.Queue[bytes] = queue.Queue(LINES_WAITING_MAX)
        self.since = since
        self.is_over = threading.Event()  # the log has ended, and all of it was read
        self.pauses = threading.Event()  # the server has ended the log: its container may have ended
        self._ended = threading.Event()  # the container has ended
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-log", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._ended.set()

    def end(self) -> None:
        """Tells the reader that the container has ended: the next reading to the log's end is the last one."""
        self._ended.set()

    def _run(self) -> None:
        path = f"/api/v1/namespaces/{self._one.namespace}/pods/{self.pod}/log"
        while not self._stop.is_set():
            is_last = self._ended.is_set()
            found: Read = "refused"
            with suppress(httpx2.HTTPError, OSError):
                found = self._read(path)
            if found == "gone" or (found == "whole" and is_last):
                break
            if found == "whole":
                self.pauses.set()
            # Read to its end before the container had ended: its last lines are read as soon as it has.
            (self._ended if found == "whole" else self._stop).wait(AGAIN_S)
        self.is_over.set()

    def _read(self, path: str) -> Read:
        """Follows the log until the server ends it."""
        params = {"follow": "true", "timestamps": "true", "container": ROLE_CONTROLLER}
        if self.since:
            params["sinceTime"] = self.since[:19] + "Z"
        last = self.since.encode()
        timeout = httpx2.Timeout(10.0, read=LOG_QUIET_S)
        with self._connection.client.stream("GET", path, params=params, timeout=timeout) as answer:
            if answer.status_code == 404:
                return "gone"
            if answer.status_code >= 400:
                return "refused"
            for text in answer.iter_lines():
                line = text.encode()
                found = _STAMPED.match(line)
                stamp = found[1] if found else b""
                if stamp and stamp <= last:
                    continue
                self.pauses.clear()
                self.since = stamp.decode() or self.since
                self._put(line[found.end() :] if found else line)
                if self._stop.is_set():
                    return "gone"
        return "whole"

    def _put(self, line: bytes) -> None:
        while not self._stop.is_set():
            with suppress(queue.Full):
                self.lines.put(line, timeout=1.0)
                return


class Follower:
    """Follower of one job. `from_now`: earlier lines are not printed again."""

    def __init__(self, connection: Connection, one: Submission, console: Console) -> None:
        self._connection, self._one, self._console = connection, one, console
        self._log: LogReader | None = None
        self._outcome: Outcome | None = None
        self._gone = 0
        self._signals = 0
        self._said: dict[str, str] = {}
        self._cancelled = False
        self._is_deleted = False

    def follow(self) -> int:
        """Follows the job until it has ended. Returns the training's exit code."""
        before = {
            number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)
        }
        looked_s = float("-inf")
        try:
            while self._outcome is None and self._gone < GONE_LOOKS_MAX:
                self._print()
                pauses = self._log is not None and (self._log.pauses.is_set() or self._log.is_over.is_set())
                if time.monotonic() - looked_s >= (LOOK_SOON_S if pauses else LOOK_S):
                    looked_s = time.monotonic()
                    self._look()
                time.sleep(TURN_S)
            self._drain()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            if self._log is not None:
                self._log.stop()
        return self._code()

    # Looks ------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        try:
            owner = self._owner()
            controllers = self._pods(selector(self._one.name, ROLE_CONTROLLER))
            waiting = [] if self._log is not None else self._pods(f"{LABEL_JOB}={self._one.name}")
        except (ServerAway, NotRead) as error:
            self._say("server", f"{error}; the job continues without this command")
            return
        except RequestFailed as error:
            self._say("server", f"the API server rejects requests about the job: {error}")
            return
        self._said.pop("server", None)
        for pod in waiting:
            if why := wait_of(pod):
                self._say(f"pod-{pod.name}", why)
        for pod in controllers:
            self._outcome = self._outcome or outcome_of(pod)
        self._attach_log(controllers)
        self._is_deleted = owner is None or owner.deleting
        is_over = owner is None or owner.over or owner.deleting
        alive = [pod for pod in controllers if not pod.is_over and not pod.deleting]
        self._gone = self._gone + 1 if is_over and not alive else 0
        if owner is not None and owner.over == "failed" and not controllers:
            self._say("owner", f"{owner.kind} {owner.name} has failed: {owner.why}")

    def _attach_log(self, controllers: list[PodState]) -> None:
        running = [pod for pod in controllers if pod.running or pod.ended is not None]
        if not running:
            return
        newest = running[-1]
        if self._log is None or self._log.pod != newest.name:
            if self._log is not None:
                self._log.stop()
            self._log = LogReader(self._connection, self._one, newest.name)

    def _owner(self) -> OwnerState | None:
        path = self._one.owner.path(self._one.namespace, self._one.name)
        try:
            return owner_of(self._connection.request("GET", path).content)
        except RequestFailed as error:
            if error.code == 404:
                return None
            raise

    def _pods(self, labels: str) -> list[PodState]:
        path = f"/api/v1/namespaces/{self._one.namespace}/pods"
        found = page(self._connection.request("GET", path, params={"labelSelector": labels}).content)
        return [pod_of(bytes(raw)) for raw in found.items or ()]

    # Output -----------------------------------------------------------------------------------------------

    def _print(self) -> None:
        if self._log is None:
            return
        wrote = False
        with suppress(queue.Empty):
            while True:
                line = self._log.lines.get_nowait()
                sys.stdout.buffer.write(line + b"\n")
                wrote = True
        if wrote:
            sys.stdout.buffer.flush()

    def _drain(self) -> None:
        """Prints the last lines, which arrive moments after the end of the container."""
        until_s = time.monotonic() + 3.0
        if self._log is not None:
            self._log.end()
        while self._log is not None and time.monotonic() < until_s:
            self._print()
            if self._log.is_over.is_set() and self._log.lines.empty():
                return
            time.sleep(TURN_S)

    def _say(self, key: str, text: str) -> None:
        """Prints a message once, until it changes."""
        if self._said.get(key) != text:
            self._said[key] = text
            self._console.tell(text)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        if self._signals > 1:
            os._exit(INTERRUPTED + number)
        name = self._one.name
        self._console.tell(
            f"{signal.Signals(number).name}: removing job {name}; send the signal again to leave the job running"
        )
        self._cancelled = True
        with suppress(ServerAway, RequestFailed):
            remove(self._connection, self._one)

    def _code(self) -> int:
        if self._outcome is not None:
            return self._outcome.code
        if self._cancelled:
            return INTERRUPTED + signal.SIGINT
        if self._is_deleted:
            self._console.tell(f"job {self._one.name} was deleted")
            return INTERRUPTED + signal.SIGTERM
        self._console.tell(f"job {self._one.name} has ended, and its controller left no record of the result")
        return UNKNOWN
