"""Readers for checks: files of the machine, NVML, vendor tools, the kernel log."""
