"""Loads the step forms (patterns of progress lines) of the package, and those of a site, which precede or
replace them.
"""

from functools import cache
from importlib.resources import files
from pathlib import Path

from holdfast.model.step_forms import StepForm
from holdfast.parsers.steps.forms import StepFormError, parse, parse_unproved


@cache
def package_forms() -> tuple[StepForm, ...]:
    """Returns the step forms of the package, ordered by file name, without their test lines, which take
    longer to read.
    """
    places = sorted((files("holdfast") / "step_forms").iterdir(), key=lambda place: place.name)
    return tuple(
        form
        for place in places
        if place.name.endswith(".toml")
        for form in parse_unproved(place.read_text(encoding="utf-8"), place.name)
    )


@cache
def all_forms(extra: Path | None = None) -> tuple[StepForm, ...]:
    """Returns the step forms of the site and the package.

    `extra`: a TOML file of the site, or a folder of them.

    Raises StepFormError if it is invalid or cannot be read.
    """
    own = package_forms()
    if extra is None:
        return own
    site: list[StepForm] = []
    try:
        for path in sorted(extra.glob("*.toml")) if extra.is_dir() else [extra]:
            site += parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise StepFormError(f"the step forms in {extra} cannot be read: {error}") from error
    replaced = {form.id for form in site}
    return (*site, *(form for form in own if form.id not in replaced))
