"""A suite comes to its end, whatever one of its checks does."""

import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import psutil
import pytest

from holdfast.checks.runner import NICE, SuiteRun
from holdfast.model.checks import DEVICE, DEVICE_FAULT, FAIL, PASS, SKIP, WARN, Outcome, Scene, Spec
from holdfast.model.signatures import Words

CHECKS = """
import os, signal, sys, time
from holdfast.checks.registry import Check
from holdfast.model.checks import Fact, Finding, Spec
from holdfast.model.signatures import Words

def good(scene):
    print("a library that talks")
    yield Fact(name="host", value=scene.host)
    yield Finding(status="pass", measured="well")

def several(scene):
    yield Finding(status="pass")
    yield Finding(status="fail", device="eth1", measured="down", expected="up")
    yield Finding(status="warn")

def broken(scene):
    yield Finding(status="pass")
    raise ValueError("of its own")

def silent(scene):
    return iter(())

def hangs(scene):
    time.sleep(1000)
    yield Finding(status="pass")

def stubborn(scene):
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    time.sleep(1000)
    yield Finding(status="pass")

def busy(scene):
    until = time.monotonic() + 1.2
    while time.monotonic() < until:
        pass
    yield Finding(status="pass", measured="done")

def dies(scene):
    os.kill(os.getpid(), signal.SIGSEGV)
    yield Finding(status="pass")

def leaves(scene):
    os._exit(7)

def alone(scene):
    yield Finding(status="pass", measured=str(time.monotonic()))

CHECKS = tuple(
    Check(Spec(name="host-" + look.__name__, area="host", what=Words(en="", zh=""), contexts=("manual",)), look)
    for look in (good, several, broken, silent, hangs, stubborn, busy, dies, leaves, alone)
)
"""
EXTEND = "import sys; from holdfast.checks import host; host.__path__.append(sys.argv[1]); "
CHILD = EXTEND + "from holdfast.checks.child import main; main()"
# A program without threads, as `holdfast check` is: pytest has some.
FORKING = (
    EXTEND
    + """
import time, msgspec
from holdfast.checks.runner import SuiteRun
from holdfast.model.checks import Scene, Spec
specs = msgspec.json.decode(sys.stdin.buffer.read(), type=list[Spec])
run = SuiteRun(specs, Scene(host="gpu-03"), time.monotonic() + float(sys.argv[2]), child=None)
sys.stdout.buffer.write(msgspec.json.encode(run.wait()))
"""
)


@pytest.fixture(params=["started", "forked"])
def suite(tmp_path, request):
    (tmp_path / "made_up.py").write_text(CHECKS)

    def run(*specs, within_s=60.0):
        if request.param == "forked":
            words = (sys.executable, "-c", FORKING, str(tmp_path), str(within_s))
            done = subprocess.run(words, input=msgspec.json.encode(specs), capture_output=True, check=True)
            outcomes = msgspec.json.decode(done.stdout, type=list[Outcome])
        else:
            child = (sys.executable, "-c", CHILD, str(tmp_path))
            running = SuiteRun(specs, Scene(host="gpu-03"), time.monotonic() + within_s, child=child)
            outcomes = running.wait()
            assert running.over
        return {outcome.check: outcome for outcome in outcomes}

    return run


def spec(name, **more):
    return Spec(name=f"host-{name}", area="host", what=Words(en="", zh=""), contexts=("manual",), **more)


def test_answers_come_with_what_was_seen(suite):
    outcomes = suite(spec("good"), spec("several"))
    good, several = outcomes["host-good"], outcomes["host-several"]
    assert (good.status, good.findings[0].measured) == (PASS, "well")
    assert good.facts[0].value == "gpu-03"
    assert several.status == FAIL
    assert [finding.status for finding in several.findings] == [PASS, FAIL, WARN]


def test_a_check_that_breaks_is_a_skip_and_the_others_run(suite):
    outcomes = suite(spec("broken"), spec("silent"), spec("good"))
    assert outcomes["host-broken"].status == SKIP
    assert "ValueError: of its own" in outcomes["host-broken"].findings[1].why
    assert outcomes["host-silent"].status == SKIP
    assert outcomes["host-good"].status == PASS


@pytest.mark.parametrize("after_the_first", [False, True], ids=["yet to be started", "running"])
def test_a_suite_that_gives_way_runs_at_low_priority(tmp_path, after_the_first):
    """Seen from outside: what gives way may not come to a processor on a busy machine."""
    (tmp_path / "made_up.py").write_text(CHECKS)
    child = (sys.executable, "-c", CHILD, str(tmp_path))
    running = SuiteRun((spec("hangs", timeout_s=600.0),), Scene(), time.monotonic() + 600.0, child=child)
    if after_the_first:
        running.poll()
    running.give_way()
    running.poll()
    while not (found := [one for one in psutil.Process().children() if str(tmp_path) in _words(one)]):
        pass  # its words are empty for a moment, while the kernel starts the program
    (process,) = found
    assert process.nice() == max(NICE, os.nice(0))
    session = Path(f"/proc/{process.pid}/autogroup")
    if session.exists():
        while f"nice {NICE}" not in session.read_text():  # without privileges the kernel may ask for patience
            running.poll()
    running.close()
    psutil.wait_procs([process])


def _words(process):
    """Empty for a zombie: an earlier test's is collected along with the next."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_a_check_that_hangs_is_cut_off_and_said(suite):
    hang = spec(
        "hangs",
        timeout_s=0.3,
        on_hang=FAIL,
        on_hang_fault=DEVICE_FAULT,
        hang_advice=Words(en="reboot", zh="重启"),
    )
    outcomes = suite(hang, spec("stubborn", timeout_s=0.3), spec("good"))
    finding = outcomes["host-hangs"].findings[0]
    assert (finding.status, finding.fault, finding.advice.en) == (FAIL, DEVICE_FAULT, "reboot")
    assert "no result after" in finding.why
    assert outcomes["host-stubborn"].status == WARN
    assert outcomes["host-good"].status == PASS


def test_one_that_works_is_not_cut_off_at_once(suite):
    assert suite(spec("busy", timeout_s=1.0))["host-busy"].findings[0].measured == "done"


@pytest.mark.parametrize(("name", "how"), [("dies", "Segmentation fault"), ("leaves", "exit code 7")])
def test_a_check_that_takes_its_process_down(suite, name, how):
    outcomes = suite(spec(name), spec("good"))
    assert how in outcomes[f"host-{name}"].findings[0].why
    assert outcomes["host-good"].status == PASS


def test_what_is_not_done_in_time_is_skipped_with_the_reason(suite):
    outcomes = suite(spec("hangs", timeout_s=100.0), spec("alone", cost=DEVICE), within_s=0.5)
    assert {outcome.status for outcome in outcomes.values()} == {SKIP}
    assert "not finished within the 0.5 s" in outcomes["host-alone"].findings[0].why


def test_what_loads_a_device_waits_until_the_others_are_done(suite):
    outcomes = suite(spec("alone", cost=DEVICE), spec("busy", timeout_s=30.0), spec("good"))
    assert list(outcomes)[-1] == "host-alone"


def test_no_program_to_run_checks_with(tmp_path):
    running = SuiteRun((spec("good"),), Scene(), time.monotonic() + 5.0, child=(str(tmp_path / "none"),))
    (outcome,) = running.wait()
    assert outcome.status == SKIP
    assert "cannot be started" in outcome.findings[0].why
