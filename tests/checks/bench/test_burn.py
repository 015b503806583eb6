"""The program that measures: real products of torch and numpy on the processors, and bits that were flipped in them."""

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from holdfast.checks.training_python.bench import BURN
from holdfast.checks.training_python.burn import cores, devices, matrices, memory, training

SIZE = 48
pytestmark = [pytest.mark.torch, pytest.mark.timeout(400)]


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def bound():
    """The processors of this process, given back at the end."""
    before = os.sched_getaffinity(0)
    yield sorted(before)
    os.sched_setaffinity(0, before)


def run(asked, python=sys.executable, **env):
    words = [python, BURN, json.dumps(asked)]
    done = subprocess.run(words, capture_output=True, env={**os.environ, **env}, timeout=200, check=True)
    return json.loads(done.stdout)


def two_matrices(torch, type="fp32"):
    return [matrices.matrix(torch, SIZE, type, part) for part in range(2)]


def exact_product():
    left, right = (list(memoryview(matrices.dice(SIZE, part)).cast("b")) for part in range(2))
    return [
        sum(left[row * SIZE + k] * right[k * SIZE + column] for k in range(SIZE))
        for row in range(SIZE)
        for column in range(SIZE)
    ]


# A product again and again


@pytest.mark.parametrize("type", ["fp32", "fp64", "bf16", "fp16"])
def test_a_sound_device_gives_the_exact_product_each_time(torch, type):
    left, right = two_matrices(torch, type)
    first = torch.mm(left, right)
    found = matrices.repeated(torch, "cpu", left, right, first, 0.0)
    assert found["wrong_repeats"] == found["wrong_elements"] == 0 and found["where"] == []
    assert found["repeats"] >= devices.REPEATS_MIN and found["rates"] == sorted(found["rates"])
    assert matrices.wrong_rows(torch, left, right, first) == 0
    if type in ("fp32", "fp64"):
        assert first.flatten().tolist() == exact_product()


@pytest.mark.parametrize(
    ("type", "bit", "told"), [("fp32", 22, "00400000"), ("bf16", 3, "0008"), ("fp16", 0, "0001")]
)
def test_one_flipped_bit_is_found_with_its_place(torch, type, bit, told):
    left, right = two_matrices(torch, type)
    first = torch.mm(left, right)
    matrices.bits(torch, first)[7, 31] ^= 1 << bit
    found = matrices.repeated(torch, "cpu", left, right, first, 0.0)
    assert found["where"] == [[7, 31, told]]
    assert found["wrong_repeats"] == found["repeats"] == found["wrong_elements"]


def test_a_flipped_sign_bit_is_shown_in_hexadecimal(torch):
    left, right = two_matrices(torch)
    first = torch.mm(left, right)
    first[5, 6] = -first[5, 6]
    found = matrices.repeated(torch, "cpu", left, right, first, 0.0)
    assert found["where"] == [[5, 6, "80000000"]]


def test_of_many_wrong_places_the_first_are_named(torch):
    left, right = two_matrices(torch)
    found = matrices.repeated(torch, "cpu", left, right, torch.mm(left, right) + 1, 0.0)
    assert (
        len(found["where"]) == matrices.WHERE_MAX
        and found["wrong_elements"] == SIZE * SIZE * found["repeats"]
    )


def test_rows_that_are_always_wrong_are_found_by_exact_arithmetic(torch):
    left, right = two_matrices(torch)
    first = torch.mm(left, right)
    first[0] += 1
    assert matrices.wrong_rows(torch, left, right, first) == 1


def test_a_burn_of_the_processor_gives_a_checksum_that_is_the_same_everywhere(torch):
    found = matrices.matmul(device="cpu", seconds=0.0, size=SIZE, type="auto")
    right = memoryview(b"".join(float_bytes(value) for value in exact_product()))
    assert found["checksum"] == f"{zlib.crc32(right):08x}"
    assert found["type"] == "fp32" and found["wrong_rows"] == 0


def float_bytes(value):
    return matrices.ctypes.string_at(matrices.ctypes.byref(matrices.ctypes.c_float(value)), 4)


# The cores


def test_a_core_that_once_flips_a_bit_is_named_with_the_place():
    reference = bytes(range(256)) * (SIZE * SIZE // 64)
    times = 0

    def multiply():
        nonlocal times
        times += 1
        product = bytearray(reference)
        if times == 3:
            product[4 * (SIZE + 2)] ^= 0x10
        return memoryview(product)

    found = cores.on_core(5, multiply, reference, 0.0, SIZE)
    assert found["wrong_repeats"] == 1 and found["where"] == [[1, 2, "00000010"]]
    assert found["core"] == 5 and found["repeats"] == devices.REPEATS_MIN


def test_the_core_that_is_wrong_is_not_the_judge(bound):
    products = iter([b"wrong", b"right", b"right"])
    assert cores.agreed(lambda: memoryview(next(products)), bound) == b"right"


def test_a_product_is_held_against_whole_numbers_of_python(torch):
    multiply, name = cores.multiplier(SIZE)
    product = bytearray(multiply())
    assert name.startswith("torch ") and cores.is_exact(SIZE, bytes(product))
    product[1] ^= 1
    assert not cores.is_exact(SIZE, bytes(product))


def test_all_cores_are_run_each_by_a_process_of_its_own(torch):
    found = run({"work": "cores", "seconds": 0.05, "size": 64}, OMP_NUM_THREADS="1")
    assert {one["core"] for one in found["cores"]} == os.sched_getaffinity(0)
    assert found["is_exact"] and all(one["wrong_repeats"] == 0 for one in found["cores"])
    assert all(0 < one["had"] <= 1 for one in found["cores"])


# Memory, copies, training


def test_triad_gives_the_sum_and_its_bandwidth(torch):
    found = memory.triad(device="cpu", seconds=0.0, bytes_each=1 << 20)
    assert found["wrong_elements"] == 0 and found["bytes_each"] == 1 << 20
    assert found["rates"] == sorted(found["rates"]) and found["rates"][0] > 0


def test_copies_come_back_as_they_went(torch, bound):
    found = memory.copy(device="cpu", seconds=0.0, bytes_each=2 << 20, cpus=bound[:1])
    assert found["wrong_bytes"] == 0 and len(found["ways"]) == 4
    assert os.sched_getaffinity(0) == {bound[0]}


def test_a_small_training_takes_steps(torch):
    found = training.train(device="cpu", seconds=0.0, layers=1, width=64, length=16, batch=2)
    assert found["is_finite"] and found["step_s"] > 0 and found["repeats"] == devices.REPEATS_MIN
    assert found["rates"][1] == pytest.approx(32 / found["step_s"])


# Another Python


@pytest.fixture
def numpy_alone(tmp_path):
    """A Python that has numpy and no torch: the base of ours, with numpy alone on its path."""
    numpy = pytest.importorskip("numpy")
    for name in ("numpy", "numpy.libs"):
        place = Path(numpy.__file__).parents[1] / name
        if place.exists():
            (tmp_path / name).symlink_to(place)
    python = os.path.realpath(sys.executable)
    probe = [python, "-S", "-c", "import numpy"]
    if subprocess.run(probe, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, check=False).returncode:
        pytest.skip("numpy cannot be had alone here")
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {python} -S "$@"\n')
    script.chmod(0o755)
    return str(script)


def test_without_torch_numpy_computes(numpy_alone):
    cores = run({"work": "cores", "seconds": 0.05, "size": 64}, numpy_alone, OPENBLAS_NUM_THREADS="1")
    assert cores["library"].startswith("numpy ") and cores["is_exact"]
    assert all(one["wrong_repeats"] == 0 for one in cores["cores"])
    triad = run({"work": "triad", "device": "cpu", "seconds": 0.05, "bytes_each": 1 << 22}, numpy_alone)
    assert triad["library"].startswith("numpy ") and triad["wrong_elements"] == 0


def test_what_cannot_be_measured_is_said(numpy_alone):
    found = run({"work": "train", "device": "cpu", "seconds": 0, "layers": 1, "width": 64, "length": 8, "batch": 1}, numpy_alone)  # fmt: skip
    assert "torch cannot be imported by" in found["unable"]


def test_without_a_gpu_torch_says_why(torch, warm_torch):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert "cannot use a GPU" in run({"work": "about"}, warm_torch)["unable"]


def test_an_error_of_the_library_is_the_answer(warm_torch):
    asked = {"work": "matmul", "device": "nonsense", "seconds": 0, "size": 64, "type": "fp32"}
    found = run(asked, warm_torch)
    assert "RuntimeError" in found["error"] and "nonsense" in found["error"]


def test_it_has_no_need_of_holdfast():
    text = "".join(path.read_text() for path in sorted(Path(BURN).parent.glob("*.py")))
    assert "from holdfast" not in text and "import holdfast" not in text, "the run's Python may have none"
