"""What lies in folders of logs, and what else may lie there: each kind is read, or left out with a reason."""

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import random
import socket
import sqlite3
import struct
import tarfile
import tracemalloc
import zipfile

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.observe.logs import tree as log_tree
from holdfast.observe.logs.streams import Limits, Unreadable
from holdfast.observe.logs.tree import natural, of_stdin

# One folder for all examples; and a machine that is slow to make them is no fault.
IN_A_FOLDER = (HealthCheck.function_scoped_fixture, HealthCheck.too_slow)
TEXT = b"step 1 loss 2.5\nCUDA out of memory\n"
SMALL = Limits(ratio_max=20, free_bytes=1 << 20, bytes_max=8 << 20, members_max=20)


def read(*paths, limits=None):
    """{name: text} and {name: why} of what is under the paths."""
    skipped = []
    texts = {}
    for file in log_tree.find(paths, skipped.append):
        for log in log_tree.opened(file, skipped.append, limits):
            texts[log.name] = all_of(log.stream, skipped, log.name)
    return texts, {one.name: one.why for one in skipped}


def all_of(stream, skipped, name):
    parts = []
    try:
        while part := stream.read(1 << 20):
            parts.append(part)
    except Unreadable as error:
        skipped.append(log_tree.Skipped(name=name, why=str(error)))
    return b"".join(parts)


def tar_of(members, mode="w"):
    """A tar of {name: bytes}."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


# Folders


def test_files_come_in_natural_order_named_from_what_was_given(tmp_path):
    for name in (
        "rank-10.log",
        "rank-9.log",
        "worker-2/rank-1.log",
        "worker-10/rank-1.log",
        "a/b/c/deep.txt",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(TEXT)
    texts, skipped = read(tmp_path)
    assert list(texts) == [
        "a/b/c/deep.txt",
        "rank-9.log",
        "rank-10.log",
        "worker-2/rank-1.log",
        "worker-10/rank-1.log",
    ]
    assert not skipped
    assert list(read(tmp_path / "rank-9.log")[0]) == ["rank-9.log"]


def test_several_places_keep_their_names(tmp_path):
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "log").write_bytes(TEXT)
    texts, _ = read(tmp_path / "one", tmp_path / "two" / "log")
    assert list(texts) == [f"{tmp_path}/one/log", f"{tmp_path}/two/log"]


def test_natural_order():
    names = ["b", "a10", "a9", "a", "10", "9", "a9b", "x" + "9" * 40, ""]
    assert sorted(names, key=natural) == ["", "9", "10", "a", "a9", "a9b", "a10", "b", "x" + "9" * 40]


def test_empty_folders_and_files(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.log").write_bytes(b"")
    assert read(tmp_path) == ({"empty.log": b""}, {})
    assert read(tmp_path / "folder") == ({}, {})


def test_what_is_not_there(tmp_path):
    assert read(tmp_path / "nothing") == ({}, {str(tmp_path / "nothing"): "it is not there"})


def test_links_are_followed_once(tmp_path):
    real = tmp_path / "z-run-3"
    real.mkdir()
    (real / "rank-0.log").write_bytes(TEXT)
    (real / "loop").symlink_to(tmp_path)
    (tmp_path / "latest").symlink_to(real)
    (tmp_path / "self").symlink_to("self")
    (tmp_path / "nowhere").symlink_to("nothing")
    (tmp_path / "again.log").symlink_to(real / "rank-0.log")
    texts, skipped = read(tmp_path)
    # One file, once; the link beside it comes first by name.
    assert list(texts) == ["again.log"]
    assert "the same as again.log" in skipped["z-run-3/rank-0.log"]
    assert skipped["self"] == "it is a link that leads round in a circle"
    assert skipped["nowhere"] == "it is a link that leads nowhere"
    assert "the same as z-run-3" in skipped["latest"]
    assert "the same as" in skipped["z-run-3/loop"]


def test_a_link_to_a_folder_elsewhere_is_followed(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "rank-0.log").write_bytes(TEXT)
    (tmp_path / "logs" / "run").symlink_to(tmp_path / "real")
    assert read(tmp_path / "logs") == ({"run/rank-0.log": TEXT}, {})


def test_pipes_sockets_and_devices_are_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listening:
        before = os.getcwd()
        os.chdir(tmp_path)  # the path of a socket is short
        listening.bind("socket")
        os.chdir(before)
        texts, skipped = read(tmp_path)
    assert texts == {}
    assert skipped == {
        "device": "it is a device, no file",
        "pipe": "it is a named pipe, no file",
        "socket": "it is a socket, no file",
    }
    assert read(tmp_path / "pipe") == ({}, {"pipe": "it is a named pipe, no file"})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read(tmp_path):
    (tmp_path / "closed").mkdir(mode=0o000)
    (tmp_path / "secret.log").write_bytes(TEXT)
    (tmp_path / "secret.log").chmod(0o000)
    texts, skipped = read(tmp_path)
    assert texts == {}
    assert skipped["closed"] == "it may not be read by this user"
    assert "Permission denied" in skipped["secret.log"]


def test_names_of_any_bytes(tmp_path):
    with open(os.fsencode(tmp_path) + b"/caf\xe9\x1b[31m\n.log", "wb") as file:
        file.write(TEXT)
    (name,) = read(tmp_path)[0]
    assert name == "caf�?[31m?.log"
    json.dumps(name).encode()


# What is no text


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (pickle.dumps({"a": 1}), "pickle"),
        (struct.pack("<Q", 80) + b'{"weight":{"dtype":"F32"' + b" " * 56 + bytes(4000), "safetensors"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "picture"),
        (b"\x7fELF\x02\x01" + bytes(100), "program"),
        (b"7z\xbc\xaf\x27\x1c" + bytes(100), "unpack it first"),
        (b"LPKSHHRH" + bytes(100), "journalctl"),
        (random.Random(1).randbytes(5000), "binary"),
        (struct.pack("<200Q", *range(10**12, 10**12 + 200)), "binary"),
    ],
)
def test_what_is_no_text_is_left_out(tmp_path, content, why):
    (tmp_path / "thing").write_bytes(content)
    (tmp_path / "fine.log").write_bytes(TEXT)
    texts, skipped = read(tmp_path)
    assert texts == {"fine.log": TEXT}
    assert why in skipped["thing"]


def test_a_database_and_our_own_files_are_left_out(tmp_path):
    with sqlite3.connect(tmp_path / "some.sqlite") as database:
        database.execute("CREATE TABLE t (x)")
    database.close()
    for name in ("journal.db", "journal.db-wal", "stdout.idx"):
        (tmp_path / name).write_bytes(b"plain text\n")
    texts, skipped = read(tmp_path)
    assert texts == {}
    assert {name for name, why in skipped.items() if "Holdfast's own" in why} == {
        "journal.db",
        "journal.db-wal",
        "stdout.idx",
    }
    assert "database" in skipped["some.sqlite"]


@pytest.mark.parametrize(
    "content",
    [
        "表示エラー 显存不足\n".encode(),
        "表示エラー 显存不足\n".encode("gb18030"),
        "caf\xe9 perdu\n".encode("latin-1") * 10,
        b"\x1b[31mred\x1b[0m 10%\r20%\r\n\x1b]0;title\x07" * 20,
        b'{"log":"json","n":1}\n',
        bytes(3000) + TEXT,
        TEXT + b"\x00" * 5 + TEXT,
        b"\xff" * 3 + TEXT,
        b"one line without an end",
    ],
)
def test_text_in_any_encoding_is_read(tmp_path, content):
    (tmp_path / "log").write_bytes(content)
    assert read(tmp_path) == ({"log": content}, {})


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_is_read_as_utf8(tmp_path, encoding):
    words = "CUDA out of memory 显存不足 😀\n" * 5000
    (tmp_path / "log").write_bytes("\ufeff".encode(encoding) + words.encode(encoding))
    assert read(tmp_path)[0] == {"log": words.encode()}


def test_half_a_character_of_utf16(tmp_path):
    (tmp_path / "log").write_bytes(b"\xff\xfe" + "lost".encode("utf-16-le") + b"x\xd8\x00")
    assert read(tmp_path)[0]["log"].startswith(b"lost")


def test_the_mark_of_utf8_is_no_text(tmp_path):
    (tmp_path / "log").write_bytes(b"\xef\xbb\xbf" + TEXT)
    (tmp_path / "log.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + TEXT))
    assert read(tmp_path)[0] == {"log": TEXT, "log.gz": TEXT}


# Files that change, and files with holes


def opened_one(path):
    skipped = []
    (file,) = log_tree.find([path], skipped.append)
    return log_tree.opened(file, skipped.append), skipped


def test_a_file_that_grows_is_read_to_the_size_it_had(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(TEXT)
    logs, _ = opened_one(path)
    log = next(logs)
    with path.open("ab") as file:
        file.write(b"more\n")
    assert log.stream.read(1 << 20) == TEXT
    assert log.stream.read(1 << 20) == b""
    logs.close()


def test_a_file_that_is_cut_while_it_is_read(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(TEXT * 1000)
    logs, skipped = opened_one(path)
    log = next(logs)
    assert log.stream.read(10) == TEXT[:10]
    os.truncate(path, 20)
    assert log.stream.read(1 << 20) == TEXT[10:20]
    assert log.stream.read(1 << 20) == b""
    assert next(logs, None) is None
    assert [one.why for one in skipped] == ["it was cut to 20 bytes while it was read"]


def test_a_file_that_is_rotated_while_it_is_read(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(TEXT)
    logs, skipped = opened_one(path)
    log = next(logs)
    path.rename(tmp_path / "log.1")
    path.write_bytes(b"a new one\n")
    assert log.stream.read(1 << 20) == TEXT
    assert next(logs, None) is None
    assert not skipped


def test_a_file_that_is_gone_when_its_turn_comes(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(TEXT)
    logs, skipped = opened_one(path)
    path.unlink()
    assert list(logs) == []
    assert "No such file" in skipped[0].why


def test_a_pipe_in_the_place_of_a_file(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(TEXT)
    logs, skipped = opened_one(path)
    path.unlink()
    os.mkfifo(path)
    assert list(logs) == []
    assert skipped[0].why == "it is no regular file any more"


def test_holes_are_passed_over(tmp_path):
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.write(TEXT)
        file.seek(50 << 30)
        file.write(TEXT)
        file.truncate(100 << 30)
    texts, _ = read(path)
    assert len(texts["log"]) < 1 << 20
    assert texts["log"].strip(b"\0").startswith(TEXT)
    assert texts["log"].strip(b"\0").endswith(TEXT)
    with (tmp_path / "hole").open("wb") as file:
        file.truncate(100 << 30)
    assert read(tmp_path / "hole") == ({"hole": b""}, {})


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
    assert "ends in the midst" in skipped["log"]


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
    assert skipped == {"logs.zip/c.bin": "it is binary"}


def test_a_checkpoint_is_no_archive_of_logs(tmp_path):
    with zipfile.ZipFile(tmp_path / "step-100.pt", "w") as archive:
        archive.writestr("step-100/data.pkl", pickle.dumps({}))
        archive.writestr("step-100/data/0", bytes(1000))
    assert read(tmp_path) == ({}, {"step-100.pt": "it is a checkpoint of PyTorch, no log"})


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
    assert read(tmp_path, limits=SMALL) == ({}, {"nested": "it is packed more than 4 times over"})


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
    assert "ends before it does" in skipped["a.tar/b.log"]


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
