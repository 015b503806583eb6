"""A training of `warm_soak.py` by the Hugging Face Trainer, under torchrun."""

import torch
import torch.distributed as dist
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint
from warm_life import CHECKPOINTS, SAVE_EVERY, STEPS, Life, Tiny


class Watched(TrainerCallback):  # type: ignore[misc]
    def on_train_begin(self, args: object, state: object, control: object, **rest: object) -> None:
        self.life = Life(dist.get_rank(), dist.get_world_size())

    def on_step_end(self, args: object, state: object, control: object, **rest: object) -> None:
        self.life.step(state.global_step)  # type: ignore[attr-defined]


def main() -> None:
    watched, model = Watched(), Tiny()
    arguments = TrainingArguments(
        output_dir=str(CHECKPOINTS),
        max_steps=STEPS,
        per_device_train_batch_size=1,
        learning_rate=0.001,
        report_to=[],
        save_steps=SAVE_EVERY,
        save_total_limit=2,
        use_cpu=True,
        ddp_backend="gloo",
        disable_tqdm=True,
    )
    data = [{"x": torch.ones(4), "labels": torch.tensor(1.0)} for _ in range(STEPS * 4)]
    made = Trainer(model=model, args=arguments, train_dataset=data, callbacks=[watched])
    last = get_last_checkpoint(str(CHECKPOINTS)) if CHECKPOINTS.exists() else None
    made.train(resume_from_checkpoint=last)
    watched.life.end(model)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
