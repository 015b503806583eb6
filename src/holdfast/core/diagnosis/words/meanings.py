"""Lists the meaning of each failure category in one line, in English and Chinese. Data only."""

from holdfast.model.signatures import Words

MEANINGS = {
    "none": Words(
        en="no problem found; the log may contain alarming words",
        zh="正常，未发现问题",
    ),
    "unknown": Words(
        en="the cause is unknown; the most informative lines are shown",
        zh="原因未知",
    ),
    "collective_mismatch": Words(
        en="ranks called different collectives, or the same one with different sizes, types or order",
        zh="各 rank 执行的集合通信不一致（操作、大小、类型或顺序不同）",
    ),
    "collective_missing_rank": Words(
        en="a collective waited for a rank that never entered it",
        zh="集合通信等待的某个 rank 始终没有到达",
    ),
    "collective_timeout": Words(
        en="a collective timed out, and the blocking rank is unknown",
        zh="集合通信超时，无法确定是哪个 rank 造成等待",
    ),
    "uneven_data": Words(
        en="ranks have unequal numbers of batches; some leave the epoch early",
        zh="各 rank 的数据批次数不一致，部分 rank 提前结束",
    ),
    "dataloader_stuck": Words(
        en="a data loader worker or the storage behind it does not progress",
        zh="数据加载进程或其存储停滞",
    ),
    "straggler": Words(
        en="a rank is slow, but nothing hangs",
        zh="某个 rank 变慢，但没有卡死",
    ),
    "nccl_network_error": Words(
        en="the network transport of the collective library failed (completion errors, resets, closed connections)",
        zh="集合通信库的网络传输失败",
    ),
    "gdr_mismatch": Words(
        en="GPUDirect RDMA is used on some nodes only",
        zh="仅部分节点启用了 GPUDirect RDMA",
    ),
    "nccl_wrong_interface": Words(
        en="wrong or no network interface chosen",
        zh="选择了错误的网卡，或没有可用网卡",
    ),
    "nccl_config_error": Words(
        en="an NCCL setting makes the operation impossible",
        zh="某项 NCCL 设置使操作无法进行",
    ),
    "nccl_bug": Words(
        en="known bug of the NCCL version",
        zh="该 NCCL 版本的已知缺陷",
    ),
    "nccl_init_failure": Words(
        en="communicator setup failed or hung",
        zh="通信域初始化失败或卡住",
    ),
    "nccl_segfault": Words(
        en="crash inside the collective library",
        zh="集合通信库内部崩溃",
    ),
    "fabric_manager": Words(
        en="NVSwitch fabric not initialised (fabric manager not running or failed)",
        zh="NVSwitch 网络未就绪（fabric manager 未运行或失败）",
    ),
    "p2p_failure": Words(
        en="direct GPU-to-GPU copies hang or corrupt data (ACS, IOMMU, settings)",
        zh="GPU 之间直接拷贝卡死或出错（ACS、IOMMU 或设置）",
    ),
    "rendezvous_timeout": Words(
        en="the rendezvous of the workers timed out",
        zh="各 worker 未能按时会合",
    ),
    "port_in_use": Words(
        en="the network address or port is already in use",
        zh="端口已被占用",
    ),
    "launcher_config": Words(
        en="the launch command or its settings are wrong",
        zh="启动命令或其设置有误",
    ),
    "gpu_oom": Words(
        en="GPU memory exhausted",
        zh="显存不足",
    ),
    "gpu_oom_hidden": Words(
        en="GPU memory exhausted, but reported as another error",
        zh="显存不足，但表现为其他错误",
    ),
    "gpu_oom_external_process": Words(
        en="another process holds the GPU memory",
        zh="其他进程占用了显存",
    ),
    "host_oom": Words(
        en="host memory exhausted; a process was killed",
        zh="主机内存不足，有进程被杀死",
    ),
    "cgroup_oom": Words(
        en="the job's own memory limit was reached",
        zh="作业自身的内存限额已用尽",
    ),
    "shm_oom": Words(
        en="shared memory exhausted (bus error)",
        zh="共享内存不足（总线错误）",
    ),
    "cuda_illegal_access": Words(
        en="illegal address on the GPU",
        zh="GPU 访问了非法地址",
    ),
    "device_side_assert": Words(
        en="assertion in a kernel, mostly an index out of range",
        zh="GPU 核函数断言失败，多为索引越界",
    ),
    "cuda_init_error": Words(
        en="CUDA cannot be initialised or finds no device",
        zh="CUDA 无法初始化，或看不到设备",
    ),
    "cuda_error": Words(
        en="another CUDA error",
        zh="其他 CUDA 错误",
    ),
    "python_exception": Words(
        en="exception in the training code or its libraries",
        zh="训练代码或其库抛出异常",
    ),
    "ddp_unused_parameters": Words(
        en="parameters without gradient under DDP",
        zh="DDP 下有参数没有梯度",
    ),
    "import_error": Words(
        en="a Python module or library is missing or cannot be loaded",
        zh="模块缺失或无法加载",
    ),
    "version_mismatch": Words(
        en="incompatible versions",
        zh="版本之间不匹配",
    ),
    "compile_error": Words(
        en="a GPU kernel or extension cannot be compiled",
        zh="核函数或扩展编译失败",
    ),
    "permission_error": Words(
        en="not allowed",
        zh="权限不足",
    ),
    "filesystem_error": Words(
        en="file system operation failed",
        zh="文件系统操作失败",
    ),
    "disk_full": Words(
        en="no space left",
        zh="磁盘空间不足",
    ),
    "host_limit": Words(
        en="an operating system limit was reached",
        zh="达到操作系统限制",
    ),
    "kernel_version_warning": Words(
        en="operating system kernel too old",
        zh="内核版本过低",
    ),
    "nan_loss": Words(
        en="loss became NaN or Inf",
        zh="损失变为 NaN 或 Inf",
    ),
    "checkpoint_load_error": Words(
        en="checkpoint cannot be read or does not match the model",
        zh="检查点无法读取或不匹配",
    ),
    "checkpoint_save_error": Words(
        en="checkpoint cannot be written",
        zh="检查点无法写入",
    ),
    "data_error": Words(
        en="data missing or damaged",
        zh="数据缺失或损坏",
    ),
    "segfault": Words(
        en="crash in native code",
        zh="本地代码崩溃",
    ),
    "process_stopped": Words(
        en="a rank was stopped (SIGSTOP, debugger)",
        zh="某个 rank 被暂停（SIGSTOP 或调试器）",
    ),
    "process_killed": Words(
        en="a rank was killed by a signal whose sender is unknown",
        zh="某个 rank 被杀死，无法得知由谁",
    ),
    "terminated": Words(
        en="terminated from outside: SIGTERM, cancelled, preempted, or interrupted by the user",
        zh="被外部结束（SIGTERM、取消、抢占或用户中断）",
    ),
    "time_limit": Words(
        en="ended by a time limit",
        zh="达到时间限制",
    ),
    "teardown_hang": Words(
        en="the work is finished, but the job does not exit",
        zh="任务已完成但作业没有退出",
    ),
    "gpu_missing": Words(
        en="a GPU is lost or cannot be reached",
        zh="GPU 丢失或无法访问",
    ),
    "gpu_fault": Words(
        en="a GPU fails without an error code",
        zh="GPU 故障，没有代码说明原因",
    ),
    "gpu_busy": Words(
        en="GPU in use by other processes",
        zh="GPU 正被他人使用",
    ),
    "ecc_uncorrectable": Words(
        en="uncorrectable memory error",
        zh="不可纠正的显存错误",
    ),
    "xid_N": Words(
        en="NVIDIA Xid N",
        zh="NVIDIA Xid 错误",
    ),
    "sxid": Words(
        en="NVSwitch error",
        zh="NVSwitch 错误",
    ),
    "nvlink_error": Words(
        en="NVLink errors without a code",
        zh="NVLink 错误，没有代码",
    ),
    "driver_mismatch": Words(
        en="driver and library versions differ",
        zh="驱动与库的版本不一致",
    ),
    "driver_error": Words(
        en="driver failed to load or does not respond",
        zh="驱动加载失败或没有响应",
    ),
    "nvidia_peermem": Words(
        en="problem with the GPUDirect RDMA kernel module",
        zh="GPUDirect RDMA 模块异常",
    ),
    "thermal_throttle": Words(
        en="GPU clocks reduced because of heat",
        zh="因过热而降频",
    ),
    "power_throttle": Words(
        en="GPU clocks reduced because of power limits",
        zh="因功耗而降频",
    ),
    "pcie_aer": Words(
        en="PCIe error reported",
        zh="PCIe 错误",
    ),
    "pcie_link_downgrade": Words(
        en="PCIe link runs below its full width or speed",
        zh="PCIe 链路宽度或速率降低",
    ),
    "nic_down": Words(
        en="port or driver of a network card failed",
        zh="网卡端口或驱动失效",
    ),
    "nic_link_flap": Words(
        en="network link goes down and up repeatedly",
        zh="网络链路反复断开和恢复",
    ),
    "mce_edac": Words(
        en="machine check or memory error of the host",
        zh="机器检查错误，主机内存错误",
    ),
    "storage_io": Words(
        en="disk or block device errors",
        zh="磁盘或块设备错误",
    ),
    "nfs_lustre_stall": Words(
        en="network file system stalls",
        zh="网络文件系统停滞",
    ),
    "hung_task": Words(
        en="kernel reports a task blocked",
        zh="内核报告有任务被阻塞",
    ),
    "soft_lockup": Words(
        en="CPU locked up",
        zh="CPU 软死锁",
    ),
    "rcu_stall": Words(
        en="CPU stalled in the kernel",
        zh="CPU 在内核中停滞",
    ),
    "kernel_bug": Words(
        en="kernel warning or bug",
        zh="内核警告或缺陷",
    ),
    "kernel_fault": Words(
        en="fault inside the kernel of a node",
        zh="节点内核内部故障",
    ),
    "kernel_panic": Words(
        en="kernel panicked",
        zh="内核崩溃",
    ),
    "node_down": Words(
        en="a node is lost",
        zh="节点失联",
    ),
    "node_not_ready": Words(
        en="Kubernetes node NotReady",
        zh="Kubernetes 节点 NotReady",
    ),
    "pod_evicted": Words(
        en="pod evicted",
        zh="Pod 被驱逐",
    ),
    "pod_preempted": Words(
        en="pod pre-empted",
        zh="Pod 被抢占",
    ),
    "failed_scheduling": Words(
        en="pod cannot be scheduled",
        zh="Pod 无法调度",
    ),
    "slurm_node_fail": Words(
        en="Slurm lost a node of the job",
        zh="Slurm 失去了作业的一个节点",
    ),
    "slurm_oom": Words(
        en="Slurm job step exceeded its memory limit",
        zh="Slurm 作业步超出内存",
    ),
    "slurm_time_limit": Words(
        en="Slurm time limit",
        zh="达到 Slurm 时间限制",
    ),
    "slurm_prolog": Words(
        en="prolog script or launch of the Slurm job failed",
        zh="prolog 或启动失败",
    ),
    "slurm_job_killed": Words(
        en="Slurm killed the job",
        zh="作业被 Slurm 终止",
    ),
    "slurm_task_crash": Words(
        en="Slurm reported that a task crashed",
        zh="Slurm 发现有任务崩溃",
    ),
    "slurm_config": Words(
        en="Slurm is configured wrongly",
        zh="Slurm 配置错误",
    ),
    "npu_hccl": Words(
        en="HCCL collective failure on Ascend",
        zh="昇腾 HCCL 集合通信失败",
    ),
    "npu_heartbeat": Words(
        en="NPU heartbeat lost",
        zh="NPU 心跳丢失",
    ),
    "npu_runtime": Words(
        en="Ascend runtime failure",
        zh="昇腾运行时失败",
    ),
    "npu_fault": Words(
        en="NPU fault code",
        zh="NPU 故障码",
    ),
    "config_error": Words(
        en="a setting of the run is wrong",
        zh="运行的某项设置有误",
    ),
    "missing_file": Words(
        en="a file is missing",
        zh="文件缺失",
    ),
    "user_interrupt": Words(
        en="interrupted by the user",
        zh="被用户中断",
    ),
}


def meaning_of(category: str) -> Words:
    """Returns the meaning of a category.

    For `xid_79` it includes the number; for an unknown category it is the name.
    """
    if category.startswith("xid_") and category != "xid_N":
        number = category[4:]
        return Words(en=f"NVIDIA Xid {number}", zh=f"NVIDIA Xid {number} 错误")
    return MEANINGS.get(category) or Words(en=category, zh=category)
