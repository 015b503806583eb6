"""Real ranks of the run's Python on this one node: do they meet, are their sums right, how fast are they."""

import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from holdfast.checks import run_ranks
from holdfast.checks.env_run import gpu_count
from holdfast.checks.registry import Check, Seen
from holdfast.checks.run_python import Ran, answer_of, run_of, run_within
from holdfast.core.checks.comm_local import GLOO, NCCL, of_meeting, of_sums, trouble
from holdfast.model.checks import BOOT, DEVICE, LIGHT, MANUAL, ON_FAILURE, PROLOG, SKIP, Finding, Scene, Spec
from holdfast.model.signatures import Words

WITHIN_S = 40.0
MEET_S = 20.0  # of which torch may take the rest to be imported
RANKS_MAX = 4
GPU_RANKS_MAX = 16
GLOO_SIZES = (4 << 10, 1 << 20, 8 << 20)
NCCL_SIZES = (4 << 10, 1 << 20, 64 << 20)
_OF_A_RUN = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
)


def rendezvous(scene: Scene) -> Iterator[Seen]:
    said, finding = _ranks(scene, GLOO, ())
    yield finding if finding is not None else of_meeting(_done(said), GLOO)


def all_reduce(scene: Scene) -> Iterator[Seen]:
    said, finding = _ranks(scene, GLOO, GLOO_SIZES)
    if finding is not None:
        yield finding
        return
    yield from of_sums(_done(said), GLOO, "")


def all_reduce_gpu(scene: Scene) -> Iterator[Seen]:
    if not _devices(scene):
        yield Finding(status=SKIP, why="this node has no NVIDIA GPU")
        return
    said, finding = _ranks(scene, NCCL, NCCL_SIZES)
    if finding is not None:
        yield finding
        return
    yield from of_sums(_done(said), NCCL, _model(scene.root))


def _done(said: list[dict[str, Any]]) -> dict[str, Any]:
    return next(one for one in said if one.get("stage") == "done")


def _ranks(scene: Scene, backend: str, sizes: tuple[int, ...]) -> tuple[list[dict[str, Any]], Finding | None]:
    """What the ranks said, and why there is nothing to judge."""
    run, answer = run_of(scene), answer_of(scene)
    if answer.said is None:
        return [], Finding(status=SKIP, why=answer.why_not)
    if not answer.said["torch"].get("found"):
        return [], Finding(status=SKIP, why="torch is not installed in the Python of the run")
    asked = scene.ranks or run.asked.ranks
    ranks = (
        max(min(asked or _devices(scene), _devices(scene), GPU_RANKS_MAX), 1)
        if backend == NCCL
        else max(min(asked or 2, RANKS_MAX), 2)
    )
    question = {"ranks": ranks, "backend": backend, "sizes": sizes, "timeout_s": MEET_S}
    words = [*run.interpreter.words, run_ranks.__file__, msgspec.json.encode(question).decode()]
    ran = run_within(words, _plain(run.prepared.env), "/", WITHIN_S)
    said = _lines(ran)
    errors = next((line for line in reversed(ran.errors.splitlines()) if line.strip()), "")[:300]
    return said, trouble(said, backend, ran.code is not None, WITHIN_S, errors)


def _plain(env: Mapping[str, str]) -> dict[str, str]:
    """The run's environment, without what says which rank of which run this is."""
    kept = {
        name: value
        for name, value in env.items()
        if name not in _OF_A_RUN and not name.startswith(("TORCHELASTIC_", "PET_"))
    }
    return {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR", **kept}


def _lines(ran: Ran) -> list[dict[str, Any]]:
    mark = run_ranks.MARK.encode()
    found: list[dict[str, Any]] = []
    for line in ran.out.splitlines():
        if line.startswith(mark):
            try:
                found.append(msgspec.json.decode(line[len(mark) :], type=dict[str, Any]))
            except msgspec.MsgspecError:
                continue  # torn by the end of the process
    return found


def _devices(scene: Scene) -> int:
    """GPUs that a rank of this run may take."""
    count = gpu_count(scene.root)
    visible = run_of(scene).prepared.env.get("CUDA_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES"))
    if visible is None or not count:
        return count
    return len({one.strip() for one in visible.split(",") if one.strip() not in ("", "-1")})


@lru_cache(maxsize=1)
def _model(root: str) -> str:
    """source: /proc/driver/nvidia/gpus/ADDRESS/information"""
    for path in sorted(Path(root).glob("proc/driver/nvidia/gpus/*/information")):
        try:
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                if line.startswith("Model:"):
                    return line.partition(":")[2].strip()
        except OSError:
            continue
    return ""


def _spec(name: str, en: str, zh: str, cost: str, needs: tuple[str, ...]) -> Spec:
    return Spec(
        name=name,
        area="comm",
        what=Words(en=en, zh=zh),
        contexts=(BOOT, PROLOG, ON_FAILURE, MANUAL),
        cost=cost,
        timeout_s=WITHIN_S + 20.0,
        needs=needs,
        hang_advice=Words(
            en="Look at the Python of the run and at the folders it reads.",
            zh="请检查运行所用 Python 及其读取的目录。",
        ),
    )


CHECKS = (
    Check(
        _spec(
            "comm-rendezvous",
            "ranks of this node meet (gloo)",
            "本节点 rank 可汇合（gloo）",
            LIGHT,
            ("torch",),
        ),
        rendezvous,
    ),
    Check(
        _spec(
            "comm-allreduce",
            "sums of an all-reduce on this node (gloo)",
            "本节点 all-reduce 结果与带宽（gloo）",
            LIGHT,
            ("torch",),
        ),
        all_reduce,
    ),
    Check(
        _spec(
            "comm-allreduce-gpu",
            "sums of an all-reduce of the GPUs (NCCL)",
            "GPU all-reduce 结果与带宽（NCCL）",
            DEVICE,
            ("torch", "gpu"),
        ),
        all_reduce_gpu,
    ),
)
