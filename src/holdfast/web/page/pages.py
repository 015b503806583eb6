"""Serves the URLs of the page: an HTML document that contains the job's one-sentence summary and the first API
document, so that the page shows them without a further request.
"""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from holdfast.model.documents.parts import Sentence, Tone
from holdfast.model.signatures import Words
from holdfast.views.page.shell import First, Shell, shell_html
from holdfast.web.access.forwarded import Asked
from holdfast.web.access.identity import Identity
from holdfast.web.api.queries import JobsQuery, NodesQuery
from holdfast.web.api.reads import me
from holdfast.web.api.requests import path_parts
from holdfast.web.data import Data
from holdfast.web.page.assets import Assets
from holdfast.web.refusals import Refusal
from holdfast.web.server_parts import ServerParts

KEPT_FOR_GOOD = "public, max-age=31536000, immutable"
FIRST_ROWS = 50


class View(Struct, frozen=True):
    """A view of the page. `path`: its URL.

    `api`: path of the document that it shows first; empty if there is none.
    """

    name: str
    path: str
    api: str = ""


VIEWS = (
    View("jobs", "/", "/jobs"),
    View("job", "/jobs/{job}", "/jobs/{job}"),
    View("incident", "/jobs/{job}/incidents/{number}", "/jobs/{job}/incidents/{number}"),
    View("output", "/jobs/{job}/output", "/jobs/{job}"),
    View("nodes", "/nodes", "/nodes"),
    View("node", "/nodes/{node}", "/nodes/{node}"),
    View("terminal", "/terminal"),
    View("login", "/login"),
)
_READS: dict[str, Callable[[Data, dict[str, Any]], object]] = {
    "jobs": lambda found, at: found.jobs(JobsQuery(limit=FIRST_ROWS)),
    "job": lambda found, at: found.job(at["job"]),
    "incident": lambda found, at: found.incident(at["job"], at["number"]),
    "output": lambda found, at: found.job(at["job"]),
    "nodes": lambda found, at: found.nodes(NodesQuery(limit=FIRST_ROWS)),
    "node": lambda found, at: found.node(at["node"]),
}


async def page(parts: ServerParts, assets: Assets, view: View, request: Request) -> Response:
    """Returns the HTML document of a view. Raises Refusal."""
    seen: Asked = request.state.seen
    who: Identity | None = request.state.who
    if who is None and view.name != "login":
        back = request.url.path if re.fullmatch(r"[\w/.~-]*", request.url.path) else ""
        return RedirectResponse(f"{seen.prefix}/login" + (f"#{back}" if back else ""), 303)
    found, error, status = None, "", 200
    at = path_parts(request.path_params)
    if who is not None and view.name in _READS and not (view.name == "jobs" and request.url.query):
        try:
            found = await parts.reads.run(lambda: _READS[view.name](parts.data, at))
        except Refusal as refusal:
            error, status = refusal.text, refusal.status
    lang = _language(parts.settings.lang, request)
    first = First(
        base=seen.prefix,
        assets=assets.address(seen.prefix),
        me=me(who) if who is not None else None,
        path=_api_path(view, at) if found is not None else "",
        document=found,
    )
    sentence = Words(en=error, zh=error) if error else _sentence(found)
    shell = Shell(title=_title(view, at), first=first, sentence=sentence, tone=_tone(found), language=lang)
    text = shell_html(shell)
    return Response(text, status, {"Cache-Control": "no-cache, private"}, "text/html")


def asset(assets: Assets, request: Request) -> Response:
    """Returns a static file. Raises Refusal."""
    found = assets.asset(request.path_params["version"], request.path_params["path"])
    if found is None:
        raise Refusal(404, "not-there", "this file does not exist: reload the page")
    headers = {"Cache-Control": KEPT_FOR_GOOD, "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(found.zipped, 200, {**headers, "Content-Encoding": "gzip"}, found.media)
    return Response(found.content, 200, headers, found.media)


def _language(given: str, request: Request) -> str:
    """Returns the language of the page: as configured, else as the browser prefers."""
    chosen = request.cookies.get("lang") or given
    if chosen in ("en", "zh"):
        return chosen
    first = request.headers.get("accept-language", "").partition(",")[0]
    return "zh" if first.lower().startswith("zh") else "en"


def _title(view: View, at: dict[str, Any]) -> str:
    match view.name:
        case "job" | "output":
            return f"{at['job']} · Holdfast"
        case "incident":
            return f"{at['job']} · incident {at['number']} · Holdfast"
        case "node":
            return f"{at['node']} · Holdfast"
    return "Holdfast"


def _row(found: object) -> Any:
    return getattr(found, "row", None)


def _api_path(view: View, at: dict[str, Any]) -> str:
    """Returns the API path as the page's script writes it, with encodeURIComponent."""
    return view.api.format(**{name: quote(str(value), safe="!~*'()") for name, value in at.items()})


def _sentence(found: object) -> Words | None:
    """Returns the sentence of a document; None if it has none."""
    words = getattr(getattr(_row(found), "sentence", None), "text", None)
    return words if isinstance(words, Words) else None


def _tone(found: object) -> Tone:
    sentence = getattr(_row(found), "sentence", None)
    return sentence.tone if isinstance(sentence, Sentence) else "neutral"
