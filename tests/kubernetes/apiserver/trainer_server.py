"""Emulates the status server of Kubeflow Trainer v2 and what its controller puts into pods for it (gate TrainJobStatus).

| behaviour | source (github.com/kubeflow/trainer) |
|---|---|
| POST …/trainjobs/NAME/status over TLS; 403 without a token for this TrainJob, 404 for others, 422 for what is not valid, 200 with the body | pkg/statusserver/server.go, auth.go |
| fields and limits of a TrainerStatus | pkg/apis/trainer/v1alpha1 TrainerStatus, Metric |
| three variables, a projected volume with token and ca.crt, a ConfigMap NAME-tls-config, in the trainer's containers | pkg/runtime/framework/plugins/trainjobstatus |

The certificate is made with openssl. A token is the audience that it is for; its signature is not emulated.
"""

import ssl
import subprocess

from kubernetes.apiserver.answers import Failure
from kubernetes.apiserver.controllers.pods import owner
from kubernetes.apiserver.http_server import Answer, HttpServer
from kubernetes.apiserver.kinds import Kind

KEY = ("trainer.kubeflow.org", "trainjobs")
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps")
FOLDER = "/var/run/secrets/kubeflow/trainer"
VOLUME = "kubeflow-trainer-token"
BODY_MAX = 1 << 16
_OPENSSL = (
    "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=trainer -addext subjectAltName=IP:127.0.0.1"
)


def path_of(namespace, name):
    return f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs/{name}/status"


def audience(namespace, name):
    return f"trainer.kubeflow.org/namespaces/{namespace}/trainjobs/{name}"


class StatusServer:
    """`posts`: how many were accepted."""

    def __init__(self, store, folder):
        self._store, self._folder = store, folder
        self._server = HttpServer(self._handle)
        self.is_on = False
        self.refuses = 0  # so many requests to come, with 500
        self.posts = 0

    async def start(self):
        cert, key = self._folder / "trainer.pem", self._folder / "trainer.key"
        subprocess.run([*_OPENSSL.split(), "-keyout", key, "-out", cert], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        self._ca = cert.read_text()
        await self._server.start(tls=context)
        self.is_on = True

    # What its controller puts into pods -------------------------------------------------------------------

    def inject(self, train_job, pod_spec):
        """Changes the pods' template of a TrainJob in place, and makes its ConfigMap."""
        meta = train_job["metadata"]
        url = f"https://127.0.0.1:{self._server.port}{path_of(meta['namespace'], meta['name'])}"
        values = {"URL": url, "CA_CERT": f"{FOLDER}/ca.crt", "TOKEN": f"{FOLDER}/token"}
        mount = {"name": VOLUME, "mountPath": FOLDER, "readOnly": True}
        for container in pod_spec["containers"]:
            container.setdefault("env", []).extend(
                {"name": f"KUBEFLOW_TRAINER_SERVER_{name}", "value": value} for name, value in values.items()
            )
            container.setdefault("volumeMounts", []).append(mount)
        token = {"audience": audience(meta["namespace"], meta["name"]), "path": "token"}
        items = [{"key": "ca.crt", "path": "ca.crt"}]
        name = f"{meta['name']}-tls-config"
        sources = [{"serviceAccountToken": token}, {"configMap": {"name": name, "items": items}}]
        pod_spec.setdefault("volumes", []).append({"name": VOLUME, "projected": {"sources": sources}})
        if self._store.find("", "configmaps", meta["namespace"], name) is None:
            made = {
                "metadata": {"name": name, "ownerReferences": [owner(train_job)]},
                "data": {"ca.crt": self._ca},
            }
            self._store.create(CONFIG_MAP, meta["namespace"], made)

    # Requests ---------------------------------------------------------------------------------------------

    async def _handle(self, request):
        for one in self._store.all(*KEY):
            meta = one["metadata"]
            if request.path == path_of(meta["namespace"], meta["name"]):
                return self._take(request, one)
        raise Failure(403, "Forbidden")  # the token is for no such TrainJob

    def _take(self, request, one):
        meta = one["metadata"]
        wanted = f"Bearer {audience(meta['namespace'], meta['name'])}"
        if request.method != "POST" or request.headers.get("authorization") != wanted:
            raise Failure(403, "Forbidden")
        if self.refuses:
            self.refuses -= 1
            raise Failure(500, "Internal error")
        status = (request.json or {}).get("trainerStatus")
        if len(request.body) > BODY_MAX or status is None:
            raise Failure(422, "Invalid payload")
        if why := problem(status):
            raise Failure(422, why)
        self._store.change(KEY, one, status={**(one.get("status") or {}), "trainerStatus": status})
        self.posts += 1
        return Answer(200, request.json)


def problem(status):
    """Why a TrainerStatus is not valid."""
    known = {"progressPercentage", "estimatedRemainingSeconds", "metrics", "lastUpdatedTime"}
    if set(status) - known:
        return f"unknown fields {sorted(set(status) - known)}"
    for name, most in (("progressPercentage", 100), ("estimatedRemainingSeconds", 2**31 - 1)):
        value = status.get(name, 0)
        if type(value) is not int or not 0 <= value <= most:
            return f"status.trainerStatus.{name}: Invalid value: {value!r}"
    metrics = status.get("metrics", [])
    if len(metrics) > 256:
        return "status.trainerStatus.metrics: Too many"
    for one in metrics:
        if set(one) != {"name", "value"} or not all(
            isinstance(text, str) and 1 <= len(text) <= 64 for text in one.values()
        ):
            return f"status.trainerStatus.metrics: Invalid value: {one!r}"
    return ""
