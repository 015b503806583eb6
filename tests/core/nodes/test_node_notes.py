"""What a job's events say of its nodes: how an incident weighs, exposure, checks, and the same again after a replay."""

import msgspec
import pytest

from holdfast.core.job.decide import decide
from holdfast.core.nodes.notes import NodeNotes, Noted
from holdfast.model.events import (
    AnyEvent,
    AttemptStarted,
    AttemptStopped,
    CheckFinding,
    DeviceFaulted,
    DeviceSeen,
    FindingNoted,
    JobSubmitted,
    NodeLost,
    NodesChecked,
    Placed,
    RankExited,
    RankStarted,
    StepReached,
    Tick,
    VerdictReached,
    WorkersPlaced,
)
from holdfast.model.nodes.book import AnyLine
from holdfast.model.policy import Policy
from holdfast.model.state import State
from holdfast.model.verdicts import Culprit, Verdict

POLICY = Policy(max_restarts=5, unconditional_restart=True)


class Told:
    """One job of four workers on n0..n3, its events decided and noted."""

    def __init__(self) -> None:
        self.notes = NodeNotes()
        self.state = State()
        self.events: list[AnyEvent] = []
        self.noted: list[Noted] = []
        self.tell(JobSubmitted(at_s=100.0, job="train", workers=4))
        self.tell(WorkersPlaced(at_s=101.0, attempt=1, placed=tuple(Placed(k, f"n{k}") for k in range(4))))
        self.tell(AttemptStarted(at_s=102.0, attempt=1))
        for rank in range(8):
            self.tell(RankStarted(at_s=103.0, attempt=1, worker=rank // 2, rank=rank, pid=rank + 1))
        self.tell(StepReached(at_s=110.0, attempt=1, step=10))

    def tell(self, event: AnyEvent) -> None:
        decision = decide(self.state, event, POLICY)
        self.state = decision.state
        self.events.append(event)
        self.noted.append(self.notes.hear(event, decision))

    def fails(self, verdict: Verdict, **more: bool) -> AnyLine:
        self.tell(RankExited(at_s=200.0, attempt=1, worker=2, rank=5, code=1))
        self.tell(VerdictReached(at_s=201.0, incident=1, verdict=verdict, **more))
        return self.lines()["incident/train@100/1"]

    def lines(self) -> dict[str, AnyLine]:
        return dict(pair for noted in self.noted for pair in noted.lines)


def _verdict(
    category: str, class_: str, *culprits: Culprit, confidence: float = 0.9, action: str = "restart"
) -> Verdict:
    return Verdict(
        category=category,
        class_=class_,
        title=category,
        confidence=confidence,
        action=action,
        culprits=culprits,
    )


ON_N2 = Culprit(rank=5, worker=2, host="n2", device="0000:5d:00.0")


@pytest.mark.parametrize(
    ("verdict", "weighs", "node", "suspects"),
    [
        (_verdict("xid_79", "hardware", ON_N2), "node", "n2", ()),
        (_verdict("kernel_panic", "host", Culprit(host="n1")), "node", "n1", ()),
        (_verdict("collective_missing_rank", "communication", ON_N2), "shared", "", ("n2",)),
        (_verdict("collective_timeout", "communication"), "shared", "", ()),
        (_verdict("unknown", "unknown", confidence=0.0), "shared", "", ()),
        (_verdict("xid_79", "hardware", ON_N2, confidence=0.3), "shared", "", ()),
        (_verdict("python_exception", "training", ON_N2), "program", "", ()),
        (_verdict("disk_full", "environment", ON_N2), "program", "", ()),
        (_verdict("user_interrupt", "process"), "asked", "", ()),
        (_verdict("process_killed", "process", ON_N2), "shared", "", ("n2",)),
        (_verdict("xid_79", "hardware", Culprit(host="elsewhere")), "shared", "", ()),
    ],
)
def test_how_an_incident_weighs(verdict, weighs, node, suspects):
    line = Told().fails(verdict)
    assert (line.weighs, line.node, line.suspects) == (weighs, node, suspects)


def test_the_programs_own_fault_exonerates_every_node():
    told = Told()
    told.fails(_verdict("gpu_oom", "memory", ON_N2))
    assert told.lines()["exoneration/train@100/1"].node == ""


def test_a_fault_of_a_device_or_a_node_is_that_nodes_whatever_the_verdict_says():
    told = Told()
    told.tell(DeviceFaulted(at_s=200.0, node="n3", device="npu-1", code="80E01801"))
    line = told.lines()["incident/train@100/1"]
    assert (line.weighs, line.node, line.device) == ("node", "n3", "npu-1")
    other = Told()
    other.tell(NodeLost(at_s=200.0, node="n0", reason="down"))
    assert other.lines()["incident/train@100/1"].node == "n0"
    assert any(key.startswith("lost/") for key in other.lines())


def test_a_node_that_is_taken_away_with_the_whole_job_has_lost_nothing():
    told = Told()
    told.tell(NodeLost(at_s=200.0, node="n0", reason="as all of the job", with_job=True))
    assert not [key for key in told.lines() if key.startswith(("lost/", "incident/"))]


def test_several_nodes_that_fail_at_once_share_the_cause():
    told = Told()
    for number in (0, 1):
        told.tell(NodeLost(at_s=200.0 + number, node=f"n{number}", reason="down"))
    line = told.lines()["incident/train@100/1"]
    assert (line.weighs, line.node, line.suspects) == ("shared", "", ("n0", "n1"))


def test_exposure_is_recorded_each_minute_and_at_the_end():
    told = Told()
    for at_s in range(111, 462):
        told.tell(Tick(at_s=float(at_s)))
    told.tell(RankExited(at_s=470.0, attempt=1, worker=0, rank=0, code=1))
    told.tell(VerdictReached(at_s=471.0, incident=1, verdict=_verdict("unknown", "unknown")))
    told.tell(AttemptStopped(at_s=480.0, attempt=1))
    ran = [one for noted in told.noted for one in noted.ran]
    assert {(one.run, one.attempt, one.started_s) for one in ran} == {("train@100", 1, 102.0)}
    assert ran[0].nodes == ("n0", "n1", "n2", "n3")
    assert 6 <= len(ran) <= 10
    assert ran[-1].hours == pytest.approx((480 - 102) / 3600)


def test_warnings_go_to_the_node_of_the_rank_and_of_the_check():
    told = Told()
    told.tell(
        FindingNoted(
            at_s=150.0, finding="straggler", text="rank 6 is slow", attempt=1, numbers={"ranks": [6.0]}
        )
    )
    told.tell(
        NodesChecked(
            at_s=160.0,
            attempt=1,
            nodes=("n0", "n1"),
            status="warn",
            troubles=(
                CheckFinding(
                    node="n1",
                    check="gpu-ecc",
                    status="warn",
                    text="12 corrected",
                    category="ecc_uncorrectable",
                ),
            ),
            passed=3,
            warned=1,
        )
    )
    found = {(line.node, line.warning) for line in told.lines().values() if hasattr(line, "warning")}
    assert found == {("n3", "slow-steps"), ("n1", "ecc-corrected")}
    assert told.lines()["check/n0/boot/passed"].status == "pass"


def test_a_replay_gives_the_same_lines_under_the_same_keys():
    told = Told()
    told.fails(_verdict("xid_79", "hardware", ON_N2))
    again, state = NodeNotes(), State()
    noted = []
    for event in told.events:
        decision = decide(state, event, POLICY)
        state = decision.state
        noted.append(again.hear(event, decision))
    assert noted == told.noted


def test_lines_of_a_device_carry_its_serial_number_however_its_address_is_written():
    told = Told()
    seen = (DeviceSeen(node="n2", device="0000:5D:00.0", serial="1650123", model="H100"),)
    told.tell(NodesChecked(at_s=150.0, attempt=1, nodes=("n2",), status="pass", passed=3, devices=seen))
    told.tell(DeviceFaulted(at_s=200.0, node="n2", device="PCI:0000:5d:00", code="xid 79"))
    assert told.lines()["incident/train@100/1"].serial == "1650123"
    told.tell(DeviceFaulted(at_s=201.0, node="n1", device="0000:5d:00.0", code="xid 79"))
    lines = told.lines()
    where = lines["device-in/1650123/n2"]
    assert (where.node, where.device, where.serial, where.model) == ("n2", "0000:5D:00.0", "1650123", "H100")
    found = {line.node: line.serial for line in lines.values() if getattr(line, "finding", "") == "xid 79"}
    assert found == {"n2": "1650123", "n1": ""}


def test_a_journal_of_before_says_nothing_of_devices():
    old = b'{"kind":"nodes-checked","at_s":1.0,"attempt":1,"nodes":["a"],"status":"pass","passed":1}'
    assert msgspec.json.decode(old, type=AnyEvent).devices == ()
