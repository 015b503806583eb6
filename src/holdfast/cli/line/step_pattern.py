"""Reads the flag --step-pattern of commands that read step lines."""

from pathlib import Path
from typing import Annotated

from holdfast.cli.line.flags import Exit, Option
from holdfast.cli.line.output import say
from holdfast.model.step_forms import StepForm
from holdfast.observe.search.step_form_store import all_forms
from holdfast.parsers.steps.forms import StepFormError, from_pattern

REFUSED = 2
PATTERN_SUFFIX = ".toml"

StepPattern = Annotated[
    str | None,
    Option(
        "--step-pattern",
        metavar="REGEX|FILE.toml",
        help="Your own pattern of step lines, as for holdfast steps.",
    ),
]


def forms_of(step_pattern: str | None) -> tuple[StepForm, ...]:
    """Returns all formats of step lines (step forms), the user's own first. Raises Exit after printing what is
    wrong.
    """
    try:
        if step_pattern is None:
            return all_forms(None)
        if step_pattern.endswith(PATTERN_SUFFIX) or Path(step_pattern).is_dir():
            return all_forms(Path(step_pattern))
        return (from_pattern(step_pattern), *all_forms(None))
    except StepFormError as error:
        say(str(error))
        raise Exit(REFUSED) from error
