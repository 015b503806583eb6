"""Lines of the journal whose message stands there as numbers."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.parsers.log_lines.wrapped_json import of_journal, unwrapped, unwrapper_of

XID = "NVRM: Xid (PCI:0000:5d:00): 79, GPU has fallen off the bus."


def record(message, gap=""):
    fields = {"__CURSOR": "s=1;i=2", "__REALTIME_TIMESTAMP": "1927771006000000", "_HOSTNAME": "n3"}
    return json.dumps({**fields, "MESSAGE": message}, separators=(gap + "," + gap, gap + ":" + gap)).encode()


@pytest.mark.parametrize("gap", ["", " "])
def test_numbers_become_the_text_they_are(gap):
    line = record(list(b"\x1b[31m" + XID.encode() + b"\x1b[0m \xff"), gap)
    assert json.loads(of_journal(line))["MESSAGE"] == XID + " \ufffd"
    assert unwrapped(line) == of_journal(line)


def test_text_and_other_lines_stay():
    for line in (record(XID), record(None), b'{"MESSAGE":[999]}', b'{"MESSAGE":[1,', b"MESSAGE"):
        assert of_journal(line) == line


def test_the_form_is_known_by_the_first_lines():
    for gap in ("", " "):
        line = record(list(XID.encode()), gap)
        unwrap = unwrapper_of(record("boot", gap) + b"\n" + line)
        assert unwrap is not None and XID.encode() in unwrap(line)
    assert unwrapper_of(b"step 1\nstep 2\n") is None
    assert unwrapper_of(b'{"message": "x"}\n') is None


@given(st.binary(max_size=60))
def test_whatever_a_journal_holds_is_one_line(message):
    line = of_journal(record(list(message)))
    assert b"\n" not in line
    assert set(json.loads(line)) == {"__CURSOR", "__REALTIME_TIMESTAMP", "_HOSTNAME", "MESSAGE"}
