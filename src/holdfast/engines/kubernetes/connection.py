"""Opens HTTP connections to the API server of a Kubernetes cluster, and makes single requests.

lightkube reads the kubeconfig or the pod's service account, with certificates, rotated tokens and login
programs. Requests are made here, because lightkube's watches have no time limit and do not resume where they
ended, and its objects hold every field.
"""

import ssl
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import yaml
from lightkube.config.client_adapter import Client, ConnectionParams
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.config.models import User
from lightkube.core.exceptions import ConfigError

from holdfast.parsers.kubernetes.objects import status_body

REQUEST_S, CONNECT_S = 10.0, 3.0
JSON_PATCH, MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"
AGAIN = (408, 429, 500, 502, 503, 504)  # the same request may succeed later


class NoCluster(Exception):
    """Raised when no cluster can be reached with the current configuration. The message says what to do."""


class ServerAway(Exception):
    """Raised when the API server did not respond, or not completely."""


class RequestFailed(Exception):
    """Raised when the API server rejected a request. `code`: HTTP status; `reason`: of the Status object.

    `again_s`: seconds after which to retry; None if not stated.
    """

    def __init__(self, code: int, reason: str, message: str, again_s: float | None = None) -> None:
        super().__init__(message or f"HTTP {code}")
        self.code, self.reason, self.again_s = code, reason, again_s

    @property
    def may_pass(self) -> bool:
        return self.code in AGAIN

    @property
    def is_forbidden(self) -> bool:
        return self.code in (401, 403)


class Connection:
    """Connection to an API server, for several threads.

    `namespace`: the one of the configuration, used by default.
    """

    def __init__(self, client: httpx2.Client, namespace: str, config: SingleConfig) -> None:
        self.client, self.namespace, self.config = client, namespace, config

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, str] | None = None,
        kind: str = "application/json",
        within_s: float = REQUEST_S,
    ) -> httpx2.Response:
        """Makes a request and returns the complete response. Raises ServerAway and RequestFailed."""
        headers = {"Content-Type": kind} if body is not None else {}
        timeout = httpx2.Timeout(within_s, connect=min(CONNECT_S, within_s))
        try:
            answer = self.client.request(
                method, path, json=body, params=dict(params or {}), headers=headers, timeout=timeout
            )
        except (httpx2.HTTPError, ssl.SSLError, OSError, ConfigError) as error:
            raise ServerAway(f"the API server does not respond: {error or type(error).__name__}") from error
        if answer.status_code >= 400:
            raise failure(answer)
        return answer

    def is_served(self, path: str) -> bool:
        """Returns whether the server has an API at this path. Raises ServerAway and RequestFailed."""
        try:
            self.request("GET", path)
        except RequestFailed as error:
            if error.code in (403, 404):
                return False
            raise
        return True

    def close(self) -> None:
        self.client.close()


def failure(answer: httpx2.Response) -> RequestFailed:
    """Returns the error to raise for a response of the API server that was read completely."""
    status = status_body(answer.content)
    again_s = None
    with suppress(ValueError):
        again_s = float(answer.headers.get("Retry-After", ""))
    return RequestFailed(answer.status_code, status.reason, status.message, again_s)


def connect(env: Mapping[str, str], context: str = "", namespace: str = "") -> Connection:
    """Connects with $KUBECONFIG or ~/.kube/config, or with the pod's service account. Raises NoCluster."""
    try:
        found = _configuration(env, context)
        timeout = httpx2.Timeout(REQUEST_S, connect=CONNECT_S)
        client = Client(found, ConnectionParams(timeout=timeout, trust_env=False))
    except (ConfigError, OSError, KeyError, ValueError, TypeError, yaml.YAMLError) as error:
        raise NoCluster(
            f"no Kubernetes cluster is configured: {' '.join(str(error).split())}. Set KUBECONFIG to a file that kubectl can use, or run this in a pod"
        ) from error
    return Connection(client, namespace or found.namespace, found)


def _configuration(env: Mapping[str, str], context: str) -> SingleConfig:
    """Returns the configuration to use: a kubeconfig that is set explicitly takes precedence over a
    service account.
    """
    path = env.get("KUBECONFIG", "")
    if path:
        kube = KubeConfig.from_file(path.split(":")[0])
    elif env.get("KUBERNETES_SERVICE_HOST"):
        kube = KubeConfig.from_service_account()
    else:
        kube = KubeConfig.from_file(Path("~/.kube/config").expanduser())
    found = kube.get(context or None)
    if found is None:
        raise ConfigError("the kubeconfig names no current context")
    return found._replace(user=found.user or User())
