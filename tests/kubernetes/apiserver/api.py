"""Answers the requests of the Kubernetes API: objects, lists, watches, patches, subresources and rights.

source: https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

import asyncio
import base64
import copy
import json
import random
import time

from kubernetes import schemas
from kubernetes.apiserver import openapi, patches
from kubernetes.apiserver.admission import admit, admit_change, drop_disabled
from kubernetes.apiserver.answers import Failure, encoded, now, status
from kubernetes.apiserver.http_server import Answer
from kubernetes.apiserver.kinds import Kinds
from kubernetes.apiserver.rights import Rights
from kubernetes.apiserver.selectors import matcher
from kubernetes.apiserver.store import Store

BOOKMARK_S = 1.0  # real servers send one about every minute
WATCH_S_MAX = 3600.0
REVIEWS = ("selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews")
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Route:
    """What a path names. `name`: empty for a collection."""

    def __init__(self, kind, namespace, name, subresource):
        self.kind, self.namespace, self.name, self.subresource = kind, namespace, name, subresource


class Api:
    """`logs`, `exec`: answer for the subresources of pods. `counts`: requests by (verb, plural)."""

    def __init__(self, faults):
        self.store, self.kinds, self.faults = Store(), Kinds(), faults
        self.rights = Rights()
        self.version = (1, 36)
        self.logs = None
        self.exec = None
        self.counts = {}
        self.writes = []  # (verb, plural, name), of clients

    async def handle(self, request):
        if request.path.startswith("/_test/"):
            return None
        discovered = self._discovery(request.path)
        if discovered is not None:
            await self.faults.before("get", "")
            return Answer(200, discovered)
        user = self.rights.authenticate(request.headers.get("authorization", ""))
        review = request.path.rpartition("/")[2]
        if review in REVIEWS:
            await self.faults.before("create", review)
            return Answer(201, self._reviewed(review, request.json, user))
        route = self._route(request.path)
        verb = self._verb(request, route)
        plural = route.kind.plural + (f"/{route.subresource}" if route.subresource else "")
        self.counts[(verb, plural)] = self.counts.get((verb, plural), 0) + 1
        is_client = "authorization" in request.headers  # else it is the administrator of the test
        await self.faults.before(verb, plural, strikes=is_client)
        self.rights.check(request.headers.get("authorization", ""), verb, route, plural)
        answer = await self._carry_out(request, route, verb)
        if verb not in ("get", "list", "watch") and request.query.get("dryRun") != "All":
            self.writes.append((verb, plural, route.name))
            if is_client:
                self.faults.after(verb, plural)
        return answer

    def _reviewed(self, review, body, user):
        """raises: Failure 403, for a user who is not even system:basic-user"""
        if not self.rights.may("create", review):
            raise Failure(403, f'{review} is forbidden: User "{user}" cannot create resource "{review}"')
        return {
            "selfsubjectaccessreviews": lambda: self.rights.review(body),
            "selfsubjectrulesreviews": lambda: self.rights.rules(body, self.kinds),
            "selfsubjectreviews": lambda: self.rights.who(body, user),
        }[review]()

    def _verb(self, request, route):
        if request.method == "GET":
            if request.query.get("watch") in ("1", "true"):
                return "watch"
            return "get" if route.name else "list"
        if request.method == "DELETE" and not route.name:
            return "deletecollection"
        if request.method not in VERBS:
            raise Failure(405, f"{request.method} is not allowed")
        return VERBS[request.method]

    async def _carry_out(self, request, route, verb):
        if route.subresource == "log" and self.logs is not None:
            pod = self.store.get(route.kind, route.namespace, route.name)
            return await self.logs.answer(pod, request.query)
        if route.subresource == "exec" and self.exec is not None:
            pod = self.store.get(route.kind, route.namespace, route.name)
            return await self.exec.answer(pod, request)
        if route.subresource == "eviction":
            return self._evict(request, route)
        one = {
            "get": lambda: Answer(200, self.store.get(route.kind, route.namespace, route.name)),
            "list": lambda: Answer(200, self._list(request.query, route)),
            "watch": lambda: self._watch(request.query, route),
            "create": lambda: self._create(request, route),
            "update": lambda: self._update(request, route),
            "patch": lambda: self._patch(request, route),
            "delete": lambda: self._delete(request, route),
            "deletecollection": lambda: self._delete_many(request, route),
        }[verb]
        return one()

    # Paths ------------------------------------------------------------------------------------------------

    def _route(self, path):
        parts = path.strip("/").split("/")
        if parts[0] == "api":
            group, version, rest = "", parts[1], parts[2:]
        elif parts[0] == "apis" and len(parts) > 2:
            group, version, rest = parts[1], parts[2], parts[3:]
        else:
            raise Failure(404, "the server could not find the requested resource")
        namespace = ""
        if rest and rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        kind = self.kinds.find(group, version, rest[0] if rest else "")
        if kind is None:
            raise Failure(404, "the server could not find the requested resource")
        return Route(kind, namespace, rest[1] if len(rest) > 1 else "", rest[2] if len(rest) > 2 else "")

    def _discovery(self, path):
        parts = path.strip("/").split("/")
        described = openapi.document(path, self.kinds)
        if described is not None:
            return described
        if path == "/version":
            major, minor = self.version
            return {"major": f"{major}", "minor": f"{minor}", "gitVersion": f"v{major}.{minor}.0-test"}
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            groups = {}
            for kind in self.kinds:
                if kind.group:
                    groups.setdefault(kind.group, set()).add(kind.version)
            listed = [
                {
                    "name": group,
                    "versions": [
                        {"groupVersion": f"{group}/{one}", "version": one} for one in sorted(versions)
                    ],
                    "preferredVersion": {
                        "groupVersion": f"{group}/{max(versions)}",
                        "version": max(versions),
                    },
                }
                for group, versions in sorted(groups.items())
            ]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
        is_group = (parts[0] == "api" and len(parts) == 2) or (parts[0] == "apis" and len(parts) == 3)
        return self._resources("/".join(parts[1:])) if is_group else None

    def _resources(self, version):
        verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
        found = [kind for kind in self.kinds if kind.api_version == version]
        if not found:
            raise Failure(404, "the server could not find the requested resource")
        listed = [
            {
                "name": one.plural,
                "singularName": one.kind.lower(),
                "namespaced": one.namespaced,
                "kind": one.kind,
                "verbs": verbs,
            }
            for one in found
        ]
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": listed}

    # Reads ------------------------------------------------------------------------------------------------

    def _list(self, query, route):
        found = self._matching(query, route)
        limit = int(query.get("limit") or 0)
        meta = {"resourceVersion": str(self.store.version)}
        begin = 0
        if query.get("continue"):
            token = json.loads(base64.b64decode(query["continue"]))
            if token["version"] < self.store.compacted:
                raise Failure(
                    410, "The provided continue parameter is too old to display a consistent list result"
                )
            begin, meta["resourceVersion"] = token["begin"], str(token["version"])
        if limit and begin + limit < len(found):
            token = {"begin": begin + limit, "version": int(meta["resourceVersion"])}
            meta["continue"] = base64.b64encode(encoded(token)).decode()
            meta["remainingItemCount"] = len(found) - begin - limit
            found = found[begin : begin + limit]
        else:
            found = found[begin:]
        return {
            "kind": f"{route.kind.kind}List",
            "apiVersion": route.kind.api_version,
            "metadata": meta,
            "items": found,
        }

    def _matching(self, query, route):
        match = matcher(query.get("labelSelector"), query.get("fieldSelector"))
        found = [one for one in self.store.all(*route.kind.key, route.namespace) if match(one)]
        return sorted(found, key=lambda one: (one["metadata"].get("namespace", ""), one["metadata"]["name"]))

    def _watch(self, query, route):
        since = query.get("resourceVersion", "")
        initial = query.get("sendInitialEvents") == "true" or since in ("", "0")
        if since and not since.isdigit():
            raise Failure(400, f"invalid resource version {since!r}")
        watch = self.store.watch(route.kind.key, route.namespace, None if initial else int(since))
        first = self._matching(query, route) if initial else []
        return Answer(200, stream=self._stream(query, route, watch, first))

    async def _stream(self, query, route, watch, first):
        match = matcher(query.get("labelSelector"), query.get("fieldSelector"))
        marks = query.get("allowWatchBookmarks") == "true"
        asked_s = float(query.get("timeoutSeconds") or random.uniform(1800, WATCH_S_MAX))
        until_s = time.monotonic() + (self.faults.watch_s or asked_s)
        version = self.store.version
        try:
            for one in first:
                yield _event("ADDED", one)
            if marks and query.get("sendInitialEvents") == "true":
                yield _bookmark(route.kind, version, {"k8s.io/initial-events-end": "true"})
            marked_s = time.monotonic()
            while (left_s := until_s - time.monotonic()) > 0:
                for event in await self._next(watch, match, min(left_s, BOOKMARK_S)):
                    yield event
                if marks and time.monotonic() - marked_s >= BOOKMARK_S and watch.queue.empty():
                    marked_s = time.monotonic()
                    yield _bookmark(route.kind, self.store.version)
        finally:
            self.store.watches.discard(watch)

    async def _next(self, watch, match, wait_s):
        try:
            changes = [await asyncio.wait_for(watch.queue.get(), wait_s)]
        except TimeoutError:
            return []
        if self.faults.shuffled:
            await asyncio.sleep(0.05)
        while not watch.queue.empty():
            changes.append(watch.queue.get_nowait())
        if self.faults.shuffled:  # a stable order for each object: only objects change places
            changes.sort(key=lambda change: change.one["metadata"]["uid"])
        events = [event for change in changes if (event := _seen(change, match)) is not None]
        return [event for event in events for _ in range(2 if self.faults.doubled else 1)]

    # Writes -----------------------------------------------------------------------------------------------

    def _create(self, request, route):
        one = request.json
        if not isinstance(one, dict) or one.get("kind") != route.kind.kind:
            raise Failure(400, f"the object is no {route.kind.kind}")
        one.setdefault("metadata", {})
        if request.query.get("fieldValidation") == "Strict":
            _validate_strictly(one)
        admit(route.kind, one)
        drop_disabled(route.kind, one, self.version)
        if request.query.get("dryRun") == "All":
            return Answer(201, one)
        made = self.store.create(route.kind, route.namespace, one)
        if route.kind.kind == "CustomResourceDefinition":
            self.kinds.define(made)
        return Answer(201, made)

    def _update(self, request, route):
        before = self.store.get(route.kind, route.namespace, route.name)
        return Answer(200, self._changed(route, before, request.json))

    def _patch(self, request, route):
        kind = request.headers.get("content-type", "").partition(";")[0]
        if kind == patches.APPLY:
            return self._apply(request, route)
        if kind not in (patches.JSON_PATCH, patches.MERGE, patches.STRATEGIC):
            raise Failure(415, f"the body of the request was in an unknown format: {kind}")
        if kind == patches.STRATEGIC and "." in route.kind.group and not route.kind.group.endswith(".k8s.io"):
            raise Failure(415, "strategic merge patch is not supported for custom resources")
        before = self.store.get(route.kind, route.namespace, route.name)
        patch = request.json
        wanted = patches.patched(before, patch, kind)
        return Answer(200, self._changed(route, before, wanted))

    def _apply(self, request, route):
        wanted, manager = request.json, request.query.get("fieldManager")
        if not manager:
            raise Failure(422, "fieldManager is required for apply patch")
        stamp = {
            "manager": manager,
            "operation": "Apply",
            "apiVersion": route.kind.api_version,
            "time": now(),
        }
        before = self.store.find(*route.kind.key, route.namespace, route.name)
        if before is None:
            wanted.setdefault("metadata", {}) | {"name": route.name}
            admit(route.kind, wanted)
            wanted["metadata"]["managedFields"] = [stamp]
            return Answer(201, self.store.create(route.kind, route.namespace, wanted))
        after = patches.strategic(copy.deepcopy(before), wanted)
        others = [one for one in before["metadata"].get("managedFields", ()) if one["manager"] != manager]
        after["metadata"]["managedFields"] = [*others, stamp]
        return Answer(200, self._changed(route, before, after))

    def _changed(self, route, before, wanted):
        kind = route.kind
        wanted.setdefault("metadata", {})
        if wanted["metadata"].get("name") not in (None, before["metadata"]["name"]):
            raise Failure(422, "metadata.name: Invalid value: field is immutable")
        if route.subresource == "status":
            meta = {**before["metadata"], "resourceVersion": wanted["metadata"].get("resourceVersion")}
            after = {**before, "status": wanted.get("status", {}), "metadata": meta}
        else:
            after = dict(wanted)
            if kind.status:
                after.pop("status", None)
                if "status" in before:
                    after["status"] = before["status"]
            if "spec" in before:
                admit_change(kind, after, before)
        return self.store.update(kind, after, before) or before

    def _delete(self, request, route):
        one = self.store.get(route.kind, route.namespace, route.name)
        options = request.json or {}
        self._precondition(one, options)
        grace_s = options.get("gracePeriodSeconds", request.query.get("gracePeriodSeconds"))
        policy = (
            options.get("propagationPolicy")
            or request.query.get("propagationPolicy")
            or _default_policy(route.kind)
        )
        left = self.store.delete(route.kind.key, one, None if grace_s is None else int(grace_s), policy)
        return Answer(200, left or status(200, "", ""))

    def _precondition(self, one, options):
        uid = (options.get("preconditions") or {}).get("uid")
        if uid and uid != one["metadata"]["uid"]:
            raise Failure(
                409,
                f"Precondition failed: UID in precondition: {uid}, UID in object meta: {one['metadata']['uid']}",
            )

    def _delete_many(self, request, route):
        for one in self._matching(request.query, route):
            self.store.delete(route.kind.key, one, policy=_default_policy(route.kind))
        return Answer(200, status(200, "", ""))

    def _evict(self, request, route):
        """Adds the condition DisruptionTarget, then deletes; 429 where a budget allows no disruption.

        source: https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/,
        https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
        """
        pod = self.store.get(route.kind, route.namespace, route.name)
        options = (request.json or {}).get("deleteOptions") or {}
        self._precondition(pod, options)
        for budget in self.store.all("policy", "poddisruptionbudgets", route.namespace):
            labels = (budget["spec"].get("selector") or {}).get("matchLabels") or {}
            held = labels.items() <= (pod["metadata"].get("labels") or {}).items()
            if held and not (budget.get("status") or {}).get("disruptionsAllowed", 0):
                raise Failure(
                    429, "Cannot evict pod as it would violate the pod's disruption budget.", retry_after_s=10
                )
        pod = disrupted(self.store, pod, "EvictionByEvictionAPI", "Eviction API: evicting")
        self.store.delete(route.kind.key, pod, options.get("gracePeriodSeconds"))
        return Answer(201, status(201, "", ""))


def disrupted(store, pod, reason, message):
    """The pod with the condition DisruptionTarget."""
    state = pod.get("status", {})
    target = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": now(),
    }
    conditions = [one for one in state.get("conditions", ()) if one["type"] != "DisruptionTarget"]
    return store.change(("", "pods"), pod, status={**state, "conditions": [*conditions, target]}) or pod


def _validate_strictly(one):
    """raises: Failure 400, as for an unknown field. Kinds of which nothing is known here pass."""
    found = [one for one in schemas.problems(one) if "nothing is known" not in one]
    if found:
        raise Failure(400, f"strict decoding error: {'; '.join(found)}")


def _default_policy(kind):
    """source: https://kubernetes.io/docs/tasks/administer-cluster/use-cascading-deletion/: clients of batch/v1 get Background"""
    return "Background"


def _event(type_, one):
    return encoded({"type": type_, "object": one}) + b"\n"


def _bookmark(kind, version, annotations=None):
    meta = {"resourceVersion": str(version), "creationTimestamp": None}
    if annotations:
        meta["annotations"] = annotations
    return _event("BOOKMARK", {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": meta})


def _seen(change, match):
    """The event of a watch with selectors: an object that begins to match is added, one that ceases to is deleted."""
    matches = match(change.one)
    if change.type == "MODIFIED":
        did = change.before is not None and match(change.before)
        if matches and not did:
            return _event("ADDED", change.one)
        if did and not matches:
            return _event("DELETED", change.one)
    return _event(change.type, change.one) if matches else None
