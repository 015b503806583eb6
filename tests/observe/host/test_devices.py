"""GPUs, by a stand-in for libnvidia-ml that the test breaks while it is read; needs a C compiler and nvidia-ml-py."""

import ctypes
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast.observe.host.devices import Devices, NoDevices, NvmlReader, load_nvml

SOURCE = Path(__file__).parents[4] / "shared/design/fake_nvml/fake_nvml.c"


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    if not SOURCE.exists():
        pytest.skip(f"there is no stand-in for libnvidia-ml here: {SOURCE}")
    if importlib.util.find_spec("pynvml") is None:
        pytest.skip("nvidia-ml-py is not installed")
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler here")
    path = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-w", "-Wl,-soname,libnvidia-ml.so.1", "-o", path, SOURCE], check=True
    )
    # Loaded under its name: who asks for libnvidia-ml.so.1 later gets this one.
    return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


@pytest.fixture
def gpus(library, tmp_path, monkeypatch):
    """Sets what the driver says."""
    path = tmp_path / "gpus"
    monkeypatch.setenv("FAKE_NVML", str(path))

    def say(**settings):
        text = "".join(f"{name.replace('__', '.')}={value}\n" for name, value in settings.items())
        (tmp_path / "new").write_text(text)
        os.replace(tmp_path / "new", path)

    say.path = path
    say(count=2)
    return say


@pytest.fixture
def devices():
    made = []

    def make(*given, **settings):
        made.append(Devices(*given, **settings))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_what_a_gpu_does(gpus, devices):
    gpus(count=2, gpu__0__power_mw=71500, gpu__0__util=100, gpu__0__mem_used=1 << 30, gpu__1__temp=61)
    one = devices(lambda: 5.0)
    assert one.last() is None
    assert one.ask() and one.wait(60)
    (first, second), age_s = one.last()
    assert age_s == 0.0 and one.why_not == ""
    assert (first.address, first.power_w, first.utilization) == ("0000:1a:00.0", 71.5, 1.0)
    assert (first.power_limit_w, first.memory_used_bytes) == (700.0, 1 << 30)
    assert (second.address, second.temperature_c, second.error) == ("0000:2a:00.0", 61, "")
    assert first.sm_active is None  # this driver has no GPM


def test_a_gpu_that_is_lost_keeps_its_name_and_the_others_go_on(gpus, devices):
    one = devices()
    one.ask() and one.wait(60)
    gpus(count=2, gpu__1__lost=1)
    one.ask() and one.wait(60)
    first, second = one.last().value
    assert first.error == "" and first.power_w is not None
    assert "lost" in second.error.lower() and second.address == "0000:2a:00.0" and second.power_w is None


def test_what_the_driver_does_not_support_is_not_known(gpus, devices):
    gpus(count=1, gpu__0__power_mw="notsup", gpu__0__limit_mw="notsup")
    one = devices()
    one.ask() and one.wait(60)
    (gpu,) = one.last().value
    assert gpu.power_w is gpu.power_limit_w is None and gpu.error == "" and gpu.utilization == 0.0


def test_a_driver_that_hangs_holds_nobody_up(gpus, devices):
    """The stand-in reads its file on each call: a FIFO that nobody writes to is a call that does not come back."""
    now_s = [10.0]
    one = devices(lambda: now_s[0])
    one.ask() and one.wait(60)
    gpus.path.unlink()
    os.mkfifo(gpus.path)
    assert one.ask()
    now_s[0] += 30
    assert not one.ask() and not one.ask()
    assert one.stuck_s() == 30 and one.last().age_s == 30 and len(one.last().value) == 2
    fifo = os.open(gpus.path, os.O_RDWR)  # the calls that wait, and those to come, find an end
    gpus.path.rename(gpus.path.with_name("fifo"))
    gpus(count=1)
    os.write(fifo, b"count=1\n")
    os.close(fifo)
    assert one.wait(60) and one.stuck_s() == 0


@pytest.mark.parametrize("code", [9, 18])
def test_a_driver_that_cannot_be_used_says_why_and_is_tried_again(gpus, devices, code):
    gpus(count=1, init_error=code)
    one = devices()
    one.ask() and one.wait(60)
    assert one.last() is None and "NVML reports" in one.why_not
    gpus(count=1)
    for _ in range(60):
        one.ask() and one.wait(60)
    assert one.last() is not None and one.why_not == ""


def test_without_the_package_it_says_what_to_install():
    if importlib.util.find_spec("pynvml") is not None:
        pytest.skip("nvidia-ml-py is installed")
    with pytest.raises(NoDevices, match=r"holdfast\[gpu\]"):
        load_nvml()


def test_nothing_is_loaded_before_it_is_asked(devices):
    opened = []

    def note():
        opened.append(None)
        raise NoDevices("none")

    one = devices(open_nvml=note)
    assert opened == []
    one.ask() and one.wait(60)
    assert len(opened) == 1 and one.why_not == "none"
    reader = NvmlReader(note)
    for _ in range(59):
        with pytest.raises(NoDevices, match="none"):
            reader.read()
    assert len(opened) == 2
