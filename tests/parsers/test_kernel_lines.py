"""Kills for memory, as several kernels write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.parsers.kernel_lines import OomKill, oom_kills, oom_words

IN_CGROUP = [
    b"[1.2] python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
    (
        b"[1.2] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=task_0,mems_allowed=0-1,oom_memcg=/job,"
        b"task_memcg=/job/a,task=pt_data_worker,pid=629,uid=1001"
    ),
    b"[1.2] Memory cgroup out of memory: Killed process 629 (pt_data_worker) total-vm:14119kB, anon-rss:6kB, UID:0",
    b"[1.3] oom_reaper: reaped process 629 (pt_data_worker), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
]
GLOBAL = (
    b"kernel: oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,global_oom,"
    b"task_memcg=/user.slice,task=python,pid=4242,uid=0"
)


def test_the_lines_of_one_kill_are_one_kill():
    kill = OomKill(pid=629, name="pt_data_worker", is_cgroup=True, memcg="/job/a", line=1)
    assert oom_kills(IN_CGROUP) == (kill,)
    assert oom_words(kill) == (
        "the kernel killed pid 629 (pt_data_worker): the memory limit of its cgroup was reached (/job/a)"
    )


@pytest.mark.parametrize(
    ("line", "pid", "name", "is_cgroup"),
    [
        (GLOBAL, 4242, "python", False),
        (b"Out of memory: Killed process 222 (nginx).", 222, "nginx", False),
        (b"Out of memory: Kill process 222 (python) score 912 or sacrifice child", 222, "python", False),
        (
            b"Out of memory (oom_kill_allocating_task): Killed process 12 (x) total-vm:1kB, anon-rss:1kB",
            12,
            "x",
            False,
        ),
        (b"Out of memory: Killed process 123, UID 48, (httpd).", 123, "httpd", False),
        (b"Memory cgroup out of memory: Killed process 6 (a (b)) total-vm:1kB", 6, "a (b)", True),
        (
            b"Killed process 196 (prog2) total-vm:1460016kB, anon-rss:1414008kB, file-rss:4kB",
            196,
            "prog2",
            None,
        ),
    ],
)
def test_other_kernels(line, pid, name, is_cgroup):
    (kill,) = oom_kills([b"something else", line])
    assert (kill.pid, kill.name, kill.is_cgroup, kill.line) == (pid, name, is_cgroup, 1)
    assert str(pid) in oom_words(kill)
    assert ("cgroup" in oom_words(kill)) == bool(is_cgroup)


def test_an_older_kernel_names_the_cgroup_before_the_victim():
    lines = [b"Task in /job/a killed as a result of limit of /job", b"Killed process 7 (python) total-vm:1kB"]
    assert oom_kills(lines) == (OomKill(pid=7, name="python", is_cgroup=True, memcg="/job/a", line=1),)


def test_a_whole_cgroup():
    lines = [
        b"Tasks in /pods/%s are going to be killed due to memory.oom.group set" % one for one in (b"a", b"b")
    ]
    assert [(kill.pid, kill.memcg) for kill in oom_kills(lines)] == [(0, "/pods/a"), (0, "/pods/b")]
    assert oom_words(oom_kills(lines)[0]).startswith("the kernel killed all processes of /pods/a")


@given(st.lists(st.one_of(st.sampled_from([*IN_CGROUP, GLOBAL]), st.binary(max_size=60)), max_size=20))
def test_never_raises(some):
    assert all(oom_words(kill) for kill in oom_kills(some))


@given(st.binary(max_size=40))
def test_never_raises_on_halves(junk):
    oom_kills([b"oom-kill:constraint=" + junk, b"Killed process " + junk, b"Tasks in " + junk])
