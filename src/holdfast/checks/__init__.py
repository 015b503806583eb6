"""Checks machines: boot check, troubleshooting and benchmarks. One registry, and a runner that never blocks."""
