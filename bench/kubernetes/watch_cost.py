"""What it costs the controller to watch thousands of pods: processor, memory, lists.

A process of its own holds the engine `kubernetes` and turns it ten times a second, while the API server of the tests
changes the status of pods at a steady rate and drops all connections twice. Without agents: those are
bench/many_nodes/controller.py.

    python -m bench.kubernetes.watch_cost --pods 2048 --seconds 30 --changes 200
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
import psutil

from holdfast.engines.kubernetes.connection import connect
from holdfast.engines.kubernetes.engine import Identity, KubernetesEngine
from holdfast.engines.kubernetes.kinds import KINDS
from holdfast.engines.nodes import JobPlace

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from kubernetes.server import Server

LABELS = {"holdfast.dev/job": "t", "holdfast.dev/role": "worker"}
TURN_S = 0.1
MEMORY_MAX_MIB, CORES_MAX = 300, 1.0


def pod(number: int) -> dict[str, object]:
    """About as large as real ones: a status of each container, environment, volumes."""
    env = [{"name": f"SETTING_{key}", "value": "x" * 40} for key in range(40)]
    container = {
        "name": "training",
        "image": "registry.example/training:1",
        "command": ["holdfast", "agent"],
        "env": env,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"t-{number}", "labels": LABELS},
        "spec": {"containers": [container], "nodeName": f"gpu-{number}", "restartPolicy": "Never"},
    }


def running(number: int, beat: int) -> dict[str, object]:
    status = {
        "name": "training",
        "image": "registry.example/training:1",
        "ready": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
    }
    return {
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.1",
            "message": str(beat),
            "containerStatuses": [status],
        }
    }


def main() -> int:
    options = read_options()
    if options.url:
        return hold(options)
    with tempfile.TemporaryDirectory(prefix="kubernetes-watch-") as folder:
        server = Server(Path(folder) / "cluster")
        try:
            return measure(server, Path(folder), options)
        finally:
            server.close()


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pods", type=int, default=2048)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--changes", type=float, default=200.0, help="of pods, each second")
    parser.add_argument("--url", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


def measure(server: Server, folder: Path, options: argparse.Namespace) -> int:
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "t"}}
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "x", "image": "x"}]}}
    server.create({**job, "spec": {"suspend": True, "template": template}})
    for number in range(options.pods):
        server.create(pod(number))
        server.merge(f"/api/v1/namespaces/default/pods/t-{number}/status", running(number, 0))
    command = [sys.executable, "-m", "bench.kubernetes.watch_cost", "--url", str(server.kubeconfig)]
    process = subprocess.Popen([*command, "--pods", str(options.pods)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        seen = psutil.Process(process.pid)
        before, begun_s = sum(seen.cpu_times()[:2]), time.monotonic()
        made = change(server, options, begun_s)
        cores = (sum(seen.cpu_times()[:2]) - before) / (time.monotonic() - begun_s)
        memory = seen.memory_info().rss / (1 << 20)
    finally:
        process.terminate()
        process.wait()
    counts = server.control("counts")
    row = {
        "pods": options.pods,
        "known": first["nodes"],
        "first_list_s": first["took_s"],
        "changes_a_second": round(made / options.seconds, 1),
        "cores": round(cores, 3),
        "memory_mib": round(memory, 1),
        "list_requests": counts["list pods"],
        "watches": counts["watch pods"],
    }
    print(json.dumps(row))
    pages = -(-options.pods // 500)
    good = cores <= CORES_MAX and memory <= MEMORY_MAX_MIB and counts["list pods"] == pages
    return 0 if good and first["nodes"] == options.pods else 1


def change(server: Server, options: argparse.Namespace, begun_s: float) -> int:
    """Changes pods at the rate asked for, or as fast as the server can; drops all watches twice."""
    client = httpx.Client(base_url=server.url, trust_env=False)
    made, drops = 0, [options.seconds / 3, options.seconds * 2 / 3]
    while (passed_s := time.monotonic() - begun_s) < options.seconds:
        if drops and passed_s >= drops[0]:
            drops.pop(0)
            client.close()
            server.control("drop")
            time.sleep(0.3)  # its own requests are not to be cut
            client = httpx.Client(base_url=server.url, trust_env=False)
        if made < passed_s * options.changes:
            number = made % options.pods
            path, patch = f"/api/v1/namespaces/default/pods/t-{number}/status", running(number, made)
            answer = client.patch(path, json=patch, headers={"Content-Type": "application/merge-patch+json"})
            assert answer.status_code == 200, answer.text
            made += 1
        else:
            time.sleep(0.002)
    return made


def hold(options: argparse.Namespace) -> int:
    """The engine, as a controller holds it."""
    connection = connect({"KUBECONFIG": options.url})
    identity = Identity("t", "default", KINDS["job"], "t", "127.0.0.1", f"bench/{os.getpid()}")
    engine = KubernetesEngine(connection, identity)
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        engine.listen(Path(folder))
        engine.begin(JobPlace(job="t", folder=Path(folder), addresses=(), secret_file=Path(folder)))
        while len(engine.nodes) < options.pods:
            engine.turn()
        print(
            json.dumps({"nodes": len(engine.nodes), "took_s": round(time.monotonic() - begun_s, 2)}),
            flush=True,
        )
        over = threading.Event()
        while not over.wait(TURN_S):
            engine.turn()
    return 0


if __name__ == "__main__":
    sys.exit(main())
