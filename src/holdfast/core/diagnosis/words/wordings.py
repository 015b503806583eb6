"""Classifies an error without a signature by the words of its message: a thing, and what is wrong with it. Pure.

Every project words its errors differently, so no list of messages is complete. A message about a shard that cannot be
opened contains a word for the shard and says that it cannot be opened; both must be present. Tags, wordings and
lookup tables are in signatures/rules/messages.toml.
"""

from collections.abc import Mapping, Sequence

from holdfast.core.diagnosis.candidates import TRIES_MANY, Ruling, filled
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.model.matches import Match
from holdfast.model.signatures import EXCEPTION, SPOKEN, Words

WEIGHT = 0.7  # below most signatures: the program is not known
SPOKEN_WEIGHT = 0.5  # of a line that only mentions an error
SPOKEN_IN = ("message", "reason", "said", "told", "marked")  # captures that hold its message
FIRST_EXIT_BYTES = 1 << 10  # of a table of the first process that ended
CODE_WEIGHT = 0.4  # of a bare exit code: any other line explains more
MESSAGE_CHARS_MAX = 500  # later text is rarely about the error


def of_code(match: Match, known: KnowledgeBase) -> Ruling | None:
    """Returns a ruling for a line with a bare exit code or signal; None for a code that only reports a failure."""
    if not known.has("gives-exit-code", match):
        return None
    name, code = match.captures.get("name", "").upper(), match.captures.get("code", "")
    row = known.read("exit-signal", name) if name else known.read("exit-code", code)
    return Ruling(category=row.category, role="symptom", weight=CODE_WEIGHT) if row else None


def of_first_exits(matches: Sequence[Match], known: KnowledgeBase) -> dict[int, Ruling]:
    """Returns rulings on launchers' tables of the first process that ended, by the exit code in a row below.

    By id() of the match that begins the table; a code that only reports a failure gives no ruling.
    """
    rows = [one for one in matches if known.has("exit-code-row", one)]
    found: dict[int, Ruling] = {}
    for head in matches:
        if not known.has("table-of-first-exit", head):
            continue
        below = [
            one
            for one in rows
            if one.source == head.source and 0 < one.last_offset - head.offset < FIRST_EXIT_BYTES
        ]
        row = known.read("exit-code", below[0].captures.get("code", "")) if below else None
        if row:
            found[id(head)] = Ruling(
                category=row.category, role="symptom", severity="fatal", weight=CODE_WEIGHT
            )
    return found


def of_words(match: Match, known: KnowledgeBase) -> Ruling | None:
    """Returns a ruling for an exception or warning by the words of its message.

    Returns None if the words are not conclusive, or if the type of the exception already shows an error in the code.
    """
    if known.has("complaint", match) and _passes(match, known):
        return Ruling(category=match.category, role="context", severity="info", weight=SPOKEN_WEIGHT)
    if match.signature == SPOKEN:
        return _of_spoken(match, known)
    if known.has("words-of-native-code", match):
        return _of_native_code(match, known)
    if known.has("not-implemented", match):
        return _of_what_is_not_implemented(match, known)
    kind = kind_of_exception(match, known)
    if not known.has("vague-exception", match) or not kind or known.says("mistake-in-code", kind):
        return None
    found = known.found("exception-message", match.text)
    message = found["message"][:MESSAGE_CHARS_MAX] if found else ""
    if known.says("python-about-arguments", message):
        return None
    if match.signature == EXCEPTION and known.says("asks-of-own-methods", message):
        return Ruling(category=match.category, weight=WEIGHT, action="fix_code")
    row = known.read("message-about", message) or known.read("exception-kind", kind)
    category = row.category if row else ""
    if not row and (known.says("file-exception", kind) or known.says("file-missing", message)):
        category = "data_error"
    if category == "data_error" and known.says("says-what-to-set", message):
        return Ruling(category=match.category, weight=WEIGHT, action="fix_config")
    if category:
        return Ruling(category=category, weight=WEIGHT)
    if asks_for_a_setting(message, known):
        return Ruling(category=match.category, weight=WEIGHT, action="fix_config")
    return None


def _of_native_code(match: Match, known: KnowledgeBase) -> Ruling | None:
    """Returns a ruling for the words with which native code ended the process."""
    message = match.captures.get("message", "")[:MESSAGE_CHARS_MAX]
    if known.has("text-of-a-cuda-error", match):
        message = f"CUDA: {message}"
    row = known.read("message-about", message)
    return Ruling(category=row.category, weight=WEIGHT) if row else None


def _of_what_is_not_implemented(match: Match, known: KnowledgeBase) -> Ruling | None:
    message = match.captures.get("message", "")[:MESSAGE_CHARS_MAX]
    if known.says("left-to-subclass", message) or not asks_for_a_setting(message, known):
        return None
    return Ruling(category=match.category, weight=WEIGHT, action="fix_config")


def asks_for_a_setting(message: str, known: KnowledgeBase) -> bool:
    """Returns whether a message is about a wrong setting and not about wrong code."""
    if known.says("how-to-call-a-function", message):
        return False
    if known.says("about-model-inputs", message) and not known.says("names-an-option", message):
        return False
    if known.says("asks-for-a-setting", message):
        return True
    return known.says("makes-a-demand", message) and not known.says("about-tensors", message)


def kind_of_exception(match: Match, known: KnowledgeBase) -> str:
    """Returns the type name of the exception, without its module.

    It is taken from the traceback, or from the line if the traceback is incomplete.
    """
    kind = match.error_type or match.captures.get("type", "")
    if not kind and known.has("failed-assertion", match):
        kind = "AssertionError"
    return kind.rpartition(".")[2]


def _passes(match: Match, known: KnowledgeBase) -> bool:
    """Returns whether a complaint says that there is no error, or that its program continues.

    Endless retries do not count.
    """
    tries_again = known.says("tries-again", match.text)
    return known.says("error-that-passes", match.text) or tries_again and match.count < TRIES_MANY


def _of_spoken(match: Match, known: KnowledgeBase) -> Ruling | None:
    if _is_of_no_program(match, known):
        return Ruling(category=match.category, role="context", severity="info", weight=SPOKEN_WEIGHT)
    message = next((match.captures[name] for name in SPOKEN_IN if name in match.captures), "")
    message = message[:MESSAGE_CHARS_MAX]
    row = known.read("message-about", message)
    category = row.category if row else "data_error" if known.says("file-missing", message) else ""
    if category:
        return Ruling(category=category, severity="warning", weight=SPOKEN_WEIGHT)
    if asks_for_a_setting(message, known):
        return Ruling(category=match.category, severity="warning", weight=SPOKEN_WEIGHT, action="fix_config")
    return None


def of_likeness(match: Match, known: KnowledgeBase) -> Ruling | None:
    """Returns a ruling for a line in which a program quotes an error that a signature describes.

    The severity is only a warning, because a quotation is weaker evidence than the error's own line.
    """
    like = known.get(match.known_as.signature) if match.known_as else None
    if like is None or _passes(match, known) or _is_of_no_program(match, known):
        return None
    captures = match.known_as.captures if match.known_as else {}
    return Ruling(
        category=like.category,
        role=like.role,
        severity="warning",
        weight=SPOKEN_WEIGHT,
        action=like.action,
        title=_filled(like.title, captures),
        explanation=_filled(like.explanation, captures),
        advice=_filled(like.advice, captures),
    )


def _filled(words: Words, captures: Mapping[str, str]) -> Words:
    return Words(en=filled(words.en, captures), zh=filled(words.zh, captures))


def _is_of_no_program(match: Match, known: KnowledgeBase) -> bool:
    """Returns whether the operating system wrote the line, or the line is only a warning."""
    return known.says("written-by-system", match.text) or known.says("calls-itself-warning", match.text)
