"""Decides whether a shell's error, or a program's error about its options, ended nothing. Pure.

A shell that does not find a command continues with the next line of its script.
"""

from collections.abc import Sequence

from holdfast.core.diagnosis.candidates import Candidate, is_before, is_cause, stands_below
from holdfast.core.diagnosis.choice.edges import explains

WENT_ON_BYTES = 2 << 10  # so much output below a shell's complaint shows that the script went on
WENT_ON_REFUSED_BYTES = (
    6 << 10
)  # the same below refused options: the program also writes its usage, and kept-back output


def ended_nothing(one: Candidate, candidates: Sequence[Candidate], deaths: Sequence[Candidate]) -> bool:
    """Returns whether a shell's error did not end the job.

    That is the case if the error is about the command after the one that ended, or if the job continued after it.
    """
    return one.has("shell-complaint") and (
        _is_of_next_command(one, deaths) or _was_passed(one, candidates) or _ran_without(one, candidates)
    )


def preceded_training(one: Candidate, candidates: Sequence[Candidate]) -> bool:
    """Returns whether a shell's error precedes training in which ranks later waited for each other until a
    timeout.
    """
    return one.has("shell-complaint") and any(
        other.has("waited-in-vain") and other.severity == "fatal" and stands_below(other, one)
        for other in candidates
    )


def script_went_on(root: Candidate, sizes_bytes: Sequence[int]) -> bool:
    """Returns whether the log continues for long after its only complaint.

    `sizes_bytes`: sizes of logs; 0: unknown.

    After rejected options, later lines belong to a later run with other options.
    """
    source, offset = root.match.source, root.match.last_offset
    if not root.has("script-may-go-on") or source >= len(sizes_bytes):
        return False
    more_bytes = WENT_ON_REFUSED_BYTES if root.has("options-refused") else WENT_ON_BYTES
    return sizes_bytes[source] - offset > more_bytes


def _is_of_next_command(one: Candidate, deaths: Sequence[Candidate]) -> bool:
    return any(death.severity == "fatal" and stands_below(one, death) for death in deaths)


def _ran_without(one: Candidate, candidates: Sequence[Candidate]) -> bool:
    """Returns whether the program ran without what the shell did not find, and ended by an error in its own code."""
    return any(
        other.has("runs-of-itself")
        and other.is_traceback
        and is_cause(other)
        and not other.survived
        and stands_below(other, one)
        and not explains(one, other)
        for other in candidates
    )


def _was_passed(one: Candidate, candidates: Sequence[Candidate]) -> bool:
    """Returns whether later lines show that the job had started.

    A person or a time limit ended it, or ranks lost a peer, so all of them were running.
    """
    return any(
        other.has("ended-by-others")
        and other.severity == "fatal"
        and stands_below(other, one)
        or other.has("peer-lost")
        and is_before(other, one) is not True
        for other in candidates
    )
