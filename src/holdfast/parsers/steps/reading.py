"""Extracts the printed values of a step from one line, using one step form; durations are converted to
seconds. Pure.
"""

import math
import re
from collections.abc import Mapping
from functools import cached_property

from msgspec import Struct

from holdfast.late_pattern import late
from holdfast.model.step_forms import LIBRARY, SPECIFIC, StepForm
from holdfast.parsers.steps.progress import LINE_PREFIX, NOT_MADE, NOT_TRAINING, PREPARING_BAR
from holdfast.parsers.steps.values import (
    CLOCK,
    INT,
    NUM,
    SECONDS,
    count,
    duration_s,
    number,
    rate_kind,
    seconds,
)

WORDS = {"NUM": NUM, "INT": INT, "CLOCK": CLOCK}
# Every line with steps contains one of these words, except in a few forms.
STEM_WORDS = ("step", "iter", "epoch", "it/s", "s/it", "mllog", "batch")
GROUP_NAME = late(r"\?P<\w+>")
LITERAL_START = late(r"[A-Za-z ]*[A-Za-z]")
INNER_GROUP = late(r"\((?:\?:)?([^()]*)\)([?*])?")
WORD = late(rb"(?<![A-Za-z_\\])(?:NUM|INT|CLOCK)(?![A-Za-z_])")
NEAR_BYTES = 4096  # range for common words, and maximum distance of the pattern's start before the literal
FAR_BYTES = 8 << 10
TRAINING_LABEL = late(
    rb"(?i)train|epoch|step|iter|episode|update|optimi[sz]|tuning|ppo|learn|loss|\bacc|ppl|\blr\b"
)
BLANK = late(rb"[\d\s%|:#\xe2\x80-\xbf]+")


class Found(Struct, gc=False):
    """The values that one step line contains.

    `time_s`: the printed time, of one step or of a window; `is_fine`: elapsed has sub-second precision.
    """

    number: int | None = None
    total: int | None = None
    epoch: int | None = None
    time_s: float | None = None
    window: int | None = None
    rate: float | None = None
    rate_kind: str = "none"
    rate_unit_s: float = 1.0
    elapsed_s: float | None = None
    is_fine: bool = False
    loss: float | None = None
    batch: float | None = None
    sequence: int | None = None
    consumed: float | None = None
    data_s: float | None = None
    rank: int | None = None
    stamp_s: float | None = None
    stamp_is_fine: bool = False  # sub-second precision
    ulp_s: float = 0.0  # unit of the last digit of the printed time
    label: bytes = b""  # of a bar, without its numbers
    at: int = 0  # offset at which the form begins in the line
    end: int = 0  # offset after which another one may begin


class FormReader:
    """Parses lines by one compiled step form. raises: re.error, for an invalid pattern"""

    def __init__(self, form: StepForm) -> None:
        self.form = form
        self.literal = form.literal.encode()
        self.is_usual = any(stem in _sure_text(form.pattern) for stem in STEM_WORDS)
        self.begins = compiled(form.begins) if form.begins else None
        self.begins_with = (LITERAL_START.match(form.begins) or [""])[0].encode()
        self.ends = form.ends.encode()
        self._unit_s = SECONDS.get(form.unit.encode(), 1.0)
        self._carried: dict[str, bytes] = {}
        self._elapsed_unit_s = SECONDS[form.elapsed_unit.encode()]
        self._stamp_unit_s = SECONDS[form.stamp_unit.encode()]

    @cached_property
    def _pattern(self) -> re.Pattern[bytes]:
        return compiled(self.form.pattern)  # when first used: most forms never are

    @cached_property
    def _fields(self) -> tuple[re.Pattern[bytes], ...]:
        return tuple(compiled(field) for field in self.form.fields)

    @cached_property
    def _before(self) -> tuple[re.Pattern[bytes], ...]:
        return tuple(compiled(pattern) for pattern in self.form.before)

    def carry(self, line: bytes) -> bool:
        """Keeps the values of a line for the next line of this step form. Returns whether there are any."""
        for pattern in self._before:
            if match := pattern.search(line):
                self._carried.update(match.groupdict())
                return True
        return False

    def read(self, line: bytes, place: int = 0) -> Found | None:
        """Returns the values of the line from `place` on; None if it does not have this form."""
        match = self._search(line, place)
        if match is None or (self.form.trust < LIBRARY and not self._is_training(line, match)):
            return None
        groups = {name: text for name, text in match.groupdict().items() if text is not None}
        before = place if self.form.is_bar else match.start()  # a bar's label may hold values
        for field in self._fields:
            further = field.search(line, before)
            if further is not None:
                groups.update({name: text for name, text in further.groupdict().items() if text is not None})
        if "skip" in groups:
            return None
        if self._carried:
            groups, self._carried = {**self._carried, **groups}, {}
        found = self._values(groups)
        if found is not None:
            found.at, found.end = match.span()
            if self.form.is_bar:
                found.label = BLANK.sub(
                    b"", groups.get("label", line[place : match.start()].partition(b"|")[0])
                )
        return found

    def _search(self, line: bytes, place: int) -> re.Match[bytes] | None:
        """Returns the match of the form.

        In a long line it is searched near its literal only, because patterns look far ahead.
        """
        if self.form.trust < LIBRARY:
            return self._pattern.search(line, place, place + NEAR_BYTES)
        if len(line) <= FAR_BYTES:
            return self._pattern.search(line, place)
        at = line.find(self.literal, place)
        return self._pattern.search(line, max(place, at - NEAR_BYTES), at + FAR_BYTES)

    def spans(self, line: bytes) -> dict[str, tuple[int, int]]:
        """Returns the position of each value in the line."""
        match = self._pattern.search(line)
        if match is None:
            return {}
        found = {name: match.span(name) for name, text in match.groupdict().items() if text is not None}
        for field in self._fields:
            if further := field.search(line, match.start()):
                found.update(
                    {
                        name: further.span(name)
                        for name, text in further.groupdict().items()
                        if text is not None
                    }
                )
        return found

    def _values(self, groups: Mapping[str, bytes]) -> Found | None:
        found = Found()
        if (text := groups.get("step")) is not None:
            found.number = count(text)
            if found.number is None:
                return None
        if (text := groups.get("total")) is not None:
            found.total = count(text)
        if (text := groups.get("epoch")) is not None:
            found.epoch = count(text)
        if found.total is not None and found.number is not None and found.number > found.total:
            if self.form.trust < SPECIFIC:
                return None  # a ratio or a date, no step of so many
            found.total = None
        self._times(found, groups)
        if (text := groups.get("loss")) is not None:
            found.loss = number(text)
        if (text := groups.get("batch")) is not None:
            found.batch = number(text, is_count=True)
        if (text := groups.get("sequence")) is not None:
            found.sequence = count(text)
        if (text := groups.get("consumed")) is not None:
            found.consumed = number(text, is_count=True)
        if (text := groups.get("rank")) is not None:
            found.rank = count(text)
        return found

    def _times(self, found: Found, groups: Mapping[str, bytes]) -> None:
        unit = groups.get("unit")
        if self.form.unit == "by-eta" and unit is None:
            self._learn_unit(found, groups)
        unit_s = self._unit_s if unit is None else SECONDS.get(unit.lower(), 0.0)
        if unit_s and (text := groups.get("time")) is not None:
            found.time_s = seconds(number(text), unit_s)
            if found.time_s is None and (spell := duration_s(text)) is not None:
                found.time_s = spell[0]  # such as "7m 8s"
            found.ulp_s = unit_s * 0.1 ** (len(text) - 1 - text.rfind(b".") if b"." in text else 0)
            if found.time_s is not None and (text := groups.get("added")) is not None:
                added_s = seconds(number(text), unit_s)
                found.time_s = None if added_s is None else found.time_s + added_s
        if unit_s and (text := groups.get("data")) is not None:
            found.data_s = seconds(number(text), unit_s)
        if (text := groups.get("window")) is not None:
            found.window = count(text) or None
        if (text := groups.get("rate")) is not None:
            found.rate = number(text, is_count=True)
            found.rate_kind = self.form.rate_unit
            kind = rate_kind(groups["rate_unit"]) if "rate_unit" in groups else None
            if kind is not None:
                found.rate_kind, found.rate_unit_s = kind
        if (text := groups.get("elapsed")) is not None and (elapsed := duration_s(text)) is not None:
            unit_s = (
                SECONDS.get(groups["elapsed_unit"].lower(), 0.0)
                if "elapsed_unit" in groups
                else self._elapsed_unit_s
            )
            factor = 1.0 if b":" in text else unit_s
            found.elapsed_s = elapsed[0] * factor
            found.is_fine = elapsed[1] or factor < 1.0
        if (text := groups.get("stamp")) is not None and (stamp := number(text)) is not None:
            found.stamp_s = stamp * self._stamp_unit_s if math.isfinite(stamp) else None
            found.stamp_is_fine = b"." in text or self._stamp_unit_s < 1.0

    def _learn_unit(self, found: Found, groups: Mapping[str, bytes]) -> None:
        """Learns whether times are in seconds or milliseconds: the remaining steps must take about as long as
        the line's ETA.
        """
        eta, time_s = duration_s(groups.get("eta", b"")), number(groups.get("time", b""))
        left = (found.total or 0) - (found.number or 0)
        if eta is None or not eta[0] or left <= 0 or time_s is None or not 0.0 < time_s < math.inf:
            return
        self._unit_s = 1.0 if time_s * left < eta[0] * math.sqrt(1000.0) else 1e-3

    def _is_training(self, line: bytes, match: re.Match[bytes]) -> bool:
        """Returns whether the words before the step do not name something else that is counted."""
        head = line[: match.start("step") if "step" in match.groupdict() else match.start()]
        if NOT_TRAINING.search(head):
            return False
        if not self.form.is_bar:
            return NOT_MADE.search(head) is None
        label = LINE_PREFIX.sub(b"", head, count=1).split(b"|")[0]
        if re.search(rb"[A-Za-z]", label) is None:
            return True
        return TRAINING_LABEL.search(label) is not None and PREPARING_BAR.search(label) is None


def _sure_text(pattern: str) -> str:
    """Returns the text of a pattern that is in every matching line, in lower case, without optional parts and
    most choices.
    """

    def chosen(group: re.Match[str]) -> str:
        choices = group[1].lower().split("|")
        if group[2] or not all(any(stem in choice for stem in STEM_WORDS) for choice in choices):
            return "" if group[2] or len(choices) > 1 else group[1]
        return group[1]

    return INNER_GROUP.sub(chosen, GROUP_NAME.sub("", pattern)).lower()


def compiled(pattern: str) -> re.Pattern[bytes]:
    """Returns the compiled pattern with NUM, INT and CLOCK filled in. raises: re.error"""
    return re.compile(WORD.sub(lambda word: b"(?:" + WORDS[word[0].decode()] + b")", pattern.encode()))
