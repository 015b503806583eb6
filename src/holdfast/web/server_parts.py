"""Defines what the handlers of one server share: data, access, audit log, event stream and thread pools."""

import threading
import time
from collections.abc import Callable

from msgspec import Struct
from starlette.requests import HTTPConnection, Request

from holdfast.model.documents.output import OutputPage
from holdfast.web.access.access import CONFIRM_HEADER, Access
from holdfast.web.access.forwarded import Asked
from holdfast.web.access.identity import Identity
from holdfast.web.access.tokens import TokenFile
from holdfast.web.actions.audit import Audit
from holdfast.web.api.queries import OutputQuery
from holdfast.web.api.route_table import Route
from holdfast.web.data import Data
from holdfast.web.live.feed import Feed
from holdfast.web.live.tails import Tails
from holdfast.web.refusals import bad_request, not_allowed
from holdfast.web.settings import ServerSettings
from holdfast.web.threads import Pool

READERS, READS_WAITING = 6, 200
ACTIONS_WAITING = 32
ACTION_S = 60.0
COMMAND_S = 700.0  # a command's own limit is shorter
CHANGES_S = 60.0
ALERTS_WAITING, ALERTS_S = 16, 120.0  # one at a time: jobs that do not answer hold up no other action
CLOSE_S = 5.0


class ServerParts:
    """The shared parts of a server. `clock`: seconds since the epoch."""

    def __init__(self, settings: ServerSettings, data: Data, clock: Callable[[], float] = time.time) -> None:
        limits = settings.limits
        self.settings, self.data, self.clock = settings, data, clock
        self.tokens = TokenFile(settings.folder)
        self.access = Access(settings, self.tokens, clock)
        self.audit = Audit(settings.folder, clock)
        self.feed = Feed(limits.viewers, limits.viewer_queue)
        self.reads = Pool("read", READERS, READS_WAITING, limits.answer_s)
        self.changes = Pool("changes", 1, 1, CHANGES_S)
        self.acts = Pool("act", ACTIONS_WAITING, ACTIONS_WAITING, ACTION_S)
        self.commands = Pool("command", limits.commands, limits.commands, COMMAND_S)
        self.hooks = Pool("alerts", 1, ALERTS_WAITING, ALERTS_S)
        self.faults = 0  # requests that failed in a handler
        self.tails = Tails(self._output)
        self.shells = self.links = 0

    async def _output(self, job: str, query: OutputQuery) -> OutputPage:
        return await self.reads.run(lambda: self.data.output(job, query))

    def failed(self) -> None:
        """Counts a request whose handler failed."""
        self.faults += 1

    def close(self) -> None:
        for pool in (self.reads, self.changes, self.acts, self.commands, self.hooks):
            pool.close()
        # In a thread: an index in the middle of a long journal must not keep the server from ending.
        closing = threading.Thread(target=self.data.close, daemon=True)
        closing.start()
        closing.join(CLOSE_S)


class Caller(Struct, frozen=True, kw_only=True):
    """The user of a request, and the request's origin."""

    who: Identity
    seen: Asked


def caller(parts: ServerParts, request: HTTPConnection, route: Route) -> Caller:
    """Returns the user of a request after checking role and, for an action, confirmation. Raises Refusal."""
    seen: Asked = request.state.seen
    who: Identity | None = request.state.who
    if route.role is None:
        nobody = Identity(name="", role="viewer", by="token", address=seen.address)
        return Caller(who=who or nobody, seen=seen)
    found = parts.access.check(who, route.role)
    if route.by_token and found.by != "token":
        raise not_allowed(f"this needs a token: holdfast serve token create NAME --role {route.role}")
    if isinstance(request, Request):
        parts.access.check_page(found, seen, request.method, request.headers)
    if route.is_action and request.headers.get(CONFIRM_HEADER) != "yes":
        raise bad_request("this request is an action: confirm it with the header X-Holdfast-Confirm: yes")
    return Caller(who=found, seen=seen)
