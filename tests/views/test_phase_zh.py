"""The words of a phase in Chinese: known ones are translated, others stay as they are."""

import pytest

from holdfast.model.signatures import Words
from holdfast.views.jobs.phase import at_step
from holdfast.views.phase_zh import phase_zh

OOM = Words(en="rank 2 ran out of GPU memory", zh="rank 2 显存不足")
OFF = "and automatic restart is off (--policy holdfast turns it on)"


@pytest.mark.parametrize(
    ("words", "chinese"),
    [
        ("training, step 140", "训练中，第 140 步"),
        (
            f"failed with exit code 1: {OOM.en}, {OFF}",
            "失败，退出码 1：rank 2 显存不足，未启用自动重启（--policy holdfast 可启用）",
        ),
        ("failed with exit code 1: words of a later version", "失败，退出码 1：words of a later version"),
        ("words of a later version", "words of a later version"),
    ],
)
def test_words_in_chinese(words, chinese):
    assert phase_zh(words, OOM) == chinese


@pytest.mark.parametrize(
    ("words", "newer"),
    [
        ("training, step 12", "training, step 14"),
        ("dead: gone; the last known step is 12", "dead: gone; the last known step is 14"),
        (
            "failed with exit code 1: the same error at step 12",
            "failed with exit code 1: the same error at step 12",
        ),
    ],
)
def test_a_newer_step_replaces_that_of_the_phase_only(words, newer):
    assert at_step(words, 14) == newer
    assert at_step(words, None) == words
