"""Chooses the next commit to test in a bisection, from git's list of candidates and the results so far. Pure."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from holdfast.core.bisect.condition import Judgement


class Ends(Struct, frozen=True, kw_only=True):
    """The state of a bisection: the oldest commit known as bad, the good commits, and those that could not be
    judged.
    """

    bad: str
    good: tuple[str, ...]
    skipped: tuple[str, ...] = ()


class FoundCommit(Struct, frozen=True):
    """The result of a bisection: the first bad commit; several candidates if commits between could not be
    judged.
    """

    commits: tuple[str, ...]


class RefusedEnd(Struct, frozen=True):
    """The result of a bisection that cannot continue: a test of the given good or bad commit contradicts the user."""

    end: str
    commit: str
    judgement: Judgement


def next_end(bad: str, good: str, judged: Mapping[str, Judgement]) -> str | RefusedEnd | None:
    """Returns which of the two given commits to test next, a contradiction, or None if both are as the user
    says.
    """
    for end, commit, expected in (("bad", bad, "bad"), ("good", good, "good")):
        if commit not in judged:
            return commit
        if judged[commit] != expected:
            return RefusedEnd(end, commit, judged[commit])
    return None


def ends(bad: str, good: str, order: Sequence[str], judged: Mapping[str, Judgement]) -> Ends:
    """Returns the state of the bisection after these results.

    `order`: commits in the order in which they were tested.
    """
    goods, skipped = [good], list[str]()
    for commit in order:
        match judged[commit]:
            case "bad":
                bad = commit  # candidates are ancestors of the bad commit before: each bad one is older
            case "good":
                goods.append(commit)
            case _:
                skipped.append(commit)
    return Ends(bad=bad, good=tuple(dict.fromkeys(goods)), skipped=tuple(skipped))


def next_commit(known: Ends, candidates: Sequence[str]) -> str | FoundCommit:
    """Returns the next commit to test, or the result.

    `candidates`: from `git rev-list --bisect-all`, the best first.
    """
    open_ = [commit for commit in candidates if commit != known.bad and commit not in known.skipped]
    if open_:
        return open_[0]
    return FoundCommit((known.bad, *(commit for commit in candidates if commit in known.skipped)))
