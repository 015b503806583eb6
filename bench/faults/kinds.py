"""Lists the faults of the benchmark: class, how each strikes, and the truth about it. Data only.

The truth follows from how a fault is made. It names a rank only where one rank is at fault: a connection has two ends, a
launcher has no rank, and a pause is no fault.
"""

from msgspec import Struct

CLASSES = (
    *("crash", "stop", "hang", "network", "disk", "memory", "data", "code", "slow", "control", "healthy"),
)


class Kind(Struct, frozen=True, kw_only=True):
    """A kind of fault.

    `category`, `also`: the right causes, categories of docs/words.md, and `also_in_log` where nothing but the log of the
    ranks and their launcher is known; `none`: a system that reports a fault is wrong;
    empty: the cause is not judged. `blames`: the rank of the fault is the culprit. `where`: `rank`, the training does it to
    itself; else the module `outside` does it. `logged`: the cause stands in the training's own output. `line`: pattern of
    the first line that states it. `rank`: fixed rank, else drawn.
    """

    name: str
    class_: str
    category: str
    what: str
    also: tuple[str, ...] = ()
    also_in_log: tuple[str, ...] = ()
    blames: bool = True
    where: str = "rank"
    logged: bool = True
    line: str = ""
    rank: int | None = None
    action: str = "unknown"
    action_also: tuple[str, ...] = ()


ENDED = r"failed \(exitcode: "
KINDS = (
    Kind(name="sigkill", class_="crash", category="process_killed", what="A rank receives SIGKILL.",
         also_in_log=("host_oom",), line=ENDED, action="restart", action_also=("reduce_memory", "add_memory")),
    Kind(name="sigsegv", class_="crash", category="segfault", what="A rank receives SIGSEGV.",
         line=ENDED, action="fix_code", action_also=("restart", "upgrade_library")),
    Kind(name="sigterm", class_="crash", category="terminated", what="A rank alone receives SIGTERM.",
         also=("process_killed",), line=ENDED, action="restart"),
    Kind(name="exit7", class_="crash", category="unknown", what="A rank ends with code 7 and no message.",
         also=("python_exception",), line=ENDED),
    Kind(name="sigstop", class_="stop", category="process_stopped", what="A rank is stopped by SIGSTOP.",
         logged=False),
    Kind(name="lock", class_="hang", category="collective_missing_rank",
         what="A rank takes a lock twice.", logged=False),
    Kind(name="sleep", class_="hang", category="collective_missing_rank",
         what="A rank sleeps without end.", logged=False),
    Kind(name="gil", class_="hang", category="collective_missing_rank",
         what="A call into C keeps the interpreter's lock in a rank.", logged=False),
    Kind(name="cut", class_="network", category="nccl_network_error", also=("collective_timeout",), blames=False,
         what="The connections between a rank and the others are closed.",
         line=r"RuntimeError:.*[Cc]onnection|RuntimeError:.*(?:recv|send|Broken pipe)", action="fix_network", action_also=("restart",)),
    Kind(name="drop", class_="network", category="nccl_network_error", also=("collective_timeout",), blames=False,
         what="Packets between a rank and the others are dropped (iptables).", where="drop", logged=False),
    Kind(name="disk-full", class_="disk", category="disk_full", also=("checkpoint_save_error",), rank=0,
         what="The disk of the checkpoints is full for 3 s.", where="disk-full", line=r"(?:Runtime|OS)Error:",
         action="fix_env", action_also=("fix_config", "fix_data", "restart")),
    Kind(name="disk-read-only", class_="disk", category="filesystem_error",
         also=("checkpoint_save_error", "permission_error"), rank=0, what="The disk of the checkpoints is read-only for 3 s.",
         where="disk-read-only", line=r"(?:Runtime|OS)Error:", action="fix_env", action_also=("fix_config", "isolate_node")),
    Kind(name="disk-slow", class_="disk", category="none", blames=False, rank=0, where="disk-slow",
         what="The disk of the checkpoints does not answer for 3 s, then continues."),
    Kind(name="allocation", class_="memory", category="host_oom", also=("host_limit",),
         what="A rank reaches its limit of address space (RLIMIT_AS).", line=r"RuntimeError:.*|MemoryError",
         action="reduce_memory", action_also=("add_memory", "fix_config")),
    Kind(name="files", class_="memory", category="host_limit", what="A rank reaches its limit of open files (RLIMIT_NOFILE).",
         line=r"OSError: \[Errno 24\]", action="fix_env", action_also=("fix_config", "fix_code")),
    Kind(name="record", class_="data", category="data_error", what="A rank reads a record that is cut short.",
         line=r"JSONDecodeError:", action="fix_data"),
    Kind(name="shard", class_="data", category="missing_file", also=("data_error",),
         what="A rank does not find a file of the data.", line=r"FileNotFoundError:", action="fix_data", action_also=("fix_config",)),
    Kind(name="shape", class_="code", category="python_exception", what="A rank multiplies matrices that do not fit.",
         line=r"RuntimeError:", action="fix_code"),
    Kind(name="import", class_="code", category="import_error", what="A rank imports a module that is not installed.",
         line=r"ModuleNotFoundError:", action="fix_env"),
    Kind(name="slow-rank", class_="slow", category="straggler", what="From then on, a step's work takes a rank four times as long as a step.",
         logged=False),
    Kind(name="pause", class_="slow", category="none", blames=False, what="A rank does nothing for 3 s, then continues."),
    Kind(name="launcher", class_="control", category="process_killed", also=("unknown", "terminated"), blames=False,
         what="The launcher of the ranks receives SIGKILL.", logged=False),
    Kind(name="supervisor", class_="control", category="", blames=False, where="supervisor", logged=False,
         what="The first process of the system receives SIGKILL; it is started again, as a service manager would."),
    Kind(name="undisturbed", class_="healthy", category="none", blames=False, what="Nothing."),
)  # fmt: skip
BY_NAME = {kind.name: kind for kind in KINDS}
