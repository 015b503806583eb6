"""Judges whether a shell can activate an environment, and if not, why. Pure."""

from collections.abc import Iterator, Sequence

from holdfast.core.checks.env.launchers import Shell, name_of
from holdfast.core.checks.env.preparations import Preparation
from holdfast.model.checks import ASKED, ENVIRONMENT_FAULT, FAIL, PASS, WARN, Finding
from holdfast.model.signatures import Words

ERROR_CHARS_MAX = 200
_NO_CONDA = (
    "conda init",
    "has not been properly configured",
    "conda: command not found",
    "mamba: command not found",
)


def of_preparations(
    shell: Shell, results: Sequence[tuple[Preparation, int, str]], other: str
) -> Iterator[Finding]:
    """Yields findings about shell commands that prepare the environment.

    `results`: each command with its exit code and their common stderr. `other`: a different way to start the shell,
    in which they succeed.
    """
    kind = f"{name_of(shell.program)}{' -l' if shell.login else ''}{' -i' if shell.interactive else ''}"
    done = [one for one, code, _ in results if one.kind != "set" and not code]
    failed = [(one, code, text) for one, code, text in results if one.kind != "set" and code]
    if not failed:
        yield Finding(
            status=PASS,
            measured=", ".join(one.raw for one in done),
            expected=f"each works in {kind}",
            whence=ASKED,
        )
        return
    for one, code, text in failed:
        said = _line_about(text, one)
        works = f"; it works in {other}" if other else ""
        yield Finding(
            status=FAIL if one.must else WARN,
            measured=f"{one.raw}: exit code {code}",
            expected=f"{one.raw} works in {kind}",
            whence=ASKED,
            why=f"`{one.raw}` fails in {kind}: {said}{works}",
            advice=_advice(one, text, other),
            fault=ENVIRONMENT_FAULT if one.must else "",
            category="launcher_config",
        )


def _line_about(text: str, one: Preparation) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    word = one.raw.split()[0]
    relevant = [line for line in lines if word in line or "Error" in line or "not found" in line]
    return (relevant or lines or ["it printed nothing"])[0][:ERROR_CHARS_MAX]


def _advice(one: Preparation, text: str, other: str) -> Words:
    en_other = f"Start it with `{other}`, or " if other else ""
    zh_other = f"改用 `{other}` 启动，或" if other else ""
    if one.kind == "conda" and any(sign in text for sign in _NO_CONDA):
        return Words(
            en=f'{en_other}put `eval "$(CONDA/bin/conda shell.bash hook)"` before it, CONDA being the folder of conda;'
            " or use `conda run -n NAME`.",
            zh=f'{zh_other}在其前加入 `eval "$(CONDA/bin/conda shell.bash hook)"`（CONDA 为 conda 安装目录），或使用 `conda run -n 环境名`。',
        )
    if one.kind == "conda":
        return Words(
            en=f"{en_other}check the name with `conda env list` on this node.",
            zh=f"{zh_other}在本节点用 `conda env list` 核对环境名。",
        )
    if one.kind == "module":
        return Words(
            en=f"{en_other}source the modules' init script first, and check the name with `module avail`.",
            zh=f"{zh_other}先 source modules 的初始化脚本，并用 `module avail` 核对名称。",
        )
    return Words(
        en=f"{en_other}check that the file is there on this node and can be sourced.",
        zh=f"{zh_other}检查该文件在本节点存在且可被 source。",
    )
