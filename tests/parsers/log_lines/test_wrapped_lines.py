"""Lines that a terminal cut at its width are told from rows, rules and steps that reach one width of themselves."""

import re

import pytest

from holdfast.parsers.log_lines.wrapped_lines import broken_statements, joints, width_of

LOG = """\
2031-02-03 04:05:06 INFO trainer.loop: resumed from /scratch/team-a/runs/llm-7b/checkpoints/step_00012000 in 41.2 s
2031-02-03 04:05:09 INFO trainer.loop: step 12001 loss 2.1313
2031-02-03 04:05:11 WARNING loader.shards: shard /scratch/team-a/corpus/part-00417.parquet is read from the second mirror
Traceback (most recent call last):
  File "/opt/conda/envs/llm/lib/python3.11/site-packages/trainer/loop.py", line 412, in forward_backward
    loss = self.model(tokens, labels=labels)
RuntimeError: The size of tensor a (4096) must match the size of tensor b (2048) at non-singleton dimension 2
"""


def wrapped(text, width):
    return "\n".join(
        "\n".join(line[at : at + width] for at in range(0, len(line), width)) for line in text.split("\n")
    )


def joined(text, width):
    data = text.encode()
    ends = [found.start() for found in re.finditer(b"\n", data)]
    dropped = {ends[number] for number in joints(data, ends, width)}
    return bytes(byte for at, byte in enumerate(data) if at not in dropped).decode()


@pytest.mark.parametrize("width", [60, 72, 80, 90])
def test_lines_are_put_together_again(width):
    cut = wrapped(LOG, width)
    assert width_of(cut.encode()) == width
    assert joined(cut, width) == LOG


def test_columns_are_characters_not_bytes():
    text = LOG.replace("is read from", "wird geöffnet – über")
    cut = wrapped(text, 80)
    assert width_of(cut.encode()) == 80
    assert joined(cut, 80) == text


@pytest.mark.parametrize(
    "text",
    [
        LOG,
        "",
        "\n" * 50,
        ("=" * 80 + "\nepoch done\n") * 20,
        "".join(
            f"2031-02-03 04:05:{second:02} | step {100 + second} | loss 2.1{second:02} | lr 1.0e-04\n"
            for second in range(60)
        ),
        "+" + "-" * 78 + "+\n" + "".join(f"| {row:>60} | {row:>13} |\n" for row in range(20)),
        "".join(
            f"{rank}: the optimizer will use the learning rate that its own group of parameters has.\n  warn()\n"
            for rank in range(8)
        ),
        "[  281.646907] RDX: 0000000000000000 RSI: 00007ffe0361a790 RDI: 0000000000000003\n" * 30,
    ],
    ids=["whole", "empty", "no words", "rules", "steps", "table", "each rank's", "registers"],
)
def test_what_reaches_one_width_of_itself_is_left(text):
    assert width_of(text.encode()) == 0


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        (
            b"prun noticed that process rank 1 with PID 7 on node a exited on\nsignal 11 (Segmentation fault).\n",
            [0],
        ),
        (
            b"x\nmpiexec noticed that process rank 1 with PID 7\non node a exited on signal 6 (Aborted).\n",
            [1],
        ),
        (
            b"mpirun noticed that process rank 1 with PID 7 on node a exited on signal 9 (Killed).\nsignal 9\n",
            [],
        ),
        (b"mpirun noticed that process rank 1 with PID 7 on node a exited on\nRuntimeError: x\n", []),
    ],
)
def test_a_statement_about_the_end_of_a_process_may_stand_on_two_lines(text, broken):
    ends = [found.start() for found in re.finditer(b"\n", text)]
    assert list(broken_statements(text, ends)) == broken
