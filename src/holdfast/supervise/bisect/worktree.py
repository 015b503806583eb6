"""Checks out commits in a separate git worktree.

The user's working tree, index and branches are not changed.
"""

import os
import subprocess
from pathlib import Path

GIT_TIMEOUT_S = 600.0


class GitFailed(Exception):
    """Raised when a git command failed. The message is the last line that git printed."""


class Worktree:
    """A detached worktree in `place`. `repository`: the user's working directory."""

    def __init__(self, repository: Path, place: Path) -> None:
        self.repository, self.place = repository, place
        top = Path(git(repository, "rev-parse", "--show-toplevel"))
        self.folder = place / repository.resolve().relative_to(
            top.resolve()
        )  # the same folder within the tree

    def check_out(self, commit: str) -> None:
        """Checks out a commit, and removes files of earlier runs. Raises GitFailed."""
        if not (self.place / ".git").exists():
            git(self.repository, "worktree", "prune")
            git(self.repository, "worktree", "add", "--force", "--detach", str(self.place), commit)
            return
        git(self.place, "checkout", "--quiet", "--force", "--detach", commit)
        git(self.place, "clean", "-ffdxq")

    def remove(self) -> None:
        """Removes the worktree. Raises GitFailed."""
        if self.place.exists():
            git(self.repository, "worktree", "remove", "--force", "--force", str(self.place))

    def commit_of(self, revision: str) -> str:
        """Returns the commit id of a revision. Raises GitFailed."""
        return git(self.repository, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Returns whether one commit is an ancestor of another. Raises GitFailed."""
        done = _run(self.repository, ("merge-base", "--is-ancestor", older, newer))
        if done.returncode not in (0, 1):
            raise GitFailed(_last_line(done))
        return done.returncode == 0

    def candidates(self, bad: str, good: tuple[str, ...]) -> list[str]:
        """Returns the commits that may be the first bad one, best bisection points first.

        Raises GitFailed.
        """
        text = git(self.repository, "rev-list", "--bisect-all", bad, *(f"^{commit}" for commit in good))
        return [line.split(" ", 1)[0] for line in text.splitlines()]

    def title(self, commit: str) -> str:
        """Returns short id, author and subject of a commit. Raises GitFailed."""
        return git(self.repository, "show", "--no-patch", "--format=%h %an: %s", commit)


def git(folder: Path, *words: str) -> str:
    """Returns what a git command prints. Raises GitFailed."""
    done = _run(folder, words)
    if done.returncode:
        raise GitFailed(f"git {words[0]} failed: {_last_line(done) or f'exit code {done.returncode}'}")
    return done.stdout.strip()


def _run(folder: Path, words: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    try:
        return subprocess.run(
            ["git", "-C", str(folder), *words],
            env=env | {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=GIT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GitFailed(f"git cannot be run: {error}") from error


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else ""
