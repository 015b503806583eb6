"""Measures the agent's folder: its size, the time that it adds to a pod's start, and the memory of an agent from it.

    make agent-folder && python -m bench.kubernetes.agent_folder

A pod's start is made longer by the init container (a copy of the folder) and by the agent's own start up to its first
line. Memory: proportional set size of an agent that waits for its controller, once it no longer changes, and the largest
seen before: a new pod compiles its signatures, which takes memory for seconds.
"""

import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "build" / "agent" / "opt" / "holdfast"
ROUNDS = 5
LOOK_S, SETTLED_S = 0.1, 5.0
CHANGE_KIB = 512
SETTLE_LIMIT_S = 120.0


def main() -> None:
    if not FOLDER.exists():
        raise SystemExit(f"{FOLDER} is missing: make agent-folder")
    files = [path for path in FOLDER.rglob("*") if path.is_file() and not path.is_symlink()]
    print(f"size: {sum(path.stat().st_size for path in files) / 1e6:.1f} MB in {len(files)} files (limit 60)")
    with tempfile.TemporaryDirectory() as scratch:
        copies, plain, starts, sizes, largest = [], [], [], [], []
        for number in range(ROUNDS):
            place = Path(scratch) / str(number)
            place.mkdir()
            plain.append(_timed(["cp", "-r", FOLDER, place]))
            shutil.rmtree(place / FOLDER.name)
            copies.append(_timed([FOLDER / "bin" / "holdfast-copy", place / "agent"]))
            started_s, size, most = _agent(place)
            starts.append(started_s)
            sizes.append(size)
            largest.append(most)
            shutil.rmtree(place / "agent")
    print(f"copy by the init container: {_middle(copies)} s; the same by cp -r: {_middle(plain)} s")
    print(f"agent until its first line: {_middle(starts)} s")
    added = [copy + start for copy, start in zip(copies, starts, strict=True)]
    print(f"added to a pod's start: {_middle(added)} s (limit 2)")
    print(f"agent: {statistics.median(sizes):.1f} MiB (limit 60), at most {max(largest):.1f} while it starts")


def _middle(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} (of {min(values):.2f} to {max(values):.2f})"


def _timed(words: Sequence[Path | str]) -> float:
    began_s = time.monotonic()
    subprocess.run([str(word) for word in words], check=True)
    return time.monotonic() - began_s


def _agent(place: Path) -> tuple[float, float, float]:
    """Seconds until the first line, MiB once it waits, and the most MiB before that."""
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
        settled, most = _settled(process.pid)
        process.kill()
    return started_s, settled / 1024, most / 1024


def _settled(pid: int) -> tuple[int, int]:
    """KiB once the size has not changed for a while, and the most KiB seen."""
    rollup = Path(f"/proc/{pid}/smaps_rollup")
    began_s = since_s = time.monotonic()
    kept = most = 0
    while time.monotonic() - since_s < SETTLED_S:
        size = int(rollup.read_text().partition("\nPss:")[2].split()[0])
        most = max(most, size)
        if abs(size - kept) > CHANGE_KIB:
            kept, since_s = size, time.monotonic()
        assert time.monotonic() - began_s < SETTLE_LIMIT_S, "the agent's memory does not settle"
        time.sleep(LOOK_S)
    return kept, most


if __name__ == "__main__":
    main()
