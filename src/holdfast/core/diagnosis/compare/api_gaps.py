"""Decides whether a missing name, attribute or argument is a mistake in the training's code or a version conflict of
libraries. Pure.

An installed library is assumed to be free of such mistakes: what it lacks should be in a package of another version.
Tags and wordings are in signatures/rules/actions.toml.
"""

from holdfast.core.diagnosis.candidates import Candidate
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase


def of_api_gap(root: Candidate) -> str:
    """Returns the action for an error about a missing name, attribute or argument; "" if a mistake in the code is as
    likely as a version conflict.
    """
    known, captures, raised = root.known, root.match.captures, root.match.innermost
    is_installed = known.says("in-installed-library", raised)
    if root.has("arguments-do-not-fit"):
        is_librarys = (
            known.says("method-of-library", captures.get("name", ""))
            or known.says("argument-of-versions", captures.get("argument", ""))
            or _calls(raised, known)
        )
        return "fix_env" if is_librarys else ""
    if root.has("attribute-missing"):
        kind = captures.get("type", "").rpartition(".")[2]
        is_of_versions = known.says("type-of-library", kind) or (
            _calls(raised, known) and not known.says("type-of-user", kind)
        )
        return "fix_env" if kind and is_of_versions else ""
    if root.has("name-missing"):
        name = captures.get("name", "")
        return "fix_env" if name and (known.says("optional-name", name) or is_installed) else ""
    if root.has("attribute-of-none"):  # the launcher was not given what it needs
        return "fix_config" if is_installed and known.says("reads-command", raised) else ""
    if root.has("tensors-apart"):  # a model that one process spreads over all GPUs it sees
        return "fix_config" if root.writer.rank is None and root.says("two-devices") else ""
    if root.says("built-from-config"):
        return "fix_config"
    return "fix_env" if is_installed and root.says("module-lacks-name") else ""


def _calls(raised: str, known: KnowledgeBase) -> bool:
    """Returns whether a library made the failed call with arguments of its own."""
    return known.says("in-installed-library", raised) and not known.says("hands-on-arguments", raised)
