"""A checkpoint on a disk and its copy, both in a folder of the test."""

import os
import zipfile

from holdfast.agent.checkpoints.copying import copied, source_of
from holdfast.agent.checkpoints.restore import compared
from holdfast.agent.checkpoints.store import Owner, Store
from holdfast.core.checkpoints.saves import Save

OWNER = Owner(job="t", state_dir="/nowhere", node="n")


def saved(path, content=b""):
    """A file as torch.save writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("data.pkl", content or os.urandom(100_000))
    return path


def save_of(folder, *files, unit="", is_renamed=False):
    return Save(
        folder=str(folder),
        unit=unit,
        first_s=0.0,
        last_s=0.0,
        last_change=1,
        files=set(files),
        renamed=set(files) | {unit} if is_renamed else set(),
        still_open=set(),
        seen=set(),
    )


class Memory:
    """The store of one worker. `shm`: stands for /dev/shm."""

    def __init__(self, shm):
        self.store = Store(OWNER, str(shm))
        assert self.store.take()

    def copy(self, save):
        source = source_of(save, self.store.newest())
        *_, manifest = self.pieces(source)
        return manifest

    def pieces(self, source):
        for manifest in copied(source, self.store, self.store.next_number()):
            if manifest is not None:
                self.store.publish(manifest)
            yield manifest

    def compared(self):
        told = []
        return compared(self.store, self.store.newest(), told.append)
