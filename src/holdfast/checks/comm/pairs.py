"""Declares the check of network speed between pairs of nodes.

It needs several nodes, so `pairs` in training_python carries it out.
"""

from collections.abc import Iterator

from holdfast.checks.registry import Check, Seen
from holdfast.core.checks.pairs.words import AREA, CHECK
from holdfast.model.checks import MANUAL, NODE, ON_FAILURE, SKIP, Finding, Scene, Spec
from holdfast.model.signatures import Words


def of_one_node(scene: Scene) -> Iterator[Seen]:
    yield Finding(status=SKIP, why="this check needs several nodes: holdfast check --nodes A,B,C")


CHECKS = (
    Check(
        Spec(
            name=CHECK,
            area=AREA,
            what=Words(
                en=(
                    "pairwise tests between nodes: which node computes slowly, which node or link "
                    "communicates slowly"
                ),
                zh="节点两两配对分轮测试：找出计算或通信慢的节点或链路",
            ),
            contexts=(ON_FAILURE, MANUAL),
            cost=NODE,
            needs=("2 nodes", "torch"),
        ),
        of_one_node,
    ),
)
