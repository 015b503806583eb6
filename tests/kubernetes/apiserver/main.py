"""Runs the API server with its controllers and kubelets in a process of its own.

    python -m kubernetes.apiserver.main FOLDER [--nodes N] [--port PORT]

Prints its port. Tests set faults and read counts at /_test/.
"""

import argparse
import asyncio
import contextlib
import signal
import sys
from pathlib import Path

from kubernetes.apiserver.api import Api
from kubernetes.apiserver.control import Control
from kubernetes.apiserver.controllers.all import Controllers
from kubernetes.apiserver.faults import Faults
from kubernetes.apiserver.http_server import HttpServer
from kubernetes.apiserver.kubelet import Kubelets
from kubernetes.apiserver.pod_exec import PodExec
from kubernetes.apiserver.trainer_server import StatusServer


async def serve(arguments):
    folder = Path(arguments.folder)
    faults = Faults()
    api = Api(faults)
    trainer = StatusServer(api.store, folder)
    controllers = Controllers(
        api.store, trainer, node_grace_s=arguments.node_grace, backoff_s=arguments.backoff
    )
    kubelets = Kubelets(api.store, folder, faults, arguments.backoff)
    control = Control(api, faults, kubelets, controllers)
    server = HttpServer(control.handle)
    control.server = server
    faults.writer_killed = kubelets.kill_controllers
    api.logs = kubelets.logs
    api.exec = PodExec(kubelets)
    await server.start(arguments.port)
    if arguments.trainer_status:
        await trainer.start()
    kubelets.start(arguments.nodes, f"http://127.0.0.1:{server.port}")
    over = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    turning = asyncio.create_task(controllers.run(faults))
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.flush()
    waiting = asyncio.create_task(over.wait())
    await asyncio.wait([waiting, turning], return_when=asyncio.FIRST_COMPLETED)
    kubelets.end()
    if turning.done():
        turning.result()
    turning.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await turning


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--nodes", type=int, default=0)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--node-grace", type=float, default=50.0)
    parser.add_argument("--backoff", type=float, default=10.0, help="the first, of Jobs and of containers")
    parser.add_argument("--trainer-status", action="store_true", help="Trainer's feature gate TrainJobStatus")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
