"""The outbox: nothing is lost and nothing is sent twice, whatever happens to the process and the receivers."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.notify.outbox import (
    AFTER_S_MAX,
    FIRST_PAUSE_S,
    GIVE_UP_S,
    PAUSE_S_MAX,
    Channel,
    Outbox,
)
from holdfast.model.documents.notices import Attempted, Delivered, Failed, Joined
from notices_kit import made

CHANNELS = (Channel(name="card", can_update=True), Channel(name="mail", can_update=False))
NAMES = tuple(channel.name for channel in CHANNELS)


def outbox():
    return Outbox(CHANNELS, lambda: 0.5)


def begin(box, send, at_s=1_000.0):
    row = Attempted(
        notice=send.notice.id, channel=send.channel, version=send.notice.version, at_s=at_s, count=send.count
    )
    box.heard(row)
    return row


def arrive(box, send, at_s=1_000.0, reference="m1"):
    row = Delivered(
        notice=send.notice.id,
        channel=send.channel,
        version=send.notice.version,
        at_s=at_s,
        reference=reference,
    )
    box.heard(row)
    return row


def fail(box, send, at_s, after_s=None, *, final=False):
    retry_at_s, in_a_row = (None, 0) if final else box.retry(send, at_s, after_s)
    row = Failed(
        notice=send.notice.id,
        channel=send.channel,
        version=send.notice.version,
        at_s=at_s,
        count=send.count,
        why="x",
        retry_at_s=retry_at_s,
        in_a_row=in_a_row,
    )
    box.heard(row)
    return row


def due(box, at_s=1_000.0, channel=None):
    return [send for send in box.due(at_s) if channel in (None, send.channel)]


def test_a_notice_goes_to_its_channels_once():
    box = outbox()
    box.put(made(), NAMES)
    sends = due(box)
    assert {send.channel for send in sends} == set(NAMES)
    assert {send.key for send in sends} == {"llama/incident-1/1/card", "llama/incident-1/1/mail"}
    for send in sends:
        begin(box, send)
        assert send not in due(box)
        arrive(box, send)
    assert due(box) == []
    assert box.is_idle


def test_a_card_is_updated_with_each_version_and_a_mail_follows_milestones_only():
    box = outbox()
    box.put(made(), NAMES)
    for send in due(box):
        begin(box, send)
        arrive(box, send)
    box.put(made(version=2, is_milestone=False), NAMES)
    (card,) = due(box)
    assert (card.channel, card.reference, card.is_update, card.notice.version) == ("card", "m1", True, 2)
    arrive(box, card)
    box.put(made(version=3), NAMES)
    assert [(send.channel, send.notice.version, send.is_update, send.reference) for send in due(box)] == [
        ("card", 3, True, "m1"),
        ("mail", 3, False, "m1"),
    ]


def test_old_news_is_replaced_by_the_newest():
    box = outbox()
    for version in (1, 2, 3):
        box.put(made(version=version, is_milestone=version != 3), NAMES)
    assert {send.notice.version for send in due(box)} == {3}


def test_a_card_hears_of_the_end_even_where_no_rule_names_it():
    box = outbox()
    box.put(made(), NAMES)
    for send in due(box):
        begin(box, send)
        arrive(box, send)
    box.put(made(version=2, severity="info", is_over=True), ())
    assert [send.channel for send in due(box)] == ["card"]
    assert box.delivered_to("mail") and not box.delivered_to("card")


def test_a_channel_that_fails_pauses_as_a_whole_and_longer_each_time():
    box, at_s, pauses = outbox(), 1_000.0, []
    box.put(made("a"), NAMES)
    box.put(made("b", at_s=1_001.0), NAMES)
    for _ in range(12):
        send = due(box, at_s, "mail")[0]
        begin(box, send, at_s)
        row = fail(box, send, at_s)
        assert due(box, at_s, "mail") == []  # neither this notice nor the other
        assert [one.channel for one in due(box, at_s)] == ["card", "card"]
        pauses.append(row.retry_at_s - at_s)
        at_s = row.retry_at_s
    assert pauses[0] == FIRST_PAUSE_S and pauses[-1] == PAUSE_S_MAX
    assert pauses == sorted(pauses)


def test_what_one_notice_makes_a_receiver_stumble_over_does_not_keep_the_others_back():
    box, at_s = outbox(), 1_000.0
    box.put(made("bad"), ("mail",))
    box.put(made("good", at_s=1_001.0), ("mail",))
    tried = []
    for _ in range(2):
        send = due(box, at_s)[0]
        tried.append(send.notice.id)
        begin(box, send, at_s)
        at_s = fail(box, send, at_s).retry_at_s
    assert tried == ["bad", "good"]


@pytest.mark.parametrize(("asked_s", "waits_s"), [(90.0, 90.0), (0.5, FIRST_PAUSE_S), (1e9, AFTER_S_MAX)])
def test_a_receiver_that_asks_for_a_pause_gets_it(asked_s, waits_s):
    box = outbox()
    box.put(made(), ("mail",))
    (send,) = due(box)
    begin(box, send)
    assert fail(box, send, 1_000.0, asked_s).retry_at_s == 1_000.0 + waits_s


def test_a_receiver_that_is_down_for_an_hour_gets_everything_afterwards():
    box, at_s, delivered = outbox(), 1_000.0, []
    for number in range(20):
        box.put(made(f"n{number}", at_s=1_000.0 + number), ("mail",))
    tries = 0
    while at_s < 4_600.0:
        for send in due(box, at_s)[:1]:
            tries += 1
            begin(box, send, at_s)
            fail(box, send, at_s)
        at_s += 1.0
    assert 12 <= tries <= 30  # not one a second
    for _ in range(PAUSE_S_MAX.__ceil__() + 20):
        for send in due(box, at_s)[:1]:
            begin(box, send, at_s)
            delivered.append(arrive(box, send, at_s).notice)
        at_s += 1.0
    assert sorted(delivered) == sorted(f"n{number}" for number in range(20))


def test_it_gives_up_after_a_day_and_tries_a_new_version_again():
    box, at_s = outbox(), 1_000.0
    box.put(made(), ("mail",))
    row, tries = None, 0
    while row is None or row.retry_at_s is not None:
        (send,) = due(box, at_s)
        begin(box, send, at_s)
        row, tries = fail(box, send, at_s), tries + 1
        at_s = row.retry_at_s or at_s
    assert at_s - 1_000.0 > GIVE_UP_S
    assert tries < 400
    assert box.is_idle and due(box, at_s + 1e6) == []
    box.put(made(version=2, at_s=at_s), ("mail",))
    (send,) = due(box, at_s)
    begin(box, send, at_s)
    assert fail(box, send, at_s).retry_at_s is not None


def test_what_is_refused_is_not_tried_again_and_does_not_pause_the_channel():
    box = outbox()
    box.put(made("a"), ("mail",))
    box.put(made("b"), ("mail",))
    first, second = due(box)
    begin(box, first)
    fail(box, first, 1_000.0, final=True)
    assert due(box) == [second]


def test_what_happened_a_day_before_it_is_found_is_sent_to_nobody():
    box = outbox()
    box.put(made(at_s=1_000.0), NAMES)
    assert due(box, 1_000.0 + GIVE_UP_S + 1) == []
    assert box.is_idle


def test_a_log_of_a_notice_that_comes_later_is_believed():
    box = outbox()
    box.heard(Delivered(notice="llama/silence-7", channel="mail", version=1, at_s=900.0))
    box.put(made("llama/silence-7"), ("mail",))
    assert due(box) == []


def test_rows_of_channels_that_are_gone_are_ignored():
    box = outbox()
    box.heard(Delivered(notice="x", channel="old", version=1, at_s=900.0))
    box.put(made("x"), ("old",))
    assert due(box) == []


def test_a_joined_notice_counts_as_sent_and_its_milestones_follow():
    box = outbox()
    box.put(made(), ("card",))
    box.heard(Joined(notice="llama/incident-1", channel="card", version=1, at_s=1_000.0, into="digest"))
    assert due(box) == []
    box.put(made(version=2, is_milestone=False), ("card",))
    assert due(box) == []
    box.put(made(version=3), ("card",))
    (send,) = due(box)
    assert (send.notice.version, send.reference, send.is_update) == (3, "", False)


class History:
    """One random history: versions, failures, and deaths between any two steps. The log survives, memory does not."""

    def __init__(self, seed):
        self.dice = random.Random(seed)
        self.journal, self.log, self.arrived, self.unsure = [], [], [], []
        self.box, self.at_s = outbox(), 1_000.0
        self.plan = [
            made(f"n{number}", version, at_s=1_000.0, is_milestone=version == 1 or self.dice.random() < 0.6)
            for number in range(4)
            for version in range(1, 1 + self.dice.randrange(1, 5))
        ]
        self.plan.sort(key=lambda notice: (notice.version, self.dice.random()))

    def die(self):
        self.box = outbox()
        for notice in self.journal:
            self.box.put(notice, NAMES)
        for row in self.log:
            self.box.heard(row)
        self.box.restarted()

    def step(self):
        self.at_s += self.dice.uniform(0.0, 60.0)
        if self.plan and self.dice.random() < 0.4:
            self.journal.append(self.plan.pop(0))
            self.box.put(self.journal[-1], NAMES)
        if self.dice.random() < 0.1:
            self.die()
        for send in self.box.due(self.at_s)[:1]:
            self.log.append(begin(self.box, send, self.at_s))
            outcome = self.dice.random()
            if outcome < 0.15:
                self.die()  # before it was sent
            elif outcome < 0.3:
                self.unsure.append(self.arrive(send))
                self.die()  # after it was sent, before that is in the log
            elif outcome < 0.5:
                self.log.append(fail(self.box, send, self.at_s))
            else:
                self.arrive(send)
                self.log.append(arrive(self.box, send, self.at_s))

    def settle(self):
        """The receivers are well again, and nobody dies."""
        for _ in range(100):
            self.at_s += PAUSE_S_MAX
            for send in self.box.due(self.at_s):
                self.log.append(begin(self.box, send, self.at_s))
                self.arrive(send)
                self.log.append(arrive(self.box, send, self.at_s))

    def arrive(self, send):
        self.arrived.append((send.channel, send.notice.id, send.notice.version))
        return self.arrived[-1]

    def newest(self, channel, name):
        return max((one[2] for one in self.arrived if one[:2] == (channel, name)), default=0)


@given(st.integers(0, 10_000))
def test_nothing_is_lost_and_nothing_doubled_whenever_it_dies(seed):
    history = History(seed)
    for _ in range(150):
        history.step()
    assert not history.plan
    history.settle()
    assert history.box.is_idle
    for notice in history.journal:
        assert history.newest("card", notice.id) >= notice.version
        if notice.is_milestone:
            assert history.newest("mail", notice.id) >= notice.version
    arrived, unsure = history.arrived, history.unsure
    assert [one for one in set(arrived) if arrived.count(one) > 1 + unsure.count(one)] == []
