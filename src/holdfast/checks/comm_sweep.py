"""All-reduce over message sizes among real ranks of this node, in the Python of the run: the table of nccl-tests."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from holdfast.checks import run_ranks
from holdfast.checks.env_run import gpu_count
from holdfast.checks.registry import Check, Seen
from holdfast.checks.run_python import answer_of, run_of, run_within
from holdfast.core.checks.comm_local import GLOO, NCCL, trouble
from holdfast.core.checks.sweep import of_sweep, rows
from holdfast.model.checks import MANUAL, NODE, SKIP, Finding, Scene, Spec
from holdfast.model.signatures import Words

NAME = "comm-sweep"
WITHIN_S = 100.0
MEET_S = 60.0
RANKS, RANKS_MAX, GPU_RANKS_MAX = 2, 8, 16
SIZE_MIN, GLOO_SIZE_MAX, NCCL_SIZE_MAX = 8, 32 << 20, 1 << 30
FACTOR = 4
_OF_A_RUN = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
)


def sizes(largest: int) -> tuple[int, ...]:
    """In bytes, each four times the one before, up to the largest."""
    found = [SIZE_MIN]
    while found[-1] * FACTOR <= largest:
        found.append(found[-1] * FACTOR)
    return tuple(found if found[-1] == largest else [*found, largest])


def sweep(scene: Scene) -> Iterator[Seen]:
    """`comm-sweep.ranks`, `comm-sweep.max-bytes` change what is measured."""
    answer = answer_of(scene)
    if answer.said is None:
        yield Finding(status=SKIP, why=answer.why_not)
        return
    if not answer.said["torch"].get("found"):
        yield Finding(status=SKIP, why="torch is not installed in the Python of the run")
        return
    gpus = gpu_count(scene.root)
    backend = NCCL if gpus > 1 else GLOO
    ranks = _whole(
        scene, "ranks", min(gpus, GPU_RANKS_MAX) if gpus > 1 else min(scene.ranks or RANKS, RANKS_MAX)
    )
    largest = _whole(scene, "max-bytes", NCCL_SIZE_MAX if gpus > 1 else GLOO_SIZE_MAX)
    ranks = max(ranks, 2)
    question = {
        "ranks": ranks,
        "backend": backend,
        "sizes": sizes(max(largest, SIZE_MIN)),
        "timeout_s": MEET_S,
    }
    run = run_of(scene)
    words = [*run.interpreter.words, run_ranks.__file__, msgspec.json.encode(question).decode()]
    ran = run_within(words, _plain(run.prepared.env), "/", WITHIN_S)
    said = _said(ran.out)
    errors = next((line for line in reversed(ran.errors.splitlines()) if line.strip()), "")[:300]
    finding = trouble(said, backend, ran.code is not None, WITHIN_S, errors)
    if finding is not None:
        yield finding
        return
    done = next(one for one in said if one.get("stage") == "done")
    yield from of_sweep(rows(done["ranks"]), ranks, backend, _model())


def _whole(scene: Scene, key: str, default: int) -> int:
    text = scene.options.get(f"{NAME}.{key}", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else default


def _plain(env: Mapping[str, str]) -> dict[str, str]:
    """The run's environment, without what says which rank of which run this is."""
    kept = {
        name: value
        for name, value in env.items()
        if name not in _OF_A_RUN and not name.startswith(("TORCHELASTIC_", "PET_"))
    }
    return {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR", **kept}


def _said(out: bytes) -> list[dict[str, Any]]:
    mark = run_ranks.MARK.encode()
    found: list[dict[str, Any]] = []
    for line in out.splitlines():
        if line.startswith(mark):
            try:
                found.append(msgspec.json.decode(line[len(mark) :], type=dict[str, Any]))
            except msgspec.MsgspecError:
                continue  # torn by the end of the process
    return found


def _model() -> str:
    """Nodes are compared with those that have as many processors."""
    return f"{os.cpu_count() or 1} processors"


CHECKS = (
    Check(
        Spec(
            name=NAME,
            area="comm",
            what=Words(
                en="all-reduce over message sizes among ranks of this node, as nccl-tests prints it",
                zh="本节点各 rank 间 all-reduce 随消息大小的带宽表（同 nccl-tests）",
            ),
            contexts=(MANUAL,),
            cost=NODE,
            timeout_s=WITHIN_S + 20.0,
            needs=("torch",),
            bench=True,
            hang_advice=Words(
                en="Look at the Python of the run and at what its ranks wait for; the node should be idle.",
                zh="请检查运行所用的 Python 及各 rank 在等待什么；测试时节点应空闲。",
            ),
        ),
        sweep,
    ),
)
