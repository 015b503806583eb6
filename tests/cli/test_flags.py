"""What a function's annotations make of a command line."""

from pathlib import Path
from typing import Annotated

import click
import pytest

from holdfast.cli.line.flags import App, Argument, BadParameter, Context, Option
from holdfast.cli.line.plots import check_plot


def given(*words):
    """What a function with one parameter of each kind is called with."""
    app, seen = App(), {}

    @app.command(context_settings={"allow_interspersed_args": False})
    def command(
        context: Context,
        job: Annotated[str, Argument("JOB", help="Its name.")],
        rest: Annotated[list[str] | None, Argument("[-- WORDS...]")] = None,
        text: Annotated[str | None, Option("--text", "-t", "--also")] = None,
        many: Annotated[list[str] | None, Option("--many")] = None,
        path: Annotated[Path | None, Option("--path")] = None,
        count: Annotated[int | None, Option("--count", min=1, max=9)] = None,
        share: Annotated[float, Option("--share", min=0, max=1)] = 0.5,
        plain: Annotated[bool, Option("--plain")] = False,
        either: Annotated[bool, Option("--either/--no-either")] = True,
        unsaid: Annotated[bool | None, Option("--unsaid/--no-unsaid")] = None,
        bare: Annotated[bool | None, Option("--bare")] = None,
    ) -> None:
        """Says what it was given."""
        seen.update({name: value for name, value in locals().items() if name not in ("context", "seen")})
        assert context.params["job"] == job

    app.built("it").main(args=list(words), prog_name="it", standalone_mode=False)
    return seen


NOTHING = {
    "job": "j",
    "rest": None,
    "text": None,
    "many": None,
    "path": None,
    "count": None,
    "share": 0.5,
    "plain": False,
    "either": True,
    "unsaid": None,
    "bare": None,
}


def test_what_is_not_given_is_the_default_of_the_function():
    assert given("j") == NOTHING


@pytest.mark.parametrize(
    ("words", "makes"),
    [
        (["--text", "a"], {"text": "a"}),
        (["-t", "a", "--also", "b"], {"text": "b"}),
        (["--many", "a", "--many", "b"], {"many": ["a", "b"]}),
        (["--path", "/x"], {"path": Path("/x")}),
        (["--count", "9", "--share", "1"], {"count": 9, "share": 1.0}),
        (["--plain", "--no-either"], {"plain": True, "either": False}),
        (["--unsaid"], {"unsaid": True}),
        (["--no-unsaid"], {"unsaid": False}),
        (["--bare"], {"bare": True}),
    ],
)
def test_each_flag_has_the_type_of_its_annotation(words, makes):
    assert given(*words, "j") == NOTHING | makes


def test_what_follows_the_arguments_is_left_as_it_is():
    assert given("--plain", "--", "j", "torchrun", "--text", "x")["rest"] == ["torchrun", "--text", "x"]
    assert given("j", "python", "--plain")["rest"] == ["python", "--plain"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "JOB"),
        (["--count", "0", "j"], "range"),
        (["--count", "x", "j"], "not a valid integer"),
        (["--share", "2", "j"], "range"),
        (["--txt", "a", "j"], "--txt"),
        (["--plain=3", "j"], "does not take a value"),
    ],
)
def test_what_cannot_be_is_a_complaint(words, says):
    with pytest.raises(click.UsageError) as refused:
        given(*words)
    assert says in refused.value.format_message()


def group(*words):
    app, called = App(), []

    @app.callback(invoke_without_command=True)
    def first(context: Context) -> None:
        """All of them."""
        called.append(context.invoked_subcommand)

    @app.command("show")
    def show_() -> None:
        """Shows."""
        called.append("shown")

    @app.command()
    def isolate(node: Annotated[str, Argument("NODE", completed=lambda begun: ["n1", "n2"])]) -> None:
        """Isolates."""
        called.append(node)

    built = app.built("nodes")
    built.main(args=list(words), prog_name="nodes", standalone_mode=False)
    return called, built


def test_commands_below_one_name():
    assert group()[0] == [None]
    assert group("show")[0] == ["show", "shown"]
    called, built = group("isolate", "n7")
    assert called == ["isolate", "n7"]
    assert list(built.list_commands(click.Context(built))) == ["show", "isolate"]  # as declared


def test_the_nearest_of_a_wrong_name_is_named():
    with pytest.raises(click.UsageError, match="No such command 'shw'. Did you mean 'show'?"):
        group("shw")


def test_a_shell_is_offered_what_an_argument_may_be():
    _, built = group()
    isolate = built.commands["isolate"]
    offered = isolate.params[0].shell_complete(click.Context(isolate), "n")
    assert [each.value for each in offered] == ["n1", "n2"]


def test_help_tells_arguments_with_words_on_them(capsys):
    given("--help")
    out = capsys.readouterr().out
    assert "Usage: it [OPTIONS] JOB [-- WORDS...]\n" in out
    assert "Arguments:\n  JOB  Its name.\n" in out
    assert "--share" in out and "[default: 0.5" in out
    assert "[default: either]" in out


def test_a_chart_is_a_page_or_a_picture():
    for name in (None, "a.html", "A.PNG"):
        check_plot(name)
    with pytest.raises(BadParameter, match=r"'a\.svg' must end in \.html or \.png"):
        check_plot("a.svg")
