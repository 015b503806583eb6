"""`holdfast steps`: the report, the document, the platform's lines, and what is refused."""

import json
import os
import pickle
import subprocess
import sys

import pytest

from cli.journals import START_S, started, submitted, write_job
from holdfast.observe.logs.index import IndexWriter
from steps_kit import megatron, times

SLOW = times(300, slow_from=200, ratio=2.1)
CONTRACT = (
    "framework",
    "iteration_lines",
    "first",
    "last",
    "median_step_time_s",
    "phases",
    "slowdowns",
    "spikes",
    "loss",
    "ranks",
)


@pytest.fixture
def slow(place):
    (place / "train.log").write_text("[2025-04-21 14:59:58] start\n" + megatron(SLOW))
    return "train.log"


def documents(output):
    """Strict: NaN and Infinity are no JSON."""

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    return json.loads(output, parse_constant=refuse)


def test_the_document_has_the_fields_of_the_contract(holdfast, slow):
    code, out, err = holdfast("steps", slow, "--json", "--ranks", "8")
    answer = documents(out)
    assert (code, err) == (0, "")
    assert tuple(answer)[: len(CONTRACT)] == CONTRACT
    assert (answer["framework"], answer["iteration_lines"]) == ("Megatron-LM", 300)
    assert answer["first"] == {"step": 1, "step_time_s": pytest.approx(SLOW[0], abs=1e-4)}
    assert answer["last"] == {"step": 300, "step_time_s": pytest.approx(SLOW[-1], abs=1e-4)}
    (found,) = answer["slowdowns"]
    assert found["first_step"] in range(199, 202)
    assert found["last_step"] is None
    assert found["ratio"] == pytest.approx(2.1, rel=0.02)
    assert found["cost_gpu_hours"] == pytest.approx(8 * 100 * 1.1 / 3600, rel=0.1)


@pytest.mark.parametrize("content", ["", "nothing of steps\n", None])
def test_no_steps_is_an_answer(holdfast, place, content):
    path = place / "empty"
    path.mkdir() if content is None else path.write_text(content)
    code, out, _ = holdfast("steps", "empty", "--json")
    answer = documents(out)
    assert code == 0
    assert tuple(answer)[: len(CONTRACT)] == CONTRACT
    assert (answer["framework"], answer["iteration_lines"]) == (None, 0)
    code, out, _ = holdfast("steps", "empty")
    assert (code, out.splitlines()[0]) == (0, "No steps found")


def test_one_step_is_too_few_to_judge(holdfast, place):
    (place / "one.log").write_text(megatron([1.5]))
    code, out, _ = holdfast("steps", "one.log")
    assert (code, out.splitlines()[0]) == (0, "1 step found, too few to judge")


def test_numbers_that_json_lacks_are_null(holdfast, place):
    text = megatron(times(40)).replace("9.970000E+00", "nan").replace("9.960000E+00", "1e999")
    (place / "train.log").write_text(text)
    answer = documents(holdfast("steps", "train.log", "--json")[1])
    assert answer["loss"]["nan_at"] == 30
    text = text.replace("lm loss: 9.", "lm loss: nan 9.")
    (place / "train.log").write_text(text)
    answer = documents(holdfast("steps", "train.log", "--json")[1])
    assert answer["loss"]["last"] is None


def test_the_report_begins_with_the_verdict(holdfast, slow):
    code, out, err = holdfast("steps", slow, "--ranks", "8")
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert lines[0].startswith("Slower since step 200: 2.10 s a step instead of 1.00 s (2.10 times)")
    assert "(2025-04-21 15:03:2" in out
    assert "GPU-hours" in out
    assert lines[-1].startswith("Read 1 file, ")
    assert max(map(len, lines)) <= 120
    assert holdfast("steps", slow, "--lang", "zh")[1].startswith("变慢：自第 200 步起")


def test_the_platforms_lines_and_nothing_else(holdfast, slow, golden):
    code, out, err = holdfast("steps", slow, "--rule", "aistudio")
    assert (code, err) == (0, "")
    golden("steps/aistudio.txt", out)
    assert out.startswith("2025-04-21 14:59:58 Command running...\n2025-04-21 15:0")


@pytest.mark.parametrize(
    ("stamp", "begins"),
    [
        ("", "2025-05-02 09:53:08 Command"),  # 300 steps, 412 s, before the file was written
        ("{h:02}:{m:02}:{s:02}", "2025-05-02 15:00:01 Command"),
        ("Apr 21 {h:02}:{m:02}:{s:02} node7", "2025-04-21 15:00:01 Command"),
    ],
)
def test_stamps_without_a_date_are_dated_by_the_file(holdfast, place, stamp, begins):
    path = place / "train.log"
    path.write_text(megatron(SLOW, stamp=stamp))
    os.utime(path, (1746180000.0 + 0.5, 1746180000.0 + 0.5))  # 2025-05-02 10:00:00
    code, out, _ = holdfast("steps", str(path), "--rule", "aistudio")
    lines = out.splitlines()
    assert code == 0
    assert lines[0].startswith(begins), lines[0]
    assert "Smoothed mean (iters 203-207: 21" in lines[1]
    assert lines == sorted(lines)


def test_the_rule_has_nothing_to_say_without_steps(holdfast, place):
    (place / "x.log").write_text("nothing\n")
    assert holdfast("steps", "x.log", "--rule", "aistudio") == (0, "", "holdfast: no steps were found\n")


def test_several_trainings_each_have_a_document(holdfast, place):
    (place / "a.log").write_text(megatron(times(40)))
    (place / "b.log").write_text(megatron(times(80, base_s=2.0)))
    answer = documents(holdfast("steps", "a.log", "b.log", "--json")[1])
    assert answer["log"] == "b.log"
    assert [(one["log"], one["iteration_lines"]) for one in answer["logs"]] == [("b.log", 80), ("a.log", 40)]
    out = holdfast("steps", "a.log", "b.log")[1]
    assert "a.log: Steady: 1.00 s a step" in out


def test_stdin(place):
    answer = subprocess.run(
        [sys.executable, "-m", "holdfast", "steps", "-", "--json"],
        input=megatron(times(40)).encode(),
        capture_output=True,
        check=True,
    )
    assert documents(answer.stdout)["iteration_lines"] == 40


def test_an_own_pattern(holdfast, place):
    lines = [f"<step {step} cost {time_s:.3f}>" for step, time_s in enumerate(SLOW)]
    (place / "own.log").write_text("\n".join(lines))
    pattern = r"<step (?P<step>\d+) cost (?P<time>[\d.]+)"
    answer = documents(holdfast("steps", "own.log", "--json", "--step-pattern", pattern)[1])
    assert (answer["iteration_lines"], len(answer["slowdowns"])) == (300, 1)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["train.log", "--step-pattern", "(?P<step"], "no regular expression"),
        (["train.log", "--step-pattern", "step (.*)"], "For the line"),
        (["train.log", "--step-pattern", "no-such.toml"], "cannot be read"),
        (["train.log", "--rule", "other"], "not one of aistudio"),
        (["train.log", "--plot", "x.pdf"], "must end in .html or .png"),
        (["train.log", "--ranks", "0"], "--ranks"),
        (["train.log", "--lang", "fr"], "not one of en, zh"),
        (["nowhere.log"], "no file 'nowhere.log'"),
    ],
)
def test_what_is_asked_wrongly_is_refused(holdfast, slow, words, says):
    code, out, err = holdfast("steps", *words)
    assert (code, out) == (2, "")
    assert says in err


def test_a_plot_beside_the_report(holdfast, slow, place):
    code, out, _ = holdfast("steps", slow, "--plot", "steps.html")
    assert code == 0
    assert out.startswith("Slower")
    assert "<!doctype html>" in (place / "steps.html").read_text()
    assert holdfast("steps", slow, "--plot", "no/such/steps.html")[0] == 1


def test_a_job_by_its_name(holdfast, state):
    job = write_job(state, "llama", [submitted(), *started(START_S + 1, 1)])
    for attempt in (1, 2):
        folder = job.worker(attempt, 0)
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / "stdout"
        log.write_text(megatron(times(30), first=1 + 30 * (attempt - 1), stamp=""))
        index = IndexWriter(log, pytest.fail)
        index.append(START_S + 100 * attempt, log.stat().st_size)
        index.close()
    for words in (["llama"], [str(job.path)]):
        code, out, _ = holdfast("steps", *words, "--json")
        answer = documents(out)
        assert (code, answer["iteration_lines"], answer["runs"]) == (0, 60, 2)
    assert holdfast("steps", "llama", "train.log")[0] == 2


def flight_record(rank, ranks=4, steps=200, late=None):
    """Of a training with a collective at the end of each step of a second; `late` takes a quarter longer to get there."""
    entries = []
    release_s = 1_758_610_000.0
    for step in range(1, steps + 1):
        slowest_s = 1.25 if late is not None else 1.0
        own_s = slowest_s if rank == late else 1.0 + 0.002 * ((step * (rank + 3)) % 7)
        entries.append(
            {
                "record_id": step,
                "pg_id": 0,
                "process_group": ("0", "default_pg"),
                "collective_seq_id": step,
                "p2p_seq_id": 0,
                "op_id": step,
                "profiling_name": "gloo:all_reduce",
                "time_created_ns": int((release_s + own_s) * 1e9),
                "input_sizes": [[1024]],
                "input_dtypes": ["Float"],
                "output_sizes": [[1024]],
                "output_dtypes": ["Float"],
                "state": "completed",
                "retired": True,
                "timeout_ms": 600_000,
                "is_p2p": False,
            }
        )
        release_s += slowest_s + 0.01
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(ranks)))}}
    return pickle.dumps({"version": "2.10", "pg_config": config, "pg_status": {}, "entries": entries}, 2)


@pytest.mark.parametrize("late", [2, None])
def test_flight_records_beside_the_log_name_who_enters_collectives_late(holdfast, place, late):
    (place / "run").mkdir()
    (place / "run/train.log").write_text(megatron(times(200)))
    for rank in range(4):
        (place / f"run/nccl_trace_rank_{rank}").write_bytes(flight_record(rank, late=late))
    code, out, _ = holdfast("steps", "run", "--json")
    answer = documents(out)
    assert code == 0
    assert [one["ranks"] for one in answer["stragglers"]] == ([[2]] if late is not None else [])
    if late is not None:
        assert answer["stragglers"][0]["source"] == "arrivals"
        assert "rank 2" in answer["stragglers"][0]["explanation"]
