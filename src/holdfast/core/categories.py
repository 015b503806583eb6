"""Data for the first verdict: categories with class and action, signals, what an exception's text tells, advice.

No decisions. The categories are those of docs/words.md; richer knowledge of single messages belongs to signatures.
"""

from msgspec import Struct

KINDS = {  # category: (class, action)
    "none": ("healthy", "none"),
    "unknown": ("unknown", "unknown"),
    "collective_missing_rank": ("communication", "unknown"),
    "collective_timeout": ("communication", "unknown"),
    "dataloader_stuck": ("training", "fix_data"),
    "nccl_network_error": ("communication", "fix_network"),
    "rendezvous_timeout": ("communication", "restart"),
    "port_in_use": ("communication", "fix_config"),
    "launcher_config": ("training", "fix_config"),
    "gpu_oom": ("memory", "reduce_memory"),
    "host_oom": ("memory", "reduce_memory"),
    "cgroup_oom": ("memory", "add_memory"),
    "shm_oom": ("memory", "fix_config"),
    "cuda_illegal_access": ("gpu_software", "fix_code"),
    "device_side_assert": ("gpu_software", "fix_code"),
    "cuda_init_error": ("gpu_software", "fix_env"),
    "cuda_error": ("gpu_software", "unknown"),
    "python_exception": ("training", "fix_code"),
    "ddp_unused_parameters": ("training", "fix_code"),
    "import_error": ("environment", "fix_env"),
    "permission_error": ("environment", "fix_env"),
    "filesystem_error": ("environment", "fix_env"),
    "disk_full": ("environment", "fix_env"),
    "host_limit": ("environment", "fix_config"),
    "nan_loss": ("training", "fix_code"),
    "checkpoint_load_error": ("training", "fix_config"),
    "data_error": ("training", "fix_data"),
    "segfault": ("training", "fix_code"),
    "process_stopped": ("process", "restart"),
    "process_killed": ("process", "restart"),
    "terminated": ("process", "restart"),
    "user_interrupt": ("process", "restart"),
    "teardown_hang": ("process", "fix_code"),
    "missing_file": ("training", "fix_data"),
    "ecc_uncorrectable": ("hardware", "reset_gpu"),
    "gpu_missing": ("hardware", "reboot_node"),
    "gpu_fault": ("hardware", "isolate_node"),
    "npu_fault": ("hardware", "by table"),
    "node_down": ("scheduler", "isolate_node"),
}

# Another start of the same would end the same way. dataloader_stuck is not here: storage can come back.
USER_CODE = frozenset(
    {
        "python_exception",
        "ddp_unused_parameters",
        "import_error",
        "launcher_config",
        "nan_loss",
        "checkpoint_load_error",
        "data_error",
        "missing_file",
        "segfault",
        "gpu_oom",
        "cuda_illegal_access",
        "device_side_assert",
    }
)

SIGNALS = {  # number: (name, category), as Linux numbers them on x86 and ARM
    1: ("SIGHUP", "terminated"),
    2: ("SIGINT", "user_interrupt"),
    3: ("SIGQUIT", "terminated"),
    4: ("SIGILL", "segfault"),
    6: ("SIGABRT", "segfault"),
    7: ("SIGBUS", "shm_oom"),
    8: ("SIGFPE", "segfault"),
    9: ("SIGKILL", "process_killed"),
    10: ("SIGUSR1", "terminated"),
    11: ("SIGSEGV", "segfault"),
    12: ("SIGUSR2", "terminated"),
    13: ("SIGPIPE", "process_killed"),
    14: ("SIGALRM", "process_killed"),
    15: ("SIGTERM", "terminated"),
    24: ("SIGXCPU", "host_limit"),
    25: ("SIGXFSZ", "host_limit"),
    31: ("SIGSYS", "segfault"),
}


class Rule(Struct, frozen=True):
    """`pattern` is searched in "type: message"; the first rule that matches decides."""

    pattern: str
    category: str
    confidence: float


RULES = (
    Rule(r"^(\w+\.)*KeyboardInterrupt", "user_interrupt", 0.8),
    Rule(r"^(\w+\.)*(SignalException|GracefulExit|SystemExit)", "terminated", 0.7),
    Rule(r"(CUDA|HIP|NPU|XPU) out of memory|CUDA_ERROR_OUT_OF_MEMORY|^(\w+\.)*OutOfMemoryError", "gpu_oom", 0.97),
    Rule(r"CUBLAS_STATUS_ALLOC_FAILED", "gpu_oom", 0.7),
    Rule(r"^(\w+\.)*(ModuleNotFoundError|ImportError)", "import_error", 0.95),
    Rule(r"Address already in use|EADDRINUSE", "port_in_use", 0.95),
    Rule(r"No space left on device|Disk quota exceeded", "disk_full", 0.95),
    Rule(r"DataLoader worker .*Bus error|insufficient shared memory", "shm_oom", 0.9),
    Rule(r"DataLoader worker .*killed by signal: Killed", "host_oom", 0.7),
    Rule(r"DataLoader worker .*(exited unexpectedly|killed by signal)", "process_killed", 0.6),
    Rule(r"^(\w+\.)*MemoryError|DefaultCPUAllocator.*allocate memory|Cannot allocate memory", "host_oom", 0.85),
    Rule(r"uncorrectable ECC error", "ecc_uncorrectable", 0.9),
    Rule(r"device-side assert", "device_side_assert", 0.95),
    Rule(r"illegal memory access", "cuda_illegal_access", 0.85),
    Rule(r"fallen off the bus|CUDA error: (no CUDA-capable device|unknown error)", "gpu_missing", 0.6),
    Rule(r"No CUDA GPUs are available|CUDA driver version is insufficient", "cuda_init_error", 0.9),
    Rule(r"CUDA error|CUBLAS_STATUS|CUDNN_STATUS", "cuda_error", 0.6),
    Rule(r"Expected to have finished reduction in the prior iteration", "ddp_unused_parameters", 0.95),
    Rule(r"Error\(s\) in loading state_dict|PytorchStreamReader|SafetensorError|HeaderTooLarge|archive is corrupted"
         r"|CheckpointException|invalid load key", "checkpoint_load_error", 0.9),
    Rule(r"RendezvousTimeoutError|RendezvousClosedError|clients joined", "rendezvous_timeout", 0.85),
    Rule(r"Too many open files|Resource temporarily unavailable|can't start new thread", "host_limit", 0.85),
    Rule(r"^(\w+\.)*FileNotFoundError|No such file or directory", "missing_file", 0.9),
    Rule(r"^(\w+\.)*PermissionError|Permission denied", "permission_error", 0.9),
    Rule(r"Stale file handle|Input/output error|Read-only file system|Transport endpoint is not connected",
         "filesystem_error", 0.9),
    Rule(r"(?i)\bloss\b.{0,40}\b(nan|inf|infinite)\b|\bnan\b.{0,20}\bloss\b", "nan_loss", 0.85),
    Rule(r"collective operation timeout", "collective_timeout", 0.6),
    Rule(r"^(\w+\.)*UnidentifiedImageError|ArrowInvalid|JSONDecodeError", "data_error", 0.6),
)  # fmt: skip

ADVICE = {  # by category, else by action
    "fix_code": "Look at the line named above; a restart alone will not mend it.",
    "fix_config": "Look at the settings of the run; a restart alone will not mend it.",
    "fix_data": "Look at the data and the storage it is read from.",
    "fix_env": "Look at the environment of the run: packages, disks, rights.",
    "fix_network": "Look at the network between the nodes of the ranks named.",
    "reduce_memory": "Use less memory: a smaller batch, fewer loader workers, or sharding.",
    "add_memory": "Raise the memory limit of the job, or use less: fewer loader workers, a smaller cache.",
    "restart": "A restart can help.",
    "isolate_node": "Keep the node out of the next start and have it looked at.",
    "reset_gpu": "Reset the device before the next start.",
    "reboot_node": "Reboot the node before the next start.",
    "import_error": "Install the missing module in the environment of the training, the same on every node.",
    "port_in_use": "Another process holds the port: end it, or choose another port.",
    "process_killed": "Ask who kills processes here: a person, a limit, or memory; a restart can help.",
    "process_stopped": "Continue it with SIGCONT, or restart.",
    "launcher_config": "Check the command: does it exist here, may it be run, are its arguments right?",
    "collective_missing_rank": "Look at what the rank named above does; the others only wait for it.",
    "shm_oom": "Give the container more shared memory (/dev/shm), or use fewer loader workers.",
}
