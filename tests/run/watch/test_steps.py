"""Steps of real commands, watched by the real command line: what is told of them, and that nothing else changes."""

import json
import signal
from pathlib import Path

import pytest

from bench.stragglers import cpu_quota
from holdfast.observe.logs.step_file import read
from run.place import wait_for

BENCH = Path(__file__).parents[3] / "bench" / "stragglers"
RANKS, STRUCK = 3, 1
SHARE = 0.03  # of a processor, that the slow rank is left: on any machine, less than it needs
LONG_S = 150  # importing torch on a busy machine, and looks enough to be sure

# Prints what it is told to, much faster than it says: the times are those in the lines.
TRAINER = """
import os, sys, time
def steps(first, last, step_ms, loss="2.5E+00"):
    for step in range(first, last + 1):
        time.sleep(0.002)
        print(f" iteration {step:8d}/    1000 | consumed samples: {step * 8:12d} | elapsed time per iteration (ms): "
              f"{step_ms:.1f} | learning rate: 1.000E-04 | global batch size:     8 | lm loss: {loss} | "
              "loss scale: 1.0 | number of skipped iterations:   0 |", flush=True)
attempt = os.environ["HOLDFAST_ATTEMPT"]
"""


def told(place, finding):
    return [event for event in place.events("finding-noted") if event["finding"] == finding]


def log_lines(place):
    """The fault-tolerance log without its dates: "15:25:56 Smoothed mean ...", and the plain file is the same."""
    return [line[11:] for line in (place.job() / "fault-tolerance.log").read_text().splitlines()]


def test_a_lasting_slowdown_is_one_line_with_its_step_and_its_numbers_and_the_command_ends_as_it_would(place):
    run = place.python(TRAINER + "steps(1, 60, 200); steps(61, 140, 300); sys.exit(7)")
    assert run.code() == 7
    (slow,) = told(place, "slowdown")
    assert "since step 61" in slow["text"]
    assert slow["numbers"]["ratio"] == pytest.approx(1.5, rel=0.02)
    assert [line[9:] for line in log_lines(place)].count(slow["text"]) == 1
    assert slow["text"] in run.err
    shown = place.start("log", "t", "--json")
    assert shown.code() == 0
    (line,) = [one for one in json.loads(shown.out)["lines"] if one.get("finding") == "slowdown"]
    assert line["numbers"] == slow["numbers"]


def test_the_platforms_lines_stand_in_the_log_as_the_platforms_write_them(place):
    run = place.python(TRAINER + "steps(1, 82, 3101); steps(83, 87, 9465); steps(88, 92, 16704)")
    assert run.code() == 0
    lines = (place.job() / "fault-tolerance.log").read_text().splitlines()
    said = [line[20:] for line in lines if line.endswith(("Warning", "Command running..."))]
    assert said == [
        "Command running...",
        "Smoothed mean (iters 83-87: 9465.00 ms, baseline: 3101.00 ms), threshold ratio:2.05. Warning",
        "Smoothed mean (iters 88-92: 16704.00 ms, baseline: 3101.00 ms), threshold ratio:4.39. Warning",
    ]
    shown = place.start("log", "t")
    assert shown.code() == 0
    assert set(lines) >= {line for line in shown.out.splitlines() if line.endswith("Warning")} != set()


def test_without_the_platforms_rule_there_is_none_of_its_lines(place):
    run = place.python(TRAINER + "steps(1, 27, 3101); steps(28, 37, 9465)", "--slowdown-rule", "off")
    assert run.code() == 0
    assert not {"platform-slowdown", "command-running"} & set(place.findings())


def test_a_loss_that_is_no_number_is_reported_and_the_run_goes_on(place):
    run = place.python(TRAINER + "steps(1, 30, 200); steps(31, 60, 200, 'NAN')")
    assert run.code() == 0
    (nan,) = told(place, "loss-nan")
    assert nan["numbers"]["step"] == 31
    assert read(place.worker()).now.step == 60


def test_a_restart_is_compared_with_the_attempt_before(place):
    script = """
if attempt == "1":
    steps(1, 100, 200)
    while not os.path.exists(os.environ["NOTES"] + "/go"):
        time.sleep(0.05)
    os.kill(os.getpid(), 9)
steps(91, 160, 300)
"""
    run = place.python(TRAINER + script, "--max-restarts", "2", "--unconditional-restart")

    def seen():
        found = read(place.worker())
        return found is not None and found.now is not None and found.now.step == 100

    wait_for("its steps to be seen", seen)
    place.go()
    assert run.code() == 0
    (slow,) = told(place, "slowdown")
    assert slow["attempt"] == 2
    assert "restart" in slow["text"]
    bundle = place.start("diagnose", place.job() / "incidents" / "incident-001.tar.zst", "--json")
    assert bundle.code() == 0
    assert json.loads(bundle.out)["category"] == "process_killed"


def test_a_log_of_a_form_of_its_own_is_read_by_its_pattern(place):
    own = r"~(?P<step>\d+)~ time (?P<time>[\d.]+)"
    script = "import time\nfor n in range(1, 100):\n    time.sleep(0.002)\n    print(f'~{n}~ time {0.2 if n < 60 else 0.3}')"
    assert place.python(script, "--step-pattern", own).code() == 0
    (slow,) = told(place, "slowdown")
    assert slow["numbers"]["first_step"] == 60


def test_a_pattern_that_cannot_be_used_is_refused_before_anything_starts(place):
    run = place.python("print(1)", "--step-pattern", "step (")
    assert run.code() == 2
    assert "the step pattern 'step (' cannot be used: it is no regular expression" in run.err
    assert not place.job().exists()


def test_where_the_file_cannot_be_written_the_training_does_not_notice(place):
    """As with a full disk: a folder lies where the file should."""
    script = "os.makedirs(os.environ['HOLDFAST_WORKER_DIR'] + '/steps.json/x')\n"
    run = place.python(TRAINER + script + "steps(1, 60, 200); steps(61, 140, 300)")
    assert run.code() == 0
    assert len(told(place, "slowdown")) == 1


@pytest.mark.torch
@pytest.mark.timeout(400)
def test_a_rank_that_is_held_back_by_its_control_group_is_named(place):
    try:
        quota = cpu_quota.CpuQuota(SHARE)
    except cpu_quota.NoQuota as error:
        pytest.skip(f"no control group with a quota can be made here: {error}")
    try:
        words = ["--folder", place.path, "--steps", 2000, "--work-s", 0.05, "--sums"]
        flags = ["--no-hang-restart", "--grace", "1s"]
        run = place.real_ranks(RANKS, BENCH / "training.py", *words, flags=flags, OMP_NUM_THREADS=1)
        run.prints("step 20/", LONG_S)
        (pid,) = [one["pid"] for one in place.events("rank-started") if one["rank"] == STRUCK]
        quota.take(pid)
        run.says(f"rank {STRUCK} is slower than the others", LONG_S)
        run.signal(signal.SIGTERM)
        run.code(LONG_S)
    finally:
        quota.close()
    # Others may be slow for a while too, where the machine has other work.
    named = [one for one in told(place, "straggler") if one["numbers"]["ranks"] == [float(STRUCK)]]
    assert any("the CPU quota of its cgroup throttled it" in one["text"] for one in named)
    assert not place.events("hang-found")
    place.nothing_left()
