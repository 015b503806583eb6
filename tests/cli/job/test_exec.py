"""`holdfast exec` on a job of several nodes: a real hub, real links, real commands."""

import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from agent.running import is_over, wait_for
from cli.journals import COMMAND, START_S, started, submitted, write_job
from holdfast.journal.store import Store
from holdfast.model.settings import RunSettings

HOLDFAST = Path(sys.executable).with_name("holdfast")


ODD = 'if [ "$NODE" = node-1 ]; then echo "bad disk" >&2; exit 1; fi; echo fine'


def test_equal_answers_are_one_and_the_odd_one_comes_first(holdfast, nodes):
    job = nodes(3)
    code, out, err = holdfast("exec", "llama", "--yes", "--", "sh", "-c", ODD)
    assert (code, err) == (1, "")
    head, _, first, disk, _, rest, fine = out.splitlines()
    assert head == "job llama, attempt 1: 2 answers of 3 workers (0-2)"
    assert first.startswith("worker 1 on node-1: ended with exit code 1 after ")
    assert (disk, fine) == ("    bad disk", "    fine")
    assert rest.startswith("workers 0,2 (2): ended with exit code 0 after ")
    ((kind, text),) = job.notes
    assert kind == "exec"
    assert " on workers 0-2: sh -c 'if [ " in text


def test_workers_nodes_and_spares_are_chosen(holdfast, nodes):
    nodes(3, spares=1)
    words = ["exec", "llama", "--yes", "--json", "--workers", "0,2", "--nodes", "node-3"]
    code, out, _ = holdfast(*words, "--", "sh", "-c", "echo $NODE")
    answer = json.loads(out)
    assert code == 0
    assert [(group["workers"], group["nodes"], group["output"]) for group in answer["groups"]] == [
        ([0], ["node-0"], "node-0\n"),
        ([2], ["node-2"], "node-2\n"),
        ([], ["node-3"], "node-3\n"),
    ]
    answer = json.loads(holdfast(*words, "--loose", "--", "sh", "-c", "echo $NODE")[1])
    assert [group["nodes"] for group in answer["groups"]] == [["node-0", "node-2", "node-3"]]
    assert [one["output"] for one in answer["answers"]] == ["node-0\n", "node-2\n", "node-3\n"]


def test_one_worker_answers_as_if_it_were_here(holdfast, nodes):
    nodes(2)
    code, out, err = holdfast("exec", "llama", "--workers", "1", "--", "sh", "-c", "printf $NODE; exit 7")
    assert (code, out, err) == (7, "node-1", "")


def test_where_nobody_can_be_asked_it_must_be_said(holdfast, nodes):
    job = nodes(2)
    code, out, err = holdfast("exec", "llama", "--", "hostname")
    assert (code, out) == (2, "")
    assert (
        "this would run on 2 nodes of job llama: without a terminal, confirm with --yes, or try --dry-run first"
        in err
    )
    assert job.notes == []


def test_a_dry_run_says_what_would_run_where(holdfast, nodes):
    job = nodes(2)
    code, out, _ = holdfast("exec", "llama", "--dry-run", "--timeout", "2min", "--", "rm", "-rf", "a b")
    assert (code, out.splitlines()) == (
        0,
        [
            "would run on 2 workers (0-1) of job llama, for at most 2min: rm -rf 'a b'",
            "  worker 0 on node-0",
            "  worker 1 on node-1",
        ],
    )
    plan = json.loads(holdfast("exec", "llama", "--dry-run", "--json", "--", "true")[1])
    assert (plan["dry_run"], plan["command"], len(plan["places"])) == (True, ["true"], 2)
    assert job.notes == []


def test_commands_that_never_end_and_print_for_ever(holdfast, nodes):
    """The one that prints has time enough to print too much, on a busy machine too: it is ended as soon as it has."""
    nodes(2)
    words = ["exec", "llama", "--yes", "--json", "--timeout"]
    script = ["--", "sh", "-c", 'if [ "$NODE" = node-0 ]; then yes; else sleep inf; fi']
    (ran_away,) = json.loads(holdfast(*words, "5min", "--workers", "0", *script)[1])["groups"]
    assert (ran_away["outcome"], len(ran_away["output"]), ran_away["workers"]) == ("ran-away", 1 << 20, [0])
    (timed_out,) = json.loads(holdfast(*words, "500ms", "--workers", "1", *script)[1])["groups"]
    assert (timed_out["outcome"], timed_out["output"], timed_out["workers"]) == ("timed-out", "", [1])
    assert holdfast("exec", "llama", "--yes", "--timeout", "200ms", "--", "sleep", "inf")[0] == 124


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--workers", "3-1", "--", "x"], "--workers: '3-1' is not a list of workers such as 0,4-6"),
        (["--nodes", "a,,b", "--", "x"], "--nodes: 'a,,b' is not a list of nodes such as A,B"),
        (["--timeout", "30", "--", "x"], "--timeout: '30' has no unit: write 30s or 30min"),
        (["--timeout", "0s", "--", "x"], "--timeout: '0s' is not between"),
        (["--timeout", "2d", "--", "x"], "--timeout: '2d' is not between"),
        ([], "only one word was given: 'llama': holdfast exec JOB -- COMMAND"),
    ],
)
def test_what_cannot_be_asked(holdfast, words, says):
    code, out, err = holdfast("exec", "llama", *words)
    assert (code, out) == (2, "")
    assert says in err


def test_workers_that_the_job_has_not(holdfast, nodes):
    nodes(2)
    code, _, err = holdfast("exec", "llama", "--workers", "1-3", "--", "true")
    assert (code, err) == (1, "holdfast: job llama has no worker 2-3: its workers are 0-1\n")


def test_a_wrong_secret_is_refused(holdfast, nodes):
    job = nodes(1)
    (job.job.path / "secret").write_text("00" * 32)
    code, _, err = holdfast("exec", "llama", "--", "true")
    assert code == 1
    assert "the controller of job llama at 127.0.0.1:" in err and "refused" in err
    assert job.notes == []


@pytest.mark.parametrize(
    ("text", "says"),
    [("zz", "does not contain the secret of a job"), ("", "does not contain the secret of a job")],
)
def test_a_secret_that_is_none(holdfast, nodes, text, says):
    (nodes(1).job.path / "secret").write_text(text)
    code, _, err = holdfast("exec", "llama", "--", "true")
    assert code == 1 and says in err


def test_a_secret_that_may_not_be_read(holdfast, nodes):
    """Root may read all files: a folder in its place is what nobody can read."""
    path = nodes(1).job.path / "secret"
    path.unlink()
    path.mkdir()
    code, _, err = holdfast("exec", "llama", "--", "true")
    assert code == 1
    assert "cannot be read" in err and "only the user who started the job can query its nodes" in err


def test_a_controller_that_is_gone(holdfast, nodes):
    job = nodes(1)
    (job.job.path / "controller.json").write_text('{"addresses": []}')
    (job.job.path / "secret").unlink()
    code, _, err = holdfast("exec", "llama", "--", "true")
    assert code == 1 and "its controller does not listen" in err


@pytest.fixture
def alone(state):
    """alone(host=...): a running single-machine job without a supervisor."""

    def make(host):
        job = write_job(state, "llama", [submitted(), *started(START_S + 1, 1)[:2]])
        store = Store.open(job.journal_path)
        settings = RunSettings(command=COMMAND, state_dir=str(state.root))
        store.set_meta("job", msgspec.json.encode({"command": COMMAND, "host": host, "settings": settings}))
        store.close()
        return job

    return make


def test_a_job_of_one_machine_that_nobody_supervises(holdfast, alone):
    job = alone(socket.gethostname())
    code, _, err = holdfast("exec", "llama", "--", "true")
    assert (code, err) == (
        1,
        "holdfast: job llama has no supervisor now: reattach with holdfast attach llama\n",
    )
    assert not (job.path / "line-wanted").exists()


def test_a_job_of_another_machine(holdfast, alone):
    alone("gpu-03")
    code, _, err = holdfast("exec", "llama", "--", "true")
    assert (code, err) == (1, "holdfast: job llama runs on gpu-03, and can be queried there only\n")


def test_a_job_that_has_ended_meanwhile(holdfast, nodes):
    nodes(1).now_ended = "succeeded"
    code, _, err = holdfast("exec", "llama", "--", "true")
    assert (code, err) == (
        1,
        "holdfast: job llama has ended (succeeded): no command can be run in it\n",
    )


def test_the_answers_that_came_are_shown_where_somebody_loses_patience(nodes, tmp_path):
    job = nodes(2)
    pids = tmp_path / "pid"
    script = f'echo here; echo $$ > {pids}.$NODE; [ "$NODE" = node-0 ] || sleep inf'
    words = [str(HOLDFAST), "exec", "llama", "--yes", "--timeout", "1h", "--", "sh", "-c", script]
    client = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    path = tmp_path / "pid.node-1"
    wait_for("the command", lambda: path.exists() and path.read_text().strip())
    done = job.nodes[0].calls
    wait_for("the other answer", lambda: (tmp_path / "pid.node-0").exists() and done.is_idle)
    client.send_signal(signal.SIGINT)
    out, _ = client.communicate(timeout=200)
    assert client.returncode == 130
    assert "worker 1 on node-1: was cancelled\n    here" in out
    assert "worker 0 on node-0: ended with exit code 0" in out
    wait_for("the end", lambda: is_over(int(path.read_text())))


def test_a_client_that_is_killed_takes_its_commands_along(nodes, tmp_path):
    nodes(1)
    pid = tmp_path / "pid"
    words = [
        str(HOLDFAST),
        "exec",
        "llama",
        "--timeout",
        "1h",
        "--",
        "sh",
        "-c",
        f"echo $$ > {pid}; sleep inf",
    ]
    client = subprocess.Popen(words)
    wait_for("the command", lambda: pid.exists() and pid.read_text().strip())
    client.kill()
    client.wait()
    wait_for("the end", lambda: is_over(int(pid.read_text())))


@pytest.mark.parametrize(
    ("answer", "code", "ran"), [(b"y\n", 0, True), (b"\n", 1, False), (b"no\n", 1, False)]
)
def test_a_person_is_asked_before_several_workers(nodes, answer, code, ran):
    job = nodes(2)
    master, slave = pty.openpty()
    client = subprocess.Popen(
        [str(HOLDFAST), "exec", "llama", "--", "true"],
        stdin=slave,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    os.close(slave)
    os.write(master, answer)
    _, err = client.communicate(timeout=200)
    os.close(master)
    assert (client.returncode, bool(job.notes)) == (code, ran)
    assert b"would run on 2 workers (0-1) of job llama, for at most 30s: true\n" in err
    assert b"run it? [y/N] " in err


def test_who_is_waited_for_is_shown_to_who_watches(nodes, tmp_path):
    nodes(2)
    master, slave = pty.openpty()
    script = f'[ "$NODE" = node-0 ] || {{ while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; exit 3; }}'
    words = [str(HOLDFAST), "exec", "llama", "--yes", "--timeout", "5min", "--", "sh", "-c", script]
    client = subprocess.Popen(words, stdin=slave, stdout=subprocess.PIPE, stderr=slave)
    os.close(slave)
    shown = b""

    def waits():
        nonlocal shown
        shown += os.read(master, 1 << 16) if select.select([master], [], [], 0.05)[0] else b""
        return b"\r\x1b[K1 of 2 have responded; waiting for 1" in shown

    wait_for("the one that is waited for", waits)
    (tmp_path / "go").touch()
    out, _ = client.communicate(timeout=200)
    shown += os.read(master, 1 << 16)
    os.close(master)
    assert shown.startswith(b"\r\x1b[K") and shown.endswith(b"\r\x1b[K")
    assert b"worker 1 on node-1: ended with exit code 3 after " in out


def test_many_at_once(holdfast, nodes):
    """Several people ask at the same time, and none hears what another was answered."""
    nodes(2)
    found = {}

    def ask(number):
        words = [str(HOLDFAST), "exec", "llama", "--yes", "--json", "--", "echo", str(number)]
        done = subprocess.run(words, capture_output=True, check=False)
        found[number] = json.loads(done.stdout)["groups"]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, groups in found.items():
        assert [group["output"] for group in groups] == [f"{number}\n"]
