"""Where a process runs, from a tree of kernel files as they look on a machine with two NUMA nodes."""

import os

from holdfast.observe.host.rank_places import process_place


def tree(root, environ, cpus="0-3"):
    files = {
        "proc/7/status": f"Name:\tpython\nCpus_allowed_list:\t{cpus}\n",
        "proc/7/environ": environ,
        "proc/driver/nvidia/gpus/0000:01:00.0/information": "",
        "proc/driver/nvidia/gpus/0000:81:00.0/information": "",
        "sys/bus/pci/devices/0000:01:00.0/numa_node": "0\n",
        "sys/bus/pci/devices/0000:81:00.0/numa_node": "1\n",
        "sys/devices/system/node/node0/cpulist": "0-3\n",
        "sys/devices/system/node/node1/cpulist": "4-7\n",
        "sys/class/infiniband/mlx5_0/device/numa_node": "0\n",
        "sys/class/infiniband/mlx5_1/device/numa_node": "1\n",
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_rank_of_two(tmp_path):
    place = process_place(7, tree(tmp_path, "LOCAL_RANK=1\0NCCL_IB_HCA==mlx5_0:1\0"))
    assert place is not None
    assert (place.gpu, place.gpu_numa, place.cpu_numa) == ("0000:81:00.0", 1, (0,))
    assert place.nics == (("mlx5_0", 0),)


def test_visible_devices_and_prefixes(tmp_path):
    place = process_place(
        7, tree(tmp_path, "LOCAL_RANK=0\0CUDA_VISIBLE_DEVICES=1\0NCCL_IB_HCA=mlx5\0", cpus="2,6")
    )
    assert place is not None
    assert (place.gpu, place.cpu_numa) == ("0000:81:00.0", (0, 1))
    assert [name for name, _ in place.nics] == ["mlx5_0", "mlx5_1"]


def test_what_is_not_known(tmp_path):
    place = process_place(7, tree(tmp_path, "NCCL_IB_HCA=^mlx5_0\0"))
    assert place is not None and (place.gpu, place.nics) == ("", ())
    assert process_place(8, tmp_path) is None
    assert process_place(os.getpid()) is not None
