"""Is the machine fit: boot check, troubleshooting and benchmarks. One registry, and a runner that nothing can hang."""
