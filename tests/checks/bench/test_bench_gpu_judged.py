"""What is said of a GPU whose products are wrong, that breaks, that hangs, and of those beside it."""

import pytest

from holdfast.core.checks.gpu.bench import (
    Loaded,
    Ran,
    beside,
    burn_bench,
    copy_bench,
    failed,
    wrong_copies,
    wrong_products,
    wrong_sums,
)
from holdfast.model.checks import DEVICE_FAULT, FAIL, NO_FAULT, PASS, SKIP, WARN, Fact, Finding


def ran(number=0, **answer):
    good = {
        "rates": [6e14, 7e14, 7.1e14, 7.2e14],
        "repeats": 100,
        "wrong_repeats": 0,
        "wrong_elements": 0,
        "where": [],
        "wrong_rows": 0,
        "checksum": "4aae1b9c",
        "size": 8192,
        "type": "bf16",
        "library": "torch 2.13.0",
    }
    return Ran(key=f"gpu:{number}", model="H100", where=f"0000:{number}a:00.0", answer=good | answer)


def broken(number=0, **more):
    return Ran(key=f"gpu:{number}", model="H100", where=f"0000:{number}a:00.0", **more)


def products(runs):
    return [one for one in wrong_products(runs) if isinstance(one, Finding)]


def test_sound_gpus_pass_and_tell_their_product():
    runs = [ran(n) for n in range(8)]
    assert {one.status for one in products(runs)} == {PASS}
    told = [one for one in wrong_products(runs) if isinstance(one, Fact)]
    assert {(one.value, one.same) for one in told} == {("4aae1b9c", True)}


def test_bits_that_change_from_repeat_to_repeat_are_a_fault_of_the_device():
    bad = ran(1, wrong_repeats=2, wrong_elements=3, where=[[17, 4000, "0040"]])
    told = products([ran(0), bad, ran(2)])
    assert [one.status for one in told] == [PASS, FAIL, PASS]
    assert told[1].fault == DEVICE_FAULT and told[1].device == "0000:1a:00.0"
    assert "2 of 100" in told[1].why and "row 17 column 4000 bits 0040" in told[1].why


def test_a_product_that_is_always_wrong_needs_a_sound_gpu_beside_it_to_be_the_fault_of_the_device():
    alone = products([ran(0, wrong_rows=16)])
    assert (alone[0].status, alone[0].fault) == (WARN, NO_FAULT), "it may be the library"
    all_of_them = products([ran(n, wrong_rows=16, checksum="x") for n in range(4)])
    assert {(one.status, one.fault) for one in all_of_them} == {(WARN, NO_FAULT)}
    one_of_three = products([ran(0), ran(1, wrong_rows=1, checksum="x"), ran(2)])
    assert (one_of_three[1].status, one_of_three[1].fault) == (FAIL, DEVICE_FAULT)


def test_a_product_unlike_that_of_most_is_wrong():
    told = products([ran(0), ran(1, checksum="bad"), ran(2)])
    assert [one.status for one in told] == [PASS, FAIL, PASS]
    two = products([ran(0), ran(1, checksum="bad")])
    assert {one.status for one in two} == {PASS}, "of two, nobody can say which"


def test_an_uncorrectable_error_breaks_the_device_whoever_else_works():
    told = list(failed([broken(error="AcceleratorError: CUDA error: uncorrectable ECC error encountered")]))
    assert told[0].fault == DEVICE_FAULT and told[0].category == "ecc_uncorrectable"


def test_an_error_is_the_device_s_only_where_others_have_none():
    error = "AcceleratorError: CUDA error: an illegal memory access was encountered"
    (alone,) = failed([broken(error=error)])
    assert (alone.status, alone.fault) == (WARN, NO_FAULT)
    (beside_others,) = failed([ran(0), broken(1, error=error)])
    assert (beside_others.status, beside_others.fault) == (FAIL, DEVICE_FAULT)


@pytest.mark.parametrize(
    "error",
    [
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "RuntimeError: CUDA error: operation not supported",
    ],
)
def test_what_no_device_is_to_blame_for_is_skipped(error):
    (told,) = failed([ran(0), broken(1, error=error)][1:] + [ran(0)])
    assert told.status == SKIP and error in told.why


def test_one_that_does_not_end_is_reported_with_what_the_others_did():
    (told,) = failed([ran(0), broken(1, error="no answer within 140 s", is_late=True)])
    assert told.status == WARN and "the others here did" in told.why and told.advice.zh


def test_what_could_not_be_begun_is_skipped():
    (told,) = failed([broken(unable="0.5 GiB of GPU memory are free, 2.0 are needed")])
    assert told.status == SKIP and "0.5 GiB" in told.why


def test_damaged_copies_and_sums_are_faults():
    (copies,) = wrong_copies([ran(0, wrong_bytes=0), ran(1, wrong_bytes=5)])
    (sums,) = [one for one in wrong_sums([ran(0, wrong_elements=0), ran(1, wrong_elements=2)])]
    assert copies.fault == sums.fault == DEVICE_FAULT
    assert "5 bytes" in copies.why and "2 elements" in sums.why


def test_clock_heat_and_power_are_those_of_the_time_at_work():
    idle = Loaded(clock_mhz=345, temperature_c=33, power_w=70, busy_percent=0, reasons=1)
    busy = Loaded(clock_mhz=1410, temperature_c=86, power_w=690, busy_percent=100, reasons=0x40 | 0x04)
    assert (
        beside([idle, busy, busy])
        == "1410 MHz, up to 86 °C, up to 690 W, throttled by its power limit, throttled by heat (hardware)"
    )
    assert beside([idle]) == "" and beside([]) == "" and beside([Loaded()]) == ""


def test_numbers_are_in_the_units_of_the_field():
    (one,) = burn_bench(ran()).measures
    assert (one.value, one.unit) == (700.0, "TFLOP/s")
    ways = {"to device, pinned": [50e9, 54e9, 55e9, 55e9], "to device": [9e9, 10e9, 11e9, 12e9]}
    pinned, ordinary = copy_bench(ran(ways=ways)).measures
    assert (pinned.value, ordinary.value, pinned.unit) == (55.0, 10.0, "GB/s")
