"""Sends notifications about one job, as a process beside its supervisor, until everything is delivered."""

import logging
import random
import time
from collections.abc import Callable
from pathlib import Path

from holdfast.journal.jobdir import JobDir
from holdfast.journal.rows import JournalUnusable
from holdfast.notify.config import NotifyConfig
from holdfast.notify.delivering import Post
from holdfast.notify.delivery_log import NAME, DeliveryLog
from holdfast.notify.registry import senders_of
from holdfast.notify.secrets import secret_words
from holdfast.notify.watching import JobWatch, Settings

LOCK = "notify.lock"
TURN_S = 0.2
LOOK_S = 2.0  # at the processes and the output of the job
JOURNAL_S = 30.0
LEFT_S = 3_600.0  # for what is still to be delivered, once the job has ended
_log = logging.getLogger("holdfast.notify")


def notify_of(job: JobDir, config: NotifyConfig) -> None:
    """Sends notifications about one job until the job has ended and no notification is waiting.

    raises: ConfigRefused, JournalUnusable and OSError
    """
    post = opened_post(config, job.path / NAME)
    try:
        watch = _opened(job, settings_of(config))
        try:
            _follow(watch, post)
        finally:
            watch.close()
    finally:
        post.close()


def settings_of(config: NotifyConfig) -> Settings:
    return Settings(
        page=config.page,
        labels=config.labels,
        zone=config.zone,
        silence_s=config.silence_s,
        checkpoint_age_s=config.checkpoint_age_s,
    )


def opened_post(config: NotifyConfig, log: Path, clock: Callable[[], float] = time.time) -> Post:
    """Creates the service that delivers notifications, for a configuration. Raises ConfigRefused and OSError.

    `log`: file that records deliveries.
    """
    return Post(
        senders_of(config),
        config.rules,
        config.zone,
        DeliveryLog(log),
        clock=clock,
        dice=random.random,
        tell=_log.warning,
        secrets={channel.name: secret_words(channel.options) for channel in config.channels},
        every=[channel.name for channel in config.channels if channel.every],
    )


def say_unsure(post: Post) -> None:
    if post.unsure:
        _log.warning(
            "%d deliveries were in progress when an earlier process ended: they may arrive twice", post.unsure
        )


def _follow(watch: JobWatch, post: Post) -> None:
    post.begin(watch.news())
    say_unsure(post)
    looked_s = float("-inf")
    ended_s: float | None = None
    while True:
        for notice in watch.news():
            post.put(notice)
        now_s = time.monotonic()
        if now_s - looked_s >= LOOK_S:
            looked_s = now_s
            for notice in watch.look():
                post.put(notice)
        post.turn()
        if watch.has_ended:
            ended_s = now_s if ended_s is None else ended_s
            if post.is_idle or now_s - ended_s > LEFT_S:
                return
        post.wait(TURN_S)


def _opened(job: JobDir, settings: Settings) -> JobWatch:
    """Opens the journal of a job, waiting a while for it. Raises JournalUnusable."""
    until_s = time.monotonic() + JOURNAL_S
    while True:
        try:
            return JobWatch(job, settings)
        except JournalUnusable:
            if time.monotonic() > until_s:
                raise
        time.sleep(TURN_S)
