"""Defines a step form: one way in which a training program prints its steps and their times. No behaviour."""

from typing import Literal, TypeAlias

from msgspec import Struct

from holdfast.model.steps import MarkKind

# The meaning of a printed time. step: the last step alone; mean: mean of one step since the previous line;
# window: all steps since the previous line together, or as many as the group `window` gives; run-mean: mean of
# one step since the start of the run; smoothed: one step, smoothed, as in bars, beside an elapsed time. none:
# nothing is printed, or only an elapsed time or a rate.
TimeMeaning: TypeAlias = Literal["none", "step", "mean", "window", "run-mean", "smoothed"]
TimeUnit: TypeAlias = Literal["s", "ms", "us", "min", "h", "by-eta"]
RateUnit: TypeAlias = Literal["steps/s", "s/step", "samples/s", "tokens/s", "none"]

# How much a form is trusted: one with a higher value replaces another.
SPECIFIC = 4  # only this framework prints such a line
LIBRARY = 3  # printed by a library below a framework, which may print better lines itself
BAR = 2  # a progress bar, identified by its label at best
LOOSE = 1  # a dictionary, or words that many programs use
WORDS = 0  # a line that contains a step and nothing else

# The groups of a pattern and its fields. `unit` and `rate_unit` as printed; `added`: a further part of
# the time, in the same unit; `consumed`: tokens or samples since the start; `skip`: the line is no step.
GROUPS = frozenset(
    (
        "step",
        "total",
        "epoch",
        "epochs",
        "time",
        "added",
        "unit",
        "window",
        "rate",
        "rate_unit",
        "elapsed",
        "elapsed_unit",
        "eta",
        "loss",
        "batch",
        "sequence",
        "consumed",
        "data",
        "rank",
        "stamp",
        "label",
        "skip",
    )
)


class Proof(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A test line of a step form: a line that the form `of` must parse, with the expected values; others must
    be absent.

    Times in seconds, and `time` of one step: 0.25 for a line with "2500 ms" for a window of 10.
    """

    of: str
    line: str
    step: int | None = None
    total: int | None = None
    epoch: int | None = None
    time: float | None = None
    elapsed: float | None = None
    rate: float | None = None
    loss: float | None = None
    batch: float | None = None
    sequence: int | None = None
    data: float | None = None
    rank: int | None = None
    stamp: float | None = None


class Miss(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A test line of a step form: a line that the form `of` must not parse."""

    of: str
    line: str


class MarkForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pattern for lines that announce a pause, such as an evaluation or a checkpoint.

    `literal`: text that every such line contains, with one of the words of `MARK_WORDS` in
    parsers/steps/forms.py.
    """

    kind: MarkKind
    literal: str
    pattern: str = ""
    matches: tuple[str, ...] = ()
    misses: tuple[str, ...] = ()


class SettingForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pattern for lines that contain the size of a batch or a sequence, in a group named `batch` or
    `sequence`.

    `is_whole`: certainly of all ranks together; such a size is not replaced by one that may be of one rank.
    """

    literal: str
    pattern: str
    is_whole: bool = False
    matches: tuple[str, ...] = ()
    misses: tuple[str, ...] = ()


class StepForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    r"""A step form: the format in which a training program prints its steps, as patterns for their values.

    `literal`: text that every line of this form contains.
    `pattern`: a Python regular expression over the bytes of one line, searched; its named groups are of
        GROUPS. The words NUM (a number, also nan, "1,234.5", "1.2K"), INT and CLOCK ("1:02:03", "2 days,
        3:04:05") are replaced by their expressions.
    `fields`: further patterns, searched in the same line from the start of `pattern`'s match: for
        optional values, values in any order, or values far from it.
    `time`: the meaning of the group `time`; for bars, of the rate. `unit`: of `time` and `data` if no
        group `unit` gives it; "by-eta": seconds or milliseconds, whichever fits the remaining time
        (`eta`) better, and seconds without `eta`.
    `before`: patterns of earlier lines, which provide values that this line lacks.
    `elapsed_unit`: of the group `elapsed` if it is no clock time. `stamp_unit`: of `stamp`, since 1970;
        other time stamps are found before the step without a pattern. `rate_unit`: of `rate` if no group
        gives it.
    `counts`: what the printed step counts. `batch_counts`: what `batch` counts.
    `is_bar`: a progress bar; a log may have several, which the text before them (or the group `label`)
        distinguishes.
    `is_beside_bar`: if the log also has a progress bar, steps are read from the bar and losses from this
        line.
    `per_epoch`: the counter restarts with each epoch, and `total` is the steps of one epoch.
    `begins`, `ends`: a record that matches `begins` and does not end with the text `ends` continues in the
        next lines. `begins` starts with letters that every such line has, unless the form has a `separator`.
    `separator`: text between the parts of a line. If each value has a part of its own (or step and total
        share one), similar lines are parsed many at once.
    `matches`, `misses`: test lines; in a file they follow after all forms.
    `marks`, `settings`: other lines of this framework, which are searched for in logs of every form.
    """

    id: str
    framework: str
    literal: str
    pattern: str
    fields: tuple[str, ...] = ()
    time: TimeMeaning = "none"
    unit: TimeUnit = "s"
    elapsed_unit: TimeUnit = "s"
    stamp_unit: TimeUnit = "s"
    rate_unit: RateUnit = "none"
    counts: Literal["steps", "samples"] = "steps"
    batch_counts: Literal["samples", "tokens"] = "samples"
    per_epoch: bool = False
    before: tuple[str, ...] = ()
    trust: int = SPECIFIC
    is_bar: bool = False
    is_beside_bar: bool = False
    begins: str = ""
    ends: str = ""
    separator: str = ""
    marks: tuple[MarkForm, ...] = ()
    settings: tuple[SettingForm, ...] = ()
    source: str = ""
    matches: tuple[Proof, ...] = ()
    misses: tuple[Miss, ...] = ()


class StepFormFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The contents of one TOML file: step forms, followed by their test lines."""

    form: tuple[StepForm, ...] = ()
    proof: tuple[Proof, ...] = ()
    miss: tuple[Miss, ...] = ()
