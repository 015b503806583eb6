"""Months of a large job: the classes add up, the same seed gives the same answer, and policies differ as they should."""

import json
from pathlib import Path

import pytest

from holdfast.archive.fleet_figures import mix, rates, repairs
from holdfast.core.costs.classes import NAMES
from holdfast.sim.months.compare import compare
from holdfast.sim.months.faults import Faults
from holdfast.sim.months.plan import (
    Contender,
    Lemons,
    Plan,
    PlanRefused,
    known_contenders,
    parse,
    read,
    read_trace,
    settled,
)
from holdfast.sim.months.run import run
from holdfast.views.fleet.comparison import picture, report
from holdfast.views.fleet.page import html_page
from holdfast.views.fleet.png import draw

SMALL = Plan(gpus=1_024, days=20.0, rate=60.0, spares=16, runs=2, policies=tuple(known_contenders()))
TRACE = Path(__file__).parents[3] / "shared/facts/infinitehbd/fault_trace.json"


def outcome(name, seed=1, **changed):
    given = {"policies": (name,), "gpus": 1_024, "days": 20.0, "rate": 60.0, "spares": 16, **changed}
    world = settled(Plan(**given))
    return run(world, world.contenders[0], seed)


@pytest.mark.parametrize("name", known_contenders())
def test_every_second_is_in_one_class(name):
    found = outcome(name)
    assert abs(sum(found.by_class.values()) / found.wall_s - 1.0) < 1e-6
    assert set(found.by_class) <= {*NAMES, "person"}
    assert 0.0 < found.ettr < 1.0
    assert abs(found.by_class["computing"] / found.wall_s - found.ettr) < 0.01
    assert found.interruptions > 50


def test_the_same_seed_gives_the_same_answer_and_another_one_does_not():
    assert outcome("holdfast", 3) == outcome("holdfast", 3)
    assert outcome("holdfast", 3) != outcome("holdfast", 4)


def test_policies_meet_the_same_faults_and_what_restarts_loses_less():
    found = {one.name: one for one in compare(settled(SMALL)).results}
    assert (
        found["naive"].ettr
        < found["aistudio"].ettr
        < found["holdfast-same-training"].ettr
        < found["holdfast"].ettr
    )
    assert found["modelarts"].ettr <= found["hyperpod"].ettr <= found["holdfast-same-training"].ettr
    assert found["naive"].by_class["person"] > 0.1
    assert found["holdfast"].ettr_low < found["holdfast"].ettr < found["holdfast"].ettr_high
    assert found["modelarts"].rungs["hang-restart"] > 0


def test_a_fleet_without_failures_loses_only_the_start_and_the_saves():
    found = outcome("modelarts", rate=1e-6)
    assert found.interruptions == 0 and found.ettr > 0.97
    assert set(found.by_class) <= {"computing", "checkpointing", "starting", "placing", "stragglers"}


def test_without_spares_a_job_waits_for_repairs():
    found = outcome("holdfast", spares=0)
    assert found.by_class["waiting"] > 0.0


def test_lemons_are_hit_more_often():
    world = settled(Plan(gpus=8_000, lemons=Lemons(count=10, factor=100.0), repeated=0.0))
    faults, at_work = Faults(world, 1), {node: node for node in range(1_000)}
    hit = [faults.node(faults.next(0.0), at_work) for _ in range(2_000)]
    share = sum(node in faults.lemons for node in hit) / len(hit)
    assert 0.35 < share < 0.65  # of 1,000 nodes, ten that count a hundred times


def test_repeats_hit_the_same_nodes():
    world = settled(Plan(gpus=8_000, repeated=0.5))
    faults, at_work, at_s, hit = Faults(world, 1), {node: node for node in range(1_000)}, 0.0, []
    for _ in range(500):
        drawn = faults.next(at_s)
        at_s = drawn.at_s
        hit.append(faults.node(drawn, at_work))
    again = sum(node in hit[:place] for place, node in enumerate(hit))
    assert again > 200


def test_a_policy_of_ones_own_is_simulated_beside_the_known_ones():
    mine = Contender(name="mine", policy="holdfast:max-restarts=128", hang_s=120.0, start_s=60.0)
    found = compare(settled(Plan(gpus=512, days=10.0, rate=60.0, runs=1, policies=("naive", mine))))
    assert [one.name for one in found.results] == ["naive", "mine"]
    assert found.results[1].ettr_low is None  # one run has no interval


def trace(tmp_path, entries):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(entries))
    return path


def fault(node, at, kind):
    return {"node_id": node, "event_time": at, "event_type": f"fault_{kind}", "fault_type": {"Level": "x"}}


def test_a_trace_with_overlapping_and_unfinished_faults_is_fitted_and_reported(tmp_path):
    entries = [fault("a", 1, "start"), fault("a", 1.5, "start"), fault("a", 2, "end"), fault("a", 3, "end")]
    entries += [fault("b", 5, "start"), fault("c", 6, "start"), fault("c", 6.2, "end"), fault("d", 7, "end")]
    path = trace(tmp_path, entries)
    (tmp_path / "plan.yaml").write_text(
        "{trace: trace.json, trace_nodes: 50, gpus: 512, policies: [holdfast]}"
    )
    world = read(tmp_path / "plan.yaml")
    assert any("1 faults overlapped" in note for note in world.notes)
    assert any("1 have no end" in note for note in world.notes)
    assert len(read_trace(path.read_bytes())) == 4 and world.mean_s > 0.0


REFUSED = {
    "rate: nowhere": "rate 'nowhere' is not known",
    "rate: -3": "rate",
    "rate: .nan": "rate",
    "gpus: 0": "gpus",
    "days: 1e9": "days",
    "mix: {device: 0.5}": "add up to 0.5",
    "policies: [nobody]": "policy 'nobody' is not known",
    "policies: [naive, naive]": "each name once",
    "policies: [{hang_s: 5}]": "needs a name",
    "policies: [{name: x, policy: 'modelarts:nothing=1'}]": "modelarts has no setting",
    "policies: [{name: x, settings: {max_restart: 1}}]": "there is no setting 'max_restart'",
    "trace: none.json": "cannot be read",
    "polices: [naive]": "polices",
    "[1, 2": "not valid YAML",
}


@pytest.mark.parametrize("text", REFUSED)
def test_plans_of_nonsense_are_refused(text, tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    with pytest.raises(PlanRefused, match=REFUSED[text]):
        read(path)


def test_damaged_and_empty_traces_are_refused(tmp_path):
    for text, why in (("no json", "not a valid trace of faults"), ("[]", "too few faults")):
        (tmp_path / "trace.json").write_text(text)
        with pytest.raises(PlanRefused, match=why):
            settled(parse(b"trace: trace.json"), tmp_path)
    ends = [fault("a", 5, "start"), fault("b", 1, "start"), fault("b", 9, "end")]
    with pytest.raises(PlanRefused, match="names 2 nodes"):
        settled(parse(b"{trace: trace.json, trace_nodes: 1}"), trace(tmp_path, ends).parent)


@pytest.mark.skipif(not TRACE.exists(), reason=f"{TRACE} is not here")
def test_the_published_trace_is_read_whole():
    assert len(read_trace(TRACE.read_bytes())) == 584


def test_the_figures_of_the_package_are_whole():
    assert all(one.source and one.per_1000_node_days > 0.0 for one in rates().values())
    assert len(repairs().quantiles_h) == 41 and list(repairs().quantiles_h) == sorted(repairs().quantiles_h)
    assert abs(mix().device + mix().node + mix().software + mix().hang + mix().switch - 1.0) < 1e-9
    assert all(one.who for one in known_contenders().values())


def test_the_table_and_both_pictures(tmp_path):
    found = compare(settled(Plan(gpus=512, days=5.0, rate=60.0, runs=2, policies=("naive", "holdfast"))))
    lines = [line.text for line in report("title", ("said",), found.results)]
    assert lines[:2] == ["title", "said"] and any("holdfast" in line for line in lines)
    drawn = picture("title", ("said",), found.results)
    for bar in drawn.bars:
        assert abs(sum(share for _, share in bar.parts) - 1.0) < 1e-6
    page = html_page(drawn)
    assert "<svg" in page and "<script" not in page and "http" not in page.replace("http-equiv", "")
    draw(tmp_path / "bars.png", drawn)
    assert (tmp_path / "bars.png").read_bytes().startswith(b"\x89PNG")
