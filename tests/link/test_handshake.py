"""The handshake alone: who proves himself gets in, and nobody else; nothing can be used twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.link.frames import Opener, Sealer
from holdfast.link.handshake import AgentSide, ControllerSide, Refusal, Step

SECRET, OTHER = b"s" * 32, b"o" * 32
NONCE, NONCE2, NONCE3 = b"1" * 32, b"2" * 32, b"3" * 32


def shaken(agent: AgentSide, controller: ControllerSide) -> tuple[Step, Step]:
    """What both have at the end. raises: Refusal"""
    challenge = controller.feed(agent.begin())
    answer = agent.feed(challenge.send)
    return answer, controller.feed(answer.send)


def test_both_get_the_same_keys_and_nothing_secret_travels():
    agent, controller = AgentSide(SECRET, NONCE, 1), ControllerSide(SECRET, NONCE2, 1)
    wire = agent.begin()
    challenge = controller.feed(wire)
    answer = agent.feed(challenge.send)
    at_end = controller.feed(answer.send + b"what follows")
    assert answer.keys and at_end.keys
    assert (answer.keys.ours, answer.keys.theirs) == (at_end.keys.theirs, at_end.keys.ours)
    assert answer.keys.ours != answer.keys.theirs
    assert at_end.rest == b"what follows"
    travelled = wire + challenge.send + answer.send
    assert SECRET not in travelled and answer.keys.ours not in travelled


@given(st.lists(st.integers(0, 100), max_size=8))
def test_it_works_however_the_bytes_are_cut(places):
    agent, controller = AgentSide(SECRET, NONCE, 1), ControllerSide(SECRET, NONCE2, 1)

    def fed(side: AgentSide | ControllerSide, data: bytes) -> Step:
        ends = sorted({0, len(data), *(place for place in places if place < len(data))})
        steps = [side.feed(data[start:end]) for start, end in zip(ends, ends[1:], strict=False)]
        return Step(b"".join(step.send for step in steps), steps[-1].keys, steps[-1].rest)

    answer = fed(agent, fed(controller, agent.begin()).send)
    assert answer.keys and fed(controller, answer.send).keys


def test_another_secret_is_refused_by_both():
    agent, controller = AgentSide(SECRET, NONCE, 1), ControllerSide(OTHER, NONCE2, 1)
    with pytest.raises(
        Refusal, match="does not have this job's secret, or ours is that of another job"
    ) as told:
        shaken(agent, controller)
    with pytest.raises(Refusal, match="it says: the secrets of the two sides differ"):
        controller.feed(told.value.tell)


def test_a_stranger_who_makes_up_a_proof_is_refused():
    controller = ControllerSide(SECRET, NONCE2, 1)
    stranger, his = AgentSide(OTHER, NONCE, 1), ControllerSide(OTHER, NONCE2, 1)
    answer, _ = shaken(stranger, his)
    controller.feed(stranger.begin())
    with pytest.raises(Refusal, match="does not have this job's secret"):
        controller.feed(answer.send)


def test_what_was_heard_on_an_earlier_connection_is_of_no_use():
    agent = AgentSide(SECRET, NONCE, 1)
    answer, _ = shaken(agent, ControllerSide(SECRET, NONCE2, 1))
    later = ControllerSide(SECRET, NONCE3, 1)
    later.feed(agent.begin())
    with pytest.raises(Refusal):
        later.feed(answer.send)
    earlier = ControllerSide(SECRET, NONCE2, 1).feed(agent.begin())
    with pytest.raises(Refusal):
        AgentSide(SECRET, NONCE3, 1).feed(earlier.send)


def test_a_proof_sent_back_to_who_made_it_is_refused():
    agent = AgentSide(SECRET, NONCE, 1)
    agent.begin()
    own = ControllerSide(SECRET, NONCE, 1).feed(agent.begin()).send
    answer = AgentSide(SECRET, NONCE, 1).feed(own).send
    controller = ControllerSide(SECRET, NONCE, 1)
    controller.feed(agent.begin())
    with pytest.raises(Refusal):
        controller.feed(own[40:])
    assert answer != own[40:]


def test_frames_of_one_direction_do_not_fit_the_other():
    answer, at_end = shaken(AgentSide(SECRET, NONCE, 1), ControllerSide(SECRET, NONCE2, 1))
    assert answer.keys and at_end.keys
    sent = Sealer(answer.keys.ours).seal(1, b"x")
    assert list(Opener(at_end.keys.theirs).feed(sent))
    with pytest.raises(Exception, match="forged"):
        list(Opener(answer.keys.theirs).feed(sent))


@pytest.mark.parametrize("ours, theirs", [(1, 2), (7, 1)])
def test_another_protocol_is_refused_with_both_numbers(ours, theirs):
    agent, controller = AgentSide(SECRET, NONCE, ours), ControllerSide(SECRET, NONCE2, theirs)
    with pytest.raises(
        Refusal, match=f"the peer speaks protocol {ours} and this controller protocol {theirs}"
    ) as told:
        controller.feed(agent.begin())
    with pytest.raises(
        Refusal, match=f"the controller speaks protocol {theirs} and this agent protocol {ours}"
    ):
        agent.feed(told.value.tell)


@pytest.mark.parametrize(
    "first, why",
    [
        (b"GET / HTTP/1.1\r\n", "does not use Holdfast's protocol"),
        (b"\x16\x03\x01\x02\x00", "the peer uses TLS"),
        (b"\n", "does not use"),
        (b"HFLX", "does not use"),
    ],
)
def test_who_speaks_something_else_is_refused_at_once(first, why):
    with pytest.raises(Refusal, match=why):
        ControllerSide(SECRET, NONCE, 1).feed(first)


@given(st.binary(min_size=1, max_size=600))
def test_no_bytes_get_in_or_break_it(data):
    for side in (ControllerSide(SECRET, NONCE, 1), AgentSide(SECRET, NONCE, 1)):
        controller = ControllerSide(SECRET, NONCE2, 1)
        try:
            if isinstance(side, ControllerSide):
                side.feed(AgentSide(SECRET, NONCE3, 1).begin())
            assert side.feed(data).keys is None
            assert controller.feed(data).keys is None
        except Refusal as refusal:
            assert str(refusal).isprintable()
