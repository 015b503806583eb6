"""Chooses the root cause among the candidates of a job. Pure.

The steps, starting from the result of `candidates.candidates`:

1. filters: source code lines, ignored errors, survived errors and earlier runs are removed; 2. edges: a
candidate that is explained by another, not later candidate is not the root cause; 3. choice: the unexplained
candidates are rivals, which `scoring` weighs: the earliest of those that no other one outweighs.

A fault after which training continued counts only if the job died and no later line gives a reason. A
complaint counts only if no cause explains it. If nothing died, nothing was wrong.
"""

from collections.abc import Sequence

from msgspec import Struct

from holdfast.core.diagnosis.candidates import BARE, NEAR_BYTES, Candidate, first_of, is_before, is_cause
from holdfast.core.diagnosis.choice.edges import ends_from_outside, explainers
from holdfast.core.diagnosis.choice.filters import (
    is_code,
    one_for_each_line,
    without_announcing,
    without_fallen_back,
    without_handled,
    without_harmless,
    without_ignored,
    without_orphans,
    without_own_aborts,
    without_stumbles,
)
from holdfast.core.diagnosis.choice.last_words import last_words, of_excerpt
from holdfast.core.diagnosis.choice.runs import of_last_run, without_bygone
from holdfast.core.diagnosis.choice.scoring import contenders, doubts
from holdfast.core.diagnosis.choice.shell_complaints import ended_nothing, preceded_training, script_went_on
from holdfast.core.diagnosis.choice.weighing import (
    breaks_before,
    first_to_fail,
    lesser,
    nan_before,
    without_bare,
    without_late_requests,
    without_stumbled,
)
from holdfast.core.diagnosis.words.quoting import shown_by
from holdfast.model.signatures import SPOKEN

SAID_BYTES = 16 << 10  # this near the end, a program speaks of the error that ends it


class Choice(Struct, frozen=True, eq=False):
    """The result of the choice of a root cause.

    `died`: a process of the job has ended. `root`: the root cause; None if nothing is wrong or, if `died`, the cause
    is unknown. `rivals`: other unexplained causes. `shown`: the line to quote, if it is not the root cause's.
    `followers`: candidates that the root cause explains, directly or indirectly. `witnesses`: other candidates that
    report the same fault.
    """

    root: Candidate | None
    died: bool
    shown: Candidate | None = None
    rivals: tuple[Candidate, ...] = ()
    followers: tuple[Candidate, ...] = ()
    witnesses: tuple[Candidate, ...] = ()


def choose(
    candidates: Sequence[Candidate],
    *,
    is_finished: bool = False,
    made_steps: bool = False,
    sizes_bytes: Sequence[int] = (),
    excerpt: bool = False,
) -> Choice:
    """Returns the root cause among all candidates of a job, with related candidates.

    `is_finished`: a log names the last of all planned steps. `made_steps`: a log contains steps.
    `sizes_bytes`: sizes of the logs by their index; 0 means unknown. `excerpt`: the text is only a few lines
    that a person copied from a log.
    """
    counting = _counting(candidates, made_steps=made_steps)
    last_run = of_last_run(counting, sizes_bytes)
    if made_steps or any(one.has("epoch-counted") for one in last_run):
        last_run = [one for one in last_run if not preceded_training(one, last_run)]

    choice = _choose(one_for_each_line(last_run), is_finished=is_finished)
    if choice.root is not None and not choice.died and script_went_on(choice.root, sizes_bytes):
        last_run = [one for one in last_run if not one.has("script-may-go-on")]
        choice = _choose(one_for_each_line(last_run), is_finished=is_finished)
    choice = _better_of_earlier_run(choice, counting, last_run, is_finished=is_finished)
    choice = _better_of_doubted(choice, last_run, is_finished=is_finished, made_steps=made_steps)
    if made_steps and _is_bridged_break(choice):
        rest = [one for one in last_run if not one.has("link-break")]
        choice = _choose(one_for_each_line(rest), is_finished=is_finished)
    if choice.root is None and not choice.died:
        seen = one_for_each_line(last_run)
        last = last_words(seen, candidates, made_steps=made_steps, sizes_bytes=sizes_bytes)
        last = last or (of_excerpt(seen) if excerpt else [])
        choice = Choice(root=first_of(last), died=False, witnesses=tuple(last)) if last else choice
    return choice


def _counting(candidates: Sequence[Candidate], *, made_steps: bool) -> list[Candidate]:
    """Returns the candidates without lines that are no messages and without errors that ended nothing."""
    counting = without_harmless([one for one in candidates if not is_code(one)])
    counting = without_ignored(without_orphans(counting))
    counting = without_announcing(without_fallen_back(without_handled(counting)))
    return without_bygone(counting) if made_steps else counting


def _better_of_earlier_run(
    choice: Choice, counting: Sequence[Candidate], last_run: Sequence[Candidate], *, is_finished: bool
) -> Choice:
    """Returns a choice from the previous run of the same log if the last run was only terminated from
    outside.

    The reason why the training was started again is then more informative.
    """
    if len(last_run) == len(counting) or not choice.died or not _says_little(choice):
        return choice
    before = _choose(one_for_each_line(counting), is_finished=is_finished)
    return choice if _says_little(before) else before


def _better_of_doubted(
    choice: Choice, last_run: Sequence[Candidate], *, is_finished: bool, made_steps: bool
) -> Choice:
    """Returns a choice that also considers doubtful lines, if the usual choice has little confidence.

    Doubtful are exceptions in lines that are known to be context, and exceptions without a traceback.
    """
    is_done = made_steps or any(one.role == "end-ok" for one in last_run)
    if not _says_little(choice) or not choice.died and is_done:
        return choice
    bare = choice.root is None or choice.root.has("no-cause-named")
    kept = one_for_each_line(last_run, keep_exceptions=True, keep_bare=bare)
    doubted = _choose(kept, is_finished=is_finished)
    return choice if _says_little(doubted) else doubted


def _is_bridged_break(choice: Choice) -> bool:
    """Returns whether the root cause is only a link failure of seconds in a job that trains and has no
    other failure.
    """
    root = choice.root
    return not choice.died and root is not None and root.has("link-break") and root.severity == "warning"


def _says_little(choice: Choice) -> bool:
    root = choice.root
    return root is None or root.role == "symptom" and root.weight <= BARE


def _choose(candidates: Sequence[Candidate], *, is_finished: bool) -> Choice:
    """Returns the choice among candidates of which each belongs to a different line."""
    candidates = without_own_aborts(without_stumbles(candidates))
    done = [one for one in candidates if one.role == "end-ok"]
    ends = [one for one in candidates if _is_end(one)]
    deaths = _deaths(ends, done)
    candidates = [one for one in candidates if not ended_nothing(one, candidates, deaths)]

    pool = _causes(candidates, done, deaths)
    if not pool:
        asked = [one for one in candidates if is_cause(one) and ends_from_outside(one) and not one.survived]
        pool = lesser(_warnings(candidates, done, deaths), without_bare([*asked, *deaths]))
    if not pool:
        return Choice(root=None, died=bool(deaths))
    if is_finished and all(one.role == "symptom" and one.weight <= BARE for one in pool):
        return Choice(root=None, died=False)  # after the last step, a bad end without a reason cost nothing

    unexplained = [one for one in pool if not explainers(one, pool)] or pool
    rivals = without_late_requests(without_stumbled(unexplained, candidates))
    own = [one for one in candidates if one.signature.area == "worker" and is_cause(one) and not one.survived]
    endings = [*deaths, *own]
    root = first_to_fail(first_of(contenders(rivals, endings)), rivals, candidates)
    rest = [one for one in candidates if one is not root and one.role in ("cause", "symptom")]
    return Choice(
        root=root,
        died=bool(ends),
        shown=shown_by(root, candidates),
        rivals=tuple(one for one in doubts(rivals, endings) if one.category != root.category),
        followers=tuple(one for one in rest if explainers(one, [root])),
        witnesses=tuple(one for one in pool if one.category == root.category),
    )


def _is_end(one: Candidate) -> bool:
    """Returns whether a candidate is a symptom that ended a process."""
    is_bad = one.severity in ("fatal", "error") and not one.survived
    return one.role == "symptom" and one.category != "none" and is_bad


def _causes(
    candidates: Sequence[Candidate], done: Sequence[Candidate], deaths: Sequence[Candidate]
) -> list[Candidate]:
    """Returns the causes that the job did not survive; if there are none, those that it survived shortly
    before its end.
    """
    causes = [one for one in candidates if is_cause(one) and not ends_from_outside(one)]
    causes += breaks_before(causes, candidates)
    alive = [one for one in causes if not one.survived and not _ended_well_after(one, done, deaths)]
    alive += nan_before(alive, candidates)
    return alive or [one for one in causes if _near_a_death(one, deaths)]


def _deaths(ends: Sequence[Candidate], done: Sequence[Candidate]) -> list[Candidate]:
    """Returns the process ends that finished work does not excuse.

    If only an exit code without a reason is left, the work was not done: one of several processes finished. Then
    the ends shortly before it count as well.
    """
    left = [one for one in ends if not _work_was_done_after(one, done)]
    if not left or any(one.category != "unknown" for one in left):
        return left
    return [one for one in ends if one in left or _near_a_death(one, left)]


def _work_was_done_after(one: Candidate, done: Sequence[Candidate]) -> bool:
    return any(end.match.source == one.match.source and is_before(one, end) for end in done)


def _ended_well_after(one: Candidate, done: Sequence[Candidate], deaths: Sequence[Candidate]) -> bool:
    """Returns whether the job reported finished work after a candidate, and no process died.

    If the order of two logs is unknown, only quoted lines and lines in which a rank mentions an error are excused. Exceptions,
    process ends and faults of the rank's node are not, because the fault can have ended the next job.
    """
    is_quoted = one.says("quoted-line")
    only_mentioned = is_quoted or (
        one.signature.area == "worker" and one.severity != "fatal" and not one.is_traceback
    )
    orders = [is_before(one, end) for end in done]
    return not deaths and (any(orders) or only_mentioned and None in orders)


def _near_a_death(one: Candidate, deaths: Sequence[Candidate]) -> bool:
    return not one.outlived and any(
        one.match.source != death.match.source or abs(death.match.offset - one.match.last_offset) < NEAR_BYTES
        for death in deaths
    )


def _is_said_at(one: Candidate, deaths: Sequence[Candidate]) -> bool:
    """Returns whether a line was written shortly before a process end in the same log, or in a log without
    such an end.
    """
    offsets = [death.match.offset for death in deaths if death.match.source == one.match.source]
    return not offsets or any(0 < offset - one.match.last_offset < SAID_BYTES for offset in offsets)


def _warnings(
    candidates: Sequence[Candidate], done: Sequence[Candidate], deaths: Sequence[Candidate]
) -> list[Candidate]:
    """Returns warnings that can be the cause if a job died.

    Warnings in a node's own logs count even if no job died, as long as no job is known to have continued.
    """
    few = [one for one in candidates if one.role == "cause" and not one.survived]
    if deaths:
        return [one for one in few if one.signature.id != SPOKEN or _is_said_at(one, deaths)]
    if done:
        return []
    return [one for one in few if one.signature.area != "worker"]
