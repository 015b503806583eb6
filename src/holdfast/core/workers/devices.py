"""Decides when a device that the cluster reports as faulty becomes a fault of the job. Pure.

A report of the cluster is one proof: a training that goes on is left alone. The second is a failure of the attempt, an exit with
a code or a hang, within `TOGETHER_S` of it. A device that the cluster reports as healthy again counts as healed.
"""

from collections.abc import Collection

from holdfast.model.events import AnyEvent, DeviceFaulted, HangFound, RankExited, WorkerExited
from holdfast.model.nodes.workers import DevicesSick

TOGETHER_S = 60.0  # a report that comes later than a failure by more than this does not explain it
DEVICES_MAX = 16  # of one node


class SickDevices:
    """The devices of each node that the cluster reports as faulty now."""

    def __init__(self) -> None:
        self._sick: dict[str, dict[str, str]] = {}  # by node: what is said, by device
        self._failed: tuple[int, float] = (0, float("-inf"))  # the attempt, and when
        self._reported: set[tuple[int, str, str]] = set()

    def hear(
        self, news: DevicesSick, used: Collection[str], attempt: int, at_s: float
    ) -> list[DeviceFaulted]:
        """Records a report. Returns the faults that it confirms if the attempt has failed just now.

        `used`: nodes of the attempt.
        """
        self._sick[news.node] = dict(list(news.devices.items())[:DEVICES_MAX])
        failed, failed_s = self._failed
        if failed != attempt or at_s - failed_s > TOGETHER_S:
            return []
        return self._faults(attempt, [news.node] if news.node in used else [], at_s)

    def after(self, event: AnyEvent, used: Collection[str], attempt: int, at_s: float) -> list[DeviceFaulted]:
        """Returns the device faults that a failure of the attempt confirms."""
        match event:
            case RankExited(attempt=of, code=code) | WorkerExited(attempt=of, code=code) if (
                of == attempt and code
            ):
                pass
            case HangFound(attempt=of) if of == attempt:
                pass
            case _:
                return []
        self._failed = attempt, at_s
        return self._faults(attempt, sorted(used), at_s)

    def was_reported(self, node: str, device: str) -> bool:
        """Returns whether a report about this device has become a fault of the job."""
        return any((one, name) == (node, device) for _, one, name in self._reported)

    def is_sick(self, node: str, device: str) -> bool:
        return device in self._sick.get(node, {})

    def _faults(self, attempt: int, nodes: Collection[str], at_s: float) -> list[DeviceFaulted]:
        found = []
        for node in nodes:
            for device, code in self._sick.get(node, {}).items():
                if (attempt, node, device) not in self._reported:
                    self._reported.add((attempt, node, device))
                    found.append(DeviceFaulted(at_s=at_s, node=node, device=device, code=code))
        if found:
            self._reported = {one for one in self._reported if one[0] == attempt}
        return found
