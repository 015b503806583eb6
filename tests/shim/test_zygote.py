"""Forks of a zygote are as fresh starts are: their setting, output and end; and whatever ends a stub ends its fork."""

import json
import os
import resource
import signal
import sys
from pathlib import Path

import pytest
from rank_kit import wait_for
from zygote_kit import ended, state

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
