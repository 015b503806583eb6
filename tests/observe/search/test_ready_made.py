"""What a build makes of the signatures: the same as is made without it, and never worse for being there."""

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.observe.search import ready_made, signature_cache
from holdfast.observe.search.byte_patterns import loosened
from holdfast.observe.search.signature_store import CACHED, package_texts
from known import PACKAGE

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    ready_made.write(folder)
    return folder


def test_it_is_what_the_toml_says(made):
    key = signature_cache.key_of(package_texts())
    assert signature_cache.load(made / CACHED, key) == PACKAGE
    assert ready_made.loosened_in(made) == {one.pattern: loosened(one.pattern) for one in PACKAGE}


@pytest.mark.parametrize("place", [0, 40, -1])
def test_what_is_damaged_is_passed_over(tmp_path, made, place):
    raw = bytearray((made / ready_made.LOOSENED).read_bytes())
    raw[place] ^= 1
    (tmp_path / ready_made.LOOSENED).write_bytes(raw)
    assert ready_made.loosened_in(tmp_path) == {}


def test_a_source_tree_that_was_never_built_has_none(tmp_path):
    assert ready_made.loosened_in(tmp_path) == {}


def test_a_build_has_it_in_the_package(tmp_path, made):
    done = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build", "--build-base", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    built = tmp_path / "lib" / "holdfast" / "signatures"
    for name in (CACHED, ready_made.LOOSENED):
        assert (built / name).read_bytes() == (made / name).read_bytes()
