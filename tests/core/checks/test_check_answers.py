"""What checks' answers come to: for the run, between nodes, and for what is learned."""

from holdfast.core.checks.answers import answered
from holdfast.core.checks.asked import asked_of
from holdfast.core.checks.clocks import clocks_compared
from holdfast.core.checks.judged import judged, status_of
from holdfast.core.checks.learning import forgotten, learned
from holdfast.core.checks.peers import compared
from holdfast.model.checks import (
    DEVICE_FAULT,
    ENVIRONMENT_FAULT,
    FAIL,
    PASS,
    SKIP,
    WARN,
    Baseline,
    Fact,
    Finding,
    NodeChecks,
    Outcome,
)


def node(name, *outcomes, why_not=""):
    return NodeChecks(node=name, outcomes=outcomes, why_not=why_not)


def outcome(check, *findings, facts=()):
    statuses = [finding.status for finding in findings] or [PASS]
    return Outcome(check=check, area="gpu", status=statuses[0], findings=findings, facts=tuple(facts))


def mtu(value):
    return outcome("net-interfaces", facts=[Fact(name="MTU", value=value, same=True, device="nic:eth0")])


def speed(value, model="H100"):
    fact = Fact(name="copy", value=value, peers=True, device="gpu:1", model=model, unit="GB/s")
    return outcome("gpu-copy", facts=[fact])


def test_a_failed_device_isolates_a_failed_environment_stops_a_warning_does_neither():
    lost = Finding(status=FAIL, why="GPU 3 is lost", fault=DEVICE_FAULT)
    no_script = Finding(status=FAIL, why="train.py is not there", fault=ENVIRONMENT_FAULT)
    hot = Finding(status=WARN, why="GPU 1 is warm", fault=DEVICE_FAULT)
    verdict = judged(
        [
            node("a", outcome("gpu-count", lost)),
            node("b", outcome("env-script", no_script), outcome("gpu-t", hot)),
        ]
    )
    assert verdict.status == FAIL
    assert verdict.isolate == {"a": "gpu-count: GPU 3 is lost"}
    assert verdict.stop == "env-script: train.py is not there"
    assert [one.finding.status for one in verdict.troubles] == [FAIL, FAIL, WARN]


def test_a_node_without_an_answer_is_a_warning_and_no_reason_to_isolate():
    verdict = judged([node("a", outcome("x", Finding(status=PASS))), node("b", why_not="b did not answer")])
    assert (verdict.status, verdict.isolate, verdict.stop) == (WARN, {}, "")
    assert verdict.troubles[0].node == "b"


def test_no_answer_is_never_a_pass():
    assert status_of([]) == SKIP
    assert status_of([node("a", outcome("x", Finding(status=SKIP)))]) == SKIP
    assert (
        status_of([node("a", outcome("x", Finding(status=SKIP)), outcome("y", Finding(status=PASS)))]) == PASS
    )


def test_the_odd_one_differs_from_the_majority():
    nodes = compared([node("a", mtu(9000)), node("b", mtu(1500)), node("c", mtu(9000))])
    assert [len(one.outcomes) for one in nodes] == [1, 2, 1]
    finding = nodes[1].outcomes[1].findings[0]
    assert finding.why == "MTU is 1500 here, 9000 on a, c"
    assert finding.expected == "9000, as on 2 of 3 nodes"
    assert finding.device == "nic:eth0"


def test_what_else_was_known_of_a_node_stays():
    nodes = [
        NodeChecks(node=name, outcomes=(mtu(value),), at_s=5.0, heard_s=6.0)
        for name, value in (("a", 1), ("b", 2))
    ]
    assert [(one.at_s, one.heard_s, len(one.outcomes)) for one in compared(nodes)] == [(5.0, 6.0, 2)] * 2


def test_two_that_differ_are_both_named():
    nodes = compared([node("a", mtu(9000)), node("b", mtu(1500))])
    assert [one.outcomes[1].findings[0].expected for one in nodes] == ["the same on all nodes"] * 2


def test_one_that_is_slower_than_its_like():
    nodes = compared(
        [node(name, speed(value)) for name, value in zip("abcd", (50.0, 51.0, 49.0, 40.0), strict=True)]
    )
    assert [len(one.outcomes) for one in nodes] == [1, 1, 1, 2]
    assert nodes[3].outcomes[1].status == WARN
    assert "20% below the median of 3 others" in nodes[3].outcomes[1].findings[0].why
    half = compared([node(name, speed(value)) for name, value in zip("abc", (50.0, 51.0, 25.0), strict=True)])
    assert half[2].outcomes[1].status == FAIL


def test_other_models_and_single_peers_are_not_compared():
    assert (
        len(
            compared([node("a", speed(50.0)), node("b", speed(9.0, "T4")), node("c", speed(51.0))])[
                1
            ].outcomes
        )
        == 1
    )
    assert len(compared([node("a", speed(50.0)), node("b", speed(9.0))])[1].outcomes) == 1


def heard(name, ahead_s, way_s=0.05):
    return NodeChecks(
        node=name,
        outcomes=(outcome("x", Finding(status=PASS)),),
        at_s=1_000.0 + ahead_s,
        heard_s=1_000.0 + way_s,
    )


def test_a_clock_that_is_off_is_reported_with_its_offset():
    nodes = clocks_compared([heard("a", 0.0), heard("b", 0.0, 0.09), heard("c", -0.6), heard("d", 0.01)])
    statuses = [one.outcomes[1].status for one in nodes]
    assert statuses == [PASS, PASS, WARN, PASS]
    assert "0.58 s behind" in nodes[2].outcomes[1].findings[0].why


def test_of_two_clocks_only_what_the_way_cannot_explain():
    nodes = clocks_compared([heard("a", 0.0), heard("b", 0.3)])
    assert [one.outcomes[1].status for one in nodes] == [PASS, PASS]
    assert clocks_compared([heard("a", 0.0), heard("b", 7.0)])[1].outcomes[1].status == WARN
    alone = [heard("a", 5.0), NodeChecks(node="b", why_not="b did not answer")]
    assert list(clocks_compared(alone)) == alone


def test_what_is_learned_stays_and_what_failed_teaches_nothing():
    sixteen = Fact(name="pcie width", value=16, device="gpu:7", learn=True)
    eight = Fact(name="pcie width", value=8, device="gpu:7", learn=True)
    first = learned(Baseline(), [outcome("gpu-pcie", facts=[sixteen])], 100.0)
    assert first.of("gpu:7", "pcie width") == 16
    later = learned(first, [outcome("gpu-pcie", facts=[eight])], 200.0)
    assert (later.of("gpu:7", "pcie width"), later.at_s["gpu:7"]) == (16, 100.0)
    failed = outcome("gpu-pcie", Finding(status=FAIL), facts=[eight])
    assert learned(Baseline(), [failed], 1.0) == Baseline()
    assert later.devices("gpu") == ("gpu:7",)
    assert forgotten(later, ["gpu:7"]) == forgotten(later) == Baseline()


def test_what_a_command_asks_for():
    command = (
        "torchrun",
        "--nnodes=1:4",
        "--nproc_per_node",
        "8",
        "train.py",
        "--num-workers",
        "4",
        "--save",
        "ckpt",
    )
    asked = asked_of(command, {})
    assert (asked.ranks, asked.nodes, asked.loader_workers, asked.checkpoint) == (8, 4, 4, "ckpt")
    assert asked.script == "train.py"
    assert asked_of(("python", "t.py"), {"LOCAL_WORLD_SIZE": "2"}).ranks == 2
    assert asked_of(("python", "t.py", "--num-workers", "many"), {}).loader_workers is None


def test_a_boot_check_tells_where_each_device_is_by_its_serial_number():
    facts = [
        Fact(name="pci", value="0000:1a:00.0", device="gpu:1650123", learn=True, model="H100"),
        Fact(name="memory", value=1, device="gpu:1650123", learn=True),
        Fact(name="pci", value="0000:1b:00.0", device="gpu:0000:1b:00.0", learn=True),  # it has no number
    ]
    told = answered((node("a", outcome("gpu-presence", facts=facts)),), 1, "boot", 5.0)
    assert [(one.node, one.device, one.serial, one.model) for one in told.devices] == [
        ("a", "0000:1a:00.0", "1650123", "H100")
    ]
