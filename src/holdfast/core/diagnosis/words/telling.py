"""The most telling lines of a job whose end nothing explains: rare ones, near the end, that speak of trouble. Pure.

A line that most ranks print says little; one that a single rank prints, shortly before its log ends, says much.
"""

from collections import Counter
from collections.abc import Collection, Sequence

from msgspec import Struct

from holdfast.late_pattern import late
from holdfast.model.matches import Source

LINES_MAX = 5
TROUBLE = late(
    r"(?i)\b(?:error|errors|fatal|fail(?:ed|ure|s)?|abort\w*|panic|exception|traceback|critical|killed|cannot|can't"
    r"|unable|refused|denied|invalid|timed? ?out|lost|corrupt\w*|crash\w*|unexpected\w*|exit(?:ed|ing)?|core dumped)\b"
)
WORRY = late(
    r"(?i)\b(?:stuck|hangs?|hanging|hung|down|missing|mismatch\w*|out of memory|no such|not found|oom|uncorrectable|truncated|slow(?:er|down)?"
    r"|bug|warn|fault|stall\w*|deadlock|unhandled|broken|unreachable|overflow|nan|leak\w*|reset|in use|occupied|pending|lost|insufficient|full|inf|corrected|degraded|downgraded|gone|dead|evict\w*|preempt\w*)\b"
    r"|错误|失败|异常|超时|卡死|卡住|挂死|挂起|崩溃|无法|不能|掉卡|被杀|不足|丢失|断开|拒绝|中断|不可用|故障|报错|不一致|变慢|慢|挂了|占用|冲突|耗尽|满了|不够|损坏|过高|过低"
)
# A table's line that says that there is none of it: "HW Slowdown : Not Active".
DENIED = late(
    r"(?i)[:=|]\s*(?:no|n/a|none|not (?:active|supported)|disabled|ok|pass(?:ed)?|false|0(?: \w{1,3})?)\s*\|?\s*$"
)
HARMLESS = late(r"(?i)warning|deprecat|\b(?:0|no) errors?\b|error[_ ]?(?:rate|norm)|_errors?\b")
CHANGING = late(r"0x[0-9a-fA-F]+|\d+")


class Telling(Struct, frozen=True):
    source: int
    text: str


def speaks_of_trouble(line: str) -> bool:
    """Whether somebody who pastes this line worries. Wider than TROUBLE, which whole logs are searched for."""
    is_worry = TROUBLE.search(line) or WORRY.search(line)
    return bool(is_worry) and not HARMLESS.search(line) and not denies(line)


def denies(line: str) -> bool:
    """Whether a line names a trouble and says that there is none of it."""
    return DENIED.search(line) is not None


def telling_lines(sources: Sequence[Source]) -> tuple[Telling, ...]:
    """At most five; first those that speak of trouble and that few logs have, else the last line there is."""
    times = Counter(shape for source in sources for shape in {_shape(line) for line in source.tail})
    found: list[tuple[tuple[int, int, int], Telling]] = []
    for number, source in enumerate(sources):
        for from_end, line in enumerate(reversed(source.tail)):
            if TROUBLE.search(line):
                rank = (bool(HARMLESS.search(line)), times[_shape(line)], from_end)
                found.append(((int(rank[0]), rank[1], rank[2]), Telling(number, line.strip())))
    if not found:
        last = [(number, source.tail[-1]) for number, source in enumerate(sources) if source.tail]
        return tuple(Telling(number, line.strip()) for number, line in last[:1])
    found.sort(key=lambda one: one[0])
    return tuple(one for _, one in found[:LINES_MAX])


def doubtful_lines(sources: Sequence[Source], harmless: Collection[str]) -> tuple[Telling, ...]:
    """Those that speak of trouble, where nothing is known to be wrong. `harmless`: lines that are known to be that."""
    return tuple(
        one
        for one in telling_lines(sources)
        if TROUBLE.search(one.text)
        and not HARMLESS.search(one.text)
        and not any(text in one.text or one.text in text for text in harmless)
    )


def _shape(line: str) -> str:
    return CHANGING.sub("#", line).strip()
