"""Defines the words that describe each failure category in the sentence about an incident, and the advice for each
action. Data only.

`en` and `zh` follow a name ("Rank 5"). `{has}` stands for has or have, `{error}` for the exception, `{op}` for the
collective. `since`: the condition lasts, so the sentence uses "since" instead of "at".
"""

from typing import Literal

from msgspec import Struct

from holdfast.model.signatures import Words

Subject = Literal["rank", "node", "device", "job", "launcher"]


class Did(Struct, frozen=True):
    """The words that describe a failure category. `subject`: what the sentence is about if the culprit is unknown ("A
    node").
    """

    subject: Subject
    en: str
    zh: str
    since: bool = False


UNKNOWN_AUTHOR: dict[Subject, Words] = {
    "rank": Words(en="A rank", zh="某个 rank"),
    "node": Words(en="A node", zh="某个节点"),
    "device": Words(en="A device", zh="某个设备"),
    "job": Words(en="The job", zh="作业"),
    "launcher": Words(en="The launcher", zh="启动器"),
}

# The categories of docs/words.md.
DID: dict[str, Did] = {
    "none": Did("job", "ended without an error", "已停止，未发现问题"),
    "unknown": Did("job", "failed for an unknown reason", "失败，现有信息无法解释"),
    "collective_mismatch": Did("rank", "ran another collective than the other ranks", "执行的集合通信与其他 rank 不同"),
    "collective_missing_rank": Did("rank", "{has} not entered {op}", "未进入 {op}", since=True),
    "collective_timeout": Did("job", "timed out in {op}", "在 {op} 中超时"),
    "uneven_data": Did("rank", "ran out of batches before the other ranks", "的数据批次比其他 rank 先用完"),
    "dataloader_stuck": Did("rank", "{has} waited for its data loader", "一直在等待数据加载", since=True),
    "straggler": Did("rank", "{has} been slower than the others", "比其他 rank 慢", since=True),
    "nccl_network_error": Did("rank", "lost the network connection to another rank", "与其他 rank 的网络连接中断"),
    "gdr_mismatch": Did("job", "uses GPUDirect on some nodes only", "仅部分节点启用了 GPUDirect"),
    "nccl_wrong_interface": Did("rank", "used the wrong network interface", "使用了错误的网卡"),
    "nccl_config_error": Did("rank", "failed because of an NCCL setting", "因 NCCL 设置失败"),
    "nccl_bug": Did("rank", "hit a known defect of this NCCL version", "触发该 NCCL 版本的已知缺陷"),
    "nccl_init_failure": Did("rank", "could not set up its communicator", "无法建立通信域"),
    "nccl_segfault": Did("rank", "crashed inside the collective library", "在集合通信库内崩溃"),
    "fabric_manager": Did("node", "{has} no NVSwitch fabric", "的 NVSwitch 网络未就绪", since=True),
    "p2p_failure": Did("rank", "failed in peer-to-peer copies between GPUs", "在 GPU 直接拷贝中出错"),
    "rendezvous_timeout": Did("job", "did not start: its rendezvous timed out", "未能启动：各 worker 未按时会合"),
    "port_in_use": Did("job", "did not start: its port is in use", "未能启动：端口已被占用"),
    "launcher_config": Did("launcher", "{was} started with wrong arguments or settings", "的参数或设置有误"),
    "gpu_oom": Did("rank", "ran out of GPU memory", "显存不足"),
    "gpu_oom_hidden": Did("rank", "ran out of GPU memory, hidden by another error", "显存不足，表现为其他错误"),
    "gpu_oom_external_process": Did("rank", "had too little GPU memory because of another process", "的显存被其他进程占用"),
    "host_oom": Did("rank", "{was} killed: the host ran out of memory", "被杀死：主机内存耗尽"),
    "cgroup_oom": Did("rank", "{was} killed at the memory limit of the job", "达到作业内存上限，被杀死"),
    "shm_oom": Did("rank", "ran out of shared memory", "共享内存不足"),
    "cuda_illegal_access": Did("rank", "read or wrote an illegal address on its GPU", "访问了 GPU 的非法地址"),
    "device_side_assert": Did("rank", "failed an assertion on its GPU", "在 GPU 上断言失败"),
    "cuda_init_error": Did("rank", "could not start CUDA", "无法初始化 CUDA"),
    "cuda_error": Did("rank", "had a CUDA error", "发生 CUDA 错误"),
    "python_exception": Did("rank", "raised {error}", "抛出{error}"),
    "ddp_unused_parameters": Did("rank", "{has} parameters without gradient under DDP", "在 DDP 下有参数没有梯度"),
    "import_error": Did("rank", "could not import a module", "无法导入模块"),
    "version_mismatch": Did("rank", "found incompatible versions", "的软件版本不匹配"),
    "compile_error": Did("rank", "could not build a kernel or extension", "无法编译核函数或扩展"),
    "permission_error": Did("rank", "{was} denied access", "权限不足"),
    "filesystem_error": Did("rank", "failed on a file system error", "遇到文件系统错误"),
    "disk_full": Did("rank", "found a full disk", "遇到磁盘已满"),
    "host_limit": Did("rank", "reached a limit of the operating system", "达到操作系统上限"),
    "kernel_version_warning": Did("node", "{has} a kernel that is too old", "的内核版本过旧", since=True),
    "nan_loss": Did("job", "{has} a loss that is NaN or infinite", "的 loss 变为 NaN 或无穷", since=True),
    "checkpoint_load_error": Did("rank", "could not load the checkpoint", "无法加载检查点"),
    "checkpoint_save_error": Did("rank", "could not save the checkpoint", "无法保存检查点"),
    "data_error": Did("rank", "read missing or damaged data", "读到缺失或损坏的数据"),
    "segfault": Did("rank", "crashed in native code", "在原生代码中崩溃"),
    "process_stopped": Did("rank", "{has} been stopped (SIGSTOP)", "被暂停（SIGSTOP）", since=True),
    "process_killed": Did("rank", "{was} killed by an unknown process", "被杀死，来源不明"),
    "terminated": Did("rank", "{was} terminated from outside", "被外部终止"),
    "time_limit": Did("job", "reached its time limit", "达到时间上限"),
    "teardown_hang": Did("rank", "{has} finished but not exited", "已完成却没有退出", since=True),
    "gpu_missing": Did("device", "cannot be reached", "无法访问", since=True),
    "gpu_fault": Did("device", "reported a fault without a code", "发生故障，没有错误码"),
    "gpu_busy": Did("device", "{was} in use by other processes", "被其他进程占用"),
    "ecc_uncorrectable": Did("device", "had an uncorrectable memory error", "发生不可纠正的显存错误"),
    "xid_N": Did("device", "reported Xid {code}", "报告 Xid {code}"),
    "xid_13": Did("device", "had an exception in a kernel (Xid 13)", "核函数异常（Xid 13）"),
    "xid_31": Did("device", "had a page fault (Xid 31)", "发生缺页错误（Xid 31）"),
    "xid_48": Did("device", "had an uncorrectable memory error (Xid 48)", "发生不可纠正的显存错误（Xid 48）"),
    "xid_74": Did("device", "had an NVLink error (Xid 74)", "发生 NVLink 错误（Xid 74）"),
    "xid_79": Did("device", "fell off the bus", "掉卡"),
    "xid_94": Did("device", "had a contained memory error (Xid 94)", "发生已隔离的显存错误（Xid 94）"),
    "xid_95": Did("device", "had an uncontained memory error (Xid 95)", "发生未隔离的显存错误（Xid 95）"),
    "xid_119": Did("device", "stopped responding to its driver (Xid 119)", "不再应答驱动（Xid 119）"),
    "sxid": Did("node", "had an NVSwitch error", "发生 NVSwitch 错误"),
    "nvlink_error": Did("device", "had NVLink errors", "发生 NVLink 错误"),
    "driver_mismatch": Did("node", "{has} driver and libraries of different versions", "的驱动与库版本不一致", since=True),
    "driver_error": Did("node", "{has} a GPU driver that does not respond", "的 GPU 驱动没有应答", since=True),
    "nvidia_peermem": Did("node", "{has} no working GPUDirect RDMA", "的 GPUDirect RDMA 异常", since=True),
    "thermal_throttle": Did("device", "{has} been throttled by high temperature", "因过热降频", since=True),
    "power_throttle": Did("device", "{has} been throttled by its power limit", "因功耗限制降频", since=True),
    "pcie_aer": Did("node", "reported a PCIe error", "报告 PCIe 错误"),
    "pcie_link_downgrade": Did("device", "{has} had a PCIe link below full speed", "的 PCIe 链路降速", since=True),
    "nic_down": Did("node", "{has} had a network interface down", "的网卡已断开", since=True),
    "nic_link_flap": Did("node", "{has} had a flapping network link", "的网络链路时断时续", since=True),
    "mce_edac": Did("node", "reported a memory or machine check error", "报告内存或 MCE 错误"),
    "storage_io": Did("node", "had disk errors", "发生磁盘错误"),
    "nfs_lustre_stall": Did("node", "{has} waited for its network file system", "的网络文件系统没有响应", since=True),
    "hung_task": Did("node", "{has} had a task blocked in the kernel", "有任务阻塞在内核中", since=True),
    "soft_lockup": Did("node", "had a CPU locked up", "的 CPU 锁死"),
    "rcu_stall": Did("node", "had a CPU stalled in the kernel", "的 CPU 在内核中停滞"),
    "kernel_bug": Did("node", "hit a kernel bug", "触发内核缺陷"),
    "kernel_fault": Did("node", "had a kernel fault", "内核内部出错"),
    "kernel_panic": Did("node", "had a kernel panic", "内核崩溃"),
    "node_down": Did("node", "{has} been down", "已失联", since=True),
    "node_not_ready": Did("node", "{has} been NotReady in Kubernetes", "在 Kubernetes 中为 NotReady", since=True),
    "pod_evicted": Did("job", "had a pod evicted", "的 pod 被驱逐"),
    "pod_preempted": Did("job", "had a pod pre-empted", "的 pod 被抢占"),
    "failed_scheduling": Did("job", "{has} a pod that cannot be placed", "的 pod 无法调度", since=True),
    "slurm_node_fail": Did("node", "{was} lost by Slurm", "被 Slurm 判定失联"),
    "slurm_oom": Did("job", "exceeded its memory limit in Slurm", "超出 Slurm 内存限额"),
    "slurm_time_limit": Did("job", "reached its time limit in Slurm", "达到 Slurm 时间上限"),
    "slurm_prolog": Did("node", "failed in the prolog of Slurm", "的 Slurm prolog 失败"),
    "slurm_job_killed": Did("job", "{was} killed by Slurm", "被 Slurm 终止"),
    "slurm_task_crash": Did("rank", "crashed, as Slurm reported", "崩溃（Slurm 报告）"),
    "slurm_config": Did("job", "failed because of the Slurm configuration", "因 Slurm 配置失败"),
    "npu_hccl": Did("rank", "failed in an HCCL collective", "的 HCCL 集合通信失败"),
    "npu_heartbeat": Did("rank", "{has} lost the heartbeat of its NPU", "的 NPU 心跳丢失", since=True),
    "npu_runtime": Did("rank", "had an error of the Ascend runtime", "发生昇腾运行时错误"),
    "npu_fault": Did("device", "reported an NPU fault", "报告 NPU 故障"),
    "config_error": Did("rank", "failed because of a setting", "因运行设置有误而失败"),
    "missing_file": Did("rank", "did not find a file", "找不到文件"),
    "user_interrupt": Did("job", "{was} interrupted by a user", "被用户中断"),
}  # fmt: skip

# Advice after the job has failed; AFTER_RECOVERY applies while it continues.
TO_DO: dict[str, Words] = {
    "none": Words(en="Nothing to do", zh="无需处理"),
    "unknown": Words(en="Read the evidence before the next start", zh="请先查看证据再启动"),
    "restart": Words(en="Start it again", zh="重新启动即可"),
    "fix_code": Words(en="Fix the code, then start again", zh="修复代码后再启动"),
    "fix_config": Words(en="Change the settings, then start again", zh="修改设置后再启动"),
    "fix_env": Words(en="Fix the environment, then start again", zh="修复环境后再启动"),
    "fix_data": Words(en="Repair the data or its storage, then start again", zh="修复数据或存储后再启动"),
    "fix_network": Words(en="Repair the network, then start again", zh="修复网络后再启动"),
    "upgrade_library": Words(en="Change the library's version, then start again", zh="更换该库版本后再启动"),
    "reduce_memory": Words(en="Use less memory, then start again", zh="降低内存占用后再启动"),
    "add_memory": Words(en="Raise the memory limit, then start again", zh="提高内存上限后再启动"),
    "reset_gpu": Words(en="Reset the device, then start again", zh="复位设备后再启动"),
    "reboot_node": Words(en="Reboot the node, then start again", zh="重启节点后再启动"),
    "isolate_node": Words(en="Start again without the node", zh="避开该节点后再启动"),
}

# A restart does not fix these: the same can come back while training goes on.
AFTER_RECOVERY: dict[str, Words] = {
    "fix_code": Words(en="The failure may recur: fix the code", zh="可能再次发生：请修复代码"),
    "fix_config": Words(en="The failure may recur: change the settings", zh="可能再次发生：请修改设置"),
    "fix_env": Words(en="The failure may recur: fix the software environment", zh="可能再次发生：请修复软件环境"),
    "fix_data": Words(en="The failure may recur: repair the data", zh="可能再次发生：请修复数据"),
    "fix_network": Words(en="Check the network", zh="请检查网络"),
    "upgrade_library": Words(en="The failure may recur: change the library's version", zh="可能再次发生：请更换库版本"),
    "reduce_memory": Words(en="The failure may recur: use less memory", zh="可能再次发生：请降低内存占用"),
    "add_memory": Words(en="The failure may recur: raise the memory limit", zh="可能再次发生：请提高内存上限"),
}  # fmt: skip
