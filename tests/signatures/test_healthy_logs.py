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


BOOT = "Mar 03 09:00:00 n5 kernel: Linux version 5.15.0-100-generic (buildd@lcy02) #110-Ubuntu SMP\n"
UPTIMES = "[    0.000000] Linux version 5.15.0-100-generic (buildd@lcy02) #110-Ubuntu SMP\n"
WRONG = {
    "the unit of a job": (
        BOOT
        + "Mar 03 12:00:00 n5 systemd[1]: train-llm.service: Main process exited, code=exited, status=1/FAILURE\n",
        "unknown",
    ),
    "a runtime that stays away": (
        BOOT + "Mar 03 09:00:06 n5 systemd[1]: docker.service: Failed with result 'exit-code'.\n",
        "node_not_ready",
    ),
    "a mount of data": (
        BOOT
        + "Mar 03 09:00:06 n5 systemd[1]: data-sets.mount: Mount process exited, code=exited, status=32/n/a\n",
        "filesystem_error",
    ),
    "a program of a job": (
        BOOT + "Mar 03 12:00:00 n5 python3[77]: OSError: [Errno 28] No space left on device\n",
        "disk_full",
    ),
    "a full disk, whoever says so": (
        BOOT
        + "Mar 03 12:00:00 n5 rsyslogd[77]: file '/var/log/messages'[7] write error: No space left on device\n",
        "disk_full",
    ),
    "a disk that loses its link later": (
        UPTIMES
        + "[ 7700.000000] ata7.00: exception Emask 0x10 SAct 0x4 SErr 0x190002 action 0xe frozen\n"
        + "[ 7700.010000] ata7.00: failed command: WRITE FPDMA QUEUED\n",
        "storage_io",
    ),
    "a slot that loses its card later": (
        UPTIMES + "[ 7700.000000] pcieport 0000:20:01.3: pciehp: Slot(7): Link Down\n",
        "pcie_aer",
    ),
    "an expedited stall of seconds": (
        UPTIMES
        + "[   30.000000] rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 31-... } 21026 jiffies s: 17 root: 0x2/.\n",
        "rcu_stall",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_in_the_log_of_a_machine_is_found(tmp_path, cache_home, name):
    text, category = WRONG[name]
    assert told(tmp_path, cache_home, text)[0] == category
