"""Many faults in a row, by dice: whatever happens to agent, controller and network, each finding is recorded once."""

import random
from pathlib import Path

import pytest
from link_kit import Ends, Relay, ends

from holdfast.link.agent_link import AgentLink
from holdfast.link.arrived import Entry, Joined, Left, Silent
from holdfast.link.heard import Ordered
from holdfast.link.peers import Limits
from holdfast.link.spool import Spool, SpoolLimits
from holdfast.link.tls import ClientTls, ServerTls, make_certificate

SMALL = SpoolLimits(memory_bytes=20_000, disk_bytes=30_000, segment_bytes=4_000)


class Story:
    """One agent, one relay, one controller that keeps a journal: what is not in it when it is killed is not recorded."""

    def __init__(self, both: Ends, folder: Path, seed: int, tls: ServerTls | None = None) -> None:
        self.both, self.folder, self.tls = both, folder, tls
        self.dice = random.Random(seed)
        self.sent: list[bytes] = []
        self.journal: list[bytes] = []
        self.seen: dict[str, int] = {}
        self.unwritten: list[Entry] = []
        self.ordered: list[str] = []
        self.carried_out: list[str] = []
        both.records = False
        self.hub = both.hub(tls=tls)
        self.relay = Relay(lambda: self.hub.addresses[0])
        both.relays.append(self.relay)
        self.link, self.spool = self._agent()

    def _agent(self) -> tuple[AgentLink, Spool]:
        spool = Spool(self.folder, self.both.clock, SMALL)
        link = self.both.link(
            where=lambda: [self.relay.address],
            spool=spool,
            dice=self.dice.random,
            tls=ClientTls(self.tls.fingerprint) if self.tls else None,
        )
        return link, spool

    def step(self) -> None:
        what = self.dice.random()
        if what < 0.01:
            self.both.kill(self.link, self.spool)
            self.link, self.spool = self._agent()
        elif what < 0.02:
            self.unwritten.clear()  # killed before it had written them
            if self.dice.random() < 0.5:
                self.both.end([self.hub])
            else:
                self.both.kill_hub(self.hub)
            self.hub = self.both.hub(seen=dict(self.seen), tls=self.tls)
            for order_id in self.ordered[-3:]:
                self.hub.order("node1", order_id, b"again")
        elif what < 0.04:
            self.relay.is_cut = not self.relay.is_cut
        elif what < 0.05:
            self.hub.drop("node1", "by the dice")
        elif what < 0.1:
            self.ordered.append(f"order {len(self.ordered)}")
            self.hub.order("node1", self.ordered[-1], b"do it")
        elif what < 0.5:
            for _ in range(self.dice.randint(1, 5)):
                self._send()
        self._turn()

    def _send(self) -> None:
        body = b"finding %d " % len(self.sent) + b"x" * self.dice.randrange(900)
        self.sent.append(body)
        self.link.send(body)
        if self.dice.random() < 0.5:
            self.link.send(b"sample" + b"y" * self.dice.randrange(2000), drop=True)

    def _turn(self) -> None:
        before = len(self.both.arrived)
        heard = len(self.both.heard[self.link])
        self.both.turn(0.1)
        self.unwritten += [one for one in self.both.arrived[before:] if isinstance(one, Entry)]
        if self.dice.random() < 0.3:
            for entry in self.unwritten:
                self.seen[entry.stream] = entry.seq
                if not entry.body.startswith(b"sample"):
                    self.journal.append(entry.body)
                self.hub.recorded(entry.stream, entry.seq)
            self.unwritten.clear()
        for one in self.both.heard[self.link][heard:]:
            if isinstance(one, Ordered):
                self.carried_out.append(one.id)
                self.link.done(one.id)

    def end(self) -> None:
        self.relay.is_cut = False
        for _ in range(3000):
            if self.journal == self.sent and set(self.ordered[-3:]) <= set(self.carried_out):
                return
            self._turn()
        assert self.journal == self.sent


@pytest.mark.parametrize("seed", range(10))
def test_each_finding_is_recorded_once_and_in_order(seed, tmp_path):
    with ends() as both:
        tls = make_certificate(tmp_path) if seed >= 8 else None
        story = Story(both, tmp_path / "spool", seed, tls)
        for _ in range(400):
            story.step()
        story.end()
        assert story.spool.lost == 0
        assert set(story.ordered[-3:]) <= set(story.carried_out)


def test_a_hub_with_more_to_read_than_a_turn_may_take_goes_on_beating():
    with ends() as both:
        hub = both.hub(limits=Limits(turn_bytes=20_000))
        links = [both.link(hub, name=f"node{number}") for number in range(4)]
        both.connect(*links)
        for _ in range(120):
            for link in links:
                link.send(b"x" * 60_000, drop=True)
            both.turn(0.1)
        assert all(link.connected for link in links)
        assert not both.of(Left) and not both.of(Silent)
        assert len(both.of(Joined)) == 4
        assert hub.offset_s("node0") is not None


def test_who_says_little_is_heard_beside_those_who_never_stop():
    with ends() as both:
        hub = both.hub(limits=Limits(turn_bytes=100_000, serve_bytes=50_000))
        loud = [both.link(hub, name=f"loud{number}") for number in range(6)]
        quiet = [both.link(hub, name=f"quiet{number}") for number in range(6)]
        both.connect(*loud, *quiet)
        for number in range(60):
            for link in loud:
                link.send(b"x" * 60_000, drop=True)
                link.send(b"y" * 60_000, drop=True)
            if number == 10:
                for link in quiet:
                    link.send(b"heard?")
            both.turn(0.1)
        told = [entry.peer for entry in both.of(Entry) if entry.body == b"heard?"]
        assert sorted(told) == [link.name for link in quiet]
        assert len({entry.peer for entry in both.of(Entry) if entry.body[:1] == b"x"}) == 6
