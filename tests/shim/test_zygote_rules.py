"""A zygote is safe or not there at all: what modules must not do while they are imported, and which processes are refused."""

from pathlib import Path

import pytest
from rank_kit import wait_for
from zygote_kit import ended, state

BAD = {
    "threads": ("import _thread, time; _thread.start_new_thread(time.sleep, (100,))", "it starts threads"),
    "socket": ("import socket; kept = socket.socket()", "it keeps open: socket:"),
    "file": ("kept = open(__file__)", "it keeps open: "),
    "process": ("import subprocess; kept = subprocess.Popen(['sleep', '5'])", "it starts processes"),
    "place": ("import os; os.environ.get('LOCAL_RANK')", "it reads LOCAL_RANK"),
    "changes": ("import os; os.environ['WORLD_SIZE'] = '9'", "it changes the variable WORLD_SIZE"),
    "prints": ("print('hello', flush=True)", "it prints while it is imported"),
    "moves": ("import os; os.chdir('/')", "it changes the working directory"),
    "path": ("import sys; sys.path.append('/x')", "it changes the working directory, the umask or sys.path"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_module_that_breaks_a_rule_is_named(report, ranks, kind):
    text, why = BAD[kind]
    ranks.module(f"bad_{kind}.py", text)
    said = report("email", f"bad_{kind}", "json")
    assert (said["is"], said["name"]) == ("broken", f"bad_{kind}")
    assert said["why"].startswith(why)
    assert report(f"bad_{kind}", left_out={f"bad_{kind}": ""})["is"] == "ready"


def test_a_walk_through_all_variables_is_no_read_of_each(report, ranks):
    ranks.module(
        "walks.py", "import os\nkept = dict(os.environ)\nfor key, value in os.environ.items(): pass\n"
    )
    assert report("walks")["is"] == "ready"


PRINTS_RANK = """
import os
def rank_zero_only(): pass
rank_zero_only.rank = getattr(rank_zero_only, "rank", int(os.environ.get("LOCAL_RANK", 0)))
"""


def test_a_module_that_keeps_the_rank_keeps_that_of_the_fork(nursery, ranks):
    """As that of torchmetrics does."""
    for name in ("torchmetrics/__init__.py", "torchmetrics/utilities/__init__.py"):
        ranks.module(name, "")
    ranks.module("torchmetrics/utilities/prints.py", PRINTS_RANK)
    program = (
        "import sys; name = 'torchmetrics.utilities.prints'; print(name in sys.modules)\n"
        "from torchmetrics.utilities.prints import rank_zero_only; print(rank_zero_only.rank)"
    )
    here = nursery(program, "torchmetrics.utilities.prints")
    for rank in (1, 0, 3):
        assert ended(here.forked(rank=rank, env={"LOCAL_RANK": str(rank)}))[:2] == (0, f"True\n{rank}\n")
    assert here.refusals() == []


@pytest.mark.parametrize("option", ["-v", "-Ximporttime"])
def test_a_python_that_prints_its_imports_blames_no_module(report, option):
    said = report("email", python=(option,))
    assert (said["is"], said["name"], said["why"]) == ("broken", "", "its Python prints what it imports")


def test_the_zygote_is_the_first_to_be_killed_for_memory_and_its_fork_server_is_not(nursery):
    here = nursery("")
    usual = Path("/proc/self/oom_score_adj").read_text()
    assert Path(f"/proc/{here.zygote.pid}/oom_score_adj").read_text() == "1000\n"
    assert Path(f"/proc/{here.server}/oom_score_adj").read_text() == usual


def test_no_part_of_a_package_that_is_left_out_is_imported(report, ranks):
    ranks.module("bad/__init__.py", "import os; os.environ.get('LOCAL_RANK')")
    ranks.module("bad/part.py", "")
    said = report("bad", "bad.part", left_out={"bad": ""})
    assert (said["is"], said["cost"]) == ("ready", {})


def test_memory_is_limited(report, ranks):
    ranks.module("large.py", "kept = bytearray(100 << 20)")
    said = report("large", memory_kib_max=80 << 10)
    assert said["why"] == "the memory exceeds 80 MiB"
    assert said["memory_kib"] > 80 << 10


def test_what_the_script_sets_before_its_imports_is_respected(report, ranks):
    ranks.module("reads.py", "import os; MODE = os.environ.get('MODE')")
    assert report("env:MODE", "reads")["why"] == "it reads MODE, which the script sets before"
    assert report("env:OTHER", "reads")["is"] == "ready"
    said = report("email", "env:OMP_NUM_THREADS", "reads")
    assert said["stopped_at"] == "OMP_NUM_THREADS"


@pytest.mark.parametrize(
    ("env", "why"),
    [
        ({"OMP_NUM_THREADS": "3"}, "OMP_NUM_THREADS has another value"),
        ({"MODE": "b"}, "MODE has another value, and is read when reads is imported"),
        ({"PYTHONPATH": "/x"}, None),
    ],
)
def test_another_environment_is_refused_where_it_matters(nursery, ranks, env, why):
    ranks.module("reads.py", "import os; MODE = os.environ.get('MODE')")
    here = nursery("import os; print(os.environ.get('MODE'))", "reads", MODE="a")
    code, out, _ = ended(here.forked(env={"MODE": "a", **env}))
    if why is not None:
        assert here.refusals() == [why]
        assert (code, out) == (0, f"{env.get('MODE', 'a')}\n")


SETS = "import os; os.environ.setdefault('TORCH_CACHE', '/cache')"
PRINTS = "import os, sys; print(os.environ.get('TORCH_CACHE'), 'sets' in sys.modules)"
STARTS = """
import os, subprocess, sys
sys.exit(subprocess.run([sys.executable, *sys.argv[1:]], env=os.environ | {"RANK": "0", "LOCAL_RANK": "0"}).returncode)
"""


@pytest.mark.parametrize(("launcher", "has"), [((), "None"), (("sets",), "/cache")])
def test_a_launcher_has_the_variables_of_what_it_imports_itself(nursery, ranks, launcher, has):
    """As torch._inductor sets TORCHINDUCTOR_CACHE_DIR, which a launcher would hand down to its ranks."""
    ranks.module("sets.py", SETS)
    other = ranks.module("torchrun", PRINTS)
    here = nursery("", "sets", launcher=launcher)
    assert ended(here.forked(str(other), rank=None))[:2] == (0, f"{has} True\n")
    assert here.refusals() == []


@pytest.mark.parametrize("launcher", [(), ("sets",)])
def test_ranks_are_forked_with_and_without_what_the_launcher_has_set(nursery, ranks, launcher):
    ranks.module("sets.py", SETS)
    other = ranks.module("torchrun", STARTS)
    here = nursery(PRINTS, "sets", launcher=launcher)
    assert ended(here.forked(str(other), str(here.script), rank=None))[:2] == (0, "/cache True\n")
    assert here.refusals() == []


def test_a_variable_that_no_import_has_set_is_named(report, ranks):
    ranks.module("sets.py", SETS)
    said = report("sets", to_set=("TORCH_CACHE", "OTHER"))
    assert (said["is"], said["not_set"]) == ("ready", ["OTHER"])


ASKS_FOR_DEVICES = "import os; asked = os.getenv('PYTORCH_NVML_BASED_CUDA_CHECK')"
SETS_THE_CHECK = """
import os, torch.cuda
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
"""
PRINTS_THE_CHECK = """
import os, sys, torch.cuda
print(torch.cuda.asked, os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK"))
"""


@pytest.mark.parametrize(("module", "has"), [("torch.cuda", "None"), ("sets", "1")])
def test_torch_asks_for_devices_without_initialising_them_and_no_other_module_sees_why(
    nursery, ranks, module, has
):
    """As deepspeed does, which sets the variable where it is missing, and torch, which reads it."""
    ranks.module("torch/__init__.py", "")
    ranks.module("torch/cuda/__init__.py", ASKS_FOR_DEVICES)
    ranks.module("sets.py", SETS_THE_CHECK)
    here = nursery(PRINTS_THE_CHECK, module)
    assert ended(here.forked())[:2] == (0, f"1 {has}\n")
    assert here.refusals() == []


def test_a_value_that_an_import_would_not_give_is_refused(nursery, ranks):
    ranks.module("sets.py", SETS)
    here = nursery(PRINTS, "sets")
    assert ended(here.forked(env={"TORCH_CACHE": "/other"}))[:2] == (0, "/other False\n")
    assert here.refusals() == ["TORCH_CACHE has another value than the imports give it"]


def test_another_python_is_refused(nursery):
    here = nursery("print('run')")
    assert ended(here.forked("-O", str(here.script)))[1] == "run\n"
    assert here.refusals() == ["its Python is another one, or has other options"]


def test_without_a_fork_server_a_process_starts_as_usual(nursery):
    here = nursery("print('run')")
    here.channel.close()
    wait_for(lambda: state(here.server) in ("", "Z"))
    assert ended(here.forked())[:2] == (0, "run\n")
    assert here.refusals()[0].startswith("the fork server cannot be asked")
