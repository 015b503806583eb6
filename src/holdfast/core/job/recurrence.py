"""Compares failures of attempts, and decides whether another start would fail in the same way. Pure."""

import re

from holdfast.core.verdict.categories import CHANGES_OF_THE_RUN, KINDS, UNANSWERED, USER_CODE
from holdfast.model.failures import ErrorRecord
from holdfast.model.verdicts import Verdict

KEY_MAX = 200
PASSES_MAX = 4
_RANKS = re.compile(r"\b(?:on |in |of )?ranks? \d+(?:-\d+|, \d+| and \d+)*,? ?", re.IGNORECASE)
_UNITS = re.compile(r"# ?(?:[KMGT]i?B|bytes|%|[mun]?s|ms|min|h)\b")
# Of texts in which numbers are "#" already: `x#k#q`, the end of a pod's name; `#, # and #-#`; `node-#, node-#`.
_GENERATED = re.compile(r"(?<![\w#])(?=[a-z0-9#]*#[a-z0-9]*#)(?=[a-z0-9#]*[a-z])[a-z0-9#]{3,}(?![\w#])")
_NUMBERS = re.compile(r"#(?:(?:, ?| and | or | to |[-–:x×/ ])#)+")
_REPEATED = re.compile(r"(\b[\w.'\"#-]*#[\w.'\"#-]*)(?:(?:, ?| and )\1)+(?![\w#])")
SURE = 0.8  # that the training code is at fault


def problem_key(verdict: Verdict) -> str:
    """Returns a key that is equal for the same problem in different attempts: category and first error, without
    numbers, places and ranks.
    """
    text = verdict.first_error.text if verdict.first_error else ""
    return f"{verdict.category}:{_without_numbers(text)}"[:KEY_MAX]


def cause_key(text: str) -> str:
    """Returns a text that is equal for the same cause in different jobs: without numbers and generated names.

    `text`: a problem_key of any version, or the reason of a job's end. Idempotent.
    """
    text = _without_numbers(_RANKS.sub("", text))
    for _ in range(PASSES_MAX):  # one substitution can make room for another
        before = text
        text = _NUMBERS.sub("#", _GENERATED.sub("#", text))
        text = _REPEATED.sub(r"\1", _UNITS.sub("#", text))
        if text == before:
            break
    return text[:KEY_MAX]


def _without_numbers(text: str) -> str:
    """Returns the text without ranks, addresses, folders and numbers."""
    text = re.sub(
        r"\b(?:on |in |of )?\[?ranks? ?\d+(?:(?:, | and )\d+)*\]?:? ?", "", text, flags=re.IGNORECASE
    )
    text = re.sub(r"0x[0-9a-fA-F]+", "#", text)
    text = re.sub(r"(?:[A-Za-z]:)?(?:[\\/][\w.@+~-]+){2,}[\\/]?", "<path>", text)
    text = re.sub(r"\b[0-9a-f]{8,}\b|\d+(?:\.\d+)*", "#", text)
    return " ".join(text.split())


def is_user_code(verdict: Verdict) -> bool:
    """Returns whether the training's code, data or libraries are certainly at fault, so that the same start
    fails again.
    """
    return verdict.confidence >= SURE and verdict.category in USER_CODE


def would_come_back(verdict: Verdict) -> bool:
    """Returns whether the failure is an exception of the run's own code, data or settings, which the same input
    raises again.

    The category and the advised action (a change of the run) decide. An exception about a remote service that did not
    respond never counts.
    """
    if not verdict.raised or verdict.category not in USER_CODE or is_environment(verdict):
        return False
    if re.search(UNANSWERED, verdict.raised.partition(" at ")[0]):
        return False
    usual = KINDS[verdict.category][1]
    return verdict.action in CHANGES_OF_THE_RUN or verdict.action == usual == "fix_env"


def is_environment(verdict: Verdict) -> bool:
    """Returns whether the cause is outside the training code, so that another start, perhaps on another node,
    can help.
    """
    outside = ("hardware", "network", "host", "scheduler")
    ends = ("process_killed", "process_stopped", "terminated", "host_oom", "cgroup_oom", "nccl_network_error")
    return verdict.class_ in outside or verdict.category in ends


def raised(error: ErrorRecord, place: str) -> str:
    """Returns a key that is equal for the same exception in different attempts: "ValueError at train.py:88:
    bad sample #".

    It is the value of Verdict.raised.
    """
    message = _without_numbers(error.message.partition("\n")[0])
    return f"{error.type} at {place}: {message}"[:KEY_MAX]
