"""Packed logs, archives that grow without limit, and stdin: read within limits, or left out with a reason."""

import bz2
import gzip
import io
import lzma
import pickle
import random
import tarfile
import tracemalloc
import zipfile

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from log_tree_kit import TEXT, read

from holdfast.observe.logs import tree as log_tree
from holdfast.observe.logs.streams import Limits, Unreadable
from holdfast.observe.logs.tree import of_stdin

# One folder for all examples; and a machine that is slow to make them is no fault.
IN_A_FOLDER = (HealthCheck.function_scoped_fixture, HealthCheck.too_slow)
SMALL = Limits(ratio_max=20, free_bytes=1 << 20, bytes_max=8 << 20, members_max=20)


def tar_of(members, mode="w"):
    """A tar of {name: bytes}."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


# Packed logs

PACKERS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.compress,
}


@pytest.mark.parametrize("kind", PACKERS)
def test_packed_logs_are_read(tmp_path, kind):
    lines = b"".join(b"step %d\n" % number for number in range(200_000))
    (tmp_path / f"log.{kind}").write_bytes(PACKERS[kind](lines))
    assert read(tmp_path) == ({f"log.{kind}": lines}, {})


@pytest.mark.parametrize("kind", PACKERS)
def test_packed_parts_one_behind_the_other(tmp_path, kind):
    (tmp_path / "log").write_bytes(PACKERS[kind](b"one\n") + PACKERS[kind](b"two\n"))
    assert read(tmp_path) == ({"log": b"one\ntwo\n"}, {})


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz"])
def test_packed_logs_that_end_early_are_read_so_far(tmp_path, kind):
    lines = b"".join(b"%d\n" % one for one in random.Random(1).choices(range(10**9), k=200_000))
    packed = PACKERS[kind](lines)
    (tmp_path / "log").write_bytes(packed[: len(packed) // 2])
    texts, skipped = read(tmp_path)
    assert lines.startswith(texts["log"])
    assert len(texts["log"]) > len(lines) // 10
    assert "is truncated" in skipped["log"]


@pytest.mark.parametrize("kind", PACKERS)
@given(data=st.data())
@settings(max_examples=30, deadline=None, suppress_health_check=IN_A_FOLDER)
def test_damaged_packed_logs_never_raise(tmp_path, kind, data):
    packed = bytearray(PACKERS[kind](tar_of({"a.log": TEXT * 50, "b/c.log": TEXT})))
    for place in data.draw(st.lists(st.integers(6, len(packed) - 1), max_size=5)):
        packed[place] = data.draw(st.integers(0, 255))
    path = tmp_path / "log"
    path.write_bytes(packed[: data.draw(st.integers(6, len(packed)))])
    read(path, limits=SMALL)


def test_an_archive_is_read_by_member(tmp_path):
    members = {
        "./job/worker-0/rank-1.log": TEXT,
        "/etc/passwd": b"root\n",
        "../../escape.log": b"out\n",
        "job/packed.log.gz": gzip.compress(b"inner\n"),
        "job/inner.tar.zst": zstandard.compress(tar_of({"deep.log": b"deep\n"})),
        "job/model.bin": random.Random(2).randbytes(3000),
        "job/" + "n" * 300 + ".log": b"long\n",
        "job/empty": b"",
        "job/stdout.idx": b"index",
    }
    for kind, pack in {"tar": bytes, **PACKERS}.items():
        place = tmp_path / kind
        place.mkdir()
        (place / f"b.{kind}").write_bytes(pack(tar_of(members)))
        texts, skipped = read(place)
        assert texts == {
            f"b.{kind}/job/worker-0/rank-1.log": TEXT,
            f"b.{kind}/etc/passwd": b"root\n",
            f"b.{kind}/../../escape.log": b"out\n",
            f"b.{kind}/job/packed.log.gz": b"inner\n",
            f"b.{kind}/job/inner.tar.zst/deep.log": b"deep\n",
            f"b.{kind}/job/{'n' * 300}.log": b"long\n",
            f"b.{kind}/job/empty": b"",
        }
        assert set(skipped) == {f"b.{kind}/job/model.bin", f"b.{kind}/job/stdout.idx"}
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["tar", *PACKERS])


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_forms_of_tar(tmp_path, form):
    name = "sub/" * 20 + "日志-" + "x" * 80 + ".log"
    with tarfile.open(tmp_path / "a.tar", "w", format=form) as tar:
        folder = tarfile.TarInfo("folder/")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
        info = tarfile.TarInfo(name)
        info.size = len(TEXT)
        tar.addfile(info, io.BytesIO(TEXT))
    assert read(tmp_path) == ({f"a.tar/{name}": TEXT}, {})


def test_a_zip_is_read_by_member(tmp_path):
    with zipfile.ZipFile(tmp_path / "logs.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../a.log", TEXT)
        archive.writestr("folder/", b"")
        archive.writestr("b.log.gz", gzip.compress(b"inner\n"))
        archive.writestr("c.bin", bytes(range(256)) * 20)
    texts, skipped = read(tmp_path)
    assert texts == {"logs.zip/../a.log": TEXT, "logs.zip/b.log.gz": b"inner\n"}
    assert skipped == {"logs.zip/c.bin": "it is a binary file"}


def test_a_checkpoint_is_no_archive_of_logs(tmp_path):
    with zipfile.ZipFile(tmp_path / "step-100.pt", "w") as archive:
        archive.writestr("step-100/data.pkl", pickle.dumps({}))
        archive.writestr("step-100/data/0", bytes(1000))
    assert read(tmp_path) == ({}, {"step-100.pt": "it is a checkpoint of PyTorch, not a log"})


@pytest.mark.parametrize(
    "damage",
    [lambda zip_: zip_[:-30], lambda zip_: zip_[:40], lambda zip_: zip_[:60] + bytes(40) + zip_[100:]],
)
def test_damaged_zips(tmp_path, damage):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.log", b"".join(b"%d\n" % number for number in range(5000)))
    (tmp_path / "logs.zip").write_bytes(damage(out.getvalue()))
    assert any("damaged" in why for why in read(tmp_path)[1].values())


def test_an_encrypted_member(tmp_path):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a.log", TEXT)
    packed = bytearray(out.getvalue())
    packed[6] |= 1
    packed[packed.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "logs.zip").write_bytes(packed)
    assert read(tmp_path) == ({}, {"logs.zip/a.log": "it is encrypted"})


# Bombs


@pytest.mark.parametrize("kind", PACKERS)
def test_a_bomb_is_given_up_in_little_memory(tmp_path, kind):
    (tmp_path / "bomb").write_bytes(PACKERS[kind](bytes(64 << 20)))
    (tmp_path / "fine.log").write_bytes(TEXT)
    skipped = []
    tracemalloc.start()
    read_bytes = 0
    for file in log_tree.find([tmp_path], skipped.append):
        for log in log_tree.opened(file, skipped.append, SMALL):
            try:
                while part := log.stream.read(1 << 16):
                    read_bytes += len(part)
            except Unreadable as error:
                skipped.append(log_tree.Skipped(name=log.name, why=str(error)))
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert read_bytes < 2 << 20
    assert most_bytes < 32 << 20
    assert [one.name for one in skipped] == ["bomb"]
    assert "times its size" in skipped[0].why


def test_bombs_within_archives(tmp_path):
    bomb = gzip.compress(bytes(64 << 20))
    (tmp_path / "a.tar").write_bytes(tar_of({"bomb.gz": bomb, "b.log": TEXT}))
    texts, skipped = read(tmp_path, limits=SMALL)
    assert len(texts["a.tar/bomb.gz"]) <= (1 << 20) + 20 * len(bomb) * 2
    assert "times its size" in skipped["a.tar/bomb.gz"]
    nested = TEXT
    for _ in range(10):
        nested = gzip.compress(nested)
    (tmp_path / "a.tar").unlink()
    (tmp_path / "nested").write_bytes(nested)
    assert read(tmp_path, limits=SMALL) == (
        {},
        {"nested": "it is compressed or archived more than 4 times over"},
    )


def test_an_archive_of_too_many_members(tmp_path):
    (tmp_path / "a.tar").write_bytes(tar_of({f"{number}.log": b"x\n" for number in range(50)}))
    texts, skipped = read(tmp_path, limits=SMALL)
    assert len(texts) == 20
    assert skipped == {"a.tar": "it has more than 20 members: the rest was not read"}


def test_too_much_in_all(tmp_path):
    content = random.Random(3).randbytes(3 << 20).hex().encode()
    (tmp_path / "a.tar").write_bytes(tar_of({f"{number}.log": content for number in range(3)}))
    (tmp_path / "a.tar").write_bytes(gzip.compress((tmp_path / "a.tar").read_bytes(), 1))
    texts, skipped = read(tmp_path, limits=SMALL)
    assert sum(map(len, texts.values())) <= 8 << 20
    assert any("unpacks to more than" in why for why in skipped.values())


def test_a_tar_that_claims_a_long_name(tmp_path):
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 10 << 30
    (tmp_path / "a.tar").write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(4096))
    assert read(tmp_path) == (
        {},
        {"a.tar": "the archive claims a name of more than 1 MiB: the rest was not read"},
    )


def test_a_tar_that_ends_early(tmp_path):
    whole = tar_of({"a.log": TEXT, "b.log": TEXT * 100})
    (tmp_path / "a.tar").write_bytes(whole[:1800])
    texts, skipped = read(tmp_path)
    assert texts["a.tar/a.log"] == TEXT
    assert (TEXT * 100).startswith(texts["a.tar/b.log"])
    assert "is truncated" in skipped["a.tar/b.log"]


@settings(max_examples=150, deadline=None, suppress_health_check=IN_A_FOLDER)
@given(data=st.data())
def test_damaged_tars_never_raise(tmp_path, data):
    whole = bytearray(tar_of({"a.log": TEXT, "b" * 200: TEXT * 30, "c": b""}, "w"))
    for place in data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=8)):
        whole[place] = data.draw(st.integers(0, 255))
    path = tmp_path / "a.tar"
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
    read(path, limits=SMALL)


@settings(max_examples=150, deadline=None, suppress_health_check=IN_A_FOLDER)
@given(
    head=st.sampled_from(
        [b"", b"\x1f\x8b", b"BZh9", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"PK\x03\x04", b"\xff\xfe"]
    ),
    rest=st.binary(max_size=3000),
)
def test_any_bytes_are_read_or_left_out(tmp_path, head, rest):
    path = tmp_path / "log"
    path.write_bytes(head + rest)
    texts, skipped = read(path, limits=SMALL)
    assert texts or skipped


# Stdin


def test_stdin_plain_and_packed():
    for content in (TEXT, gzip.compress(TEXT), zstandard.compress(TEXT)):
        skipped = []
        texts = {log.name: log.stream.read(1 << 20) for log in of_stdin(io.BytesIO(content), skipped.append)}
        assert texts == {"stdin": TEXT}
    texts = {
        log.name: log.stream.read(1 << 20)
        for log in of_stdin(io.BytesIO(tar_of({"a.log": TEXT})), skipped.append)
    }
    assert texts == {"stdin/a.log": TEXT}
    assert not skipped


def test_stdin_that_is_closed_or_no_text():
    closed = io.BytesIO(TEXT)
    closed.close()
    for content, why in ((closed, "closed"), (io.BytesIO(random.Random(4).randbytes(5000)), "binary")):
        skipped = []
        assert list(of_stdin(content, skipped.append)) == []
        assert why in skipped[0].why
