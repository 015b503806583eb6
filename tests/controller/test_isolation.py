"""Isolation between a job and its fleet: held back by the limit, shunned by others' word, given back."""

from core.workers.worker_group_kit import World
from holdfast.controller.parts import Parts
from holdfast.controller.worker_group import WorkerGroupEngine
from holdfast.model.events import AnyEvent, FindingNoted, NodeIsolated, NodeReleased
from holdfast.model.nodes.workers import SetUp
from holdfast.model.orders import IsolateNode, PlaceWorkers
from holdfast.model.policy import Policy
from holdfast.model.settings import RunSettings

POLICY = Policy(max_restarts=9, unconditional_restart=True, boot_check="off")


class Nothing:
    """A link, and parts, to which nothing happens."""

    is_busy = False

    def __getattr__(self, name: str) -> object:
        return lambda *given, **named: []


class Asides(Nothing):
    """An engine that notes which nodes it is to set aside."""

    def __init__(self) -> None:
        self.asides: list[str] = []

    def isolate(self, node: str, reason: str) -> None:
        self.asides.append(node)


class Fleet:
    """`limit`: why nothing may be isolated; `shunned`: what others have isolated."""

    def __init__(self) -> None:
        self.limit = ""
        self.shunned: frozenset[str] = frozenset()
        self.world = World(3, 2, POLICY)
        self.world.begin()
        self.engine = Asides()
        self.told: list[AnyEvent] = []
        nothing = Nothing()
        parts = Parts(
            hangs=nothing,
            conclusion=nothing,
            calls=nothing,
            files=nothing,
            shunned=lambda: self.shunned,
            why_not_isolate=lambda node, reason: self.limit,
        )
        settings = RunSettings(command=("true",), state_dir="/")
        self.machine = WorkerGroupEngine(
            self.world.worker_group,
            nothing,
            self.engine,
            SetUp(job="job", folder="", cwd="/", settings=settings, token=""),
            lambda machine: parts,
            lambda: self.world.at_s,
            self.told.append,
            lambda: True,
        )


def test_an_isolation_within_the_limit_goes_to_the_engine():
    fleet = Fleet()
    fleet.machine.carry_out(IsolateNode(incident=1, node="n0", reason="broken"))
    assert fleet.engine.asides == ["n0"]
    assert fleet.told == []  # the engine answers


def test_one_above_the_limit_is_only_said_and_the_node_stays_usable():
    fleet = Fleet()
    fleet.limit = "2 of 3 nodes were isolated within 60 minutes"
    fleet.machine.carry_out(IsolateNode(incident=1, node="n0", reason="broken"))
    assert fleet.engine.asides == []
    kinds = [type(event) for event in fleet.told]
    assert kinds == [NodeIsolated, FindingNoted, NodeReleased]
    assert "node n0 was not isolated: 2 of 3" in fleet.told[1].text
    assert fleet.world.worker_group.roster["n0"].is_usable


def test_what_others_isolate_is_shunned_and_what_they_release_comes_back():
    fleet = Fleet()
    fleet.world.worker_group.roster.isolate(["n2"])
    fleet.shunned = frozenset({"n1", "n2"})
    order = PlaceWorkers(attempt=2, workers=())
    fleet.machine.carry_out(order)
    assert fleet.world.worker_group.shunned == {"n1", "n2"}
    assert not [event for event in fleet.told if isinstance(event, NodeReleased)]
    fleet.shunned = frozenset()
    fleet.machine.carry_out(order)
    released = [event.node for event in fleet.told if isinstance(event, NodeReleased)]
    assert released == ["n2"]  # n1 was never isolated in this job
    assert fleet.world.worker_group.roster["n2"].is_usable
