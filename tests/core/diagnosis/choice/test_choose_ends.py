"""Which match is the cause where a job's end, its launcher, its node or its scheduler has lines of its own."""

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
from holdfast.core.diagnosis.choice.choose import choose

COMPLAINT = signature("ucx", "nccl_network_error", severity="warning", explained_by=("*",))


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


def test_a_process_that_fails_after_the_scheduler_ended_it_is_not_the_cause():
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


def test_that_one_process_was_done_does_not_excuse_the_end_of_another_whose_code_comes_later():
    code = signature("code", "unknown", role="symptom", weight=0.3)
    lost = candidate(CLOSED, offset=5)
    assert root_of(lost, candidate(DONE, offset=9), candidate(code, offset=12)) == "closed"
    assert root_of(lost, candidate(DONE, offset=9)) is None


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


def test_a_signal_that_is_logged_by_its_number_is_shown_by_its_name():
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


def test_an_exception_right_before_the_time_limit_is_why_the_job_hung():
    limit = signature("limit", "time_limit", severity="fatal", weight=0.88)
    raised = candidate(VAGUE, offset=10, error_type="RuntimeError")
    assert root_of(raised, candidate(limit, offset=500)) == "python-exception"
    far_before = candidate(VAGUE, offset=10, error_type="RuntimeError")
    assert root_of(far_before, candidate(limit, offset=1 << 20)) == "limit"
    assert root_of(candidate(VAGUE, offset=10), candidate(limit, offset=500)) == "limit"


def test_a_signal_below_an_error_in_the_same_log_is_the_clean_up():
    signal = signature("signal", "terminated", role="symptom", weight=0.8)
    remote = signature("remote", "nccl_network_error", role="symptom", weight=0.6)
    assert root_of(candidate(remote, offset=3), candidate(signal, offset=9)) == "remote"
    assert root_of(candidate(remote, offset=9), candidate(signal, offset=3)) == "signal"
    assert root_of(candidate(signal, offset=3)) == "signal"
