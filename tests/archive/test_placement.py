"""The placement of a job, from the lists that its ranks left and its journal."""

import json

import pytest

from cli.journals import START_S, started, submitted, write_job
from holdfast.archive.placement import TopologyUnreadable, read_placement
from holdfast.cli.line.command_line import exit_code
from holdfast.journal.jobdir import StateDir


@pytest.fixture
def job(tmp_path):
    """Two workers with two ranks each; the tensor groups have one rank of each."""
    made = write_job(
        StateDir(tmp_path / "state"), "placed", [submitted(2), *started(START_S + 1, 1, workers=2)]
    )
    groups = {
        "1": {"desc": "TENSOR_MODEL_PARALLEL_GROUP", "backend": "gloo", "ranks": [0, 2]},
        "2": {"desc": "DATA_PARALLEL_GROUP", "backend": "gloo", "ranks": [0, 1]},
    }
    folder = made.worker(1, 0)
    folder.mkdir(parents=True)
    (folder / "rank-0.groups.json").write_text(json.dumps(groups))
    return made


def test_groups_and_findings(job, tmp_path):
    topology = tmp_path / "switches"
    topology.write_text("gpu-03-0 leaf1\ngpu-03-1 leaf2\n")
    found = read_placement(job, topology=topology)
    assert [(group.role, group.ranks) for group in found.groups] == [("data", (0, 1)), ("tensor", (0, 2))]
    assert [one.kind for one in found.findings] == ["tensor-over-nodes"]
    assert found.findings[0].nodes == ("gpu-03-0", "gpu-03-1")
    assert any("no rank of the job runs on this machine" in text for text in found.unknown)
    with pytest.raises(TopologyUnreadable):
        read_placement(job, topology=tmp_path / "missing")


def test_it_is_a_part_of_the_advice(job, tmp_path, capsys):
    words = ["advise", "placed", "--state-dir", str(tmp_path / "state")]
    assert exit_code(words) == 0
    out = capsys.readouterr().out
    assert "Placement" in out and "change: " in out
    assert exit_code([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["placement"]["findings"]
