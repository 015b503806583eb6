"""Which processes look like ranks where nothing names one."""

from holdfast.agent.reaper.guesses import Process, candidates, choose

PYTHON = ("python", "train.py")


def process(pid, parent=1, words=PYTHON, **more):
    return Process(pid, parent, pid, words, **{"age_s": 10.0} | more)


def ranks(*tree):
    return {one.pid: one.rank for one in choose(tree)}


def test_one_process_is_rank_0():
    assert ranks(process(10)) == {10: 0}


def test_a_process_below_shells_and_tools_is_rank_0():
    shell = process(10, starter=True)
    assert ranks(shell, process(11, 10)) == {11: 0}


def test_loader_workers_are_no_ranks():
    workers = [process(11 + n, 10, forked=True, cpu_ticks=9000) for n in range(4)]
    assert ranks(process(10, cpu_ticks=100), *workers) == {10: 0}


def test_who_does_the_work_is_rank_0():
    """A notebook is run by a kernel that another program has started."""
    assert ranks(process(10, cpu_ticks=150), process(11, 10, cpu_ticks=1000)) == {11: 0}
    assert ranks(process(10, cpu_ticks=900), process(11, 10, cpu_ticks=1000)) == {10: 0}


def test_those_that_hold_devices_are_ranks():
    tree = [process(10), process(11, 10, device=True), process(12, 10, device=True), process(13, 10)]
    assert ranks(*tree) == {11: 0, 12: 1}
    assert ranks(*tree, process(14, 12, device=True, forked=True)) == {11: 0, 12: 1}


def test_those_that_meet_at_a_port_are_ranks():
    tree = [process(10), process(11, 10, ports=(29500,)), process(12, 10, ports=(29500, 8080))]
    assert ranks(*tree) == {11: 0, 12: 1}


def test_a_tool_that_talks_to_the_program_it_started_is_no_rank():
    notebook = process(10, words=("python", "/usr/bin/jupyter-nbconvert", "a.ipynb"), ports=(9000,))
    kernel = process(11, 10, ("python", "-m", "ipykernel_launcher", "-f", "x.json"), ports=(9000, 9001))
    assert ranks(notebook, kernel) == {11: 0}
    first = process(10, ports=(29500,))
    assert ranks(first, process(11, 10, ("/usr/bin/python", "train.py"), ports=(29500,))) == {10: 0, 11: 1}
    spawned = ("python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()")
    assert ranks(first, process(11, 10, spawned, ports=(29500,))) == {10: 0, 11: 1}


def test_equal_children_of_a_shell_are_ranks_by_their_option():
    shell = process(10, words=("bash",), starter=True)
    tree = [process(11 + n, 10, ("python", "train.py", "--rank", str(1 - n))) for n in range(2)]
    assert ranks(shell, *tree) == {11: 1, 12: 0}
    tree = [process(11 + n, 10, ("python", "train.py", f"--local-rank={n}")) for n in range(2)]
    assert ranks(shell, *tree) == {11: 0, 12: 1}


def test_a_process_that_has_ended_meanwhile_has_no_command_line():
    assert ranks(process(10, words=())) == {10: 0}


def test_different_programs_side_by_side_are_not_distinguished():
    shell = process(10, words=("bash",), starter=True)
    assert ranks(shell, process(11, 10), process(12, 10, ("python", "serve.py"))) == {}


def test_nothing_is_guessed_of_what_has_just_begun_or_of_launchers():
    assert ranks(process(10, age_s=1.0)) == {}
    assert ranks(process(10, starter=True)) == {}
    assert ranks() == {}


def test_what_has_just_begun_is_a_candidate():
    young = [process(10, age_s=1.0), process(11, 10, age_s=0.5, device=True)]
    assert {one.pid: one.rank for one in candidates(young)} == {11: 0}
    assert candidates([process(10, starter=True)]) == []
