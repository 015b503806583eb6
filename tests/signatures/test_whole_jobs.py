"""A job of eight ranks on two hosts that ends for one reason: however its logs are written, that is the first cause."""

import random
import re

import pytest

from holdfast.core.diagnosis.diagnose import diagnose
from holdfast.observe.search.code_store import package_tables
from holdfast.observe.search.scan import search
from known import KNOWN, PACKAGE
from signatures.job_writer import CAUSES, DOWN_S, by_rank, in_one, job, of_kernel, of_rank, traceback

TABLES = package_tables()
STAMP = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ")
DAY_S = 86400.0
DIFFERENT = [cause for cause in CAUSES if cause.name not in ("data", "code")]  # in how they are written


def node_one(ahead_s):
    """The clock of the second host is so far ahead."""
    return lambda line: ahead_s if line.host else 0.0


def lines_of(files, change):
    return {name: [text for line in lines for text in change(line)] for name, lines in files.items()}


WRITINGS = {
    "a file for each rank": by_rank,
    "minutes ahead": lambda lines: by_rank(lines, node_one(240.0)),
    "minutes behind": lambda lines: by_rank(lines, node_one(-240.0)),
    "hours ahead": lambda lines: by_rank(lines, node_one(7200.0)),
    "hours behind": lambda lines: by_rank(lines, node_one(-7200.0)),
    "all in one": in_one,
    "without their heads": lambda lines: {name: told[-9:] for name, told in by_rank(lines).items()},
    "complaints again and again": lambda lines: lines_of(
        by_rank(lines), lambda line: [line] * (3 if "Watchdog" in line else 1)
    ),
    "in red": lambda lines: lines_of(in_one(lines), lambda line: [f"\x1b[31m{line}\x1b[0m"]),
    "of Windows": lambda lines: lines_of(by_rank(lines), lambda line: [line + "\r"]),
    "without times": lambda lines: lines_of(by_rank(lines), lambda line: [STAMP.sub("", line)]),
}


@pytest.fixture
def diagnosis(tmp_path, cache_home):
    def of(files):
        for name, lines in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text("\n".join(lines) + "\n")
        return diagnose(search([tmp_path], PACKAGE, cache=cache_home / "holdfast"), KNOWN, TABLES)

    return of


def is_told(answer, cause):
    assert answer.category == cause.category
    assert cause.first in answer.first_error.text
    assert (cause.rank if cause.rank is not None else cause.host) in {
        *(one.rank for one in answer.culprits),
        *(one.host for one in answer.culprits),
    }


@pytest.mark.parametrize("writing", WRITINGS)
@pytest.mark.parametrize("cause", DIFFERENT, ids=lambda cause: cause.name)
def test_the_first_cause_stays_the_same(diagnosis, cause, writing):
    is_told(diagnosis(WRITINGS[writing](job(cause))), cause)


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.name)
def test_lines_of_ranks_at_the_same_moment_come_in_any_order(diagnosis, cause):
    """What several ranks write within half a second stands mixed; what each of them writes stays in order."""
    chance, moved, last_s = random.Random(cause.name), [], {}
    for line in sorted(job(cause), key=lambda line: line.at_s):
        writer = (line.rank, line.host)
        last_s[writer] = max(last_s.get(writer, 0.0), line.at_s + chance.uniform(0.0, 0.5))
        moved.append((last_s[writer], line))
    mixed = [line._replace(at_s=at_s) for at_s, line in sorted(moved, key=lambda one: one[0])]
    is_told(diagnosis(in_one(mixed)), cause)


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.name)
def test_a_rank_that_complains_first_as_its_clock_is_fast_is_no_cause(diagnosis, cause):
    others = [rank for rank in range(8) if rank not in (cause.rank, cause.lost)]
    closed = "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.3]:41022"
    early = of_rank(others[0], DOWN_S - 30.0, *traceback(closed))
    is_told(diagnosis(by_rank([*job(cause), *early])), cause)


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.name)
def test_a_nodes_fault_of_days_before_is_no_cause_of_a_job_that_trained_since(diagnosis, cause):
    old = of_kernel(
        0,
        -3 * DAY_S,
        "NVRM: Xid (PCI:0000:1a:00): 31, pid=991, name=python, Ch 00000008, intr 00000000. MMU Fault",
    )
    is_told(diagnosis(by_rank([*job(cause), *old])), cause)


def test_a_hang_that_nobody_ended_for_days_is_still_that_faults(diagnosis):
    """Nothing else went wrong: the fault of two days before the end is why it hung."""
    (xid,) = (cause for cause in CAUSES if cause.name == "xid")
    is_told(diagnosis(by_rank(job(xid, late_s=2 * DAY_S))), xid)


def test_ranks_that_stumble_after_they_lost_a_peer_are_no_cause_though_their_clock_is_hours_behind(diagnosis):
    (oom,) = (cause for cause in CAUSES if cause.name == "oom-killer")
    stumbles = [
        line
        for rank in range(8)
        if rank != oom.lost
        for line in of_rank(
            rank, DOWN_S + 601.0, *traceback("AttributeError: 'NoneType' object has no attribute 'send'")
        )
    ]
    is_told(diagnosis(by_rank([*job(oom), *stumbles], node_one(-7200.0))), oom)
