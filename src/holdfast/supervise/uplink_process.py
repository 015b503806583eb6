"""Starts the uplink of a job, a process of its own that reports to a server, and starts it again when it breaks.

The uplink outlives the supervisor: a server learns from it that the supervisor has died. Nothing that happens to it
reaches the training.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from holdfast.journal.jobdir import JobDir

LOG = "uplink.log"
LOOK_S = 5.0
STARTS_MAX = 5
REFUSED_CODES = (0, 1, 2)  # it has ended for good, and its log says why


class UplinkProcess:
    """`url`: of the server; None: nothing is reported. `tell`: a line for people."""

    def __init__(
        self,
        job: JobDir,
        url: str | None,
        env: Mapping[str, str],
        clock: Callable[[], float],
        tell: Callable[[str], None],
    ) -> None:
        self._job, self._url, self._env = job, url, env
        self._clock, self._tell = clock, tell
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0
        self._looked_s = clock()

    def start(self) -> None:
        if self._url is None:
            return
        self._starts += 1
        package = str(Path(__file__).parents[2])
        env = {
            **self._env,
            "PYTHONPATH": os.pathsep.join(filter(None, (package, self._env.get("PYTHONPATH")))),
        }
        try:
            with (self._job.path / LOG).open("ab") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "holdfast.uplink", str(self._job.path), self._url],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=env,
                    start_new_session=True,
                )
        except OSError as error:
            self._tell(f"the job is not reported to {self._url}: {error}")

    def turn(self) -> None:
        """Call it now and then. An uplink that was killed or crashed is started again, a few times."""
        if self._process is None or self._clock() - self._looked_s < LOOK_S:
            return
        self._looked_s = self._clock()
        code = self._process.poll()
        if code is None:
            return
        self._process = None
        if code in REFUSED_CODES:
            if code:
                self._tell(f"the job is not reported to {self._url}: {self._job.path / LOG} says why")
        elif self._starts < STARTS_MAX:
            self.start()
        else:
            self._tell(f"the job is not reported to {self._url}: its uplink broke {self._starts} times")
