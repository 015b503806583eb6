"""The alert rules: promtool takes them, each fires and does not fire when it must, and each condition of the handbooks is one."""

import json
import os
import re
import subprocess

import pytest
import yaml
from msgspec.structs import replace

from holdfast.cli.line.command_line import exit_code
from holdfast.core.metrics.promql import UnknownSeries, expanded, metric_names
from holdfast.core.metrics.rule_files import KNOWN, every_rule, operator_form, promtool_tests, rule_file
from holdfast.core.metrics.table import series_names
from holdfast.core.metrics.yaml_text import yaml_text
from holdfast.metrics.rule_store import package_rules

BOOK = package_rules()
RULES = every_rule(BOOK)
# What the platforms' handbooks list, and which rules stand for it.
CONDITIONS = {
    "GPU memory > 0.9 for 2 min": ["GpuMemoryNearlyFull"],
    "temperature against its margin": ["GpuTemperatureMarginGone", "GpuTemperatureNearSlowdown"],
    "temperature > 85 °C for 2 min": ["GpuTemperatureHigh"],
    "power 0 for 2 min": ["GpuPowerZero"],
    "vGPU memory > 0.9": ["VirtualGpuMemoryNearlyFull"],
    "CPU and memory against limits": [
        "ContainerCpuAtLimit",
        "ContainerMemoryAtLimit",
        "NodeCpuFull",
        "NodeMemoryFull",
    ],
    "utilisation high with SM low": ["GpuBusyWithoutWork"],
    "SM high with tensor low": ["GpuSpinsWithoutTensorWork"],
    "imbalance between ranks": ["GpuImbalanceInNode", "NodeImbalanceInJob"],
    "NIC slow restart": ["RoceSlowRestart"],
    "port down and flap": ["RdmaPortDown", "RdmaLinkDown", "RdmaPortFlaps", "NicDown", "NicFlaps"],
    "Xid seen": ["GpuXid"],
    "link downgrade": [
        "GpuPcieLinkNarrow",
        "GpuPcieLinkSlow",
        "PciLinkNarrowed",
        "RdmaLinkDegraded",
        "NicDegraded",
    ],
    "ECC and row remap pending": ["GpuEccUncorrectable", "GpuRowRemapPending", "GpuRowRemapFailed"],
    "first worker to go silent": ["AgentSilentFirst", "GpuSilentFirst"],
    "log silence > 5 min": ["LogSilent"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("rules")
    assert exit_code(["rules", "write", str(made)]) == 0
    return made


def promtool(*words, cwd):
    """It lives for seconds: to collect garbage before it needs much memory is a quarter of its CPU."""
    env = {**os.environ, "GOGC": "off", "GOMEMLIMIT": "1GiB"}
    return subprocess.run(
        ["promtool", *map(str, words)], capture_output=True, text=True, cwd=cwd, env=env, check=False
    )


def test_promtool_takes_every_rule(tools, folder):
    files = sorted(folder.glob("*.rules.yml"))
    done = promtool("check", "rules", *files, cwd=folder)
    assert done.returncode == 0, done.stderr
    counts = [int(count) for count in re.findall(r"SUCCESS: (\d+) rules found", done.stdout)]
    assert sum(counts) == 2 * len(RULES) - 1  # each has a recording rule, but the one about them


@pytest.mark.parametrize("group", [group.name for group in BOOK.groups])
def test_every_rule_fires_and_does_not_fire(tools, folder, group):
    done = promtool("test", "rules", f"tests/holdfast-{group}.test.yml", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_tests_would_find_a_rule_that_never_fires_and_one_that_always_does(tools, tmp_path):
    group = next(group for group in BOOK.groups if group.name == "gpu")
    for expr in ("$gpu_power < -1", "$gpu_power > -1"):
        rules = tuple(replace(rule, expr=expr) for rule in group.rules if rule.name == "GpuPowerZero")
        broken = replace(group, rules=rules)
        (tmp_path / "r.yml").write_text(yaml_text(rule_file(broken, BOOK)))
        (tmp_path / "t.yml").write_text(yaml_text(promtool_tests(broken, BOOK, ["r.yml"])))
        done = promtool("test", "rules", "t.yml", cwd=tmp_path)
        assert done.returncode == 1
        assert "GpuPowerZero" in done.stdout + done.stderr


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_is_whole(rule):
    assert rule.fires and rule.quiet, "one case that fires, and one that does not"
    assert rule.says and rule.advice and rule.source
    asked = metric_names(expanded(rule.expr, BOOK.series))
    needed = set()
    for need in rule.needs:
        for one in need.split("|"):
            needed |= {name.name for name in BOOK.series[one].names} if one in BOOK.series else {one}
    optional = {name.name for name in BOOK.series["gpu_memory_reserved"].names}
    assert asked - optional == needed - {"holdfast:alert_rule_known"} | (needed & asked), (
        "needs are what it asks for"
    )


def test_names_are_said_once():
    assert len({rule.name for rule in RULES}) == len(RULES)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_every_condition_of_the_handbooks_is_a_rule(condition):
    assert set(CONDITIONS[condition]) <= {rule.name for rule in RULES}


def test_every_series_has_its_source():
    """Names are those of the facts, or of the table of Holdfast's own metrics."""
    facts = set(BOOK.facts) | {old for fact in BOOK.facts.values() for old in fact.old_names}
    for key, series in BOOK.series.items():
        assert {one.name for one in series.names} <= facts, key
    for rule in RULES:
        assert metric_names(expanded(rule.expr, BOOK.series)) <= facts | series_names() | {KNOWN}, rule.name


def test_new_and_old_names_are_asked_for():
    for key, series in BOOK.series.items():
        newest = BOOK.facts[series.names[0].name]
        missing = set(newest.old_names) - {one.name for one in series.names}
        assert not missing, f"{key}: {missing} are older names"


def test_units_are_the_same_whatever_the_name():
    """The old name of utilisation counts to 100, the new one to 1."""
    assert BOOK.facts["DCGM_FI_DEV_GPU_UTIL_RATIO"].unit == "percent in exporter"
    assert expanded("$gpu_util > 0.9", BOOK.series) == (
        "(DCGM_FI_DEV_GPU_UTIL_RATIO or DCGM_FI_DEV_GPU_UTIL * 0.01) > 0.9"
    )


def test_an_unknown_quantity_is_refused():
    with pytest.raises(UnknownSeries):
        expanded("$gpu_utli > 1", BOOK.series)


def test_the_kubernetes_form_has_the_same_groups(folder):
    form = yaml.safe_load((folder / "kubernetes" / "prometheusrule.yaml").read_text())
    assert (form["apiVersion"], form["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    groups = [
        group
        for path in sorted(folder.glob("*.rules.yml"))
        for group in yaml.safe_load(path.read_text())["groups"]
    ]
    assert sorted(form["spec"]["groups"], key=lambda one: one["name"]) == sorted(
        groups, key=lambda one: one["name"]
    )
    assert form == json.loads(json.dumps(operator_form(BOOK)))


def test_the_list(capsys):
    assert exit_code(["rules", "list", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["rules"]
    assert [one["name"] for one in told] == [rule.name for rule in RULES]
    assert exit_code(["rules", "list"]) == 0
    assert "GpuXid" in capsys.readouterr().out


def test_a_folder_that_cannot_be_written_is_reported(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert exit_code(["rules", "write", str(tmp_path / "file")]) == 2
    assert "file" in capsys.readouterr().err
