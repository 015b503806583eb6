"""Which exceptions were handled and do not count."""

from core.diagnosis.candidate_kit import candidate, signature
from holdfast.core.diagnosis.choice.filters import without_handled

RAISED = signature("python-exception", "python_exception", weight=0.6)
NETWORK = signature("nccl-remote-error", "nccl_network_error")
CHAIN = signature("nested-failure-header", "python_exception", role="context", severity="info")
WHILE, BECAUSE = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)


def chained(text, words, tail, kind):
    head = candidate(RAISED, offset=4, text=text, error_type=text.partition(":")[0])
    link = candidate(CHAIN, offset=6, text=words)
    last = candidate(tail, offset=12, text=f"{kind}: it failed", error_type=kind)
    return head, without_handled([head, link, last])


def test_an_exception_that_was_expected_gives_way_to_the_one_that_ended_the_process():
    head, kept = chained("KeyError: 9", WHILE, NETWORK, "DistBackendError")
    assert head not in kept
    head, kept = chained("KeyError: 9", BECAUSE, RAISED, "RuntimeError")
    assert head in kept
    head, kept = chained("OSError: disk is gone", WHILE, RAISED, "RuntimeError")
    assert head in kept
    head, kept = chained("KeyError: 9", WHILE, RAISED, "KeyError")
    assert head in kept  # both say nothing: the first one counts
