"""Writes a tree of logs as a large job leaves it: one file for each rank, quiet steps, noise, one fault.

    python -m bench.diagnosis.log_tree FOLDER --gib 2 --ranks 1024

Rank 517 runs out of GPU memory; the others lose it, wait, and are ended. With --quiet nothing goes wrong. The same
arguments write the same bytes.
"""

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

RANKS_PER_WORKER = 8
CULPRIT = 517
POOL_BLOCKS = 48
BLOCK_LINES = 8000
CLOCK_FROM_S = 9 * 3600


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gib", type=float, default=2.0)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--quiet", action="store_true")
    arguments = parser.parse_args()
    size = write_tree(arguments.folder, arguments.gib, arguments.ranks, is_quiet=arguments.quiet)
    print(f"{size / 2**30:.2f} GiB in {arguments.ranks} logs under {arguments.folder}")


def write_tree(folder: Path, gib: float, ranks: int, *, is_quiet: bool = False, seed: int = 1) -> int:
    """Bytes written."""
    dice = random.Random(seed)
    pool = [b"".join(_steps(dice, number * BLOCK_LINES)) for number in range(POOL_BLOCKS)]
    each_bytes = int(gib * 2**30 / ranks)
    total = 0
    for rank in range(ranks):
        place = folder / f"worker-{rank // RANKS_PER_WORKER}" / f"rank-{rank}.log"
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("wb") as file:
            file.write(b"".join(_start(rank, ranks)))
            block = rank
            while (left := each_bytes - file.tell()) > 0:
                file.write(pool[block % POOL_BLOCKS][: left if left > 200 else None])
                block += 1
            if not is_quiet:
                file.write(b"\n" + b"".join(_end(rank, min(CULPRIT, ranks - 1))))
            total += file.tell()
    return total


def _steps(dice: random.Random, first: int) -> Iterator[bytes]:
    for step in range(first, first + BLOCK_LINES):
        at_s = CLOCK_FROM_S + step * 2
        stamp = b"2026-03-%02d %02d:%02d:%02d,%03d" % (
            1 + at_s // 86400 % 28,
            at_s // 3600 % 24,
            at_s // 60 % 60,
            at_s % 60,
            dice.randrange(1000),
        )
        yield (
            b"%s INFO train.py:214 step %d/900000 | loss: %.4f | lr: %.3e | grad_norm: %.3f | tok/s: %.1f | mem: %.2f GiB\n"
        ) % (
            stamp,
            step,
            2 + dice.random(),
            3e-4 * dice.random(),
            dice.random(),
            9e3 * dice.random(),
            60 + dice.random(),
        )
        if step % 100 == 0:
            yield stamp + b" INFO eval.py:51 validation at step %d: loss %.4f, perplexity %.2f\n" % (
                step,
                2 + dice.random(),
                8 + dice.random(),
            )
        if step % 500 == 0:
            yield stamp + b" INFO checkpoint.py:88 saved /data/run/checkpoint-%d in %.1f s\n" % (
                step,
                20 * dice.random(),
            )
        if step % 1000 == 0:
            yield (
                stamp
                + b" WARNING loader.py:140 shard %05d took %.1f s to open, retrying is not needed\n"
                % (
                    dice.randrange(99999),
                    9 * dice.random(),
                )
            )


def _start(rank: int, ranks: int) -> Iterator[bytes]:
    local = rank % RANKS_PER_WORKER
    head = b"gpu-%04d:%d:%d [%d] NCCL INFO " % (rank // RANKS_PER_WORKER, 4000 + rank, 4100 + rank, local)
    yield b"/opt/venv/lib/python3.11/site-packages/torch/distributed/c10d_logger.py:79: FutureWarning: `reduce_op` is old\n"
    yield b"Setting OMP_NUM_THREADS environment variable for each process to be 1 in default\n"
    yield head + b"NCCL version 2.26.2+cuda12.8\n"
    yield head + b"NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.%d<0>\n" % (rank % 250)
    for channel in range(16):
        peer = (rank + 1) % ranks
        yield head + b"Channel %02d/0 : %d[%d] -> %d[%d] [send] via NET/IB/%d/GDRDMA\n" % (
            channel,
            rank,
            local,
            peer,
            peer % RANKS_PER_WORKER,
            channel % 8,
        )
    yield head + b"comm 0x55d5c%06x rank %d nranks %d cudaDev %d - Init COMPLETE\n" % (
        rank,
        rank,
        ranks,
        local,
    )


def _end(rank: int, culprit: int) -> Iterator[bytes]:
    stamp = b"2026-03-28 12:00:%02d,%03d" % (1 + (rank != culprit) * (rank % 50), rank % 1000)
    if rank == culprit:
        yield b"[rank%d]: Traceback (most recent call last):\n" % rank
        yield b'[rank%d]:   File "/data/run/train.py", line 230, in <module>\n[rank%d]:     main()\n' % (
            rank,
            rank,
        )
        yield b'[rank%d]:   File "/data/run/train.py", line 188, in main\n[rank%d]:     loss.backward()\n' % (
            rank,
            rank,
        )
        yield (
            b"[rank%d]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.25 GiB. GPU %d has a total "
            b"capacity of 79.11 GiB of which 1.20 GiB is free. Process 4517 has 77.90 GiB memory in use.\n"
        ) % (rank, rank % RANKS_PER_WORKER)
        return
    yield (
        b"[rank%d]:[E328 12:10:%02d.000000000 ProcessGroupNCCL.cpp:632] [Rank %d] Watchdog caught collective operation "
        b"timeout: WorkNCCL(SeqNum=88123, OpType=ALLREDUCE, NumelIn=25600000, NumelOut=25600000, Timeout(ms)=600000) "
        b"ran for 600041 milliseconds before timing out.\n"
    ) % (rank, rank % 50, rank)
    yield stamp + b" INFO train.py:99 received SIGTERM, leaving\n"


if __name__ == "__main__":
    main()
