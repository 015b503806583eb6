"""Documents of incidents, nodes, step times, heat and output for the tests of the page; some of it hostile."""

import math

from holdfast.model.documents.incidents import (
    CheckRow,
    Correction,
    EvidenceRow,
    IncidentDocument,
    IncidentLink,
    RungRow,
    StackGroup,
    WaitEdge,
)
from holdfast.model.documents.jobs import Bucket, HeatMap, IncidentRow, Mark, StepSeries
from holdfast.model.documents.nodes import DeviceRow, NodeDocument, NodeLine, NodeRow, NodesPage
from holdfast.model.documents.output import OutputLine, OutputPage
from holdfast.model.documents.parts import Cost, LinePlace, Who
from web.page.documents import HOUR_S, HUNG, RECOVERED, words
from web.page.hostile import HOSTILE

LINE_BYTES = 80


def evidence(job: str, at_s: float) -> tuple[EvidenceRow, ...]:
    def place(line: int, rank: int = 5) -> LinePlace:
        return LinePlace(
            file=f"attempts/2/rank-{rank}.log", offset=line * LINE_BYTES, attempt=2, worker=0, rank=rank
        )

    return (
        EvidenceRow(
            id="2.1", kind="kernel", at_s=at_s + 0.2, who=Who(node="gpu-03"), first_error=True, signature="xid-79",
            says=words("GPU 5 does not answer on the PCI bus any more.", "GPU 5 在 PCI 总线上不再应答。"),
            text="NVRM: Xid (PCI:0000:5d:00): 79, pid=4005, name=python3, GPU has fallen off the bus.",
            before=("pcieport 0000:5c:00.0: AER: Uncorrected (Fatal) error received",), after=("NVRM: A GPU crash dump has been created.",),
        ),
        EvidenceRow(id="2.2", kind="exit", at_s=at_s + 0.9, who=Who(rank=5, node="gpu-03"), text="rank 5 exited with code -6 (SIGABRT)"),
        EvidenceRow(
            id="2.3", at_s=at_s + 1.0, who=Who(rank=5), place=place(40_211), says=words("PyTorch reports a CUDA error on rank 5.", "PyTorch 在 rank 5 上报告 CUDA 错误。"),
            text="\x1b[31mRuntimeError\x1b[0m: CUDA error: unspecified launch failure", before=("  File \"train.py\", line 210, in step", "    loss.backward()"),
        ),
        EvidenceRow(id="2.4", at_s=at_s + 1.1, who=Who(rank=0), place=place(40_212, 0), count=63, text="[rank0]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=40211, OpType=ALLREDUCE)"),
        EvidenceRow(id="2.5", kind="stack", at_s=at_s + 1.2, text="ranks 0–4, 6–63 wait in all_reduce #40,211"),
        EvidenceRow(id="2.6", kind="check", at_s=at_s + 8.0, who=Who(node="gpu-03"), text="gpu-inventory: 7 of 8 GPUs answer"),
    )  # fmt: skip


def hostile_evidence(at_s: float) -> tuple[EvidenceRow, ...]:
    return tuple(
        EvidenceRow(id=f"9.{n}", at_s=at_s + n / 10, who=Who(rank=n, node=text[:30]), text=text, says=words(text[:200]), place=LinePlace(file=text[:40], offset=n), before=(text[:200],))
        for n, text in enumerate(HOSTILE)
    )  # fmt: skip


OTHERS = tuple(rank for rank in range(64) if rank != 5)


def incident_document(job: str, row: IncidentRow, now_s: float) -> IncidentDocument:
    at_s = row.found_at_s
    hang = row.category == "dataloader_stuck"
    return IncidentDocument(
        job=job, row=row,
        title=words("Rank 2 waits for its data loader", "rank 2 在等待数据加载") if hang else words("Xid 79: the GPU fell off the bus", "Xid 79：GPU 掉卡"),
        explanation=words("The driver lost the device: it no longer answers on the PCI bus. Software cannot bring it back.", "驱动失去了该设备：它在 PCI 总线上不再应答。软件无法使其恢复。"),
        advice=words("Drain gpu-03 and power-cycle it; if it happens again, have GPU 5 replaced.", "排空 gpu-03 并断电重启；若再次发生，请更换 GPU 5。"),
        action="isolate_node", evidence=evidence(job, at_s), evidence_total=214,
        stacks=(
            StackGroup(ranks=OTHERS, frames=("all_reduce (torch/distributed/distributed_c10d.py:2501)", "step (train.py:210)", "main (train.py:300)"), waits_in="all_reduce #40211"),
            StackGroup(ranks=(5,), frames=("__next__ (torch/utils/data/dataloader.py:701)", "batches (data.py:88)", "main (train.py:300)"), waits_in="data.py:88"),
        ),
        waits=(WaitEdge(ranks=OTHERS, awaits=(5,), collective="all_reduce", sequence=40_211, group="default"), WaitEdge(ranks=(5,), awaits=(40, 41), collective="recv", sequence=77)) if hang
        else (WaitEdge(ranks=OTHERS, awaits=(5,), collective="all_reduce", sequence=40_211),),
        kernel=() if hang else tuple(EvidenceRow(id=f"2.k{n}", kind="kernel", at_s=at_s - 5 + n, who=Who(node="gpu-03"), text=text) for n, text in enumerate((
            "pcieport 0000:5c:00.0: AER: Corrected error received: 0000:5c:00.0", "pcieport 0000:5c:00.0: AER: Uncorrected (Fatal) error received",
            "NVRM: GPU at PCI:0000:5d:00: GPU-1f2e3d4c", "NVRM: Xid (PCI:0000:5d:00): 79, pid=4005, name=python3, GPU has fallen off the bus.",
            "NVRM: GPU 0000:5d:00.0: GPU has fallen off the bus.", "NVRM: A GPU crash dump has been created.", "NVRM: run nvidia-bug-report.sh", "nvidia-modeset: ERROR: GPU:5: Idling display engine timed out"))),
        checks=(
            CheckRow(node="gpu-03", check="gpu-inventory", status="fail", text="7 of 8 GPUs answer", device="GPU 5", advice="Power-cycle the node."),
            CheckRow(node="gpu-03", check="ecc", status="pass", text="no uncorrectable errors"),
            CheckRow(node="gpu-11", check="burn", status="warn", text="2.1 % slower than its peers"),
        ),
        rungs=(
            RungRow(rung="replace-worker", why="a hardware fault of one node: worker 0 moves to gpu-11, gpu-03 is isolated (1 of 3)", at_s=at_s + 1.4),
            RungRow(rung="in-place", why="would start on the same broken GPU", chosen=False),
            RungRow(rung="wait-for-node", why="gpu-11 is free", chosen=False),
        ),
        also={"nccl_network_error": 0.02, "cuda_error": 0.01}, timeline=(("detection", 0.3), ("stopping", 4.0), ("placing", 9.0), ("starting", 28.0)),
        cost=row.cost, step_before=40_210, step_resumed=40_173,
        similar=(IncidentLink(job="gpt-neo-20b", incident=1, at_s=now_s - 400 * HOUR_S, sentence=RECOVERED), IncidentLink(job="llama-70b", incident=1, at_s=now_s - 20 * HOUR_S, sentence=HUNG)),
        corrections=(Correction(category="pcie_link_downgrade", text="The riser card was loose.", by="chen", at_s=now_s - 1000),),
        has_bundle=True, etag=f'"{job}-{row.number}"',
    )  # fmt: skip


def hostile_incident(job: str, row: IncidentRow, text: str) -> IncidentDocument:
    return IncidentDocument(
        job=job, row=row, title=words(text), explanation=words(text), advice=words(text), problem=text, action=text[:60],
        evidence=hostile_evidence(row.found_at_s), evidence_total=10, stacks=(StackGroup(ranks=(0,), frames=HOSTILE, waits_in=text[:60]),),
        waits=(WaitEdge(ranks=(0,), awaits=(1,), collective=text[:60]), WaitEdge(ranks=(1,), awaits=(0,), collective=text[:20])),
        checks=(CheckRow(node=text[:50], check=text[:50], status=text[:20], text=text, advice=text),), rungs=(RungRow(rung=text[:60], why=text),), also={text[:60]: 0.5},
        timeline=((text[:40], 3.0),), cost=Cost(lost_s=3.0, by_cause={text[:40]: 3.0}), similar=(IncidentLink(job=text[:40], incident=1, at_s=1.0, sentence=row.sentence),),
        corrections=(Correction(category=text[:30], text=text, by=text[:30], at_s=1.0),),
    )  # fmt: skip


def step_time(step: int) -> float:
    slow = 0.9 if 9_000 < step < 10_200 else 0.0
    spike = 6.0 if step % 2_000 == 0 else 0.0
    return 1.88 + 0.05 * math.sin(step / 300) + 0.04 * math.sin(step * 12.9898) + slow + spike


def step_series(
    now_s: float, steps: int, from_s: float | None, to_s: float | None, points: int
) -> StepSeries:
    """Levels of detail, as the server makes them: each bucket joins as many steps as `points` asks for."""
    start = now_s - steps * 1.9
    low, high = max(start, from_s or start), min(now_s, to_s or now_s)
    first, last = int((low - start) / 1.9), int((high - start) / 1.9)
    every = max(1, math.ceil((last - first) / points))
    buckets = []
    for step in range(first, last, every):
        times = sorted(step_time(n) for n in range(step, min(step + every, last)))
        buckets.append(
            Bucket(
                at_s=start + step * 1.9,
                first_step=step,
                count=len(times),
                low_s=times[0],
                median_s=times[len(times) // 2],
                high_s=times[-1],
            )
        )
    marks = (
        Mark(kind="attempt", at_s=start, text="attempt 1"), Mark(kind="attempt", at_s=now_s - 11 * HOUR_S + 41, text="attempt 3"),
        Mark(kind="incident", at_s=now_s - 20 * HOUR_S, text="incident 1", incident=1), Mark(kind="incident", at_s=now_s - 11 * HOUR_S, text="incident 2", incident=2),
        Mark(kind="slowdown", at_s=start + 9_000 * 1.9, until_s=start + 10_200 * 1.9, text="47 % slower"), Mark(kind="checkpoint", at_s=start + 6_000 * 1.9, until_s=start + 6_060 * 1.9, text="checkpoint"),
    )  # fmt: skip
    return StepSeries(buckets=tuple(buckets), marks=marks, steps=steps, from_s=low, to_s=high)


def heat_map(now_s: float, columns: int) -> HeatMap:
    def value(rank: int, column: int) -> float | None:
        if columns * 0.55 < column < columns * 0.57:
            return None
        fault = rank == 5 and column > columns * 0.5
        return (
            3.0
            if fault and column < columns * 0.56
            else 91 + 6 * math.sin(rank * 3.1 + column * 0.7) - (12 if rank == 40 else 0)
        )

    return HeatMap(
        metric="utilisation", unit="%", ranks=tuple(range(64)), from_s=now_s - 6 * HOUR_S, column_s=6 * HOUR_S / columns,
        values=tuple(tuple(value(rank, column) for column in range(columns)) for rank in range(64)),
        incidents=(Mark(kind="incident", at_s=now_s - 2.7 * HOUR_S, incident=2),),
    )  # fmt: skip


LINES_OF_RANK = 100_000
COLOURED = (
    "\x1b[32mINFO\x1b[0m step {n} loss 2.31 lr 3.0e-4 \x1b[2m1.92 s\x1b[0m",
    "\x1b[34mDEBUG\x1b[0m batch of shard-19 has 512 records",
    "\x1b[1;33mWARNING\x1b[0m gradient norm 12.7 is clipped to 1.0",
    "[rank{rank}]: NCCL INFO Channel 00/02 :    0   1   2   3   4   5   6   7",
)


def output_line(rank: int, number: int, now_s: float) -> OutputLine:
    error = rank == 5 and number == 40_211
    text = (
        "\x1b[31mRuntimeError\x1b[0m: CUDA error: unspecified launch failure"
        if error
        else COLOURED[number % 4].format(n=number, rank=rank)
    )
    if rank == 5 and 50 <= number < 50 + len(HOSTILE):
        text = HOSTILE[number - 50]
    return OutputLine(
        place=LinePlace(file=f"attempts/2/rank-{rank}.log", offset=number * LINE_BYTES, attempt=2, worker=rank // 8, rank=rank),
        text=text, at_s=now_s - (LINES_OF_RANK - number) * 0.5 + rank * 0.01, cut_bytes=9_990_000 if rank == 5 and number == 98 else 0, first_error=error,
    )  # fmt: skip


def output_page(
    ranks: list[int], now_s: float, start: int, limit: int, total: int = LINES_OF_RANK
) -> OutputPage:
    """Lines of several ranks on one time axis; a cursor is the number of a line."""
    per_rank = max(1, limit // len(ranks))
    first = max(1, min(start, total))
    last = min(total, first + per_rank - 1)
    lines = sorted(
        (output_line(rank, n, now_s) for rank in ranks for n in range(first, last + 1)),
        key=lambda line: line.at_s or 0,
    )
    return OutputPage(
        lines=tuple(lines), before=str(first - per_rank) if first > 1 else "", after=str(last + 1) if last < total else "",
        scanned_bytes=last * LINE_BYTES, size_bytes=total * LINE_BYTES,
    )  # fmt: skip


def node_rows(now_s: float) -> list[NodeRow]:
    rows = [
        NodeRow(node="gpu-03", isolated=True, isolated_for="xid_79: GPU 5 fell off the bus (holdfast)", isolated_at_s=now_s - 11 * HOUR_S, lemon=True, lemon_score=0.91,
            numbers={"incidents": 4.0, "expected": 0.3, "hours": 612.0}, incidents=4, last_at_s=now_s - 11 * HOUR_S, last="isolated", jobs=()),
        NodeRow(node="gpu-22", lemon=True, lemon_score=0.72, numbers={"incidents": 3.0, "expected": 0.4}, incidents=3, last_at_s=now_s - 90 * HOUR_S, last="nvlink_error on GPU 2", jobs=("sft-qwen",)),
        NodeRow(node="gpu-17", isolated=True, isolated_for="fan replaced, to be checked (chen)", isolated_at_s=now_s - 3 * HOUR_S, lemon_score=0.2, incidents=1),
    ]  # fmt: skip
    rows += [
        NodeRow(
            node=f"gpu-{n:02}",
            lemon_score=0.04,
            incidents=n % 3,
            last="check passed",
            last_at_s=now_s - n * HOUR_S,
            jobs=("llama-70b",) if n < 9 else (),
        )
        for n in range(1, 41)
        if n not in (3, 22, 17)
    ]
    rows += [NodeRow(node="<b>node</b>", last="<img src=x onerror=document.title='owned'>", last_at_s=now_s)]
    return rows


def nodes_page(now_s: float, search: str) -> NodesPage:
    fit = tuple(row for row in node_rows(now_s) if search in row.node)
    return NodesPage(nodes=fit, total=len(fit))


def node_document(name: str, now_s: float) -> NodeDocument | None:
    row = next((row for row in node_rows(now_s) if row.node == name), None)
    if row is None:
        return None
    lines = (
        NodeLine(at_s=now_s - 11 * HOUR_S, kind="isolated", text="xid_79: GPU 5 fell off the bus", device="5", serial="1563221014411", job="llama-70b", incident=2, by="holdfast"),
        NodeLine(at_s=now_s - 90 * HOUR_S, kind="incident", text="nvlink_error on GPU 2", device="2", job="gpt-neo-20b", incident=1),
        NodeLine(at_s=now_s - 200 * HOUR_S, kind="check", text="burn: all 8 GPUs within 1.2 % of their peers", by="mueller"),
    )  # fmt: skip
    devices = tuple(
        DeviceRow(serial=f"15632210144{n:02}", model="NVIDIA H100 80GB HBM3", device=f"GPU {n}", node=name, nodes=((name, now_s - 2000 * HOUR_S), ("gpu-30", now_s - 4000 * HOUR_S)))
        for n in range(8)
    )  # fmt: skip
    return NodeDocument(
        row=row,
        incidents=(IncidentLink(job="llama-70b", incident=1, at_s=now_s - 20 * HOUR_S, sentence=HUNG),),
        lines=lines,
        devices=devices,
        checks=(
            CheckRow(
                node=name,
                check="gpu-inventory",
                status="pass" if name != "gpu-03" else "fail",
                text="8 of 8 GPUs answer",
            ),
        ),
        etag=f'"{name}"',
    )
