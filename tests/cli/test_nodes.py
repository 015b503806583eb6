"""holdfast nodes: what it shows of a fleet, isolation and release, both languages, and a book that cannot be used."""

import json
import re
import time

import msgspec
import pytest

from cli.journals import submitted, write_job
from holdfast.cli.checking.notes import note_checks
from holdfast.journal.nodes.book import NodeBook
from holdfast.journal.nodes.file import FILE
from holdfast.journal.store import Store
from holdfast.model.checks import Finding, NodeChecks, Outcome
from holdfast.model.nodes.book import (
    AttemptRan,
    CheckLine,
    DeviceLine,
    IncidentLine,
    Isolation,
    LostLine,
    RepairLine,
    WarningLine,
)
from holdfast.model.settings import RunSettings

HOUR_S = 3600.0


@pytest.fixture
def book(state):
    return NodeBook(state.root / "fleet")


@pytest.fixture
def fleet(book):
    """64 nodes for 20 days; gpu-07 has failed six times, gpu-03 shares a failure, gpu-09 was lost."""
    now_s = time.time()
    nodes = tuple(f"gpu-{number:02}" for number in range(64))
    start_s = now_s - 20 * 86_400
    lines = [
        (
            f"i{number}",
            IncidentLine(
                at_s=start_s + number * 50 * HOUR_S,
                node="gpu-07",
                device="0000:5d:00.0",
                serial="1650123",
                run="llama@1",
                attempt=1,
                incident=number,
                category="xid_79",
                title="GPU 0000:5d:00.0 has fallen off the bus",
                weighs="node",
                confidence=0.97,
            ),
        )
        for number in range(6)
    ]
    shared = IncidentLine(
        at_s=start_s + 7 * HOUR_S,
        run="llama@1",
        attempt=1,
        incident=50,
        category="unknown",
        title="nothing explains it",
        weighs="shared",
        suspects=("gpu-03",),
    )
    lost = LostLine(at_s=now_s - 7300, node="gpu-09", reason="the scheduler says that it is down")
    warned = WarningLine(
        at_s=now_s - 90_000, node="gpu-03", warning="link-flap", text="mlx5_2 went down 3 times"
    )
    passed = CheckLine(at_s=now_s - 60, node="gpu-00", status="pass", text="boot check passed")
    ran = AttemptRan(run="llama@1", attempt=1, nodes=nodes, started_s=start_s, hours=480.0)
    book.note([*lines, ("s", shared), ("l", lost), ("w", warned), ("c", passed)], [ran])
    return book


def test_a_check_that_a_run_wrote_down_is_named_once(book, holdfast):
    text = "host-fans: the fan stands still"
    told = CheckLine(at_s=time.time(), node="gpu-00", status="warn", text=text, check="host-fans")
    book.note([("c", told)], [])
    assert holdfast("nodes", "show", "gpu-00")[1].endswith("host-fans warn: the fan stands still\n")


def test_the_list_shows_what_there_is_to_say_and_counts_the_rest(fleet, holdfast):
    fleet.isolate(Isolation(node="gpu-20", since_s=time.time() - 300, reason="smells of smoke", by="kim"))
    code, out, err = holdfast("nodes")
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert lines[0].startswith("nodes: 64, isolated: 1, likely lemons: 1, in the last 28 days")
    assert re.match(r"NODE +STATE +LEMON +FAILURES +HOURS +LAST", lines[1])
    assert re.match(r"gpu-20 +isolated +<1% +480  5min ago: isolated: smells of smoke \(kim\)", lines[2])
    assert re.match(r"gpu-07 +>99% +6 +480  \d+d ago: xid_79: GPU 0000:5d:00.0 has fallen off", lines[3])
    assert any(line.startswith("gpu-09") and "2h ago: lost: the scheduler" in line for line in lines)
    assert lines[-1] == "and 60 more without findings; --all shows them"
    assert len(holdfast("nodes", "list", "--all")[1].splitlines()) == 66


def test_the_list_in_chinese_is_aligned(fleet, holdfast):
    code, out, _ = holdfast("nodes", "list", "--lang", "zh")
    assert code == 0
    assert out.splitlines()[0].startswith("最近 28 天：64 个节点")
    assert "劣质概率" in out.splitlines()[1]


def test_the_list_as_json(fleet, holdfast):
    document = json.loads(holdfast("nodes", "list", "--json")[1])
    first = document["nodes"][0]
    assert first["node"] == "gpu-07"
    assert first["named"]
    assert first["attributed"] == 6
    assert len(document["nodes"]) == 64


def test_show_tells_the_score_its_terms_and_the_history(fleet, holdfast):
    code, out, _ = holdfast("nodes", "show", "gpu-07")
    assert code == 0
    assert re.search(r"lemon +>99% \(20 days at work, 6 failures its own", out)
    assert re.search(r"odds >?[\d,]+:1 = 1:\d+ any node × \S+ days", out)
    assert out.count("xid_79: GPU 0000:5d:00.0 has fallen off the bus (llama)") == 6
    document = json.loads(holdfast("nodes", "show", "gpu-07", "--json")[1])
    assert document["lemon"]["named"]
    assert {term["name"] for term in document["lemon"]["terms"]} >= {
        "prior",
        "exposure",
        "attributed",
        "shared",
    }
    assert document["fleet"]["nodes"] == 64


def test_show_of_a_device_by_its_serial_number(fleet, holdfast):
    code, out, _ = holdfast("nodes", "show", "1650123")
    assert code == 0
    assert out.count("xid_79") == 6


def test_a_device_that_moves_takes_its_history_along(fleet, holdfast):
    now_s = time.time()
    for node, device, at_s in (
        ("gpu-07", "0000:5d:00.0", now_s - 90),
        ("gpu-12", "0000:1a:00.0", now_s - 60),
    ):
        line = DeviceLine(
            at_s=at_s, node=node, device=device, serial="1650123", model="H100", since_s=at_s, run="x@1"
        )
        fleet.note([(f"device-in/1650123/{node}", line)])
    out = holdfast("nodes", "show", "gpu-12")[1]
    assert re.search(r"^devices +0000:1a:00.0  1650123  H100  since ", out, re.M)
    assert out.count("(gpu-07) xid_79") == 6
    assert "devices" not in holdfast("nodes", "show", "gpu-07")[1]
    assert re.search(
        r"^devices +gpu-12 0000:1a:00.0  H100  since ", holdfast("nodes", "show", "1650123")[1], re.M
    )
    document = json.loads(holdfast("nodes", "show", "gpu-12", "--json")[1])
    assert [one["serial"] for one in document["devices"]] == ["1650123"]


def test_a_repair_names_the_device_that_was_repaired(fleet, holdfast):
    fleet.isolate(Isolation(node="gpu-07", since_s=time.time() - 10, reason="odd", by="kim"))
    assert holdfast("nodes", "release", "gpu-07", "--reason", "x", "--device", "1650123")[0] == 2
    holdfast("nodes", "release", "gpu-07", "--repaired", "reseated", "--device", "1650123")
    assert "repaired: reseated" in holdfast("nodes", "show", "1650123")[1]


def test_show_names_failures_that_the_node_may_have_caused(fleet, holdfast):
    assert "unknown: nothing explains it (llama; shared)" in holdfast("nodes", "show", "gpu-03")[1]
    assert "nothing explains it" not in holdfast("nodes", "show", "gpu-04")[1]


def test_show_of_a_node_that_nobody_knows_is_refused(fleet, holdfast):
    code, out, err = holdfast("nodes", "show", "gpu-99")
    assert (code, out) == (2, "")
    assert "no node or device gpu-99" in err


def test_lemons_tells_the_fleets_numbers_and_why(fleet, holdfast):
    code, out, _ = holdfast("nodes", "lemons")
    lines = out.splitlines()
    assert code == 0
    assert lines[0] == "Fleet: 64 nodes, 1,280 node-days in use, 7 failures, 6 attributed to nodes."
    assert lines[1].startswith("Estimated: a healthy node fails ")
    assert "based mostly on published figures of other fleets" in lines[2]
    assert "gpu-07  LEMON, probably" in lines
    document = json.loads(holdfast("nodes", "lemons", "--json")[1])
    assert document["fleet"]["attributed"] == 6
    assert document["nodes"][0]["node"] == "gpu-07"


def test_a_fleet_without_lemons_says_so(book, holdfast):
    book.note([], [AttemptRan(run="r", attempt=1, nodes=("a", "b"), started_s=time.time() - 9000, hours=2.0)])
    assert "no node is likely a lemon" in holdfast("nodes", "lemons")[1]


def test_an_empty_fleet_is_no_error_and_no_folder_is_made(state, holdfast):
    code, out, err = holdfast("nodes")
    assert (code, err) == (0, "")
    assert "no node is recorded yet" in out
    assert not (state.root / "fleet").exists()
    assert holdfast("nodes", "lemons")[0] == 0


def test_isolate_and_release_with_a_reason(fleet, holdfast):
    code, out, _ = holdfast("nodes", "isolate", "gpu-07", "--reason", "fell off the bus 6 times")
    assert code == 0
    assert "gpu-07 is isolated" in out
    assert fleet.isolated()["gpu-07"].reason == "fell off the bus 6 times"
    code, out, _ = holdfast("nodes", "isolate", "gpu-07", "--reason", "again")
    assert code == 0
    assert "is already isolated" in out and "fell off the bus" in out
    assert holdfast("nodes", "release", "gpu-07", "--reason", "reseated")[0] == 0
    assert fleet.isolated() == {}
    history = holdfast("nodes", "show", "gpu-07")[1]
    assert "released: reseated" in history


def test_isolate_needs_a_reason(fleet, holdfast):
    assert holdfast("nodes", "isolate", "gpu-07")[0] == 2
    assert holdfast("nodes", "isolate", "gpu-07", "--reason", "  ")[0] == 2
    assert holdfast("nodes", "isolate", "gpu 07", "--reason", "x")[0] == 2
    assert fleet.isolated() == {}


def test_a_node_that_no_run_has_seen_can_be_isolated(state, holdfast):
    assert holdfast("nodes", "isolate", "gpu-99", "--reason", "in for repair")[0] == 0
    assert "gpu-99" in NodeBook(state.root / "fleet").isolated()
    assert "gpu-99" in holdfast("nodes")[1]


def test_release_without_a_reason_needs_a_check_passed_since(fleet, holdfast):
    fleet.isolate(Isolation(node="gpu-00", since_s=time.time() - 10, reason="odd", by="kim"))
    code, _, err = holdfast("nodes", "release", "gpu-00")
    assert code == 2
    assert "isolated for odd" in err and "--reason" in err
    passed = CheckLine(at_s=time.time(), node="gpu-00", status="pass", text="boot check passed")
    fleet.note([("c2", passed)])
    code, out, _ = holdfast("nodes", "release", "gpu-00")
    assert code == 0
    assert "it has passed its check" in out


def test_a_check_that_failed_since_releases_nothing(fleet, holdfast):
    fleet.isolate(Isolation(node="gpu-00", since_s=time.time() - 10, reason="odd", by="kim"))
    passed = CheckLine(at_s=time.time() - 5, node="gpu-00", status="pass", text="boot check passed")
    failed = CheckLine(at_s=time.time() - 2, node="gpu-00", status="fail", text="gone", check="gpu-presence")
    fleet.note([("c2", passed), ("c3", failed)])
    assert holdfast("nodes", "release", "gpu-00")[0] == 2
    assert "gpu-00" in fleet.isolated()


def test_a_repair_wipes_what_was_held_against_the_node(fleet, holdfast):
    fleet.isolate(Isolation(node="gpu-07", since_s=time.time(), reason="lemon", by="kim"))
    code, out, _ = holdfast("nodes", "release", "gpu-07", "--repaired", "new GPU board")
    assert code == 0
    assert "new GPU board" in out
    assert [type(line) for line in fleet.lines("gpu-07", kinds=("repair",))] == [RepairLine]
    assert "no node is likely a lemon" in holdfast("nodes", "lemons")[1]


def test_release_of_a_node_that_is_not_isolated_is_refused(fleet, holdfast):
    code, _, err = holdfast("nodes", "release", "gpu-07", "--reason", "x")
    assert code == 2
    assert "not isolated" in err


def test_the_fleet_folder_is_that_of_the_flag_then_of_the_environment(fleet, holdfast, place, monkeypatch):
    NodeBook(place / "other").isolate(Isolation(node="z", since_s=1.0, reason="r", by="b"))
    assert "z " in holdfast("nodes", "list", "--fleet-dir", str(place / "other"))[1]
    monkeypatch.setenv("HOLDFAST_FLEET_DIR", str(place / "other"))
    assert "gpu-07" not in holdfast("nodes")[1]


def test_a_book_that_cannot_be_used_is_said_with_exit_code_1(book, holdfast, state):
    (state.root / "fleet").mkdir(parents=True)
    (state.root / "fleet" / FILE).mkdir()
    code, out, err = holdfast("nodes", "list")
    assert (code, out) == (1, "")
    assert "node book" in err
    assert holdfast("nodes", "isolate", "a", "--reason", "x")[0] == 1


def test_a_damaged_book_is_set_aside_when_it_is_written(fleet, holdfast):
    fleet.isolate(Isolation(node="gpu-20", since_s=5.0, reason="smoke", by="kim"))
    fleet.close()
    fleet.path.write_bytes(b"x" * 9000)
    for ending in ("-wal", "-shm"):
        fleet.path.with_name(FILE + ending).unlink(missing_ok=True)
    assert holdfast("nodes")[0] == 1
    code, _, err = holdfast("nodes", "isolate", "gpu-21", "--reason", "x")
    assert code == 0
    assert "renamed to" in err
    assert set(NodeBook(fleet.folder).isolated()) == {"gpu-20", "gpu-21"}


def _checked(node, status):
    finding = Finding(status=status, why="the fan stands still" if status == "fail" else "")
    outcome = Outcome(check="host-fans", area="host", status=status, findings=(finding,))
    return (NodeChecks(node=node, outcomes=(outcome,)),)


def test_a_passed_check_gives_a_node_back_and_a_picked_one_does_not(book, holdfast):
    book.isolate(Isolation(node="gpu-05", since_s=time.time() - 10, reason="odd", by="kim"))
    note_checks(book.folder, _checked("gpu-05", "pass"), time.time(), whole=False)
    note_checks(book.folder, _checked("gpu-05", "skip"), time.time(), whole=True)
    assert holdfast("nodes", "release", "gpu-05")[0] == 2
    note_checks(book.folder, _checked("gpu-05", "fail"), time.time() - 5, whole=False)
    assert holdfast("nodes", "release", "gpu-05")[0] == 2
    note_checks(book.folder, _checked("gpu-05", "pass"), time.time(), whole=True)
    assert holdfast("nodes", "release", "gpu-05")[0] == 0
    history = holdfast("nodes", "show", "gpu-05")[1]
    assert "host-fans fail: the fan stands still" in history
    assert "released: it has passed its check: 1 check passed" in history


def test_the_check_command_finds_the_book(book, holdfast):
    book.isolate(Isolation(node="z", since_s=1.0, reason="odd", by="kim"))
    assert holdfast("check", "--only", "host-clock")[0] == 0
    assert book.lines(kinds=("check",)) == []


def test_a_check_begins_no_book(state, holdfast):
    holdfast("check", "--only", "host-clock")
    assert not (state.root / "fleet").exists()


def _with_settings(state, **settings):
    job = write_job(state, "llama", [submitted(1)])
    store = Store.open(job.journal_path)
    facts = json.loads(store.meta("job"))
    settings = RunSettings(command=("train",), state_dir=str(state.root), **settings)
    store.set_meta("job", json.dumps({**facts, "settings": msgspec.to_builtins(settings)}).encode())
    store.close()


def test_a_jobs_name_stands_for_its_node_book(state, holdfast, place):
    _with_settings(state, fleet_dir=str(place / "shared"))
    NodeBook(place / "shared").isolate(Isolation(node="gpu-1", since_s=time.time(), reason="fan", by="ops"))
    for words in (("nodes", "--job", "llama"), ("nodes", "list", "--job", "llama")):
        code, out, _ = holdfast(*words)
        assert code == 0 and "gpu-1" in out
    assert "gpu-1" not in holdfast("nodes", "list")[1]
    assert holdfast("nodes", "release", "gpu-1", "--job", "llama", "--reason", "new fan")[0] == 0


def test_a_job_without_settings_or_unknown_or_with_a_folder_is_refused_with_what_to_do(state, holdfast):
    write_job(state, "llama", [submitted(1)])
    assert "give --fleet-dir DIR instead" in holdfast("nodes", "list", "--job", "llama")[2]
    code, _, said = holdfast("nodes", "list", "--job", "none")
    assert code == 1 and "there is no job none" in said
    assert "leave --fleet-dir out" in holdfast("nodes", "list", "--job", "llama", "--fleet-dir", "x")[2]
    assert "holdfast nodes show --job JOB" in holdfast("nodes", "--job", "llama", "show", "x")[2]
