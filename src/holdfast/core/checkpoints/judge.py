"""Decides whether a checkpoint on the disk is still the one that was copied, and what has to be put back. Pure.

A file that differs from its copy is damaged, or the training has written a newer one. A writer that renames its files
into place never changes one of them: the same inode with another content is damage. A writer that opens the file
itself leaves the same inode: then what the format shows decides (a cut zip file, an empty file).
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from holdfast.late_pattern import late

Verdict = Literal["intact", "missing", "damaged", "newer"]

_NUMBER = late(r"\d+")


class Kept(Struct, frozen=True, kw_only=True):
    """A file of a copied checkpoint. `name`: its path relative to the folder of the copy's manifest.

    `size`: bytes. `crc`: CRC-32 of its content. `inode`, `changed_ns`: of the file on the disk when it was copied.
    `renamed`: its writer renamed it into place. `link`: a symbolic link to this; it has no content. `tracker`: it
    only names the newest checkpoint.
    """

    name: str
    size: int = 0
    crc: int = 0
    mode: int = 0o644
    inode: int = 0
    changed_ns: int = 0
    renamed: bool = False
    link: str = ""
    tracker: bool = False


class Found(Struct, frozen=True, kw_only=True):
    """What lies on the disk under the name of a copied file. `crc`: None if its size already differs.

    `wrong`: what its format shows to be wrong, such as a cut zip file; empty if nothing. `names_nothing`: a tracker or
    link that names a checkpoint which is not there.
    """

    size: int
    inode: int
    changed_ns: int
    crc: int | None = None
    wrong: str = ""
    names_nothing: bool = False


class Plan(Struct, frozen=True, kw_only=True):
    """What is to be done. `outcome`: intact: nothing; newer: the training has written a newer one; restore: `files` are
    written again, the others are good.
    """

    outcome: Literal["intact", "newer", "restore"]
    files: tuple[str, ...] = ()
    missing: int = 0
    damaged: int = 0


def verdict(kept: Kept, found: Found | None) -> Verdict:
    """Judges one file. `found`: None if there is none of that name."""
    if found is None:
        return "missing"
    if kept.tracker or kept.link:
        return "damaged" if found.names_nothing or (kept.size and not found.size) else "intact"
    if found.size == kept.size and found.crc == kept.crc:
        return "intact"
    is_same_file = found.inode == kept.inode
    if is_same_file and (kept.renamed or found.changed_ns == kept.changed_ns):
        return "damaged"
    return "damaged" if found.wrong or (kept.size and not found.size) else "newer"


def plan(kept: Sequence[Kept], found: Mapping[str, Found | None], *, superseded: bool) -> Plan:
    """Decides what to put back. `found`: by name. `superseded`: a newer complete checkpoint lies beside it.

    A checkpoint is restored as a whole or not at all: where some of its files are damaged or gone, newer ones among
    them are replaced as well, because one checkpoint never consists of files of two moments.
    """
    verdicts = {one.name: verdict(one, found.get(one.name)) for one in kept}
    of_content = [verdicts[one.name] for one in kept if not one.tracker]
    missing, damaged = of_content.count("missing"), of_content.count("damaged")
    if superseded:
        return Plan(outcome="newer")
    if not missing and not damaged:
        if "newer" in of_content:
            return Plan(outcome="newer")
        lost = tuple(one.name for one in kept if verdicts[one.name] != "intact")
        return Plan(outcome="restore", files=lost, missing=len(lost)) if lost else Plan(outcome="intact")
    files = tuple(one.name for one in kept if verdicts[one.name] != "intact")
    return Plan(outcome="restore", files=files, missing=missing, damaged=damaged)


def lacking(kept: Sequence[str], found: Sequence[str]) -> str:
    """Returns a file of a complete checkpoint of which a newer one has none like it, by names without their numbers:
    ("checkpoint-5/trainer_state.json",), ("checkpoint-10/model.safetensors",) -> "checkpoint-5/trainer_state.json".
    """
    forms = {_NUMBER.sub("#", name) for name in found}
    return next((name for name in kept if _NUMBER.sub("#", name) not in forms), "")
