"""Holds the GPU's memory, all but LEFT bytes, or keeps the GPU busy, until it is killed. Arguments: memory LEFT | busy."""

import sys
import time

import torch

if sys.argv[1] == "memory":
    free, _ = torch.cuda.mem_get_info()
    held = torch.empty(max(1, free - int(sys.argv[2])), dtype=torch.uint8, device="cuda")
    print("ready", flush=True)
    time.sleep(600)
size = torch.randn(4096, 4096, device="cuda")
print("ready", flush=True)
while True:
    size @ size
    torch.cuda.synchronize()
