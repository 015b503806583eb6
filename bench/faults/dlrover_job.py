"""Starts DLRover's local master, and its launcher beside it: `dlrover_job.py LAUNCHER WORDS...`.

`dlrover-run --standalone` would start that master itself, but release 0.6.1 calls `SubprocessHandler` without an argument
that PyTorch 2.13 needs, and ends. It uses a master that runs already. raises: SystemExit if the master does not start.
"""

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # this script is started by its path

from bench.faults.beside import drop, free_port, start

START_LIMIT_S, LOOK_S = 60.0, 0.1


def main() -> int:
    port = free_port()
    words = ["--port", str(port), "--node_num", "1", "--job_name", "faults", "--platform", "local"]
    master = start([sys.executable, "-u", "-m", "dlrover.python.master.main", *words])
    threading.Thread(target=drop, args=(master,), daemon=True).start()
    wait_for(port, master)
    launcher = subprocess.Popen(sys.argv[1:], env={**os.environ, "DLROVER_MASTER_ADDR": f"127.0.0.1:{port}"})
    code = launcher.wait()
    master.terminate()
    master.wait()
    return code if code >= 0 else 128 - code


def wait_for(port: int, master: "subprocess.Popen[str]") -> None:
    until_s = time.monotonic() + START_LIMIT_S
    while time.monotonic() < until_s and master.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
        except OSError:
            time.sleep(LOOK_S)
        else:
            return
    raise SystemExit(f"DLRover's master does not listen after {START_LIMIT_S:.0f} s")


if __name__ == "__main__":
    raise SystemExit(main())
