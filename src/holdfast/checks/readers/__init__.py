"""What checks read: files of the machine, NVML, tools of vendors, the kernel log."""
