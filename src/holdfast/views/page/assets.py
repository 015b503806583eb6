"""Bundles the web page's modules into one script and its styles into one style sheet, without a build step.

Modules use a subset of import and export syntax, which `_parsed` enforces: `import { a, b as c } from
"./x.js";` at the start of a line, and `export` before `const`, `function`, `async function` or `class`.
Anything else raises ModuleRefused, so that errors appear here and not in a browser.
"""

import functools
import posixpath
import re
from collections.abc import Callable
from importlib.resources import files
from typing import NamedTuple

ASSETS = files("holdfast") / "page_assets"
MAIN = "app/main.js"
TERMINAL = "app/views/terminal.js"  # a separate script, loaded with that view
VENDORED = ("vendor/preact.min.umd.js", "vendor/hooks.umd.js", "vendor/htm.umd.js")
STYLES = ("colours.css", "app/app.css")
# Assets that views load on demand: name in the assets folder, file of the package.
ON_DEMAND = {
    "uPlot.iife.min.js": "uplot/uPlot.iife.min.js",
    "uPlot.min.css": "uplot/uPlot.min.css",
    "xterm.js": "terminal/xterm.js",
    "xterm.css": "terminal/xterm.css",
    "addon-fit.js": "terminal/addon-fit.js",
}
_IMPORT = re.compile(r'^import \{([^}]*)\} from "(\.[^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (const|async function|function|class) (\w+)", re.MULTILINE)
_OTHER = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)
_SOURCE_MAP = re.compile(r"^//# sourceMappingURL=.*\n?", re.MULTILINE)


class ModuleRefused(ValueError):
    """Raised when a module uses import or export syntax that the bundle does not support."""


class _Module(NamedTuple):
    """A parsed JavaScript module: imports, exported names, and code without import and export keywords."""

    imports: tuple[tuple[str, str], ...]  # path of the module; the names between the braces
    exports: tuple[str, ...]
    body: str


def text(path: str) -> str:
    """Returns the text of an asset file of the package."""
    return (ASSETS / path).read_text(encoding="utf-8")


@functools.cache
def script() -> str:
    """Returns the page's script: third-party code, then the bundled modules."""
    vendored = "\n".join(_SOURCE_MAP.sub("", text(path)).rstrip() for path in VENDORED)
    return f"{vendored}\n{joined(MAIN, text)}"


@functools.cache
def terminal_script() -> str:
    """Returns the additional script for the terminal view, without modules that `script` already contains."""
    return joined(TERMINAL, text, besides=MAIN)


def joined(main: str, read: Callable[[str], str], besides: str = "") -> str:
    """Bundles a module and its imports into one script. Raises ModuleRefused.

    Each module becomes a function that is called once, in the order of imports. `besides`: the main module of
    a script already on the page, whose modules are left out.
    """
    there: dict[str, _Module] = {}
    if besides:
        _collect(besides, read, there, ())
    modules = dict(there)
    _collect(main, read, modules, ())
    called = "\n".join(_called(path, module) for path, module in modules.items() if path not in there)
    return f'(() => {{\n"use strict";\nconst $ = (globalThis.holdfastModules ??= {{}});\n{called}\n}})();\n'


@functools.cache
def style() -> str:
    return "\n".join(text(path) for path in STYLES)


def _collect(
    path: str, read: Callable[[str], str], modules: dict[str, _Module], above: tuple[str, ...]
) -> None:
    """Adds a module to `modules`, after its imports. Raises ModuleRefused."""
    if path in above:
        raise ModuleRefused(
            f"{' imports '.join((*above, path))}: modules of the page must not import each other in a cycle"
        )
    if path in modules:
        return
    module = _parsed(path, read(path))
    for imported, _ in module.imports:
        _collect(imported, read, modules, (*above, path))
    modules[path] = module


def _parsed(path: str, source: str) -> _Module:
    folder = posixpath.dirname(path)
    imports = tuple(
        (posixpath.normpath(posixpath.join(folder, place)), names) for names, place in _IMPORT.findall(source)
    )
    exports = tuple(name for _, name in _EXPORT.findall(source))
    body = _EXPORT.sub(r"\1 \2", _IMPORT.sub("", source))
    if other := _OTHER.search(body):
        raise ModuleRefused(f"{path}: write this as the docstring of {__name__} says: {other.group()!r}")
    return _Module(imports, exports, body)


def _called(path: str, module: _Module) -> str:
    taken = "".join(
        f'const {{{names.replace(" as ", ": ")}}} = $["{place}"];\n' for place, names in module.imports
    )
    body = re.sub(r"^ *//.*\n", "", module.body, flags=re.MULTILINE)
    body = re.sub(r"\n\s*", "\n", body)
    return f'$["{path}"] = (() => {{\n{taken}{body}return {{ {", ".join(module.exports)} }};\n}})();'
