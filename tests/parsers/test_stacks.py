from hypothesis import given
from hypothesis import strategies as st

from holdfast.parsers.stacks import last_stack

# Three dumps as Python 3.11 wrote them: two threads and the main one; the signal taken by another thread; one thread.
WORKER = b"""Thread 0x00007fde056066c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait
  File "/job/dump.py", line 3 in worker

"""
MAIN = b"""Current thread 0x00007fde06a68b80 (most recent call first):
  File "/job/dump.py", line 14 in rec
  File "/job/\\u8bad\\u7ec3 x.py", line 2 in tr\\xe4ume
  File "/job/dump.py", line 20 in <module>
"""
FIRST = WORKER + WORKER + MAIN
OTHER_TOOK_IT = (
    WORKER.replace(b"Thread", b"Current thread")
    + b"""Thread 0x00007fe9b5686b80 (most recent call first):
  File "/job/dump.py", line 18 in rec
"""
)
ALONE = MAIN.replace(b"14", b"99")


def frames(text):
    stack = last_stack(text, 3)
    return stack and (stack.rank, *stack.frames)


def test_the_main_thread_is_the_last_listed_and_names_are_as_they_were():
    assert frames(FIRST) == (3, "/job/dump.py:14 rec", "/job/训练 x.py:2 träume", "/job/dump.py:20 <module>")


def test_the_signal_may_be_taken_by_another_thread():
    assert frames(OTHER_TOOK_IT) == (3, "/job/dump.py:18 rec")


def test_the_last_dump_of_several_counts():
    assert frames(FIRST + OTHER_TOOK_IT + ALONE)[1] == "/job/dump.py:99 rec"
    assert frames(ALONE + FIRST)[1] == "/job/dump.py:14 rec"
    assert frames(FIRST + b"Fatal Python error: Aborted\n\n" + ALONE)[1] == "/job/dump.py:99 rec"


def test_a_dump_half_written_is_left_for_the_one_before():
    for size in range(1, len(MAIN)):
        text = OTHER_TOOK_IT + MAIN[:size]
        if not text.endswith(b"\n"):
            assert frames(text) == (3, "/job/dump.py:18 rec")


def test_the_only_dump_half_written_gives_its_whole_lines_where_the_main_thread_is_known():
    assert frames(MAIN[:-30]) == (3, "/job/dump.py:14 rec", "/job/训练 x.py:2 träume")
    assert frames(WORKER[:-20]) is None


def test_more_than_a_hundred_threads_hide_the_main_one():
    assert frames(WORKER * 2 + b"...\n") is None
    assert frames(WORKER + MAIN + b"\n...\n")[1] == "/job/dump.py:14 rec"


def test_a_deep_stack_keeps_its_innermost_frames():
    assert len(frames(MAIN + b"  ...\n")) == 4
    assert len(frames(MAIN + b"  <truncated rest of calls>\n")) == 4


def test_lines_that_are_no_frames_are_passed_over():
    text = MAIN.replace(b"(most", b"[python] (most").replace(b"  File", b"  Garbage-collecting\n  File", 1)
    assert len(frames(text)) == 4
    assert frames(b"Current thread 0x01 (most recent call first):\n  File ???, line ??? in f\n") == (
        3,
        "???:??? f",
    )
    assert frames(b"Current thread 0x01 (most recent call first):\n  <no Python frame>\n") is None


def test_nothing_is_no_stack():
    assert frames(b"") is None
    assert frames(b'hello\n  File "x", line 1 in f\n') is None


PIECES = st.sampled_from([WORKER, MAIN, ALONE, b"\n", b"...\n", b"  ...\n", b"\\ud800\\U00ffffff", b"\xff"])


@given(st.lists(PIECES | st.binary(max_size=20)).map(b"".join), st.integers(0, 400))
def test_never_raises(text, size):
    last_stack(text[:size], 0)
    last_stack(b'Current thread 0x1 (most recent call first):\n  File "' + text + b'", line 1 in f\n', 0)
