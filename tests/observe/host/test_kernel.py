"""Memory counters of cgroups v1 and v2 and the kernel's log, from stand-in files."""

from pathlib import Path

import pytest

from holdfast.observe.host.kernel import NewKernelLines, OomWatch


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("cgroup", "counter", "text"),
    [
        ("0::/job/a\n", "job/a/memory.events", "low 0\noom 9\noom_kill {}\noom_group_kill 7\n"),
        ("0::/job/a\n", "memory.events", "oom_kill {}\n"),  # a container: its own cgroup is the root it sees
        ("0::/job/a\n", "unified/job/a/memory.events", "oom_kill {}\n"),
        (
            "5:cpu,cpuacct:/\n4:memory:/job/a\n0::/\n",
            "memory/job/a/memory.oom_control",
            "under_oom 0\noom_kill {}\n",
        ),
        ("4:memory:/docker/1\n", "memory/memory.oom_control", "oom_kill_disable 0\noom_kill {}\n"),
    ],
)
def test_kills_are_counted_from_the_start_of_the_watch(tmp_path, cgroup, counter, text):
    write(tmp_path / "proc/42/cgroup", cgroup)
    file = write(tmp_path / "cgroup" / counter, text.format(3))
    watch = OomWatch(42, proc=tmp_path / "proc", cgroup_root=tmp_path / "cgroup")
    assert watch.new_kills() == 0
    (tmp_path / "proc/42/cgroup").unlink()  # the process is gone; its cgroup is not
    write(file, text.format(5))
    assert [watch.new_kills(), watch.new_kills()] == [2, 0]


def test_no_counter_is_unknown_not_zero(tmp_path):
    assert OomWatch(42, proc=tmp_path, cgroup_root=tmp_path).new_kills() is None
    write(tmp_path / "42/cgroup", "garbage\n0::/a\n::\n")
    assert OomWatch(42, proc=tmp_path, cgroup_root=tmp_path).new_kills() is None
    write(tmp_path / "a/memory.events", "oom_kill many\n")
    assert OomWatch(42, proc=tmp_path, cgroup_root=tmp_path).new_kills() is None


def test_only_what_the_kernel_writes_from_now_on(tmp_path):
    path = write(tmp_path / "kmsg", "6,338,5140800,-;Out of memory: Killed process 6 (w)\n")
    log = NewKernelLines(path)
    assert log.read() == ()
    with path.open("a") as file:
        file.write("6,339,5140900,-;Out of memory: Killed process 7 (x)\n SUBSYSTEM=mem\n")
    assert log.read() == (b"Out of memory: Killed process 7 (x)",)
    with path.open("a") as file:
        file.write("3,340,5140999,c;two\\x09words\n")
    assert log.read() == (b"Out of memory: Killed process 7 (x)", b"two\twords")
    log.close()
    log.close()
    assert len(log.read()) == 2


def test_a_log_that_may_not_be_read_has_no_lines(tmp_path):
    for path in (tmp_path / "kmsg", tmp_path):
        log = NewKernelLines(path)
        assert log.read() == ()
        log.close()


def test_the_real_one_never_waits():
    log = NewKernelLines()
    log.read()
    log.close()
