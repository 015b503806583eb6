"""Ranks of one training beside one another, more of them than can be followed step by step."""

import random

from holdfast.core.steps.report import LogSteps, training_of
from holdfast.core.steps.watch_settings import StepSettings
from holdfast.core.stragglers.panel import LARGE
from holdfast.model.steps import StepRecord


def test_of_thousands_of_ranks_the_one_that_waits_for_its_data_is_named():
    dice = random.Random(7)
    slow, since, steps = 1234, 530, range(500, 560)
    log = LogSteps("train.log", StepSettings(ranks=LARGE), is_watched=False)
    for rank in range(LARGE):
        for step in steps:
            data_s = 0.40 + 0.01 * dice.random() + (0.2 if rank == slow and step >= since else 0.0)
            log.take([StepRecord(step, time_s=1.0, data_s=data_s, rank=rank)])
    (found,) = training_of([log]).report.stragglers
    assert found.ranks == (slow,)
    assert abs(found.first_step - since) <= 6
    assert f"since step {found.first_step}" in found.explanation
