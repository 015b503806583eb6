"""The package's signatures and rules, read once for all tests of a process: their TOML takes a second."""

from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.observe.search.rule_store import package_rules
from holdfast.observe.search.signature_store import package_signatures

PACKAGE = package_signatures()
KNOWN = KnowledgeBase(PACKAGE, package_rules())
