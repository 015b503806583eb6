"""Writes the results of a round as a Markdown page. Pure."""

import statistics
from collections.abc import Sequence

from bench.faults.judge import Row

HEAD = (
    *("class", "system", "runs", "found after", "cause", "culprit", "steps lost", "training again after"),
    *("needed a person", "orphans", "result equal", "run time"),
)


def page(rows: Sequence[Row], about: str, left_out: Sequence[str]) -> str:
    """Returns the page: for each class and system its figures, then all classes together."""
    lines = ["# Fault benchmark", "", about, "", _line(HEAD), "|---" * len(HEAD) + "|"]
    systems = list(dict.fromkeys(row.system for row in rows))
    for class_ in dict.fromkeys(row.class_ for row in rows):
        lines += [_row(class_, name, [row for row in rows if row.class_ == class_]) for name in systems]
    lines += [_row("**all**", name, rows) for name in systems]
    lines += ["", "Left out:" if left_out else "", *(f"- {one}" for one in left_out)]
    return "\n".join(lines).rstrip() + "\n"


def _row(class_: str, system: str, rows: Sequence[Row]) -> str:
    of = [row for row in rows if row.system == system]
    cells = [
        class_,
        system,
        str(len(of)),
        _median([row.found_s for row in of], " s"),
        _share([row.cause_right for row in of]),
        _share([row.culprit_right for row in of]),
        _median([row.steps_lost for row in of], ""),
        _median([row.stepping_s for row in of], " s"),
        f"{sum(row.person for row in of)}",
        f"{sum(row.orphans for row in of)}",
        _share([row.result_equal for row in of]),
        _median([row.ratio for row in of if not row.person], " ×"),
    ]
    return _line(cells)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _share(values: Sequence[bool | None]) -> str:
    judged = [value for value in values if value is not None]
    return f"{sum(judged)}/{len(judged)}" if judged else "–"


def _median(values: Sequence[float | None], unit: str) -> str:
    """Of the runs in which it happened; their number stands beside it where it did not happen in all."""
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    among = "" if len(known) == len(values) else f" in {len(known)}"
    return f"{statistics.median(known):.{2 if unit else 0}f}{unit}{among}"
