"""The first verdict: who broke first, of what; and never more or less than one verdict."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.job.recurrence import is_environment, is_user_code, problem_key, would_come_back
from holdfast.core.verdict.categories import KINDS, RULES, SIGNALS, USER_CODE
from holdfast.core.verdict.first import first_verdict
from holdfast.model.failures import ErrorRecord, Failure, RankExit
from holdfast.model.samples import Hang

CLOSED = "[gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:29579."


def ended(rank: int, code: int | None, at_s: float = 10.0, pid: int = 0) -> RankExit:
    return RankExit(rank=rank, code=code, at_s=at_s, pid=pid or 1000 + rank)


def raised(
    rank: int | None, type: str, message: str = "", at_s: float | None = 9.9, frame: str = ""
) -> ErrorRecord:
    return ErrorRecord(rank=rank, worker=0, type=type, message=message, at_s=at_s, frame=frame)


def culprits(verdict) -> list[int | None]:
    return [culprit.rank for culprit in verdict.culprits]


def hang(kind="quiet", ranks=(2,), why="rank 2 sleeps at train.py:88 in load; 3 ranks wait for it") -> Hang:
    return Hang(kind=kind, culprits=ranks, since_s=100.0, why=why, confidence=0.95)


def test_the_one_that_raised_is_the_culprit_though_another_complained_earlier():
    verdict = first_verdict(
        Failure(
            exits=(ended(0, 1, 10.0), ended(1, 1, 10.5), ended(2, -15, 10.9)),
            errors=(
                raised(0, "RuntimeError", CLOSED, 9.0),
                raised(1, "RuntimeError", "bad batch", 9.9, "/data/train.py:88 step"),
            ),
            command_code=1,
        )
    )
    assert verdict.title == "rank 1 raised RuntimeError: bad batch at train.py:88"
    assert (verdict.category, verdict.class_, verdict.action) == ("python_exception", "training", "fix_code")
    assert culprits(verdict) == [1]
    assert [seen.says for seen in verdict.evidence] == [verdict.title, "followed", "followed"]
    assert is_user_code(verdict) and not is_environment(verdict)


def test_a_complaint_long_before_any_other_trouble_is_first():
    errors = (raised(0, "RuntimeError", CLOSED, 1.0), raised(1, "ValueError", "late", 60.0))
    verdict = first_verdict(Failure(errors=errors))
    assert (verdict.category, culprits(verdict)) == ("nccl_network_error", [])  # a connection has two ends
    assert is_environment(verdict)


def test_a_killed_rank_is_the_culprit_and_the_others_follow():
    verdict = first_verdict(
        Failure(
            exits=(ended(2, -9, 10.0), ended(0, 1, 10.1), ended(1, -15, 10.2)),
            errors=(raised(0, "RuntimeError", "Connection reset by peer", 9.8),),
        )
    )
    assert verdict.title == "rank 2 was killed by SIGKILL; the sender is unknown"
    assert (verdict.category, culprits(verdict)) == ("process_killed", [2])
    assert is_environment(verdict) and not is_user_code(verdict)


def test_ranks_killed_after_a_launchers_grace_are_followers():
    verdict = first_verdict(Failure(exits=(ended(1, 1, 10.0), ended(0, -9, 40.0))))
    assert culprits(verdict) == [1]
    assert verdict.title == "rank 1 ended with code 1; nothing says why"


@pytest.mark.parametrize("code", [-9, 137])
@pytest.mark.parametrize(
    ("sentence", "category"),
    [
        ("the kernel killed pid 1002 (python), out of memory", "host_oom"),
        ("cgroup memory: pid 1002", "cgroup_oom"),
    ],
)
def test_a_kill_with_evidence_of_memory(code, sentence, category):
    verdict = first_verdict(Failure(exits=(ended(2, code),), oom=(sentence,)))
    assert (verdict.category, culprits(verdict)) == (category, [2])
    assert verdict.confidence > 0.9


def test_the_memory_of_another_pid_is_less_sure():
    verdict = first_verdict(Failure(exits=(ended(2, -9),), oom=("pid 77 (loader) killed, out of memory",)))
    assert verdict.category == "host_oom"
    assert verdict.confidence == 0.8


@pytest.mark.parametrize(("code", "category"), [(-11, "segfault"), (134, "segfault"), (-7, "shm_oom")])
def test_deaths_by_other_signals(code, category):
    assert first_verdict(Failure(exits=(ended(1, code), ended(0, -15)))).category == category


def test_sigterm_to_all_came_from_outside():
    verdict = first_verdict(Failure(exits=(ended(0, -15), ended(1, 143)), command_code=-15))
    assert verdict.category == "terminated"
    assert verdict.title == "rank 0 was ended by SIGTERM; the sender is unknown"
    assert is_environment(verdict)


def test_the_launchers_root_cause_tells_one_sigterm_from_the_others():
    verdict = first_verdict(
        Failure(
            exits=(ended(0, -15, 10.0), ended(1, -15, 10.5)),
            elastic=(ended(1, -15, 10.0), ended(0, -15, 10.0)),
        )
    )
    assert culprits(verdict) == [1]


def test_an_end_that_only_the_launcher_reports_is_later_than_those_observed():
    """Its report has the time at which the attempt began: the table is complete before the last exit is observed."""
    table = (ended(1, -9, 10.0), ended(0, -15, 10.0))
    verdict = first_verdict(Failure(exits=(ended(1, -9, 19.0),), elastic=table))
    assert [culprit.rank for culprit in verdict.culprits] == [1]
    killed = (ended(1, -9, 10.0), ended(0, -9, 10.0))  # by the launcher
    verdict = first_verdict(Failure(exits=(ended(1, -9, 19.0),), elastic=killed))
    assert [culprit.rank for culprit in verdict.culprits] == [1]


def test_many_ranks_with_the_same_error_are_all_named():
    errors = tuple(
        raised(rank, "ModuleNotFoundError", "No module named 'apex'", 9 + rank / 10) for rank in (1, 0)
    )
    verdict = first_verdict(Failure(errors=errors, exits=(ended(0, 1), ended(1, 1))))
    assert verdict.title == "ranks 0, 1 raised ModuleNotFoundError: No module named 'apex'"
    assert (verdict.category, culprits(verdict)) == ("import_error", [0, 1])
    assert is_user_code(verdict)


def test_a_traceback_of_no_known_rank_belongs_to_the_one_that_ended_without_a_word():
    failure = Failure(
        exits=(ended(1, 1), ended(0, -15, 10.4)),
        tracebacks=(raised(None, "ValueError", "bad", None), raised(None, "x.ChildFailedError", "", None)),
    )
    verdict = first_verdict(failure)
    assert verdict.title == "rank 1 raised ValueError: bad"
    assert culprits(verdict) == [1]


@pytest.mark.parametrize(("second_s", "named"), [(10.3, [1]), (10.02, [])])
def test_tracebacks_of_no_known_rank_belong_to_ranks_in_the_order_of_their_ends(second_s, named):
    """Unless two ended so close together that their last words may stand in another order."""
    verdict = first_verdict(
        Failure(
            exits=(ended(0, 1, second_s), ended(1, 1, 10.0)),
            tracebacks=(
                raised(None, "RuntimeError", "bad sample 17", None),
                raised(None, "RuntimeError", CLOSED, None),
            ),
        )
    )
    assert "bad sample 17" in verdict.title
    assert culprits(verdict) == named


def test_a_traceback_of_a_rank_that_ended_well_is_no_failure():
    failure = Failure(exits=(ended(1, 0), ended(0, -11)), tracebacks=(raised(1, "ValueError", "retried"),))
    assert culprits(first_verdict(failure)) == [0]


@pytest.mark.parametrize(
    ("kind", "ranks", "category"),
    [
        ("stopped", (2,), "process_stopped"),
        ("quiet", (2,), "collective_missing_rank"),
        ("quiet", (), "collective_timeout"),
        ("spinning", (1, 2), "collective_missing_rank"),
        ("blocked-io", (0,), "dataloader_stuck"),
        ("exit-hang", (0,), "teardown_hang"),
        ("silent", (), "unknown"),
    ],
)
def test_hangs(kind, ranks, category):
    found = hang(kind, ranks, "rank 2 is stopped (SIGSTOP)")
    ends = tuple(ended(rank, -9, 300.0) for rank in range(4))  # how the hang was ended says nothing
    verdict = first_verdict(Failure(hang=found, exits=ends))
    assert (verdict.category, culprits(verdict)) == (category, list(ranks))
    assert verdict.title == found.why


def test_a_loader_in_the_culprits_stack():
    why = "rank 2 waits at dataloader.py:1284 in _try_get_data; 3 ranks wait for it"
    assert first_verdict(Failure(hang=hang(why=why))).category == "dataloader_stuck"


def test_a_rank_that_died_when_the_hang_began_is_why_the_others_wait():
    verdict = first_verdict(
        Failure(hang=hang("exit-hang", (0, 1)), exits=(ended(2, -9, 101.0), ended(0, -9, 400.0)))
    )
    assert (verdict.category, culprits(verdict)) == ("process_killed", [2])


def test_what_is_outside_the_ranks_comes_first():
    ends = (ended(1, -9),)
    assert first_verdict(Failure(exits=ends, lost_nodes=("gpu-03",))).category == "node_down"
    assert first_verdict(Failure(exits=ends, devices=("0000:5d:00.0 xid 79",))).category == "gpu_fault"
    assert first_verdict(Failure(exits=ends, devices=("npu 3: 80E01801",))).category == "npu_fault"
    assert first_verdict(Failure(exits=ends, stop_requested=True)).title == "the job was asked to stop"
    assert first_verdict(Failure(command_error="no such file: trian.py")).category == "launcher_config"


@pytest.mark.parametrize(
    ("code", "category"),
    [
        (None, "unknown"),
        (0, "none"),
        (1, "unknown"),
        (127, "launcher_config"),
        (137, "process_killed"),
        (-11, "segfault"),
    ],
)
def test_only_the_commands_code_is_known(code, category):
    assert first_verdict(Failure(command_code=code)).category == category


@pytest.mark.parametrize(
    ("type", "message", "category"),
    [
        ("torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2 GiB.", "gpu_oom"),
        ("OSError", "[Errno 28] No space left on device: '/ckpt/1'", "disk_full"),
        ("OSError", "[Errno 98] Address already in use", "port_in_use"),
        ("FileNotFoundError", "[Errno 2] No such file or directory: 'a'", "missing_file"),
        ("RuntimeError", "Error(s) in loading state_dict for Net", "checkpoint_load_error"),
        ("RuntimeError", "DataLoader worker (pid 7) is killed by signal: Killed. ", "host_oom"),
        ("SystemError", "(Fatal) DataLoader process (pid 7) exited is killed by signal: Killed.", "host_oom"),
        ("KeyboardInterrupt", "", "user_interrupt"),
        ("ValueError", "loss is nan at step 7", "nan_loss"),
        ("ValueError", "anything else", "python_exception"),
    ],
)
def test_categories_of_exceptions(type, message, category):
    verdict = first_verdict(Failure(errors=(raised(1, type, message),)))
    assert (verdict.category, culprits(verdict)) == (category, [1])


@pytest.mark.parametrize(
    ("type", "message", "comes_back"),
    [
        ("ValueError", "bad sample 60", True),
        ("KeyError", "'label'", True),
        ("ModuleNotFoundError", "No module named 'apex'", True),
        ("FileNotFoundError", "[Errno 2] No such file or directory: '/data/7'", True),
        ("TimeoutError", "[Errno 110] Connection timed out", False),
        ("subprocess.TimeoutExpired", "Command 'x' timed out after 3 seconds", False),
        ("requests.exceptions.ConnectionError", "HTTPSConnectionPool: Max retries exceeded", False),
        ("urllib.error.HTTPError", "HTTP Error 503: Service Unavailable", False),
        ("socket.gaierror", "[Errno -3] Temporary failure in name resolution", False),
        ("queue.Empty", "", False),
        ("OSError", "[Errno 116] Stale file handle", False),
        ("MemoryError", "", False),
        ("torch.OutOfMemoryError", "CUDA out of memory", False),
        ("RuntimeError", CLOSED, False),
    ],
)
def test_what_another_start_would_raise_again(type, message, comes_back):
    error = raised(1, type, message, frame="/data/train.py:88 step")
    assert would_come_back(first_verdict(Failure(errors=(error,)))) is comes_back


def test_an_exception_is_the_same_at_the_same_place_whatever_its_numbers():
    def key(message: str, frame: str = "/a/train.py:88 step") -> str:
        return first_verdict(Failure(errors=(raised(1, "ValueError", message, frame=frame),))).raised

    assert key("bad sample 60") == key("bad sample 61", "/b/train.py:88 step")
    assert key("bad sample 60") == "ValueError at train.py:88: bad sample #"
    assert key("bad sample 60") != key("bad sample 60", "/a/train.py:90 step")
    assert first_verdict(Failure(exits=(ended(1, -9),))).raised == ""


def test_the_same_problem_has_the_same_key_whatever_rank_number_place_or_address():
    def of(rank: int, message: str) -> str:
        return problem_key(first_verdict(Failure(errors=(raised(rank, "RuntimeError", message),))))

    one = of(1, "[Rank 1] cannot read /data/a/part-1.bin at 0x7f12ab of 300 MiB")
    assert one == of(3, "[Rank 3] cannot read /data/b/part-9.bin at 0x9912cd of 712 MiB")
    assert one != of(3, "cannot write /data/b/part-9.bin")
    killed = [problem_key(first_verdict(Failure(exits=(ended(rank, -9),)))) for rank in (1, 2)]
    assert killed[0] == killed[1] != problem_key(first_verdict(Failure(exits=(ended(1, -11),))))


def test_the_data_is_whole():
    named = {rule.category for rule in RULES} | {category for _, category in SIGNALS.values()} | USER_CODE
    assert named <= KINDS.keys()


MISSED = (ended(2, None, 9.0), ended(0, 1, 9.5), ended(1, 1, 9.6))
COMPLAINTS = (raised(0, "RuntimeError", CLOSED, 8.9), raised(1, "RuntimeError", CLOSED, 9.1))


def test_a_code_that_was_missed_is_taken_from_the_launcher():
    table = (ended(2, -9, 0.0), ended(0, -15, 0.0), ended(1, -15, 0.0))
    verdict = first_verdict(Failure(exits=MISSED, errors=COMPLAINTS, elastic=table, command_code=1))
    assert (verdict.category, culprits(verdict)) == ("process_killed", [2])


def test_who_is_gone_without_a_word_comes_before_those_who_complain_of_it():
    verdict = first_verdict(Failure(exits=MISSED, errors=COMPLAINTS, command_code=1))
    assert (verdict.category, culprits(verdict)) == ("unknown", [2])
    assert verdict.title == "rank 2 ended with an unknown code; nothing says why"
    killed = first_verdict(
        Failure(exits=MISSED, errors=COMPLAINTS, oom=("the kernel killed pid 1002 (python)",))
    )
    assert (killed.category, culprits(killed)) == ("host_oom", [2])


@pytest.mark.parametrize("end", [(), (ended(1, -15, 11.0),), (ended(1, None, 11.0),)])
def test_who_leaves_is_named_though_it_is_slow_to_go_and_its_launcher_ends_it(end):
    failure = Failure(
        exits=(ended(0, 1, 10.6), *end),
        errors=(raised(0, "RuntimeError", CLOSED, 10.5), raised(2, "RuntimeError", CLOSED, 10.5)),
        elastic=(ended(0, 1, 10.6),),
        left=(ended(1, None, 10.4),),
        command_code=1,
    )
    verdict = first_verdict(failure)
    assert culprits(verdict) == [1]
    assert verdict.title == "rank 1 left by itself, and others still needed it"


@pytest.mark.parametrize(
    "left",
    [
        (ended(1, None, 10.6),),  # it was ended after the complaint
        (ended(0, None, 10.4),),  # and one that had an error itself did not leave
    ],
)
def test_who_leaves_after_another_has_complained_follows(left):
    failure = Failure(
        exits=(ended(0, 1, 10.6), ended(1, -15, 11.0)),
        errors=(raised(0, "RuntimeError", CLOSED, 10.5),),
        left=left,
        command_code=1,
    )
    verdict = first_verdict(failure)
    assert (verdict.category, culprits(verdict)) == ("nccl_network_error", [])
    assert verdict.title.startswith("rank 0 ")


def test_a_missed_code_is_no_fault_where_the_command_ended_well():
    assert first_verdict(Failure(exits=(ended(0, None),), command_code=0)).category == "none"


TIMES = st.one_of(st.floats(0, 100), st.floats(allow_nan=False))
CODES = st.one_of(st.none(), st.integers(-70, 300), st.sampled_from([-9, -15, 0, 1, 137]))
RANKS = st.integers(0, 4)
MESSAGES = st.one_of(st.text(max_size=40), st.sampled_from([CLOSED, "bad batch", "CUDA out of memory"]))
EXITS = st.lists(st.builds(RankExit, rank=RANKS, code=CODES, at_s=TIMES, pid=st.integers(0, 9)), max_size=6)
ERRORS = st.lists(
    st.builds(
        ErrorRecord,
        rank=st.one_of(st.none(), RANKS),
        type=st.sampled_from(["RuntimeError", "KeyboardInterrupt", "ChildFailedError", ""]),
        message=MESSAGES,
        frame=st.text(max_size=20),
        at_s=st.one_of(st.none(), TIMES),
    ),
    max_size=5,
)
HANGS = st.builds(
    Hang,
    kind=st.sampled_from(["stopped", "blocked-io", "quiet", "spinning", "silent", "exit-hang"]),
    culprits=st.lists(RANKS, max_size=2).map(tuple),
    since_s=TIMES,
    why=st.text(max_size=30),
    confidence=st.floats(0, 1),
)
FAILURES = st.builds(
    Failure,
    exits=EXITS.map(tuple),
    command_code=CODES,
    command_error=st.sampled_from(["", "", "", "not found"]),
    errors=ERRORS.map(tuple),
    tracebacks=ERRORS.map(tuple),
    elastic=EXITS.map(tuple),
    oom=st.lists(st.text(max_size=20), max_size=2).map(tuple),
    hang=st.one_of(st.none(), HANGS),
    stop_requested=st.booleans(),
    devices=st.lists(st.text(max_size=5), max_size=1).map(tuple),
    lost_nodes=st.lists(st.text(max_size=5), max_size=1).map(tuple),
)


@given(FAILURES)
def test_whatever_happened_there_is_one_verdict_on_known_ranks(failure):
    verdict = first_verdict(failure)
    known = {seen.rank for seen in (*failure.exits, *failure.elastic, *failure.errors, *failure.tracebacks)}
    known |= set(failure.hang.culprits) if failure.hang else set()
    assert KINDS[verdict.category] == (verdict.class_, verdict.action)
    assert {culprit.rank for culprit in verdict.culprits} <= known | {None}
    assert 0 <= verdict.confidence <= 1
    assert verdict.title
    assert problem_key(verdict).startswith(verdict.category)
    assert not (is_user_code(verdict) and is_environment(verdict))


@given(st.permutations(range(5)), st.integers(0, 4), st.sampled_from([-9, -11, -6]))
def test_a_single_death_among_followers_is_always_named(order, dead, code):
    exits = tuple(
        ended(rank, code if rank == dead else -15 if rank % 2 else 1, 10 + 0.3 * place)
        for place, rank in enumerate(order)
    )
    errors = tuple(raised(rank, "RuntimeError", CLOSED, 9.9) for rank in range(0, 5, 2) if rank != dead)
    assert culprits(first_verdict(Failure(exits=exits, errors=errors))) == [dead]


@pytest.mark.parametrize("code", [1, 120])
def test_a_rank_that_had_no_room_to_say_why_ended_for_want_of_it(code):
    verdict = first_verdict(Failure(exits=(ended(1, code),), command_code=1, output_full="/state/jobs/t"))
    assert verdict.category == "disk_full"
    assert "the disk it prints to is full (/state/jobs/t)" in verdict.title
    assert culprits(verdict) == [1]


def test_what_a_rank_could_still_say_counts_for_more_than_a_full_disk():
    failure = Failure(
        exits=(ended(1, 1),), errors=(raised(1, "ValueError", "bad batch"),), output_full="/state/jobs/t"
    )
    assert first_verdict(failure).category != "disk_full"
    assert first_verdict(Failure(exits=(ended(1, -9),), output_full="/state/jobs/t")).category != "disk_full"


def test_a_command_that_had_no_room_to_say_why():
    verdict = first_verdict(Failure(command_code=120, output_full="/state/jobs/t"))
    assert verdict.category == "disk_full"
    assert first_verdict(Failure(command_code=0, output_full="/state/jobs/t")).category == "none"
