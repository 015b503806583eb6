"""Stacks in words, from stacks that were made up."""

from holdfast.core.hang.stack_groups import grouped
from holdfast.model.flight.thread_stacks import RankStacks, ThreadStack
from holdfast.views.stacks import Seen, report

MACHINERY = tuple(f"<frozen importlib._bootstrap>:{line} _find_and_load" for line in (241, 940, 690))


def lines(frames, language="en"):
    thread = ThreadStack(is_main=True, frames=frames)
    groups = grouped([RankStacks(rank=0, pid=1, threads=(thread,), source="py-spy", state="R")])
    return list(report(Seen("llama", 1, 0.0, tuple(groups), ()), language, all_threads=False))


def test_what_lies_between_imports_is_folded():
    frames = (MACHINERY[0], "/job/model.py:3 <module>", *MACHINERY, "/job/train.py:1 <module>")
    assert lines(frames)[3:] == [
        f"    {MACHINERY[0]}",
        "    /job/model.py:3 <module>",
        "    ... 3 frames of importlib",
        "    /job/train.py:1 <module>",
    ]
    assert "    …… importlib 的 3 帧" in lines(frames, "zh")
