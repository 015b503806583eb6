"""`holdfast diagnose` on logs made by hand: paths, stdin, languages, bad input, a site's own signatures."""

import gzip
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from cli.journals import one_failure_and_on, write_job
from holdfast.model.failures import Failure, RankExit
from holdfast.observe.logs.bundles import Member, write_bundle

SCRIPT = Path(sys.executable).with_name("holdfast")

OUT_OF_MEMORY = """\
2026-01-01 00:00:0{rank} step 11 loss 2.31
2026-01-01 00:00:0{rank} logged in with HF_TOKEN=hf_{token}
Traceback (most recent call last):
  File "/home/ada/llama/train.py", line 88, in main
    loss = model(batch)
  File "/usr/lib/python3/site-packages/torch/nn/modules/module.py", line 1553, in _call_impl
    return forward_call(*args, **kwargs)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU {rank} has a total capacity of 79.15 GiB of \
which 1.31 GiB is free.
"""
PEER_GONE = """\
2026-01-01 00:00:0{rank} step 11 loss 2.31
[rank{rank}]: torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error
[rank{rank}]: Connection reset by peer
"""
HEALTHY = "".join(f"2026-01-01 00:00:{step:02} step {step} loss 2.{step} errors 0\n" for step in range(60))

LAKE = """
[[signature]]
id = "lake-quota"
category = "disk_full"
pattern = '''lakefs: quota of project (?P<name>\\S+) exceeded'''
severity = "fatal"
weight = 0.95
title = { en = "the quota of project {name} is used up", zh = "项目 {name} 的配额已用尽" }
explanation = { en = "LakeFS refuses to write.", zh = "LakeFS 拒绝写入。" }
advice = { en = "Delete old checkpoints, or ask the storage team for more.", zh = "请删除旧检查点,或联系存储团队扩容。" }
source = "lakefs client"
matches = ['''lakefs: quota of project llm exceeded''']

[[signature]]
id = "lake-waits"
category = "collective_timeout"
pattern = '''lakering: rank (?P<rank>\\d+) went away'''
role = "symptom"
rank_from = "capture"
title = { en = "the ring waits for rank {rank}", zh = "环等待 rank {rank}" }
explanation = { en = "The ring is cut.", zh = "环已断开。" }
advice = { en = "Look at that rank.", zh = "请查看该 rank。" }
source = "lakering"
matches = ['''lakering: rank 3 went away''']
"""


@pytest.fixture
def job(place):
    """Four ranks; rank 2 is out of memory, the others complain."""
    for rank in range(4):
        text = OUT_OF_MEMORY if rank == 2 else PEER_GONE
        write(place / "logs" / "worker-0" / f"rank-{rank}.log", text.format(rank=rank, token="Ab1" * 10))
    return place / "logs"


@pytest.fixture
def lake(place):
    """Of lines that only the site's own signatures know."""
    write(place / "mine" / "lake.toml", LAKE)
    for rank in (0, 1, 3):
        own = "2026-01-01 00:00:12 [rank1] lakefs: quota of project llm exceeded (20 TiB)\nstep 13 saved\n"
        other = "2026-01-01 00:00:14 lakering: rank 1 went away\n" * 2
        text = "2026-01-01 00:00:10 step 11\n2026-01-01 00:00:11 step 12\n" + (own if rank == 1 else other)
        write(place / "logs" / "worker-0" / f"rank-{rank}.log", text)
    (place / "logs" / "core.17").write_bytes(b"\x7fELF" + b"\0" * 4000)
    return place / "logs"


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def lasting(text):
    """Without what the clock and the calibration of confidence decide."""
    text = re.sub(r"(in|用时) \d+\.\d+ (s|秒)", r"\1 T \2", text)
    text = re.sub(
        r"· (very likely|likely|perhaps|a guess|很可能|较可能|也许|猜测)$", "· SURE", text, flags=re.MULTILINE
    )
    return re.sub(r"\d+%", "P%", text)


def asked(holdfast, *words):
    code, out, err = holdfast("diagnose", "--json", *words)
    assert (code, err) == (0, "")
    return json.loads(out)


def test_the_first_error_not_the_loudest(holdfast, job):
    found = asked(holdfast, "logs")
    assert (found["category"], found["class"], found["action"]) == ("gpu_oom", "memory", "reduce_memory")
    assert found["culprits"][0]["rank"] == 2
    first = found["first_error"]
    assert (first["file"], first["line"]) == ("worker-0/rank-2.log", 8)
    assert first["text"].startswith("torch.OutOfMemoryError: CUDA out of memory")
    assert first["before"][-1] == "    return forward_call(*args, **kwargs)"
    assert "train.py:88" in first["frame"]
    assert found["scanned"]["files"] == 4
    assert found["scanned"]["bytes"] == sum(path.stat().st_size for path in job.rglob("*.log"))


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("columns", ["80", "120"])
def test_the_report_of_a_folder(holdfast, golden, lake, monkeypatch, language, columns):
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("HOLDFAST_SIGNATURES", "mine")
    code, out, err = holdfast("diagnose", "logs", "--lang", language)
    assert (code, err) == (0, "")
    golden(f"diagnose/lake-{language}-{columns}.txt", lasting(out))


def test_a_healthy_log_is_none(holdfast, place):
    write(place / "out.log", HEALTHY)
    assert asked(holdfast, "out.log")["category"] == "none"


def test_files_and_archives_give_the_same_answer(holdfast, job, place):
    whole = asked(holdfast, "logs")
    (place / "rank-2.log.gz").write_bytes(gzip.compress((job / "worker-0" / "rank-2.log").read_bytes()))
    subprocess.run(["tar", "-cf", "logs.tar", "-C", "logs", "."], check=True)
    for name in ("rank-2.log.gz", "logs.tar", "logs/worker-0/rank-2.log"):
        first = asked(holdfast, name)["first_error"]
        assert (first["text"], first["before"]) == (
            whole["first_error"]["text"],
            whole["first_error"]["before"],
        )


@pytest.mark.parametrize("words", [[], ["-"]])
def test_stdin_is_read_where_it_or_nothing_is_named(job, place, words):
    with (job / "worker-0" / "rank-2.log").open("rb") as file:
        done = subprocess.run(
            [SCRIPT, "diagnose", "--json", *words], stdin=file, capture_output=True, check=True, timeout=200
        )
    found = json.loads(done.stdout)
    assert (found["category"], found["first_error"]["line"]) == ("gpu_oom", 8)


def test_no_secret_is_quoted(holdfast, job):
    for words in (["--json"], ["--all"], []):
        code, out, _ = holdfast("diagnose", "logs", *words)
        assert code == 0
        assert "Ab1Ab1" not in out


def test_the_language_is_the_locales_for_people_and_english_for_machines(holdfast, job, monkeypatch):
    monkeypatch.setenv("LC_ALL", "")
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    assert "处理建议" in holdfast("diagnose", "logs")[1]
    assert "What to do" in holdfast("diagnose", "logs", "--lang", "en")[1]
    title = asked(holdfast, "logs")["title"]
    assert title.isascii()
    assert asked(holdfast, "logs", "--lang", "zh")["title"] != title


def test_colours_are_for_terminals_that_want_them(job, place):
    def on_terminal(**environ):
        reader, writer = pty.openpty()
        with subprocess.Popen(
            [SCRIPT, "diagnose", "logs"], stdout=writer, env={"HOME": str(place), "TERM": "xterm", **environ}
        ) as process:
            os.close(writer)
            text = b""
            try:
                while more := os.read(reader, 65536):
                    text += more
            except OSError:
                pass  # the other end is closed
            os.close(reader)
        assert process.returncode == 0
        return text

    assert b"\x1b[1;31m" in on_terminal()
    assert b"\x1b" not in on_terminal(NO_COLOR="1")
    assert b"\x1b" not in on_terminal(TERM="dumb")


def test_a_terminal_without_chinese_is_no_error(job, place):
    environ = {"HOME": str(place), "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [SCRIPT, "diagnose", "logs", "--lang", "zh"],
        env=environ,
        capture_output=True,
        check=True,
        timeout=200,
    )
    assert done.stderr == b""
    assert b"gpu_oom" in done.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["gone.log"], "'gone.log' cannot be read: No such file or directory"),
        (["logs", "gone"], "'gone' cannot be read"),
        (["logs", "--signatures", "gone"], "gone cannot be read"),
        (["logs", "--lang", "fr"], "'fr' is not one of en, zh"),
    ],
)
def test_a_question_that_cannot_be_understood_is_a_two(holdfast, job, place, words, says):
    code, out, err = holdfast("diagnose", *words)
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1


def test_a_signature_that_cannot_be_used_is_left_out_and_said(holdfast, lake, place):
    good = (place / "mine" / "lake.toml").read_text()
    write(place / "mine" / "a.toml", good.replace("lake-quota", "lake-two").replace("category", "categry"))
    write(
        place / "mine" / "b.toml", good.replace("lake-quota", "lake-three").replace("disk_full", "disk_ful")
    )
    (place / "mine" / "c.toml").write_bytes(b"\xff\xfe")
    write(place / "mine" / "d.toml", "[[signature]")
    code, out, err = holdfast("diagnose", "logs", "--signatures", "mine", "--json")
    assert (code, json.loads(out)["evidence"][0]["signature"]) == (0, "lake-quota")
    for says in (
        "a.toml: signature 'lake-two': there is no key 'categry'; did you mean 'category'?",
        "c.toml cannot be read: not valid UTF-8",
        "d.toml: not valid TOML",
        "'lake-three': the category 'disk_ful' is not in the taxonomy; did you mean 'disk_full'?",
    ):
        assert says in err


def test_nothing_to_read_is_unknown_and_said(holdfast, place):
    (place / "empty").mkdir()
    found = asked(holdfast, "empty")
    assert (found["category"], found["first_error"], found["scanned"]["files"]) == ("unknown", None, 0)
    (place / "empty" / "core").write_bytes(b"\x7fELF" + b"\0" * 9000)
    (place / "empty" / "out.log").write_bytes(b"")
    os.mkfifo(place / "empty" / "pipe")
    found = asked(holdfast, "empty")
    assert found["category"] == "unknown"
    assert {one["name"] for one in found["scanned"]["skipped"]} >= {"core", "pipe"}
    assert "nothing to read" in holdfast("diagnose", "empty")[1]


def bundle(job, number, code):
    """The bundle of an incident in which rank 1 ended so."""
    failure = Failure(exits=(RankExit(rank=1, pid=7, code=code, at_s=5.0),))
    members = [Member("failure.json", msgspec.json.encode(failure)), Member("worker-0/stderr", STOPPED)]
    write_bundle(job.incidents / f"incident-{number:03}.tar.zst", members, 5.0)


STOPPED = b"W0101 00:00:00.000000 7 torch/distributed/elastic/agent/server/api.py:752] Received 15 death signal, shutting down workers\n"


@pytest.mark.parametrize("by", ["name", "folder"])
def test_of_a_job_the_newest_incident_counts_and_not_the_signal_to_its_launcher(holdfast, state, by):
    """Holdfast itself stopped the launcher; which rank was killed before stands in the bundle alone."""
    job = write_job(state, "llama", one_failure_and_on())
    write(job.worker(2, 0) / "stderr", STOPPED.decode())
    bundle(job, 1, 1)
    bundle(job, 2, -9)
    code, out, err = holdfast("diagnose", "--json", "llama" if by == "name" else str(job.path))
    assert (code, json.loads(out)["category"]) == (0, "process_killed")
    assert json.loads(out)["culprits"][0]["rank"] == 1
    assert "the newest of its 2 incidents" in err and err.count("\n") == 1


def test_a_job_without_an_incident_is_its_folder(holdfast, state):
    job = write_job(state, "llama", one_failure_and_on())
    write(job.worker(2, 0) / "stderr", "RuntimeError: CUDA error: out of memory\n")
    assert asked(holdfast, "llama")["first_error"]["file"].endswith("stderr")


def test_why_a_file_was_not_read_is_said_in_chinese_too(holdfast, place):
    write(place / "logs" / "rank-0.log", "step 1\n")
    (place / "logs" / "core").write_bytes(b"\x7fELF" + b"\0" * 9000)
    (place / "logs" / "rank-0.log.idx").write_bytes(b"\0")
    out = holdfast("diagnose", "logs", "--lang", "zh")[1]
    assert "未读取，为可执行程序或 core 转储：core" in out
    assert "Holdfast" not in out
    assert "为 Holdfast 自身文件" in holdfast("diagnose", "logs", "--lang", "zh", "--all")[1]


def test_a_rank_whose_other_log_is_empty_is_not_called_silent(holdfast, job):
    write(job / "again" / "worker-0" / "rank-1.log", "")
    assert not any("is empty" in text for text in asked(holdfast, "logs")["not_found"])


def test_what_was_not_given_is_said(holdfast, job):
    (job / "worker-0" / "rank-1.log").unlink()
    found = asked(holdfast, "logs")
    assert any("rank 1," in text for text in found["not_found"])
    assert any("kernel log" in text for text in found["not_found"])
    write(job / "dmesg.txt", "[    1.000000] Linux version 6.1\n")
    assert not any("kernel log" in text for text in asked(holdfast, "logs")["not_found"])


def test_signatures_of_the_site_are_found_by_flag_name_and_file(holdfast, lake, monkeypatch, place):
    assert asked(holdfast, "logs", "--signatures", "mine")["evidence"][0]["signature"] == "lake-quota"
    (place / "holdfast.toml").write_text('signatures = "mine"\n')
    assert asked(holdfast, "logs")["evidence"][0]["signature"] == "lake-quota"
    assert all(
        one["signature"] != "lake-quota"
        for one in asked(holdfast, "logs", "--signatures", "none")["evidence"]
    )
