"""Lines of step logs for tests, and how tests read them."""

from holdfast.model.steps import StepRecord
from holdfast.observe.search.step_form_store import package_forms
from holdfast.parsers.steps.lines import StepLines

FORMS = package_forms()


def megatron(number, ms=1000.0, loss=2.5, total=500, unit="ms"):
    value = ms if unit == "ms" else ms / 1000
    return (
        f" iteration {number:8d}/{total:8d} | consumed samples: {number * 64:12d} | elapsed time per iteration ({unit}): "
        f"{value:.1f} | learning rate: 1.000000E-04 | global batch size:    64 | lm loss: {loss:.6E} | loss scale: 1.0 | "
        f"number of skipped iterations:   0 | number of nan iterations:   0 |"
    ).encode()


def clock(seconds):
    hours, rest = divmod(seconds, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60:02d}:{rest % 60:02d}"


def bar(number, elapsed, total=500, rate="2.00s/it", label="", after=""):
    share = number * 100 // total
    return f"{label}{share:3d}%|###   | {number}/{total} [{clock(elapsed)}<99:59, {rate}{after}]".encode()


def read(lines, **keywords):
    follower = StepLines(FORMS, **keywords)
    items = follower.feed(lines) + follower.finish()
    return follower, [item for item in items if isinstance(item, StepRecord)]


def by_blocks(data, size):
    follower = StepLines(FORMS)
    items = []
    for start in range(0, len(data), size):
        items += follower.feed_block(data[start : start + size])
    return follower, items + follower.finish()
