"""Forks of a zygote are as fresh starts are: their setting, output and end; and whatever ends a stub ends its fork."""

import json
import os
import resource
import signal
import sys
from pathlib import Path

import pytest
from rank_kit import wait_for
from zygote_kit import Nursery, ended, state

DUMP = """
import gc, json, locale, os, resource, signal, sys, time, warnings
main = sys.modules["__main__"]
umask = os.umask(0)
os.umask(umask)
def files():
    for name in sorted(os.listdir("/proc/self/fd"), key=int):
        try:
            yield name, os.readlink(f"/proc/self/fd/{name}").partition(":")[0], os.get_inheritable(int(name))
        except OSError:
            pass
def read(name):
    with open("/proc/self/" + name, "rb") as file:
        return file.read().decode()
proc = {name: read(name) for name in ("cmdline", "comm", "oom_score_adj", "cgroup")}
environ = sorted(read("environ").split("\\0"))
limits = {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT")}
ours = ("HOLDFAST_RANK_OWNER", "HOLDFAST_FORK_SERVER", "HOLDFAST_FORK_PROGRAM")
print(json.dumps({
    "main": sorted((key, repr(value).partition(" at 0x")[0]) for key, value in vars(main).items() if key.startswith("__")),
    "python": [sys.argv, sys.orig_argv, sys.path, repr(sys.flags), sys._xoptions, sys.warnoptions, sys.executable],
    "filters": [repr(one) for one in warnings.filters],
    "locale": [locale.setlocale(locale.LC_ALL), sys.getfilesystemencoding(), time.tzname],
    "signals": [repr(signal.getsignal(number)) for number in range(1, 65)],
    "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "environ": {key: value for key, value in os.environ.items() if key not in ours},
    "initial": [one for one in environ if one.partition("=")[0] not in ours],
    "folder": os.getcwd(), "umask": umask, "limits": limits, "proc": proc,
    "scheduling": [sorted(os.sched_getaffinity(0)), os.getpriority(0, 0), os.sched_getscheduler(0)],
    "session": os.getpid() == os.getsid(0),
    "files": [one for one in files() if int(one[0]) < 400],
    "streams": [[s.encoding, s.errors, s.line_buffering, s.write_through, s.name, s.mode, type(s.buffer).__name__]
        for s in (sys.stdin, sys.stdout, sys.stderr)],
    "others": [gc.isenabled(), gc.get_threshold(), sys.getrecursionlimit(), len(os.listdir("/proc/self/task"))],
}, indent=1))
"""


@pytest.fixture
def nursery(ranks):
    made = []

    def make(program, *lines, **how):
        made.append(Nursery(ranks, program))
        report = made[-1].begin(*lines, **how)
        assert report["is"] == "ready", report
        made[-1].serve()
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def report(ranks):
    """What a zygote says of these lines."""
    made = []

    def ask(*lines, **how):
        made.append(Nursery(ranks, ""))
        return made[-1].begin(*lines, **how)

    yield ask
    for one in made:
        one.close()


@pytest.mark.parametrize(
    ("python", "how"),
    [
        ((), {}),
        (("-u",), {"start_new_session": True}),
        (("-X", "dev", "-W", "error::UserWarning"), {}),
        (("-O", "-B", "-X", "utf8"), {"umask": 0o27, "cwd": "/"}),
        (
            ("-s", "-W", "ignore"),
            {"env": {"TZ": "Asia/Shanghai", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "7"}},
        ),
    ],
)
def test_a_fork_is_as_a_fresh_start(nursery, python, how):
    here = nursery(DUMP, "json", "email.message", python=python, **how.get("env", {}))
    words = [*python, str(here.script), "--lr", "1"]
    fresh, fork = ended(here.fresh(*words, **how)), ended(here.forked(*words, **how))
    assert here.refusals() == []
    assert (fork[0], fork[2]) == (fresh[0], fresh[2]) == (0, "")
    assert json.loads(fork[1]) == json.loads(fresh[1])


def test_a_module_is_run_as_by_a_fresh_start(nursery, ranks):
    ranks.module("package/__init__.py", "")
    ranks.module("package/tool.py", DUMP)
    here = nursery("")
    words = ["-u", "-m", "package.tool", "--lr", "1"]
    fresh, fork = ended(here.fresh(*words)), ended(here.forked(*words))
    assert here.refusals() == []
    assert json.loads(fork[1]) == json.loads(fresh[1])


def test_another_script_is_run_as_by_a_fresh_start(nursery, ranks):
    """As a launcher is."""
    other = ranks.module("torchrun", DUMP)
    here = nursery("")
    fresh, fork = ended(here.fresh(str(other), "x")), ended(here.forked(str(other), "x"))
    assert here.refusals() == []
    assert json.loads(fork[1]) == json.loads(fresh[1])


BY_OTHERS = """
import inspect, json, os, sys
files = [os.path.basename(one.filename) for one in inspect.stack()]
print(json.dumps([sys.argv, sys.path, __name__, __file__, sorted(k for k in vars() if k.startswith("__"))]))
print(*[name for name in files if name != "holdfast_shim_fork.py"])
"""
PYTHONS = [sys.executable, *map(str, sorted((Path.home() / ".pyenv" / "versions").glob("3.*/bin/python3")))]


@pytest.mark.parametrize("python", [one for one in PYTHONS if "/3.6" not in one and "/3.7" not in one])
@pytest.mark.parametrize("own", [[], ["-m", "train"]])
def test_another_script_has_no_frames_below_in_each_python(nursery, ranks, python, own):
    """`inspect` goes through all modules for each frame of the start: a second of a core in torchrun."""
    other = ranks.module("torchrun", BY_OTHERS)
    here = nursery(BY_OTHERS, "inspect", executable=python, own=own)
    for words in ([str(other), "x"], own or [str(here.script)]):
        fresh, fork = (ended(start(*words, executable=python)) for start in (here.fresh, here.forked))
        assert here.refusals() == []
        assert fork == fresh


def test_a_stack_asks_no_module_for_its_file(nursery, ranks):
    """It would copy the pages that the forks of a zygote share."""
    other = ranks.module(
        "torchrun",
        "import inspect, json, os, sys\n"
        "here = inspect.getmodule(inspect.stack()[0].frame).__name__\n"
        "print(here, inspect.modulesbyfile[os.path.abspath(json.__file__)], len(inspect._filesbymodname))\n",
    )
    here = nursery("", "inspect", "json")
    assert ended(here.forked(str(other)))[:2] == (0, "__main__ json 0\n")
    assert ended(here.fresh(str(other)))[1].startswith("__main__ json ")


def test_other_variables_descriptors_and_limits_are_the_stubs(nursery, tmp_path):
    given = os.open(tmp_path / "given", os.O_RDWR | os.O_CREAT)
    how = {"pass_fds": (given,), "env": {"RANK": "1", "OWN": "x"}, "rank": 1, "preexec_fn": _harden}
    here = nursery(DUMP, OWN="y")
    fresh, fork = ended(here.fresh(**how)), ended(here.forked(**how))
    os.close(given)
    assert here.refusals() == []
    assert json.loads(fork[1]) == json.loads(fresh[1])


def _harden():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (1000, 1024))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    os.nice(3)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def test_forks_draw_other_random_numbers(nursery):
    draw = """
import multiprocessing, random, numpy, torch
print(random.random(), numpy.random.rand(), torch.initial_seed(), bytes(multiprocessing.current_process().authkey).hex())
"""
    here = nursery(draw, "random", "multiprocessing", "numpy.random", "torch", OMP_NUM_THREADS="1")
    one, other = (ended(here.forked(env={"OMP_NUM_THREADS": "1"}))[1].split() for _ in range(2))
    assert len(one) == len(other) == 4
    assert not set(one) & set(other)
    assert here.refusals() == []


ENDS = """
import os, signal, sys
end = sys.argv[1]
print("begun", flush=True)
if end.isdigit():
    sys.exit(int(end))
if end.startswith("SIG"):
    os.kill(os.getpid(), getattr(signal, end))
if end == "error":
    raise ValueError("bad record")
if end == "words":
    sys.exit("no data")
if end == "interrupt":
    raise KeyboardInterrupt
if end == "os-exit":
    os._exit(9)
import atexit
atexit.register(print, "atexit")
"""


@pytest.mark.parametrize(
    "end",
    [
        "0",
        "7",
        "SIGKILL",
        "SIGTERM",
        "SIGSEGV",
        "SIGABRT",
        "SIGINT",
        "error",
        "words",
        "interrupt",
        "os-exit",
        "well",
    ],
)
@pytest.mark.parametrize("is_other", [False, True])
def test_the_stub_ends_as_its_fork_does(nursery, ranks, end, is_other):
    other = ranks.module("torchrun", ENDS)
    here = nursery(ENDS)
    words = [str(other if is_other else here.script), end]
    fresh, fork = ended(here.fresh(*words)), ended(here.forked(*words))
    assert here.refusals() == []
    assert fork[:2] == fresh[:2]
    assert _without_files(fork[2]) == _without_files(fresh[2])
    wait_for(lambda: not here.forks())


def _without_files(text):
    """Faulthandler's stack names its thread by address, and has the frames by which the process was forked."""
    if "Fatal Python error" not in text:
        return text
    return [line for line in text.splitlines() if not line.startswith(("  File", "Current thread"))]


WAITS = """
import os, signal, sys, time
def heard(number, frame):
    print("heard", number, flush=True)
signal.signal(signal.SIGUSR1, heard)
signal.signal(signal.SIGTERM, heard)
print(os.getpid(), flush=True)
while True:
    time.sleep(0.01)
"""


def waiting(here):
    process = here.forked()
    return process, int(process.stdout.readline())


def test_signals_and_stops_are_passed_on(nursery):
    here = nursery(WAITS)
    stub, pid = waiting(here)
    assert pid != stub.pid
    for number in (signal.SIGUSR1, signal.SIGTERM):
        stub.send_signal(number)
        assert stub.stdout.readline() == b"heard %d\n" % number
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: state(stub.pid) == "T")
    os.kill(pid, signal.SIGCONT)
    wait_for(lambda: state(stub.pid) != "T")
    stub.send_signal(signal.SIGINT)
    assert stub.wait() == -signal.SIGINT


@pytest.mark.parametrize("victim", ["stub", "server", "fork"])
def test_whatever_ends_one_ends_the_other(nursery, victim):
    here = nursery(WAITS)
    stub, pid = waiting(here)
    os.kill({"stub": stub.pid, "server": here.server, "fork": pid}[victim], signal.SIGKILL)
    wait_for(lambda: state(pid) in ("", "Z"))
    assert stub.wait() == {"stub": -9, "server": 1, "fork": -9}[victim]


def test_a_fork_outlives_the_zygote_and_its_server_ends_with_the_reaper(nursery):
    here = nursery(WAITS)
    stub, pid = waiting(here)
    here.control.close()
    here.zygote.wait()
    stub.send_signal(signal.SIGUSR1)
    assert stub.stdout.readline() == b"heard %d\n" % signal.SIGUSR1
    here.channel.close()
    wait_for(lambda: state(pid) in ("", "Z"))
    wait_for(lambda: state(here.server) in ("", "Z"))


# Safe or not at all


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


def test_no_part_of_a_package_that_is_left_out_is_imported(report, ranks):
    ranks.module("bad/__init__.py", "import os; os.environ.get('LOCAL_RANK')")
    ranks.module("bad/part.py", "")
    said = report("bad", "bad.part", left_out={"bad": ""})
    assert (said["is"], said["cost"]) == ("ready", {})


def test_memory_is_limited(report, ranks):
    ranks.module("large.py", "kept = bytearray(100 << 20)")
    said = report("large", memory_kib_max=80 << 10)
    assert said["why"] == "the memory exceeds 80 MiB"


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


def test_processes_of_multiprocessing_are_forked_too(nursery):
    spawn = """
import multiprocessing, os, sys
def work(number):
    os.write(1, f"{number} {os.path.basename(sys.argv[0])} {'email' in sys.modules}\\n".encode())  # whole, beside the other
    sys.exit(number)
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=work, args=(number,)) for number in (3, 4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(sorted(worker.exitcode for worker in workers))
"""
    here = nursery(spawn, "email", "multiprocessing.spawn")
    code, out, err = ended(here.forked(rank=None))
    assert (code, err) == (0, "")
    assert sorted(out.splitlines()) == ["3 train.py True", "4 train.py True", "[3, 4]"]
    assert here.refusals() == []
