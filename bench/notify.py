"""Notices: how soon an incident and its verdict are at a local receiver, and what kills of the process lose or double.

    python -m bench.notify
    python -m bench.notify --incidents 1000 --kills 40

Delay: from the append to the journal to the request at the receiver, of a process that follows the journal as beside a real job.
Kills: incidents are journaled one after the other while the process is killed (SIGKILL) at random moments and started again. Lost: an
incident that the receiver was told nothing of. Doubled: the same version of a notice arrived twice; allowed is only what was under way at a kill.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec

from holdfast.core.job.decide import decide
from holdfast.journal.jobdir import JobDir
from holdfast.journal.rows import Row
from holdfast.journal.store import Store
from holdfast.model.events import (
    AnyEvent,
    AttemptStarted,
    AttemptStopped,
    HangFound,
    JobSubmitted,
    Placed,
    RankStarted,
    StepReached,
    VerdictReached,
    WorkersPlaced,
)
from holdfast.model.policy import Policy
from holdfast.model.state import State
from holdfast.model.verdicts import Verdict

OPENED_LIMIT_S, VERDICT_LIMIT_S = 2.0, 1.0
BUG = Verdict(category="python_exception", class_="training", title="KeyError: 'x'", confidence=0.9)
SETTLES_S = 120.0
AT_WORK = 0.7  # of the kills: while it delivers
Key = tuple[str, int]


class Receiver:
    """Takes webhooks. `first_s`: when the first message with this event of this notice came."""

    def __init__(self) -> None:
        self.count: Counter[Key] = Counter()
        self.first_s: dict[tuple[str, str], float] = {}
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                at_s = time.time()
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                for notice in body["joined"] or [body["notice"]]:
                    receiver.count[notice["id"], notice["version"]] += 1
                    receiver.first_s.setdefault((notice["id"], notice["event"]), at_s)
                self.send_response(204)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Not printed."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    @property
    def notices(self) -> set[str]:
        return {name for name, _ in self.count}


class Job:
    def __init__(self, root: Path) -> None:
        self.dir = JobDir(root / "jobs" / "llama")
        self.dir.path.mkdir(parents=True)
        self.store = Store.open(self.dir.journal_path)
        self.policy = Policy(hang_restart=True)  # as often as there is progress in between
        self.store.set_meta("policy", msgspec.json.encode(self.policy))
        self.state = State()
        self.attempt = 1
        at_s = time.time()
        self.name = f"llama-{int(at_s)}"
        self.write(
            JobSubmitted(at_s=at_s, job="llama", workers=1, command=("train",)),
            WorkersPlaced(at_s=at_s, attempt=1, placed=(Placed(0, "n0"),)),
            AttemptStarted(at_s=at_s, attempt=1),
            RankStarted(at_s=at_s, attempt=1, worker=0, rank=0, pid=41),
            StepReached(at_s=at_s, attempt=1, step=100),
        )

    def write(self, *events: AnyEvent) -> None:
        for event in events:
            decision = decide(self.state, event, self.policy)
            self.state = decision.state
            kind = str(type(event).__struct_config__.tag)
            orders = msgspec.json.encode(decision.orders)
            self.store.append([Row(event.at_s, kind, msgspec.json.encode(event), orders, decision.why)])

    def open_incident(self) -> float:
        at_s = time.time()
        hang = "rank 0 has printed nothing"
        self.write(HangFound(at_s=at_s, attempt=self.attempt, hang="silent", culprits=(0,), reason=hang))
        return at_s

    def give_verdict(self, number: int) -> float:
        at_s = time.time()
        self.write(VerdictReached(at_s=at_s, incident=number, verdict=BUG))
        return at_s

    def recover(self, number: int) -> None:
        at_s = time.time()
        self.write(AttemptStopped(at_s=at_s, attempt=self.attempt))
        self.attempt += 1
        self.write(
            AttemptStarted(at_s=at_s, attempt=self.attempt),
            StepReached(at_s=at_s, attempt=self.attempt, step=100 * number + 150),
        )


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--delays", type=int, default=100, help="incidents whose delay is measured; 0: none")
    options.add_argument("--incidents", type=int, default=1_000, help="journaled under kills; 0: none")
    options.add_argument("--kills", type=int, default=40)
    options.add_argument("--seed", type=int, default=1)
    chosen = options.parse_args()
    is_good = True
    if chosen.delays:
        is_good &= report_delays(chosen.delays)
    if chosen.incidents:
        is_good &= report_kills(chosen.incidents, chosen.kills, random.Random(chosen.seed))
    return 0 if is_good else 1


def report_delays(count: int) -> bool:
    with placed() as (job, receiver, start):
        process = start()
        until("the process follows", lambda: receiver.notices)
        opened, known = [], []
        for number in range(1, count + 1):
            name = f"{job.name}/incident-{number}"
            at_s = job.open_incident()
            until(name, lambda name=name: name in receiver.notices)
            opened.append(receiver.first_s[name, "hang"] - at_s)
            at_s = job.give_verdict(number)
            until(name, lambda name=name: (name, "verdict") in receiver.first_s)
            known.append(receiver.first_s[name, "verdict"] - at_s)
            job.recover(number)
        end(process)
    return told("incident to message", opened, OPENED_LIMIT_S) & told(
        "verdict to update", known, VERDICT_LIMIT_S
    )


def report_kills(incidents: int, kills: int, dice: random.Random) -> bool:
    with placed() as (job, receiver, start):
        process = start()
        until("the process follows", lambda: receiver.notices)
        at = sorted(dice.sample(range(1, incidents + 1), min(kills, incidents)))
        for number in range(1, incidents + 1):
            job.open_incident()
            job.give_verdict(number)
            job.recover(number)
            if number in at:
                if dice.random() < AT_WORK:  # else while it starts, or reads what it missed
                    before = receiver.count.total()
                    until("a delivery", lambda before=before: receiver.count.total() > before)
                time.sleep(dice.uniform(0.0, 0.5))
                end(process)
                process = start()
        names = {f"{job.name}/incident-{number}" for number in range(1, incidents + 1)}
        began_s = time.monotonic()
        while not names <= receiver.notices and time.monotonic() - began_s < SETTLES_S:
            time.sleep(0.1)
        end(process)
        lost = len(names - receiver.notices)
        doubled = sum(count - 1 for count in receiver.count.values())
        log = (job.dir.path / "notify.log").read_text()
        unsure = sum(
            int(line.partition(" deliveries")[0].rpartition(" ")[2])
            for line in log.splitlines()
            if "deliveries were under way" in line
        )
    print(
        f"{incidents} incidents, {kills} kills: {lost} lost (limit 0), {doubled} doubled, {unsure} were under way at a kill (the limit)"
    )
    return lost == 0 and doubled <= unsure


@contextmanager
def placed() -> Iterator[tuple[Job, Receiver, Callable[[], "subprocess.Popen[bytes]"]]]:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        root = Path(folder)
        job, receiver = Job(root), Receiver()
        config = root / "notify.toml"
        config.write_text(
            f'silence_s = 0\n[[channel]]\nname = "a"\nkind = "webhook"\nurl = "{receiver.url}"\nevery = true\n'
            '[[rule]]\nchannels = ["a"]\n'
        )

        started: list[subprocess.Popen[bytes]] = []

        def start() -> "subprocess.Popen[bytes]":
            with (job.dir.path / "notify.log").open("ab") as log:
                words = [sys.executable, "-m", "holdfast.notify", str(job.dir.path), str(config)]
                process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            started.append(process)
            return process

        try:
            with job.dir.lock():
                yield job, receiver, start
        finally:
            for process in started:
                end(process)
            job.store.close()
            receiver.server.shutdown()


def end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()


def until(what: str, is_true: Callable[[], object]) -> None:
    until_s = time.monotonic() + SETTLES_S
    while not is_true():
        if time.monotonic() > until_s:
            raise SystemExit(f"waited {SETTLES_S:g} s for {what}")
        time.sleep(0.002)


def told(what: str, times: list[float], limit_s: float) -> bool:
    times = sorted(times)
    p95_s = times[min(len(times) - 1, round(0.95 * len(times)))]
    print(
        f"{what}: median {times[len(times) // 2]:.2f} s, p95 {p95_s:.2f} s, worst {times[-1]:.2f} s of {len(times)} (p95 limit {limit_s:g} s)"
    )
    return p95_s <= limit_s


if __name__ == "__main__":
    sys.exit(main())
