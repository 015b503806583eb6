"""Measures the machine: device facts, Holdfast's checks and benchmarks, the cost of a CUDA context and of a fork before it."""

import json
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench.gpu.report import Part

LIMIT_S = 150.0
ROUNDS = 5
# A sound GPU passes; a machine may lack what these need.
GOOD = ("pass", "skip")
# Peak rates by product name, from NVIDIA's data sheets: memory GB/s, dense bfloat16 TFLOP/s.
PEAKS = {"H100 80GB HBM3": (3350.0, 989.0), "H200": (4800.0, 989.0), "A100-SXM4-80GB": (2039.0, 312.0)}
_RATES = """
import json, time, torch
def rate(work, count, rounds=20):
    for _ in range(3): work()
    torch.cuda.synchronize(); begun = time.perf_counter()
    for _ in range(rounds): work()
    torch.cuda.synchronize(); return count * rounds / (time.perf_counter() - begun)
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16); b = torch.randn_like(a); c = torch.empty_like(a)
x = torch.empty(1 << 30, dtype=torch.uint8, device="cuda"); y = torch.empty_like(x)
print(json.dumps({"matmul": rate(lambda: torch.matmul(a, b, out=c), 2 * 8192 ** 3) / 1e12,
                  "copy": rate(lambda: y.copy_(x), 2 * x.numel()) / 1e9}))
"""
# A child of a process that has imported torch, and a process that starts anew: seconds to the first result on the GPU.
_FORK = """
import os, sys, time
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
import torch
assert torch.cuda.is_available() and not torch.cuda.is_initialized()
for _ in range(int(sys.argv[1])):
    begun = time.monotonic(); read, write = os.pipe()
    if os.fork() == 0:
        torch.zeros(1, device="cuda").item()
        os.write(write, str(time.monotonic() - begun).encode()); os._exit(0)
    os.wait(); print(os.read(read, 64).decode())
assert not torch.cuda.is_initialized()
"""
_FRESH = "import torch, time; begun = time.monotonic(); torch.zeros(1, device='cuda').item(); print(time.monotonic() - begun)"


def has_gpu() -> bool:
    return python("import torch; print(torch.cuda.is_available())").strip() == "True"


def python(code: str, *words: str) -> str:
    """What the code prints in a Python of its own. raises: CalledProcessError, TimeoutExpired"""
    run = [sys.executable, "-c", code, *words]
    return subprocess.run(run, capture_output=True, text=True, check=True, timeout=LIMIT_S).stdout


def machine(raw: Path) -> Part:
    """Product, driver and versions; whether the kernel log can be read."""
    part = Part()
    part.facts["torch"] = python("import torch; print(torch.__version__, torch.version.cuda)").strip()
    if smi := shutil.which("nvidia-smi"):
        said = subprocess.run([smi, "-q"], capture_output=True, text=True, timeout=60, check=False).stdout
        (raw / "nvidia-smi.txt").write_text(said)
        query = [smi, "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
        part.facts["GPU"] = subprocess.run(
            query, capture_output=True, text=True, timeout=60, check=False
        ).stdout.strip()
    read = subprocess.run(["dmesg"], capture_output=True, text=True, timeout=30, check=False)
    (raw / "dmesg.txt").write_text(read.stdout + read.stderr)
    part.facts["kernel log"] = (
        f"{len(read.stdout.splitlines())} lines" if read.returncode == 0 else read.stderr.strip()
    )
    return part


def checks(raw: Path) -> Part:
    """All checks of GPUs on an idle, sound machine: each must pass, or say why it cannot be made here."""
    return _checked(raw, "all", "gpu")


def bench_checks(raw: Path) -> Part:
    """The benchmarks of GPUs, beside the same rates measured by PyTorch alone and the rates of the data sheet."""
    part = _checked(raw, "bench", "gpu")
    rates = json.loads(python(_RATES))
    part.facts["PyTorch alone"] = (
        f"matmul bf16 8192 {rates['matmul']:.0f} TFLOP/s, copy {rates['copy']:.0f} GB/s"
    )
    name = python("import torch; print(torch.cuda.get_device_name())").strip()
    for product, (memory, matmul) in PEAKS.items():
        if product in name:
            share = f"{rates['matmul'] / matmul:.0%} of {matmul:.0f} TFLOP/s, {rates['copy'] / memory:.0%} of {memory:.0f} GB/s"
            part.facts["share of the data sheet"] = share
    return part


def _checked(raw: Path, suite: str, area: str) -> Part:
    words = [sys.executable, "-m", "holdfast", "check", "--suite", suite, "--only", area, "--json"]
    words += ["--state-dir", str(raw / "state")]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    (raw / f"check-{suite}.json").write_text(ran.stdout)
    part = Part()
    for check in json.loads(ran.stdout)["checks"]:
        said = check["measured"] or check["why"]
        part.facts[check["name"]] = f"{check['status']}: {said}"
        if check["status"] not in GOOD:
            part.problems.append(f"{check['name']} says {check['status']} of a sound GPU: {check['why']}")
    return part


def context_and_fork(raw: Path) -> Part:
    """Seconds to the first result on the GPU: in a fork of a process that has imported torch, and in a new process."""
    forked = [float(line) for line in python(_FORK, str(ROUNDS)).split()]
    fresh, whole = [], []
    for _ in range(ROUNDS):
        begun_s = time.monotonic()
        fresh.append(float(python(_FRESH)))
        whole.append(time.monotonic() - begun_s)
    (raw / "times.json").write_text(json.dumps({"forked": forked, "fresh": fresh, "whole": whole}))
    part = Part()
    part.facts["fork to first result"] = _spread(forked)
    part.facts["CUDA context in a new process"] = _spread(fresh)
    part.facts["new process to first result, with imports"] = _spread(whole)
    return part


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} s [{min(values):.2f}-{max(values):.2f}]"
