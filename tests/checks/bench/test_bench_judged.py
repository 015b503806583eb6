"""Numbers of benchmarks against those before and beside them: who is told, who is not, and what is learned."""

import pytest
from msgspec.structs import replace

from holdfast.core.checks.bench import (
    Bench,
    Measure,
    OptionRefused,
    choice,
    disturbed,
    judged,
    measure,
    option,
)
from holdfast.core.checks.learning import learned
from holdfast.model.checks import (
    BASELINE,
    FAIL,
    NO_FAULT,
    PASS,
    PEERS,
    SKIP,
    WARN,
    Baseline,
    Fact,
    Finding,
    Outcome,
    Scene,
)


def bench(key="gpu:1", value=100.0, spread=0.0, model="H100", **more):
    return Bench(
        key=key,
        model=model,
        measures=(Measure(name="matmul", value=value, unit="TFLOP/s", spread=spread),),
        where=f"at {key}",
        **more,
    )


def known(**values):
    """gpu_1=100 -> a baseline in which gpu:1 of model H100 gave 100."""
    return Baseline(
        facts={name.replace("_", ":"): {"matmul": value, "name": "H100"} for name, value in values.items()}
    )


def findings(benches, baseline=Baseline()):  # noqa: B008 - frozen
    return [one for one in judged(benches, baseline) if isinstance(one, Finding)]


def facts(benches):
    return [one for one in judged(benches, Baseline()) if isinstance(one, Fact)]


def test_the_first_number_of_a_device_passes_and_is_learned():
    (finding,) = findings([bench()])
    assert finding.status == PASS and "100 TFLOP/s" in finding.measured
    outcome = Outcome(check="gpu-burn", area="gpu", status=PASS, facts=tuple(facts([bench()])))
    assert learned(Baseline(), [outcome], 5.0).facts == {"gpu:1": {"matmul": 100.0, "name": "H100"}}


@pytest.mark.parametrize(
    ("value", "status"), [(120, PASS), (100, PASS), (94, PASS), (92, WARN), (76, WARN), (74, FAIL)]
)
def test_a_device_is_held_against_what_it_gave_first(value, status):
    (finding,) = findings([bench(value=value)], known(gpu_1=100))
    assert finding.status == status
    if status != PASS:
        assert finding.whence == BASELINE and "about 100 TFLOP/s" in finding.expected
        assert finding.device == "at gpu:1" and finding.advice.en and finding.advice.zh
        assert finding.fault == NO_FAULT, "slow is no reason to isolate"


def test_a_replaced_device_is_held_against_others_of_its_model_before():
    (finding,) = findings([bench(key="gpu:9", value=80)], known(gpu_1=100, gpu_2=104, gpu_3=102))
    assert finding.status == WARN and "median of 3 earlier devices of this model, 102" in finding.why
    (other,) = findings([bench(key="gpu:9", value=80, model="A100")], known(gpu_1=100))
    assert other.status == PASS


def test_the_devices_of_a_node_are_held_against_each_other():
    values = {f"gpu:{n}": 100.0 for n in range(7)} | {"gpu:7": 70.0}
    told = findings([bench(key=key, value=value) for key, value in values.items()])
    assert [one.status for one in told] == [PASS] * 7 + [FAIL]
    assert told[7].whence == PEERS and "30% below the median of the 7 others" in told[7].why


def test_two_devices_do_not_say_which_of_them_is_the_slow_one():
    assert {one.status for one in findings([bench(value=100), bench(key="gpu:2", value=50)])} == {PASS}


def test_devices_of_another_model_are_no_peers():
    others = [bench(key=f"gpu:{n}", model="A100", value=300) for n in range(4)]
    assert {one.status for one in findings([bench(), *others])} == {PASS}


def test_a_number_is_not_held_to_be_more_exact_than_its_repeats():
    (quiet,) = findings([bench(value=88, spread=0.01)], known(gpu_1=100))
    (noisy,) = findings([bench(value=88, spread=0.05)], known(gpu_1=100))
    assert (quiet.status, noisy.status) == (WARN, PASS)


def test_a_time_is_bad_when_it_is_high():
    slow = Bench(
        key="gpu:1",
        model="H100",
        measures=(Measure(name="matmul", value=120, unit="ms", low_is_bad=False),),
    )
    (finding,) = findings([slow], known(gpu_1=100))
    assert finding.status == WARN and "20% above" in finding.why


def test_a_disturbed_number_is_shown_compared_with_nothing_and_not_learned():
    one = bench(value=10, disturbed=disturbed(0.4))
    (finding,) = findings([one], known(gpu_1=100))
    assert finding.status == SKIP and "10 TFLOP/s" in finding.why and "40%" in finding.why
    assert all(not fact.learn and not fact.peers for fact in facts([one]))
    others = [bench(key=f"gpu:{n}") for n in (2, 3)]
    assert [found.status for found in findings([one, *others])] == [SKIP, PASS, PASS]


@pytest.mark.parametrize("odd", [True, "fast", 0, -3, None])
def test_a_learned_value_that_is_no_number_is_not_used(odd):
    assert findings([bench(value=1)], known(gpu_1=odd))[0].status == PASS


def test_rates_become_a_number_with_its_spread():
    of_middle = measure("x", [90e9, 100e9, 110e9, 130e9], "GB/s", 1e9)
    assert (of_middle.value, round(of_middle.spread, 3)) == (100.0, 0.2)
    assert measure("x", [90e9, 100e9, 110e9, 130e9], "GB/s", 1e9, best=True).value == 130.0
    assert measure("x", [0, 0, 0, 0], "GB/s", 1e9).spread == 0


def test_facts_carry_what_the_comparison_of_nodes_needs():
    (_, fact) = facts([bench(spread=0.03)])
    assert fact.peers and fact.model == "H100" and fact.unit == "TFLOP/s" and fact.spread == 0.03


@pytest.mark.parametrize("text", ["x", "nan", "-1", "99999"])
def test_an_option_that_cannot_be_used_is_refused_by_name(text):
    scene = Scene(options={"gpu-burn.seconds": text})
    with pytest.raises(OptionRefused, match=r"gpu-burn\.seconds"):
        option(scene, "gpu-burn", "seconds", 5, 0.1, 3600)
    assert option(replace(scene, options={}), "gpu-burn", "seconds", 5, 0.1, 3600) == 5


def test_a_choice_is_one_of_those_known():
    assert choice({}, "gpu-burn", "type", ("a", "b"), "b") == "b"
    with pytest.raises(OptionRefused, match="one of a, b"):
        choice({"gpu-burn.type": "c"}, "gpu-burn", "type", ("a", "b"), "b")
