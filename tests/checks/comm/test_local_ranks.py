"""Ranks of one node: really meeting and summing over gloo, and what is said when they do not."""

import importlib.util
import os
import sys

import pytest

from holdfast.checks.child import look
from holdfast.checks.registry import check_named
from holdfast.core.checks.comm.local import GLOO, NCCL, bus_bandwidth, of_sums, trouble
from holdfast.model.checks import DEVICE_FAULT, ENVIRONMENT_FAULT, FAIL, PASS, SKIP, WARN, Fact, Scene

HAS_TORCH = importlib.util.find_spec("torch") is not None
READY = {"stage": "ready"}


def scene(tmp_path, **more):
    env = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    command = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py")
    return Scene(
        root=str(tmp_path), command=command, cwd=str(tmp_path), env=env | more.pop("env", {}), **more
    )


def done(*ranks):
    return {"stage": "done", "ranks": list(ranks)}


def rank(number, wrong=0, seconds=0.001):
    return {"rank": number, "met_s": 0.1, "sums": [{"bytes": 1 << 20, "best_s": seconds, "wrong": wrong}]}


@pytest.mark.torch
@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed (the demo extra)")
def test_real_ranks_meet_and_their_sums_are_right(tmp_path):
    outcome = look(check_named("comm-allreduce"), scene(tmp_path, env={"GLOO_SOCKET_IFNAME": "lo"}))
    assert outcome.status == PASS, outcome.findings
    assert "2 ranks" in outcome.findings[0].measured
    assert outcome.facts[0].value > 0 and not outcome.facts[0].peers


@pytest.mark.torch
@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed (the demo extra)")
def test_an_interface_that_is_not_there_keeps_real_ranks_apart(tmp_path):
    outcome = look(check_named("comm-rendezvous"), scene(tmp_path, env={"GLOO_SOCKET_IFNAME": "gone0"}))
    assert outcome.status == FAIL
    assert "gone0" in outcome.findings[0].why and "GLOO_SOCKET_IFNAME" in outcome.findings[0].advice.zh


def test_without_gpus_nothing_is_said_of_them(tmp_path):
    outcome = look(check_named("comm-allreduce-gpu"), scene(tmp_path))
    assert (outcome.status, outcome.findings[0].why) == (SKIP, "this node has no NVIDIA GPU")


def test_without_a_python_nothing_is_tried(tmp_path):
    outcome = look(check_named("comm-rendezvous"), Scene(root=str(tmp_path), command=("docker", "run", "x")))
    assert (outcome.status, outcome.findings[0].why) == (
        SKIP,
        "docker runs the command on another host or in a container",
    )


@pytest.mark.parametrize(
    ("said", "ended", "status", "fault", "why"),
    [
        ([], False, SKIP, "", "not ready within 40 s"),
        ([], True, SKIP, "", "did not start: Killed"),
        ([{"stage": "absent"}], True, SKIP, "", "built without gloo"),
        ([{"stage": "import", "error": "OSError: libcudart"}], True, FAIL, ENVIRONMENT_FAULT, "libcudart"),
        ([READY], False, WARN, "", "within 40 s"),
        ([READY], True, FAIL, "", "Killed"),
        (
            [READY, done(rank(0), {"rank": 1, "error": "RuntimeError: no"})],
            True,
            FAIL,
            "",
            "rank 1: RuntimeError",
        ),
    ],
)
def test_how_far_they_came_says_what_it_means(said, ended, status, fault, why):
    finding = trouble(said, GLOO, ended, 40.0, "Killed")
    assert finding is not None
    assert (finding.status, finding.fault) == (status, fault)
    assert why in finding.why
    assert status == SKIP or (finding.advice.en and finding.advice.zh)


def test_ranks_that_got_through_are_no_trouble():
    assert trouble([READY, done(rank(0), rank(1))], GLOO, True, 40.0, "") is None


def test_a_wrong_sum_isolates_the_node():
    (finding,) = of_sums(done(rank(0), rank(1, wrong=3)), GLOO, "")
    assert not isinstance(finding, Fact)
    assert (finding.status, finding.fault, finding.device) == (FAIL, DEVICE_FAULT, "rank 1")


def test_the_slowest_rank_gives_the_speed():
    fact, finding = of_sums(done(rank(0, seconds=0.001), rank(1, seconds=0.002)), NCCL, "H100")
    assert isinstance(fact, Fact) and fact.peers and fact.model == "H100"
    assert fact.value == pytest.approx((1 << 20) / 0.002 / 1e9)
    assert not isinstance(finding, Fact) and finding.status == PASS


def test_one_gpu_has_no_links_to_measure():
    (finding,) = of_sums(done(rank(0)), NCCL, "H100")
    assert not isinstance(finding, Fact) and finding.measured == "1 ranks, 1 MiB (nccl)"


def test_bus_bandwidth_is_that_of_nccl_tests():
    assert bus_bandwidth(10**9, 1.0, 8) == pytest.approx(1.75)
    assert bus_bandwidth(10**9, 0.0, 8) == 0.0
