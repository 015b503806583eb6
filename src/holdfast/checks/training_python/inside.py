"""Inspects the Python environment of a training from inside: versions, the script, its imports.

Runs no code of the training. It is started by its path, imports nothing of Holdfast, and imports only the standard
library, even if a file beside the script has the same name as a standard module. Its first argument is a JSON object
with `script`, `module`, `names` and `packages`; it prints one line, `MARK` and a JSON object. For Python 3.7 and
newer.
"""

from __future__ import annotations

import os
import sys

MARK = "holdfast-says:"
FILES_MAX = 400
BYTES_MAX = 4 << 20
SITES = ("site-packages", "dist-packages")
DISTRIBUTIONS = (
    *(
        "torch",
        "numpy",
        "deepspeed",
        "accelerate",
        "transformers",
        "triton",
        "flash-attn",
        "transformer-engine",
    ),
    *("nvidia-nccl-cu11", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "torch-npu"),
    *("nvidia-cudnn-cu11", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13"),
)
_STANDARD = os.path.dirname(os.path.abspath(os.__file__))


def run_path(script_folder: str) -> list[str]:
    """Returns the `sys.path` that a script in this folder has when it runs."""
    path = list(sys.path)
    own = os.path.dirname(os.path.abspath(__file__))
    if path and os.path.abspath(path[0]) == own:
        path[0] = script_folder
    return [entry or os.getcwd() for entry in path]


def only_standard() -> None:
    """Restricts imports of this process to the standard library."""
    dynload = os.path.join(_STANDARD, "lib-dynload")
    sys.path[:] = [
        entry
        for entry in sys.path
        if entry.endswith(".zip") or os.path.abspath(entry) in (_STANDARD, os.path.abspath(dynload))
    ]


RUN_PATH = run_path("")
if __name__ == "__main__":
    only_standard()

import ast  # noqa: E402
import json  # noqa: E402
import re  # noqa: E402
import sysconfig  # noqa: E402
import warnings  # noqa: E402

try:
    import importlib.metadata as metadata
except ImportError:  # Python 3.7
    metadata = None  # type: ignore[assignment]

_DOUBT = re.compile(
    r"\bsys\.(?:path|meta_path|modules|path_hooks)\b|\baddsitedir\b|\bpip['\"]?,?\s*['\"]?install\b|\b__import__\("
    r"|\bpyximport\b|\bruntime_env\b|\bfindspark\b|\brootutils\b|\bpyrootutils\b|\bautoroot\b"
)
_OWN_PATHS = re.compile(r"__path__|sys\.modules|extend_path|__getattr__|declare_namespace")


class Import:
    """An unconditional import at the top of a file: if it fails, the script fails."""

    def __init__(self, module: str, names: list[str], level: int, line: int) -> None:
        self.module, self.names, self.level, self.line = module, names, level, line


def top_imports(tree: ast.Module) -> list[Import]:
    """Returns the top-level imports of a module.

    Those inside try, if, with or a function are left out: they may be optional.
    """
    found = []
    for node in tree.body:
        if isinstance(node, ast.Import):
            found += [Import(alias.name, [], 0, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names]
            found.append(Import(node.module or "", names, node.level, node.lineno))
        elif isinstance(node, ast.Raise) or (isinstance(node, ast.Expr) and _ends(node.value)):
            break
    return found


def _ends(value: ast.expr) -> bool:
    if not isinstance(value, ast.Call):
        return False
    called = value.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name in ("exit", "_exit", "quit")


class Walk:
    """Search for missing modules that follows the imports of a script through the files beside it."""

    def __init__(self) -> None:
        self.missing: list[dict[str, object]] = []
        self.doubts: list[str] = []
        self.seen: set[str] = set()
        self.imported: set[str] = set()
        self.files = 0
        self._specs: dict[str, object] = {}

    def follow(self, path: str, package: str, is_main: bool) -> None:
        waiting = [(path, package, is_main)]
        while waiting and self.files < FILES_MAX:
            path, package, is_main = waiting.pop(0)
            real = os.path.realpath(path)
            if real in self.seen:
                continue
            self.seen.add(real)
            self.files += 1
            tree, text = _parsed(path)
            if tree is None:
                continue  # a file of its own that does not compile may be meant for another Python
            if _DOUBT.search(text):
                self.doubts.append(path)
            for one in top_imports(tree):
                waiting += self._look(one, path, package, is_main)

    def _look(self, one: Import, path: str, package: str, is_main: bool) -> list[tuple[str, str, bool]]:
        module = one.module
        if one.level:
            if is_main and not package:
                self._miss("." * one.level + module, path, one.line, "relative")
                return []
            above = package.split(".")
            if one.level > len(above):
                return []
            module = ".".join([*above[: len(above) - one.level + 1], *([module] if module else [])])
        if not module:
            return []
        files: list[tuple[str, str, bool]] = []
        before: object = None
        found: object = None
        parts = module.split(".")
        for depth in range(1, len(parts) + 1):
            name = ".".join(parts[:depth])
            if not one.level and depth == 1:
                self.imported.add(name)
            before, found = found, self.spec(name)
            if found is None:
                if before is None or self._is_ours(before):
                    self._miss(name, path, one.line, "absent")
                return files
            files += self._file(found, name)
        for name in one.names:
            inner = self.spec(module + "." + name) if name != "*" and _is_package(found) else None
            if inner is not None:
                files += self._file(inner, module + "." + name)
            elif name != "*" and _is_namespace(found) and not one.level:
                self._miss(module + "." + name, path, one.line, "name")
        return files

    def spec(self, name: str) -> object:
        """Returns the location of a module without importing it or its package; None if it is not found."""
        if name not in self._specs:
            self._specs[name] = self._find(name)
        return self._specs[name]

    def _find(self, name: str) -> object:
        parent = name.rpartition(".")[0]
        path = None
        if parent:
            above = self.spec(parent)
            if not _is_package(above):
                return None
            path = list(above.submodule_search_locations)  # type: ignore[attr-defined]
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            try:
                found = find(name, path) if find is not None else None
            except (ImportError, AttributeError, TypeError, ValueError, LookupError, OSError):
                found = None  # a failing finder of the run's own shows nothing
            if found is not None:
                return found
        return None

    def _file(self, spec: object, name: str) -> list[tuple[str, str, bool]]:
        origin = getattr(spec, "origin", None)
        if not origin or not str(origin).endswith(".py") or not _is_local(origin):
            return []
        return [(origin, name if _is_package(spec) else name.rpartition(".")[0], False)]

    def _is_ours(self, package: object) -> bool:
        """Returns True if a package beside the script extends no search path, so that its modules are in
        its folder or missing.
        """
        if not _is_package(package):
            return False
        if _is_namespace(package):
            return all(_is_local(place) for place in package.submodule_search_locations)  # type: ignore[attr-defined]
        origin = str(getattr(package, "origin", "") or "")
        return origin.endswith(".py") and _is_local(origin) and not _OWN_PATHS.search(_parsed(origin)[1])

    def _miss(self, name: str, path: str, line: int, kind: str) -> None:
        self.missing.append({"name": name, "file": path, "line": line, "kind": kind})


def _is_package(spec: object) -> bool:
    return getattr(spec, "submodule_search_locations", None) is not None


def _is_namespace(spec: object) -> bool:
    return _is_package(spec) and getattr(spec, "origin", None) in (None, "namespace")


def _is_local(path: str) -> bool:
    """Returns True if a path is neither in the standard library nor among installed packages."""
    full = os.path.abspath(path)
    return not full.startswith(_STANDARD + os.sep) and not any(
        os.sep + site + os.sep in full + os.sep for site in SITES
    )


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(BYTES_MAX)


def _parsed(path: str) -> tuple[ast.Module | None, str]:
    try:
        data = _read(path)
        return ast.parse(data, path), data.decode("utf-8", "replace")
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None, ""


# Results


def of_python() -> dict[str, object]:
    return {
        "executable": sys.executable,
        "version": sys.version.split()[0],
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
        "machine": os.uname().machine,
        "soabi": str(sysconfig.get_config_var("SOABI") or ""),
    }


def of_script(path: str) -> dict[str, object]:
    """Returns facts about the script.

    `problem` is "absent", "folder", "denied", "syntax" (with `line` and `text`) or "".
    """
    said: dict[str, object] = {"path": path, "problem": ""}
    if not os.path.exists(path):
        near = _listing(os.path.dirname(os.path.abspath(path)))
        return dict(said, problem="absent", near=near)
    if os.path.isdir(path):
        is_run = os.path.exists(os.path.join(path, "__main__.py"))
        return said if is_run else dict(said, problem="folder")
    try:
        data = _read(path)
    except OSError as error:
        return dict(said, problem="denied", text=error.strerror or "")
    if data[:4] == b"PK\3\4":
        return said  # a zip that Python can run
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(data, path, "exec", dont_inherit=True)
    except SyntaxError as error:
        return dict(said, problem="syntax", line=error.lineno or 0, text=str(error.msg))
    except ValueError as error:
        return dict(said, problem="syntax", line=0, text=str(error))
    except (RecursionError, MemoryError):
        pass
    return said


def _listing(folder: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(".py"))[:200]
    except OSError:
        return []


def of_torch(walk: Walk) -> dict[str, object]:
    """Returns the version and build of torch, read from its version.py, because importing torch takes
    seconds.
    """
    versions = {}
    for name in DISTRIBUTIONS:
        try:
            versions[name] = metadata.version(name) if metadata is not None else ""
        except (ImportError, AttributeError, TypeError, ValueError, LookupError, OSError):
            continue  # not installed, or its metadata is torn
    spec = walk.spec("torch")
    origin = str(getattr(spec, "origin", "") or "")
    said: dict[str, object] = {"installed": {name: value for name, value in versions.items() if value}}
    if not origin:
        return dict(said, found=spec is not None and not _is_namespace(spec))
    folder = os.path.dirname(origin)
    text = _parsed(os.path.join(folder, "version.py"))[1]
    for name, word in (("version", "__version__"), ("cuda", "cuda"), ("hip", "hip")):
        found = re.search(rf"^{word}\s*(?::[^=\n]*)?=\s*['\"]([^'\"\n]*)", text, re.MULTILINE)
        said[name] = found.group(1) if found else ""
    said.update(found=True, folder=folder, has_native=_has_native(folder), nccl=_nccl(folder, versions))
    said["cudnn"] = next((value for name, value in versions.items() if "cudnn" in name), "")
    return said


def builds_kernels(walk: Walk) -> bool:
    """Returns True if the installed DeepSpeed compiles its kernels at first use."""
    origin = str(getattr(walk.spec("deepspeed"), "origin", "") or "")
    text = (
        _parsed(os.path.join(os.path.dirname(origin), "git_version_info_installed.py"))[1] if origin else ""
    )
    return bool(origin) and not re.search(r"installed_ops\s*=\s*\{[^}]*:\s*True", text)


def _has_native(folder: str) -> bool:
    try:
        return any(name.startswith("_C") and name.endswith((".so", ".pyd")) for name in os.listdir(folder))
    except OSError:
        return False


def _nccl(folder: str, versions: dict[str, str]) -> str:
    """Returns the NCCL version: that of the installed package, else from the file name of the first
    library found.
    """
    installed = next((value for name, value in versions.items() if "nccl" in name), "")
    places = [os.path.join(folder, "lib"), os.path.join(sys.prefix, "lib")]
    places += os.environ.get("LD_LIBRARY_PATH", "").split(":")
    places += [f"/usr/lib/{os.uname().machine}-linux-gnu", "/usr/lib64", "/usr/lib"]
    for place in [] if installed else filter(None, places):
        real = os.path.realpath(os.path.join(place, "libnccl.so.2"))
        found = re.search(r"libnccl\.so\.(\d+\.\d+\.\d+)$", real)
        if found and os.path.exists(real):
            return found.group(1)
    return installed


def shadows(names: list[str], packages: list[str]) -> list[dict[str, str]]:
    """Returns files that shadow a module of the standard library or of an installed package."""
    found = []
    early = []
    for entry in RUN_PATH:
        if os.path.abspath(entry) == _STANDARD:
            break
        if os.path.isdir(entry) and not any(site in entry for site in SITES):
            early.append(entry)
    for entry in dict.fromkeys(early):
        here = set(_listing_all(entry))
        for name in names:
            if not {name, name + ".py"} & here or not _in_standard(name):
                continue
            if name + ".py" in here:
                found.append({"name": name, "path": os.path.join(entry, name + ".py"), "hides": "standard"})
            elif os.path.isfile(os.path.join(entry, name, "__init__.py")):
                found.append({"name": name, "path": os.path.join(entry, name), "hides": "standard"})
        for name in packages:
            if name + ".py" in here and _installed(name):
                found.append({"name": name, "path": os.path.join(entry, name + ".py"), "hides": "package"})
    return found


def _in_standard(name: str) -> bool:
    if name in sys.builtin_module_names:
        return False  # found before any file
    places = [os.path.join(_STANDARD, name + ".py"), os.path.join(_STANDARD, name, "__init__.py")]
    dynload = os.path.join(_STANDARD, "lib-dynload")
    return any(map(os.path.exists, places)) or any(
        one.startswith(name + ".") for one in _listing_all(dynload)
    )


def _listing_all(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _installed(name: str) -> bool:
    return any(
        os.path.exists(os.path.join(entry, name, "__init__.py"))
        for entry in RUN_PATH
        if any(site in entry for site in SITES)
    )


def main() -> None:
    asked = json.loads(sys.argv[1])
    script, module = asked.get("script") or "", asked.get("module") or ""
    folder = os.path.dirname(os.path.realpath(script)) if script else os.getcwd()
    RUN_PATH[:] = [
        folder if entry == os.getcwd() and not place else entry for place, entry in enumerate(RUN_PATH)
    ]
    sys.path[:] = RUN_PATH
    walk = Walk()
    said: dict[str, object] = {"python": of_python(), "torch": of_torch(walk)}
    said["builds_kernels"] = builds_kernels(walk)
    package = ""
    if module:
        spec = walk.spec(module)
        if _is_package(spec):
            spec, package = walk.spec(module + ".__main__"), module
        else:
            package = module.rpartition(".")[0]
        script = str(getattr(spec, "origin", "") or "")
        said["script"] = of_script(script) if script else {"path": "", "problem": "no-module"}
    elif script:
        said["script"] = of_script(script)
    if script and os.path.isfile(script) and script.endswith((".py", ".pyw")):
        walk.follow(script, package, True)
    said.update(missing=walk.missing, doubts=walk.doubts, files=walk.files, imported=sorted(walk.imported))
    said["shadows"] = shadows(asked.get("names") or [], asked.get("packages") or [])
    said["path"] = RUN_PATH
    sys.stdout.write(MARK + json.dumps(said) + "\n")


if __name__ == "__main__":
    main()
