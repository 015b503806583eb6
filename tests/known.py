"""The package's signatures, read once for all tests of a process: their TOML takes a second."""

from holdfast.observe.search.signature_store import package_signatures

PACKAGE = package_signatures()
