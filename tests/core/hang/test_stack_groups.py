import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.core.hang.culprits import place_of
from holdfast.core.hang.stack_groups import grouped, python_frames, ranges, where_native
from holdfast.model.flight.thread_stacks import RankStacks, ThreadStack

WAIT = (
    "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:3252 all_reduce",
    "/venv/lib/python3.11/site-packages/torch/distributed/c10d_logger.py:83 _exception_logger.<locals>.wrapper",
    "/job/train.py:40 backward",
    "/job/train.py:43 <module>",
)
LOAD = ("/job/data.py:12 Loader.load", "/job/train.py:43 <module>")
LIBC, PYTHON = "/usr/lib/libc.so.6:native ", "/usr/lib/libpython3.11.so.1.0:native "
TORCH = "/venv/torch/lib/libtorch_cpu.so:native "


def rank(number, frames, *, state="S", channel="futex_wait_queue", others=(), **more):
    threads = (ThreadStack(is_main=True, frames=frames), *(ThreadStack(frames=other) for other in others))
    return RankStacks(
        rank=number, pid=1, threads=threads, source="py-spy", state=state, wait_channel=channel, **more
    )


def test_outliers_come_first():
    waiting = [rank(number, WAIT) for number in (6, 0, 1, 2, 4, 7, 8)]
    odd = [rank(3, LOAD, channel="hrtimer_nanosleep"), rank(5, WAIT[2:], state="R")]
    groups = grouped([*waiting, *odd])
    assert [(ranges(group.ranks), group.doing) for group in groups] == [
        ("3", "sleeps"),
        ("5", "runs"),
        ("0-2,4,6-8", "waits-for-ranks"),
    ]
    assert [place_of(group.own_frame) for group in groups] == [
        "data.py:12 in Loader.load",
        "train.py:40 in backward",
        "train.py:40 in backward",
    ]
    assert groups[2].inner_frame == groups[2].frames[0] == WAIT[0]


def test_what_makes_stacks_equal():
    elsewhere = (*WAIT[:2], "/job/train.py:41 backward", WAIT[3])
    by_faulthandler = (WAIT[0], WAIT[1].replace("_exception_logger.<locals>.", ""), *WAIT[2:])
    one = [rank(0, WAIT), rank(1, by_faulthandler)]
    assert len(grouped(one)) == 1
    assert len(grouped([*one, rank(2, elsewhere)])) == 2
    assert len(grouped([*one, rank(2, elsewhere)], by_line=False)) == 1
    assert len(grouped([*one, rank(2, WAIT, state="R")])) == 1
    assert len(grouped([*one, rank(2, WAIT, state="T")])) == 2


def test_native_frames_count_where_all_ranks_have_them():
    def native(number, *inner):
        return replace(rank(number, (*inner, f"{LIBC}0x7f{number:04x}", *WAIT)), source="native")

    assert [group.ranks for group in grouped([native(0), native(1), native(2, f"{LIBC}read")])] == [
        (2,),
        (0, 1),
    ]
    (group,) = grouped([rank(0, WAIT), native(1), native(2, f"{LIBC}read")])
    assert (group.ranks, group.example.rank, len(group.frames)) == ((0, 1, 2), 1, 5)


def test_other_threads_count_when_they_are_asked_for():
    ranks = [rank(0, WAIT, others=[LOAD, WAIT]), rank(1, WAIT, others=[WAIT, LOAD]), rank(2, WAIT)]
    assert [group.ranks for group in grouped(ranks)] == [(0, 1, 2)]
    assert [group.ranks for group in grouped(ranks, all_threads=True)] == [(2,), (0, 1)]


def test_blocked_ranks_are_recognised_by_the_kernel():
    blocked = [
        RankStacks(rank=number, pid=1, source="kernel", state="D", wait_channel=channel)
        for number, channel in enumerate(["nfs_wait", "nfs_wait", "io_schedule"])
    ]
    nothing = RankStacks(rank=9, pid=1, why_not="the process has ended", state="X")
    groups = grouped([*blocked, nothing])
    assert [(group.ranks, group.doing, group.wait_channel) for group in groups] == [
        ((2,), "blocked", "io_schedule"),
        ((0, 1), "blocked", "nfs_wait"),
    ]
    assert groups[0].own_frame == "" and groups[0].frames == ()


@pytest.mark.parametrize(
    ("state", "channel", "doing"),
    [
        ("R", "", "runs"),
        ("S", "do_poll", "waits"),
        ("S", "hrtimer_nanosleep", "sleeps"),
        ("T", "do_signal_stop", "stopped"),
        ("t", "ptrace_stop", "traced"),
        ("D", "io_schedule", "blocked"),
        ("?", "", "unknown"),
    ],
)
def test_what_a_group_does(state, channel, doing):
    assert grouped([rank(0, LOAD, state=state, channel=channel)])[0].doing == doing


IMPORTS = (
    "<frozen importlib._bootstrap>:241 _call_with_frames_removed",
    "<frozen importlib._bootstrap_external>:940 exec_module",
    "/job/train.py:6 <module>",
)
SITE = "/venv/lib/python3.11/site-packages"


@pytest.mark.parametrize(
    ("inner", "doing"),
    [
        ((f"{SITE}/torch/distributed/fsdp/_flat_param.py:33 <module>",), "runs"),
        (
            (
                f"{SITE}/torch/distributed/tensor/_ops/utils.py:41 wrapper",
                f"{SITE}/torch/distributed/tensor/_ops/_pointwise_ops.py:580 <module>",
            ),
            "runs",
        ),
        ((*WAIT[:2], "/job/setup.py:3 <module>"), "waits-for-ranks"),
        ((*WAIT[:2], "/job/torch/setup.py:3 <module>"), "waits-for-ranks"),
    ],
)
def test_who_imports_torch_distributed_does_not_wait_for_ranks(inner, doing):
    assert grouped([rank(0, (*inner, *IMPORTS), state="R", channel="")])[0].doing == doing


def test_native_frames_do_not_name_the_users_line():
    (group,) = grouped([rank(0, (f"{LIBC}clock_nanosleep", f"{PYTHON}time_sleep", *LOAD))])
    assert (group.own_frame, group.inner_frame) == (LOAD[0], LOAD[0])
    assert group.frames[0] == f"{LIBC}clock_nanosleep"
    assert python_frames(group.frames) == LOAD


@pytest.mark.parametrize(
    ("innermost", "where"),
    [
        ((), "interpreter"),
        ((f"{PYTHON}list_sort",), "interpreter"),
        ((f"{LIBC}__memcpy_avx_unaligned", f"{PYTHON}bytes_concat"), "interpreter"),
        (("/usr/bin/python3.11:native _PyEval_EvalFrameDefault",), "interpreter"),
        ((f"{TORCH}at::native::add(at::Tensor const&)",), "library"),
        ((f"{LIBC}__memmove_evex", f"{TORCH}at::copy_"), "library"),
        ((f"{LIBC}clock_nanosleep", f"{PYTHON}time_sleep"), "kernel"),
        ((f"{LIBC}__futex_abstimed_wait_common", f"{LIBC}pthread_cond_wait@@GLIBC_2.3.2"), "kernel"),
        ((f"{LIBC}__poll", f"{TORCH}gloo::wait"), "kernel"),
        ((f"{LIBC}epoll_wait",), "kernel"),
        (("/lib/libpthread.so.0:native __lll_lock_wait",), "kernel"),
        (("libcuda.so.1:native 0x7f00",), "library"),
    ],
)
def test_where_the_innermost_native_frame_is(innermost, where):
    main = ThreadStack(is_main=True, is_active=True, frames=(*innermost, *LOAD, f"{LIBC}0x7f226"))
    assert where_native([main]) == where


def test_a_thread_that_does_not_run_waits_in_the_kernel_whatever_its_function_is_called():
    frames = (f"{LIBC}0x7fcaf04a3e96", f"{PYTHON}PyThread_acquire_lock_timed", *LOAD)
    assert where_native([ThreadStack(is_main=True, frames=frames)]) == "kernel"


def test_without_native_frames_it_is_unknown():
    assert where_native([]) == where_native([ThreadStack(is_main=True, frames=LOAD)]) == "unknown"
    assert where_native([ThreadStack(frames=(f"{LIBC}read",))]) == "unknown"


def test_ranges_of_ranks():
    assert ranges([7, 0, 1, 2, 3, 5, 5]) == "0-3,5,7"
    assert ranges([]) == "" and ranges([4]) == "4"


def test_sixteen_thousand_ranks_are_grouped_within_a_second():
    ranks = [
        rank(number, tuple(list(WAIT) * 8) if number % 1000 else (f"/job/x.py:{number} f", *LOAD))
        for number in range(16_384)
    ]
    before_s = time.thread_time()
    groups = grouped(ranks, all_threads=True)
    assert time.thread_time() - before_s < 1.0
    assert len(groups) == 18 and len(groups[-1].ranks) == 16_384 - 17


FRAMES = st.lists(st.sampled_from([*WAIT, *LOAD, f"{LIBC}read", "", " ", "x"]) | st.text(max_size=9)).map(
    tuple
)


@given(st.lists(st.tuples(FRAMES, st.sampled_from("RSDTtZX?I")), max_size=20), st.booleans())
def test_each_rank_is_in_one_group(stacks, by_line):
    ranks = [rank(number, frames, state=state) for number, (frames, state) in enumerate(stacks)]
    found = [one for group in grouped(ranks, by_line=by_line) for one in group.ranks]
    assert sorted(found) == list(range(len(stacks)))
    for one in ranks:
        where_native(one.threads)
