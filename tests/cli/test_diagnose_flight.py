"""`holdfast diagnose` on flight records, stacks and logs of one hung job, in a folder and as a bundle."""

import json
import os
import pickle
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import zstandard

SCRIPT = Path(sys.executable).with_name("holdfast")
SHARED = Path(__file__).parents[2].parent / "shared" / "corpus" / "flight"


def diagnose(*arguments):
    done = subprocess.run([SCRIPT, "diagnose", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def answer(*arguments):
    return json.loads(diagnose(*arguments, "--json"))


def record(rank, last):
    entries = [
        {
            "record_id": number,
            "pg_id": 0,
            "process_group": ("0", "default_pg"),
            "collective_seq_id": number + 1,
            "op_id": number + 1,
            "profiling_name": "gloo:all_reduce",
            "time_created_ns": 1_700_000_000_000_000_000 + 1_000_000 * number,
            "input_sizes": [[4000]],
            "input_dtypes": ["Float"],
            "state": "scheduled",
            "retired": number < 20,
            "is_p2p": False,
        }
        for number in range(last)
    ]
    status = {
        "0": {
            "last_enqueued_collective": last,
            "last_started_collective": -1,
            "last_completed_collective": 20,
        }
    }
    return {"version": "2.10", "pg_config": {}, "pg_status": status, "entries": entries}


@pytest.fixture
def job(tmp_path):
    folder = tmp_path / "job"
    folder.mkdir()
    for rank in range(4):
        folder.joinpath(f"fr_rank_{rank}").write_bytes(pickle.dumps(record(rank, 20 if rank == 2 else 21), 2))
        groups = {"0": {"desc": "default_pg", "ranks": [0, 1, 2, 3], "backend": "gloo"}}
        folder.joinpath(f"groups{rank}.json").write_text(json.dumps(groups))
        folder.joinpath(f"rank-{rank}.log").write_text(f"step 10 loss 2.{rank}\n")
    folder.joinpath("faulthandler_2.txt").write_text(
        'Current thread 0x00007f (most recent call first):\n  File "/job/train.py", line 21 in user_lock\n'
    )
    return folder


def test_a_hung_rank_is_named_from_a_folder_and_from_its_bundle(job, tmp_path):
    bundle = tmp_path / "bundle.tar.zst"
    with zstandard.open(bundle, "wb") as stream, tarfile.open(fileobj=stream, mode="w|") as archive:
        archive.add(job, arcname="job")
    folder, packed = answer(str(job)), answer(str(bundle))
    for told in (folder, packed):
        assert [one["rank"] for one in told["culprits"]] == [2]
        assert told["category"] == "collective_missing_rank"
        assert told["title"].startswith(
            "rank 2 is at train.py:21 in user_lock; 3 ranks wait for it in all_reduce #21"
        )
        assert told["scanned"]["files"] == 13
        assert not told["scanned"]["skipped"]
    assert {key: folder[key] for key in folder if key not in ("scanned", "evidence")} == {
        key: packed[key] for key in packed if key not in ("scanned", "evidence")
    }


def test_the_report_in_both_languages(job):
    report = diagnose(str(job))
    assert report.startswith("Rank 2 is at train.py:21 in user_lock; 3 ranks wait for it")
    assert "default_pg: ranks 0, 1, 3 enqueued 21, completed 20; rank 2 enqueued 20" in report
    assert "各 rank 在该通信组中的进度" in diagnose(str(job), "--lang", "zh")


def test_records_alone_are_enough(job):
    for path in job.glob("*.log"):
        path.unlink()
    told = answer(str(job))
    assert [one["rank"] for one in told["culprits"]] == [2]


class Runs:
    def __reduce__(self):
        return os.mkdir, (Runs.folder,)


def test_a_record_that_would_run_code_is_said_and_does_not_hide_the_others(job, tmp_path):
    Runs.folder = str(tmp_path / "ran")
    job.joinpath("fr_rank_3").write_bytes(pickle.dumps({"version": "2.10", "entries": [Runs()]}))
    told = answer(str(job))
    assert not (tmp_path / "ran").exists()
    (skipped,) = told["scanned"]["skipped"]
    assert skipped["name"] == "fr_rank_3"
    assert "could run any code" in skipped["why"]
    assert 2 in [one["rank"] for one in told["culprits"]]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared cases are not beside this checkout")
@pytest.mark.parametrize("case", sorted(path.name for path in SHARED.glob("*")))
def test_the_shared_cases_are_exact(case, tmp_path):
    folder, truth = SHARED / case, json.loads((SHARED / case / "case.json").read_text())
    copy = tmp_path / "job"
    copy.mkdir()
    for path in folder.iterdir():
        if path.name != "case.json":
            copy.joinpath(path.name).write_bytes(path.read_bytes())
    told = answer(str(copy))
    assert sorted(one["rank"] for one in told["culprits"]) == truth["culprit_ranks"]
    assert told["category"] == truth["category"]
