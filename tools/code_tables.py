"""Writes the tables of device codes that come with Holdfast, from a folder of collected facts.

    python tools/code_tables.py FACTS [src/holdfast/signatures]

FACTS holds xid.csv, sxid.csv and npu.csv, each with what several public sources say of a code. What is kept:
code, mnemonic, meaning in our own words, cause, severity, the sources' actions, and the action chosen.

How the sources' actions become those of the taxonomy:

- restart the program -> restart; observe, ignore, log -> none; reset -> reset_gpu; reboot -> reboot_node.
- "ask the vendor" -> isolate_node for an error or a fatal code; restart for a warning: nobody can act on it, and
  a second time the repetition decides; none for a code that is only information.
- codes that only follow others (Xid 45, 108, 137, 159) -> restart, when they stand alone; the details 171 and 172
  of Xid 48 -> reset_gpu like it; 154 -> none, its text says the action.
- NVSwitch, fatal -> reset_gpu: NVIDIA's guide of the fabric manager asks for a reset of all GPUs and switches;
  sources that ask for a reboot are kept as dissenters.
- NPU, by MindCluster's level: NotHandle, SubHealth -> none; RestartRequest, RestartBusiness -> restart;
  (Free)RestartNPU -> reset_gpu; (Pre)SeparateNPU, ManuallySeparateNPU -> isolate_node.
"""

import csv
import re
import sys
from collections.abc import Iterable
from pathlib import Path

HEAD = "code,mnemonic,meaning,meaning_zh,cause,severity,action,program,repeats,verdicts".split(",")
SEVERITIES = ("info", "warning", "error", "fatal")
FOLLOWERS = {"171": "reset_gpu", "172": "reset_gpu"}
NVIDIA = {
    "RESTART_APP": "restart",
    "RESET_GPU": "reset_gpu",
    "IGNORE": "none",
    "CONTACT_SUPPORT": "isolate_node",
    "RESTART_BM": "reboot_node",
    "RESTART_VM": "reboot_node",
    "UPDATE_SWFW": "upgrade_library",
    "CHECK_MECHANICALS": "isolate_node",
}  # workflows are rules of their own: core/diagnosis/devices/codes.py
MONITORS = {
    "AzNHC=fail": "isolate_node",
    "EKS=fatal": "isolate_node",
    "DCGM=devastating": "isolate_node",
    "OCI=reset/reboot": "reboot_node",
    "OCI=critical": "isolate_node",
    "gcm=non-critical": "none",
    "k8s-device-plugin=ignored": "none",
    "healthagent=warn": "none",
}
NPU_LEVELS = {
    "NotHandle": ("none", "info"),
    "SubHealth": ("none", "warning"),
    "RestartRequest": ("restart", "error"),
    "RestartBusiness": ("restart", "error"),
    "FreeRestartNPU": ("reset_gpu", "error"),
    "RestartNPU": ("reset_gpu", "fatal"),
    "PreSeparateNPU": ("isolate_node", "error"),
    "SeparateNPU": ("isolate_node", "fatal"),
}
# What a person's input can cause: the job runs again elsewhere, the node stays.
NPU_OF_USERS = {"80C98002", "80CB8002"}
UNITS_ZH = {
    "NVLink transaction layer": "NVLink 事务层",
    "port egress": "端口出口",
    "port ingress": "端口入口",
    "NVLink data-link/physical layer": "NVLink 链路/物理层",
    "NVLink IP top (link state)": "NVLink 链路状态",
    "port routing": "端口路由",
    "port transaction-state store": "端口事务状态存储",
    "internal crossbar": "内部交叉开关",
    "NVLink micro-controller (MINION)": "NVLink 微控制器（MINION）",
    "switch port": "交换机端口",
    "host/PCIe and thermal block": "主机/PCIe 与温度模块",
    "clock/fabric block": "时钟/互联模块",
    "port source tracker": "端口源跟踪器",
    "NVLink controller": "NVLink 控制器",
    "switch management processor (SOE)": "交换机管理处理器（SOE）",
    "optical module controller (CCI)": "光模块控制器（CCI）",
    "multicast state store": "多播状态存储",
    "reduction (SHARP) state store": "归约（SHARP）状态存储",
    "OSFP optical cage": "OSFP 光模块笼",
}


def main(facts: Path, out: Path) -> None:
    for name, row_of in (("xid", xid_row), ("sxid", sxid_row), ("npu", npu_row)):
        with (facts / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            rows = _heaviest(row_of(row) for row in csv.DictReader(file))
        with (out / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, HEAD, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def _heaviest(rows: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    """Each code once: a source that writes one in two ways means the graver."""
    found: dict[str, dict[str, str]] = {}
    for row in rows:
        known = found.get(row["code"])
        if known is None or SEVERITIES.index(row["severity"]) > SEVERITIES.index(known["severity"]):
            found[row["code"]] = row
    return list(found.values())


def xid_row(row: dict[str, str]) -> dict[str, str]:
    code = row["code"]
    return {
        "code": code,
        "mnemonic": row["mnemonic"].split(" / ")[0],
        "meaning": row["meaning"],
        "meaning_zh": _xid_zh(row["meaning"]),
        "cause": row["likely_cause"],
        "severity": row["severity"],
        "action": _xid_action(code, row["action"], row["severity"]),
        "program": "yes" if row["user_app_possible"] == "yes" else "",
        "repeats": "2 in 86400: isolate_node" if code in ("13", "31") else "",
        "verdicts": _xid_verdicts(row["per_source_verdicts"]),
    }


def _xid_action(code: str, action: str, severity: str) -> str:
    if code == "154":
        return "none"
    if action == "follow_related":
        return FOLLOWERS.get(code, "restart")
    if action == "contact_vendor":
        return {"error": "isolate_node", "fatal": "isolate_node", "warning": "restart"}.get(severity, "none")
    return {"restart_app": "restart", "observe": "none"}.get(action, action)


def _xid_verdicts(text: str) -> str:
    found = {}
    nvidia = re.search(r"NVIDIA=(\w+)", text)
    if nvidia and nvidia[1] in NVIDIA:
        found["NVIDIA"] = NVIDIA[nvidia[1]]
    gpud = re.search(r"gpud=(\S+)", text)
    if gpud:
        found["gpud"] = _gpud(gpud[1])
    for word, action in MONITORS.items():
        if word in text.split():
            found[word.partition("=")[0]] = action
    return " ".join(f"{source}={action}" for source, action in found.items())


def _gpud(verdict: str) -> str:
    for word, action in (
        ("IgnoreNoActionRequired", "none"),
        ("CheckUserApp", "fix_code"),
        ("RebootSystem", "reboot_node"),
        ("HardwareInspection", "isolate_node"),
    ):
        if word in verdict:
            return action
    return "isolate_node" if verdict.startswith("Fatal") else "none"


def sxid_row(row: dict[str, str]) -> dict[str, str]:
    unit, _, what = row["meaning"].partition(": ")
    if "no report site was found" in what:
        what = row["mnemonic"].removeprefix("_HW_").replace("_", " ").lower() + " (defined, never printed)"
    what = re.sub(r" \(driver prints .*\)$", "", what)
    action = {"observe": "none", "reboot_node": "reset_gpu"}.get(row["action"], row["action"])
    verdicts = {}
    if row["driver_report_kind"]:
        fatal = row["driver_report_kind"].startswith(("FATAL", "CONTAIN"))
        verdicts["driver"] = "reset_gpu" if fatal else "none"
    if row["gpud_verdict"]:
        verdicts["gpud"] = _gpud(row["gpud_verdict"])
    if "whitelist" in row["sources"]:
        verdicts["imbue"] = "none"
    return {
        "code": row["code"],
        "mnemonic": row["mnemonic"].removeprefix("_HW_"),
        "meaning": f"{unit}: {what}",
        "meaning_zh": f"{UNITS_ZH[unit]}：{what}",
        "cause": row["likely_cause"],
        "severity": row["severity"],
        "action": action,
        "program": "",
        "repeats": "",
        "verdicts": " ".join(f"{source}={action}" for source, action in verdicts.items()),
    }


def npu_row(row: dict[str, str]) -> dict[str, str]:
    code = row["code"].upper()
    action, severity = NPU_LEVELS[row["mindcluster_level"]]
    module = row["module"]
    causes = row["cause_class"].split("/") if row["cause_class"] else []
    where = f" in module {module}" if module else ""
    where_zh = f"，模块 {module}" if module else ""
    repeats = re.match(r"(\d+)x in (\d+)s -> ManuallySeparateNPU", row["frequency_rule"])
    return {
        "code": code,
        "mnemonic": row["mindcluster_level"],
        "meaning": f"NPU fault {code}{where}",
        "meaning_zh": f"NPU 故障 {code}{where_zh}",
        "cause": "hardware"
        if "Hardware" in causes
        else "app"
        if "User" in causes
        else "driver"
        if causes
        else "unknown",
        "severity": severity,
        "action": "restart" if code in NPU_OF_USERS else action,
        "program": "yes" if "User" in causes or code in NPU_OF_USERS else "",
        "repeats": f"{repeats[1]} in {repeats[2]}: isolate_node" if repeats else "",
        "verdicts": f"MindCluster={action}",
    }


def _xid_zh(meaning: str) -> str:
    for pattern, text in NUMBERED_ZH:
        if match := re.fullmatch(pattern, meaning):
            return text.format(*match.groups())
    return XID_ZH[meaning]


NUMBERED_ZH = (
    (r"Copy engine (\d+) (?:error|exception)", "拷贝引擎 {} 异常"),
    (r"Video encoder (\d+) (?:error|exception)", "视频编码器 {} 异常"),
    (r"Video decoder (\d+) (?:error|exception)", "视频解码器 {} 异常"),
    (r"JPEG engine (\d+) (?:error|exception)", "JPEG 引擎 {} 异常"),
    (r"Optical-flow engine (\d+) (?:error|exception)", "光流引擎 {} 异常"),
    (
        r"NVLink generation 5 error in the (\w+)(?: control)? unit; .*",
        "第 5 代 NVLink 的 {} 单元错误；文本中带有子码、Fatal/Nonfatal、链路号与寄存器字",
    ),
)
XID_ZH = {
    "Old-generation command-stream (push buffer) was malformed or corrupted": "旧代命令流（push buffer）格式错误或损坏",
    "Old-generation command stream malformed or software sent an invalid method": "旧代命令流格式错误，或软件发送了无效方法",
    "Not in use": "未使用",
    "Command stream pointed to an invalid or corrupted address (old generation)": "命令流指向无效或损坏的地址（旧代）",
    "Channel idle time-out: the GPU stopped making progress on a channel": "通道空闲超时：GPU 在某通道上停止推进",
    "Driver programmed the GPU wrongly (old generation)": "驱动对 GPU 编程错误（旧代）",
    "Invalid or corrupted command stream (missing hardware method)": "命令流无效或损坏（缺少硬件方法）",
    "Driver failed to handle a GPU exception (old generation)": "驱动未能处理 GPU 异常（旧代）",
    "Graphics/compute engine exception: usually an out-of-range access or illegal instruction inside a CUDA kernel": "图形/计算引擎异常：通常是 CUDA 核函数越界访问或非法指令",
    "Fake/test error (used by the driver for injection)": "测试错误（驱动注入用）",
    "Not in use (display scanline time-out)": "未使用（显示扫描线超时）",
    "Display engine hang / vblank time-out": "显示引擎挂起/垂直消隐超时",
    "Bus mastering was disabled for the GPU in PCI configuration space": "PCI 配置空间中该 GPU 的总线主控被关闭",
    "Display engine error": "显示引擎错误",
    "Invalid or corrupted MPEG command stream": "MPEG 命令流无效或损坏",
    "Invalid or corrupted motion-estimation command stream": "运动估计命令流无效或损坏",
    "Invalid or corrupted video-processor command stream": "视频处理器命令流无效或损坏",
    "Not in use (RC logging marker)": "未使用（RC 日志标记）",
    "Semaphore wait timed out on the GPU": "GPU 上信号量等待超时",
    "Invalid or illegal command stream": "命令流无效或非法",
    "Framebuffer interface time-out": "显存接口超时",
    "Video processor exception": "视频处理器异常",
    "GPU semaphore access error": "GPU 信号量访问错误",
    "MMU page fault: the GPU touched an address that is not mapped or not permitted": "MMU 缺页：GPU 访问了未映射或无权限的地址",
    "DMA engine found the command stream invalid or corrupted": "DMA 引擎发现命令流无效或损坏",
    "Internal micro-controller error (old generation)": "内部微控制器错误（旧代）",
    "Video decode engine exception": "视频解码引擎异常",
    "Context-switch firmware received an unknown method": "上下文切换固件收到未知方法",
    "Context-switch firmware (FECS) watchdog expired": "上下文切换固件（FECS）看门狗超时",
    "Video image compositor (VIC) exception": "视频图像合成器（VIC）异常",
    "The process hit a software-caused fault and its channel was reset; the GPU itself is healthy": "进程触发软件原因的故障，其通道被重置；GPU 本身健康",
    "Engine fault while switching contexts": "切换上下文时引擎故障",
    "Channels were torn down as a consequence of another failure (or of the process being killed)": "因其他故障（或进程被杀）而回收通道",
    "GPU stopped responding (engine time-out)": "GPU 停止响应（引擎超时）",
    "Uncorrectable (double-bit) ECC error": "不可纠正（双比特）ECC 错误",
    "Not in use (legacy silent-running/thermal states)": "未使用（旧的静默/温度状态）",
    "Board auxiliary power cable is not connected (or not sensed)": "板卡辅助供电线未连接（或未检测到）",
    "Video-memory link training failed": "显存链路训练失败",
    "Video-memory interface unstable": "显存接口不稳定",
    "Power-management controller (PMU) error, older drivers": "电源管理控制器（PMU）错误（旧驱动）",
    "Security processor (SEC2) error": "安全处理器（SEC2）错误",
    "PMU breakpoint/warning, newer drivers": "PMU 断点/警告（新驱动）",
    "PMU (internal micro-controller) halted": "PMU（内部微控制器）停机",
    "A memory row was marked for remapping (or a page retired): recording succeeded": "某显存行已标记为待重映射（或页面已停用）：记录成功",
    "Recording a row remap/page retirement failed": "行重映射/页面停用记录失败",
    "Illegal register access (FECS)": "非法寄存器访问（FECS）",
    "Register access verification violation (FECS)": "寄存器访问校验违规（FECS）",
    "Graphics engine class error (unsupported class/method for this GPU)": "图形引擎类错误（该 GPU 不支持的类/方法）",
    "NVLink error; the register dump in the text says which sub-error": "NVLink 错误；文本中的寄存器值说明具体子错误",
    "vGPU failed to start": "vGPU 启动失败",
    "GPU is no longer reachable over PCIe": "GPU 在 PCIe 上不可达（掉卡）",
    "Data sent to the GPU was corrupted (CRC mismatch)": "发往 GPU 的数据损坏（CRC 不符）",
    "VGA subsystem error": "VGA 子系统错误",
    "Telemetry report from the driver": "驱动遥测报告",
    "L2-cache (LTC) error, reserved": "L2 缓存（LTC）错误（保留）",
    "Reserved": "保留",
    "Rate of corrected (single-bit) ECC errors is high": "已纠正（单比特）ECC 错误率偏高",
    "Info-ROM write wear limit passed, non-fatal": "InfoROM 写入磨损超限（非致命）",
    "Uncorrectable memory error that hardware contained to the affected process": "不可纠正显存错误，硬件已将影响限制在相关进程内",
    "Uncorrectable memory error that could NOT be contained: every process on the GPU is affected": "不可纠正显存错误且未能限制影响：该 GPU 上所有进程受影响",
    "Test message from the SMBPBI interface": "SMBPBI 接口测试消息",
    "Silent SMBPBI test message": "SMBPBI 静默测试消息",
    "Remote address translation over NVLink failed": "NVLink 远端地址转换失败",
    "Context switch timed out on an engine": "引擎上下文切换超时",
    "Security fault": "安全故障",
    "Display bundle error": "显示 bundle 错误",
    "Display supervisor error": "显示 supervisor 错误",
    "Display DisplayPort link-training error": "DisplayPort 链路训练错误",
    "Display pipeline underflow error": "显示管线下溢",
    "Display core channel error": "显示 core 通道错误",
    "Display window channel error": "显示 window 通道错误",
    "Display cursor channel error": "显示 cursor 通道错误",
    "Display pixel pipeline error": "显示像素管线错误",
    "Call to the GPU system processor (GSP) firmware timed out": "调用 GPU 系统处理器（GSP）固件超时",
    "Error inside the GPU system processor (GSP)": "GPU 系统处理器（GSP）内部错误",
    "Corrected error on the chip-to-chip (C2C) link": "芯片间（C2C）链路已纠正错误",
    "PMU failed to read the SPI flash": "PMU 读取 SPI 闪存失败",
    "PMU failed to write the SPI flash": "PMU 写入 SPI 闪存失败",
    "PMU failed to erase the SPI flash": "PMU 擦除 SPI 闪存失败",
    "Info-ROM file-system failure": "InfoROM 文件系统失败",
    "NVLink automatic link initialisation/training failed": "NVLink 自动初始化/训练失败",
    "NVLink privilege error: a peer access was refused (often a remote process died or mapped memory wrongly)": "NVLink 权限错误：对端访问被拒（多为远端进程退出或内存映射错误）",
    "DLA error (not on data-center GPUs)": "DLA 错误（数据中心 GPU 无此单元）",
    "Uncorrected ECC error that escaped normal handling; text lists DRAM/LTC/MMU/PCIE counters": "绕过正常处理的不可纠正 ECC 错误；文本列出 DRAM/LTC/MMU/PCIE 计数",
    "CUDA fast-path error": "CUDA 快速路径错误",
    "GPU could not be initialised": "GPU 无法初始化",
    "Confidential-computing key rotation failed": "机密计算密钥轮换失败",
    "DLA memory-management error": "DLA 内存管理错误",
    "DLA time-out": "DLA 超时",
    "Driver announces which recovery this GPU now needs (none / GPU reset / node reboot / drain P2P / drain and reset / recover IMEX domain)": "驱动声明该 GPU 需要的恢复动作（无/重置 GPU/重启节点/排空 P2P/排空并重置/恢复 IMEX 域）",
    "NVLink error raised by software": "软件上报的 NVLink 错误",
    "A hardware resource was retired": "某硬件资源已停用",
    "Retiring a resource failed": "停用资源失败",
    "Fatal time-out inside the GPU": "GPU 内部致命超时",
    "Coherent interface (CHI) non-data error": "一致性接口（CHI）非数据错误",
    "A memory channel was retired": "某显存通道已停用",
    "Retiring a memory channel failed": "停用显存通道失败",
    "Power-smoothing circuit is active again": "功率平滑电路重新启用",
    "Power-smoothing circuit switched off": "功率平滑电路关闭",
    "Power-smoothing circuit has little life left": "功率平滑电路寿命将尽",
    "Power-smoothing circuit life exhausted": "功率平滑电路寿命耗尽",
    "Encrypted-NVLink error: protected traffic before the link was set up": "加密 NVLink 错误：链路建立前出现受保护流量",
    "Fatal PCIe time-out": "PCIe 致命超时",
    "GPU memory capacity was reduced because of errors in a protected region": "受保护区域出错，GPU 显存容量减少",
    "Security processor (SEC2) halted": "安全处理器（SEC2）停机",
    "Encrypted-NVLink error, other": "加密 NVLink 其他错误",
    "Detail for 48: the uncorrectable error was in DRAM": "48 的细节：不可纠正错误位于 DRAM",
    "Detail for 48: the uncorrectable error was in SRAM": "48 的细节：不可纠正错误位于 SRAM",
    "Chip-to-chip link failed fatally": "芯片间链路致命失效",
    "Channel reset that silently killed its process": "通道重置并静默终止其进程",
    "Memory-subsystem error": "显存子系统错误",
    "Corrected PCIe error fault": "已纠正的 PCIe 错误",
}


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2] if len(sys.argv) > 2 else "src/holdfast/signatures"))
