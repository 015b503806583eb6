"""Parses and loosens the package's signatures at build time, so that the first answer on a new machine comes
at once.

Without it, a new machine, or a pod with an empty cache, needs a second more. Missing, damaged or outdated
files are rebuilt at run time.

    python -m holdfast.observe.search.ready_made FOLDER    writes the files into `holdfast/signatures` of a build
"""

import functools
import sys
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import msgspec

from holdfast.observe.search import byte_patterns, signature_cache
from holdfast.observe.search.byte_patterns import Loose, loosened
from holdfast.observe.search.phrase_store import write_index
from holdfast.observe.search.rule_store import write_rules
from holdfast.observe.search.signature_store import CACHED, PACKAGE, package_signatures, package_texts

LOOSENED = "loosened.msgpack"
_DECODER = msgspec.msgpack.Decoder(dict[str, Loose])


def loosened_patterns() -> Mapping[str, Loose]:
    """Returns the loosened patterns that the build stored, by pattern; empty if there are none."""
    return loosened_in(files(PACKAGE))


def loosened_in(folder: Traversable) -> Mapping[str, Loose]:
    """Returns the loosened patterns stored in a folder, by pattern; empty if there are none."""
    kept = signature_cache.content(folder / LOOSENED, _loosening())
    try:
        return _decoded(kept) if kept else {}
    except msgspec.MsgspecError:
        return {}


@functools.lru_cache(maxsize=1)  # decoding takes longer than comparing: a process may search many texts
def _decoded(kept: bytes) -> Mapping[str, Loose]:
    """Decodes stored patterns. Raises MsgspecError."""
    return _DECODER.decode(kept)


def write(folder: Path) -> None:
    """Writes all prepared files into a folder.

    Skips a file that cannot be written; raises on an invalid signature.
    """
    known = package_signatures(as_built=False)
    signature_cache.save(folder / CACHED, signature_cache.key_of(package_texts()), known)
    loose = {one.pattern: loosened(one.pattern) for one in known}
    signature_cache.keep(folder / LOOSENED, _loosening(), msgspec.msgpack.encode(loose))
    write_index(folder, known)
    write_rules(folder)


def _loosening() -> bytes:
    """Returns a cache key that changes with the code that loosens patterns."""
    return signature_cache.key_of([("byte_patterns", Path(byte_patterns.__file__).read_bytes())])


if __name__ == "__main__":
    write(Path(sys.argv[1]))
