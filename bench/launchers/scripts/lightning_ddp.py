"""Lightning's own launchers: strategies `ddp` (subprocesses) and `ddp_spawn`, and Fabric."""

import sys

import lightning
import torch
import torch.distributed as dist
from ddp import train
from fault import STEPS, step


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, index):
        value = torch.tensor([float(index + self.global_rank)])
        dist.all_reduce(value)
        step(index, self.global_rank, 2, value.item())
        return self.layer(batch[0]).pow(2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


if __name__ == "__main__":
    if sys.argv[1] == "fabric":
        fabric = lightning.Fabric(accelerator="cpu", devices=2, strategy="ddp")
        fabric.launch()
        train(fabric.global_rank, 2)
    else:
        data = torch.utils.data.TensorDataset(torch.randn(STEPS * 2 * 4, 8))
        loader = torch.utils.data.DataLoader(data, batch_size=4)
        lightning.Trainer(
            accelerator="cpu",
            devices=2,
            strategy=sys.argv[1],
            max_epochs=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        ).fit(Module(), loader)
