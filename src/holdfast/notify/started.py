"""Runs the process that notifies people of all jobs, beside the server that shows them."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from holdfast.notify.config import read_config
from holdfast.notify.fleet import FOLDER

ENDS_S = 5.0
LOG = "notify.log"


@contextmanager
def notifying(file: Path | None, roots: Sequence[Path]) -> Iterator[None]:
    """A file that cannot be used is refused at once. The process also ends when this one is killed. None: nothing runs.

    raises: ConfigRefused, OSError
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
