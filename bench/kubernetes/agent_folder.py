"""Measures the agent's folder: its size, the time that it adds to a pod's start, and the memory of an agent from it.

    make agent-folder && python -m bench.kubernetes.agent_folder

A pod's start is made longer by the init container (a copy of the folder) and by the agent's own start up to its first
line. Memory: proportional set size of an agent that waits for its controller. Each in a root file system of its own.
"""

import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "build" / "agent" / "opt" / "holdfast"
ROUNDS = 5
SETTLED_S = 3.0  # by then an agent has imported what it imports while it waits


def main() -> None:
    if not FOLDER.exists():
        raise SystemExit(f"{FOLDER} is missing: make agent-folder")
    files = [path for path in FOLDER.rglob("*") if path.is_file() and not path.is_symlink()]
    print(f"size: {sum(path.stat().st_size for path in files) / 1e6:.1f} MB in {len(files)} files (limit 60)")
    with tempfile.TemporaryDirectory() as scratch:
        copies, starts, sizes = [], [], []
        for number in range(ROUNDS):
            place = Path(scratch) / str(number)
            copies.append(_timed([FOLDER / "bin" / "holdfast-copy", place / "agent"]))
            started_s, size = _agent(place)
            starts.append(started_s)
            sizes.append(size)
            shutil.rmtree(place / "agent")
    print(f"copy by the init container: {_middle(copies)} s")
    print(f"agent until its first line: {_middle(starts)} s")
    added = [copy + start for copy, start in zip(copies, starts, strict=True)]
    print(f"added to a pod's start: {_middle(added)} s (limit 2)")
    print(f"agent: {statistics.median(sizes):.1f} MiB (limit 60)")


def _middle(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} (of {min(values):.2f} to {max(values):.2f})"


def _timed(words: list[Path]) -> float:
    began_s = time.monotonic()
    subprocess.run([str(word) for word in words], check=True)
    return time.monotonic() - began_s


def _agent(place: Path) -> tuple[float, float]:
    """Seconds until the first line, and MiB once it waits."""
    (place / "secret").write_text("ab" * 32)
    env = {
        "PATH": "/usr/bin:/bin",
        "HOLDFAST_STATE_DIR": str(place / "state"),
        "HOLDFAST_JOB_FOLDER": str(place / "state" / "jobs" / "t"),
        "HOLDFAST_CONTROLLER": "127.0.0.1:9",
        "HOLDFAST_SECRET_FILE": str(place / "secret"),
        "HOLDFAST_NODE": "t-0",
    }
    began_s = time.monotonic()
    words = [str(place / "agent" / "bin" / "holdfast"), "agent"]
    with subprocess.Popen(
        words, env=env, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd=place
    ) as process:
        assert process.stderr is not None
        process.stderr.readline()
        started_s = time.monotonic() - began_s
        time.sleep(SETTLED_S)
        rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
        process.kill()
    return started_s, int(rollup.partition("\nPss:")[2].split()[0]) / 1024


if __name__ == "__main__":
    main()
