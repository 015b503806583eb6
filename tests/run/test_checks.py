"""Checks of the node in a real run: before it starts, while it is stopped or taken up again, and after it failed."""

import json
import os
import signal
import stat
import sys

import pytest

from fake_nvml.node import LIBRARY, build
from holdfast.observe.logs.bundles import read_member
from run.place import wait_for

LONG_S = 300.0  # of suites on a machine that does other things; only a hung test waits so long

# A Python that hangs when it is asked what it is, and trains when it is told to: a driver or a mount that does not answer.
HANGS = """#!/bin/sh
case "$*" in
*train.py) echo trained; exit 0 ;;
*) echo asked >>$NOTES/asked; exec sleep 600 ;;
esac
"""


def log(place):
    return (place.job() / "fault-tolerance.log").read_text()


def program(path, text):
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def checking(place):
    """It looks at the node now, and has for so long that a child is at it."""
    wait_for(lambda: f"a check:\n{place.runs[-1].err}", lambda: (place.path / "asked").exists(), LONG_S)
    assert not place.events("nodes-checked")
    assert not place.events("attempt-started")


@pytest.fixture
def gpus(place, tmp_path_factory):
    """Eight GPUs that are not there: what they say is in a file."""
    try:
        library = build(tmp_path_factory.mktemp("nvml"))
    except LookupError as error:
        pytest.skip(str(error))
    assert (library / LIBRARY).exists()
    says = place.path / "nvml"
    says.write_text("count=8\n")
    place.env |= {"LD_LIBRARY_PATH": str(library), "FAKE_NVML": str(says)}
    return says


def test_a_good_node_is_looked_at_and_nothing_is_said_of_it(place):
    place.with_checks()
    run = place.shell(
        "echo 'step 1 loss 2'; until [ -e $NOTES/go ]; do sleep 0.05; done; echo 'step 2 loss 2'"
    )
    for ending in ("json", "good"):  # both are written while it trains
        wait_for(
            lambda ending=ending: f"the {ending} file:\n{run.err}",
            lambda ending=ending: list((place.state / "baseline").glob(f"*.{ending}")),
            LONG_S,
        )
    place.go()
    assert run.code(LONG_S) == 0, run.err
    kinds = [event["kind"] for event in place.events()]
    assert kinds.index("workers-placed") < kinds.index("nodes-checked") < kinds.index("attempt-started")
    [checked] = place.events("nodes-checked")
    assert checked["passed"] > 0
    assert checked["isolate"] == {}
    assert f"boot check: {checked['passed']} passed, " in log(place)
    assert "skipped" not in run.err
    assert len(list((place.state / "baseline").glob("*.json"))) == 1
    assert len(list((place.state / "baseline").glob("*.good"))) == 1


def test_off_looks_at_nothing(place):
    place.with_checks()
    assert place.shell("exit 0", "--boot-check", "off").code() == 0
    assert place.events("nodes-checked") == []


def test_a_script_that_is_not_there_ends_the_job_before_it_begins(place):
    place.with_checks()
    (place.path / "train.py").write_text("print('step 1')\n")
    run = place.run("--", sys.executable, "tran.py")
    assert run.code(LONG_S) == 1, run.err
    assert "the script tran.py does not exist" in run.err
    assert "Did you mean train.py?" in run.err
    assert "--no-checks-act" in run.err
    assert place.events("attempt-started") == []
    [ended] = [line for line in log(place).splitlines() if " the job " in line]
    assert "failed with exit code 1: the boot check says that the run cannot work" in ended


def test_where_checks_are_not_to_act_the_command_says_it_itself(place):
    place.with_checks(troubleshoot="0s")
    run = place.run("--no-checks-act", "--", sys.executable, "tran.py")
    assert run.code(LONG_S) == 2, run.err
    assert "the boot check would stop the job; the attempt starts anyway" in run.err


def test_a_command_that_is_not_there_gives_the_code_of_a_shell(place):
    place.with_checks()
    assert place.run("--", "no-such-command").code(LONG_S) == 127


def test_a_device_that_is_broken_on_the_only_node_ends_the_job(place, gpus):
    gpus.write_text("count=8\ngpu.3.remap_failed=1\n")
    place.with_checks()
    run = place.shell("echo started")
    assert run.code(LONG_S) == 1, run.err
    assert place.events("attempt-started") == []
    assert "gpu-memory-repair: 0000:3b:00.0" in run.err
    assert "is the only node of this machine" in run.err
    assert "Advice: " in run.err
    assert "reschedules caused by hardware: 1" in log(place)


def test_checks_that_hang_are_cut_off_and_the_run_starts(place):
    program(place.path / "python3", HANGS)
    (place.path / "train.py").write_text("")
    place.with_checks()
    run = place.run("--", "./python3", "train.py")
    assert run.code(LONG_S) == 0, run.err
    assert run.out == "trained\n"
    [checked], [placed] = place.events("nodes-checked"), place.events("workers-placed")
    assert checked["at_s"] - placed["at_s"] < 300  # far below the 600 s of the sleep
    assert (place.path / "asked").exists()
    place.nothing_left(LONG_S)  # nor of the checks


def test_a_signal_while_it_looks_ends_the_job(place):
    program(place.path / "python3", HANGS)
    (place.path / "train.py").write_text("")
    place.with_checks()
    run = place.run("--", "./python3", "train.py")
    checking(place)
    run.signal(signal.SIGINT)
    assert run.code(LONG_S) == 130, run.err
    assert place.events("attempt-started") == []
    place.nothing_left(LONG_S)


@pytest.mark.parametrize("flags", [(), ("--detach",)])
def test_holdfast_killed_while_it_looks_and_taken_up_again(place, flags):
    program(place.path / "python3", HANGS)
    (place.path / "train.py").write_text("")
    place.with_checks()
    run = place.run(*flags, "--", "./python3", "train.py")
    checking(place)
    run.kill()
    again = place.start("attach", "t")
    assert again.code(LONG_S) == 0, again.err
    kinds = [event["kind"] for event in place.events()]
    assert kinds.index("controller-resumed") < kinds.index("nodes-checked") < kinds.index("attempt-started")
    assert place.events()[-1]["kind"] in ("worker-exited", "attempt-stopped")
    place.nothing_left(LONG_S)


def _told(checked):
    return {(told["check"], told.get("device", "")) for told in checked["troubles"]}


def test_after_a_failure_the_node_is_looked_at_again_and_both_passed_is_said(place):
    place.with_checks()
    run = place.shell("echo 'step 1 loss 2'; sleep 0.2; exit 3")
    assert run.code(LONG_S) == 3, run.err
    boot, after = place.events("nodes-checked")
    assert (boot["context"], after["context"]) == ("boot", "on-failure")
    [verdict] = place.events("verdict-reached")
    # The kernel tells of the whole machine, on which others work too: of something new, or of what may explain it.
    troubled = (
        boot["failed"]
        or after["failed"]
        or _told(after) - _told(boot)
        or verdict["verdict"]["category"] != "unknown"
    )
    said = "Both passed: the training code is the likely cause" in verdict["verdict"]["title"]
    assert said != bool(troubled), (boot, after, verdict)
    assert ("both passed: the training code is the likely cause" in log(place)) == said
    assert "troubleshooting: " in log(place)
    bundle = place.job() / "incidents" / "incident-001.tar.zst"
    wait_for("the bundle", bundle.exists)
    assert {one["node"] for one in json.loads(read_member(bundle, "checks.json"))} == {os.uname().nodename}


def test_a_device_that_breaks_while_it_trains_is_found_and_isolated(place, gpus):
    place.with_checks()
    run = place.shell(
        "echo 'step 1 loss 2'; echo gpu.5.remap_failed=1 >>$FAKE_NVML; exit 1",
        "--max-restarts",
        2,
        "--unconditional-restart",
    )
    assert run.code(LONG_S) == 1, run.err
    [verdict] = place.events("verdict-reached")
    assert verdict["verdict"]["class_"] == "hardware"
    assert [culprit["host"] for culprit in verdict["verdict"]["culprits"]] == [os.uname().nodename]
    assert "action: isolate" in run.err
    assert len(place.events("attempt-started")) == 1


def test_a_device_that_breaks_is_reported_while_it_trains_and_the_training_goes_on(place, gpus):
    place.with_checks()
    script = "echo 'step 1 loss 2'; while [ ! -e $NOTES/end ]; do sleep 0.1; done"
    run = place.shell(script, HOLDFAST_CHECK_EVERY="1s")
    run.prints("step 1", LONG_S)
    gpus.write_text("count=8\ngpu.5.remap_failed=1\n")
    run.says("seen on the node while it trains: gpu-memory-repair: 0000:51:00.0", LONG_S)
    (place.path / "end").touch()
    assert run.code(LONG_S) == 0, run.err
    told = [event["text"] for event in place.events("finding-noted") if event["finding"] == "check"]
    assert sum("gpu-memory-repair" in text for text in told) == 1


def test_beside_living_ranks_only_what_is_passive_is_run(place):
    """The other rank lives on until it is ended: nothing writes a file or starts a program beside it."""
    place.with_checks(boot="off")
    run = place.ranks(2, lame=True).prints("step 3 ")
    place.do(1, "exit 7")
    assert run.code(LONG_S) in (1, 7), run.err
    [after] = place.events("nodes-checked")
    assert after["passed"] > 0
    exit_, verdict = place.events("rank-exited")[0], place.events("verdict-reached")[0]
    assert verdict["at_s"] - exit_["at_s"] < LONG_S
