"""Sends a real server requests made from its own OpenAPI document, valid and invalid ones, and counts the answers.

    python -m bench.page.fuzz [REQUESTS]      # 20,000 by default, at most 20 min on 2 cores

Each request that schemathesis generates is sent as it is, and again with real ids in their places: jobs, incidents, evidence,
nodes, devices, files and cursors of the data, so that it reaches the code behind the checks. Prints how many of each status
there were, how many reached that code, and every request that got a server error (5xx but 503).
"""

import collections
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.generation import GenerationMode

from bench.page.data import BEGIN_S, write_fleet
from holdfast.client import Client
from holdfast.observe.logs.index import IndexWriter
from holdfast.web.access.tokens import TokenFile
from holdfast.web.api import openapi

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from web.servers import Place, Server

REQUESTS = 20_000
AGAIN = 3  # times with real ids, for each generated request
REACHED = (200, 304, 409, 410, 503)  # not refused at the door
JOBS, NODES, EVENTS = 40, 12, 12_000
CURSORS_MAX = 50
LOGIN = "/api/v1/login"  # the last: after ten wrong tokens the address has to wait, whatever it asks
STREAMS = "/api/v1/events"  # a stream does not end: it is asked for in the tests


class Known:
    """Ids that exist, by the name of the parameter."""

    def __init__(self, client: Client) -> None:
        self.dice = random.Random(24)
        jobs = list(client.all_jobs())
        self.incidents = [(job.id, one.number) for job in jobs for one in client.job(job.id).incidents]
        self.evidence = [
            (job, number, one.id)
            for job, number in self.incidents[:40]
            for one in client.incident(job, number).evidence
        ]
        self.jobs = [job.id for job in jobs]
        self.nodes = [one.node for one in client.nodes().nodes]
        self.serials = [one.serial for node in self.nodes for one in client.node(node).devices] or ["GPU-1"]
        self.files = [(job, one.file) for job in self.jobs for one in client.files(job)]
        self.cursors: list[str] = []
        assert self.incidents and self.evidence and self.nodes and self.files, "the data is too small"

    def put_into(self, case: Any) -> None:
        """Replaces what can be replaced. Some parts stay as they were generated, so that the others are tested with them."""
        at, dice = case.path_parameters or {}, self.dice
        job, number, evidence = dice.choice(self.evidence)
        file = ""
        if "evidence" not in at:
            job, number = dice.choice(self.incidents)
        if "number" not in at and "job" in at:
            job, file = dice.choice([*self.files, (dice.choice(self.jobs), "")])
        real = {"job": job, "number": number, "evidence": evidence}
        real |= {"node": dice.choice(self.nodes), "serial": dice.choice(self.serials)}
        case.path_parameters = {name: real.get(name, value) for name, value in at.items()}
        query = dict(case.query or {})
        if "file" in query:
            query["file"] = file
        if "cursor" in query and self.cursors:
            query["cursor"] = dice.choice(self.cursors)
        case.query = query
        case.headers = {**(case.headers or {}), "X-Holdfast-Confirm": "yes"}

    def learn(self, answer: requests.Response) -> None:
        if answer.status_code == 200 and "application/json" in str(answer.headers.get("content-type")):
            told = answer.json()
            found = [told.get(name) for name in ("next", "before", "after")] if isinstance(told, dict) else []
            self.cursors += [one for one in found if isinstance(one, str) and one]
            del self.cursors[:-CURSORS_MAX]


def main(wanted: int) -> int:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        place = Place(Path(folder))
        write_fleet(place.root, JOBS, NODES, EVENTS, 1)
        _with_output(place)
        server = Server(place.root, "--rate", "1000000")
        try:
            secret = TokenFile(place.root / "server").create("fuzz", "admin", time.time(), 86_400.0)
            with server.client(secret) as client:
                while client.jobs(limit=1).total < JOBS or not client.nodes().nodes:
                    time.sleep(0.2)
                known = Known(client)
            return fuzz(server, secret, wanted, known)
        finally:
            server.stop()


def _with_output(place: Place) -> None:
    """Some jobs have output: lines with times, colours, zero bytes, half a character, and no end."""
    text = (
        b"".join(b"step %d \x1b[31mloss\x1b[0m nan\r\n" % n for n in range(5_000)) + b"\x00\xff half \xe6\x97"
    )
    for job in place.state.jobs()[:6]:
        for rank in range(3):
            path = job.worker(1, 0) / f"rank-{rank}.log"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
            index = IndexWriter(path, print)
            for n in range(1, 101):
                index.append(BEGIN_S + n, len(text) * n // 100)
            index.close()


def fuzz(server: Server, secret: str, wanted: int, known: Known) -> int:
    schema = schemathesis.openapi.from_dict(openapi.document())
    operations = [one.ok() for one in schema.get_all_operations()]
    operations = [one for one in operations if one.path != STREAMS]
    operations.sort(key=lambda one: one.path == LOGIN)
    modes = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    # Some operations have no invalid requests, and some few valid ones.
    each = -(-wanted * 11 // (len(operations) * len(modes) * 10 * (1 + AGAIN)))
    counted: collections.Counter[int] = collections.Counter()
    failures: list[str] = []
    session = requests.Session()
    headers = {"Authorization": f"Bearer {secret}"}
    began_s = time.monotonic()
    for operation in operations:
        for mode in modes:
            asking = Asking(server.url.rstrip("/"), session, headers, known, counted, failures)
            _ask(operation, mode, each, asking)
    took_s = time.monotonic() - began_s
    total = sum(counted.values())
    print(f"{total} requests in {took_s:.0f} s ({total / took_s:.0f}/s) to {len(operations)} operations")
    for status, count in sorted(counted.items()):
        print(f"  {status}: {count}")
    reached = sum(count for status, count in counted.items() if status in REACHED)
    print(f"reached the code behind the checks: {reached} ({reached / total:.0%})")
    print(f"server errors: {len(failures)}")
    for one in failures[:20]:
        print(f"  {one}")
    said = server.said()
    if "Traceback" in said:
        print(said[-3_000:])
    return 1 if failures or "Traceback" in said else 0


class Asking(NamedTuple):
    url: str
    session: requests.Session
    headers: dict[str, str]
    known: Known
    counted: collections.Counter[int]
    failures: list[str]

    def send(self, case: Any) -> None:
        try:
            answer = case.call(base_url=self.url, session=self.session, headers=self.headers, timeout=60)
        except requests.exceptions.ConnectionError as error:
            self.counted[0] += 1
            self.failures.append(f"{case.method} {case.formatted_path}: no answer: {error}")
            return
        except (ValueError, UnicodeError, requests.exceptions.RequestException):
            return  # what the HTTP library itself does not send
        self.counted[answer.status_code] += 1
        self.known.learn(answer)
        if answer.status_code >= 500 and answer.status_code != 503:
            self.failures.append(f"{case.method} {answer.url}: {answer.status_code} {answer.text[:300]}")


def _ask(operation: Any, mode: GenerationMode, each: int, asking: Asking) -> None:
    @settings(
        max_examples=each,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        asking.send(case)
        for _ in range(AGAIN):
            asking.known.put_into(case)
            asking.send(case)

    try:
        ask()
    except Exception as error:  # noqa: BLE001 - an operation without invalid requests cannot be asked that way
        print(f"{operation.label} ({mode.value}): {type(error).__name__}: {str(error)[:100]}")


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else REQUESTS))
