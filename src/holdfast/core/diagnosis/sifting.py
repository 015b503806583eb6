"""Which of the lines that were found count at all: not code, patterns, what is ignored or done without, other runs. Pure."""

from collections.abc import Sequence

from holdfast.core.clock_offsets import are_comparable
from holdfast.core.diagnosis.clues import BARE, Clue, is_before, is_cause, stands_below
from holdfast.core.diagnosis.edges import follows_from, yields_to_any
from holdfast.core.diagnosis.words.wordings import ENDED
from holdfast.late_pattern import late
from holdfast.model.signatures import EXCEPTION, SPOKEN, TRACEBACK_START

IGNORED = "exception-ignored"
FELL_BACK = "fell-back"
# torch.compile tells so of a function that it leaves as it is, traceback and all.
GOES_UNCOMPILED = late(
    r"torch\._dynamo\.convert_frame: \[WARNING\]|\bW\d{4} .{0,80}_dynamo/convert_frame\.py:"
)
FELL_BACK_LINES_MAX = 40  # so long is what a compiler says before somebody tells that it goes without
IGNORED_LINES_MAX = 60  # so long is a traceback that is printed and ignored
ANNOUNCED_WEIGHT = 0.75  # of what is known of the error that another one announces
TASK_EXITED = "srun-task-exited"
# Lines that launchers, and programs, print once, when they begin.
LAUNCHER_STARTS = frozenset({"omp-threads-notice", "deepspeed-launch-command"})
RUN_STARTS = LAUNCHER_STARTS | {"program-starts"}
TABLE_RANK = "torchrun-table-rank"  # an entry of the table that torchrun prints when it gives up
RUN_BYTES_MIN = 2 << 10  # less is no run
REPORT_ENDED = "lsf-report-ended"  # the last line that a batch system adds to a job's output
SCRIPT = late(r"(?!.*(?:site|dist)-packages)[^<].*\.py:\d+ <module>$")  # a frame that is a script's own line
OF_OTHERS = frozenset({"communication", "process", "scheduler"})  # what a hang of days ends with as well
BYGONE_DAYS = 1.0  # less is a clock of another time zone
REPLACEABLE = frozenset({"compile_error", "import_error", "version_mismatch"})
# An exception without its traceback, behind nothing but who wrote it and when. Only an uncaught one has torch's "[rank3]: ".
BARE_EXCEPTION = late(
    r"^[\s>#|*-]*(?:(?!\[(?:DEBUG|INFO|WARN))[\[(<][^\])>]{1,80}[\])>]:? ?|\d{1,6}: ?|[\d/T:.,+-]{4,40}(?:Z|UTC)? |(?:ERROR|FATAL|CRITICAL|E)\b[:|]? ?"
    r"|[\w.-]{1,40}: )*(?:[a-z_]\w*\.)*_?[A-Z]\w*(?:Error|Exception|Exit|Interrupt)\b"
)
ORPHANED = "spawned-child-orphaned"
ORPHANED_LINES = (
    1,
    2,
)  # from the line that reads the pipe to its exception; a line of carets may stand between
PIPE_ENDED = frozenset({"UnpicklingError", "EOFError"})
SHOWN = "elastic-error-file"  # an exception in the words of who shows it
CHAINED = "nested-failure-header"
INDENT = "    "  # of the code that a traceback shows
CHAINED_LINES = (1, 2)  # from an exception to the words that chain the next one to it
SAYS_NOTHING = late(
    r"\b(?:Empty|Full|StopIteration|StopAsyncIteration|KeyError|AttributeError|IndexError|TimeoutError)\b"
)
OF_A_RANK = late(r"\[rank\d{1,7}\]: \S")
CALL_FAILED = frozenset(
    {"nccl-system-error", "nccl-remote-error"}
)  # the words of the call, not of NCCL's log
WAITED_IN_VAIN = frozenset({"collective_timeout", "collective_missing_rank", "collective_mismatch"})
CRASH = "segfault"
ABORT_BYTES = 16 << 10  # of a log: so much is said between a watchdog's verdict and the end
PATTERN = late(r"\\[dwsSW](?:[+*]|\{\d)")  # a setting of who looks for such lines
OF_A_PROBE = late(r"\b(?:[Rr]eadiness|[Ll]iveness|[Ss]tartup) probe (?:failed|errored|warning)\b")
# A service of the operating system that ended badly, as systemd tells it: jobs do without.
OF_THE_SYSTEM = late(
    r"\bsystemd\[1\]: (?:[\w-]+-wait-online|apport\S*|snapd?\S*|fwupd\S*|motd-news|apt-\S+|unattended-upgrades|sshd?(?:@\S*)?|cloud-\w+|systemd-\S+"
    r"|multipathd|iscsid|smartd|smartmontools|lvm2\S*|thermald|bluetooth|ModemManager|postfix|rsyslog|cups\S*|packagekit|man-db|logrotate|fstrim|e2scrub\S*"
    r"|\S*exporter|nvidia-dcgm|dcgm|telegraf|collectd|prometheus\S*|datadog\S*|zabbix\S*|fluent\S*|filebeat|metricbeat|promtail|node-problem-detector"
    r"|kdump\S*|rpc-statd|plymouth\S*|getty@\S*|tuned|mcelog|rasdaemon|update-notifier\S*|phpsessionclean)\.service: "
)
ENDED_UNITS = frozenset({ENDED, "unit-was-killed"})
CODE = late(r"(?:^|[\]):>|Z\d-]) ?\s{4,}(?:raise|return|assert|except|with|if|elif|for|while)\b")


def is_code(clue: Clue) -> bool:
    """A line of a traceback that shows the code which raised, not what it said; or a pattern, not what it matches.

    So of a service of the operating system that no job needs: that it ended is no end of a job.
    """
    if PATTERN.search(clue.sighting.text):
        return True
    if clue.signature.area == "worker" and OF_A_PROBE.search(clue.sighting.text):
        return (
            True  # what a probe of Kubernetes printed: it is asked again, and tells itself what it leads to
        )
    if clue.signature.id in ENDED_UNITS and OF_THE_SYSTEM.search(clue.sighting.text):
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
            if _is_exception(clue)
            and clue.sighting.source == head.source
            and 0 < clue.sighting.line - head.line <= IGNORED_LINES_MAX
        ]
        if after and head.line and (head.source, head.line + 1) in starts:
            ignored.add((head.source, min(one.line for one in after)))
    return [
        clue
        for clue in clues
        if (clue.sighting.source, clue.sighting.line) not in ignored or not _is_exception(clue)
    ]


def without_announcing(clues: Sequence[Clue]) -> list[Clue]:
    """Without exceptions whose message ends in a colon, where the error that they announce is known: Ray and others
    quote another process's traceback, and what that ends with was raised first."""
    return [
        clue
        for clue in clues
        if not (
            clue.signature.id == EXCEPTION
            and clue.sighting.text.rstrip().endswith(":")
            and any(_is_announced(other, clue) for other in clues)
        )
    ]


def _is_announced(clue: Clue, head: Clue) -> bool:
    return (
        is_cause(clue)
        and clue.signature.id != EXCEPTION
        and clue.weight >= ANNOUNCED_WEIGHT
        and clue.sighting.source == head.sighting.source
        and 0 < clue.sighting.line - head.sighting.line <= IGNORED_LINES_MAX
    )


def _is_exception(clue: Clue) -> bool:
    """A cause, or a symptom that is told by its exception: a pipe whose other end has gone."""
    return clue.role == "cause" or clue.role == "symptom" and bool(BARE_EXCEPTION.match(clue.sighting.text))


def without_harmless(clues: Sequence[Clue]) -> list[Clue]:
    """Without whatever else is seen on a line that is known to be nothing."""
    nothing = {(one.sighting.source, one.sighting.offset) for one in clues if one.role == "harmless"}
    return [
        clue
        for clue in clues
        if clue.is_traceback or (clue.sighting.source, clue.sighting.offset) not in nothing
    ]


def without_orphans(clues: Sequence[Clue]) -> list[Clue]:
    """Without what a spawned process makes of a pipe that its parent left: that is no damaged file."""
    heads = [clue.sighting for clue in clues if clue.signature.id == ORPHANED and clue.sighting.line]
    below = {(one.source, one.line + ahead) for one in heads for ahead in ORPHANED_LINES}
    return [
        clue
        for clue in clues
        if (clue.sighting.source, clue.sighting.line) not in below
        or clue.sighting.error_type.rpartition(".")[2] not in PIPE_ENDED
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
                and int(clue.is_traceback) <= one.line - clue.sighting.line <= FELL_BACK_LINES_MAX
                and clue.sighting.line
                for one in told
            )
        )
    ]


def of_last_run(clues: Sequence[Clue], sizes_bytes: Sequence[int] = ()) -> list[Clue]:
    """A log to which several runs were appended: what stands before the last start is not this run's.

    A start with which the log ends is none: what a launcher says first can reach it last.
    """
    started = run_beginnings(clues, sizes_bytes)
    return [clue for clue in clues if clue.sighting.last_offset >= started.get(clue.sighting.source, 0)]


def run_beginnings(clues: Sequence[Clue], sizes_bytes: Sequence[int] = ()) -> dict[int, int]:
    """By source, the offset at which its last run begins; only of logs that hold several runs, or say where one starts."""
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
    for source, offset in (*_ends_of_same_script(clues).items(), *_tables_of_runs_before(clues)):
        started[source] = max(started.get(source, 0), offset)
    return started


def _ends_of_same_script(clues: Sequence[Clue]) -> dict[int, int]:
    """By source, where the run before the last one ends: with an exception that left the same script as the last one's
    did, for another reason. A process ends by one such exception only.

    Not where ranks share the log, or a launcher tells of its ranks: then each of them is a process of one run.
    """
    known = {_place_of(clue) for clue in clues if clue.role == "cause" and clue.signature.id != EXCEPTION}
    shared = {
        clue.sighting.source
        for clue in clues
        if _is_of_ranks(clue) or clue.role == "symptom" and _place_of(clue) not in known
    }
    left = [clue for clue in clues if _left_script(clue) and clue.sighting.source not in shared]
    left.sort(key=lambda clue: clue.sighting.last_offset)
    last = {clue.sighting.source: clue for clue in left}
    return {
        source: max(
            clue.sighting.last_offset + 1
            for clue in left
            if clue.sighting.source == source and _ended_otherwise(clue, end)
        )
        for source, end in last.items()
        if any(clue.sighting.source == source and _ended_otherwise(clue, end) for clue in left)
        and end.class_ not in OF_OTHERS
    }


def _tables_of_runs_before(clues: Sequence[Clue]) -> list[tuple[int, int]]:
    """By source, where torchrun gave a run up that was not the last: a rank that its tables name twice was started
    again by hand, for torchrun prints one table, when it is done with restarts, and nodes name their own ranks."""
    return [
        (clue.sighting.source, clue.sighting.offset)
        for clue in clues
        if clue.signature.id == TABLE_RANK and clue.sighting.count > 1
    ]


def _is_of_ranks(clue: Clue) -> bool:
    """Written by a rank, or by a launcher that starts some."""
    writer = clue.writer
    return (writer.rank, writer.local_rank, writer.worker) != (
        None,
        None,
        None,
    ) or clue.signature.id in LAUNCHER_STARTS


def _place_of(clue: Clue) -> tuple[int, int]:
    return clue.sighting.source, clue.sighting.offset


def _left_script(clue: Clue) -> bool:
    """An exception that nothing in the script caught, up to the script's own line that nothing else had called."""
    seen = clue.sighting
    return bool(seen.error_type) and SCRIPT.match(seen.outermost) is not None


def _ended_otherwise(clue: Clue, end: Clue) -> bool:
    one, other = clue.sighting, end.sighting
    is_same_script = one.outermost.rpartition(":")[0] == other.outermost.rpartition(":")[0]
    return is_same_script and (one.error_type, one.frame) != (other.error_type, other.frame)


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


def without_bygone(clues: Sequence[Clue]) -> list[Clue]:
    """Without a node's faults of days before, where the job trained since and something later can have ended it.

    Not where the same was seen again, nor where the clocks cannot be compared.
    """
    ended = [clue for clue in clues if clue.signature.area == "worker" and _is_trouble(clue)]
    first_s = min((clue.at_s for clue in ended if clue.at_s is not None), default=None)
    if first_s is None:
        return list(clues)
    near = [clue for clue in clues if _is_trouble(clue) and _days_before(first_s, clue.at_s) <= BYGONE_DAYS]
    times_s = [clue.at_s for clue in near if is_cause(clue) and clue.at_s is not None]
    if any(is_cause(clue) and clue.class_ not in OF_OTHERS for clue in ended):
        times_s.append(first_s)  # a rank's own mistake ended it, whether or not its line has a time
    last_s = max(times_s, default=None)
    return [clue for clue in clues if not _is_bygone(clue, last_s, clues)]


def _is_bygone(clue: Clue, last_s: float | None, clues: Sequence[Clue]) -> bool:
    return (
        clue.role == "cause"
        and clue.signature.area == "kernel"
        and _days_before(clue.at_s, last_s) > BYGONE_DAYS
        and not any(
            other is not clue
            and other.category == clue.category
            and _days_before(other.at_s, last_s) <= BYGONE_DAYS
            for other in clues
        )
    )


def _is_trouble(clue: Clue) -> bool:
    return clue.role in ("cause", "symptom") and clue.severity in ("fatal", "error") and not clue.survived


def _days_before(at_s: float | None, later_s: float | None) -> float:
    """How long one was before the other; 0 where that is not known."""
    if at_s is None or later_s is None or not are_comparable(at_s, later_s):
        return 0.0
    return (later_s - at_s) / 86400.0


def one_for_each_line(
    clues: Sequence[Clue], *, keep_exceptions: bool = False, keep_bare: bool = False
) -> list[Clue]:
    """Of several causes seen on one line the surest. A traceback that no signature knows is the vaguest of all.

    What only looks like an exception is none, and one whose line is known as context is no fault, unless
    `keep_exceptions`; `keep_bare`: so is one of whose traceback nothing is left.
    """
    best: dict[tuple[int, int], Clue] = {}
    known: set[tuple[int, int]] = set()
    clues = _without_shown(_without_spoken(clues))
    for clue in clues:
        place = (clue.sighting.source, clue.sighting.offset)
        if clue.role == "cause" and clue.signature.id != EXCEPTION:
            held = best.setdefault(place, clue)
            best[place] = _surer(held, clue)
        is_known = clue.signature.id not in (EXCEPTION, TRACEBACK_START)
        if is_known and not (keep_exceptions and clue.role == "context"):
            known.add(place)
    kept = []
    chained = _chained(clues)
    for clue in clues:
        place = (clue.sighting.source, clue.sighting.offset)
        if clue.signature.id == EXCEPTION:
            is_told = clue.is_traceback or place in chained or _is_uncaught(clue, keep_bare=keep_bare)
            if is_told and place not in known:
                kept.append(clue)
        elif clue.role != "cause" or best[place] is clue:
            kept.append(clue)
    return without_doubles(kept, clues)


def _without_spoken(clues: Sequence[Clue]) -> list[Clue]:
    """Where a traceback ends, an exception was raised: that a program speaks of an error there says less. The line of
    code that raised it, which stands above, says nothing of its own."""
    raised = {
        (clue.sighting.source, clue.sighting.offset)
        for clue in clues
        if clue.signature.id == EXCEPTION and clue.is_traceback
    }
    below = {(clue.sighting.source, clue.sighting.line) for clue in clues if clue.signature.id == EXCEPTION}
    return [
        clue
        for clue in clues
        if clue.signature.id != SPOKEN
        or (clue.sighting.source, clue.sighting.offset) not in raised
        and not (
            clue.sighting.text.startswith(INDENT) and (clue.sighting.source, clue.sighting.line + 1) in below
        )
    ]


def _without_shown(clues: Sequence[Clue]) -> list[Clue]:
    """Without exceptions in a launcher's report whose own words are known: they say more than that it was raised."""
    known = {
        (clue.sighting.source, clue.sighting.offset)
        for clue in clues
        if clue.role == "symptom" and clue.signature.id != EXCEPTION and clue.category != "none"
    }
    return [
        clue
        for clue in clues
        if clue.signature.id != SHOWN or (clue.sighting.source, clue.sighting.offset) not in known
    ]


def _chained(clues: Sequence[Clue]) -> set[tuple[int, int]]:
    """The places of exceptions that another one of the same traceback was raised for: nothing but an empty line stands
    between them and the words that chain them. Not of those that say nothing."""
    heads = [clue.sighting for clue in clues if clue.signature.id == CHAINED and clue.sighting.line]
    links = {(one.source, one.line - ahead) for one in heads for ahead in CHAINED_LINES}
    return {
        (clue.sighting.source, clue.sighting.offset)
        for clue in clues
        if clue.signature.id == EXCEPTION
        and (clue.sighting.source, clue.sighting.line) in links
        and not SAYS_NOTHING.search(clue.sighting.text)
    }


def _surer(held: Clue, clue: Clue) -> Clue:
    """Of two on one line: the one that the other says to follow from, else the one of more weight.

    What is only guessed of its words, or known of its family, never goes before what is known of it.
    """
    if SPOKEN in (held.signature.id, clue.signature.id):
        return clue if held.signature.id == SPOKEN else held
    if _is_of_family(held) != _is_of_family(clue):
        return clue if _is_of_family(held) else held
    if follows_from(held, clue) != follows_from(clue, held):
        return clue if follows_from(held, clue) else held
    return clue if clue.weight > held.weight else held


def without_doubles(kept: Sequence[Clue], clues: Sequence[Clue]) -> list[Clue]:
    """Of one line, not what is said of lines of all kinds, or of a whole family, where something is known of this one.

    So what was found harmless, by lines further down, is no complaint of the family it belongs to either.
    """
    known, named, ends = set(), set(), set()
    for clue in clues:
        place = (clue.sighting.source, clue.sighting.offset)
        if clue.signature.id not in (SPOKEN, EXCEPTION):
            known.add(place)
            if not _is_of_family(clue) and (clue.role != "context" or clue.ruling is not None):
                named.add(place)
        if clue.role == "symptom" and clue.category != "unknown":
            ends.add(place)
    return [clue for clue in kept if not _is_double(clue, known=known, named=named, ends=ends)]


def _is_double(
    clue: Clue, *, known: set[tuple[int, int]], named: set[tuple[int, int]], ends: set[tuple[int, int]]
) -> bool:
    place = (clue.sighting.source, clue.sighting.offset)
    if clue.signature.id == SPOKEN:
        return place in known
    if _is_of_family(clue):
        return place in named
    return clue.role == "symptom" and clue.category == "unknown" and place in ends


def _is_of_family(clue: Clue) -> bool:
    """A complaint of which only the kind is known: whoever wrote the line, in whatever words."""
    return clue.severity == "warning" and yields_to_any(clue)


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
        if clue.signature.id != EXCEPTION or not any(stands_below(clue, one) for one in told)
    ]


def without_own_aborts(clues: Sequence[Clue]) -> list[Clue]:
    """Without the crash of a rank that NCCL's watchdog was just ending: the wait that it ended came before.

    And without what the calls say that waited in the communicator which the watchdog took away.
    """
    gave_up = [
        clue for clue in clues if clue.category in WAITED_IN_VAIN and clue.severity in ("fatal", "error")
    ]
    return [
        clue
        for clue in clues
        if not (
            (clue.category == CRASH and clue.signature.area == "worker" or clue.signature.id in CALL_FAILED)
            and any(_ends_in(one, clue) for one in gave_up)
        )
    ]


def _ends_in(wait: Clue, crash: Clue) -> bool:
    apart_bytes = crash.sighting.offset - wait.sighting.last_offset
    ranks = {wait.writer.rank, crash.writer.rank} - {None}
    return stands_below(crash, wait) and apart_bytes < ABORT_BYTES and len(ranks) <= 1
