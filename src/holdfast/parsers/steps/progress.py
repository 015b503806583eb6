"""Parses the last step number in a training's own log. Pure; ignores step times.

Each form below is one common way to print a step, for instance

     iteration       10/     500 | consumed samples:         40 | elapsed time per iteration (ms): 1382.2 | ...
      2%|2         | 10/500 [00:10<08:10,  1.02s/it]
    step 10 | loss: 0.7128 | dt: 19673.48ms
    Epoch [1][10/930]    lr: 2.000e-04, eta: 0:00:32, time: 0.257

A number that only looks like a step (a date, a setting, "3/8 GPUs", evaluation, loading bars) should rather
be missed than accepted: a missed step delays a finding, a wrong one hides a hang. The same holds for a step
that was not made yet: a bar drawn at 0 or at the start of a resumed run, and the step from which a line says
that the run resumes.
"""

import re

from msgspec import Struct

from holdfast.late_pattern import late

LINE_BYTES_MAX = 4096  # a step is near the beginning of its line
RESTART_NUMBERS_MIN = (
    3  # growing numbers in a row, all below half of the best one, that show a restarted counter
)
BARS_MAX = 64  # drawn bars that may still count steps
UNMISTAKABLE = 4  # trust in forms that only a trainer prints

PREFILTER = late(rb"[sS]tep|STEP|[iI]ter|ITER|[eE]poch|it/s|s/it|samples_count")
COLOUR = late(rb"\x1b\[[0-9;]*[A-Za-z]")
NOT_TRAINING = late(
    rb"(?i)(?<![a-z])(?:test|val|valid|validat\w*|eval\w*|infer\w*|predict\w*|sanity|warm-?up|profil\w*|sampling)(?![a-z])"
)
# Words before the step of a checkpoint, or before the step after which a run begins.
NOT_MADE = late(
    rb"(?i)\b(?:resum(?:e|ed|es|ing)|restor(?:e|ed|ing)|(?:re)?load(?:ed|ing)?|sav(?:e|ed|ing)|skip(?:ped|ping)?"
    rb"|continu(?:e|ed|ing) (?:from|at|training)|start(?:ed|ing)? (?:from|at))\b"
)
# A line that announces an evaluation and says nothing else: "Test on epoch 3", "Start evaluation", "[INFO] Validating...".
EVALUATION = late(
    rb"(?i)(?:^|[\s\]>*:-])(?:(?:start|begin|run)[a-z]{0,4} )?(?:test(?:ing)?|valid(?:at(?:e|ing|ion))?|eval(?:uat(?:e|ing|ion))?)"
    rb"(?: (?:on|at|after|for|of|in|the|epoch|step|model|set|data|dataset|\d{1,9}))*[\s.:*#=-]*\d{0,9}[\s.:*#=-]*$"
)
LINE_PREFIX = late(
    rb"\s*(?:\[\w+\]:|\[(?:std)?(?:err|out)\]|[\w.-]{0,60}\d:)?\s*"
)  # of torchrun, of what merges two streams, of srun and pdsh
TRAINING_BAR = late(rb"(?i)train|epoch|step|iter")
PREPARING_BAR = late(rb"(?i)load|tokeniz|data|shard|fetch|sav|pack|generat|file")
EPOCH = late(rb"(?i)(?<![\w/])epochs?[\"']?\s{0,4}[:=]?\s{0,4}\[?\s{0,4}(\d{1,9})(?![\w%]|\.\d)")
METRIC = late(
    rb"(?i)loss|lr\b|learning|time|sec|\dm?s\b|tok|grad|it/s|s/it|speed|throughput|acc|mfu|sampl|eta"
)

NUMBER = rb"(?P<step>\d{1,12}+)"
# No decimals, units, dates, times of day, thousands; "10/all" is fine.
END = rb"(?![\w%]|[.:,/-]\d|e[+-])"
OF_TOTAL = rb"(?:\s{0,8}/\s{0,12}(?P<total>\d{1,12}+))?"
WORD = (
    rb"(?i)(?:(?<![\w.-])(?:train(?:er|ing)?/)?(?:global|train(?:ing)?|current|optimizer)[_ ]|(?<![\w./-]))"
    rb"(?:step|iteration|iter|it)(?!\d)(?:\(train\))?[\"']?\s{0,8}[:=#]?\s{0,12}\[?\s{0,8}"
)


class Form(Struct, frozen=True):
    """A format of step lines.

    `step` is the step number, `total` the last one. A format with more `trust` replaces others.
    """

    name: str
    pattern: re.Pattern[bytes]
    trust: int
    per_epoch: bool = False  # `step` restarts with each epoch, which has `total` steps
    needs_metric: bool = False


FORMS = (
    Form(
        "megatron",
        late(rb"(?i)\biteration\s+" + NUMBER + rb"/\s*(?P<total>\d+) \|"),
        trust=UNMISTAKABLE,
    ),
    Form(
        "dict-of-total",
        late(rb"'global_step/max_steps': '" + NUMBER + rb"/(?P<total>\d+)'"),
        trust=UNMISTAKABLE,
    ),
    Form("current-steps", late(rb'"current_steps": ' + NUMBER + rb"\b"), trust=UNMISTAKABLE),
    Form("pipeline", late(rb"\bsteps: " + NUMBER + rb" loss: "), trust=UNMISTAKABLE),
    Form(
        "epoch-of-total",
        late(
            rb"(?:Epoch|TRAIN|Train)(?:\(train\))?:?\s{1,4}\[?\s{0,4}(?P<epoch>\d{1,9})\]?\s{0,4}\[\s{0,8}"
            + NUMBER
            + rb"\s?/\s{0,8}(?P<total>\d{1,12}+)"
        ),
        trust=3,
        per_epoch=True,
    ),
    Form("word", late(WORD + NUMBER + OF_TOTAL + END), trust=3, needs_metric=True),
    Form(
        "bar",
        late(
            rb"(?<![\d/.])" + NUMBER + rb"/(?P<total>\d+) \[[\d:]+<[^\]]{0,200}?(?P<unknown>\?)?(?:it/s|s/it)"
        ),
        trust=2,
    ),
    Form(
        "bar-without-total",
        late(rb"(?<![\d/.])" + NUMBER + rb"it \[[\d:]+, [^\]]{0,200}?(?P<unknown>\?)?(?:it/s|s/it)"),
        2,
    ),
    Form("bare-word", late(WORD + NUMBER + OF_TOTAL + END), trust=1),
    Form("mllog", late(rb':::MLLOG .*"(?:step|samples_count)": ' + NUMBER + rb"\b"), trust=0),
)
BARS = ("bar", "bar-without-total")
WORDS = ("word", "bare-word")
EPOCHS = Form("epochs", EPOCH, trust=0)  # epochs are too long to measure the speed of a training


class Match(Struct, frozen=True):
    """A step found in one line. `total` distinguishes two progress bars.

    `is_drawn`: a progress bar without progress: it is at 0, or has no rate.
    """

    form: Form
    number: int
    epoch: int | None
    total: int | None
    is_drawn: bool = False


class StepReader:
    """Follows the steps of one attempt in one log, or in several that print the same steps."""

    def __init__(self) -> None:
        self._now: Match | None = None  # the best so far, of the form this log uses
        self._base = 0  # steps of the epochs before, where the counter starts anew in each
        self._restart: list[int] = []
        self._growths = 0  # since this form was taken; a setting names its number once
        self._other: Match | None = None  # of another form or bar
        self._drawn: dict[
            tuple[str, int | None], int
        ] = {}  # by form and total: where bars stood when they were drawn
        self.step: int | None = None

    @property
    def form(self) -> str | None:
        """Returns the name of the format of the step lines in this log; None before the first step."""
        return self._now.form.name if self._now else None

    def feed(self, line: bytes) -> int | None:
        """Returns the step in this line, if it is progress; None for other lines.

        The number decreases only if a more trusted form or another bar replaces the present one, or the
        counter restarts.
        """
        if PREFILTER.search(line) is None:
            return None
        seen = match(line[:LINE_BYTES_MAX])
        if seen is None or (seen.form.name in BARS and self._counts_nothing(seen)):
            return None
        if not self._is_progress(seen):
            return None
        self._now = seen
        self.step = self._base + seen.number
        return self.step

    def _counts_nothing(self, seen: Match) -> bool:
        """Returns whether a bar is where it was drawn: at 0, or at the start of a resumed run.

        It may be redrawn there often.
        """
        bar = (seen.form.name, seen.total)
        if seen.is_drawn:
            if bar not in self._drawn and len(self._drawn) >= BARS_MAX:
                del self._drawn[next(iter(self._drawn))]
            self._drawn[bar] = seen.number
            return True
        if seen.number <= self._drawn.get(bar, -1):
            return True
        self._drawn.pop(bar, None)
        return False

    def _is_progress(self, seen: Match) -> bool:
        now = self._now
        if now is None:
            return True
        if seen.form is not now.form or (
            now.form.name in BARS and seen.total != now.total and not _is_epoch(now)
        ):
            return self._takes_over(seen, now)
        if seen.number > now.number:
            self._restart.clear()
            self._growths += 1
            return True
        if seen.epoch is not None and now.epoch is not None and seen.epoch > now.epoch:
            self._base += now.number
            return True
        return self._starts_anew(seen.number, now.number)

    def _takes_over(self, seen: Match, now: Match) -> bool:
        if seen.form.trust < now.form.trust and (self._growths or now.form.trust >= UNMISTAKABLE):
            return False
        before, self._other = self._other, seen
        is_growing = (
            before is not None
            and (before.form, before.total) == (seen.form, seen.total)
            and seen.number > before.number
        )
        is_over = self._growths == 0 or (now.total is not None and now.number >= now.total)
        if seen.form.trust > now.form.trust or (is_growing and is_over):
            self._base = self._growths = 0
            self._restart.clear()
            return True
        return False

    def _starts_anew(self, number: int, best: int) -> bool:
        """Returns whether the counter has restarted at a low number, and not only one rank prints late."""
        if number >= best / 2:
            self._restart.clear()
            return False
        if self._restart and number <= self._restart[-1]:
            return False
        self._restart.append(number)
        if len(self._restart) < RESTART_NUMBERS_MIN:
            return False
        self._restart.clear()
        self._base = 0
        return True


def match(line: bytes) -> Match | None:
    """Returns the step in a line, by the most trusted matching form; of several bars in a line, the last."""
    if b"\x1b" in line:
        line = COLOUR.sub(b"", line)
    if b":::MLLOG" in line:
        return _seen(FORMS[-1], FORMS[-1].pattern.search(line), line)
    for form in FORMS:
        seen = _seen(form, form.pattern.search(line), line)
        if seen is not None:
            return seen
    return None


def epoch_on(line: bytes) -> Match | None:
    """Returns the epoch in a line of results, for logs without steps: "Epoch 7/20  loss 0.31"."""
    if b"\x1b" in line:
        line = COLOUR.sub(b"", line)
    match = EPOCH.search(line)
    if match is None or METRIC.search(line, match.end()) is None:
        return None
    return Match(EPOCHS, int(match[1]), None, None)


def _seen(form: Form, match: re.Match[bytes] | None, line: bytes) -> Match | None:
    if match is None:
        return None
    head = line[: match.start("step")]
    groups = match.groupdict()
    if form.name in WORDS and NOT_MADE.search(head):
        return None
    if NOT_TRAINING.search(head) or (form.needs_metric and not METRIC.search(line, match.end())):
        return None
    if form.name in BARS and not _is_training_bar(head):
        return None
    epoch_match = None if groups.get("epoch") else EPOCH.search(line)
    epoch = groups.get("epoch") or (epoch_match[1] if epoch_match else None)
    total = groups.get("total")
    return _counted(
        form,
        int(groups["step"]),
        int(epoch) if epoch else None,
        int(total) if total else None,
        is_drawn=bool(groups.get("unknown")),
    )


def _counted(
    form: Form,
    number: int,
    epoch: int | None,
    total: int | None,
    *,
    is_drawn: bool,
) -> Match | None:
    is_drawn = is_drawn or (form.name in BARS and number == 0)
    if total is not None and number > total:
        return None  # a ratio or a date, no step of so many
    if epoch is not None and total is not None and (form.per_epoch or form.name == "bar"):
        number += epoch * total
    return Match(form, number, epoch, total, is_drawn)


def _is_training_bar(head: bytes) -> bool:
    """Returns whether a bar is the trainer's: without a label, and not "Map:", "Loading checkpoint shards:"
    and similar.
    """
    label = LINE_PREFIX.sub(b"", head, count=1).split(b"|")[0]
    if re.search(rb"[A-Za-z]", label) is None:
        return True
    return TRAINING_BAR.search(label) is not None and PREPARING_BAR.search(label) is None


def _is_epoch(seen: Match) -> bool:
    return seen.epoch is not None
