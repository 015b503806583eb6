"""Plays the kubelets of some nodes: runs the containers of pods as real local processes, and reports what becomes of them.

| behaviour | source |
|---|---|
| a node renews its Lease; its status is posted at the start and on changes | kubernetes.io/docs/concepts/architecture/nodes/#node-heartbeats |
| deletion: SIGTERM, after the grace period SIGKILL, then the object is removed | kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination |
| a container's end, code and reason (Completed, Error, OOMKilled) in its status; restartPolicy with its back-off | …/pod-lifecycle/#restart-policy |
| a missing Secret or ConfigMap keeps the pod in ContainerCreating; an image that cannot be pulled: ImagePullBackOff | kubernetes.io/docs/concepts/containers/images/#imagepullbackoff |

A pod has a loopback address of its own. What a real node does with namespaces is done with marks in the environment: all
processes of a pod end with its container. A path of a volume is replaced in arguments and environment by its folder,
and the name of a headless Service by the address of its pod, for want of mounts and a cluster DNS.
"""

import asyncio
import os
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path

from kubernetes.apiserver.answers import micro_now, now
from kubernetes.apiserver.controllers.pods import PODS, condition, is_ending, is_over, with_condition
from kubernetes.apiserver.kinds import Kind
from kubernetes.apiserver.pod_logs import PodLogs
from kubernetes.apiserver.pod_run import PodRun

LEASE_S, TURN_S = 1.0, 0.1
GPUS = "8"
NODE = Kind("", "v1", "Node", "nodes", namespaced=False, status=True)
LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases")
MARK = "HOLDFAST_TEST_POD"
NETS = range(10, 210)  # 127.NET.0.0/16: of one server each, as pods' ports are fixed
GUARD = "255.254", 29_469  # the address and port in its net that a server holds


class Kubelets:
    def __init__(self, store, folder, faults, backoff_s=10.0):
        self.store, self.folder, self.faults = store, Path(folder), faults
        self.bad_images = set()
        self.backoff_s = backoff_s  # before the second restart of a container, then twice as long each time
        self.frozen = set()
        self.runs = {}  # by uid
        self.logs = PodLogs(self)
        self.server = ""
        self._nodes = []
        self._net = None
        self._addresses = {}  # by what keeps an address: a service's name, or a pod's uid
        self._task = None

    def start(self, count, server):
        self.server = server
        self._nodes = [f"gpu-{number}" for number in range(1, count + 1)]
        for name in self._nodes:
            self._register(name)
        if count:
            self._task = asyncio.create_task(self._turns())

    def end(self):
        for run in self.runs.values():
            run.strike(signal.SIGCONT)
            run.strike(signal.SIGKILL)
        if self._net is not None:
            self._net[1].close()

    # Nodes ------------------------------------------------------------------------------------------------

    def _register(self, name):
        room = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": GPUS}
        node = {
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "spec": {},
            "status": {
                "capacity": room,
                "allocatable": room,
                "addresses": [
                    {"type": "InternalIP", "address": "127.0.0.1"},
                    {"type": "Hostname", "address": name},
                ],
                "conditions": [condition("Ready", "KubeletReady", "kubelet is posting ready status", now())],
            },
        }
        self.store.create(NODE, "", node)
        lease = {
            "metadata": {"name": name},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": micro_now()},
        }
        self.store.create(LEASE, "kube-node-lease", lease)

    def _beat(self, name):
        lease = self.store.find("coordination.k8s.io", "leases", "kube-node-lease", name)
        if lease is not None:
            self.store.change(LEASE.key, lease, spec={**lease["spec"], "renewTime": micro_now()})
        node = self.store.find("", "nodes", "", name)
        ready = (
            next((one for one in node["status"]["conditions"] if one["type"] == "Ready"), None)
            if node
            else None
        )
        if ready and ready["status"] == "Unknown":
            good = condition("Ready", "KubeletReady", "kubelet is posting ready status", now())
            state = {**node["status"], "conditions": with_condition(node["status"]["conditions"], good)}
            self.store.change(NODE.key, node, status=state)

    def freeze(self, name):
        """All processes of the node stop, and its kubelet: connections stay open, and nothing moves."""
        self.frozen.add(name)
        for run in self._of(name):
            run.strike(signal.SIGSTOP)

    def thaw(self, name):
        self.frozen.discard(name)
        for run in self._of(name):
            run.strike(signal.SIGCONT)

    def kill(self, pod_name):
        """Ends all processes of the pod at once."""
        for run in self.runs.values():
            if run.pod["metadata"]["name"] == pod_name and not run.is_over:
                run.strike(signal.SIGKILL)

    def kill_controllers(self):
        """The pods of Holdfast's controllers."""
        for run in self.runs.values():
            labels = run.pod["metadata"].get("labels") or {}
            if labels.get("holdfast.dev/role") == "controller" and not run.is_over:
                run.strike(signal.SIGKILL)

    def _of(self, node):
        return [run for run in self.runs.values() if run.node == node]

    def address(self, pod):
        """An address of the pod's own; where a Service selects it, always the same one."""
        labels = pod["metadata"].get("labels") or {}
        key = pod["metadata"]["uid"]
        for service in self.store.all("", "services", pod["metadata"]["namespace"]):
            selector = service["spec"].get("selector") or {}
            if selector and selector.items() <= labels.items():
                key = service["metadata"]["name"]
        return self.address_of(key)

    def address_of(self, key):
        if key not in self._addresses:
            number = len(self._addresses) + 1
            self._net = self._net or net_of_its_own()
            self._addresses[key] = f"127.{self._net[0]}.{number // 250}.{number % 250 + 1}"
        return self._addresses[key]

    # Pods -------------------------------------------------------------------------------------------------

    async def _turns(self):
        beat_s = 0.0
        while True:
            if not self.faults.is_down:
                if time.monotonic() - beat_s >= LEASE_S:
                    beat_s = time.monotonic()
                    for name in self._nodes:
                        if name not in self.frozen:
                            self._beat(name)
                for pod in self.store.all(*PODS):
                    node = pod["spec"].get("nodeName")
                    if node in self._nodes and node not in self.frozen:
                        self._turn(pod, node)
                self._end_gone()
            await asyncio.sleep(TURN_S)

    def _turn(self, pod, node):
        uid = pod["metadata"]["uid"]
        run = self.runs.get(uid)
        if run is None:
            if is_ending(pod):
                self.store.delete(PODS, pod, 0)
            elif not is_over(pod):
                self.runs[uid] = PodRun(self, pod, node)
            return
        run.pod = pod
        run.turn()

    def _end_gone(self):
        """Pods that were removed by force: their processes end once their node lives."""
        alive = {pod["metadata"]["uid"] for pod in self.store.all(*PODS)}
        for uid, run in list(self.runs.items()):
            if uid not in alive and run.node not in self.frozen:
                run.strike(signal.SIGKILL)
                if run.is_over:
                    del self.runs[uid]


def net_of_its_own():
    """(number, socket) of a net that no other server on this machine has, as long as the socket is open."""
    first = os.getpid() % len(NETS)
    for net in (*NETS[first:], *NETS[:first]):
        guard = socket.socket()
        try:
            guard.bind((f"127.{net}.{GUARD[0]}", GUARD[1]))
        except OSError:
            guard.close()
        else:
            return net, guard
    raise RuntimeError("no loopback net is free for the pods of another server")


def marked(mark):
    """The processes that carry this mark in their environment."""
    needle = f"{MARK}={mark}\0".encode()
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with suppress(OSError), open(f"/proc/{entry}/environ", "rb") as file:
            if needle in b"\0" + file.read() + b"\0":
                found.append(int(entry))
    return found
