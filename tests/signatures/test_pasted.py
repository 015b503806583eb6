"""Pasted lines and codes: what people type is named, nothing that speaks of trouble is "none", and calm lines stay calm."""

import csv
from io import BytesIO
from pathlib import Path

import pytest

from holdfast.cli.diagnose import answered, read_loosely
from holdfast.core.diagnosis.pasted import is_calm_line
from holdfast.core.diagnosis.words.telling import denies, speaks_of_trouble
from holdfast.core.phrases.meanings import meanings_of
from holdfast.observe.search.code_store import package_tables
from holdfast.observe.search.phrase_store import package_index
from holdfast.observe.search.scan import search
from known import KNOWN, PACKAGE

HERE = Path(__file__).parent
VARIANTS = list(csv.DictReader((HERE / "pasted_variants.csv").read_text().splitlines(keepends=True)))
RIGHT_LEAST = 0.96  # of the variants; how many were right before anything was fixed: docs/diagnosis.md
CALM_NAMED_MOST = 0.04


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """told(text): the diagnosis of a text, as `holdfast diagnose --text` gives it."""
    known = PACKAGE
    by_id = KNOWN
    cache = tmp_path_factory.mktemp("cache")

    answers = {}

    def tell(text, *, is_asked=True):
        if (text, is_asked) not in answers:
            found = search([], known, stdin=BytesIO(text.encode()))
            answer = answered(found, by_id, [])
            answers[text, is_asked] = read_loosely(answer, found, by_id, cache, is_asked=is_asked)
        return answers[text, is_asked]

    return tell


def test_what_people_paste_is_named(told):
    wrong = [
        (one["text"], answer.category, one["categories"])
        for one in VARIANTS
        if (answer := told(one["text"])).category not in one["categories"].split("|")
    ]
    assert len(wrong) <= (1.0 - RIGHT_LEAST) * len(VARIANTS), wrong


def test_a_line_that_speaks_of_trouble_is_never_none(told):
    troubled = [one["text"] for one in VARIANTS if speaks_of_trouble(one["text"], KNOWN)]
    assert len(troubled) > 100
    assert [text for text in troubled if told(text).category == "none"] == []


@pytest.mark.parametrize(
    ("code", "category"),
    [
        ("80C98002", "npu_fault"),
        ("Xid 79", "xid_79"),
        ("error 12", "nccl_network_error"),
        ("exit code 137", "host_oom"),
        ("SIGBUS", "shm_oom"),
        ("ncclSystemError", "nccl_network_error"),
        ("CUDNN_STATUS_NOT_INITIALIZED", "gpu_oom_hidden"),
        ("errno 110", "nccl_network_error"),
        ("SXid（PCI：xxx）: 24007", "sxid"),
    ],
)
def test_bare_codes(told, code, category):
    assert told(code).category == category


def test_short_lines_that_are_one_message_are_read_together(told):
    assert told("Link down\nLink up").category == "nic_link_flap"
    assert told("Out of memory\nKilled process").category == "host_oom"


def test_what_is_not_known_lists_what_is_near(told):
    answer = told("frobnicator of the GPU socket failed to allocate its widgets")
    assert answer.category == "unknown"
    assert answer.first_error is not None


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "import os\nimport sys\n\n\ndef main():\n    for name in os.listdir('.'):\n        print(name)\n\n\nmain()\n",
        "It was a bright day in the village, and the baker opened her shop as she did on every other morning.\n"
        * 8,
        "1I|l| O0O0 ~~ rn vv",
        "step 100 loss 2.1\nstep 101 loss 2.0",
        "今天天气很好,我们去公园散步。",
        "",
    ],
)
def test_what_is_no_error_is_not_called_one(told, text):
    assert told(text).category in ("none", "unknown")
    assert told(text).confidence <= 0.6


@pytest.mark.parametrize(
    "text",
    [
        "static int poll(struct ctx *c) {\n  if (wc.status != 0) {\n    return ncclSystemError;\n  }\n  return 0;\n}\n",
        "def step(self):\n    try:\n        self.run()\n    except RuntimeError as error:\n        raise error\n",
    ],
)
def test_source_code_that_handles_errors_is_none(told, text):
    assert told(text).category == "none"


@pytest.mark.parametrize(
    ("text", "category"),
    [
        (
            "N C C L  W A R N  N E T / I B : G o t  c o m p l e t i o n  w i t h  e r r o r  1 2",
            "nccl_network_error",
        ),
        ("CUDA 0ut of memory. Tried to al1ocate 2.00 GiB", "gpu_oom"),
    ],
)
def test_words_read_from_a_picture(told, text, category):
    assert told(text).category == category


def test_what_somebody_asks_about_is_none_only_where_a_line_of_it_is_calm(told):
    assert told("frobnicate the widgets").category == "unknown"
    assert told("Bootstrap : Using eth0").category == "none"


def test_calm_lines_are_those_that_are_no_problem_by_themselves():
    assert is_calm_line(KNOWN["node-is-in-order-again"])
    assert not is_calm_line(
        KNOWN["copy-from-object-storage"]
    )  # context, of a failure that may show nothing else
    assert not is_calm_line(KNOWN["nvidia-xid"])


def test_what_a_few_words_leave_out_is_marked_in_the_title(told):
    assert "on … " in told("Caught signal 7 (Bus error: nonexistent physical adress)").title.en


def test_a_stack_without_an_error_is_read_as_where_the_program_stands(told):
    stack = 'File "train.py", line 10, in <module>\n    s3.download_file(bucket, key, path)\n'
    assert told(stack).category == "dataloader_stuck"


@pytest.mark.parametrize(
    "text", ["        HW Slowdown : Not Active", "Pending : N/A", "Volatile Uncorr. ECC : 0"]
)
def test_a_line_that_says_that_there_is_none_of_it_is_no_trouble(told, text):
    assert told(text).category in ("none", "unknown")


def test_ten_thousand_lines_are_no_burden(told):
    answer = told("all is well with this line\n" * 10_000 + "CUDA out of memory\n")
    assert answer.category == "gpu_oom"


def test_calm_lines_of_healthy_logs_are_rarely_named():
    """Each line by itself, as if somebody had pasted it: whole logs are never read loosely."""
    known = PACKAGE
    index = package_index(known)
    every = {**index.own, **KNOWN}
    lines = sorted({line for line in (HERE / "healthy_logs.txt").read_text().splitlines() if line.strip()})
    calm = [line for line in lines if not (speaks_of_trouble(line, KNOWN) or denies(line, KNOWN))]
    tables = package_tables()
    named = [
        (line, found[0].near.phrase)
        for line in calm
        if (found := meanings_of([line], index, every, tables))
        and found[0].score >= 0.8
        and every[found[0].near.signature].role == "cause"
        and every[found[0].near.signature].category != "none"
    ]
    assert len(named) <= CALM_NAMED_MOST * len(calm), named


def test_a_rank_that_the_launcher_names_stays_named_where_only_its_code_is_known(told):
    text = "mpirun detected that one or more processes exited with non-zero status, thus causing\n\n  Process name: [[711,1],3]\n  Exit code:    1\n"
    assert [one.rank for one in told(text).culprits] == [3]


def test_settings_that_a_program_echoes_name_no_fault(told):
    line = "[trainer][ERROR] - Error executing job with overrides: ['ddp.find_unused_parameters=false', 'seed=3']"
    assert told(line, is_asked=False).category == "python_exception"


def test_an_exception_says_more_than_the_exit_code_below_it(told):
    lines = [
        "(Server pid=4)     value = check(self, instance)",
        "(Server pid=4) pydantic_core._pydantic_core.ValidationError: 1 validation error for RolloutRequest",
        "(Server pid=4)   Value error, max_len is required for RolloutRequest [type=value_error]",
        "srun: error: g7: task 0: Exited with exit code 1",
    ]
    assert told("\n".join(lines) + "\n", is_asked=False).category == "python_exception"
