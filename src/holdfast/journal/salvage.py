"""Salvages the entries of a journal that SQLite can no longer read: page by page, from the raw files.

Reads every table page in the main file and in the committed part of the write-ahead log, even if the b-tree
no longer references it. The chain of checksums shows which rows are valid, and their order. Never writes.

source: https://www.sqlite.org/fileformat2.html (b-tree pages, record format)
"""

import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from holdfast.journal.rows import PAGE_BYTES, RawEntry, SealedEntry, Tail, chain_of, meta_crc
from holdfast.journal.wal import Log, opened, read_at, size_of

_TABLE_LEAF = 0x0D
_LOCAL_BYTES_MAX = PAGE_BYTES - 35
_LOCAL_BYTES_MIN = (PAGE_BYTES - 12) * 32 // 255 - 23
_INT_BYTES = (0, 1, 2, 3, 4, 6, 8)
_PAGES_AT_HAND = 64

_Value: TypeAlias = None | int | float | bytes | str


class Salvage:
    """The raw files of one damaged journal, read without SQLite.

    Pages are indexed from 0: first those of the main file, then the frames of the write-ahead log.
    """

    def __init__(self, path: Path) -> None:
        self._main = opened(path)
        self._log = Log(Path(f"{path}-wal"))
        self._main_pages = -(-size_of(self._main) // PAGE_BYTES)
        self._frame_of_page = {number: frame for frame, number in self._log.committed.items()}
        self._at_hand: dict[int, bytes] = {}
        self.meta: dict[str, bytes] = {}  # complete once entries() is exhausted
        self.beyond = 0  # rows found after a gap; complete once entries() is exhausted

    def close(self) -> None:
        self._log.close()
        if self._main is not None:
            self._main.close()

    def entries(self, after: Tail) -> Iterator[RawEntry]:
        """Yields the entries that follow `after`, as far as they can be read and verified."""
        tail, metas, loose = after, dict[int, tuple[str, bytes]](), set[int]()
        for place in self._places([*range(self._main_pages), *self._frame_indexes()], after_seq=0):
            match self._columns(place):
                case [None, float() | int(), str(), bytes(), bytes(), str(), int()] as columns:
                    entry = _joined(columns, place >> 60, tail)
                    if entry is not None:
                        tail = Tail(*entry[5:])
                        yield entry[:6]
                    elif place >> 60 > tail.seq:
                        loose.add(place >> 60)
                case [None, str() as key, bytes() as value, int() as crc] if crc == meta_crc(key, value):
                    metas[place >> 60] = (key, value)
        self.meta.update(metas[id_] for id_ in sorted(metas))
        self.beyond = sum(seq > tail.seq for seq in loose)

    def log_goes_on_after(self, tail: Tail) -> bool:
        """Returns whether the write-ahead log contains a committed entry after `tail` beyond a damaged part.

        SQLite silently ignores the write-ahead log from the first damaged frame on. An entry in the undamaged
        part does not count as damage: its writer was killed before it updated the index that readers use.
        """
        for place in self._places(self._frame_indexes(), after_seq=tail.seq):
            if place >> 60 > tail.seq + 1:
                return False
            entry = _joined(self._columns(place), place >> 60, tail)
            if entry is not None:
                if _page_index(place) - self._main_pages >= self._log.sound_frames:
                    return True
                tail = Tail(*entry[5:])
        return False

    def _frame_indexes(self) -> list[int]:
        return [self._main_pages + frame for frame in self._log.committed]

    def _places(self, pages: list[int], after_seq: int) -> list[int]:
        """Returns the positions of rows, sorted by number: (seq << 60) | (page index << 12) | offset in the
        page.

        One int per row saves memory: a journal can have a million entries.
        """
        places = []
        for index in pages:
            for seq, offset in _cells(self._page(index)):
                if seq > after_seq:
                    places.append(seq << 60 | index << 12 | offset)
        return sorted(places)

    def _page(self, index: int) -> bytes:
        page = self._at_hand.get(index)
        if page is None:
            while len(self._at_hand) >= _PAGES_AT_HAND:
                del self._at_hand[next(iter(self._at_hand))]
            # The padding is for variable-length integers that reach past the end of a damaged page.
            page = self._at_hand[index] = self._read_page(index).ljust(PAGE_BYTES + 20, b"\0")
        return page

    def _read_page(self, index: int) -> bytes:
        if index < self._main_pages:
            return read_at(self._main, index * PAGE_BYTES, PAGE_BYTES)
        return self._log.page(index - self._main_pages)

    def _columns(self, place: int) -> list[_Value]:
        """Returns the values of the row at a position; an empty list if no row is there."""
        payload = self._payload(self._page(_page_index(place)), place & 0xFFF)
        with suppress(IndexError, UnicodeDecodeError, struct.error):
            return _record(payload)
        return []

    def _payload(self, page: bytes, offset: int) -> bytes:
        size_bytes, at = _varint(page, offset)
        _, at = _varint(page, at)
        if size_bytes <= _LOCAL_BYTES_MAX:
            return page[at : at + size_bytes]
        local = _LOCAL_BYTES_MIN + (size_bytes - _LOCAL_BYTES_MIN) % (PAGE_BYTES - 4)
        local = local if local <= _LOCAL_BYTES_MAX else _LOCAL_BYTES_MIN
        overflow = int.from_bytes(page[at + local : at + local + 4], "big")
        return page[at : at + local] + self._overflow(overflow, size_bytes - local)

    def _overflow(self, number: int, size_bytes: int) -> bytes:
        parts = []
        while size_bytes > 0 and number:
            frame = self._frame_of_page.get(number)
            if frame is None and number > self._main_pages:
                return b""
            page = self._page(number - 1 if frame is None else self._main_pages + frame)
            parts.append(page[4 : min(4 + size_bytes, PAGE_BYTES)])
            size_bytes -= PAGE_BYTES - 4
            number = int.from_bytes(page[:4], "big")
        return b"".join(parts)


def _page_index(place: int) -> int:
    return place >> 12 & (1 << 48) - 1


def _joined(columns: list[_Value], seq: int, tail: Tail) -> SealedEntry | None:
    """Returns the row as an entry if its number and checksum follow `tail`; else None."""
    match columns:
        case [None, float() | int() as at_s, str() as kind, bytes() as event, bytes() as orders, str() as why,
              int() as chain]:  # fmt: skip
            true = seq == tail.seq + 1 and chain == chain_of(tail.chain, seq, at_s, kind, event, orders, why)
            return (float(at_s), kind, event, orders, why, seq, chain) if true else None
    return None


def _cells(page: bytes) -> Iterator[tuple[int, int]]:
    """Yields the row id and the offset of each row in a table leaf page; nothing for other pages."""
    if page[0] != _TABLE_LEAF:
        return
    count = min(int.from_bytes(page[3:5], "big"), (PAGE_BYTES - 8) // 2)
    for offset in struct.unpack_from(f">{count}H", page, 8):
        if 8 < offset < PAGE_BYTES:
            yield _varint(page, _varint(page, offset)[1])[0], offset


def _record(payload: bytes) -> list[_Value]:
    """Parses the values of an SQLite record: a header of serial types, then the values."""
    head_bytes, at = _varint(payload, 0)
    body, values = head_bytes, list[_Value]()
    while at < head_bytes:
        serial, at = _varint(payload, at)
        size_bytes = _value_bytes(serial)
        values.append(_value(serial, payload[body : body + size_bytes], size_bytes))
        body += size_bytes
    return values


def _value_bytes(serial: int) -> int:
    if serial >= 12:
        return (serial - 12) // 2
    return _INT_BYTES[serial] if serial < 7 else 8 if serial == 7 else 0


def _value(serial: int, content: bytes, size_bytes: int) -> _Value:
    if len(content) < size_bytes:
        raise IndexError("the value is truncated")
    if serial >= 12:
        return content.decode() if serial % 2 else content
    if serial == 7:
        return float(struct.unpack(">d", content)[0])
    if serial in (8, 9):
        return serial - 8
    return None if serial == 0 else int.from_bytes(content, "big", signed=True)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Parses a variable-length integer, and returns it with the offset after it.

    Row ids are never negative here.
    """
    value = 0
    for shift in range(8):
        byte = data[at + shift]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + shift + 1
    return value << 8 | data[at + 8], at + 9
