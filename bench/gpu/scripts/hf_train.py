"""Trains a tiny network with Hugging Face's Trainer, which saves and resumes by itself; four faults on request.

Arguments: FOLDER [FAULT ...]. Fault number i (from 1) comes after step 20 i, once in the life of the job.
"""

import sys
import time
from pathlib import Path

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from faults import FAULTS

STEPS, FAULT_EVERY, SAVE_EVERY, STEP_S = 120, 20, 5, 0.05


class Tiny(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": (self.layer(x).squeeze(-1) - labels).pow(2).mean()}


class Faults(TrainerCallback):
    def __init__(self, folder: Path, names: list[str], device: torch.device) -> None:
        self._folder, self._names, self._device = folder, names, device

    def on_step_end(self, args: object, state: object, control: object, **rest: object) -> None:
        time.sleep(STEP_S)
        number, left = divmod(state.global_step, FAULT_EVERY)  # type: ignore[attr-defined]
        if left == 0 and 0 < number <= len(self._names):
            try:
                with (self._folder / f"fault-{number}").open("x") as note:
                    note.write(f"{time.time()} {self._names[number - 1]}\n")
            except FileExistsError:
                return
            FAULTS[self._names[number - 1]](self._device)


folder, has_cuda = Path(sys.argv[1]), torch.cuda.is_available()
torch.manual_seed(0)
data = [{"x": torch.arange(4.0) + i % 7, "labels": torch.tensor(float(i % 5))} for i in range(STEPS)]
arguments = TrainingArguments(
    output_dir=str(folder / "checkpoints"),
    max_steps=STEPS,
    per_device_train_batch_size=1,
    report_to=[],
    save_steps=SAVE_EVERY,
    save_total_limit=2,
    logging_steps=1,
    seed=0,
    use_cpu=not has_cuda,
    ddp_backend="gloo",
)
device = torch.device("cuda", 0) if has_cuda else torch.device("cpu")
trainer = Trainer(
    model=Tiny(), args=arguments, train_dataset=data, callbacks=[Faults(folder, sys.argv[2:], device)]
)
(folder / "checkpoints").mkdir(exist_ok=True)
trainer.train(resume_from_checkpoint=get_last_checkpoint(str(folder / "checkpoints")))
weights = torch.cat([value.detach().cpu().flatten() for value in trainer.model.parameters()])
print(f"RESULT {weights.double().sum().item():.6f}", flush=True)
