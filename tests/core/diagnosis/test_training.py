"""What the sizes of an out-of-memory message, the place of an exception, and other ranks tell."""

import pytest

from core.diagnosis.candidate_kit import NO_SIGNATURES, match, signature
from holdfast.core.diagnosis.training import (
    GIB,
    memory_report,
    of_check,
    of_deletion,
    of_file,
    of_kind,
    of_memory,
    of_place,
    of_program,
    of_shared_memory,
    rulings,
)
from holdfast.model.signatures import EXCEPTION

OUT_OF_MEMORY = signature("gpu-out-of-memory", "gpu_oom")
LAUNCH_FAILURE = signature("cuda-launch-failure", "cuda_illegal_access", action="isolate_node")
KEY_MISSING = signature("key-or-index-missing", "python_exception")
RAISED = signature(EXCEPTION, "python_exception")
NEW_FORM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {tried}. GPU 3 has a total capacity of 80.00 GiB of "
    "which {free} is free. {processes}Of the allocated memory {allocated} is allocated by PyTorch, and {unused} is "
    "reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting"
)
OLD_FORM = (
    "RuntimeError: CUDA out of memory. Tried to allocate 64.00 MiB (GPU 1; 40.00 GiB total capacity; {allocated} already "
    "allocated; 32.00 MiB free; {reserved} reserved in total by PyTorch)"
)


def report_of(
    processes, *, tried="512.00 MiB", free="256.00 MiB", allocated="30.00 GiB", unused="100.00 MiB"
):
    text = NEW_FORM.format(tried=tried, free=free, processes=processes, allocated=allocated, unused=unused)
    return match(OUT_OF_MEMORY, text=text)


def test_the_sizes_are_read_in_bytes():
    report = memory_report(
        report_of("Including non-PyTorch memory, this process has 32.00 GiB memory in use. ").text,
        NO_SIGNATURES,
    )
    assert report is not None
    assert (report.device, report.tried, report.free) == ("3", 0.5 * GIB, 0.25 * GIB)
    assert (report.total, report.this_process, report.allocated) == (80 * GIB, 32 * GIB, 30 * GIB)


def test_the_older_form_is_read_too():
    report = memory_report(OLD_FORM.format(allocated="30.00 GiB", reserved="36.00 GiB"), NO_SIGNATURES)
    assert report is not None
    assert (report.device, report.total, report.unused) == ("1", 40 * GIB, 6 * GIB)


def test_a_message_without_sizes_rules_nothing():
    assert (
        of_memory(match(OUT_OF_MEMORY, text="CUDA out of memory. Tried to allocate 2.00 GiB"), NO_SIGNATURES)
        is None
    )


def test_another_process_that_holds_the_memory_is_named():
    ruling = of_memory(
        report_of(
            "Process 4711 has 47.00 GiB memory in use. Including non-PyTorch memory, this process has 32.00 GiB "
            "memory in use. "
        ),
        NO_SIGNATURES,
    )
    assert ruling is not None and ruling.title is not None
    assert (ruling.category, ruling.action) == ("gpu_oom_external_process", "restart")
    assert "47.8 GiB of 80.0 GiB" in ruling.title.en
    assert ruling.explanation is not None
    assert ruling.explanation.en.endswith("process 4711: 47.00 GiB.")


def test_one_that_fills_the_gpu_alone_needs_less_memory():
    assert (
        of_memory(
            report_of("Including non-PyTorch memory, this process has 79.50 GiB memory in use. "),
            NO_SIGNATURES,
        )
        is None
    )


def test_in_a_container_the_process_listed_is_this_one():
    assert (
        of_memory(report_of("Process 99 has 79.60 GiB memory in use. ", allocated="77.00 GiB"), NO_SIGNATURES)
        is None
    )


def test_in_a_container_another_process_shows_in_the_sum():
    ruling = of_memory(
        report_of("Process 99 has 40.00 GiB memory in use. Process 12 has 39.00 GiB memory in use. "),
        NO_SIGNATURES,
    )
    assert ruling is not None and ruling.explanation is not None
    assert ruling.category == "gpu_oom_external_process"
    assert "99" not in ruling.explanation.en  # one of them is this process itself


def test_the_older_form_shows_others_by_what_is_missing():
    ruling = of_memory(
        match(OUT_OF_MEMORY, text=OLD_FORM.format(allocated="1.50 GiB", reserved="1.60 GiB")), NO_SIGNATURES
    )
    assert ruling is not None
    assert ruling.category == "gpu_oom_external_process"


def test_memory_in_pieces_gets_the_advice_for_it():
    ruling = of_memory(
        report_of(
            "Including non-PyTorch memory, this process has 79.50 GiB memory in use. ",
            tried="2.00 GiB",
            allocated="60.00 GiB",
            unused="17.00 GiB",
        ),
        NO_SIGNATURES,
    )
    assert ruling is not None and ruling.advice is not None
    assert ruling.category == "gpu_oom"
    assert "expandable_segments" in ruling.advice.en


@pytest.mark.parametrize(
    ("frame", "category"),
    [
        ("/w/train.py:12 load_checkpoint", "checkpoint_load_error"),
        ("/w/train.py:12 _load_optimizer_state", "checkpoint_load_error"),
        ("/w/train.py:12 save_checkpoint", "checkpoint_save_error"),
        ("/w/my data/set.py:9 __getitem__", "data_error"),
    ],
)
def test_the_place_tells_what_a_vague_exception_is_about(frame, category):
    ruling = of_place(match(KEY_MISSING, frame=frame, error_type="KeyError"), NO_SIGNATURES)
    assert ruling is not None
    assert ruling.category == category


@pytest.mark.parametrize(
    ("frame", "error_type"),
    [
        ("/w/train.py:12 train_step", "KeyError"),
        ("/w/train.py:12 load_checkpoint", "TypeError"),
        ("/w/train.py:12 loader_loop", "ValueError"),
        ("", "KeyError"),
    ],
)
def test_elsewhere_an_exception_stays_what_it_is(frame, error_type):
    assert of_place(match(KEY_MISSING, frame=frame, error_type=error_type), NO_SIGNATURES) is None


@pytest.mark.parametrize(
    ("frame", "category"),
    [
        ("/src/proj/data/packed_dataset.py:39 mask_of", "data_error"),
        ("/src/proj/datasets/coco.py:9 build", "data_error"),
        ("/src/proj/datasets/tokenizer/bpe.py:5 __init__", "data_error"),
        ("/src/tools/zero_to_fp32.py:40 convert", "checkpoint_load_error"),
        ("/src/proj/checkpointing.py:4 save_all", "checkpoint_save_error"),
    ],
)
def test_the_file_tells_what_a_vague_exception_is_about_where_its_function_does_not(frame, category):
    assert of_file(match(KEY_MISSING, frame=frame, error_type="KeyError"), NO_SIGNATURES).category == category


@pytest.mark.parametrize(
    ("innermost", "action"),
    [
        ("/venv/lib/python3.12/site-packages/fastllm/engine/arg_utils.py:251 create", "fix_config"),
        ("/w/src/plan.py:40 __post_init__", "fix_config"),
        ("/w/src/plan.py:40 _validate_optim_args", "fix_config"),
        ("/w/src/plan.py:40 config_sanity_check", "fix_config"),
        ("/venv/lib/python3.12/site-packages/fastllm/generate.py:9 _validate_model_kwargs", None),
        ("/w/src/plan.py:40 train_step", None),
        ("", None),
    ],
)
def test_what_a_check_of_settings_raises_is_about_a_setting_whatever_it_says(innermost, action):
    ruling = of_check(match(RAISED, innermost=innermost, error_type="ValueError"), NO_SIGNATURES)
    assert (ruling and ruling.action) == action
    assert of_check(match(RAISED, innermost=innermost, error_type="KeyError"), NO_SIGNATURES) is None


def test_a_lock_for_which_there_is_no_space_lies_in_shared_memory_and_on_no_disk():
    full = signature("disk-full", "disk_full")
    lock = of_shared_memory(
        match(full, innermost="/lib/python3.12/multiprocessing/synchronize.py:57 __init__"), NO_SIGNATURES
    )
    assert lock is not None and lock.category == "shm_oom"
    assert (
        of_shared_memory(match(full, innermost="/venv/torch/serialization.py:9 _save"), NO_SIGNATURES) is None
    )
    assert of_shared_memory(match(full), NO_SIGNATURES) is None


@pytest.mark.parametrize("place", ["<frozen os>:685", "/usr/lib/python3.10/os.py:680"])
def test_a_variable_of_the_environment_that_is_not_set_is_a_setting(place):
    missing = match(KEY_MISSING, innermost=f"{place} __getitem__", error_type="KeyError")
    assert of_check(missing, NO_SIGNATURES).action == "fix_config"
    assert (
        of_check(match(KEY_MISSING, innermost=f"{place} get", error_type="KeyError"), NO_SIGNATURES) is None
    )


def test_a_mistake_of_the_code_is_one_in_a_file_that_reads_data_too():
    assert of_file(match(RAISED, frame="/src/dataset.py:3 f", error_type="TypeError"), NO_SIGNATURES) is None


def test_an_exception_whose_words_are_clear_is_not_judged_by_its_place():
    clear = signature("module-not-found", "import_error")
    assert (
        of_place(
            match(clear, frame="a.py:1 load_checkpoint", error_type="ModuleNotFoundError"), NO_SIGNATURES
        )
        is None
    )


def test_one_gpu_that_fails_is_suspected():
    assert rulings([match(LAUNCH_FAILURE, rank=2)], NO_SIGNATURES) == {}


def test_the_same_fault_on_several_ranks_is_the_program():
    seen = [match(LAUNCH_FAILURE, rank=2), match(LAUNCH_FAILURE, rank=5, offset=9)]
    assert {ruling.action for ruling in rulings(seen, NO_SIGNATURES).values()} == {"fix_code"}
    assert set(rulings(seen, NO_SIGNATURES)) == {id(one) for one in seen}


def test_two_lines_of_one_rank_do_not_exonerate_its_gpu():
    assert (
        rulings([match(LAUNCH_FAILURE, rank=2), match(LAUNCH_FAILURE, rank=2, offset=9)], NO_SIGNATURES) == {}
    )


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("acme.errors.ModelConfigError", ("python_exception", "fix_config")),
        ("MisconfigurationException", ("python_exception", "fix_config")),
        ("store.PathNotFoundError", ("data_error", "")),
        ("ShardCorruptedError", ("data_error", "")),
        ("dist.errors.FrameworkVersionMismatchError", ("version_mismatch", "")),
        ("MissingDependencyError", ("import_error", "")),
        ("DependencyMissingError", ("import_error", "")),
        ("RepoAccessDeniedError", ("permission_error", "")),
        ("acme.KernelCompilationError", ("compile_error", "")),
        ("NonFiniteLossError", ("nan_loss", "")),
        ("sound.LibsndfileError", ("data_error", "")),
        ("DataParallelError", None),
        ("DeviceOutOfMemoryError", ("gpu_oom", "")),
        ("ValueError", None),
        ("", None),
    ],
)
def test_an_exception_may_be_named_after_what_it_is_about(kind, told):
    ruling = of_kind(match(RAISED, error_type=kind), NO_SIGNATURES)
    assert (ruling and (ruling.category, ruling.action)) == told


FILE_MISSING = signature("file-not-found", "data_error")


@pytest.mark.parametrize(
    ("innermost", "path"),
    [
        ("/usr/lib/python3.11/shutil.py:690 _rmtree_safe_fd", "'rng_state_3.pth'"),
        ("/lib/trainer/model_checkpoint.py:151 _del_model", "'/runs/a/epoch=4.ckpt'"),
        ("/lib/trainer/saving.py:70 publish", "'/runs/a/tmp-step-9' -> '/runs/a/step-9'"),
    ],
)
def test_what_is_gone_when_it_should_be_deleted_or_moved_was_taken_by_another_rank(innermost, path):
    text = f"FileNotFoundError: [Errno 2] No such file or directory: {path}"
    seen = match(FILE_MISSING, text=text, innermost=innermost, error_type="FileNotFoundError")
    ruling = of_deletion(seen, NO_SIGNATURES)
    assert ruling is not None and (ruling.category, ruling.action) == ("python_exception", "fix_code")


def test_what_is_gone_when_it_should_be_read_is_missing():
    text = "FileNotFoundError: [Errno 2] No such file or directory: '/data/shard-4.bin'"
    where = {"innermost": "/lib/loader/shards.py:20 open_shard", "error_type": "FileNotFoundError"}
    assert of_deletion(match(FILE_MISSING, text=text, **where), NO_SIGNATURES) is None


@pytest.mark.parametrize(
    ("path", "innermost", "category"),
    [
        ("'squeue'", "/usr/lib/python3.12/subprocess.py:1955 _execute_child", "import_error"),
        ("'/srv/tools'", "/usr/lib/python3.12/subprocess.py:1955 _execute_child", None),
        ("'squeue'", "/lib/loader/shards.py:20 open_shard", None),
    ],
)
def test_a_program_that_could_not_be_started_is_not_installed(path, innermost, category):
    text = f"FileNotFoundError: [Errno 2] No such file or directory: {path}"
    seen = match(FILE_MISSING, text=text, innermost=innermost, error_type="FileNotFoundError")
    ruling = of_program(seen, NO_SIGNATURES)
    assert (ruling.category if ruling else None) == category
