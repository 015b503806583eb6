"""What Slurm's commands said, in 22.05.8 and 24.11.5 (samples/), and how it writes lists of nodes."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.parsers import slurm
from holdfast.parsers.slurm import NotSlurm, SlurmNode
from holdfast.slurm_names import BadNodeList, allocation, expanded, folded

SAMPLES = Path(__file__).parent / "samples"


def _bytes(name):
    return (SAMPLES / name).read_bytes()


def _text(name):
    return (SAMPLES / name).read_text()


def _told(nodes):
    return {node.name: (node.state, sorted(node.flags), node.reason) for node in nodes}


NODES_22 = {
    "n1": ("ALLOCATED", ["DRAIN"], "later"),
    "n2": ("ALLOCATED", [], ""),
    "n3": ("IDLE", [], ""),
    "n4": ("IDLE", [], ""),
    "n5": ("IDLE", ["DRAIN"], "bad gpu"),
    "n6": ("DOWN", [], "gone away"),
}
NODES_24 = {
    "n1": ("ALLOCATED", ["DRAIN"], "later"),
    "n2": ("ALLOCATED", [], ""),
    "n3": ("IDLE", ["DRAIN"], "bad gpu"),
}


def test_nodes_are_the_same_in_every_form():
    assert _told(slurm.nodes_of_json(_bytes("sinfo-22.json"))) == NODES_22
    assert _told(slurm.nodes_of_lines(_text("nodes-22.txt"))) == NODES_22
    assert _told(slurm.nodes_of_columns(_text("sinfo-22.txt"))) == NODES_22
    assert _told(slurm.nodes_of_json(_bytes("sinfo-24.json"))) == NODES_24
    assert _told(slurm.nodes_of_lines(_text("nodes-24.txt"))) == NODES_24
    assert _told(slurm.nodes_of_columns(_text("sinfo-24.txt"))) == NODES_24
    asked = slurm.nodes_of_json(_bytes("nodes-24.json"))
    assert _told(asked) == {name: NODES_24[name] for name in ("n1", "n3")}
    assert [(node.address, node.port) for node in asked] == [("10.9.9.1", 7001), ("10.9.9.1", 7003)]


@pytest.mark.parametrize(
    "word, down, aside, answers",
    [
        ("idle", False, False, True),
        ("idle*", False, False, False),
        ("down*", True, True, False),
        ("drained", False, True, True),
        ("draining*", False, True, False),
        ("mixed-", False, False, True),
        ("allocated$", False, False, True),
        ("idle~", True, True, True),
        ("unknown*", False, False, False),
        ("completing", False, False, True),
        ("fail", False, True, True),
        ("allocated+drain", False, True, True),
        ("error", True, True, True),
    ],
)
def test_what_a_state_means(word, down, aside, answers):
    (node,) = slurm.nodes_of_columns(f"n1|{word}|none\n")
    assert (node.is_down, node.is_set_aside, node.answers) == (down, aside, answers)


def test_a_line_of_scontrol_with_flags_and_a_reason_with_blanks():
    line = (
        "NodeName=n9 Arch=x86_64 NodeAddr=10.0.0.9 Port=7009 State=DOWN+DRAIN*+NOT_RESPONDING ThreadsPerCore=1 "
        "Reason=Not responding [slurm@2026-11-22T07:31:41]"
    )
    assert slurm.nodes_of_lines(line) == (
        SlurmNode(
            name="n9",
            state="DOWN",
            flags=frozenset(("DRAIN", "NOT_RESPONDING")),
            reason="Not responding",
            address="10.0.0.9",
            port=7009,
        ),
    )


def test_jobs_are_the_same_in_every_form():
    for found in (
        slurm.jobs_of_json(_bytes("squeue-22.json")),
        slurm.jobs_of_json(_bytes("squeue-24.json")),
        slurm.jobs_of_lines(_text("job-22.txt")),
        slurm.jobs_of_lines(_text("job-24.txt")),
    ):
        (job,) = found
        assert (job.job, job.state, job.nodes, job.batch_host) == ("1", "RUNNING", ("n1", "n2"), "n1")
        assert (job.restarts, job.requeue, job.completing, job.is_over) == (0, True, False, False)


def test_a_requeued_job_and_a_cancelled_one():
    (back,) = slurm.jobs_of_json(_bytes("requeued-24.json"))
    assert (back.state, back.reason, back.restarts, back.nodes) == ("PENDING", "BeginTime", 1, ())
    (over,) = slurm.jobs_of_json(_bytes("cancelled-22.json"))
    assert (over.state, over.is_over, over.exit_code) == ("CANCELLED", True, -9)


def test_jobs_of_the_24_form_that_end_in_several_ways():
    document = (
        b'{"jobs": [{"job_id": 7, "job_state": ["PENDING", "COMPLETING"], "restart_cnt": 2,'
        b' "exit_code": {"status": ["SIGNALED"], "return_code": {"set": false, "infinite": false, "number": 0},'
        b' "signal": {"id": {"set": true, "infinite": false, "number": 15}, "name": "TERM"}},'
        b' "end_time": {"set": true, "infinite": true, "number": 0}}]}'
    )
    (job,) = slurm.jobs_of_json(b"slurm: warning\n" + document)
    assert (job.state, job.completing, job.restarts, job.exit_code, job.end_s) == (
        "PENDING",
        True,
        2,
        -15,
        None,
    )


def test_steps_settings_and_versions():
    steps = slurm.steps_of_columns(_text("steps-24.txt"))
    assert [(step.step, step.name, step.nodes) for step in steps] == [
        ("1.0", "holdfast-agent", ("n1",)),
        ("1.batch", "batch", ("n1",)),
    ]
    settings = slurm.settings_of(_text("config-22.txt"))
    assert slurm.seconds_of(settings["KillWait"], 30) == 5
    assert slurm.seconds_of(settings["SlurmdTimeout"], 0) == 300
    assert slurm.seconds_of("5 min", 0) == 300
    assert slurm.seconds_of("none", 30) == 30
    assert slurm.version_of(settings["SLURM_VERSION"]) == (22, 5)
    assert slurm.version_of("slurm 24.11.5") == (24, 11)
    assert slurm.version_of("") == (0, 0)


@pytest.mark.parametrize("text", [b"", b"slurm_load_jobs error: Unable to contact", b"[]", b'{"meta": {}}'])
def test_what_is_not_slurms_answer_is_said_to_be_none(text):
    with pytest.raises(NotSlurm):
        slurm.jobs_of_json(text)
    with pytest.raises(NotSlurm):
        slurm.nodes_of_json(text)


@given(st.text(alphabet='NodeNameJbId=|+*[]-,0123 \n{}"', max_size=200))
def test_no_text_of_columns_or_lines_raises(text):
    slurm.nodes_of_columns(text)
    slurm.nodes_of_lines(text)
    slurm.jobs_of_lines(text)
    slurm.steps_of_columns(text)
    slurm.settings_of(text)


# Lists of nodes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, names",
    [
        ("n[1-3,7]", "n1 n2 n3 n7"),
        ("gpu-[008-010],login1", "gpu-008 gpu-009 gpu-010 login1"),
        ("rack[1-2]n[01-02]", "rack1n01 rack1n02 rack2n01 rack2n02"),
        ("n[1-2].site,m", "n1.site n2.site m"),
        ("a,a,b", "a b"),
        ("(null)", ""),
        ("", ""),
    ],
)
def test_a_list_is_expanded(text, names):
    assert expanded(text) == tuple(names.split())


@pytest.mark.parametrize("text", ["n[1-3", "n]1[", "n[3-1]", "n[a-b]", "n[1-999999999]", "n[[1]]"])
def test_a_list_that_is_none_is_refused(text):
    with pytest.raises(BadNodeList):
        expanded(text)


@pytest.mark.parametrize(
    "names, text",
    [
        ("n1 n2 n3 m7", "n[1-3],m7"),
        ("n3 n1", "n[1,3]"),
        ("gpu-009 gpu-010 gpu-011", "gpu-009,gpu-[010-011]"),
        ("login", "login"),
    ],
)
def test_a_list_is_folded(names, text):
    assert sorted(expanded(folded(names.split()))) == sorted(names.split())
    assert folded(names.split()) in (text, "gpu-[009-011]")


_NAME = st.from_regex(r"[a-z][a-z-]{0,3}(0{0,2}[0-9]{0,3})?", fullmatch=True)


@given(st.lists(_NAME, max_size=30))
def test_folding_and_expanding_loses_no_node(names):
    assert sorted(expanded(folded(names))) == sorted(set(names))


# The environment --------------------------------------------------------------------------------------------------


def _env(name):
    return dict(line.split("=", 1) for line in _text(name).splitlines())


@pytest.mark.parametrize("name", ["env-22.txt", "env-24.txt"])
def test_the_environment_of_a_batch_script(name):
    found = allocation(_env(name))
    assert found is not None
    assert (found.job, found.nodes, found.node) == ("1", ("n1", "n2"), "n1")
    assert (found.restarts, found.is_batch, found.in_step, found.partition) == (0, True, False, "train")


def test_a_restart_a_step_and_no_job_at_all():
    env = _env("env-22.txt")
    again = allocation(env | {"SLURM_RESTART_COUNT": "2"})
    assert again is not None and again.restarts == 2
    inside = allocation(env | {"SLURM_STEP_ID": "0"})
    assert inside is not None and inside.in_step
    assert allocation({"SLURM_JOB_NODELIST": "n1"}) is None
    assert allocation({}) is None


def test_one_member_of_an_array_is_named_so_that_the_others_are_not_meant():
    env = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1"}
    assert allocation(env).target == "7"
    assert allocation(env | {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3"}).target == "7_3"
