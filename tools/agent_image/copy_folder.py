"""Copies the agent's folder from its image to a volume: holdfast-copy FOLDER, in an init container."""

import os
import shutil
import sys


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
        if os.path.lexists(path):
            os.unlink(path)
        shutil.copyfile(entry.path, path, follow_symlinks=False)
        if not entry.is_symlink():
            os.chmod(path, entry.stat().st_mode & 0o777)


main()
