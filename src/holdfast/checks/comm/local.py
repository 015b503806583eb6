"""Checks collective communication on this node: starts ranks with the run's Python, and tests rendezvous and
all-reduce.

Ranks report whether the sums of an all-reduce are right, and its bandwidth.
"""

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from holdfast.checks.env.run import gpu_count
from holdfast.checks.registry import Check, Seen
from holdfast.checks.training_python.rank_answers import asked_of_ranks
from holdfast.checks.training_python.run import run_of
from holdfast.core.checks.comm.local import GLOO, NCCL, of_meeting, of_sums
from holdfast.model.checks import BOOT, DEVICE, LIGHT, MANUAL, ON_FAILURE, PROLOG, SKIP, Finding, Scene, Spec
from holdfast.model.signatures import Words

WITHIN_S = 40.0
MEET_S = 20.0  # of which torch may take the rest to be imported
RANKS_MAX = 4
GPU_RANKS_MAX = 16
GLOO_SIZES = (4 << 10, 1 << 20, 8 << 20)
NCCL_SIZES = (4 << 10, 1 << 20, 64 << 20)


def rendezvous(scene: Scene) -> Iterator[Seen]:
    done, finding = _ranks(scene, GLOO, ())
    yield finding if finding is not None else of_meeting(done, GLOO)


def all_reduce(scene: Scene) -> Iterator[Seen]:
    done, finding = _ranks(scene, GLOO, GLOO_SIZES)
    if finding is not None:
        yield finding
        return
    yield from of_sums(done, GLOO, "")


def all_reduce_gpu(scene: Scene) -> Iterator[Seen]:
    if not _devices(scene):
        yield Finding(status=SKIP, why="this node has no NVIDIA GPU")
        return
    done, finding = _ranks(scene, NCCL, NCCL_SIZES)
    if finding is not None:
        yield finding
        return
    yield from of_sums(done, NCCL, _model(scene.root))


def _ranks(scene: Scene, backend: str, sizes: tuple[int, ...]) -> tuple[dict[str, Any], Finding | None]:
    """Starts the ranks and returns their results, with a finding instead if they could not run."""
    asked = scene.ranks or run_of(scene).asked.ranks
    ranks = (
        max(min(asked or _devices(scene), _devices(scene), GPU_RANKS_MAX), 1)
        if backend == NCCL
        else max(min(asked or 2, RANKS_MAX), 2)
    )
    return asked_of_ranks(scene, backend, ranks, sizes, meet_s=MEET_S, within_s=WITHIN_S)


def _devices(scene: Scene) -> int:
    """Returns the number of GPUs that a rank of this run may use, which CUDA_VISIBLE_DEVICES may limit."""
    count = gpu_count(scene.root)
    visible = run_of(scene).prepared.env.get("CUDA_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES"))
    if visible is None or not count:
        return count
    return len({one.strip() for one in visible.split(",") if one.strip() not in ("", "-1")})


@lru_cache(maxsize=1)
def _model(root: str) -> str:
    """Returns the model name of the first NVIDIA GPU; empty if there is none.

    source: /proc/driver/nvidia/gpus/ADDRESS/information
    """
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
            en="Check the Python environment of the training, and whether the folders it reads respond.",
            zh="请检查训练所用的 Python 环境，以及其读取的目录是否可正常访问。",
        ),
    )


CHECKS = (
    Check(
        _spec(
            "comm-rendezvous",
            "ranks of this node complete a rendezvous (gloo)",
            "本节点 rank 可汇合（gloo）",
            LIGHT,
            ("torch",),
        ),
        rendezvous,
    ),
    Check(
        _spec(
            "comm-allreduce",
            "result and bandwidth of an all-reduce on this node (gloo)",
            "本节点 all-reduce 结果与带宽（gloo）",
            LIGHT,
            ("torch",),
        ),
        all_reduce,
    ),
    Check(
        _spec(
            "comm-allreduce-gpu",
            "result and bandwidth of an all-reduce over the GPUs (NCCL)",
            "GPU all-reduce 结果与带宽（NCCL）",
            DEVICE,
            ("torch", "gpu"),
        ),
        all_reduce_gpu,
    ),
)
