"""Signatures kept parsed: the same as from TOML, and never worse for being there."""

import pytest

from holdfast.observe.search import signature_cache
from holdfast.observe.search.signature_store import CACHED, package_signatures
from known import PACKAGE

KNOWN = PACKAGE
KEY = signature_cache.key_of([("a.toml", b"x")])


def test_what_was_kept_is_what_was_parsed(tmp_path):
    cache = tmp_path / "cache" / "holdfast"
    assert package_signatures(cache, as_built=False) == KNOWN
    assert (cache / CACHED).is_file()
    assert package_signatures(cache, as_built=False) == KNOWN
    assert [path.name for path in cache.iterdir()] == [CACHED]


def test_it_is_really_read(tmp_path):
    signature_cache.save(tmp_path / CACHED, KEY, KNOWN[:1])
    assert signature_cache.load(tmp_path / CACHED, KEY) == KNOWN[:1]


@pytest.mark.parametrize(
    "other", [[("b.toml", b"x")], [("a.toml", b"y")], [], [("a.toml", b"x"), ("b", b"")]]
)
def test_other_files_have_another_key(tmp_path, other):
    signature_cache.save(tmp_path / CACHED, KEY, KNOWN[:1])
    assert signature_cache.load(tmp_path / CACHED, signature_cache.key_of(other)) is None


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """What is in the file, whole."""
    folder = tmp_path_factory.mktemp("kept")
    package_signatures(folder, as_built=False)
    return (folder / CACHED).read_bytes()


@pytest.mark.parametrize("place", [0, 40, 70, -1])
def test_a_damaged_file_is_passed_over_and_made_anew(tmp_path, kept, place):
    raw = bytearray(kept)
    raw[place] ^= 1
    (tmp_path / CACHED).write_bytes(raw)
    assert package_signatures(tmp_path, as_built=False) == KNOWN
    assert (tmp_path / CACHED).read_bytes() != raw


@pytest.mark.parametrize("size", [0, 31, 64, 100])
def test_half_a_file_is_passed_over(tmp_path, kept, size):
    (tmp_path / CACHED).write_bytes(kept[:size])
    assert package_signatures(tmp_path, as_built=False) == KNOWN


def test_a_folder_that_cannot_be_written_costs_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    assert package_signatures(tmp_path / "file", as_built=False) == KNOWN
