"""The signatures of a run, from Holdfast's own files and the site's, as an agent reads them."""

from collections.abc import Mapping

from holdfast.agent.log_watch import Signatures
from holdfast.cli.settings import SettingsRefused, cache_dir, site_signatures
from holdfast.model.signatures import Signature
from holdfast.observe.signature_store import all_signatures
from holdfast.parsers.signature_files import SignatureError


def live_signatures(env: Mapping[str, str]) -> Signatures:
    """Read in a thread, which has just been started."""
    cache = cache_dir(env)

    def load() -> tuple[Signature, ...]:
        try:
            return all_signatures(site_signatures(None, env), cache)
        except SettingsRefused as error:
            raise SignatureError(str(error)) from error

    return Signatures(load, cache)
