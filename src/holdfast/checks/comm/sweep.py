"""Measures the bandwidth of all-reduce for a range of message sizes among ranks of this node.

The result has the columns of the tool nccl-tests.
"""

import os
from collections.abc import Iterator

from holdfast.checks.env.run import gpu_count
from holdfast.checks.registry import Check, Seen
from holdfast.checks.training_python.rank_answers import asked_of_ranks
from holdfast.core.checks.comm.local import GLOO, NCCL
from holdfast.core.checks.comm.sweep import of_sweep, rows
from holdfast.model.checks import MANUAL, NODE, Scene, Spec
from holdfast.model.signatures import Words

NAME = "comm-sweep"
WITHIN_S = 100.0
MEET_S = 60.0
RANKS, RANKS_MAX, GPU_RANKS_MAX = 2, 8, 16
SIZE_MIN, GLOO_SIZE_MAX, NCCL_SIZE_MAX = 8, 32 << 20, 1 << 30
FACTOR = 4


def sizes(largest: int) -> tuple[int, ...]:
    """Returns the message sizes to measure, in bytes: each is four times the previous one, and the last is
    `largest`.
    """
    found = [SIZE_MIN]
    while found[-1] * FACTOR <= largest:
        found.append(found[-1] * FACTOR)
    return tuple(found if found[-1] == largest else [*found, largest])


def sweep(scene: Scene) -> Iterator[Seen]:
    """Measures all-reduce at each message size, and yields findings and measurements.

    Options of the check: `comm-sweep.ranks` (number of ranks) and `comm-sweep.max-bytes` (largest message).
    """
    gpus = gpu_count(scene.root)
    backend = NCCL if gpus > 1 else GLOO
    ranks = _whole(
        scene, "ranks", min(gpus, GPU_RANKS_MAX) if gpus > 1 else min(scene.ranks or RANKS, RANKS_MAX)
    )
    largest = _whole(scene, "max-bytes", NCCL_SIZE_MAX if gpus > 1 else GLOO_SIZE_MAX)
    ranks = max(ranks, 2)
    done, finding = asked_of_ranks(
        scene, backend, ranks, sizes(max(largest, SIZE_MIN)), meet_s=MEET_S, within_s=WITHIN_S
    )
    if finding is not None:
        yield finding
        return
    yield from of_sweep(rows(done["ranks"]), ranks, backend, _model())


def _whole(scene: Scene, key: str, default: int) -> int:
    text = scene.options.get(f"{NAME}.{key}", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else default


def _model() -> str:
    """Returns the hardware class of this node, its number of processors, with which baselines are
    compared.
    """
    return f"{os.cpu_count() or 1} processors"


CHECKS = (
    Check(
        Spec(
            name=NAME,
            area="comm",
            what=Words(
                en=(
                    "bandwidth of all-reduce by message size among ranks of this node, as a table like "
                    "that of nccl-tests"
                ),
                zh="本节点各 rank 间 all-reduce 随消息大小的带宽表（同 nccl-tests）",
            ),
            contexts=(MANUAL,),
            cost=NODE,
            timeout_s=WITHIN_S + 20.0,
            needs=("torch",),
            bench=True,
            hang_advice=Words(
                en=(
                    "Check the Python of the training and what the ranks wait for; run this benchmark on "
                    "an idle node."
                ),
                zh="请检查训练所用的 Python 及各 rank 在等待什么；请在空闲节点上运行该测试。",
            ),
        ),
        sweep,
    ),
)
