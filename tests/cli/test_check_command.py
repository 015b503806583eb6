"""`holdfast check` as a person and as a program call it."""

import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.model.checks import FAIL, PASS, SKIP, WARN, Finding, NodeChecks, Outcome
from holdfast.views.checks.formats import exported

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))


@pytest.fixture
def check(tmp_path):
    def run(*words, code=0, **env):
        done = subprocess.run(
            [HOLDFAST, "check", "--state-dir", tmp_path / "state", *words],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, **env},
            timeout=200,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    return run


def test_one_check_for_people_and_for_programs(check):
    assert "host-kernel" in check("--only", "host-kernel").stdout
    document = json.loads(check("--only", "host-kernel", "--json").stdout)
    (entry,) = document["checks"]
    assert entry["name"] == "host-kernel"
    assert {"area", "cost", "status", "measured", "expected", "whence", "advice", "advice_zh"} <= set(entry)


def test_the_list_names_each_check_with_its_area(check):
    listed = json.loads(check("--list", "--suite", "all", "--json").stdout)
    names = [one["name"] for one in listed]
    assert len(names) == len(set(names))
    assert all(one["name"].startswith(f"{one['area']}-") for one in listed)
    assert all(one["what"] and one["what_zh"] for one in listed)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--suite", "boo"), "not one of boot, troubleshoot"),
        (("--only", "gpu-ec"), "there is no check and no area 'gpu-ec'"),
        (("--format", "xml"), "not one of text, nagios"),
        (("--timeout", "soon"), "soon"),
        (("--option", "gpu-burn"), "is not CHECK.KEY=VALUE"),
        (("--nodes", "a", "--via", "ssh a"), "{node}"),
    ],
)
def test_what_cannot_be_meant_is_refused(check, words, said):
    assert said in check(*words, code=2).stderr


def test_what_was_learned_is_shown_and_forgotten(check, tmp_path):
    assert "this node has no baseline yet" in check("--baseline", "show").stdout
    folder = tmp_path / "state/baseline"
    folder.mkdir(parents=True)
    (folder / f"{socket.gethostname()}.json").write_text(
        '{"facts": {"gpu:165": {"pcie width": 16}}, "at_s": {"gpu:165": 100.0}}'
    )
    assert "pcie width = 16" in check("--baseline", "show").stdout
    check("--baseline", "reset")
    assert json.loads(check("--baseline", "show", "--json").stdout) == {"facts": {}, "at_s": {}}


def test_a_torn_file_of_what_was_learned_is_said(check, tmp_path):
    folder = tmp_path / "state/baseline"
    folder.mkdir(parents=True)
    (folder / f"{socket.gethostname()}.json").write_text('{"facts": {"gpu')
    assert "cannot be read" in check("--baseline", "show", code=1).stderr
    assert (
        check("--only", "host-kernel").stderr.count("`holdfast check --baseline reset`") == 2
    )  # when read, and when to be changed
    check("--baseline", "reset")


def test_nodes_are_asked_side_by_side_and_one_that_is_dead_is_named(check, tmp_path):
    reach = tmp_path / "reach"
    reach.write_text(
        f'#!/bin/sh\nif [ "$1" = dead ]; then echo no route >&2; exit 255; fi\nshift 2\nexec {HOLDFAST} "$@"\n'
    )
    reach.chmod(reach.stat().st_mode | stat.S_IXUSR)
    done = check("--nodes", "a,dead,b", "--via", f"{reach} {{node}}", "--only", "host-kernel", "--json")
    document = json.loads(done.stdout)
    assert document["status"] == WARN
    assert [node["node"] for node in document["nodes"]] == ["a", "dead", "b"]
    assert "no route" in document["nodes"][1]["why_not"]
    assert [one["node"] for one in document["checks"] if one["name"] == "host-kernel"] == ["a", "b"]


def test_a_node_that_never_answers(check, tmp_path):
    reach = tmp_path / "reach"
    reach.write_text("#!/bin/sh\nexec sleep 1000\n")
    reach.chmod(0o755)
    done = check(
        "--nodes", "a", "--via", f"{reach} {{node}}", "--only", "host-kernel", "--timeout", "1s", "--json"
    )  # fmt: skip
    assert "did not respond within" in json.loads(done.stdout)["nodes"][0]["why_not"]


@pytest.mark.parametrize(
    ("status", "codes"), [(PASS, (0, 0, 0)), (WARN, (1, 0, 0)), (FAIL, (2, 1, 1)), (SKIP, (3, 0, 2))]
)
def test_lines_and_exit_codes_of_others(status, codes):
    finding = Finding(status=status, device="0000:5d:00.0", why="a row | cannot be remapped " * 5)
    nodes = [
        NodeChecks(
            node="a", outcomes=(Outcome(check="gpu-x", area="gpu", status=status, findings=(finding,)),)
        )
    ]
    for name, code in zip(("nagios", "slurm-healthcheck", "npd"), codes, strict=True):
        got, text = exported(name, nodes)
        assert got == code
        assert "\n" not in text
        if name == "npd":
            assert len(text) <= 80
        if name == "nagios":
            assert text.count("|") == 1
