"""Part of the shim: makes the imports of the zygote, and checks the rules that they must keep. Loaded by
`holdfast_shim_zygote.py`.

After each listed module it checks: no thread that does not survive a fork, no new descriptor, no process, no signal
handler, no changed variable, no device, no output, memory below a limit. The first module that breaks a rule ends the
imports.
"""

import _thread
import contextvars
import os
import signal
import sys
import time
from importlib import metadata
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

NICE = 19
JOIN_S = 2.0
# To ask torch whether there is a GPU initialises it, unless this variable is 1. The zygote shows it to torch alone, so that a
# module that sets it where it is missing does so here as well. source: torch/cuda/__init__.py, 2.13
DEVICE_CHECK, DEVICE_CHECK_READER = b"PYTORCH_NVML_BASED_CUDA_CHECK", "torch.cuda"
# Which rank of which attempt a process is: what reads one of these when it is imported cannot be imported ahead.
PLACE = set(
    "RANK LOCAL_RANK GROUP_RANK ROLE_RANK ROLE_NAME WORLD_SIZE LOCAL_WORLD_SIZE ROLE_WORLD_SIZE GROUP_WORLD_SIZE"
    " MASTER_ADDR MASTER_PORT NODE_RANK SLURM_PROCID SLURM_LOCALID SLURM_NODEID OMPI_COMM_WORLD_RANK TF_CONFIG"
    " OMPI_COMM_WORLD_LOCAL_RANK PMI_RANK PMIX_RANK NCCL_DEBUG_FILE TORCH_NCCL_DEBUG_INFO_TEMP_FILE"
    " TORCH_NCCL_DEBUG_INFO_PIPE_FILE".split()
)
PLACE_OF = ("HOLDFAST_", "MA_", "PET_", "TORCHELASTIC_")
# Modules that keep the rank of their process when they are imported: in what (an attribute of a function of theirs), and
# by which variables, the first that is set; 0 without. A fork sets it anew. source: lightning 2.6,
# fabric/utilities/rank_zero.py (lightning_fabric is the same package by its own name); torchmetrics 1.8, utilities/prints.py
KEEP_RANK = {
    "lightning.fabric.utilities.rank_zero": (
        "rank_zero_only",
        "RANK LOCAL_RANK SLURM_PROCID JSM_NAMESPACE_RANK",
    ),
    "lightning_fabric.utilities.rank_zero": (
        "rank_zero_only",
        "RANK LOCAL_RANK SLURM_PROCID JSM_NAMESPACE_RANK",
    ),
    "torchmetrics.utilities.prints": ("rank_zero_only", "LOCAL_RANK"),
}
ENVIRON = ("os", "collections.abc", "_collections_abc")  # modules through which variables are read
# Read by libraries in C, which nobody sees: they must be the same as in the zygote.
IN_C = tuple(
    "OMP_ KMP_ GOMP_ MKL_ OPENBLAS_ GOTO_ BLIS_ NUMEXPR_ CUDA_ NCCL_ NVIDIA_ NV_ TORCH PYTORCH_ ATEN_ C10_ KINETO_ LD_"
    " MALLOC_ GLIBC_ PYTHON LC_ LANG TZ HSA_ HIP_ ROCR_ ROCM_ ASCEND_ NPU_ HCCL_ TF_ XLA_ JAX_ GRPC_ RAYON_ GLOG_ UCX_ FI_"
    " GLOO_ TP_ DNNL_ ONEDNN_ TRITON_ BITSANDBYTES_ VIRTUAL_ENV".split()
)
DEVICES = (b"/dev/nvidia", b"/dev/kfd", b"/dev/dri", b"/dev/davinci", b"/dev/accel", b"/dev/infiniband")
SILENT = "colorsys"  # a small module of the standard library, which prints nothing while it is imported
QUIET_FILES = {"/dev/null", "/dev/urandom", "/dev/random", "/dev/zero"}


class Broken(Exception):
    """Raised when an imported module has done something that a fork would not survive or would share with other
    ranks.
    """


class Watched(dict):  # type: ignore[type-arg]
    """A replacement of `os.environ` that records which module reads which variable. Iterating over all variables
    counts as no read.
    """

    reads = {}  # type: dict[bytes, str]
    module = ""
    walk = []  # type: list[bytes]  # what a walk that has begun reads next, the last first

    def __iter__(self) -> "Iterator[bytes]":
        Watched.walk = list(dict.__iter__(self))[::-1]
        return dict.__iter__(self)

    def __getitem__(self, key: bytes) -> bytes:
        if self.walk and self.walk[-1] == key:
            self.walk.pop()
        else:
            reader = _reader()
            if reader == DEVICE_CHECK_READER and key == DEVICE_CHECK:
                return bytes(dict.get(self, key, b"1"))
            if reader not in KEEP_RANK:
                self.reads.setdefault(key, self.module)
        found = dict.__getitem__(self, key)  # type: bytes
        return found


class Imports:
    """Imports the listed modules, and checks after each that it has done nothing that a fork would not survive."""

    def __init__(
        self,
        orders: "dict[str, Any]",
        env: "dict[bytes, bytes]",
        set_environ: "Callable[[dict[bytes, bytes]], None]",
    ) -> None:
        self.lines = orders["lines"]
        self.launcher = set(orders["launcher"])
        self.to_set = orders["to_set"]
        self.set_environ = set_environ
        self.left_out = {name for name, version in orders["left_out"].items() if _version(name) == version}
        self.memory_kib_max = orders["memory_kib_max"]
        self.memory_kib = 0  # what was too much
        self.cost = {}  # type: dict[str, float]
        self.why = {}  # type: dict[str, Any]
        self.env = env
        self.added = {}  # type: dict[bytes, bytes]  # variables that modules have set
        self.added_by = {}  # type: dict[bytes, str]  # the listed module with which each came
        self.context = contextvars.copy_context()
        self.own = set()  # type: set[str]  # names of packages of the user's own
        self.changed = set()  # type: set[bytes]
        self.stopped_at = ""

    def baseline(self) -> None:
        """Records the state of the process before the imports begin, and redirects what modules print to a file,
        which must stay empty.
        """
        self.out = os.memfd_create("output", os.MFD_CLOEXEC)
        for fd in (1, 2):
            os.dup2(self.out, fd)
        self.set_environ(Watched(os.environ._data))  # type: ignore[attr-defined]
        Watched.reads.clear()
        self.path = list(sys.path)
        self.fds, self.signals = _descriptors(), _handlers()
        self.cwd, self.umask = os.getcwd(), _umask()

    def run(self, over: int) -> None:
        """Makes the imports; runs in a thread of its own."""
        try:
            os.setpriority(os.PRIO_PROCESS, _thread.get_native_id(), NICE)
            __import__(SILENT)
            if os.fstat(self.out).st_size:
                raise Broken("its Python prints what it imports")
            for line in self.lines:
                if not self.take(line):
                    break
            know_files()
            self.context = contextvars.copy_context()
        except Broken as broken:
            self.why = {"name": "", "why": str(broken)}
        except BaseException as error:
            self.why = self.why or {"name": "", "why": repr(error)}
        finally:
            os.close(over)

    def take(self, line: str) -> bool:
        """Processes one line of the list of imports. Returns False if the rest of the list must not be imported."""
        mark, _, name = line.rpartition(":")
        if mark == "env":
            self.changed.add(os.fsencode(name))
            if name.startswith(IN_C):
                self.stopped_at = name
            return not self.stopped_at
        if mark == "own":
            self.own.add(name)
            return True
        parts = name.split(".")  # to import a part imports the whole before
        if name in sys.modules or any(
            ".".join(parts[:at]) in self.left_out for at in range(1, len(parts) + 1)
        ):
            return True
        before, begun_s = len(sys.modules), time.perf_counter()
        Watched.module = name
        try:
            __import__(name)
        except BaseException:  # SystemExit too: the script's own import will raise it again
            pass
        if len(sys.modules) == before:
            return True
        self.cost[name] = time.perf_counter() - begun_s
        try:
            self.check()
        except Broken as broken:
            self.why = {"name": name, "why": str(broken), "version": _version(name)}
            self.why["memory_kib"] = self.memory_kib
        return not self.why

    def check(self) -> None:
        """Checks that the last import has broken no rule. raises: Broken"""
        if os.fstat(self.out).st_size:
            raise Broken("it prints while it is imported: %r" % os.pread(self.out, 80, 0))
        if _descriptors() - self.fds:
            raise Broken("it keeps open: %s" % ", ".join(_targets(_descriptors() - self.fds)))
        if _handlers() != self.signals:
            raise Broken("it handles signals")
        if os.getcwd() != self.cwd or _umask() != self.umask or sys.path != self.path:
            raise Broken("it changes the working directory, the umask or sys.path")
        if _children():
            raise Broken("it starts processes")
        if _threads() > 2 and _threads_after_a_fork() > 2:
            raise Broken("it starts threads")
        if any(getattr(sys.modules.get(name), "_initialized", False) for name in ("torch.cuda", "torch.xpu")):
            raise Broken("it initialises the device")
        if _memory_kib() > self.memory_kib_max:
            self.memory_kib = _memory_kib()
            raise Broken("the memory exceeds %d MiB" % (self.memory_kib_max >> 10))
        self.check_environment()
        own = [name for name in self.own if name in sys.modules]
        if own:
            raise Broken("it imports %s, which is also a name of the script's own" % own[0])

    def check_environment(self) -> None:
        """Checks that the last import has changed no variable of the environment. raises: Broken"""
        now = os.environ._data  # type: ignore[attr-defined]
        for key, value in self.env.items():
            if dict.get(now, key) != value:
                raise Broken("it changes the variable %s" % os.fsdecode(key))
        self.added = {key: value for key, value in dict.items(now) if key not in self.env}
        for key in self.added:
            self.added_by.setdefault(key, Watched.module)
        for key, module in Watched.reads.items():
            name = os.fsdecode(key)
            if module == Watched.module and (name in PLACE or name.startswith(PLACE_OF)):
                raise Broken("it reads %s" % name)
            if module == Watched.module and key in self.changed:
                raise Broken("it reads %s, which the script sets before" % name)

    def finish(self) -> "dict[str, Any]":
        """Completes the imports, in the main thread, after the thread that made them has ended. Returns which rule
        was broken; empty if none.
        """
        until_s = time.monotonic() + JOIN_S
        while _threads() > 1 and _threads_after_a_fork() > 1 and time.monotonic() < until_s:
            time.sleep(0.005)
        for variable, value in self.context.items():
            variable.set(value)
        os.close(self.out)
        for fd in (1, 2):
            os.dup2(0, fd)
        if self.why:
            return self.why
        if _threads() > 1:
            return {"name": "", "why": "a thread is left"}
        with open("/proc/self/maps", "rb") as file:
            maps = file.read()
        found = [device.decode() for device in DEVICES if device in maps]
        return {"name": "", "why": "a device is open: %s" % found[0]} if found else {}

    def added_by_launcher(self) -> "dict[bytes, bytes]":
        """Returns those variables set by imported modules that a launcher sets as well, because it imports the same
        modules.
        """
        return {key: value for key, value in self.added.items() if self.added_by[key] in self.launcher}

    def report(self) -> "dict[str, Any]":
        cost = sorted(self.cost.items(), key=lambda one: -one[1])[:2000]
        return {
            "cost": dict(cost),
            "modules": len(sys.modules),
            "memory_kib": _memory_kib(),
            "stopped_at": self.stopped_at,
            "not_set": [name for name in self.to_set if os.fsencode(name) not in self.added],
        }


def environment_why_not(
    ours: "dict[bytes, bytes]",
    theirs: "dict[bytes, bytes]",
    reads: "dict[str, str]",
    added: "dict[bytes, bytes]",
) -> str:
    """Returns why modules that were imported with the environment `ours` may not be used with the environment
    `theirs`; empty if they may.

    `reads`: by variable, which module has read it when it was imported. `added`: the variables that these modules
    have set themselves; a launcher that has imported them as well passes its own values on to its ranks.
    """
    for key in sorted(set(ours) | set(theirs)):
        name = os.fsdecode(key)
        if ours.get(key) == theirs.get(key) or name in PLACE or name.startswith(PLACE_OF):
            continue
        if key in added and key in theirs:
            if theirs[key] == added[key]:
                continue
            return "%s has another value than the imports give it" % name
        if name.startswith(IN_C):
            return "%s has another value" % name
        if name in reads:
            return "%s has another value, and is read when %s is imported" % (name, reads[name])
    return ""


def know_files() -> None:
    """Tells `inspect` once which module each file is of.

    Else each fork that takes a stack, as torchrun does, asks all modules for their files, and by that copies the pages
    that they share: 15 MiB with torch 2.13. A file that is missing here, `inspect` looks for itself.
    """
    inspect = sys.modules.get("inspect")
    known = getattr(inspect, "modulesbyfile", None)
    if isinstance(known, dict):
        for module in list(sys.modules.values()):
            if type(module) is ModuleType:  # others may import as soon as they are asked for an attribute
                file, name = module.__dict__.get("__file__"), module.__dict__.get("__name__")
                if isinstance(file, str) and isinstance(name, str) and file.endswith(".py"):
                    known.setdefault(os.path.abspath(file), name)


def keep_rank_anew() -> None:
    """Sets in this fork what imported modules keep of the rank, as their import would."""
    for name, (holder, variables) in KEEP_RANK.items():
        kept = getattr(sys.modules.get(name), holder, None)  # type: Any
        if hasattr(kept, "rank"):
            found = [os.environ[key] for key in variables.split() if key in os.environ]
            kept.rank = int(found[0]) if found else 0


def _reader() -> str:
    """Returns the name of the module whose code reads a variable now."""
    frame = sys._getframe(2)  # type: Any
    while frame is not None and frame.f_globals.get("__name__") in ENVIRON:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__")) if frame is not None else ""


def _version(name: str) -> str:
    """Of the package that has this module; empty: not known."""
    try:
        return metadata.version(name.partition(".")[0])
    except Exception:
        return ""


def _descriptors() -> "set[int]":
    """Open ones, but for harmless files."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink("/proc/self/fd/" + name) not in QUIET_FILES:
                os.fstat(int(name))
                found.add(int(name))
        except OSError:
            continue
    return found


def _targets(fds: "set[int]") -> "list[str]":
    return [os.readlink("/proc/self/fd/%d" % fd) for fd in sorted(fds)]


def _handlers() -> "list[object]":
    return [signal.getsignal(number) for number in range(1, 65) if number not in (32, 33)]


def _umask() -> int:
    umask = os.umask(0o77)
    os.umask(umask)
    return umask


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _threads_after_a_fork() -> int:
    """OpenBLAS ends its threads before a fork, and starts them again when they are needed."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return _threads()


def _children() -> bool:
    found = b""
    for task in os.listdir("/proc/self/task"):
        try:
            with open("/proc/self/task/%s/children" % task, "rb") as file:
                found += file.read()
        except OSError:
            continue
    return bool(found)


def _memory_kib() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * (os.sysconf("SC_PAGE_SIZE") >> 10)
