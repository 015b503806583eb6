"""What the build of the package makes of its signatures: read, and loosened for the search.

A new machine, or a pod that begins with an empty cache, would take a second for it before the first answer. Only a
shortcut: what is missing, damaged, or was made of other signatures is made again by whoever needs it.

    python -m holdfast.observe.search.ready_made FOLDER    writes it into the folder `holdfast/signatures` of a build
"""

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
    """What the build made of each pattern; empty where it made nothing."""
    return loosened_in(files(PACKAGE))


def loosened_in(folder: Traversable) -> Mapping[str, Loose]:
    """What was made of each pattern and written into this folder."""
    kept = signature_cache.content(folder / LOOSENED, _loosening())
    try:
        return _DECODER.decode(kept) if kept else {}
    except msgspec.MsgspecError:
        return {}


def write(folder: Path) -> None:
    """Into this folder. A file that cannot be written is left out; whatever is wrong with a signature is raised."""
    known = package_signatures(as_built=False)
    signature_cache.save(folder / CACHED, signature_cache.key_of(package_texts()), known)
    loose = {one.pattern: loosened(one.pattern) for one in known}
    signature_cache.keep(folder / LOOSENED, _loosening(), msgspec.msgpack.encode(loose))
    write_index(folder, known)
    write_rules(folder)


def _loosening() -> bytes:
    """Changes with the way in which patterns are loosened."""
    return signature_cache.key_of([("byte_patterns", Path(byte_patterns.__file__).read_bytes())])


if __name__ == "__main__":
    write(Path(sys.argv[1]))
