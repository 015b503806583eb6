"""Sends a real server requests made from its own OpenAPI document, valid and invalid ones, and counts the answers.

    .venv/bin/python -m bench.page.fuzz [REQUESTS]      # 20,000 by default

Prints how many of each status there were, and every request that got a server error (5xx but 503).
"""

import collections
import sys
import tempfile
import time
from pathlib import Path

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.generation import GenerationMode

from holdfast.web.access.tokens import TokenFile
from holdfast.web.api import openapi

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from web.servers import Place, Server

REQUESTS = 20_000
STREAMS = "/api/v1/events"  # a stream does not end: it is asked for in the tests


def main(wanted: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder))
        for name in ("llama", "moved", "third"):
            place.job(name)
        server = Server(place.root, "--rate", "1000000")
        try:
            secret = TokenFile(place.root / "server").create("fuzz", "admin", time.time(), 86_400.0)
            return fuzz(server, secret, wanted)
        finally:
            server.stop()


def fuzz(server: Server, secret: str, wanted: int) -> int:
    schema = schemathesis.openapi.from_dict(openapi.document())
    operations = [one.ok() for one in schema.get_all_operations()]
    operations = [one for one in operations if one.path != STREAMS]
    modes = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    each = -(-wanted * 6 // (len(operations) * len(modes) * 5))  # some operations have no invalid requests
    counted: collections.Counter[int] = collections.Counter()
    failures: list[str] = []
    session = requests.Session()
    headers = {"Authorization": f"Bearer {secret}"}
    began_s = time.monotonic()
    for operation in operations:
        for mode in modes:
            _ask(operation, mode, each, server.url.rstrip("/"), session, headers, counted, failures)
    took_s = time.monotonic() - began_s
    total = sum(counted.values())
    print(f"{total} requests in {took_s:.0f} s ({total / took_s:.0f}/s) to {len(operations)} operations")
    for status, count in sorted(counted.items()):
        print(f"  {status}: {count}")
    print(f"server errors: {len(failures)}")
    for one in failures[:20]:
        print(f"  {one}")
    said = server.said()
    if "Traceback" in said:
        print(said[-3_000:])
    return 1 if failures or "Traceback" in said else 0


def _ask(operation, mode, each, url, session, headers, counted, failures):  # type: ignore[no-untyped-def]
    @settings(
        max_examples=each,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case):  # type: ignore[no-untyped-def]
        try:
            answer = case.call(base_url=url, session=session, headers=headers, timeout=60)
        except requests.exceptions.ConnectionError as error:
            counted[0] += 1
            failures.append(f"{case.method} {case.formatted_path}: no answer: {error}")
            return
        except (ValueError, UnicodeError, requests.exceptions.RequestException):
            return  # what the HTTP library itself does not send
        counted[answer.status_code] += 1
        if answer.status_code >= 500 and answer.status_code != 503:
            failures.append(f"{case.method} {answer.url}: {answer.status_code} {answer.text[:300]}")

    try:
        ask()
    except Exception as error:  # noqa: BLE001 - an operation without invalid requests cannot be asked that way
        print(f"{operation.label} ({mode.value}): {type(error).__name__}: {str(error)[:100]}")


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else REQUESTS))
