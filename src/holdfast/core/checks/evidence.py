"""Adds the results of checks after a failure to its verdict. Pure.

A device that a check finds broken is named, and explains a failure without another cause. If boot check and
troubleshooting both passed, the verdict says that this suggests a fault of the training code.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.core.checks.answers import is_of_a_device, key_of
from holdfast.core.plurals import counted
from holdfast.core.verdict.categories import ADVICE, KINDS
from holdfast.model.checks import FAIL, PASS, WARN
from holdfast.model.events import CheckFinding, NodesChecked
from holdfast.model.verdicts import Culprit, Evidence, Verdict

BOTH_PASSED = "Both passed: the training code is the likely cause"
CONFIDENCE = 0.9  # confidence in a device that a check finds broken as the cause
WEAK = 0.6  # a verdict with less confidence is replaced by a broken device
TROUBLES_MAX = 8
# Faults of the program's own code, and not of its data, its settings or its environment.
CODE = frozenset(
    (
        "python_exception",
        "ddp_unused_parameters",
        "nan_loss",
        "segfault",
        "cuda_illegal_access",
        "device_side_assert",
    )
)


def with_checks(verdict: Verdict, checked: NodesChecked, boot: str, known: Sequence[str]) -> Verdict:
    """Returns the verdict with the findings of checks added.

    `boot`: status of the boot check; `known`: the findings of the boot check, which are not new.
    """
    news = [finding for finding in checked.troubles if finding.status == FAIL or key_of(finding) not in known]
    broken = [finding for finding in news if is_of_a_device(finding)]
    seen = [_seen(finding) for finding in news[:TROUBLES_MAX]]
    if broken:
        verdict = _of_devices(verdict, broken)
    elif speaks_for_the_code(verdict, checked, boot, known):
        text = f"boot check and troubleshooting ({counted(checked.passed, 'check')}) found nothing"
        seen.append(Evidence(text=text, says=BOTH_PASSED))
        if verdict.category == "unknown":
            verdict = replace(verdict, title=f"{verdict.title}. {BOTH_PASSED}")
    return replace(verdict, evidence=(*verdict.evidence, *seen)) if seen else verdict


def speaks_for_the_code(verdict: Verdict, checked: NodesChecked, boot: str, known: Sequence[str]) -> bool:
    """Returns whether the results of checks suggest that the training code is at fault.

    That is the case if the verdict has no cause or blames the code, and all checks passed before and after the
    failure. Warnings that existed when the run began, and did not stop it, do not count.
    """
    is_open = verdict.category == "unknown" or verdict.category in CODE
    news = any(key_of(finding) not in known for finding in checked.troubles)
    return is_open and boot in (PASS, WARN) and checked.passed > 0 and not checked.failed and not news


def _of_devices(verdict: Verdict, broken: Sequence[CheckFinding]) -> Verdict:
    """Returns the verdict with broken devices as culprits; they become the cause if the verdict agrees or is
    uncertain.
    """
    first = broken[0]
    culprits = tuple(Culprit(host=finding.node, device=finding.device or None) for finding in broken)
    category = first.category if first.category in KINDS else "gpu_fault" if "gpu" in first.check else ""
    same = bool(category) and verdict.class_ == KINDS[category][0]
    if same:
        named = {culprit.device for culprit in verdict.culprits}
        more = tuple(culprit for culprit in culprits if culprit.device not in named)
        return replace(
            verdict, confidence=max(verdict.confidence, CONFIDENCE), culprits=(*verdict.culprits, *more)
        )
    if not category or verdict.confidence >= WEAK:
        return verdict
    class_, action = KINDS[category]
    return replace(
        verdict,
        category=category,
        class_=class_,
        title=f"{first.node}: {first.text}",
        confidence=CONFIDENCE,
        action=action,
        advice=first.advice or ADVICE.get(category) or ADVICE.get(action, ""),
        culprits=culprits,
        first_error=verdict.first_error or _seen(first),
    )


def _seen(finding: CheckFinding) -> Evidence:
    return Evidence(
        text=finding.text,
        says=f"a check on {finding.node} {'failed' if finding.status == FAIL else 'has a warning'}",
        signature=f"check:{finding.check}",
    )
