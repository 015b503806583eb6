"""Defines the flags of `holdfast check`."""

from typing import Annotated

from holdfast.cli.line.flags import Argument, Option
from holdfast.model.checks import CONTEXTS
from holdfast.views.checks.formats import EXITS

FORMATS = ("text", *EXITS)

Command = Annotated[
    list[str] | None,
    Argument("[-- COMMAND...]", help="Training command, whose environment is checked too."),
]
Suite = Annotated[str, Option("--suite", metavar="boot|troubleshoot|bench|all", help="Which checks.")]
Quick = Annotated[bool, Option("--quick", help="Only checks that take less than 5 s.")]
Only = Annotated[
    list[str] | None,
    Option(
        "--only",
        metavar="NAME",
        help="Run only this check or area of checks; repeatable.",
        show_default=False,
    ),
]
Nodes = Annotated[
    str | None,
    Option(
        "--nodes",
        metavar="A,B,...",
        help="Check these nodes (comma-separated) instead of this one.",
        show_default=False,
    ),
]
Via = Annotated[
    str | None,
    Option(
        "--via",
        metavar="WORDS",
        help="Command that runs a program on {node}; default: srun or ssh.",
        show_default=False,
    ),
]
Checkpoint = Annotated[
    str | None, Option("--checkpoint", metavar="DIR", help="Checkpoint folder.", show_default=False)
]
Ranks = Annotated[
    int | None,
    Option("--ranks", help="Number of ranks on each node.", min=1, max=1 << 16, show_default=False),
]
OfCheck = Annotated[
    list[str] | None,
    Option(
        "--option",
        metavar="CHECK.KEY=VALUE",
        help="Option of a single check; repeatable.",
        show_default=False,
    ),
]
Plot = Annotated[
    str | None,
    Option(
        "--plot", metavar="FILE", help="Also draw a chart, into FILE.html or FILE.png.", show_default=False
    ),
]
DrawnFrom = Annotated[
    list[str] | None,
    Option(
        "--from",
        metavar="FILE.json",
        help="Draw the chart from this file, an output of --json, without running checks; repeatable.",
        show_default=False,
    ),
]
Timeout = Annotated[
    str | None, Option("--timeout", metavar="TIME", help="Time limit of the whole suite.", show_default=False)
]
Context = Annotated[
    str | None,
    Option("--context", metavar="|".join(CONTEXTS), help="Occasion of the check.", show_default=False),
]
Training = Annotated[
    bool, Option("--training", help="A training runs on this node: run only passive checks.")
]
List = Annotated[bool, Option("--list", help="List all checks without running any.")]
BaselineFlag = Annotated[
    str | None,
    Option(
        "--baseline",
        metavar="show|reset",
        help="Show or delete the baseline of this node.",
        show_default=False,
    ),
]
Format = Annotated[
    str,
    Option("--format", metavar="|".join(FORMATS), help="Output format and exit codes of another program."),
]
AsNode = Annotated[bool, Option("--as-node", hidden=True)]
Json = Annotated[bool, Option("--json", help="One JSON document instead.")]
State = Annotated[
    str | None, Option("--state-dir", help="Folder of the jobs and of the node's check baseline.")
]
