"""Benchmarks of the processors: judged from what the burn returns, and run for real."""

import os
import signal

import pytest

from holdfast.checks.host.bench import (
    array_bytes,
    cpu_model,
    host_burn,
    host_memory_bandwidth,
    host_training_step,
    judged_cores,
    judged_training,
    judged_triad,
    slow_cores,
)
from holdfast.model.checks import (
    DEVICE_FAULT,
    FAIL,
    NO_FAULT,
    PASS,
    SKIP,
    WARN,
    Baseline,
    Fact,
    Finding,
    Scene,
)

MIB = 1 << 20


def core(number, rate=60e9, had=1.0, **more):
    return {
        "core": number,
        "rates": [rate * 0.99, rate, rate * 1.01, rate * 1.02],
        "repeats": 50,
        "wrong_repeats": 0,
        "where": [],
        "had": had,
    } | more


def cores(*found, **more):
    return {"cores": list(found), "library": "torch 2.13.0", "size": 1024, "is_exact": True} | more


def findings(seen):
    return [one for one in seen if isinstance(one, Finding)]


def told(answer, scene=Scene(root="/nowhere")):  # noqa: B008 - frozen
    return findings(judged_cores(scene, answer, {}))


def test_sound_cores_pass_for_their_bits_and_for_their_speed():
    bits, speed = told(cores(*map(core, range(8))))
    assert (bits.status, speed.status) == (PASS, PASS)
    assert bits.measured == "400 products on 8 cores, all with the same bits"
    assert "480 GFLOP/s" in speed.measured


def test_a_core_that_computes_wrongly_is_a_fault_of_the_node():
    bad = core(3, wrong_repeats=1, where=[[1, 2, "00000010"]])
    (finding, *_) = told(cores(core(0), core(1), core(2), bad))
    assert (finding.status, finding.fault, finding.device) == (FAIL, DEVICE_FAULT, "core 3")
    assert "bits 00000010" in finding.why and "mended" not in finding.advice.en


def test_a_product_on_which_all_cores_agree_and_that_is_wrong_may_be_the_library_s():
    (finding, *_) = told(cores(core(0), core(1), is_exact=False))
    assert (finding.status, finding.fault) == (WARN, NO_FAULT)


def test_a_core_whose_process_gets_a_bus_error_is_broken_and_one_that_was_killed_is_not():
    (broken, *_) = told(cores(core(0), {"core": 1, "ended": int(signal.SIGBUS)}))
    assert (broken.fault, broken.category) == (DEVICE_FAULT, "mce_edac")
    (killed, *_) = told(cores(core(0), {"core": 1, "ended": int(signal.SIGKILL)}))
    assert killed.status == SKIP and "signal 9" in killed.why
    (error, *_) = told(cores(core(0), {"core": 1, "error": "MemoryError: "}))
    assert error.status == SKIP


def test_no_core_at_all_is_a_skip():
    assert [one.status for one in told(cores())] == [SKIP]


def test_the_speed_of_a_node_at_work_is_not_judged_and_its_bits_are():
    bits, speed = told(cores(*(core(n, had=0.3) for n in range(4))))
    assert (bits.status, speed.status) == (PASS, SKIP) and "other processes were running" in speed.why


def test_a_node_is_held_against_what_it_gave_before_with_the_same_processors(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor\t: 0\nmodel name\t: AMD EPYC 9654  96-Core\n")
    name = "matmul fp32 1024, torch 2.13.0"
    before = Baseline(facts={"cpu:AMD EPYC 9654 96-Core x4": {name: 400.0}})
    scene = Scene(root=str(tmp_path), baseline=before)
    assert told(cores(*map(core, range(4))), scene)[-1].status == FAIL, "240 of 400 GFLOP/s"
    assert told(cores(*map(core, range(5))), scene)[-1].status == PASS, "with another number of cores"


def test_a_core_far_slower_than_those_like_it_is_reported():
    many = [core(n) for n in range(7)] + [core(7, rate=20e9)]
    (finding,) = slow_cores(many, {})
    assert finding.device == "core 7" and finding.status == WARN and "33%" in finding.why
    efficient = {n: 5_000_000 for n in range(7)} | {7: 3_000_000}
    assert list(slow_cores(many, efficient)) == [], "an efficiency core is no fault"
    assert list(slow_cores([core(0), core(1, rate=1e9)], {})) == [], "of two, nobody can say which"


def test_a_sum_of_memory_that_is_wrong_is_a_fault():
    answer = {
        "rates": [20e9, 21e9, 22e9, 23e9],
        "repeats": 9,
        "wrong_elements": 1,
        "had": 1.0,
        "threads": 8,
        "bytes_each": 64 * MIB,
        "library": "numpy 2.4",
    }
    bad, speed = findings(judged_triad(Scene(root="/nowhere"), answer))
    assert (bad.status, bad.fault) == (FAIL, DEVICE_FAULT)
    assert "23 GB/s" in speed.measured and "8 threads" in speed.measured
    assert [one.status for one in findings(judged_triad(Scene(), answer | {"wrong_elements": 0}))] == [PASS]


def test_a_loss_that_is_no_number_is_reported():
    answer = {
        "rates": [90.0, 100.0, 101.0, 102.0],
        "step_s": 0.2,
        "repeats": 30,
        "is_finite": False,
        "type": "fp32",
        "had": 1.0,
        "library": "torch 2.13.0",
    }
    bad, speed = findings(judged_training(Scene(), answer, "cpu:x", "x", "2 layers of 256"))
    assert bad.category == "nan_loss" and speed.status == PASS and "200 ms a step" in speed.measured


@pytest.mark.parametrize(
    ("cache", "free", "each"),
    [
        (32 * MIB, 100 << 30, 128 * MIB),
        (1 << 30, 1 << 40, 4 << 30),
        (0, 100 << 30, 64 * MIB),
        (32 * MIB, 1 << 30, 102 * MIB),
        (32 * MIB, 512 * MIB, 0),
        (1 << 30, 8 << 30, 0),
    ],
)
def test_arrays_are_larger_than_the_caches_and_leave_memory_to_others(cache, free, each):
    assert array_bytes(cache, free) == each


def test_the_model_is_that_of_the_kernel_and_the_number_used():
    assert cpu_model(Scene(root="/nowhere"), 4) == f"{os.uname().machine} x4"


# For real


@pytest.mark.torch
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("look", "options", "fact"),
    [
        (host_burn, {"host-burn.seconds": "0.1", "host-burn.size": "64"}, "matmul fp32 64"),
        (
            host_memory_bandwidth,
            {"host-memory-bandwidth.seconds": "0.1", "host-memory-bandwidth.mebibytes": "4"},
            "memory triad",
        ),
        (
            host_training_step,
            {
                "host-training-step.seconds": "0.1",
                "host-training-step.layers": "1",
                "host-training-step.width": "64",
            },
            "training fp32",
        ),
    ],
)
def test_it_runs_on_this_machine(look, options, fact, warm_torch):
    """The first with our Python, the others with one that has imported torch."""
    if look is not host_burn:
        options = options | {f"{look.__name__.replace('_', '-')}.python": warm_torch}
    seen = list(look(Scene(env=dict(os.environ), options=options)))
    assert {one.status for one in findings(seen)} <= {PASS, SKIP}, findings(seen)
    (number,) = [one for one in seen if isinstance(one, Fact) and one.unit]
    assert number.name.startswith(fact) and number.value > 0


@pytest.mark.parametrize("look", [host_burn, host_memory_bandwidth, host_training_step])
def test_without_a_python_that_can_it_is_skipped(look):
    name = look.__name__.replace("_", "-")
    (finding,) = look(Scene(options={f"{name}.python": "/nowhere/python"}))
    assert finding.status == SKIP and "/nowhere/python" in finding.why
    (refused,) = look(Scene(options={f"{name}.seconds": "-1"}))
    assert refused.status == SKIP and "from 0.1 to 3600" in refused.why
