"""Benchmarks of GPUs from the check to the finding: NVML and GPUs are stand-ins, arithmetic and processes are real."""

import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from checks.gpu.conftest import _built
from fake_nvml.node import Node, address
from holdfast.checks.gpu.bench import gpu_burn, near_cpus, target_of
from holdfast.checks.readers.nvml import Device
from holdfast.core.checks.gpu.readings import Gpu
from holdfast.model.checks import DEVICE_FAULT, FAIL, PASS, SKIP, WARN, Scene

STAND_IN = Path(__file__).with_name("gpus_on_cpu.py")
QUICK = {
    "gpu-burn.seconds": "0.1",
    "gpu-burn.size": "128",
    "gpu-memory-bandwidth.seconds": "0.1",
    "gpu-memory-bandwidth.mebibytes": "16",
    "gpu-copy.seconds": "0.1",
    "gpu-copy.mebibytes": "1",
    "gpu-training-step.seconds": "0.1",
    "gpu-training-step.layers": "1",
    "gpu-training-step.width": "64",
    "gpu-training-step.length": "16",
    "gpu-training-step.batch": "1",
}
pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return _built(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def bench(tmp_path, library, warm_torch):
    """Runs a benchmark on so many GPUs of a node; its outcome."""
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\ncase "$1" in -c) exec {warm_torch} "$@";; esac\nexec {warm_torch} {STAND_IN} "$@"\n'
    )
    python.chmod(0o755)
    node = Node(tmp_path, library)
    node.driver_loaded()

    def run(name, count=3, says=None, **env):
        node.says(says, count=count)
        options = QUICK | {f"{name}.python": str(python)} | env.pop("options", {})
        told = {**node.env, "GPUS": str(count), **env}
        return node.outcomes((name,), within_s=200.0, options=options, env=told)[name]

    return run


def of(outcome, device):
    return [finding for finding in outcome.findings if finding.device == device]


def faults(outcome):
    return [(finding.device, finding.fault) for finding in outcome.findings if finding.fault]


@pytest.mark.parametrize("name", ["gpu-memory-bandwidth", "gpu-training-step"])
def test_a_sound_gpu_gives_its_number_by_serial(bench, name):
    outcome = bench(name, count=1)
    assert not faults(outcome) and {one.status for one in outcome.findings} == {PASS}
    (number,) = [fact for fact in outcome.facts if fact.unit]
    assert number.device == "gpu:1652400000000" and number.model == "NVIDIA H100 80GB HBM3"
    assert number.value > 0 and number.learn and number.peers


def test_in_a_burn_each_gpu_with_a_fault_is_named_with_it(bench):
    """0 and 5 are well; 1 flips a bit now and then, 2 always, 3 has a memory error, 4 ends its process."""
    outcome = bench("gpu-burn", count=6, FAULTS="1:flip,2:wrong,3:ecc,4:die")
    assert sorted(faults(outcome)) == [(address(n), DEVICE_FAULT) for n in (1, 2, 3)]
    flips = of(outcome, address(1))[0].why
    assert "computes wrong results" in flips and "row 0 column 3 bits 0040" in flips
    assert "the other devices here computed it correctly" in of(outcome, address(2))[0].why
    assert "uncorrectable ECC" in of(outcome, address(3))[0].why
    (dead,) = of(outcome, address(4))
    assert dead.status == WARN and "killed by SIGABRT" in dead.why
    assert not {FAIL} & {
        one.status for n in (0, 5) for one in of(outcome, address(n)) if "bits" in one.measured
    }
    measured = {fact.device for fact in outcome.facts if fact.unit}
    assert measured == {f"gpu:165240000000{n}" for n in (0, 1, 2, 5)}, "the others go on"


def test_a_copy_that_comes_back_damaged_is_a_fault(bench):
    outcome = bench("gpu-copy", count=2, FAULTS="1:copy")
    assert faults(outcome) == [(address(1), DEVICE_FAULT)] and outcome.status == FAIL
    assert len([fact for fact in outcome.facts if fact.device.endswith("0") and fact.unit]) == 4


def test_a_gpu_that_others_use_is_left_alone_and_of_one_at_work_clock_and_heat_are_reported(bench):
    says = {"gpu.1.procs": "4242:20000", "gpu.0.temp": 77, "gpu.0.util": 100, "gpu.0.throttle": 4}
    outcome = bench("gpu-burn", count=2, says=says)
    (busy,) = of(outcome, address(1))
    assert busy.status == SKIP and "in use by process 4242" in busy.why
    assert {fact.device for fact in outcome.facts} == {"gpu:1652400000000"}
    speed = of(outcome, address(0))[-1].measured
    assert "77 °C" in speed and "MHz" in speed and "power limit" in speed


# Without a GPU, and who is who


def test_without_a_gpu_it_is_skipped_before_torch_is_loaded(tmp_path):
    (finding,) = gpu_burn(Scene(root=str(tmp_path)))
    assert finding.status == SKIP and finding.why == "there is no GPU here (no /dev/nvidia*, /dev/kfd)"


def test_a_torch_without_cuda_is_a_skip_with_its_name(tmp_path):
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there is a GPU")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidiactl").touch()
    options = {"gpu-burn.python": sys.executable}
    (finding,) = gpu_burn(Scene(root=str(tmp_path), options=options))
    assert finding.status == SKIP and f"torch {version('torch')}" in finding.why


@pytest.mark.parametrize("option", [{"gpu-burn.type": "fp8"}, {"gpu-burn.size": "1e9"}])
def test_a_bad_option_is_said(option):
    (finding,) = gpu_burn(Scene(options=option))
    assert finding.status == SKIP and "is required" in finding.why


def gpu(index, uuid):
    return Device(
        Gpu(index=index, address=f"0000:{index}a:00.0", name="H100", uuid=uuid, key=f"gpu:serial{index}"),
        None,
    )


def told(uuid="", place="0000:1a:00.0"):
    return {"device": "cuda:0", "name": "H100", "uuid": uuid, "address": place}


def test_torch_s_device_is_found_by_uuid_whatever_its_number():
    devices = [gpu(0, "GPU-aaaa"), gpu(1, "GPU-BBBB")]
    target = target_of(told("bbbb", place=""), devices)
    assert (target.key, target.where) == ("gpu:serial1", "0000:1a:00.0")


def test_for_a_torch_that_tells_no_uuid_by_its_address():
    assert target_of(told(), [gpu(0, "GPU-aaaa"), gpu(1, "GPU-bbbb")]).key == "gpu:serial1"


def test_a_part_of_a_gpu_is_not_the_gpu():
    target = target_of(told("mig-uuid"), [gpu(1, "GPU-bbbb")])
    assert target.key == "gpu:GPU-mig-uuid" and target.nvml is None


def test_without_nvml_it_is_known_by_what_torch_tells():
    assert target_of(told("cccc"), ()).key == "gpu:GPU-cccc"
    assert target_of(told(), ()).key == "gpu:0000:1a:00.0"
    assert target_of(told(place=""), ()).key == "gpu:cuda:0"


def test_processors_near_a_gpu_are_read_from_sysfs(tmp_path):
    place = tmp_path / "sys/bus/pci/devices/0000:1a:00.0"
    place.mkdir(parents=True)
    (place / "local_cpulist").write_text("0-2,8,10-11\n")
    assert near_cpus(Scene(root=str(tmp_path)), "0000:1a:00.0") == [0, 1, 2, 8, 10, 11]
    assert near_cpus(Scene(root=str(tmp_path)), "0000:2a:00.0") == near_cpus(Scene(), "") == []
