"""Runs the process that notifies people of all jobs, beside the server."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from holdfast.cli.line.flags import Exit
from holdfast.notify.config import ConfigRefused, read_config

REFUSED = 2
ENDS_S = 5.0
LOG = "notify.log"


@contextmanager
def notifying(file: Path | None, roots: Sequence[Path], tell: Callable[[str], None]) -> Iterator[None]:
    """A file that cannot be used is refused at once. The process also ends when this one is killed. raises: Exit"""
    if file is None:
        yield
        return
    try:
        read_config(file, os.environ)
        folder = roots[0] / "server"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / LOG).open("ab") as log:
            words = ["--all", str(file.absolute()), *map(str, roots)]
            process = subprocess.Popen(
                [sys.executable, "-m", "holdfast.notify", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
    except (ConfigRefused, OSError) as error:
        tell(str(error))
        raise Exit(REFUSED) from error
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(ENDS_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
