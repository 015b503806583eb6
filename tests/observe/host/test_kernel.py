"""Memory counters of cgroups v1 and v2 and the kernel's log, from stand-in files."""

from pathlib import Path

import pytest

from holdfast.observe.host.kernel import OomWatch, read_kernel_log


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


def test_the_kernels_log_and_only_what_is_new(tmp_path):
    text = (
        "6,339,5140900,-;Out of memory: Killed process 7 (x)\n SUBSYSTEM=mem\n3,340,5140999,c;two\\x09words\n"
    )
    log = read_kernel_log(write(tmp_path / "kmsg", text))
    assert (log.lines, log.why_not) == ((b"Out of memory: Killed process 7 (x)", b"two\twords"), "")
    assert log.next_sequence == 341
    assert read_kernel_log(tmp_path / "kmsg", since_sequence=340).lines == (b"two\twords",)
    again = read_kernel_log(tmp_path / "kmsg", since_sequence=341)
    assert (again.lines, again.why_not, again.next_sequence) == ((), "", 341)
    assert read_kernel_log(tmp_path / "kmsg", lines_max=1).lines == (b"two\twords",)


def test_why_it_may_not_be_read(tmp_path):
    assert (
        read_kernel_log(tmp_path / "kmsg").why_not
        == f"{tmp_path}/kmsg could not be opened: No such file or directory"
    )
    assert read_kernel_log(tmp_path).why_not == f"{tmp_path} could not be read: Is a directory"


def test_the_real_one_never_waits():
    log = read_kernel_log()
    assert bool(log.why_not) <= (not log.lines)
