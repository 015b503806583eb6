"""Runs ranks on this node in the Python of the training: rendezvous, all-reduce of known numbers, and
bandwidth.

Started by its path, so it imports nothing of Holdfast. Imports torch once and forks the ranks. Its first
argument is a JSON object: `ranks`, `backend`, `sizes` in bytes, `timeout_s`. It prints lines of `MARK` and a
JSON object: first that torch is imported, then the results. It ends when its parent process does.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import select
import signal
import sys
import time
from datetime import timedelta
from typing import Any

MARK = "holdfast-ranks:"
ROUNDS = 5
PR_SET_PDEATHSIG = 1
HOST = "127.0.0.1"
ERROR_CHARS_MAX = 300
ALONE_S = 2.0


def main() -> None:
    die_with_parent()
    asked = json.loads(sys.argv[1])
    try:
        torch = importlib.import_module("torch")
        dist = importlib.import_module("torch.distributed")
    except (ImportError, OSError, AttributeError) as error:
        say({"stage": "import", "error": described(error)})
        return
    if not dist.is_available() or (asked["backend"] == "nccl" and not dist.is_nccl_available()):
        say({"stage": "absent"})
        return
    say({"stage": "ready"})
    answers = run(torch, dist, asked)
    say({"stage": "done", "ranks": answers})


def run(torch: Any, dist: Any, asked: dict[str, Any]) -> list[dict[str, Any]]:
    """Runs all ranks and returns the result of each. Rank 0 is this process, the others are forks of it."""
    children = []
    for rank in range(1, asked["ranks"]):
        port_end, port_from = os.pipe()
        answer_end, answer_to = os.pipe()
        pid = os.fork()
        if pid == 0:
            die_with_parent()
            os.close(port_from)
            port = int(os.read(port_end, 16) or b"0")
            answer = one(torch, dist, asked, rank, port, None)
            os.write(answer_to, json.dumps(answer).encode())
            os._exit(0)
        os.close(port_end)
        os.close(answer_to)
        children.append((pid, port_from, answer_end))
    first = one(torch, dist, asked, 0, 0, [port_from for _, port_from, _ in children])
    answers = [first]
    for pid, _, answer_end in children:
        if "error" in first and not select.select([answer_end], [], [], ALONE_S)[0]:
            os.kill(pid, signal.SIGKILL)  # it waits for one that has given up: up to twice its own timeout
        with os.fdopen(answer_end, "rb") as channel:
            text = channel.read()
        os.waitpid(pid, 0)
        answers.append(json.loads(text) if text else {"error": "the process ended without output"})
    return answers


def one(
    torch: Any, dist: Any, asked: dict[str, Any], rank: int, port: int, tell: list[int] | None
) -> dict[str, Any]:
    """Runs one rank and returns its result; an exception becomes an error in the result."""
    began_s = time.monotonic()
    timeout = timedelta(seconds=asked["timeout_s"])
    answer: dict[str, Any] = {"rank": rank}
    try:
        is_first = tell is not None
        store = dist.TCPStore(HOST, port, asked["ranks"], is_first, timeout=timeout, wait_for_workers=False)
        for channel in tell or ():
            os.write(channel, str(store.port).encode())
        if asked["backend"] == "nccl":
            torch.cuda.set_device(rank)
        dist.init_process_group(
            asked["backend"], store=store, rank=rank, world_size=asked["ranks"], timeout=timeout
        )
        dist.barrier()
        answer["met_s"] = time.monotonic() - began_s
        answer["sums"] = [summed(torch, dist, asked, rank, size) for size in asked["sizes"]]
        dist.barrier()
        dist.destroy_process_group()
    except (RuntimeError, OSError, ValueError, AttributeError, TypeError) as error:
        answer["error"] = described(error)
    return answer


def summed(torch: Any, dist: Any, asked: dict[str, Any], rank: int, size: int) -> dict[str, Any]:
    """Runs an all-reduce of integers several times; returns the shortest time in seconds and the number of
    wrong elements.

    The sums are exact in float32.
    """
    on_gpu = asked["backend"] == "nccl"
    device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
    places = torch.arange(max(size // 4, 1), device=device) % 1021
    wanted = sum(((places * (one + 3)) % 509 for one in range(asked["ranks"])), torch.zeros_like(places))
    own = ((places * (rank + 3)) % 509).float()
    best_s, wrong = float("inf"), 0
    for _ in range(ROUNDS):
        data = own.clone()
        if on_gpu:
            torch.cuda.synchronize()
        dist.barrier()
        began_s = time.perf_counter()
        dist.all_reduce(data)
        if on_gpu:
            torch.cuda.synchronize()
        best_s = min(best_s, time.perf_counter() - began_s)
        wrong += int((data != wanted.float()).sum().item())
    return {"bytes": size, "best_s": best_s, "wrong": wrong}


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def described(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:ERROR_CHARS_MAX]


def say(value: dict[str, Any]) -> None:
    os.write(1, (MARK + json.dumps(value) + "\n").encode())


if __name__ == "__main__":
    main()
    os._exit(0)
