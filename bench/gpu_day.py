"""Tests Holdfast on one machine with an NVIDIA GPU within nine minutes, and writes JSON, Markdown and the raw output.

    python3 bench/gpu_day.py carry --python 3.12       # on a machine with a package index: wheels into .wheels/
    python3 bench/gpu_day.py [--out DIR] [--limit-s 540] [--only PART ...]

The second command needs only a Python that has PyTorch: it makes an environment of its own from .wheels/ and this tree, where
PyTorch is that of the starting Python. Where Holdfast and nvidia-ml-py can be imported already, they are used. Without a GPU, the parts that need
one are skipped. Exit code: 1 if a part found a problem, otherwise 0.
"""

import importlib.util
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

TREE = Path(__file__).parents[1]
WHEELS = TREE / ".wheels"
PACKAGES = ("click", "hyperscan", "msgspec", "psutil", "rich", "zstandard", "nvidia-ml-py", "py-spy")
# What pip accepts for x86-64 with glibc 2.28 and later.
PLATFORMS = ("2_28", "2_27", "2_17", "2014", "1")


def main() -> None:
    if sys.argv[1:2] == ["carry"]:
        carry(sys.argv[3] if sys.argv[2:3] == ["--python"] else "3.12")
        return
    is_ready = all(importlib.util.find_spec(name) for name in ("holdfast", "pynvml"))
    python = sys.executable if is_ready else environment()
    sys.stdout.flush()
    os.chdir(TREE)
    os.execv(python, [python, "-m", "bench.gpu.day", *sys.argv[1:]])


def carry(version: str) -> None:
    """Downloads the packages that Holdfast needs, for that Python on x86-64 Linux."""
    tags = [
        f"manylinux{tag}_x86_64" if tag in ("2014", "1") else f"manylinux_{tag}_x86_64" for tag in PLATFORMS
    ]
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--dest", str(WHEELS)]
    words += ["--python-version", version, "--implementation", "cp"]
    words += [word for tag in tags for word in ("--platform", tag)]
    subprocess.run([*words, *PACKAGES], check=True)
    size = sum(path.stat().st_size for path in WHEELS.iterdir())
    print(f"{len(list(WHEELS.iterdir()))} packages, {size / 1e6:.1f} MB, in {WHEELS.name}/")


def environment() -> str:
    """Makes a virtual environment with Holdfast from this tree, and PyTorch of this Python. Returns its Python."""
    if not WHEELS.is_dir():
        sys.exit(
            "Holdfast is not installed and .wheels/ is missing: run `python3 bench/gpu_day.py carry` where pip has an index"
        )
    folder = Path(tempfile.mkdtemp(prefix="holdfast-gpu-day-"))
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    site = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--no-compile",
        "--target",
        str(site),
    ]
    subprocess.run([*pip, *map(str, sorted(WHEELS.glob("*.whl")))], check=True)
    # Own packages first, then those of the Python that has PyTorch.
    (site / "holdfast.pth").write_text(
        f"{TREE / 'src'}\n{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n"
    )
    command = folder / "bin" / "holdfast"
    command.write_text(f"#!{python}\nfrom holdfast.cli.main import main\nmain()\n")
    command.chmod(0o755)
    return str(python)


if __name__ == "__main__":
    main()
