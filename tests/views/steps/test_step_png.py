"""The picture of step times, drawn by matplotlib without a browser."""

import subprocess
import sys
import zlib

import pytest

from holdfast.model.steps import StepReport
from holdfast.views.steps.plot import write_png
from views.steps.step_values import EVIL, curve, heat_map, report, two_runs

BLOCKED = """
import sys
sys.modules["matplotlib"] = None  # as Python marks what cannot be imported
from pathlib import Path
from holdfast.views.steps.plot import PlotUnavailable, write_png
from holdfast.model.steps import StepReport
try:
    write_png(Path(sys.argv[1]), StepReport(), [], None, "t")
except PlotUnavailable as error:
    print(error)
"""


def pixels(path):
    """Width, height and rows of RGBA of a PNG that matplotlib wrote. source: PNG specification, 9.2 and 11.2"""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, body = 8, b""
    while at < len(data):
        size, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        if kind == b"IHDR":
            width, height = (int.from_bytes(data[at + i : at + i + 4], "big") for i in (8, 12))
            assert data[at + 16 : at + 18] == b"\x08\x06"  # 8 bits, RGBA
        elif kind == b"IDAT":
            body += data[at + 8 : at + 8 + size]
        at += size + 12
    return width, height, zlib.decompress(body)


def test_a_picture_with_everything(tmp_path):
    path = tmp_path / "steps.png"
    write_png(path, report(), two_runs(), heat_map(), "Step times of train.log")
    width, height, body = pixels(path)
    assert width == 1320
    assert 700 < height < 1600
    assert len(set(body)) > 100  # not one plain sheet


@pytest.mark.parametrize("title", ["", "$x^{", "训练 $a$", EVIL, "x" * 5000, "\x1b[31m\n\n"])
def test_any_title(tmp_path, title):
    path = tmp_path / "steps.png"
    write_png(path, report(framework=title, notes=(title,)), curve(3), None, title)
    assert pixels(path)[0] == 1320


@pytest.mark.parametrize("points", [[], curve(1, width=1), curve(2, base_s=0.0)], ids=["none", "one", "zero"])
def test_hardly_anything_to_draw(tmp_path, points):
    path = tmp_path / "steps.png"
    write_png(path, StepReport(), points, None, "t")
    assert pixels(path)[0] == 1320


def test_a_file_that_cannot_be_written_is_an_oserror(tmp_path):
    with pytest.raises(OSError, match="nowhere"):
        write_png(tmp_path / "nowhere" / "steps.png", StepReport(), [], None, "t")


def test_without_matplotlib_it_says_what_to_install(tmp_path):
    words = [sys.executable, "-c", BLOCKED, str(tmp_path / "steps.png")]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert "pip install 'holdfast[plot]'" in told
    assert ".html" in told
    assert not (tmp_path / "steps.png").exists()
