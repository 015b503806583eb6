"""What people see of checks, in both languages."""

from holdfast.core.checks.judged import judged
from holdfast.model.checks import (
    DEVICE_FAULT,
    FAIL,
    PASS,
    SKIP,
    WARN,
    Baseline,
    Finding,
    NodeChecks,
    Outcome,
    Spec,
)
from holdfast.model.signatures import Words
from holdfast.views.checks.report import baseline_lines, document, report

LOST = Finding(
    status=FAIL,
    device="0000:5d:00.0",
    measured="7 GPUs",
    expected="8 GPUs",
    whence="baseline",
    why="a GPU has gone",
    advice=Words(en="Reset it.", zh="请复位。"),
    fault=DEVICE_FAULT,
)


def outcome(name, *findings):
    return Outcome(check=name, area="gpu", status=findings[0].status, findings=findings)


def nodes(*outcomes):
    return (NodeChecks(node="gpu-03", outcomes=outcomes),)


def shown(answers, language="en"):
    return [line.text for line in report(answers, judged(answers), language, 1.24)]


def test_a_finding_is_shown_with_the_expected_value_and_advice():
    answers = nodes(outcome("gpu-count", LOST), outcome("gpu-ecc", Finding(status=PASS, measured="0 errors")))
    assert shown(answers) == [
        "  FAIL gpu-count  0000:5d:00.0: a GPU has gone",
        "                  7 GPUs; expected: 8 GPUs (baseline)",
        "                  what to do: Reset it.",
        "  ok   gpu-ecc    0 errors",
        "",
        "A device or node is faulty: do not use gpu-03 for training.",
        "not fit: 1 failed (1.2 s)",
    ]
    chinese = "\n".join(shown(answers, "zh"))
    assert "建议：请复位。" in chinese and "不可用：1 项失败" in chinese


def test_many_that_are_skipped_for_one_reason_are_shown_together():
    none = Finding(status=SKIP, why="there is no driver")
    lines = shown(nodes(*(outcome(f"gpu-{letter}", none) for letter in "abcdefgh")))
    assert lines[0] == "  skip gpu-a  there is no driver"
    assert [line.strip() for line in lines[1:3]] == ["+ gpu-b, gpu-c, gpu-d, gpu-e, gpu-f", "+ gpu-g, gpu-h"]
    assert lines[-1] == "no check gave a result, 8 skipped (1.2 s)"


def test_of_many_devices_the_first_are_shown_and_the_rest_counted():
    warm = [Finding(status=WARN, device=f"gpu {number}", why="it is warm") for number in range(9)]
    lines = shown(nodes(outcome("gpu-temperature", *warm)))
    assert sum("it is warm" in line for line in lines) == 6
    assert any("+3" in line for line in lines)
    assert lines[-1].startswith("fit, with warnings: 1")


def test_a_node_that_did_not_answer():
    lines = shown((NodeChecks(node="gpu-04", why_not="gpu-04 did not answer within 20 s"),))
    assert lines[:2] == ["gpu-04", "  no answer: gpu-04 did not answer within 20 s"]
    assert lines[-1].startswith("fit, with warnings: 1")


def test_the_document_puts_the_worst_finding_on_top():
    spec = Spec(name="gpu-count", area="gpu", what=Words(en="", zh=""), contexts=())
    answers = nodes(outcome("gpu-count", LOST, Finding(status=PASS)))
    told = document("boot", answers, judged(answers), (spec,), 1.0)
    assert (told["status"], told["isolate"][0]["node"]) == (FAIL, "gpu-03")
    (entry,) = told["checks"]
    assert (entry["status"], entry["device"], entry["cost"]) == (FAIL, "0000:5d:00.0", "passive")
    assert [one["status"] for one in entry["findings"]] == [FAIL, PASS]


def test_what_was_learned():
    assert "this node has no baseline yet" in next(iter(baseline_lines(Baseline())))
    known = Baseline(facts={"gpu:165": {"width": 16}}, at_s={"gpu:165": 0.0})
    assert list(baseline_lines(known))[1] == "  width = 16"
