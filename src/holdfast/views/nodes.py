"""Formats the output of `holdfast nodes`: tables, a node's history, and the factors of a lemon score."""

from collections.abc import Iterator, Mapping, Sequence
from math import exp

from msgspec import Struct
from rich.cells import cell_len, set_cell_size

from holdfast.core.nodes.lemons import Judged, Score
from holdfast.core.plurals import counted
from holdfast.model.nodes.book import (
    AnyLine,
    CheckLine,
    DeviceLine,
    ExonerationLine,
    FindingLine,
    HeldBackLine,
    IncidentLine,
    Isolation,
    IsolationLine,
    LostLine,
    ReleaseLine,
    RepairLine,
    ReturnedLine,
    WarningLine,
)
from holdfast.settings.times import length, stamp
from holdfast.views.languages import Language
from holdfast.views.lines import Line

ROWS_MAX = 30
LINES_MAX = 25
WORTH_A_ROW = 0.05  # a node as likely a lemon as this is shown before others
_TEXT = {
    "en": {
        "node": "NODE",
        "state": "STATE",
        "lemon": "LEMON",
        "failures": "FAILURES",
        "hours": "HOURS",
        "last": "LAST",
        "isolated": "isolated",
        "in use": "",
        "sum": "nodes: {nodes}, isolated: {isolated}, likely lemons: {lemons}, in the last {span} ({folder})",
        "more": "and {count} more without findings; --all shows them",
        "none": "no node is recorded yet in {folder}; jobs record the nodes they use",
        "ago": "{time} ago",
        "now": "now",
        "reason": "since {since}, by {by}: {reason}",
        "fleet": (
            "Fleet: {nodes} nodes, {days:,.0f} node-days in use, {failures} failures, {attributed} "
            "attributed to nodes."
        ),
        "learned": "Estimated: a healthy node fails {base:.2f} times in 1,000 days, a lemon {factor:.0f} times as "
        "often; "
        "{share:.1%} are lemons; {attribution:.0%} of nodes' failures are attributed.",
        "together": "{count} more failures hit several jobs at once, and are attributed to no node.",
        "named": "LEMON, probably",
        "no lemons": "no node is likely a lemon",
        "few": "There are few failures, so the scores are based mostly on published figures of other fleets.",
        "score": "lemon       {posterior} ({span} at work, {attributed} failures its own, {shared} shared "
        "of which {likely:.1f} are probably its)",
        "why": "            odds {odds} = {terms}",
        "devices": "devices",
        "since": "since {since}",
        "prior": "any node",
        "exposure": "days in use",
        "attributed": "own failures",
        "shared": "shared failures",
    },
    "zh": {
        "node": "节点",
        "state": "状态",
        "lemon": "劣质概率",
        "failures": "故障",
        "hours": "小时",
        "last": "最近",
        "isolated": "已隔离",
        "in use": "",
        "sum": "最近 {days:.0f} 天：{nodes} 个节点，{isolated} 个已隔离，{lemons} 个很可能是劣质节点（{folder}）",
        "more": "另有 {count} 个节点无异常；--all 全部显示",
        "none": "{folder} 中尚无节点记录：训练运行时会写入",
        "ago": "{time} 前",
        "now": "刚刚",
        "reason": "自 {since} 起，由 {by} 隔离：{reason}",
        "fleet": "集群：{nodes} 个节点，{days:.0f} 节点·天，{failures} 次故障，其中 {attributed} 次已定位到节点。",
        "learned": "由数据学得：正常节点每千天故障 {base:.2f} 次，劣质节点为其 {factor:.0f} 倍；"
        "劣质节点占 {share:.1%}；节点故障中 {attribution:.0%} 已定位。",
        "together": "另有 {count} 次故障同时发生在多个任务上，不计入任何节点。",
        "named": "很可能是劣质节点",
        "no lemons": "没有很可能是劣质的节点",
        "few": "故障次数太少，结论主要依据其他集群的公开数据。",
        "score": "劣质概率    {posterior}（工作 {days:.0f} 天，自身故障 {attributed} 次，共担故障 {shared} 次，"
        "其中约 {likely:.1f} 次可能由它引起）",
        "why": "            赔率 {odds} = {terms}",
        "devices": "设备",
        "since": "自 {since}",
        "prior": "任一节点",
        "exposure": "工作天数",
        "attributed": "自身故障",
        "shared": "共担故障",
    },
}
FEW_FAILURES = 20


class NodeRow(Struct, frozen=True, kw_only=True):
    """One node in the list of nodes. `state`: "isolated", or empty."""

    node: str
    state: str
    lemon: float
    named: bool
    attributed: int
    likely_its: float
    hours: float
    last_at_s: float | None
    last: str


def node_rows(
    known: Mapping[str, float],
    isolated: Mapping[str, Isolation],
    judged: Judged,
    lines: Sequence[AnyLine],
) -> list[NodeRow]:
    """Returns the rows of the node list: isolated nodes first, then likely lemons, then those with the
    newest events.
    """
    scores = {score.node: score for score in judged.scores}
    last: dict[str, AnyLine] = {}
    for line in lines:
        is_news = not isinstance(line, DeviceLine) and not (
            isinstance(line, CheckLine) and line.status == "pass"
        )
        if line.node and is_news:
            last[line.node] = line
    names = {*known, *isolated}
    rows = [_row(name, name in isolated, scores.get(name), last.get(name)) for name in names]
    return sorted(
        rows, key=lambda row: (row.state == "", -round(row.lemon, 2), -(row.last_at_s or 0.0), row.node)
    )


def _row(name: str, isolated: bool, score: Score | None, last: AnyLine | None) -> NodeRow:
    return NodeRow(
        node=name,
        state="isolated" if isolated else "",
        lemon=score.posterior if score else 0.0,
        named=score.named if score else False,
        attributed=score.attributed if score else 0,
        likely_its=round(score.likely_its, 2) if score else 0.0,
        hours=round(score.days * 24, 1) if score else 0.0,
        last_at_s=last.at_s if last else None,
        last=words(last) if last else "",
    )


def node_list(
    rows: Sequence[NodeRow], language: Language, *, now_s: float, days: float, folder: str, every: bool
) -> Iterator[Line]:
    text = _TEXT[language]
    if not rows:
        yield Line(text["none"].format(folder=folder))
        return
    isolated = sum(row.state == "isolated" for row in rows)
    lemons = sum(row.named for row in rows)
    yield Line(
        text["sum"].format(
            nodes=len(rows),
            isolated=isolated,
            lemons=lemons,
            days=days,
            span=counted(round(days), "day"),
            folder=folder,
        ),
        "strong",
    )
    noteworthy = [row for row in rows if row.state or row.lemon >= WORTH_A_ROW or row.last]
    shown = list(rows) if every else noteworthy[:ROWS_MAX]
    table = [[text["node"], text["state"], text["lemon"], text["failures"], text["hours"], text["last"]]]
    for row in shown:
        ago = f"{_ago(row.last_at_s, now_s, language)}: {row.last}" if row.last_at_s is not None else ""
        table.append(
            [
                row.node,
                text["isolated"] if row.state else text["in use"],
                percent(row.lemon),
                _failures(row.attributed, row.likely_its),
                f"{row.hours:,.0f}",
                ago,
            ]
        )
    for number, line in enumerate(aligned(table, right=(2, 3, 4)) if shown else ()):
        row_of = shown[number - 1] if number else None
        style = "quiet" if row_of is None else "error" if row_of.state or row_of.named else ""
        yield Line(line, style)
    if len(shown) < len(rows):
        yield Line(text["more"].format(count=len(rows) - len(shown)), "quiet")


def lemon_list(judged: Judged, language: Language, *, every: bool) -> Iterator[Line]:
    """Yields the failure statistics of the fleet, then the nodes that are likely lemons, each with the factors of its
    score.

    `every`: also list all other nodes.
    """
    text = _TEXT[language]
    yield from fleet_lines(judged, language)
    shown = [score for score in judged.scores if every or score.named or score.posterior >= WORTH_A_ROW]
    if not any(score.named for score in shown):
        yield Line(text["no lemons"], "strong")
    for score in shown if every else shown[:ROWS_MAX]:
        yield Line()
        mark = f"  {text['named']}" if score.named else ""
        yield Line(f"{score.node}{mark}", "error" if score.named else "strong")
        yield from score_lines(score, language)


def fleet_lines(judged: Judged, language: Language) -> Iterator[Line]:
    text, learned = _TEXT[language], judged.learned
    yield Line(
        text["fleet"].format(
            nodes=learned.nodes,
            days=learned.node_days,
            failures=learned.failures,
            attributed=learned.attributed,
        )
    )
    yield Line(
        text["learned"].format(
            base=learned.base_per_day * 1000,
            factor=learned.factor,
            share=learned.share,
            attribution=learned.attribution,
        )
    )
    if learned.together:
        yield Line(text["together"].format(count=learned.together))
    if learned.failures < FEW_FAILURES:
        yield Line(text["few"], "quiet")


def score_lines(score: Score, language: Language) -> Iterator[Line]:
    """Yields the lemon score of a node and its factors: `1:74 any node × 0.03 days in use × 610 own
    failures`.
    """
    text = _TEXT[language]
    yield Line(
        text["score"].format(
            posterior=percent(score.posterior),
            days=score.days,
            span=counted(round(score.days), "day"),
            attributed=score.attributed,
            shared=score.shared,
            likely=score.likely_its,
        )
    )
    parts = []
    for term in score.terms:
        factor = exp(term.nats)
        if term.name == "prior":
            parts.append(f"{_odds(factor)} {text['prior']}")
        elif abs(term.nats) >= 0.05:
            parts.append(f"× {_factor(factor)} {text.get(term.name, term.name)}")
    odds = _odds(exp(min(60.0, sum(term.nats for term in score.terms))))
    yield Line(text["why"].format(odds=odds, terms=" ".join(parts)), "quiet")


def node_page(
    name: str,
    isolation: Isolation | None,
    judged: Judged,
    lines: Sequence[AnyLine],
    language: Language,
    devices: Sequence[DeviceLine] = (),
) -> Iterator[Line]:
    """Yields the lines about one node.

    `lines`: the node's history, including that of its devices. `devices`: all its devices, or only the one with
    serial number `name`.
    """
    text = _TEXT[language]
    yield Line(name, "strong")
    if isolation is not None:
        since = stamp(isolation.since_s)
        reason = text["reason"].format(since=since, by=isolation.by, reason=isolation.reason)
        yield Line(f"{text['isolated']:<11} {reason}", "error")
    score = next((one for one in judged.scores if one.node == name), None)
    if score is not None:
        yield from score_lines(score, language)
    for number, one in enumerate(sorted(devices, key=lambda one: (one.node, one.device))):
        place = f"{one.node} {one.device}" if one.serial == name else f"{one.device}  {one.serial}"
        since = text["since"].format(since=stamp(one.since_s))
        yield Line(f"{text['devices'] if not number else '':<11} {place}  {one.model}  {since}".rstrip())
    yield Line()
    for line in list(reversed(lines))[:LINES_MAX]:
        device = f" {line.device}" if line.device else ""
        elsewhere = f" ({line.node})" if line.node and line.node != name else ""
        yield Line(f"{stamp(line.at_s)}  {kind(line):<11}{device}{elsewhere} {words(line)}")
    if len(lines) > LINES_MAX:
        yield Line(text["more"].format(count=len(lines) - LINES_MAX), "quiet")


# Words ------------------------------------------------------------------------------------------------------


def kind(line: AnyLine) -> str:
    return str(type(line).__struct_config__.tag)


def words(line: AnyLine) -> str:  # noqa: C901 - one case per kind
    """Returns an entry of the node book in words, without its time and node."""
    match line:
        case IncidentLine(weighs="node"):
            return f"{line.category}: {line.title} ({line.run.partition('@')[0]})"
        case IncidentLine():
            return f"{line.category}: {line.title} ({line.run.partition('@')[0]}; {line.weighs})"
        case FindingLine():
            return line.text
        case DeviceLine():
            return f"{line.model or 'device'} {line.serial} was found in this node"
        case CheckLine(check=""):
            return line.text
        case CheckLine():
            return f"{line.check} {line.status}: {line.text.removeprefix(f'{line.check}: ')}"
        case ExonerationLine():
            return f"exonerated: incident {line.incident} of {line.run.partition('@')[0]}: {line.reason}"
        case RepairLine():
            return f"repaired: {line.text} ({line.by})"
        case IsolationLine():
            return f"isolated: {line.reason} ({line.by})"
        case ReleaseLine():
            return f"released: {line.reason} ({line.by})"
        case HeldBackLine():
            return f"not isolated: {line.reason}"
        case LostLine():
            return f"lost: {line.reason}"
        case ReturnedLine():
            return "is back"
        case WarningLine():
            return f"{line.warning}: {line.text}" if line.text else line.warning


def percent(share: float) -> str:
    return "<1%" if share < 0.01 else ">99%" if share > 0.99 else f"{share:.0%}"


def aligned(table: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> Iterator[str]:
    """Yields table rows with columns aligned, two spaces apart; Chinese characters are two cells wide."""
    widths = [max(cell_len(row[column]) for row in table) for column in range(len(table[0]) - 1)]
    for row in table:
        cells = []
        for column, (cell, width) in enumerate(zip(row, widths, strict=False)):
            cells.append(
                " " * (width - cell_len(cell)) + cell if column in right else set_cell_size(cell, width)
            )
        yield "  ".join([*cells, row[-1]]).rstrip()


def _failures(attributed: int, likely_its: float) -> str:
    """Returns a number of failures in words: `2 + 1.3` for 2 of the node itself and an expected 1.3 of
    shared ones.
    """
    if likely_its < 0.05:
        return str(attributed) if attributed else ""
    return f"{attributed} + {likely_its:.1f}"


def _ago(at_s: float, now_s: float, language: Language) -> str:
    passed_s = now_s - at_s
    if passed_s < 60:
        return _TEXT[language]["now"]
    unit_s = 86_400 if passed_s >= 172_800 else 3600 if passed_s >= 7200 else 60
    return _TEXT[language]["ago"].format(time=length(passed_s // unit_s * unit_s))


def _odds(value: float) -> str:
    return f"{_factor(value)}:1" if value >= 1 else f"1:{_factor(1 / value)}"


def _factor(value: float) -> str:
    if value >= 1e6:
        return ">1,000,000"
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"
