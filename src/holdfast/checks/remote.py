"""Runs the checks on other nodes: by ssh, by srun inside an allocation, or by another command that runs a
program there.

All nodes run them at the same time. A node that does not respond within the time limit is reported, and the
others do not wait for it.
"""

import os
import shlex
import time
from collections.abc import Callable, Sequence

import msgspec

from holdfast.model.checks import NodeChecks
from holdfast.observe.host.tool_run import ToolRun

SSH = "ssh -o BatchMode=yes -o ConnectTimeout=5 {node}"
SRUN = "srun --overlap --quiet -N1 -n1 -w {node}"
LOOK_S = 0.05
AT_ONCE = 64
WORDS_MAX = 300


class BadVia(ValueError):
    """Raised when the template of the command that reaches a node cannot be parsed. The message says why."""


def words_to_reach(via: str, node: str) -> list[str]:
    """Returns the arguments of the command that reaches a node: ["ssh", "gpu-03"] for `ssh {node}`.

    Raises BadVia.
    """
    if "{node}" not in via:
        raise BadVia(f"{via!r} must contain {{node}} in place of the node name, such as 'ssh {{node}}'")
    try:
        return [word.replace("{node}", node) for word in shlex.split(via)]
    except ValueError as error:
        raise BadVia(f"{via!r} cannot be split into words: {error}") from error


def check_nodes(
    nodes: Sequence[str],
    via: str,
    arguments: Sequence[str],
    within_s: float,
    on_answer: Callable[[NodeChecks], None] | None = None,
) -> tuple[NodeChecks, ...]:
    """Runs `holdfast check ARGUMENTS --as-node` on several nodes, and returns the results in the order of
    `nodes`.

    `via`: template of the command that reaches a node, such as `ssh {node}`. `on_answer`: called with each result
    as it arrives. Raises BadVia.
    """
    until_s = time.monotonic() + within_s
    waiting = [(node, [*words_to_reach(via, node), *arguments]) for node in nodes]
    running: dict[str, ToolRun] = {}
    answers: dict[str, NodeChecks] = {}
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            node, words = waiting.pop(0)
            try:
                running[node] = ToolRun(words, until_s, os.environ)  # ssh has its agent there, srun its job
            except OSError as error:
                answers[node] = NodeChecks(node=node, why_not=f"{words[0]} cannot be started: {error}")
        for node, run in list(running.items()):
            if run.poll(time.monotonic()):
                answers[node] = _answer(node, run, within_s)
                del running[node]
                if on_answer is not None:
                    on_answer(answers[node])
        if running:
            time.sleep(LOOK_S)
    return tuple(answers[node] for node in nodes)


def _answer(node: str, run: ToolRun, within_s: float) -> NodeChecks:
    if run.killed:
        return NodeChecks(node=node, why_not=f"{node} did not respond within {within_s:g} s")
    try:
        checks = msgspec.json.decode(run.output(), type=NodeChecks)
    except msgspec.MsgspecError:
        said = " ".join(run.errors().split()) or " ".join(run.output().decode(errors="replace").split())
        why = said[-WORDS_MAX:] or "it printed nothing"
        return NodeChecks(node=node, why_not=f"{node} returned no result: {why}")
    return msgspec.structs.replace(checks, node=node, heard_s=time.time())
