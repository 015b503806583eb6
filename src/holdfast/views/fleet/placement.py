"""Formats where the ranks of a job are placed: its groups by role, what is placed badly and what to change. Prints
nothing.
"""

from collections import Counter

from holdfast.core.plurals import counted
from holdfast.model.runs.placement import Placement
from holdfast.views.lines import Line

FINDINGS_SHOWN = 20


def lines(placement: Placement) -> list[Line]:
    """Returns the section of a report about the placement of a job's ranks."""
    found = [Line(), Line("Placement", "strong")]
    sizes = Counter((group.role, len(group.ranks), group.is_guessed) for group in placement.groups)
    for (role, size, is_guessed), count in sorted(sizes.items()):
        guess = ", by their shape" if is_guessed else ""
        found.append(Line(f"  {role}: {counted(count, 'group')} of {counted(size, 'rank')}{guess}"))
    for finding in placement.findings[:FINDINGS_SHOWN]:
        found += [Line(f"  {finding.text}", "error"), Line(f"    change: {finding.change}")]
    if len(placement.findings) > FINDINGS_SHOWN:
        found.append(Line(f"  and {len(placement.findings) - FINDINGS_SHOWN} more (--json)"))
    if not placement.findings and placement.groups:
        found.append(Line("  no placement problem was found in the groups that could be examined"))
    return [*found, *(Line(f"  not known: {text}", "quiet") for text in placement.unknown)]
