"""Runs the benchmark that its argument describes, on one device or the CPUs, and prints the result as a line
of JSON.

    python burn/__main__.py '{"work": "matmul", "device": "cuda:0", "seconds": 20, ...}'

What libraries print goes to stderr. A benchmark ends soon after its seconds, unless the driver itself hangs.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from typing import Any

PACKAGE = "holdfast_burn"  # a name of its own: the training's Python need not have Holdfast


def main() -> None:
    answers = os.dup(1)
    os.dup2(2, 1)
    folder = os.path.dirname(os.path.realpath(__file__))
    if sys.path and os.path.realpath(sys.path[0] or ".") == folder:
        del sys.path[0]  # our modules must not stand in for those that torch imports
    asked = json.loads(sys.argv[1])
    works = _works(folder)
    try:
        answer = works.WORKS[asked.pop("work")](**asked)
    except works.Unable as error:
        answer = {"unable": str(error)}
    except Exception as error:  # noqa: BLE001 - whatever a driver throws is the finding
        answer = {"error": f"{type(error).__name__}: {error}"}
    os.write(answers, json.dumps(answer).encode() + b"\n")
    os._exit(0)  # a driver that hangs on the way out must not keep us


def _works(folder: str) -> Any:
    """Imports the modules beside this file as a package that is not on sys.path."""
    spec = importlib.util.spec_from_file_location(
        PACKAGE, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    assert spec is not None
    sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)
    return importlib.import_module(PACKAGE + ".works")


if __name__ == "__main__":
    main()
