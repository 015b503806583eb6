"""Kills parts of jobs and measures how often, and how soon, `holdfast status --json` shows the true state.

    python -m bench.page.states [--kills 100] [--only CASE,CASE]

Each case starts a real job with a light command of two ranks, kills a part of it, and polls the state. A state counts as
right within 10 s. Answers that call a job training after all of its processes have ended are counted too.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from holdfast.engines.local.hosts import found
from holdfast.engines.local.nodes import agent_of

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
RIGHT_S, START_S, END_S = 10.0, 60.0, 60.0
LAUNCHER = r"""
import os, subprocess, sys
rank = "import os,time\nfor n in range(1, 100000):\n    print(f'step {n}/100000 loss 0.5', flush=True)\n    time.sleep(0.1)"
first = int(os.environ.get("NODE_RANK", "0")) * 2
ranks = [subprocess.Popen([sys.executable, "-S", "-u", "-c", rank],
         env=os.environ | {"RANK": str(first + n), "LOCAL_RANK": str(n), "WORLD_SIZE": "2"}) for n in range(2)]
codes = [one.wait() for one in ranks]
sys.exit(1 if any(codes) else 0)
"""


class Case(NamedTuple):
    """`kill`: what is done; `right`: the states that are true then."""

    name: str
    flags: tuple[str, ...]
    kill: Callable[["Job"], None]
    right: tuple[str, ...]


class Told(NamedTuple):
    case: str
    right_s: float | None  # None: not within RIGHT_S
    lies: int
    last: str


class Job:
    """A job under way in a state folder of its own."""

    def __init__(self, root: Path, flags: tuple[str, ...]) -> None:
        self.root = root
        self.folder = root / "jobs" / "t"
        self.env = os.environ | {
            "HOLDFAST_STATE_DIR": str(root),
            "HOLDFAST_BOOT_CHECK": "off",
            "HOLDFAST_TROUBLESHOOT_WAIT": "0s",
            "HOLDFAST_STANDBY": "false",
            "HOLDFAST_GRACE": "3s",
        }
        words = [HOLDFAST, "run", "--job", "t", "--quiet", *flags, "--", sys.executable, "-S", "-c", LAUNCHER]
        with (root / "err").open("wb") as err:
            self.process = subprocess.Popen(
                words,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=err,
                start_new_session=True,
            )

    def told(self) -> dict[str, object]:
        done = subprocess.run(
            [HOLDFAST, "status", "t", "--json"], env=self.env, capture_output=True, text=True, check=False
        )
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def trains(self) -> None:
        """Waits for its first steps."""
        until_s = time.monotonic() + START_S
        while time.monotonic() < until_s:
            told = self.told()
            summary = told.get("summary")
            if told.get("state") == "training" and isinstance(summary, dict) and (summary["step"] or 0) >= 3:
                return
            time.sleep(0.1)
        raise SystemExit(f"the job did not train:\n{(self.root / 'err').read_text()}")

    def pids(self, *, of_ranks: bool = False) -> list[int]:
        """All that carry the job's folder in their environment; `of_ranks`: those that make steps."""
        mark = os.fsencode(self.root)
        return [
            pid for pid, environ in _environs() if mark in environ and (not of_ranks or _is_rank(environ))
        ]

    def kill_all(self, pids: list[int]) -> None:
        for pid in pids:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def end(self) -> None:
        for _ in range(50):
            left = [pid for pid in self.pids() if pid != os.getpid()]
            if not left:
                break
            self.kill_all(left)
            time.sleep(0.05)
        self.process.wait(END_S)


def _environs() -> Iterator[tuple[int, bytes]]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                state = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0]
                if state not in "ZX":
                    yield int(name), Path(f"/proc/{name}/environ").read_bytes()


def _is_rank(environ: bytes) -> bool:
    return b"\0RANK=" in environ and b"HOLDFAST_WORKER_DIR=" in environ


def _supervisor(job: Job) -> None:
    job.process.kill()


def _tree(job: Job) -> None:
    job.kill_all([job.process.pid, *job.pids()])


def _ranks(job: Job) -> None:
    job.kill_all(job.pids(of_ranks=True))


def _stop(job: Job) -> None:
    job.process.terminate()


def _agent(job: Job) -> None:
    nodes = found(job.folder)
    pid = agent_of(nodes, nodes.names[0])
    assert pid is not None, "the agent of the first node is not there"
    os.kill(pid, signal.SIGKILL)


def _node(job: Job) -> None:
    nodes = found(job.folder)
    nodes.crash(nodes.names[0])


MANY = ("--nnodes", "2", "--hosts", "processes")
AGAIN = ("--max-restarts", "3", "--unconditional-restart")
CASES = (
    Case("supervisor", (), _supervisor, ("dead",)),
    Case("supervisor-detached", ("--detach",), _supervisor, ("unsupervised",)),
    Case("whole-tree", (), _tree, ("dead",)),
    Case("whole-tree-detached", ("--detach",), _tree, ("dead",)),
    Case("ranks", (), _ranks, ("failed",)),
    Case("ranks-restarted", AGAIN, _ranks, ("recovering",)),
    Case("stopped", (), _stop, ("stopped",)),
    Case("controller", MANY, _supervisor, ("unsupervised",)),
    Case("controller-and-nodes", MANY, _tree, ("dead",)),
    Case("agent", MANY, _agent, ("training",)),
    Case("node", MANY, _node, ("failed",)),
    Case("node-restarted", (*MANY, *AGAIN), _node, ("waiting",)),
)


def _is_right(case: Case, told: dict[str, object]) -> bool:
    """A job that was restarted trains in its second attempt, and recovers until then."""
    summary = told.get("summary")
    attempt = summary["attempt"] if isinstance(summary, dict) else 0
    if case.name == "ranks-restarted" and told.get("state") == "training":
        return attempt == 2
    return told.get("state") in case.right


def tried(case: Case, root: Path) -> Told:
    """One kill. Right for good: the answer a second later is the same."""
    job = Job(root, case.flags)
    try:
        job.trains()
        case.kill(job)
        begun_s = time.monotonic()
        right_s, lies, state = None, 0, ""
        while time.monotonic() - begun_s < RIGHT_S:
            gone = not job.pids()
            told = job.told()
            passed_s, state = time.monotonic() - begun_s, str(told.get("state"))
            lies += gone and state == "training"
            if not _is_right(case, told):
                right_s = None
            elif right_s is None:
                right_s = passed_s
            elif passed_s - right_s > 1.0:
                break
            time.sleep(0.05)
        return Told(case.name, right_s, lies, state)
    finally:
        job.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    cases = [case for case in CASES if not args.only or case.name in args.only.split(",")]
    results = []
    for number in range(args.kills):
        with tempfile.TemporaryDirectory(prefix="holdfast-states-") as folder:
            told = tried(cases[number % len(cases)], Path(folder))
        results.append(told)
        took = "not" if told.right_s is None else f"{told.right_s:.2f} s"
        print(f"{number + 1:4} {told.case:22} {took:>8}  {told.last}", flush=True)
    right = [one.right_s for one in results if one.right_s is not None]
    print(f"right within {RIGHT_S:.0f} s: {len(right)} of {len(results)}")
    print(f"called training when nothing was left: {sum(one.lies for one in results)}")
    if right:
        print(f"median {statistics.median(right):.2f} s, longest {max(right):.2f} s")
    if len(right) < len(results) or any(one.lies for one in results):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
