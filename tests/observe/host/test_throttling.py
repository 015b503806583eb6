"""What control groups tell of a process, from trees in the form that the kernel gives them, and from this machine."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.observe.host import throttling
from holdfast.observe.host.throttling import ThrottleReader

V1_MOUNT = "34 25 0:30 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
V2_MOUNT = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
POD_MOUNT = "1201 1190 0:29 /kubepods/pod7 /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n"


def stat(periods, throttled, usec):
    return f"usage_usec 9\nnr_periods {periods}\nnr_throttled {throttled}\nthrottled_usec {usec}\n"


def put(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_quota_of_the_second_version_and_that_of_the_pod_above(tmp_path):
    put(
        tmp_path,
        {
            "proc/self/mountinfo": V2_MOUNT,
            "proc/7/cgroup": "0::/pod/rank\n",
            "sys/fs/cgroup/cpu.stat": "usage_usec 5\nuser_usec 4\n",
            "sys/fs/cgroup/pod/cpu.stat": stat(5, 0, 0),
            "sys/fs/cgroup/pod/cpu.max": "400000 100000\n",
            "sys/fs/cgroup/pod/rank/cpu.stat": stat(10, 4, 300_000),
            "sys/fs/cgroup/pod/rank/cpu.max": "50000 100000\n",
        },
    )
    reader = ThrottleReader(7, tmp_path)
    first = reader.sample()
    assert first == throttling.Throttling(quota=0.5)
    put(tmp_path, {"sys/fs/cgroup/pod/rank/cpu.stat": stat(20, 12, 1_100_000)})
    put(tmp_path, {"sys/fs/cgroup/pod/cpu.stat": stat(15, 1, 200_000)})
    second = reader.sample()
    assert second.throttled_s == pytest.approx(1.0)
    assert (second.periods, second.throttled_periods) == (20, 9)


def test_a_quota_of_the_first_version(tmp_path):
    group = "sys/fs/cgroup/cpu,cpuacct/slurm/job_7"
    put(
        tmp_path,
        {
            "proc/self/mountinfo": V1_MOUNT,
            "proc/7/cgroup": "4:memory:/other\n3:cpu,cpuacct:/slurm/job_7\n1:name=systemd:/\n",
            f"{group}/cpu.stat": "nr_periods 1\nnr_throttled 0\nthrottled_time 0\n",
            f"{group}/cpu.cfs_quota_us": "20000\n",
            f"{group}/cpu.cfs_period_us": "100000\n",
        },
    )
    reader = ThrottleReader(7, tmp_path)
    assert reader.sample().quota == 0.2
    put(tmp_path, {f"{group}/cpu.stat": "nr_periods 31\nnr_throttled 22\nthrottled_time 1318763147\n"})
    sample = reader.sample()
    assert sample.throttled_s == pytest.approx(1.318763147)
    assert sample.throttled_periods == 22
    put(tmp_path, {f"{group}/cpu.cfs_quota_us": "-1\n"})
    assert reader.sample().quota is None


def test_a_process_that_is_moved_takes_nothing_over_from_its_new_group(tmp_path):
    put(
        tmp_path,
        {
            "proc/self/mountinfo": V2_MOUNT,
            "proc/7/cgroup": "0::/free\n",
            "sys/fs/cgroup/free/cpu.stat": stat(0, 0, 0),
            "sys/fs/cgroup/slow/cpu.stat": stat(900, 800, 70_000_000),
        },
    )
    reader = ThrottleReader(7, tmp_path)
    assert reader.sample().throttled_s == 0
    put(tmp_path, {"proc/7/cgroup": "0::/slow\n"})
    assert reader.sample().throttled_s == 0
    put(tmp_path, {"sys/fs/cgroup/slow/cpu.stat": stat(905, 804, 70_400_000)})
    assert reader.sample().throttled_s == pytest.approx(0.4)


def test_only_what_is_mounted_here_is_read(tmp_path):
    put(
        tmp_path,
        {
            "proc/self/mountinfo": POD_MOUNT,
            "proc/7/cgroup": "0::/kubepods/pod7/main\n",
            "proc/8/cgroup": "0::/system.slice\n",
            "sys/fs/cgroup/main/cpu.stat": stat(1, 0, 0),
            "sys/fs/cgroup/main/cpu.max": "max 100000\n",
        },
    )
    assert ThrottleReader(7, tmp_path).sample() == throttling.Throttling()
    assert ThrottleReader(8, tmp_path).sample() is None
    assert ThrottleReader(9, tmp_path).sample() is None


def test_this_process_is_read_or_left_out():
    sample = ThrottleReader(os.getpid()).sample()
    assert sample is None or sample.throttled_s == 0


@given(st.text())
def test_no_text_makes_it_fail(text):
    throttling.parse_groups(text)
    throttling.parse_mounts(text)
    throttling.parse_stat(text)
    throttling.parse_max(text)
