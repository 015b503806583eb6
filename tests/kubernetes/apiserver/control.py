"""Serves the control requests of tests: faults, counts, nodes and pods that fail."""

from kubernetes.apiserver.answers import Failure
from kubernetes.apiserver.http_server import Answer


class Control:
    """`server`: set once it exists."""

    def __init__(self, api, faults, kubelets, controllers):
        self._api, self._faults, self._kubelets, self._controllers = api, faults, kubelets, controllers
        self.server = None

    async def handle(self, request):
        if not request.path.startswith("/_test/"):
            return await self._api.handle(request)
        name = request.path.removeprefix("/_test/")
        given = request.json or {}
        doing = {
            "faults": lambda: self._set_faults(given, request),
            "drop": lambda: self._drop(request),
            "compact": lambda: self._api.store.compact(),
            "counts": lambda: self._counts(),
            "writes": lambda: self._writes(),
            "version": lambda: setattr(self._api, "version", tuple(given["version"])),
            "forget": lambda: self._api.kinds.forget(given["group"]),
            "deny": lambda: self._deny(given),
            "freeze": lambda: self._kubelets.freeze(given["node"]),
            "thaw": lambda: self._kubelets.thaw(given["node"]),
            "kill-pod": lambda: self._kubelets.kill(given["pod"]),
            "bad-image": lambda: self._kubelets.bad_images.add(given["image"]),
            "quota": lambda: setattr(self._controllers.kueue, "quota", given["pods"]),
            "swaps": lambda: self._controllers.kueue.swaps,
            "trainer-refuses": lambda: setattr(self._controllers.trainer, "refuses", given["requests"]),
            "trainer-posts": lambda: self._controllers.trainer.posts,
            "failed": lambda: self._controllers.troubles,
        }.get(name)
        if doing is None:
            raise Failure(404, f"no control request {name}")
        return Answer(200, {"done": doing()})

    def _set_faults(self, given, request):
        was_down = self._faults.is_down
        self._faults.set(given)
        if self._faults.away and not was_down:
            self._drop(request)

    def _drop(self, request):
        """All connections but that of this request: who asks for it knows from the answer that it is done."""
        self.server.drop_all(without=request.connection)

    def _counts(self):
        return {f"{verb} {plural}": count for (verb, plural), count in self._api.counts.items()}

    def _writes(self):
        writes, self._api.writes = self._api.writes, []
        return writes

    def _deny(self, given):
        self._api.rights.denied = {tuple(pair) for pair in given["denied"]}
