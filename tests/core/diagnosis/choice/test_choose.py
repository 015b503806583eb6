"""Which of many matches is the first cause."""

from msgspec.structs import replace

from core.diagnosis.candidate_kit import candidate, signature
from holdfast.core.diagnosis.candidates import Ruling
from holdfast.core.diagnosis.choice.choose import choose

OOM = signature("oom", "gpu_oom")
IMPORT = signature("import", "import_error")
RESET = signature("reset", "nccl_network_error")
REFUSED = signature("script-arguments-wrong", "python_exception", severity="fatal", weight=0.92)
VAGUE = signature("python-exception", "python_exception", weight=0.6)
CLOSED = signature("closed", "nccl_network_error", role="symptom")
CHILD_FAILED = signature("child-failed", "unknown", role="symptom", severity="fatal")
TERM = signature("term", "terminated", explained_by=("*",))
SLOW = signature("old-kernel", "kernel_version_warning", severity="warning")
COMPLAINT = signature("ucx", "nccl_network_error", severity="warning", explained_by=("*",))
BEGINS = signature("program-starts", "none", role="context")
STARTS = signature("omp-threads-notice", "none", role="context")
TABLE_RANK = signature("torchrun-table-rank", "unknown", role="context")
ENDED = signature("ended", "unknown", role="symptom", weight=0.3)
STORE = signature("store", "rendezvous_timeout", role="symptom", severity="warning", weight=0.3)
IGNORED = signature("exception-ignored", "none", role="context")
TRACEBACK = signature("python-traceback-start", "python_exception", role="context")
HINT = signature("hint", "cuda_error", role="context", severity="info")
SPOKEN = signature(
    "program-error-complaint", "python_exception", severity="warning", weight=0.45, explained_by=("*",)
)
NAN = signature("loss-nan", "nan_loss", severity="warning")
ASSERT = signature("assert", "device_side_assert", explained_by=("nan_loss",))
SETUP = signature("nccl-init-state", "nccl_init_failure", severity="warning")
DONE = signature("done", "none", role="end-ok")


def root_of(*candidates):
    choice = choose(candidates)
    return choice.root.signature.id if choice.root else None


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


def test_a_death_alone_is_told():
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


def test_a_component_that_complains_has_the_last_word_of_a_job_that_made_no_step():
    assert root_of(candidate(COMPLAINT)) == "ucx"
    assert choose([candidate(COMPLAINT)], made_steps=True).root is None
    assert root_of(candidate(COMPLAINT), candidate(OOM, offset=9)) == "oom"


def test_what_nccl_warned_of_first_is_shown_for_an_exception_that_says_little():
    failed = signature("nccl-system-error", "nccl_network_error")
    warned = signature("nccl-warn-of-network", "nccl_network_error", severity="warning")
    choice = choose([candidate(warned, offset=5), candidate(warned, offset=7), candidate(failed, offset=20)])
    assert (choice.root.signature.id, choice.shown.match.offset) == ("nccl-system-error", 5)


def test_what_a_loader_worker_raised_is_shown_for_the_line_that_passes_it_on():
    passed = signature("dataloader-worker-exception", "data_error")
    index = signature("index", "python_exception", weight=0.7)
    seen = [
        candidate(passed, offset=5, captures={"type": "IndexError"}, error_type="IndexError"),
        candidate(index, offset=90, error_type="IndexError"),
    ]
    assert choose(seen).shown.match.offset == 90


def test_who_stumbles_after_the_scheduler_told_him_to_end_is_not_why():
    cancelled = signature(
        "cancelled", "terminated", role="symptom", severity="fatal", area="scheduler", weight=0.75
    )
    crashed = signature("srun-task-exited", "slurm_task_crash", role="symptom", area="scheduler", weight=0.5)
    raised = candidate(VAGUE, offset=9, error_type="RuntimeError")
    assert root_of(candidate(cancelled, offset=5), raised) == "cancelled"
    assert root_of(candidate(cancelled, offset=5), raised, candidate(crashed, offset=12)) == "cancelled"
    assert root_of(candidate(crashed, offset=3), candidate(cancelled, offset=5), raised) == "python-exception"


def test_a_launcher_that_says_nothing_yields_to_an_end_that_says_how():
    passed_on = signature("passed-on", "python_exception", role="symptom", weight=0.5)
    died = signature("actor-died", "process_killed", role="symptom", weight=0.65)
    assert root_of(candidate(passed_on, offset=3), candidate(died, offset=9)) == "actor-died"


def test_an_end_that_says_how_it_came_says_more_than_a_complaint():
    complaint = signature(
        "slurm-step-complaint", "slurm_prolog", severity="warning", explained_by=("*",), area="scheduler"
    )
    told = signature("told", "terminated", role="symptom", severity="fatal", weight=0.75)
    assert root_of(candidate(complaint, offset=1), candidate(told, offset=9)) == "told"
    assert (
        root_of(candidate(complaint, offset=1), candidate(CHILD_FAILED, offset=9)) == "slurm-step-complaint"
    )


def test_a_program_that_speaks_of_its_error_shortly_before_an_end_that_says_nothing():
    said, ended = candidate(SPOKEN, offset=50), candidate(CHILD_FAILED, offset=90)
    assert root_of(said, ended) == "program-error-complaint"
    assert root_of(said, candidate(CHILD_FAILED, offset=90_000)) == "child-failed"  # long before it
    assert root_of(said, candidate(OOM, offset=70), ended) == "oom"
    assert root_of(said, candidate(CLOSED, offset=50), ended) == "closed"  # something is known of its line
    assert root_of(said) is None  # nothing ended


def test_of_one_line_what_is_known_and_not_that_something_ended():
    assert root_of(candidate(ENDED, offset=9), candidate(CLOSED, offset=9)) == "closed"


def test_an_exception_that_a_report_shows_yields_to_what_is_known_of_its_words():
    shown = signature("elastic-error-file", "python_exception", weight=0.7)
    assert root_of(candidate(shown, offset=9), candidate(CLOSED, offset=9)) == "closed"
    assert root_of(candidate(shown, offset=9), candidate(CLOSED, offset=2)) == "elastic-error-file"


def test_what_a_spawned_process_reads_from_a_parent_that_ended_is_no_damaged_file():
    orphaned = signature("spawned-child-orphaned", "process_killed", role="symptom", weight=0.35)
    damaged = signature("unpickling-failed", "checkpoint_load_error", weight=0.85)
    reads, kind = candidate(orphaned, offset=10), "_pickle.UnpicklingError"
    assert root_of(reads, candidate(damaged, offset=11, error_type=kind)) == "spawned-child-orphaned"
    assert root_of(reads, candidate(damaged, offset=19, error_type=kind)) == "unpickling-failed"


def test_a_loss_that_is_no_number_to_the_last_step_though_nothing_ended():
    nan = signature("loss-nan-in-log", "nan_loss", severity="warning", weight=0.75)
    said = {"text": "step 7 loss nan"}
    assert root_of(candidate(nan, offset=5, count=3, **said)) == "loss-nan-in-log"
    assert root_of(candidate(nan, offset=5, count=1, **said)) is None
    assert root_of(candidate(nan, offset=5, count=3, survived=True, **said)) is None
    assert root_of(candidate(nan, offset=5, count=3, text="step 7 loss 0.31 val_loss nan")) is None
    gradient = signature("gradient-nan-in-log", "nan_loss", severity="warning", weight=0.75)
    assert root_of(candidate(gradient, offset=5, count=3, text="grad norm: nan")) == "gradient-nan-in-log"


def test_the_last_words_of_a_program_that_tells_of_no_end():
    said = candidate(SPOKEN, offset=500)
    assert choose([said], sizes_bytes=[600]).root.signature.id == "program-error-complaint"
    assert choose([said], sizes_bytes=[60_000]).root is None
    assert choose([said, candidate(DONE, offset=550)], sizes_bytes=[600]).root is None


def test_that_another_was_done_absolves_no_exception_unless_it_came_later():
    raised, done = {"source": 0, "error_type": "ValueError"}, {"source": 1}
    assert root_of(candidate(OOM, **raised), candidate(DONE, **done)) == "oom"
    assert root_of(candidate(OOM, at_s=5.0, **raised), candidate(DONE, at_s=500.0, **done)) is None
    assert root_of(candidate(OOM, source=0), candidate(DONE, **done)) is None


def test_that_a_job_was_done_absolves_no_fault_of_its_node_unless_it_came_later():
    lost = signature("lost", "xid_79", area="kernel")
    crash = signature("crash", "segfault", severity="fatal")
    for fault in (lost, crash):
        assert root_of(candidate(fault), candidate(DONE, source=1)) == fault.id
        assert root_of(candidate(fault, at_s=5.0), candidate(DONE, at_s=500.0, source=1)) is None


def test_that_somebody_ended_the_job_does_not_say_why():
    told = signature("told", "terminated", role="symptom", severity="fatal", weight=0.75)
    ucx = signature("ucx-complaint", "nccl_network_error", severity="warning", explained_by=("*",))
    assert root_of(candidate(ucx, offset=1), candidate(told, offset=9)) == "ucx-complaint"
    assert root_of(candidate(ucx, offset=1, survived=True), candidate(told, offset=9)) == "told"


REPORT = signature("lsf-report-ended", "none", role="context")
BY_OWNER = signature("lsf-killed", "terminated")


def test_the_report_of_a_batch_system_ends_a_run():
    before = candidate(OOM, offset=10)
    end = candidate(BY_OWNER, offset=90)
    assert root_of(before, candidate(REPORT, offset=50), end) == "lsf-killed"
    assert root_of(before, candidate(REPORT, offset=50)) == "oom", "the only run of the file is the last"


def test_a_shell_that_complains_below_the_end_of_a_command_speaks_of_the_next():
    not_found = signature("command-not-found", "import_error", weight=0.6)
    timeout = signature("timeout", "collective_timeout", role="symptom", severity="fatal", weight=0.5)
    assert root_of(candidate(timeout, offset=5), candidate(not_found, offset=9)) == "timeout"
    assert root_of(candidate(not_found, offset=5), candidate(timeout, offset=9)) == "command-not-found"


def test_ranks_that_lost_each_other_had_started_whatever_their_shells_missed():
    not_loaded = signature("module-file-missing", "import_error", weight=0.6)
    closed = signature("nccl-peer-closed", "nccl_network_error", role="symptom", weight=0.55)
    assert root_of(candidate(not_loaded, offset=5), candidate(closed, source=1)) == "nccl-peer-closed"
    assert (
        root_of(candidate(not_loaded, at_s=900.0), candidate(closed, source=1, at_s=5.0))
        == "module-file-missing"
    )


def test_a_shell_that_complained_and_went_on_to_the_time_limit_is_not_why_it_ended():
    not_set_up = signature("conda-not-activated", "import_error", weight=0.6)
    limit = signature("limit", "time_limit", severity="fatal", weight=0.88, explained_by=("import_error",))
    assert root_of(candidate(not_set_up, offset=5), candidate(limit, offset=900)) == "limit"
    missing = signature("module-not-found", "import_error")
    assert root_of(candidate(missing, offset=5), candidate(limit, offset=900)) == "module-not-found"


def test_what_has_a_substitute_is_no_fault():
    compiler = signature("nvcc", "compile_error")
    fell_back = signature("fell-back", "none", role="context")
    assert (
        root_of(candidate(compiler, offset=5), candidate(fell_back, offset=9), candidate(OOM, offset=60))
        == "oom"
    )
    assert (
        root_of(candidate(fell_back, offset=5), candidate(compiler, offset=9), candidate(OOM, offset=60))
        == "nvcc"
    )
    assert (
        root_of(candidate(compiler, offset=5), candidate(fell_back, offset=90), candidate(OOM, offset=95))
        == "nvcc"
    )


def test_of_two_on_one_line_the_one_that_the_other_follows_from_is_kept():
    full = candidate(signature("full", "disk_full", weight=0.9, explained_by=("shm_oom",)))
    small = candidate(signature("small", "shm_oom", weight=0.8))
    assert choose([full, small]).root is small
    assert choose([small, full]).root is small
    surer = candidate(signature("surer", "gpu_oom", weight=0.85))
    assert choose([small, surer]).root is surer


def test_a_signal_that_is_told_by_its_number_is_shown_by_its_name():
    told = signature("torchrun-told-to-stop", "terminated", explained_by=("*",))
    closes = signature("torchrun-closes-rank", "terminated", role="symptom", explained_by=("*",))
    named = candidate(closes, offset=9, captures={"name": "SIGTERM"})
    assert choose([candidate(told, offset=1, captures={"name": "15"}), named]).shown is named
    assert choose([candidate(told, offset=1, captures={"name": "SIGHUP"}), named]).shown is None


def test_the_line_that_is_shown_is_the_first_that_tells_of_the_same_end():
    aborted = signature("srun-step-aborted", "terminated", role="context")
    choice = choose([candidate(aborted, offset=3), candidate(TERM, offset=5)])
    assert choice.shown and choice.shown.signature.id == "srun-step-aborted"
    full = signature("disk-full", "disk_full", explains=("checkpoint_save_error",))
    save = signature("save", "checkpoint_save_error", explained_by=("disk_full",))
    choice = choose([candidate(save, offset=3), candidate(full, offset=50)])
    assert choice.root and choice.root.signature.id == "disk-full"
    assert choice.shown and choice.shown.signature.id == "save"


def test_what_torch_compile_leaves_as_it_is_killed_nobody():
    head = "[2023-12-01 21:59:57,525] torch._dynamo.convert_frame: [WARNING] "
    assert root_of(candidate(OOM, offset=5, text=f"{head}RuntimeError: out of memory")) is None
    newer = "W1201 21:59:57.525000 139 site-packages/torch/_dynamo/convert_frame.py:1125] RuntimeError: no"
    assert root_of(candidate(OOM, offset=5, text=newer)) is None


def test_a_nodes_fault_of_days_before_yields_to_what_ended_a_job_that_trained_since():
    day_s = 86400.0
    fault = signature("xid", "xid_31", area="kernel", explains=("training",))
    old = candidate(fault, source=1, at_s=1.0, host="n1")

    def root(*candidates, made_steps=True):
        return choose(candidates, made_steps=made_steps).root.signature.id

    assert root(old, candidate(OOM, at_s=3 * day_s)) == "oom"
    assert root(old, candidate(OOM, at_s=0.5 * day_s)) == "xid"  # perhaps a clock
    assert root(old, candidate(CHILD_FAILED, at_s=3 * day_s)) == "xid"  # it may have hung since
    assert (
        root(old, candidate(fault, source=1, offset=9, at_s=3 * day_s), candidate(OOM, at_s=3 * day_s))
        == "xid"
    )
    assert root(old, candidate(OOM, at_s=3 * day_s), made_steps=False) == "xid"


def test_an_exception_after_a_lost_peer_in_its_own_log_yields_to_a_machines_fault():
    code = signature("zero-division", "python_exception")
    killed = signature("oom-invoked", "host_oom", area="kernel")
    stumbled = candidate(code, offset=9, at_s=10.0, error_type="ZeroDivisionError")
    lost = candidate(CLOSED, offset=5, at_s=10.0)
    fault = candidate(killed, source=1, at_s=50.0)  # by a clock that is ahead
    assert root_of(lost, stumbled, fault) == "oom-invoked"
    assert root_of(stumbled, fault) == "zero-division"
    assert root_of(lost, stumbled) == "zero-division"


def test_a_programs_own_xid_hours_before_a_machine_failed_was_another_program():
    """Unless a job's log tells what ended when."""
    wrong = signature("wrong", "xid_31", area="kernel")
    lost = signature("lost", "xid_79", area="kernel", severity="fatal")
    assert root_of(candidate(wrong, offset=1, at_s=0.0), candidate(lost, offset=9, at_s=9000.0)) == "lost"
    assert root_of(candidate(wrong, offset=1, at_s=0.0), candidate(lost, offset=9, at_s=60.0)) == "wrong"
    assert root_of(candidate(wrong, offset=1), candidate(lost, offset=9)) == "wrong"  # nothing tells how long
    rank = candidate(OOM, source=1, offset=1, at_s=10.0)
    assert (
        root_of(candidate(wrong, offset=1, at_s=0.0), candidate(lost, offset=9, at_s=9000.0), rank) == "wrong"
    )
