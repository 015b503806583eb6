"""`python -m holdfast.notify JOB_FOLDER CONFIG`: tells people of one job until everything about it is delivered.

Started by the supervisor, and independent of it: it goes on when the supervisor dies, and says so. Secrets come from the
environment or from files that CONFIG names.
"""

import fcntl
import logging
import os
import random
import sys
import time
from pathlib import Path

from holdfast.journal.jobdir import JobDir
from holdfast.journal.rows import JournalUnusable
from holdfast.notify.config import ConfigRefused, NotifyConfig, read_config
from holdfast.notify.delivering import Post
from holdfast.notify.delivery_log import NAME, DeliveryLog
from holdfast.notify.registry import senders_of
from holdfast.notify.silence import Silence
from holdfast.notify.watching import JobWatch, Settings

LOCK = "notify.lock"
TURN_S = 0.2
LOOK_S = 2.0  # at the processes and the output of the job
JOURNAL_S = 30.0
LEFT_S = 3_600.0  # for what is still to be delivered, once the job has ended
USAGE = 2
_log = logging.getLogger("holdfast.notify")


def main(arguments: list[str]) -> int:
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    if len(arguments) != 2:
        _log.error("usage: python -m holdfast.notify JOB_FOLDER CONFIG")
        return USAGE
    job = JobDir(Path(arguments[0]))
    try:
        config = read_config(Path(arguments[1]), os.environ)
    except ConfigRefused as error:
        _log.error("%s", error)
        return USAGE
    if not _is_alone(job):
        return 0
    try:
        return _tell(job, config)
    except KeyboardInterrupt:
        return 130
    except (JournalUnusable, OSError) as error:
        _log.error("job %s: %s", job.name, error)
        return 1


def _tell(job: JobDir, config: NotifyConfig) -> int:
    """Until the job has ended and nothing waits to be delivered. raises: JournalUnusable, OSError"""
    settings = Settings(page=config.page, labels=config.labels, zone=config.zone)
    watch = _opened(job, settings)
    post = Post(
        senders_of(config),
        config.rules,
        config.zone,
        DeliveryLog(job.path / NAME),
        clock=time.time,
        dice=random.random,
        tell=_log.warning,
        secrets={channel.name: channel.secret_words() for channel in config.channels},
    )
    silence = Silence(job, config.silence_s)
    post.begin(watch.news())
    if post.unsure:
        _log.warning(
            "%d deliveries were under way when an earlier process ended: they may arrive twice", post.unsure
        )
    looked_s = ended_s = float("-inf")
    try:
        while True:
            for notice in watch.news():
                post.put(notice)
            if time.monotonic() - looked_s >= LOOK_S:
                looked_s = time.monotonic()
                for notice in (*watch.look(), *watch.outside(silence.look(watch.attempt, time.time()))):
                    post.put(notice)
            post.turn()
            if watch.has_ended:
                ended_s = max(ended_s, time.monotonic()) if ended_s < 0 else ended_s
                if post.is_idle or time.monotonic() - ended_s > LEFT_S:
                    return 0
            time.sleep(TURN_S)
    finally:
        post.close()
        watch.close()


def _opened(job: JobDir, settings: Settings) -> JobWatch:
    """raises: JournalUnusable, where there is no journal after a while"""
    until_s = time.monotonic() + JOURNAL_S
    while True:
        try:
            return JobWatch(job, settings)
        except JournalUnusable:
            if time.monotonic() > until_s:
                raise
        time.sleep(TURN_S)


def _is_alone(job: JobDir) -> bool:
    """Whether nobody else tells people of this job. The lock lives as long as this process."""
    descriptor = os.open(job.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
