"""Compares the losses of the steps that a restarted training repeats with their losses before the fault. Pure.

There are three results. Exact: all printed digits are equal. Noise: the differences are small relative to the scatter
of the loss between steps. Different: otherwise; a shift to one side suggests older weights, differences to both sides
suggest other data or another random state.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from statistics import median

from holdfast.core.plurals import counted
from holdfast.model.events import Numbers
from holdfast.model.signatures import Words
from holdfast.model.steps import StepFinding

KEPT_STEPS = 8_192  # number of losses kept of earlier attempts
COMPARED_STEPS = 10  # number of steps compared after a restart
SCATTER_STEPS = 64  # before the fault, from which the scatter is measured
SCATTER_MIN = 8
NOISE_SHARE = 0.2  # of the scatter: another order of floating-point sums differs by less, other data by more
NOISE_RELATIVE = 1e-4  # of the loss, if the scatter is unknown
SHIFT_SCATTERS = 2.0
ONE_SIDE_SHARE = 0.8
KIND = "resume-check"


class LossMemory:
    """The losses of a job's steps over all attempts on one node, for comparison after a restart."""

    def __init__(self) -> None:
        self._before: dict[int, float] = {}
        self._now: dict[int, float] = {}
        self._pairs: list[tuple[int, float, float]] = []
        self._is_done = True
        self._run = 0

    def begin(self) -> None:
        """Marks that the following steps are those of a restarted training."""
        self._before |= self._now
        while len(self._before) > KEPT_STEPS:
            del self._before[next(iter(self._before))]
        self._now, self._pairs = {}, []
        self._is_done = not self._before
        self._run = 0

    def feed(self, step: int | None, loss: float | None, run: int, at_s: float | None) -> list[StepFinding]:
        """Adds the loss of a step, and returns the result of the comparison once it is known.

        `run`: the run number in the log, which increases when a launcher restarts the training itself.
        """
        if run > self._run and self._now:
            self.begin()
        self._run = max(self._run, run)
        if step is None or loss is None:
            return []
        self._now.pop(step, None)
        self._now[step] = loss
        if len(self._now) > KEPT_STEPS:
            del self._now[next(iter(self._now))]
        if self._is_done:
            return []
        known = self._before.get(step)
        if known is not None:
            self._pairs.append((step, known, loss))
            if len(self._pairs) < COMPARED_STEPS:
                return []
        elif step <= max(self._before):
            return []  # the earlier attempt did not print this step
        return self.finish(at_s)

    def finish(self, at_s: float | None) -> list[StepFinding]:
        """Returns the result of the comparison over the steps so far, at the end of an attempt or of the
        repeated steps.
        """
        if self._is_done:
            return []
        self._is_done = True
        if not self._pairs:
            return []
        numbers = checked(self._pairs, self._before)
        words = resume_words(numbers)
        return [
            StepFinding(
                kind="resume-check",
                text=words.en,
                text_zh=words.zh,
                step=self._pairs[0][0],
                at_s=at_s,
                numbers=numbers,
            )
        ]


def checked(pairs: Sequence[tuple[int, float, float]], before: Mapping[int, float]) -> Numbers:
    """Judges the losses of repeated steps, and returns the numbers it rests on, with the result as `verdict`.

    `pairs`: (step, loss before the fault, loss after it). `before`: loss by step before the fault.
    """
    steps = [step for step, _, _ in pairs]
    apart = [after - earlier for _, earlier, after in pairs if isfinite(earlier) and isfinite(after)]
    broken = [step for step, earlier, after in pairs if isfinite(earlier) != isfinite(after)]
    scatter = scatter_of(before)
    largest = max((abs(one) for one in apart), default=0.0)
    shift = median(apart) if apart else 0.0
    found: Numbers = {
        "first": steps[0],
        "last": steps[-1],
        "steps": len(steps),
        "largest": largest,
        "shift": shift,
    }
    if scatter is not None:
        found["scatter"] = scatter
    if broken:
        return found | {"verdict": "different", "cause": "nan", "step": broken[0]}
    if not largest:
        return found | {"verdict": "exact"}
    level = median(abs(earlier) for _, earlier, _ in pairs if isfinite(earlier))
    limit = NOISE_RELATIVE * level if scatter is None else max(NOISE_SHARE * scatter, NOISE_RELATIVE * level)
    if median(abs(one) for one in apart) <= limit:
        return found | {"verdict": "noise"}
    same_side = sum((one > 0) == (shift > 0) for one in apart)
    is_shift = same_side >= ONE_SIDE_SHARE * len(apart) and abs(shift) > SHIFT_SCATTERS * (scatter or limit)
    found |= {"verdict": "different", "cause": "shift" if is_shift else "order"}
    like = _like(pairs, before, scatter) if is_shift else None
    return found | ({"like": like} if like is not None else {})


def scatter_of(before: Mapping[int, float]) -> float | None:
    """Returns the robust standard deviation of the loss between steps before the fault; None if too few are
    known.
    """
    values = [before[step] for step in sorted(before)[-SCATTER_STEPS:] if isfinite(before[step])]
    if len(values) < SCATTER_MIN:
        return None
    changes = [later - earlier for earlier, later in zip(values, values[1:], strict=False)]
    middle = median(changes)
    return float(1.4826 * median(abs(change - middle) for change in changes) / 2**0.5)


def resume_words(numbers: Mapping[str, object]) -> Words:
    """Describes the result of the comparison in English and Chinese, from the numbers of the finding."""
    first, last = numbers.get("first"), numbers.get("last")
    steps = numbers.get("steps")
    count = int(steps) if isinstance(steps, int | float) else 0
    en = f"step {first}" if first == last else f"steps {first} to {last}"
    zh = f"第 {first} 步" if first == last else f"第 {first} 至 {last} 步"
    match numbers.get("verdict"):
        case "exact":
            return Words(
                en=f"Resumed exactly: {counted(count, 'repeated step')}, {en}, with the same losses in all digits",
                zh=f"精确恢复：重复的 {count} 步（{zh}）损失逐位相同",
            )
        case "noise":
            much = _number(numbers.get("largest"))
            beside = _number(numbers.get("scatter"))
            return Words(
                en=f"Resumed within noise: the losses of {en} differ by at most {much} from those before the fault"
                + (f"; from step to step they scatter by {beside}" if beside else ""),
                zh=f"在噪声范围内恢复：{zh}的损失与故障前相差至多 {much}"
                + (f"，逐步波动为 {beside}" if beside else ""),
            )
        case _:
            cause = _cause(numbers)
            return Words(
                en=f"Not the same after the restart: {en}: {cause.en}", zh=f"恢复后不一致：{zh}：{cause.zh}"
            )


def _cause(numbers: Mapping[str, object]) -> Words:
    if numbers.get("cause") == "nan":
        step = numbers.get("step")
        return Words(
            en=f"the loss of step {step} is a finite number only before or only after the restart",
            zh=f"第 {step} 步的损失只在重启前或只在重启后是有限数",
        )
    shift = numbers.get("shift")
    much = _number(abs(shift) if isinstance(shift, int | float) else None)
    if numbers.get("cause") == "shift":
        higher = isinstance(shift, int | float) and shift > 0
        like = numbers.get("like")
        return Words(
            en=f"the losses are {much} {'higher' if higher else 'lower'} than before the fault"
            + (f", and equal the losses of step {like}" if like is not None else "")
            + ": weights or optimizer are of another step than the step counter",
            zh=f"损失比故障前{'高' if higher else '低'} {much}"
            + (f"，与第 {like} 步相近" if like is not None else "")
            + "：权重或优化器状态与步数不符",
        )
    largest = _number(numbers.get("largest"))
    return Words(
        en=f"the losses differ by up to {largest}, to both sides: other data or another random state than before",
        zh=f"损失上下相差至多 {largest}：数据顺序或随机状态与之前不同",
    )


def _like(
    pairs: Iterable[tuple[int, float, float]], before: Mapping[int, float], scatter: float | None
) -> int | None:
    """Returns the earlier step whose losses are closest to those after the restart; None if none is close."""
    level = median([after for _, _, after in pairs][:3])
    steps = [step for step in sorted(before) if isfinite(before[step])]
    if len(steps) < SCATTER_MIN:
        return None
    smooth = {
        step: median(before[near] for near in steps[max(0, at - 1) : at + 2]) for at, step in enumerate(steps)
    }
    nearest = min(steps, key=lambda step: abs(smooth[step] - level))
    return nearest if abs(smooth[nearest] - level) <= SHIFT_SCATTERS * (scatter or 0.0) else None


def _number(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, int | float) else ""
