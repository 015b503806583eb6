"""The page of checks has every check as it is. `pytest --golden` writes the table anew."""

import json
import re
from pathlib import Path

from holdfast.checks.registry import all_checks
from holdfast.cli.line.command_line import exit_code
from holdfast.model.checks import AREAS, BOOT, CONTEXTS, COSTS, MANUAL, PASSIVE, STATUSES, SUITES
from holdfast.views.checks.formats import EXITS
from holdfast.views.checks.report import listed

PAGE = Path(__file__).parents[3] / "docs" / "checks.md"
BEGIN, END = "<!-- checks -->\n", "<!-- /checks -->"
LETTERS = dict(zip(CONTEXTS, "bpecfm", strict=True))


def table():
    rows = ["| check | looks at | cost | quick | occasions | needs |", "|---|---|---|---|---|---|"]
    for check in all_checks():
        told = listed(check.spec)
        occasions = "".join(letter for context, letter in LETTERS.items() if context in told["contexts"])
        cells = (
            f"`{told['name']}`",
            told["what"].replace("|", "\\|"),
            told["cost"],
            "yes" if told["quick"] else "",
            occasions,
            ", ".join(told["needs"]),
        )
        rows.append(f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |"))
    return "\n".join(rows) + "\n"


def test_the_page_lists_every_check_as_it_is(request):
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    inside, _, after = rest.partition(END)
    if request.config.getoption("--golden"):
        PAGE.write_text(f"{before}{BEGIN}{table()}{END}{after}")
        inside = table()
    assert inside == table(), (
        "docs/checks.md is stale: pytest tests/checks/bench/test_checks_page.py --golden"
    )


def test_the_command_lists_what_the_page_lists(capsys):
    assert exit_code(["check", "--suite", "all", "--list", "--json"]) == 0
    names = {one["name"] for one in json.loads(capsys.readouterr().out)}
    manual = {check.spec.name for check in all_checks() if MANUAL in check.spec.contexts}
    assert names == manual and names <= set(re.findall(r"^\| `([a-z0-9-]+)`", PAGE.read_text(), re.MULTILINE))


def test_the_page_has_every_word_of_the_command():
    text = PAGE.read_text()
    words = [*SUITES, *STATUSES, *COSTS, *AREAS, *EXITS]
    assert not [word for word in words if not re.search(rf"\b{re.escape(word)}\b", text)]


def test_no_benchmark_runs_by_itself_and_names_are_those_of_their_areas():
    for check in all_checks():
        spec = check.spec
        assert spec.name.startswith(f"{spec.area}-") and spec.what.en and spec.what.zh, spec.name
        if spec.bench:
            assert spec.contexts == (MANUAL,) and spec.cost != PASSIVE and not spec.quick, spec.name
            assert BOOT not in spec.contexts


def test_options_of_benchmarks_are_in_the_page():
    text = PAGE.read_text()
    sources = [path.read_text() for path in (PAGE.parents[1] / "src/holdfast/checks").glob("*/*bench*.py")]
    keys = set(re.findall(r'option\(scene, \w+, "(\w+)"', "".join(sources)))
    assert keys and not [key for key in keys if key not in text]
