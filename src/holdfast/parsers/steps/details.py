"""Parses what a step line prints beside step, time and loss: gradient norm, learning rate, and the names of its samples.

step 12 | loss: 2.301 | grad norm: 1.04 | learning rate: 3.0E-04          Megatron-LM, torchtitan
{'loss': 2.3, 'grad_norm': 1.04, 'learning_rate': 5e-05, 'epoch': 0.1}    transformers
step=12 loss=2.301 gnorm=1.04 lr=0.0003 batch_hash=9f31aa                 fairseq, own scripts

Values are found by their labels, whatever form the line has. Pure.
"""

from msgspec.structs import replace

from holdfast.late_pattern import late
from holdfast.model.steps import StepRecord
from holdfast.parsers.steps.values import NUM, number

BETWEEN = rb"[\"']?\s{0,24}[:=]?\s{0,24}[\"'\[(]{0,2}"
GRAD_NORM = late(
    rb"(?i)(?<![a-z0-9])(?:total[_ -]?)?(?:grad(?:ient)?[_ -]?norm|gnorm|grad_l2_norm)"
    + BETWEEN
    + rb"("
    + NUM
    + rb")"
)
LEARNING_RATE = late(
    rb"(?i)(?<![a-z0-9])(?:learning[_ -]?rate|lr)(?:[_ -]?0)?" + BETWEEN + rb"(" + NUM + rb")(?![a-z0-9])"
)
DATA = late(
    rb"(?i)(?<![a-z0-9])(?:(?:batch|data|sample|samples|input)[_ -]?(?:hash|checksum|sha|md5|crc|ids?|ind(?:ex|ices))"
    rb"|consumed[_ ](?:train[_ ])?samples|sample[_ ]order)[\"']?\s{0,24}[:=]?\s{0,24}"
    rb"(\[[^\]]{1,400}\]|[\"']?[A-Za-z0-9_.,+/-]{1,128})"
)
LABELS = (b"norm", b"lr", b"rate", b"hash", b"sample", b"batch", b"data", b"input")


class Details:
    """A parser of further values of step lines, which are found by their labels and added to step records."""

    def __init__(self) -> None:
        self._carried: dict[str, float | str] = {}

    def carry(self, line: bytes) -> None:
        """Keeps the values of a log line without a step, for the next record."""
        self._carried |= details(line)

    def added(self, record: StepRecord, line: bytes) -> StepRecord:
        """Returns the step record with the further values of its line added."""
        found = self._carried | details(line)
        self._carried = {}
        return replace(record, **found) if found else record


def details(line: bytes) -> dict[str, float | str]:
    """Returns the further values in a line by the names of their fields in `StepRecord`."""
    low = line.lower()
    if not any(label in low for label in LABELS):
        return {}
    found: dict[str, float | str] = {}
    for name, pattern in (("grad_norm", GRAD_NORM), ("learning_rate", LEARNING_RATE)):
        if (match := pattern.search(line)) and (value := number(match[1])) is not None:
            found[name] = value
    if match := DATA.search(line):
        found["data"] = match[1].strip(b"\"'").decode(errors="replace")
    return found
