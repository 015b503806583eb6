"""Whether a file is in the kernel's page cache. Asking does not read it."""

import ctypes
import mmap
import os


def evict(path):
    """Writes it to the disk and has the kernel forget it."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def is_cached(path):
    """True if all of its pages are; see mincore(2)."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
        size = len(mapped)
        memory = ctypes.c_char.from_buffer(mapped)
        pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        failed = ctypes.CDLL(None, use_errno=True).mincore(
            ctypes.c_void_p(ctypes.addressof(memory)), ctypes.c_size_t(size), pages
        )
        del memory  # else the mapping cannot be closed
        assert not failed, os.strerror(ctypes.get_errno())
        return all(page & 1 for page in pages)
