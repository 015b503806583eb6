"""Plots of benchmarks: what is laid out, that all of it is drawn, and that what a name holds is never markup."""

import re

import msgspec
import pytest

from holdfast.cli.line.command_line import exit_code
from holdfast.core.checks.judged import judged
from holdfast.model.checks import FAIL, PASS, WARN, Baseline, Fact, Finding, NodeChecks, Outcome
from holdfast.views.checks.chart import chart, nodes_of, number, of_bytes, round_ticks, size_of
from holdfast.views.checks.page import html_page
from holdfast.views.checks.plot import NotDrawn, draw, read_nodes
from holdfast.views.checks.report import document


def fact(value, device="gpu:1", name="matmul", unit="TFLOP/s", **more):
    return Fact(name=name, value=value, device=device, unit=unit, **{"peers": True, "model": "H100", **more})


def node(*facts, name="gpu-01", check="gpu-burn"):
    finding = Finding(status=PASS, measured="fine")
    outcome = Outcome(
        check=check, area=check.partition("-")[0], status=PASS, findings=(finding,), facts=tuple(facts)
    )
    return NodeChecks(node=name, outcomes=(outcome,), at_s=1.8e9)


def eight(slow=0.7):
    return node(*(fact(700.0 * (slow if n == 3 else 1), device=f"gpu:{n}") for n in range(8)))


def sweep(name="gpu-01"):
    sizes = [f"{2**n} KiB" for n in range(4)] + ["1 MiB"]
    facts = [
        fact(float(n + 1), device="node", name=f"all-reduce {size}, bus", unit="GB/s")
        for n, size in enumerate(sizes)
    ]
    return node(*facts, name=name, check="comm-sweep")


def test_each_number_has_a_panel_and_each_device_a_row():
    (panel,) = chart([eight()]).panels
    assert panel.title == "gpu-burn: matmul" and panel.middle == 700
    assert [row.status for row in panel.rows] == [PASS] * 3 + [FAIL] + [PASS] * 4
    assert panel.rows[3].label == "gpu 3"


@pytest.mark.parametrize(("slow", "status"), [(0.95, PASS), (0.9, WARN), (0.7, FAIL), (1.4, PASS)])
def test_a_row_is_marked_by_the_limits_of_the_comparison(slow, status):
    assert chart([eight(slow)]).panels[0].rows[3].status == status


def test_a_number_that_varies_by_itself_is_not_marked():
    rows = chart([node(*(fact(70.0 if n == 3 else 100.0, device=f"gpu:{n}", spread=0.2) for n in range(4)))])
    assert {row.status for row in rows.panels[0].rows} == {PASS}


def test_several_nodes_are_drawn_side_by_side_and_only_one_has_a_past():
    known = Baseline(facts={"gpu:1": {"matmul": 720.0}})
    (one,) = chart([node(fact(700.0))], known).panels
    assert one.rows[0].first == 720.0 and one.top == 720.0
    (two,) = chart([node(fact(700.0)), node(fact(690.0), name="gpu-02")], known).panels
    assert [row.label for row in two.rows] == ["gpu-01 gpu 1", "gpu-02 gpu 1"]
    assert two.rows[0].first is None and two.middle is None


def test_models_are_not_mixed():
    assert len(chart([node(fact(700.0), fact(300.0, device="gpu:2", model="A100"))]).panels) == 2


def test_numbers_over_sizes_become_a_curve():
    drawn = chart([sweep(), sweep("gpu-02")])
    assert not drawn.panels
    (curve,) = drawn.curves
    assert curve.title == "comm-sweep: all-reduce, bus"
    assert [line.label for line in curve.lines] == ["gpu-01", "gpu-02"]
    assert curve.lines[0].points == ((1024, 1), (2048, 2), (4096, 3), (8192, 4), (1 << 20, 5))


def test_one_size_is_no_curve():
    drawn = chart([node(fact(100.0, name="sequential write, 256 MiB", unit="MiB/s"))])
    assert drawn.panels[0].name == "sequential write, 256 MiB" and not drawn.curves


def test_of_too_many_lines_the_lowest_are_shown():
    nodes = [sweep(f"n{number}") for number in range(30)]
    assert len(chart(nodes).curves[0].shown) == 16


def test_what_is_no_number_with_a_unit_is_not_drawn():
    odd = node(
        Fact(name="name", value="H100", device="gpu:1"), Fact(name="count", value=8), fact(True), fact("7")
    )
    assert chart([odd]).is_empty and chart([]).is_empty


def test_a_page_loads_nothing_and_escapes_its_values():
    evil = node(fact(700.0, name="<script>alert(1)</script>", device="gpu:</title><b>"), name="<img src=x>")
    page = html_page(chart([evil, eight()]), "a <b> title", ["<i>said</i>"])
    assert not re.search(r"<(script|img|b|i)\b", page) and "src=" not in page.replace("src=x&gt;", "")
    assert "default-src 'none'; style-src 'sha256-" in page and "http" not in page.replace("http-equiv", "")


def test_a_page_has_every_number_and_every_device():
    page = html_page(chart([eight(), sweep()]), "t")
    assert page.count("<polyline") == 1 and page.count("TFLOP/s</text>") == 8
    assert page.count('<rect class="bad"') == 2, "the bar, and in the legend"
    assert "No benchmark gave a number" in html_page(chart([]), "t")


def test_a_thousand_devices_are_drawn_as_points_and_those_far_off_named():
    many = [node(*(fact(400.0 if (n, d) == (9, 5) else 700.0, device=f"gpu:{d}") for d in range(8)), name=f"n{n}") for n in range(125)]  # fmt: skip
    (panel,) = chart(many).panels
    assert panel.is_crowded and panel.lowest == "n9 gpu 5: 400 TFLOP/s"
    page = html_page(chart(many), "t")
    assert page.count("<circle") == 1000 and "n9 gpu 5: 400 TFLOP/s" in page and len(page) < 1 << 20


def test_a_picture_is_written(tmp_path):
    pytest.importorskip("matplotlib")
    for name, nodes in (
        ("a", [eight(), sweep()]),
        ("b", [eight()] * 9),
        ("c", []),
        ("d", [node(fact(0.0, name="$x_^"))]),
    ):
        path = tmp_path / f"{name}.png"
        draw(path, nodes)
        assert path.read_bytes().startswith(b"\x89PNG")


def test_what_the_command_wrote_can_be_drawn_again(tmp_path):
    nodes = [eight(), NodeChecks(node="gpu-02", why_not="no answer")]
    text = msgspec.json.encode(document("bench", nodes, judged(nodes), (), 1.0))
    (tmp_path / "a.json").write_bytes(text)
    read = read_nodes([tmp_path / "a.json"])
    assert chart(read) == chart(nodes) and [one.node for one in read] == ["gpu-01", "gpu-02"]
    assert exit_code(["check", "--plot", str(tmp_path / "a.html"), "--from", str(tmp_path / "a.json")]) == 0
    assert "Benchmarks of 2 nodes" in (tmp_path / "a.html").read_text()


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b'{"facts": 3, "nodes": []}', b'{"facts": [{}], "nodes": []}', b"\xff"]
)
def test_a_file_that_is_none_is_said(tmp_path, text):
    (tmp_path / "a.json").write_bytes(text)
    with pytest.raises(NotDrawn, match=r"a\.json is not an output of"):
        read_nodes([tmp_path / "a.json"])


def test_what_cannot_be_written_or_read_is_said(tmp_path):
    with pytest.raises(NotDrawn, match="cannot be written"):
        draw(tmp_path / "none" / "a.html", [eight()])
    with pytest.raises(NotDrawn, match="cannot be read"):
        read_nodes([tmp_path / "none.json"])


def test_facts_of_an_older_answer_are_read_with_defaults():
    text = b'{"nodes": [{"node": "a"}], "facts": [{"node": "a", "check": "x-y", "device": "node", "name": "n", "value": 3, "unit": "s"}]}'
    (one,) = nodes_of(text, "a.json")
    assert chart([one]).panels[0].rows[0].value == 3


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.04213, "0.0421"), (53.44, "53.4"), (712.3, "712"), (213_700.4, "213,700"), (999.6, "1,000")],
)
def test_numbers_are_short(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("top", "last"), [(708, 600), (1, 1), (0.03, 0.03), (54.4, 40), (6000, 6000), (0, 0), (9.99, 8)]
)
def test_ticks_are_round(top, last):
    found = round_ticks(top)
    assert found[0] == 0 and found[-1] == pytest.approx(last) and len(found) <= 6


def test_sizes_are_read_and_written():
    assert size_of("all-reduce 8 MiB, bus") == 8 << 20 and size_of("512B") == 512
    assert of_bytes(8 << 20) == "8 MiB" and of_bytes(100) == "100 B"
    with pytest.raises(ValueError, match="no size"):
        size_of("matmul bf16 8192")
