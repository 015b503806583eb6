"""Formats a diagnosis as a text report: what failed, culprits, confidence, first error, advice, evidence.

Prints nothing. Masks secrets in quotations, and removes control characters.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct
from rich.cells import cell_len

from holdfast.core.diagnosis.words.meanings import meaning_of
from holdfast.core.diagnosis.words.missing import spans
from holdfast.core.diagnosis.words.no_cause import NONE_ADVICE
from holdfast.core.plurals import counted
from holdfast.model.diagnoses import Diagnosis, Fact, FirstError, Other
from holdfast.model.signatures import Words
from holdfast.model.verdicts import Culprit
from holdfast.observe.logs.tree import WHY_OWN
from holdfast.parsers.log_lines.secrets import masked
from holdfast.views.diagnosis.document import Scanned, utc
from holdfast.views.diagnosis.skip_reasons import why_in
from holdfast.views.languages import Language, said
from holdfast.views.wrapping import cut, cut_left, shown, wrapped

WIDTH_MIN, WIDTH_MAX = 40, 120
EVIDENCE_MAX, SKIPPED_MAX, CULPRITS_MAX, ERROR_LINES_MAX = 5, 3, 3, 6
INDENT = "  "
_BETWEEN = " · "

_CERTAINTY = (  # from this confidence on
    (0.9, Words(en="very likely", zh="很可能")),
    (0.7, Words(en="likely", zh="较可能")),
    (0.4, Words(en="perhaps", zh="也许")),
    (0.0, Words(en="a guess", zh="猜测")),
)
_FIRST = Words(en="First error", zh="首个错误")
_TELLING = Words(en="Most informative line", zh="最有参考价值的日志行")
_ADVICE = Words(en="What to do", zh="处理建议")
_EVIDENCE = Words(en="Evidence", zh="证据")
_ALSO = Words(en="Also possible", zh="其他可能")
_MISSING = Words(en="Not found", zh="未找到")
_FRAME = Words(en="in the code", zh="代码位置")
_SEEN = Words(en="seen {times}", zh="出现 {n} 次")
_DECIDED = Words(en="Decided by", zh="判定依据")
_AGAINST = Words(en="Evidence against it", zh="不一致之处")
_CONFIDENCE = Words(en="confidence", zh="置信度")
_ACTION = Words(en="action", zh="动作")
_RANK, _WORKER, _HOST = (
    Words(en="rank", zh="rank"),
    Words(en="worker", zh="worker"),
    Words(en="host", zh="主机"),
)
_RANKS = Words(en="ranks", zh="rank")
_MORE = Words(en="and {n} more", zh="另有 {n} 个")
_MORE_ALL = Words(en="and {n} more: --all", zh="另有 {n} 条，--all 显示全部")
_COLON = Words(en=": ", zh="：")
_SKIPPED = Words(en="not read, ", zh="未读取，")
_READ = Words(en="Read {files}, {size}, in {seconds} s", zh="读取 {files}，{size}，用时 {seconds} 秒")
_FILES = Words(en="{files}", zh="{n} 个文件")


class Line(Struct, frozen=True):
    """A line of a text report. `style`: "strong", "error", "quiet", or empty for normal text."""

    text: str = ""
    style: str = ""


def report(
    diagnosis: Diagnosis, read: Scanned, language: Language, width: int, *, everything: bool = False
) -> list[Line]:
    """Returns the lines of the report. `width`: columns of the terminal.

    `everything`: do not shorten lists.
    """
    page = _Page(language, max(WIDTH_MIN, min(width, WIDTH_MAX)), everything)
    return [
        *page.head(diagnosis),
        *page.first_error(diagnosis),
        *page.advice(diagnosis),
        *page.evidence(diagnosis),
        *page.also(diagnosis.also),
        *page.missing(diagnosis, read),
        Line(),
        Line(page.read(read), "quiet"),
    ]


class _Page:
    """Settings of a report: language, width, and whether lists are shortened."""

    def __init__(self, language: Language, width: int, everything: bool) -> None:
        self._language, self._width, self._everything = language, width, everything

    def head(self, diagnosis: Diagnosis) -> Iterator[Line]:
        """Yields the headline (title, culprits, confidence), the category and the explanation."""
        parts = [_capital(self._text(diagnosis.title))]
        if who := self._culprits(diagnosis):
            parts.append(who)
        healthy, unknown = diagnosis.category == "none", diagnosis.category == "unknown"
        if not unknown:
            parts.append(self._certainty(diagnosis.confidence))
        for text in self._packed(parts):
            yield Line(text, "strong" if healthy else "error")
        words = [diagnosis.category]
        if not unknown:
            words.append(f"{self._say(_CONFIDENCE)} {diagnosis.confidence:.0%}")
        words.append(f"{self._say(_ACTION)} {diagnosis.action}")
        yield Line(_BETWEEN.join(words), "quiet")
        for text in wrapped(self._text(diagnosis.explanation), self._width):
            yield Line(text)

    def first_error(self, diagnosis: Diagnosis) -> Iterator[Line]:
        first = diagnosis.first_error
        if first is None:
            return
        label = self._say(_TELLING if diagnosis.category == "unknown" else _FIRST)
        moment = utc(first.at_s)
        when = f"  {moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d} UTC" if moment else ""
        yield Line()
        for text in wrapped(f"{label}  {_place(first.file, first.line)}{when}", self._width):
            yield Line(text, "strong")
        yield from self._quotation(first)
        if first.frame:
            label = f"{INDENT}{self._say(_FRAME)}{self._say(_COLON)}"
            yield Line(label + cut_left(_clean(first.frame), self._width - cell_len(label)))
        fact = next((one for one in diagnosis.evidence if _is(one, first)), None)
        if fact and (fact.count > 1 or len(fact.ranks) > 1):
            yield Line(
                cut(
                    INDENT
                    + self._say(_SEEN).format(n=fact.count, times=counted(fact.count, "time"))
                    + self._by(fact),
                    self._width,
                )
            )

    def advice(self, diagnosis: Diagnosis) -> Iterator[Line]:
        text = self._text(diagnosis.advice)
        if text and diagnosis.advice != NONE_ADVICE:
            yield from self._section(_ADVICE)
            yield from (Line(INDENT + line) for line in self._wrapped(text))

    def evidence(self, diagnosis: Diagnosis) -> Iterator[Line]:
        """Yields the evidence besides the first error, and the reasons for the verdict."""
        first = diagnosis.first_error
        facts = [fact for fact in diagnosis.evidence if not _is(fact, first)]
        if not self._everything:  # two signatures may know one line
            facts = list({(fact.file, fact.line, fact.text): fact for fact in reversed(facts)}.values())[::-1]
        reasons = [*_listed(_DECIDED, diagnosis.decided_by), *((_AGAINST, one) for one in diagnosis.disagree)]
        if not facts and not reasons and not diagnosis.notes:
            return
        yield from self._section(_EVIDENCE)
        for label, words in reasons:
            yield from self._bullet(f"{self._say(label)}{self._say(_COLON)}{self._text(words)}")
        for words in diagnosis.notes:
            yield from self._bullet(self._text(words))
        few = facts if self._everything else facts[:EVIDENCE_MAX]
        for fact in few:
            yield from self._fact(fact)
        yield from self._left_out(len(facts) - len(few))

    def also(self, others: Sequence[Other]) -> Iterator[Line]:
        if not others:
            return
        yield from self._section(_ALSO)
        for other in others:
            title = self._text(other.title or meaning_of(other.category))
            yield from self._bullet(f"{title} ({other.category}, {other.confidence:.0%})")

    def missing(self, diagnosis: Diagnosis, read: Scanned) -> Iterator[Line]:
        """Yields which data was not available, and which files were not read and why."""
        skips = [one for one in read.skipped if self._everything or one.why != WHY_OWN]
        if not diagnosis.not_found and not skips:
            return
        yield from self._section(_MISSING)
        for words in diagnosis.not_found:
            yield from self._bullet(self._text(words))
        reasons: dict[str, list[str]] = {}
        for skipped in skips:
            reasons.setdefault(_clean(skipped.why), []).append(_clean(skipped.name))
        few = list(reasons.items()) if self._everything else list(reasons.items())[:SKIPPED_MAX]
        for why, names in few:
            shown_names = names if self._everything else names[:SKIPPED_MAX]
            more = len(names) - len(shown_names)
            rest = f" {self._say(_MORE).format(n=more)}" if more else ""
            yield from self._bullet(
                f"{self._say(_SKIPPED)}{why_in(why, self._language)}{self._say(_COLON)}{', '.join(shown_names)}{rest}"
            )
        yield from self._left_out(len(reasons) - len(few))

    def read(self, read: Scanned) -> str:
        files = self._say(_FILES).format(n=read.files, files=counted(read.files, "file"))
        return self._say(_READ).format(
            files=files,
            size=_size(read.size_bytes),
            seconds=f"{read.seconds:.{1 if read.seconds >= 1 else 2}f}",
        )

    def _packed(self, parts: Sequence[str]) -> list[str]:
        """Joins parts into one line; if they do not fit, the first part gets a line of its own."""
        whole = _BETWEEN.join(parts)
        if cell_len(whole) <= self._width:
            return [whole]
        rest = wrapped(_BETWEEN.join(parts[1:]), self._width) if len(parts) > 1 else []
        return [*wrapped(parts[0], self._width), *rest]

    # Parts ------------------------------------------------------------------------------------------------

    def _quotation(self, first: FirstError) -> Iterator[Line]:
        """Yields the error line among its neighbours, with line numbers: `> 12  text`.

        Neighbours are cut to one line each.
        """
        start = None if first.line is None else first.line - len(first.before)
        numbers = [
            "" if start is None else str(start + at) for at in range(len(first.before) + 1 + len(first.after))
        ]
        room = max(map(len, numbers))
        width = self._width - len(INDENT) - 2 - room - 2
        here = len(first.before)
        for at, text in enumerate((*first.before, first.text, *first.after)):
            mark = ">" if at == here else " "
            left = f"{INDENT}{mark} {numbers[at]:>{room}}  "
            if at != here:
                yield Line((left + cut(_clean(text), width)).rstrip(), "quiet")
                continue
            lines = wrapped(_clean(text), width) or [""]
            if not self._everything and len(lines) > ERROR_LINES_MAX:
                lines = [*lines[: ERROR_LINES_MAX - 1], cut(" ".join(lines[ERROR_LINES_MAX - 1 :]), width)]
            yield Line(left + lines[0], "error")
            yield from (Line(" " * len(left) + line, "error") for line in lines[1:])

    def _fact(self, fact: Fact) -> Iterator[Line]:
        """Yields a piece of evidence: meaning, count and rank; its place; the log line itself."""
        often = f" ×{fact.count}" if fact.count > 1 else ""
        yield from self._bullet(f"{self._text(fact.says)}{self._by(fact)}{often}")
        place = _place(fact.file, fact.line)
        for text in wrapped(place, self._width - 4):
            yield Line(f"{INDENT}  {text}", "quiet")
        quoted = _clean(fact.text).strip()
        for text in wrapped(quoted, self._width - 4) if self._everything else [cut(quoted, self._width - 4)]:
            yield Line(f"{INDENT}  {text}", "quiet")

    def _culprits(self, diagnosis: Diagnosis) -> str:
        culprits = diagnosis.culprits
        if not culprits:
            return ""
        if len(culprits) > 1 and all(_is_rank_only(one) for one in culprits):
            more = diagnosis.culprits_left_out
            text = self._ranks([one.rank for one in culprits if one.rank is not None])
        else:
            few = culprits if self._everything else culprits[:CULPRITS_MAX]
            more = len(culprits) - len(few) + diagnosis.culprits_left_out
            text = "; ".join(self._culprit(one) for one in few)
        return f"{text} {self._say(_MORE).format(n=more)}" if more else text

    def _culprit(self, one: Culprit) -> str:
        known = (
            ("" if one.rank is None else f"{self._say(_RANK)} {one.rank}"),
            ("" if one.worker is None or one.host else f"{self._say(_WORKER)} {one.worker}"),
            (f"{self._say(_HOST)} {_clean(one.host)}" if one.host else ""),
            _clean(one.device or ""),
        )
        return ", ".join(text for text in known if text)

    def _ranks(self, ranks: Sequence[int]) -> str:
        return f"{self._say(_RANK if len(set(ranks)) == 1 else _RANKS)} {spans(ranks)}"

    def _by(self, fact: Fact) -> str:
        return f" ({self._ranks(fact.ranks)})" if fact.ranks else ""

    def _certainty(self, confidence: float) -> str:
        return next(self._say(words) for least, words in _CERTAINTY if confidence >= least or least == 0.0)

    def _section(self, label: Words) -> tuple[Line, Line]:
        return Line(), Line(self._say(label), "strong")

    def _bullet(self, text: str) -> Iterator[Line]:
        for number, line in enumerate(self._wrapped(text, 4)):
            yield Line(f"{INDENT}{'  ' if number else '- '}{line}")

    def _left_out(self, count: int) -> Iterator[Line]:
        if count > 0:
            yield from self._bullet(self._say(_MORE_ALL).format(n=count))

    def _wrapped(self, text: str, indent: int = len(INDENT)) -> list[str]:
        return wrapped(text, self._width - indent)

    def _say(self, words: Words) -> str:
        return said(words, self._language)

    def _text(self, words: Words) -> str:
        """Returns a text in the report's language, without control characters."""
        return _clean(said(words, self._language))


def _clean(text: str) -> str:
    return shown(masked(text))


def _capital(text: str) -> str:
    """Capitalises the first word of a sentence, unless it is a name such as torch.compile."""
    word = text.partition(" ")[0]
    return text[:1].upper() + text[1:] if word.isascii() and word.isalpha() and word.islower() else text


def _place(file: str, line: int | None) -> str:
    return _clean(file) if line is None else f"{_clean(file)}:{line}"


def _is(fact: Fact, first: FirstError | None) -> bool:
    return first is not None and (fact.file, fact.line, fact.text) == (first.file, first.line, first.text)


def _is_rank_only(one: Culprit) -> bool:
    return one.rank is not None and one.host is None and one.device is None


def _listed(label: Words, words: Words | None) -> list[tuple[Words, Words]]:
    return [(label, words)] if words else []


def _size(size_bytes: int) -> str:
    size, unit = float(size_bytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
