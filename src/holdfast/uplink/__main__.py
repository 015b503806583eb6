"""Streams one job to a server until the server has everything: `python -m holdfast.uplink JOB_FOLDER URL`.

The supervisor starts this process, which continues if the supervisor dies. It writes nothing to the job
except its own log. The token comes from the environment, so that no process list shows it.
"""

import asyncio
import logging
import os
import random
import sys
import time
from pathlib import Path

from holdfast.jobs.only_one import is_only_one
from holdfast.journal.jobdir import JobDir
from holdfast.journal.rows import JournalUnusable
from holdfast.link.uplink_messages import MESSAGE_BYTES_MAX, Alive
from holdfast.uplink.session import Refused, Session
from holdfast.uplink.source import Source

try:
    import websockets
    from websockets.asyncio.client import connect
except ImportError:  # the extra is missing: `main` reports it
    websockets = None  # type: ignore[assignment]

TOKEN_ENV = "HOLDFAST_SERVER_TOKEN"
LOCK = "uplink.lock"
FIRST_PAUSE_S, PAUSE_S_MAX = 0.5, 30.0
OPEN_S = 10.0
JOURNAL_S = 30.0  # for the journal to appear
LEFT_S = 600.0  # an uplink of an ended or dead job gives up after this time
USAGE = 2
_log = logging.getLogger("holdfast.uplink")


def main(arguments: list[str]) -> int:
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    logging.getLogger("websockets").setLevel(logging.WARNING)
    if len(arguments) != 2:
        _log.error("usage: python -m holdfast.uplink JOB_FOLDER URL")
        return USAGE
    if websockets is None:
        _log.error("the package websockets is missing: pip install 'holdfast[client]'")
        return USAGE
    job = JobDir(Path(arguments[0]))
    if not is_only_one(job.path / LOCK):
        return 0
    try:
        return asyncio.run(_report(job, arguments[1], os.environ.get(TOKEN_ENV, "")))
    except KeyboardInterrupt:
        return 130


async def _report(job: JobDir, url: str, token: str) -> int:
    """Streams the job, reconnecting until all is sent, for at most `LEFT_S` after the end of the job."""
    source = await _source(job)
    if source is None:
        return 1
    pause_s, over_s = FIRST_PAUSE_S, 0.0
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    said = ""
    while True:
        try:
            async with connect(
                _address(url), additional_headers=headers, max_size=MESSAGE_BYTES_MAX, open_timeout=OPEN_S
            ) as socket:
                said, pause_s = "", FIRST_PAUSE_S
                await Session(socket, source, lambda: _alive(source)).run()
            return 0
        except Refused as error:
            _log.error("%s rejected job %s: %s", url, job.name, error)
            return 1
        except (OSError, TimeoutError, JournalUnusable, websockets.WebSocketException) as error:
            if str(error) != said:
                said = str(error)
                _log.warning("%s cannot be reached (%s); trying again", url, error)
        over_s += pause_s if source.has_ended or _alive(source).state == "dead" else 0.0
        if over_s > LEFT_S:
            _log.error("job %s has ended and %s was unreachable for %g s: giving up", job.name, url, LEFT_S)
            return 1
        await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))
        pause_s = min(2 * pause_s, PAUSE_S_MAX)


async def _source(job: JobDir) -> Source | None:
    until_s = time.monotonic() + JOURNAL_S
    while True:
        try:
            return Source(job)
        except JournalUnusable as error:
            if time.monotonic() > until_s:
                _log.error("%s", error)
                return None
        await asyncio.sleep(FIRST_PAUSE_S)


def _alive(source: Source) -> Alive:
    now = source.truth()
    return Alive(state=now.state, supervisor=now.supervisor, at_s=time.time())


def _address(url: str) -> str:
    """Returns the WebSocket address ws://HOST/…/link for an http:// URL."""
    return url.replace("http", "ws", 1).rstrip("/") + "/api/v1/link"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
