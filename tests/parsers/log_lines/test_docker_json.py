"""What Docker keeps of a container's output, as the container wrote it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.parsers.log_lines.docker_json import is_docker_json, unwrapped

TIME = "2031-05-06T08:00:01.5Z"


def kept(log, **more):
    return json.dumps({"log": log, "stream": "stderr", "time": TIME, **more}).encode()


def test_quotes_colours_and_letters_are_as_they_were_written():
    assert unwrapped(kept('KeyError: "w"\n')) == f'{TIME} KeyError: "w"'.encode()
    assert unwrapped(kept("\x1b[31m步 3\x1b[0m\n")) == f"{TIME} \x1b[31m步 3\x1b[0m".encode()
    assert unwrapped(kept("\r 3%\r 4%\n")) == f"{TIME}   3%  4%".encode()


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"step 1",
        b'{"log": 3, "time": "x"}',
        b'{"log": "cut o',
        b'{"message": "x", "time": "y"}',
        b"[" * 9000,
    ],
)
def test_other_lines_are_left_alone(line):
    assert unwrapped(line) == line
    assert not is_docker_json(line + b"\n")


def test_a_log_is_known_by_its_first_lines():
    assert is_docker_json(kept("one\n") + b"\n" + kept("two\n", attrs={"a": "b"}) + b"\n")
    assert is_docker_json(kept("one\n"))
    assert not is_docker_json(kept("one\n") + b"\nstep 1\n")


@given(st.text())
def test_one_line_stays_one_line(log):
    told = unwrapped(kept(log))
    assert b"\n" not in told
    assert b"\r" not in told
    assert told.startswith(TIME.encode())
