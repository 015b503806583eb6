"""Logs of jobs that ended well, or go on, and are full of scary words: nothing is wrong with any of them."""

import re
from pathlib import Path

import pytest

from holdfast.core.diagnosis.diagnose import diagnose
from holdfast.observe.search.code_store import package_tables
from holdfast.observe.search.scan import search
from known import KNOWN, PACKAGE

TABLES = package_tables()
TEXT = "".join(
    (Path(__file__).parent / name).read_text() for name in ("healthy_logs.txt", "healthy_boots.txt")
)
PARTS = re.split(r"^=== (\S+)\n", TEXT, flags=re.MULTILINE)[1:]
LOGS = dict(zip(PARTS[::2], PARTS[1::2], strict=True))


def told(tmp_path, cache_home, text):
    (tmp_path / "log.txt").write_text(text)
    found = diagnose(search([tmp_path], PACKAGE, cache=cache_home / "holdfast"), KNOWN, TABLES)
    return found.category, found.first_error.text if found.first_error else ""


@pytest.mark.parametrize("name", LOGS)
def test_nothing_is_wrong(tmp_path, cache_home, name):
    assert told(tmp_path, cache_home, LOGS[name]) == ("none", "")


def test_what_a_script_misses_counts_where_it_says_little_more(tmp_path, cache_home):
    missed = "cp: cannot stat '/data/train.idx': No such file or directory\n"
    assert told(tmp_path, cache_home, missed)[0] == "data_error"
    went_on = missed + "copying one more of many shards\n" * 100
    assert told(tmp_path, cache_home, went_on)[0] == "none"
    ended = went_on + "srun: error: n7: task 3: Exited with exit code 1\n"
    assert told(tmp_path, cache_home, ended)[0] == "data_error"


def test_a_log_that_ends_in_the_midst_of_a_traceback_is_not_healthy(tmp_path, cache_home):
    cut = 'Traceback (most recent call last):\n  File "/u/train.py", line 12, in <module>\n    main()\n'
    steps = "".join(f"step {number} loss 2.{number} lr 1e-4\n" for number in range(1, 9))
    assert told(tmp_path, cache_home, steps + cut) == (
        "python_exception",
        "Traceback (most recent call last):",
    )
    assert told(tmp_path, cache_home, cut + steps)[0] == "none"
    assert (
        told(tmp_path, cache_home, steps + "Exception ignored in: <function f at 0x7f>\n" + cut)[0] == "none"
    )
    assert told(tmp_path, cache_home, steps + "Training completed\n" + cut)[0] == "none"


def test_a_complaint_whose_writer_tries_again_for_ever_counts(tmp_path, cache_home):
    tries = "ERROR: no answer from the coordinator of the group, retrying\n"
    assert told(tmp_path, cache_home, tries)[0] == "none"
    assert told(tmp_path, cache_home, tries * 9)[0] != "none"
