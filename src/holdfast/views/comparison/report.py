"""Formats a comparison of runs as lines in both languages, and as a JSON document. Does not print."""

from math import isfinite
from typing import Any

import msgspec

from holdfast.core.plurals import counted
from holdfast.model.runs.comparison import (
    Cause,
    Compared,
    Comparison,
    FactDifference,
    Measure,
    Parting,
    RunSummary,
    Speed,
)
from holdfast.parsers.log_lines.secrets import masked
from holdfast.views.languages import Language
from holdfast.views.lines import Line

FACTS_SHOWN = 30
VALUE_CHARACTERS = 48
MEASURES: dict[Language, dict[Measure, str]] = {
    "en": {"loss": "loss", "grad_norm": "gradient norm", "learning_rate": "learning rate", "data": "data"},
    "zh": {"loss": "损失", "grad_norm": "梯度范数", "learning_rate": "学习率", "data": "数据"},
}
CAUSES: dict[Language, dict[Cause, str]] = {
    "en": {
        "data": "The data of this step differ: another order, another data set, or another seed of the sampler.",
        "learning-rate": "The learning rate of this step differs: its schedule, the number of steps, or a setting.",
        "ranks": "Only some ranks differ first: compare their data, their devices and their memory.",
        "backward": "The loss of this step is equal, the gradient norm is not: the difference arises in the backward "
        "pass or in the reduction of gradients.",
        "start": "The runs differ from their first common step on: initial weights, seed, data or precision.",
        "event": "The runs are equal up to this step. One event at or before it differs: the data of one step, the "
        "order of additions in a kernel, or a damaged value.",
    },
    "zh": {
        "data": "该步的数据不同：顺序、数据集或采样器的随机种子不同。",
        "learning-rate": "该步的学习率不同：学习率计划、总步数或某项设置不同。",
        "ranks": "只有部分 rank 最先不同：请比较它们的数据、设备和内存。",
        "backward": "该步损失相同而梯度范数不同：差异产生于反向传播或梯度归约。",
        "start": "两次运行从第一个共同步起就不同：初始权重、随机种子、数据或精度不同。",
        "event": "在该步之前两次运行相同；该步或之前有一处不同：某一步的数据、算子的累加顺序，或某个被损坏的值。",
    },
}
KINDS: dict[Language, dict[str, str]] = {
    "en": {},
    "zh": {
        "seed": "随机种子",
        "data": "数据",
        "version": "版本",
        "setting": "设置",
        "environment": "环境变量",
        "command": "命令",
        "node": "节点",
    },
}


def report(found: Comparison, language: Language = "en") -> list[Line]:
    """Returns the comparison as lines for the terminal: one section for each run, which is compared with the
    first.
    """
    lines = [line for one in found.others for line in (*_run(found.first, one, language), Line())]
    notes = dict.fromkeys((*found.notes, *(note for one in found.others for note in one.notes)))
    label = "注" if language == "zh" else "note"
    return [*lines, *(Line(f"{label}: {masked(note)}", "quiet") for note in notes)] if notes else lines[:-1]


def document(found: Comparison) -> dict[str, Any]:
    """Returns the JSON document (docs/compare.md). NaN and infinite values become texts."""
    built: dict[str, Any] = msgspec.to_builtins(found)
    for one, made in zip(found.others, built["others"], strict=True):
        made["step"] = one.step
        for parting in made["parted"]:
            for key in ("first", "other", "noise"):
                if isinstance(parting[key], float) and not isfinite(parting[key]):
                    parting[key] = str(parting[key])
    return built


def _run(first: RunSummary, one: Compared, language: Language) -> list[Line]:
    title = (
        f"{masked(one.run.name)} — {masked(first.name)}"
        if language == "zh"
        else f"{masked(one.run.name)} beside {masked(first.name)}"
    )
    lines = [Line(f"{title}: {_verdict(one, language)}", "strong")]
    lines += [Line(f"  {_parting(parting, language)}") for parting in one.parted]
    if one.ranks and one.ranks != one.run.ranks:
        ranks = ", ".join(map(str, one.ranks[:16]))
        lines.append(
            Line(f"  最先不同的 rank：{ranks}" if language == "zh" else f"  ranks that differ first: {ranks}")
        )
    if one.means:
        lines.append(Line(f"  {CAUSES[language][one.means]}"))
    if one.speed is not None:
        lines.append(Line(f"  {_speed(one.speed, language)}"))
    return [*lines, *_facts(one.facts, language)]


def _verdict(one: Compared, language: Language) -> str:
    zh = language == "zh"
    if not one.common:
        return "没有可比较的步" if zh else "no step can be compared"
    if not one.parted:
        return (
            f"{one.common} 个共同步全部相同" if zh else f"equal in all {counted(one.common, 'common step')}"
        )
    measures = MEASURES[language]
    names = [measures[parting.measure] for parting in one.parted if parting.step == one.step]
    if zh:
        return f"自第 {one.step} 步起不同（{'、'.join(names)}）"
    return f"different from step {one.step} on ({', '.join(names)})"


def _parting(one: Parting, language: Language) -> str:
    name = MEASURES[language][one.measure]
    noise = ""
    if one.noise:
        noise = (
            f"（重复运行间的噪声 {one.noise:.3g}）"
            if language == "zh"
            else f" (noise between repeats {one.noise:.3g})"
        )
    values = f"{_value(one.first)} -> {_value(one.other)}"
    return (
        f"{name}：第 {one.step} 步 {values}{noise}"
        if language == "zh"
        else f"{name}: step {one.step}, {values}{noise}"
    )


def _value(value: float | str | None) -> str:
    text = value if isinstance(value, str) else "-" if value is None else f"{value:.10g}"
    return text if len(text) <= VALUE_CHARACTERS else text[: VALUE_CHARACTERS - 3] + "..."


def _speed(one: Speed, language: Language) -> str:
    times = f"{one.first_s * 1000:.4g} ms -> {one.other_s * 1000:.4g} ms"
    if one.since is None:
        return f"步时间相近：{times}" if language == "zh" else f"step times are alike: {times}"
    percent = f"{one.ratio - 1:+.0%}"
    if language == "zh":
        return f"步时间：{times}（{percent}），自第 {one.since} 步起"
    return f"step times: {times} ({percent}), since step {one.since}"


def _facts(facts: tuple[FactDifference, ...], language: Language) -> list[Line]:
    if not facts:
        return []
    lines = [Line("  启动时的差异" if language == "zh" else "  different at the start", "quiet")]
    for one in facts[:FACTS_SHOWN]:
        kind = KINDS[language].get(one.kind, one.kind)
        lines.append(Line(f"    {kind:<12} {one.name}: {_value(one.first)} -> {_value(one.other)}"))
    if len(facts) > FACTS_SHOWN:
        more = len(facts) - FACTS_SHOWN
        lines.append(
            Line(f"    还有 {more} 项（--json）" if language == "zh" else f"    and {more} more (--json)")
        )
    return lines
