"""Recognises an exception by its message alone, if a program caught it and printed only that.

    2031-03-04 05:06:07 - ERROR - Training failed: No module named 'apex'

Most signatures of exceptions begin with the type, and rightly so: in a traceback it is there. Here they are asked again
with each type before the end of the line. Nothing is taken from signatures that would take any words after the type.
"""

import re
from collections.abc import Callable, Iterator, Sequence

from holdfast.model.matches import Likeness
from holdfast.model.signatures import Signature
from holdfast.observe.search.automaton import Engine

# Types that Python's own messages tell, by how these begin; of the operating system's errors by their number.
TOLD = (
    (re.compile(r"No module named '"), "ModuleNotFoundError"),
    (re.compile(r"cannot import name '"), "ImportError"),
    (re.compile(r"\[Errno 2\] "), "FileNotFoundError"),
    (re.compile(r"\[Errno 13?\] "), "PermissionError"),
    (re.compile(r"\[Errno 17\] "), "FileExistsError"),
    (re.compile(r"\[Errno 20\] "), "NotADirectoryError"),
    (re.compile(r"\[Errno 21\] "), "IsADirectoryError"),
    (re.compile(r"\[Errno 32\] "), "BrokenPipeError"),
    (re.compile(r"\[Errno 104\] "), "ConnectionResetError"),
    (re.compile(r"\[Errno 111\] "), "ConnectionRefusedError"),
    (re.compile(r"\[Errno \d+\] "), "OSError"),
    (re.compile(r"""(['"]).+\1$"""), "KeyError"),
    (re.compile(r"'[\w-]+' codec can't decode"), "UnicodeDecodeError"),
    (re.compile(r"'[\w-]+' codec can't encode"), "UnicodeEncodeError"),
    (re.compile(r".{1,200}: line \d+ column \d+ \(char \d+\)$"), "JSONDecodeError"),
    (re.compile(r"Command .+ (?:returned non-zero exit status|died with <Signals)"), "CalledProcessError"),
)
# Of other messages, those that signatures name most. Any other "…Error: " reads as the last one.
TYPES = (
    *("AttributeError", "TypeError", "IndexError", "ValueError", "ImportError", "NameError", "UnboundLocalError"),
    *("AssertionError", "NotImplementedError", "ZeroDivisionError", "SyntaxError", "RecursionError"),
    *("UnpicklingError", "EOFError", "HTTPError", "OSError", "DistNetworkError", "DistStoreError"),
    *("ProcessExitedException", "RuntimeError", "Exception"),
)  # fmt: skip
NO_MESSAGE = "Qx zq 'vj' wk."
PARTS_MAX = 5
MESSAGE_MAX = 500
PART_MIN = 6
SEPARATOR = re.compile(r": | - |\) ")


class Untyped:
    """Matches against one engine. `signatures`, and `pattern` of each: by the engine's numbers."""

    def __init__(
        self, engine: Engine, signatures: Sequence[Signature], pattern: Callable[[int], re.Pattern[str]]
    ) -> None:
        self._engine = engine
        self._signatures = signatures
        self._pattern = pattern

    def known_as(self, line: str) -> Likeness | None:
        """The signature of the line's end; None if there is none; of several the one with the highest weight.

        The longest matching end counts: a file name quoted at the end of a message is not the message.
        """
        for message in _parts(line[-MESSAGE_MAX:]):
            told = next((kind for pattern, kind in TOLD if pattern.match(message)), None)
            found = self._hits(message, [told] if told else TYPES, any_words=told is not None)
            if found:
                best = max(found, key=lambda number: self._signatures[number].weight)
                return Likeness(signature=self._signatures[best].id, captures=found[best])
            if told:
                return None
        return None

    def _hits(self, message: str, types: Sequence[str], *, any_words: bool) -> dict[int, dict[str, str]]:
        """What is captured, by the signatures' numbers. `any_words`: also from those that would take any message."""
        lines = [f"{kind}: {message}" for kind in types]
        text = "\n".join((*lines, "")).encode()
        found: dict[int, dict[str, str]] = {}
        for number, end in self._engine.candidates(text, len(text)):
            at = text.count(b"\n", 0, end - 1)
            signature = self._signatures[number]
            if number in found or at >= len(lines) or not _is_of_one_failure(signature):
                continue
            match = self._pattern(number).search(lines[at])
            if match and (any_words or not self._takes_any_words(number, types)):
                found[number] = {
                    name: value for name, value in match.groupdict().items() if value is not None
                }
        return found

    def _takes_any_words(self, number: int, types: Sequence[str]) -> bool:
        return any(self._pattern(number).search(f"{kind}: {NO_MESSAGE}") for kind in types)


def _is_of_one_failure(signature: Signature) -> bool:
    """Not of a family of complaints, and not one whose category hangs on what it captures."""
    return (
        signature.role in ("cause", "symptom")
        and signature.severity in ("fatal", "error")
        and "{" not in signature.category
    )


def _parts(line: str) -> Iterator[str]:
    """The line from each of its separators on, the longest first: which of them the message begins with is not known."""
    begins = [found.end() for found in SEPARATOR.finditer(line)][-PARTS_MAX:]
    for begin in begins:
        part = line[begin:].strip()
        if len(part) >= PART_MIN:
            yield part
