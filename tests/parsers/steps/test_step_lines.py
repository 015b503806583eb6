"""Steps read off logs: which form, which run, how long a step really took; and the traps of real logs."""

import pytest
from step_lines_kit import FORMS, bar, by_blocks, megatron, read

from holdfast.model.steps import FirstLast, StepRecord
from holdfast.parsers.steps.lines import StepLines

# Which form


def test_the_first_line_of_a_known_framework_is_enough():
    follower, records = read([b"training ...", megatron(7)])
    assert follower.framework == "Megatron-LM"
    assert records == [
        StepRecord(7, 1.0, 1.0, 7, None, 0, 7, None, 500, 2.5, None, 64.0, None, None, None),
    ]


def test_nothing_is_lost_while_a_bar_is_not_yet_sure():
    _, records = read([bar(n, n * 4) for n in range(10)])
    assert [record.step for record in records] == list(range(10))


def test_a_bar_yields_to_the_lines_of_a_framework():
    lines = []
    for n in range(1, 12):
        lines += [bar(n, n * 30), b"step:%d - actor/pg_loss:0.5 - timing_s/step:%d.5" % (n, 29 + n)]
    follower, records = read(lines)
    assert follower.framework == "verl"
    assert [record.time_s for record in records if record.run == records[-1].run][-3:] == [38.5, 39.5, 40.5]


def test_a_word_that_looks_like_a_step_yields_as_well():
    lines = [b"Step %d: loss of the plan 1, time 2.0 s" % n for n in range(1, 6)]
    follower, _ = read(lines + [megatron(n) for n in range(1, 6)])
    assert (follower.framework, follower.first, follower.iteration_lines) == (
        "Megatron-LM",
        FirstLast(step=1, step_time_s=1.0),
        5,
    )


def test_bars_of_loading_and_evaluation_are_none_of_the_training():
    lines = [bar(n, n * 5, 4, label="Loading checkpoint shards: ") for n in range(5)]
    for n in range(1, 9):
        lines += [bar(n, n * 3, 8)]
        if n == 4:
            lines += [bar(m, m, 3) for m in range(4)]  # an evaluation without a label
    follower, records = read(lines)
    assert [record.step for record in records] == list(range(1, 9))
    assert follower.iteration_lines == 8


def test_a_bar_of_preparation_before_the_training_is_left_out():
    lines = [bar(n, n // 100, 400, "100.0it/s") for n in (0, 100, 250, 400)] + [
        bar(n, n * 3) for n in range(9)
    ]
    follower, records = read(lines)
    assert (follower.first.step, [record.step for record in records]) == (0, list(range(9)))


def test_a_log_without_steps_has_none():
    follower, records = read([b"hello", b"", b"loss is a word", b"12/400 done"])
    assert (follower.framework, follower.iteration_lines, records) == (None, 0, [])
    assert (follower.first, follower.last) == (FirstLast(), FirstLast())


def test_one_step_is_a_step():
    follower, records = read([b"step 3 | loss: 1.25 | dt: 250.5ms | tok/sec: 1000"])
    assert (follower.iteration_lines, records[0].time_s) == (1, 0.2505)


# How lines are wrapped up


PREFIXES = [b"[default3]:", b"[rank3]:", b"  3: ", b"[default0]:[rank3]: ", b"\x1b[32m[rank3]\x1b[0m: "]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_the_rank_before_a_line_is_read(prefix):
    _, records = read([prefix + megatron(1), prefix + megatron(2)])
    assert [record.rank for record in records] == [3, 3]


def test_a_host_before_a_line_is_no_rank():
    follower, records = read([b"vm-07-14: " + megatron(n) for n in (1, 2)])
    assert (follower.iteration_lines, [record.rank for record in records]) == (2, [None, None])


def test_the_reader_of_one_ranks_log_may_be_given_the_rank():
    assert read([megatron(1)], rank=5)[1][0].rank == 5
    assert read([b"[rank3]: " + megatron(1)], rank=5)[1][0].rank == 3


def test_a_record_wrapped_within_words_is_one():
    whole = megatron(4, loss=2.5) + b" samples per second: 10.5 |"
    cut = [whole[:70], whole[70:150], whole[150:]]
    follower, records = read([*cut, megatron(5)])
    assert [(record.step, record.time_s, record.loss) for record in records] == [(4, 1.0, 2.5), (5, 1.0, 2.5)]
    assert follower.iteration_lines == 2


def test_a_record_that_was_cut_off_swallows_nothing():
    _, records = read([megatron(1), megatron(2)[:140], megatron(3), b"a", b"b", megatron(4)])
    assert [record.step for record in records] == [1, 2, 3, 4]


def test_records_glued_together_are_two():
    _, records = read([b"print without end= 0.25" + megatron(1), megatron(2) + megatron(3)])
    assert [record.step for record in records] == [1, 2, 3]


def test_carriage_returns_and_blocks_that_end_anywhere_change_nothing():
    data = b"\r".join(bar(n, n * 3) for n in range(40)) + b"Traceback (most recent call last):\n"
    _, expected = read([data.rstrip(b"\n")])
    for size in (7, 100, 10_000):
        follower, items = by_blocks(data, size)
        assert items == expected
        assert follower.last.step == 39


def test_a_line_longer_than_any_is_cut_and_the_next_is_read():
    data = megatron(1) + b"\n" + b"x" * 300_000 + b"\n" + megatron(2) + b"\n"
    _, items = by_blocks(data, 5000)
    assert [item.step for item in items] == [1, 2]


# Which step and run


def test_the_counter_of_an_epoch_goes_on_through_the_next():
    lines = [
        b"Epoch: [%d]  [%3d/100]  eta: 0:00:03  loss: 1.5 (1.6)  time: 0.25  data: 0.01  max mem: 5"
        % (epoch, n)
        for epoch in (0, 1)
        for n in (0, 50, 99)
    ]
    follower, records = read(lines)
    assert [(record.step, record.number, record.epoch) for record in records] == [
        (0, 0, 0),
        (50, 50, 0),
        (99, 99, 0),
        (100, 0, 1),
        (150, 50, 1),
        (199, 99, 1),
    ]
    assert (follower.iteration_lines, {record.run for record in records}) == (6, {0})
    assert (follower.first.step, follower.last.step) == (0, 99)


def test_an_epoch_without_a_length_is_as_long_as_it_was_seen():
    lines = [
        b"INFO Epoch[%d] Batch [%d]\tSpeed: 100.0 samples/sec" % (e, n) for e in (0, 1) for n in (20, 40, 60)
    ]
    _, records = read(lines)
    assert [record.step for record in records] == [20, 40, 60, 80, 100, 120]


def test_loops_within_a_step_are_not_its_steps():
    """A bar of the training stands while others, without a label, run again and again."""
    lines = [bar(0, 0, 8, label="Train: ")]
    for step in range(1, 6):
        lines += [bar(n, n * 2, 32) for n in range(33) if step > 1]
        lines += [bar(step, step * 90, 8, "90.0s/it", label="Train: ")]
    reader, records = read(lines)
    assert [record.step for record in records] == [0, 1, 2, 3, 4, 5]
    epochs = (
        [bar(0, 0, 3, label="Epoch: ")]
        + [bar(n, n * 20, 40) for n in range(41)]
        + [bar(1, 800, 3, label="Epoch: ")]
    )
    assert len(read(epochs)[1]) == 41


def test_bars_of_each_epoch_are_one_run():
    lines = [bar(n, n * 4, 10, label=f"Epoch {epoch}: ") for epoch in (0, 1) for n in range(11)]
    _, records = read(lines)
    assert records[-1].step == 20
    assert {record.run for record in records} == {0}


def test_appended_and_resumed_runs_are_distinguished():
    lines = [megatron(n) for n in (*range(1, 9), *range(1, 5), *range(100, 110), *range(50, 60))]
    follower, records = read(lines)
    assert [record.run for record in records] == [0] * 8 + [1] * 4 + [1] * 10 + [2] * 10
    assert follower.iteration_lines == 32


def test_a_line_that_comes_late_begins_no_run():
    _, records = read([megatron(n, loss=n) for n in (1, 2, 3, 4, 6, 5, 7)])
    assert [(record.step, record.run) for record in records][4:] == [(6, 0), (5, 0), (7, 0)]


def test_the_same_step_of_several_ranks_counts_once_and_is_kept_of_each():
    lines = [b"[rank%d]: " % rank + megatron(n, 1000 + rank) for n in (1, 2, 3) for rank in (0, 1, 2)]
    follower, records = read(lines)
    assert (follower.iteration_lines, len(records)) == (3, 9)
    assert [record.time_s for record in records if record.rank == 2] == [1.002] * 3


def test_the_same_line_twice_is_one_record():
    follower, records = read([line for n in (1, 2, 3) for line in [megatron(n)] * 2])
    assert (follower.iteration_lines, len(records)) == (3, 3)


def test_ranks_that_say_the_same_loss_without_a_name_are_one():
    follower, _ = read([megatron(n, 1000 + k, loss=3 - n / 10) for n in (1, 2, 3) for k in range(4)])
    assert follower.iteration_lines == 3


# How long a step took


def test_milliseconds_and_seconds_are_distinguished_on_each_line():
    _, records = read([megatron(1, 1500), megatron(2, 1500, unit="s"), megatron(3, 2500)])
    assert [record.time_s for record in records] == [1.5, 1.5, 2.5]


def test_a_time_is_that_of_all_steps_since_the_line_before():
    _, records = read([megatron(n) for n in (10, 20, 30, 35)])
    assert [record.steps for record in records] == [10, 10, 10, 5]


def test_a_bar_tells_its_time_by_what_has_passed_not_by_its_smoothed_rate():
    times = [0, 90, 324, 558, 792, 1026]
    _, records = read([bar(n, at, rate="90.0s/it") for n, at in enumerate(times)])
    assert [record.printed_s for record in records] == [90.0] * 6
    assert [record.time_s for record in records] == [None, 90.0, 234.0, 234.0, 234.0, 234.0]


def test_seconds_without_fractions_are_only_taken_over_many():
    _, records = read([bar(n, n * 3) for n in range(30)])
    told = [(record.time_s, record.steps) for record in records if record.time_s is not None]
    assert set(told) == {(3.0, 7)}


def test_a_rate_turns_over_within_one_bar():
    _, records = read([bar(1, 15, rate="15.0s/it"), bar(2, 30, rate="2.00it/s"), bar(3, 45, rate="?it/s")])
    assert [record.printed_s for record in records] == [15.0, 0.5, None]


def test_a_time_since_the_start_is_taken_apart():
    lines = [b"step:%d/90 train_time:%dms step_avg:nanms" % (n, 50_000 + 300 * n) for n in range(1, 6)]
    _, records = read(lines)
    assert [record.time_s for record in records] == [None, *[pytest.approx(0.3)] * 4]
    assert [record.printed_s for record in records] == [None] * 5


def test_a_mean_since_the_start_is_taken_apart():
    lines, spent = [], 0.0
    for n in range(1, 11):
        spent += 0.1 if n <= 5 else 0.4
        lines.append(f"{n}/50 [=====>....] - 1s {spent / n * 1000:.3f}ms/step - loss: 1.5".encode())
    _, records = read(lines)
    assert [record.time_s for record in records][1:] == pytest.approx([0.1] * 4 + [0.4] * 5, rel=0.02)


def test_the_time_of_a_window_is_divided_by_its_steps():
    lines = [b"Iter: %d Time(50 iters): 2.5s Loss: 0.5 lr:0.1" % n for n in (50, 100)]
    _, records = read(lines)
    assert [(record.time_s, record.printed_s, record.steps) for record in records] == [(0.05, 0.05, 50)] * 2


def test_a_window_of_unknown_length_is_known_with_the_second_line():
    lines = [
        b"x Epoch: 0, Batch: %d/900, Loss=1.5, lr=0.1 Time cost=30.0 Throughput=9.5 samples/s" % n
        for n in (300, 600)
    ]
    follower, records = read(lines)
    assert [record.time_s for record in records] == [None, 0.1]
    assert (follower.first, follower.last) == (
        FirstLast(step=300, step_time_s=0.1),
        FirstLast(step=600, step_time_s=0.1),
    )


def test_samples_a_second_become_a_time_where_the_log_says_the_batch():
    speed = [b"INFO Epoch[0] Batch [%d]\tSpeed: 128.0 samples/sec" % n for n in (20, 40)]
    assert [record.time_s for record in read(speed)[1]] == [None, None]
    _, records = read([b"Namespace(batch_size=64, lr=0.1)", *speed])
    assert [(record.time_s, record.batch) for record in records] == [(0.5, 64.0)] * 2


def test_tokens_a_second_need_tokens_a_batch():
    line = b"Step: 3     | Loss: 8.5 | Global batch size:   2.00K | Tokens/s:   4.00K | Tokens/s/GPU: 500"
    assert read([line])[1][0].time_s == 0.5


def test_stamps_serve_where_no_time_is_logged():
    lines = [
        b"[2025-01-02 03:04:%02d,500] [INFO] [logging.py:96:log_dist] [Rank 0] step=%d, skipped=0, lr=[0.1], mom=[0.9]"
        % (n * 2, n * 10)
        for n in range(1, 6)
    ]
    _, records = read(lines)
    assert [record.time_s for record in records] == [None, 0.2, 0.2, 0.2, 0.2]
    assert records[1].at_s - records[0].at_s == 2.0


def test_the_agents_stamps_serve_where_there_is_nothing_else():
    follower = StepLines(FORMS)
    records = [
        follower.feed([b"s:%d trl:3.5 lr:0.1 norm:1.0" % n], at_s=100.0 + n // 2 * 4)[0] for n in range(8)
    ]
    assert [(record.time_s, record.steps) for record in records if record.time_s] == [(2.0, 4)]
    assert records[-1].at_s == 112.0


def test_steps_that_count_samples_are_steps_all_the_same():
    setting = b':::MLLOG {"time_ms": 1, "key": "global_batch_size", "value": 8, "metadata": {}}'
    lines = [
        b':::MLLOG {"namespace": "", "time_ms": %d, "key": "train_loss", "value": 1.5, "metadata": {"samples_count": %d}}'
        % (1700000000000 + n * 5000, n * 80)
        for n in range(1, 5)
    ]
    follower, records = read([setting, *lines])
    assert [(record.step, record.number, record.time_s) for record in records[1:]] == [
        (20, 160, 0.5),
        (30, 240, 0.5),
        (40, 320, 0.5),
    ]
    assert follower.first.step == 80


def test_a_line_without_step_tells_its_loss():
    follower, records = read([b"{'loss': %d.5, 'learning_rate': 0.1, 'epoch': 0.1}" % n for n in range(4)])
    assert [(record.step, record.loss) for record in records] == [(None, n + 0.5) for n in range(4)]
    assert follower.iteration_lines == 4


def test_the_loss_of_a_dictionary_belongs_to_the_bar_beside_it():
    lines = []
    for n in range(1, 9):
        lines += [bar(n, n * 15)]
        if n % 2 == 0:
            lines += [b"{'loss': %d.5, 'grad_norm': 1.0, 'learning_rate': 0.1, 'epoch': 0.1}" % n]
    follower, records = read(lines)
    assert follower.framework == "HF Trainer"
    assert [record.step for record in records] == list(range(1, 9))
    assert [record.loss for record in records if record.loss] == [2.5, 4.5, 6.5]


def test_a_bar_below_the_announcement_of_an_evaluation_is_none_of_the_training():
    lines = []
    for epoch in range(1, 5):
        lines += [
            b"Epoch %d[%d/900]: loss:1.25, lr:0.001, batch time:0.5, data time:0.001" % (epoch, n)
            for n in (10, 310, 610)
        ]
        lines += [b"Test on epoch %d" % epoch, *(bar(n, n * 3, 40) for n in range(41)), b"mAP: 0.9"]
    follower, records = read(lines)
    assert follower.framework == "generic"
    assert [record.number for record in records] == [10, 310, 610] * 4
    assert {record.time_s for record in records} == {0.5}


def test_the_bar_of_the_training_counts_after_an_evaluation_that_came_first():
    lines = [b"Evaluating...", *(bar(n, n * 3, 40) for n in range(41)), *(bar(n, n * 9) for n in range(30))]
    _, records = read(lines)
    assert records[-1].number == 29
    assert {record.total for record in records} == {500}


def test_epochs_of_one_step_are_steps_of_one_run():
    lines = []
    for epoch in range(1, 6):
        lines += [b"Epoch %d/900" % epoch, b"1/1 [==============================] - 1s 1s/step - loss: 0.25"]
    follower, records = read(lines)
    assert follower.iteration_lines == 5
    assert [record.step for record in records] == [1, 2, 3, 4, 5]
    assert {record.run for record in records} == {0}


def test_headings_of_a_script_are_no_steps():
    lines = [
        f"INFO - Step {n}: {text}".encode()
        for n, text in enumerate(("读取数据", "Loading bert-base", "Saving", "完成"), 1)
    ]
    assert read(lines)[0].framework is None


def test_tokens_that_a_log_counts_up_give_a_rate():
    lines = [f"step {n} | loss 2.5 | dt 500.0ms | tokens {4096 * n}".encode() for n in range(1, 9)]
    _, records = read(lines)
    assert [record.throughput for record in records] == [None, *[8192.0] * 7]


def test_a_rate_in_common_words_is_no_time():
    lines = [b"per device batch size: 8, sequence length: 1024"]
    lines += [f"step {n} | loss 2.5 | 16384 tok/s".encode() for n in range(1, 9)]
    _, records = read(lines)
    assert {record.throughput for record in records} == {16384.0}
    assert {record.time_s for record in records} == {None}
