"""Calls between clients and agents: who is asked, who answers, what is written down."""

import pytest

from holdfast.controller.calls import ANSWER_S, CALLS_MAX, CallRelay, JobNow
from holdfast.model.calls import (
    AskCall,
    AskPlaces,
    BeginCall,
    CallEnded,
    CallPlaces,
    CallRefused,
    CancelCall,
    Output,
    OutputTaken,
    Program,
    StackLook,
    Terminal,
    Typed,
    TypedTaken,
    WindowSize,
)
from holdfast.model.nodes.workers import PortFound
from holdfast.parsers.call_words import decode, encode

CLIENT = "client-1"
RUN = Program(command=("nvidia-smi", "-q"), limit_s=30.0)


class Control:
    """A relay, what it said to whom, and what it wrote down. Workers 0-2 on node-0 to node-2; node-3 is a spare."""

    def __init__(self):
        self.workers = {worker: f"node-{worker}" for worker in range(3)}
        self.connected = {"node-0", "node-1", "node-2", "node-3", CLIENT, "client-2"}
        self.ended = ""
        self.said, self.notes, self.now_s = [], [], 1000.0
        self.silent = {}
        self.relay = CallRelay(
            self._say,
            self._now,
            lambda *note: self.notes.append(note),
            lambda: self.now_s,
            lambda peer: self.silent.get(peer, 0.0),
        )

    def _say(self, peer, body):
        if peer in self.connected:
            self.said.append((peer, decode(body)))
        return peer in self.connected

    def _now(self):
        nodes = {one for one in self.connected if one.startswith("node")}
        return JobNow("llama", 2, self.ended, self.workers, nodes, ("node-3", "node-4"))

    def hear(self, peer, word):
        """What was said because of it."""
        self.said.clear()
        assert self.relay.hear(peer, encode(word))
        return list(self.said)

    def ask(self, what=RUN, call="c1", peer=CLIENT, **more):
        return self.hear(peer, AskCall(call=call, what=what, by="root@login", **more))

    def leave(self, peer):
        self.said.clear()
        self.connected.discard(peer)
        self.relay.left(peer)
        return list(self.said)


@pytest.fixture
def control():
    return Control()


def ended(node, call="c1", **more):
    return CallEnded(call=call, node=node, worker=None, outcome="exited", code=0, **more)


def begun(said):
    return {peer: word for peer, word in said if isinstance(word, BeginCall)}


def test_all_workers_unless_some_are_named(control):
    said = control.ask()
    assert said[0][0] == CLIENT
    assert [(place.worker, place.node) for place in said[0][1].places] == [
        (0, "node-0"),
        (1, "node-1"),
        (2, "node-2"),
    ]
    assert {peer: word.worker for peer, word in begun(said).items()} == {
        "node-0": 0,
        "node-1": 1,
        "node-2": 2,
    }
    assert set(begun(control.ask(call="c2", workers=(1,), nodes=("node-3", "node-1")))) == {
        "node-1",
        "node-3",
    }
    assert set(begun(control.ask(call="c3", nodes=("node-3",)))) == {"node-3"}


def test_places_are_said_and_nothing_is_run(control):
    (answer,) = control.hear(CLIENT, AskPlaces(call="p", workers=(2,)))
    assert answer[0] == CLIENT and isinstance(answer[1], CallPlaces)
    assert (answer[1].job, answer[1].attempt) == ("llama", 2)
    assert control.notes == []


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"workers": (1, 4, 5)}, "job llama has no worker 4-5: its workers are 0-2"),
        (
            {"nodes": ("gpu-9",)},
            "job llama has no node gpu-9: its nodes are node-0, node-1, node-2, node-3, node-4",
        ),
        ({"what": Terminal()}, "a terminal needs one node, not 3"),
        (
            {"what": Program(command=("x" * 200_000,))},
            "a command of 200000 bytes is too long: the maximum is 131072",
        ),
        ({"what": Program(command=("x",), limit_s=-1)}, "a time limit of -1 s is not between"),
        ({"what": Program(command=("x",), limit_s=float("nan"))}, "a time limit of nan s is not between"),
    ],
)
def test_what_is_refused_is_neither_run_nor_written_down(control, asked, why):
    ((peer, word),) = control.ask(**asked)
    assert peer == CLIENT and isinstance(word, CallRefused) and why in word.why
    assert control.notes == []


def test_a_job_that_has_ended_refuses(control):
    control.ended = "failed"
    ((_, word),) = control.ask()
    assert word.why == "job llama has ended (failed): no command can be run in it"


def test_too_many_calls_are_refused(control):
    for number in range(CALLS_MAX):
        control.ask(call=f"c{number}")
    ((_, word),) = control.ask(call="more")
    assert word.why == f"{CALLS_MAX} calls are already running: wait until one of them has ended"


def test_output_and_its_taking_pass_between_the_two(control):
    control.ask(workers=(0, 1))
    out = Output(call="c1", node="node-1", data=b"x")
    assert control.hear("node-1", out) == [(CLIENT, out)]
    taken = OutputTaken(call="c1", node="node-1", total_bytes=1)
    assert control.hear(CLIENT, taken) == [("node-1", taken)]
    assert control.hear("node-1", ended("node-1")) == [(CLIENT, ended("node-1"))]
    assert control.hear(CLIENT, taken) == []  # it has said its last word


def test_a_node_speaks_for_itself_only(control):
    control.ask(workers=(0, 1))
    ((_, word),) = control.hear("node-1", ended("node-0"))
    assert word.node == "node-1"


def test_what_is_typed_goes_to_the_terminal(control):
    control.ask(Terminal(), workers=(2,))
    for word in (Typed(call="c1", data=b"ls\n"), WindowSize(call="c1", rows=3, columns=4)):
        assert control.hear(CLIENT, word) == [("node-2", word)]
    taken = TypedTaken(call="c1", node="node-2", total_bytes=3)
    assert control.hear("node-2", taken) == [(CLIENT, taken)]


def test_another_client_has_no_say_in_a_call(control):
    control.ask(Terminal(), workers=(2,))
    for word in (Typed(call="c1", data=b"rm\n"), CancelCall(call="c1"), ended("node-2")):
        said = control.hear("client-2", word)
        assert all(peer == "client-2" for peer, _ in said)
    assert control.ask(peer="client-2") == []  # that id is taken


def test_nodes_that_are_not_there_answer_at_once(control):
    control.connected.discard("node-1")
    said = control.ask()
    (lost,) = [word for _, word in said if isinstance(word, CallEnded)]
    assert (lost.node, lost.worker, lost.outcome) == ("node-1", 1, "not-reached")
    assert set(begun(said)) == {"node-0", "node-2"}


def test_a_spare_that_is_not_there_is_named_all_the_same(control):
    (lost,) = [word for _, word in control.ask(nodes=("node-4",)) if isinstance(word, CallEnded)]
    assert (lost.node, lost.worker, lost.outcome) == ("node-4", None, "not-reached")


def test_an_agent_that_is_lost_meanwhile(control):
    control.ask()
    ((peer, word),) = control.leave("node-2")
    assert (peer, word.node, word.worker, word.outcome) == (CLIENT, "node-2", 2, "not-reached")
    assert word.why == "the connection to the agent of this node was closed"


def test_an_agent_that_does_not_answer(control):
    control.ask(workers=(0,))
    control.now_s += RUN.limit_s + ANSWER_S - 1
    control.relay.turn()
    assert control.said[-1][0] == "node-0"
    control.now_s += 2
    control.relay.turn()
    peer, word = control.said[-1]
    assert (peer, word.outcome, word.why) == (CLIENT, "no-answer", "the agent of this node did not respond")


def test_a_node_that_is_silent_is_not_waited_for_to_the_end(control):
    control.ask(workers=(0, 1))
    control.ask(Terminal(), call="c2", workers=(1,))
    control.said.clear()
    control.silent["node-1"] = 7.0
    control.relay.turn()
    assert control.said == []
    control.silent["node-1"] = 8.5
    control.relay.turn()
    ((peer, word),) = control.said
    assert (peer, word.call, word.node, word.outcome) == (CLIENT, "c1", "node-1", "no-answer")
    assert word.why == "no message from the agent of this node for 8 s"


def test_a_client_that_is_gone_ends_its_calls(control):
    control.ask()
    said = control.leave(CLIENT)
    assert {peer for peer, word in said if isinstance(word, CancelCall)} == {"node-0", "node-1", "node-2"}
    late = control.hear("node-0", Output(call="c1", node="node-0", data=b"x"))
    assert late == [("node-0", CancelCall(call="c1"))]


def test_a_client_that_takes_nothing_any_more_ends_its_call(control):
    control.ask(workers=(0, 1))
    control.connected.discard(CLIENT)
    said = control.hear("node-0", Output(call="c1", node="node-0", data=b"x"))
    assert {peer for peer, word in said if isinstance(word, CancelCall)} == {"node-0", "node-1"}


def test_a_cancelled_call_is_heard_to_its_end(control):
    control.ask(workers=(0,))
    assert control.hear(CLIENT, CancelCall(call="c1")) == [("node-0", CancelCall(call="c1"))]
    last = CallEnded(call="c1", node="node-0", worker=0, outcome="cancelled")
    assert control.hear("node-0", last) == [(CLIENT, last)]


def test_the_end_of_the_job_is_the_end_of_all_calls(control):
    control.ask(workers=(0,))
    control.said.clear()
    control.relay.close("job llama has ended")
    assert control.said == [
        ("node-0", CancelCall(call="c1")),
        (CLIENT, CallRefused(call="c1", why="job llama has ended")),
    ]


def test_every_exec_and_shell_is_written_down_and_no_look(control):
    control.ask(
        Program(command=("sh", "-c", "TOKEN=hf_abcdefghijklmnopqrstuvwxyz echo \x1b[2J")), workers=(0, 1, 2)
    )
    control.ask(Terminal(), call="c2", nodes=("node-3",))
    control.ask(StackLook(), call="c3")
    assert control.notes == [
        ("exec", "exec by root@login on workers 0-2: sh -c 'TOKEN=*** echo \ufffd[2J'"),
        ("shell", "shell by root@login on node node-3"),
    ]


def test_many_nodes_share_what_may_be_on_its_way(control):
    control.workers = {worker: f"node-{worker}" for worker in range(1024)}
    control.connected |= set(control.workers.values())
    windows = {word.window_bytes for word in begun(control.ask()).values()}
    assert windows == {4096}


def test_other_words_are_left_to_others(control):
    assert not control.relay.hear("node-0", encode(PortFound(attempt=1, port=7)))
    assert control.relay.hear("node-0", b"\x81\xa4kind\xaecall-of-later\xa4")
