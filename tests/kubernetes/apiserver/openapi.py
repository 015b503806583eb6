"""Serves what clients ask of the API's own description: that the server validates fields itself, for each kind.

source: https://kubernetes.io/docs/concepts/overview/kubernetes-api/#openapi-interface-definition and
https://kubernetes.io/docs/reference/using-api/api-concepts/#field-validation
"""

PREFIX = "/openapi/v3"


def document(path, kinds):
    """The answer to a path below /openapi/v3; None for another path."""
    if path == PREFIX:
        groups = sorted({_base(kind) for kind in kinds})
        return {"paths": {group: {"serverRelativeURL": f"{PREFIX}/{group}?hash=1"} for group in groups}}
    if not path.startswith(f"{PREFIX}/"):
        return None
    found = [kind for kind in kinds if _base(kind) == path.removeprefix(f"{PREFIX}/")]
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.0"},
        "paths": {_path(kind): {"patch": _patch(kind)} for kind in found},
        "components": {"schemas": {}},
    }


def _base(kind):
    return f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"


def _path(kind):
    space = "namespaces/{namespace}/" if kind.namespaced else ""
    return f"/{_base(kind)}/{space}{kind.plural}/{{name}}"


def _patch(kind):
    validation = {"name": "fieldValidation", "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    return {
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": {"group": kind.group, "kind": kind.kind, "version": kind.version},
        "parameters": [validation],
        "responses": {"200": {"description": "OK"}},
    }
