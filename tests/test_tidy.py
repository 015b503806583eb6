"""The rules of the house that no linter knows: sizes, docstrings, dead modules, and pages that tell the truth."""

import ast
import csv
import functools
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, get_args

import pytest

from holdfast.checks.registry import all_checks
from holdfast.cli.line.command_line import COMMANDS
from holdfast.core.verdict import categories
from holdfast.model.events import AnyEvent
from holdfast.model.orders import AnyOrder
from holdfast.model.policy import Policy
from holdfast.model.state import AnyPhase

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "holdfast"
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 500
FOLDER_FILES_MAX = 20
BROAD_EXCEPTS_PER_1000_LINES_MAX = 0.3
HAN = "[\u3400-\u9fff]"
WRITES_CHINESE = re.compile(rf"{HAN}|\\[uUN]")
HALF_WIDTH = re.compile(rf"{HAN} ?[,;:()!?]|[,;:()!?] ?{HAN}|{HAN}\.(?:\s|$)")
CODE = re.compile(rf"`[^`]*`|(?<=[A-Za-z0-9_.])\((?:(?!{HAN})[^()]|\(\))*\)")  # commands, calls
FIELD = re.compile(r"\{[^{}]*\}")
NOT_ROOMS = {"utils", "util", "common", "helpers", "helper", "base", "manager", "managers", "misc", "lib"}

# Runs inside other people's Python, at its start: each import there costs every process of the job, and
# nothing may be raised. The rules on imports and broad excepts are not for it.
# What every Python process of a job runs at its start: an import there costs all of them.
SHIM = SRC / "shim" / "sitecustomize.py"
AT_EVERY_START = (SHIM, SRC / "agent" / "reaper" / "rank_names.py")
# Imported by nobody, and why they are there all the same. Commands are found by their names in COMMANDS.
STARTED_FROM_OUTSIDE = {
    "holdfast.shim.holdfast_shim_stub": "shim.sitecustomize, by its path",
    "holdfast.shim.holdfast_shim_zygote": "the same",
    "holdfast.shim.holdfast_shim_preload": "holdfast_shim_zygote, by its path",
    "holdfast.shim.holdfast_shim_server": "the same",
    "holdfast.shim.holdfast_shim_fork": "the same",
    "holdfast.__main__": "python -m holdfast",
    "holdfast.cli.main": "the holdfast command (pyproject.toml)",
    "holdfast.cli.line.command_line": "cli.main, by its name: Ctrl-C may come while it is imported",
    "holdfast.cli.agent_main": "cli.main, by its name: an agent is small",
    "holdfast.cli.checking.pairs": "cli.check_asking, by its name: memory that most checks do not need",
    "holdfast.cli.device_metrics": "cli.diagnose, by its name: HTTP for those who ask a Prometheus",
    "holdfast.archive.checkpoint_advice": "supervise.companions, as a process beside the job",
    "holdfast.supervise.monitoring.job": "monitoring.choice, by its name: most jobs export none",
    "holdfast.supervise.monitoring.many_nodes": "the same",
    "holdfast.supervise.monitoring.node": "monitoring.agent_choice, by its name, for the same reason",
    "holdfast.supervise.monitoring.device_watch": "the same",
    "holdfast.supervise.monitoring.trainer_status": "the same: in a TrainJob only",
    "holdfast.supervise.kubernetes.remote": "cli.line.command_line, by its name: only for a job in a cluster",
    "holdfast.supervise.local_line": "cli.line_on_demand, by its name: most jobs are never asked anything",
    "holdfast.supervise.many_nodes": "supervise.many_nodes_start, by its name: who follows a job needs none of it",
    "holdfast.link.tls_wire": "link.tls, by its name: most links are without TLS",
    "holdfast.supervise.engine_choice": "cli.run_command, by its name: one machine needs none of it",
    "holdfast.supervise.kubernetes.job": "supervise.engine_choice, by its name: an extra",
    "holdfast.engines.kubernetes.doctor": "cli.kubernetes.group, by its name: an extra",
    "holdfast.engines.kubernetes.wrap.whole": "cli.kubernetes.group, by its name: an extra",
    "holdfast.views.checks.plot": "cli.check_command, by its name, for the same reason",
    "holdfast.mcp.server": "cli.services.mcp, by its name: an extra",
    "holdfast.uplink.__main__": "supervise.companions, as a process of its own",
    "holdfast.notify.__main__": "the same",
    "holdfast.shim.sitecustomize": "Python itself, in the ranks, by way of PYTHONPATH",
    "holdfast.shim.holdfast_shim_torch": "sitecustomize, by its path",
    "holdfast.shim.holdfast_shim_imports": "sitecustomize, by its path",
    "holdfast.shim.holdfast_shim_launcher": "sitecustomize, by its path",
    "holdfast.shim.holdfast_shim_gate": "sitecustomize, by its path",
    "holdfast.shim.holdfast_shim_errors": "sitecustomize, by its path",
    "holdfast.shim.holdfast_shim_join": "sitecustomize, by its path",
    "holdfast.shim.holdfast_shim_deterministic": "sitecustomize, by its path",
    "holdfast.shim.holdfast_shim_mpi": "sitecustomize, by its path",
    "holdfast.agent.checkpoints.copier": "agent.checkpoints.keeper, as a process of its own",
    "holdfast.agent.checkpoints.restore": "the same",
    "holdfast.agent.nodes.journal_copy": "agent.nodes.copy_on_demand, by its name: most agents keep no copy",
    "holdfast.agent.reaper.loop": "BOOT in holdfast.agent.launch: a process of its own",
    "holdfast.agent.reaper.call": "BOOT in holdfast.agent.calls.process: a process of its own",
    "holdfast.checks.training_python.inside": "holdfast.checks.training_python.run, by its path: in the Python of the run",
    "holdfast.checks.training_python.burn.__main__": "holdfast.checks.training_python.bench, by its path",
    "holdfast.checks.training_python.burn.works": "burn.__main__, as a package off sys.path: in the Python of the run",
    "holdfast.sim.fleet": "bench/many_nodes/lemons.py, and the tests of the lemon score",
    "holdfast.web.job_page": "supervise/companions.py: a process of its own",
    "holdfast.web.main": "cli/services/serve.py, by its name: it is in an extra",
    "holdfast.archive.index.migrate": "archive.index.database, by its name: most servers need no migration",
    "holdfast.archive.index.migrations.versions.0001_first_tables": "Alembic, by its path",
    "holdfast.demo.train": "the demo's training, a script under torchrun",
}
OF_ONE_MACHINE = re.compile(
    r"/work/|/root/|/opt/(?:pypi|wheels)|--(?:extra-)?index-url|--find-links|PIP_[A-Z]+"
)


def _python(*places: str) -> list[Path]:
    return sorted(path for place in places for path in (ROOT / place).rglob("*.py") if path.stat().st_size)


def _written() -> list[Path]:
    """Every file that people write: sources, tests, pages and what stands in the root."""
    found = [
        path
        for place in ("src", "tests", "bench", "docs", ".ci")
        for path in (ROOT / place).rglob("*")
        if path.is_file() and not {"__pycache__"} & set(path.parts) and ".egg-info" not in str(path)
    ]
    roots = [path for path in ROOT.iterdir() if path.suffix in (".md", ".toml") or path.name == "Makefile"]
    return sorted(found + roots)


PYTHON = _python("src", "tests", "bench")
PAGES = [path for path in _written() if path.suffix == ".md"]


class Code(NamedTuple):
    """What the rules ask of a file: each reads all of the code, and parsing it takes seconds."""

    docstring: str | None
    functions: tuple[tuple[str, int], ...]  # where and its name; how many lines
    hidden_imports: tuple[str, ...]
    broad_excepts: tuple[str, ...]
    imports: tuple[ast.Import | ast.ImportFrom, ...]


@functools.cache
def _code(path: Path) -> Code:
    tree = ast.parse(path.read_text(), str(path))
    found = list(_statements(tree, False))
    functions = [node for node, _ in found if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    imports = [(node, inside) for node, inside in found if isinstance(node, ast.Import | ast.ImportFrom)]
    return Code(
        docstring=ast.get_docstring(tree),
        functions=tuple(
            (f"{_at(path, node)} {node.name}", (node.end_lineno or 0) - node.lineno + 1) for node in functions
        ),
        hidden_imports=tuple(_at(path, node) for node, inside in imports if inside),
        broad_excepts=tuple(
            _at(path, node) for node, _ in found if isinstance(node, ast.ExceptHandler) and _is_broad(node)
        ),
        imports=tuple(node for node, _ in imports),
    )


def _statements(block: ast.AST, inside: bool) -> Iterator[tuple[ast.AST, bool]]:
    """Every statement, handler and case below `block`, and whether it is in a function. Expressions hold none."""
    for part in ("body", "handlers", "orelse", "finalbody", "cases"):
        for node in getattr(block, part, ()):
            yield node, inside
            if hasattr(node, "body"):
                yield from _statements(
                    node, inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                )


def _at(path: Path, node: ast.stmt | ast.ExceptHandler) -> str:
    return f"{path.relative_to(ROOT)}:{node.lineno}"


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines())


# Sizes and docstrings


def test_functions_are_short():
    paths = [path for path in PYTHON if "migrations" not in path.parts]  # a migration is one list of tables
    long = [name for path in paths for name, lines in _code(path).functions if lines > FUNCTION_LINES_MAX]
    assert not long, f"functions of more than {FUNCTION_LINES_MAX} lines: {long}"


def test_files_are_not_long():
    long = [str(path.relative_to(ROOT)) for path in PYTHON if _lines(path) > FILE_LINES_MAX]
    assert not long, f"files of more than {FILE_LINES_MAX} lines: {long}"


def test_folders_are_not_crowded():
    folders = Counter(path.parent.relative_to(ROOT) for path in PYTHON if path.name != "__init__.py")
    crowded = [f"{folder}: {count}" for folder, count in folders.items() if count > FOLDER_FILES_MAX]
    assert not crowded, f"folders of more than {FOLDER_FILES_MAX} source files: {crowded}"


def test_modules_say_what_they_are_for():
    mute = [str(path.relative_to(ROOT)) for path in _python("src", "bench") if not _code(path).docstring]
    assert not mute, f"without a docstring: {mute}"


def test_no_room_or_module_is_a_drawer_for_everything():
    drawers = [str(path.relative_to(ROOT)) for path in SRC.rglob("*") if path.stem in NOT_ROOMS]
    assert not drawers, f"say in the name what it is about: {drawers}"


# Imports


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(path: Path) -> Iterator[str]:
    """Every name that may be a module: `from holdfast.core import hang` asks for both of them."""
    package = _module(path) if path.name == "__init__.py" else _module(path).rpartition(".")[0]
    for node in _code(path).imports:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.rsplit(".", node.level - 1)[0] if node.level else ""
            start = ".".join(part for part in (above, node.module or "") if part)
            yield start
            yield from (f"{start}.{alias.name}" for alias in node.names)


def test_every_module_is_used():
    imported = {name for path in _python("src") for name in _imported(path)}
    checks = {check.look.__module__ for check in all_checks()}  # found by the names of their modules
    known = imported | set(STARTED_FROM_OUTSIDE) | {place.module for place in COMMANDS.values()} | checks
    unused = [
        _module(path) for path in _python("src") if path.name != "__init__.py" and _module(path) not in known
    ]
    assert not unused, f"nobody imports {unused}"


def test_the_list_of_modules_started_from_outside_is_true():
    there = {_module(path) for path in _python("src")}
    missing = [name for name in STARTED_FROM_OUTSIDE if name not in there]
    assert not missing, f"not there any more: {missing}"


def test_no_import_stands_in_a_function():
    hidden = [place for path in PYTHON if path not in AT_EVERY_START for place in _code(path).hidden_imports]
    assert not hidden, f"imports in functions: {hidden}"


# Fences, mocks, promises


def _is_broad(handler: ast.ExceptHandler) -> bool:
    """Whether it may hide any error. A handler that raises the error again after its clean-up hides none."""
    last = handler.body[-1]
    if isinstance(last, ast.Raise) and last.exc is None:
        return False
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(
        one is None or (isinstance(one, ast.Name) and one.id in ("Exception", "BaseException"))
        for one in caught
    )


def test_broad_excepts_are_rare():
    paths = [path for path in _python("src") if path != SHIM]
    broad = [place for path in paths for place in _code(path).broad_excepts]
    allowed = BROAD_EXCEPTS_PER_1000_LINES_MAX * sum(map(_lines, paths)) / 1000
    assert len(broad) <= allowed, f"more than {allowed:.1f} broad excepts: {broad}"


def test_nothing_is_mocked():
    """Fakes are small classes. monkeypatch is for the environment and the working folder only."""
    mocking = [
        str(path.relative_to(ROOT))
        for path in _python("tests")
        if path != Path(__file__)
        and re.search(
            # A method `patch` is HTTP's verb.
            r"\bmock(?:er)?\b|Mock\(|(?<![.\w])(?<!def )patch\(|"
            r"monkeypatch\.(?!setenv|delenv|chdir|syspath_prepend|undo)",
            path.read_text(),
        )
    ]
    assert not mocking, f"mocks or patches in {mocking}"


def test_no_promise_is_left_in_the_code():
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in PYTHON
        if path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"\b(?:TODO|FIXME|XXX|HACK)\b", line)
    ]
    assert not found, f"do it or say it in docs/limits.md: {found}"


def test_nothing_speaks_of_one_machine():
    found = []
    for path in _written():
        if path != Path(__file__):
            text = path.read_bytes().decode("utf-8", "replace")
            found += [f"{path.relative_to(ROOT)}: {match}" for match in OF_ONE_MACHINE.findall(text)]
    assert not found, f"paths or package indexes of one machine: {found}"


# Chinese texts


def _chinese_texts(path: Path) -> Iterator[str]:
    """The texts for Chinese readers in a file; what is only searched for in logs is none."""
    if path.suffix == ".toml":
        yield from re.findall(r'\bzh ?= ?"((?:[^"\\]|\\.)*)"', path.read_text())
    elif path.suffix == ".csv":
        for row in csv.DictReader(path.read_text().splitlines()):
            yield from (text or "" for name, text in row.items() if name and name.endswith("_zh"))
    elif path.suffix == ".py" and WRITES_CHINESE.search(path.read_text()):
        inner: set[int] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                inner |= {id(part) for part in node.values}
                yield "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
                yield node.value


def test_chinese_texts_have_full_width_punctuation():
    files = [path for ending in ("toml", "csv", "py") for path in SRC.rglob(f"*.{ending}")]
    wrong = {
        f"{path.relative_to(ROOT)}: {text}"
        for path in files
        for text in _chinese_texts(path)
        if "(?" not in text and HALF_WIDTH.search(FIELD.sub("x", CODE.sub("x", text)))
    }
    assert not wrong, "\n".join(("half-width punctuation beside Chinese:", *sorted(wrong)))


# Pages


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_in_the_pages(name):
    text = "".join(page.read_text() for page in PAGES)
    assert re.search(rf"holdfast {name}\b", text), f"holdfast {name} is in no page"


def test_every_room_is_in_the_architecture():
    page = (ROOT / "ARCHITECTURE.md").read_text()
    rooms = [path.name for path in SRC.iterdir() if (path / "__init__.py").exists() or path == SHIM.parent]
    missing = [room for room in rooms if f"`{room}`" not in page]
    assert not missing, f"ARCHITECTURE.md does not say what these are: {missing}"


def test_every_limit_of_the_ladder_is_in_its_page():
    page = (ROOT / "docs" / "ladder.md").read_text()
    missing = [name for name in Policy.__struct_fields__ if f"`{name}`" not in page]
    assert not missing, f"docs/ladder.md does not explain {missing}"


def test_every_word_of_the_journal_is_in_the_list_of_words():
    page = (ROOT / "docs" / "words.md").read_text()
    kinds = [
        str(kind.__struct_config__.tag)
        for union in (AnyEvent, AnyOrder, AnyPhase)
        for kind in get_args(union)
    ]
    missing = [word for word in (*kinds, *categories.KINDS) if f"`{word}`" not in page]
    assert not missing, f"docs/words.md does not explain {missing}"


def test_links_between_pages_lead_somewhere():
    broken = [
        f"{page.relative_to(ROOT)} -> {link}"
        for page in PAGES
        for link in re.findall(r"(?<!!)\[[^]]*\]\(([^)#]+)[^)]*\)", page.read_text())
        if "://" not in link and not (page.parent / link).exists()
    ]
    assert not broken, f"broken links: {broken}"


def test_the_changelog_has_a_place_for_what_is_new():
    assert "\n## Unreleased\n" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs" / "decisions").glob("*.md")), ids=lambda page: page.stem
)
def test_a_decision_says_what_why_and_what_else(page):
    assert re.fullmatch(r"\d{4}-[a-z0-9-]+", page.stem), "named like 0001-what-was-decided.md"
    headings = re.findall(r"^## (.*)$", page.read_text(), re.MULTILINE)
    assert headings == ["What", "Why", "What else was weighed"]


def test_make_asks_for_tools_that_the_extra_names():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {re.split(r"[^A-Za-z0-9-]", word)[0] for word in extras["dev"]}
    assert {"ruff", "mypy", "import-linter", "pytest", "pytest-xdist"} <= named


def test_tests_that_are_left_out_are_named_with_the_reason(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import pytest\n\n@pytest.fixture\ndef host():\n    pytest.skip('forbidden here')\n\ndef test_one(host): ...\n"
    )
    words = ["-c", ROOT / "pyproject.toml", "--rootdir", tmp_path, "-p", "no:cacheprovider", tmp_path]
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env=env,
    )
    assert re.search(r"SKIPPED .*test_it\.py::test_one - .*forbidden here", done.stdout), done.stdout
