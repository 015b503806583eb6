"""Reads the numbers, durations and units of step lines. Pure, never raises; returns nothing where the number is uncertain.

"1382.2"  "4.75E-05"  "11,161"  "1_000"  "2.05K"  "nan"  "inf"        numbers
"5:28:58"  "02:15"  "2 days, 3:04:05"  "1d 2h 3m 4s"  "12m 3s"        durations
"""

import math

from holdfast.late_pattern import late

# Digits with groups, or a decimal comma; `number` decides which.
NUM = (
    rb"[-+]?(?:\d++(?:[,_]\d+)*+(?:\.\d*+)?(?:[eE][-+]?\d+)?|\.\d++(?:[eE][-+]?\d+)?"
    rb"|[nN][aA][nN]|[-+]?[iI][nN][fF](?:inity)?)(?:[KMGBT](?![A-Za-z]))?"
)
INT = rb"\d{1,15}+"
CLOCK = rb"(?:\d+ days?, )?\d+(?::\d\d){1,3}(?:\.\d+)?"
SECONDS = {
    b"s": 1.0, b"sec": 1.0, b"secs": 1.0, b"second": 1.0, b"seconds": 1.0,
    b"ms": 1e-3, b"msec": 1e-3, b"millisecond": 1e-3, b"milliseconds": 1e-3,
    b"us": 1e-6, b"usec": 1e-6, b"\xc2\xb5s": 1e-6, b"\xce\xbcs": 1e-6, b"microseconds": 1e-6, b"ns": 1e-9,
    b"m": 60.0, b"min": 60.0, b"mins": 60.0, b"minute": 60.0, b"minutes": 60.0,
    b"h": 3600.0, b"hr": 3600.0, b"hour": 3600.0, b"hours": 3600.0, b"d": 86400.0,
}  # fmt: skip
SUFFIXES = {75: 1e3, 77: 1e6, 71: 1e9, 66: 1e9, 84: 1e12}  # K M G B T
THOUSANDS = late(rb"[-+]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?")
THOUSANDS_MADE_SURE = late(rb".*,\d{3},|.*\.")  # not one comma before three digits: "1,234" may be 1.234 s
LOCALE_DECIMAL = late(rb"[-+]?\d+,\d+(?:[eE][-+]?\d+)?")
DURATION_PART = late(rb"(\d+(?:\.\d+)?) ?(d|h|m|s|min|sec|hours?|minutes?|seconds?)(?![a-z])")
STEPS = rb"(?:it|iter|iteration|iters|iterations|step|steps|batch|batches|global_step)"
PER = rb"(?:\s?/\s?|[_ ]?per[_ ])"
STEPS_PER_S = late(STEPS + rb"s?" + PER + rb"s(?:ec|econd)?")
S_PER_STEP = late(rb"(?P<unit>s|sec|secs|seconds?|ms|us|min|m|h)\s?/\s?" + STEPS)
SAMPLES_PER_S = late(
    rb"(?i)(?:samples?|images?|imgs?|examples?|ex|sentences?|seqs?|sequences?|frames?|records?|clips?)"
    + PER
    + rb"s(?:ec|econd)?"
)
TOKENS_PER_S = late(rb"(?i)(?:tokens?|toks?|words?|w|t)" + PER + rb"s(?:ec|econd)?|(?i:tps)")
SECONDS_MAX = 1e9  # 31 years: no step, and no run, takes longer


def number(text: bytes, *, is_count: bool = False) -> float | None:
    """Parses a number, which may be nan or infinite; None if ambiguous, as "1,234" is unless it
    is a count.
    """
    try:
        return float(text)
    except ValueError:
        pass
    factor = SUFFIXES.get(text[-1], 0.0) if text else 0.0
    digits = text[:-1] if factor else text
    if b"," in digits:
        if THOUSANDS.fullmatch(digits) and (is_count or THOUSANDS_MADE_SURE.match(digits)):
            digits = digits.replace(b",", b"")
        elif LOCALE_DECIMAL.fullmatch(digits) and not THOUSANDS.fullmatch(digits):
            digits = digits.replace(b",", b".")
        else:
            return None
    try:
        return float(digits) * (factor or 1.0)
    except ValueError:
        return None


def count(text: bytes) -> int | None:
    """Parses a non-negative integer; "448.0" is accepted, the rounded "3.1e+4" is not."""
    if text.isdigit():
        return int(text) if len(text) <= 18 else None
    value = number(text, is_count=True)
    if value is None or b"e" in text.lower() or not 0 <= value < 1e15 or value != int(value):
        return None
    return int(value)


def seconds(value: float | None, unit_s: float) -> float | None:
    """Returns a printed time in seconds; None if it cannot be one."""
    if value is None or not math.isfinite(value):
        return None
    found = value * unit_s
    return found if 0.0 <= found <= SECONDS_MAX else None


def duration_s(text: bytes) -> tuple[float, bool] | None:
    """Parses a duration in seconds, with whether it has sub-second precision.

    Accepts clocks, "1d 2h 3m 4s" and plain numbers.
    """
    text = text.strip()
    days = 0.0
    if b"day" in text:
        head, _, text = text.partition(b",")
        days = number(head.split()[0]) or 0.0 if head.split() else 0.0
        text = text.strip()
    if b":" in text:
        total = 0.0
        for part in text.split(b":"):
            value = number(part)
            if value is None or not math.isfinite(value):
                return None
            total = total * 60.0 + value
        found = days * 86400.0 + total
    elif parts := DURATION_PART.findall(text):
        found = days * 86400.0 + sum(float(value) * SECONDS.get(unit, 1.0) for value, unit in parts)
    else:
        plain = number(text)
        if plain is None or not math.isfinite(plain):
            return None
        found = plain
    return (found, b"." in text) if 0.0 <= found <= SECONDS_MAX else None


def unit_s(text: bytes) -> float | None:
    """Returns the seconds in one of this unit; None if unknown."""
    return SECONDS.get(text.strip().lower())


def rate_kind(text: bytes) -> tuple[str, float] | None:
    """Returns the kind of a printed rate (steps/s, s/step, samples/s, tokens/s), and the seconds in its unit
    of time.
    """
    text = text.strip()
    if STEPS_PER_S.fullmatch(text):
        return "steps/s", 1.0
    if match := S_PER_STEP.fullmatch(text):
        return "s/step", SECONDS[match["unit"]]
    if SAMPLES_PER_S.fullmatch(text):
        return "samples/s", 1.0
    if TOKENS_PER_S.fullmatch(text):
        return "tokens/s", 1.0
    return None
