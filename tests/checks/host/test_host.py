"""Processors, memory, clock, processes, leftovers, the kernel's log, as plain values."""

import time

import pytest

from core.diagnosis.candidate_kit import knowing
from holdfast.checks.child import look
from holdfast.checks.host.resources import count_of_list
from holdfast.checks.host.services import failed_units
from holdfast.checks.readers.kernel_log import kernel_signatures, read_kernel_lines, searched
from holdfast.checks.readers.node_files import NodeFiles
from holdfast.checks.registry import all_checks, check_named
from holdfast.core.checks.host import (
    GIB,
    MIB,
    Blocked,
    ClockState,
    Memory,
    NumaNode,
    chrony_offset_s,
    judge_clock,
    judge_cores,
    judge_fewer,
    judge_governor,
    judge_memory,
    judge_numa,
    judge_processes,
)
from holdfast.core.checks.kernel_faults import incidents, judge_incidents
from holdfast.core.checks.leftovers import (
    Process,
    Segment,
    judge_left_segments,
    left_processes,
    left_segments,
)
from holdfast.core.diagnosis.rulings import NO_TABLES
from holdfast.model.checks import PASS, SKIP, STATUSES, WARN, Scene

RANK = {"RANK": "0", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "a"}


@pytest.mark.parametrize(
    ("governors", "driver", "status"),
    [
        ({"performance": 64}, "acpi-cpufreq", PASS),
        ({"schedutil": 64}, "acpi-cpufreq", PASS),
        ({"powersave": 64}, "intel_pstate", PASS),
        ({"powersave": 2, "performance": 62}, "acpi-cpufreq", WARN),
    ],
)
def test_governors(governors, driver, status):
    assert judge_governor(governors, driver).status == status


def test_a_machine_without_governors_is_not_judged_by_them():
    assert judge_governor({}, "") is None


def test_processors_are_held_against_ranks():
    assert judge_cores(8, "", None).status == PASS
    assert judge_cores(8, "", 8).status == PASS
    assert judge_cores(1.5, "limit", 2).status == WARN


def test_less_than_was_learned():
    assert judge_fewer("memory", 96.0, 100.0, "96", "100", 0.05) == []
    assert judge_fewer("memory", 94.0, 100.0, "94", "100", 0.05)[0].status == WARN
    assert judge_fewer("memory", 94.0, None, "94", "", 0.05) == []


@pytest.mark.parametrize(
    ("memory", "ranks", "alarms"),
    [
        (Memory(total=512 * GIB, available=400 * GIB), 8, 0),
        (Memory(total=8 * GIB, available=3 * GIB), 4, 0),
        (Memory(total=8 * GIB, available=1 * GIB), 4, 1),
        (Memory(total=8 * GIB, available=100 * MIB), None, 1),
        (Memory(total=512 * GIB, available=400 * GIB, group_left=3 * GIB, group_limit=4 * GIB), 8, 1),
        (Memory(total=512 * GIB, available=400 * GIB, swap_used=64 * GIB), 8, 0),
        (Memory(total=512 * GIB, available=20 * GIB, swap_used=64 * GIB), 8, 1),
        (Memory(total=512 * GIB, available=400 * GIB, stalled=30.0), 8, 1),
        (Memory(total=512 * GIB, available=400 * GIB, huge_idle=128 * GIB), 8, 0),
        (Memory(total=512 * GIB, available=100 * GIB, huge_idle=400 * GIB), 8, 1),
    ],
)
def test_memory(memory, ranks, alarms):
    assert len([one for one in judge_memory(memory, ranks) if one.status == WARN]) == alarms


def test_numa_nodes_without_processors_may_lack_memory():
    two = [NumaNode(0, "0-31", GIB), NumaNode(1, "32-63", GIB)]
    assert judge_numa(two)[0].status == PASS
    assert judge_numa([*two, NumaNode(2, "", 0)])[0].status == PASS
    assert judge_numa([two[0], NumaNode(1, "32-63", 0)])[0].device == "NUMA node 1"
    assert judge_numa([NumaNode(0, "0-3", 0)])[0].status == PASS


def test_zombies_and_blocked_processes():
    assert [one.status for one in judge_processes({"sh (pid 4)": 20}, [])] == [PASS]
    told = judge_processes({"sh (pid 4)": 250, "init (pid 1)": 3}, [Blocked(7, "python3", "nfs_wait", 3.0)])
    assert "sh (pid 4)" in told[0].why and "nfs_wait" in told[1].why


@pytest.mark.parametrize(
    ("clock", "status"),
    [
        (ClockState(offset_s=0.02, source="chrony"), PASS),
        (ClockState(offset_s=-0.4, source="chrony", synced=True), WARN),
        (ClockState(synced=True, estimated_error_s=0.001), PASS),
        (ClockState(synced=True, estimated_error_s=0.3), WARN),
        (ClockState(synced=False), SKIP),
        (ClockState(), SKIP),
    ],
)
def test_clocks(clock, status):
    assert judge_clock(clock).status == status


def test_chrony_is_believed_only_where_it_is_synchronised():
    line = "A29FC87B,10.0.0.9,3,1700000000.1,0.000048,0.1,0.1,-12.3,0.01,0.2,0.01,0.001,64.4,Normal\n"
    assert chrony_offset_s(line) == 0.000048
    assert chrony_offset_s(line.replace("Normal", "Not synchronised")) is None
    assert chrony_offset_s("506 Cannot talk to daemon") is None


@pytest.mark.parametrize(("text", "count"), [("0-3,8", 5), ("0", 1), ("", 0), ("a-b", 0)])
def test_lists_of_processors(text, count):
    assert count_of_list(text) == count


def test_only_units_that_a_training_needs_are_reported():
    text = "snap-core.mount loaded failed failed d\nopenibd.service loaded failed failed a\nsnap.cups.service loaded failed failed b\ndata.mount loaded failed failed c\n"
    assert failed_units(text) == ["openibd.service", "data.mount"]


def table(*processes):
    init = Process(pid=1, parent=0, name="systemd")
    return {one.pid: one for one in (init, *processes)}


def left(*processes, own=frozenset()):
    return [one.pid for one, _ in left_processes(table(*processes), own)]


def test_what_init_adopted_of_a_job_is_left_over():
    child = Process(pid=9, parent=8, name="python3", env={"HOLDFAST_JOB": "a"})
    adopted = Process(pid=8, parent=1, name="python3", env={"HOLDFAST_JOB": "a"})
    assert left(adopted, child) == [8]
    assert left(adopted, child, own={8}) == []
    reaper = Process(pid=8, parent=1, name="python3", command="python3 -c from reaper.loop import main")
    assert left(reaper, child) == []
    detached = Process(
        pid=8, parent=1, name="holdfast", command="/usr/bin/holdfast run", env={"HOLDFAST_JOB": "a"}
    )
    assert left(detached) == []


def test_a_rank_with_its_launcher_is_not_left_over():
    rank = Process(pid=9, parent=8, name="python3", env=RANK)
    assert left(Process(pid=8, parent=1, name="torchrun"), rank) == []
    assert left(Process(pid=9, parent=1, name="python3", env=RANK)) == [9]
    assert left(Process(pid=9, parent=1, name="python3", state="Z", env=RANK)) == []
    assert left(Process(pid=9, parent=1, name="python3", env={**RANK, "SLURM_JOB_ID": "3"})) == []
    assert left(Process(pid=9, parent=1, name="python3", env={"RANK": "0"})) == []
    first_of_a_container = {1: Process(pid=1, parent=0, name="python3", env=RANK)}
    assert left_processes(first_of_a_container, set()) == []


def test_shared_memory_that_somebody_has_is_not_left_over():
    segments = [
        Segment("torch_77_1_0", 32 << 20, 900.0),
        Segment("torch_78_1_0", 32 << 20, 900.0),
        Segment("nccl-AbCdEf", 9 << 20, 900.0),
        Segment("nccl-GhIjKl", 9 << 20, 900.0),
        Segment("nccl-younger", 9 << 20, 1.0),
        Segment("my-own-file", 99 << 20, 900.0),
    ]
    names = [one.name for one in left_segments(segments, {78}, {"nccl-GhIjKl"})]
    assert names == ["torch_77_1_0", "nccl-AbCdEf"]
    assert judge_left_segments([Segment("sem.a", 32, 900.0)]) == []
    assert judge_left_segments([Segment("sem.a", 32, 900.0)] * 300)[0].status == WARN


def test_lines_of_syslog_count_from_the_last_boot_on(tmp_path):
    (tmp_path / "var/log").mkdir(parents=True)
    lines = [
        "Nov 20 10:00:00 a kernel: [    0.000000] Linux version 6.1.0",
        "Nov 20 10:00:01 a kernel: [   90.000000] INFO: task x:1 blocked for more than 122 seconds.",
        "Nov 21 10:00:00 a kernel: [    0.000000] Linux version 6.1.0",
        "Nov 21 10:00:01 a sshd[3]: [preauth] closed",
        "Nov 21 10:00:02 a kernel: [    7.500000] all is well",
    ]
    (tmp_path / "var/log/kern.log").write_text("\n".join(lines) + "\n")
    read = read_kernel_lines(NodeFiles(Scene(root=str(tmp_path))))
    assert [at_s for at_s, _ in read.lines] == [0.0, 7.5] and read.source == "/var/log/kern.log"


def test_what_programs_write_into_the_kernels_log_is_not_the_kernels(tmp_path):
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kmsg").write_text(
        "6,1,1000000,-;kernel says\n SUBSYSTEM=pci\n12,2,2000000,-;systemd says\n"
    )
    read = read_kernel_lines(NodeFiles(Scene(root=str(tmp_path))))
    assert read.lines == ((1.0, b"[    1.000000] kernel says"),)


def test_kills_for_memory_are_reported_only_while_they_are_news():
    line = b"[  100.000000] Memory cgroup out of memory: Killed process 629 (python) total-vm:9kB, anon-rss:9kB, file-rss:0kB"
    search = searched([line])
    found = incidents(search, knowing(*kernel_signatures()), NO_TABLES, 1000.0)
    assert [one.category for one in found] == ["cgroup_oom"]
    assert len(judge_incidents(found, 1200.0, 0.0, without_xids=True)) == 1
    assert judge_incidents(found, 1100.0 + 7200.0, 0.0, without_xids=True) == []


@pytest.mark.parametrize(
    "check", all_checks(("rdma", "net", "io", "host")), ids=lambda check: check.spec.name
)
def test_an_empty_tree_is_reported_and_harms_no_check(check, tmp_path):
    """Benchmarks and what asks the machine itself are not looked at here."""
    if check.spec.bench or check.spec.name in (
        "host-clock",
        "host-failed-services",
        "net-name",
        "host-kernel",
    ):
        pytest.skip("it asks the machine itself")
    outcome = look(check, Scene(root=str(tmp_path), now_s=time.time()))
    assert outcome.status in STATUSES
    assert not any("the check itself failed" in finding.why for finding in outcome.findings)


@pytest.mark.parametrize(
    "check", all_checks(("rdma", "net", "io", "host")), ids=lambda check: check.spec.name
)
def test_a_tree_of_rubbish_is_reported_and_harms_no_check(check, tmp_path):
    if check.spec.bench or check.spec.name in (
        "host-clock",
        "host-failed-services",
        "net-name",
        "host-kernel",
    ):
        pytest.skip("it asks the machine itself")
    rubbish = bytes(range(256)) * 3 + b"\n-1 x:y 99999999999999999999999 - - -\n" * 5
    for path in (
        *("proc/uptime", "proc/self/cgroup", "proc/self/status", "proc/self/mountinfo", "proc/meminfo"),
        *(
            "proc/net/route",
            "proc/net/if_inet6",
            "proc/net/snmp",
            "proc/1/stat",
            "proc/9/stat",
            "proc/pressure/memory",
        ),
        *("sys/class/net/eth0/mtu", "sys/class/net/eth0/flags", "sys/class/net/eth0/device/x", "dev/kmsg"),
        *(
            "sys/class/infiniband/a/ports/1/state",
            "sys/class/infiniband/a/ports/1/rate",
            "proc/driver/nvidia/version",
        ),
        *("sys/devices/system/cpu/online", "sys/devices/system/node/node0/meminfo", "proc/self/uid_map"),
        *("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.stat", "var/log/kern.log"),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(rubbish)
    outcome = look(check, Scene(root=str(tmp_path), now_s=time.time()))
    assert not any("the check itself failed" in finding.why for finding in outcome.findings), outcome.findings
    assert outcome.check == check_named(check.spec.name).spec.name
