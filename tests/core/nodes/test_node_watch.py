"""What follows from silence, rule by rule."""

import pytest

from holdfast.core.nodes.watch import (
    IN_CONTACT,
    AgentAgain,
    Ask,
    Contact,
    Lost,
    Note,
    Settings,
    agent_ended,
    alive,
    heard,
    held_up,
    look,
    look_for_agent,
    silent,
)

SETTINGS = Settings()


@pytest.mark.parametrize(
    ("contact", "at_s", "kinds"),
    [
        (IN_CONTACT, 1000.0, []),
        (silent(IN_CONTACT, 100.0), 102.0, []),
        (silent(IN_CONTACT, 100.0), 103.0, [Note, Ask]),
        (silent(IN_CONTACT, 100.0, closed=True), 100.0, [Ask]),
        (silent(IN_CONTACT, 100.0, closed=True), 103.0, [Note, Ask]),
        (agent_ended(IN_CONTACT, 100.0), 100.0, [Ask, AgentAgain]),
        (silent(IN_CONTACT, 100.0), 111.9, [Note, Ask]),
        (silent(IN_CONTACT, 100.0), 112.0, [Lost]),
        (alive(silent(IN_CONTACT, 100.0), 105.0), 112.0, [Lost]),
        (Contact(silent_since_s=100.0, allowed_s=45.0, noted=True), 112.0, [Ask]),
        (Contact(silent_since_s=100.0, allowed_s=45.0, noted=True), 145.0, [Lost]),
        (held_up(silent(IN_CONTACT, 100.0), 30.0), 132.0, []),
        (held_up(IN_CONTACT, 30.0), 132.0, []),
    ],
)
def test_what_follows_from_silence(contact, at_s, kinds):
    _, steps = look("n1", contact, at_s, SETTINGS)
    assert [type(step) for step in steps] == kinds


def test_silence_is_noted_once_and_asked_about_again_and_again():
    contact, notes, asked_s = silent(IN_CONTACT, 100.0), 0, []
    for second in range(12):
        contact, steps = look("n1", contact, 100.0 + second, SETTINGS)
        notes += sum(isinstance(step, Note) for step in steps)
        asked_s += [100.0 + second for step in steps if isinstance(step, Ask)]
    assert (notes, asked_s) == (1, [103.0, 106.0, 109.0])


def test_a_word_ends_the_silence():
    contact, _ = look("n1", silent(IN_CONTACT, 100.0), 105.0, SETTINGS)
    assert look("n1", heard(contact), 200.0, SETTINGS)[1] == ()


def test_the_reason_of_a_loss_says_what_the_engine_said():
    _, (step,) = look("n1", alive(silent(IN_CONTACT, 100.0), 105.0), 112.0, SETTINGS)
    assert isinstance(step, Lost)
    assert "12 s" in step.reason
    assert "is up" in step.reason


def test_an_agent_that_ends_again_and_again_is_started_ever_more_seldom():
    contact, started_s = IN_CONTACT, []
    for tenth in range(600):
        at_s = 100.0 + tenth / 10
        contact, is_again = look_for_agent(agent_ended(contact, at_s), at_s, SETTINGS)
        if is_again:
            started_s.append(at_s)
            contact = heard(contact)
    gaps = [round(after - before) for before, after in zip(started_s, started_s[1:], strict=False)]
    assert gaps[:4] == [2, 4, 8, 16]


def started(contact, at_s):
    """With another agent on its way."""
    contact, steps = look("n1", contact, at_s, SETTINGS)
    assert any(isinstance(step, AgentAgain) for step in steps)
    return contact


def test_a_busy_node_may_take_its_time_to_start_another_agent():
    contact = started(agent_ended(silent(IN_CONTACT, 100.0, closed=True), 101.0), 101.0)
    assert look("n1", contact, 129.9, SETTINGS)[1] == (
        Note("n1 has sent nothing for 30 s; it is lost after 30 s"),
        Ask(),
    )
    assert [type(step) for step in look("n1", contact, 130.0, SETTINGS)[1]] == [Lost]


def test_one_that_ends_again_does_not_lengthen_it():
    contact = started(agent_ended(IN_CONTACT, 100.0), 100.0)
    assert [type(step) for step in look("n1", agent_ended(contact, 113.0), 113.0, SETTINGS)[1]] == [Lost]


def test_a_node_that_fell_silent_first_is_waited_for_no_longer_than_others():
    contact = started(agent_ended(silent(IN_CONTACT, 100.0), 104.0), 104.0)
    assert [type(step) for step in look("n1", contact, 112.0, SETTINGS)[1]] == [Lost]


def test_an_agent_that_lived_long_is_started_at_once():
    contact, _ = look_for_agent(agent_ended(IN_CONTACT, 100.0), 100.0, SETTINGS)
    contact = heard(contact)
    assert look_for_agent(agent_ended(contact, 300.0), 300.0, SETTINGS)[1]
