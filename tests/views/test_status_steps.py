"""What `holdfast status` says of the steps, plain, as JSON and as the live view draws it."""

import io
import json

import pytest
from rich.console import Console

from cli.journals import one_failure_and_on, write_job
from holdfast.core.job.story import Line
from holdfast.core.job.story_parts import RankKnown
from holdfast.model.steps import StepFinding, StepNow
from holdfast.observe.logs.step_file import StepFile, StepFileWriter
from holdfast.views.status import Seen, picture, worker_words
from holdfast.views.steps.rows import bars, part_done, span

NOW = StepNow(
    step=140,
    total=5000,
    now_s=4.402,
    median_s=3.1,
    best_s=3.05,
    eta_s=21_393.7,
    loss=2.3456,
    slowdown="1.42 times as long since step 120",
)
RECENT = (3.1,) * 30 + (4.4,) * 30
BAD = StepFinding(kind="loss-nan", text="The loss is NaN at step 139", step=139)


def told(**changed):
    return StepFile(**{"at_s": 1.0, "attempt": 2, "now": NOW, "framework": "x", "recent": RECENT, **changed})


def write_steps(job, file, worker=0):
    folder = job.worker(file.attempt, worker)
    folder.mkdir(parents=True, exist_ok=True)
    assert StepFileWriter(folder).write(file)


@pytest.fixture
def job(state):
    return write_job(state, "llama", one_failure_and_on())


def rows_of(out):
    return {line[:10].strip(): line[11:] for line in out.splitlines()}


def test_the_rows_of_the_status(holdfast, job):
    write_steps(job, told())
    rows = rows_of(holdfast("status")[1])
    assert rows["step"] == "140 of 5000 (3%)"
    assert rows["step time"] == "now 4.40 s, median 3.10 s, best 3.05 s"
    assert rows["eta"] == "5h56min34s at this pace"
    assert rows["slowdown"] == "1.42 times as long since step 120"
    assert rows["straggler"] == "none found"
    assert rows["loss"] == "2.3456"


def test_who_is_slower_among_several_workers_is_the_controllers_word(holdfast, job):
    write_steps(job, told())
    folder = job.attempt(2)
    slow = StepFile(at_s=1.0, attempt=2, now=StepNow(straggler="node node-1 +30 %"))
    assert StepFileWriter(folder).write(slow)
    assert rows_of(holdfast("status")[1])["straggler"] == "node node-1 +30 %"
    assert StepFileWriter(folder).write(StepFile(at_s=1.0, attempt=2, now=StepNow()))
    assert rows_of(holdfast("status")[1])["straggler"] == "none found"


def test_json_has_them_as_they_are(holdfast, job):
    assert json.loads(holdfast("status", "--json")[1])["steps"] is None
    write_steps(job, told(recent=(3.1, 4.4), findings=(BAD,)))
    steps = json.loads(holdfast("status", "--json")[1])["steps"]
    assert steps["now"]["now_s"] == 4.402
    assert steps["recent"] == [3.1, 4.4]
    assert steps["findings"][0]["kind"] == "loss-nan"


def test_steps_of_the_attempt_before_are_not_those_of_now(holdfast, job):
    write_steps(job, told(attempt=1))
    assert rows_of(holdfast("status")[1])["step"] == "140"
    write_steps(job, told())
    (job.worker(2, 0) / "steps.json").write_text('{"half')
    assert rows_of(holdfast("status")[1])["step"] == "140"


def test_a_bad_loss_and_a_step_that_stands_are_said(state, holdfast, job):
    stands = StepFinding(kind="step-stands", text="no step for 5min, while lines keep coming")
    write_steps(job, told(now=StepNow(step=140, now_s=3.0), findings=(BAD, stands)))
    rows = rows_of(holdfast("status")[1])
    assert rows["loss"] == "The loss is NaN at step 139"
    assert rows["stands"] == "no step for 5min, while lines keep coming"
    assert "eta" not in rows


def test_a_log_cannot_steer_the_terminal(holdfast, job):
    write_steps(job, told(now=StepNow(step=1, now_s=1.0, slowdown="\x1b[2Jgone\n[bold]")))
    assert "\x1b" not in holdfast("status")[1]


def test_bars_show_the_last_values_and_make_no_mountain_of_noise():
    assert bars((), 10) == ""
    assert bars((1.0,), 10) == "▁"
    assert set(bars((1.0, 1.01, 1.02), 10)) <= set("▁▂")
    assert bars(RECENT, 4) == "▁▁▁▁"
    assert bars(RECENT[28:32], 4) == "▁▁██"
    assert bars((0.0, -1.0), 4) == ""
    assert span(RECENT) == "3.10 s to 4.40 s"


def test_how_much_is_done():
    assert part_done(NOW) == 0.028
    assert part_done(StepNow(step=9, total=5)) == 1.0
    assert part_done(StepNow(step=9)) is None
    assert part_done(StepNow(step=9, total=0)) is None


def ranks(count, worker=0, ended=()):
    return [
        RankKnown(rank=r, worker=worker, pid=r, code=-9 if r in ended else None, ended=r in ended)
        for r in range(worker * count, worker * count + count)
    ]


def test_the_ranks_of_a_worker_in_one_row():
    assert worker_words(ranks(8)) == "ranks 0-7 run"
    assert worker_words(ranks(1)) == "rank 0 runs"
    assert worker_words(ranks(8, ended=(2,))) == "ranks 0-1,3-7 run; rank 2 ended with -9"
    assert worker_words(ranks(2, ended=(0, 1))) == "ranks 0-1 ended with -9"


def drawn(seen, width=100, height=30):
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None, force_terminal=True)
    console.print(picture(seen, width, height))
    return console.file.getvalue().splitlines()


def seen(**changed):
    rows = (
        ("job", "t: train.py"),
        ("phase", "training"),
        ("step", "140 of 5000"),
        ("step time", "now 4.40 s"),
        ("slowdown", "none found"),
    )
    lines = tuple(
        Line(at_s=1e9 + i, attempt=1, incident=None, kind="news", text=f"line {i}") for i in range(99)
    )
    return Seen(
        **{"title": "job t: train.py", "rows": rows, "ranks": tuple(ranks(8)), "steps": told(), "lines": lines,
           "at_s": 1e9, **changed}
    )  # fmt: skip


def test_the_live_view_fills_the_screen_and_no_more():
    lines = drawn(seen())
    assert len(lines) == 30
    assert all(len(line) <= 100 for line in lines)
    assert lines[0] == "job t: train.py"
    assert lines[2] == "step       140 of 5000"
    assert lines[3].strip().startswith("━")
    assert lines[4] == "step time  now 4.40 s"
    assert lines[5] == f"recent     {'▁' * 30}{'█' * 30}  3.10 s to 4.40 s"
    assert "worker 0   ranks 0-7 run" in lines
    assert lines[-2].endswith("line 98")
    assert lines[-1].startswith("q: quit. Updated ")


@pytest.mark.parametrize("height", [3, 6, 12, 60])
@pytest.mark.parametrize("width", [12, 40, 200])
def test_a_screen_of_any_size(width, height):
    lines = drawn(seen(notes=("this job has no supervisor now",)), width, height)
    assert len(lines) == height
    assert all(len(line) <= width for line in lines)
    assert lines[-1].startswith("q: quit. Up")


def test_a_thousand_workers_leave_room_for_the_log_and_those_in_trouble_come_first():
    many = [rank for worker in range(1000) for rank in ranks(8, worker, ended=(7777,))]
    lines = drawn(seen(ranks=tuple(many)))
    assert any(line.startswith("worker 972") and "rank 7777 ended with -9" in line for line in lines)
    assert any("more workers with" in line for line in lines)
    assert lines[-2].endswith("line 98")
    assert len(lines) == 30


def test_a_long_line_of_the_log_is_broken_not_cut():
    text = "Steps have become slower since step 121: 100.4 ms -> 163.6 ms (+63 %); every step is slower"
    line = Line(at_s=1e9, attempt=1, incident=None, kind="news", text=text)
    lines = drawn(seen(lines=(*seen().lines, line)))
    assert lines[-3].startswith("2001-09-09 01:46:40 Steps have become")
    assert lines[-2] == " " * 20 + "step is slower"
    assert lines[-4].endswith("line 98")


def test_what_a_log_holds_is_shown_as_text_only():
    line = Line(at_s=1e9, attempt=1, incident=None, kind="news", text="[bold]x[/bold] \x1b[31mred")
    lines = drawn(seen(lines=(line,)))
    assert any("[bold]x[/bold] \ufffd[31mred" in line for line in lines)


def test_rows_where_a_log_tells_no_times(holdfast, job):
    write_steps(job, told(now=StepNow(step=7), recent=()))
    rows = rows_of(holdfast("status")[1])
    assert rows["step"] == "7"
    assert "slowdown" not in rows
