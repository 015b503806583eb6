"""Runs one pod on its node: volumes, processes, status, restarts, and its end."""

import base64
import os
import re
import signal
import subprocess
import time
from contextlib import suppress

from kubernetes.apiserver import kubelet
from kubernetes.apiserver.answers import now
from kubernetes.apiserver.controllers.pods import (
    PODS,
    condition,
    has_condition,
    is_ending,
    is_over,
    with_condition,
)
from kubernetes.apiserver.controllers.scheduler import event

RESTART_S_MAX = 300.0
_REFERENCE = re.compile(r"\$(?:(\$)|\((\w+)\))")  # $$ stands for $
_ADDRESS = re.compile(r"([a-z0-9-]+):\d+")
_SERVICE = re.compile(r"([a-z0-9-]+)\.([a-z0-9-]+)\.svc\b")
_LABEL = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


class PodRun:
    """`pod`: as the store has it now."""

    def __init__(self, kubelets, pod, node):
        self._all, self.pod, self.node = kubelets, pod, node
        self.uid = pod["metadata"]["uid"]
        self.folder = kubelets.folder / "pods" / f"{pod['metadata']['name']}.{self.uid[:8]}"
        self.log = self.folder / "log"
        self._process = None
        self._restarts = 0
        self._ended = None  # the last state of the container
        self._again_s = 0.0
        self._term_s = None
        self._waits = ""
        self._started = ""
        self._began = False
        self._over_with = None  # exit code of the first container, if it is not restarted
        self._beside = Companions(self)
        self.is_over = False

    def turn(self):
        if not self._began:
            self._begin()
        elif self._process is not None and self._process.poll() is not None:
            self._container_ended(self._process.returncode)
        elif self._beside.have_changed():
            rule = any(map(restarts_all, *self._beside.ended_now()))
            self._restart_all() if rule else self._say_again()
        elif self._over_with is not None and not self._beside.run:
            self._all_ended()
        elif (
            self._process is None
            and not self.is_over
            and self._over_with is None
            and not is_ending(self.pod)
            and time.monotonic() >= self._again_s
        ):
            self._start()
        if is_ending(self.pod):
            self._end()

    @property
    def runs(self):
        """Its container."""
        return self._process is not None and self._process.poll() is None

    def beside(self, words, container=None):
        """A command for a container, with its paths and its environment."""
        container = container or self.pod["spec"]["containers"][0]
        places = self._places(container)
        env = self._environment(container, self._all.address(self.pod), places)
        return [_placed(word, places) for word in words], env

    # Start ------------------------------------------------------------------------------------------------

    def _begin(self):
        if is_ending(self.pod):
            return
        why = self._cannot()
        if why:
            self._say_waits(*why)
            return
        self._began = True
        self.folder.mkdir(parents=True, exist_ok=True)
        self._start()

    def _cannot(self):
        """(reason, message) why the container cannot be created yet."""
        container = self.pod["spec"]["containers"][0]
        if container.get("image", "") in self._all.bad_images:
            return "ImagePullBackOff", f'Back-off pulling image "{container["image"]}": not found'
        for volume in self.pod["spec"].get("volumes", ()):
            claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            if claim and self._find("persistentvolumeclaims", claim) is None:
                return "ContainerCreating", f'persistentvolumeclaim "{claim}" not found'
            secret = (volume.get("secret") or {}).get("secretName")
            if secret and self._find("secrets", secret) is None:
                text = f'MountVolume.SetUp failed for volume "{volume["name"]}" : secret "{secret}" not found'
                if self._waits != "ContainerCreating":
                    event(self._all.store, self.pod, "FailedMount", text, "Warning")
                return "ContainerCreating", ""
        if any(self._find("services", name) is None for name in self._services(container)):
            return "ContainerCreating", ""
        return None

    def _services(self, container):
        """Services that its environment names: their names are replaced at the start, where a cluster's DNS would answer later."""
        return {
            found[1]
            for one in container.get("env", ())
            for found in _SERVICE.finditer(str(one.get("value", "")))
            if found[2] == self.pod["metadata"]["namespace"]
        }

    def _find(self, plural, name):
        return self._all.store.find("", plural, self.pod["metadata"]["namespace"], name)

    def _say_waits(self, reason, message):
        if self._waits == reason:
            return
        self._waits = reason
        waiting = {"reason": reason, **({"message": message} if message else {})}
        self._say("Pending", {"waiting": waiting}, ready=False)
        if reason == "ImagePullBackOff":
            event(self._all.store, self.pod, "Failed", f"Error: {reason}", "Warning")

    def _start(self):
        container = self.pod["spec"]["containers"][0]
        places = self._places(container)
        address = self._all.address(self.pod)
        env = self._environment(container, address, places)
        words = [*(container.get("command") or []), *(container.get("args") or [])]
        words = [_placed(_expanded(word, env), places) for word in words]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=env,
                cwd=str(self.folder),
                start_new_session=True,
            )
        self._beside.start(address)
        self._started = now()
        self._say("Running", {"running": {"startedAt": self._started}}, ready=True, address=address)

    def _places(self, container):
        """The folder of each path at which a volume is mounted."""
        volumes = {volume["name"]: volume for volume in self.pod["spec"].get("volumes", ())}
        found = {}
        for mount in container.get("volumeMounts", ()):
            volume = volumes[mount["name"]]
            if "hostPath" in volume:
                found[mount["mountPath"]] = volume["hostPath"]["path"]
                continue
            claim = volume.get("persistentVolumeClaim")
            folder = self.folder / "volumes" / mount["name"]
            if claim:  # outlives the pod
                folder = self._all.folder / "claims" / claim["claimName"]
            folder.mkdir(parents=True, exist_ok=True)
            found[mount["mountPath"]] = str(folder)
            for source in (volume.get("projected") or {}).get("sources", ()):
                self._project(source, folder)
            if "secret" in volume:
                secret = self._find("secrets", volume["secret"]["secretName"])
                for name, text in (secret.get("data") or {}).items():
                    (folder / name).write_bytes(base64.b64decode(text))
                for name, text in (secret.get("stringData") or {}).items():
                    (folder / name).write_text(text)
        found["/dev/termination-log"] = str(self.folder / "termination-log")
        return found

    def _project(self, source, folder):
        """A token is the audience that it is for."""
        token, given = source.get("serviceAccountToken"), source.get("configMap")
        if token:
            (folder / token["path"]).write_text(token["audience"])
        if given:
            data = self._find("configmaps", given["name"])["data"]
            for item in given["items"]:
                (folder / item["path"]).write_text(data[item["key"]])

    def _environment(self, container, address, places):
        meta = self.pod["metadata"]
        env = {key: os.environ[key] for key in ("PATH", "HOME", "LANG", "PYTHONPATH") if key in os.environ}
        kubeconfig = self._all.folder / "kubeconfig"
        env |= {
            "HOSTNAME": self.pod["spec"].get("hostname", meta["name"]),
            kubelet.MARK: self.uid,
            "KUBECONFIG": str(kubeconfig),
        }
        fields = {
            "metadata.name": meta["name"],
            "metadata.namespace": meta["namespace"],
            "metadata.uid": meta["uid"],
            "spec.nodeName": self.node,
            "status.podIP": address,
            "status.hostIP": "127.0.0.1",
        }
        for one in container.get("env", ()):
            env[one["name"]] = self._value(one, fields, env, places)
        return env

    def _value(self, one, fields, env, places):
        if "value" in one:
            return self._resolved(_placed(_expanded(one["value"], env), places))
        path = one.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
        if found := _LABEL.fullmatch(path):
            return (self.pod["metadata"].get(found[1]) or {}).get(found[2], "")
        return fields.get(path, "")

    def _resolved(self, text):
        """Names of headless Services by the addresses that a cluster's DNS would answer."""
        namespace = self.pod["metadata"]["namespace"]
        short = _ADDRESS.fullmatch(text)
        for service in self._all.store.all("", "services", namespace):
            name = service["metadata"]["name"]
            if short and short[1] == name:
                return text.replace(name, self._all.address_of(name))
            for full in (
                f"{name}.{namespace}.svc.cluster.local",
                f"{name}.{namespace}.svc",
                f"{name}.{namespace}",
            ):
                text = text.replace(full, self._all.address_of(name))
        return text

    # End --------------------------------------------------------------------------------------------------

    def _container_ended(self, code):
        for pid in kubelet.marked(self.uid):  # a container's other processes end with its first
            with suppress(OSError):
                if not self._beside.has(pid):
                    os.kill(pid, signal.SIGKILL)
        self._process = None
        code = code if code >= 0 else 128 - code
        message = ""
        with suppress(OSError):
            message = (self.folder / "termination-log").read_text()[-4096:]
        ended = {
            "exitCode": code,
            "reason": "Completed" if code == 0 else "Error",
            "startedAt": self._started,
            "finishedAt": now(),
            **({"message": message} if message else {}),
        }
        self._ended = {"terminated": ended}
        if not is_ending(self.pod) and restarts_all(self.pod["spec"]["containers"][0], code):
            self._restart_all()
            return
        policy = self.pod["spec"].get("restartPolicy", "Always")
        if not is_ending(self.pod) and (policy == "Always" or (policy == "OnFailure" and code != 0)):
            wait_s = self._backoff_s()
            self._restarts += 1
            self._again_s = time.monotonic() + wait_s
            self._say(
                "Running", {"waiting": {"reason": "CrashLoopBackOff"}} if wait_s else self._ended, ready=False
            )
            return
        self._over_with = code
        if self._beside.run:
            self._say("Running", self._ended, ready=False)
        else:
            self._all_ended()

    def _backoff_s(self):
        return (
            min(self._all.backoff_s * 2.0 ** (self._restarts - 1), RESTART_S_MAX) if self._restarts else 0.0
        )

    def _all_ended(self):
        self.is_over = True
        failed = self._over_with or any(self._beside.codes.values())
        self._say("Failed" if failed else "Succeeded", self._ended, ready=False)

    def _restart_all(self):
        """All containers end without grace and start again; the pod keeps its address and volumes (KEP-5532)."""
        self.strike(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
        self._process, self._over_with = None, None
        self._beside.end()
        wait_s = self._backoff_s()
        self._restarts += 1
        self._again_s = time.monotonic() + wait_s
        self._say("Pending", self._ended or {"waiting": {}}, ready=False, restarting=True)

    def _say_again(self):
        state = {"running": {"startedAt": self._started}} if self.runs else self._ended
        self._say("Running", state, ready=self.runs)

    def _end(self):
        meta = self.pod["metadata"]
        grace_s = meta.get("deletionGracePeriodSeconds", 30)
        self._beside.end()
        if self._process is not None:
            if self._term_s is None:
                self._term_s = time.monotonic()
                with suppress(ProcessLookupError):
                    os.kill(self._process.pid, signal.SIGTERM)
            elif time.monotonic() - self._term_s >= grace_s:
                self.strike(signal.SIGKILL)
            if grace_s == 0:
                self.strike(signal.SIGKILL)
            return
        if not is_over(self.pod):
            self._say("Failed", self._ended or {"waiting": {"reason": "ContainerCreating"}}, ready=False)
        latest = self._all.store.find("", "pods", meta["namespace"], meta["name"])
        if latest is not None and latest["metadata"]["uid"] == self.uid:
            self._all.store.delete(PODS, latest, 0)
        self.is_over = True

    def strike(self, number):
        """All processes of the pod."""
        for pid in kubelet.marked(self.uid):
            with suppress(OSError):
                os.kill(pid, number)

    # Status -----------------------------------------------------------------------------------------------

    def _say(self, phase, state, *, ready, address="", restarting=False):
        meta = self.pod["metadata"]
        latest = self._all.store.find("", "pods", meta["namespace"], meta["name"])
        if latest is None or latest["metadata"]["uid"] != self.uid:
            return
        old = latest["status"]
        container = {
            "name": latest["spec"]["containers"][0]["name"],
            "image": latest["spec"]["containers"][0].get("image", ""),
            "ready": ready,
            "started": ready,
            "restartCount": self._restarts,
            "state": state,
            **({"lastState": self._ended} if self._ended and "terminated" not in state else {}),
        }
        statuses = [container, *self._beside.statuses(self._restarts)]
        conditions = old.get("conditions", [])
        for kind in ("Initialized", "Ready", "ContainersReady"):
            conditions = with_condition(
                conditions, condition(kind, at=now(), status="True" if ready else "False")
            )
        if restarting or any(one["type"] == "AllContainersRestarting" for one in conditions):
            told = condition("AllContainersRestarting", at=now(), status=str(restarting))
            conditions = with_condition(conditions, told)
        if not has_condition(latest, "PodScheduled"):
            conditions = with_condition(conditions, condition("PodScheduled", at=now()))
        more = {"podIP": address, "hostIP": "127.0.0.1", "startTime": now()} if address else {}
        status = {**old, **more, "phase": phase, "conditions": conditions, "containerStatuses": statuses}
        self.pod = self._all.store.change(PODS, latest, status=status) or latest


class Companions:
    """The containers of a pod besides the first, which are not restarted by themselves. `codes`: by name, of those that have ended."""

    def __init__(self, run):
        self._run, self._processes, self.codes = run, {}, {}

    @property
    def run(self):
        return len(self.codes) < len(self._processes)

    def start(self, address):
        self._processes, self.codes = {}, {}
        for container in self._run.pod["spec"]["containers"][1:]:
            words, env = self._run.beside(container.get("command") or ["true"], container)
            with self._run.log.open("ab") as log:
                self._processes[container["name"]] = subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, start_new_session=True
                )

    def has(self, pid):
        return os.getsid(pid) in [one.pid for one in self._processes.values()]

    def have_changed(self):
        return any(one.poll() is not None and name not in self.codes for name, one in self._processes.items())

    def ended_now(self):
        """(containers, exit codes) of those that have ended since the last call."""
        ended = [
            name for name, one in self._processes.items() if one.poll() is not None and name not in self.codes
        ]
        for name in ended:
            code = self._processes[name].returncode
            self.codes[name] = code if code >= 0 else 128 - code
        containers = {one["name"]: one for one in self._run.pod["spec"]["containers"]}
        return [containers[name] for name in ended], [self.codes[name] for name in ended]

    def end(self):
        for one in self._processes.values():
            one.kill()
            one.wait()
        self._processes, self.codes = {}, {}

    def statuses(self, restarts):
        for container in self._run.pod["spec"]["containers"][1:]:
            name, code = container["name"], self.codes.get(container["name"])
            state = {"running": {}} if name in self._processes else {"waiting": {}}
            if code is not None:
                state = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}
            yield {"name": name, "image": "", "ready": code is None, "restartCount": restarts, "state": state}


def restarts_all(container, code):
    """Whether this end of a container restarts all of its pod."""
    for rule in container.get("restartPolicyRules", ()):
        given = rule["exitCodes"]
        if (code in given["values"]) == (given["operator"] == "In"):
            return rule["action"] == "RestartAllContainers"
    return False


def _expanded(text, env):
    return _REFERENCE.sub(lambda found: found[1] or env.get(found[2], found[0]), text)


def _placed(text, places):
    for path, folder in sorted(places.items(), key=lambda pair: -len(pair[0])):
        if text == path or text.startswith(path + "/"):
            return folder + text[len(path) :]
    return text
