"""A hundred faults of the control plane around one healthy job on the API server of tests: the attempt must not change.

Of each fault: every kind of refusal (409, 410, 429, 500, 504) before and after a write is done, a server that is away or mute,
connections cut, watches that end early and send events twice or out of order, history that is forgotten, the controller killed at
its next write, its pod killed. Writes are made by ending the spare pod, which costs no attempt. At the end: one attempt, no
incident, exit code 0.

    python -m bench.kubernetes.control_plane --faults 100 --kind job
"""

import argparse
import random
import sys
import time

from bench.kubernetes.job import KubernetesJob
from bench.kubernetes.one_job import many_faults
from bench.many_nodes.job import RANKS
from bench.many_nodes.lockstep import CHECKPOINT_EVERY

START_S, AGAIN_S, END_S = 180.0, 180.0, 120.0
STEPS_BETWEEN = 25
CODES = (409, 410, 429, 500, 504, 0)


class ControlPlane:
    def __init__(self, job: KubernetesJob, chance: random.Random) -> None:
        self.job, self.chance = job, chance
        self.doing = (
            self.refuse,
            self.refuse_watches,
            self.lose_answers,
            self.away,
            self.mute,
            self.drop,
            self.disturb,
            self.forget,
            self.kill_at_write,
            self.kill_controller,
        )

    def faults(self, **given: object) -> None:
        self.job.server.control("faults", **given)

    def refuse(self) -> None:
        self.faults(rules=[{"code": self.chance.choice(CODES), "count": self.chance.randrange(1, 6)}])
        self.end_spare()

    def refuse_watches(self) -> None:
        code = self.chance.choice(CODES)
        rules = [{"code": code, "count": 3, "verb": verb} for verb in ("watch", "list")]
        self.faults(rules=rules)
        self.job.server.control("drop")

    def lose_answers(self) -> None:
        self.faults(rules=[{"code": 0, "count": 2, "after": True}])
        self.end_spare()

    def away(self) -> None:
        self.faults(away=True)
        time.sleep(self.chance.uniform(0.5, 8.0))  # bench: the server is away for so long

    def mute(self) -> None:
        self.faults(mute=True)
        time.sleep(self.chance.uniform(0.5, 8.0))  # bench: the server does not answer for so long

    def drop(self) -> None:
        for _ in range(self.chance.randrange(1, 5)):
            self.job.server.control("drop")

    def disturb(self) -> None:
        self.faults(watch_s=0.4, doubled=True, shuffled=True)
        self.end_spare()

    def forget(self) -> None:
        self.job.server.control("compact")
        self.job.server.control("drop")

    def kill_at_write(self) -> None:
        self.faults(kill_writer=True)
        self.end_spare()

    def kill_controller(self) -> None:
        for name in self.job.pods("controller"):
            self.job.server.control("kill-pod", pod=name)

    def end_spare(self) -> None:
        used = {self.job.rank(rank)[1] for rank in range(RANKS)}
        for name in sorted(set(self.job.pods()) - used)[:1]:
            self.job.server.control("kill-pod", pod=name)

    def calm(self) -> None:
        self.faults(
            away=False, mute=False, watch_s=0.0, doubled=False, shuffled=False, rules=[], kill_writer=False
        )


def main() -> int:
    return many_faults(__doc__, 100, run)


def run(job: KubernetesJob, options: argparse.Namespace) -> list[str]:
    plane = ControlPlane(job, random.Random(options.seed))
    try:
        job.wait_for("steps", lambda: job.last_step() >= STEPS_BETWEEN, START_S)
        for number in range(options.faults):
            fault = plane.chance.choice(plane.doing)
            begun_s, at = time.monotonic(), job.last_step()
            fault()
            job.wait_for(
                f"steps during {fault.__name__}", lambda at=at: job.last_step() > at + STEPS_BETWEEN, AGAIN_S
            )
            plane.calm()
            took_s = time.monotonic() - begun_s
            print(f"{number + 1:>3} {fault.__name__:<16} {took_s:6.2f} s", file=sys.stderr, flush=True)
            if attempts := _attempts(job) - 1:
                return [f"{fault.__name__}: the attempt was ended ({attempts})"]
        return _ended(job)
    except (TimeoutError, ChildProcessError, LookupError) as error:
        print("\n".join(line for _, line in job.trial.lines[-40:]), file=sys.stderr)
        return [str(error)]


def _ended(job: KubernetesJob) -> list[str]:
    last = (job.last_step() // CHECKPOINT_EVERY + 20) * CHECKPOINT_EVERY
    (job.folder / "last-step").write_text(str(last))
    if not job.trial.wait(END_S):
        return [f"the job did not end within {END_S:.0f} s"]
    code = job.trial.process.returncode
    return [*([f"it ended with {code}"] if code else []), *job.server.control("failed")]


def _attempts(job: KubernetesJob) -> int:
    """By the processes that rank 0 has been."""
    return len({moment.pid for moment in job.moments() if moment.kind == "step" and moment.rank == 0})


if __name__ == "__main__":
    sys.exit(main())
