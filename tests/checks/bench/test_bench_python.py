"""Which Python measures, and what becomes of one that hangs, dies or is not there. With real processes."""

import os
import sys
import time

import pytest

from holdfast.checks.training_python.bench import burnt, python_with
from holdfast.model.checks import Scene


def scene(*command, options=None, **env):
    return Scene(command=command, env={"PATH": "/usr/bin:/bin", **env}, cwd="/", options=options or {})


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def venv(tmp_path):
    """bin/python that has `numpy_like`; bin/torchrun beside it."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "wanted_one.py").touch()
    run = f'#!/bin/sh\nPYTHONPATH={tmp_path}/modules exec {sys.executable} "$@"\n'
    return script(tmp_path / "bin" / "python", run).removesuffix("/bin/python")


def test_the_python_of_the_command_is_taken(venv):
    assert python_with(scene(f"{venv}/bin/python", "train.py"), "x", "wanted_one") == (
        f"{venv}/bin/python",
        "",
    )


def test_that_beside_its_launcher_is_taken(venv):
    script_path = f"{venv}/bin/torchrun"
    with open(script_path, "w") as file:
        file.write("#!/bin/sh\n")
    os.chmod(script_path, 0o755)
    path = f"{venv}/bin:/usr/bin:/bin"
    assert python_with(scene("torchrun", "t.py", PATH=path), "x", "wanted_one")[0] == f"{venv}/bin/python"


def test_that_of_its_first_line_is_taken(venv, tmp_path):
    launcher = script(tmp_path / "elsewhere" / "torchrun", f"#!{venv}/bin/python -u\n")
    assert python_with(scene(launcher), "x", "wanted_one")[0] == f"{venv}/bin/python"


def test_that_of_the_environment_is_taken(venv):
    assert python_with(scene(VIRTUAL_ENV=venv), "x", "wanted_one")[0] == f"{venv}/bin/python"
    assert python_with(scene(CONDA_PREFIX=venv), "x", "wanted_one")[0] == f"{venv}/bin/python"


def test_the_second_best_module_will_do():
    assert python_with(scene(), "x", "module_that_nobody_has", "json") == (sys.executable, "")


def test_one_that_is_named_is_the_only_one(venv):
    asked = scene(options={"x.python": f"{venv}/bin/python"})
    assert python_with(asked, "x", "wanted_one")[0] == f"{venv}/bin/python"
    path, why = python_with(scene(options={"x.python": "/nowhere/python"}), "x", "json")
    assert path == "" and "/nowhere/python" in why and "--option x.python=PATH" in why


def test_none_that_has_it_is_said_with_all_that_were_asked():
    path, why = python_with(scene("no-such-launcher"), "x", "module_that_nobody_has")
    assert path == "" and sys.executable in why


def test_each_run_gives_its_answer_in_its_place():
    asks = [{"work": "triad", "device": "cpu", "seconds": "wrong", "bytes_each": 8}, {"work": "none"}]
    first, second = burnt(sys.executable, Scene(env=dict(os.environ)), asks, 60.0)
    assert first.error or first.unable
    assert second.error == "KeyError: 'none'"


def test_one_that_hangs_is_ended_at_its_deadline(tmp_path):
    python = script(tmp_path / "python", "#!/bin/sh\nexec sleep 600\n")
    began_s = time.monotonic()
    (one,) = burnt(python, scene(), [{"work": "matmul"}], 0.3)
    assert one.is_late and "0 s" in one.error and time.monotonic() - began_s < 200


def test_one_that_dies_is_reported_with_its_last_words(tmp_path):
    python = script(tmp_path / "python", "#!/bin/sh\necho the driver is gone >&2\nkill -BUS $$\n")
    (one,) = burnt(python, scene(), [{"work": "matmul"}], 30.0)
    assert one.error == "the benchmark process was killed by SIGBUS: the driver is gone"


def test_one_that_cannot_be_started_is_said(tmp_path):
    (one,) = burnt(str(tmp_path / "none"), scene(), [{"work": "matmul"}], 30.0)
    assert "cannot be started" in one.unable


def test_what_a_launcher_binds_its_ranks_to_does_not_bind_us(tmp_path):
    python = script(tmp_path / "python", '#!/bin/sh\necho "{\\"threads\\": \\"$OMP_NUM_THREADS\\"}"\n')
    (free,) = burnt(python, scene(OMP_NUM_THREADS="1"), [{}], 30.0)
    (single,) = burnt(python, scene(), [{}], 30.0, more_env={"OMP_NUM_THREADS": "1"})
    assert (free.answer, single.answer) == ({"threads": ""}, {"threads": "1"})


def test_devices_one_after_the_other_do_not_meet(tmp_path):
    """Each run notes its begin and end; with one_by_one no two are open at once."""
    log = tmp_path / "log"
    python = script(
        tmp_path / "python", f"#!/bin/sh\necho begin >> {log}; sleep 0.1; echo end >> {log}; echo {{}}\n"
    )
    burnt(python, scene(), [{}, {}, {}], 30.0, one_by_one=True)
    assert log.read_text().split() == ["begin", "end"] * 3
