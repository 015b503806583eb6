"""The tables of device codes: each row is whole, the shipped ones are those the facts give, bad ones are refused."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.core.verdict.categories import ACTIONS
from holdfast.observe.search.code_store import package_tables
from holdfast.parsers.code_tables import COLUMNS, CodeTableError, parse_table

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "src" / "holdfast" / "signatures"
FACTS = ROOT.parent / "shared" / "facts"
HEAD = ",".join(COLUMNS)
ROW = "79,GPU_LOST,gone,掉卡,bus,fatal,reboot_node,,,NVIDIA=reboot_node EKS=isolate_node"


def test_a_row_becomes_a_fact():
    fact = parse_table(f"{HEAD}\n{ROW}\n", "xid", ACTIONS)["79"]
    assert (fact.severity, fact.action, fact.cause, fact.program) == ("fatal", "reboot_node", "bus", False)
    assert fact.verdicts == {"NVIDIA": "reboot_node", "EKS": "isolate_node"}


def test_a_rule_of_repetition_is_read():
    row = ROW.replace(",,,", ",yes,2 in 86400: isolate_node,")
    fact = parse_table(f"{HEAD}\n{row}\n", "xid", ACTIONS)["79"]
    assert fact.program
    assert (fact.repeats.count, fact.repeats.within_s, fact.repeats.action) == (2, 86_400, "isolate_node")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("code,meaning\n79,x\n", "columns"),
        (f"{HEAD}\n{ROW}\n{ROW}\n", "twice"),
        (f"{HEAD}\n{ROW.replace('reboot_node,', 'pray,')}\n", "pray"),
        (f"{HEAD}\n{ROW.replace('fatal', 'awful')}\n", "awful"),
        (f"{HEAD}\n{ROW.replace('掉卡', '')}\n", "in English or Chinese"),
        (f"{HEAD}\n{ROW.replace(',,,', ',,often,')}\n", "often"),
        (f"{HEAD}\n79,GPU_LOST\n", "missing"),
    ],
)
def test_a_bad_table_is_refused_with_the_reason(text, says):
    with pytest.raises(CodeTableError, match=says):
        parse_table(text, "xid", ACTIONS)


def test_the_shipped_tables_can_be_read():
    tables = package_tables()
    assert {"13", "31", "45", "48", "63", "74", "79", "94", "119", "149", "154"} <= set(tables.xid)
    assert {"20034", "12028", "22013"} <= set(tables.sxid)
    assert "80E01801" in tables.npu


def test_only_the_tables_asked_for_are_read():
    assert not package_tables(("xid",)).npu


@pytest.mark.skipif(not FACTS.is_dir(), reason="the folder of facts is not beside this checkout")
def test_the_shipped_tables_are_those_that_the_facts_give(tmp_path):
    subprocess.run(
        [sys.executable, str(ROOT / "tools" / "code_tables.py"), str(FACTS), str(tmp_path)], check=True
    )
    for name in ("xid", "sxid", "npu"):
        assert (tmp_path / f"{name}.csv").read_text() == (SHIPPED / f"{name}.csv").read_text()
        with (FACTS / f"{name}.csv").open(newline="") as file:
            codes = {row["code"].upper() for row in csv.DictReader(file)}
        with (SHIPPED / f"{name}.csv").open(newline="") as file:
            assert {row["code"] for row in csv.DictReader(file)} == codes
