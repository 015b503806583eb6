"""`holdfast explain`: codes and words, both languages, what is near, and what is not known."""

import json

import pytest

from holdfast.cli.line.command_line import exit_code


@pytest.fixture
def explain(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "100")

    def ask(*words):
        code = exit_code(["explain", *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return ask


def test_a_code_with_what_to_do_and_its_source(explain):
    code, out, _ = explain("Xid", "79")
    assert code == 0
    assert out.startswith("Xid 79")
    assert "xid_79 · action reboot_node" in out
    assert "What to do" in out
    assert "Source" in out


def test_in_chinese(explain):
    code, out, _ = explain("--lang", "zh", "SIGBUS")
    assert code == 0
    assert "处理建议" in out
    assert "/dev/shm" in out


def test_a_bare_number_may_be_several_codes(explain):
    code, out, _ = explain("12")
    assert code == 0
    assert "errno 12" in out
    assert "InfiniBand" in out


def test_words_list_what_is_near(explain):
    code, out, _ = explain("watchdog caught colective")
    assert code == 0
    assert "collective_timeout" in out
    assert "Near" in out


def test_as_json(explain):
    _, out, _ = explain("--json", "exit code 137")
    document = json.loads(out)
    assert document["query"] == "exit code 137"
    assert document["known"] is True
    first = document["meanings"][0]
    assert first["category"] == "process_killed"
    assert {
        "id",
        "score",
        "category",
        "class",
        "action",
        "title",
        "explanation",
        "advice",
        "source",
        "like",
    } == set(first)


def test_what_is_not_known_is_said_so(explain):
    code, out, _ = explain("zzyzx")
    assert code == 1
    assert out.startswith("no known code or message is similar")


def test_no_words_at_all(explain):
    code, _, err = explain("")
    assert code == 2
    assert "give a code or a few words" in err
