"""Changes the taints of cluster nodes. Each change reads the node, and fails if it has changed in the meantime."""

from collections.abc import Sequence
from typing import Any

from holdfast.engines.kubernetes.connection import JSON_PATCH, Connection, RequestFailed
from holdfast.parsers.kubernetes.objects import OUT_OF_SERVICE_MARK

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


class Nodes:
    """Requests that change the taints of cluster nodes. All methods raise ServerAway and RequestFailed."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def taint(self, node: str, key: str, value: str, effect: str) -> None:
        """Adds a taint to a node, unless it has one of this key and effect."""
        found = self._read(node)
        taints = _taints(found)
        if not _has(taints, key, effect):
            self._replace(node, found, [*taints, {"key": key, "value": value, "effect": effect}], [])

    def take_out_of_service(self, node: str) -> None:
        """Adds the out-of-service taint and the annotation of Holdfast, unless the node is ready again or has the taint."""
        found = self._read(node)
        taints = _taints(found)
        if _is_ready(found) or _has(taints, OUT_OF_SERVICE, "NoExecute"):
            return
        new = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}
        notes = {**(found["metadata"].get("annotations") or {}), OUT_OF_SERVICE_MARK: "true"}
        mark = {"op": "add", "path": "/metadata/annotations", "value": notes}
        self._replace(node, found, [*taints, new], [mark])

    def restore(self, node: str) -> None:
        """Removes the out-of-service taint and the annotation, unless the node is not ready or Holdfast did not set them."""
        found = self._read(node)
        notes = dict(found["metadata"].get("annotations") or {})
        if not _is_ready(found) or notes.pop(OUT_OF_SERVICE_MARK, None) is None:
            return
        left = [one for one in _taints(found) if one.get("key") != OUT_OF_SERVICE]
        self._replace(node, found, left, [{"op": "add", "path": "/metadata/annotations", "value": notes}])

    def _read(self, node: str) -> dict[str, Any]:
        found: dict[str, Any] = self._connection.request("GET", f"/api/v1/nodes/{node}").json()
        return found

    def _replace(
        self, node: str, found: dict[str, Any], taints: Sequence[Any], more: Sequence[dict[str, Any]]
    ) -> None:
        """Replaces the whole list of taints, because not every server merges taints by key."""
        version = {
            "op": "test",
            "path": "/metadata/resourceVersion",
            "value": found["metadata"]["resourceVersion"],
        }
        add = {"op": "add", "path": "/spec/taints", "value": list(taints)}
        try:
            self._connection.request("PATCH", f"/api/v1/nodes/{node}", [version, add, *more], kind=JSON_PATCH)
        except RequestFailed as error:
            if error.code not in (409, 422):
                raise
            raise RequestFailed(
                503, error.reason, "the node was changed in the meantime by another program"
            ) from error


def _taints(found: dict[str, Any]) -> list[dict[str, Any]]:
    return list((found.get("spec") or {}).get("taints") or ())


def _has(taints: Sequence[dict[str, Any]], key: str, effect: str) -> bool:
    return any((one.get("key"), one.get("effect")) == (key, effect) for one in taints)


def _is_ready(found: dict[str, Any]) -> bool:
    conditions = (found.get("status") or {}).get("conditions") or ()
    return any((one.get("type"), one.get("status")) == ("Ready", "True") for one in conditions)
