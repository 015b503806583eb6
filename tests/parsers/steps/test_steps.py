"""Step numbers in lines as trainers print them, and in lines that only look so."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.parsers.steps.progress import StepReader, match

NAMED = [
    (b" iteration       10/     500 | consumed samples:  40 | elapsed time per iteration (ms): 1382.2 |", 10),
    (b"[default7]: iteration   42784/ 115311 | consumed samples:    71463856 |", 42784),
    (b"   1:  iteration       25/73242187 | consumed samples:           50 |", 25),
    (b"  2%|\xe2\x96\x8f         | 10/500 [00:10<08:10,  1.02s/it]", 10),
    (b"10/500 [00:10<08:10,  1.02s/it]", 10),
    (b"vm-07-05:   2%|x| 10/500 [00:10<08:10,  1.02s/it]", 10),
    (b"training/global_step:10 - loss:3.1", 10),
    (b"29948it [35:34,  7.00s/it]slurmstepd: error: *** JOB 25 ON gr015 CANCELLED AT 2022-10-13 ***", 29948),
    (b"step 10", 10),
    (b"step: 10", 10),
    (b"step 10.", 10),
    (b"Step: 3     | Loss: 8.9219 | Global batch size:   2.05K", 3),
    (b"step   7/1000 | loss 4.2", 7),
    (b"step:3124/3125 train_time:1110.841s step_avg:355.58ms", 3124),
    (b"\x1b[31mstep:  8  \x1b[32mloss:  5.77627  \x1b[34mtps: 11,870", 8),
    (b"completed step: 9, seconds: 5.667, loss: 10.374", 9),
    (b"iter 10/500", 10),
    (b"iter 4: loss 6.1183, time 30100.29ms", 4),
    (b"Iter(train) [  20/1000]  lr: 1.0e-3 loss: 2.1", 20),
    (b"[HCTR][06:44:10.337][INFO][RK0][main]: Iter: 1000 Time(100 iters): 2.33415s Loss: 0.124969", 1000),
    (b" eta: 0:00:32  iter: 19  total_loss: 1.2  time: 0.257", 19),
    (b"Epoch 1 step 10", 10),
    (b"[2025-02-16 16:20:08,701] [INFO] [logging.py:96:log_dist] [Rank 0] step=20, skipped=0, lr=[0.0]", 20),
    (b"epoch=0/micro_step=80/global_step=10, RunningAvgSamplesPerSec=1.1", 10),
    (b"{'loss': 1.2, 'step': 40}", 40),
    (b'{"current_steps": 5, "total_steps": 100, "loss": 1.2, "elapsed_time": "0:00:10"}', 5),
    (b"steps: 10 loss: 8.0123 iter time (s): 12.3", 10),
    (b"{'loss': 0.75, 'global_step/max_steps': '3/8', 'percentage': '37.50%'}", 3),
    (b"Epoch: [0]  [ 240/4572]  eta: 0:29:05  lr: 0.000005  time: 0.4143", 240),
    (b"2021-12-21 22:55:39,582 - mmdet - INFO - Epoch [12][800/930]    lr: 2.000e-04", 12 * 930 + 800),
    (b"Epoch 2:   3%|x| 100/1000 [5:29:00<171:22:19,  1.73it/s, global_step=3.1e+4]", 2100),
]

NOT_STEPS = [
    b"",
    b"step 2024-01-05 begins",
    b"step 12:30:11",
    b"step 01/02/2024",
    b"iteration 7/3",
    b"step 0.5",
    b"step time: 0.000",
    b"step 10%",
    b"step 10ms",
    b"global_step=3.1e+4",
    b"step=1,000",
    b"eval_steps=8, save_steps: 500, warmup_steps=10",
    b'"profile_step": 1,',
    b"step_size = 10",
    b"Warning: only 3/8 GPUs are used for this step",
    b"after 1 iterations",
    b"Checkpoint global_step50 is about to be saved!",
    b"Loading checkpoint shards: 100%|xx| 3/3 [00:05<00:00,  1.9s/it]",
    b"Running tokenizer on train dataset:  50%|xx  | 500/1000 [00:10<00:10, 50.02it/s]",
    b"Map:  50%|xx  | 500/1000 [00:10<00:10, 50.02it/s]",
    b"Evaluating:  50%|xx  | 4/8 [00:10<00:10, 5.02s/it]",
    b"Epoch(val) [1][10/313]    eta: 0:00:03  time: 0.0122",
    b"2020-01-14 13:50:22,709-INFO: Test iter 100",
    b"validation step 10",
    b'  File "/app/optimizer.py", line 12, in step',
    b"[2022-01-19 13:51:30,908] [INFO] [stage_1_and_2.py:1644:step] [deepscale] OVERFLOW! Rank 0 Skipping step.",
]


@pytest.mark.parametrize(("line", "step"), NAMED)
def test_common_forms_are_read(line, step):
    assert StepReader().feed(line) == step


@pytest.mark.parametrize("line", NOT_STEPS)
def test_what_only_looks_like_a_step_is_not_believed(line):
    assert StepReader().feed(line) is None


def feed(*lines):
    reader = StepReader()
    return [reader.feed(line) for line in lines]


def test_only_growth_is_progress():
    assert feed(b"step 5 loss 1", b"step 5 loss 1", b"step 4 loss 1", b"step 6 loss 1") == [5, None, None, 6]


def test_the_counter_of_an_epoch_goes_on_with_the_next():
    lines = [b"epoch 0 step %d loss 1" % n for n in (1, 2, 3)] + [
        b"epoch 1 step %d loss 1" % n for n in (1, 2)
    ]
    assert feed(*lines) == [1, 2, 3, 4, 5]
    assert feed(b"Epoch [1][900/930] lr: 1", b"Epoch [2][50/930] lr: 1") == [1830, 1910]


def test_a_counter_begun_anew_is_believed_after_some_steps():
    lines = [b"step %d loss 1" % n for n in (90, 100, 1, 2, 3, 4)]
    assert feed(*lines) == [90, 100, None, None, 3, 4]


def test_a_rank_that_prints_late_is_no_new_beginning():
    lines = [b"step %d loss 1" % n for n in (100, 97, 101, 98, 99, 100, 102)]
    assert feed(*lines) == [100, None, 101, None, None, None, 102]


def test_a_plain_word_yields_to_a_line_with_a_loss():
    assert feed(
        b"Step 1: load the data", b"Step 2: build the model", b"step 1 loss 3.2", b"step 2 loss 3.1"
    ) == [
        1,
        2,
        1,
        2,
    ]


def test_a_mention_seen_once_yields_to_a_bar_that_grows():
    bars = [b" %d%%|x| %d/500 [00:10<08:10,  1.02s/it]" % (n // 5, n) for n in (1, 2, 3)]
    assert feed(b"step=0, skipped=0, lr=[0.0]", *bars) == [0, None, 2, 3]


def test_the_bar_of_the_training_is_kept_while_others_run():
    def bar(n, total):
        return b" 1%%|x| %d/%d [00:10<08:10,  1.02s/it]" % (n, total)

    assert feed(bar(1, 500), bar(2, 500), bar(3, 8), bar(4, 8), bar(3, 500)) == [1, 2, None, None, 3]
    assert feed(bar(1, 2), bar(2, 2), bar(1, 500), bar(2, 500)) == [1, 2, None, 2]


def drawn(n, total=80, elapsed=b"00:00", label=b""):
    return b"%s %d%%|x| %d/%d [%s<?, ?it/s]" % (label, 100 * n // total, n, total, elapsed)


def moving(n, total=80, label=b""):
    return b"%s %d%%|x| %d/%d [00:03<00:10,  9.10it/s]" % (label, 100 * n // total, n, total)


def test_a_bar_at_0_is_no_step_and_a_resumed_one_moves_to_its_first_step():
    assert feed(drawn(0), drawn(0, elapsed=b"00:07"), moving(31), moving(32)) == [None, None, 31, 32]


def test_a_bar_that_is_drawn_where_the_run_resumes_is_no_step():
    assert feed(drawn(30), drawn(30), moving(30), moving(31)) == [None, None, None, 31]


def test_a_bar_of_an_epoch_is_drawn_anew_without_a_step():
    epochs = [
        drawn(0, label=b"Epoch 3: "),
        moving(1, label=b"Epoch 3: "),
        moving(80, label=b"Epoch 3: "),
        drawn(0, label=b"Epoch 4: "),
        b"Epoch 4:   0%|x| 0/80 [00:00<00:00, 99864.38it/s]",
        moving(1, label=b"Epoch 4: "),
    ]
    assert feed(*epochs) == [None, 241, 320, None, None, 321]


def test_a_bar_without_total_begins_with_no_step():
    assert feed(b"0it [00:00, ?it/s]", b"1it [00:01,  1.10s/it]") == [None, 1]


@pytest.mark.parametrize(
    "label",
    [
        b"Sanity Checking DataLoader 0: ",
        b"Validation DataLoader 0: ",
        b"Testing DataLoader 0: ",
        b"Evaluating: ",
    ],
)
def test_bars_beside_the_training_are_no_steps(label):
    assert feed(*(moving(n, 4, label) for n in (1, 2, 3, 4))) == [None] * 4


@pytest.mark.parametrize(
    "line",
    [
        b"Resuming training from step 30, loss 0.5",
        b"Resumed: global step 30 (time 3.2 s)",
        b"Loaded the checkpoint of step 30 in 3.2 s, lr 0.1",
        b"Restored from step=30, loss=0.5",
        b"Starting from step 30 with lr 1e-4",
        b"Saved the model of step 30, loss 0.5",
    ],
)
def test_the_step_of_a_checkpoint_is_no_step(line):
    assert StepReader().feed(line) is None


def test_a_step_0_that_was_made_counts():
    assert feed(b"step 0 loss 3.2", b"Epoch: [0][0/5005] Time 0.2 Loss 6.9") == [0, None]


def test_a_reader_says_which_form_the_log_uses():
    reader = StepReader()
    assert (reader.form, reader.step) == (None, None)
    reader.feed(b" iteration       10/     500 | consumed samples:  40 |")
    reader.feed(b"step 900 loss 1")
    assert (reader.form, reader.step) == ("megatron", 10)


@given(
    st.binary(max_size=200),
    st.sampled_from([b"step 5 ", b"iter [", b"Epoch 3 ", b" 3/9 [00:01<00:02, 1it/s]"]),
)
def test_any_bytes_are_fed_without_trouble(noise, near):
    reader = StepReader()
    reader.feed(noise + near + noise)
    match(near + noise)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=30))
def test_growing_steps_are_all_seen(numbers):
    growing = sorted(set(numbers))
    assert feed(*[b"step %d | loss: 0.1" % number for number in growing]) == growing
