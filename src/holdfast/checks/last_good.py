"""Stores the time at which a training last made a step on this node, in a file beside the baseline."""

from contextlib import suppress
from pathlib import Path

from holdfast.checks.baseline_store import baseline_path


def read_last_good(state_dir: Path, host: str) -> float:
    """Returns the Unix time in seconds of the last training step on this node; 0 if none is known."""
    try:
        return max(0.0, float(_path(state_dir, host).read_text(encoding="ascii")))
    except (OSError, ValueError):
        return 0.0


def write_last_good(state_dir: Path, host: str, at_s: float) -> None:
    """Stores the Unix time of the last training step on this node.

    A folder that cannot be written is ignored.
    """
    path = _path(state_dir, host)
    new = path.with_suffix(".good-new")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(f"{at_s:.0f}\n", encoding="ascii")
        new.replace(path)


def _path(state_dir: Path, host: str) -> Path:
    return baseline_path(state_dir, host).with_suffix(".good")
