"""Both ends together, over real sockets: what is sent arrives, once, in order, whatever happens between."""

import select
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from link_kit import SECRET, Ends, ends

from holdfast.link import heard
from holdfast.link.arrived import Entry, Joined, Left, Refused, Said, Silent
from holdfast.link.heard import Connected, Lost, Ordered
from holdfast.link.peers import Limits
from holdfast.link.spool import Spool


@pytest.fixture
def both():
    with ends() as made:
        yield made


def bodies(both: Ends) -> list[bytes]:
    return [entry.body for entry in both.of(Entry)]


def test_what_is_sent_arrives_in_order_and_once(both):
    hub = both.hub()
    link = both.link(hub)
    sent = [b"%d" % number * (number % 900) for number in range(2000)]
    for body in sent[:1000]:
        link.send(body)
    both.connect(link)
    for body in sent[1000:]:
        link.send(body)
    both.until(lambda: len(bodies(both)) == 2000)
    assert bodies(both) == sent
    [joined] = both.of(Joined)
    assert joined.peer == "node1"
    assert joined.role == "agent"
    assert joined.hello == b"hello of node1"
    assert joined.address == "127.0.0.1"
    assert link.local_address == "127.0.0.1"


def test_a_link_says_by_its_descriptor_that_it_has_something_to_do(both):
    hub = both.hub()
    unused = hub.addresses[0][0], 1  # nobody listens there
    link = both.link(where=lambda: [unused, *hub.addresses])
    for _ in range(20):  # no turn of either without a readable descriptor
        readable, _, _ = select.select([hub, link], [], [], 60.0)
        assert readable
        for end in readable:
            end.turn()
        if link.connected:
            break
    assert link.connected


def test_what_was_not_recorded_comes_again_to_the_next_controller_and_the_rest_does_not(both, tmp_path):
    both.records = False
    hub = both.hub()
    place = [hub]
    link = both.link(where=lambda: place[0].addresses, spool=Spool(tmp_path, both.clock))
    for number in range(10):
        link.send(b"%d" % number)
    both.until(lambda: len(bodies(both)) == 10)
    third = both.of(Entry)[2]
    hub.recorded(third.stream, third.seq)
    both.end([hub])
    both.arrived.clear()
    place[0] = both.hub(seen={third.stream: third.seq})  # another port: asked for anew
    link.send(b"10")
    both.until(lambda: link.connected and len(bodies(both)) == 8, step_s=0.1)
    assert bodies(both) == [b"%d" % number for number in range(3, 11)]
    assert len(both.told(link, Lost)) == 1
    assert len(both.told(link, Connected)) == 2


def test_what_many_agents_sent_is_acknowledged_with_the_beats(both, tmp_path):
    hub = both.hub(limits=Limits(prompt_acks=0, acks_a_second=1))
    spool = Spool(tmp_path, both.clock)
    link = both.link(hub, spool=spool)
    both.connect(link)
    both.pass_s(1.5)
    link.send(b"of which the controller is to keep a record")
    both.until(lambda: len(bodies(both)) == 1)
    for _ in range(20):
        both.turn()
    assert spool.read(0, 100)  # nobody has said that it is recorded
    both.pass_s(1.2)
    both.until(lambda: not spool.read(0, 100))


def test_an_agent_started_again_goes_on_with_its_stream(both, tmp_path):
    hub = both.hub()
    link = both.link(hub, spool=Spool(tmp_path, both.clock))
    link.send(b"first")
    both.until(lambda: len(bodies(both)) == 1)
    both.end([link])
    again = both.link(hub, spool=Spool(tmp_path, both.clock))
    again.send(b"second")
    both.until(lambda: len(bodies(both)) == 2)
    assert bodies(both) == [b"first", b"second"]
    assert len({entry.stream for entry in both.of(Entry)}) == 1


def test_orders_are_sent_until_they_are_done_and_delivered_once(both):
    hub = both.hub()
    hub.order("node1", "a", b"A")  # before it has joined
    hub.order("node1", "b", b"B")
    place = [hub]
    link = both.link(where=lambda: place[0].addresses)
    both.until(lambda: len(both.told(link, Ordered)) == 2)
    hub.order("node1", "a", b"A")
    link.done("a")
    hub.drop("node1", "to see what comes again")
    hub.order("node1", "c", b"C")
    both.until(lambda: len(both.told(link, Connected)) == 2, step_s=0.1)
    both.until(lambda: len(both.told(link, Ordered)) == 3)
    assert [order.id for order in both.told(link, Ordered)] == ["a", "b", "c"]
    hub.order("node1", "a", b"A")
    both.pass_s(2)
    assert len(both.told(link, Ordered)) == 3


def test_what_is_said_to_who_has_joined_is_there_before_its_orders(both):
    hub = both.hub()
    hub.order("node1", "a", b"A")
    link = both.link(hub)
    while not both.of(Joined):
        both.turn()
    hub.order("node1", "b", b"B")
    assert hub.say("node1", b"set up")
    both.until(lambda: len(both.heard[link]) == 4)
    assert both.heard[link][1:] == [heard.Said(b"set up"), Ordered("a", b"A"), Ordered("b", b"B")]


def test_an_order_that_is_not_done_goes_to_the_next_process_of_the_agent(both, tmp_path):
    hub = both.hub()
    link = both.link(hub, spool=Spool(tmp_path, both.clock))
    hub.order("node1", "a", b"A")
    hub.order("node1", "b", b"B")
    hub.order("node1", "old", b"O")
    both.until(lambda: len(both.told(link, Ordered)) == 3)
    link.done("a")
    both.pass_s(0.5)
    both.end([link])
    hub.forget_orders("node1", "ol")
    again = both.link(hub, spool=Spool(tmp_path, both.clock))
    both.until(lambda: len(both.told(again, Ordered)) == 1)
    both.pass_s(1)
    assert both.told(again, Ordered) == [Ordered("b", b"B")]


def test_things_said_are_not_kept(both):
    hub = both.hub()
    link = both.link(hub, name="", role="client")
    assert not link.say(b"nobody is there")
    both.connect(link)
    both.until(lambda: len(both.of(Joined)) == 1)
    assert link.say(b"up")
    assert hub.say(link.name, b"down")
    assert not hub.say("nobody", b"down")
    both.until(lambda: both.of(Said) and len(both.heard[link]) == 2)
    assert both.of(Said)[0].body == b"up"
    assert both.heard[link][1].body == b"down"


def test_goodbye_is_reported_after_all_that_was_sent(both):
    hub = both.hub()
    link = both.link(hub)
    both.connect(link)
    for _ in range(300):
        link.send(b"x" * 9000)
    with ThreadPoolExecutor(1) as pool:  # the link waits, the hub turns
        both.links.remove(link)
        closing = pool.submit(link.close, 5.0)
        both.until(lambda: bool(both.of(Left)))
        closing.result()
    assert both.of(Left)[0].said_goodbye
    assert len(bodies(both)) == 300
    both.pass_s(10)
    assert not both.of(Silent)


def test_silence_is_reported_once_and_again_when_it_was_broken(both):
    hub = both.hub()
    link = both.link(hub)
    both.connect(link)
    both.pass_s(2)
    assert not both.of(Silent)
    both.links.remove(link)  # the process is stopped
    both.pass_s(5)
    [silent] = both.of(Silent)
    assert silent.peer == "node1"
    assert 3 < silent.for_s < 4
    assert hub.silent_s("node1") > 4
    both.links.append(link)
    both.pass_s(3)
    assert hub.silent_s("node1") < 2
    both.links.remove(link)
    both.pass_s(40)
    assert len(both.of(Silent)) == 2
    [left] = both.of(Left)
    assert not left.said_goodbye
    both.links.append(link)


def test_an_agent_that_hears_nothing_tries_again(both):
    hub = both.hub()
    link = both.link(hub)
    both.connect(link)
    both.hubs.remove(hub)  # the controller's process is stopped; the kernel still takes connections
    both.pass_s(6)
    assert not link.connected
    assert "no message from" in both.told(link, Lost)[0].why
    both.hubs.append(hub)
    both.until(lambda: link.connected, step_s=0.1)
    assert len(both.of(Joined)) == 2


def test_a_controller_that_has_moved_is_found_while_the_old_one_is_only_silent(both):
    silent = both.hub()
    told = [*silent.addresses]
    link = both.link(where=lambda: told)
    both.connect(link)
    both.hubs.remove(silent)  # its machine has lost its power: nothing is closed
    both.pass_s(1.5)
    begun_s = both.clock.now_s
    told.insert(0, both.hub().addresses[0])  # the old one is still known to who was started with it
    both.until(lambda: len(both.of(Joined)) == 2, step_s=0.1)
    assert both.clock.now_s - begun_s < 3.0
    both.hubs.append(silent)


def test_an_address_that_does_not_answer_is_given_up_once_another_is_known(both):
    with ExitStack() as full:  # its queue is full: it takes no connection, and refuses none
        deaf = full.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(2):
            one = full.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(deaf.getsockname())
        told = [deaf.getsockname()]
        link = both.link(where=lambda: told)
        both.pass_s(1.5)
        begun_s = both.clock.now_s
        told.insert(0, both.hub().addresses[0])
        both.until(lambda: both.of(Joined) != [], step_s=0.1)
        assert both.clock.now_s - begun_s < 2.0
        both.connect(link)


def test_clocks_hours_apart_are_reported_and_do_no_harm(both):
    hub = both.hub()
    link = both.link(hub, clock=lambda: both.clock() + 7200.0)
    both.connect(link)
    both.pass_s(3)
    assert hub.offset_s("node1") == pytest.approx(7200.0, abs=0.2)
    link.send(b"x")
    both.until(lambda: bodies(both) == [b"x"])
    assert not both.of(Left)


def test_a_name_used_twice_is_refused_while_the_first_lives(both):
    hub = both.hub()
    first = both.link(hub)
    both.connect(first)
    second = both.link(hub)
    both.until(lambda: bool(both.heard[second]))
    assert "used twice" in both.heard[second][0].why
    assert both.of(Refused)
    assert first.connected
    both.links.remove(first)  # silent now: the other one is taken
    both.until(lambda: second.connected, step_s=0.1)
    both.links.append(first)


def test_a_stranger_and_another_secret_are_refused(both):
    hub = both.hub()
    link = both.link(hub, secret=SECRET[::-1])
    both.until(lambda: bool(both.heard[link] and both.of(Refused)))
    assert "secret" in both.heard[link][0].why
    assert "secret" in both.of(Refused)[0].why
    assert not link.connected
