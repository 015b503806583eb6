"""Commands on a job from outside the cluster, through the API server: by exec in the pod of its controller."""

import json

import pytest

from holdfast.engines.kubernetes.connection import RequestFailed, connect
from holdfast.engines.kubernetes.exec_channel import STDERR, STDOUT, ended_with, open_exec
from holdfast.supervise.kubernetes.remote import words_there
from kubernetes.server import Server
from many.whole_job import LONG_S
from run.place import wait_for

pytestmark = pytest.mark.timeout(280)


@pytest.fixture
def pod(tmp_path):
    """A pod that runs, its server, and a connection to it."""
    server = Server(tmp_path / "cluster", nodes=1)
    container = {"name": "c", "image": "i", "command": ["sleep", "1000"]}
    spec = {"restartPolicy": "Never", "containers": [container]}
    server.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
    server.wait_for(lambda: server.items("pods")[0]["status"]["phase"] == "Running")
    connection = connect({"KUBECONFIG": str(server.kubeconfig)})
    yield server, connection
    connection.close()
    server.close()


def all_of(channel):
    pieces = []
    while (piece := channel.receive()) is not None:
        pieces.append(piece)
    channel.close()
    return {one: b"".join(p.data for p in pieces if p.channel == one) for one in (STDOUT, STDERR)}


def test_output_input_and_exit_code_come_through_the_api_server(pod):
    _, connection = pod
    script = "read word; echo got $word; echo oops >&2; cat; exit 7"
    channel = open_exec(connection, "default", "p", "c", ["sh", "-c", script])
    channel.write(b"hello\nrest")
    channel.end_of_input()
    assert all_of(channel) == {STDOUT: b"got hello\nrest", STDERR: b"oops\n"}
    assert (channel.code, channel.why) == (7, "")


def test_large_output_arrives_whole(pod):
    _, connection = pod
    channel = open_exec(connection, "default", "p", "c", ["sh", "-c", "seq 1 200000"], stdin=False)
    assert all_of(channel)[STDOUT].split() == [str(number).encode() for number in range(1, 200001)]
    assert channel.code == 0


def test_a_terminal_has_the_size_of_ours(pod):
    _, connection = pod
    channel = open_exec(connection, "default", "p", "c", ["sh", "-c", "read x; stty size"], tty=True)
    channel.resize(33, 77)
    channel.write(b"\n")
    assert b"33 77" in all_of(channel)[STDOUT]


def test_a_refusal_says_why(pod):
    server, connection = pod
    with pytest.raises(RequestFailed) as caught:
        open_exec(connection, "default", "none", "c", ["true"])
    assert caught.value.code == 404
    server.control("deny", denied=[["get", "pods/exec"]])
    with pytest.raises(RequestFailed) as caught:
        open_exec(connection, "default", "p", "c", ["true"])
    assert caught.value.is_forbidden


def test_a_connection_that_is_cut_is_no_success(pod):
    server, connection = pod
    channel = open_exec(connection, "default", "p", "c", ["sh", "-c", "echo begun; sleep 100"])
    assert channel.receive().data == b"begun\n"
    server.control("drop")
    assert channel.receive() is None
    channel.close()
    assert channel.code != 0 and "lost" in channel.why


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"status": "Success"}', 0),
        (b'{"status":"Failure","details":{"causes":[{"reason":"ExitCode","message":"42"}]}}', 42),
        (b'{"status":"Failure","message":"no such file"}', 1),
        (b"[1]x", 1),
    ],
)
def test_the_exit_code_is_read_from_the_status(body, code):
    assert ended_with(body)[0] == code


def test_the_state_folder_of_this_machine_is_not_passed():
    words = ["exec", "--state-dir", "/x", "t", "--state-dir=/y", "--", "ls", "--state-dir", "z"]
    assert words_there(words) == ["exec", "t", "--", "ls", "--state-dir", "z"]


def test_status_log_logs_exec_and_nodes_of_a_job_by_name(job):
    run = job.submit_and_train(workers=2, spares=0)

    def ends(*words, code=0):
        one = job.start(*words)
        assert one.code(LONG_S) == code, job.said()
        return one

    found = json.loads(ends("status", "t", "--json").out)
    assert (found["summary"]["job"], found["state"]) == ("t", "training")
    assert "attempt 1 runs on" in ends("log", "t").out
    run.prints("step 1", LONG_S)  # not asked before: each question starts two Pythons
    wait_for("output", lambda: "step 1" in ends("logs", "t").out, LONG_S)
    assert ends("exec", "t", "--workers", "1", "--", "sh", "-c", "echo here $RANK; exit 3", code=3).out
    known = json.loads(ends("nodes", "list", "--all", "--job", "t", "--json").out)
    assert {one["node"] for one in known["nodes"]} >= set(job.placed())
    (job.path / "elsewhere").mkdir()
    other = job.start("status", "t", "--state-dir", job.path / "elsewhere")  # by the kubeconfig alone
    assert other.code(LONG_S) == 0 and "phase" in other.out
    missing = job.start("status", "no-such-job")
    assert missing.code(LONG_S) == 1 and "there is no job" in missing.err
    job.ends_with_success(run)
