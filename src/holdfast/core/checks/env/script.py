"""Finds problems of the run's script before it starts: its file, its imports, and files that shadow modules.

Pure.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holdfast.model.checks import ASKED, ENVIRONMENT_FAULT, FAIL, PASS, SKIP, WARN, Finding
from holdfast.model.signatures import Words

NAMED_MAX = 5
# Modules of the standard library that `import torch` and torch.distributed import (2.13, Python 3.11) and
# that are not loaded before the script's folder is on the path.
SHADOWING_STANDARD = (
    *("argparse", "array", "ast", "asyncio", "base64", "bisect", "bz2", "calendar", "cmath", "collections"),
    *(
        "concurrent",
        "contextlib",
        "contextvars",
        "copy",
        "copyreg",
        "csv",
        "ctypes",
        "dataclasses",
        "datetime",
    ),
    *(
        "difflib",
        "dis",
        "email",
        "enum",
        "fnmatch",
        "functools",
        "gettext",
        "glob",
        "gzip",
        "hashlib",
        "heapq",
    ),
    *(
        "http",
        "inspect",
        "ipaddress",
        "json",
        "keyword",
        "linecache",
        "locale",
        "logging",
        "lzma",
        "math",
        "mmap",
    ),
    *("multiprocessing", "numbers", "opcode", "operator", "pathlib", "pickle", "pickletools", "pkgutil"),
    *(
        "platform",
        "pprint",
        "queue",
        "random",
        "re",
        "reprlib",
        "runpy",
        "select",
        "selectors",
        "shutil",
        "signal",
    ),
    *(
        "socket",
        "ssl",
        "string",
        "struct",
        "subprocess",
        "tarfile",
        "tempfile",
        "textwrap",
        "threading",
        "timeit",
    ),
    *(
        "token",
        "tokenize",
        "traceback",
        "types",
        "typing",
        "unittest",
        "urllib",
        "uuid",
        "weakref",
        "zipfile",
    ),
)
SHADOWING_PACKAGES = (
    *(
        "torch",
        "numpy",
        "deepspeed",
        "accelerate",
        "transformers",
        "datasets",
        "tokenizers",
        "triton",
        "apex",
    ),
    *("torchvision", "safetensors", "einops", "wandb", "lightning", "peft", "trl", "bitsandbytes", "yaml"),
)


def of_script(script: Mapping[str, Any], name: str, folder: str) -> Finding:
    """Returns the finding about the run's script: whether it exists and compiles.

    `script`: result of checks/training_python/inside.py. `name`: as in the command; `folder`: its working directory.
    """
    problem = script.get("problem", "")
    if not problem:
        return Finding(
            status=PASS,
            measured=str(script.get("path", name)),
            expected="there, and it compiles",
            whence=ASKED,
        )
    if problem == "syntax":
        line, text = script.get("line", 0), script.get("text", "")
        return _failed(
            f"{name}, line {line}: {text}",
            "a script that compiles in the Python of the run",
            f"{name} does not compile, line {line}: {text}",
            Words(
                en=f"Correct line {line} of {name}, or run it with the Python it is written for.",
                zh=f"修正 {name} 第 {line} 行，或使用该脚本所需的 Python 版本运行。",
            ),
            "python_exception",
        )
    if problem == "denied":
        return _failed(
            f"{name} cannot be read: {script.get('text', '')}",
            "a script that can be read",
            f"the script {name} cannot be read",
            Words(
                en=f"Give the user of the run the right to read {name}.",
                zh=f"为运行用户授予 {name} 的读取权限。",
            ),
            "permission_error",
        )
    if problem == "no-module":
        return _failed(
            f"no module {name}",
            "a module that Python can run",
            f"the module {name} is on no path of the run's Python (folder {folder})",
            Words(
                en=f"Start in the folder that has {name}, set PYTHONPATH, or install it.",
                zh=f"请在包含 {name} 的目录中启动、设置 PYTHONPATH，或安装该模块。",
            ),
            "import_error",
        )
    return _absent(script, name, folder)


def _absent(script: Mapping[str, Any], name: str, folder: str) -> Finding:
    is_folder = script.get("problem") == "folder"
    near = difflib.get_close_matches(name.rpartition("/")[2], script.get("near", []), 1, 0.6)
    en = f" Did you mean {near[0]}?" if near else ""
    zh = f"是否应为 {near[0]}？" if near else ""
    what = "is a folder without __main__.py" if is_folder else "does not exist"
    return _failed(
        f"{name} {what}",
        "an existing script",
        f"the script {name} {what} (seen from {folder})",
        Words(
            en=f"Check the path and the folder of the command.{en} Every node needs the file at this path.",
            zh=f"请检查命令中的路径与工作目录。{zh}多节点时每个节点都须有该文件。",
        ),
        "missing_file",
    )


def _failed(measured: str, expected: str, why: str, advice: Words, category: str) -> Finding:
    return Finding(
        status=FAIL,
        measured=measured,
        expected=expected,
        whence=ASKED,
        why=why,
        advice=advice,
        fault=ENVIRONMENT_FAULT,
        category=category,
    )


def of_imports(
    missing: Sequence[Mapping[str, Any]], doubts: Sequence[str], files: int, imported: Sequence[str]
) -> Finding:
    """Returns the finding about the script's imports.

    `missing`: unguarded top-level imports that fail. `doubts`: files that change the module search path, so that the
    result is uncertain.
    """
    if not files:
        return Finding(status=SKIP, why="the script could not be read for its imports")
    if not missing:
        return Finding(
            status=PASS,
            measured=f"{len(imported)} modules found, in {files} file{'s' if files > 1 else ''}",
            expected="every module that the script imports",
            whence=ASKED,
        )
    named = ", ".join(str(one["name"]) for one in missing[:NAMED_MAX])
    if doubts:
        why = f"{named} cannot be found, but {doubts[0]} changes the module search path itself"
        return Finding(status=SKIP, measured=f"not found: {named}", why=why)
    first = next((one for one in missing if one["kind"] != "relative"), missing[0])
    named = ", ".join(str(one["name"]) for one in missing[:NAMED_MAX] if one["kind"] == first["kind"])
    place = f"{first['file']}, line {first['line']}"
    if first["kind"] == "relative":
        why = f"a relative import in a script that is run by its path ({place})"
        advice = Words(
            en="Start it as a module: python -m PACKAGE.SCRIPT (torchrun -m PACKAGE.SCRIPT).",
            zh="请以模块方式启动：python -m 包.脚本（torchrun -m 包.脚本）。",
        )
    else:
        why = f"{named} cannot be imported: no such module in the Python of the run ({place})"
        advice = Words(
            en=f"Install {named} on every node in the Python of the run, or activate the environment that has it.",
            zh=f"请在每个节点上为运行所用 Python 安装 {named}，或激活包含它的环境。",
        )
    return _failed(f"not found: {named}", "every module that the script imports", why, advice, "import_error")


def of_shadows(shadows: Sequence[Mapping[str, str]], uses_torch: bool) -> Iterator[Finding]:
    """Yields findings about files that are imported instead of a standard or installed module with the same name."""
    if not uses_torch:
        return
    for one in shadows[:NAMED_MAX]:
        of_standard = one["hides"] == "standard"
        whose = "of the standard library" if of_standard else "that is installed"
        zh = "标准库" if of_standard else "已安装"
        is_torch = one["name"] == "torch"
        yield Finding(
            status=FAIL if is_torch else WARN,
            device=one["path"],
            measured=one["path"],
            expected=f"the module {one['name']} {whose}",
            whence=ASKED,
            why=f"{one['path']} shadows the module {one['name']} {whose}",
            advice=Words(
                en=f"Rename {one['path']} and remove its __pycache__, or take its folder off PYTHONPATH.",
                zh=f"请重命名 {one['path']} 并删除其 __pycache__，或将其目录移出 PYTHONPATH（它遮蔽了{zh}模块 {one['name']}）。",
            ),
            fault=ENVIRONMENT_FAULT if is_torch else "",
            category="import_error",
        )
