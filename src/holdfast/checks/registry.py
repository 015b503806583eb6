"""Registers all checks: each module in the folder of an area (gpu, rdma, net, ...) lists its own in
`CHECKS`.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from holdfast import checks
from holdfast.model.checks import AREAS, BOOT, MANUAL, ON_FAILURE, PASSIVE, Fact, Finding, Scene, Spec

Seen = Finding | Fact
_OF_SUITE = {"boot": BOOT, "troubleshoot": ON_FAILURE, "bench": MANUAL, "all": MANUAL}


class Check(NamedTuple):
    """A check: its specification, and the function that examines the node and yields findings.

    An exception of the function counts as a failure of the check itself, not of the node.
    """

    spec: Spec
    look: Callable[[Scene], Iterable[Seen]]


def all_checks(areas: Iterable[str] = AREAS) -> tuple[Check, ...]:
    """Returns all checks of the given areas, ordered by area, module and place in the module."""
    return tuple(check for area in AREAS if area in set(areas) for check in _of_area(area))


def _of_area(area: str) -> Iterator[Check]:
    folder = importlib.import_module(f"{checks.__name__}.{area}")
    for name in sorted(module.name for module in pkgutil.iter_modules(folder.__path__)):
        yield from importlib.import_module(f"{folder.__name__}.{name}").CHECKS


def check_named(name: str) -> Check:
    """Returns the check of this name. Raises LookupError if there is none."""
    area = name.partition("-")[0]
    for check in all_checks((area,)):
        if check.spec.name == name:
            return check
    raise LookupError(f"there is no check {name!r} (holdfast check --list)")


def chosen(
    suite: str, *, quick: bool = False, only: Sequence[str] = (), training: bool = False
) -> tuple[Spec, ...]:
    """Returns the specifications of the checks that a suite runs.

    `only`: names of checks or areas to restrict it to. `training`: a job runs on this node, so only passive
    checks are chosen. `quick`: leaves out slow checks. Raises LookupError for an unknown name.
    """
    specs = tuple(check.spec for check in all_checks())
    for name in only:
        if name not in AREAS and all(name != spec.name for spec in specs):
            raise LookupError(f"there is no check and no area {name!r} (holdfast check --list)")
    return tuple(
        spec
        for spec in specs
        if (spec.name in only or spec.area in only or (not only))
        and (spec.name in only or _in_suite(spec, suite))
        and (not quick or spec.quick)
        and (not training or spec.cost == PASSIVE)
    )


def _in_suite(spec: Spec, suite: str) -> bool:
    return _OF_SUITE[suite] in spec.contexts and (suite == "all" or spec.bench == (suite == "bench"))
