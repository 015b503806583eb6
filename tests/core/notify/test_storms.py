"""Storms are bounded, and equal incidents of several jobs are one message."""

import pytest
from msgspec.structs import replace

from holdfast.core.notify.outbox import Channel, Outbox
from holdfast.core.notify.storms import CAUSE_S, STORM_NOTICES, STORM_S, Storms
from holdfast.model.documents.notices import Attempted, Delivered, Failed, Joined
from notices_kit import made


class Office:
    """An outbox and its bound, with receivers that take everything, or nothing. One message a turn, as in the real one."""

    def __init__(self, can_update=True, unbounded=()):
        self.box = Outbox([Channel(name="ops", can_update=can_update)], lambda: 0.5)
        self.storms = Storms(unbounded)
        self.sent = []
        self.is_down = False

    def turn(self, at_s):
        for send in self.storms.joined(self.box.due(at_s), at_s)[:1]:
            notices = send.joined or (send.notice,)
            for one in notices:
                self.box.heard(
                    Attempted(notice=one.id, channel="ops", version=one.version, at_s=at_s, count=send.count)
                )
            if self.is_down:
                first = send.joined[0] if send.joined else send.notice
                retry_at_s, in_a_row = self.box.retry(replace(send, notice=first), at_s)
                for one in notices:
                    self.box.heard(
                        Failed(
                            notice=one.id,
                            channel="ops",
                            version=one.version,
                            at_s=at_s,
                            count=send.count,
                            why="down",
                            retry_at_s=retry_at_s,
                            in_a_row=in_a_row,
                        )
                    )
                continue
            self.sent.append((at_s, send))
            self.storms.delivered(send)
            for one in notices:
                kind = (
                    Joined(notice=one.id, channel="ops", version=one.version, at_s=at_s, into=send.notice.id)
                    if send.joined
                    else Delivered(
                        notice=one.id,
                        channel="ops",
                        version=one.version,
                        at_s=at_s,
                        reference=f"m{len(self.sent)}",
                    )
                )
                self.box.heard(kind)

    def run(self, from_s, to_s):
        for tenth in range(round(10 * (to_s - from_s))):
            self.turn(from_s + tenth / 10)

    @property
    def singles(self):
        return [send for _, send in self.sent if not send.joined]

    @property
    def digests(self):
        return [send for _, send in self.sent if send.joined]


@pytest.mark.parametrize("can_update", [True, False])
@pytest.mark.parametrize("spread_s", [0.0, 0.5])
def test_a_hundred_incidents_in_a_minute_are_five_messages_and_one_with_the_count(spread_s, can_update):
    office = Office(can_update)
    for number in range(100):
        at_s = 1_000.0 + spread_s * number
        office.box.put(made(f"j{number}/incident-1", at_s=at_s, job=f"j{number}"), ("ops",))
        office.run(at_s, at_s + max(spread_s, 0.1))
    office.run(1_000.0 + 100 * max(spread_s, 0.1), 1_000.0 + STORM_S + 1)
    assert len(office.singles) == STORM_NOTICES
    (digest,) = office.digests
    assert len(digest.joined) == 95
    assert digest.notice.title.en == "95 notices"
    assert "95 notices within a minute, of 95 jobs: 95 × incident." in digest.notice.sentence.text.en
    assert "95 条通知" in digest.notice.sentence.text.zh
    assert office.box.is_idle


def test_updates_of_sent_notices_go_out_in_a_storm():
    office = Office()
    for number in range(20):
        office.box.put(made(f"n{number}"), ("ops",))
    office.run(1_000.0, 1_010.0)
    told = office.singles[0].notice
    office.box.put(made(told.id, 2), ("ops",))
    office.run(1_010.0, 1_011.0)
    assert office.singles[-1].is_update and office.singles[-1].notice.version == 2


def test_follow_ups_count_where_a_receiver_cannot_update():
    office = Office(can_update=False)
    for number in range(5):
        office.box.put(made(f"n{number}"), ("ops",))
    office.run(1_000.0, 1_002.0)
    for number in range(5):
        office.box.put(made(f"n{number}", 2), ("ops",))
    office.run(1_002.0, 1_059.0)
    assert len(office.sent) == 5
    office.run(1_059.0, 1_062.0)
    assert [len(send.joined) for send in office.digests] == [5]


def test_a_digest_that_fails_is_tried_again_as_a_whole():
    office = Office()
    for number in range(50):
        office.box.put(made(f"n{number}"), ("ops",))
    office.run(1_000.0, 1_059.0)
    office.is_down = True
    office.run(1_059.0, 1_065.0)
    office.is_down = False
    office.run(1_065.0, 1_120.0)
    assert (len(office.singles), [len(one.joined) for one in office.digests]) == (5, [45])


def test_single_messages_that_fail_are_tried_again_within_the_same_bound():
    office = Office()
    office.is_down = True
    for number in range(50):
        office.box.put(made(f"n{number}"), ("ops",))
    office.run(1_000.0, 1_030.0)
    office.is_down = False
    office.run(1_030.0, 1_130.0)
    assert len(office.singles) == 5
    assert sum(len(one.joined) for one in office.digests) == 45


def test_equal_incidents_of_several_jobs_are_one_message():
    office = Office()
    for number in range(40):
        office.box.put(made(f"j{number}/incident-1", job=f"j{number}", cause="storage: EIO"), ("ops",))
    office.run(1_000.0, 1_005.0)
    assert [len(send.joined) for _, send in office.sent] == [40]


def test_equal_incidents_that_come_later_wait_for_each_other():
    office = Office()
    for number in range(10):
        at_s = 1_000.0 + number
        office.box.put(
            made(f"j{number}/incident-1", at_s=at_s, job=f"j{number}", cause="storage: EIO"), ("ops",)
        )
        office.run(at_s, at_s + 1.0)
    assert len(office.sent) == 1
    office.run(1_010.0, 1_000.0 + CAUSE_S + 2)
    assert [len(send.joined) for _, send in office.sent] == [0, 9]


def test_two_incidents_of_one_job_do_not_wait_for_each_other():
    office = Office()
    office.box.put(made("j/incident-1", cause="x"), ("ops",))
    office.run(1_000.0, 1_001.0)
    office.box.put(made("j/incident-2", cause="x"), ("ops",))
    office.run(1_001.0, 1_002.0)
    assert len(office.singles) == 2


def test_a_channel_that_groups_by_itself_gets_everything():
    office = Office(unbounded=("ops",))
    for number in range(30):
        office.box.put(made(f"n{number}"), ("ops",))
    office.run(1_000.0, 1_010.0)
    assert len(office.singles) == 30


def test_a_digest_has_the_weight_of_its_worst_and_leads_to_all_jobs():
    office = Office()
    for number in range(7):
        severity = "critical" if number == 6 else "warning"
        link = f"https://hf.example/jobs/j{number}/incidents/1"
        office.box.put(made(f"n{number}", job=f"j{number}", severity=severity, link=link), ("ops",))
    office.run(1_000.0, 1_062.0)
    (digest,) = office.digests
    assert digest.notice.severity == "critical"
    assert digest.notice.link == "https://hf.example"
    assert digest.notice.facts[0][1].en == "j5, j6"
    assert digest.key.startswith("digest-")
