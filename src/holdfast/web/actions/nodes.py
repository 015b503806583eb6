"""Isolates and releases nodes in the node book, as `holdfast nodes` does."""

from pathlib import Path

from holdfast.journal.nodes.book import NodeBook
from holdfast.model.documents.actions import ActionResult
from holdfast.model.nodes.book import Isolation, ReleaseLine
from holdfast.web.refusals import not_there

REASON_CHARACTERS_MAX = 500


def isolate(folder: Path, node: str, reason: str, by: str, at_s: float) -> ActionResult:
    """Isolates a node. Raises NodeBookUnusable."""
    book = NodeBook(folder)
    try:
        before = book.isolated().get(node)
        if before is not None:
            return ActionResult(
                done=False, text=f"{node} is already isolated, by {before.by}: {before.reason}"
            )
        book.isolate(Isolation(node=node, since_s=at_s, reason=reason.strip()[:REASON_CHARACTERS_MAX], by=by))
    finally:
        book.close()
    return ActionResult(done=True, text=f"{node} is isolated: jobs will not place workers on it from now on")


def release(folder: Path, node: str, reason: str, by: str, at_s: float) -> ActionResult:
    """Releases a node. Raises NodeBookUnusable, and Refusal for an unknown node."""
    book = NodeBook(folder)
    try:
        if node not in book.isolated():
            if node not in book.nodes():
                raise not_there(f"there is no node {node} in {book.folder}")
            return ActionResult(done=False, text=f"{node} is not isolated")
        line = ReleaseLine(at_s=at_s, node=node, reason=reason.strip()[:REASON_CHARACTERS_MAX], by=by)
        done = book.release(line)
    finally:
        book.close()
    return ActionResult(done=done, text=f"{node} may be used again")
