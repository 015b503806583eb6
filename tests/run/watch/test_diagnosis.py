"""What a run's own lines say of its end: the verdict, the evidence, and the same answer again from the bundle."""

import json
import os

import pytest

from holdfast.observe.logs.bundles import read_member
from run.place import wait_for

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacity of 79.15 GiB"


def bundle(place, incident=1):
    return place.job() / "incidents" / f"incident-{incident:03d}.tar.zst"


def test_a_known_line_is_reported_and_is_the_verdict(place):
    waits = "until [ -e $NOTES/go ]; do sleep 0.05; done"
    run = place.shell(f'echo starting; echo "{OOM}" >&2; {waits}; exit 1').prints("starting")
    wait_for("the line to be told", lambda: "log" in place.findings())
    place.go()
    assert run.code() == 1
    (verdict,) = (event["verdict"] for event in place.events("verdict-reached"))
    assert verdict["category"] == "gpu_oom"
    assert verdict["first_error"]["signature"] == "gpu-out-of-memory"
    assert "3.00 GiB" in verdict["title"]
    told = [event["text"] for event in place.events("finding-noted") if event["finding"] == "log"]
    assert len(told) == 1 and "stderr" in told[0]


def test_the_evidence_gives_the_same_verdict_elsewhere(place):
    run = place.ranks(2, lame=True).prints("step 3 ")
    place.do(1, f"raise {OOM}")
    run.code()
    verdict = place.events("verdict-reached")[0]["verdict"]
    diagnose = place.start("diagnose", bundle(place), "--json")
    assert diagnose.code() == 0, diagnose.err
    again = json.loads(diagnose.out)
    assert (
        (again["category"], again["action"])
        == (verdict["category"], verdict["action"])
        == ("gpu_oom", "reduce_memory")
    )
    assert 1 in [culprit["rank"] for culprit in again["culprits"]]


def test_a_bundle_that_cannot_be_written_costs_nothing(place):
    run = place.shell("echo here; until [ -e $NOTES/go ]; do sleep 0.05; done; exit 3").prints("here")
    (place.job() / "incidents").write_text("in the way")
    place.go()
    assert run.code() == 3, run.err


def test_signatures_that_cannot_be_read_cost_nothing(place):
    run = place.shell("exit 3", HOLDFAST_SIGNATURES=place.path / "missing")
    assert run.code() == 3, run.err


def test_a_line_of_the_kernels_log_is_evidence(place):
    try:
        kmsg = os.open("/dev/kmsg", os.O_WRONLY)
    except OSError as error:
        pytest.skip(f"/dev/kmsg cannot be written here: {error}")
    run = place.shell("echo here; until [ -e $NOTES/go ]; do sleep 0.05; done; exit 1").prints("here")
    pid = os.getpid()
    wait_for("the run to look at the log", lambda: place.events("attempt-started"))
    # A line that says nothing bad: jobs of other tests read this log, too.
    os.write(kmsg, f"nfs: server holdfast-test-{pid} OK\n".encode())
    os.close(kmsg)
    place.go()
    assert run.code() == 1
    assert f"holdfast-test-{pid}".encode() in read_member(bundle(place), "kernel.log")
