"""Serves the subresource `log` of pods: whole, or followed, with times.

source: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/ (read log of the specified Pod)

The time of a line is the time at which it was first read here.
"""

import asyncio
import time
from contextlib import suppress

from kubernetes.apiserver.answers import Failure, seconds
from kubernetes.apiserver.http_server import Answer

LOOK_S = 0.05
BLOCK_BYTES = 1 << 18
KUBELET_S = 10.0  # after which the server gives a silent kubelet up


class _Lines:
    """The lines of one log file, each with the time of its reading."""

    def __init__(self, path):
        self._path, self._offset, self._rest = path, 0, b""
        self.lines = []

    def read(self):
        with suppress(OSError), self._path.open("rb") as file:
            file.seek(self._offset)
            block = file.read(BLOCK_BYTES)
            self._offset += len(block)
            *whole, self._rest = (self._rest + block).split(b"\n")
            at_s = time.time()
            for line in whole:
                self.lines.append((max(at_s, self.lines[-1][0] + 1e-6 if self.lines else 0.0), line))


class PodLogs:
    def __init__(self, kubelets):
        self._all = kubelets
        self._files = {}

    async def answer(self, pod, query):
        run = self._all.runs.get(pod["metadata"]["uid"])
        if run is not None and run.node in self._all.frozen:
            await asyncio.sleep(KUBELET_S)
            raise Failure(500, "Get https://node:10250/containerLogs: dial tcp: i/o timeout")
        if run is None or not run.log.exists():
            name = pod["spec"]["containers"][0]["name"]
            raise Failure(
                400,
                f'container "{name}" in pod "{pod["metadata"]["name"]}" is waiting to start: ContainerCreating',
            )
        return Answer(200, stream=self._stream(run, query), type="text/plain")

    async def _stream(self, run, query):
        lines = self._files.setdefault(run.uid, _Lines(run.log))
        lines.read()
        since_s = seconds(query["sinceTime"]) if query.get("sinceTime") else 0.0
        number = 0
        if query.get("tailLines"):
            number = max(0, len(lines.lines) - int(query["tailLines"]))
        while True:
            is_last = run.is_over
            lines.read()
            part = b""
            while number < len(lines.lines):
                at_s, line = lines.lines[number]
                number += 1
                if at_s >= since_s:
                    part += (_stamp(at_s) if query.get("timestamps") == "true" else b"") + line + b"\n"
            if part:
                yield part
            elif is_last or query.get("follow") != "true":
                return
            if query.get("follow") == "true":
                await asyncio.sleep(LOOK_S)


def _stamp(at_s):
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at_s))
    return f"{whole}.{int(at_s % 1 * 1e9):09d}Z ".encode()
