"""Records whose values stand in several lines, epochs of bars and lines of epochs alone."""

from step_lines_kit import FORMS, bar, read

from holdfast.model.steps import PhaseMark
from holdfast.parsers.steps.lines import StepLines


def times(records):
    return [(record.step, record.time_s) for record in records]


def test_an_iteration_in_two_lines_with_a_time_in_two_parts():
    lines = []
    for number in range(3):
        lines += [
            b"#" * 80,
            b"                 Learning iteration %d/300       " % number,
            b"",
            b"            Computation: 98304 steps/s (collection: 0.75s, learning 0.25s)",
            b"                 Mean reward: 0.71",
        ]
    follower, records = read(lines)
    assert follower.framework == "RSL-RL"
    assert times(records) == [(0, 1.0), (1, 1.0), (2, 1.0)]


def test_a_time_below_its_step_belongs_to_it_and_lines_without_one_stay_single():
    with_times = [
        line
        for epoch in range(1, 4)
        for line in (
            b"epoch: %d step: 258, loss is 2.5" % epoch,
            b"epoch time: 96244.296 ms, per step time: %d.0 ms" % (370 + epoch),
        )
    ]
    _, records = read(with_times)
    assert [record.printed_s for record in records] == [0.371, 0.372, 0.373]
    _, records = read([b"epoch: 1 step: %d, loss is 2.5" % step for step in range(1, 6)])
    assert [record.step for record in records] == [1, 2, 3, 4, 5]


def test_a_step_in_the_line_before_its_time():
    lines = []
    for step in (100, 200, 300):
        lines += [b"\titers: %d, epoch: 1 | loss: 0.5" % step, b"\tspeed: 0.25s/iter; left time: 99.5s"]
    follower, records = read(lines)
    assert follower.framework == "Time-Series-Library"
    assert [(record.step, record.printed_s, record.loss) for record in records] == [
        (100, 0.25, 0.5),
        (200, 0.25, 0.5),
        (300, 0.25, 0.5),
    ]


def test_an_epoch_and_its_time_with_lines_between():
    lines = []
    for epoch in (87, 88, 89):
        lines += [
            b"2025-02-03 04:05:06.044413: Epoch %d " % epoch,
            b"2025-02-03 04:08:06.044413: train_loss -0.75",
            b"2025-02-03 04:08:06.044413: Epoch time: 180.5 s",
        ]
    follower, records = read(lines)
    assert follower.framework == "nnU-Net"
    assert [(record.step, record.time_s, record.loss) for record in records] == [
        (87, 180.5, -0.75),
        (88, 180.5, -0.75),
        (89, 180.5, -0.75),
    ]


def test_bars_of_which_a_log_keeps_the_end_of_each_epoch():
    lines = [bar(782, 10 + n, total=782, label=f"Epoch {n}: ") for n in range(11, 15)]
    follower, _ = read(lines)
    assert follower.iteration_lines == 4


def test_bars_behind_the_name_of_a_stream():
    lines = [bar(n, n * 22, total=50, label="[stderr] ", after="") + b"[INFO] sampler" for n in range(1, 9)]
    follower, _ = read(lines)
    assert (follower.iteration_lines, follower.last.step) == (8, 8)
    follower, _ = read([bar(n, n * 22, total=50, label="[data] ") for n in range(1, 9)])
    assert follower.iteration_lines == 0


def test_lines_of_epochs_count_only_where_nothing_better_is_printed():
    epochs = [b"Epoch %02d loss 1.5 | train 2.5s" % n for n in range(1, 6)]
    follower, records = read(epochs)
    assert follower.framework == "generic"
    assert times(records) == [(n, 2.5) for n in range(1, 6)]
    steps = [b"step %d/90 | loss 1.5 | time 250 ms" % n for n in range(1, 9)]
    follower, records = read([epochs[0], *steps, epochs[1]])
    assert [record.step for record in records][-8:] == list(range(1, 9))


def test_a_plan_in_the_code_before_the_steps_is_a_mark():
    items = StepLines(FORMS).feed(
        [b"    train_bs_schedule: tuple = (8 * 2048, 16 * 2048)", b"    lr_schedule: tuple = (1, 2)"]
    )
    assert [item.kind for item in items if isinstance(item, PhaseMark)] == ["schedule"]
