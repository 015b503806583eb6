"""Defines the data of the first verdict: categories with class and action, signals, exception patterns,
advice.

Contains no decisions. docs/words.md lists the categories; signatures hold the knowledge of single messages.
"""

from msgspec import Struct

KINDS = {  # category: (class, usual action); "xid_N" stands for xid_13, xid_79 and so on
    "none": ("healthy", "none"),
    "unknown": ("unknown", "unknown"),
    "collective_mismatch": ("communication", "fix_code"),
    "collective_missing_rank": ("communication", "unknown"),
    "collective_timeout": ("communication", "unknown"),
    "uneven_data": ("communication", "fix_data"),
    "dataloader_stuck": ("training", "fix_data"),
    "straggler": ("performance", "isolate_node"),
    "nccl_network_error": ("communication", "fix_network"),
    "gdr_mismatch": ("communication", "fix_config"),
    "nccl_wrong_interface": ("communication", "fix_config"),
    "nccl_config_error": ("communication", "fix_config"),
    "nccl_bug": ("communication", "upgrade_library"),
    "nccl_init_failure": ("communication", "fix_config"),
    "nccl_segfault": ("communication", "upgrade_library"),
    "fabric_manager": ("hardware", "reboot_node"),
    "p2p_failure": ("communication", "fix_config"),
    "rendezvous_timeout": ("communication", "restart"),
    "port_in_use": ("communication", "fix_config"),
    "launcher_config": ("training", "fix_config"),
    "gpu_oom": ("memory", "reduce_memory"),
    "gpu_oom_hidden": ("memory", "reduce_memory"),
    "gpu_oom_external_process": ("memory", "restart"),
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
    "version_mismatch": ("environment", "fix_env"),
    "compile_error": ("environment", "fix_env"),
    "permission_error": ("environment", "fix_env"),
    "filesystem_error": ("environment", "fix_env"),
    "disk_full": ("environment", "fix_env"),
    "host_limit": ("environment", "fix_config"),
    "kernel_version_warning": ("environment", "fix_env"),
    "nan_loss": ("training", "fix_code"),
    "checkpoint_load_error": ("training", "fix_config"),
    "checkpoint_save_error": ("training", "fix_env"),
    "data_error": ("training", "fix_data"),
    "segfault": ("training", "fix_code"),
    "process_stopped": ("process", "restart"),
    "process_killed": ("process", "restart"),
    "terminated": ("process", "restart"),
    "time_limit": ("scheduler", "restart"),
    "teardown_hang": ("process", "fix_code"),
    "gpu_missing": ("hardware", "reboot_node"),
    "gpu_fault": ("hardware", "isolate_node"),
    "gpu_busy": ("hardware", "fix_config"),
    "ecc_uncorrectable": ("hardware", "reset_gpu"),
    "xid_N": ("hardware", "by table"),
    "sxid": ("hardware", "by table"),
    "nvlink_error": ("hardware", "reset_gpu"),
    "driver_mismatch": ("hardware", "reboot_node"),
    "driver_error": ("hardware", "reboot_node"),
    "nvidia_peermem": ("hardware", "none"),
    "thermal_throttle": ("hardware", "isolate_node"),
    "power_throttle": ("hardware", "none"),
    "pcie_aer": ("hardware", "by severity"),
    "pcie_link_downgrade": ("hardware", "isolate_node"),
    "nic_down": ("network", "fix_network"),
    "nic_link_flap": ("network", "fix_network"),
    "mce_edac": ("host", "by severity"),
    "storage_io": ("host", "isolate_node"),
    "nfs_lustre_stall": ("host", "fix_network"),
    "hung_task": ("host", "reboot_node"),
    "soft_lockup": ("host", "reboot_node"),
    "rcu_stall": ("host", "reboot_node"),
    "kernel_bug": ("host", "reboot_node"),
    "kernel_fault": ("host", "unknown"),
    "kernel_panic": ("host", "reboot_node"),
    "node_down": ("scheduler", "isolate_node"),
    "node_not_ready": ("scheduler", "reboot_node"),
    "pod_evicted": ("scheduler", "none"),
    "pod_preempted": ("scheduler", "none"),
    "failed_scheduling": ("scheduler", "fix_config"),
    "slurm_node_fail": ("scheduler", "isolate_node"),
    "slurm_oom": ("scheduler", "add_memory"),
    "slurm_time_limit": ("scheduler", "fix_config"),
    "slurm_prolog": ("scheduler", "isolate_node"),
    "slurm_job_killed": ("scheduler", "isolate_node"),
    "slurm_task_crash": ("scheduler", "isolate_node"),
    "slurm_config": ("scheduler", "fix_config"),
    "npu_hccl": ("hardware", "restart"),
    "npu_heartbeat": ("hardware", "isolate_node"),
    "npu_runtime": ("hardware", "unknown"),
    "npu_fault": ("hardware", "by table"),
    "config_error": ("training", "fix_config"),
    "missing_file": ("training", "fix_data"),
    "user_interrupt": ("process", "restart"),
}

ACTIONS = frozenset(
    {
        *("none", "unknown", "restart", "fix_code", "fix_config", "fix_env", "fix_data", "fix_network"),
        *("upgrade_library", "reduce_memory", "add_memory", "reset_gpu", "reboot_node", "isolate_node"),
    }
)

# Causes in the run itself, which a restart does not remove. Not dataloader_stuck: storage can recover.
USER_CODE = frozenset(
    {
        "python_exception",
        "ddp_unused_parameters",
        "import_error",
        "version_mismatch",
        "compile_error",
        "config_error",
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

# Actions by which a person changes the run; without them a restart fails again.
CHANGES_OF_THE_RUN = frozenset({"fix_code", "fix_config", "fix_data", "upgrade_library"})
# Exceptions about a remote service that did not answer: the same line may work the next time.
UNANSWERED = r"(?:^|\.)(?:\w*Timeout\w*|Empty|gaierror|\w*Connect\w*(?:Error|Exception)|(?:HTTP|URL|Transport|Comm|Service\w*)Error|Retry\w*)$"

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

# Descriptions that shells and launchers print for signals. source: glibc, sysdeps/generic/siglist.h
SIGNAL_WORDS = {
    "Hangup": 1,
    "Interrupt": 2,
    "Quit": 3,
    "Illegal instruction": 4,
    "Aborted": 6,
    "Bus error": 7,
    "Floating point exception": 8,
    "Killed": 9,
    "Segmentation fault": 11,
    "Terminated": 15,
}


class Rule(Struct, frozen=True):
    """Assigns a category to an exception.

    `pattern` is searched in "TYPE: MESSAGE"; the first matching rule decides.
    """

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
    Rule(r"DataLoader (worker|process) .*Bus error|insufficient shared memory", "shm_oom", 0.9),
    Rule(r"DataLoader (worker|process) .*killed by signal: Killed", "host_oom", 0.7),
    Rule(r"DataLoader (worker|process) .*(exited unexpectedly|killed by signal)", "process_killed", 0.6),
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
    "fix_code": "Look at the line named above; a restart alone will not fix it.",
    "fix_config": "Look at the settings of the run; a restart alone will not fix it.",
    "fix_data": "Look at the data and the storage it is read from.",
    "fix_env": "Look at the environment of the run: packages, disks, rights.",
    "fix_network": "Look at the network between the nodes of the ranks named.",
    "reduce_memory": "Use less memory: a smaller batch, fewer loader workers, or sharding.",
    "add_memory": "Raise the memory limit of the job, or use less: fewer loader workers, a smaller cache.",
    "restart": "A restart can help.",
    "isolate_node": "Exclude the node from the next start and have it examined.",
    "reset_gpu": "Reset the device before the next start.",
    "reboot_node": "Reboot the node before the next start.",
    "import_error": "Install the missing module in the environment of the training, the same on every node.",
    "port_in_use": "Another process holds the port: end it, or choose another port.",
    "process_killed": "Ask who kills processes here: a person, a limit, or memory; a restart can help.",
    "process_stopped": "Continue it with SIGCONT, or restart.",
    "launcher_config": "Check the command: does it exist here, may it be run (a script needs python or torchrun "
    "before it), are its arguments right?",
    "collective_missing_rank": "Look at what the rank named above does; the others only wait for it.",
    "shm_oom": "Give the container more shared memory (/dev/shm), or use fewer loader workers.",
}

ADVICE_ZH = {
    "fix_code": "查看上述位置的代码，仅重启无法解决。",
    "fix_config": "检查运行的设置，仅重启无法解决。",
    "fix_data": "检查数据及其所在的存储。",
    "fix_env": "检查运行环境：软件包、磁盘、权限。",
    "fix_network": "检查上述 rank 所在节点之间的网络。",
    "reduce_memory": "减少内存占用：减小 batch、减少 DataLoader worker，或使用分片。",
    "add_memory": "提高作业的内存上限，或减少占用：减少 DataLoader worker、缩小缓存。",
    "restart": "重启可能有效。",
    "isolate_node": "下次启动时避开该节点并安排检查。",
    "reset_gpu": "下次启动前复位该设备。",
    "reboot_node": "下次启动前重启该节点。",
    "import_error": "在训练环境中安装缺失的模块，各节点保持一致。",
    "port_in_use": "端口被其他进程占用：结束该进程，或换用其他端口。",
    "process_killed": "查明是谁终止了进程：人为、限制或内存不足；重启可能有效。",
    "process_stopped": "用 SIGCONT 继续该进程，或重启作业。",
    "launcher_config": "检查命令：此处是否存在、能否执行（脚本前需要 python 或 torchrun）、参数是否正确。",
    "collective_missing_rank": "查看上述 rank 正在做什么，其他 rank 只是在等待它。",
    "shm_oom": "为容器增大共享内存（/dev/shm），或减少 DataLoader worker。",
}
