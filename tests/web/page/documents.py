"""Documents of jobs for the tests of the page: every state, a group of equal causes, names that try to break out."""

import math

from holdfast.model.documents.jobs import (
    AttemptRow,
    CauseGroup,
    Counters,
    IncidentRow,
    JobDocument,
    JobRow,
    JobsPage,
    LogLine,
    RankRow,
    WorkerRow,
)
from holdfast.model.documents.parts import Cost, JobState, Sentence, Who
from holdfast.model.signatures import Words
from web.page.hostile import HOSTILE

HOUR_S = 3600.0


def words(en: str, zh: str = "") -> Words:
    return Words(en=en, zh=zh or en)


def sentence(en: str, zh: str, tone: str = "neutral", to_do: bool = False) -> Sentence:
    return Sentence(text=words(en, zh), tone=tone, to_do=to_do)


def spark(slow_at: int | None = None, count: int = 24) -> tuple[float, ...]:
    return tuple(4.1 if i == slow_at else 1.88 + 0.06 * math.sin(i * 1.7) for i in range(count))


RECOVERED = sentence(
    "Rank 5 (gpu-03, GPU 5) fell off the bus at 03:12:07; node isolated, training again after 41 s on gpu-11; 38 steps repeated. Nothing to do.",
    "03:12:07 起 rank 5（gpu-03，GPU 5）掉卡；已隔离节点，41 秒后在 gpu-11 恢复训练；重算 38 步。无需处理。",
    "recovered",
)
HUNG = sentence(
    "Rank 2 (gpu-07) has not entered all_reduce #8,121 since 14:02:31; restarted (2 of 3). It waits in data.py:88 for a loader worker: look at /data/shard-19.",
    "14:02:31 起 rank 2（gpu-07）未进入 all_reduce #8121；已重启（第 2 次，共 3 次）。它在 data.py:88 等待数据加载进程：请检查 /data/shard-19。",
    "trouble",
    True,
)
FAILED = sentence(
    "Stopped: ValueError in data.py:41, the same error twice at step 1,200. Not a machine. Fix the record in shard-19, then start again.",
    "已停止：data.py:41 的 ValueError，在第 1,200 步两次相同。不是机器问题。请修复 shard-19 中的记录后重新启动。",
    "lost",
    True,
)
PORT = sentence(
    "Port 29500 is in use on login-2 by process 4711 (torchrun of user chen). Choose another --master-port.",
    "login-2 上的端口 29500 被进程 4711（用户 chen 的 torchrun）占用。请换用其他 --master-port。",
    "lost",
    True,
)
STATES: dict[JobState, Sentence] = {
    "starting": sentence("Starts 32 ranks on 4 nodes since 14:20:11.", "14:20:11 起在 4 个节点上启动 32 个 rank。"),
    "training": RECOVERED,
    "recovering": HUNG,
    "waiting": sentence(
        "No healthy node for worker 2 since 14:40 (2 isolated). Release one, or add a node.",
        "14:40 起 worker 2 没有健康节点（2 个被隔离）。请解除隔离或增加节点。", "trouble", True,
    ),
    "kept": sentence("CUDA out of memory on rank 3; workers are kept until 18:00 for inspection.", "rank 3 显存不足；worker 保留至 18:00 待查。", "trouble", True),
    "stopping": sentence("Stops on request of chen since 14:31:02.", "14:31:02 起应 chen 的请求停止。"),
    "succeeded": sentence("Finished 60,000 steps in 1 d 9 h; 2 incidents cost 3 min.", "完成 60,000 步，用时 1 天 9 小时；2 次事故共损失 3 分钟。"),
    "failed": FAILED,
    "stopped": sentence("Stopped on request of mueller at step 9,210.", "应 mueller 的请求在第 9,210 步停止。"),
    "preempted": sentence("Slurm preempted the job at 09:14:55; it is queued again.", "Slurm 于 09:14:55 抢占了作业；已重新排队。"),
    "unsupervised": sentence("Ranks train, but their supervisor ended at 13:55. Run holdfast attach.", "rank 仍在训练，但监督进程已于 13:55 结束。请运行 holdfast attach。", "trouble", True),
    "dead": sentence("Supervisor and all ranks ended at 02:11 without a word; the host rebooted. Start it again.", "监督进程和所有 rank 于 02:11 无声结束；主机曾重启。请重新启动。", "lost", True),
    "unknown": sentence("gpu-40 has not answered for 6 min; its last word was step 880.", "gpu-40 已 6 分钟没有应答；最后记录为第 880 步。", "trouble", True),
}  # fmt: skip
NAMES = {
    "training": "llama-70b", "waiting": "sft-qwen", "failed": "eval-7b", "recovering": "mixtral-8x22", "starting": "vit-huge",
    "kept": "sdxl-ft", "stopping": "bert-probe", "succeeded": "gpt-neo-20b", "stopped": "whisper-l", "preempted": "t5-xl",
    "unsupervised": "moe-ablation-3", "dead": "clip-b16", "unknown": "gemma-9b",
}  # fmt: skip
LIVE = {"starting", "training", "recovering", "waiting", "kept", "stopping", "unsupervised", "unknown"}


def job_row(state: JobState, now_s: float, *, id: str = "", name: str = "", place: int = 0) -> JobRow:
    live, stepped = state in LIVE, state != "starting"
    return JobRow(
        id=id or NAMES[state], name=name or NAMES[state], state=state, sentence=STATES[state],
        state_since_s=now_s - 900 - 400 * place, submitted_at_s=now_s - 26 * HOUR_S - 3000 * place,
        ended_at_s=None if live else now_s - 1800 * (place + 1), seen_at_s=now_s - 2,
        step=41_877 - 3107 * place if stepped else None, total_steps=60_000 if place % 2 == 0 else None,
        step_s=1.92 if stepped and live else None, eta_s=34_800.0 if state == "training" else None,
        sparkline=spark(16 if place % 3 == 0 else None) if stepped else (), goodput=0.992 - 0.03 * place if stepped else None,
        attempt=3, restarts=2, incidents=2 if stepped else 0, workers=8, ranks=64, nodes=tuple(f"gpu-{n:02}" for n in range(1, 9)),
        engine="slurm", user="chen", category="xid_79" if state == "training" else "", labels={"team": "nlp"},
        command="torchrun --nnodes 8 --nproc-per-node 8 train.py --config configs/llama-70b.yaml --resume auto",
    )  # fmt: skip


def all_rows(now_s: float) -> list[JobRow]:
    rows = [job_row(state, now_s, place=place) for place, state in enumerate(NAMES)]
    rows += [
        JobRow(
            id=f"port-{n}", name=f"sweep-lr-{n:02}", state="failed", sentence=PORT, cause="port_in_use:29500:login-2", category="port_in_use",
            state_since_s=now_s - 5000 - 60 * n, ended_at_s=now_s - 5000 - 60 * n, submitted_at_s=now_s - 5100 - 60 * n, user="mueller",
        )
        for n in range(14)
    ]  # fmt: skip
    rows += [
        JobRow(
            id=f"hostile-{n}", name=name[:300], state="failed", sentence=sentence(name[:300], name[:300], "lost", True), user=name[:300], source=name[:40],
            ended_at_s=now_s - 90_000, submitted_at_s=now_s - 99_000, labels={name[:20]: name[:300]},
        )
        for n, name in enumerate(HOSTILE)
    ]  # fmt: skip
    return rows


def jobs_page(
    rows: list[JobRow], now_s: float, states: list[str], search: str, limit: int, start: int
) -> JobsPage:
    fit = [
        row
        for row in rows
        if (not states or row.state in states) and search.lower() in (row.name + row.sentence.text.en).lower()
    ]
    group = [row for row in fit if row.cause]
    groups = (
        CauseGroup(
            cause=group[0].cause, category="port_in_use", count=len(group), sentence=PORT, jobs=tuple(row.id for row in group),
            since_s=now_s - 6000, until_s=now_s - 5000,
        ),
    ) if len(group) > 1 else ()  # fmt: skip
    counted: dict[str, int] = {}
    for row in rows:
        counted[row.state] = counted.get(row.state, 0) + 1
    return JobsPage(
        jobs=tuple(fit[start : start + limit]), groups=groups, next=str(start + limit) if start + limit < len(fit) else "",
        total=len(fit), states=counted, as_of_s=now_s,
    )  # fmt: skip


INCIDENT_COST = Cost(
    lost_s=41.3, devices=64, steps_repeated=38,
    by_cause={"detection": 0.3, "stopping": 4.0, "placing": 9.0, "starting": 28.0},
)  # fmt: skip


def incident_rows(now_s: float, whole: bool = True) -> tuple[IncidentRow, ...]:
    first = IncidentRow(
        number=1, attempt=1, found_at_s=now_s - 20 * HOUR_S, sentence=HUNG, category="dataloader_stuck", class_="training", confidence=0.84,
        who=(Who(rank=2, worker=0, node="gpu-07"),), rung="hang-restart", over=True, recovered_at_s=now_s - 20 * HOUR_S + 312,
        cost=Cost(lost_s=312.0, devices=64, steps_repeated=121, by_cause={"detection": 240.0, "starting": 72.0}),
    )  # fmt: skip
    second = IncidentRow(
        number=2, attempt=2, found_at_s=now_s - 11 * HOUR_S, sentence=RECOVERED, category="xid_79", class_="hardware", confidence=0.97,
        who=(Who(rank=5, worker=0, node="gpu-03", device="5"),), rung="replace-worker", over=True,
        recovered_at_s=now_s - 11 * HOUR_S + 41.3, cost=INCIDENT_COST,
    )  # fmt: skip
    return (first, second) if whole else ()


LOG_KINDS = ("job", "attempt", "finding", "verdict", "rung", "recovered", "news", "request")


def log_lines(now_s: float) -> tuple[LogLine, ...]:
    texts = {
        "job": "submitted: torchrun --nnodes 8 --nproc-per-node 8 train.py",
        "attempt": "attempt 2 starts: 64 ranks on gpu-01 … gpu-08, port 29511",
        "finding": "rank 5 exited with code -6 (SIGABRT); 63 ranks wait in all_reduce #40,211",
        "verdict": "xid_79: GPU 5 of gpu-03 fell off the bus (97 %)",
        "rung": "replace-worker (1 of 3): a hardware fault of one node; gpu-03 is isolated",
        "recovered": "step 40,173 after 41.3 s; 38 steps are repeated",
        "news": "holdfast attach took over the job on login-2",
        "request": "mueller asks for a restart: new learning rate",
    }
    return tuple(
        LogLine(seq=n, at_s=now_s - 20 * HOUR_S + 2400 * n, kind=LOG_KINDS[n % 8], text=texts[LOG_KINDS[n % 8]], attempt=1 + n // 12, incident=2 if n % 8 in (3, 4) else None)
        for n in range(28)
    )  # fmt: skip


def job_document(row: JobRow, now_s: float) -> JobDocument:
    stepped = row.step is not None
    end_s = row.ended_at_s
    start = row.submitted_at_s or now_s
    attempts = (
        AttemptRow(number=1, started_at_s=start + 30, ended_at_s=now_s - 20 * HOUR_S, first_step=1, last_step=11_220, nodes=row.nodes),
        AttemptRow(number=2, started_at_s=now_s - 20 * HOUR_S + 312, ended_at_s=now_s - 11 * HOUR_S, first_step=11_100, last_step=28_095, nodes=row.nodes),
        AttemptRow(number=3, started_at_s=now_s - 11 * HOUR_S + 41, ended_at_s=end_s, first_step=28_057, last_step=row.step, nodes=row.nodes),
    ) if stepped else ()  # fmt: skip
    workers = tuple(
        WorkerRow(worker=n, node=f"gpu-{n + 1:02}", ranks=tuple(range(n * 8, n * 8 + 8)), step=row.step, step_s=1.92, files={"stdout.log": 88_123_456})
        for n in range(row.workers)
    )  # fmt: skip
    return JobDocument(
        row=row, counters=Counters(max_restarts=8, restarts=row.restarts, hardware_reschedules=1, replacements=1), phase="running", phase_words="training",
        attempts=attempts, incidents=incident_rows(now_s, stepped), workers=workers,
        ranks=tuple(RankRow(rank=n, worker=n // 8, node=f"gpu-{n // 8 + 1:02}", pid=4000 + n, at_fault=n == 5 and row.state == "failed", ended=n == 5 and row.state == "failed", code=-6 if n == 5 and row.state == "failed" else None) for n in range(row.ranks)),
        isolated=("gpu-03",) if stepped else (), findings=log_lines(now_s)[2:3] if stepped else (),
        cost=Cost(lost_s=353.3, devices=64, steps_repeated=159, by_cause={"detection": 240.3, "starting": 100.0, "placing": 9.0, "stopping": 4.0}) if stepped else None,
        policy={"max_restarts": 8, "hang_quiet_s": 180, "node_wait_s": 600}, folder="/shared/holdfast/jobs/" + row.id, supervisor="login-2, process 88123", version="0.1.0",
        etag=f'"{row.id}-1"', warnings=("The journal has a damaged line at byte 88,213; it is left out.",) if row.state == "unknown" else (),
    )  # fmt: skip
