"""A Python for benchmarks that imports torch once for all of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

WARM_TORCH = Path(__file__).with_name("warm_torch.py")


@pytest.fixture(scope="session")
def warm_torch(tmp_path_factory):
    """Path of a `python` that runs scripts in forks of a process with torch. With -c it is our own Python."""
    name = f"holdfast-warm-torch-{os.getpid()}"
    words = [sys.executable, WARM_TORCH, name]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout.readline() == b"ready\n"
        python = tmp_path_factory.mktemp("warm") / "python"
        python.write_text(
            f'#!/bin/sh\ncase "$1" in -c) exec {sys.executable} "$@";; esac\n'
            f'exec {sys.executable} -I -S {WARM_TORCH} {name} "$@"\n'
        )
        python.chmod(0o755)
        yield str(python)
