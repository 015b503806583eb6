"""Chooses the clue that all others follow from, and says what was left over. Pure.

A job ends by what it did not survive. So a fault after which training went on counts only where the job died
and nothing later says why; a complaint counts only where no cause explains it; and where nothing died, nothing
was wrong.
"""

from collections.abc import Sequence

from msgspec import Struct

from holdfast.core.clock_offsets import are_comparable
from holdfast.core.diagnosis.clues import (
    BARE,
    CLOCK_SKEW_S,
    NEAR_BYTES,
    Clue,
    first_of,
    is_before,
    is_cause,
    stands_below,
)
from holdfast.core.diagnosis.devices.events import ECC, LINK_XIDS
from holdfast.core.diagnosis.devices.judge import PROGRAM_XIDS
from holdfast.core.diagnosis.edges import ends_from_outside, explainers, follows_from
from holdfast.core.diagnosis.last_words import last_words, of_excerpt
from holdfast.core.diagnosis.sifting import (
    WAITED_IN_VAIN,
    is_code,
    of_last_run,
    one_for_each_line,
    without_announcing,
    without_bygone,
    without_fallen_back,
    without_harmless,
    without_ignored,
    without_orphans,
    without_own_aborts,
    without_stumbles,
)
from holdfast.core.diagnosis.words.quoting import NCCL_WARNINGS, shown_by
from holdfast.model.signatures import EXCEPTION, SPOKEN

SAID_BYTES = 16 << 10  # so near the end a program speaks of the error that ends it
SURE = 0.75  # a signature of at least this weight is not doubted for a vague one before it
VAGUE = 0.6
LIKELY = 0.5
FLAP = "nic_link_flap"
BROKEN = "nccl_network_error"
# From a break of a link to the error: retries take half a minute by default, two with NCCL_IB_TIMEOUT=22. And to the
# end of those who wait.
BREAK_TO_ERROR_S, BREAK_TO_END_S = (-CLOCK_SKEW_S, 180.0), (-CLOCK_SKEW_S, 2100.0)
SAYS_NOTHING = frozenset({"python_exception", "unknown", "slurm_task_crash"})
HOW = frozenset({"process_killed", "segfault", "shm_oom"})
# What a shell complains of; it goes on with its next line whatever the last one did.
OF_SHELLS = frozenset({"command-not-found", "conda-not-activated", "module-file-missing"})
# A peer that went away had been there: its shell had got that far, and so had this one's.
HAD_PEER = frozenset({"nccl-peer-closed", "nccl-remote-error"})
EPOCH = "training-epoch"
OF_SHELLS_TOOLS = OF_SHELLS | {"shell-file-missing"}
WENT_ON_BYTES = 2 << 10
# A program that refuses its options ends at once, with what it had kept back of its output.
REFUSED_OPTIONS = frozenset({"script-arguments-wrong", "script-options-refused", "launcher-usage-error"})
WENT_ON_REFUSED_BYTES = 6 << 10
NAN = "nan_loss"
NAN_BYTES = 2 << 10
OF_MACHINES = frozenset({"hardware", "host", "memory", "network"})
OF_PROGRAMS = frozenset(f"xid_{code}" for code in PROGRAM_XIDS)
# Memory and links of a GPU: errors of no program, also where the GPU goes on after them.
OF_DEVICES = frozenset(f"xid_{code}" for code in ECC | LINK_XIDS)
PROGRAM_ENDS_S = 3600.0  # a program that has got such an Xid is over by then
ENDED_BY_OTHERS = frozenset(
    {"terminated", "time_limit", "slurm_time_limit", "slurm_job_killed", "pod_preempted"}
)


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
    excerpt: bool = False,
) -> Choice:
    """The first cause among all clues of a job.

    `is_finished`: its log names the last step of all. `made_steps`: some log of it names a step. `sizes_bytes`: of
    the logs, by their numbers; 0: not known. `excerpt`: they are a few lines that somebody cut out.
    """
    every = clues
    clues = without_orphans(without_harmless([clue for clue in clues if not is_code(clue)]))
    clues = without_announcing(without_fallen_back(without_ignored(clues)))
    clues = without_bygone(clues) if made_steps else clues
    last_run = of_last_run(clues, sizes_bytes)
    if made_steps or any(clue.signature.id == EPOCH for clue in last_run):
        last_run = [clue for clue in last_run if not _was_of_no_matter(clue, last_run)]
    choice = _choose(one_for_each_line(last_run), is_finished=is_finished)
    if _went_on(choice, sizes_bytes):
        last_run = [clue for clue in last_run if clue.signature.id not in OF_SHELLS_TOOLS | REFUSED_OPTIONS]
        choice = _choose(one_for_each_line(last_run), is_finished=is_finished)
    if (
        len(last_run) < len(clues) and choice.died and _says_little(choice)
    ):  # it was only ended: why it was started again says more
        before = _choose(one_for_each_line(clues), is_finished=is_finished)
        choice = choice if _says_little(before) else before
    is_done = made_steps or any(clue.role == "end-ok" for clue in last_run)
    if _says_little(choice) and (choice.died or not is_done):
        bare = choice.root is None or choice.root.category in SAYS_NOTHING
        kept = one_for_each_line(last_run, keep_exceptions=True, keep_bare=bare)
        doubted = _choose(kept, is_finished=is_finished)
        choice = choice if _says_little(doubted) else doubted
    if made_steps and _is_bridged_break(choice):
        choice = _choose(
            one_for_each_line([clue for clue in last_run if clue.category != FLAP]), is_finished=is_finished
        )
    if choice.root is None and not choice.died:
        seen = one_for_each_line(last_run)
        told = last_words(seen, every, made_steps=made_steps, sizes_bytes=sizes_bytes)
        told = told or (of_excerpt(seen) if excerpt else [])
        choice = Choice(root=first_of(told), died=False, witnesses=tuple(told)) if told else choice
    return choice


def _is_bridged_break(choice: Choice) -> bool:
    """A link that was away for seconds, in a job that trains and of which nothing else is known to have failed."""
    root = choice.root
    return not choice.died and root is not None and root.category == FLAP and root.severity == "warning"


def _went_on(choice: Choice, sizes_bytes: Sequence[int]) -> bool:
    """A shell's complaint that is all there is, and the script said much more afterwards, of no end: it did without.

    So where options were refused: what comes then is of a later run, which was told others.
    """
    root = choice.root
    if root is None or choice.died or root.signature.id not in OF_SHELLS_TOOLS | REFUSED_OPTIONS:
        return False
    source, offset = root.sighting.source, root.sighting.last_offset
    more_bytes = WENT_ON_REFUSED_BYTES if root.signature.id in REFUSED_OPTIONS else WENT_ON_BYTES
    return source < len(sizes_bytes) and sizes_bytes[source] - offset > more_bytes


def _says_little(choice: Choice) -> bool:
    root = choice.root
    return root is None or root.role == "symptom" and root.weight <= BARE


def _choose(clues: Sequence[Clue], *, is_finished: bool) -> Choice:
    clues = without_own_aborts(without_stumbles(clues))
    symptoms = [clue for clue in clues if clue.role == "symptom" and clue.category != "none"]
    ends = [clue for clue in symptoms if clue.severity in ("fatal", "error") and not clue.survived]
    done = [clue for clue in clues if clue.role == "end-ok"]
    deaths = [clue for clue in ends if not _work_was_done_after(clue, done)]
    clues = [
        clue for clue in clues if not (_is_of_the_next_command(clue, deaths) or _was_passed(clue, clues))
    ]
    causes = [clue for clue in clues if is_cause(clue) and not ends_from_outside(clue)]
    causes += _breaks_before(causes, clues)
    alive = [clue for clue in causes if not clue.survived and not _ended_well_after(clue, done, deaths)]
    alive += _numbers_gone_before(alive, clues)
    pool = alive or [clue for clue in causes if _near_a_death(clue, deaths)]
    if not pool:
        told = [clue for clue in clues if is_cause(clue) and ends_from_outside(clue) and not clue.survived]
        pool = _lesser(_warnings(clues, done, deaths), without_bare([*told, *deaths]))
    if not pool:
        return Choice(root=None, died=bool(deaths))
    if is_finished and all(clue.role == "symptom" and clue.weight <= BARE for clue in pool):
        return Choice(root=None, died=False)  # whoever ended badly after the last step told nobody of what
    unexplained = [clue for clue in pool if not explainers(clue, pool)] or pool
    unexplained = _without_ended_programs(_without_returned(unexplained), clues)
    root = first_of(without_vague(_without_stumbled(unexplained, clues)))
    rest = [clue for clue in clues if clue is not root and clue.role in ("cause", "symptom")]
    return Choice(
        root=root,
        died=bool(ends),
        shown=shown_by(root, clues),
        rivals=tuple(clue for clue in unexplained if clue.category != root.category),
        followers=tuple(clue for clue in rest if explainers(clue, [root])),
        witnesses=tuple(clue for clue in pool if clue.category == root.category),
    )


def _breaks_before(causes: Sequence[Clue], clues: Sequence[Clue]) -> list[Clue]:
    """Links that were away for a moment, shortly before a transfer failed: by itself that is no fault, retries bridge it.

    Where NCCL's line has no time, what the job said in its end has: others wait for the rank up to half an hour.
    """
    failed = [clue for clue in causes if clue.category == BROKEN and not clue.survived]
    times_s = [clue.at_s for clue in failed if clue.at_s is not None]
    window_s = BREAK_TO_ERROR_S
    if failed and not times_s:
        ended = [one for one in clues if one.signature.area == "worker" and one.class_ == "communication"]
        times_s = [one.at_s for one in ended if one.at_s is not None and not one.survived]
        window_s = BREAK_TO_END_S
    return [
        clue
        for clue in clues
        if clue.category == FLAP
        and clue.role == "cause"
        and clue.severity == "warning"
        and any(_is_within(at_s, clue.at_s, window_s) for at_s in times_s)
    ]


def _numbers_gone_before(alive: Sequence[Clue], clues: Sequence[Clue]) -> list[Clue]:
    """NaN in the log, just before a failure that names NaN as its cause: steps go on with it until something refuses."""
    return [
        clue
        for clue in clues
        if clue.category == NAN
        and clue.role == "cause"
        and clue.severity == "warning"
        and any(
            follows_from(failed, clue)
            and failed.sighting.source == clue.sighting.source
            and 0 < failed.sighting.offset - clue.sighting.last_offset < NAN_BYTES
            for failed in alive
            if failed.category != NAN
        )
    ]


def _is_within(at_s: float, since_s: float | None, window_s: tuple[float, float]) -> bool:
    if since_s is None or not are_comparable(since_s, at_s):
        return False
    return window_s[0] <= at_s - since_s <= window_s[1]


def _without_returned(unexplained: Sequence[Clue]) -> Sequence[Clue]:
    """Without links that came back, where a device or the kernel failed for good: no link does that."""
    for_good = any(
        clue.severity == "fatal" and clue.class_ in ("hardware", "host", "memory") for clue in unexplained
    )
    return [clue for clue in unexplained if clue.category != FLAP] if for_good else unexplained


def _without_ended_programs(unexplained: Sequence[Clue], clues: Sequence[Clue]) -> list[Clue]:
    """Without Xids that a program's own mistake causes, hours before a fault of the machine: they end the program at
    once, so it was another that the machine failed under. Only where no job's log says what ended when."""
    if any(clue.signature.area == "worker" and is_cause(clue) for clue in clues):
        return list(unexplained)
    machines = [
        clue
        for clue in unexplained
        if clue.severity == "fatal" and clue.class_ in OF_MACHINES or clue.category in OF_DEVICES
    ]
    return [
        clue
        for clue in unexplained
        if not (
            clue.category in OF_PROGRAMS
            and any(_seconds_before(clue, one) > PROGRAM_ENDS_S for one in machines if one is not clue)
        )
    ]


def _seconds_before(clue: Clue, later: Clue) -> float:
    """0 where that is not known."""
    if clue.at_s is not None and later.at_s is not None and are_comparable(clue.at_s, later.at_s):
        return later.at_s - clue.at_s
    if clue.uptime_s is not None and later.uptime_s is not None:
        return later.uptime_s - clue.uptime_s
    return 0.0


def _without_stumbled(unexplained: Sequence[Clue], clues: Sequence[Clue]) -> Sequence[Clue]:
    """Without exceptions of ranks that had lost a peer before, where a machine's fault tells of one: the order of two
    logs is that of two clocks, the order within one log is sure."""
    if not any(clue.class_ in OF_MACHINES for clue in unexplained):
        return unexplained
    lost = [
        clue
        for clue in clues
        if clue.class_ == "communication" and clue.severity in ("fatal", "error") and not clue.survived
    ]
    return [
        clue
        for clue in unexplained
        if not (
            clue.class_ == "training"
            and clue.is_traceback
            and any(stands_below(clue, one) and _is_one_rank(clue, one) for one in lost)
        )
    ]


def _is_one_rank(one: Clue, other: Clue) -> bool:
    ranks = {one.writer.rank, other.writer.rank} - {None}
    return len(ranks) <= 1


def _is_of_the_next_command(clue: Clue, deaths: Sequence[Clue]) -> bool:
    """A shell complains below the end of what it ran: that was over by then."""
    return clue.signature.id in OF_SHELLS and any(
        death.severity == "fatal" and stands_below(clue, death) for death in deaths
    )


def _was_passed(clue: Clue, clues: Sequence[Clue]) -> bool:
    """A shell that complained and went on, until somebody or a limit ended the job, or ranks that worked together lost
    each other: what it missed ended nothing."""
    return clue.signature.id in OF_SHELLS and any(
        other.category in ENDED_BY_OTHERS
        and other.severity == "fatal"
        and stands_below(other, clue)
        or other.signature.id in HAD_PEER
        and is_before(other, clue) is not True
        for other in clues
    )


def _was_of_no_matter(clue: Clue, clues: Sequence[Clue]) -> bool:
    """A shell's complaint within a training that makes steps, whose ranks wait for others in vain later on."""
    return clue.signature.id in OF_SHELLS and any(
        other.category in WAITED_IN_VAIN and other.severity == "fatal" and stands_below(other, clue)
        for other in clues
    )


def _lesser(warnings: Sequence[Clue], ends: Sequence[Clue]) -> list[Clue]:
    """What is left where no cause was seen: an end that says how it came says more than a component's complaint.

    So does one that rests on a comparison of ranks, more than a warning of something that may do harm. But that somebody
    ended the job does not say why: a device or a transport that complained since the last step may.
    """
    compared = [clue for clue in ends if clue.ruling is not None and clue.weight > BARE]
    sure = [
        clue
        for clue in warnings
        if not (is_complaint(clue) or clue.weight <= BARE and clue.ruling is None and compared)
    ]
    first = [clue for clue in ends if not explainers(clue, ends)] or ends
    known = SAYS_NOTHING | ({"terminated"} if any(_is_of_devices(clue) for clue in warnings) else set())
    says_how = any(clue.category not in known for clue in first)
    return sure or ([*ends] if says_how else [*warnings] or [*ends])


def _is_of_devices(clue: Clue) -> bool:
    return is_complaint(clue) and clue.signature.area != "scheduler"


def is_complaint(clue: Clue) -> bool:
    """Of a component, in words that nobody knows."""
    return clue.signature.id.endswith("-complaint") or clue.signature.id in NCCL_WARNINGS


def without_bare(ends: Sequence[Clue]) -> list[Clue]:
    """Without launchers that only say that something failed, where another end says how."""
    if not any(clue.weight > BARE and clue.category in HOW for clue in ends):
        return list(ends)
    return [clue for clue in ends if clue.weight > BARE or clue.category != "python_exception"]


def without_vague(clues: Sequence[Clue]) -> list[Clue]:
    """A caught exception is often logged long before what ends the job: it yields where something better is known."""
    if any(clue.weight >= SURE for clue in clues):
        return [clue for clue in clues if clue.weight > VAGUE]
    known = [clue for clue in clues if clue.signature.id != EXCEPTION and clue.weight >= LIKELY]
    return known or list(clues)


def _work_was_done_after(clue: Clue, done: Sequence[Clue]) -> bool:
    return any(one.sighting.source == clue.sighting.source and is_before(clue, one) for one in done)


def _ended_well_after(clue: Clue, done: Sequence[Clue], deaths: Sequence[Clue]) -> bool:
    """The job said that its work was done, later than this, and nothing died.

    Where nothing tells which came later, another log's word absolves what a rank only mentions: not what it was raised
    or ended by, and not a fault of its node, which may have ended the next job.
    """
    only_told = clue.signature.area == "worker" and clue.severity != "fatal" and not clue.is_traceback
    orders = [is_before(clue, one) for one in done]
    return not deaths and (any(orders) or only_told and None in orders)


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


def _warnings(clues: Sequence[Clue], done: Sequence[Clue], deaths: Sequence[Clue]) -> list[Clue]:
    """Lesser causes, of a job that died; those of a node's own logs also where no job is known to have gone on."""
    lesser = [clue for clue in clues if clue.role == "cause" and not clue.survived]
    if deaths:
        return [clue for clue in lesser if clue.signature.id != SPOKEN or _is_said_at(clue, deaths)]
    if done:
        return []
    return [clue for clue in lesser if clue.signature.area != "worker"]
