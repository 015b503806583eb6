"""A training without arithmetic for the benches of many nodes: one rank a worker, in lockstep over TCP, resuming from checkpoints.

It tells the same moments as training.py, in a hundredth of its time and memory: what is measured and hit then is
Holdfast. Rank 0 is where all meet; a rank that is gone breaks the connection, one that is cut off holds all up, as with gloo.
What it comes to is a chain of sums over all steps: a step lost or done twice shows in the result.
"""

import argparse
import json
import os
import socket
import sys
import time
from pathlib import Path

COUNTERS = ("HOLDFAST_ATTEMPT", "MA_SCHEDULE_CNT", "MA_PROC_START_CNT")
CHECKPOINT_EVERY, LOG_EVERY = 10, 10
MEET_S = 60.0
PRIME = 2_147_483_647


def main() -> None:
    options = read_options()
    if "RANK" not in os.environ:  # a launcher of one rank
        ours = {"RANK": os.environ["NODE_RANK"], "LOCAL_RANK": "0", "WORLD_SIZE": os.environ["NNODES"]}
        os.execve(sys.executable, [sys.executable, "-S", *sys.argv], os.environ | ours)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    events = (options.folder / f"events.{rank}.jsonl").open("a", buffering=1)

    def tell(kind: str, **more: object) -> None:
        events.write(
            json.dumps({"at_s": time.time(), "kind": kind, "rank": rank, "pid": os.getpid()} | more) + "\n"
        )

    counted = {key.lower(): int(os.environ.get(key, "0")) for key in COUNTERS}
    tell("begun", master_port=int(os.environ["MASTER_PORT"]), **counted)
    others = met(rank, world)
    tell("met")
    step, total = resumed(options.folder / "checkpoint.json")
    tell("resumed", step=step)
    while step < last_step(options, step):
        begun_s = time.perf_counter()
        together(others, step)
        step += 1
        total = next_total(total, step)
        if step % CHECKPOINT_EVERY == 0 and rank == 0:
            write(options.folder / "checkpoint.json", {"step": step, "loss": total})
        time.sleep(max(0.0, options.step_s - (time.perf_counter() - begun_s)))
        tell("step", step=step, took_s=time.perf_counter() - begun_s)
        if step % LOG_EVERY == 0 and rank == 0:
            sys.stdout.write(f"step {step}/{options.steps} loss {1 / (1 + step):.6f}\n")
            sys.stdout.flush()
    together(others, step)
    if rank == 0:
        write(options.folder / "result.json", {"step": step, "loss": float(total)})
    tell("done", step=step)


def next_total(total: int, step: int) -> int:
    return (total * 31 + step) % PRIME


def met(rank: int, world: int) -> list[socket.socket]:
    """Connections to all others for rank 0, to rank 0 for the others."""
    where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    until_s = time.monotonic() + MEET_S
    if rank == 0:
        with socket.create_server(where) as server:
            server.settimeout(MEET_S)
            found = [server.accept()[0] for _ in range(world - 1)]
        for one in found:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return found
    while True:
        try:
            one = socket.create_connection(where, timeout=MEET_S)
            one.settimeout(None)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return [one]
        except OSError:
            if time.monotonic() > until_s:
                raise
            time.sleep(0.05)


def together(others: list[socket.socket], step: int) -> None:
    """Returns when all have come to this step. raises: RuntimeError, when one is gone or elsewhere"""
    word = step.to_bytes(8, "big")
    if int(os.environ["RANK"]) != 0:
        others[0].sendall(word)
    for one in others:
        said = b""
        while len(said) < len(word):
            more = one.recv(len(word) - len(said))
            if not more:
                raise RuntimeError(f"Connection closed by peer at step {step}")
            said += more
        if said != word:
            raise RuntimeError(f"a rank is at step {int.from_bytes(said, 'big')}, not {step}")
    if int(os.environ["RANK"]) == 0:
        for one in others:
            one.sendall(word)


def last_step(options: argparse.Namespace, step: int) -> int:
    """`last-step` in the folder, written well before that step is reached, ends the training there."""
    if step % CHECKPOINT_EVERY == 0 and (options.folder / "last-step").exists():
        options.steps = int((options.folder / "last-step").read_text())
    return int(options.steps)


def resumed(path: Path) -> tuple[int, int]:
    if not path.exists():
        return 0, 1
    saved = json.loads(path.read_text())
    return saved["step"], saved["loss"]


def write(path: Path, what: dict[str, object]) -> None:
    part = path.with_name(f"{path.name}.{os.environ.get('HOLDFAST_ATTEMPT', '0')}.part")
    part.write_text(json.dumps(what))
    part.replace(path)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--step-s", type=float, default=0.02)
    return parser.parse_args()


if __name__ == "__main__":
    main()
