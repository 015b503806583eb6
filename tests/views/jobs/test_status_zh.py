"""The rows of `holdfast status` in Chinese."""

import pytest

from holdfast.model.signatures import Words
from holdfast.views.jobs.status_zh import NAMES, rows_zh

TITLE = Words(en="rank 2 ran out of GPU memory", zh="rank 2 显存不足")


@pytest.mark.parametrize(
    ("name", "english", "chinese"),
    [
        ("phase", "training, step 80", "训练中，第 80 步"),
        ("attempt", "2, since 2026-01-01 15:19:58", "第 2 次，自 2026-01-01 15:19:58 起"),
        ("step", "80 of 100 (80%), checkpoint", "80 / 100 (80%), checkpoint"),
        ("step", "none yet", "日志尚未给出步数"),
        ("step time", "now 3.05 s, median 3.0 s, best 2.9 s", "当前 3.05 s, 中位 3.0 s, 最好 2.9 s"),
        ("eta", "6s at this pace", "按当前速度 6s"),
        ("straggler", "none found", "未发现"),
        (
            "restarts",
            "1 of 8; reschedules caused by hardware: 0; workers replaced: 2",
            "1（最多 8）；硬件引起的重调度：0；替换的 worker：2",
        ),
        (
            "restarts",
            "0, none allowed; reschedules caused by hardware: 0; workers replaced: 0",
            "0（不允许重启）；硬件引起的重调度：0；替换的 worker：0",
        ),
        ("incident", "none so far", "至今没有"),
        (
            "incident",
            "none open; 2 so far, the last one ended after 3.5s, 1 step lost",
            "无未恢复的故障；共 2 次，最近一次用时 3.5s，损失 1 步",
        ),
        (
            "verdict",
            "incident 1: rank 2 ran out of GPU memory (gpu_oom, 97% sure); culprit: rank 2; first error: a.log:18",
            "第 1 次故障：rank 2 显存不足（gpu_oom，置信度 97%）；责任方：rank 2；首个错误：a.log:18",
        ),
        (
            "ranks",
            "0 (pid 7), 1 (ended with -9), 2 (gone) and 3 more",
            "0 (pid 7), 1 (已结束，退出码 -9), 2 (已消失) 等，另有 3 个",
        ),
        ("nodes", "isolated: n0, n1; lost: n2", "已隔离：n0, n1；已失联：n2"),
        ("nodes", "lost: n2", "已失联：n2"),
        ("folder", "/state/jobs/since", "/state/jobs/since"),
        ("job", "llama: torchrun train.py now best", "llama: torchrun train.py now best"),
    ],
)
def test_a_row(name, english, chinese):
    assert rows_zh([(name, english)], TITLE) == [(NAMES[name], chinese)]


def test_what_has_no_translation_stays():
    assert rows_zh([("weather", "sunny")]) == [("weather", "sunny")]
