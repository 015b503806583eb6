"""Whatever NVML does, each check has an answer: hangs, errors, functions that are missing, a driver that goes away."""

import ctypes
from types import ModuleType

import pytest

from fake_nvml.node import ALL_GPU, Node
from fake_nvml.worker import Worker
from holdfast.checks.readers.nvml import ABSENT, LOST, Nvml
from holdfast.checks.registry import all_checks
from holdfast.model.checks import DEVICE_FAULT, FAIL, PASS, PASSIVE, SKIP, WARN

NVML = tuple(name for name in ALL_GPU if name != "gpu-xid")


def test_a_healthy_node_passes(node):
    node.says({"gpu.*.field.230": 0})
    found = node.outcomes()
    assert {name: outcome.status for name, outcome in found.items()} == dict.fromkeys(ALL_GPU, PASS)
    facts = {(fact.device, fact.name): fact.value for outcome in found.values() for fact in outcome.facts}
    assert facts["gpu:1652400000003", "pci"] == "0000:3b:00.0"
    assert facts["gpu:1652400000003", "nvlinks"] == 18
    assert facts["node", "NVIDIA GPUs"] == 8


def test_without_the_library_all_skip(tmp_path):
    found = Node(tmp_path, tmp_path).outcomes(NVML)
    assert {outcome.status for outcome in found.values()} == {SKIP}
    assert "NVML" in found["gpu-ecc"].findings[0].why


def test_a_driver_that_does_not_fit_its_library(node):
    node.says(init_error=18)
    found = node.outcomes(("gpu-driver", "gpu-count", "gpu-ecc"))
    finding = found["gpu-driver"].findings[0]
    assert (finding.status, finding.fault, finding.category) == (FAIL, DEVICE_FAULT, "driver_mismatch")
    assert found["gpu-count"].status == SKIP and found["gpu-ecc"].status == SKIP


@pytest.mark.parametrize("code", [1, 3, 4, 10, 15, 16, 17, 999])
def test_every_call_fails(node, code):
    """All functions that checks ask, each with this error: no check passes, and none is at fault itself."""
    functions = (
        *("DeviceGetEccMode", "DeviceGetRemappedRows", "DeviceGetRetiredPages", "DeviceGetFieldValues"),
        *("DeviceGetNvLinkState", "DeviceGetCurrPcieLinkWidth", "DeviceGetGpuFabricInfoV"),
        *(
            "DeviceGetCurrentClocksEventReasons",
            "DeviceGetCurrentClocksThrottleReasons",
            "DeviceGetTemperature",
        ),
        *(
            "DeviceGetPersistenceMode",
            "DeviceGetComputeRunningProcesses",
            "DeviceGetMigMode",
            "DeviceGetP2PStatus",
        ),
    )
    node.says({f"error.{function}": code for function in functions})
    found = node.outcomes(NVML)
    at_fault = [outcome for outcome in found.values() if any("itself" in one.why for one in outcome.findings)]
    assert not at_fault
    assert not [name for name, outcome in found.items() if outcome.status in (WARN, FAIL)]
    assert found["gpu-ecc"].status == SKIP and found["gpu-clocks"].status == SKIP


def test_functions_of_later_drivers_are_missing(tmp_path, old_library):
    node = Node(tmp_path, old_library)
    node.says(driver="470.82.01", cuda=11040)
    found = node.outcomes(NVML)
    assert not [name for name, outcome in found.items() if outcome.status in (WARN, FAIL)]
    assert found["gpu-ecc"].status == PASS and found["gpu-clocks"].status == PASS
    assert found["gpu-recovery-action"].status == SKIP


def test_a_driver_call_that_never_returns_is_a_fault_of_the_device(node):
    node.says(delay_s=60, slow="DeviceGetTotalEccErrors")
    outcome = node.outcomes(("gpu-ecc", "gpu-mig"))["gpu-ecc"]
    finding = outcome.findings[0]
    assert (outcome.status, finding.fault) == (FAIL, DEVICE_FAULT)
    assert "no result within" in finding.measured and "Xid" in finding.advice.en and finding.advice.zh


@pytest.mark.parametrize(("kept", "status", "fault"), [(True, FAIL, DEVICE_FAULT), (False, WARN, "")])
def test_a_driver_that_does_not_open_within_the_quick_check(node, kept, status, fault):
    """Attaching eight GPUs takes long where nothing keeps them attached: that is no proof of a hang."""
    node.says(delay_s=60, slow="Init")
    if kept:
        node.file("run/nvidia-persistenced/socket")
    found = node.outcomes(NVML, within_s=60, quick=True)
    finding = found.pop("gpu-count").findings[0]
    assert (finding.status, finding.fault) == (status, fault)
    assert "has not responded for" in finding.why
    assert {outcome.status for outcome in found.values()} == {SKIP}
    assert not any("not done within" in outcome.findings[0].why for outcome in found.values())


def test_a_driver_that_is_gone_after_it_was_opened(node):
    """The library was opened by the check before; the driver is unloaded meanwhile, then loaded anew."""
    node.says({"error.SystemGetDriverVersion": 1, "error.DeviceGetCount": 1})
    found = node.outcomes(("gpu-count", "gpu-ecc"))
    assert {outcome.status for outcome in found.values()} == {SKIP}
    assert "driver was unloaded" in found["gpu-count"].findings[0].why


def test_a_gpu_that_is_lost_is_reported_by_the_count_only(node):
    node.says({"gpu.2.lost": 2, "gpu.*.field.230": 0})
    found = node.outcomes(NVML)
    assert [name for name, outcome in found.items() if outcome.status == FAIL] == ["gpu-count"]
    assert not [name for name, outcome in found.items() if outcome.status == WARN]
    finding = found["gpu-count"].findings[0]
    assert (finding.fault, finding.category) == (DEVICE_FAULT, "gpu_missing")
    assert "lost" in found["gpu-ecc"].findings[-1].why


def test_a_right_that_is_missing_is_no_fault(node):
    node.says({"gpu.5.error.DeviceGetHandleByIndex": 4})
    found = node.outcomes(("gpu-count", "gpu-ecc"))
    assert {outcome.status for outcome in found.values()} == {SKIP}
    assert "GPU 5: no permission" in found["gpu-count"].findings[-1].why


def test_a_driver_that_is_reloaded_while_it_is_open(node, library):
    """Between two checks of one process: first it answers, then nothing does, then it is back."""
    worker = Worker(library)
    try:
        scene = node.scene()
        before = worker.outcomes(node, ("gpu-ecc", "gpu-count"), scene)
        node.says({"error.SystemGetDriverVersion": 1, "error.DeviceGetCount": 1, "error.DeviceGetEccMode": 1})
        meanwhile = worker.outcomes(node, ("gpu-ecc", "gpu-count"), scene)
        node.says({"error.SystemGetDriverVersion": 0, "error.DeviceGetCount": 0, "error.DeviceGetEccMode": 0})
        after = worker.outcomes(node, ("gpu-ecc", "gpu-count"), scene)
    finally:
        worker.close()
    assert {outcome.status for outcome in before.values()} == {PASS}
    assert {outcome.status for outcome in meanwhile.values()} == {SKIP}
    assert {outcome.status for outcome in after.values()} == {PASS}


class Error(Exception):
    value = 15


def old_module() -> ModuleType:
    """A version of nvidia-ml-py that has three functions, one of which takes fewer arguments."""
    module = ModuleType("old_pynvml")
    module.NVMLError = Error
    module.byref = ctypes.byref
    module.nvmlDeviceGetName = lambda handle: b"Tesla"
    module.nvmlDeviceGetMemoryInfo = lambda handle: 5

    def lost(handle: object) -> None:
        raise Error("GPU is lost")

    module.nvmlDeviceGetTemperature = lost
    return module


def test_an_older_nvidia_ml_py_is_asked_with_care():
    nvml = Nvml(old_module())
    assert nvml.ask("DeviceGetName", 1).value == b"Tesla"
    assert nvml.ask("DeviceGetMemoryInfo", 1, 2).trouble == ABSENT
    assert nvml.ask("DeviceGetTemperature", 1).trouble == LOST
    assert nvml.ask("DeviceGetRemappedRows", 1).trouble == ABSENT
    assert nvml.filled("DeviceGetSramEccErrorStatus", "c_nvmlEccSramErrorStatus_v1_t", 1).trouble == ABSENT
    assert [answer.trouble for answer in nvml.fields(1, [230, (214, 3)])] == [ABSENT, ABSENT]
    assert nvml.constant("NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", 230) == 230


def test_who_tells_of_a_driver_that_hangs_is_asked_first():
    assert all_checks(("gpu",))[0].spec.name == "gpu-count"


def test_the_matrix_asks_every_passive_check_of_nvml():
    passive = {check.spec.name for check in all_checks(("gpu",)) if check.spec.cost == PASSIVE}
    assert passive == set(ALL_GPU)
    for check in all_checks(("gpu", "npu")):
        assert check.spec.what.en and check.spec.what.zh
        assert check.spec.on_hang != FAIL or check.spec.hang_advice.zh
