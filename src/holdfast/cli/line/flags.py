"""Declares commands as functions: the annotation of each parameter names its flag or argument.

    def status(job: Annotated[str | None, Argument("[JOB]")] = None, json: Annotated[bool, Option("--json")] = False)

Click alone parses the line, because every `holdfast` process on every node pays for this import.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin

import click
from click import Abort, BadParameter, Context
from click.exceptions import Exit
from click.shell_completion import CompletionItem

__all__ = ["Abort", "App", "Argument", "BadParameter", "Context", "Exit", "Option"]

_MISSING = inspect.Parameter.empty
_Function = TypeVar("_Function", bound=Callable[..., object])


class Option:
    """A flag of a command. `metavar`: name of its value in help.

    `show_default`: whether help shows the default.
    """

    def __init__(
        self,
        *names: str,
        help: str = "",
        metavar: str | None = None,
        show_default: bool = True,
        min: int | None = None,
        max: int | None = None,
        hidden: bool = False,
        without_value: str | None = None,
    ) -> None:
        """Creates a flag.

        `without_value`: what the flag means without a value; None if a value is required.
        """
        self.without_value = without_value
        self.names, self.help, self.metavar = names, help, metavar
        self.show_default, self.hidden = show_default, hidden
        self.least, self.most = min, max


class Argument(NamedTuple):
    """A positional argument, or all remaining words.

    `completed`: function that returns completions of a prefix.
    """

    metavar: str
    help: str = ""
    completed: Callable[[str], list[str]] | None = None


class _Declared(NamedTuple):
    """A function declared as a command, or to run before the commands of a group."""

    function: Callable[..., object]
    help: str
    settings: Mapping[str, Any]
    has_help: bool = True


class App:
    """The commands of one module: a single one, or several as subcommands."""

    def __init__(self, help: str = "") -> None:
        self.help = help
        self._commands: dict[str, _Declared | App] = {}
        self._first: _Declared | None = None
        self._goes_alone = False

    def command(
        self,
        name: str | None = None,
        *,
        help: str | None = None,
        context_settings: Mapping[str, Any] | None = None,
        has_help: bool = True,
    ) -> Callable[[_Function], _Function]:
        """Returns a decorator that declares a function as a command.

        `help`: replaces the docstring. `has_help`: whether the command has the flag --help.
        """

        def declare(function: _Function) -> _Function:
            words = help or inspect.getdoc(function) or ""
            declared = _Declared(function, words, context_settings or {}, has_help)
            self._commands[name or str(getattr(function, "__name__", ""))] = declared
            return function

        return declare

    def callback(self, *, invoke_without_command: bool = False) -> Callable[[_Function], _Function]:
        """Returns a decorator for a function that runs before a command of the group.

        `invoke_without_command`: it also runs if no command is given.
        """

        def declare(function: _Function) -> _Function:
            self._first = _Declared(function, self.help or inspect.getdoc(function) or "", {})
            self._goes_alone = invoke_without_command
            return function

        return declare

    def add(self, name: str, app: "App") -> None:
        """Adds the command or group of another module."""
        self._commands[name] = app

    def built(self, name: str) -> click.Command:
        """Returns the click command for the commands of this module. `name`: its name in the command line."""
        if self._first is None:
            only = next(iter(self._commands.values()))
            return only.built(name) if isinstance(only, App) else _command(name, only)
        group = _Group(
            name,
            callback=_called(self._first.function),
            params=list(_parameters(self._first.function)),
            help=self._first.help,
            invoke_without_command=self._goes_alone,
            no_args_is_help=False,
            subcommand_metavar="COMMAND [ARGS]...",
        )
        for each, one in self._commands.items():
            group.add_command(one.built(each) if isinstance(one, App) else _command(each, one))
        return group


class _Command(click.Command):
    def format_options(self, ctx: Context, formatter: click.HelpFormatter) -> None:
        """Lists arguments before options in help, which not every version of click does."""
        known = [each for each in self.params if isinstance(each, _Word) and each.words]
        if known:
            with formatter.section("Arguments"):
                formatter.write_dl([(each.metavar or "", each.words) for each in known])
        records = [
            each.get_help_record(ctx) for each in self.get_params(ctx) if isinstance(each, click.Option)
        ]
        if options := [record for record in records if record is not None]:
            with formatter.section("Options"):
                formatter.write_dl(options)


class _Group(click.Group):
    def list_commands(self, ctx: Context) -> list[str]:
        """Returns the commands in the order of their declaration, not of the alphabet."""
        return list(self.commands)

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds a subcommand; an unknown name is an error that suggests the nearest one."""
        name = str(args[0])
        if name not in self.commands and not name.startswith("-") and not ctx.resilient_parsing:
            near = get_close_matches(name, self.commands, n=1)
            ctx.fail(f"No such command {name!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)


class _Word(click.Argument):
    """A positional argument with a help text, which old versions of click do not support."""

    words: str = ""


def _command(name: str, declared: _Declared) -> click.Command:
    return _Command(
        name,
        callback=_called(declared.function),
        params=list(_parameters(declared.function)),
        help=declared.help,
        context_settings=dict(declared.settings),
        add_help_option=declared.has_help,
    )


def _called(function: Callable[..., object]) -> Callable[..., object]:
    """Wraps a function so that click's values have the annotated types: lists, None for missing values,
    the context.
    """
    parameters = inspect.signature(function).parameters

    def call(**values: object) -> object:
        given: dict[str, object] = {}
        for name, one in parameters.items():
            if one.annotation is Context:
                given[name] = click.get_current_context()
            elif isinstance(value := values[name], tuple):  # of all that were given
                given[name] = list(value) if value or one.default is _MISSING else one.default
            else:
                given[name] = value
        return function(**given)

    return call


def _parameters(function: Callable[..., object]) -> Iterable[click.Parameter]:
    for name, one in inspect.signature(function).parameters.items():
        if one.annotation is Context:
            continue
        assert get_origin(one.annotation) is Annotated, f"{name} of {function} says no flag"
        value, declared = get_args(one.annotation)
        kind, is_many = _kind(value)
        if isinstance(declared, Argument):
            yield _argument(name, declared, kind, one.default, is_many=is_many)
        else:
            assert isinstance(declared, Option)
            yield _option(name, declared, kind, one.default, is_many=is_many)


def _kind(value: Any) -> tuple[Any, bool]:
    """Returns the type of an annotation, and whether it is a list: (str, True) for `list[str] | None`."""
    if get_origin(value) is UnionType:
        (value,) = (each for each in get_args(value) if each is not NoneType)
    if get_origin(value) is list:
        return get_args(value)[0], True
    return value, False


def _argument(name: str, declared: Argument, kind: Any, default: object, *, is_many: bool) -> click.Argument:
    offered = declared.completed

    def complete(context: Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
        return [CompletionItem(each) for each in offered(begun)] if offered else []

    made = _Word(
        [name],
        type=_type(kind, None, None),
        metavar=declared.metavar,
        nargs=-1 if is_many else 1,
        required=default is _MISSING,
        shell_complete=complete if offered else None,
    )
    made.words = declared.help
    return made


def _option(name: str, declared: Option, kind: Any, default: Any, *, is_many: bool) -> click.Option:
    more: dict[str, Any] = {}
    if default is not _MISSING and not is_many:
        more["default"] = default  # even None: click takes a flag for off where nothing is said
    if kind is bool:
        more["is_flag"] = True
        more["show_default"] = declared.show_default and default is not None and "/" in declared.names[0]
    else:
        more["show_default"] = declared.show_default
    if declared.without_value is not None:
        more |= {"is_flag": False, "flag_value": declared.without_value}
    return click.Option(
        [*declared.names, name],
        type=_type(kind, declared.least, declared.most),
        metavar=declared.metavar,
        help=declared.help,
        required=default is _MISSING,
        multiple=is_many,
        hidden=declared.hidden,
        **more,
    )


def _type(kind: Any, least: int | None, most: int | None) -> Any:
    if least is not None or most is not None:
        return click.IntRange(least, most) if kind is int else click.FloatRange(least, most)
    if kind is Path:
        return click.Path(path_type=Path)
    return {str: click.STRING, int: click.INT, float: click.FLOAT, bool: click.BOOL}[kind]
