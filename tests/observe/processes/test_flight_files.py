"""What is found beside a job's logs: records, groups and stacks, in folders and in archives."""

import gzip
import io
import json
import os
import pickle
import tarfile
import tracemalloc
import zipfile
from pathlib import Path

import pytest
import zstandard

from holdfast.core.flight.members import ranks_of
from holdfast.observe.processes.flight_files import SceneReader, read_scene
from holdfast.observe.search.scan import search

SHARED = Path(__file__).parents[3].parent / "shared" / "corpus" / "flight"
NOTHING = ()  # signatures to look for

DUMP = b'Current thread 0x00007fc62cbfd6c0 (most recent call first):\n  File "/job/train.py", line 12 in load_batch\n'
PYSPY = b'Process 7: python train.py\nPython v3.11.7 (/bin/python3.11)\n\nThread 7 (idle): "MainThread"\n    load (train.py:9)\n'


def record(last=20, group="1", start=0, created_ns=1_700_000_000_000_000_000, version="2.10"):
    entries = [
        {
            "record_id": number,
            "pg_id": 1,
            "process_group": [group, "dp0"],
            "collective_seq_id": number + 1,
            "p2p_seq_id": 0,
            "op_id": number + 1,
            "profiling_name": "gloo:all_reduce",
            "time_created_ns": created_ns + number,
            "input_sizes": [[4]],
            "input_dtypes": ["Float"],
            "output_sizes": [[4]],
            "output_dtypes": ["Float"],
            "state": "scheduled",
            "retired": number < last - 1,
            "is_p2p": False,
        }
        for number in range(start, last)
    ]
    return {
        "version": version,
        "pg_config": {"": {"name": "", "ranks": "[]"}},
        "pg_status": {},
        "entries": entries,
    }


def put(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_bytes(content)
    return folder


def job(folder):
    return put(
        folder,
        fr_rank_0=pickle.dumps(record(), 2),
        fr_json_1__json=json.dumps(record(19)).encode(),
        groups0__json=b'{"1": {"desc": "dp0", "ranks": [0, 1], "backend": "gloo"}}',
        faulthandler_0__txt=DUMP,
        pyspy_1__txt=PYSPY,
        log0=b"step 1 loss 2.0\n",
        log1=b"step 1 loss 2.0\n",
    )


def said(scene):
    return [note.en for note in scene.notes]


def test_a_folder(tmp_path):
    scene = read_scene([job(tmp_path / "job")])
    assert [(one.rank, one.operations) for one in scene.digests] == [(0, 20), (1, 19)]
    assert [(one.rank, one.file) for one in scene.records] == [(0, "fr_rank_0"), (1, "fr_json_1.json")]
    assert [ranks_of(one.groups[0].members) for one in scene.digests] == [(0, 1), (0, 1)], (
        "rank 1 learns it of 0"
    )
    assert [(one.stacks.rank, one.file, one.stacks.threads[0].frames) for one in scene.stacks] == [
        (0, "faulthandler_0.txt", ("/job/train.py:12 load_batch",)),
        (1, "pyspy_1.txt", ("train.py:9 load",)),
    ]
    assert scene.files == 5
    assert not scene.skipped
    assert not scene.notes


def packed_zst(folder, to):
    with zstandard.open(to, "wb") as stream, tarfile.open(fileobj=stream, mode="w|") as archive:
        archive.add(folder, arcname="job")


def packed_gz(folder, to):
    with tarfile.open(to, "w:gz") as archive:
        archive.add(folder, arcname="job")


def packed_zip(folder, to):
    with zipfile.ZipFile(to, "w") as archive:
        for path in sorted(folder.iterdir()):
            archive.write(path, f"job/{path.name}")


@pytest.mark.parametrize(
    ("pack", "name"), [(packed_zst, "b.tar.zst"), (packed_gz, "b.tar.gz"), (packed_zip, "b.zip")]
)
def test_an_archive_tells_the_same_as_the_folder(tmp_path, pack, name):
    folder = job(tmp_path / "job")
    pack(folder, tmp_path / name)
    plain, packed = read_scene([folder]), read_scene([tmp_path / name])
    assert packed.digests == plain.digests
    assert [one.stacks for one in packed.stacks] == [one.stacks for one in plain.stacks]
    assert [one.file for one in packed.records] == [f"{name}/job/{one.file}" for one in plain.records]


def test_single_files_packed_one_by_one(tmp_path):
    put(tmp_path / "job", fr_rank_3__gz=gzip.compress(pickle.dumps(record(), 2)))
    assert [one.rank for one in read_scene([tmp_path / "job"]).digests] == [3]


def test_the_search_of_logs_gives_them_away_and_does_not_scan_them(tmp_path):
    folder, reader = job(tmp_path / "job"), SceneReader()
    found = search([folder], NOTHING, beside=reader.take)
    assert [one.name for one in found.sources] == ["log0", "log1"]
    assert not found.skipped
    assert reader.scene() == read_scene([folder])
    assert {one.name for one in search([folder], NOTHING).skipped} == {
        "fr_rank_0",
        "fr_json_1.json",
        "groups0.json",
        "faulthandler_0.txt",
        "pyspy_1.txt",
    }


# Several of one rank


def test_of_several_records_of_a_rank_the_one_with_the_newest_operation_counts(tmp_path):
    folder = put(
        tmp_path / "job",
        fr_exc_0=pickle.dumps(record(12), 2),
        fr_json_0__json=json.dumps(record(20, start=15)).encode(),
        fr_rank_0=pickle.dumps(record(20), 2),
    )
    scene = read_scene([folder])
    assert [(one.rank, one.file) for one in scene.records] == [(0, "fr_rank_0")]
    assert said(scene) == ["several records each for 1 rank: the newest is used, for rank 0 fr_rank_0"]


def test_the_last_attempt_counts(tmp_path):
    put(
        tmp_path / "attempt-1" / "w0",
        fr_rank_0=pickle.dumps(record(90), 2),
        fr_rank_1=pickle.dumps(record(90), 2),
    )
    put(tmp_path / "attempt-2" / "w0", fr_rank_0=pickle.dumps(record(5), 2))
    scene = read_scene([tmp_path])
    assert [(one.rank, one.file) for one in scene.records] == [(0, "attempt-2/w0/fr_rank_0")]
    assert "1 rank with records of earlier attempts only: ignored" in said(scene)


def test_formats_that_differ_are_noted(tmp_path):
    folder = put(
        tmp_path, fr_rank_0=pickle.dumps(record(), 2), fr_rank_1=pickle.dumps(record(version="2.4"), 2)
    )
    assert "the records are of different formats: 2.10 (1), 2.4 (1)" in said(read_scene([folder]))


def test_of_very_many_operations_only_digests_are_held(tmp_path):
    folder = put(tmp_path, **{f"fr_rank_{rank}": pickle.dumps(record(), 2) for rank in range(20)})
    put(tmp_path, groups0__json=json.dumps({"1": {"desc": "dp0", "ranks": list(range(20))}}).encode())
    whole = read_scene([folder])
    assert read_scene([folder], operations_held_max=100).digests == whole.digests


# Bad ones


class Runs:
    def __reduce__(self):
        return os.mkdir, (Runs.folder,)


def test_what_cannot_be_read_is_said_and_the_rest_is_read(tmp_path):
    Runs.folder = str(tmp_path / "ran")
    folder = put(
        tmp_path / "job",
        fr_rank_0=pickle.dumps(record(), 2),
        fr_rank_1=pickle.dumps({"version": "2.10", "entries": [Runs()]}, 2),
        fr_rank_2=pickle.dumps(record(), 2)[:300],
        fr_json_3__json=json.dumps(record()).encode()[:500],
        nccl_trace=pickle.dumps(record(), 2),
        groups9__json=b'{"1": {"ranks": [0,',
    )
    scene = read_scene([folder])
    assert [one.rank for one in scene.digests] == [0]
    assert not (tmp_path / "ran").exists()
    why = {one.name: one.why for one in scene.skipped}
    assert "could run any code" in why["fr_rank_1"]
    assert set(why) == {"fr_rank_1", "fr_rank_2", "fr_json_3.json", "nccl_trace", "groups9.json"}


def test_a_record_of_a_gigabyte_is_refused_within_little_memory(tmp_path):
    path = tmp_path / "fr_rank_0"
    path.write_bytes(pickle.dumps(record(), 2)[:-1])
    with path.open("r+b") as file:
        file.truncate(1 << 30)
        file.seek(-8, 2)
        file.write(b"entries.")
    with gzip.open(tmp_path / "fr_rank_1.gz", "wb", compresslevel=1) as file:
        file.write(pickle.dumps(record(), 2)[:-1] + b"]" * (70 << 20))
    tracemalloc.start()
    scene = read_scene([tmp_path])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert {one.name for one in scene.skipped} == {"fr_rank_0", "fr_rank_1.gz"}
    assert peak < 256 << 20


def test_pickles_that_are_no_records_are_left_alone(tmp_path):
    put(tmp_path, model__pkl=pickle.dumps({"weights": [1.0] * 100}))
    scene = read_scene([tmp_path])
    assert scene.files == 0
    assert not scene.skipped


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared cases are not beside this checkout")
def test_every_shared_case_is_read_whole():
    for case in SHARED.glob("*/case.json"):
        scene = read_scene([case.parent])
        assert not scene.skipped
        assert len(scene.digests) >= json.loads(case.read_text())["world_size"] - 1


def test_stdin_too(tmp_path):
    folder, reader, stream = job(tmp_path / "job"), SceneReader(), io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.add(folder, arcname="job")
    stream.seek(0)
    search([], NOTHING, stdin=stream, beside=reader.take)
    assert len(reader.scene().digests) == 2
