"""Recognises an exception by its message alone, for programs that catch it and print only the message.

    2031-03-04 05:06:07 - ERROR - Training failed: No module named 'apex'

Most signatures of exceptions begin with the type, as tracebacks do. Here they are tried with each known type
put before the message at the end of the line. Signatures that accept any text after the type are not used.
"""

import re
from collections.abc import Callable, Iterator, Sequence

from holdfast.model.matches import Likeness
from holdfast.model.signatures import Signature
from holdfast.observe.search.automaton import Engine

# Exception types of Python's own messages, by how these begin; of the operating system's errors by their number.
MESSAGE_TYPES = (
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
    """Recogniser of exception messages without a type.

    `signatures` and `pattern` are indexed by the engine's numbers.
    """

    def __init__(
        self, engine: Engine, signatures: Sequence[Signature], pattern: Callable[[int], re.Pattern[str]]
    ) -> None:
        self._engine = engine
        self._signatures = signatures
        self._pattern = pattern

    def known_as(self, line: str) -> Likeness | None:
        """Returns the signature of an exception that matches the end of a line; None if none does; the one with the
        highest weight if several do.

        The longest matching end counts: a file name quoted at the end of a message is not the message.
        """
        for message in _parts(line[-MESSAGE_MAX:]):
            error_type = next((kind for pattern, kind in MESSAGE_TYPES if pattern.match(message)), None)
            found = self._hits(
                message, [error_type] if error_type else TYPES, any_words=error_type is not None
            )
            if found:
                best = max(found, key=lambda number: self._signatures[number].weight)
                return Likeness(signature=self._signatures[best].id, captures=found[best])
            if error_type:
                return None
        return None

    def _hits(self, message: str, types: Sequence[str], *, any_words: bool) -> dict[int, dict[str, str]]:
        """Returns captures by signature number.

        `any_words`: include signatures that accept any text after the type.
        """
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
    """Returns True if a signature stands for one kind of failure, with a fixed category."""
    return (
        signature.role in ("cause", "symptom")
        and signature.severity in ("fatal", "error")
        and "{" not in signature.category
    )


def _parts(line: str) -> Iterator[str]:
    """Yields the ends of a line after each of its separators, longest first, because the message may begin
    at any of them.
    """
    begins = [found.end() for found in SEPARATOR.finditer(line)][-PARTS_MAX:]
    for begin in begins:
        part = line[begin:].strip()
        if len(part) >= PART_MIN:
            yield part
