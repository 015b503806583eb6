"""Measures the journal: appends in durable batches, opening, and reading it all. Prints one line of JSON."""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from holdfast.journal.store import Row, Store, open_reader

BATCH_ROWS = 100
EVENT = (
    b'{"kind":"sample-taken","at_s":1767225600.125,"rank":%d,"pid":40213,"state":"R","main_cpu_s":812.25,'
    b'"tree_cpu_s":950.5,"io_bytes":734003200,"step":%d}'
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        print(json.dumps(measured(Path(folder, "journal.db"), rows)))


def measured(path: Path, rows: int) -> dict[str, float]:
    store = Store.open(path)
    batches = [
        [
            Row(1767225600.0 + n, "sample-taken", EVENT % (n % 8, n), b"[]", "")
            for n in range(start, start + BATCH_ROWS)
        ]
        for start in range(0, rows, BATCH_ROWS)
    ]
    began_s = time.perf_counter()
    for batch in batches:
        store.append(batch)
    append_s = time.perf_counter() - began_s
    began_s = time.perf_counter()
    read = sum(1 for _ in store.read_raw())
    raw_s = time.perf_counter() - began_s
    store.close()
    return {
        "rows": read,
        "append_rows_per_s": round(read / append_s),
        "read_raw_s": round(raw_s, 3),
        "reader_read_s": _timed(lambda: sum(1 for _ in open_reader(path).read())),
        "open_s": _timed(lambda: Store.open(path).close()),
        "file_mb": round(path.stat().st_size / 1e6, 1),
    }


def _timed(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return round(time.perf_counter() - began_s, 3)


if __name__ == "__main__":
    main()
