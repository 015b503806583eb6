"""How the losses of repeated steps compare with those before a fault."""

import math

from holdfast.core.compare.resume import COMPARED_STEPS, LossMemory, resume_words


def curve(step):
    return round(2.5 * math.exp(-step / 200) + 0.02 * math.sin(step * 2.3), 6)


def memory(steps=120, of=curve):
    losses = LossMemory()
    losses.begin()
    for step in range(1, steps + 1):
        assert losses.feed(step, of(step), 0, None) == []
    losses.begin()
    return losses


def resumed(losses, steps, of, run=0):
    found = [one for step in steps for one in losses.feed(step, of(step), run, 5.0)]
    return found + losses.finish(5.0)


def test_equal_losses_are_an_exact_resume():
    (found,) = resumed(memory(), range(101, 140), curve)
    assert found.numbers["verdict"] == "exact"
    assert (
        found.text
        == "Resumed exactly: 10 repeated steps, steps 101 to 110, with the same losses in all digits"
    )
    assert "逐位相同" in found.text_zh


def test_small_differences_are_noise():
    (found,) = resumed(memory(), range(101, 140), lambda step: curve(step) + 0.0005 * math.sin(step))
    assert found.numbers["verdict"] == "noise"
    assert "within noise" in found.text


def test_older_weights_shift_the_losses():
    (found,) = resumed(memory(), range(101, 140), lambda step: curve(step - 60))
    assert (found.numbers["verdict"], found.numbers["cause"]) == ("different", "shift")
    assert abs(found.numbers["like"] - 41) < 15
    assert found.text.startswith("Not the same after the restart: steps 101 to 110: the losses are")


def test_other_data_differ_to_both_sides():
    (found,) = resumed(memory(), range(101, 140), lambda step: curve(step) + 0.04 * math.sin(step * 5.1))
    assert (found.numbers["verdict"], found.numbers["cause"]) == ("different", "order")


def test_a_loss_that_is_no_number_any_more():
    (found,) = resumed(memory(), range(101, 140), lambda step: math.nan if step > 104 else curve(step))
    assert (found.numbers["cause"], found.numbers["step"]) == ("nan", 105)
    assert all(not isinstance(value, float) or math.isfinite(value) for value in found.numbers.values())


def test_no_repeated_step_says_nothing():
    assert resumed(memory(), range(121, 140), curve) == []
    assert resumed(LossMemory(), range(1, 20), curve) == []


def test_few_repeated_steps_are_judged_when_the_next_comes():
    losses = memory()
    assert [losses.feed(step, curve(step), 0, 1.0) for step in (119, 120)] == [[], []]
    (found,) = losses.feed(121, curve(121), 0, 1.0)
    assert (found.numbers["first"], found.numbers["last"], found.numbers["verdict"]) == (119, 120, "exact")


def test_a_launchers_own_restart_counts_too():
    losses = LossMemory()
    losses.begin()
    for step in range(1, 60):
        losses.feed(step, curve(step), 0, None)
    (found,) = resumed(losses, range(40, 70), curve, run=1)
    assert (found.numbers["first"], found.numbers["steps"]) == (40, COMPARED_STEPS)


def test_logs_that_print_every_tenth_step():
    losses = LossMemory()
    losses.begin()
    for step in range(10, 210, 10):
        losses.feed(step, curve(step), 0, None)
    losses.begin()
    (found,) = resumed(losses, range(155, 260, 5), lambda step: curve(step) if step % 10 == 0 else None)
    assert found.numbers["verdict"] == "exact" and found.numbers["steps"] == 5


def test_words_of_a_damaged_record():
    assert resume_words({"verdict": "exact"}).en
    assert resume_words({}).zh
