"""What checks come to in a run: their order after a failure, the event that is kept, what they add to a verdict."""

import pytest
from msgspec.structs import replace

from holdfast.core.checks.answers import TEXT_MAX, TROUBLES_MAX, answered, key_of
from holdfast.core.checks.evidence import BOTH_PASSED, speaks_for_the_code, with_checks
from holdfast.core.checks.plan import areas_for, before_a_start, troubleshooting, while_training
from holdfast.core.verdict.categories import KINDS
from holdfast.model.checks import AREAS, Finding, NodeChecks, Outcome, Spec
from holdfast.model.events import CheckFinding, NodesChecked
from holdfast.model.signatures import Words
from holdfast.model.verdicts import UNKNOWN, Culprit, Verdict

WORDS = Words(en="Do this.", zh="这样做。")


def spec(name, cost="passive", *, quick=True, timeout_s=2.0):
    area = name.partition("-")[0]
    return Spec(
        name=name,
        area=area,
        what=WORDS,
        contexts=("on-failure",),
        cost=cost,
        quick=quick,
        timeout_s=timeout_s,
    )


SPECS = [
    spec("gpu-ecc"),
    spec("gpu-links", quick=False),
    spec("rdma-ports", quick=False, timeout_s=4.0),
    spec("rdma-gid", quick=False),
    spec("net-errors"),
    spec("io-write", "light"),
    spec("host-memory"),
    spec("host-burn", "device"),
    spec("env-python", "light", quick=False),
]


def names(category, *, living=False):
    class_ = KINDS[category][0]
    return [one.name for one in troubleshooting(SPECS, category, class_, living=living)]


def test_what_the_verdict_points_at_comes_first():
    assert names("ecc_uncorrectable")[:2] == ["gpu-ecc", "gpu-links"]
    assert names("nccl_network_error")[:3] == ["rdma-gid", "rdma-ports", "net-errors"]
    assert names("disk_full")[0] == "io-write"
    assert names("host_oom")[0] == "host-memory"


def test_of_what_is_unknown_all_quick_ones():
    assert names("unknown") == ["gpu-ecc", "net-errors", "io-write", "host-memory"]


def test_nothing_loads_a_device_and_beside_the_living_all_is_passive():
    for category in KINDS:
        assert "host-burn" not in names(category)
        assert not {"io-write", "env-python"} & set(names(category, living=True))


def test_a_boot_check_is_quick_or_whole_and_never_a_benchmark():
    boot = [replace(one, contexts=("boot",)) for one in SPECS]
    boot.append(replace(boot[0], name="gpu-bench", bench=True))
    assert before_a_start(SPECS, quick=False) == ()
    assert [one.name for one in before_a_start(boot, quick=True)] == [one.name for one in SPECS if one.quick]
    assert [one.name for one in before_a_start(boot, quick=False)] == [one.name for one in SPECS]


def test_while_it_trains_only_what_is_passive_and_quick():
    often = [replace(one, contexts=("continuous",)) for one in SPECS]
    assert [one.name for one in while_training(often)] == ["gpu-ecc", "net-errors", "host-memory"]


def test_every_category_has_areas_that_there_are():
    for category, (class_, _) in KINDS.items():
        assert set(areas_for(category, class_)) <= set(AREAS)
        open_ = class_ in ("healthy", "unknown", "performance", "scheduler")
        assert areas_for(category, class_) or open_, category


def outcome(name, *findings):
    order = ("pass", "skip", "warn", "fail")
    status = max((one.status for one in findings), key=order.index)
    return Outcome(check=name, area=name.partition("-")[0], status=status, findings=findings)


def finding(status, why="", **more):
    return Finding(status=status, why=why, advice=WORDS, **more)


def node(*outcomes, name="n0", **more):
    return NodeChecks(node=name, outcomes=outcomes, seconds=1.5, **more)


def test_the_event_counts_checks_and_names_what_is_wrong():
    event = answered(
        [
            node(
                outcome("io-write", finding("pass")),
                outcome("io-shm", finding("warn", "it is small", device="/dev/shm", category="shm_oom")),
                outcome(
                    "gpu-ecc", finding("pass"), finding("fail", "it is broken", device="5d", fault="device")
                ),
                outcome("env-script", finding("fail", "train.py is not there", fault="environment")),
                outcome("npu-count", finding("skip", "no NPU")),
            )
        ],
        attempt=3,
        context="boot",
        at_s=9.0,
    )
    assert (event.passed, event.warned, event.failed, event.skipped) == (1, 1, 2, 1)
    assert event.status == "fail"
    assert event.isolate == {"n0": "gpu-ecc: 5d: it is broken"}
    assert event.stop == "env-script: train.py is not there. Do this."
    assert [key_of(told) for told in event.troubles] == ["gpu-ecc 5d", "env-script", "io-shm /dev/shm"]
    assert event.troubles[0].fault == "device"
    assert event.troubles[2].advice == "Do this."
    assert (event.seconds, event.attempt, event.nodes) == (1.5, 3, ("n0",))


def test_a_warning_isolates_and_stops_nothing_whatever_it_says():
    event = answered([node(outcome("gpu-ecc", finding("warn", "odd", fault="device")))], 1, "boot", 0.0)
    assert (event.isolate, event.stop, event.troubles[0].fault) == ({}, "", "")


def test_what_a_journal_keeps_is_bounded():
    many = tuple(finding("fail", "x" * 5_000, device=str(number), fault="device") for number in range(200))
    event = answered([node(outcome("gpu-ecc", *many))], 1, "boot", 0.0)
    assert len(event.troubles) == TROUBLES_MAX
    assert len(event.troubles[0].text) == len(event.isolate["n0"]) == TEXT_MAX


def test_a_node_of_which_nothing_came_is_no_pass():
    event = answered([node(why_not="no process")], 1, "boot", 0.0)
    assert (event.status, event.why_not, event.passed) == ("warn", "no process", 0)
    assert event.troubles == ()


# --- the verdict

BROKEN = CheckFinding(
    node="n0",
    check="gpu-memory-repair",
    status="fail",
    text="gpu-memory-repair: 5d: no spare row",
    device="5d",
    fault="device",
    category="ecc_uncorrectable",
    advice="Have it replaced.",
)
SMALL = CheckFinding(node="n0", check="io-shm", status="warn", text="io-shm: it is small", device="/dev/shm")
CODE = Verdict(category="python_exception", class_="training", title="KeyError", confidence=0.9)


def checked(*troubles, passed=20):
    failed = sum(told.status == "fail" for told in troubles)
    return NodesChecked(
        at_s=0.0,
        attempt=1,
        nodes=("n0",),
        context="on-failure",
        passed=passed,
        warned=len(troubles) - failed,
        failed=failed,
        troubles=troubles,
    )


def test_both_passed_is_said_in_so_many_words():
    for verdict in (UNKNOWN, CODE):
        found = with_checks(verdict, checked(), "pass", ())
        assert found.evidence[-1].says == BOTH_PASSED == "Both passed: the training code is the likely cause"
        assert (found.category, found.confidence) == (verdict.category, verdict.confidence)
    assert with_checks(UNKNOWN, checked(), "pass", ()).title == f"nothing explains it. {BOTH_PASSED}"
    assert with_checks(CODE, checked(), "pass", ()).title == "KeyError"


@pytest.mark.parametrize(
    ("verdict", "answer", "boot"),
    [
        (UNKNOWN, checked(), ""),  # there was no boot check
        (UNKNOWN, checked(), "skip"),
        (UNKNOWN, checked(), "fail"),
        (UNKNOWN, checked(passed=0), "pass"),
        (UNKNOWN, checked(SMALL), "pass"),
        (UNKNOWN, checked(BROKEN), "pass"),
        (Verdict(category="host_oom", class_="memory", title="t", confidence=0.9), checked(), "pass"),
        (
            Verdict(category="launcher_config", class_="training", title="t", confidence=0.9),
            checked(),
            "pass",
        ),
    ],
)
def test_and_not_where_it_is_not_so(verdict, answer, boot):
    assert not speaks_for_the_code(verdict, answer, boot, ())


def test_what_the_boot_check_said_already_is_no_news():
    found = with_checks(UNKNOWN, checked(SMALL), "warn", ("io-shm /dev/shm",))
    assert [one.says for one in found.evidence] == [BOTH_PASSED]
    assert with_checks(UNKNOWN, checked(SMALL), "warn", ()).evidence[0].text == "io-shm: it is small"


def test_a_broken_device_explains_what_nothing_else_does():
    found = with_checks(UNKNOWN, checked(BROKEN), "pass", ())
    assert (found.category, found.class_, found.action) == ("ecc_uncorrectable", "hardware", "reset_gpu")
    assert found.confidence == 0.9
    assert found.culprits == (Culprit(host="n0", device="5d"),)
    assert found.advice == "Have it replaced."
    assert found.evidence[-1].signature == "check:gpu-memory-repair"


def test_it_makes_a_verdict_on_hardware_surer_and_names_the_device():
    weak = Verdict(
        category="gpu_missing", class_="hardware", title="t", confidence=0.6, culprits=(Culprit(rank=3),)
    )
    found = with_checks(weak, checked(BROKEN), "pass", ())
    assert (found.category, found.confidence) == ("gpu_missing", 0.9)
    assert found.culprits == (Culprit(rank=3), Culprit(host="n0", device="5d"))


def test_a_sure_verdict_on_something_else_stays_and_has_it_as_evidence():
    found = with_checks(CODE, checked(BROKEN), "pass", ())
    assert (found.category, found.confidence, found.culprits) == ("python_exception", 0.9, ())
    assert found.evidence[-1].text == BROKEN.text
