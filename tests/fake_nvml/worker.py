"""One process in which checks look at the stand-in again and again, as a suite's process does.

worker = Worker(library)
worker.outcomes(node, ("gpu-ecc",), scene)
"""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec

from fake_nvml.node import LIBRARY, Node
from holdfast.model.checks import Outcome, Scene

SERVE = """
import os, sys, msgspec
from holdfast.checks.child import look
from holdfast.checks.registry import check_named
from holdfast.model.checks import Scene
answers = os.dup(1)
os.dup2(2, 1)
for line in sys.stdin.buffer:
    state, scene, names = msgspec.json.decode(line)
    os.environ["FAKE_NVML"] = state
    told = msgspec.convert(scene, Scene)
    text = msgspec.json.encode([look(check_named(name), told) for name in names]) + b"\\n"
    while text:
        text = text[os.write(answers, text):]
os._exit(0)
"""


class Worker:
    def __init__(self, library: Path) -> None:
        assert (library / LIBRARY).exists()
        env = dict(os.environ, LD_LIBRARY_PATH=str(library), PYTHONPATH=os.pathsep.join(sys.path))
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
        )

    def outcomes(self, node: Node, names: Iterable[str], scene: Scene) -> dict[str, Outcome]:
        assert self._process.stdin is not None and self._process.stdout is not None
        question = [str(node.state), msgspec.to_builtins(scene), list(names)]
        self._process.stdin.write(msgspec.json.encode(question) + b"\n")
        self._process.stdin.flush()
        found = msgspec.json.decode(self._process.stdout.readline(), type=list[Outcome])
        return {outcome.check: outcome for outcome in found}

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()
