"""A rank says how far it is in its collectives, whatever its script does; and its script never feels it."""

import contextlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from rank_kit import SHIM, wait_for

from holdfast.model.flight.records import Group, GroupStatus
from holdfast.observe.processes import worker_server
from holdfast.observe.processes.worker_server import GroupStatusReader, flight_records, group_status

# A torch of two recorders and one group, as far as the shim looks at it.
TORCH = {
    "torch/__init__.py": "from torch import _C\n",
    "torch/_C.py": """class _distributed_c10d:
    @staticmethod
    def _dump_fr_trace_json(collectives, active):
        assert not collectives
        return b'{"pg_status":{"0":{"last_enqueued_collective":"7","last_completed_collective":"6"}}}'
    @staticmethod
    def _dump_fr_trace(collectives, stacks, active):
        assert collectives and not stacks
        return b"pickle"
""",
    "torch/distributed/__init__.py": "from torch.distributed import distributed_c10d\n",
    "torch/distributed/distributed_c10d.py": """class Group:
    group_desc = "default_pg"
    def _get_sequence_number_for_group(self):
        return 9
class _world:
    group = Group()
    pg_names, pg_map = {group: "0"}, {group: ("gloo", None)}
    pg_group_ranks = {group: {0: 0, 1: 1}}
""",
}
WAIT = "import os, torch.distributed\nprint('up', flush=True)\nos.read(os.pipe()[0], 1)\n"
STATUS = (GroupStatus(0, 7, -1, 6),)


@pytest.fixture
def fake(ranks):
    for name, text in TORCH.items():
        ranks.module(name, text)
    return ranks


def up(ranks, program=WAIT, **how):
    process = ranks.start(program, **how)
    assert process.stdout.readline() == b"up\n"
    return process


def asked(ranks, rank=0, within_s=60.0):
    path = ranks.folder / f"rank-{rank}.sock"
    return group_status(path, time.monotonic() + within_s, time.monotonic)


def test_a_rank_with_torch_distributed_answers(fake):
    up(fake, rank=3)
    assert asked(fake, 3) == STATUS
    path = fake.folder / "rank-3.sock"
    assert flight_records(path, time.monotonic() + 60, time.monotonic) == (b"pickle",)
    groups = worker_server.read_groups(fake.folder / "rank-3.groups.json")
    assert groups == {"0": Group(name="0", about="default_pg", ranks=(0, 1), backend="gloo")}
    assert path.stat().st_mode & 0o777 == 0o600


def test_without_torch_distributed_there_is_nothing(ranks):
    ranks.module("torch/__init__.py", "")
    program = """import sys, os, torch, json, asyncio
assert not any("holdfast" in name for name in sys.modules)
assert len(os.listdir("/proc/self/task")) == 1
"""
    assert ranks.run(program, rank=1) == (0, "", "")
    assert ranks.names() == ["rank-1.shim.json", "rank-1.stacks"]


def test_at_its_end_a_rank_says_how_far_it_came(fake):
    assert fake.run("import torch.distributed", rank=1) == (0, "", "")
    assert fake.names() == [
        "rank-1.groups.json",
        "rank-1.shim.json",
        "rank-1.stacks",
        "rank-1.status.json",
    ]
    text = (fake.folder / "rank-1.status.json").read_bytes()
    assert worker_server.parse_status(text) == STATUS
    assert json.loads(text)["exit_time"] > 0


def test_an_exception_leaves_the_record(fake):
    code, _, _ = fake.run("import torch.distributed\nraise ValueError('x')", rank=1)
    assert code == 1
    assert (fake.folder / "rank-1.flight.pickle").read_bytes() == b"pickle"
    assert {"rank-1.error.json", "rank-1.groups.json", "rank-1.status.json"} <= set(fake.names())


BROKEN_TORCH = {
    "raises": {"torch/distributed/distributed_c10d.py": "raise ImportError('libc10d.so')"},
    "no recorder": {"torch/_C.py": ""},
    "recorder raises": {"torch/_C.py": "class _distributed_c10d:\n    _dump_fr_trace_json = 5\n"},
    "no world": {"torch/distributed/distributed_c10d.py": ""},
    "odd world": {"torch/distributed/distributed_c10d.py": "class _world:\n    pg_names = 3\n"},
}


@pytest.mark.parametrize("files", BROKEN_TORCH.values(), ids=BROKEN_TORCH)
@pytest.mark.parametrize("end", ["", "raise ValueError('x')"])
def test_a_broken_torch_is_as_broken_as_without(fake, files, end):
    for name, text in files.items():
        fake.module(name, text)
    program = "try:\n    import torch.distributed\nexcept ImportError as error:\n    print(error)\n" + end
    assert fake.run(program, rank=1) == fake.run(program, shim=False)


def test_without_a_recorder_the_collectives_are_counted(fake):
    fake.module("torch/_C.py", "")
    up(fake)
    assert asked(fake) == (GroupStatus(0, 9, -1, -1),)


HOSTILE = {
    "clears the finders' list": "import sys\nsys.meta_path[:] = [f for f in sys.meta_path if isinstance(f, type)]",
    "replaces the hook": "import sys\nsys.excepthook = print",
    "closes descriptors": "import torch.distributed, os\nos.closerange(3, 4000)",
    "reloads": "import torch.distributed, importlib\nimportlib.reload(torch.distributed.distributed_c10d)",
    "leaves by os._exit": "import torch.distributed, os\nos._exit(0)",
    "removes its folder": "import torch.distributed, os, shutil\nshutil.rmtree(os.environ['HOLDFAST_WORKER_DIR'])",
    "takes SIGPIPE": "import torch.distributed, signal\nsignal.signal(signal.SIGPIPE, signal.SIG_DFL)",
    "execs": "import torch.distributed, os, sys\nif not os.environ.get('A'):\n"
    "    os.environ['A'] = '1'; os.execv(sys.executable, [sys.executable, *sys.argv])",
    "spawns": "import torch.distributed, subprocess, sys\n"
    "subprocess.run([sys.executable, '-c', 'import torch.distributed'], check=True)",
}


@pytest.mark.parametrize("program", HOSTILE.values(), ids=HOSTILE)
def test_whatever_a_script_does_it_runs_as_before(fake, program):
    assert fake.run(program + "\nprint('ran', flush=True)", rank=1)[0] == 0


def test_a_process_after_exec_takes_the_rank_over(fake):
    up(fake, HOSTILE["execs"] + "\n" + "print('up', flush=True)\nos.read(os.pipe()[0], 1)\n")
    assert asked(fake) == STATUS


FORK = """import torch.distributed, os, sys
pid = os.fork()
if not pid:
    sys.exit(0)
os.waitpid(pid, 0)
print("up", flush=True)
os.read(os.pipe()[0], 1)
"""


def test_a_forked_child_leaves_the_socket_to_its_parent(fake):
    up(fake, FORK)
    assert asked(fake) == STATUS


def test_a_forked_child_does_not_answer_in_its_parents_place(fake):
    up(fake, FORK.replace("sys.exit(0)", "print('up', flush=True); os.read(os.pipe()[0], 1)"))
    assert asked(fake) == STATUS
    process = fake.started[-1]
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.kill()
    process.wait()
    assert asked(fake, within_s=0) is None
    for child in children:
        os.kill(int(child), signal.SIGKILL)


BESIDE = """
import threading
def work():
    import torch.distributed, os, threading
    print(threading.get_native_id(), flush=True)
    os.read(os.pipe()[0], 1)
"""
FRAMEWORK = "import threading, sys\ndef go(work):\n    one = threading.Thread(target=work)\n    one.start()\n    one.join()\n"


@pytest.mark.parametrize("is_beside", [True, False], ids=["beside the main thread", "in the main thread"])
def test_which_thread_runs_the_script(fake, is_beside):
    """A framework's worker program waits in the main thread, and calls the script's function in another."""
    fake.module("script.py", BESIDE)
    fake.module("site-packages/framework.py", FRAMEWORK)
    call = "import framework; framework.go(script.work)" if is_beside else "script.work()"
    main = f"import sys\nsys.path[:0] = [{str(fake.modules)!r}, {str(fake.modules / 'site-packages')!r}]\nimport script; {call}"
    process = fake.start(main, name="site-packages/main.py")
    thread = int(process.stdout.readline())
    reader = GroupStatusReader(fake.folder / "rank-0.sock", time.monotonic)
    wait_for(lambda: reader.ask() and reader.read() is not None)
    reader.close()
    assert reader.thread == (thread if is_beside else 0)
    assert thread == process.pid or is_beside


def test_what_a_script_opens_after_closing_everything_is_its_own(fake):
    program = """import torch.distributed, os
os.closerange(3, 400)
print("up", flush=True)
ours, theirs = os.pipe()
os.write(theirs, b"mine")
os.read(os.pipe()[0], 1)
"""
    up(fake, program)
    assert asked(fake) == STATUS


def test_a_folder_that_is_too_deep_for_a_socket(fake):
    fake.folder = fake.folder / ("d" * 100) / ("e" * 100)
    fake.folder.mkdir(parents=True)
    up(fake)
    assert asked(fake) == STATUS


def test_a_file_system_without_sockets_gets_a_link_to_one(tmp_path):
    spec = importlib.util.spec_from_file_location("reach", SHIM / "holdfast_shim_torch.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    reach = module.Reach(None, SimpleNamespace(high=None, attempt=None, lock=list))
    with contextlib.closing(reach._bound_elsewhere(str(tmp_path / "rank-0.sock"))) as listener:
        path = (tmp_path / "rank-0.sock").readlink()
        reader = GroupStatusReader(tmp_path / "rank-0.sock", time.monotonic)
        assert (reader.ask(), path.parent.stat().st_mode & 0o777) == (True, 0o700)
        reader.close()
        assert listener.getsockname() == str(path)
    path.unlink()
    path.parent.rmdir()


def test_a_dead_ranks_socket_is_no_hindrance(fake):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(fake.folder / "rank-0.sock"))
    assert asked(fake, within_s=0) is None
    up(fake)
    assert asked(fake) == STATUS


@pytest.mark.parametrize("folder", ["/proc/none", "/dev/null/below"])
def test_without_its_folder_it_runs_as_before(fake, folder):
    program = "import torch.distributed\nraise ValueError('x')"
    place = fake.modules.parent / "temporary"
    place.mkdir()
    ours = fake.run(program, HOLDFAST_WORKER_DIR=folder, TMPDIR=str(place))
    assert ours == fake.run(program, shim=False)
    assert list(place.iterdir()) == []


def test_a_full_disk_does_no_harm(fake):
    path = fake.module("train.py", "import torch.distributed\nprint('ran', flush=True)\n")
    argv = ["sh", "-c", 'ulimit -f 0; exec "$0" "$1"', sys.executable, str(path)]
    done = subprocess.run(argv, env=fake.environment(1), capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"ran\n", b"")


@pytest.mark.parametrize("python", [("-S",), ("-I",), ("-E",)])
def test_a_python_that_sees_no_shim_runs_as_before(fake, python):
    assert fake.run("print('ran')", python=python) == (0, "ran\n", "")


def test_a_gate_keeps_it_out_until_it_opens(fake, gate):
    (fake.folder / "list").write_text("torch.distributed\n")
    program = WAIT
    process = fake.start(program, HOLDFAST_GATE=str(gate.path), HOLDFAST_PRELOAD=str(fake.folder / "list"))
    wait_for(lambda: "rank-0.ready" in fake.names())
    assert "rank-0.sock" not in fake.names()
    gate.open("{}")
    assert process.stdout.readline() == b"up\n"
    assert asked(fake) == STATUS


def test_a_stopped_rank_does_not_answer_and_does_so_when_it_goes_on(fake):
    process = up(fake)
    reader = GroupStatusReader(fake.folder / "rank-0.sock", time.monotonic)
    process.send_signal(signal.SIGSTOP)
    wait_for(lambda: " T " in Path(f"/proc/{process.pid}/stat").read_text())
    assert reader.ask()
    assert (reader.read(), reader.unanswered_since_s is None) == (None, False)
    process.send_signal(signal.SIGCONT)
    wait_for(lambda: reader.read() == STATUS)
    assert reader.unanswered_since_s is None
    reader.close()


HELD = """import ctypes, torch.distributed
ctypes.PyDLL(None).system(b"echo up; while kill -0 $PPID 2> /dev/null; do sleep 0.1; done")
"""


def test_a_rank_that_holds_the_gil_does_not_answer(fake):
    up(fake, HELD)
    reader = GroupStatusReader(fake.folder / "rank-0.sock", time.monotonic)
    assert reader.ask()
    assert reader.read() is None
    assert reader.unanswered_since_s is not None
    reader.close()


OTHER_PYTHONS = sorted((Path.home() / ".pyenv" / "versions").glob("3.*/bin/python3"))
OTHER_PYTHONS += sorted(Path("/usr/bin").glob("python3.[0-9]*[0-9]"))


@pytest.mark.parametrize("python", OTHER_PYTHONS, ids=lambda path: path.parent.parent.name)
def test_under_every_python_of_this_machine(fake, python):
    path = fake.module("train.py", "import os, torch.distributed\nprint('up', flush=True)\nos.read(0, 1)\n")
    with subprocess.Popen(
        [str(python), str(path)],
        env=fake.environment(0),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout.readline() == b"up\n"
        assert asked(fake) == STATUS
        _, err = process.communicate(b"x")
    assert (process.returncode, err) == (0, b"")
    assert worker_server.parse_status((fake.folder / "rank-0.status.json").read_bytes()) == STATUS


REAL = """import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist.new_group([0], group_desc="tp0")
for _ in range(5):
    dist.all_reduce(torch.ones(2))
print("up", flush=True)
"""


@pytest.mark.torch
def test_a_real_rank(ranks):
    process = up(ranks, REAL + "os.read(os.pipe()[0], 1)\n", TORCH_FR_BUFFER_SIZE="2000")
    # Ends are noted a moment later, by two threads of Gloo: the fourth may be noted over the fifth, and stays.
    wait_for(lambda: asked(ranks) in {(GroupStatus(0, 5, -1, done),) for done in (4, 5)})
    (record,) = flight_records(ranks.folder / "rank-0.sock", time.monotonic() + 60, time.monotonic)
    assert b"all_reduce" in record
    assert b"frames" not in record
    groups = worker_server.read_groups(ranks.folder / "rank-0.groups.json")
    assert {name: (one.about, one.ranks) for name, one in groups.items()} == {
        "0": ("default_pg", (0,)),
        "1": ("tp0", (0,)),
    }
    assert process.poll() is None


LOADER = """import torch, torch.distributed as dist
from torch.utils.data import DataLoader
if __name__ == "__main__":
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    for way in ("fork", "spawn"):
        loader = DataLoader(range(8), num_workers=1, multiprocessing_context=way)
        assert sum(len(batch) for batch in loader) == 8
    dist.destroy_process_group()
"""


@pytest.mark.torch
def test_data_loaders(ranks):
    """Neither way of starting a loader's process makes that process the rank."""
    assert ranks.run(LOADER, OMP_NUM_THREADS="1")[::2] == (0, "")
    assert "rank-0.sock" not in ranks.names()
    assert ranks.read("rank-0.shim.json")["pid"] == ranks.started[-1].pid
