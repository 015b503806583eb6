"""Injects faults into the server: error codes, hung and dropped connections, dropped and doubled watches."""

import asyncio
from dataclasses import dataclass

from kubernetes.apiserver.answers import Failure
from kubernetes.apiserver.http_server import Dropped


@dataclass
class Rule:
    """`count` requests of `verb` on `plural` get `code`. Empty: any. `after`: the write is done, and its answer lost."""

    code: int
    count: int = 1
    verb: str = ""
    plural: str = ""
    after: bool = False

    def fits(self, verb, plural):
        return self.count > 0 and self.verb in ("", verb) and self.plural in ("", plural)


class Faults:
    def __init__(self):
        self.rules = []
        self.away = False  # every connection is cut
        self.mute = False  # every request hangs
        self.doubled = False  # each watch event comes twice
        self.shuffled = False  # watch events of different objects change places
        self.kill_writer = False  # the next controller of a job that writes is killed
        self.writer_killed = lambda: None
        self.watch_s = 0.0  # each watch ends after this long; 0: as asked
        self.back = asyncio.Event()

    async def before(self, verb, plural, *, strikes=True):
        if self.away:
            raise Dropped
        while self.mute:
            await self._until_back()
        if strikes:
            self._strike(verb, plural, after=False)

    def after(self, verb, plural):
        if self.kill_writer and plural != "leases":
            self.kill_writer = False
            self.writer_killed()
        self._strike(verb, plural, after=True)

    def _strike(self, verb, plural, after):
        for rule in self.rules:
            if rule.after == after and rule.fits(verb, plural):
                rule.count -= 1
                if rule.code == 0:
                    raise Dropped
                raise Failure(rule.code, "a fault of the test", retry_after_s=1 if rule.code == 429 else None)

    async def _until_back(self):
        self.back.clear()
        await self.back.wait()

    def set(self, wanted):
        """From the control request: {"away": true, "rules": [{"code": 500, "count": 3}], ...}."""
        for name in ("away", "mute", "doubled", "shuffled", "watch_s", "kill_writer"):
            if name in wanted:
                setattr(self, name, wanted[name])
        if "rules" in wanted:
            self.rules = [Rule(**rule) for rule in wanted["rules"]]
        if not self.mute:
            self.back.set()

    @property
    def is_down(self):
        return self.away or self.mute
