"""Trains a small network by data parallelism over ranks that one process computes in turn, and logs as real trainings do.

Deterministic: equal plans give equal logs in all digits. Benches of comparisons and bisections use it.
"""

import hashlib
import math
import struct
from pathlib import Path

import torch
from msgspec import Struct

FEATURES, HIDDEN, CLASSES, BATCH = 24, 32, 6, 16
FORMS = ("megatron", "dict", "words")


class Plan(Struct, frozen=True, kw_only=True):
    """One run. The fields after `names_data` plant a difference, which begins at step `at`."""

    steps: int = 60
    ranks: int = 3
    seed: int = 0
    data_seed: int = 0
    rate: float = 0.05
    form: str = "words"
    names_data: bool = False
    shows_rate: bool = True
    at: int = 0  # 0: nothing is planted
    swaps_data: bool = False  # this step's batches and those of the next change places
    rate_factor: float = 1.0  # from `at` on
    wrong_rank: int | None = None  # it has other data at this one step
    low_precision: bool = False  # bfloat16 from `at` on
    flipped_bit: int | None = None  # of one weight, after the update of step `at` - 1


def train(plan: Plan, folder: Path) -> None:
    """Trains by the plan and writes one log for each rank."""
    folder.mkdir(parents=True, exist_ok=True)
    random = torch.Generator().manual_seed(plan.seed)
    weights = [
        torch.randn(FEATURES, HIDDEN, generator=random) / math.sqrt(FEATURES),
        torch.randn(HIDDEN, CLASSES, generator=random) / math.sqrt(HIDDEN),
    ]
    teacher = torch.randn(FEATURES, CLASSES, generator=torch.Generator().manual_seed(7))
    logs: list[list[str]] = [[f"seed={plan.seed} ranks={plan.ranks}"] for _ in range(plan.ranks)]
    for step in range(1, plan.steps + 1):
        if plan.flipped_bit is not None and step == plan.at:
            _flip(weights[0], plan.flipped_bit)
        for weight in weights:
            weight.requires_grad_(True)
            weight.grad = None
        losses, names = [], []
        for rank in range(plan.ranks):
            inputs = _inputs(plan, step, rank)
            names.append(hashlib.blake2b(inputs.numpy().tobytes(), digest_size=4).hexdigest())
            loss = _loss(
                inputs, teacher, weights, low=plan.low_precision and bool(plan.at) and step >= plan.at
            )
            (loss / plan.ranks).backward()  # type: ignore[no-untyped-call]
            losses.append(loss.item())
        norm = math.sqrt(
            sum(float((weight.grad.double() ** 2).sum()) for weight in weights if weight.grad is not None)
        )
        rate = plan.rate * (plan.rate_factor if plan.at and step >= plan.at else 1.0)
        with torch.no_grad():
            weights = [weight.detach() - rate * weight.grad for weight in weights if weight.grad is not None]
        for rank, lines in enumerate(logs):
            lines.append(_line(plan, step, losses[rank], norm, rate, names[rank]))
    for rank, lines in enumerate(logs):
        (folder / f"rank-{rank}.log").write_text("\n".join(lines) + "\n")


def _inputs(plan: Plan, step: int, rank: int) -> torch.Tensor:
    if plan.swaps_data and plan.at <= step <= plan.at + 1:
        step = 2 * plan.at + 1 - step
    wrong = 1 if plan.wrong_rank == rank and step == plan.at else 0
    number = ((plan.data_seed * 1_000 + step) * 64 + rank) * 2 + wrong
    return torch.randn(BATCH, FEATURES, generator=torch.Generator().manual_seed(number))


def _loss(
    inputs: torch.Tensor, teacher: torch.Tensor, weights: list[torch.Tensor], *, low: bool
) -> torch.Tensor:
    labels = (inputs @ teacher).argmax(1)
    if low:
        inputs, weights = inputs.bfloat16(), [weight.bfloat16() for weight in weights]
    return torch.nn.functional.cross_entropy((torch.tanh(inputs @ weights[0]) @ weights[1]).float(), labels)


def _flip(weight: torch.Tensor, bit: int) -> None:
    """Flips one bit of one weight's 32."""
    value = weight.view(-1)[5].item()
    (number,) = struct.unpack("<I", struct.pack("<f", value))
    (flipped,) = struct.unpack("<f", struct.pack("<I", number ^ (1 << bit)))
    weight.view(-1)[5] = flipped


def _line(plan: Plan, step: int, loss: float, norm: float, rate: float, name: str) -> str:
    data = {
        "megatron": f" batch hash: {name} |",
        "dict": f", 'batch_hash': '{name}'",
        "words": f" batch_hash={name}",
    }
    if plan.form == "megatron":
        shown = f" learning rate: {rate:.6E} |" if plan.shows_rate else ""
        tail = data[plan.form] if plan.names_data else ""
        return (
            f" [2026-03-01 10:{step // 60:02d}:{step % 60:02d}] iteration {step:8d}/{plan.steps:8d} | "
            f"elapsed time per iteration (ms): 500.0 |{shown} global batch size:    48 | "
            f"lm loss: {loss:.8E} | grad norm: {norm:.6f} |{tail}"
        )
    if plan.form == "dict":
        shown = f", 'learning_rate': {rate:.6e}" if plan.shows_rate else ""
        tail = data[plan.form] if plan.names_data else ""
        return f"{{'step': {step}, 'loss': {loss:.8f}, 'grad_norm': {norm:.6f}{shown}{tail}}}"
    shown = f" lr: {rate:.6e}" if plan.shows_rate else ""
    return f"step {step}/{plan.steps} loss: {loss:.8f} grad_norm: {norm:.6f}{shown}{data[plan.form] if plan.names_data else ''}"
