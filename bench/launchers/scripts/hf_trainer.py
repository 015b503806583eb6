"""Hugging Face's Trainer with a tiny model under torchrun; the fault comes in a callback, after a step."""

import os
import tempfile

import torch
import torch.distributed as dist
from fault import STEPS, step
from transformers import Trainer, TrainerCallback, TrainingArguments


class Tiny(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": (self.layer(x).squeeze(-1) - labels).pow(2).mean()}


class Fault(TrainerCallback):
    def on_step_end(self, args: object, state: object, control: object, **rest: object) -> None:
        number, rank, size = state.global_step - 1, dist.get_rank(), dist.get_world_size()  # type: ignore[attr-defined]
        value = torch.tensor([float(number + rank)])
        dist.all_reduce(value)
        step(number, rank, size, value.item())


torch.set_num_threads(1)
data = [{"x": torch.ones(4), "labels": torch.tensor(1.0)} for _ in range(STEPS * 4)]
arguments = TrainingArguments(
    output_dir=tempfile.mkdtemp(),
    max_steps=STEPS,
    per_device_train_batch_size=1,
    report_to=[],
    save_strategy="no",
    use_cpu=True,
    ddp_backend="gloo",
    disable_tqdm=os.environ.get("RANK") != "0",
)
Trainer(model=Tiny(), args=arguments, train_dataset=data, callbacks=[Fault()]).train()
