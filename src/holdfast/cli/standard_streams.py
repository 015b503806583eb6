"""Input, output and errors of a process whose caller may have closed them."""

import os
import sys


def fill_standard_streams() -> None:
    """Where the caller closed one of 0, 1, 2, the next file opened would take its number and be written to."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        continue
    os.close(number)
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)
