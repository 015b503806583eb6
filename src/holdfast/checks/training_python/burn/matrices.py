"""Tests a device: multiplies the same two matrices repeatedly, and compares the bits of all products.

The matrices hold integers of 8 bits, so all sums are exact in 24 bits. A correct product then has the same
bits in any order of summation, with any kernel and on any device: a different bit is an error.
"""

from __future__ import annotations

import ctypes
import random
import time
import zlib
from typing import Any

from .devices import REPEATS_MIN, SEED, Laps, library, rates, take

WHERE_MAX = 8
EXACT_ROWS = 16
COLUMNS_AT_ONCE = 1024
ROUND_S = 0.25
TYPES = {"bf16": "bfloat16", "fp16": "float16", "tf32": "float32", "fp32": "float32", "fp64": "float64"}
FEWER_BITS = {"fp16": 4}  # sums must stay below 65,504
BITS = {2: "int16", 4: "int32", 8: "int64"}


def matmul(device: str, seconds: float, size: int, type: str) -> dict[str, Any]:
    """Multiplies the same two matrices repeatedly; returns the speed, and whether all products are
    identical and exact.
    """
    torch = library("torch")
    type = _type(torch, device) if type == "auto" else type
    element = {"bf16": 2, "fp16": 2, "fp64": 8}.get(type, 4)
    take(torch, device, 7 * element * size * size + (1 << 29))
    torch.backends.cuda.matmul.allow_tf32 = type == "tf32"
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    left, right = (matrix(torch, size, type, part).to(device) for part in range(2))
    first = torch.mm(left, right)
    found = repeated(torch, device, left, right, first, seconds)
    found["wrong_rows"] = wrong_rows(torch, left, right, first)
    found["checksum"] = f"{zlib.crc32(content(first.cpu())):08x}"
    return found | {"size": size, "type": type, "library": f"torch {torch.__version__}"}


def _type(torch: Any, device: str) -> str:
    """Returns the element type to use: bf16 if the device supports it, fp16 on GPUs before Ampere, fp32 on
    the CPU.
    """
    if not device.startswith("cuda"):
        return "fp32"
    return "bf16" if torch.version.hip or torch.cuda.get_device_capability(device) >= (8, 0) else "fp16"


def matrix(torch: Any, size: int, type: str, part: int) -> Any:
    whole = torch.frombuffer(dice(size, part), dtype=torch.int8).reshape(size, size)
    return torch.bitwise_right_shift(whole, FEWER_BITS.get(type, 0)).to(getattr(torch, TYPES[type]))


def dice(size: int, part: int) -> bytearray:
    """Returns pseudo-random bytes for matrix number `part` of the two to multiply, the same on every machine."""
    count = size * size
    return bytearray(random.Random(SEED + part).getrandbits(8 * count).to_bytes(count, "little"))


def content(tensor: Any) -> memoryview:
    """Returns the bytes of a tensor in host memory, without numpy."""
    count = tensor.numel() * tensor.element_size()
    return memoryview((ctypes.c_char * count).from_address(tensor.data_ptr())).cast("B")


def repeated(torch: Any, device: str, left: Any, right: Any, first: Any, seconds: float) -> dict[str, Any]:
    """Multiplies `left` and `right` for `seconds` on the device, compares each product with `first` bit by bit, and
    returns the differences.
    """
    out = torch.empty_like(first)
    right_bits, out_bits = bits(torch, first), bits(torch, out)
    flipped = torch.zeros_like(right_bits)
    times_s: list[float] = []
    wrong: list[int] = []
    began_s = time.monotonic()
    in_round = 1
    while len(times_s) < REPEATS_MIN or time.monotonic() < began_s + seconds:
        laps = Laps(torch, device)
        counts = []
        for _ in range(in_round):
            laps.begin()
            torch.mm(left, right, out=out)
            laps.end()
            differs = torch.bitwise_xor(out_bits, right_bits)
            counts.append(torch.count_nonzero(differs))
            flipped.bitwise_or_(differs)
        lap_s = laps.seconds()
        wrong += [int(count) for count in counts]
        times_s += lap_s
        in_round = max(1, min(200, int(ROUND_S / max(lap_s[-1], 1e-6))))
    operations = 2.0 * left.shape[0] * left.shape[1] * right.shape[1]
    return {
        "rates": rates(operations, times_s[1:]),
        "repeats": len(times_s),
        "wrong_repeats": sum(count > 0 for count in wrong),
        "wrong_elements": sum(wrong),
        "where": where(torch, flipped),
    }


def bits(torch: Any, matrix: Any) -> Any:
    return matrix.view(getattr(torch, BITS[matrix.element_size()]))


def where(torch: Any, flipped: Any) -> list[list[Any]]:
    """Returns the first wrong elements of a matrix product as [row, column, flipped bits in hexadecimal].

    `flipped`: integer matrix with the bits that differ.
    """
    if not int(torch.count_nonzero(flipped)):
        return []
    digits = 2 * flipped.element_size()
    mask = (1 << 4 * digits) - 1
    places = torch.nonzero(flipped)[:WHERE_MAX].tolist()
    return [[row, column, f"{int(flipped[row, column]) & mask:0{digits}x}"] for row, column in places]


def wrong_rows(torch: Any, left: Any, right: Any, product: Any) -> int:
    """Returns how many of a few sampled rows of a product differ from the exact result computed on the
    CPU.
    """
    size = left.shape[0]
    rows = sorted({size * number // EXACT_ROWS for number in range(EXACT_ROWS)})
    some, whole = left[rows].cpu().double(), right.cpu()
    pieces = torch.split(whole, COLUMNS_AT_ONCE, dim=1)
    exact = torch.cat([some @ piece.double() for piece in pieces], dim=1)
    return int((exact.to(product.dtype) != product[rows].cpu()).any(dim=1).sum())
