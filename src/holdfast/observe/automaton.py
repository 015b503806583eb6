"""All signatures as one automaton over a block of bytes. First version."""

import re
from collections.abc import Sequence

import hyperscan

from holdfast.model.signatures import Signature


class Automaton:
    """Where which signature may stand: (its index, offset behind the match)."""

    def __init__(self, signatures: Sequence[Signature]) -> None:
        self.patterns = [re.compile(signature.pattern, re.ASCII) for signature in signatures]
        self._database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        expressions = [signature.pattern.encode() for signature in signatures]
        flags = []
        for expression in expressions:
            for flag in (
                hyperscan.HS_FLAG_MULTILINE,
                hyperscan.HS_FLAG_MULTILINE | hyperscan.HS_FLAG_PREFILTER,
            ):
                try:
                    hyperscan.Database().compile(expressions=[expression], ids=[0], elements=1, flags=[flag])
                    flags.append(flag)
                    break
                except hyperscan.error:
                    continue
            else:
                raise ValueError(f"{expression!r} cannot be compiled")
        self._database.compile(
            expressions=expressions, ids=list(range(len(expressions))), elements=len(expressions), flags=flags
        )

    def candidates(self, block: bytes) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []

        def on_match(number: int, start: int, end: int, flags: int, context: object) -> None:
            found.append((number, end))

        self._database.scan(block, match_event_handler=on_match)
        return found
