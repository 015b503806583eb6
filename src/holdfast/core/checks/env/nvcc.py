"""Judges whether a run can compile its CUDA kernels: nvcc of torch's CUDA version, a C++ compiler and ninja.

Pure.

source: torch/utils/cpp_extension.py (_find_cuda_home, _check_cuda_version);
deepspeed/ops/op_builder/builder.py
"""

from collections.abc import Iterator, Mapping, Sequence

from holdfast.core.checks.env.python import version_of
from holdfast.late_pattern import late
from holdfast.model.checks import ASKED, PASS, WARN, Finding
from holdfast.model.signatures import Words

_RELEASE = late(r"release (\d+\.\d+)")


def nvcc_version(text: str) -> str:
    """Parses the output of `nvcc --version`: "12.4" for "Cuda compilation tools, release 12.4, V12.4.131"."""
    found = _RELEASE.search(text)
    return found[1] if found else ""


def of_tools(
    nvcc: str, version: str, torch_cuda: str, tools: Mapping[str, bool], says: str
) -> Iterator[Finding]:
    """Yields findings about the compilers that a run needs.

    `nvcc`: path of nvcc; empty if it was not found. `says`: why the version of nvcc is unknown. `tools`: whether each
    other tool was found.
    """
    if not nvcc:
        yield _warned(
            "nvcc: not found",
            f"nvcc of CUDA {torch_cuda}",
            "DeepSpeed compiles its kernels when they are first used, and nvcc is not installed",
            Words(
                en=f"Install the CUDA toolkit {torch_cuda} and set CUDA_HOME, or build DeepSpeed with DS_BUILD_OPS=1.",
                zh=f"请安装 CUDA toolkit {torch_cuda} 并设置 CUDA_HOME，或以 DS_BUILD_OPS=1 预编译 DeepSpeed。",
            ),
        )
        return
    missing = [name for name, is_there in tools.items() if not is_there]
    troubles = [*_of_version(nvcc, version, torch_cuda, says), *_of_missing(missing)]
    yield from troubles
    if not troubles:
        yield Finding(
            status=PASS,
            measured=f"nvcc {version}, {nvcc}",
            expected=f"nvcc of CUDA {version_of(torch_cuda)[0]}" if torch_cuda else "nvcc",
            whence=ASKED,
        )


def _of_version(nvcc: str, version: str, torch_cuda: str, says: str) -> Iterator[Finding]:
    if not version:
        yield _warned(
            f"{nvcc}: {says}",
            "an nvcc that runs",
            f"{nvcc} does not report its version: {says}",
            Words(en=f"Run `{nvcc} --version` by hand.", zh=f"请手动运行 `{nvcc} --version`。"),
        )
    elif version_of(torch_cuda)[:1] != version_of(version)[:1]:
        yield _warned(
            f"nvcc {version}",
            f"nvcc of CUDA {torch_cuda}, as torch",
            f"nvcc is of CUDA {version} and torch of {torch_cuda}: custom kernels cannot be built",
            Words(
                en=f"Set CUDA_HOME to a toolkit of CUDA {torch_cuda}, or install a torch built for {version}.",
                zh=f"请将 CUDA_HOME 指向 CUDA {torch_cuda} 的 toolkit，或安装为 {version} 编译的 torch。",
            ),
            "version_mismatch",
        )


def _of_missing(missing: Sequence[str]) -> Iterator[Finding]:
    if missing:
        named = ", ".join(missing)
        yield _warned(
            f"{named}: not found",
            "a C++ compiler and ninja",
            f"DeepSpeed compiles its kernels with {named}, which {'are' if len(missing) > 1 else 'is'} not there",
            Words(en=f"Install {named} on every node.", zh=f"请在每个节点安装 {named}。"),
        )


def _warned(
    measured: str, expected: str, why: str, advice: Words, category: str = "compile_error"
) -> Finding:
    return Finding(
        status=WARN,
        measured=measured,
        expected=expected,
        whence=ASKED,
        why=why,
        advice=advice,
        category=category,
    )
