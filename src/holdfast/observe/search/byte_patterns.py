r"""Converts a regular expression for text into a looser one for bytes that both search engines read alike.

Pure.

A loosened pattern matches in every line in which the original matches, and perhaps in others; callers then
try the original pattern on the lines found. So it can leave out what is expensive for an automaton:

    ^(?:\S+ )*?(?P<type>[\w.]*Error): (?P<message>.+)$     ->     Error: [^\n]
    (?<!not )Xid \((?P<bdf>[^)]{1,40})\): (?P<xid>\d+)     ->     Xid \([^\n)]+\): [0-9]

A lookaround is dropped, a long bounded repeat becomes unbounded, an unbounded part before the first
distinctive word is dropped, and of a repeat at the end one round is enough. A character beyond ASCII is one
in Python and up to four bytes here. Nothing ever matches a newline, so a match lies within one line.

source: the parse tree of CPython's Lib/re/_parser.py, which is easier to transform than the text of a pattern
"""

import re
from collections.abc import Collection, Iterator
from itertools import takewhile
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, TypeAlias

from msgspec import Struct

Node: TypeAlias = tuple[Any, Any]  # an operation of CPython's parser and its operand
Edges: TypeAlias = tuple[bool, bool]

WORD_LETTERS = 4  # a word of so many is rare enough to begin a search with
COMMON = frozenset(
    ("info", "warning", "warn", "debug", "step", "loss", "rank", "iter", "iteration", "epoch", "time")
)
FIRST_LETTERS = 2  # a class of so few is but a letter that may be large or small
PREFIX_LETTERS = 3  # what stands before it and has so many is rare itself
ROUNDS_MAX = 16  # of a class; counted repeats beyond it cost the automaton more than they are worth
GROUP_ROUNDS_MAX = 4
UTF8_BYTES_MAX = 4
REPEATS = (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT)
CLASSES = (ops.ANY, ops.NOT_LITERAL, ops.IN)
ASCII = tuple(chr(code) for code in range(128))
CATEGORIES = {
    ops.CATEGORY_DIGIT: re.compile(r"\d", re.ASCII),
    ops.CATEGORY_NOT_DIGIT: re.compile(r"\D", re.ASCII),
    ops.CATEGORY_SPACE: re.compile(r"\s", re.ASCII),
    ops.CATEGORY_NOT_SPACE: re.compile(r"\S", re.ASCII),
    ops.CATEGORY_WORD: re.compile(r"\w", re.ASCII),
    ops.CATEGORY_NOT_WORD: re.compile(r"\W", re.ASCII),
}
ROUNDS = {(0, None): b"*", (1, None): b"+", (0, 1): b"?", (1, 1): b""}
EDGES = (True, True)
EDGE_BEFORE = (True, False)
NO_EDGES = (False, False)
PLACES = {
    ops.AT_BEGINNING: b"^",
    ops.AT_BEGINNING_STRING: b"^",
    ops.AT_END: b"$",
    ops.AT_END_STRING: b"$",
    ops.AT_BOUNDARY: rb"\b",
    ops.AT_NON_BOUNDARY: rb"\B",
}


class TooLoose(ValueError):
    """Raised when a pattern has no part that every match must contain."""


class Loose(Struct, frozen=True):
    """A loosened pattern. `expression`: regular expression for bytes.

    `any_of`: words of which one occurs in every match; empty if unknown. `caseless`: they are in lower case,
    and the text may have any case.
    """

    expression: bytes
    any_of: tuple[bytes, ...]
    caseless: bool


def loosened(pattern: str) -> Loose:
    """Returns the loosened form of a pattern.

    Raises re.error for an invalid pattern, and TooLoose for one that matches the empty line.
    """
    tree = parser.parse(pattern, re.ASCII)
    nodes = _flat(tree)
    caseless = bool(tree.state.flags & re.IGNORECASE)
    words_caseless = caseless or _has_caseless_part(tree)
    words = {word.encode("utf-8", "surrogatepass") for word in _any_of(nodes)}
    if words_caseless:
        words = {word.lower() for word in words}  # of bytes: only ASCII has small letters, as for the engines
    chosen = next((some for some in _choices(tree, nodes) if _least(some)), None)
    if chosen is None:
        raise TooLoose(f"{pattern!r} has no text that every matching line must contain")
    text = _whole(chosen)
    return Loose(b"(?i:" + text + b")" if caseless else text, tuple(sorted(words)), words_caseless)


def _choices(tree: Any, nodes: list[Node]) -> Iterator[list[Node]]:
    """Yields possible loosened forms, the cheapest first; one that can match nothing is useless and
    skipped by the caller.
    """
    yield _trimmed(nodes)
    yield nodes
    yield _looked_for(tree)


def _any_of(nodes: list[Node]) -> tuple[str, ...]:
    """Returns the most distinctive words of a sequence, of which one must occur: every part must match, so
    one part's do.
    """
    best: tuple[str, ...] = ()
    run = ""
    for node in [*nodes, (ops.ANY, None)]:
        if node[0] is ops.LITERAL:
            run += chr(node[1])
            continue
        for choice in ((run,) if run else (), _any_of_one(node)):
            if min(map(_worth, choice), default=0) > min(map(_worth, best), default=0):
                best = choice
        run = ""
    return best


def _worth(word: str) -> float:
    """Returns how distinctive a word is, by its length; a word common in logs has the lowest value."""
    return 0.5 if word.strip().lower() in COMMON else len(word)


def _any_of_one(node: Node) -> tuple[str, ...]:
    op, operand = node
    if op is ops.BRANCH:
        choices = [_any_of(_flat(branch)) for branch in operand[1]]
        return tuple({word for choice in choices for word in choice}) if all(choices) else ()
    if op in REPEATS and operand[0]:
        return _any_of(_flat(operand[2]))
    if op is ops.SUBPATTERN:  # with flags of its own
        return _any_of(_flat(operand[3]))
    if op is ops.IN and all(part is ops.LITERAL and code >= len(ASCII) for part, code in operand):
        return tuple(chr(code) for _, code in operand)  # marks; a letter of ASCII stands in every line
    return ()


def _has_caseless_part(tree: Any) -> bool:
    """Returns True if a group in the pattern ignores case although the pattern as a whole does not."""
    for op, operand in tree:
        if op is ops.SUBPATTERN and (operand[1] & re.IGNORECASE or _has_caseless_part(operand[3])):
            return True
        if op is ops.BRANCH and any(map(_has_caseless_part, operand[1])):
            return True
        if op in REPEATS and _has_caseless_part(operand[2]):
            return True
        if op is ops.ATOMIC_GROUP and _has_caseless_part(operand):
            return True
    return False


def _flat(tree: Any) -> list[Node]:
    """Returns the nodes in sequence, without capturing groups and lookarounds."""
    nodes: list[Node] = []
    for op, operand in tree:
        if op is ops.SUBPATTERN and not operand[1] and not operand[2]:
            nodes += _flat(operand[3])
        elif op is ops.ATOMIC_GROUP:
            nodes += _flat(operand)
        elif op not in (ops.ASSERT, ops.ASSERT_NOT):
            nodes.append((op, operand))
    return nodes


def _looked_for(tree: Any) -> list[Node]:
    """Returns the content of the first lookahead, for a pattern that has nothing else."""
    for op, operand in tree:
        if op is ops.ASSERT and operand[0] > 0 and _least(nodes := _without_end(_flat(operand[1]))):
            return nodes
    return []


def _trimmed(nodes: list[Node]) -> list[Node]:
    """Returns the nodes without the parts at both ends that need not be searched; alternatives are trimmed
    one by one.
    """
    if len(nodes) == 1 and nodes[0][0] is ops.BRANCH:
        return [(ops.BRANCH, (None, [_trimmed(_flat(branch)) for branch in nodes[0][1][1]]))]
    return _without_end(_without_start(nodes))


def _without_start(nodes: list[Node]) -> list[Node]:
    """Drops an unbounded part before the first distinctive word, because it would keep the automaton busy
    all the time.
    """
    word_at = next((at for at in range(len(nodes)) if _is_word(nodes[at:])), 0)
    unbounded = [at for at in range(word_at) if _is_unbounded(nodes[at])]
    if unbounded and _letters(nodes[: unbounded[-1]]) < PREFIX_LETTERS:
        nodes = nodes[unbounded[-1] + 1 :]
    first = next((at for at, node in enumerate(nodes) if not _is_weak(node)), 0)
    is_word = sum(1 for _ in takewhile(lambda node: node[0] is ops.LITERAL, nodes[first:])) >= WORD_LETTERS
    return nodes[first:] if is_word else nodes


def _is_weak(node: Node) -> bool:
    """Returns True for a node that may match anything or nothing; an automaton starts more cheaply with
    what follows.
    """
    op, operand = node
    if op is ops.BRANCH:
        return all(_is_weak(one) or one[0] is ops.AT for branch in operand[1] for one in branch)
    return op in CLASSES or (op in REPEATS and not operand[0])


def _is_word(nodes: list[Node]) -> bool:
    op, operand = nodes[0]
    if op is ops.BRANCH:
        return all(len(branch) and _is_word(_flat(branch)) for branch in operand[1])
    if op is ops.IN and len(nodes) > 1 and len(_members(nodes[0])[0]) <= FIRST_LETTERS:
        return _is_word(nodes[1:])  # [Ff]ailed
    return _letters(list(takewhile(lambda node: node[0] is ops.LITERAL, nodes)), COMMON) >= WORD_LETTERS


def _letters(nodes: list[Node], without: Collection[str] = ()) -> int:
    """Returns the number of letters and digits in the words of the nodes."""
    text = "".join(chr(operand) if op is ops.LITERAL else " " for op, operand in nodes)
    return sum(len(word) for word in re.findall(r"\w+", text) if word.lower() not in without)


def _is_unbounded(node: Node) -> bool:
    op, operand = node
    if op in REPEATS:
        return _is_long(operand[1]) or any(_is_unbounded(one) for one in operand[2])
    if op is ops.BRANCH:
        return any(_is_unbounded(one) for branch in operand[1] for one in branch)
    if op is ops.SUBPATTERN:
        return any(_is_unbounded(one) for one in operand[3])
    return op in (ops.GROUPREF, ops.GROUPREF_EXISTS)


def _is_long(most: Any) -> bool:
    return most is ops.MAXREPEAT or most > ROUNDS_MAX


def _without_end(nodes: list[Node]) -> list[Node]:
    """Drops optional parts at the end, because each further byte of them would be reported as one more
    match.
    """
    nodes = list(nodes)
    if len(nodes) > 1 and nodes[-1] == (ops.AT, ops.AT_END) and _is_anything(nodes[-2]):
        nodes.pop()
    while nodes and nodes[-1][0] in REPEATS:
        least, most, of = nodes[-1][1]
        nodes.pop()
        if least:
            if len(of) == 1 and least <= ROUNDS_MAX:
                nodes += _flat(of) * least
            else:
                nodes.append((ops.MAX_REPEAT, (least, least, of)))
            break
    return nodes


def _is_anything(node: Node) -> bool:
    op, operand = node
    return op in REPEATS and [one for one, _ in operand[2]] == [ops.ANY] and operand[1] is ops.MAXREPEAT


def _least(nodes: list[Node]) -> int:
    """Returns the approximate minimum length of a match; 0 if it may be empty."""
    return sum(map(_least_of, nodes))


def _least_of(node: Node) -> int:
    op, operand = node
    if op in REPEATS:
        return int(operand[0]) * _least(_flat(operand[2]))
    if op is ops.BRANCH:
        return min(_least(_flat(branch)) for branch in operand[1])
    if op is ops.SUBPATTERN:
        return _least(_flat(operand[3]))
    return int(op is ops.LITERAL or op in CLASSES)


def _whole(nodes: list[Node]) -> bytes:
    """Returns the regular expression for the trimmed nodes. Of a last character, its first byte is enough."""
    if nodes[-1][0] is ops.BRANCH and len(nodes) == 1:
        return b"(?:" + b"|".join(map(_whole, nodes[0][1][1])) + b")"
    if nodes[-1][0] in CLASSES:
        return _sequence(nodes[:-1], EDGE_BEFORE) + _bytes_class(*_members(nodes[-1]))
    return _sequence(nodes, EDGES)


def _sequence(nodes: Any, edges: Edges) -> bytes:
    """Returns the regular expression for nodes.

    `edges`: whether `^` and `$` may stand at its start and end.
    """
    last = len(nodes) - 1
    return b"".join(
        _one(node, (edges[0] and at == 0, edges[1] and at == last)) for at, node in enumerate(nodes)
    )


def _one(node: Node, edges: Edges) -> bytes:
    op, operand = node
    if op is ops.LITERAL:
        return _character(operand)
    if op in CLASSES:
        return _class(node, 1, 1)
    if op is ops.AT:
        return _place(operand, edges)
    if op is ops.BRANCH:
        return b"(?:" + b"|".join(_sequence(branch, edges) for branch in operand[1]) + b")"
    if op is ops.SUBPATTERN:
        return _group(operand, edges)
    if op is ops.ATOMIC_GROUP:
        return b"(?:" + _sequence(operand, edges) + b")"
    if op in REPEATS:
        return _repeat(*operand)
    if op in (ops.ASSERT, ops.ASSERT_NOT):
        return b""
    return rb"[^\n]*"  # a group named again


def _place(place: Any, edges: Edges) -> bytes:
    text = PLACES[place]
    if (text == b"^" and not edges[0]) or (text == b"$" and not edges[1]):
        return b""
    return text


def _group(operand: Any, edges: Edges) -> bytes:
    _, on, off, of = operand
    start = b"(?i:" if on & re.IGNORECASE else b"(?-i:" if off & re.IGNORECASE else b"(?:"
    return start + _sequence(of, edges) + b")"


def _repeat(least: int, most: Any, of: Any) -> bytes:
    if len(of) == 1 and of[0][0] in CLASSES:
        return _class(of[0], least, most)
    text = b"(?:" + _sequence(of, NO_EDGES) + b")"
    if most is ops.MAXREPEAT or most > GROUP_ROUNDS_MAX:
        return text + _rounds(min(least, GROUP_ROUNDS_MAX), None)
    return text + _rounds(least, most)


def _rounds(least: int, most: int | None) -> bytes:
    known = ROUNDS.get((least, most))
    if known is not None:
        return known
    return b"{%d}" % least if least == most else b"{%d,%s}" % (least, b"" if most is None else b"%d" % most)


def _character(code: int) -> bytes:
    encoded = chr(code).encode("utf-8", "surrogatepass")
    return (
        re.escape(encoded) if code < 128 else b"(?:" + b"".join(b"\\x%02x" % byte for byte in encoded) + b")"
    )


def _class(node: Node, least: int, most: Any) -> bytes:
    """Returns the regular expression for a repeated character class.

    A character beyond ASCII may have up to four bytes.
    """
    codes, is_beyond = _members(node)
    text = _bytes_class(codes, is_beyond)
    if _is_long(most):
        return text + _rounds(min(least, ROUNDS_MAX), None)
    return text + _rounds(least, most * UTF8_BYTES_MAX if is_beyond else most)


def _members(node: Node) -> tuple[list[int], bool]:
    """Returns the ASCII characters of a class, without the newline, and whether it contains others."""
    op, operand = node
    if op is ops.ANY:
        return [code for code in range(128) if code != 10], True
    if op is ops.NOT_LITERAL:
        return [code for code in range(128) if code not in (10, operand)], True
    is_negated = operand[0][0] is ops.NEGATE
    inside: set[int] = set()
    is_beyond = False
    for kind, value in operand:
        if kind is ops.LITERAL:
            inside.add(value)
        elif kind is ops.RANGE:
            inside |= {*range(value[0], min(value[1], 127) + 1)}
            is_beyond |= value[1] > 127
        elif kind is ops.CATEGORY:
            inside |= {code for code in range(128) if CATEGORIES[value].match(ASCII[code])}
            is_beyond |= value in (ops.CATEGORY_NOT_DIGIT, ops.CATEGORY_NOT_SPACE, ops.CATEGORY_NOT_WORD)
    is_beyond |= any(code > 127 for code in inside)
    if is_negated:
        inside, is_beyond = set(range(128)) - inside, True
    return [code for code in sorted(inside) if code < 128 and code != 10], is_beyond


def _bytes_class(codes: list[int], is_beyond: bool) -> bytes:
    if is_beyond and len(codes) == 127:
        return rb"[^\n]"
    ranges: list[list[int]] = []
    for code in codes:
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    if is_beyond:
        ranges.append([128, 255])
    return b"[" + b"".join(_range(first, last) for first, last in ranges) + b"]"


def _range(first: int, last: int) -> bytes:
    return b"\\x%02x" % first if first == last else b"\\x%02x-\\x%02x" % (first, last)
