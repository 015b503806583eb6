"""Holds back the lines of a candidate step form until it is known which format a log has. Pure."""

from holdfast.model.step_forms import SPECIFIC
from holdfast.parsers.steps.reading import FormReader, Found

HELD_MAX = 256  # lines held back per form
PREPARED_S_MAX = 10.0


class Rival:
    """A candidate for the format of a log: a step form, or another progress bar of the same form, with the lines that
    are held back for it.
    """

    def __init__(self, reader: FormReader) -> None:
        self.reader = reader
        self.held: list[tuple[Found, bytes, float | None]] = []
        self.growths = 0
        self._best: int | None = None

    def saw(self, found: Found, line: bytes, at_s: float | None) -> None:
        self.held.append((found, line, at_s))
        if len(self.held) > HELD_MAX:
            del self.held[HELD_MAX // 2]  # the first and last ones are the most informative
        if found.number is None or self._best is None or found.number > self._best:
            self.growths += 1
        self._best = found.number

    def is_long(self) -> bool:
        """Returns whether the candidate is not a progress bar, or is one that has run longer than most bars of
        preparations (loading, tokenising).
        """
        form = self.reader.form
        return (
            not form.is_bar
            or form.trust >= SPECIFIC
            or self.outlasts(PREPARED_S_MAX)
            or len(self.held) >= HELD_MAX
        )

    def stands(self) -> bool:
        """Returns whether this progress bar grows slowly and is not at its end."""
        last = self.held[-1][0]
        return (
            self.reader.form.is_bar
            and self.growths > 1
            and self.outlasts(PREPARED_S_MAX)
            and (last.total is None or last.number is None or last.number < last.total)
        )

    def outlasts(self, seconds: float) -> bool:
        """Returns whether this progress bar has already run longer than `seconds`."""
        last = self.held[-1][0].elapsed_s
        return last is not None and last > seconds
