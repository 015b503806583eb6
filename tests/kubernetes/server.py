"""Starts the API server of tests in a process of its own, and speaks with it as its administrator."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx

from run.place import wait_for

TESTS = Path(__file__).parents[1]
KUBECONFIG = """apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test, namespace: default}}]
clusters: [{name: test, cluster: {server: "URL"}}]
users: [{name: test, user: {token: test}}]
"""


class Server:
    """`nodes`: that run pods. `folder`: of the pods' files and the kubeconfig."""

    def __init__(self, folder, nodes=0, node_grace_s=50.0, more=()):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        source = TESTS.parent / "src"
        env = {key: value for key, value in os.environ.items() if not key.startswith(("HOLDFAST_", "KUBE"))}
        env |= {"PYTHONPATH": f"{source}:{TESTS}", "PATH": f"{Path(sys.executable).parent}:{env['PATH']}"}
        words = [
            "-m",
            "kubernetes.apiserver.main",
            str(folder),
            "--nodes",
            str(nodes),
            "--node-grace",
            str(node_grace_s),
            *more,
        ]
        self._errors = (self.folder / "server.err").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, *words], stdout=subprocess.PIPE, stderr=self._errors, env=env, cwd=TESTS
        )
        port = self.process.stdout.readline().strip()
        if not port:
            raise RuntimeError(f"the server did not start: {(self.folder / 'server.err').read_text()}")
        self.url = f"http://127.0.0.1:{int(port)}"
        self.kubeconfig = self.folder / "kubeconfig"
        self.kubeconfig.write_text(KUBECONFIG.replace("URL", self.url))
        # A connection for each request: tests have the server cut those that are open.
        self.client = httpx.Client(
            base_url=self.url, timeout=100, trust_env=False, limits=httpx.Limits(max_keepalive_connections=0)
        )

    def control(self, name, **given):
        answer = self.client.post(f"/_test/{name}", json=given)
        assert answer.status_code == 200, answer.text
        return answer.json()["done"]

    def get(self, path, **params):
        answer = self.client.get(path, params=params)
        return answer.json() if answer.status_code == 200 else None

    def items(self, plural, labels="", group="api/v1", namespace="default"):
        params = {"labelSelector": labels} if labels else {}
        return self.client.get(f"/{group}/namespaces/{namespace}/{plural}", params=params).json()["items"]

    def create(self, one, namespace="default"):
        group = "api" if "/" not in one["apiVersion"] else "apis"
        plural = one["kind"].lower() + "s"
        answer = self.client.post(f"/{group}/{one['apiVersion']}/namespaces/{namespace}/{plural}", json=one)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def merge(self, path, patch, kind="application/merge-patch+json"):
        answer = self.client.request("PATCH", path, json=patch, headers={"Content-Type": kind})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def wait_for(self, is_true, wait_s=100.0):
        """The first truthy answer."""
        return wait_for("the server's controllers", is_true, wait_s)

    def delete(self, path, **options):
        return self.client.request("DELETE", path, json=options)

    def close(self):
        self.client.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()
        self._errors.close()
