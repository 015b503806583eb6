r"""Decodes pickles that contain only dicts, lists, tuples, text, bytes, numbers, booleans and None. Pure.

A pickle is a program that may import and call anything. Here an interpreter of this module runs it, which
supports no classes, calls or module names: such a pickle is refused, with the name that it requested, before
any of it can run. It accepts no length that exceeds the data, numbers its memory by the values
written, not by the claimed numbers, and never compares or hashes nested values.

Most records are written by torch's Pickler, and those take the fast path: one regular expression proves that
the whole program consists of harmless instructions, then Python's C unpickler runs it. The proof excludes
classes, lengths and memory numbers that C allocates without a check (LONG_BINPUT 2^31 takes 34 GB), and nested
tuples, because C hashes a dict's key without any bound (a tuple of twice the same tuple, 60 deep, never ends; one
10^6 deep crashes). So in this path a tuple holds two values fetched from the memory or just written as text,
and only text, dicts and lists are stored in the memory.

source: CPython, Lib/pickle.py and Modules/_pickle.c; torch/csrc/jit/serialization/pickler.cpp
"""

import io
import pickle
import re
import struct
from collections.abc import Callable
from typing import Any, NoReturn

from holdfast.late_pattern import late

SIZE_BYTES_MAX = 64 << 20  # 20,000 entries with 50 frames each take 8 MB
STEPS_MAX = 4_000_000  # of the machine: 64 for each entry, one for each of its frames; about 3 s
PEEK_BYTES = 1 << 16
DIGITS_MAX = 100
LONG_BYTES_MAX = 64
CONTAINERS_MAX = 4_000_000  # lists and dicts that C may make: a byte becomes 80

# A run of harmless instructions: values fetched from memory, alone or in pairs that become a tuple; numbers;
# empty lists and dicts, and filling them. An empty MARK is excluded: the value below it (a tuple) would be
# taken for a dict or list that may be stored in the memory.
_NUMBERED = rb"(?:h.|j..[\x00-\x0f]\x00)"
_RUN = late(
    rb"(?:h.h.\x86|"
    + _NUMBERED
    + rb"(?!X)|K.|\](?:\(e)?|\((?![ue])|[ue](?:q.|r..[\x00-\x0f]\x00)?|[N\x88\x89]|M.."
    rb"|J....|\x8a\x08.{8}|\}(?:\(u)?|G.{8})*+",
    re.DOTALL,
)
_FETCHED = late(_NUMBERED, re.DOTALL)
_PUT = late(rb"(?:q.|r..[\x00-\x0f]\x00)?", re.DOTALL)
_SECOND = late(_NUMBERED + rb"\x86", re.DOTALL)


class Refused(ValueError):
    """Raised when a pickle is refused; the message says why, in words for users."""


class _Plain(pickle.Unpickler):
    """C's unpickler for programs that were proved harmless; it additionally refuses every class."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise _of_class(f"{module}.{name}")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise Refused("it refers to external objects, which no flight record does")


def unpickled(data: bytes) -> Any:
    """Returns the value of a pickle. Invalid UTF-8 in text becomes U+FFFD.

    raises: Refused, with the reason in words: a class or call, damage, or a size beyond the limits above
    """
    if len(data) > SIZE_BYTES_MAX:
        raise Refused(
            f"it is larger than {SIZE_BYTES_MAX >> 20} MiB, the maximum for a flight record: not read"
        )
    if is_plain(data):
        try:
            return _Plain(io.BufferedReader(io.BytesIO(data), PEEK_BYTES)).load()
        except (
            pickle.UnpicklingError,
            ValueError,
            KeyError,
            IndexError,
            TypeError,
            AttributeError,
            EOFError,
        ):
            pass  # damaged: our machine says how
    return _Machine(data).run()


def is_plain(data: bytes) -> bool:
    """Returns whether the whole pickle is torch's own output, which is safe for C's unpickler."""
    if data[:2] != b"\x80\x02" or data.count(b"]") + data.count(b"}") > CONTAINERS_MAX:
        return False
    at, size = 2, len(data)
    while True:
        run = _RUN.match(data, at)
        assert run is not None  # it matches nothing at all, too
        at = run.end()
        fetched = _FETCHED.match(data, at)  # what stands before a text
        at = fetched.end() if fetched else at
        if data[at : at + 1] != b"X":
            return data[at:] == b"."
        at += 5 + int.from_bytes(data[at + 1 : at + 5], "little")
        if at > size:
            return False
        put = _PUT.match(data, at)
        assert put is not None
        at = put.end()
        if fetched and data[at : at + 1] == b"\x86":  # something from memory, then text: a tuple
            at += 1
        elif second := _SECOND.match(data, at):
            at = second.end()
        elif data[at : at + 1] == b"X":
            at = _second_text(data, at)


def _second_text(data: bytes, at: int) -> int:
    """Returns the offset after a second text, and after the tuple instruction that joins it with
    the first.
    """
    end = at + 5 + int.from_bytes(data[at + 1 : at + 5], "little")
    put = _PUT.match(data, end)
    end = put.end() if put else end
    return end + 1 if data[end : end + 1] == b"\x86" else at


def _of_class(name: str) -> Refused:
    shown = "".join(one if one.isprintable() else "?" for one in name[:100])
    return Refused(
        f"it refers to {shown!r}, which could run any code; a flight record holds only plain values: refused, "
        "and nothing of it was run"
    )


_CALLS = {
    b"R": "REDUCE",
    b"b": "BUILD",
    b"\x81": "NEWOBJ",
    b"\x92": "NEWOBJ_EX",
    b"o": "OBJ",
    b"\x82": "EXT1",
    b"\x83": "EXT2",
    b"\x84": "EXT4",
    b"P": "PERSID",
    b"Q": "BINPERSID",
    b"\x97": "NEXT_BUFFER",
    b"\x98": "READONLY_BUFFER",
}


class _Machine:
    """Runs one pickle program: a stack of values, with marks, and a memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memory: dict[int, Any] = {}

    def run(self) -> Any:
        """Interprets the pickle and returns its value. raises: Refused"""
        data, steps = self._data, _STEPS
        for _ in range(STEPS_MAX):
            code = data[self._at : self._at + 1]
            self._at += 1
            if code == b".":
                return self._pop()
            step = steps.get(code)
            if step is None:
                self._refuse(code)
            step(self)
        raise Refused(
            f"it takes more than {STEPS_MAX} steps to read, the maximum for a flight record: not read"
        )

    def _refuse(self, code: bytes) -> NoReturn:
        if not code:
            raise Refused("it ends too early")
        if code in (b"c", b"i"):
            names = [self._line().decode("utf-8", "replace") for _ in range(2)]
            raise _of_class(".".join(names))
        if code == b"\x93":
            names = [one for one in self._stack[-2:] if isinstance(one, str)]
            raise _of_class(".".join(names) or "a class")
        if code in _CALLS:
            raise Refused(
                f"it constructs an object ({_CALLS[code]}), which could run any code; a flight record holds only "
                "plain values: refused, and nothing of it was run"
            )
        raise Refused(f"it is no pickle of plain values: instruction 0x{code.hex()} at byte {self._at - 1}")

    # Reading

    def _bytes(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise Refused(
                f"it declares {size} bytes at byte {self._at}, but only {len(self._data) - self._at} are left"
            )
        taken, self._at = self._data[self._at : end], end
        return taken

    def _number(self, size: int) -> int:
        return int.from_bytes(self._bytes(size), "little")

    def _line(self) -> bytes:
        end = self._data.find(b"\n", self._at)
        if end < 0:
            raise Refused("it ends within a line")
        line, self._at = self._data[self._at : end], end + 1
        return line

    # The stack

    def _pop(self) -> Any:
        if not self._stack or (self._marks and self._marks[-1] == len(self._stack)):
            raise Refused(f"it is damaged: the stack is empty at byte {self._at - 1}")
        return self._stack.pop()

    def _top(self, kind: type) -> Any:
        floor = self._marks[-1] if self._marks else 0
        if len(self._stack) <= floor or type(self._stack[-1]) is not kind:
            raise Refused(f"it is damaged: no {kind.__name__} is there to be filled at byte {self._at - 1}")
        return self._stack[-1]

    def _above_mark(self) -> list[Any]:
        if not self._marks:
            raise Refused(f"it is damaged: a mark is missing at byte {self._at - 1}")
        mark = self._marks.pop()
        above = self._stack[mark:]
        del self._stack[mark:]
        return above

    def _append(self) -> None:
        value = self._pop()
        self._top(list).append(value)

    def _appends(self) -> None:
        above = self._above_mark()
        self._top(list).extend(above)

    def _set_item(self) -> None:
        value, key = self._pop(), self._pop()
        self._fill([key, value])

    def _fill(self, items: list[Any]) -> None:
        into = self._top(dict)
        keys, values = items[::2], items[1::2]
        if len(keys) != len(values):
            raise Refused(f"it is damaged: a key without a value at byte {self._at - 1}")
        for key in keys:  # nothing that nests is hashed: it could take for ever, or too deep
            if not isinstance(key, (str, int, float, bytes)) and key is not None:
                raise Refused("it has a key that is neither text nor a number")
        into.update(zip(keys, values, strict=True))

    def _dict_of_mark(self) -> None:
        items = self._above_mark()
        self._stack.append({})
        self._fill(items)

    def _tuple(self, size: int) -> None:
        parts = [self._pop() for _ in range(size)]
        self._stack.append(tuple(reversed(parts)))

    def _pop_or_mark(self) -> None:
        if self._marks and self._marks[-1] == len(self._stack):
            self._marks.pop()
        else:
            self._pop()

    # The memory

    def _put(self, number: int) -> None:
        if not self._stack:
            raise Refused("it is damaged: the stack is empty where a value is to be stored in the memo")
        self._memory[number] = self._stack[-1]

    def _get(self, number: int) -> None:
        try:
            self._stack.append(self._memory[number])
        except KeyError:
            raise Refused(f"it is damaged: it reads memo entry {number}, which was never stored") from None

    # Values

    def _text(self, size: int) -> None:
        self._stack.append(self._bytes(size).decode("utf-8", "replace"))

    def _raw_text(self) -> None:
        self._stack.append(self._line().decode("raw-unicode-escape", "replace"))

    def _long(self, size: int) -> None:
        if size > LONG_BYTES_MAX:
            raise Refused(f"it has a number of {size} bytes, which is too long for a flight record")
        self._stack.append(int.from_bytes(self._bytes(size), "little", signed=True))

    def _decimal(self) -> int | bool:
        text = self._line().decode("latin-1").removesuffix("L")
        if len(text) > DIGITS_MAX:
            raise Refused(f"it has a number of {len(text)} digits, which is too long for a flight record")
        try:
            return {"00": False, "01": True}[text] if text in ("00", "01") else int(text)
        except ValueError:
            raise Refused(f"it is damaged: no number at byte {self._at}") from None

    def _decimal_float(self) -> None:
        text = self._line()[:DIGITS_MAX]
        try:
            self._stack.append(float(text))
        except ValueError:
            raise Refused(f"it is damaged: no number at byte {self._at}") from None

    def _frame(self) -> None:
        size = self._number(8)
        if size > len(self._data) - self._at:
            raise Refused(
                f"it declares a frame of {size} bytes, but only {len(self._data) - self._at} are left"
            )

    def _protocol(self) -> None:
        if (version := self._number(1)) > 5:
            raise Refused(f"it is a pickle of protocol {version}, which is not supported")


_SIGNED = struct.Struct("<i")
_DOUBLE = struct.Struct(">d")
_STEPS: dict[bytes, Callable[[_Machine], object]] = {
    b"\x80": _Machine._protocol,
    b"\x95": _Machine._frame,
    b"(": lambda m: m._marks.append(len(m._stack)),
    b"}": lambda m: m._stack.append({}),
    b"]": lambda m: m._stack.append([]),
    b")": lambda m: m._stack.append(()),
    b"N": lambda m: m._stack.append(None),
    b"\x88": lambda m: m._stack.append(True),
    b"\x89": lambda m: m._stack.append(False),
    b"K": lambda m: m._stack.append(m._number(1)),
    b"M": lambda m: m._stack.append(m._number(2)),
    b"J": lambda m: m._stack.append(_SIGNED.unpack(m._bytes(4))[0]),
    b"G": lambda m: m._stack.append(_DOUBLE.unpack(m._bytes(8))[0]),
    b"\x8a": lambda m: m._long(m._number(1)),
    b"\x8b": lambda m: m._long(m._number(4)),
    b"I": lambda m: m._stack.append(m._decimal()),
    b"L": lambda m: m._stack.append(m._decimal()),
    b"F": _Machine._decimal_float,
    b"V": _Machine._raw_text,
    b"X": lambda m: m._text(m._number(4)),
    b"\x8c": lambda m: m._text(m._number(1)),
    b"\x8d": lambda m: m._text(m._number(8)),
    b"C": lambda m: m._stack.append(m._bytes(m._number(1))),
    b"B": lambda m: m._stack.append(m._bytes(m._number(4))),
    b"\x8e": lambda m: m._stack.append(m._bytes(m._number(8))),
    b"h": lambda m: m._get(m._number(1)),
    b"j": lambda m: m._get(m._number(4)),
    b"g": lambda m: m._get(int(m._decimal())),
    b"q": lambda m: m._put(m._number(1)),
    b"r": lambda m: m._put(m._number(4)),
    b"p": lambda m: m._put(int(m._decimal())),
    b"\x94": lambda m: m._put(len(m._memory)),
    b"a": _Machine._append,
    b"e": _Machine._appends,
    b"l": lambda m: m._stack.append(m._above_mark()),
    b"s": _Machine._set_item,
    b"u": lambda m: m._fill(m._above_mark()),
    b"d": _Machine._dict_of_mark,
    b"t": lambda m: m._stack.append(tuple(m._above_mark())),
    b"\x85": lambda m: m._tuple(1),
    b"\x86": lambda m: m._tuple(2),
    b"\x87": lambda m: m._tuple(3),
    b"0": _Machine._pop_or_mark,
    b"1": lambda m: m._above_mark(),
}
