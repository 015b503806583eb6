"""Copies the agent's folder from its image to a volume: holdfast-copy FOLDER, in an init container."""

import os
import sys
from contextlib import suppress


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("holdfast-copy FOLDER: copies the agent's folder to FOLDER")
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    try:
        _copy(here, sys.argv[1])
    except OSError as error:
        sys.exit(f"holdfast-copy: the agent's folder cannot be copied to {sys.argv[1]}: {error}")


def _copy(source: str, target: str) -> None:
    """Content and permissions, without times and owners, which not every volume takes. A restarted container copies again."""
    os.makedirs(target, exist_ok=True)
    for entry in os.scandir(source):
        path = os.path.join(target, entry.name)
        if entry.is_dir(follow_symlinks=False):
            _copy(entry.path, path)
            continue
        with suppress(FileNotFoundError):
            os.unlink(path)
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), path)
        else:
            _copy_file(entry.path, path)


def _copy_file(source: str, target: str) -> None:
    """Few system calls: there are thousands of files, and a pod waits for them."""
    reading = os.open(source, os.O_RDONLY)
    try:
        about = os.fstat(reading)
        writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, about.st_mode & 0o777)
        try:
            left = about.st_size
            while left > 0 and (sent := os.sendfile(writing, reading, None, left)):
                left -= sent
        finally:
            os.close(writing)
    finally:
        os.close(reading)


os.umask(0)  # a file is made with its own permissions
main()
