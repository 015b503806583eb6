"""Prints the PSS of a process that has imported what an agent has: before and after it exports metrics of eight devices.

    python -m bench.metrics_memory

The exporter is scraped ten times in both forms. Its modules are imported by their names, after the first look.
"""

import gc
import importlib
import select
import socket
import threading
from pathlib import Path
from typing import Any

AGENT = "holdfast.supervise.agent"
SCRAPES = 10
TURN_S = 0.1
ACCEPTED = ("application/openmetrics-text;version=1.0.0", "text/plain")


def main() -> None:
    importlib.import_module(AGENT)
    gc.collect()
    before = pss_mib()
    importlib.import_module("holdfast.supervise.monitoring.node")
    exporter = exported()
    done = threading.Event()

    def scrape() -> None:
        for accept in ACCEPTED * SCRAPES:
            get(int(exporter.address.rpartition(":")[2]), accept)
        done.set()

    threading.Thread(target=scrape, daemon=True).start()
    while not done.is_set():
        select.select(exporter.channels(), [], [], TURN_S)
        exporter.turn()
    print(before, pss_mib())
    exporter.close()


def exported() -> Any:
    exporters = importlib.import_module("holdfast.metrics.exporter")
    nodes = importlib.import_module("holdfast.core.metrics.node_samples")
    samples = importlib.import_module("holdfast.model.nodes.samples")
    devices = tuple(
        samples.DeviceSample(
            index=n, utilization=1.0, sm_active=0.9, power_w=600.0, temperature_c=60, memory_used_bytes=1
        )
        for n in range(8)
    )
    facts = nodes.NodeFacts(job="pretrain", node="node-0001", version="1", devices=devices, devices_age_s=0.5)
    where = exporters.Exported(address="127.0.0.1:0")

    def collect() -> Any:
        return lambda: nodes.node_samples(facts)

    return exporters.Exporter(where, "agent", ("1", "3"), collect, exporters.Own, lambda text: None)


def get(port: int, accept: str) -> None:
    """Without an HTTP client, which would count as memory of the exporter."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(f"GET /metrics HTTP/1.1\r\nAccept: {accept}\r\n\r\n".encode())
        while client.recv(1 << 16):
            pass


def pss_mib() -> float:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Pss:")).split()[1]) / 1024


if __name__ == "__main__":
    main()
