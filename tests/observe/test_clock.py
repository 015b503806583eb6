"""The job's clock, with a wall clock that is set while it runs."""

import pytest

from holdfast.observe.clock import JobClock


class Time:
    """A wall clock that can be set, and the monotonic one that cannot."""

    def __init__(self):
        self.wall_s, self.mono_s = 1_000_000.0, 50.0

    def passes(self, for_s):
        self.wall_s += for_s
        self.mono_s += for_s

    def clock(self, not_before_s=0.0):
        return JobClock(not_before_s, wall=lambda: self.wall_s, monotonic=lambda: self.mono_s)


@pytest.mark.parametrize("jump_s", [-86_400.0, -1.0, 1.0, 86_400.0])
def test_a_wall_clock_that_jumps_does_not_move_the_jobs(jump_s):
    time = Time()
    clock = time.clock()
    time.passes(10)
    time.wall_s += jump_s
    time.passes(10)
    assert clock() == pytest.approx(1_000_020.0)


def test_it_goes_on_no_earlier_than_its_given_start():
    """A job taken up on a machine whose clock is an hour behind."""
    time = Time()
    clock = time.clock()
    clock.not_before(1_003_600.0)
    assert clock() == pytest.approx(1_003_600.0)
    time.passes(5)
    clock.not_before(1_000_000.0)
    assert clock() == pytest.approx(1_003_605.0)
    assert time.clock(not_before_s=2_000_000.0)() == pytest.approx(2_000_000.0)


def test_a_moment_stamped_by_another_process_is_converted_to_the_jobs_time():
    time = Time()
    clock = time.clock(not_before_s=1_003_600.0)
    stamped_s = time.wall_s
    time.passes(3)
    assert clock.of_wall(stamped_s) == pytest.approx(1_003_600.0)


def test_a_moment_from_the_future_is_now():
    time = Time()
    clock = time.clock()
    assert clock.of_wall(time.wall_s + 100) == clock()
