"""Part of the shim: makes a PyTorch run repeatable without changes to the script (`holdfast run
--deterministic`).

`sitecustomize` loads it in every Python process of the command if the environment variable
HOLDFAST_DETERMINISTIC_SEED is set. It acts when three modules are imported: `random` and `numpy.random` are
seeded; `torch` is seeded and set to use deterministic algorithms, with a warning for operations that have
none. The seed of a rank is the variable's value plus the rank. What the script sets afterwards wins.

It imports none of these modules and raises nothing. Python 3.6 syntax.
"""

import json
import os
import sys
import threading
from importlib.util import find_spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

SEED = "HOLDFAST_DETERMINISTIC_SEED"
NOTE = "deterministic.json"  # in the worker's folder, by the first process that imports torch


def seed() -> int:
    """Returns the seed of this process: the environment variable's value plus the rank."""
    rank = os.environ.get("RANK", "")
    return (int(os.environ[SEED]) + (int(rank) if rank.isdecimal() and len(rank) < 8 else 0)) % (1 << 32)


class Settings:
    """Import hook that waits for the modules. It finds no module itself; it wraps the loader of each."""

    def __init__(self, attempt: "Callable[..., Any]") -> None:
        self.attempt = attempt
        self.finding = set()  # type: set[tuple[int, str]]

    def find_spec(self, name: str, path: object = None, target: object = None) -> "ModuleSpec | None":
        me = (threading.get_ident(), name)
        if name not in AFTER or me in self.finding:
            return None
        self.finding.add(me)
        try:
            return self.attempt(self.wrapped, name)  # type: ignore[no-any-return]
        finally:
            self.finding.discard(me)

    def wrapped(self, name: str) -> "ModuleSpec | None":
        spec = find_spec(name)
        loader = spec.loader if spec is not None else None  # type: Any
        if spec is None or not hasattr(loader, "exec_module"):
            return spec
        load = loader.exec_module

        def exec_module(module: "ModuleType") -> None:
            del loader.exec_module
            load(module)
            self.attempt(AFTER[name], module)

        loader.exec_module = exec_module
        return spec


def after_random(module: "Any") -> None:
    module.seed(seed())


def after_torch(module: "Any") -> None:
    """Applies each setting separately, because old versions of torch lack some of them."""
    done, failed = [], {}
    for name, part in TORCH:
        try:
            part(module)
            done.append(name)
        except Exception as error:
            failed[name] = "%s: %s" % (type(error).__name__, error)
    note(module, done, failed)


def note(module: "Any", done: "list[str]", failed: "dict[str, str]") -> None:
    """Writes which settings were applied and which failed, for users and tests."""
    path = os.path.join(os.environ["HOLDFAST_WORKER_DIR"], NOTE)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    with os.fdopen(fd, "w") as file:
        json.dump({"torch": str(module.__version__), "seed": seed(), "set": done, "not_set": failed}, file)


def _algorithms(torch: "Any") -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)


def _benchmark(torch: "Any") -> None:
    torch.backends.cudnn.benchmark = False


def _cudnn(torch: "Any") -> None:
    torch.backends.cudnn.deterministic = True


def _seed(torch: "Any") -> None:
    torch.manual_seed(seed())


TORCH = (
    ("torch.use_deterministic_algorithms(True, warn_only=True)", _algorithms),
    ("torch.backends.cudnn.benchmark = False", _benchmark),
    ("torch.backends.cudnn.deterministic = True", _cudnn),
    ("torch.manual_seed(seed + rank)", _seed),
)
AFTER = {"random": after_random, "numpy.random": after_random, "torch": after_torch}


def install(attempt: "Callable[..., Any]") -> None:
    """Installs the import hook. Modules that are already imported are set at once."""
    for name in ("random", "numpy.random", "torch"):
        if name in sys.modules:
            attempt(AFTER[name], sys.modules[name])
    sys.meta_path.insert(0, Settings(attempt))
