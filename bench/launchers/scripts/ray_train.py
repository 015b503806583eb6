"""Ray Train's TorchTrainer with two workers on this machine."""

import os

import ray
from ddp import train
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer

HERE = os.path.dirname(os.path.abspath(__file__))
PATH = os.pathsep.join([os.environ.get("PYTHONPATH", ""), HERE])


def loop() -> None:
    train(ray.train.get_context().get_world_rank(), 2)


ray.init(num_cpus=2, include_dashboard=False, runtime_env={"env_vars": {"PYTHONPATH": PATH}})
TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=2, use_gpu=False)).fit()
