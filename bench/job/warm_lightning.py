"""A training of `warm_soak.py` by Lightning, which starts the second rank itself."""

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from warm_life import CHECKPOINTS, SAVE_EVERY, STEPS, Life, Tiny


class Module(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.tiny = Tiny()

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        return self.tiny(batch[0], batch[1])["loss"]  # type: ignore[no-any-return]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.001, momentum=0.9)


class Watched(Callback):
    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        self.life = Life(trainer.global_rank, trainer.world_size)

    def on_train_batch_end(self, trainer: Trainer, module: LightningModule, *rest: object) -> None:
        self.life.step(trainer.global_step)


def main() -> None:
    watched, module = Watched(), Module()
    data = torch.utils.data.TensorDataset(torch.ones(STEPS * 2, 4), torch.ones(STEPS * 2))
    saved = ModelCheckpoint(CHECKPOINTS, save_last=True, every_n_train_steps=SAVE_EVERY)
    last = CHECKPOINTS / "last.ckpt"
    Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_steps=STEPS,
        callbacks=[saved, watched],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    ).fit(
        module,
        torch.utils.data.DataLoader(data, batch_size=1),
        ckpt_path=str(last) if last.exists() else None,
    )
    watched.life.end(module)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
