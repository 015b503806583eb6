"""A device that the cluster reports as faulty is a fault of the job only together with a failure of the attempt."""

from holdfast.core.workers.devices import TOGETHER_S, SickDevices
from holdfast.model.events import DeviceFaulted, HangFound, RankExited, WorkerExited
from holdfast.model.nodes.workers import DevicesSick

SICK = DevicesSick(node="n1", devices={"gpu 0": "Unhealthy"})
USED = ("n0", "n1")


def exited(code=1, attempt=1):
    return RankExited(at_s=10.0, attempt=attempt, worker=0, rank=0, code=code)


def fault(at_s):
    return DeviceFaulted(at_s=at_s, node="n1", device="gpu 0", code="Unhealthy")


def test_a_report_alone_ends_nothing():
    devices = SickDevices()
    assert devices.hear(SICK, USED, 1, 1.0) == []
    assert devices.after(exited(code=0), USED, 1, 2.0) == []
    assert devices.after(exited(attempt=2), USED, 1, 2.0) == []


def test_a_report_and_a_failure_are_a_fault_once():
    devices = SickDevices()
    devices.hear(SICK, USED, 1, 1.0)
    assert devices.after(exited(), USED, 1, 10.0) == [fault(10.0)]
    assert devices.after(WorkerExited(at_s=11.0, attempt=1, worker=1, code=1), USED, 1, 11.0) == []


def test_a_hang_is_a_failure_too():
    devices = SickDevices()
    devices.hear(SICK, USED, 1, 1.0)
    hang = HangFound(at_s=5.0, attempt=1, hang="quiet", culprits=(3,), reason="r")
    assert devices.after(hang, USED, 1, 5.0) == [fault(5.0)]


def test_the_report_may_come_soon_after_the_failure():
    devices = SickDevices()
    devices.after(exited(), USED, 1, 10.0)
    assert devices.hear(SICK, USED, 1, 20.0) == [fault(20.0)]
    late = SickDevices()
    late.after(exited(), USED, 1, 10.0)
    assert late.hear(SICK, USED, 1, 11.0 + TOGETHER_S) == []


def test_a_node_without_a_worker_is_left_alone_and_a_device_may_heal():
    devices = SickDevices()
    devices.hear(SICK, ("n0",), 1, 1.0)
    assert devices.after(exited(), ("n0",), 1, 2.0) == []
    assert devices.is_sick("n1", "gpu 0")
    devices.hear(DevicesSick(node="n1", devices={}), USED, 1, 3.0)
    assert not devices.is_sick("n1", "gpu 0")
    assert devices.after(exited(), USED, 1, 4.0) == []
