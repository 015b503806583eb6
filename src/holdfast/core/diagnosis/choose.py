"""Chooses the clue that all others follow from, and says what was left over. Pure.

A job ends by what it did not survive. So a fault after which training went on counts only where the job died
and nothing later says why; a complaint counts only where no cause explains it; and where nothing died, nothing
was wrong.
"""

import re
from collections.abc import Sequence
from functools import reduce

from msgspec import Struct

from holdfast.core.diagnosis.clues import Clue, is_before
from holdfast.core.diagnosis.edges import ends_from_outside, explainers, explains, yields_to_any
from holdfast.core.diagnosis.wordings import SPOKEN
from holdfast.model.signatures import EXCEPTION, TRACEBACK_START

NEAR_BYTES = 256 << 10  # of an end: what stands so close can be its reason, though steps came between
LAST_BYTES = 1 << 10  # of a log
LOSS_IS_NAN = "loss-nan-in-log"
FINITE_LOSS = re.compile(r"(?i)(?<!val_)(?<!eval_)loss\b['\"]?\s{0,4}[:=]?\s{0,8}-?(?!0\.0\b)\d")
SAID_BYTES = 16 << 10  # so near the end a program speaks of the error that ends it
SURE = 0.75  # a signature of at least this weight is not doubted for a vague one before it
VAGUE = 0.6
LIKELY = 0.5
IGNORED = "exception-ignored"
FELL_BACK = "fell-back"
# torch.compile tells so of a function that it leaves as it is, traceback and all.
GOES_UNCOMPILED = re.compile(
    r"torch\._dynamo\.convert_frame: \[WARNING\]|\bW\d{4} .{0,80}_dynamo/convert_frame\.py:"
)
FELL_BACK_LINES_MAX = 40  # so long is what a compiler says before somebody tells that it goes without
IGNORED_LINES_MAX = 60  # so long is a traceback that is printed and ignored
BARE = 0.5  # of a symptom that says no more than that something ended
SAYS_NOTHING = frozenset({"python_exception", "unknown", "slurm_task_crash"})
TASK_EXITED = "srun-task-exited"
HOW = frozenset({"process_killed", "segfault", "shm_oom"})
# Lines that launchers print once, when they begin.
RUN_STARTS = frozenset({"omp-threads-notice", "deepspeed-launch-command"})
RUN_BYTES_MIN = 2 << 10  # less is no run
REPORT_ENDED = "lsf-report-ended"  # the last line that a batch system adds to a job's output
# What a shell complains of; it goes on with its next line whatever the last one did.
OF_SHELLS = frozenset({"command-not-found", "conda-not-activated", "module-file-missing"})
ENDED_BY_OTHERS = frozenset(
    {"terminated", "time_limit", "slurm_time_limit", "slurm_job_killed", "pod_preempted"}
)
REPLACEABLE = frozenset({"compile_error", "import_error", "version_mismatch"})
STEP_ABORTED = "srun-step-aborted"
TOLD_BY_OTHERS = frozenset(
    {"disk_full"}
)  # whoever writes next names the reason; who wrote first only says that it failed
# An exception without its traceback, behind nothing but who wrote it and when. Only an uncaught one has torch's "[rank3]: ".
BARE_EXCEPTION = re.compile(
    r"^[\s>]*(?:(?!\[(?:DEBUG|INFO|WARN))[\[(<][^\])>]{1,80}[\])>]:? ?|\d{1,6}: ?|[\d/T:.,+-]{4,40}(?:Z|UTC)? |(?:ERROR|FATAL|CRITICAL|E)\b[:|]? ?"
    r"|[\w.-]{1,40}: )*(?:[a-z_]\w*\.)*_?[A-Z]\w*(?:Error|Exception|Exit|Interrupt)\b"
)
OF_A_RANK = re.compile(r"\[rank\d{1,7}\]: \S")
# Of these the words only say that NCCL failed; its own first warning says what.
NCCL_SAYS_LITTLE = frozenset(
    {
        *(
            "nccl-system-error",
            "nccl-internal-error",
            "nccl-cuda-error",
            "nccl-invalid-usage",
            "nccl-remote-error",
        ),
        *("nccl-tests-failed", "nccl-invalid-argument", "nccl-peer-closed"),
    }
)
ORIGINAL = "Original Traceback (most recent call last)"
FROM_WORKER = "dataloader-worker-exception"
INNER_BYTES = 32 << 10
NCCL_WARNINGS = frozenset({"nccl-warn-of-network", "nccl-warn-of-setup"})
PATTERN = re.compile(r"\\[dwsSW](?:[+*]|\{\d)")  # a setting of who looks for such lines
CODE = re.compile(r"(?:^|[\]):>|]) ?\s{4,}(?:raise|return|assert|except|with|if|elif|for|while)\b")


class Choice(Struct, frozen=True, eq=False):
    """`root` None: nothing was wrong, or, with `died`, nothing tells what. `rivals`: other unexplained causes.

    `shown`: the line that tells most of it, where that is another than the root's own.
    `followers`: what the root explains, directly or not. `witnesses`: others that saw the same as the root.
    """

    root: Clue | None
    died: bool
    shown: Clue | None = None
    rivals: tuple[Clue, ...] = ()
    followers: tuple[Clue, ...] = ()
    witnesses: tuple[Clue, ...] = ()


def choose(
    clues: Sequence[Clue],
    *,
    is_finished: bool = False,
    made_steps: bool = False,
    sizes_bytes: Sequence[int] = (),
) -> Choice:
    """The first cause among all clues of a job.

    `is_finished`: its log names the last step of all. `made_steps`: some log of it names a step. `sizes_bytes`: of
    the logs, by their numbers; 0: not known.
    """
    clues = without_fallen_back(without_ignored([clue for clue in clues if not is_code(clue)]))
    last_run = of_last_run(clues, sizes_bytes)
    choice = _choose(one_for_each_line(last_run), is_finished=is_finished)
    if (
        len(last_run) < len(clues) and choice.died and _says_little(choice)
    ):  # it was only ended: why it was started again says more
        before = _choose(one_for_each_line(clues), is_finished=is_finished)
        choice = choice if _says_little(before) else before
    if _says_little(choice) and (choice.died or not made_steps):
        bare = choice.root is None or choice.root.category in SAYS_NOTHING
        kept = one_for_each_line(last_run, keep_exceptions=True, keep_bare=bare)
        doubted = _choose(kept, is_finished=is_finished)
        choice = choice if _says_little(doubted) else doubted
    if choice.root is None and not choice.died:
        seen = one_for_each_line(last_run)
        choice = (
            _goes_on_for_nothing(seen)
            or (None if made_steps else _last_words(seen))
            or _last_line(seen, sizes_bytes)
            or choice
        )
    return choice


def _says_little(choice: Choice) -> bool:
    root = choice.root
    return root is None or root.role == "symptom" and root.weight <= BARE


def _choose(clues: Sequence[Clue], *, is_finished: bool) -> Choice:
    clues = without_stumbles(clues)
    symptoms = [clue for clue in clues if clue.role == "symptom" and clue.category != "none"]
    ends = [clue for clue in symptoms if clue.severity in ("fatal", "error") and not clue.survived]
    done = [clue for clue in clues if clue.role == "end-ok"]
    deaths = [clue for clue in ends if not _work_was_done_after(clue, done)]
    clues = [
        clue for clue in clues if not (_is_of_the_next_command(clue, deaths) or _was_passed(clue, clues))
    ]
    causes = [clue for clue in clues if is_cause(clue) and not ends_from_outside(clue)]
    alive = [clue for clue in causes if not clue.survived and not _ended_well_after(clue, done, deaths)]
    pool = alive or [clue for clue in causes if _near_a_death(clue, deaths)]
    if not pool:
        told = [clue for clue in clues if is_cause(clue) and ends_from_outside(clue) and not clue.survived]
        pool = _lesser(_warnings(clues, done, deaths), without_bare([*told, *deaths]))
    if not pool:
        return Choice(root=None, died=bool(ends))
    if is_finished and all(clue.role == "symptom" and clue.weight <= BARE for clue in pool):
        return Choice(root=None, died=False)  # whoever ended badly after the last step told nobody of what
    unexplained = [clue for clue in pool if not explainers(clue, pool)] or pool
    root = first_of(without_vague(unexplained))
    rest = [clue for clue in clues if clue is not root and clue.role in ("cause", "symptom")]
    return Choice(
        root=root,
        died=bool(ends),
        shown=_shown(root, clues),
        rivals=tuple(clue for clue in unexplained if clue.category != root.category),
        followers=tuple(clue for clue in rest if explainers(clue, [root])),
        witnesses=tuple(clue for clue in pool if clue.category == root.category),
    )


def _is_of_the_next_command(clue: Clue, deaths: Sequence[Clue]) -> bool:
    """A shell complains below the end of what it ran: that was over by then."""
    return clue.signature.id in OF_SHELLS and any(
        death.severity == "fatal" and _stands_below(clue, death) for death in deaths
    )


def _was_passed(clue: Clue, clues: Sequence[Clue]) -> bool:
    """A shell that complained and went on, until somebody or a limit ended the job: what it missed ended nothing."""
    return clue.signature.id in OF_SHELLS and any(
        other.category in ENDED_BY_OTHERS and other.severity == "fatal" and _stands_below(other, clue)
        for other in clues
    )


def _shown(root: Clue, clues: Sequence[Clue]) -> Clue | None:
    """The line that says more than the root's own, or says it first; None where none does."""
    first = [clue for clue in clues if _says_it_first(clue, root)]
    if first:
        return first_of(first)
    if root.signature.id == FROM_WORKER or any(ORIGINAL in line for line in root.sighting.record[:2]):
        inner = [clue for clue in clues if _is_inner(clue, root)]
        return inner[0] if inner else None
    return _first_warning(root, clues)


def _says_it_first(clue: Clue, root: Clue) -> bool:
    """The line, above the root's own in the same log, with which the same end was first told."""
    if clue.survived or not _stands_below(root, clue):
        return False
    if root.category == "terminated":
        return clue.signature.id == STEP_ABORTED and root.sighting.offset - clue.sighting.offset < NEAR_BYTES
    return (
        root.category in TOLD_BY_OTHERS
        and is_cause(clue)
        and clue.class_ != "process"
        and explains(root, clue)
    )


def _is_inner(clue: Clue, root: Clue) -> bool:
    """The exception that a worker of the loader raised, as it says it itself, below the line that passes it on."""
    kind = root.sighting.captures.get("type") or root.sighting.error_type
    return (
        clue.sighting.source == root.sighting.source
        and 0 < clue.sighting.offset - root.sighting.offset < INNER_BYTES
        and clue.is_traceback
        and (not kind or clue.sighting.error_type.rpartition(".")[2] == kind.rpartition(".")[2])
    )


def _lesser(warnings: Sequence[Clue], ends: Sequence[Clue]) -> list[Clue]:
    """What is left where no cause was seen: an end that says how it came says more than a component's complaint.

    But that somebody ended the job does not say why: a device or a transport that complained since the last step may.
    """
    sure = [clue for clue in warnings if not is_complaint(clue)]
    first = [clue for clue in ends if not explainers(clue, ends)] or ends
    known = SAYS_NOTHING | ({"terminated"} if any(_is_of_devices(clue) for clue in warnings) else set())
    says_how = any(clue.category not in known for clue in first)
    return sure or ([*ends] if says_how else [*warnings] or [*ends])


def _is_of_devices(clue: Clue) -> bool:
    return is_complaint(clue) and clue.signature.area != "scheduler"


def is_complaint(clue: Clue) -> bool:
    """Of a component, in words that nobody knows."""
    return clue.signature.id.endswith("-complaint") or clue.signature.id in NCCL_WARNINGS


def _first_warning(root: Clue, clues: Sequence[Clue]) -> Clue | None:
    """NCCL's own first warning before an exception that only says that NCCL failed."""
    if root.signature.id not in NCCL_SAYS_LITTLE:
        return None
    warned = [
        clue
        for clue in clues
        if clue.signature.id in NCCL_WARNINGS
        and clue.sighting.source == root.sighting.source
        and 0 < root.sighting.offset - clue.sighting.offset < NEAR_BYTES
    ]
    return warned[0] if warned else None


def is_cause(clue: Clue) -> bool:
    return clue.role == "cause" and clue.severity in ("fatal", "error")


def is_code(clue: Clue) -> bool:
    """A line of a traceback that shows the code which raised, not what it said; or a pattern, not what it matches."""
    if PATTERN.search(clue.sighting.text):
        return True
    return clue.signature.area == "worker" and CODE.search(clue.sighting.text) is not None


def without_ignored(clues: Sequence[Clue]) -> list[Clue]:
    """Without what tracebacks say that Python prints and ignores: nothing ended by them, whatever their words."""
    heads = [clue.sighting for clue in clues if clue.signature.id == IGNORED]
    starts = {
        (one.source, one.line)
        for one in (clue.sighting for clue in clues if clue.signature.id == TRACEBACK_START)
    }
    ignored: set[tuple[int, int]] = set()
    for head in heads:
        after = [
            clue.sighting
            for clue in clues
            if clue.role == "cause"
            and clue.sighting.source == head.source
            and 0 < clue.sighting.line - head.line <= IGNORED_LINES_MAX
        ]
        if after and head.line and (head.source, head.line + 1) in starts:
            ignored.add((head.source, min(one.line for one in after)))
    return [
        clue
        for clue in clues
        if (clue.sighting.source, clue.sighting.line) not in ignored or clue.role != "cause"
    ]


def without_fallen_back(clues: Sequence[Clue]) -> list[Clue]:
    """Without what the program does without: what torch.compile leaves as it is, and what could not be built or
    imported where it says, a few lines below, what it takes instead."""
    told = [clue.sighting for clue in clues if clue.signature.id == FELL_BACK]
    return [
        clue
        for clue in clues
        if not GOES_UNCOMPILED.search(clue.sighting.text)
        and not (
            clue.category in REPLACEABLE
            and any(
                one.source == clue.sighting.source
                and 0 <= one.line - clue.sighting.line <= FELL_BACK_LINES_MAX
                and clue.sighting.line
                for one in told
            )
        )
    ]


def of_last_run(clues: Sequence[Clue], sizes_bytes: Sequence[int] = ()) -> list[Clue]:
    """A log to which several runs were appended: what stands before the last start is not this run's.

    A start with which the log ends is none: what a launcher says first can reach it last.
    """
    started: dict[int, int] = {}
    for clue in clues:
        source = clue.sighting.source
        if clue.signature.id in RUN_STARTS:
            size_bytes = sizes_bytes[source] if source < len(sizes_bytes) else 0
            if not size_bytes or size_bytes - clue.sighting.last_offset > RUN_BYTES_MIN:
                started[source] = max(started.get(source, 0), clue.sighting.last_offset)
        elif clue.signature.id == REPORT_ENDED:
            ended = _end_of_run_before(clue, clues)
            started[source] = max(started.get(source, 0), ended)
    return [clue for clue in clues if clue.sighting.last_offset >= started.get(clue.sighting.source, 0)]


def _end_of_run_before(report: Clue, clues: Sequence[Clue]) -> int:
    """Where the report on the run before the last stands: the last report, where anything was seen below it.

    Of a line that stands often only the first place and the last are known: then the first.
    """
    one = report.sighting
    if any(
        clue.sighting.source == one.source and clue.sighting.last_offset > one.last_offset for clue in clues
    ):
        return one.last_offset
    return one.offset if one.count > 1 else 0


def one_for_each_line(
    clues: Sequence[Clue], *, keep_exceptions: bool = False, keep_bare: bool = False
) -> list[Clue]:
    """Of several causes seen on one line the surest. A traceback that no signature knows is the vaguest of all.

    What only looks like an exception is none, and one whose line is known as context is no fault, unless
    `keep_exceptions`; `keep_bare`: so is one of whose traceback nothing is left.
    """
    best: dict[tuple[int, int], Clue] = {}
    known: set[tuple[int, int]] = set()
    for clue in clues:
        place = (clue.sighting.source, clue.sighting.offset)
        if clue.role == "cause" and clue.signature.id != EXCEPTION:
            held = best.setdefault(place, clue)
            best[place] = clue if clue.weight > held.weight else held
        is_known = clue.signature.id not in (EXCEPTION, TRACEBACK_START)
        if is_known and not (keep_exceptions and clue.role == "context"):
            known.add(place)
    kept = []
    for clue in clues:
        place = (clue.sighting.source, clue.sighting.offset)
        if clue.signature.id == EXCEPTION:
            is_told = clue.is_traceback or _is_uncaught(clue, keep_bare=keep_bare)
            if is_told and place not in known:
                kept.append(clue)
        elif clue.role != "cause" or best[place] is clue:
            kept.append(clue)
    return without_doubles(kept, clues)


def without_doubles(kept: Sequence[Clue], clues: Sequence[Clue]) -> list[Clue]:
    """Of one line, not what is said of lines of all kinds where something is known of this one."""
    known, ends = set(), set()
    for clue in clues:
        place = (clue.sighting.source, clue.sighting.offset)
        if clue.signature.id not in (SPOKEN, EXCEPTION):
            known.add(place)
        if clue.role == "symptom" and clue.category != "unknown":
            ends.add(place)
    return [
        clue
        for clue in kept
        if not (clue.signature.id == SPOKEN and (clue.sighting.source, clue.sighting.offset) in known)
        and not (
            clue.role == "symptom"
            and clue.category == "unknown"
            and (clue.sighting.source, clue.sighting.offset) in ends
        )
    ]


def _is_uncaught(clue: Clue, *, keep_bare: bool) -> bool:
    """A line that names an exception, of whose traceback nothing is left; caught ones are logged in such lines too."""
    text = clue.sighting.text
    if OF_A_RANK.search(text[:200]):
        return BARE_EXCEPTION.match(text) is not None
    return keep_bare and BARE_EXCEPTION.match(text) is not None


def without_stumbles(clues: Sequence[Clue]) -> list[Clue]:
    """Without exceptions that nobody knows of a process that a scheduler had told to end, no task having failed."""
    ends = [clue for clue in clues if clue.role == "symptom" and clue.signature.area == "scheduler"]
    failed = [
        clue for clue in ends if clue.signature.id == TASK_EXITED
    ]  # srun says so before it ends the others
    told = [
        clue
        for clue in ends
        if clue.class_ == "process"
        and clue.weight > BARE
        and all(is_before(one, clue) is False for one in failed)
    ]
    return [
        clue
        for clue in clues
        if clue.signature.id != EXCEPTION or not any(_stands_below(clue, one) for one in told)
    ]


def _stands_below(clue: Clue, other: Clue) -> bool:
    return clue.sighting.source == other.sighting.source and clue.sighting.offset > other.sighting.offset


def without_bare(ends: Sequence[Clue]) -> list[Clue]:
    """Without launchers that only say that something failed, where another end says how."""
    if not any(clue.weight > BARE and clue.category in HOW for clue in ends):
        return list(ends)
    return [clue for clue in ends if clue.weight > BARE or clue.category != "python_exception"]


def first_of(clues: Sequence[Clue]) -> Clue:
    """The earliest; where nothing tells the order, the surest."""
    return reduce(_earlier, clues)


def without_vague(clues: Sequence[Clue]) -> list[Clue]:
    """A caught exception is often logged long before what ends the job: it yields where something better is known."""
    if any(clue.weight >= SURE for clue in clues):
        return [clue for clue in clues if clue.weight > VAGUE]
    known = [clue for clue in clues if clue.signature.id != EXCEPTION and clue.weight >= LIKELY]
    return known or list(clues)


def _earlier(one: Clue, other: Clue) -> Clue:
    before = is_before(one, other)
    if before is None:
        before = (-one.weight, one.order) < (-other.weight, other.order)
    return one if before else other


def _work_was_done_after(clue: Clue, done: Sequence[Clue]) -> bool:
    return any(one.sighting.source == clue.sighting.source and is_before(clue, one) for one in done)


def _ended_well_after(clue: Clue, done: Sequence[Clue], deaths: Sequence[Clue]) -> bool:
    """The job said that its work was done, later than this, and nothing died."""
    return not deaths and any(
        is_before(clue, one) is not False
        and (one.sighting.source == clue.sighting.source or not clue.is_traceback or is_before(clue, one))
        for one in done
    )


def _near_a_death(clue: Clue, deaths: Sequence[Clue]) -> bool:
    return not clue.outlived and any(
        clue.sighting.source != death.sighting.source
        or abs(death.sighting.offset - clue.sighting.last_offset) < NEAR_BYTES
        for death in deaths
    )


def _is_said_at(clue: Clue, deaths: Sequence[Clue]) -> bool:
    """Shortly before an end in the same log; or in another log, which tells of none."""
    offsets = [death.sighting.offset for death in deaths if death.sighting.source == clue.sighting.source]
    return not offsets or any(0 < offset - clue.sighting.last_offset < SAID_BYTES for offset in offsets)


def _last_words(clues: Sequence[Clue]) -> Choice | None:
    """Of a job that neither made a step nor finished: a complaint that alone ends none, where it is all there is."""
    complaints = [
        clue
        for clue in clues
        if clue.severity == "warning"
        and clue.category != "none"
        and clue.signature.id != SPOKEN
        and (clue.role == "symptom" or yields_to_any(clue))
    ]
    if not complaints or any(clue.role == "end-ok" for clue in clues):
        return None
    return Choice(root=first_of(complaints), died=False, witnesses=tuple(complaints))


def _goes_on_for_nothing(clues: Sequence[Clue]) -> Choice | None:
    """A training whose loss is no number any more, to its last step: nothing ended, and nothing is learned."""
    lost = [
        clue
        for clue in clues
        if clue.signature.id == LOSS_IS_NAN
        and not clue.survived
        and clue.sighting.count > 1
        and not FINITE_LOSS.search(clue.sighting.text)
    ]
    return Choice(root=first_of(lost), died=False, witnesses=tuple(lost)) if lost else None


def _last_line(clues: Sequence[Clue], sizes_bytes: Sequence[int]) -> Choice | None:
    """A program that speaks of an error with its last words, and of no work that was done."""
    if any(clue.role == "end-ok" for clue in clues):
        return None
    last = [
        clue
        for clue in clues
        if clue.signature.id == SPOKEN
        and clue.role != "context"
        and not clue.survived
        and clue.sighting.source < len(sizes_bytes)
        and sizes_bytes[clue.sighting.source] - clue.sighting.last_offset < LAST_BYTES
    ]
    return Choice(root=first_of(last), died=False, witnesses=tuple(last)) if last else None


def _warnings(clues: Sequence[Clue], done: Sequence[Clue], deaths: Sequence[Clue]) -> list[Clue]:
    """Lesser causes, of a job that died; those of a node's own logs also where no job is known to have gone on."""
    lesser = [clue for clue in clues if clue.role == "cause" and not clue.survived]
    if deaths:
        return [clue for clue in lesser if clue.signature.id != SPOKEN or _is_said_at(clue, deaths)]
    if done:
        return []
    return [clue for clue in lesser if clue.signature.area != "worker"]
