"""Tracebacks in logs of one rank and of many: whose, what, where."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.parsers.tracebacks import FOUND_MAX, split_prefix, tracebacks

PLAIN = """\
step 1 loss 0.5
Traceback (most recent call last):
  File "/home/user/train.py", line 20, in <module>
    main()
  File "/home/user/train.py", line 9, in step
    x.view(3)
    ^^^^^^^^^
  File "/opt/venv/lib/python3.11/site-packages/torch/_tensor.py", line 5, in view
    return f(x)
RuntimeError: shape '[3]' is invalid
  of size 4
step 2 loss 0.4
"""

CHAINED = """\
Traceback (most recent call last):
  File "/home/user/data.py", line 3, in load
    open(path)
FileNotFoundError: [Errno 2] No such file or directory: 'a'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/home/user/train.py", line 8, in <module>
    load()
ValueError
"""


def lines(text: str) -> list[bytes]:
    return text.encode().splitlines()


def prefixed(prefix: str, text: str) -> list[bytes]:
    return [f"{prefix}{line}".encode() for line in text.splitlines()]


def test_one_rank():
    (found,) = tracebacks(lines(PLAIN))
    assert (found.type, found.message) == ("RuntimeError", "shape '[3]' is invalid\n  of size 4")
    assert found.frame == "/opt/venv/lib/python3.11/site-packages/torch/_tensor.py:5 view"
    assert found.user_frame == "/home/user/train.py:9 step"
    assert (found.first_line, found.last_line, found.rank) == (1, 10, None)


def test_a_chain_is_one_traceback_with_its_first_and_last_exception():
    (found,) = tracebacks(lines(CHAINED))
    assert (found.first_type, found.type, found.message) == ("FileNotFoundError", "ValueError", "")
    assert found.user_frame == "/home/user/train.py:8 <module>"
    (found,) = tracebacks(prefixed("[rank3]: ", CHAINED))
    assert (found.first_type, found.rank, found.last_line) == ("FileNotFoundError", 3, 10)


def test_prefixes_say_whose_it_is():
    for prefix, rank in (
        ("[rank2]: ", 2),
        ("[Rank 2] ", 2),
        ("[default2]:", 2),
        ("[default2]:[rank2]: ", 2),
        ("2: ", 2),
        ("2026-11-20 21:45:36,123 [rank12]: ", 12),
        ("2026-11-20T21:45:36.123456789Z stderr F [rank2]: ", 2),
        ("[2026-11-20 21:45:36] ", None),
        ("worker-0 | ", None),
    ):
        (found,) = tracebacks(prefixed(prefix, PLAIN))
        assert (found.rank, found.type, found.user_frame) == (
            rank,
            "RuntimeError",
            "/home/user/train.py:9 step",
        ), prefix


def test_interleaved_ranks_are_told_apart_though_times_differ():
    one, two = prefixed("[rank1]: ", PLAIN), prefixed("[rank0]: ", CHAINED)
    mixed = [line for place in range(12) for line in (*one[place : place + 1], *two[place : place + 1])]
    timed = [b"2026-11-20 21:45:%02d " % place + line for place, line in enumerate(mixed)]
    for text in (mixed, timed):
        found = {one.rank: one for one in tracebacks(text)}
        assert (found[1].type, found[0].type, found[0].first_type) == (
            "RuntimeError",
            "ValueError",
            "FileNotFoundError",
        )


def test_lines_of_others_and_a_cut_end():
    text = PLAIN.replace("    main()\n", "INFO: eating\nepoch 3 of 4\n    main()\n")
    assert tracebacks(lines(text))[0].type == "RuntimeError"
    assert tracebacks(lines(PLAIN)[:5]) == ()
    two = tracebacks(lines(PLAIN) * 2)
    assert [one.first_line for one in two] == [1, 13]
    assert len(tracebacks(lines(PLAIN) * (FOUND_MAX + 5))) == FOUND_MAX


def test_colours_are_no_part_of_it():
    (found,) = tracebacks(lines(PLAIN.replace("RuntimeError", "\x1b[1;35mRuntimeError\x1b[0m")))
    assert found.type == "RuntimeError"


def test_the_indent_of_the_rest_is_kept():
    assert split_prefix('[rank1]:   File "a"')[1] == '  File "a"'
    assert split_prefix("    x = 1")[1] == "    x = 1"


PIECES = [*lines(PLAIN), *lines(CHAINED), *prefixed("[rank1]: ", CHAINED), b"[rank", b"\xff\xfe", b"1: ", b""]


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=60)), max_size=40))
def test_never_raises(some):
    for found in tracebacks(some):
        assert 0 <= found.first_line <= found.last_line < len(some)
        assert found.type
