"""Serves the subresource `exec` of pods: a command beside the container's own processes, over a WebSocket.

| behaviour | source |
|---|---|
| channels 0 to 4: stdin, stdout, stderr, status, resize; 255 closes one (v5) | KEP-4006, k8s.io/apimachinery remotecommand constants |
| the status is `Success`, or `NonZeroExitCode` with the code as a cause | k8s.io/client-go tools/remotecommand |
| a container that does not run: 400; a node that does not answer: 500 | kubernetes.io/docs/concepts/architecture/control-plane-node-communication |
"""

import asyncio
import fcntl
import json
import os
import pty
import struct
import subprocess
import termios
from contextlib import suppress

from kubernetes.apiserver.answers import Failure
from kubernetes.apiserver.http_server import Answer
from kubernetes.apiserver.websocket import WebSocket, accepted

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
STDIN, STDOUT, STDERR, STATUS, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
KUBELET_S = 10.0
BLOCK_BYTES = 1 << 16


class PodExec:
    def __init__(self, kubelets):
        self._all = kubelets

    async def answer(self, pod, request):
        run = self._all.runs.get(pod["metadata"]["uid"])
        if run is not None and run.node in self._all.frozen:
            await asyncio.sleep(KUBELET_S)
            raise Failure(500, "error dialing backend: dial tcp: i/o timeout")
        if run is None or not run.runs:
            raise Failure(400, f"container not found in pod {pod['metadata']['name']}")
        head, _ = accepted(request, (V5, V4))
        if head is None:
            raise Failure(400, "Upgrade request required")
        wanted = {name: value == "true" for name, value in request.pairs if name in ("tty", "stdin")}
        words = [value for name, value in request.pairs if name == "command"]
        return Answer(
            101, upgrade=(head, lambda reader, writer: self._serve(run, words, wanted, reader, writer))
        )

    async def _serve(self, run, words, wanted, reader, writer):
        socket = WebSocket(reader, writer)
        ours, theirs = pty.openpty() if wanted.get("tty") else (None, None)
        where = theirs if theirs is not None else asyncio.subprocess.PIPE
        words, env = run.beside(words)
        try:
            process = await asyncio.create_subprocess_exec(
                *words,
                stdin=where if wanted.get("stdin") else subprocess.DEVNULL,
                stdout=where,
                stderr=where,
                env=env,
                cwd=str(run.folder),
                start_new_session=True,
                preexec_fn=_own_terminal if theirs is not None else None,
            )
        except OSError as error:
            await socket.send(bytes((STATUS,)) + _status(None, str(error)))
            await socket.close()
            return
        if theirs is not None:
            os.close(theirs)
        listening = asyncio.create_task(_hear(socket, process, ours))
        if ours is not None:
            await _pass_terminal(socket, ours)
        else:
            await asyncio.gather(_pass(socket, STDOUT, process.stdout), _pass(socket, STDERR, process.stderr))
        code = await process.wait()
        with suppress(ConnectionError):
            await socket.send(bytes((STATUS,)) + _status(code))
            await socket.close()
        listening.cancel()
        if ours is not None:
            os.close(ours)


def _own_terminal():
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


async def _hear(socket, process, terminal):
    """Input for the command; a client that is gone ends it."""
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while (message := await socket.receive()) is not None:
            channel, data = message[0], message[1:]
            if channel == STDIN and terminal is not None:
                os.write(terminal, data)
            elif channel == STDIN and process.stdin is not None:
                process.stdin.write(data)
            elif channel == CLOSE and data[:1] == bytes((STDIN,)) and process.stdin is not None:
                process.stdin.close()
            elif channel == RESIZE and terminal is not None:
                size = json.loads(data)
                packed = struct.pack("HHHH", size["Height"], size["Width"], 0, 0)
                fcntl.ioctl(terminal, termios.TIOCSWINSZ, packed)
    with suppress(ProcessLookupError):
        process.kill()


async def _pass(socket, channel, stream):
    while data := await stream.read(BLOCK_BYTES):
        await socket.send(bytes((channel,)) + data)


async def _pass_terminal(socket, terminal):
    loop = asyncio.get_running_loop()
    while True:
        try:
            data = await loop.run_in_executor(None, os.read, terminal, BLOCK_BYTES)
        except OSError:  # the last process has closed it
            return
        if not data:
            return
        await socket.send(bytes((STDOUT,)) + data)


def _status(code, why=""):
    if code == 0:
        return json.dumps({"metadata": {}, "status": "Success"}).encode()
    if code is None:
        found = {"status": "Failure", "reason": "InternalError", "message": why, "code": 500}
        return json.dumps({"metadata": {}, **found}).encode()
    code = code if code > 0 else 128 - code
    message = f"command terminated with non-zero exit code: exit status {code}"
    causes = [{"reason": "ExitCode", "message": str(code)}]
    found = {"status": "Failure", "message": message, "reason": "NonZeroExitCode"}
    return json.dumps({"metadata": {}, **found, "details": {"causes": causes}}).encode()
