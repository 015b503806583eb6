"""`holdfast compare` on logs in files and folders."""

import json

import pytest

from holdfast.cli.line.command_line import exit_code


def log(path, count=40, change=None, prefix=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [prefix] if prefix else []
    for step in range(1, count + 1):
        loss = 2.5 - 0.01 * step + (0.3 if change is not None and step >= change else 0)
        lines.append(f"step {step}/{count} loss: {loss:.4f} grad_norm: {1 / step:.4f} lr: 1.0e-4")
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_says_where_runs_part(tmp_path, capsys):
    first = log(tmp_path / "a.log", prefix="seed=1 NCCL version 2.20.5")
    other = log(tmp_path / "b.log", change=17, prefix="seed=2 NCCL version 2.20.5")
    assert exit_code(["compare", first, other, log(tmp_path / "c.log")]) == 0
    out = capsys.readouterr().out
    assert "different from step 17 on (loss)" in out
    assert "equal in all 40 common steps" in out


def test_facts_ranks_and_json(tmp_path, capsys):
    for name, change in (("a", None), ("b", 9)):
        for rank in range(3):
            log(
                tmp_path / name / f"rank-{rank}.log",
                change=(change if rank == 1 else None),
                prefix=f"seed={name}",
            )
    assert exit_code(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["others"][0]
    assert (found["step"], found["ranks"], found["means"]) == (9, [1], "ranks")
    assert [(fact["kind"], fact["first"], fact["other"]) for fact in found["facts"]] == [("seed", "a", "b")]


def test_in_chinese_and_as_a_picture(tmp_path, capsys):
    first, other = log(tmp_path / "a.log"), log(tmp_path / "b.log", change=5)
    page = tmp_path / "x.html"
    assert exit_code(["compare", first, other, "--lang", "zh", "--plot", str(page)]) == 0
    assert "自第 5 步起不同" in capsys.readouterr().out
    text = page.read_text()
    assert text.count("<polyline") >= 4 and "gradient norm" in text


@pytest.mark.parametrize(
    ("words", "code"), [(["a.log"], 2), (["a.log", "missing"], 2), (["a.log", "empty.log"], 1)]
)
def test_wrong_or_empty_runs(tmp_path, monkeypatch, capsys, words, code):
    monkeypatch.chdir(tmp_path)
    log(tmp_path / "a.log")
    (tmp_path / "empty.log").write_text("nothing here\n")
    assert exit_code(["compare", *words, "--state-dir", str(tmp_path / "state")]) == code
