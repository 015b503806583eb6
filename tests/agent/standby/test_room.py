"""Whether there is room for a zygote: by what the machine and the control groups leave."""

import pytest

from holdfast.agent.standby.room import Left, left, limit_kib, why_no_room

GIB = 1 << 30


@pytest.fixture
def node(tmp_path):
    """Writes files below a root folder, and returns it."""

    def written(**files):
        group = {"proc/self/cgroup": "0::/pod/job\n", "proc/meminfo": "MemAvailable:    4194304 kB\n"}
        for name, text in {
            **group,
            **{key.replace("__", "/"): value for key, value in files.items()},
        }.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return str(tmp_path)

    return written


def test_without_limits_the_machine_counts(node):
    assert left(node()) == Left(4 * GIB, None)


def test_the_tightest_limit_counts(node):
    pod = "sys/fs/cgroup/pod/"
    files = {
        f"{pod}memory.max": str(3 * GIB),
        f"{pod}memory.current": str(2 * GIB),
        f"{pod}memory.stat": f"inactive_file {GIB // 2}\n",
        f"{pod}job/memory.max": "max\n",
        f"{pod}job/memory.current": "0",
        f"{pod}job/pids.max": "100\n",
        f"{pod}job/pids.current": "60\n",
    }
    assert left(node(**files)) == Left(GIB + GIB // 2, 40)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (Left(2 * GIB, None), ""),
        (Left(2 * GIB, 128), ""),
        (Left(GIB // 2, None), "512 MiB of memory are left, less than 1024 MiB"),
        (Left(2 * GIB, 40), "the control group allows 40 more processes, less than 128"),
    ],
)
def test_why_there_is_no_room(found, why):
    assert why_no_room(found) == why


def test_a_zygote_that_took_too_much_waits_for_more():
    assert why_no_room(Left(2 * GIB, None), 3 * GIB).startswith("2048 MiB of memory are left")
    assert limit_kib(Left(2 * GIB, None), 4 << 20) == 1 << 20
    assert limit_kib(Left(64 * GIB, None), 4 << 20) == 4 << 20
