"""Splits a stream of bytes into texts of whole lines, and finds lines that announce a pause. Pure."""

from holdfast.parsers.log_lines.text import ANY_END
from holdfast.parsers.steps.forms import MARK_WORDS

LINE_BYTES_MAX = 64 << 10
MARK_BYTES = tuple(word.encode() for word in MARK_WORDS)


class TextCutter:
    """Splits blocks of bytes at line ends, and keeps the incomplete line at a block's end.

    It keeps at most LINE_BYTES_MAX bytes; the rest of a longer line is dropped.
    """

    def __init__(self) -> None:
        self._tail = b""
        self._skipping = False

    def feed(self, block: bytes) -> bytes:
        """Returns the lines completed by this block, without the last line end.

        A carriage return counts as one.
        """
        if self._skipping:
            end = ANY_END.search(block)
            if end is None:
                return b""
            self._skipping, block = False, block[end.end() :]
        text = self._tail + block if self._tail else block
        end_at = text.rfind(b"\n")
        if len(text) - end_at > LINE_BYTES_MAX:
            end_at = max(end_at, text.rfind(b"\r"))  # of a bar that is never ended by anything else
        self._tail = text[end_at + 1 :]
        text = text[:end_at] if end_at >= 0 else b""
        if len(self._tail) > LINE_BYTES_MAX:
            text = (text + b"\n" if text else b"") + self._tail[:LINE_BYTES_MAX]
            self._tail, self._skipping = b"", True
        return text

    def flush(self) -> bytes:
        """Returns the incomplete last line of the text."""
        rest, self._tail = self._tail, b""
        return rest


def lines_with_marks(text: bytes) -> set[bytes]:
    """Returns the lines with a word of checkpoints, evaluations, compilations or growing work."""
    found = set()
    for word in MARK_BYTES:
        place = text.find(word)
        while place >= 0:
            end = text.find(b"\n", place)
            end = len(text) if end < 0 else end
            found.add(text[text.rfind(b"\n", 0, place) + 1 : end])
            place = text.find(word, end)
    return found
