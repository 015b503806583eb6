"""Real logs, written otherwise: behind other prefixes and stamps, in other surroundings, by two ranks at once.

A few of the cases that rules were made with; bench/diagnosis/rewritten_logs.py tries them all.
"""

from pathlib import Path

import pytest

from bench.diagnosis import rewritten_logs
from holdfast.observe.search.code_store import package_tables
from known import PACKAGE

ROOT = Path(__file__).parents[2]
CORPUS = ROOT.parent / "shared" / "corpus"
SOME = (
    "accelerate-debug-shape-mismatch",
    "bigscience-13b-ecc",
    "cadvisor_oom_memorymonster",
    "detr-oom",
    "gpud_xid119_gpu4",
    "mudiff-argparse-missing",
    "none-rccl-iommu-warn",
    "pgolf-missing-keys",
    "pgolf-shard-size",
    "shikra-iterable-no-len",
    "syz_soft_lockup_134s",
    "trlx-cat-empty",
)
# The bar says that training had begun, an early end or a cut takes away what tells more, HTML is other text than the
# label's, and where no indent is left, or numbers stand before it, it is not seen what belongs together: no matters of
# writing alone. Packed logs are tests/observe's.
LEFT_OUT = {
    *("after-a-bar", "cut-200", "ends-early", "from-first-error", "html", "numbered", "unindented", "zipped"),
}

pytestmark = pytest.mark.skipif(
    not CORPUS.is_dir(), reason="the corpus of real logs is not here (../shared/corpus)"
)


@pytest.mark.parametrize("name", SOME)
def test_the_same_log_written_otherwise_has_the_same_diagnosis(cache_home, name):
    (folder,) = CORPUS.glob(f"*/{name}")
    (case,) = rewritten_logs.cases_of(folder)
    look = rewritten_logs.Look(PACKAGE, package_tables(), cache_home / "holdfast")
    assert rewritten_logs.judged(case, look(case.files)) == (True, True, True)
    first = rewritten_logs.folded(str(case.label.get("first_error_line") or ""))
    for writing, write in rewritten_logs.WRITINGS.items():
        files = None if writing in LEFT_OUT else write(case.files, first)
        if files is not None:
            assert rewritten_logs.judged(case, look(files)) == (True, True, True), writing


@pytest.mark.parametrize(
    "head", ["2031-03-04 05:06:07 - ERROR - train - Training failed: ", "Error: ", "❌ Could not begin: "]
)
@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("No module named 'fastk'", ("import_error", "fix_env")),
        ("'LOCAL_RANK'", ("launcher_config", "fix_config")),
        ("[Errno 13] Permission denied: '/d/a.bin'", ("permission_error", "fix_env")),
        ("Socket Timeout", ("rendezvous_timeout", "restart")),
        ("list index out of range", ("python_exception", "fix_code")),
    ],
)
def test_an_exception_that_was_caught_and_passed_on_without_its_type(diagnosis, head, message, expected):
    found = diagnosis(f"building the model\n{head}{message}\n")
    assert (found.category, found.action) == expected
    assert (
        diagnosis(f"{head}{message}\n" + "".join(f"step {n} loss 1.{n}\n" for n in range(9))).category
        == "none"
    )


def test_what_the_shell_says_behind_a_bar_that_was_drawn_last(diagnosis):
    bar = "reading the frames:  20% (7/35) [##      ] eta 0:34:54 "
    assert diagnosis(f"start\nstep 7\n{bar}\\Terminated\n").category == "terminated"
    assert diagnosis(f"start\nstep 7\n{bar}|Killed\n").category == "host_oom"


NATIVE_END = (
    "step 9 loss 1.9\nterminate called after throwing an instance of 'pool::Failure'\n  what():  {words}\n"
)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("the plan has no stage 3", ("segfault", "fix_code")),
        ("[10:11:12] src/pool.cc:88: cudaMalloc fail\ned: out of memory", ("gpu_oom", "reduce_memory")),
        ("reader.cc:9: shard 00012.tar is truncated", ("data_error", "fix_data")),
        ("too many open files", ("host_limit", "fix_config")),
    ],
)
def test_a_c_plus_plus_exception_is_read_by_its_words_and_never_healthy(diagnosis, words, expected):
    found = diagnosis(NATIVE_END.format(words=words))
    assert (found.category, found.action) == expected
    assert found.first_error.text.split()[0] == "what():"


def test_a_c_plus_plus_exception_gives_way_to_what_another_line_tells(diagnosis):
    found = diagnosis("RuntimeError: CUDA error: an illegal memory access was encountered\n" + NATIVE_END)
    assert found.category == "cuda_illegal_access"
    words = "[Rank 0] NCCL watchdog thread terminated with exception: NCCL error: remote process exited or there was a network error"
    assert diagnosis(NATIVE_END.format(words=words)).category == "nccl_network_error"


@pytest.mark.parametrize(
    ("line", "category"),
    [
        ("THCudaCheck FAIL file=/b/aten/THC/Storage.cu line=7 error=2 : out of memory", "gpu_oom"),
        ("crop_layer.cu:71] Check failed: error == cudaSuccess (8 vs. 0)  invalid device function", "version_mismatch"),
        ("arena.cc:71] Check failed: size >= 0 (-1 vs. 0)", "segfault"),
        ('ERROR (train[1.2]:Add():cu-x.cc:7) cudaError_t 77 : "an illegal memory access was encountered"', "cuda_illegal_access"),
    ],
)  # fmt: skip
def test_the_text_of_a_cuda_error_means_the_same_in_every_library(diagnosis, line, category):
    assert diagnosis(f"step 8 loss 2.1\nstep 9 loss 2.0\n{line}\n").category == category


def test_a_step_that_was_skipped_for_lack_of_memory_is_why_the_next_line_fails(diagnosis):
    skipped = "THCudaCheck FAIL file=/b/aten/THC/Storage.cu line=7 error=2 : out of memory\n| WARNING: no memory, batch left out\n"
    error = "Traceback (most recent call last):\n  File \"fit.py\", line 9, in <module>\n    step(batch)\nAttributeError: 'NoneType' object has no attribute 'grad'\n"
    found = diagnosis(f"epoch 1 begins\n{skipped}{error}")
    assert (found.category, found.action) == ("gpu_oom", "reduce_memory")


@pytest.mark.parametrize(
    "lines",
    [
        "Launch kernel failed: Default/net/MatMul-op12\n",
        "E39999: Inner Error!\nE39999: the error from device(chipId:0, dieId:0): an exception occurred\n",
        "[ERROR] DEVICE(9,f0,python):2031-02-03 [runtime.cc:7] Dump] Task fail infos task_id: 4, stream_id: 9, device_id: 0, retcode: 507011\nRuntimeError: Run task for graph:kernel_graph_3 error!\n",
    ],
)
def test_a_kernel_that_fails_on_an_npu_is_a_failure_of_its_runtime(diagnosis, lines):
    assert diagnosis(f"epoch: 1 step: 10, loss is 2.1\n{lines}").category == "npu_runtime"


def test_a_handlers_line_above_a_full_disk_does_not_name_it(diagnosis):
    head = "could not keep the model: [enforce fail at inline_container.cc:300] . unexpected pos 128 vs 16\n"
    error = 'Traceback (most recent call last):\n  File "fit.py", line 9, in save\n    write(model)\nOSError: [Errno 28] No space left on device\n'
    found = diagnosis(f"step 9 loss 1.9\n{head}{error}")
    assert found.category == "disk_full"
    assert found.first_error.text.startswith("OSError")


def test_a_module_that_was_not_loaded_is_not_why_the_code_fails(diagnosis):
    missing = 'Lmod has detected the following error: These module(s) exist\nbut cannot be loaded as requested: "cuda"\n'
    error = 'Traceback (most recent call last):\n  File "fit.py", line 9, in <module>\n    fit()\n{}\n'
    ran = diagnosis(missing + error.format("ValueError: stage 3 has no layers"))
    assert ran.category == "python_exception"
    assert ran.first_error.text == "ValueError: stage 3 has no layers"
    lacked = diagnosis(missing + error.format("ModuleNotFoundError: No module named 'fastk'"))
    assert lacked.category == "import_error"
    assert lacked.first_error.text.startswith("Lmod")


def test_a_perplexity_that_is_no_number_until_the_end_is_a_loss_that_is_none(diagnosis):
    good = "".join(
        f"Step {n}/900; acc: 40.1; ppl: {9 - n / 100}; xent: 2.1; 900 tok/s\n" for n in range(10, 60, 10)
    )
    bad = "".join(f"Step {n}/900; acc:  0.1; ppl:   nan; xent:  nan; 900 tok/s\n" for n in range(60, 90, 10))
    found = diagnosis(good + bad)
    assert (found.category, found.action) == ("nan_loss", "fix_code")
    assert found.first_error.text.startswith("Step 60/900")
    assert diagnosis(bad + good).category == "none"


def test_a_fatal_line_of_dmlc_is_read_by_its_words(diagnosis):
    head = "[10:11:12] /b/dmlc-core/include/dmlc/./logging.h:235: [10:11:12] src/pool.h:9: "
    trace = 'Traceback (most recent call last):\n  File "fit.py", line 9, in <module>\n    fit()\n'
    assert diagnosis(f"{head}Memory allocation failed.\n{trace}").category == "host_oom"
    assert diagnosis(f"{head}no slot is left\n{trace}").category == "segfault"


def test_mpirun_names_the_rank_although_its_process_is_masked(diagnosis):
    found = diagnosis(
        "mpirun noticed that process rank 1 with PID xxxx on node n4 exited on signal 9 (Killed).\n"
    )
    assert [(one.rank, one.host) for one in found.culprits] == [(1, "n4")]
