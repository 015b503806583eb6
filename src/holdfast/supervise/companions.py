"""Starts the processes that accompany a job: the uplink, the page, notifications and checkpoint advice.

Each companion runs independently of the supervisor and outlives it, so that it can report the supervisor's
death. A failing companion never affects the training.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from holdfast.journal.jobdir import JobDir
from holdfast.model.settings import RunSettings
from holdfast.settings.read import fleet_folder

LOOK_S = 5.0
STARTS_MAX = 5
FINAL_CODES = (0, 1, 2)  # it ended for good, and its log contains the reason


class Companion(Struct, frozen=True, kw_only=True):
    """A process that runs beside a job: the Python module `module`, run with the job's folder and `arguments`.

    `log`: its log file in the folder. `without`: what does not work if the process ends. `announces`: a file in the
    folder with one line to show to users once the file exists; empty if there is none.
    """

    module: str
    arguments: tuple[str, ...] = ()
    log: str
    without: str
    announces: str = ""


def companions_of(settings: RunSettings) -> list[Companion]:
    """Returns the companions that the settings enable."""
    found = []
    if settings.server is not None:
        found.append(
            Companion(
                module="holdfast.uplink",
                arguments=(settings.server,),
                log="uplink.log",
                without=f"the job is no longer reported to {settings.server}",
            )
        )
    if settings.page is not None:
        found.append(
            Companion(
                module="holdfast.web.job_page",
                arguments=(settings.page, str(fleet_folder(settings))),
                log="page.log",
                without="the web page of the job is no longer served",
                announces="page-address",
            )
        )
    if settings.notify is not None:
        found.append(
            Companion(
                module="holdfast.notify",
                arguments=(settings.notify,),
                log="notify.log",
                without="notices are no longer sent",
            )
        )
    if settings.checkpoint_advice:
        found.append(
            Companion(
                module="holdfast.archive.checkpoint_advice",
                log="checkpoint-advice.log",
                without="the checkpoint interval is no longer passed to the training",
            )
        )
    return found


class Companions:
    """Runs the companions. `tell`: prints a line.

    Call `start` after the journal's first entry, and `turn` periodically.
    """

    def __init__(
        self,
        job: JobDir,
        companions: Sequence[Companion],
        env: Mapping[str, str],
        clock: Callable[[], float],
        tell: Callable[[str], None],
    ) -> None:
        self._clock = clock
        self._running = [_Running(job, one, env, tell) for one in companions]
        self._looked_s = clock()

    def start(self) -> None:
        for one in self._running:
            one.start()

    def turn(self) -> None:
        """Restarts a companion that was killed or crashed, up to STARTS_MAX starts."""
        for one in self._running:
            one.show_announced()
        if not self._running or self._clock() - self._looked_s < LOOK_S:
            return
        self._looked_s = self._clock()
        for one in self._running:
            one.look()


class _Running:
    """A running companion."""

    def __init__(
        self, job: JobDir, companion: Companion, env: Mapping[str, str], tell: Callable[[str], None]
    ) -> None:
        self._job, self._companion, self._env, self._tell = job, companion, env, tell
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0
        self._announced = ""

    def start(self) -> None:
        self._starts += 1
        companion = self._companion
        package = str(Path(__file__).parents[2])
        paths = os.pathsep.join(filter(None, (package, self._env.get("PYTHONPATH"))))
        try:
            with (self._job.path / companion.log).open("ab") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", companion.module, str(self._job.path), *companion.arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**self._env, "PYTHONPATH": paths},
                    start_new_session=True,
                )
        except OSError as error:
            self._tell(f"{companion.without}: {error}")

    def show_announced(self) -> None:
        """Prints the line that a companion (a process beside the job) announces, such as its URL, each time it changes."""
        if not self._companion.announces or self._process is None:
            return
        with suppress(OSError):
            text = (self._job.path / self._companion.announces).read_text().strip()
            if text and text != self._announced:
                self._announced = text
                self._tell(f"page: {text}")

    def look(self) -> None:
        code = None if self._process is None else self._process.poll()
        if code is None:
            return
        self._process = None
        companion = self._companion
        if code in FINAL_CODES:
            if code:
                self._tell(f"{companion.without}: {self._job.path / companion.log} contains the reason")
        elif self._starts < STARTS_MAX:
            self.start()
        else:
            self._tell(f"{companion.without}: {companion.module} crashed {self._starts} times")
