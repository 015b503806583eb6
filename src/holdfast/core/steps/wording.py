"""Describes slowdowns of training steps in English and Chinese. Pure."""

from holdfast.model.steps import Slowdown, SlowdownKind, StepFinding


def duration(value_s: float) -> str:
    """Formats a step time: "92.3 ms", "3.10 s"."""
    if value_s < 1:
        return f"{value_s * 1000:.1f} ms"
    return f"{value_s:.2f} s" if value_s < 100 else f"{value_s:.0f} s"


def percent(ratio: float) -> str:
    """Formats an increase: "+14 %"; "× 3.2" for a ratio of 3 or more."""
    return f"× {ratio:.1f}" if ratio >= 3 else f"{(ratio - 1) * 100:+.0f} %"


WHAT_ZH = {"everyone": "所有 rank", "data": "数据读取", "checkpoint": "保存检查点", "evaluation": "评估"}
_KIND = {
    "lasting": ("Steps have become slower", "训练步变慢"),
    "transient": ("Steps were slower for a while", "训练步一度变慢"),
    "ramp": ("Steps have become slower gradually", "训练步逐渐变慢"),
    "slow-start": ("The run began slow and became faster later", "任务开始阶段较慢，之后变快"),
    "repeated": ("Steps are slower in stretches that come and go", "训练步反复变慢又恢复"),
}


def explain(
    kind: SlowdownKind,
    what: str,
    first: int | None,
    last: int | None,
    before_s: float,
    after_s: float,
    cost_gpu_hours: float | None,
    *,
    ranks_known: bool,
    restarted: bool = False,
    stretches: int = 1,
) -> tuple[str, str]:
    """Returns a description of a slowdown in English and Chinese: what, since when, how much, which rank, and
    the cost.
    """
    ratio = after_s / before_s if before_s > 0 else 1.0
    english, chinese = _KIND[kind]
    if restarted:
        english, chinese = "Since the restart steps are slower than in the run before", "重启后训练步比之前慢"
    since, since_zh = "", ""
    if first is not None and last is not None:
        since, since_zh = f", steps {first}-{last}", f"（第 {first}-{last} 步）"
    elif first is not None:
        since, since_zh = f" since step {first}", f"（自第 {first} 步起）"
    if kind == "repeated" and stretches > 1:
        since, since_zh = f"{since}, {stretches} times", f"{since_zh}，共 {stretches} 次"
    of, of_zh = _what(what)
    cost, cost_zh = "", ""
    if cost_gpu_hours is not None:
        unit, unit_zh = (
            ("GPU-hours", "GPU 小时") if ranks_known else ("hours for each GPU", "小时（每个 GPU）")
        )
        amount = f"{cost_gpu_hours:.2f}" if cost_gpu_hours >= 0.1 else f"{cost_gpu_hours:.2g}"
        cost, cost_zh = f"; cost so far: {amount} {unit}", f"；目前损失 {amount} {unit_zh}"
    times = f"{duration(before_s)} -> {duration(after_s)} ({percent(ratio)})"
    return f"{english}{since}: {times}; {of}{cost}", f"{chinese}{since_zh}：{times}；{of_zh}{cost_zh}"


def explain_pause(
    kind: str, first: int, before_s: float, after_s: float, cost_gpu_hours: float, *, ranks_known: bool
) -> tuple[str, str]:
    """Returns a description, in English and Chinese, of a slowdown in which only the pauses of one kind take
    longer.
    """
    cost, cost_zh = _cost(cost_gpu_hours, ranks_known=ranks_known)
    times = f"{duration(before_s)} -> {duration(after_s)} ({percent(after_s / before_s)})"
    return (
        f"Only {kind}s take longer since step {first}: {times}{cost}",
        f"自第 {first} 步起仅{WHAT_ZH.get(kind, kind)}变慢：{times}{cost_zh}",
    )


def _cost(gpu_hours: float | None, *, ranks_known: bool) -> tuple[str, str]:
    if gpu_hours is None:
        return "", ""
    unit, unit_zh = ("GPU-hours", "GPU 小时") if ranks_known else ("hours for each GPU", "小时（每个 GPU）")
    amount = f"{gpu_hours:.2f}" if gpu_hours >= 0.1 else f"{gpu_hours:.2g}"
    return f"; cost so far: {amount} {unit}", f"；目前损失 {amount} {unit_zh}"


def _what(what: str) -> tuple[str, str]:
    match what:
        case "everyone":
            return "every step is slower, not only pauses", "每一步都变慢，不仅是停顿"
        case "data":
            return "waiting for data takes longer", "变长的是等待数据的时间"
        case _:
            return what, WHAT_ZH.get(what, what)


def slower(slowdown: Slowdown, step: int | None, at_s: float | None, sure: float) -> StepFinding:
    """Returns a sentence saying that steps have become slower, and by how much."""
    return StepFinding(
        kind="slowdown",
        text=slowdown.explanation,
        text_zh=slowdown.explanation_zh,
        step=step,
        at_s=at_s,
        numbers={
            "before_s": slowdown.before_s,
            "after_s": slowdown.after_s,
            "ratio": slowdown.ratio,
            "limit": sure,
            "first_step": slowdown.first_step if slowdown.first_step is not None else -1,
            "what": slowdown.what,
        },
    )


def over(
    slowdown: Slowdown, step: int | None, at_s: float | None, now_s: float, *, ranks_known: bool
) -> StepFinding:
    """Returns the finding that steps are fast again. `now_s`: the present step time."""
    first, last = slowdown.first_step, slowdown.last_step
    cost, cost_zh = "", ""
    if slowdown.cost_gpu_hours is not None:
        unit, unit_zh = (
            ("GPU-hours", "GPU 小时") if ranks_known else ("hours for each GPU", "小时（每个 GPU）")
        )
        cost = f"; it cost {slowdown.cost_gpu_hours:.2g} {unit}"
        cost_zh = f"；共损失 {slowdown.cost_gpu_hours:.2g} {unit_zh}"
    return StepFinding(
        kind="slowdown-over",
        text=f"Steps are as fast as before again: {duration(now_s)}; slow were steps {first}-{last}{cost}",
        text_zh=f"训练步已恢复正常：{duration(now_s)}；第 {first}-{last} 步较慢{cost_zh}",
        step=step,
        at_s=at_s,
        numbers={"before_s": slowdown.before_s, "after_s": slowdown.after_s, "now_s": now_s},
    )


def stands(step: int | None, quiet_s: float, lines: int, at_s: float) -> StepFinding:
    """Returns the finding that the step counter has stopped while log lines continue."""
    return StepFinding(
        kind="step-stands",
        text=f"No step for {quiet_s:.0f} s, the last was {step}; {lines} other lines were logged since",
        text_zh=f"已 {quiet_s:.0f} 秒没有新的训练步，最后一步为 {step}；其间仍有 {lines} 行输出",
        step=step,
        at_s=at_s,
        numbers={"quiet_s": quiet_s, "lines": lines},
    )
