"""Checks NVIDIA and AMD GPUs: presence, driver, memory, links, clocks, use, Xid errors, benchmarks."""
