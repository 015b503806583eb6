"""`holdfast advise` and `holdfast simulate --fleet`: what they print, and what they refuse."""

import json

import pytest

from cli.journals import START_S, failure, started, steps, submitted, write_job
from holdfast.agent.environment import checkpoint_advice
from holdfast.archive import checkpoint_advice as companion


@pytest.fixture
def job(state):
    events, at_s = [submitted()], START_S
    for number in (1, 2, 3):
        first = 40 * (number - 1) + 1
        events += [*started(at_s + 1, number), *steps(at_s + 10, number, first, first + 60)]
        events += failure(at_s + 80, number, number)
        at_s += 85
    return write_job(state, "llama", [*events, *started(at_s, 4), *steps(at_s + 9, 4, 150, 200)])


def test_an_advice_from_three_failures_says_how_little_is_known(holdfast, golden, job):
    words = ("advise", "llama", "--save", "2s", "--interval", "30s", "--nodes", "16", "--gpus", "128")
    code, out, err = holdfast(*words, "--plot", "curve.html")
    golden("advise.txt", out)
    assert (code, err) == (0, "")
    assert "only 3 failures were seen" in out


def test_without_a_checkpoint_time_there_is_no_interval(holdfast, job, place):
    code, out, err = holdfast("advise", "--fleet", "--plot", "curve.png")
    assert code == 1 and "--save" in out and "no curve to draw" in err
    assert not (place / "curve.png").exists()


def test_the_picture_is_a_page_that_loads_nothing(holdfast, job, place):
    assert holdfast("advise", "--save", "2s", "--plot", "curve.html")[0] == 0
    page = (place / "curve.html").read_text()
    assert "<svg" in page and "Young" in page and "src=" not in page
    assert holdfast("advise", "--save", "2s", "--plot", "curve.png")[0] == 0


def test_the_json_has_the_ranges(holdfast, job):
    told = json.loads(holdfast("advise", "--save", "2s", "--interval", "30s", "--json")[1])
    assert told["failures"] == 3
    assert told["interval"]["low_s"] <= told["interval"]["best_s"] <= told["interval"]["high_s"]
    assert told["per_1000_node_days"]["low"] < told["per_1000_node_days"]["high"]


def test_published_figures_serve_where_there_is_no_job(holdfast, state):
    code, out, _ = holdfast(
        "advise", "--nodes", "2048", "--gpus", "16384", "--save", "30s", "--rate", "rsc-1"
    )
    assert code == 0 and "no failure was seen" in out and "RSC-1" in out
    assert holdfast("advise")[0] == 1


@pytest.mark.parametrize(
    "words",
    [("--save", "30"), ("--save", "0s"), ("--interval", "99999d"), ("--rate", "nowhere"), ("--plot", "x.gif"),
     ("--nodes", "0"), ("--restart", "soon")],
)  # fmt: skip
def test_nonsense_is_refused(holdfast, job, words):
    assert holdfast("advise", *words)[0] == 2


def test_the_companion_writes_an_interval_only_where_one_is_known(job):
    """Without a checkpoint in the step times there is none, and the training's environment stays as it is."""
    assert companion.compute(job) is False
    assert checkpoint_advice(job.path) == {}
    (job.path / companion.FILE).write_text("123.4\n")
    assert checkpoint_advice(job.path) == {
        "HOLDFAST_CHECKPOINT_EVERY_S": "123",
        "HOLDFAST_CHECKPOINT_FILE": str(job.path / companion.FILE),
    }
    (job.path / companion.FILE).write_text("garbage")
    assert checkpoint_advice(job.path) == {}


def test_the_companion_reads_saves_from_the_output(job):
    """A checkpoint every ten steps, told by the log: two seconds of standstill."""
    folder = job.worker(1, 0)
    folder.mkdir(parents=True)
    lines, at_s = [], 0.0
    for step in range(1, 201):
        took_s = 3.0 if step % 10 == 0 else 1.0
        at_s += took_s
        lines.append(
            f"iteration {step}/ 1000 | elapsed time per iteration (ms): {took_s * 1000:.1f} | lm loss: 2.0E+00 |"
        )
        if step % 10 == 9:
            lines.append(f"saving checkpoint at iteration {step + 1} to /ckpt in torch format")
    (folder / "stdout").write_text("\n".join(lines) + "\n")
    companion.compute(job)
    told = checkpoint_advice(job.path)
    assert 5.0 <= float(told["HOLDFAST_CHECKPOINT_EVERY_S"]) <= 3_600.0


PLAN = "{gpus: 512, days: 5, rate: 60, runs: 2, policies: [naive, holdfast]}"


def test_months_of_a_fleet(holdfast, place):
    (place / "fleet.yaml").write_text(PLAN)
    code, out, err = holdfast("simulate", "--fleet", "fleet.yaml", "--plot", "bars.html")
    assert (code, err) == (0, "") and "ETTR" in out and "Lost GPU-hours" in out
    assert (place / "bars.html").exists()
    told = json.loads(holdfast("simulate", "--fleet", "fleet.yaml", "--json", "--seed", "5")[1])
    assert told["seed"] == 5 and [one["name"] for one in told["results"]] == ["naive", "holdfast"]


def test_months_that_cannot_be_simulated_are_refused(holdfast, place):
    (place / "fleet.yaml").write_text("{gpu: 512}")
    code, _, err = holdfast("simulate", "--fleet", "fleet.yaml")
    assert code == 2 and "fleet.yaml" in err
    assert holdfast("simulate", "--fleet", "none.yaml")[0] == 2
    assert holdfast("simulate", "--plot", "x.png", "--seed", "1")[0] == 2
