"""Real commands under real reapers, and waiting for what becomes of them."""

import os
import sys
import time
import uuid
from pathlib import Path

from holdfast.agent import launch

WAIT_S = 100.0  # only a hung test waits so long


def wait_for(what, is_true):
    """The first truthy answer of `is_true`."""
    until_s = time.monotonic() + WAIT_S
    while not (answer := is_true()):
        assert time.monotonic() < until_s, f"waited {WAIT_S:g} s for {what}"
        time.sleep(0.005)
    return answer


def wait_for_environ(pid):
    """Returns when `/proc/PID/environ` shows the environment of a process that was just started.

    The kernel closes the pipe that `Popen` waits for before it sets up the new environment: the file is empty
    for a moment after `Popen` returns. Raises FileNotFoundError if the process has ended.
    """
    wait_for("its environment", Path(f"/proc/{pid}/environ").read_bytes)


def state(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def is_over(pid):
    return state(pid) in ("", "Z", "X")


class Job:
    """A command in a folder of its own; every process of it carries `marks` in its environment."""

    def __init__(self, folder):
        self.folder = folder
        self.marks = {"HOLDFAST_TEST_MARK": uuid.uuid4().hex}
        self.running = None
        self.facts = []

    def environment(self, **more):
        env = {"PATH": os.environ["PATH"], "NOTES": str(self.folder), **self.marks}
        return env | {key: str(value) for key, value in more.items()}

    def spec(self, argv, detach=False, cwd="/", **env):
        return launch.LaunchSpec(
            argv=tuple(map(str, argv)),
            cwd=cwd,
            env=self.environment(**env),
            folder=self.folder,
            detach=detach,
        )

    def run(self, argv, **more):
        self.running = launch.launch(self.spec(argv, **more))
        return self

    def python(self, script, **more):
        return self.run([sys.executable, "-S", "-c", script], **more)

    def shell(self, script, **more):
        return self.run(["sh", "-c", script], **more)

    def until(self, kind, **values):
        """The first fact of this kind with these values."""

        def told():
            self.facts += self.running.read()
            for fact in self.facts:
                if isinstance(fact, kind) and all(getattr(fact, k) == v for k, v in values.items()):
                    return fact
            return None

        return wait_for(f"{kind.__name__} {values}; so far: {self.facts}", told)

    def all(self, kind):
        return [fact for fact in self.facts if isinstance(fact, kind)]

    def note(self, name):
        """What the command wrote into the file `name`, once it ends in a newline."""
        path = self.folder / name
        return wait_for(f"the note {name}", lambda: path.exists() and path.read_text().endswith("\n")) and (
            path.read_text().strip()
        )

    def stop(self, **how):
        self.running.stop(**({"grace_s": 10.0, "why": "the test is over"} | how))
        return self.until(launch.Stopped)

    def marked(self):
        return launch.marked(self.marks)

    def end(self):
        """Whatever the test left; returns the processes of the command that lived."""
        if self.running is not None:
            self.running.kill("the test is over")
            self.running.bye()
        return launch.sweep(self.marks)
