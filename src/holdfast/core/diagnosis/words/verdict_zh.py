"""Translates the sentences of a verdict into Chinese. Pure.

A journal stores them in English only, so they are recognised by their English text.
"""

import re
from collections.abc import Callable

from msgspec.structs import replace

from holdfast.core.diagnosis.words.meanings import meaning_of
from holdfast.core.flight.words import DOES
from holdfast.core.verdict.categories import ADVICE, ADVICE_ZH
from holdfast.late_pattern import late
from holdfast.model.diagnoses import Diagnosis
from holdfast.model.signatures import Words

WHO = r"(?:ranks? \d[\d, .]*\d|ranks? \d|ranks? [\d, ]+, \.\.\.|a process|the command)"
CODE = r"(?:code -?\d+|an unknown code|signal \d+|SIG\w+)"
PLACE = r"\S+?(?::\d+)? in \S+|\S+?:\d+"
# Of the whole sentence: what was raised, and what could not be started, can hold any words.
WHOLE = (
    (rf"(?P<who>{WHO}) raised (?P<what>.*?) at (?P<at>[\w.<>-]+:\d+)", "{who} 抛出 {what}，位于 {at}"),
    (rf"(?P<who>{WHO}) raised (?P<what>.*)", "{who} 抛出 {what}"),
    (r"the command could not be started(?:: (?P<what>.*))?", "命令无法启动{:what}"),
    (r"node (?P<what>.*) is gone", "节点 {what} 已失联"),
    (r"device fault: (?P<what>.*)", "设备故障：{what}"),
    (
        r"(?P<what>.*)\. Both passed: the training code is the likely cause",
        "{what}。两项检查均通过，问题很可能在训练代码",
    ),
)
FOR = r"for (?P<for>\d+) s \((?P<allowed>\d+) s allowed\)"
QUIET = "已持续 {for} s（上限 {allowed} s）"
# Of what stands between semicolons.
PARTS = (
    (r"nothing explains it", "现有信息无法解释"),
    (r"nothing says why", "未见原因"),
    (r"the sender is unknown", "未见是谁所为"),
    (r"the job was asked to stop", "作业被要求停止"),
    (r"the job was ended on request", "作业按要求结束"),
    (r"nothing is wrong with it", "作业本身没有问题"),
    (r"nothing is wrong: the command ended with code 0", "没有问题：命令以退出码 0 结束"),
    (r"the job hangs \((?P<what>[\w-]+)\)", "作业挂起（{what}）"),
    (r"the node no longer answers", "节点不再应答"),
    (r"the device reported a fault", "设备报告了故障"),
    (r"the kernel killed for memory", "内核因内存不足终止了进程"),
    (
        r"the host ran out of memory, and the kernel's OOM killer killed it",
        "主机内存不足，被内核 OOM killer 终止",
    ),
    (r"no exception was found", "未发现异常信息"),
    (r"followed", "随后发生"),
    (r"the command could not be run \(code (?P<what>\d+)\)", "命令无法执行（退出码 {what}）"),
    (
        rf"(?P<who>{WHO}) (?:was|were) (?:killed|ended) by (?P<signal>SIG\w+|signal \d+)(?:: (?P<why>.*))?",
        "{who} 被 {signal} 终止{:why}",
    ),
    (
        rf"(?P<who>{WHO}) ha(?:s|ve) ended with code 0 while (?P<others>{WHO}) waits? in a collective",
        "{who} 以退出码 0 结束，而 {others} 仍在集合通信中等待",
    ),
    (rf"(?P<who>{WHO}) ended with (?P<code>{CODE})(?:: (?P<why>.*))?", "{who} 以{code} 结束{:why}"),
    (r"the memory limit of its cgroup was reached", "达到其 cgroup 的内存上限"),
    (r"the host ran out of memory", "主机内存耗尽"),
    (r"the disk it prints to is full \((?P<what>.*)\)", "其输出所在的磁盘已满（{what}）"),
    (
        rf"(?P<who>{WHO}) left by (?:itself|themselves), and others still needed (?:it|them)",
        "{who} 自行退出，而其他 rank 仍需要它",
    ),
    (
        rf"(?P<who>{WHO}) (?:is|are) stopped \(state T\): a SIGSTOP, or a job control stop",
        "{who} 被暂停（状态 T）：SIGSTOP 或作业控制",
    ),
    (
        rf"(?P<who>{WHO}) ended, (?P<others>{WHO}) lives? on with no progress for (?P<for>\d+) s",
        "{who} 已结束，{others} 仍在运行，{for} s 内没有进展",
    ),
    (
        rf"no step, no log line, no I/O and no CPU in any rank {FOR}",
        f"所有 rank 均无 step、日志、I/O 与 CPU 活动，{QUIET}",
    ),
    (rf"no step, no log line and no I/O {FOR}", f"没有 step、日志与 I/O，{QUIET}"),
    (rf"every rank waits in a collective, none has moved {FOR}", f"所有 rank 都在集合通信中等待，{QUIET}"),
    (
        rf"(?P<who>{WHO}) blocked in I/O \(state D\), no progress anywhere {FOR}",
        f"{{who}} 阻塞在 I/O（状态 D），各处均无进展，{QUIET}",
    ),
    (
        rf"only (?P<who>{WHO}) runs?, with no step, log line or I/O in any rank {FOR}",
        f"只有 {{who}} 在运行，所有 rank 均无 step、日志与 I/O，{QUIET}",
    ),
    (
        rf"(?P<who>{WHO}) waits? in a collective for (?P<others>{WHO}), with no step, log line or I/O {FOR}",
        f"{{who}} 在集合通信中等待 {{others}}，无 step、日志与 I/O，{QUIET}",
    ),
    (
        r"(?P<many>\d+) ranks? waits? for (?:it|them) in (?P<what>[^()]+?)(?: \((?P<at>.*)\))?",
        "{many} 个 rank 在 {what} 中等待{(at}",
    ),
    (r"(?P<many>\d+) ranks? waits?(?: in (?P<what>[^()]+?) \((?P<at>.*)\))?", "{many} 个 rank 在等待{(at}"),
    (
        rf"(?P<who>{WHO}) (?P<does>{'|'.join([*(en for en, _ in DOES.values()), 'sleeps', 'runs', 'is blocked', 'is traced'])})"
        rf"(?: at (?P<at>{PLACE}))?(?: \((?P<channel>\w+)\))?",
        "{who} {does}{,at}{(channel}",
    ),
)
DOES_ZH = {
    **dict(DOES.values()),
    "sleeps": "在休眠",
    "runs": "正在运行",
    "is blocked": "被阻塞",
    "is traced": "被跟踪",
    "is": "",
}
FIELD = late(r"\{(?P<before>[:,(]?)(?P<name>\w+)\}")
SPACES = late(r"(?<=[\u4e00-\u9fff]) (?=[\u4e00-\u9fff])")
BEFORE = {":": ("：", ""), ",": ("，位于 ", ""), "(": ("（", "）"), "": ("", "")}


def diagnosis_zh(found: Diagnosis) -> Diagnosis:
    """Returns the diagnosis with its sentences in Chinese; an unknown title is preceded by the meaning of
    the category.
    """
    title, meaning = found.title, meaning_of(found.category)
    if title.zh == title.en:
        title = Words(en=title.en, zh=in_chinese(title.en) or f"{meaning.zh}：{title.en}")
    facts = [
        replace(fact, says=Words(en=fact.says.en, zh=in_chinese(fact.says.en) or fact.says.zh))
        if fact.says.zh == fact.says.en
        else fact
        for fact in found.evidence
    ]
    advice = (
        Words(en=found.advice.en, zh=advice_zh(found.advice.en))
        if found.advice.zh == found.advice.en
        else found.advice
    )
    return replace(found, title=title, advice=advice, evidence=tuple(facts))


def in_chinese(sentence: str) -> str | None:
    """Returns a title or an explanation of a line in Chinese; None if a part of it is unknown."""
    for pattern, text in WHOLE:
        if found := re.fullmatch(pattern, sentence, re.DOTALL):
            what = found.groupdict().get("what")
            inner = in_chinese(what) if what and "Both passed" in sentence else what
            return _filled(text, {**found.groupdict(), "what": inner or what})
    parts = [_part(part) for part in sentence.split("; ")]
    return None if None in parts else "；".join(part for part in parts if part is not None)


def advice_zh(advice: str) -> str:
    """Returns an advice in Chinese; unchanged if it is not one of Holdfast's texts."""
    return next((ADVICE_ZH[key] for key, english in ADVICE.items() if english == advice), advice)


def _part(sentence: str) -> str | None:
    for pattern, text in PARTS:
        if found := re.fullmatch(pattern, sentence):
            return _filled(text, found.groupdict())
    return None


def _filled(text: str, known: dict[str, str | None]) -> str:
    """Returns a template with `{who}` filled in.

    `{:why}` is filled with its prefix, or removed if there is no value.
    """

    def put(field: re.Match[str]) -> str:
        value = known.get(field["name"])
        if not value:
            return ""
        before, after = BEFORE[field["before"]]
        return f"{before}{TURNED.get(field['name'], str)(value)}{after}"

    return SPACES.sub("", FIELD.sub(put, text))


def _who(text: str) -> str:
    return {"a process": "一个进程", "the command": "命令"}.get(text) or text.replace("ranks ", "rank ")


def _code(text: str) -> str:
    if text == "an unknown code":
        return "未知退出码"
    return f"退出码 {text[5:]}" if text.startswith("code ") else f"信号 {text.removeprefix('signal ')}"


TURNED: dict[str, Callable[[str], str]] = {
    "who": _who,
    "others": _who,
    "code": _code,
    "does": lambda text: DOES_ZH.get(text, text),
    "why": lambda text: in_chinese(text) or text,
}
