"""Checks whether the shell of the command can prepare the environment: `conda activate`, `module load`,
`source`.
"""

from collections.abc import Iterator

from msgspec import structs

from holdfast.checks.registry import Check, Seen
from holdfast.checks.training_python.run import QUICK_S, Prepared, in_shell, run_of
from holdfast.core.checks.env.launchers import Shell, name_of
from holdfast.core.checks.env.preparations import Preparation
from holdfast.core.checks.env.shell import of_preparations
from holdfast.model.checks import BOOT, LIGHT, MANUAL, ON_FAILURE, PROLOG, SKIP, Finding, Scene, Spec
from holdfast.model.signatures import Words

OTHER_S = 4.0


def shell(scene: Scene) -> Iterator[Seen]:
    run = run_of(scene)
    own = run.launch.shell
    if not scene.command:
        yield Finding(status=SKIP, why="no command was given: holdfast check -- COMMAND")
        return
    asked = [one for one in own.preparations if one.kind not in ("set", "unknown")] if own else []
    if own is None or not asked:
        yield Finding(status=SKIP, why="the command activates no environment in a shell")
        return
    if not run.prepared.results:
        yield Finding(status=SKIP, why=run.prepared.why_not or "the shell printed nothing")
        return
    failed = [one for one, code, _ in run.prepared.results if _failed(one, code)]
    other = _other_kind(scene, own) if failed and not own.login else ""
    yield from of_preparations(own, run.prepared.results, other)


def _other_kind(scene: Scene, own: Shell) -> str:
    """Returns another way to start the shell (login or interactive) in which the preparation works; empty
    if none does.
    """
    for login, interactive in ((True, False), (False, True)):
        tried: Prepared = in_shell(
            structs.replace(own, login=login, interactive=interactive),
            dict(scene.env),
            scene.cwd,
            (),
            QUICK_S if scene.quick else OTHER_S,
        )
        if tried.results and not any(_failed(one, code) for one, code, _ in tried.results):
            return f"{name_of(own.program)} {'-l' if login else '-i'}"
    return ""


def _failed(one: Preparation, code: int) -> bool:
    return bool(code) and one.kind != "set"


CHECKS = (
    Check(
        Spec(
            name="env-shell",
            area="env",
            what=Words(
                en="conda, module and activate work in the shell of the command",
                zh="命令所用 shell 中 conda、module、activate 可用",
            ),
            contexts=(BOOT, PROLOG, ON_FAILURE, MANUAL),
            cost=LIGHT,
            timeout_s=18.0,
            quick=True,
            hang_advice=Words(
                en="The start-up files of the shell do not finish: check ~/.bashrc and ~/.bash_profile.",
                zh="shell 启动文件未能结束，请检查 ~/.bashrc 与 ~/.bash_profile。",
            ),
        ),
        shell,
    ),
)
