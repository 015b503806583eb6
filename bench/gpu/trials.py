"""Runs trainings under `holdfast run`, breaks them, and judges what Holdfast reports and does."""

import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pynvml
from msgspec import Struct

from bench.gpu.report import Part
from bench.job.trial import Trial

SCRIPTS = Path(__file__).with_name("scripts")
STEPS, LIMIT_S, TRAINER_LIMIT_S = 80, 90.0, 200.0
LEFT_FOR_OTHERS = 2 << 30  # bytes that the process which holds the memory leaves free
SAMPLE_S = 0.2


class Fault(Struct, frozen=True):
    """A fault of the last of two ranks. `categories`: verdicts that are right; `found_s`: at most, from the fault."""

    name: str
    categories: tuple[str, ...]
    found_s: float
    usual_s: float = 30.0
    needs_gpu: bool = True
    beside: str = ""


FAULTS = {
    fault.name: fault
    for fault in (
        Fault("illegal-access", ("cuda_illegal_access", "xid_31", "xid_13"), 1.0),
        Fault("device-assert", ("device_side_assert",), 1.0),
        Fault("out-of-memory", ("gpu_oom",), 1.0),
        Fault("out-of-memory-other", ("gpu_oom_external_process",), 1.0, 35.0, beside="memory"),
        Fault("kill-in-kernel", ("process_killed",), 1.0),
        Fault("endless-kernel", ("collective_missing_rank", "gpu_fault", "unknown"), 15.0, 40.0),
        Fault("sigstop", ("process_stopped",), 3.0, needs_gpu=False),
        Fault("deadlock", ("collective_missing_rank",), 10.0, needs_gpu=False),
        Fault("kill", ("process_killed",), 1.0, needs_gpu=False),
    )
}
TRAINER_FAULTS = {
    True: ("kill", "exception", "device-assert", "endless-kernel"),
    False: ("kill", "exception", "sigstop", "deadlock"),
}


class Ran(Struct):
    """A run that has ended. `result`: what rank 0 printed at the end; `fault_s`: when the first fault happened."""

    code: int | None
    result: float
    said: str
    incidents: list[dict[str, object]]
    left: int
    took_s: float
    fault_s: float | None
    losses: dict[int, float]


def run(
    raw: Path, name: str, command: Sequence[str], env: dict[str, str] | None = None, limit_s: float = LIMIT_S
) -> Ran:
    """Runs the command under `holdfast run`, keeps output and record in `raw`, and clears away what is left."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-gpu-"))
    shutil.copytree(SCRIPTS, folder, dirs_exist_ok=True)
    state = folder / "state"
    words = [sys.executable, "-m", "holdfast", "run", "--policy", "holdfast", "--state-dir", str(state), "--"]
    trial = Trial([*words, *command], folder, env)
    try:
        code = trial.process.returncode if trial.wait(limit_s) else None
        left = trial.left() if code is not None else ()
        said = "".join(line for _, line in trial.lines)
        asked = [sys.executable, "-m", "holdfast", "status", "--json", "--state-dir", str(state)]
        status = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False).stdout
        (raw / f"{name}.log").write_text(said)
        (raw / f"{name}.json").write_text(status)
        shutil.copytree(
            state,
            raw / f"{name}-state",
            dirs_exist_ok=True,
            symlinks=True,
            ignore=shutil.ignore_patterns("*.sock"),
        )
        notes = sorted(folder.glob("fault*"), key=lambda path: path.stat().st_mtime)
        fault_s = [float(path.read_text().split()[0]) for path in notes if path.suffix != ".py"]
        return Ran(
            code,
            last_number(said, "RESULT"),
            said,
            incidents(status),
            len(left),
            time.time() - trial.begun_s,
            fault_s[0] if fault_s else None,
            losses(said),
        )
    finally:
        trial.clear()
        shutil.rmtree(folder, ignore_errors=True)


def incidents(status: str) -> list[dict[str, object]]:
    try:
        return list(json.loads(status)["summary"]["incidents"])
    except (ValueError, KeyError):
        return []


def last_number(said: str, word: str) -> float:
    found = [line.split()[-1] for line in said.splitlines() if word in line.split()[:-1]]
    return float(found[-1]) if found else math.nan


def losses(said: str) -> dict[int, float]:
    """The loss by step, as rank 0 printed it last."""
    rows = [line.split() for line in said.splitlines() if line.startswith("step ") and " loss " in line]
    return {int(row[1]): float(row[3]) for row in rows if len(row) == 4}


def training(fault: str = "", ranks: int = 2) -> list[str]:
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    return [*words, "train.py", ".", str(STEPS), *([fault] if fault else [])]


def judged(ran: Ran, wanted: float | None) -> Part:
    """The end of a run: success, the undisturbed result, nothing left."""
    part = Part()
    part.facts["run"] = f"code {ran.code}, {ran.took_s:.1f} s, {len(ran.incidents)} incidents"
    if ran.code != 0:
        part.problems.append(f"the run ended with code {ran.code}: {ran.said[-400:]}")
    if ran.left:
        part.problems.append(f"{ran.left} processes are left")
    if wanted is not None and not math.isclose(ran.result, wanted, rel_tol=1e-6):
        part.problems.append(f"the result is {ran.result}, an undisturbed run has {wanted}")
    return part


_undisturbed: dict[str, float] = {}


def healthy(raw: Path) -> Part:
    """Two ranks on one device, without a fault: no incident."""
    ran = run(raw, "healthy", training())
    part = judged(ran, None)
    if ran.incidents:
        part.problems.append(f"an incident in a healthy run: {ran.incidents}")
    if math.isnan(ran.result):
        part.problems.append("no result was printed")
    _undisturbed["result"] = ran.result
    part.facts["result"] = f"{ran.result:.9f}"
    return part


def healthy_nccl(raw: Path) -> Part:
    """One rank over NCCL: no incident."""
    ran = run(raw, "nccl", training(ranks=1), {"BENCH_BACKEND": "nccl"})
    part = judged(ran, None)
    if ran.incidents:
        part.problems.append(f"an incident in a healthy run: {ran.incidents}")
    return part


def fault(asked: Fault, raw: Path) -> Part:
    """One fault in rank 1: named, rightly, soon; the run ends with the undisturbed result."""
    with beside(asked.beside, raw):
        ran = run(raw, asked.name, training(asked.name))
    part = judged(ran, _undisturbed.get("result"))
    if not ran.incidents:
        part.problems.append("no incident was reported")
        return part
    first = ran.incidents[0]
    verdict = first.get("verdict") or {}
    assert isinstance(verdict, dict)
    culprits = [one.get("rank") for one in verdict.get("culprits") or ()]
    part.facts["verdict"] = f"{verdict.get('category')} ({verdict.get('confidence')}), ranks {culprits}"
    if verdict.get("category") not in asked.categories:
        part.problems.append(
            f"the verdict is {verdict.get('category')}, expected {' or '.join(asked.categories)}"
        )
    if culprits != [1]:
        part.problems.append(f"the culprits are {culprits}, expected rank 1")
    if ran.fault_s is not None:
        found_s = float(str(first["found_at_s"])) - ran.fault_s
        part.facts["fault to finding"] = f"{found_s:.2f} s"
        if found_s > asked.found_s:
            part.problems.append(f"found after {found_s:.1f} s, expected {asked.found_s:.0f} s at most")
    if len(ran.incidents) > 1:
        part.problems.append(f"{len(ran.incidents)} incidents for one fault")
    return part


@contextmanager
def beside(what: str, raw: Path) -> Iterator[None]:
    """Another process on the GPU while the body runs; it holds memory until the first attempt has met it."""
    if not what:
        yield
        return
    words = [sys.executable, str(SCRIPTS / "hold_memory.py"), what, str(LEFT_FOR_OTHERS)]
    with (
        (raw / "beside.log").open("w") as log,
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log) as other,
    ):
        try:
            assert other.stdout
            other.stdout.readline()  # it says that it is ready
            yield
        finally:
            other.kill()


def shared_gpu(raw: Path) -> Part:
    """Another process computes on the same GPU: nothing is restarted, and what Holdfast says of it is recorded."""
    with beside("busy", raw):
        ran = run(raw, "shared", training())
    part = judged(ran, _undisturbed.get("result"))
    said = [line for line in ran.said.splitlines() if line.startswith("holdfast ")]
    part.facts["said"] = " / ".join(said[-6:])
    if ran.incidents:
        part.problems.append(f"an incident in a run that only shares its GPU: {ran.incidents}")
    return part


def signals(raw: Path) -> Part:
    """Utilisation, power and memory, by NVML, while a training runs and while a kernel does not end."""
    part = Part()
    for name, command in (("training", training()), ("endless kernel", training("endless-kernel"))):
        with sampled() as samples:
            ran = run(raw, name.replace(" ", "-"), command)
        from_s = ran.fault_s or 0.0
        kept = [
            one
            for one in samples
            if one["at_s"] >= from_s and (name == "training" or one["at_s"] < from_s + 8)
        ]
        (raw / f"{name.replace(' ', '-')}-samples.json").write_text(json.dumps(samples))
        part.facts[name] = ", ".join(
            f"{key} {statistics.median(one[key] for one in kept):.0f}"
            for key in (kept[0] if kept else {})
            if key != "at_s"
        )
        if not kept:
            part.problems.append(f"no samples were taken: {name}")
    return part


@contextmanager
def sampled() -> Iterator[list[dict[str, float]]]:
    """Samples of the first GPU by NVML, taken while the body runs."""
    pynvml.nvmlInit()
    gpu, samples, over = pynvml.nvmlDeviceGetHandleByIndex(0), list[dict[str, float]](), threading.Event()

    def sample() -> None:
        while not over.wait(SAMPLE_S):
            use, memory = pynvml.nvmlDeviceGetUtilizationRates(gpu), pynvml.nvmlDeviceGetMemoryInfo(gpu)
            power, clock = pynvml.nvmlDeviceGetPowerUsage(gpu), pynvml.nvmlDeviceGetClockInfo(gpu, 1)
            values = {"gpu %": use.gpu, "memory %": use.memory, "power W": power / 1000, "SM MHz": clock}
            samples.append({"at_s": time.time(), **values, "used MiB": memory.used / 2**20})

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()
        pynvml.nvmlShutdown()


def trainer(raw: Path) -> Part:
    """A job of Hugging Face's Trainer, which resumes from its own checkpoints, through four faults."""
    try:
        subprocess.run(
            [sys.executable, "-c", "import transformers, accelerate"],
            check=True,
            capture_output=True,
            timeout=60,
        )
    except subprocess.CalledProcessError:
        return Part(skipped="transformers and accelerate are not installed here")
    has_cuda = subprocess.run(
        [sys.executable, "-c", "import torch, sys; sys.exit(not torch.cuda.is_available())"],
        check=False,
        timeout=60,
    ).returncode
    names = TRAINER_FAULTS[has_cuda == 0]
    words = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "1",
        "hf_train.py",
        ".",
    ]
    env = {
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
    }
    undisturbed = run(raw, "trainer-undisturbed", words, env, TRAINER_LIMIT_S)
    ran = run(raw, "trainer", [*words, *names], env, TRAINER_LIMIT_S)
    part = judged(ran, undisturbed.result)
    verdicts = [(one.get("verdict") or {}) for one in ran.incidents]
    part.facts["faults"] = ", ".join(names)
    part.facts["verdicts"] = ", ".join(str(one.get("category")) for one in verdicts if isinstance(one, dict))
    part.facts["undisturbed"] = f"{undisturbed.took_s:.1f} s, result {undisturbed.result}"
    if len(ran.incidents) != len(names):
        part.problems.append(f"{len(ran.incidents)} incidents for {len(names)} faults")
    return part
