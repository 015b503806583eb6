"""Builds the texts of a notification: the one-sentence summary, a title and the rows of a card, in both languages.
Pure.
"""

from datetime import tzinfo

from msgspec.structs import replace

from holdfast.core.diagnosis.words.verdict_zh import in_chinese
from holdfast.core.job.story import IncidentStory, Summary
from holdfast.core.job.wording import culprit_words
from holdfast.core.notify.happenings import Happening
from holdfast.model.documents.notices import Notice, NoticeEvent
from holdfast.model.documents.parts import Sentence, Tone, Who
from holdfast.model.signatures import Words
from holdfast.model.verdicts import Culprit
from holdfast.parsers.log_lines.secrets import masked
from holdfast.views.jobs.costs import cost_of
from holdfast.views.jobs.incident import advice_words, title_words
from holdfast.views.jobs.rows import incident_row, job_row
from holdfast.views.jobs.seen import Seen
from holdfast.views.sentence import clean, span
from holdfast.views.state_sentence import NAME_OF_JOB_MAX

WHO_MAX = 3
FACT_CHARS_MAX = 400
TEXT_MAX = 150
TITLES: dict[NoticeEvent, Words] = {
    "incident": Words(en="incident", zh="故障"),
    "hang": Words(en="hang", zh="训练挂起"),
    "verdict": Words(en="cause found", zh="已定位原因"),
    "recovered": Words(en="recovered", zh="已恢复"),
    "failed": Words(en="failed", zh="作业失败"),
    "waiting-for-node": Words(en="waits for a node", zh="等待节点"),
    "no-spare": Words(en="no healthy node left", zh="无可用节点"),
    "isolation": Words(en="node isolated", zh="节点已隔离"),
    "budget-low": Words(en="restarts nearly used up", zh="重启次数即将用尽"),
    "slowdown": Words(en="slower", zh="训练变慢"),
    "straggler": Words(en="slow rank", zh="慢节点"),
    "loss": Words(en="loss is abnormal", zh="loss 异常"),
    "checkpoint-old": Words(en="checkpoint too old", zh="检查点过旧"),
    "log-silence": Words(en="no output", zh="日志无输出"),
    "unsupervised": Words(en="supervisor gone", zh="监护进程已退出"),
    "job-started": Words(en="started", zh="已启动"),
    "job-done": Words(en="ended", zh="已结束"),
}
HAVE_AN_END: frozenset[NoticeEvent] = frozenset(
    {"slowdown", "straggler", "waiting-for-node", "log-silence", "checkpoint-old", "unsupervised"}
)
TONES: dict[str, Tone] = {"info": "neutral", "warning": "trouble", "critical": "lost"}
CAUSE, WHO, ACTION, COST, ADVICE = (
    Words(en="cause", zh="原因"),
    Words(en="who", zh="定位"),
    Words(en="action", zh="处置"),
    Words(en="cost", zh="损失"),
    Words(en="advice", zh="建议"),
)


def notice(
    happening: Happening,
    version: int,
    summary: Summary,
    seen: Seen,
    *,
    link: str = "",
    zone: tzinfo | None = None,
) -> Notice:
    """Returns one version of a notification, from the job's state after the event.

    The id contains the job's start time, because a receiver may serve clusters with jobs of the same name.
    """
    story = next((one for one in summary.incidents if one.number == happening.incident), None)
    name = clean(seen.name, NAME_OF_JOB_MAX)
    title = TITLES[happening.event]
    end = (
        Words(en=": over", zh="：已结束") if happening.is_over and _began(happening) else Words(en="", zh="")
    )
    row = incident_row(story, summary, seen, zone) if story is not None else None
    return Notice(
        id=f"{seen.id}-{int(summary.submitted_at_s or 0.0)}/{happening.key}",
        version=version,
        event=happening.event,
        severity=happening.severity,
        at_s=happening.at_s,
        job=seen.name,
        sentence=_without_secrets(
            row.sentence if row is not None else _sentence(happening, summary, seen, zone)
        ),
        title=Words(en=f"{name}: {title.en}{end.en}", zh=f"{name}：{title.zh}{end.zh}"),
        facts=_facts(story, summary, row.who if row is not None else ()),
        incident=happening.incident,
        category=row.category if row is not None else "",
        cause=row.cause if row is not None else "",
        labels=seen.labels,
        link=link,
        is_milestone=happening.is_milestone,
        is_over=happening.is_over,
    )


def _without_secrets(sentence: Sentence) -> Sentence:
    text = sentence.text
    return replace(sentence, text=Words(en=masked(text.en), zh=masked(text.zh)))


def _began(happening: Happening) -> bool:
    """Returns True if the event ends a condition about which an earlier notification was sent."""
    return happening.event in HAVE_AN_END


def _sentence(happening: Happening, summary: Summary, seen: Seen, zone: tzinfo | None) -> Sentence:
    from_text = clean(masked(happening.text), TEXT_MAX)
    from_zh = clean(masked(happening.text_zh), TEXT_MAX) or from_text
    if happening.event == "isolation":
        words = Words(
            en=f"{from_text} is isolated: Holdfast places no attempt on it.",
            zh=f"{from_text} 已隔离，不再放置任务。",
        )
    elif happening.event == "budget-low":
        words = Words(en=f"{from_text} restarts used.", zh=f"重启次数已用 {from_text.replace(' of ', '/')}。")
    elif from_text:
        words = Words(en=from_text, zh=from_zh)
    else:
        return job_row(summary, seen, zone).sentence
    tone = TONES[happening.severity]
    return Sentence(text=words, tone=tone, to_do=happening.severity == "critical")


def _facts(
    story: IncidentStory | None, summary: Summary, who: tuple[Who, ...]
) -> tuple[tuple[Words, Words], ...]:
    if story is None:
        return ()
    rows: list[tuple[Words, Words]] = []
    verdict = story.verdict
    if verdict is not None:
        sure = f"{verdict.confidence:.0%}"
        title = _cut(title_words(verdict, story))
        en, zh = (
            f"{title.en} ({verdict.category}, {sure} sure)",
            f"{title.zh}（{verdict.category}，置信度 {sure}）",
        )
        rows.append((CAUSE, Words(en=en, zh=zh)))
    if who:
        names = "; ".join(culprit_words(_culprit(one)) for one in who[:WHO_MAX])
        more = f" +{len(who) - WHO_MAX}" if len(who) > WHO_MAX else ""
        rows.append((WHO, Words(en=names + more, zh=names + more)))
    if story.rungs:
        why = story.rungs[-1].why
        rows.append((ACTION, _cut(Words(en=why, zh=in_chinese(why) or why))))
    cost = cost_of(story, summary.devices)
    if cost is not None:
        lost = span(cost.lost_s)
        hours = f" × {cost.devices} = {cost.device_hours:.2g} GPU·h" if cost.devices else ""
        rows.append((COST, Words(en=lost.en + hours, zh=lost.zh + hours)))
    advice = advice_words(verdict)
    if advice is not None:
        rows.append((ADVICE, _cut(advice)))
    return tuple(rows)


def _culprit(who: Who) -> Culprit:
    return Culprit(rank=who.rank, worker=who.worker, host=who.node, device=who.device)


def _cut(words: Words) -> Words:
    return Words(en=clean(masked(words.en), FACT_CHARS_MAX), zh=clean(masked(words.zh), FACT_CHARS_MAX))
