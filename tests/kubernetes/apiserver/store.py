"""Keeps the objects of the server, with versions, a bounded history for watches, and what a deletion means.

source: https://kubernetes.io/docs/reference/using-api/api-concepts/ (resource versions, watches, 410 Gone, bookmarks),
https://kubernetes.io/docs/concepts/overview/working-with-objects/finalizers/,
https://kubernetes.io/docs/concepts/architecture/garbage-collection/
"""

import asyncio
import copy
import random
import time
import uuid
from collections import deque
from dataclasses import dataclass, field

from kubernetes.apiserver.answers import Failure, now

FIRST_VERSION = 1000  # versions below it are history that has been compacted away
HISTORY_MAX = 4000
LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # of generated names, as Kubernetes has them


@dataclass
class Change:
    version: int
    type: str
    key: tuple
    one: dict
    before: dict | None


@dataclass(eq=False)
class Watch:
    """One open watch. Changes are put into `queue`; None ends it."""

    key: tuple
    namespace: str
    queue: asyncio.Queue = field(default_factory=asyncio.Queue)


class Store:
    def __init__(self):
        self.version = FIRST_VERSION
        self.compacted = FIRST_VERSION
        self.objects = {}  # by (group, plural): by (namespace, name)
        self.history = deque()
        self.watches = set()
        self.changed = asyncio.Event()
        self.hooks = []  # called with each change

    # Reads ------------------------------------------------------------------------------------------------

    def all(self, group, plural, namespace=""):
        found = self.objects.get((group, plural), {})
        return [one for (where, _), one in found.items() if not namespace or where == namespace]

    def find(self, group, plural, namespace, name):
        return self.objects.get((group, plural), {}).get((namespace, name))

    def get(self, kind, namespace, name):
        one = self.find(*kind.key, namespace, name)
        if one is None:
            raise Failure(404, f'{kind.full_name} "{name}" not found')
        return one

    # Writes -----------------------------------------------------------------------------------------------

    def create(self, kind, namespace, one):
        one = copy.deepcopy(one)
        meta = one.setdefault("metadata", {})
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = meta["generateName"] + made_up()
        name = meta.get("name")
        if not name:
            raise Failure(422, f"{kind.kind} is invalid: metadata.name: Required value: name or generateName")
        if self.find(*kind.key, namespace, name) is not None:
            raise Failure(409, f'{kind.full_name} "{name}" already exists', "AlreadyExists")
        one["apiVersion"], one["kind"] = kind.api_version, kind.kind
        meta.pop("resourceVersion", None)
        meta |= {"uid": str(uuid.uuid4()), "creationTimestamp": now(), "generation": 1}
        if kind.namespaced:
            meta["namespace"] = namespace
        return self._put("ADDED", kind.key, one, None)

    def update(self, kind, one, before):
        """Stores a changed copy; raises 409 where it was made of an older version."""
        meta = one["metadata"]
        wanted = meta.get("resourceVersion")
        if wanted and wanted != before["metadata"]["resourceVersion"]:
            raise Failure(
                409,
                f'Operation cannot be fulfilled on {kind.full_name} "{meta["name"]}": the object has been modified; '
                "please apply your changes to the latest version and try again",
            )
        for key in ("uid", "creationTimestamp", "name", "namespace", "deletionTimestamp"):
            if key in before["metadata"]:
                meta[key] = before["metadata"][key]
        if one.get("spec") != before.get("spec"):
            meta["generation"] = before["metadata"].get("generation", 1) + 1
        if _same(one, before):
            return before
        if meta.get("deletionTimestamp") and not meta.get("finalizers") and not _waits(one):
            return self.remove(kind.key, one)
        return self._put("MODIFIED", kind.key, one, before)

    def change(self, key, one, **parts):
        """A controller's own write: `parts` replaces whole parts of the object's latest version."""
        meta = one["metadata"]
        before = self.find(*key, meta.get("namespace", ""), meta["name"])
        if before is None or before["metadata"]["uid"] != meta["uid"]:
            return None
        after = {**before, **parts}
        after["metadata"] = dict(parts.get("metadata", before["metadata"]))
        if _same(after, before):
            return before
        if after.get("spec") != before.get("spec"):
            after["metadata"]["generation"] = before["metadata"].get("generation", 1) + 1
        gone = after["metadata"].get("deletionTimestamp") and not after["metadata"].get("finalizers")
        if gone and not _waits(after):
            return self.remove(key, after)
        return self._put("MODIFIED", key, after, before)

    def delete(self, key, one, grace_s=None, policy="Background"):
        """Marks for deletion, or removes at once what nothing holds. Returns the object, or None if it is gone."""
        meta = one["metadata"]
        before = self.find(*key, meta.get("namespace", ""), meta["name"])
        if before is None:
            return None
        meta = dict(before["metadata"])
        is_pod = key == ("", "pods")
        grace_s = self._grace_s(before, grace_s) if is_pod else 0
        if policy == "Foreground":
            meta["finalizers"] = [*meta.get("finalizers", []), "foregroundDeletion"]
        elif policy == "Orphan":
            self._orphan(meta["uid"])
        old = meta.get("deletionGracePeriodSeconds")
        if not meta.get("deletionTimestamp") or (old is not None and grace_s < old):
            meta["deletionTimestamp"] = now(time.time() + grace_s)
            meta["deletionGracePeriodSeconds"] = grace_s
        after = {**before, "metadata": meta}
        if not meta.get("finalizers") and not _waits(after):
            self.remove(key, after)
            return None
        return self._put("MODIFIED", key, after, before)

    def remove(self, key, one):
        meta = one["metadata"]
        before = self.objects[key].pop((meta.get("namespace", ""), meta["name"]), None)
        if before is None:
            return None
        self._note("DELETED", key, copy.deepcopy(one), before)
        return None

    def _grace_s(self, pod, grace_s):
        """A pod that is on no node, or has ended, goes at once.

        source: pkg/registry/core/pod/strategy.go, CheckGracefulDelete
        """
        if not pod["spec"].get("nodeName") or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            return 0
        return pod["spec"].get("terminationGracePeriodSeconds", 30) if grace_s is None else grace_s

    def _orphan(self, uid):
        for key, found in list(self.objects.items()):
            for one in list(found.values()):
                left = [ref for ref in one["metadata"].get("ownerReferences", ()) if ref["uid"] != uid]
                if left != one["metadata"].get("ownerReferences", []):
                    self.change(key, one, metadata={**one["metadata"], "ownerReferences": left})

    def _put(self, type_, key, one, before):
        meta = one["metadata"]
        self.objects.setdefault(key, {})[(meta.get("namespace", ""), meta["name"])] = one
        self._note(type_, key, one, before)
        return one

    def _note(self, type_, key, one, before):
        self.version += 1
        one["metadata"]["resourceVersion"] = str(self.version)
        change = Change(self.version, type_, key, one, before)
        self.history.append(change)
        while len(self.history) > HISTORY_MAX:
            self.compacted = self.history.popleft().version
        for watch in self.watches:
            if watch.key == key and watch.namespace in ("", one["metadata"].get("namespace", "")):
                watch.queue.put_nowait(change)
        for hook in self.hooks:
            hook(change)
        self.changed.set()

    # Watches ----------------------------------------------------------------------------------------------

    def watch(self, key, namespace, since):
        """An open watch that begins after version `since`. raises: Failure 410"""
        if since is not None and since < self.compacted:
            raise Failure(410, f"too old resource version: {since} ({self.compacted})")
        watch = Watch(key, namespace)
        if since is not None:
            for change in self.history:
                here = namespace in ("", change.one["metadata"].get("namespace", ""))
                if change.version > since and change.key == key and here:
                    watch.queue.put_nowait(change)
        self.watches.add(watch)
        return watch

    def compact(self):
        """Forgets the history, as etcd does every five minutes."""
        self.history.clear()
        self.compacted = self.version


def made_up(count=5):
    return "".join(random.choice(LETTERS) for _ in range(count))


def _waits(one):
    """A pod on a node is removed by its kubelet only."""
    if one["kind"] != "Pod":
        return False
    return one["metadata"].get("deletionGracePeriodSeconds", 0) > 0


def _same(one, other):
    def plain(it):
        meta = {
            key: value
            for key, value in it["metadata"].items()
            if key not in ("resourceVersion", "managedFields")
        }
        return {**it, "metadata": meta}

    return plain(one) == plain(other)
