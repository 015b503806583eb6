"""Part of the shim: records which large libraries the first rank imports, so that a standby can import them
ahead.

`sitecustomize.py` beside it loads this file in that rank only. Like it, it never imports holdfast, never
raises into the script, and its syntax is that of Python 3.6.

The list has one module name a line, in the order of imports, and two other kinds of lines:

    env:NAME    the script has changed this variable; a library that reads it must not be imported before
    device      a library other than torch has opened a GPU while it was imported
"""

import os
import sys
from _frozen_importlib_external import PathFinder  # not importlib.machinery: it imports warnings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.shim.sitecustomize import Rank

NAMES_MAX = (
    6000  # torch 2.13 with torch.distributed: 730; with Trainer of transformers 5: 3,400 of all packages
)
LAST = 500  # of the names, among which one that is being imported is looked for
TORCH = "torch"
# Packages whose import takes long, and opens no device, starts no process and joins no group: not bitsandbytes, which asks
# the GPU, nor mpi4py, which initialises MPI. What they import themselves comes along with them.
LARGE = {
    "accelerate",
    "datasets",
    "diffusers",
    "evaluate",
    "huggingface_hub",
    "lightning",
    "lightning_fabric",
}
LARGE |= {"numpy", "pandas", "PIL", "pyarrow", "pytorch_lightning", "safetensors", "scipy", "sklearn", "timm"}
LARGE |= {"tokenizers", "torchmetrics", "torchvision", "transformers"}
INSTALLED = "-packages" + os.sep
STANDARD = frozenset(getattr(sys, "stdlib_module_names", ()))  # type: frozenset[str]  # Python 3.10 and later


class Imports:
    """Import hook that records which modules of these packages are imported. It finds no module itself."""

    def __init__(
        self, rank: "Rank", append: "Callable[[str], int]", attempt: "Callable[..., object]"
    ) -> None:
        self.rank = rank
        self.append = append
        self.attempt = attempt
        self.env = dict(os.environ)
        self.names = {""}
        self.order = []  # type: list[str]
        self.others = set()  # type: set[str]  # packages of these names that are the user's own
        self.has_device = False
        self.fd = -1

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Records a module. Always returns None, so that the next finder is used."""
        top = name.partition(".")[0]
        is_new = (top == TORCH or top in LARGE) and name not in self.names and top not in self.others
        if is_new and not _is_only_looked_for():
            self.attempt(self.note, name, top)

    def note(self, name: str, top: str) -> None:
        if len(self.names) > NAMES_MAX or not self.rank.is_here():
            return
        if name == top != TORCH and not _is_installed(name):
            self.others.add(name)
            return
        self.names.add(name)
        lines = self.changed() if name == top else []
        lines += self.device()
        self.order.append(name)
        if self.fd < 0:
            self.fd = self.append(os.path.join(self.rank.folder, "imports"))
        os.write(self.fd, "".join(line + "\n" for line in [*lines, name]).encode("utf-8", "backslashreplace"))

    def changed(self) -> "list[str]":
        """Returns lines for environment variables that the script changed before a library could read them.

        A standby that has imported the library already would miss the change. What a library changes while it
        is imported, it changes in the standby as well.
        """
        before, self.env = self.env, dict(os.environ)
        if self.is_within_an_import():
            return []
        keys = sorted(set(before) | set(self.env))
        return [
            "env:" + key
            for key in keys
            if before.get(key) != self.env.get(key) and not key.startswith("HOLDFAST_")
        ]

    def device(self) -> "list[str]":
        """Returns a line, once, if an import opened a GPU: the ranks of a standby would hold its memory."""
        cuda = sys.modules.get("torch.cuda")
        if self.has_device or cuda is None or not getattr(cuda, "_initialized", False):
            return []
        self.has_device = True
        return ["device"] if self.is_within_an_import() else []

    def is_within_an_import(self) -> bool:
        """Returns True if one of the last recorded modules is being imported now."""
        for name in reversed(self.order[-LAST:]):
            spec = getattr(sys.modules.get(name), "__spec__", None)
            if getattr(spec, "_initializing", False):
                return True
        return False


def _is_only_looked_for() -> bool:
    """Returns True if a finder is asked whether a module exists (`importlib.util.find_spec`), not for its import.

    accelerate and transformers look for dozens of packages so, which the script never imports.
    """
    frame = sys._getframe(2)  # of importlib's own search through the finders
    asking = frame.f_back
    return asking is not None and asking.f_globals.get("__name__") == "importlib.util"


def _is_installed(name: str) -> bool:
    """Returns True if a module is an installed package, not a folder of the user with the same name."""
    spec = PathFinder.find_spec(name)
    return spec is not None and INSTALLED in (spec.origin or "")


def note_reached(folder: str) -> None:
    """Adds this process to those that have loaded the shim, if it leads a session, as a command itself does."""
    pid = os.getpid()
    if os.getsid(0) == pid:
        note = os.open(os.path.join(folder, "reached"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(note, b"%d\n" % pid)
        os.close(note)


class Learning:
    """Records every module of the standard library and of installed packages, in order of import. Finds none itself.

    A line each: the module, or `env:NAME` for a variable that the script has changed before it, `set:NAME` for one that
    an import has added, or `own:NAME` for a package of the script's own, whose modules are not recorded. `path`: of the
    file, which several processes may share.
    """

    def __init__(self, path: str, append: "Callable[[str], int]", attempt: "Callable[..., object]") -> None:
        self.path = path
        self.append = append
        self.attempt = attempt
        self.pid = os.getpid()
        self.env = dict(os.environ._data)  # type: ignore[attr-defined]
        self.names = set()  # type: set[str]
        self.installed = {}  # type: dict[str, bool]  # by the package's name
        self.is_looking = False
        self.order = []  # type: list[str]
        self.fd = -1

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Always None: the next finder is used."""
        is_new = name not in self.names and not self.is_looking and len(self.names) < NAMES_MAX
        if is_new and not _is_only_looked_for():
            self.is_looking = True
            try:
                self.attempt(self.note, name)
            finally:
                self.is_looking = False

    def note(self, name: str) -> None:
        self.names.add(name)
        top = name.partition(".")[0]
        known = self.installed.get(top)
        if known is None:
            known = self.installed[top] = self.is_foreign(top)
        if known and os.getpid() == self.pid:
            self.write([*self.changed(), name])
            self.order.append(name)

    def is_foreign(self, top: str) -> bool:
        """True for Python's own and for installed packages; a name of the script's own is recorded as such."""
        if top in STANDARD:
            return True
        spec = PathFinder.find_spec(top)
        if spec is None:
            return top in sys.builtin_module_names
        places = (
            [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
        )  # of a namespace
        python = os.path.dirname(os.__file__) + os.sep
        is_foreign = any(INSTALLED in place + os.sep or place.startswith(python) for place in places)
        if not is_foreign:
            self.write(["own:" + top])
        return is_foreign

    def changed(self) -> "list[str]":
        """Returns lines for variables that the script has changed, and for those that a library has added while it was
        imported.
        """
        before, now = self.env, os.environ._data  # type: ignore[attr-defined]
        if before == now:
            return []
        self.env = dict(now)
        if self.is_within_an_import():
            return ["set:" + os.fsdecode(key) for key in sorted({*now} - {*before})]
        keys = [os.fsdecode(key) for key in {*before, *now} if before.get(key) != now.get(key)]
        return ["env:" + key for key in sorted(keys) if not key.startswith("HOLDFAST_")]

    def is_within_an_import(self) -> bool:
        for name in reversed(self.order):
            spec = getattr(sys.modules.get(name), "__spec__", None)
            if getattr(spec, "_initializing", False):
                return True
        return False

    def write(self, lines: "list[str]") -> None:
        if self.fd < 0:
            self.fd = self.append(self.path)
        os.write(self.fd, "".join(line + "\n" for line in lines).encode("utf-8", "backslashreplace"))
