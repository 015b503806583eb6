"""Finds out which checkpoint was saved, and when it is complete, from what happens to files. Pure.

Input: changes in watched folders, as inotify reports them. A save is all that is written to one checkpoint:

    a folder of its own     out/checkpoint-500/model.safetensors, out/checkpoint-500/optimizer.pt
    files in one folder     run/checkpoint.pt, or run/model.pt and run/optimizer.pt

A save is complete once nothing of it is open for writing and nothing has happened to it for a while. A file or folder
that its writer renames into place is complete at once: a killed process closes its files, but renames none.
"""

from typing import Literal

from msgspec import Struct

from holdfast.core.checkpoints import names

QUIET_S = (
    2.0  # after the last file was closed. Ranks that gather their states pause for less between two files
)
RENAMED_QUIET_S = 0.3  # after a rename: for the file that names it
BUSY_S = 5.0  # a file that is replaced all the time is copied after this long all the same
REST_SHARE = 4.0  # of the time that the last copy took: no copy is made for this long after it
SAVES_MAX = 64

Kind = Literal["created", "written", "renamed", "gone"]


class Change(Struct, frozen=True, kw_only=True):
    """Something that happened to a file or folder. `folder`: the watched one; `name`: in it. `at_s`: any steady clock.

    `root`: the folder in which checkpoints are saved, `folder` or one above it.

    `kind`: created: it is new, and still open if it is a file. written: closed after writing. renamed: renamed to this
    name. gone: removed, or renamed to another name. `before`: the path that a renamed folder had.
    """

    kind: Kind
    root: str
    folder: str
    name: str
    is_folder: bool = False
    before: str = ""
    at_s: float


class Save(Struct, kw_only=True):
    """A save in progress. `folder`: contains it; `unit`: its folder in there; empty: files in `folder` itself.

    `files`: names of the files that were written in `folder` itself. `renamed`: those of them, or the unit, that were
    renamed into place last. `seen`: paths of all files that were seen being written, relative to `folder`.
    """

    folder: str
    unit: str
    first_s: float
    last_s: float
    last_change: int  # counts all changes
    files: set[str]
    renamed: set[str]
    still_open: set[str]
    seen: set[str]

    @property
    def is_renamed(self) -> bool:
        """Returns whether all that is known of it was renamed into place."""
        if self.unit:
            return self.unit in self.renamed
        return bool(self.files) and self.files <= self.renamed


class Saves:
    """All saves in progress."""

    def __init__(self) -> None:
        self._saves: dict[tuple[str, str], Save] = {}
        self._rests_until_s = 0.0
        self._changes = 0
        self._unfinished: dict[str, set[str]] = {}

    def feed(self, change: Change) -> None:
        """Adds a change. Files that were written before they were watched come in the order of their times."""
        self._changes += 1
        if names.is_tracker(change.name) and not change.is_folder:
            self._prolong(change)
            return
        place = placed(change.root, change.folder, change.name, is_folder=change.is_folder)
        if place is None:
            self._note_unfinished(change)
            return
        folder, unit = place
        if change.kind == "gone":
            self._gone(folder, unit, change)
            return
        save = self._saves.get((folder, unit))
        if save is None:
            if change.is_folder and change.kind == "created":
                return  # an empty folder is no save yet
            if len(self._saves) >= SAVES_MAX:
                del self._saves[min(self._saves, key=lambda key: self._saves[key].last_s)]
            save = self._saves[folder, unit] = Save(
                folder=folder,
                unit=unit,
                first_s=change.at_s,
                last_s=change.at_s,
                last_change=self._changes,
                files=set(),
                renamed=set(),
                still_open=set(),
                seen=set(),
            )
        save.last_s, save.last_change = change.at_s, self._changes
        self._note(save, change)

    def _note(self, save: Save, change: Change) -> None:
        path = f"{change.folder}/{change.name}"
        if change.is_folder:
            if change.kind == "renamed" and path == f"{save.folder}/{save.unit}":
                save.renamed.add(save.unit)
            if change.kind == "renamed":
                start = path[len(save.folder) :].lstrip("/")
                save.seen |= {f"{start}/{name}" for name in self._unfinished.pop(change.before, ())}
            return
        if change.kind == "created":
            save.still_open.add(path)
            save.renamed.discard(save.unit or change.name)
            return
        save.still_open.discard(path)
        save.seen.add(path[len(save.folder) :].lstrip("/"))
        if save.unit:
            save.renamed.discard(save.unit)
            return
        save.files.add(change.name)
        if change.kind == "renamed":
            save.renamed.add(change.name)
        else:
            save.renamed.discard(change.name)

    def _gone(self, folder: str, unit: str, change: Change) -> None:
        save = self._saves.get((folder, unit))
        if save is None:
            return
        path = f"{change.folder}/{change.name}"
        save.still_open.discard(path)
        save.files.discard(change.name)
        is_all = path == f"{folder}/{unit}" if unit else not (save.files or save.still_open)
        if is_all:
            del self._saves[folder, unit]

    def _note_unfinished(self, change: Change) -> None:
        """Remembers what is written in a folder that is still to be renamed."""
        parts = change.folder[len(change.root) :].split("/")
        place = next((place for place, part in enumerate(parts) if part and names.is_unfinished(part)), None)
        if place is None or change.is_folder or change.kind in ("created", "gone"):
            return
        folder = change.root + "/".join(parts[: place + 1])
        if len(self._unfinished) >= SAVES_MAX and folder not in self._unfinished:
            del self._unfinished[next(iter(self._unfinished))]
        name = "/".join((*parts[place + 1 :], change.name))
        self._unfinished.setdefault(folder, set()).add(name)

    def _prolong(self, change: Change) -> None:
        """The file that names the newest checkpoint belongs to the save that is being made beside it."""
        for save in self._saves.values():
            if save.folder == change.folder:
                save.last_s = change.at_s

    def complete(self, at_s: float) -> Save | None:
        """Returns the newest complete save and removes it with all older ones; None if there is none."""
        if at_s < self._rests_until_s:
            return None
        ready = [save for save in self._saves.values() if _is_complete(save, at_s)]
        if not ready:
            return None
        newest = max(ready, key=lambda save: save.last_change)
        for save in ready:
            del self._saves[save.folder, save.unit]
        return newest

    @property
    def in_progress(self) -> bool:
        return bool(self._saves)

    def put_back(self, save: Save, at_s: float) -> None:
        """Takes back a save of which a file is still open: it is complete a while after `at_s` at the earliest."""
        save.last_s = at_s
        self._saves.setdefault((save.folder, save.unit), save)

    def copied(self, took_s: float, at_s: float) -> None:
        """Records how long a copy took, so that copying never takes more than a fifth of the time."""
        self._rests_until_s = at_s + REST_SHARE * took_s

    def failed(self) -> None:
        """Removes saves that the end of an attempt may have cut off: all that were not renamed into place."""
        self._saves = {key: save for key, save in self._saves.items() if save.is_renamed}
        for save in self._saves.values():
            save.still_open.clear()


def placed(root: str, folder: str, name: str, *, is_folder: bool = False) -> tuple[str, str] | None:
    """Returns to which checkpoint a file or folder belongs: the folder that contains it, and its own folder in there.

    "/out", "/out/checkpoint-500/global_step500", "x.pt" -> "/out", "checkpoint-500". "/run", "/run", "a.pt" -> "/run", "".
    None: to none.
    """
    parts = [part for part in folder[len(root) :].split("/") if part]
    if is_folder:
        parts.append(name)
    above = root
    for place, part in enumerate(parts):
        if names.is_folder(part):
            is_moved_in_it = any(names.is_unfinished(later) for later in parts[place + 1 :])
            return None if is_moved_in_it else (above, part)
        if names.is_unfinished(part):
            return None
        above = f"{above.rstrip('/')}/{part}"
    return (folder, "") if not is_folder and names.is_file(name) else None


def root_of(path: str) -> str:
    """Returns the folder in which checkpoints are saved, from the path of a file that is being written:
    "/out/checkpoint-500/global_step500/x.pt" -> "/out".
    """
    parts = path.split("/")[:-1]
    while len(parts) > 1 and (names.is_folder(parts[-1]) or names.is_unfinished(parts[-1])):
        parts.pop()
    return "/".join(parts) or "/"


def _is_complete(save: Save, at_s: float) -> bool:
    if save.is_renamed:
        return at_s - save.last_s >= RENAMED_QUIET_S or at_s - save.first_s >= BUSY_S
    return not save.still_open and at_s - save.last_s >= QUIET_S
