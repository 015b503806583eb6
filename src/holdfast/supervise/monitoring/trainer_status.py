"""Reports progress and metrics of a TrainJob to Kubeflow Trainer v2, whose controller shows them in `status.trainerStatus`.

Active where Trainer's feature gate TrainJobStatus is on: its controller then puts the address of its status server, a
token and a certificate into the training's container. Requests are made in a thread; a refusal costs the status alone.

source: github.com/kubeflow/trainer, pkg/runtime/framework/plugins/trainjobstatus (variables, files),
pkg/statusserver/server.go and auth.go (request, answers, size)
"""

import http.client
import json
import ssl
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from holdfast.agent.worker import WorkerAgent
from holdfast.core.job.decision import Decision
from holdfast.core.kubernetes.trainer_status import Pace, reporters, trainer_status
from holdfast.model.events import AnyEvent

URL, CA, TOKEN = (f"KUBEFLOW_TRAINER_SERVER_{name}" for name in ("URL", "CA_CERT", "TOKEN"))
OFF = "HOLDFAST_TRAINER_STATUS"  # "off": the training reports itself, such as by the callback of transformers
ANSWER_S = 10.0
LAST_S = 3.0  # for the last status, at the end
WORDS_MAX = 300  # of an answer that refuses


def is_on(env: Mapping[str, str]) -> bool:
    return bool(env.get(URL)) and env.get(OFF, "").lower() not in ("off", "false", "0")


class TrainerStatus:
    """The status of one worker's training. `clock`: seconds since the epoch. `tell`: prints a line; may be called from a thread."""

    def __init__(
        self,
        worker: WorkerAgent,
        env: Mapping[str, str],
        clock: Callable[[], float],
        tell: Callable[[str], None],
    ) -> None:
        self._worker, self._env, self._clock, self._tell = worker, dict(env), clock, tell
        self._pace = Pace()
        self._thread: threading.Thread | None = None
        self._answer: tuple[dict[str, Any], str] | None = None  # what was sent, and why it was refused
        self._said = ""

    def hear(self, event: AnyEvent, decision: Decision) -> None:
        """Does nothing: the steps come from the worker's own output."""

    def channels(self) -> list[int]:
        return []

    def turn(self) -> None:
        at_s = self._clock()
        self._take_answer(at_s)
        if self._thread is None and self._pace.is_due(at_s):
            status = self._status(at_s)
            if status is not None and self._pace.is_news(status):
                self._pace.sends(at_s)
                self._send(status)

    def close(self) -> None:
        """Sends the last status, once no other is under way."""
        if self._thread is not None:
            self._thread.join(LAST_S)
            self._take_answer(self._clock())
        status = self._status(self._clock())
        if self._thread is None and status is not None and self._pace.is_news(status):
            self._send(status).join(LAST_S)

    def _status(self, at_s: float) -> dict[str, Any] | None:
        attempt, part = self._worker.attempt, self._worker.part
        if attempt is None or part is None or part.worker not in reporters(part.workers):
            return None
        at = datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        is_over = attempt.command_code == 0
        return trainer_status(tuple(attempt.steps.records), attempt.number, at, is_over=is_over)

    # Requests ---------------------------------------------------------------------------------------------

    def _send(self, status: dict[str, Any]) -> threading.Thread:
        self._thread = threading.Thread(
            target=self._run, args=(status,), name="holdfast-trainer-status", daemon=True
        )
        self._thread.start()
        return self._thread

    def _run(self, status: dict[str, Any]) -> None:
        try:
            self._answer = (status, posted(self._env, status))
        except (OSError, ValueError, http.client.HTTPException) as error:
            self._answer = (status, f"it cannot be reached: {error}")

    def _take_answer(self, at_s: float) -> None:
        if self._thread is None or self._thread.is_alive():
            return
        self._thread = None
        if self._answer is None:
            return
        (status, why), self._answer = self._answer, None
        self._pace.answered(status, at_s, accepted=not why)
        if why and why != self._said:
            self._tell(
                f"Kubeflow Trainer's status server does not take the progress: {why}; it is tried again"
            )
        self._said = why


def posted(env: Mapping[str, str], status: Mapping[str, Any]) -> str:
    """Sends a status. Returns why it was refused; empty if it was accepted. Raises OSError, ValueError, HTTPException."""
    place = urlsplit(env[URL])
    if place.scheme != "https" or not place.hostname:
        return f"{URL} is {env[URL]!r}, which is no https address"
    token = Path(env.get(TOKEN, "")).read_text().strip()  # renewed by the kubelet: read each time
    context = ssl.create_default_context(cafile=env.get(CA) or None)
    connection = http.client.HTTPSConnection(
        place.hostname, place.port or 443, timeout=ANSWER_S, context=context
    )
    try:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection.request("POST", place.path, json.dumps({"trainerStatus": status}), headers)
        answer = connection.getresponse()
        words = " ".join(answer.read(1 << 16).decode(errors="replace").split())
    finally:
        connection.close()
    return "" if answer.status == http.client.OK else f"{answer.status}: {words[:WORDS_MAX]}"
