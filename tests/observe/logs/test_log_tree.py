"""What lies in folders of logs, and what else may lie there: each kind is read, or left out with a reason."""

import gzip
import json
import os
import pickle
import random
import socket
import sqlite3
import struct

import pytest
from log_tree_kit import TEXT, read

from holdfast.observe.logs import tree as log_tree
from holdfast.observe.logs.tree import natural

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
    assert read(tmp_path / "nothing") == ({}, {str(tmp_path / "nothing"): "it does not exist"})


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
    assert "the same file as again.log" in skipped["z-run-3/rank-0.log"]
    assert skipped["self"] == "it is a circular link"
    assert skipped["nowhere"] == "it is a broken link"
    assert "the same file as z-run-3" in skipped["latest"]
    assert "the same file as" in skipped["z-run-3/loop"]


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
        "device": "it is a device, not a file",
        "pipe": "it is a named pipe, not a file",
        "socket": "it is a socket, not a file",
    }
    assert read(tmp_path / "pipe") == ({}, {"pipe": "it is a named pipe, not a file"})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read(tmp_path):
    (tmp_path / "closed").mkdir(mode=0o000)
    (tmp_path / "secret.log").write_bytes(TEXT)
    (tmp_path / "secret.log").chmod(0o000)
    texts, skipped = read(tmp_path)
    assert texts == {}
    assert skipped["closed"] == "this user has no permission to read it"
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
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "image"),
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
    assert {name for name, why in skipped.items() if "data file of Holdfast" in why} == {
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
    assert [one.why for one in skipped] == ["it was truncated to 20 bytes while it was read"]


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
    assert skipped[0].why == "it is no longer a regular file"


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
