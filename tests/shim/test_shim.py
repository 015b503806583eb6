"""What the shim does in every rank, and that it changes nothing else."""

import ast
import json
import signal
import subprocess
import sys
import time

import pytest
from rank_kit import SHIM

from holdfast.observe.processes import stacks

BROKEN = 'def inner():\n    raise ValueError("no such batch")\n\n\ninner()\n'


# Where it is active


def test_it_is_written_in_the_language_of_old_pythons():
    files = sorted(path for path in SHIM.iterdir() if path.name != "__pycache__")
    assert [path.name for path in files] == [
        "holdfast_shim_deterministic.py",
        "holdfast_shim_errors.py",
        "holdfast_shim_fork.py",
        "holdfast_shim_gate.py",
        "holdfast_shim_imports.py",
        "holdfast_shim_join.py",
        "holdfast_shim_launcher.py",
        "holdfast_shim_mpi.py",
        "holdfast_shim_preload.py",
        "holdfast_shim_server.py",
        "holdfast_shim_stub.py",
        "holdfast_shim_torch.py",
        "holdfast_shim_zygote.py",
        "sitecustomize.py",
    ]
    for path in [*files, SHIM.parent / "agent" / "reaper" / "rank_names.py"]:
        ast.parse(path.read_text(), feature_version=(3, 6))


def test_the_owner_of_a_rank_says_so(ranks):
    program = "import os; print(os.getpid(), os.environ['HOLDFAST_RANK_OWNER'])"
    code, out, err = ranks.run(program, rank=7)
    pid, owner = out.split()
    assert (code, err, owner) == (0, "", f"7:{pid}")
    note = ranks.read("rank-7.shim.json")
    assert (note["pid"], note["rank"], note["stack_signal"]) == (int(pid), 7, signal.SIGRTMIN + 7)
    assert note["python"] == ".".join(map(str, sys.version_info[:3]))
    assert ranks.names() == ["rank-7.shim.json", "rank-7.stacks"]


UNTOUCHED = """import os, sys
assert sys.excepthook is sys.__excepthook__
assert all(type(one).__name__ != "Imports" for one in sys.meta_path)
assert "HOLDFAST_RANK_OWNER" not in os.environ
"""


@pytest.mark.parametrize(
    "env",
    [
        {"rank": None},
        {"rank": "-1"},
        {"rank": "\u0663"},
        {"rank": "9" * 5000},
        {"HOLDFAST_SHIM": "0"},
        {"HOLDFAST_WORKER_DIR": ""},
        {"python": ["-I"]},
        {"python": ["-E"]},
        {"python": ["-S"]},
    ],
    ids=str,
)
def test_other_processes_are_untouched(ranks, env):
    assert ranks.run(UNTOUCHED, **env) == (0, "", "")
    assert ranks.names() == []


def test_a_launcher_that_was_given_a_rank_is_not_the_rank(ranks):
    program = ranks.module("torchrun", UNTOUCHED)
    env = ranks.environment(0)
    del env["LOCAL_RANK"]
    for argv in (["-u", str(program)], ["-X", "utf8", str(program)]):
        done = subprocess.run([sys.executable, *argv], env=env, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
    for name in ("torch/__init__.py", "torch/distributed/__init__.py"):
        ranks.module(name, "")
    ranks.module("torch/distributed/run.py", UNTOUCHED)
    subprocess.run([sys.executable, "-m", "torch.distributed.run"], env=env, check=True)
    assert ranks.names() == []


CHILDREN = """import multiprocessing, os, subprocess, sys
def work():
    raise KeyError("in a child")
if __name__ == "__main__":
    for way in ("spawn", "fork"):
        child = multiprocessing.get_context(way).Process(target=work)
        child.start()
        child.join()
        assert child.exitcode == 1
    program = "import os, sys; print(sys.excepthook is sys.__excepthook__, flush=True); import torch; 1/0"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 1
    pid = os.fork()
    if pid == 0:
        import torch.deep
        raise KeyError("in a fork")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    print(os.getpid())
"""


def test_children_of_a_rank_are_not_the_rank(ranks):
    ranks.module("torch/__init__.py", "")
    ranks.module("torch/deep.py", "")
    code, out, err = ranks.run(CHILDREN, rank=0)
    hidden, pid = out.split()
    assert (code, hidden) == (0, "True"), err
    assert ranks.read("rank-0.shim.json")["pid"] == int(pid)
    assert ranks.names() == ["rank-0.shim.json", "rank-0.stacks"]


def test_a_rank_that_starts_itself_anew_stays_the_owner(ranks):
    program = """import os, sys
if len(sys.argv) == 1:
    os.execv(sys.executable, [sys.executable, sys.argv[0], "again"])
raise ValueError("after the exec")
"""
    process = ranks.start(program)
    process.communicate()
    assert ranks.read("rank-0.error.json")["pid"] == process.pid


# The sitecustomize that it hides


@pytest.mark.parametrize("rank", [None, 0])
def test_the_hidden_sitecustomize_still_runs(ranks, rank):
    hidden = ranks.module("sitecustomize.py", "import sys\nsys.path.append('/added')\nsys.seen = __name__\n")
    program = "import sys, sitecustomize; print(sys.seen, sitecustomize.__file__, '/added' in sys.path)"
    assert ranks.run(program, rank=rank) == (0, f"sitecustomize {hidden} True\n", "")


@pytest.mark.parametrize("text", ["import no_such_module", "raise RuntimeError('mine')", "1 +"])
def test_a_hidden_sitecustomize_that_fails_fails_as_before(ranks, text):
    ranks.module("sitecustomize.py", text)
    with_shim = ranks.run("print('ran')", rank=0)
    assert with_shim == ranks.run("print('ran')", rank=0, shim=False)
    assert "rank-0.shim.json" in ranks.names()


def test_a_hidden_sitecustomize_may_end_the_process(ranks):
    ranks.module("sitecustomize.py", "raise SystemExit(5)")
    plain, ours = (ranks.run("print('ran')", shim=shim) for shim in (False, True))
    assert ours[:2] == plain[:2]
    assert ours[2].endswith("SystemExit: 5\n")


def test_a_hook_of_the_hidden_sitecustomize_is_called(ranks):
    ranks.module("sitecustomize.py", "import sys\nsys.excepthook = lambda *given: print('mine', given[1])\n")
    assert ranks.run(BROKEN) == (1, "mine no such batch\n", "")
    assert ranks.read("rank-0.error.json")["message"] == "no such batch"


# Last words


def test_an_exception_is_recorded_and_printed_as_before(ranks):
    plain = ranks.run(BROKEN, shim=False)
    assert ranks.names() == []
    before_s = time.time()
    assert ranks.run(BROKEN, rank=3) == plain
    error = ranks.read("rank-3.error.json")
    assert before_s <= error.pop("time") <= time.time()
    assert error.pop("pid") == ranks.started[-1].pid
    assert error == {
        "rank": 3,
        "type": "ValueError",
        "message": "no such batch",
        "traceback": plain[2],
        "frame": "train.py:2 inner",
    }


def test_an_exception_without_stderr_is_recorded(ranks):
    code, _, _ = ranks.run("import sys\nsys.stderr.close()\nraise ValueError('closed')")
    assert (code, ranks.read("rank-0.error.json")["message"]) == (1, "closed")


def test_the_frame_is_the_users_own(ranks):
    program = "import json\nclass Odd(Exception): pass\ndef load():\n    json.loads('{')\nload()\n"
    assert ranks.run(program)[0] == 1
    assert ranks.read("rank-0.error.json")["frame"] == "train.py:4 load"
    assert ranks.read("rank-0.error.json")["type"] == "json.decoder.JSONDecodeError"


@pytest.mark.parametrize(
    "program", ["raise SystemExit(3)", "import sys; sys.exit('why')", "raise KeyboardInterrupt"]
)
def test_an_exit_that_was_asked_for_is_no_error(ranks, program):
    assert ranks.run(program) == ranks.run(program, shim=False)
    assert "rank-0.error.json" not in ranks.names()


HARD = {
    "long": "raise ValueError('x' * 10_000_000)",
    "surrogates": "raise ValueError('\\udc80 \\u4f60')",
    "no str": "class E(Exception):\n    def __str__(self): raise TypeError('odd')\nraise E",
    "deep": "def f(): f()\nf()",
}


@pytest.mark.parametrize("program", HARD.values(), ids=HARD)
def test_odd_exceptions_are_recorded_within_bounds(ranks, program):
    code, _, err = ranks.run(program)
    assert (code, err) == ranks.run(program, shim=False)[::2]
    text = (ranks.folder / "rank-0.error.json").read_text()
    assert len(json.loads(text)["message"].encode()) <= 4 << 10
    assert len(json.loads(text)["traceback"].encode()) <= 64 << 10


# Output


def with_files(ranks, program, **how):
    with (ranks.folder / "stdout").open("ab") as out, (ranks.folder / "stderr").open("ab") as err:
        return ranks.run(program, **{"out": out, "err": err, **how})


def test_output_to_the_shared_files_goes_to_the_ranks_own(ranks):
    program = (
        "import os, sys\nprint('out', flush=True)\nprint('err', file=sys.stderr)\nos.system('echo child')\n"
    )
    for rank in (0, 1):
        assert with_files(ranks, program, rank=rank)[0] == 0
        assert (ranks.folder / f"rank-{rank}.log").read_text() == "out\nerr\nchild\n"
    assert (ranks.folder / "stdout").read_bytes() == (ranks.folder / "stderr").read_bytes() == b""


def test_other_output_stays_where_it_is(ranks):
    program = "import sys\nprint('out')\nprint('err', file=sys.stderr)\n"
    assert ranks.run(program) == (0, "out\n", "err\n")
    assert "rank-0.log" not in ranks.names()
    assert with_files(ranks, program, out=subprocess.PIPE) == (0, "out\n", "")
    assert (ranks.folder / "rank-0.log").read_text() == "err\n"


def test_closed_streams_do_no_harm(ranks):
    path = ranks.module("train.py", "open('%s', 'w').close()" % (ranks.folder / "ran"))
    argv = ["sh", "-c", 'exec "$0" "$1" <&- >&- 2>&-', sys.executable, str(path)]
    subprocess.run(argv, env=ranks.environment(0), check=True)
    assert ranks.names() == ["ran", "rank-0.shim.json", "rank-0.stacks"]


# A folder that cannot be written


@pytest.mark.parametrize("folder", ["/proc/none", "/dev/null", "/dev/null/below", "relative", "/nul\udc80"])
def test_without_its_folder_the_script_runs_as_before(ranks, folder):
    ranks.module("torch/__init__.py", "")
    program = "import torch\n" + BROKEN
    assert ranks.run(program, HOLDFAST_WORKER_DIR=folder) == ranks.run(program, shim=False)


def test_a_full_disk_does_no_harm(ranks):
    ranks.module("torch/__init__.py", "")
    path = ranks.module("train.py", "import torch\n" + BROKEN)
    argv = ["sh", "-c", 'ulimit -f 0; exec "$0" "$1"', sys.executable, str(path)]
    done = subprocess.run(argv, env=ranks.environment(0), capture_output=True, check=False)
    assert (done.returncode, done.stderr.decode()) == ranks.run("import torch\n" + BROKEN, shim=False)[::2]
    assert all((ranks.folder / name).stat().st_size == 0 for name in ranks.names())


# Stacks


def test_a_rank_writes_its_stacks_when_asked(ranks):
    program = "import os\ndef wait_here():\n    print('up', flush=True)\n    os.read(os.pipe()[0], 1)\nwait_here()\n"
    process = ranks.start(program, rank=4)
    assert process.stdout.readline() == b"up\n"
    asked = stacks.ask(ranks.folder, 4, process.pid)
    (found,) = stacks.collect([asked], time.monotonic() + 60, time.monotonic, time.sleep)
    assert found.rank == 4
    assert any("wait_here" in frame for frame in found.frames)
    assert process.poll() is None


def test_a_script_that_closes_every_low_descriptor_gets_no_stacks_into_its_files(ranks):
    program = """import os, signal
os.closerange(3, 400)
with open(%r, "wb") as mine:
    os.kill(os.getpid(), signal.SIGRTMIN + 7)
"""
    assert ranks.run(program % str(ranks.folder / "mine")) == (0, "", "")
    assert (ranks.folder / "mine").read_bytes() == b""
    assert b"most recent call first" in (ranks.folder / "rank-0.stacks").read_bytes()


# What is imported


def test_the_first_rank_notes_what_it_imports_of_torch(ranks):
    ranks.module("torch/__init__.py", "from torch import a\n")
    ranks.module("torch/a.py", "")
    program = """import os
os.environ["OMP_NUM_THREADS"] = "4"
os.environ["HOLDFAST_OWN"] = "1"
del os.environ["LOCAL_RANK"]
import json, torch, torch.a
try:
    import torch.none
except ImportError:
    pass
os.environ["LATE"] = "1"
"""
    assert ranks.run(program, rank=0) == (0, "", "")
    lines = (ranks.folder / "imports").read_text().splitlines()
    assert lines == ["env:LOCAL_RANK", "env:OMP_NUM_THREADS", "torch", "torch.a", "torch.none"]
    (ranks.folder / "imports").unlink()
    assert ranks.run("import torch", rank=1) == (0, "", "")
    assert "imports" not in ranks.names()
    assert ranks.run("import torch", rank=8, LOCAL_RANK="0") == (0, "", "")  # of another worker
    assert (ranks.folder / "imports").read_text() == "torch\ntorch.a\n"


@pytest.mark.parametrize("learns", ["", "1"])
def test_a_module_that_is_only_looked_for_is_not_noted(ranks, learns):
    for name in ("torch/__init__.py", "torch/a.py", "torch/b.py"):
        ranks.module(name, "")
    program = """import importlib.util, sys
assert importlib.util.find_spec("torch.a")
assert "torch" in sys.modules and "torch.a" not in sys.modules
import torch.b
assert importlib.util.find_spec("torch.b")
"""
    assert ranks.run(program, rank=0, HOLDFAST_LEARNS=learns) == (0, "", "")
    assert (ranks.folder / "imports").read_text() == "torch\ntorch.b\n"
    if learns:
        learned = (ranks.folder / "imports.learned").read_text().splitlines()
        assert "torch.a" not in learned


def test_the_list_of_imports_is_bounded(ranks):
    ranks.module("torch/__init__.py", "")
    program = """for number in range(7000):
    for _ in range(2):
        try:
            __import__(f"torch.m{number}")
        except ImportError:
            pass
"""
    assert ranks.run(program) == (0, "", "")
    lines = (ranks.folder / "imports").read_text().splitlines()
    assert len(lines) == len(set(lines)) == 6000


def noted(ranks) -> list[str]:
    lines = (ranks.folder / "imports").read_text().splitlines()
    (ranks.folder / "imports").unlink()
    return lines


def test_large_packages_are_noted_where_they_are_installed(ranks):
    ranks.module("torch/__init__.py", "")
    ranks.module("site-packages/transformers/__init__.py", "import torch, transformers.models\n")
    ranks.module("site-packages/transformers/models.py", "")
    ranks.module("site-packages/small.py", "")
    ranks.module("datasets.py", "")  # the user's own, of a package's name
    program = """import sys
sys.path.append(sys.path[0] + "/site-packages")
sys.path += [place + "/site-packages" for place in sys.path]
import datasets, small, transformers
"""
    assert ranks.run(program) == (0, "", "")
    assert noted(ranks) == ["transformers", "torch", "transformers.models"]


def test_what_a_library_changes_of_the_environment_while_it_is_imported_is_no_change_of_the_scripts(ranks):
    ranks.module("torch/__init__.py", "")
    ranks.module(
        "site-packages/lightning/__init__.py", "import os\nos.environ['OF_LIGHTNING'] = '1'\nimport torch\n"
    )
    ranks.module("site-packages/timm.py", "")
    program = """import os, sys
sys.path += [place + "/site-packages" for place in sys.path]
import lightning
os.environ["OF_THE_SCRIPT"] = "1"
import timm
"""
    assert ranks.run(program) == (0, "", "")
    assert noted(ranks) == ["lightning", "torch", "env:OF_THE_SCRIPT", "timm"]


OPENS_GPU = "import torch.cuda\ntorch.cuda._initialized = True\n"


@pytest.mark.parametrize(
    ("library", "script", "marks"),
    [(OPENS_GPU, "", ["device"]), ("", OPENS_GPU, [])],
    ids=["import", "script"],
)
def test_a_gpu_that_is_opened_while_a_library_is_imported_is_noted(ranks, library, script, marks):
    ranks.module("torch/__init__.py", "import torch.cuda\n")
    ranks.module("torch/cuda.py", "_initialized = False\n")
    ranks.module("torch/late.py", "")
    ranks.module(
        "site-packages/timm.py", f"{library}import torch\n{'import torch.late' if library else ''}\n"
    )
    program = f"""import sys
sys.path += [place + "/site-packages" for place in sys.path]
import torch, timm
{script}
import torch.late
"""
    assert ranks.run(program) == (0, "", "")
    assert noted(ranks) == ["torch", "torch.cuda", "timm", *marks, "torch.late"]


# PyTorch


@pytest.mark.torch
def test_pytorchs_own_hook_keeps_ours(ranks):
    program = """import torch, torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
def train():
    torch.ones(2) @ torch.ones(3)
train()
"""
    code, _, err = ranks.run(program)
    assert code == 1
    assert "[rank0]: RuntimeError" in err
    error = ranks.read("rank-0.error.json")
    assert (error["type"], error["frame"]) == ("RuntimeError", "train.py:4 train")
    lines = (ranks.folder / "imports").read_text().splitlines()
    assert lines[0] == "torch"
    assert "torch.distributed" in lines
    assert len(lines) < 6000
