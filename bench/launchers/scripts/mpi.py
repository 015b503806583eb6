"""A rank of mpi4py alone."""

from fault import STEPS, step
from mpi4py import MPI

world = MPI.COMM_WORLD
for number in range(STEPS):
    step(number, world.rank, world.size, float(world.allreduce(number + world.rank)))
