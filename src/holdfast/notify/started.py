"""Starts the process that sends notifications about all jobs, beside the server."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from holdfast.notify.config import read_config

FOLDER = "server"  # in the first state folder
ENDS_S = 5.0
LOG = "notify.log"


@contextmanager
def notifying(file: Path | None, roots: Sequence[Path]) -> Iterator[None]:
    """Context manager: runs the process that sends notifications about all jobs while the `with` block runs.

    `file`: the configuration file; None means no process. The process also ends when this process is killed.
    Raises ConfigRefused and OSError.
    """
    if file is None:
        yield
        return
    read_config(file, os.environ)
    folder = roots[0] / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOG).open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.notify", "--all", str(file.absolute()), *map(str, roots)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(ENDS_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
