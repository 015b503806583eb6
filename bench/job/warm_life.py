"""What trainings of `warm_soak.py` by frameworks have in common: events, faults and a tiny model.

Two ranks over gloo, a checkpoint every few steps, one fault in each attempt, as in `warm_training.py`. `steps` in the folder:
after how many the training ends. Data are the same in each batch, so what is learned depends on the number of steps alone.
WARM_STEP_S: seconds of rest after each step.
"""

import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from warm_training import FOLDER, fail, setting

SAVE_EVERY = 5
STEPS = int((FOLDER / "steps").read_text())
STEP_S = float(os.environ.get("WARM_STEP_S", "0"))
CHECKPOINTS = FOLDER / "checkpoints"


class Life:
    """What one rank tells of one attempt, and its fault."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.is_last, self.done = rank, rank == size - 1, 0
        self.events = (FOLDER / f"events.{rank}").open("a", buffering=1)
        self.events.write(f"begun {json.dumps(setting())}\n")
        if Path(f"/proc/{os.getppid()}/comm").read_text().strip() == "holdfast-zygote":
            self.events.write("forked\n")
        faults = json.loads((FOLDER / "faults.json").read_text())
        count = FOLDER / f"count.{rank}"
        attempt = int(count.read_text()) if count.exists() else 0
        count.write_text(str(attempt + 1))
        self.fault = faults[attempt] if attempt < len(faults) else None

    def step(self, number: int) -> None:
        """To be called after each step of this attempt."""
        self.done += 1
        self.events.write(f"step {number} {time.time():.3f}\n")
        time.sleep(STEP_S)
        if self.rank == 0:
            print(f"step {number} loss {1 / number:.6f}", flush=True)
        if self.fault is not None and self.done >= self.fault[0]:
            dist.barrier()
            if self.is_last:
                self.events.write(f"struck {time.time():.3f}\n")
                fail(self.fault[1])

    def end(self, model: torch.nn.Module) -> None:
        if self.rank == 0:
            total = sum(float(one.detach().double().abs().sum()) for one in model.parameters())
            (FOLDER / "loss").write_text(f"{total:.12f}")


class Tiny(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": (self.layer(x).squeeze(-1) - labels).pow(2).mean()}
