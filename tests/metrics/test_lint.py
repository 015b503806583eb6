"""Which rules can never fire on a real Prometheus, and why."""

import json

import pytest

from core.metrics.test_ledger import START, heard
from holdfast.cli.line.command_line import exit_code
from holdfast.core.metrics.exposition import written
from holdfast.core.metrics.job_samples import JobFacts, job_samples
from holdfast.core.metrics.lint import Has, judged
from holdfast.core.metrics.node_samples import NodeFacts, node_samples
from holdfast.core.metrics.rule_files import every_rule
from holdfast.metrics.rule_store import package_rules
from metrics.dcgm import NEW, OLD, metrics, played
from metrics.servers import Played, free_port, prometheus, text, wait_for_series

BOOK = package_rules()


def linted(url, capsys):
    capsys.readouterr()
    code = exit_code(["rules", "lint", "--prometheus", url, "--json"])
    told = json.loads(capsys.readouterr().out)["rules"]
    assert len(told) == len(every_rule(BOOK)), "0 rules that cannot be judged"
    assert code == (0 if all(one["can_fire"] for one in told) else 1)
    return {one["rule"]: one for one in told}


def why(told, rule):
    return "; ".join(told[rule]["why"])


def holdfast_text(node="node-1"):
    ledger = heard(*START)
    job = job_samples(ledger.state, ledger.now(150.0), JobFacts(engine="local", version="1"))
    return written(
        [*job, *node_samples(NodeFacts(job="llama", node=node, version="1"))], open_metrics=False
    ).decode()


@pytest.mark.parametrize("names", [OLD, NEW])
def test_what_a_default_exporter_allows(tools, started, tmp_path, capsys, names):
    """Without the counters that dcgm-exporter leaves out by default."""
    exporter = started(Played(played(names=names, gpu_sm=None)))
    server = started(prometheus(tmp_path, [exporter.port]))
    wait_for_series(server.url, 'count_over_time({__name__=~"DCGM_FI_DEV_GPU_UTIL.*"}[1m]) > 2', 16)
    told = linted(server.url, capsys)
    for rule in (
        "GpuMemoryNearlyFull",
        "GpuTemperatureHigh",
        "GpuPowerZero",
        "GpuImbalanceInNode",
        "GpuSilentFirst",
    ):
        assert told[rule]["can_fire"], told[rule]
    assert "commented out in default-counters.csv" in why(told, "GpuBusyWithoutWork")
    assert "add field 153" in why(told, "GpuTemperatureMarginGone")
    assert "no series of node_exporter: it is not running" in why(told, "RdmaPortDown")
    assert "no series of Holdfast: run jobs with --metrics-address" in why(told, "JobHangs")
    assert told["GpuXid"]["can_fire"]
    assert any("the rule does not detect a repeated Xid" in note for note in told["GpuXid"]["notes"])
    assert any("has not loaded it" in note for note in told["GpuXid"]["notes"])


def test_nodes_of_agents_and_of_gpus_must_meet(tools, started, tmp_path, capsys):
    exporter = started(Played(played(hosts=("ip-10-0-0-1",))))
    holdfast = started(Played(text(holdfast_text("node-1"))))
    server = started(prometheus(tmp_path, [exporter.port, holdfast.port]))
    wait_for_series(server.url, "holdfast_agent_info")
    wait_for_series(server.url, "DCGM_FI_DEV_GPU_UTIL")
    told = linted(server.url, capsys)
    assert "no agent node name equals a GPU Hostname" in why(told, "NodeImbalanceInJob")
    for rule in ("JobHangs", "JobFailed", "IncidentFound", "LogSilent", "StragglerFound"):
        assert told[rule]["can_fire"], told[rule]


def test_nan_blank_and_missing_labels(tools, started, tmp_path, capsys):
    plain = (
        "\n".join(line.partition("{")[0] + " 1" for line in metrics(hosts=("n",), gpus=1).splitlines()) + "\n"
    )
    broken = plain.replace("DCGM_FI_DEV_POWER_USAGE 1", "DCGM_FI_DEV_POWER_USAGE NaN").replace(
        "DCGM_FI_DEV_GPU_TEMP 1", "DCGM_FI_DEV_GPU_TEMP 9223372036854775794"
    )
    server = started(prometheus(tmp_path, [started(Played(text(broken))).port]))
    wait_for_series(server.url, "DCGM_FI_DEV_GPU_UTIL")
    told = linted(server.url, capsys)
    assert "has no number: it is NaN, blank" in why(told, "GpuPowerZero")
    assert "has no number: it is NaN, blank" in why(told, "GpuTemperatureHigh")
    assert "has no label Hostname" in why(told, "GpuImbalanceInNode")


def test_rules_that_are_loaded_and_one_whose_evaluation_fails(tools, started, tmp_path, capsys):
    assert exit_code(["rules", "write", str(tmp_path / "rules")]) == 0
    exporter = started(Played(played()))
    server = started(prometheus(tmp_path, [exporter.port], rules=str(tmp_path / "rules" / "*.rules.yml")))
    wait_for_series(server.url, "holdfast:alert_rule_known", 60)
    told = linted(server.url, capsys)
    assert told["AlertRuleWithoutSeries"]["can_fire"]
    assert not any("not loaded" in note for note in told["GpuPowerZero"]["notes"])


def test_everything_there_everything_can_fire():
    names = frozenset(name.name for series in BOOK.series.values() for name in series.names) | {
        need for rule in every_rule(BOOK) for need in rule.needs if need not in BOOK.series
    }
    labels = {label: names for label in ("Hostname", "UUID", "job_name", "node")}
    loaded = {rule.name: "" for rule in every_rule(BOOK)}
    has = Has(names=names, with_numbers=names, labelled=labels, samples={}, meets=True, loaded=loaded)
    assert [one for one in judged(BOOK, has) if not one.can_fire or one.notes] == []


def test_a_series_that_is_scraped_too_rarely():
    (name,) = (one.name for one in BOOK.series["roce_slow_restarts"].names[:1])
    has = Has(
        names=frozenset([name]),
        with_numbers=frozenset([name]),
        labelled={},
        samples={(name, "5m"): 1},
        meets=None,
        loaded={"RoceSlowRestart": "many-to-many matching not allowed"},
    )
    (one,) = (one for one in judged(BOOK, has) if one.rule == "RoceSlowRestart")
    assert one.why == (
        f"{name} is scraped too rarely: 1 sample in 5m, and 2 are needed",
        "its evaluation fails on this Prometheus: many-to-many matching not allowed",
    )


def test_a_prometheus_that_is_not_there(capsys):
    assert exit_code(["rules", "lint", "--prometheus", f"http://127.0.0.1:{free_port()}"]) == 2
    assert "cannot be reached" in capsys.readouterr().err
    assert exit_code(["rules", "lint"]) == 2
