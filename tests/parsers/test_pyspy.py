"""Dumps as py-spy 0.4.3 printed them, shortened, and what may be left of one."""

import json

from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.flight.thread_stacks import NATIVE, RankStacks, ThreadStack
from holdfast.parsers.pyspy import as_text, error_in, parse_dumps, parse_json, parse_text

HEAD = "Process 29171: /venv/bin/python t1.py --name x\nPython v3.11.7 (/usr/bin/python3.11)\n\n"
MAIN = """Thread 29171 (active+gil): "MainThread"
    load.<locals>.In.meth (t1.py:7)
    all_reduce (torch/distributed/distributed_c10d.py:3252)
    <module> (t1.py:10)
"""
WORKER = """Thread 29173 (idle): "we "ird" (x)
"
    Thread.run (threading.py:982)
    <lambda> (my jobs (old)/t1.py:3)
"""
LOCALS = """Thread 29171 (idle): "MainThread"
    load (t1.py:8)
        Arguments:
            x: 2
            path: "a b(c):1"
        Locals:
            In: <type at 0x55aa6acea730>
    <module> (t1.py:10)
"""
NATIVE_DUMP = """Thread 0x7F6AF8127000 (active)
    clock_nanosleep (libc.so.6)
    at::native::add(at::Tensor const&, (anonymous namespace)::F) (libtorch_cpu.so)
    operator new (libstdc++.so.6)
    gloo::wait (gloo/transport/pair.cc:120)
    load (t1.py:8)
    <module> (<string>)
    0x7f6af80a71f5 (libc.so.6)
"""
GONE = """Error: Failed to get process executable name. Check that the process is running.

Caused by:
    0: No such file or directory (os error 2)
    1: No such file or directory (os error 2)

Stack backtrace:
   0: <E as anyhow::context::ext::StdError>::ext_context
   1: py_spy::python_process_info::PythonProcessInfo::new
"""
CHILD = """
--------------------------------------------------------------------------------
Process 29180: /venv/bin/python t1.py worker
Python v3.11.7 (/usr/bin/python3.11)
Parent Process 29171: /venv/bin/python t1.py

Thread 29180 (idle): "MainThread"
    child (t1.py:99)
"""


def test_threads_with_the_main_one_first():
    main, worker = parse_text(HEAD + WORKER + MAIN)
    assert (main.thread_id, main.name, main.is_main, main.is_active, main.holds_gil) == (
        29171,
        "MainThread",
        True,
        True,
        True,
    )
    assert main.frames == (
        "t1.py:7 load.<locals>.In.meth",
        "torch/distributed/distributed_c10d.py:3252 all_reduce",
        "t1.py:10 <module>",
    )
    assert (worker.thread_id, worker.is_main, worker.is_active) == (29173, False, False)
    assert worker.frames == ("threading.py:982 Thread.run", "my jobs (old)/t1.py:3 <lambda>")


def test_the_head_names_the_process():
    (dump,) = parse_dumps(HEAD + MAIN)
    assert (dump.pid, dump.command, dump.python) == (29171, "/venv/bin/python t1.py --name x", "3.11.7")


def test_local_variables_are_no_frames():
    assert parse_text(HEAD + LOCALS)[0].frames == ("t1.py:8 load", "t1.py:10 <module>")


def test_native_frames_are_marked():
    (thread,) = parse_text(NATIVE_DUMP)
    assert (thread.thread_id, thread.is_main, thread.is_active) == (0x7F6AF8127000, True, True)
    assert thread.frames == (
        f"libc.so.6{NATIVE}clock_nanosleep",
        f"libtorch_cpu.so{NATIVE}at::native::add(at::Tensor const&, (anonymous namespace)::F)",
        f"libstdc++.so.6{NATIVE}operator new",
        f"gloo/transport/pair.cc{NATIVE}gloo::wait",
        "t1.py:8 load",
        "<string>:??? <module>",
        f"libc.so.6{NATIVE}0x7f6af80a71f5",
    )


def test_who_is_main_where_names_or_numbers_are_missing():
    def main(text):
        return next(one.thread_id for one in parse_text(text) if one.is_main)

    assert main('Process 5: x\nThread 7 (idle): "MainThread"\nThread 5 (idle): "other"\n') == 5
    assert main('Process 5: x\nThread 8 (idle): "other"\nThread 7 (idle): "MainThread"\n') == 7
    assert main("Process 5: x\nThread 0x1F (idle)\nThread 0x2F (idle)\n") == 0x1F


def test_an_error_instead_of_a_dump():
    says = (
        "Failed to get process executable name. Check that the process is running: "
        "No such file or directory (os error 2)"
    )
    assert parse_text(GONE) == parse_text(HEAD + GONE) == ()
    assert error_in(GONE) == error_in(HEAD + GONE) == says
    assert [dump.pid for dump in parse_dumps(GONE + HEAD + MAIN + HEAD + GONE)] == [None, 29171, 29171]
    assert error_in(HEAD + MAIN) == error_in("") == ""


def test_of_several_dumps_the_last_of_the_same_process_counts():
    text = HEAD + MAIN + CHILD + HEAD + LOCALS + HEAD + GONE
    assert [dump.pid for dump in parse_dumps(text)] == [29171, 29180, 29171, 29171]
    assert parse_text(text)[0].frames[0] == "t1.py:8 load"


def test_colours_and_carriage_returns_are_passed_over():
    text = (
        (HEAD + MAIN).replace("29171", "\x1b[33m\x1b[1m29171\x1b[0m").replace("t1.py", "\x1b[36mt1.py\x1b[0m")
    )
    assert parse_text(text.replace("\n", "\r\n")) == parse_text(HEAD + MAIN)


def frame(name, line, file="/job/t1.py", **more):
    return {"name": name, "filename": file, "short_filename": "t1.py", "line": line, "locals": None, **more}


def trace(tid, name, frames, **more):
    return {"pid": 9, "thread_id": 140, "os_thread_id": tid, "thread_name": name, "frames": frames, **more}


def test_json_lists_the_newest_thread_first_and_has_whole_paths():
    document = [
        trace(11, "loader", [], active=True, owns_gil=False),
        trace(9, "MainThread", [frame("load", 88), frame("f", 0)], active=True, owns_gil=True, new_key=1),
        {**trace(12, "MainThread", []), "pid": 12},
    ]
    main, loader = parse_json(json.dumps(document))
    assert (main.thread_id, main.is_main, main.holds_gil) == (9, True, True)
    assert main.frames == ("/job/t1.py:88 load", "/job/t1.py:??? f")
    assert (loader.thread_id, loader.is_main, loader.is_active, loader.holds_gil) == (11, False, True, False)


def test_native_frames_in_json_have_their_library():
    library = "/usr/lib/libc.so.6"
    frames = [
        frame("sleep", 0, library, module=library),
        frame("run", 7, "/job/fast.pyx", module="/job/fast.so"),
    ]
    (thread,) = parse_json(json.dumps([trace(9, None, frames)]).encode())
    assert thread.frames == (f"{library}{NATIVE}sleep", "/job/fast.pyx:7 run")


def test_json_that_is_none():
    for text in (
        "",
        "[",
        "{}",
        "[1, null]",
        '[{"frames": 3}]',
        '[{"pid": "x"}]',
        "[" * 100_000,
        b"\xff",
        "\ud800",
    ):
        assert parse_json(text) == ()
    assert parse_json('[{}, {"frames": 3}]')[0].frames == ()


PIECES = st.sampled_from(
    [HEAD, MAIN, WORKER, LOCALS, NATIVE_DUMP, GONE, CHILD, "Thread 0x (idle)\n", "    f (:1)\n", "    ("]
)


@given(st.lists(PIECES | st.text(max_size=20)).map("".join), st.integers(0, 2000))
def test_text_never_raises_and_names_one_main_thread(text, size):
    for dump in parse_dumps(text[:size]):
        assert sum(thread.is_main for thread in dump.threads) == bool(dump.threads)
    parse_text(text[:size])
    parse_json(text[:size])


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["pid", "thread_id", "frames", "name", "line", "module", "active", "filename"]),
            inner,
        )
    ),
)


@given(VALUES)
def test_json_never_raises(value):
    parse_json(json.dumps([value]))


def test_a_dump_written_as_text_is_read_again():
    frames = (
        "/data/my job/train.py:88 load",
        "/usr/lib/libc.so.6:native clock_nanosleep",
        "/data/train.py:3 <module>",
    )
    thread = ThreadStack(thread_id=7, name="MainThread", is_active=True, frames=frames)
    text = as_text(RankStacks(rank=3, pid=7, threads=(thread,), source="py-spy"))
    (again,) = parse_text(text)
    assert again.frames == frames
    assert (again.thread_id, again.name, again.is_active) == (7, "MainThread", True)
