"""Chooses the candidate that all others follow from, and says what was left over. Pure.

A job ends by what it did not survive. So a fault after which training went on counts only where the job died
and nothing later says why; a complaint counts only where no cause explains it; and where nothing died, nothing
was wrong.
"""

from collections.abc import Sequence

from msgspec import Struct

from holdfast.core.clock_offsets import are_comparable
from holdfast.core.diagnosis.candidates import (
    BARE,
    CLOCK_SKEW_S,
    NEAR_BYTES,
    Candidate,
    first_of,
    is_before,
    is_cause,
    stands_below,
)
from holdfast.core.diagnosis.devices.events import ECC, LINK_XIDS
from holdfast.core.diagnosis.devices.judge import PROGRAM_XIDS
from holdfast.core.diagnosis.edges import ends_from_outside, explainers, follows_from
from holdfast.core.diagnosis.filters import (
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
from holdfast.core.diagnosis.last_words import last_words, of_excerpt
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
    """The first cause among all candidates of a job.

    `is_finished`: its log names the last step of all. `made_steps`: some log of it names a step. `sizes_bytes`: of
    the logs, by their numbers; 0: not known. `excerpt`: they are a few lines that somebody cut out.
    """
    every = candidates
    candidates = without_orphans(
        without_harmless([candidate for candidate in candidates if not is_code(candidate)])
    )
    candidates = without_announcing(without_fallen_back(without_ignored(candidates)))
    candidates = without_bygone(candidates) if made_steps else candidates
    last_run = of_last_run(candidates, sizes_bytes)
    if made_steps or any(candidate.signature.id == EPOCH for candidate in last_run):
        last_run = [candidate for candidate in last_run if not _was_of_no_matter(candidate, last_run)]
    choice = _choose(one_for_each_line(last_run), is_finished=is_finished)
    if _went_on(choice, sizes_bytes):
        last_run = [
            candidate
            for candidate in last_run
            if candidate.signature.id not in OF_SHELLS_TOOLS | REFUSED_OPTIONS
        ]
        choice = _choose(one_for_each_line(last_run), is_finished=is_finished)
    if (
        len(last_run) < len(candidates) and choice.died and _says_little(choice)
    ):  # it was only ended: why it was started again says more
        before = _choose(one_for_each_line(candidates), is_finished=is_finished)
        choice = choice if _says_little(before) else before
    is_done = made_steps or any(candidate.role == "end-ok" for candidate in last_run)
    if _says_little(choice) and (choice.died or not is_done):
        bare = choice.root is None or choice.root.category in SAYS_NOTHING
        kept = one_for_each_line(last_run, keep_exceptions=True, keep_bare=bare)
        doubted = _choose(kept, is_finished=is_finished)
        choice = choice if _says_little(doubted) else doubted
    if made_steps and _is_bridged_break(choice):
        choice = _choose(
            one_for_each_line([candidate for candidate in last_run if candidate.category != FLAP]),
            is_finished=is_finished,
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
    source, offset = root.match.source, root.match.last_offset
    more_bytes = WENT_ON_REFUSED_BYTES if root.signature.id in REFUSED_OPTIONS else WENT_ON_BYTES
    return source < len(sizes_bytes) and sizes_bytes[source] - offset > more_bytes


def _says_little(choice: Choice) -> bool:
    root = choice.root
    return root is None or root.role == "symptom" and root.weight <= BARE


def _choose(candidates: Sequence[Candidate], *, is_finished: bool) -> Choice:
    candidates = without_own_aborts(without_stumbles(candidates))
    symptoms = [
        candidate for candidate in candidates if candidate.role == "symptom" and candidate.category != "none"
    ]
    ends = [
        candidate
        for candidate in symptoms
        if candidate.severity in ("fatal", "error") and not candidate.survived
    ]
    done = [candidate for candidate in candidates if candidate.role == "end-ok"]
    deaths = [candidate for candidate in ends if not _work_was_done_after(candidate, done)]
    candidates = [
        candidate
        for candidate in candidates
        if not (_is_of_the_next_command(candidate, deaths) or _was_passed(candidate, candidates))
    ]
    causes = [
        candidate for candidate in candidates if is_cause(candidate) and not ends_from_outside(candidate)
    ]
    causes += _breaks_before(causes, candidates)
    alive = [
        candidate
        for candidate in causes
        if not candidate.survived and not _ended_well_after(candidate, done, deaths)
    ]
    alive += _numbers_gone_before(alive, candidates)
    pool = alive or [candidate for candidate in causes if _near_a_death(candidate, deaths)]
    if not pool:
        told = [
            candidate
            for candidate in candidates
            if is_cause(candidate) and ends_from_outside(candidate) and not candidate.survived
        ]
        pool = _lesser(_warnings(candidates, done, deaths), without_bare([*told, *deaths]))
    if not pool:
        return Choice(root=None, died=bool(deaths))
    if is_finished and all(candidate.role == "symptom" and candidate.weight <= BARE for candidate in pool):
        return Choice(root=None, died=False)  # whoever ended badly after the last step told nobody of what
    unexplained = [candidate for candidate in pool if not explainers(candidate, pool)] or pool
    unexplained = _without_ended_programs(_without_returned(unexplained), candidates)
    root = first_of(without_vague(_without_stumbled(unexplained, candidates)))
    rest = [
        candidate
        for candidate in candidates
        if candidate is not root and candidate.role in ("cause", "symptom")
    ]
    return Choice(
        root=root,
        died=bool(ends),
        shown=shown_by(root, candidates),
        rivals=tuple(candidate for candidate in unexplained if candidate.category != root.category),
        followers=tuple(candidate for candidate in rest if explainers(candidate, [root])),
        witnesses=tuple(candidate for candidate in pool if candidate.category == root.category),
    )


def _breaks_before(causes: Sequence[Candidate], candidates: Sequence[Candidate]) -> list[Candidate]:
    """Links that were away for a moment, shortly before a transfer failed: by itself that is no fault, retries bridge it.

    Where NCCL's line has no time, what the job said in its end has: others wait for the rank up to half an hour.
    """
    failed = [candidate for candidate in causes if candidate.category == BROKEN and not candidate.survived]
    times_s = [candidate.at_s for candidate in failed if candidate.at_s is not None]
    window_s = BREAK_TO_ERROR_S
    if failed and not times_s:
        ended = [
            one for one in candidates if one.signature.area == "worker" and one.class_ == "communication"
        ]
        times_s = [one.at_s for one in ended if one.at_s is not None and not one.survived]
        window_s = BREAK_TO_END_S
    return [
        candidate
        for candidate in candidates
        if candidate.category == FLAP
        and candidate.role == "cause"
        and candidate.severity == "warning"
        and any(_is_within(at_s, candidate.at_s, window_s) for at_s in times_s)
    ]


def _numbers_gone_before(alive: Sequence[Candidate], candidates: Sequence[Candidate]) -> list[Candidate]:
    """NaN in the log, just before a failure that names NaN as its cause: steps go on with it until something refuses."""
    return [
        candidate
        for candidate in candidates
        if candidate.category == NAN
        and candidate.role == "cause"
        and candidate.severity == "warning"
        and any(
            follows_from(failed, candidate)
            and failed.match.source == candidate.match.source
            and 0 < failed.match.offset - candidate.match.last_offset < NAN_BYTES
            for failed in alive
            if failed.category != NAN
        )
    ]


def _is_within(at_s: float, since_s: float | None, window_s: tuple[float, float]) -> bool:
    if since_s is None or not are_comparable(since_s, at_s):
        return False
    return window_s[0] <= at_s - since_s <= window_s[1]


def _without_returned(unexplained: Sequence[Candidate]) -> Sequence[Candidate]:
    """Without links that came back, where a device or the kernel failed for good: no link does that."""
    for_good = any(
        candidate.severity == "fatal" and candidate.class_ in ("hardware", "host", "memory")
        for candidate in unexplained
    )
    return [candidate for candidate in unexplained if candidate.category != FLAP] if for_good else unexplained


def _without_ended_programs(
    unexplained: Sequence[Candidate], candidates: Sequence[Candidate]
) -> list[Candidate]:
    """Without Xids that a program's own mistake causes, hours before a fault of the machine: they end the program at
    once, so it was another that the machine failed under. Only where no job's log says what ended when."""
    if any(candidate.signature.area == "worker" and is_cause(candidate) for candidate in candidates):
        return list(unexplained)
    machines = [
        candidate
        for candidate in unexplained
        if candidate.severity == "fatal"
        and candidate.class_ in OF_MACHINES
        or candidate.category in OF_DEVICES
    ]
    return [
        candidate
        for candidate in unexplained
        if not (
            candidate.category in OF_PROGRAMS
            and any(
                _seconds_before(candidate, one) > PROGRAM_ENDS_S for one in machines if one is not candidate
            )
        )
    ]


def _seconds_before(candidate: Candidate, later: Candidate) -> float:
    """0 where that is not known."""
    if candidate.at_s is not None and later.at_s is not None and are_comparable(candidate.at_s, later.at_s):
        return later.at_s - candidate.at_s
    if candidate.uptime_s is not None and later.uptime_s is not None:
        return later.uptime_s - candidate.uptime_s
    return 0.0


def _without_stumbled(
    unexplained: Sequence[Candidate], candidates: Sequence[Candidate]
) -> Sequence[Candidate]:
    """Without exceptions of ranks that had lost a peer before, where a machine's fault tells of one: the order of two
    logs is that of two clocks, the order within one log is sure."""
    if not any(candidate.class_ in OF_MACHINES for candidate in unexplained):
        return unexplained
    lost = [
        candidate
        for candidate in candidates
        if candidate.class_ == "communication"
        and candidate.severity in ("fatal", "error")
        and not candidate.survived
    ]
    return [
        candidate
        for candidate in unexplained
        if not (
            candidate.class_ == "training"
            and candidate.is_traceback
            and any(stands_below(candidate, one) and _is_one_rank(candidate, one) for one in lost)
        )
    ]


def _is_one_rank(one: Candidate, other: Candidate) -> bool:
    ranks = {one.writer.rank, other.writer.rank} - {None}
    return len(ranks) <= 1


def _is_of_the_next_command(candidate: Candidate, deaths: Sequence[Candidate]) -> bool:
    """A shell complains below the end of what it ran: that was over by then."""
    return candidate.signature.id in OF_SHELLS and any(
        death.severity == "fatal" and stands_below(candidate, death) for death in deaths
    )


def _was_passed(candidate: Candidate, candidates: Sequence[Candidate]) -> bool:
    """A shell that complained and went on, until somebody or a limit ended the job, or ranks that worked together lost
    each other: what it missed ended nothing."""
    return candidate.signature.id in OF_SHELLS and any(
        other.category in ENDED_BY_OTHERS
        and other.severity == "fatal"
        and stands_below(other, candidate)
        or other.signature.id in HAD_PEER
        and is_before(other, candidate) is not True
        for other in candidates
    )


def _was_of_no_matter(candidate: Candidate, candidates: Sequence[Candidate]) -> bool:
    """A shell's complaint within a training that makes steps, whose ranks wait for others in vain later on."""
    return candidate.signature.id in OF_SHELLS and any(
        other.has("waited-in-vain") and other.severity == "fatal" and stands_below(other, candidate)
        for other in candidates
    )


def _lesser(warnings: Sequence[Candidate], ends: Sequence[Candidate]) -> list[Candidate]:
    """What is left where no cause was seen: an end that says how it came says more than a component's complaint.

    So does one that rests on a comparison of ranks, more than a warning of something that may do harm. But that somebody
    ended the job does not say why: a device or a transport that complained since the last step may.
    """
    compared = [candidate for candidate in ends if candidate.ruling is not None and candidate.weight > BARE]
    sure = [
        candidate
        for candidate in warnings
        if not (is_complaint(candidate) or candidate.weight <= BARE and candidate.ruling is None and compared)
    ]
    first = [candidate for candidate in ends if not explainers(candidate, ends)] or ends
    known = SAYS_NOTHING | (
        {"terminated"} if any(_is_of_devices(candidate) for candidate in warnings) else set()
    )
    says_how = any(candidate.category not in known for candidate in first)
    return sure or ([*ends] if says_how else [*warnings] or [*ends])


def _is_of_devices(candidate: Candidate) -> bool:
    return is_complaint(candidate) and candidate.signature.area != "scheduler"


def is_complaint(candidate: Candidate) -> bool:
    """Of a component, in words that nobody knows."""
    return candidate.signature.id.endswith("-complaint") or candidate.signature.id in NCCL_WARNINGS


def without_bare(ends: Sequence[Candidate]) -> list[Candidate]:
    """Without launchers that only say that something failed, where another end says how."""
    if not any(candidate.weight > BARE and candidate.category in HOW for candidate in ends):
        return list(ends)
    return [
        candidate for candidate in ends if candidate.weight > BARE or candidate.category != "python_exception"
    ]


def without_vague(candidates: Sequence[Candidate]) -> list[Candidate]:
    """A caught exception is often logged long before what ends the job: it yields where something better is known."""
    if any(candidate.weight >= SURE for candidate in candidates):
        return [candidate for candidate in candidates if candidate.weight > VAGUE]
    known = [
        candidate
        for candidate in candidates
        if candidate.signature.id != EXCEPTION and candidate.weight >= LIKELY
    ]
    return known or list(candidates)


def _work_was_done_after(candidate: Candidate, done: Sequence[Candidate]) -> bool:
    return any(one.match.source == candidate.match.source and is_before(candidate, one) for one in done)


def _ended_well_after(candidate: Candidate, done: Sequence[Candidate], deaths: Sequence[Candidate]) -> bool:
    """The job said that its work was done, later than this, and nothing died.

    Where nothing tells which came later, another log's word absolves what a rank only mentions: not what it was raised
    or ended by, and not a fault of its node, which may have ended the next job.
    """
    only_told = (
        candidate.signature.area == "worker" and candidate.severity != "fatal" and not candidate.is_traceback
    )
    orders = [is_before(candidate, one) for one in done]
    return not deaths and (any(orders) or only_told and None in orders)


def _near_a_death(candidate: Candidate, deaths: Sequence[Candidate]) -> bool:
    return not candidate.outlived and any(
        candidate.match.source != death.match.source
        or abs(death.match.offset - candidate.match.last_offset) < NEAR_BYTES
        for death in deaths
    )


def _is_said_at(candidate: Candidate, deaths: Sequence[Candidate]) -> bool:
    """Shortly before an end in the same log; or in another log, which tells of none."""
    offsets = [death.match.offset for death in deaths if death.match.source == candidate.match.source]
    return not offsets or any(0 < offset - candidate.match.last_offset < SAID_BYTES for offset in offsets)


def _warnings(
    candidates: Sequence[Candidate], done: Sequence[Candidate], deaths: Sequence[Candidate]
) -> list[Candidate]:
    """Lesser causes, of a job that died; those of a node's own logs also where no job is known to have gone on."""
    lesser = [candidate for candidate in candidates if candidate.role == "cause" and not candidate.survived]
    if deaths:
        return [
            candidate
            for candidate in lesser
            if candidate.signature.id != SPOKEN or _is_said_at(candidate, deaths)
        ]
    if done:
        return []
    return [candidate for candidate in lesser if candidate.signature.area != "worker"]
