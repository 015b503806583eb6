"""Decides when a complaint of a shell, or of a program about its options, ended nothing. Pure.

A shell that does not find a command goes on with the next line of its script.
"""

from collections.abc import Sequence

from holdfast.core.diagnosis.candidates import Candidate, is_before, stands_below

WENT_ON_BYTES = 2 << 10  # so much output below a shell's complaint shows that the script went on
WENT_ON_REFUSED_BYTES = (
    6 << 10
)  # the same below refused options: the program also writes its usage, and kept-back output


def ended_nothing(one: Candidate, candidates: Sequence[Candidate], deaths: Sequence[Candidate]) -> bool:
    """True for a shell's complaint about the command after the one that died, or if the job went on after it."""
    return one.has("shell-complaint") and (_is_of_next_command(one, deaths) or _was_passed(one, candidates))


def preceded_training(one: Candidate, candidates: Sequence[Candidate]) -> bool:
    """True for a shell's complaint in a job that trained and whose ranks later waited for each other in vain."""
    return one.has("shell-complaint") and any(
        other.has("waited-in-vain") and other.severity == "fatal" and stands_below(other, one)
        for other in candidates
    )


def script_went_on(root: Candidate, sizes_bytes: Sequence[int]) -> bool:
    """True if the log continues for long after the only complaint. `sizes_bytes`: of the logs; 0: unknown.

    After refused options, later lines belong to a later run with other options.
    """
    source, offset = root.match.source, root.match.last_offset
    if not root.has("script-may-go-on") or source >= len(sizes_bytes):
        return False
    more_bytes = WENT_ON_REFUSED_BYTES if root.has("options-refused") else WENT_ON_BYTES
    return sizes_bytes[source] - offset > more_bytes


def _is_of_next_command(one: Candidate, deaths: Sequence[Candidate]) -> bool:
    return any(death.severity == "fatal" and stands_below(one, death) for death in deaths)


def _was_passed(one: Candidate, candidates: Sequence[Candidate]) -> bool:
    """Later, a person or a limit ended the job; or ranks lost a peer, so all of them had started."""
    return any(
        other.has("ended-by-others")
        and other.severity == "fatal"
        and stands_below(other, one)
        or other.has("peer-lost")
        and is_before(other, one) is not True
        for other in candidates
    )
