"""Diagnoses made by hand, for the tests of the report and of the JSON document."""

from holdfast.model.diagnoses import Diagnosis, Fact, FirstError, Other
from holdfast.model.matches import Skipped
from holdfast.model.signatures import Words
from holdfast.model.verdicts import Culprit
from holdfast.views.diagnosis.document import Scanned

READ = Scanned(files=9, size_bytes=1_234_567, seconds=0.41)
AT_S = 1_767_225_600.25  # 2026-01-01 00:00:00.250 UTC

OUT_OF_MEMORY = Diagnosis(
    category="gpu_oom",
    class_="memory",
    confidence=0.97,
    title=Words(
        en="GPU memory exhausted: 2.00 GiB could not be allocated", zh="显存不足：无法再分配 2.00 GiB"
    ),
    explanation=Words(
        en="The GPU had less free memory than the step asked for.",
        zh="该 GPU 的剩余显存少于这一步所需的显存。",
    ),
    advice=Words(
        en="Lower the micro batch size or the sequence length, or turn on activation checkpointing. If much is "
        "reserved but not allocated, set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
        zh="请减小 micro batch 或序列长度，或开启激活重计算。若已保留但未分配的显存很多，请设置 "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True。",
    ),
    action="reduce_memory",
    culprits=(Culprit(rank=5, worker=0, host="gpu-03", device="GPU 5"),),
    first_error=FirstError(
        file="worker-0/rank-5.log",
        line=1812,
        text="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 5 has a total capacity "
        "of 79.15 GiB of which 1.31 GiB is free.",
        at_s=AT_S,
        before=(
            '  File "/home/ada/train.py", line 88, in main',
            "    loss = model(batch)",
            "           ^^^^^^^^^^^^",
        ),
        after=("[rank5]: wandb: waiting for upload, WANDB_API_KEY=" + "0a1b2c3d" * 5, "step 12", "bye"),
        frame="train.py:88 main",
    ),
    evidence=(
        Fact(
            file="worker-0/rank-5.log",
            line=1812,
            text="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 5 has a total capacity "
            "of 79.15 GiB of which 1.31 GiB is free.",
            says=Words(en="GPU memory exhausted", zh="显存不足"),
            signature="cuda-out-of-memory",
            at_s=AT_S,
            ranks=(5,),
        ),
        Fact(
            file="worker-0/rank-0.log",
            line=1790,
            text="RuntimeError: [1] is setting up NCCL communicator and retrieving ncclUniqueId, but got: Connection "
            "reset by peer",
            says=Words(en="the connection to another rank was closed", zh="与其他 rank 的连接被关闭"),
            signature="connection-reset",
            at_s=AT_S + 2,
            count=7,
            ranks=(0, 1, 2, 3, 4, 6, 7),
        ),
    ),
    also=(Other(category="gpu_oom_external_process", confidence=0.02),),
    not_found=(Words(en="No log of rank 6, though there are logs up to rank 7.", zh="缺少 rank 6 的日志。"),),
)

FALLEN_OFF = Diagnosis(
    category="xid_79",
    class_="hardware",
    confidence=0.74,
    title=Words(
        en="a GPU fell off the bus (Xid 79): the driver cannot reach it any more",
        zh="GPU 掉卡（Xid 79）：驱动无法再访问该设备",
    ),
    explanation=Words(
        en="Its root port lost the link two lines earlier.", zh="两行之前，其根端口已断开链路。"
    ),
    advice=Words(en="Isolate the node and reboot it.", zh="请隔离该节点并重启。"),
    action="isolate_node",
    culprits=tuple(Culprit(host=f"gpu-{number:02}", device="0000:5d:00.0") for number in range(1, 6)),
    culprits_left_out=2,
    first_error=FirstError(
        file="kernel/dmesg.txt",
        line=3,
        text="NVRM: Xid (PCI:0000:5d:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    ),
    evidence=tuple(
        Fact(
            file=f"kernel/part-{number}.txt",
            line=number,
            text=f"pcieport 0000:5c:01.{number}: pciehp: Slot(1): Link Down",
            says=Words(en="the link of a slot went down", zh="插槽链路断开"),
            signature="pcie-link-down",
        )
        for number in range(8)
    ),
    decided_by=Words(en="the driver's own recovery action (Xid 154)", zh="驱动给出的恢复动作（Xid 154）"),
    disagree=(Words(en="the table's default for Xid 79 is a reboot", zh="表中 Xid 79 的默认动作为重启"),),
    notes=(Words(en="the clock of gpu-02 is 4 s ahead", zh="gpu-02 的时钟快 4 秒"),),
    also=(Other(category="pcie_aer", confidence=0.2, title=Words(en="PCIe errors", zh="PCIe 错误")),),
)
SKIPPED = Scanned(
    files=1,
    size_bytes=900,
    seconds=12.04,
    skipped=tuple(Skipped(name=f"core.{number}", why="it is a binary file") for number in range(5)),
)

UNKNOWN = Diagnosis(
    category="unknown",
    class_="unknown",
    confidence=0.3,
    title=Words(en="the job failed, and the cause is unknown", zh="作业失败，现有知识无法解释原因"),
    explanation=Words(en="No known error was found.", zh="未发现已知的错误。"),
    advice=Words(en="Read these lines.", zh="请查看所列日志行。"),
    first_error=FirstError(file="out.log", line=None, text="quux failed with 7"),
)

HEALTHY = Diagnosis(
    category="none",
    class_="healthy",
    confidence=0.9,
    title=Words(en="no problem was found", zh="未发现问题"),
    explanation=Words(en="No line tells of a failure.", zh="没有任何日志行表明出现故障。"),
    advice=Words(en="Nothing to do.", zh="无需处理。"),
    action="none",
)
