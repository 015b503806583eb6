"""Deletes objects whose owners are gone.

source: https://kubernetes.io/docs/concepts/architecture/garbage-collection/
"""


class Collector:
    def __init__(self, store):
        self._store = store
        self._gone = []
        store.hooks.append(self._note)

    def _note(self, change):
        if change.type == "DELETED":
            self._gone.append(change.one["metadata"]["uid"])

    def turn(self, now_s):
        gone, self._gone = set(self._gone), []
        foreground = {
            one["metadata"]["uid"]: (key, one)
            for key, found in self._store.objects.items()
            for one in found.values()
            if "foregroundDeletion" in one["metadata"].get("finalizers", ())
        }
        if not gone and not foreground:
            return
        held = set()
        for key, found in list(self._store.objects.items()):
            for one in list(found.values()):
                owners = {ref["uid"] for ref in one["metadata"].get("ownerReferences", ())}
                if owners & foreground.keys():
                    held |= owners
                    if not one["metadata"].get("deletionTimestamp"):
                        self._store.delete(key, one, policy="Foreground")
                if owners and owners & gone and not one["metadata"].get("deletionTimestamp"):
                    self._store.delete(key, one)
        for uid, (key, one) in foreground.items():
            if uid not in held:
                left = [name for name in one["metadata"]["finalizers"] if name != "foregroundDeletion"]
                self._store.change(key, one, metadata={**one["metadata"], "finalizers": left})
