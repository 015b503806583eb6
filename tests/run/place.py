"""The real command line on real processes: started as a person would, watched from outside."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path

from forked.process import begun
from holdfast.agent import launch
from holdfast.journal.store import open_reader
from kernel_log import reader

HERE = Path(__file__).parent
HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
WAIT_S = 100.0  # only a hung test waits so long


def wait_for(what, is_true, wait_s=WAIT_S):
    """The first truthy answer of `is_true`.

    The question takes a fifth of the processor at most, however much it costs, and is put less often the longer it takes.
    """
    since_s, begun_s = time.monotonic(), time.process_time()
    while not (answer := is_true()):
        waited_s = time.monotonic() - since_s
        assert waited_s < wait_s, f"waited {wait_s:g} s for {what() if callable(what) else what}"
        time.sleep(max(0.01, min(waited_s / 20, 0.1), 4 * (time.process_time() - begun_s)))
        begun_s = time.process_time()
    return answer


def state(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def is_over(pid):
    return state(pid) in ("", "Z", "X")


class Run:
    """One `holdfast` process. Its output goes to files, unless `stdout` says otherwise."""

    def __init__(self, place, words, stdout=None, prefix=(), **env):
        self.place = place
        self.number = len(place.runs)
        self._out = place.path / f"out-{self.number}"
        self._err = place.path / f"err-{self.number}"
        words = [*prefix, HOLDFAST, *map(str, words)]
        env = place.env | {key: str(value) for key, value in env.items()}
        with open(os.devnull, "rb") as none, self._out.open("wb") as out, self._err.open("wb") as err:
            streams = (none, out if stdout is None else stdout, err)
            self.process = begun(words, env, place.path, streams, is_forked=not prefix)

    @property
    def pid(self):
        return self.process.pid

    @property
    def out(self):
        return self._out.read_text(errors="replace")

    @property
    def err(self):
        return self._err.read_text(errors="replace")

    def says(self, words, wait_s=WAIT_S):
        """Waits until its stderr has these words."""
        wait_for(lambda: f"{words!r} in:\n{self.err}\n{self.out}", lambda: words in self.err, wait_s)
        return self

    def prints(self, words, wait_s=WAIT_S):
        """Waits until its stdout has these words."""
        wait_for(lambda: f"{words!r} in:\n{self.out}\n{self.err}", lambda: words in self.out, wait_s)
        return self

    def code(self, wait_s=WAIT_S):
        """Its exit code, once it has ended."""
        try:
            return self.process.wait(wait_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"not over after {wait_s:g} s:\n{self.err}\n{self.out}") from None

    def signal(self, number):
        assert self.process.poll() is None, f"it is over:\n{self.err}"
        os.kill(self.pid, number)

    def kill(self):
        """As the kernel's out-of-memory killer would."""
        self.signal(signal.SIGKILL)
        self.process.wait(WAIT_S)


class Place:
    """A state folder and a folder for notes. Every process started here carries `marks`."""

    def __init__(self, path, cache):
        reader.begin()
        self.path = path
        self.state = path / "state"
        self.marks = {"HOLDFAST_TEST_MARK": uuid.uuid4().hex}
        self.runs = []
        self.env = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(path),
            "XDG_CACHE_HOME": str(cache),  # compiled signatures, once for all tests
            "HOLDFAST_STATE_DIR": str(self.state),
            "NOTES": str(path),
            "HOLDFAST_BOOT_CHECK": "off",  # and no troubleshooting: what is not about checks need not wait for them
            "HOLDFAST_TROUBLESHOOT_WAIT": "0s",
            "HOLDFAST_ZYGOTE": os.environ.get(
                "HOLDFAST_ZYGOTE", "yes"
            ),  # all these tests can run without, too
            **self.marks,
        }

    def start(self, *words, **more):
        run = Run(self, words, **more)
        self.runs.append(run)
        return run

    def run(self, *words, **more):
        """`holdfast run --job t …`, under way."""
        return self.start("run", "--job", "t", *words, **more)

    def with_checks(self, boot="quick", troubleshoot="150s"):
        """From now on nodes are looked at, as they are for a person."""
        self.env |= {
            "HOLDFAST_BOOT_CHECK": boot,
            "HOLDFAST_TROUBLESHOOT_WAIT": troubleshoot,
            "HOLDFAST_VERDICT_WAIT": "200s",  # longer than the checks
            "HOLDFAST_QUICK_CHECK": "40s",  # on a busy machine, too, all is looked at
            "HOLDFAST_BOOT_CHECK_WAIT": "60s",
        }
        return self

    def shell(self, script, *flags, **more):
        return self.run(*flags, "--", "sh", "-c", script, **more)

    def python(self, script, *flags, **more):
        return self.run(*flags, "--", sys.executable, "-S", "-c", script, **more)

    def ranks(self, count, *flags, lame=False, **more):
        """A training of so many ranks under a small launcher (training.py, launcher.py)."""
        words = [sys.executable, "-S", HERE / "launcher.py", count, HERE / "training.py"]
        return self.run(*flags, "--", *words, *(["--lame"] if lame else []), **more)

    def real_ranks(self, count, training, *words, flags=(), **more):
        """A training that needs installed packages, under the same launcher. torchrun would import PyTorch once more."""
        command = [sys.executable, "-S", HERE / "launcher.py", count, training, "--", *words]
        return self.run(*flags, "--", *command, **more)

    def do(self, rank, lines, attempt=1):
        """Has a rank of the training do this: "sleep S", "raise MESSAGE", "exit CODE"."""
        self.found(rank, attempt)
        part = self.path / f"part-{rank}"
        part.write_text(lines)
        part.rename(self.path / f"do-{rank}")

    def go(self):
        """Lets the training end well."""
        (self.path / "go").touch()

    def found(self, rank, attempt=1):
        """Waits until the reaper has found this rank: of one that is over before its next look nothing is told."""
        folder = f"attempt-{attempt:03d}"
        wait_for(
            lambda: f"rank {rank} of attempt {attempt} to be found:\n{self.runs[-1].err}",
            lambda: any(
                fact["kind"] == "rank-started" and fact["rank"] == rank
                for path in self.job().glob(f"{folder}/worker-*/reaper.jsonl")
                for fact in _facts(path)
            ),
        )

    def kill_rank(self, rank, attempt=1):
        """Kills a rank of the training that the reaper has found."""
        pid = self.given(rank, attempt)["pid"]
        self.found(rank, attempt)
        os.kill(pid, signal.SIGKILL)

    def kill_all(self):
        """Kills all that was started here; some of it may end meanwhile."""
        for pid in self.left():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def given(self, rank, attempt):
        """What a rank of an attempt found in its environment, and its pid; attempts counted from 1."""
        line = wait_for(
            lambda: f"rank {rank} of attempt {attempt}:\n{self.runs[-1].err}",
            lambda: self.notes(f"given-{rank}")[attempt - 1 : attempt],
        )
        return json.loads(line[0])

    def job(self, name="t"):
        return self.state / "jobs" / name

    def worker(self, attempt=1, name="t"):
        return self.job(name) / f"attempt-{attempt:03d}" / "worker-0"

    def note(self, name):
        """What the command wrote into the file `name` here, once it ends in a newline."""
        path = self.path / name
        wait_for(
            lambda: f"the note {name}:\n{self.runs[-1].err}",
            lambda: path.exists() and path.read_text().endswith("\n"),
        )
        return path.read_text().strip()

    def notes(self, name):
        """The lines of the file `name` here; one that is being written is none yet."""
        path = self.path / name
        return path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []

    def events(self, kind=None, name="t"):
        """The journal, as dicts; its numbers have no gap."""
        reader = open_reader(self.job(name) / "journal.db")
        try:
            entries = list(reader.read())
        finally:
            reader.close()
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
        found = [json.loads(entry.event) | {"why": entry.why} for entry in entries]
        return [event for event in found if kind is None or event["kind"] == kind]

    def facts(self, attempt=1):
        """The reaper's facts, each whole."""
        return _facts(self.worker(attempt) / "reaper.jsonl")

    def findings(self):
        return [event["finding"] for event in self.events("finding-noted")]

    def left(self):
        """The processes that still live, of all that were started here."""
        return [pid for pid in launch.marked(self.marks) if not is_over(pid)]

    def nothing_left(self, wait_s=WAIT_S):
        wait_for(
            lambda: f"the end of {[_command(pid) for pid in self.left()]}", lambda: not self.left(), wait_s
        )

    def end(self):
        try:
            launch.sweep(self.marks)
            for run in self.runs:
                run.process.wait(WAIT_S)
            self.nothing_left()
        finally:
            reader.end()


def _facts(path):
    try:
        return [json.loads(line) for line in path.read_text().rpartition("\n")[0].splitlines()]
    except FileNotFoundError:
        return []


def _command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return b""
