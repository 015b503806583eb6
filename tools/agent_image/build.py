"""Builds the agent's folder: its own CPython, loader and libraries of Debian, and Holdfast with its dependencies.

    python tools/agent_image/build.py FOLDER [--arch amd64|arm64] [--with-py-spy]

Needs apt-get, dpkg-deb, a C compiler for the architecture (musl-gcc if there is one) and pip. FOLDER/opt/holdfast is the
result: it can be copied anywhere, and runs on any Linux of its architecture with /proc.
"""

import argparse
import compileall
import os
import py_compile
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
PYTHON = "3.11"
PACKAGES = (
    f"python{PYTHON}-minimal",
    f"libpython{PYTHON}-minimal",
    f"libpython{PYTHON}-stdlib",
    "libc6",
    "libexpat1",
    "zlib1g",
    "libssl3",
    "libffi8",
    "libbz2-1.0",
    "liblzma5",
    "libsqlite3-0",
    "libuuid1",
    "libcrypt1",
    "libstdc++6",
    "libgcc-s1",
)
# Of the standard library: what nothing in an agent imports.
LEFT_OUT = (
    *(
        "test",
        "idlelib",
        "tkinter",
        "lib2to3",
        "ensurepip",
        "pydoc_data",
        "turtledemo",
        "distutils",
        "venv",
        "curses",
    ),
    *(
        "unittest",
        "xmlrpc",
        "wsgiref",
        "turtle.py",
        "doctest.py",
        "pydoc.py",
        "mailbox.py",
        "_pydecimal.py",
        "_pyio.py",
    ),
    *(
        "xml",
        "plistlib.py",
        "dbm",
        "imaplib.py",
        "nntplib.py",
        "telnetlib.py",
        "poplib.py",
        "smtpd.py",
        "asynchat.py",
        "asyncore.py",
    ),
    *("cgi.py", "cgitb.py", "aifc.py", "sunau.py", "wave.py", "xdrlib.py"),
)
MODULES_LEFT_OUT = (
    *(
        "_tkinter",
        "_curses",
        "_curses_panel",
        "readline",
        "nis",
        "_dbm",
        "_gdbm",
        "_ctypes_test",
        "_test*",
        "_xx*",
        "xx*",
    ),
    *(
        "_codecs_jp",
        "_codecs_kr",
        "_codecs_tw",
        "_codecs_hk",
        "_codecs_iso2022",
        "ossaudiodev",
        "audioop",
        "_lsprof",
    ),
)
# Of dependencies: rich highlights source with some of them, which Holdfast does not; trio is not installed; the interface
# of WebSockets before version 14 is not used.
SITE_LEFT_OUT = (
    "anyio/_backends/_trio*",
    "websockets/legacy",
    "websockets/trio",
    "zstandard/_cffi*",
    "pygments",
    "markdown_it",
    "mdurl",
    "bin",
    "pygments-*",
    "markdown_it_py-*",
    "mdurl-*",
    "ruamel*",
)
# Of Holdfast: what no pod runs: servers for people, the simulator, and wrapping of manifests, whose dependency is left out.
OWN_LEFT_OUT = (
    "web",
    "mcp",
    "sim",
    "fleet_figures",
    "alert_rules",
    "page_assets/terminal",
    "engines/kubernetes/wrap",
)
OF_OTHER_PYTHONS = ("/holdfast/shim/", "/holdfast/checks/training_python/")
TRIPLETS = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}
PLATFORMS = {"amd64": "x86_64", "arm64": "aarch64"}
_NEEDED = re.compile(r"\(NEEDED\).*\[(.+)\]")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--arch", choices=sorted(TRIPLETS), default=_own_arch())
    parser.add_argument(
        "--with-py-spy", action="store_true", help="8 MB more: stacks of ranks whose Python has no shim"
    )
    given = parser.parse_args()
    root = given.folder / "opt" / "holdfast"
    if root.exists():
        shutil.rmtree(root)
    (root / "bin").mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        debian = Path(scratch) / "debian"
        _extract(debian, given.arch, Path(scratch))
        _python(root, debian)
        _site(root, given.arch, Path(scratch), with_py_spy=given.with_py_spy)
        _libraries(root, debian, given.arch)
    _launcher(root, given.arch)
    _compile(root)
    size = sum(path.lstat().st_size for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    sys.stdout.write(f"{root}: {size / 1e6:.1f} MB, {sum(1 for _ in root.rglob('*'))} files\n")


def _own_arch() -> str:
    return subprocess.run(
        ["dpkg", "--print-architecture"], capture_output=True, text=True, check=True
    ).stdout.strip()


def _extract(target: Path, arch: str, scratch: Path) -> None:
    """Debian's packages, unpacked."""
    down = scratch / "debs"
    down.mkdir()
    names = [f"{name}:{arch}" for name in PACKAGES]
    subprocess.run(
        ["apt-get", "download", "--quiet=2", "-o", "APT::Sandbox::User=root", *names], cwd=down, check=True
    )
    for package in sorted(down.glob("*.deb")):
        subprocess.run(["dpkg-deb", "--extract", str(package), str(target)], check=True)


def _python(root: Path, debian: Path) -> None:
    shutil.copytree(
        debian / "usr" / "lib" / f"python{PYTHON}", root / "lib" / f"python{PYTHON}", symlinks=True
    )
    library = root / "lib" / f"python{PYTHON}"
    for name in LEFT_OUT:
        if (library / name).exists():
            _remove(library / name)
    for path in [*library.glob("config-*"), *library.glob("_sysconfigdata_*")]:
        if path.is_dir():
            shutil.rmtree(path)
    for pattern in MODULES_LEFT_OUT:
        for path in (library / "lib-dynload").glob(f"{pattern}.*.so"):
            path.unlink()
    (library / "sitecustomize.py").unlink(missing_ok=True)
    shutil.copy(HERE / "restore_environment.py", library / "sitecustomize.py")
    shutil.copy(HERE / "copy_folder.py", root / "lib" / "copy_folder.py")
    shutil.copy(debian / "usr" / "bin" / f"python{PYTHON}", root / "lib" / "python")


def _site(root: Path, arch: str, scratch: Path, *, with_py_spy: bool) -> None:
    """Holdfast, built here, and wheels of its dependencies for the architecture."""
    site = root / "lib" / "python3" / "dist-packages"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    wheels = scratch / "wheels"
    subprocess.run(
        [*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(wheels), str(_sources(scratch))],
        check=True,
    )
    (wheel,) = wheels.glob("holdfast-*.whl")
    platforms = [
        f"--platform={tag}_{PLATFORMS[arch]}" for tag in ("manylinux_2_28", "manylinux_2_17", "manylinux2014")
    ]
    wanted = [f"{wheel}[k8s]", *(["py-spy>=0.4"] if with_py_spy else [])]
    only = ["--only-binary=:all:", "--implementation=cp", f"--python-version={PYTHON}", *platforms]
    subprocess.run(
        [*pip, "install", "--quiet", "--no-compile", f"--target={site}", *only, *wanted], check=True
    )
    if with_py_spy:
        shutil.copy(site / "bin" / "py-spy", root / "bin" / "py-spy")
    for pattern in SITE_LEFT_OUT:
        for path in site.glob(pattern):
            _remove(path)
    for name in OWN_LEFT_OUT:
        _remove(site / "holdfast" / name)
    for path in [*site.rglob("tests"), *site.rglob("*.pyi")]:
        _remove(path)


def _sources(scratch: Path) -> Path:
    """A copy, because a build leaves files beside the sources."""
    copied = scratch / "sources"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.msgpack")
    shutil.copytree(REPOSITORY / "src", copied / "src", ignore=ignored)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, copied / name)
    return copied


def _libraries(root: Path, debian: Path, arch: str) -> None:
    """The loader, and every library that something in the folder needs."""
    triplet = TRIPLETS[arch]
    places = [debian / "lib" / triplet, debian / "usr" / "lib" / triplet]
    (loader,) = [path for place in places for path in place.glob("ld-linux-*.so.*")]
    shutil.copy(loader.resolve(), root / "lib" / "ld.so")
    known = {loader.name} | {path.name for path in root.rglob("*.so*")}  # wheels bring some in
    open_ones = [root / "lib" / "python", *root.rglob("*.so"), *root.rglob("*.so.*")]
    while open_ones:
        for name in _needed(open_ones.pop()) - known:
            found = next((place / name for place in places if (place / name).exists()), None)
            if found is None:
                raise SystemExit(f"{name} is in none of {', '.join(PACKAGES)}: add its package")
            known.add(name)
            open_ones.append(Path(shutil.copy(found.resolve(), root / "lib" / name)))
    (root / "lib" / loader.name).symlink_to("ld.so")  # libc itself names it
    strip = shutil.which("strip" if arch == _own_arch() else f"{PLATFORMS[arch]}-linux-gnu-strip")
    for path in [root / "lib" / "python", *root.rglob("*.so*")]:
        if strip and not path.is_symlink() and path.name != "ld.so":
            subprocess.run([strip, "--strip-unneeded", str(path)], check=True)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _needed(path: Path) -> set[str]:
    told = subprocess.run(
        ["readelf", "--dynamic", str(path)], capture_output=True, text=True, check=False
    ).stdout
    return set(_NEEDED.findall(told))


def _launcher(root: Path, arch: str) -> None:
    compiler = os.environ.get("CC") or (
        (shutil.which("musl-gcc") or "gcc") if arch == _own_arch() else f"{PLATFORMS[arch]}-linux-gnu-gcc"
    )
    target = root / "bin" / "python3"
    subprocess.run(
        [compiler, "-Os", "-static", "-s", "-Wall", "-Werror", "-o", str(target), str(HERE / "launcher.c")],
        check=True,
    )
    for name in ("holdfast", "holdfast-copy"):
        (root / "bin" / name).symlink_to("python3")


def _compile(root: Path) -> None:
    """Bytecode instead of source, never checked against it; source stays where the training's Python runs it."""
    if sys.version_info[:2] != tuple(map(int, PYTHON.split("."))):
        raise SystemExit(f"run this with Python {PYTHON}: bytecode is of one version")
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    site = root / "lib" / "python3" / "dist-packages"
    own = site / "holdfast"
    given = {"quiet": 2, "invalidation_mode": mode, "legacy": True, "stripdir": str(root)}
    # Without docstrings, but for Holdfast's: its help is made of them.
    compileall.compile_dir(own, optimize=0, **given)
    for path in own.rglob("*.py"):
        if not any(part in path.as_posix() for part in OF_OTHER_PYTHONS):
            path.unlink()
    for place in (root / "lib" / f"python{PYTHON}", site):
        compileall.compile_dir(place, optimize=2, rx=re.compile("dist-packages/holdfast/"), **given)
        for path in place.rglob("*.py"):
            if own not in path.parents and path.with_suffix(".pyc").exists():
                path.unlink()
    for path in [*root.rglob("*.pyc")]:
        if path.with_suffix(".py").exists():
            path.unlink()


main()
