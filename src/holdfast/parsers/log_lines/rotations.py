"""Groups files that are rotated parts of one log: `train.log`, `train.log.1`, `train.log.2.gz`, `train.log-20310203`. Pure."""

from collections import defaultdict
from collections.abc import Collection

from holdfast.late_pattern import late

PART = late(
    r"(?P<base>.+?)(?:\.(?P<number>\d{1,4})|[.-](?P<date>\d{4}-?\d\d-?\d\d(?:[-_T.]?\d{2,10})?(?:[-_:.]\d\d){0,2}))(?:\.(?:gz|zst|bz2|xz))?"
)


def streams(names: Collection[str]) -> list[list[str]]:
    """Returns the rotated logs among these files, each as a list of its parts, oldest part first.

    A part counts only if its base file exists: `out.0` beside `out.1` are logs of two ranks.
    """
    known = frozenset(names)
    parts: dict[str, list[tuple[float, str, str]]] = defaultdict(list)
    for name in known:
        found = PART.fullmatch(name)
        if found and found["base"] in known:
            number, date = found["number"], found["date"]
            # Parts with a date are older than parts with only a number; logs rarely have both.
            age = -float(number) if number is not None else float("-inf")
            parts[found["base"]].append((age, "".join(filter(str.isdigit, date or "")), name))
    return [[*(name for _, _, name in sorted(of)), base] for base, of in sorted(parts.items())]
