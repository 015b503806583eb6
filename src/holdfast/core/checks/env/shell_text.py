"""Lists the simple commands of a shell script in order, as far as possible without running it. Pure.

    NPROC=8
    torchrun --nproc-per-node $NPROC         train.py "$@" 2>&1 | tee log
    -> (NPROC=8), (torchrun --nproc-per-node 8 train.py ...), (tee log)

Commands in loops and branches are listed and marked, because they may not run. Values known only at run time
stay as written: `$(date)`, and variables that nothing, or only a branch, sets in the script.

source: POSIX Shell Command Language 2.2-2.9; arrays as in bash(1)
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from holdfast.late_pattern import late

TEXT_CHARS_MAX = 1 << 16
COMMANDS_MAX = 2000
WORDS_MAX = 1 << 12
VALUE_CHARS_MAX = 1 << 14
_PIECE = (
    r"\\(?:.|\n)"
    r"|'[^']*'"
    r'|"(?:\\(?:.|\n)|[^"\\])*"'
    r"|\$\(\((?:[^()]|\([^()]*\))*\)\)"
    r"|\$\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
    r"|`[^`]*`"
    r"|\$\{[^}\n]{0,200}+\}"
    r"|\$(?:[A-Za-z_]\w*|[@*#?$!0-9])"
    r"|[^\s;&|()<>'\"\\`$]++"
    r"|\$"
)
_TOKEN = late(
    r"(?P<space>[ \t\r]+|\\\r?\n)"
    r"|(?P<comment>#[^\n]*)"
    r"|(?P<array>[A-Za-z_]\w*\+?=\((?:(?<=\s)#[^\n]{0,400}+|[^()'\"#]++|(?<!\s)#|'[^']*+'|\"(?:\\.|[^\"\\])*+\"){0,2000}+\))"
    r"|(?P<redirect>(?:\d*|&)(?:<<<|<<-?|>>|>\||<>|[<>])(?:&[\d-]+)?)"
    r"|(?P<operator>\|\||&&|;;|\|&|[;&|\n()])"
    rf"|(?P<word>(?:{_PIECE})+)"
    r"|(?P<other>.)"
)
_ASSIGNMENT = late(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_KEYWORDS = frozenset(("if", "then", "else", "elif", "while", "until", "do", "{", "!", "time"))
_OPENS = frozenset(("if", "while", "until", "for", "case", "select", "{"))
_CLOSES = frozenset(("fi", "done", "esac", "}"))
_NO_COMMANDS = frozenset(("for", "case", "select", "function", "in", *_CLOSES))
TESTS = frozenset(("[", "[[", "test", "command", "which", "type", "hash", "grep", "false"))
_VARIABLE = late(
    r"\$(?:(?P<plain>[A-Za-z_]\w*|[@*#?$!0-9])"
    r"|\{(?P<name>[A-Za-z_]\w*|[@*0-9])(?P<index>\[[^]]*\])?(?:(?P<how>:?[-=])(?P<default>[^}]*))?\})"
)

Value = str | tuple[str, ...]


class SimpleCommand(Struct, frozen=True, kw_only=True):
    """One command of a shell script.

    `sets`: assignments before it. `then`: the operator after it: "&&", "||", ";", "|".

    `raw`: as written, for a shell to run. `is_sure`: it runs unconditionally.
    """

    words: tuple[str, ...] = ()
    sets: dict[str, str] = {}
    then: str = ";"
    raw: str = ""
    is_sure: bool = True


def simple_commands(
    text: str, env: Mapping[str, str], arguments: Sequence[str] = ()
) -> tuple[SimpleCommand, ...]:
    """Returns the simple commands of a shell script.

    `arguments`: $1 and following. Values set in the text are substituted.
    """
    values: dict[str, Value] = dict(env)
    values |= {str(place): argument for place, argument in enumerate(arguments, 1)}
    values["@"] = values["*"] = tuple(arguments)
    found: list[SimpleCommand] = []
    depth, before = 0, SimpleCommand()
    for raws, then in _split(text[:TEXT_CHARS_MAX]):
        depth += sum(raw in _OPENS for raw in _leading(raws)) - (raws[0] in _CLOSES)
        is_sure = depth <= 0 and not _depends(before)
        command = _command(raws, then, values, is_sure)
        before = command or SimpleCommand(then=then)
        if command is not None:
            found.append(command)
        if len(found) >= COMMANDS_MAX:
            break
    return tuple(found)


def _leading(raws: Sequence[str]) -> Sequence[str]:
    """Returns the keywords before a command, and the word after them."""
    count = next((place for place, raw in enumerate(raws) if raw not in _KEYWORDS), len(raws))
    return raws[: count + 1]


def _depends(before: SimpleCommand) -> bool:
    """Returns whether the following command may not run, depending on this one."""
    return before.then == "||" or (
        before.then == "&&" and before.words[:1] != () and before.words[0] in TESTS
    )


def _split(text: str) -> Iterator[tuple[list[str], str]]:
    """Yields the raw words of each command and the operator after it, without redirections."""
    raws: list[str] = []
    skip_next = False
    for token in _TOKEN.finditer(text):
        kind, raw = token.lastgroup, token[0]
        if kind in ("word", "array"):
            if not skip_next:
                raws.append(raw)
            skip_next = False
        elif kind == "redirect":
            if raws and raws[-1].isdigit() and text[token.start() - 1 : token.start()].isdigit():
                raws.pop()
            skip_next = "&" not in raw.lstrip("&")
        elif kind == "operator":
            skip_next = False
            if raws:
                yield raws, ";" if raw in ("\n", "(", ")", ";;") else raw
            raws = []
    if raws:
        yield raws, ";"


def _command(raws: Sequence[str], then: str, values: dict[str, Value], is_sure: bool) -> SimpleCommand | None:
    raws = list(raws)
    while raws and raws[0] in _KEYWORDS:
        raws.pop(0)
    if not raws or raws[0] in _NO_COMMANDS:
        return None
    written = " ".join(raws)
    sets: dict[str, Value] = {}
    while raws and (found := _ASSIGNMENT.fullmatch(raws[0])):
        raws.pop(0)
        name, adds, value = found.groups()
        sets[name] = _assigned(value, values, values.get(name, "") if adds else "")
    shown = {name: _joined(value) for name, value in sets.items()}
    if not raws:
        _keep(sets, values, is_sure)
        return SimpleCommand(sets=shown, then=then, raw=written, is_sure=is_sure)
    words = [word for raw in raws for word in expanded(raw, values)][:WORDS_MAX]
    if words and words[0] in ("export", "declare", "local", "readonly", "typeset"):
        declared = [match for raw in raws[1:] if (match := _ASSIGNMENT.fullmatch(raw))]
        _keep({one[1]: _assigned(one[3], values, "") for one in declared}, values, is_sure)
    return SimpleCommand(words=tuple(words), sets=shown, then=then, raw=written, is_sure=is_sure)


def _keep(sets: Mapping[str, Value], values: dict[str, Value], is_sure: bool) -> None:
    """Records assigned values.

    A variable set in a branch is unknown afterwards, unless its value stays equal.
    """
    for name, value in sets.items():
        if is_sure and sum(map(len, value)) <= VALUE_CHARS_MAX:
            values[name] = value
        elif values.get(name) != value:
            values.pop(name, None)


def _assigned(raw: str, values: Mapping[str, Value], before: Value) -> Value:
    if raw.startswith("(") and raw.endswith(")"):
        more = tuple(
            word
            for token in _TOKEN.finditer(raw[1:-1])
            if token.lastgroup == "word"
            for word in expanded(token[0], values)
        )
        return (before if isinstance(before, tuple) else ()) + more
    return _joined(before) + " ".join(expanded(f'"{raw}"' if _is_bare(raw) else raw, values))


def _is_bare(raw: str) -> bool:
    return not any(mark in raw for mark in "'\"\\")


def _joined(value: Value) -> str:
    return value if isinstance(value, str) else " ".join(value)


def expanded(raw: str, values: Mapping[str, Value]) -> list[str]:
    """Returns the words that a word of a shell script expands to, after substitution, splitting and quote removal."""
    words: list[str] = []
    current: str | None = None
    for piece in re.finditer(_PIECE, raw):
        text = piece[0]
        if text.startswith("'"):
            current = (current or "") + text[1:-1]
        elif text.startswith("\\"):
            current = (current or "") + ("" if text[1] == "\n" else text[1])
        elif text.startswith('"'):
            inner = _put_in(text[1:-1], values)
            if text in ('"$@"', '"${@}"') or re.fullmatch(r'"\$\{\w+\[@\]\}"', text):
                words += _words_of(text[1:-1], values)
                continue
            current = (current or "") + re.sub(r'\\([\\"$`])', r"\1", inner.replace("\\\n", ""))
        elif text.startswith("$") and not text.startswith("$("):
            current = _unquoted(_words_of(text, values), words, current)
        else:
            current = (current or "") + text
    return words if current is None else [*words, current]


def _unquoted(parts: list[str], words: list[str], current: str | None) -> str | None:
    """Joins a value's words to the neighbouring text: the first continues the word before, the last one is
    returned.
    """
    for part in parts[:-1]:
        words.append((current or "") + part)
        current = None
    return (current or "") + parts[-1] if parts else current


def _words_of(text: str, values: Mapping[str, Value]) -> list[str]:
    found = _VARIABLE.fullmatch(text)
    value = _value(found, values) if found else None
    if value is None:
        return [text]
    if isinstance(value, str) and not is_known(value):
        return [value]  # a value known only at run time is most often one word
    return list(value) if isinstance(value, tuple) else value.split()


def _put_in(text: str, values: Mapping[str, Value]) -> str:
    def one(found: re.Match[str]) -> str:
        value = _value(found, values)
        return found[0] if value is None else _joined(value)

    return _VARIABLE.sub(one, text)


def _value(found: re.Match[str], values: Mapping[str, Value]) -> Value | None:
    """Returns the value of a variable; None if it is unknown."""
    value = values.get(found["plain"] or found["name"])
    if found["index"] and found["index"] not in ("[@]", "[*]"):
        return _item(value, found["index"][1:-1])
    if found["default"] is not None and (value is None or (value == "" and found["how"].startswith(":"))):
        return _put_in(found["default"].strip("\"'"), values)
    return value


def _item(value: Value | None, index: str) -> str | None:
    if not index.isdigit() or value is None:
        return None
    items = value if isinstance(value, tuple) else (value,)
    return items[int(index)] if int(index) < len(items) else ""


def is_known(text: str) -> bool:
    """Returns whether the value of a shell word is known without running the script: it has no variable and no
    command substitution.
    """
    return "$" not in text and "`" not in text
