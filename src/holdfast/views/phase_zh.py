"""Translates the words about a job's phase, and the reason of its end, into Chinese. Pure.

A journal has them in English only, so they are recognised by their English text; unknown text stays
unchanged.
"""

from holdfast.late_pattern import late
from holdfast.model.signatures import Words
from holdfast.views.sentence import sentence_zh

_PHASES = (
    (
        late(r"succeeded: the command ended (?:with code 0|well) in every worker"),
        "成功：所有 worker 的命令都正常结束",
    ),
    (late(r"failed with exit code (-?\d+): (.*)"), "失败，退出码 {0}：{1}"),
    (late(r"failed: (.*); the processes are kept for inspection"), "失败：{0}；进程已保留供检查"),
    (late(r"was stopped with exit code (-?\d+): (.*)"), "已停止，退出码 {0}：{1}"),
    (late(r"ending: (.*)"), "正在结束：{0}"),
    (late(r"training, step (\d+)"), "训练中，第 {0} 步"),
    (late(r"training"), "训练中"),
    (late(r"running; its log has named no step yet"), "运行中；日志尚未给出步数"),
    (late(r"placing the workers of attempt (\d+)"), "正在为第 {0} 次尝试安排 worker"),
    (late(r"waiting for a healthy node for attempt (\d+)"), "第 {0} 次尝试正在等待健康节点"),
    (late(r"diagnosing why attempt (\d+) failed"), "正在定位第 {0} 次尝试失败的原因"),
    (late(r"ending what is left of attempt (\d+)"), "正在结束第 {0} 次尝试的剩余进程"),
    (late(r"started again after incident (\d+), no step yet"), "第 {0} 次故障后已重新启动，尚无步数"),
)
_CLAUSES = (
    (", and automatic restart is off (--policy holdfast turns it on)", "，未启用自动重启（--policy holdfast 可启用）"),
    (", and restart on such an exit is off (--unconditional-restart)", "，此类退出不重启（--unconditional-restart）"),
    (", and no restart is allowed (--max-restarts is not set)", "，未允许重启（未设置 --max-restarts）"),
)  # fmt: skip


def phase_zh(words: str, title: Words | None = None) -> str:
    """Translates the words about a job's phase into Chinese; returns unknown words unchanged.

    `title`: title of the verdict, which the reason of a job's end may contain.
    """
    for pattern, text in _PHASES:
        if found := pattern.fullmatch(words):
            return text.format(*(reason_zh(part, title) for part in found.groups()))
    return words


def reason_zh(text: str, title: Words | None = None) -> str:
    """Returns the reason of a job's end in Chinese; unchanged if it is unknown."""
    for english, chinese in _CLAUSES:
        if text.endswith(english):
            return reason_zh(text.removesuffix(english), title) + chinese
    if title is not None and text == title.en:
        return title.zh
    return sentence_zh(text)
