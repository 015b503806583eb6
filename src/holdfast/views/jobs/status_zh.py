"""Translates the rows of `holdfast status` into Chinese. Pure.

The rows are made in English; texts without a translation stay as they are.
"""

import re
from collections.abc import Iterable

from holdfast.late_pattern import late
from holdfast.model.signatures import Words
from holdfast.views.phase_zh import phase_zh
from holdfast.views.sentence import sentence_zh

NAMES = {
    "job": "作业",
    "phase": "阶段",
    "attempt": "尝试",
    "step": "步数",
    "step time": "步时",
    "eta": "剩余时间",
    "slowdown": "变慢",
    "straggler": "慢 rank",
    "loss": "损失",
    "stands": "停滞",
    "restarts": "重启",
    "incident": "故障",
    "verdict": "结论",
    "ranks": "rank",
    "nodes": "节点",
    "folder": "目录",
    "holdfast": "holdfast",
}
_VERDICT = late(r"incident (\d+): (.*) \(([\w-]+), (\d+%) sure\)(.*)")
_OPEN = late(r"(\d+), since (\S+ \S+): (.*)")
# By the name of the row: what is replaced, in this order.
_PARTS: dict[str, tuple[tuple[re.Pattern[str], str], ...]] = {
    "attempt": ((late(r"(\d+), since (.+)"), r"第 \1 次，自 \2 起"),),
    "step": ((late(r"^none yet"), "日志尚未给出步数"), (late(r"^(\d+) of (\d+)"), r"\1 / \2")),
    "step time": (
        (late(r"\bnow "), "当前 "),
        (late(r"\bmedian "), "中位 "),
        (late(r"\bbest "), "最好 "),
    ),
    "eta": ((late(r"(.+) at this pace"), r"按当前速度 \1"),),
    "slowdown": ((late(r"^none found$"), "未发现"),),
    "straggler": ((late(r"^none found$"), "未发现"),),
    "restarts": (
        (late(r", none allowed;"), "（不允许重启）；"),
        (late(r"^(\d+) of (\d+);"), r"\1（最多 \2）；"),
        (late(r" reschedules caused by hardware: "), "硬件引起的重调度："),
        (late(r"; workers replaced: "), "；替换的 worker："),
    ),
    "incident": (
        (late(r"^none so far$"), "至今没有"),
        (late(r"^none open; (\d+) so far"), r"无未恢复的故障；共 \1 次"),
        (late(r", the last one ended after (\S+?)(?=,|$)"), r"，最近一次用时 \1"),
        (late(r", (\d+) steps? lost"), r"，损失 \1 步"),
    ),
    "verdict": ((late(r"^none so far$"), "至今没有"),),
    "ranks": (
        (late(r"\bended with "), "已结束，退出码 "),
        (late(r"\bgone\b"), "已消失"),
        (late(r" and (\d+) more$"), r" 等，另有 \1 个"),
        (late(r"^none known$"), "未知"),
    ),
    "nodes": (
        (late(r"^isolated: "), "已隔离："),
        (late(r"; lost: "), "；已失联："),
        (late(r"^lost: "), "已失联："),
    ),
}


def rows_zh(rows: Iterable[tuple[str, str]], title: Words | None = None) -> list[tuple[str, str]]:
    """Returns the rows in Chinese. `title`: title of the last verdict, which several rows contain."""
    return [(NAMES.get(name, name), _text(name, text, title)) for name, text in rows]


def _text(name: str, text: str, title: Words | None) -> str:
    if name == "phase":
        return phase_zh(text, title)
    if name == "verdict" and (found := _VERDICT.fullmatch(text)):
        return _verdict(found, title)
    if name == "incident" and (found := _OPEN.fullmatch(text)):
        return f"第 {found[1]} 次，自 {found[2]} 起：{sentence_zh(found[3])}"
    for pattern, chinese in _PARTS.get(name, ()):
        text = pattern.sub(chinese, text)
    return text


def _verdict(found: re.Match[str], title: Words | None) -> str:
    number, english, category, share, rest = found.groups()
    chinese = title.zh if title is not None and title.en == english and title.zh else sentence_zh(english)
    rest = rest.replace("; culprit: ", "；责任方：").replace("; first error: ", "；首个错误：")
    return f"第 {number} 次故障：{chinese}（{category}，置信度 {share}）{rest}"
