"""A real Prometheus is asked what the devices showed: for `holdfast diagnose`, and for a running job."""

import json
import time
from urllib.parse import parse_qs

from holdfast.cli.line.command_line import exit_code
from holdfast.core.metrics.device_evidence import facts
from holdfast.metrics.device_history import device_history
from holdfast.metrics.prometheus import Prometheus
from holdfast.metrics.rule_store import package_rules
from metrics.dcgm import NEW, OLD, VALUES, line
from metrics.servers import Played, free_port, prometheus, text, with_history

BOOK = package_rules()
# Prometheus keeps what is far in the past, and a log has times of its own.
AT_S = int(time.time()) - 6 * 3600
LOG = """\
{stamp} node-2: [rank9]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=118, OpType=ALLREDUCE, \
NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.
"""


def history(names=OLD, hosts=("node-1", "node-2", "node-3"), first="node-3", gpus=2):
    """All GPUs work; those of `first` stop 200 s before AT_S, the others 75 s before it."""
    samples = {}
    for host in hosts:
        for gpu in range(gpus):
            for quantity, usual in VALUES.items():
                for at_s in range(AT_S - 700, AT_S + 70, 15):
                    stopped = at_s >= AT_S - (200 if host == first else 75)
                    value = {"gpu_sm": 0.02, "gpu_tensor": 0.0}.get(quantity, usual) if stopped else usual
                    told = line(quantity, value, host, gpu, names)
                    samples.setdefault(told.partition("{")[0], []).append(f"{told} {at_s}")
    families = [f"# TYPE {name} gauge\n" + "\n".join(lines) for name, lines in samples.items()]
    return "\n".join(families) + "\n# EOF\n"


def served(started, folder, **more):
    with_history(folder, history(**more))
    return started(prometheus(folder, []))


def test_who_stopped_first_under_old_and_new_names(tools, started, tmp_path):
    for names in (OLD, NEW):
        folder = tmp_path / str(names)
        folder.mkdir()
        server = served(started, folder, names=names)
        told = device_history(
            Prometheus(server.url), BOOK, ("node-1.cluster.example", "node-2", "node-3"), AT_S
        )
        assert told.note is None
        says = [one.says.en for one in facts(told.readings, AT_S)]
        assert says[0].startswith("All devices became idle at the same time (tensor activity)")
        assert says[1].startswith("node-3 GPU")
        assert "changed first" in says[1]
        assert any("communication is blocked" in one for one in says)


def test_only_the_nodes_that_were_asked_for(tools, started, tmp_path):
    server = served(started, tmp_path, hosts=("node-1", "node-10", "node-2"), first="")
    told = device_history(Prometheus(server.url), BOOK, ("node-1", "node-2"), AT_S)
    assert {one.node for one in told.readings} == {"node-1", "node-2"}


def test_a_time_of_which_nothing_is_kept(tools, started, tmp_path):
    server = served(started, tmp_path)
    told = device_history(Prometheus(server.url), BOOK, ("node-1",), AT_S - 86_400 * 30)
    assert told.readings == []
    assert "no device metrics of these nodes at that time" in told.note.en


def test_too_many_gpus_and_no_names(started):
    body = json.dumps(
        {"status": "success", "data": {"resultType": "vector", "result": [{"value": [5, "4096"]}]}}
    )
    server = started(Played(text(body, kind="application/json")))
    told = device_history(Prometheus(server.url), BOOK, (), AT_S)
    assert "it has 4096 GPUs and the job's nodes are unknown" in told.note.en


def test_clocks_that_are_apart_are_corrected(started):
    """A Prometheus an hour ahead: what it says happened at its own time happened an hour before."""
    asked = []

    def answer(handler):
        form = parse_qs(handler.rfile.read(int(handler.headers["Content-Length"])).decode())
        asked.append(form)
        if "time()" in form["query"][0]:
            kind, result = "vector", [{"metric": {}, "value": [0, str(time.time() + 3_600.0)]}]
        else:
            start = float(form["start"][0])
            values = [[start + 15.0 * n, "0" if n > 36 else "0.4"] for n in range(45)]
            kind, result = (
                "matrix",
                [{"metric": {"Hostname": f"node-{n}", "gpu": "0"}, "values": values} for n in range(3)],
            )
        body = json.dumps({"status": "success", "data": {"resultType": kind, "result": result}})
        text(body, kind="application/json")(handler)

    now_s = time.time()
    told = device_history(Prometheus(started(Played(answer)).url), BOOK, ("node-0",), now_s)
    assert abs(float(asked[1]["start"][0]) - (now_s + 3_600.0 - 600.0)) < 5.0
    assert "its clock differs by +3600 s" in told.note.en
    assert any("idle at the same time" in one.says.en for one in facts(told.readings, now_s))


def diagnosed(log, url, capsys, *words):
    capsys.readouterr()
    code = exit_code(["diagnose", str(log), "--prometheus", url, "--json", *words])
    return code, json.loads(capsys.readouterr().out)


def test_diagnose_has_them_as_evidence(tools, started, tmp_path, capsys, cache_home, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home))
    log = tmp_path / "train.log"
    log.write_text(LOG.format(stamp=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(AT_S))))
    server = served(started, tmp_path)
    code, told = diagnosed(log, server.url, capsys)
    assert code == 0
    assert told["first_error"]["text"]
    says = [one["says"] for one in told["evidence"] if one["file"] == "prometheus"]
    assert any("idle at the same time" in one for one in says)
    assert any(one.startswith("node-3 GPU") and "changed first" in one for one in says)
    assert exit_code(["diagnose", str(log), "--prometheus", server.url, "--lang", "zh"]) == 0
    assert "最先变化" in capsys.readouterr().out


def test_a_prometheus_that_does_not_answer_is_a_note_and_no_failure(
    tmp_path, capsys, cache_home, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home))
    log = tmp_path / "train.log"
    log.write_text(LOG.format(stamp="2026-01-02T03:04:05Z"))
    code, told = diagnosed(log, f"http://127.0.0.1:{free_port()}", capsys)
    assert code == 0
    assert told["category"] != "none"
    assert any("Device metrics could not be read from Prometheus" in note for note in told["notes"])


def test_without_a_time_nothing_is_asked(tmp_path, capsys, cache_home, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home))
    log = tmp_path / "train.log"
    log.write_text("RuntimeError: CUDA error: an illegal memory access was encountered\n")
    _, told = diagnosed(log, "http://127.0.0.1:1", capsys)
    assert any("the time of the failure is unknown" in note for note in told["notes"])


def test_a_url_with_a_password_is_refused(tmp_path, capsys):
    log = tmp_path / "train.log"
    log.write_text("x\n")
    assert exit_code(["diagnose", str(log), "--prometheus", "http://me:secret@prometheus:9090"]) == 2
    assert "http://HOST:PORT" in capsys.readouterr().err
