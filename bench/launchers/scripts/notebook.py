"""Accelerate's notebook_launcher."""

import os

from accelerate import Accelerator, notebook_launcher
from ddp import train


def work() -> None:
    train(Accelerator(cpu=True).process_index, 2)


if __name__ == "__main__":
    notebook_launcher(work, (), num_processes=2, use_port=os.environ["MASTER_PORT"])
