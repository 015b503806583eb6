"""What launchers print of the ends of their processes, and how the verdict uses it."""

import re

import pytest

from holdfast.core.verdict.conclude import is_certain, joined_failure
from holdfast.core.verdict.first import first_verdict
from holdfast.core.verdict.launcher_words import Known, launcher_words
from holdfast.model.failures import ErrorRecord, Failure, LauncherWord, RankExit
from holdfast.model.matches import Match, Search, Source, Writer
from holdfast.model.nodes.workers import WorkerEvidence
from known import PACKAGE

SIGNATURES = {one.id: one for one in PACKAGE}
ENDS = [one for one in PACKAGE if one.rank_end]
CLOSED = "[gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:29579."


def read(*lines: str, known: Known = Known()) -> list[tuple[int | None, int, int | None]]:  # noqa: B008 - frozen
    """Rank, pid and code of each, as the package's signatures find them."""
    return [(one.rank, one.pid, one.code) for one in words(*lines, known=known)]


def words(*lines: str, known: Known = Known()) -> tuple[LauncherWord, ...]:  # noqa: B008 - frozen
    found = []
    for number, line in enumerate(lines):
        for one in ENDS:
            if match := re.compile(one.pattern, re.ASCII).search(line):
                captures = {name: value for name, value in match.groupdict().items() if value is not None}
                found.append(
                    Match(
                        signature=one.id,
                        category=one.category,
                        source=0,
                        offset=100 * number,
                        line=number + 1,
                        text=line,
                        captures=captures,
                        writer=Writer(stamp_s=50.0 + number),
                    )
                )
    search = Search(
        sources=(Source(name="attempt-001/worker-0/stderr"),),
        matches=tuple(sorted(found, key=lambda one: one.offset)),
    )
    return launcher_words(search, SIGNATURES, known)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL"], (1, 0, -9)),
        (["torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with exit code 3"], (1, 0, 3)),
        (["-- Process 1 terminated with the following error:"], (1, 0, None)),
        (["[rank: 1] Child process with PID 77 terminated with code -9. Forcefully terminating"], (1, 77, -9)),
        (["[launch.py:259:main] ['python', 'train.py', '--local_rank=0'] exits with return code = -11"], (0, 0, -11)),
        (["mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed)."], (1, 0, -9)),
        (["  Process name: [[30544,1],1]", "  Exit code:    3"], (1, 0, 3)),
        (["   Process name: [prterun-vm-77@1,1] Exit code:    3"], (1, 0, 3)),
        (["Process name: 1", "Exit code: -9"], (1, 0, -9)),
        (["srun: error: n1: task 1: Killed"], (1, 0, -9)),
        (["srun: error: n1: task 1: Exited with exit code 137"], (1, 0, 137)),
        (["job.sh: line 3:    77 Killed                  python train.py"], (None, 77, -9)),
    ],
)  # fmt: skip
def test_the_wordings_of_launchers(lines, expected):
    assert read(*lines) == [expected]


def test_a_report_of_several_lines_is_one_end():
    hydra = (
        "=   PID 77 RUNNING AT vm",
        "=   EXIT CODE: 9",
        "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)",
    )
    assert read(*hydra) == [(None, 77, -9)]
    assert read(*hydra, known=Known(of_pid={77: 3}.get)) == [(3, 77, -9)]


def test_a_code_far_below_belongs_to_nobody():
    lines = ["Process name: 1", *["something else"] * 20, "Exit code: 4"]
    assert read(*lines) == [(1, 0, None)]


def test_a_task_of_slurm_is_no_rank_where_ranks_are_known_by_their_environment():
    assert read("srun: error: n1: task 1: Killed", known=Known(by_rank=True)) == []


def test_a_local_rank_of_an_unknown_machine_names_nobody():
    line = "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL"
    assert read(line, known=Known(of_local=lambda local: None)) == []


def test_the_same_end_is_read_once():
    line = "mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed)."
    assert read("  Process name: [[30544,1],1]", "other", line) == [(1, 0, -9)]


def killed(rank: int | None = 1, code: int | None = -9, pid: int = 0) -> LauncherWord:
    text = f"the launcher says that rank {rank} has ended"
    return LauncherWord(rank=rank, code=code, pid=pid, at_s=60.0, text=text, file="stderr")


def test_who_was_killed_is_named_though_only_the_launcher_says_so():
    failure = Failure(command_code=1, launcher_words=(killed(),))
    verdict = first_verdict(failure)
    assert (verdict.category, [one.rank for one in verdict.culprits]) == ("process_killed", [1])
    assert verdict.title == "rank 1 was killed by SIGKILL; the sender is unknown"
    assert verdict.first_error is not None
    assert verdict.first_error.text == killed().text
    assert is_certain(failure, verdict)


def test_it_explains_the_complaints_of_others_however_late_it_is_read():
    complaint = ErrorRecord(rank=0, type="RuntimeError", message=CLOSED, at_s=10.0)
    verdict = first_verdict(Failure(errors=(complaint,), command_code=1, launcher_words=(killed(),)))
    assert (verdict.category, [one.rank for one in verdict.culprits]) == ("process_killed", [1])


def test_an_exception_of_nobody_is_of_the_rank_that_the_launcher_names():
    error = ErrorRecord(type="ValueError", message="bad sample")
    verdict = first_verdict(Failure(tracebacks=(error,), command_code=1, launcher_words=(killed(code=None),)))
    assert verdict.title == "rank 1 raised ValueError: bad sample"


def test_a_process_that_is_known_by_its_pid_alone():
    verdict = first_verdict(Failure(command_code=1, launcher_words=(killed(None, -9, 77),)))
    assert verdict.title == "a process was killed by SIGKILL; the sender is unknown"
    seen = RankExit(rank=4, pid=77, code=-9, at_s=9.0)
    verdict = first_verdict(Failure(exits=(seen,), launcher_words=(killed(None, -9, 77),)))
    assert [one.rank for one in verdict.culprits] == [4]


def test_a_code_alone_of_a_process_that_nobody_knows_is_nothing():
    verdict = first_verdict(Failure(command_code=3, launcher_words=(killed(None, 3, 77),)))
    assert verdict.title == "the command ended with code 3; nothing says why"


def says(failure: Failure) -> list[str]:
    text = killed().text
    return [one.says for one in first_verdict(failure).evidence if one.text == text]


def test_the_evidence_says_whether_the_launcher_agrees():
    first = RankExit(rank=1, code=-9, at_s=9.0)
    assert says(Failure(exits=(first,), launcher_words=(killed(),))) == ["its launcher says the same"]


def test_the_end_that_was_seen_counts_more_than_what_the_launcher_says():
    first = RankExit(rank=1, code=3, at_s=9.0)
    assert says(Failure(exits=(first,), launcher_words=(killed(),))) == [
        "its launcher says so; the end that was seen of rank 1 counts: code 3"
    ]


def test_the_evidence_says_why_another_rank_is_the_culprit():
    error = ErrorRecord(rank=0, type="ValueError", message="bad", at_s=9.0)
    failure = Failure(
        errors=(error,), exits=(RankExit(rank=0, code=1, at_s=9.1),), launcher_words=(killed(),)
    )
    assert says(failure) == [
        "its launcher names rank 1; the verdict does not: rank 0 raised an error of its own"
    ]


def test_words_of_all_workers_are_joined():
    parts = [
        WorkerEvidence(
            incident=1,
            attempt=1,
            worker=worker,
            revision=1,
            failure=Failure(launcher_words=(killed(worker),)),
            certain=True,
            is_all=True,
        )
        for worker in (1, 0)
    ]
    assert [one.rank for one in joined_failure(parts).launcher_words] == [0, 1]
