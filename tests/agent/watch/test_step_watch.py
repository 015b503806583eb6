"""The steps of an attempt as its output grows: who tells, what is found, and what a fault of ours costs."""

import os
import threading
from itertools import pairwise

import pytest

from holdfast.agent.watch.step_logs import StepForms
from holdfast.agent.watch.steps import NEWS_MAX, StepWatching
from holdfast.agent.watch.stragglers import is_crowded
from holdfast.model.samples import RankSample
from holdfast.observe.logs.follow import Chunk
from holdfast.observe.logs.step_file import read
from holdfast.observe.search.step_form_store import package_forms
from holdfast.parsers.steps.forms import StepFormError


@pytest.fixture(scope="module")
def forms():
    found = StepForms(package_forms)
    assert found.wait(250), found.why_not
    return found


class Log:
    """Megatron lines into one source, each when its step is over."""

    def __init__(self, watching, source="rank-0.log", ranks=4):
        self.watching, self.source, self.ranks = watching, source, ranks
        self.at_s = 1000.0
        self.step = 0
        self.told = []

    def steps(self, count, step_s, loss="2.5", batch=8):
        for _ in range(count):
            self.step += 1
            self.at_s += step_s
            self.lines(
                f" iteration {self.step:8d}/    1000 | consumed samples: {self.step * 8:12d} | elapsed time per "
                f"iteration (ms): {step_s * 1000:.1f} | learning rate: 1.000E-04 | global batch size: {batch:5d} | "
                f"lm loss: {loss} | loss scale: 1.0 | number of skipped iterations:   0 |"
            )
        return self

    def lines(self, *lines):
        chunk = Chunk(self.source, self.at_s, 0, [line.encode() for line in lines])
        self.told += self.watching.read([chunk], self.at_s, self.ranks)

    def kinds(self):
        return [one.kind for one in self.told]


def watching(place, forms, rule="off", **more):
    return StepWatching(place, 1, forms, rule, **more)


def test_a_lasting_slowdown_is_reported_once_with_its_numbers(tmp_path, forms):
    log = Log(watching(tmp_path, forms)).steps(60, 0.2).steps(60, 0.3)
    (slow,) = log.told
    assert slow.kind == "slowdown"
    assert "since step 61" in slow.text
    assert slow.numbers["ratio"] == pytest.approx(1.5, rel=0.02)
    assert slow.numbers["step"] <= 71
    log.steps(30, 0.2)
    assert log.kinds() == ["slowdown", "slowdown-over"]


def test_the_file_tells_where_it_is_and_what_is_still_so(tmp_path, forms):
    log = Log(watching(tmp_path, forms)).steps(60, 0.2).steps(60, 0.3)
    told = read(tmp_path)
    assert told.framework == "Megatron-LM"
    assert told.now.total == 1000
    assert told.now.now_s == pytest.approx(0.3)
    assert told.recent[-1] == pytest.approx(0.3)
    assert [one.kind for one in told.findings] == ["slowdown"]
    log.steps(40, 0.2)
    assert read(tmp_path).findings == ()


@pytest.mark.parametrize(("rule", "is_told"), [("auto", True), ("aistudio", True), ("off", False)])
def test_the_platforms_rule_is_reported_for_megatron_unless_it_is_off(tmp_path, forms, rule, is_told):
    found = watching(tmp_path, forms, rule)
    assert found.says_that_the_command_runs == is_told
    log = Log(found).steps(22, 3.101).steps(5, 9.465)
    told = [one for one in log.told if one.kind == "platform-slowdown"]
    assert bool(told) == is_told
    if is_told:
        assert told[0].text == (
            "Smoothed mean (iters 23-27: 9465.00 ms, baseline: 3101.00 ms), threshold ratio:2.05. Warning"
        )
        numbers = {"first": 23, "last": 27, "mean_ms": 9465, "baseline_ms": 3101, "ratio": 2.05, "step": 27}
        assert told[0].numbers == numbers


def test_of_other_logs_the_platforms_rule_is_reported_when_asked_for(tmp_path, forms):
    for rule, is_told in (("auto", False), ("aistudio", True)):
        log = Log(watching(tmp_path, forms, rule))
        for step in range(1, 60):
            log.at_s += (step_s := 0.5 if step < 40 else 2.0)
            log.lines(f"step {step} | loss: 0.7128 | dt: {step_s * 1000:.2f}ms")
        assert ("platform-slowdown" in log.kinds()) == is_told


def quick_log(found, pause_at=0, pause_s=0.0):
    """`step N loss X` every 0.1 s, read ten at a time; before one of the steps a pause, in which others read on."""
    log = Log(found)
    for step in range(1, 301):
        if step == pause_at:
            log.told += found.read([], log.at_s + pause_s / 2, log.ranks)
            log.at_s += pause_s
        log.at_s += 0.1
        log.lines(f"step {step} loss 0.7128")
    log.told += found.read([], log.at_s, log.ranks, finish=True)


def test_short_steps_that_are_read_together_are_as_long_as_they_are(tmp_path, forms):
    """A log without times of its own: several of its lines in one reading did not all come at its end."""
    quick_log(watching(tmp_path, forms))
    now = read(tmp_path).now
    assert now.median_s == pytest.approx(0.1, rel=0.02)
    assert now.now_s == pytest.approx(0.1, rel=0.02)


def test_a_pause_between_short_steps_is_one_long_step_and_not_ten(tmp_path, forms):
    found = watching(tmp_path, forms)
    quick_log(found, pause_at=280, pause_s=8.0)
    taken = [after.at_s - before.at_s for before, after in pairwise(found.records)]
    assert [round(one, 2) for one in taken if one > 0.2] == [8.1]


def test_a_process_that_takes_a_job_up_does_not_say_again_that_the_command_runs(tmp_path, forms):
    assert not StepWatching(tmp_path, 1, forms, "auto", is_new=False).says_that_the_command_runs


def test_a_loss_that_is_no_number_is_reported_and_can_be_stored(tmp_path, forms):
    log = Log(watching(tmp_path, forms)).steps(30, 0.2).steps(3, 0.2, loss="NAN")
    (nan,) = [one for one in log.told if one.kind == "loss-nan"]
    assert all(not isinstance(value, float) or value == value for value in nan.numbers.values())
    assert nan.numbers["step"] == 31


def test_the_same_steps_logged_by_every_rank_are_one_training(tmp_path, forms):
    found = watching(tmp_path, forms)
    logs = [Log(found, f"rank-{rank}.log") for rank in range(4)]
    for step_s in [0.2] * 60 + [0.3] * 60:
        for log in logs:
            log.steps(1, step_s)
    assert [kind for log in logs for kind in log.kinds()] == ["slowdown"]
    assert found.records[-1].step == 120


def test_a_log_that_tells_times_counts_more_than_one_that_does_not(tmp_path, forms):
    found = watching(tmp_path, forms)
    bare, whole = Log(found, "stdout"), Log(found, "stderr")
    for step in range(1, 40):
        bare.lines(f"step {step} loss 0.5")
        whole.steps(1, 0.2)
    assert found.framework == "Megatron-LM"
    assert found.records[-1].step == 39
    assert [record.step for record in found.records] == sorted({record.step for record in found.records})


def test_where_the_log_that_counted_is_silent_another_takes_over(tmp_path, forms):
    found = watching(tmp_path, forms)
    first, second = Log(found, "rank-0.log"), Log(found, "rank-1.log")
    first.steps(30, 2.0)
    second.steps(60, 2.0)
    assert found.records[-1].step == 60
    assert [record.step for record in found.records] == sorted({record.step for record in found.records})


def test_an_attempt_is_compared_with_the_one_before(tmp_path, forms):
    before = watching(tmp_path, forms)
    Log(before).steps(100, 0.2)
    after = StepWatching(tmp_path, 2, forms, "off", before.baseline)
    log = Log(after)
    log.step = 90
    log.steps(60, 0.3)
    (slow,) = log.told
    assert "restart" in slow.text
    unknown = StepWatching(tmp_path, 3, forms, "off", before.baseline)
    assert unknown.baseline == before.baseline


def test_what_comes_before_the_forms_are_there_is_read_later(tmp_path):
    ready = threading.Event()
    late = StepForms(lambda: package_forms() if ready.wait(250) else ())
    found = watching(tmp_path, late)
    log = Log(found).steps(60, 0.2)
    assert not found.records
    ready.set()
    assert late.wait(250)
    log.steps(30, 0.3)
    assert log.kinds() == ["slowdown"]


def test_forms_that_cannot_be_read_cost_the_steps_and_are_said_once(tmp_path):
    def refuse():
        raise StepFormError("ours.toml: no")

    forms = StepForms(refuse)
    forms.wait(250)
    found = watching(tmp_path, forms)
    Log(found).steps(3, 0.2)
    assert list(found.notes) == ["steps are not watched in this run: ours.toml: no"]


def test_a_fault_of_ours_costs_the_steps_and_is_said_once(tmp_path, forms):
    found = watching(tmp_path, forms)
    for at_s in (1000.0, 1001.0):
        assert found.read([Chunk("stdout", at_s, 0, [None])], at_s, 4) == []
    assert Log(found).steps(9, 0.2).told == []
    assert len(found.notes) == 1
    assert found.notes[0].startswith("steps are no longer watched in this attempt: TypeError")
    assert found.look((), {}, None) == []


def test_a_fault_of_ours_in_the_forms_is_said_too(tmp_path):
    forms = StepForms(lambda: (None,))
    forms.wait(250)
    found = watching(tmp_path, forms)
    assert Log(found).steps(9, 0.2).told == []
    assert found.notes[0].startswith("steps are not watched in this run: AttributeError")


def test_a_training_that_limps_to_its_end_is_not_recited(tmp_path, forms):
    log = Log(watching(tmp_path, forms, "aistudio")).steps(12, 1.0).steps(5 * NEWS_MAX + 100, 3.0)
    assert log.kinds().count("platform-slowdown") == NEWS_MAX
    assert any("no more" in note for note in log.watching.notes)


def test_a_rank_that_is_awaited_again_and_again_and_held_back_is_named(tmp_path, forms):
    """Without groups: rank 2 runs while all others sleep, look by look. No flight records can be had here."""
    found = watching(tmp_path, forms)
    told = []
    for second in range(60):
        samples = tuple(
            RankSample(
                at_s=1000.0 + second,
                rank=rank,
                pid=10**8 + rank,
                state="R" if rank == 2 else "S",
                main_cpu_s=second * 0.5,
            )
            for rank in range(4)
        )
        told += found.look(samples, {rank: 10**8 + rank for rank in range(4)}, second)
    (slow,) = told
    assert (slow.kind, slow.numbers["ranks"]) == ("straggler", [2.0])


def test_ranks_are_crowded_where_they_may_use_fewer_processors_than_they_are():
    processors = len(os.sched_getaffinity(0))
    assert not is_crowded([os.getpid()] * processors)
    assert is_crowded([os.getpid()] * (processors + 1))
    assert not is_crowded([10**8] * 1000)


def test_no_line_that_a_form_reads_is_sieved_away(forms):
    lines = [proof.line.encode() for form in forms.forms for proof in form.matches if "\n" not in proof.line]
    lines += [
        line.encode() for form in forms.forms for one in (*form.marks, *form.settings) for line in one.matches
    ]
    noise = [b"INFO worker.py:88 all is well"] * 30
    lost = [line for line in lines if line not in forms.sieve().kept([*noise, line])]
    assert not lost
