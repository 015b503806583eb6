"""What a standby does at its gate: it imports ahead, waits, and runs the script only once it is released."""

import fcntl
import os
import signal
from pathlib import Path

import pytest
from rank_kit import wait_for, waits_for_lock

# The gate


TRAIN = """import os, sys
print(os.environ.get("MASTER_PORT"), os.environ.get("MA_PROC_START_CNT"))
print(sorted(key for key in os.environ if key in ("HOLDFAST_GATE", "HOLDFAST_PRELOAD")))
print([name for name in ("early", "late") if name in sys.modules], os.getcwd() == os.environ["PWD_THEN"])
print("/elsewhere" in sys.path, sys.argv[1:])
"""


def standby(ranks, gate, program=TRAIN, **how):
    ours = {"HOLDFAST_GATE": str(gate.path), "PWD_THEN": os.getcwd(), "MASTER_PORT": "1"}
    return ranks.start(program, **{**ours, **how})


def preload(ranks, *names):
    (ranks.folder / "list").write_text("".join(name + "\n" for name in names))
    return {"HOLDFAST_PRELOAD": str(ranks.folder / "list")}


def finish(process):
    out, err = process.communicate()
    return process.returncode, out.decode().splitlines(), err.decode()


def test_a_standby_waits_and_then_has_the_new_environment(ranks, gate):
    processes = [standby(ranks, gate, rank=rank) for rank in (0, 1)]
    wait_for(lambda: all(waits_for_lock(process) for process in processes))
    assert {"rank-0.ready", "rank-1.ready", "rank-0.shim.json"} <= set(ranks.names())
    gate.open('{"MASTER_PORT": "29501", "MA_PROC_START_CNT": "2"}')
    for process in processes:
        assert finish(process) == (0, ["29501 2", "[]", "[] True", "False []"], "")


def test_a_standby_imports_before_the_gate_opens(ranks, gate):
    ranks.module("early.py", "import os, sys\nos.chdir('/')\nsys.path.append('/elsewhere')\nsys.argv[0]\n")
    ranks.module("ends.py", "raise SystemExit(3)")
    ranks.module("late.py", f"open({str(ranks.folder / 'imported')!r}, 'w').close()")
    process = standby(ranks, gate, **preload(ranks, "env:X", "early", "", "no.such", "ends", "late"))
    wait_for(lambda: waits_for_lock(process))
    assert "imported" in ranks.names()
    gate.open("{}")
    assert finish(process) == (0, ["1 None", "[]", "['early', 'late'] True", "False []"], "")


def test_the_environment_that_came_through_the_gate_is_no_change_of_the_scripts(ranks, gate):
    ranks.module("torch/__init__.py", "")
    process = standby(ranks, gate, "import os; os.environ['OWN'] = '1'; import torch")
    gate.open('{"MASTER_PORT": "29501"}')
    assert finish(process)[0] == 0
    assert (ranks.folder / "imports").read_text() == "env:OWN\ntorch\n"


def test_one_rank_imports_at_a_time_and_an_open_gate_ends_the_waiting(ranks, gate):
    ranks.module("early.py", "")
    turn = os.open(f"{gate.path}.preload", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(turn, fcntl.LOCK_EX)
        process = standby(ranks, gate, **preload(ranks, "early"))
        wait_for(lambda: "rank-0.shim.json" in ranks.names())
        assert "rank-0.ready" not in ranks.names()
        gate.open("{}")
        assert finish(process) == (0, ["1 None", "[]", "[] True", "False []"], "")
    finally:
        os.close(turn)


def test_its_imports_wait_for_as_long_as_their_list_is_held(ranks, gate):
    ranks.module("early.py", "")
    with (ranks.folder / "list").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        process = standby(ranks, gate, HOLDFAST_PRELOAD=held.name)
        wait_for(lambda: waits_for_lock(process))
        assert "rank-0.ready" not in ranks.names()
        held.write("early\n")
    wait_for(lambda: "rank-0.ready" in ranks.names())
    gate.open("{}")
    assert finish(process) == (0, ["1 None", "[]", "['early'] True", "False []"], "")


def test_a_list_that_is_let_go_empty_is_not_waited_for(ranks, gate):
    with (ranks.folder / "list").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        process = standby(ranks, gate, HOLDFAST_PRELOAD=held.name)
        wait_for(lambda: waits_for_lock(process))
        gate.open("{}")
    assert finish(process) == (0, ["1 None", "[]", "[] True", "False []"], "")


def test_nobody_waits_for_a_turn_when_nothing_trains_any_more(ranks, gate):
    ranks.module("early.py", "")
    turn = os.open(f"{gate.path}.preload", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(turn, fcntl.LOCK_EX)
        process = standby(ranks, gate, **preload(ranks, "early"))
        Path(f"{gate.path}.hurry").touch()
        wait_for(lambda: waits_for_lock(process))
        gate.open("{}")
        assert finish(process) == (0, ["1 None", "[]", "['early'] True", "False []"], "")
    finally:
        os.close(turn)


OPENED = "import os\nwhile not os.path.exists('%s.go'): time.sleep(0.01)\n"


def test_a_gate_that_opens_ends_the_importing(ranks, gate):
    ranks.module(
        "early.py", f"import time\nopen({str(ranks.folder / 'half')!r}, 'w').close()\n" + OPENED % gate.path
    )
    process = standby(ranks, gate, **preload(ranks, "early", "late"))
    ranks.module("late.py", "")
    wait_for(lambda: "half" in ranks.names())
    gate.open("{}")
    assert finish(process) == (0, ["1 None", "[]", "['early'] True", "False []"], "")


def test_a_standby_ends_quietly_when_its_keeper_is_gone(ranks, gate):
    process = standby(ranks, gate)
    wait_for(lambda: waits_for_lock(process))
    gate.drop()
    assert finish(process) == (0, [], "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_waiting_standby_can_be_ended(ranks, gate, number):
    process = standby(ranks, gate)
    wait_for(lambda: waits_for_lock(process))
    process.send_signal(number)
    assert finish(process) == (-number, [], "")


def test_interrupts_are_the_scripts_again_after_the_gate(ranks, gate):
    process = standby(
        ranks, gate, "import os, signal\ntry: os.kill(os.getpid(), 2)\nexcept KeyboardInterrupt: print(1)"
    )
    gate.open("{}")
    assert finish(process) == (0, ["1"], "")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"MASTER_PORT": 5}'])
def test_an_odd_message_at_the_gate_does_not_stop_the_script(ranks, gate, text):
    process = standby(ranks, gate)
    gate.open(text)
    assert finish(process) == (0, ["1 None", "[]", "[] True", "False []"], "")


def test_a_standby_without_its_gate_never_runs_the_script(ranks, gate):
    process = standby(ranks, gate, HOLDFAST_GATE=str(ranks.folder / "none"), HOLDFAST_PRELOAD="/none")
    assert finish(process) == (0, [], "")
