"""Follows the kernel log during training: new lines, and which of the job's devices they report as failed.

Reports a device only if a rank has it open, or if the job has already failed because of it. Draws no
conclusions.
"""

from collections.abc import Collection, Iterable

from msgspec import Struct

from holdfast.agent.watch.logs import KERNEL, LogWatch
from holdfast.core.diagnosis.devices.judge import judge
from holdfast.core.diagnosis.devices.judgements import Judgement, same_device
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.model.matches import Search
from holdfast.model.verdicts import Verdict
from holdfast.observe.host.kernel_follow import KernelFollower
from holdfast.observe.logs.follow import Chunk
from holdfast.observe.search.code_store import tables_for

POLL_S = 0.5
HARDWARE = "hardware"
HEALING = ("reset_gpu", "reboot_node", "isolate_node")  # actions that a job cannot go on without


class DeviceFound(Struct, frozen=True):
    """A device that the kernel log reports as failed. `code`: the category of the failure, such as
    "xid_79".
    """

    device: str
    code: str


class NodeLog:
    """The kernel log of one node. `why_not`: why the log cannot be read, reported once; empty if it can."""

    def __init__(self, follower: KernelFollower | None = None) -> None:
        self._follower = follower or KernelFollower()
        self._polled_s = float("-inf")
        self._offset = 0
        self._why_reported = ""
        self._found: set[DeviceFound] = set()

    @property
    def why_not(self) -> str:
        return self._follower.why_not

    def news(self) -> str:
        """Returns the reason why the kernel log cannot be read, once; empty otherwise."""
        why, self._why_reported = (self.why_not if self.why_not != self._why_reported else ""), self.why_not
        return why

    def poll(self, at_s: float, *, now: bool = False) -> list[Chunk]:
        if not now and at_s - self._polled_s < POLL_S:
            return []
        self._polled_s = at_s
        lines = self._follower.poll()
        if not lines:
            return []
        chunk = Chunk(KERNEL, at_s, self._offset, lines)
        self._offset += sum(len(line) + 1 for line in lines)
        return [chunk]

    def failed(self, logs: LogWatch, opened: Collection[str]) -> list[DeviceFound]:
        """Returns the devices among `opened` that failed permanently and were not reported yet."""
        try:
            return self._failed(logs.search(), logs.signatures, opened)
        except Exception:  # noqa: BLE001 - the verdict reports an exception in a rule too
            return []

    def _failed(self, seen: Search, known: KnowledgeBase, opened: Collection[str]) -> list[DeviceFound]:
        tables = tables_for({one.category for one in seen.matches})
        found = []
        for judgement in judge(seen.matches, seen.sources, tables, known):
            if _is_fatal(judgement):
                mine = [one for one in judgement.devices if any(same_device(one, other) for other in opened)]
                found += self._new(mine, judgement.category)
        return found

    def failed_of(self, verdict: Verdict) -> list[DeviceFound]:
        """Returns the devices on which a job failed according to its verdict, if they were not reported
        yet.
        """
        if verdict.class_ != HARDWARE or verdict.action not in HEALING:
            return []
        return self._new((one.device for one in verdict.culprits if one.device), verdict.category)

    def close(self) -> None:
        self._follower.close()

    def _new(self, devices: Iterable[str], code: str) -> list[DeviceFound]:
        found = [DeviceFound(device, code) for device in dict.fromkeys(devices)]
        new = [one for one in found if one not in self._found]
        self._found.update(new)
        return new


def _is_fatal(judgement: Judgement) -> bool:
    return judgement.role == "cause" and judgement.severity == "fatal" and judgement.action in HEALING
