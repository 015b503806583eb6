"""NPUs and AMD GPUs, through programs that print what the vendors document."""

import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.diagnosis.candidate_kit import NO_SIGNATURES
from holdfast.checks.registry import check_named
from holdfast.checks.runner import SuiteRun
from holdfast.core.checks.gpu.amd import amd_gpus, judge_amd
from holdfast.core.checks.npu import (
    ecc_counters,
    health_codes,
    judge_npu_count,
    judge_npu_ecc,
    judge_npu_health,
    judge_npu_use,
    npu_table,
)
from holdfast.model.checks import DEVICE_FAULT, FAIL, PASS, SKIP, WARN, Baseline, Outcome, Scene

TABLE = """\
+------------------------------------------------------------------------------------------------+
| npu-smi 23.0.2                   Version: 23.0.2                                               |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B3               | OK            | 93.5        40                0    / 0             |
| 0                         | 0000:C1:00.0  | 0           0    / 0          3161 / 65536         |
+===========================+===============+====================================================+
| 1     910B3               | {health:13} | 91.0        41                0    / 0             |
| 0                         | 0000:01:00.0  | 0           0    / 0          {used:5} / 65536        |
+===========================+===============+====================================================+
+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
{processes}
"""
NOBODY = "| No running processes found in NPU 0                                                            |"
TWO_CHIPS = """\
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip  Phy-ID              | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 3     Ascend910           | OK            | 183.6       39                0    / 0             |
| 0     6                   | 0000:9D:00.0  | 0           0    / 0          3147 / 65536         |
+------------------------------------------------------------------------------------------------+
| 3     Ascend910           | Warning       | -           38                0    / 0             |
| 1     7                   | 0000:9F:00.0  | 0           0    / 0          2889 / 65536         |
"""
HEALTH = """\
\tNPU ID                         : 1
\tChip Count                     : 1
\tHealth Status                  : Alarm
\tError Code                     : {code}
\tError Information              : node type=HBM, event state=occur
"""
ECC = """\
\tNPU ID                                   : 1
\tHBM Single Bit Error Count               : 4
\tHBM Double Bit Error Count               : {double}
\tHBM Double Bit Aggregate Total Err Cnt   : 3
\tHBM Double Bit Isolated Pages Count      : {pages}
"""
STATIC = {
    "gpu": 0,
    "asic": {"market_name": "AMD Instinct MI300X", "vendor_id": "0x1002", "asic_serial": "0x1A2B"},
    "bus": {"bdf": "0000:0C:00.0", "max_pcie_width": 16},
    "limit": {
        "max_power": {"value": 750, "unit": "W"},
        "slowdown_hotspot_temperature": {"value": 100, "unit": "C"},
    },
}
METRIC = {
    "gpu": 0,
    "temperature": {"edge": "N/A", "hotspot": {"value": 42, "unit": "C"}, "mem": {"value": 33, "unit": "C"}},
    "pcie": {"width": 16, "replay_count": 0},
    "ecc": {"total_correctable_count": 2, "total_uncorrectable_count": 0},
    "throttle": {"ppt_violation_status": "ACTIVE", "socket_thermal_violation_status": "NOT ACTIVE"},
}


class Tools:
    """Programs in a folder that is first on the PATH."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.root = folder / "root"
        self.root.mkdir()

    def program(self, name: str, script: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def npu_smi(self, table: str, health: str = "", ecc: str = "") -> None:
        for name, text in (("table", table), ("health", health), ("ecc", ecc)):
            (self.bin / f"{name}.txt").write_text(text)
        cases = "".join(f'*" -t {name} "*) /bin/cat {self.bin}/{name}.txt;; ' for name in ("health", "ecc"))
        self.program("npu-smi", f'case "$* " in {cases} *) /bin/cat {self.bin}/table.txt;; esac')

    def amd_smi(self, static: object, metric: object) -> None:
        for name, told in (("static", static), ("metric", metric)):
            (self.bin / f"{name}.json").write_text(json.dumps(told))
        self.program("amd-smi", f"/bin/cat {self.bin}/$1.json")

    def outcome(self, name: str, **scene: object) -> Outcome:
        spec = check_named(name).spec
        told = Scene(root=str(self.root), **scene)
        run = SuiteRun([spec], told, time.monotonic() + 100, env={"PATH": str(self.bin)})
        try:
            return run.wait()[0]
        finally:
            run.close()


@pytest.fixture
def tools(tmp_path) -> Tools:
    return Tools(tmp_path)


def table(health: str = "OK", used: int = 3161, processes: str = NOBODY) -> str:
    return TABLE.format(health=health, used=used, processes=processes)


def test_tables_of_npu_smi_are_read():
    two = npu_table(
        table(
            "Alarm",
            40000,
            "| 1       0                 | 4711          | python3                  | 36000                   |",
        )
    )
    assert [(npu.index, npu.name, npu.health, npu.address, npu.hbm_used) for npu in two.npus] == [
        (0, "910B3", "OK", "0000:c1:00.0", 3161),
        (1, "910B3", "Alarm", "0000:01:00.0", 40000),
    ]  # fmt: skip
    assert [(one.index, one.pid, one.name, one.megabytes) for one in two.processes] == [
        (1, 4711, "python3", 36000)
    ]
    assert [(npu.index, npu.chip, npu.health) for npu in npu_table(TWO_CHIPS).npus] == [
        (3, 0, "OK"),
        (3, 1, "Warning"),
    ]
    assert health_codes(HEALTH.format(code="80E01801, 0x80cb8002")) == ("80E01801", "80CB8002")
    assert ecc_counters(ECC.format(double=1, pages=2))["hbm double bit error count"] == 1


@pytest.mark.parametrize(
    "text", ["", "|", "| a | b | c |\n| 0 | 1 | 2 |", "||||", "\x00\x01", "| 0 x | OK | \n| 0 | NA |"]
)
def test_what_is_no_table_is_no_npu_and_no_error(text):
    assert npu_table(text).processes == ()
    assert amd_gpus(text, text) == ()


LINES = st.lists(
    st.sampled_from([*table().splitlines(), *TWO_CHIPS.splitlines(), "| 0 | NA | 1 |", "|", "||||"])
)
ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from([*STATIC, *METRIC]), inner)
    ),
    max_leaves=5,
)


@settings(max_examples=60, deadline=None)
@given(LINES, st.text(max_size=40))
def test_whatever_npu_smi_prints_is_read_without_an_error(lines, text):
    seen = npu_table("\n".join([*lines, text]))
    judge_npu_health(seen.npus, {}, {}, NO_SIGNATURES)
    assert judge_npu_count(seen.npus, None, Baseline()) and judge_npu_use(seen, ())
    assert judge_npu_ecc(seen.npus, {npu.index: ecc_counters(text) for npu in seen.npus})
    health_codes(text)


@settings(max_examples=60, deadline=None)
@given(ANYTHING, ANYTHING)
def test_whatever_amd_smi_prints_is_read_without_an_error(static, metric):
    gpus = amd_gpus(json.dumps(static), json.dumps(metric))
    assert judge_amd(gpus, None, Baseline())


def test_healthy_npus_pass(tools):
    tools.npu_smi(table(), ecc=ECC.format(double=0, pages=1))
    for name in ("npu-count", "npu-health", "npu-ecc", "npu-foreign"):
        assert tools.outcome(name).status == PASS, name
    facts = {fact.name: fact.value for fact in tools.outcome("npu-count").facts}
    assert facts == {"NPUs": 2, "NPU model": "910B3"}


def test_the_code_of_an_npu_decides(tools):
    tools.npu_smi(table("Alarm"), health=HEALTH.format(code="80E18402"))
    outcome = tools.outcome("npu-health")
    finding = outcome.findings[0]
    assert finding.device == "0000:01:00.0" and "80E18402" in finding.why
    assert (finding.status, finding.fault, finding.category) == (FAIL, DEVICE_FAULT, "npu_fault")
    assert "replaced" in finding.advice.en and finding.advice.zh


@pytest.mark.parametrize("code", ["80E01801", ""])
def test_a_code_that_asks_for_a_restart_only_warns_and_so_does_a_warning(tools, code):
    tools.npu_smi(table("Alarm" if code else "Warning"), health=HEALTH.format(code=code))
    assert tools.outcome("npu-health").status == WARN


def test_errors_in_the_memory_of_an_npu(tools):
    tools.npu_smi(table(), ecc=ECC.format(double=1, pages=2))
    assert tools.outcome("npu-ecc").findings[0].fault == DEVICE_FAULT
    tools.npu_smi(table(), ecc=ECC.format(double=0, pages=70))
    assert tools.outcome("npu-ecc").status == WARN


def test_another_process_on_an_npu(tools):
    tools.npu_smi(table(processes="| 1       0                 | 4711          | python3                  | 36000                   |"))  # fmt: skip
    outcome = tools.outcome("npu-foreign")
    assert outcome.status == WARN and "4711" in outcome.findings[0].measured
    assert tools.outcome("npu-foreign", own_pids=(4711,)).status == PASS


def test_fewer_npus_than_learned(tools):
    tools.npu_smi(table())
    learned = Baseline(facts={"node": {"NPUs": 8}})
    outcome = tools.outcome("npu-count", baseline=learned)
    assert (outcome.status, outcome.findings[0].fault) == (WARN, "")
    (tools.root / "sys/bus/pci/devices").mkdir(parents=True)
    outcome = tools.outcome("npu-count", baseline=learned)
    assert (outcome.status, outcome.findings[0].fault) == (FAIL, DEVICE_FAULT)


@pytest.mark.parametrize("name", ["npu-count", "npu-health", "npu-ecc", "npu-foreign", "gpu-amd"])
def test_without_its_tool_a_check_skips_and_says_why(tools, name):
    outcome = tools.outcome(name)
    assert outcome.status == SKIP and "smi" in outcome.findings[0].why


@pytest.mark.parametrize("script", ["exit 3", "echo no driver >&2; exit 1", "echo '{'", "printf 'x\\377y'"])
def test_a_tool_that_fails_is_a_skip(tools, script):
    tools.program("npu-smi", script)
    tools.program("amd-smi", script)
    for name in ("npu-health", "gpu-amd"):
        outcome = tools.outcome(name)
        assert outcome.status == SKIP and "itself" not in outcome.findings[0].why


def test_a_tool_that_hangs_is_cut_off(tools):
    tools.program("npu-smi", "exec /bin/sleep 60")
    assert "did not finish within" in tools.outcome("npu-health").findings[0].why


@pytest.mark.parametrize("wrapped", [False, True])
def test_healthy_amd_gpus_pass(tools, wrapped):
    static = [STATIC, STATIC | {"gpu": 1}]
    metric = [METRIC, METRIC | {"gpu": 1}]
    tools.amd_smi({"gpu_data": static} if wrapped else static, {"gpu_data": metric} if wrapped else metric)
    outcome = tools.outcome("gpu-amd")
    assert outcome.status == PASS and "2 GPUs" in outcome.findings[0].measured
    assert {fact.name: fact.value for fact in outcome.facts}["AMD GPUs"] == 2


@pytest.mark.parametrize(
    ("metric", "status", "category"),
    [
        ({"ecc": {"total_uncorrectable_count": 3}}, FAIL, "ecc_uncorrectable"),
        ({"throttle": {"hbm_thermal_violation_status": "ACTIVE"}}, WARN, "thermal_throttle"),
        ({"temperature": {"hotspot": {"value": 99, "unit": "C"}}}, WARN, "thermal_throttle"),
        ({"pcie": {"width": 8}}, WARN, "pcie_link_downgrade"),
    ],
)
def test_what_is_wrong_with_an_amd_gpu(tools, metric, status, category):
    tools.amd_smi([STATIC], [METRIC | metric])
    finding = tools.outcome("gpu-amd").findings[0]
    assert (finding.status, finding.category, finding.device) == (status, category, "0000:0c:00.0")
    assert finding.advice.en and finding.advice.zh and finding.expected and finding.whence


def test_an_amd_gpu_that_is_gone(tools):
    tools.amd_smi([STATIC], [METRIC])
    outcome = tools.outcome("gpu-amd", baseline=Baseline(facts={"node": {"AMD GPUs": 8}}))
    assert outcome.findings[0].category == "gpu_missing" and outcome.status == WARN


def test_what_an_amd_gpu_does_not_tell_is_a_skip(tools):
    tools.amd_smi([STATIC], [METRIC | {"ecc": "N/A"}])
    assert tools.outcome("gpu-amd").status == SKIP
