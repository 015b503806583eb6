"""What a verdict on pairs says: of whom, how bad, with what was measured and what was expected, in both languages."""

import pytest

from holdfast.core.checks.judged import judged
from holdfast.core.checks.pairs.results import Blame, Measured, NodeSample, PairSample, Verdict
from holdfast.core.checks.pairs.words import node_outcomes
from holdfast.model.checks import DEVICE_FAULT, FAIL, NO_FAULT, PASS, SKIP, WARN

WHAT = "all-reduce 8 MiB"
NODES = ("gpu-01", "gpu-02", "gpu-03", "gpu-04")
MEASURED = Measured(
    nodes=NODES,
    rounds=1,
    pairs=(
        PairSample(round=0, a="gpu-01", b="gpu-02", speeds={WHAT: 10.0}),
        PairSample(round=0, a="gpu-03", b="gpu-04", speeds={WHAT: 1.0}),
    ),
    singles=tuple(NodeSample(round=0, node=node, compute={"cpu": 50.0}, model="A100") for node in NODES),
)


def blame(kind, *nodes, **more):
    given = {"what": WHAT, "speed": 1.0, "expected": 10.0, "times": 4, "looks": 4, "others": 3}
    return Blame(kind=kind, nodes=nodes, **(given | more))


def finding_of(told, node="gpu-04"):
    answers = node_outcomes(MEASURED, Verdict(blames=(told,), expected={WHAT: 10.0}))
    (outcome,) = next(answer for answer in answers if answer.node == node).outcomes
    (finding,) = outcome.findings
    return finding


def test_a_node_that_reaches_a_tenth_with_all_of_three_good_ones_is_broken():
    finding = finding_of(blame("communication", "gpu-04", partners=NODES[:3]))
    assert finding.status == FAIL and finding.fault == DEVICE_FAULT
    assert finding.measured == "1 GB/s (all-reduce 8 MiB), 4 of 4 times"
    assert finding.expected == "about 10 GB/s, the speed of other pairs" and finding.whence == "peers"
    assert "gpu-04" in finding.why and "gpu-01, gpu-02 and gpu-03" in finding.why
    for advice in (finding.advice.en, finding.advice.zh):
        assert "gpu-04" in advice and "1 GB/s" in advice and "10 GB/s" in advice


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"partners": NODES[:2]}, FAIL),  # two are few
        ({"partners": NODES[:3], "times": 2}, FAIL),  # only at times
        ({"partners": NODES[:3], "speed": 4.0}, FAIL),
        ({"partners": NODES[:3], "speed": 7.0}, WARN),
    ],
)
def test_a_node_that_is_merely_slow_is_not_isolated(more, status):
    finding = finding_of(blame("communication", "gpu-04", **more))
    assert finding.status == status and finding.fault == NO_FAULT


def test_of_two_nodes_alone_the_answer_names_what_is_needed():
    finding = finding_of(blame("one-of", "gpu-03", "gpu-04", speed=0.0, expected=0.0, error="no connection"))
    assert finding.status == WARN
    assert (
        finding.why
        == "one of gpu-03 and gpu-04 is bad, or the link between them; a third node is needed to find out which"
    )


def test_a_link_is_reported_on_both_of_its_nodes():
    told = blame("link", "gpu-03", "gpu-04", whence="baseline")
    for node in ("gpu-03", "gpu-04"):
        finding = finding_of(told, node)
        assert finding.device == "link gpu-03 - gpu-04"
        assert finding.whence == "baseline" and "the learned value" in finding.expected
        assert "gpu-03" in finding.advice.zh and "gpu-04" in finding.advice.zh


@pytest.mark.parametrize("kind", ["communication", "compute", "wrong", "silent", "link", "group", "one-of"])
def test_every_trouble_says_what_was_measured_and_what_to_do_in_both_languages(kind):
    finding = finding_of(
        blame(kind, "gpu-03", "gpu-04", partners=NODES[:2], error="" if kind != "wrong" else "cpu")
    )
    assert finding.status in (WARN, FAIL)
    assert finding.measured and finding.expected and finding.whence and finding.why
    assert finding.advice.en and any("\u4e00" <= letter <= "\u9fff" for letter in finding.advice.zh)


def test_only_who_is_to_blame_is_isolated():
    told = Verdict(blames=(blame("communication", "gpu-04", partners=NODES[:3]),), expected={WHAT: 10.0})
    verdict = judged(node_outcomes(MEASURED, told))
    assert list(verdict.isolate) == ["gpu-04"] and verdict.status == FAIL


def test_all_well_is_learned_once_and_under_the_name_of_the_devices():
    answers = node_outcomes(MEASURED, Verdict(expected={WHAT: 10.0}))
    learnt = [fact for answer in answers for fact in answer.outcomes[0].facts if fact.learn]
    assert [(fact.device, fact.name, fact.value) for fact in learnt] == [("pairs:A100", WHAT, 10.0)]
    assert all(answer.outcomes[0].status == PASS for answer in answers)


def test_what_cannot_be_decided_is_a_skip_with_its_reason():
    answers = node_outcomes(MEASURED, Verdict(unsure={"gpu-01": (2, 12)}, expected={WHAT: 10.0}))
    assert answers[0].outcomes[0].status == SKIP and "2 of 12" in answers[0].outcomes[0].findings[0].why
    alone = node_outcomes(Measured(nodes=("gpu-01",)), Verdict())
    assert alone[0].outcomes[0].status == SKIP
