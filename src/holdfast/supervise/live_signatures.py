"""Loads the signatures of a run, Holdfast's own and the site's, as an agent needs them."""

from collections.abc import Callable, Mapping
from pathlib import Path

from holdfast.agent.watch.logs import Signatures
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.observe.search.rule_store import all_knowledge
from holdfast.parsers.signature_files import SignatureError
from holdfast.settings.read import SettingsRefused, cache_dir, site_signatures


def live_signatures(
    env: Mapping[str, str],
    rehearse: Callable[[Signatures], object],
    shared: Path | None = None,
    *,
    searches_logs: bool = True,
) -> Signatures:
    """Returns signatures that load in a thread, which then handles a made-up failure by `rehearse`.

    `shared`: see `cache_for`. `searches_logs`: see Signatures; a controller searches none.
    """
    cache = cache_for(env, shared)
    left_out: list[str] = []

    def load() -> KnowledgeBase:
        try:
            return all_knowledge(site_signatures(None, env), cache, left_out.append)
        except SettingsRefused as error:
            raise SignatureError(str(error)) from error
        except SignatureError as error:  # the site's folder is not there: Holdfast's own are
            left_out.append(str(error))
            return all_knowledge(None, cache)

    return Signatures(load, cache, left_out, rehearse, searches_logs=searches_logs)


def cache_for(env: Mapping[str, str], shared: Path | None) -> Path:
    """Returns the cache folder: the user's own or, if it is still empty, one that other nodes of the job may
    share.

    On a new node, compiling would take seconds of a core while the training starts.
    """
    own = cache_dir(env)
    return own if shared is None or own.is_dir() else shared
