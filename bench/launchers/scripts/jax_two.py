"""One of two processes of JAX on CPU."""

import os
import sys

import jax
import jax.numpy as jnp
from fault import STEPS, step
from jax.experimental import multihost_utils

rank = int(sys.argv[1])
jax.distributed.initialize(f"127.0.0.1:{os.environ['MASTER_PORT']}", 2, rank)
for number in range(STEPS):
    found = multihost_utils.process_allgather(jnp.array([float(number + rank)]))
    step(number, rank, 2, float(found.sum()))
