"""Evidence bundles: what goes in, what is cut, what is masked."""

import io
import tarfile

import pytest
import zstandard

from holdfast.observe.logs.bundles import Member, excerpt, write_bundle


def members_of(path):
    with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
        archive = tarfile.open(fileobj=io.BytesIO(stream.read()))
        return {one.name: archive.extractfile(one).read() for one in archive.getmembers()}


def test_members_are_written_and_secrets_are_not(tmp_path):
    path = tmp_path / "incidents" / "incident-001.tar.zst"
    text = b"step 1\nHF_TOKEN=hf_abcdefghijklmnopqrstuvwx1234\nstep 2\n"
    assert write_bundle(path, [Member("worker-0/rank-0.log", text), Member("empty", b"")], at_s=1e9) == []
    found = members_of(path)
    assert found["worker-0/rank-0.log"].split(b"\n")[::2] == [b"step 1", b"step 2"]
    assert b"abcdefghijkl" not in found["worker-0/rank-0.log"]
    assert found["empty"] == b""


def test_what_would_be_too_much_is_left_out_and_named(tmp_path):
    path = tmp_path / "one.tar.zst"
    members = [Member("a", b"12345"), Member("b", b"1234567"), Member("c", b"1")]
    left_out = write_bundle(path, members, at_s=0, bytes_max=10)
    assert left_out == ["b"]
    assert set(members_of(path)) == {"a", "c"}


def test_a_bundle_that_cannot_be_finished_is_not_there(tmp_path):
    def members():
        yield Member("a", b"1")
        raise OSError("the disk is gone")

    with pytest.raises(OSError):
        write_bundle(tmp_path / "one.tar.zst", members(), at_s=0)
    assert list(tmp_path.iterdir()) == []


def test_a_small_log_is_taken_whole(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"one\r\x00two\nthree")
    assert excerpt(log) == b"one\r\x00two\nthree"


def test_of_a_long_log_its_ends_and_what_matters_in_whole_lines(tmp_path):
    log = tmp_path / "log"
    lines = [b"%07d\n" % number for number in range(500_000)]
    log.write_bytes(b"".join(lines))
    taken = excerpt(log, [8 * 200_000])
    kept = [line for line in taken.splitlines(keepends=True) if not line.startswith(b"[holdfast")]
    assert {lines[0], lines[200_000], lines[-1]} <= set(kept) <= set(lines)
    left_out = sum(int(line.split()[1]) for line in taken.splitlines() if line.startswith(b"[holdfast"))
    assert left_out + sum(map(len, kept)) == log.stat().st_size


def test_a_log_that_cannot_be_read_gives_nothing(tmp_path):
    assert excerpt(tmp_path / "missing") == b""
