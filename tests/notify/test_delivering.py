"""Deliveries by real senders in threads to real receivers: good, slow, mute, dead, and across restarts."""

import os
import subprocess
import sys
import time
from datetime import UTC

import pytest
from msgspec.structs import replace

from holdfast.core.notify.routes import Rule
from holdfast.model.documents.notices import Attempted, Delivered
from holdfast.notify.config import ChannelConfig
from holdfast.notify.delivering import Post
from holdfast.notify.delivery_log import DeliveryLog
from holdfast.notify.registry import MAKERS
from holdfast.notify.secrets import secret_words
from notices_kit import made
from notify.receiver import GOOD, Receiver, Reply

WAIT_S = 30.0


class Office:
    """A Post with webhooks, on a clock that the test may push on."""

    def __init__(self, log, rules=None, **urls):
        self.pushed_s = 0.0
        self.said = []
        channels = [
            ChannelConfig(name=name, kind="webhook", options={"url": url, "secret": "s3cret"})
            for name, url in urls.items()
        ]
        self.post = Post(
            {one.name: MAKERS[one.kind](one) for one in channels},
            rules or (Rule(channels=tuple(urls)),),
            UTC,
            DeliveryLog(log),
            clock=self.clock,
            dice=lambda: 0.5,
            tell=self.said.append,
            secrets={one.name: secret_words(one.options) for one in channels},
        )

    def clock(self):
        return time.time() + self.pushed_s

    def until(self, is_true):
        end_s = time.monotonic() + WAIT_S
        while not is_true():
            assert time.monotonic() < end_s, f"waited {WAIT_S:g} s; said {self.said}"
            self.post.turn()
            time.sleep(0.005)

    def until_idle(self):
        self.post.turn()
        self.until(lambda: self.post.is_idle)


@pytest.fixture
def office(tmp_path):
    running = []

    def make(**urls):
        one = Office(tmp_path / "notices.jsonl", **urls)
        running.append(one.post)
        return one

    yield make
    for one in running:
        one.close()


def now(name="llama/incident-1", version=1, **fields):
    return made(name, version, **{"at_s": time.time(), **fields})


def keys(receiver):
    return [request.headers["x-holdfast-delivery"] for request in receiver.requests]


def test_each_version_arrives_once_and_a_restart_repeats_none(office):
    with Receiver() as receiver:
        one = office(a=receiver.url)
        one.post.begin([now()])
        one.until_idle()
        one.post.put(now(version=2))
        one.until_idle()
        again = office(a=receiver.url)
        again.post.begin([now(), now(version=2)])
        again.until_idle()
        again.post.put(now(version=3))
        again.until_idle()
        assert keys(receiver) == [f"llama/incident-1/{version}/a" for version in (1, 2, 3)]
        assert (one.post.unsure, again.post.unsure) == (0, 0)


def test_a_delivery_that_was_under_way_is_repeated_with_the_same_key(office, tmp_path):
    log = DeliveryLog(tmp_path / "notices.jsonl")
    log.write(Attempted(notice="llama/incident-1", channel="a", version=1, at_s=time.time(), count=1))
    log.close()
    with Receiver() as receiver:
        one = office(a=receiver.url)
        one.post.begin([now()])
        one.until_idle()
        assert keys(receiver) == ["llama/incident-1/1/a"] and one.post.unsure == 1


def test_a_mute_receiver_holds_up_nobody_else(office):
    with Receiver() as good, Receiver() as mute:
        mute.replies = [Reply(is_mute=True)]
        one = office(mute=mute.url, good=good.url)
        one.post.begin([now("a"), now("b"), now("c")])
        one.until(lambda: len(good.requests) == 3 and mute.requests)
        assert len(mute.requests) == 1 and not one.post.is_idle


def test_a_rate_limit_is_waited_for_and_nothing_is_sent_in_between(office):
    with Receiver() as receiver:
        receiver.replies = [Reply(429, {}, {"Retry-After": "30"}), GOOD]
        one = office(a=receiver.url)
        one.post.begin([now("a"), now("b")])
        one.until(lambda: one.said)
        for _ in range(20):
            one.post.turn()
        assert len(receiver.requests) == 1
        one.pushed_s += 31
        one.until_idle()
        assert len(receiver.requests) == 3
        assert "the receiver returned status 429" in one.said[0] and "retrying" in one.said[0]


def test_a_receiver_that_is_down_for_an_hour_gets_everything(office):
    with Receiver() as receiver:
        receiver.replies = [Reply(503)]
        one = office(a=receiver.url)
        one.post.begin([now(f"n{number}") for number in range(3)])
        for _ in range(24):
            one.post.turn()
            one.until(lambda: not one.post._workers["a"].is_busy)
            one.pushed_s += 150
        failed = len(receiver.requests)
        assert failed <= 24
        receiver.replies = [GOOD]
        for _ in range(4):  # the longest pause, and one more failure that was under way
            one.pushed_s += 600
            one.post.turn()
            one.until(lambda: not one.post._workers["a"].is_busy)
        one.until_idle()
        assert {key.split("/")[0] for key in keys(receiver)[failed:]} == {"n0", "n1", "n2"}
        assert len(one.said) == 1  # once for one trouble


def test_what_is_refused_is_said_without_its_secret_and_not_tried_again(office):
    with Receiver(lambda request: Reply(403, {"error": "s3cret is wrong"})) as receiver:
        one = office(a=receiver.url + "/hook/veryLongToken")
        one.post.begin([now()])
        one.until_idle()
        assert len(receiver.requests) == 1
        assert "giving up" in one.said[0] and "***" in one.said[0] and "s3cret" not in one.said[0]


def test_an_answer_in_drops_comes_to_an_end(office):
    with Receiver() as receiver:
        receiver.replies = [Reply(200, b"x" * 20, drops_s=0.01)]
        one = office(a=receiver.url)
        one.post.begin([now()])
        one.until_idle()
        assert len(receiver.requests) == 1 and not one.said


def test_who_has_heard_of_trouble_hears_of_its_end(office, tmp_path):
    with Receiver() as receiver:
        one = Office(tmp_path / "n.jsonl", rules=(Rule(channels=("a",), severity="warning"),), a=receiver.url)
        one.post.begin([now()])
        one.until_idle()
        one.post.put(now(version=2, severity="info", event="recovered", is_over=True))
        one.until_idle()
        one.post.put(now("other", severity="info"))
        one.until_idle()
        one.post.close()
        assert keys(receiver) == ["llama/incident-1/1/a", "llama/incident-1/2/a"]


def test_a_storm_is_notified_with_its_count(office):
    with Receiver() as receiver:
        one = office(a=receiver.url)
        one.post.begin([])
        for number in range(100):
            one.post.put(now(f"j{number}/incident-1", job=f"j{number}"))
        one.until(lambda: len(receiver.requests) == 5 and not one.post._workers["a"].is_busy)
        one.pushed_s += 61
        one.until_idle()
        assert [len(request.body["joined"]) for request in receiver.requests] == [0, 0, 0, 0, 0, 95]
        again = office(a=receiver.url)
        again.post.begin([now(f"j{number}/incident-1", job=f"j{number}") for number in range(100)])
        again.until_idle()
        assert len(receiver.requests) == 6


# The log ----------------------------------------------------------------------------------------------


def row(name="x", version=1):
    return Delivered(notice=name, channel="a", version=version, at_s=1.0)


def test_a_line_that_was_cut_short_is_ignored_and_ends_there(tmp_path):
    path = tmp_path / "notices.jsonl"
    log = DeliveryLog(path)
    assert log.write(row("x"))
    log.close()
    with path.open("ab") as file:
        file.write(b'{"type":"delivered","not')
    log = DeliveryLog(path)
    assert log.write(row("y"))
    assert [one.notice for one in log.read()] == ["x", "y"]
    log.close()
    assert path.stat().st_mode & 0o077 == 0


def test_lines_of_another_version_are_ignored(tmp_path):
    path = tmp_path / "notices.jsonl"
    path.write_bytes(b'{"type":"prophesied"}\n\xff\xfe\n{}\n')
    log = DeliveryLog(path)
    assert list(log.read()) == []
    log.close()


FULL = """
import resource, sys
from pathlib import Path
from holdfast.model.documents.notices import Delivered
from holdfast.notify.delivery_log import DeliveryLog
log = DeliveryLog(Path(sys.argv[1]))
row = Delivered(notice="x" * 40, channel="a", version=1, at_s=1.0)
resource.setrlimit(resource.RLIMIT_FSIZE, (150, -1))
said = [log.write(row) for _ in range(3)]
resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
said.append(log.write(row))
print(said, len(list(log.read())))
"""


def test_a_full_disk_is_said_and_no_line_is_glued_to_another(tmp_path):
    words = [sys.executable, "-c", FULL, str(tmp_path / "n.jsonl")]
    found = subprocess.run(words, capture_output=True, text=True, env=os.environ, check=False)
    assert found.stdout.strip() == "[True, False, False, True] 2", found.stderr


def test_a_log_that_cannot_be_written_costs_no_message(office, tmp_path):
    with Receiver() as receiver:
        one = office(a=receiver.url)
        one.post.begin([])
        os.close(one.post._log._descriptor)
        one.post.put(replace(now(), version=1))
        one.until_idle()
        assert len(receiver.requests) == 1
        assert any("cannot be written" in words for words in one.said)
        one.post._log._descriptor = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
