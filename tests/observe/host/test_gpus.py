"""Which GPUs a process has open, from stand-ins for the files of the kernel and NVIDIA's driver."""

import os

from holdfast.observe.host.gpus import gpus_of


def fake_proc(tmp_path, opened):
    for pid, devices in opened.items():
        folder = tmp_path / str(pid) / "fd"
        folder.mkdir(parents=True)
        for number, device in enumerate(devices):
            os.symlink(device, folder / str(number))
    for minor, address in ((0, "0000:5d:00.0"), (3, "0000:91:00.0")):
        folder = tmp_path / "driver/nvidia/gpus" / address
        folder.mkdir(parents=True)
        (folder / "information").write_text(
            f"Model: \t H100\nIRQ:   \t 5\nDevice Minor: \t {minor}\nGPU Excluded: No\n"
        )
    return tmp_path


def test_by_the_files_that_ranks_have_open(tmp_path):
    proc = fake_proc(tmp_path, {7: ["/dev/nvidia3", "/dev/nvidiactl", "/dev/null"], 8: ["/dev/nvidia-uvm"]})
    assert gpus_of([7, 8], proc) == {"0000:91:00.0"}


def test_none_where_nothing_tells(tmp_path):
    assert gpus_of([7], tmp_path) == frozenset()
    assert gpus_of([7], fake_proc(tmp_path, {7: ["/dev/nvidia5"]})) == frozenset()
