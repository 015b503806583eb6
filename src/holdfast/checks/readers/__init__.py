"""Reads what checks need from the node: kernel files, NVML, vendor tools, the kernel log."""
