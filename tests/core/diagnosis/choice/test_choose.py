"""Which of many matches is the first cause."""

from msgspec.structs import replace

from core.diagnosis.candidate_kit import candidate, signature
from core.diagnosis.choice.choose_kit import (
    CHILD_FAILED,
    CLOSED,
    DONE,
    ENDED,
    OOM,
    SPOKEN,
    TERM,
    VAGUE,
    root_of,
)
from holdfast.core.diagnosis.candidates import Ruling
from holdfast.core.diagnosis.choice.choose import choose

IMPORT = signature("import", "import_error")
RESET = signature("reset", "nccl_network_error")
REFUSED = signature("script-arguments-wrong", "python_exception", severity="fatal", weight=0.92)
SLOW = signature("old-kernel", "kernel_version_warning", severity="warning")
BEGINS = signature("program-starts", "none", role="context")
STARTS = signature("omp-threads-notice", "none", role="context")
TABLE_RANK = signature("torchrun-table-rank", "unknown", role="context")
STORE = signature("store", "rendezvous_timeout", role="symptom", severity="warning", weight=0.3)
IGNORED = signature("exception-ignored", "none", role="context")
TRACEBACK = signature("python-traceback-start", "python_exception", role="context")
HINT = signature("hint", "cuda_error", role="context", severity="info")
NAN = signature("loss-nan", "nan_loss", severity="warning")
ASSERT = signature("assert", "device_side_assert", explained_by=("nan_loss",))
SETUP = signature("nccl-init-state", "nccl_init_failure", severity="warning")


def test_the_first_of_two_causes():
    assert root_of(candidate(IMPORT, offset=20), candidate(OOM, offset=10)) == "oom"


def test_between_logs_time_decides_not_the_order_of_files():
    assert root_of(candidate(IMPORT, source=0, at_s=50.0), candidate(OOM, source=1, at_s=40.0)) == "oom"


def test_a_complaint_is_the_root_only_where_nothing_explains_it():
    assert root_of(candidate(CLOSED, offset=1), candidate(OOM, offset=50)) == "oom"
    assert root_of(candidate(CLOSED, offset=1)) == "closed"


def test_an_end_from_outside_is_the_cause_only_alone():
    assert root_of(candidate(TERM, offset=10)) == "term"
    assert root_of(candidate(OOM, offset=5), candidate(TERM, offset=10)) == "oom"
    assert root_of(candidate(OOM, offset=5, survived=True), candidate(TERM, offset=10)) == "term"


def test_what_training_outlived_is_no_cause_while_nothing_died():
    assert root_of(candidate(OOM, survived=True)) is None


def test_what_training_outlived_counts_where_it_died_soon_after_and_nothing_else_says_why():
    assert root_of(candidate(OOM, offset=5, survived=True), candidate(CHILD_FAILED, offset=90)) == "oom"


def test_what_training_outlived_by_many_steps_is_no_cause_however_near_it_stands():
    long_ago = candidate(OOM, offset=5, survived=True, outlived=True)
    assert root_of(long_ago, candidate(CHILD_FAILED, offset=90)) == "child-failed"


def test_a_start_with_which_a_log_ends_is_no_further_run():
    seen = (candidate(OOM, offset=5), candidate(STARTS, offset=500))
    assert choose(seen, sizes_bytes=[700]).root.signature.id == "oom"
    assert choose(seen, sizes_bytes=[70_000]).root is None


def test_a_warning_counts_only_for_a_job_that_died():
    assert root_of(candidate(SLOW)) is None
    assert root_of(candidate(SLOW, offset=1), candidate(CHILD_FAILED, offset=90)) == "old-kernel"


def test_a_caught_exception_yields_to_what_is_known():
    logged = candidate(VAGUE, offset=1, error_type="ValueError")
    assert root_of(logged, candidate(OOM, offset=50)) == "oom"
    assert root_of(logged) == "python-exception"


def test_before_the_work_was_done_only_a_death_matters():
    assert root_of(candidate(OOM, offset=5), candidate(DONE, offset=9)) is None
    assert (
        root_of(candidate(OOM, offset=5), candidate(DONE, offset=9), candidate(CHILD_FAILED, offset=20))
        == "oom"
    )


def test_a_fault_after_the_work_was_done_is_one():
    assert root_of(candidate(DONE, offset=5), candidate(OOM, offset=9)) == "oom"


def test_a_last_run_that_was_only_ended_says_less_than_the_run_before():
    runs = (candidate(STARTS, offset=1), candidate(OOM, offset=5), candidate(STARTS, offset=20))
    assert root_of(*runs, candidate(ENDED, offset=30)) == "oom"
    assert root_of(*runs, candidate(IMPORT, offset=30)) == "import"
    assert root_of(*runs) is None


def left(of, offset, *, script="fit.py", frame="fit.py:7 main", **changed):
    """An exception that nothing in the script caught."""
    return candidate(
        of,
        offset=offset,
        error_type=of.id,
        frame=frame,
        outermost=f"{script}:90 <module>",
        **changed,
    )


def test_a_script_that_was_left_for_another_reason_before_had_been_started_again():
    assert root_of(left(IMPORT, 10), left(OOM, 50)) == "oom"
    assert root_of(left(IMPORT, 10), left(VAGUE, 50)) == "python-exception"
    assert root_of(left(IMPORT, 10), left(IMPORT, 50), left(OOM, 90, frame="fit.py:9 step")) == "oom"


def test_what_other_scripts_or_ranks_or_installed_programs_were_left_for_is_of_one_run():
    assert root_of(left(IMPORT, 10), left(OOM, 50, script="evaluate.py")) == "import"
    assert root_of(left(IMPORT, 10, rank=1), left(OOM, 50, rank=0)) == "import"
    assert root_of(left(IMPORT, 10), left(OOM, 50), candidate(CHILD_FAILED, offset=90)) == "import"
    program = "/opt/py/lib/python3.12/site-packages/serve/run.py"
    assert root_of(left(IMPORT, 10, script=program), left(OOM, 50, script=program)) == "import"
    assert root_of(left(IMPORT, 10, script="<string>"), left(OOM, 50, script="<string>")) == "import"


def test_a_program_that_tells_of_its_start_began_another_run():
    runs = (candidate(IMPORT, offset=10), candidate(BEGINS, offset=40))
    assert choose(runs, sizes_bytes=[50_000]).root is None
    assert choose((*runs, candidate(OOM, offset=900)), sizes_bytes=[50_000]).root.signature.id == "oom"
    assert root_of(candidate(BEGINS), left(IMPORT, 10), left(OOM, 50)) == "oom"
    assert root_of(candidate(STARTS), left(IMPORT, 10), left(OOM, 50)) == "import"


def test_a_rank_that_two_tables_of_torchrun_name_was_started_again():
    ends = (candidate(CHILD_FAILED, offset=30), candidate(OOM, offset=60))
    twice = candidate(TABLE_RANK, offset=40, count=2)
    assert root_of(candidate(IMPORT, offset=10), twice, *ends) == "oom"
    nodes = (candidate(TABLE_RANK, offset=40, captures={"rank": "3"}), candidate(TABLE_RANK, offset=90))
    assert root_of(candidate(IMPORT, offset=10), *nodes, *ends) == "import"


def test_numbers_that_went_wrong_are_why_something_refused_them_soon_after():
    nan = candidate(NAN, offset=100, survived=True)
    assert root_of(nan, candidate(ASSERT, offset=300)) == "loss-nan"
    assert root_of(nan, candidate(ASSERT, offset=90_000)) == "assert"
    assert root_of(nan, candidate(OOM, offset=300)) == "oom"
    assert root_of(nan) is None


def test_a_lost_peer_or_an_interrupt_is_no_other_run():
    assert root_of(left(IMPORT, 10), left(RESET, 50)) == "import"


def test_options_that_were_refused_are_of_an_earlier_run_where_much_more_was_said_since():
    refused = candidate(REFUSED, offset=100)
    assert choose([refused], sizes_bytes=[500]).root.signature.id == "script-arguments-wrong"
    assert choose([refused], sizes_bytes=[50_000]).root is None
    assert choose([refused, candidate(CHILD_FAILED, offset=900)], sizes_bytes=[50_000]).root is not None


def test_a_script_that_refused_its_options_is_not_what_a_person_interrupted_later():
    refused = candidate(REFUSED, offset=100, text="fit.py: error: unrecognized arguments: --lt=3")
    stopped = signature("keyboard-interrupt", "terminated", weight=0.7, explained_by=("training",))
    assert root_of(refused, left(stopped, 900, script="evaluate.py")) == "keyboard-interrupt"
    assert root_of(refused, left(stopped, 900, script="fit.py")) == "script-arguments-wrong"
    assert root_of(refused, left(OOM, 900, script="evaluate.py")) == "script-arguments-wrong"


def test_an_exception_whose_line_is_known_as_context_counts_where_nothing_else_says_why():
    raised = (candidate(VAGUE, offset=5, error_type="ValueError"), candidate(HINT, offset=5))
    assert choose(raised, made_steps=True).root is None
    assert root_of(*raised) == "python-exception"
    assert root_of(*raised, candidate(ENDED, offset=30)) == "python-exception"
    assert root_of(*raised, candidate(OOM, offset=20), candidate(ENDED, offset=30)) == "oom"


def test_an_exception_that_announces_another_one_is_not_the_first():
    meant = signature("python-exception", "import_error", weight=0.7)
    head = "RuntimeError: The task could not be read on its worker, which said:"
    announcing = candidate(meant, offset=5, text=head, error_type="RuntimeError")
    assert root_of(announcing, candidate(IMPORT, offset=15)) == "import"
    assert root_of(announcing, candidate(IMPORT, offset=900)) == "python-exception"
    assert root_of(announcing, candidate(HINT, offset=15)) == "python-exception"
    told = candidate(meant, offset=5, text="RuntimeError: the task is gone", error_type="RuntimeError")
    assert root_of(told, candidate(IMPORT, offset=15)) == "python-exception"


def test_what_a_traceback_says_that_python_ignores_ends_nothing():
    ignored = (candidate(IGNORED, offset=10), candidate(TRACEBACK, offset=11), candidate(OOM, offset=15))
    assert choose(ignored).root is None
    assert root_of(*ignored, candidate(IMPORT, offset=20)) == "import"
    assert root_of(candidate(IGNORED, offset=10), candidate(OOM, offset=15)) == "oom"
    gone = signature("pipe-gone", "process_killed", role="symptom", severity="error")
    pipe = candidate(gone, offset=15, text="ConnectionResetError: [Errno 104] Connection reset by peer")
    assert choose((*ignored[:2], pipe)).root is None
    assert root_of(*ignored[:2], candidate(gone, offset=15, text="train.sh: line 4: Killed")) == "pipe-gone"


def test_a_complaint_that_ends_no_job_is_all_there_is():
    assert root_of(candidate(STORE)) == "store"
    assert choose([candidate(STORE)], made_steps=True).root is None
    assert root_of(candidate(STORE, offset=9), candidate(DONE, offset=5)) is None


def test_a_set_up_that_never_ended_is_all_there_is_of_a_job_that_made_no_step():
    assert root_of(candidate(SETUP)) == "nccl-init-state"
    assert choose([candidate(SETUP)], made_steps=True).root is None
    assert root_of(candidate(SETUP, offset=9), candidate(DONE, offset=5)) is None
    who_began = replace(SETUP, role="context")
    assert root_of(candidate(who_began)) is None


def test_nothing_seen_is_nothing_wrong():
    choice = choose([])
    assert (choice.root, choice.died) == (None, False)


def test_a_death_alone_is_reported():
    assert root_of(candidate(CHILD_FAILED)) == "child-failed"


def test_a_line_that_is_known_is_no_unknown_exception():
    known = signature("known", "none", role="context")
    raised = (candidate(VAGUE, offset=5, error_type="OSError"), candidate(known, offset=5))
    assert choose(raised, made_steps=True).root is None
    assert choose([*raised, candidate(DONE, offset=9)]).root is None


def test_of_chained_exceptions_the_first_counts_unless_it_says_nothing():
    chained = signature("nested-failure-header", "python_exception", role="context", severity="info")
    last = candidate(VAGUE, offset=9, error_type="RuntimeError", text="RuntimeError: callback failed")
    told = candidate(VAGUE, offset=4, text="ValueError: points cannot contain NaN")
    empty = candidate(VAGUE, offset=4, text="queue.Empty")
    assert choose([told, candidate(chained, offset=6), last]).root is told
    assert choose([empty, candidate(chained, offset=6), last]).root is last


def test_where_a_traceback_ends_an_exception_says_more_than_that_a_program_speaks_of_an_error():
    assert (
        root_of(candidate(SPOKEN, offset=5), candidate(VAGUE, offset=5, error_type="OSError"))
        == "python-exception"
    )


def test_the_code_that_raised_an_exception_complains_of_nothing():
    code = candidate(SPOKEN, offset=5, text='        f"error at step {self.step}: "')
    said = candidate(SPOKEN, offset=6, text="RuntimeError: error at step 7: expected 3")
    below = candidate(VAGUE, offset=6, text="RuntimeError: error at step 7: expected 3")
    assert choose([code, said, below, candidate(CHILD_FAILED, offset=90)]).root is said
    apart = candidate(SPOKEN, offset=5, text="error: no step of that name")
    assert choose([apart, said, below, candidate(CHILD_FAILED, offset=90)]).root is apart


def test_what_a_library_warns_of_is_no_reason_for_an_end():
    warned = candidate(
        SPOKEN,
        offset=5,
        text="W0000 00:00:1931715039.99 1917 cost_estimator.cc:69] Error in Guess() for the op: x",
    )
    ended = candidate(CHILD_FAILED, offset=90)
    assert choose([warned, ended]).root is ended
    told = candidate(SPOKEN, offset=5, text="ERROR: the tokenizer has no padding token")
    assert choose([told, ended]).root is told


def test_a_complaint_of_a_family_yields_to_what_is_known_of_its_line():
    family = signature(
        "family", "pcie_aer", severity="warning", weight=0.95, explained_by=("*",), explains=("gpu_missing",)
    )
    named = signature("named", "gpu_missing", severity="fatal", weight=0.6)
    assert root_of(candidate(family, offset=5), candidate(named, offset=5)) == "named"


def test_what_came_right_is_no_complaint_of_its_family_either():
    family = signature("family", "slurm_config", severity="warning", explained_by=("*",))
    away = signature("away", "slurm_node_fail")
    back = replace(
        candidate(away, offset=5), role="context", ruling=Ruling(category="slurm_node_fail", role="context")
    )
    assert choose([candidate(family, offset=5), back]).root is None
    assert choose([candidate(family, offset=5)]).root is not None


def test_what_only_looks_like_an_exception_is_none():
    assert root_of(candidate(VAGUE, offset=5)) is None


def test_an_exception_that_a_rank_did_not_catch_needs_no_traceback():
    assert root_of(candidate(VAGUE, offset=5, text="[rank3]: RuntimeError: bad batch")) == "python-exception"
    assert (
        root_of(candidate(VAGUE, offset=5, text="    # [rank3]: RuntimeError: bad batch"))
        == "python-exception"
    )
    assert (
        root_of(
            candidate(VAGUE, offset=5, text="(Worker pid=7) ERROR 01-02 03:04:05 [a.py:9] ValueError: bad"),
            candidate(ENDED, offset=9),
        )
        == "python-exception"
    )
    assert choose([candidate(VAGUE, offset=5, text="step 7 caught ValueError: bad")]).root is None
