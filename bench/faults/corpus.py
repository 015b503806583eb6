"""Writes the output of a run as a labelled case: `log.txt` and `case.json`. Paths and names of the machine are replaced."""

import re
import socket
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import msgspec

from bench.faults.draw import Case
from bench.faults.kinds import BY_NAME, Kind

ROOT = Path(__file__).parents[2]
LINES_MAX = 2_000


def write_case(
    folder: Path, case: Case, printed: Sequence[str], machine: Mapping[str, str], *, ended_well: bool
) -> None:
    """Writes one case. `machine`: what is replaced in the log, such as the folder of the run. `ended_well`: the training
    completed, so that its log is that of a job without a failure.
    """
    kind = BY_NAME[case.kind]
    lines = cleaned(printed[:LINES_MAX], machine)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "log.txt").write_text("".join(lines))
    label = labelled(kind, case, folder.name, lines, ended_well=ended_well)
    (folder / "case.json").write_bytes(msgspec.json.format(msgspec.json.encode(label), indent=1) + b"\n")


def labelled(
    kind: Kind, case: Case, name: str, lines: Sequence[str], *, ended_well: bool = False
) -> dict[str, object]:
    """Returns the label.

    A cause that leaves no line in the log cannot be read from it: then `unknown`, without a culprit, and `none` is right as
    well, because no line shows a failure.
    """
    line = next((line.strip() for line in lines if kind.line and re.search(kind.line, line)), None)
    is_healthy = kind.category == "none" or ended_well
    is_told = not is_healthy and kind.logged and line is not None
    what = f"{kind.what} Rank {case.rank}, before step {case.step + 1}."
    return {
        "id": name,
        "source_url": "",
        "category": "none" if is_healthy else kind.category if is_told else "unknown",
        "also": [*kind.also, *kind.also_in_log] if is_told else [] if is_healthy else ["none"],
        "culprit": {"rank": case.rank} if kind.blames and is_told else None,
        "first_error_line": line if is_told else None,
        "true_cause": f"{what} The training completed." if ended_well else what,
        "cause_confirmed": True,
        "action": "none" if is_healthy else kind.action if is_told else "unknown",
        "action_also": list(kind.action_also) if is_told else [],
        "log_files": ["log.txt"],
        "lines": len(lines),
        "provenance": "bench.faults",
        "excerpt": False,
    }


def machine_names(run: Path) -> dict[str, str]:
    """Returns what a log must not show of this machine, longest first, each with its replacement."""
    names = {
        str(run): "/job",
        str(ROOT): "/src",
        sys.prefix: "/venv",
        sys.base_prefix: "/python",
        str(Path.home()): "/home/user",
        socket.gethostname(): "host1",
    }
    names[str(Path(find_spec("torch").origin).parents[1])] = "/venv/lib/python/site-packages"
    return dict(sorted(names.items(), key=lambda pair: -len(pair[0])))


def cleaned(lines: Sequence[str], names: Mapping[str, str]) -> list[str]:
    found = []
    for line in lines:
        for name, instead in names.items():
            if len(name) > 1:
                line = line.replace(name, instead)
        found.append(line)
    return found
