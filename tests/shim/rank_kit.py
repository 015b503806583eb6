"""Real processes that are started as a launcher starts ranks, with the shim first on their PYTHONPATH."""

import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import holdfast

SHIM = Path(holdfast.__file__).parent / "shim"
OURS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "PYTHONPATH")


class Ranks:
    """Starts programs as ranks of one worker, whose folder is `folder`; `modules` is on their path."""

    def __init__(self, place):
        self.folder, self.modules, self.started = place / "worker", place / "modules", []
        self.folder.mkdir()
        self.modules.mkdir()

    def module(self, name, text):
        path = self.modules / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def environment(self, rank, shim=True, **more):
        plain = {k: v for k, v in os.environ.items() if k not in OURS and not k.startswith("HOLDFAST_")}
        path = f"{SHIM}:{self.modules}" if shim else str(self.modules)
        ours = {"HOLDFAST_SHIM": "1", "HOLDFAST_WORKER_DIR": str(self.folder), "PYTHONPATH": path}
        place = {} if rank is None else {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        return plain | ours | place | more

    def start(
        self, program, *, rank=0, python=(), name="train.py", out=subprocess.PIPE, err=subprocess.PIPE, **env
    ):
        path = self.module(name, program)
        argv = [sys.executable, *python, str(path)]
        process = subprocess.Popen(argv, env=self.environment(rank, **env), stdout=out, stderr=err)
        self.started.append(process)
        return process

    def run(self, program, **how):
        """Exit code, stdout, stderr."""
        process = self.start(program, **how)
        out, err = process.communicate()
        return process.returncode, (out or b"").decode(), (err or b"").decode()

    def read(self, name):
        return json.loads((self.folder / name).read_bytes())

    def names(self):
        return sorted(path.name for path in self.folder.iterdir())


class Gate:
    """Holds the gate shut as the reaper does."""

    def __init__(self, folder):
        self.path = folder / "gate"
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.fd, fcntl.LOCK_EX)

    def open(self, text):
        Path(f"{self.path}.go").write_text(text)
        self.drop()

    def drop(self):
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1


def wait_for(found, within_s=60.0):
    deadline_s = time.monotonic() + within_s
    while not found():
        assert time.monotonic() < deadline_s, "it did not happen"
        time.sleep(0.005)


def waits_for_lock(process):
    """The kernel lists who waits for a lock: `1: -> FLOCK  ADVISORY  READ 4711 ...`."""
    lines = Path("/proc/locks").read_text().splitlines()
    return any("-> FLOCK" in line and f" {process.pid} " in line for line in lines)
