"""Folders and logs that mislead: several jobs, clocks apart, ends cut off, quoted errors, other languages."""

import pytest

from holdfast.core.diagnosis.diagnose import diagnose
from holdfast.observe.search.code_store import package_tables
from holdfast.observe.search.scan import search
from known import KNOWN, PACKAGE

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacity of 79.1 GiB of which 1.2 GiB is free. Including non-PyTorch memory, this process has 77.9 GiB memory in use."
DONE = "Training finished after {} steps\n"


def steps(count, minute=1, start=0):
    return "".join(
        f"2031-03-04 08:{minute + at // 60:02d}:{at % 60:02d} step {start + at}/900 loss {3 - at / 1000:.4f}\n"
        for at in range(count)
    )


def raised(error, head=""):
    lines = (
        "Traceback (most recent call last):",
        '  File "/app/fit.py", line 80, in <module>',
        "    main()",
        error,
    )
    return "".join(f"{head}{line}\n" for line in lines)


def kernel(host, minute, text):
    return f"Mar  4 08:{minute:02d}:01 {host} kernel: [ {8000 + minute}.1] {text}\n"


@pytest.fixture
def of_folder(tmp_path, cache_home):
    def of(logs):
        for name, text in logs.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return diagnose(search([tmp_path], PACKAGE, cache=cache_home / "holdfast"), KNOWN, package_tables())

    return of


def test_of_two_jobs_in_a_folder_the_one_that_failed_is_reported(of_folder):
    found = of_folder(
        {"job-11/out.log": steps(60) + DONE.format(60), "job-12/out.log": steps(30, 20) + raised(OOM)}
    )
    assert (found.category, found.first_error.file) == ("gpu_oom", "job-12/out.log")


def test_two_hosts_with_one_name_keep_their_own_faults(of_folder):
    xid = "NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    found = of_folder(
        {
            "a/dmesg.log": kernel("localhost", 1, "eth0: link becomes ready"),
            "b/dmesg.log": kernel("localhost", 5, xid),
            "a/rank0.log": steps(30, 4),
            "b/rank8.log": steps(30, 4),
        }
    )
    assert (found.category, found.first_error.file) == ("xid_79", "b/dmesg.log")
    assert [one.device for one in found.culprits] == ["0000:9b:00"]


def test_a_kernel_whose_clock_is_of_another_time_zone_still_tells_who_killed_the_rank(of_folder):
    kill = (
        "Out of memory: Killed process 4102 (python) total-vm:99999999kB, anon-rss:88888888kB, file-rss:0kB"
    )
    end = "E0304 08:05:03.3 600 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -9) local_rank: 1 (pid: 4102) of binary: /opt/python\n"
    found = of_folder(
        {"dmesg.log": kernel("n1", 5, kill).replace("08:05", "10:05"), "job.log": steps(60, 4) + end}
    )
    assert (found.category, found.first_error.file) == ("host_oom", "dmesg.log")


def test_a_log_that_is_cut_at_both_ends(of_folder):
    whole = steps(400) + raised(OOM, "[rank3]: ") + "[rank3]: more\n" * 3
    found = of_folder({"x.log": whole[700:-8]})
    assert (found.category, [one.rank for one in found.culprits]) == ("gpu_oom", [3])


REPORT = """=== nightly triage report ===
Incident 4411, job 900 of yesterday: root cause "torch.OutOfMemoryError: CUDA out of memory" on rank 3
> RuntimeError: NCCL error: unhandled system error
> Xid 79 was seen on gpu-12 last week
Summary: 1 incident, resolved
"""


def test_the_errors_that_another_tool_quotes_are_not_those_of_this_job(of_folder):
    well = steps(100) + DONE.format(100)
    assert of_folder({"report.txt": REPORT, "out.log": well}).category == "none"
    assert of_folder({"report.txt": "", "out.log": REPORT + well}).category == "none"
    missing = raised("FileNotFoundError: [Errno 2] No such file or directory: '/data/shard-0007.bin'")
    found = of_folder({"report.txt": REPORT, "out.log": steps(100) + missing})
    assert (found.category, "shard-0007" in found.first_error.text) == ("data_error", True)


def test_an_earlier_error_in_a_log_of_json_is_none_of_now(of_folder):
    told = '{"level":"info","msg":"alert resolved","previous_error":"CUDA error: uncorrectable ECC error encountered"}\n'
    assert of_folder({"out.log": steps(60) + told + steps(60, 3, 60) + DONE.format(120)}).category == "none"


LANGUAGES = {
    "Chinese file": (
        raised("FileNotFoundError: [Errno 2] 没有那个文件或目录: '/data/shard-7.bin'"),
        "data_error",
    ),
    "Chinese disk": (raised("OSError: [Errno 28] 设备上没有空间: '/ckpt/model.pt'"), "disk_full"),
    "Chinese rights": (raised("PermissionError: [Errno 13] 权限不够: '/ckpt/model.pt'"), "permission_error"),
    "Chinese kill": ("run.sh: 行 12: 4411 已杀死               python fit.py\n", "host_oom"),
    "Chinese crash": ("run.sh：行 12：  4411 段错误               （核心已转储）python fit.py\n", "segfault"),
    "Japanese file": (
        raised(
            "FileNotFoundError: [Errno 2] そのようなファイルやディレクトリはありません: '/data/shard-7.bin'"
        ),
        "data_error",
    ),
    "Japanese disk": (raised("OSError: [Errno 28] デバイスに空き領域がありません"), "disk_full"),
    "Japanese kill": ("run.sh: 12 行:  4411 強制終了            python fit.py\n", "host_oom"),
    "German file": (
        raised("FileNotFoundError: [Errno 2] Datei oder Verzeichnis nicht gefunden: '/data/shard-7.bin'"),
        "data_error",
    ),
    "German disk": (
        raised("OSError: [Errno 28] Auf dem Gerät ist kein Speicherplatz mehr verfügbar"),
        "disk_full",
    ),
    "German kill": ("run.sh: Zeile 12:  4411 Getötet                python fit.py\n", "host_oom"),
    "German crash": (
        "run.sh: Zeile 12:  4411 Speicherzugriffsfehler  (Speicherabzug geschrieben) python fit.py\n",
        "segfault",
    ),
    "French disk": (raised("OSError: [Errno 28] Aucun espace disponible sur le périphérique"), "disk_full"),
}


@pytest.mark.parametrize("name", LANGUAGES)
def test_messages_of_a_system_in_another_language(of_folder, name):
    text, category = LANGUAGES[name]
    assert of_folder({"x.log": steps(20) + text}).category == category


def test_the_lines_of_holdfast_itself_are_no_fault(of_folder):
    own = (
        "holdfast: incident 1: rank 1 was killed by SIGKILL; verdict process_killed (60 %), action restart\n"
        "holdfast: rung reschedule-unconditional: attempt 2 starts\nholdfast: incident 1 is over: training again at step 40\n"
    )
    assert of_folder({"holdfast.log": own + steps(60, 2, 40) + DONE.format(100)}).category == "none"
