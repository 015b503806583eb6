"""Sends notifications about all jobs in a server's state folders, equal incidents of several jobs in one
message.

Nothing is sent about events before notifications were first switched on.
"""

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from holdfast.archive.index.tracked import stamp
from holdfast.archive.index.watch import Watch
from holdfast.archive.places import Places
from holdfast.journal.rows import JournalUnusable
from holdfast.model.documents.notices import Notice
from holdfast.notify.companion import TURN_S, opened_post, say_unsure, settings_of
from holdfast.notify.config import NotifyConfig
from holdfast.notify.delivering import Post
from holdfast.notify.started import FOLDER
from holdfast.notify.watching import JobWatch, Settings

LOG, SINCE, LOCK = "notices.jsonl", "notify.since", "notify.lock"
JOBS_LOOK_S = 1.0  # for jobs that have changed
LOOK_S = 10.0  # at what their journals do not say
WATCHED_MAX = 512  # jobs that are kept open; of others the journals are read again when they change
OLD_S = 24 * 3_600.0  # journals unchanged for so long are not read at the start
_log = logging.getLogger("holdfast.notify")


class Fleet:
    """Finds events in the jobs of a `holdfast serve` that users should be notified of. For use by one thread.

    `since_s`: earlier events are ignored.
    """

    def __init__(
        self,
        places: Places,
        settings: Settings,
        since_s: float,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._watch, self._settings, self._since_s = Watch(places, {}), settings, since_s
        self._clock, self._wall = clock, wall
        self._open: dict[str, JobWatch] = {}
        self._broken: set[str] = set()
        self._looked_s = float("-inf")
        self._is_first = True

    def news(self) -> Iterator[Notice]:
        """Yields notifications about jobs that have changed since the last call, and about conditions
        outside journals.
        """
        now_s, wall_s = self._clock(), self._wall()
        seen = self._watch.look(now_s, wall_s)
        for name in seen.gone:
            self._close(name)
        for name in seen.due:
            yield from self._read(name, wall_s)
        self._is_first = False
        if now_s - self._looked_s >= LOOK_S:
            self._looked_s = now_s
            for name in list(self._open):
                yield from self._looked(name)

    def close(self) -> None:
        for name in list(self._open):
            self._close(name)

    def _read(self, name: str, wall_s: float) -> Iterator[Notice]:
        found = self._watch.place_of(name)
        if found is None:
            return
        job = found[1]
        mark = stamp(job)
        if self._is_first and _is_old(job.journal_path, wall_s):
            self._watch.was_read(name, mark, awake=False)
            return
        try:
            watch = self._open.pop(name, None) or JobWatch(job, self._settings, self._wall, name)
            self._open[name] = watch  # the newest last
            for notice in watch.news():
                if notice.at_s >= self._since_s:
                    yield notice
            self._broken.discard(name)
        except JournalUnusable as error:
            if name not in self._broken:
                self._broken.add(name)
                _log.warning("%s", error)
            self._close(name)
            self._watch.was_read(name, mark, awake=False)
            return
        self._watch.was_read(name, mark, awake=not watch.has_ended)
        if watch.has_ended:
            self._close(name)
        elif len(self._open) > WATCHED_MAX:
            self._close(next(iter(self._open)))

    def _looked(self, name: str) -> Iterator[Notice]:
        try:
            yield from self._open[name].look()
        except (JournalUnusable, OSError) as error:
            _log.warning("job %s: %s", name, error)

    def _close(self, name: str) -> None:
        watch = self._open.pop(name, None)
        if watch is not None:
            watch.close()


def notify_of_all(roots: Sequence[Path], config: NotifyConfig, go_on: Callable[[], bool]) -> None:
    """Sends notifications about all jobs in the state folders `roots` until `go_on` returns False. Raises
    ConfigRefused and OSError.
    """
    folder = roots[0] / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    post = opened_post(config, folder / LOG)
    fleet = Fleet(Places(roots), settings_of(config), since(folder / SINCE, time.time()))
    try:
        _follow(fleet, post, go_on)
    finally:
        fleet.close()
        post.close()


def since(path: Path, now_s: float) -> float:
    """Returns when notifications were first switched on, as the file `path` records it; at the first call,
    that is `now_s`. Raises OSError.
    """
    try:
        return float(path.read_text())
    except (FileNotFoundError, ValueError):
        path.write_text(f"{now_s}\n")
        return now_s


def _follow(fleet: Fleet, post: Post, go_on: Callable[[], bool]) -> None:
    post.begin(fleet.news())
    say_unsure(post)
    looked_s = time.monotonic()
    while go_on():
        if time.monotonic() - looked_s >= JOBS_LOOK_S:
            looked_s = time.monotonic()
            for notice in fleet.news():
                post.put(notice)
        post.turn()
        post.wait(TURN_S)


def _is_old(journal: Path, wall_s: float) -> bool:
    try:
        return wall_s - os.stat(journal).st_mtime > OLD_S
    except OSError:
        return False
