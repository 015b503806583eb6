"""What to say of a device fault: a title from the table of codes, and advice that fits the action decided."""

from holdfast.model.code_facts import CodeFact
from holdfast.model.signatures import Words

NAMES = {"xid": ("Xid", "GPU"), "sxid": ("SXid", "NVSwitch"), "npu": ("fault", "")}
ADVICE = {
    "reset_gpu": Words(
        en="End all processes on {device}, reset it (`nvidia-smi --gpu-reset -i {device}`; on NVSwitch systems all GPUs"
        " together), then start again. If the reset fails or the fault returns, reboot the node.",
        zh="结束 {device} 上的所有进程并重置(`nvidia-smi --gpu-reset -i {device}`;NVSwitch 系统需全部 GPU 一起重置),"
        "再重启作业。重置失败或复发时重启节点。",
    ),
    "reboot_node": Words(
        en="Drain the node and reboot it (power-cycle for a device that is off the bus), then count the devices before"
        " it takes jobs again. If {device} fails again, keep the node out and have it replaced.",
        zh="排空节点并重启(设备掉线时需断电重启),恢复前核对设备数量。{device} 再次出错则隔离节点并更换部件。",
    ),
    "isolate_node": Words(
        en="Keep the node out of the next start and have {device} looked at or replaced; save nvidia-bug-report.sh or"
        " the device's log before a reboot.",
        zh="下次启动排除该节点,检修或更换 {device};重启前保存 nvidia-bug-report.sh 或设备日志。",
    ),
    "restart": Words(
        en="Start the job again; the device can be used. If {device} shows it again within a day, keep it out.",
        zh="重启作业即可,设备可继续使用。若 {device} 一天内再次出现,则隔离。",
    ),
    "fix_code": Words(
        en="The program did it, not the device: run it with CUDA_LAUNCH_BLOCKING=1 and compute-sanitizer, and look for"
        " indices out of range and wrong pointers in its own kernels.",
        zh="原因在程序而非设备:用 CUDA_LAUNCH_BLOCKING=1 与 compute-sanitizer 运行,排查自定义核函数的越界与错误指针。",
    ),
    "fix_env": Words(
        en="Restart nvidia-imex on the nodes of the domain and compare their node lists, then start again.",
        zh="在该域各节点重启 nvidia-imex 并核对节点列表,然后重启作业。",
    ),
    "upgrade_library": Words(
        en="Update driver and firmware of the node.",
        zh="升级该节点的驱动与固件。",
    ),
    "none": Words(
        en="Nothing to do for this by itself; watch whether {device} shows it more often.",
        zh="本身无需处理;关注 {device} 是否更频繁出现。",
    ),
}
NPU_RESET = Words(
    en="End all processes on {device}, reset it (`npu-smi set -t reset`), then start again; keep the node out after three"
    " times in a day.",
    zh="结束 {device} 上的所有进程并重置(`npu-smi set -t reset`)后重启作业;一天内三次则隔离节点。",
)


def title_of(fact: CodeFact | None, device: str) -> Words | None:
    """`Xid 79 on GPU 0000:1b:00: GPU is no longer reachable over PCIe`; None where the code is not known."""
    if fact is None or fact.kind == "npu":
        return None
    name, part = NAMES[fact.kind]
    where = f" {device}" if device else ""
    return Words(
        en=f"{name} {fact.code} on {part}{where}: {fact.meaning.en}",
        zh=f"{part}{where} 报告 {name} {fact.code}:{fact.meaning.zh}",
    )


def advice_of(fact: CodeFact | None, action: str, device: str) -> Words | None:
    """None where the signature's own advice is the better one: codes that no table knows."""
    if fact is None or action not in ADVICE:
        return None
    words = NPU_RESET if fact.kind == "npu" and action == "reset_gpu" else ADVICE[action]
    named = device or {"xid": "the GPU", "sxid": "the NVSwitch", "npu": "the NPU"}[fact.kind]
    named_zh = device or {"xid": "该 GPU", "sxid": "该 NVSwitch", "npu": "该 NPU"}[fact.kind]
    return Words(en=words.en.replace("{device}", named), zh=words.zh.replace("{device}", named_zh))
