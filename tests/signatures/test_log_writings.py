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
