"""A log that was cut into parts while the job went on."""

import gzip

import pytest

STEPS = "".join(
    f"2031-02-03 04:{at // 60:02d}:{at % 60:02d} INFO step {at}/9000 loss 2.5\n" for at in range(400)
)
OOM = (
    'Traceback (most recent call last):\n  File "/w/train.py", line 88, in main\n    loss.backward()\n'
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79.10 GiB\n"
)
HALF = STEPS[: len(STEPS) // 2]


@pytest.mark.parametrize("part", ["rank-3.log.1", "rank-3.log.2.gz", "rank-3.log-20310203"])
def test_what_an_earlier_part_tells_was_survived(diagnosis, tmp_path, part):
    text = (HALF + OOM).encode()
    (tmp_path / part).write_bytes(gzip.compress(text) if part.endswith(".gz") else text)
    (tmp_path / "rank-3.log").write_text(STEPS)
    assert diagnosis("step 1\n").category == "none"


def test_it_is_the_end_where_the_last_part_tells_it(diagnosis, tmp_path):
    (tmp_path / "rank-3.log.1").write_text(STEPS)
    (tmp_path / "rank-3.log").write_text(HALF + OOM)
    assert diagnosis("step 1\n").category == "gpu_oom"


def test_logs_of_ranks_with_numbers_are_not_one(diagnosis, tmp_path):
    (tmp_path / "out.1").write_text(HALF + OOM)
    (tmp_path / "out.0").write_text(STEPS)
    assert diagnosis("step 1\n").category == "gpu_oom"
