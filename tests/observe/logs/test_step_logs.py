"""Steps read from files as they are found: packed, rotated, growing, cut, by rank, by attempt, from pipes."""

import gzip
import io
import os
import tarfile
import threading

import pytest
import zstandard

from holdfast.core.steps.report import training_of, trainings
from holdfast.core.steps.watch_settings import StepSettings
from holdfast.observe.logs.index import IndexWriter
from holdfast.observe.logs.step_logs import Part, ReadSettings, part_of, read_job, read_logs
from holdfast.observe.search.step_form_store import all_forms
from steps_kit import event, megatron, times

SETTINGS = ReadSettings(forms=all_forms(None), steps=StepSettings())
TEXT = megatron(times(60)).encode()


def read(*places, settings=SETTINGS, **more):
    return read_logs(list(places), settings, **more)


def only(found):
    """What the one training tells."""
    groups = trainings(found.logs)
    assert len(groups) == 1, [log.name for group in groups for log in group]
    return training_of(groups[0]).report


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("train.log", bytes),
        ("train.log.gz", gzip.compress),
        ("train.log.zst", lambda data: zstandard.ZstdCompressor().compress(data)),
        ("carriage.log", lambda data: data.replace(b"\n", b"\r\n")),
        ("utf16.log", lambda data: data.decode().encode("utf-16")),
    ],
)
def test_a_log_packed_or_not_tells_the_same(tmp_path, name, pack):
    path = tmp_path / name
    path.write_bytes(pack(TEXT))
    report = only(read(path))
    assert (report.framework, report.iteration_lines) == ("Megatron-LM", 60)
    assert (report.first.step, report.last.step) == (1, 60)
    assert report.median_step_time_s == pytest.approx(1.0, rel=0.01)


def test_members_of_an_archive_are_logs(tmp_path):
    with tarfile.open(tmp_path / "logs.tar.gz", "w:gz") as archive:
        for rank in range(2):
            member = tarfile.TarInfo(f"run/rank-{rank}.log")
            member.size = len(TEXT)
            archive.addfile(member, io.BytesIO(TEXT))
    report = only(read(tmp_path / "logs.tar.gz"))
    assert report.iteration_lines == 60
    assert set(report.ranks) == {0, 1}


def test_a_rotated_log_is_one_log_oldest_part_first(tmp_path):
    steps = times(90)
    for name, first in [("train.log.2", 1), ("train.log.1", 31), ("train.log", 61)]:
        (tmp_path / name).write_text(megatron(steps[first - 1 : first + 29], first=first))
    report = only(read(tmp_path))
    assert (report.iteration_lines, report.first.step, report.last.step) == (90, 1, 90)
    assert report.runs == 1


def test_a_number_at_the_end_is_a_rotation_only_where_the_log_itself_is_there():
    names = frozenset(["a/train.log", "a/train.log.1", "b/out.1"])
    assert part_of("a/train.log.1", names) == Part("a/train.log", 0, 1)
    assert part_of("b/out.1", names) == Part("b/out.1")
    assert part_of("x/attempt_3/0/stdout.log", names) == Part("x/attempt_#/0/stdout.log", 3)


def test_attempts_are_runs_of_one_training(tmp_path):
    for attempt, first in [(0, 1), (1, 31)]:  # resumed where it had stopped: only the folder tells
        folder = tmp_path / f"attempt_{attempt}" / "0"
        folder.mkdir(parents=True)
        (folder / "stdout.log").write_text(megatron(times(30), first=first))
    report = only(read(tmp_path))
    assert (report.iteration_lines, report.runs) == (60, 2)


def test_ranks_of_one_training_count_once_and_the_slow_one_is_named(tmp_path):
    for rank in range(4):
        base_s = 1.2 if rank == 2 else 1.0
        (tmp_path / f"rank-{rank}.log").write_text(megatron(times(200, base_s=base_s, seed=rank)))
    report = only(read(tmp_path))
    assert report.iteration_lines == 200
    assert report.ranks[2].ratio == pytest.approx(1.2, rel=0.02)
    assert [one.ranks for one in report.stragglers] == [(2,)]


def test_different_trainings_are_distinguished(tmp_path):
    (tmp_path / "baseline.log").write_text(megatron(times(40)))
    (tmp_path / "wider.log").write_text(megatron(times(80, base_s=2.0)))
    groups = trainings(read(tmp_path).logs)
    assert [[log.name for log in group] for group in groups] == [["wider.log"], ["baseline.log"]]


def test_jobs_of_the_same_rank_are_different_trainings(tmp_path):
    for job in (11, 12):
        for rank in (0, 1):
            (tmp_path / f"job-{job}-rank-{rank}.log").write_text(megatron(times(40)))
    groups = trainings(read(tmp_path).logs)
    assert sorted(sorted(log.name for log in group) for group in groups) == [
        ["job-11-rank-0.log", "job-11-rank-1.log"],
        ["job-12-rank-0.log", "job-12-rank-1.log"],
    ]


def test_event_files_of_a_folder_are_one_training(tmp_path):
    for number, first in enumerate((0, 15)):
        data = b"".join(event(1e9 + step * 2, step, loss=1.0) for step in range(first, first + 20))
        (tmp_path / f"events.out.tfevents.{number}.host").write_bytes(data)
    report = only(read(tmp_path))
    assert (report.framework, report.iteration_lines, report.runs) == ("TensorBoard", 40, 2)
    assert report.median_step_time_s == 2.0


def test_event_files_beside_a_log_of_the_same_steps_are_not_counted_again(tmp_path):
    (tmp_path / "train.log").write_bytes(TEXT)
    (tmp_path / "runs").mkdir()
    data = b"".join(event(1e9 + step, step, loss=1.0) for step in range(1, 61))
    (tmp_path / "runs" / "events.out.tfevents.1.host").write_bytes(data)
    report = only(read(tmp_path))
    assert (report.framework, report.iteration_lines) == ("Megatron-LM", 60)
    assert any("tfevents" in note for note in report.notes)


def test_a_cut_event_file_counts_up_to_its_damage(tmp_path):
    data = b"".join(event(1e9 + step, step, loss=1.0) for step in range(20))
    bad = bytearray(data)
    bad[len(data) // 2] ^= 0xFF
    (tmp_path / "events.out.tfevents.1").write_bytes(bytes(bad))
    found = read(tmp_path)
    assert 5 < only(found).iteration_lines < 15
    assert "damaged" in found.skipped[0].why or "no event" in found.skipped[0].why


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"nothing of steps\n" * 50, os.urandom(5000), b"\0" * 9000, b"\xff\xfe" * 100]
)
def test_what_has_no_steps_has_none(tmp_path, content):
    (tmp_path / "some.log").write_bytes(content)
    assert trainings(read(tmp_path).logs) == []


def test_what_cannot_be_read_is_said(tmp_path):
    (tmp_path / "gone.log").symlink_to(tmp_path / "nowhere")
    (tmp_path / "half.log.gz").write_bytes(gzip.compress(TEXT)[:-40])
    os.mkfifo(tmp_path / "pipe")
    found = read(tmp_path)
    assert {one.name: one.why for one in found.skipped} == {
        "gone.log": "it is a broken link",
        "pipe": "it is a named pipe, not a file",
        "half.log.gz": "its packed data is truncated; the existing part was read",
    }
    assert only(found).iteration_lines > 40


def test_a_log_that_grows_is_read_to_where_it_was(tmp_path):
    path = tmp_path / "train.log"
    path.write_bytes(TEXT)

    def grow(done, total):
        with path.open("ab") as file:
            file.write(TEXT)

    assert only(read(path, progress=grow)).iteration_lines == 60


def test_a_log_that_is_cut_meanwhile_ends_there(tmp_path):
    path = tmp_path / "train.log"
    path.write_bytes(TEXT + b"x" * (2 << 20) + b"\n" + TEXT)
    found = read(path, progress=lambda done, total: os.truncate(path, len(TEXT)))
    assert only(found).iteration_lines == 60
    assert "it was truncated" in found.skipped[0].why


def test_a_named_pipe_that_is_asked_for_is_read(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_bytes(TEXT))
    writer.start()
    found = read(path)
    writer.join()
    assert only(found).iteration_lines == 60


def test_stdin_is_a_log():
    assert only(read(stdin=io.BytesIO(gzip.compress(TEXT)))).iteration_lines == 60


def test_a_long_log_takes_no_more_than_a_short_one(tmp_path):
    path = tmp_path / "train.log"
    noise = b"some line of a trainer that says nothing of steps, as most lines of most logs do\n" * 10_000
    with path.open("wb") as file:
        for part in range(20):
            file.write(noise)
            file.write(megatron(times(10), first=1 + 10 * part).encode())
    blocks = []
    found = read(path, progress=lambda done, total: blocks.append(done))
    assert only(found).iteration_lines == 200
    assert max(after - before for before, after in zip(blocks, blocks[1:], strict=False)) <= 1 << 20


def test_a_jobs_output_has_the_times_of_its_index(tmp_path):
    for attempt, first in [(1, 0), (2, 10)]:
        folder = tmp_path / f"attempt-00{attempt}" / "worker-0"
        folder.mkdir(parents=True)
        index = IndexWriter(folder / "stdout", pytest.fail)
        at_s = 1.7e9 + attempt * 1000
        with (folder / "stdout").open("wb", buffering=0) as file:
            for step in range(first, first + 20):
                at_s += 2.0
                file.write(b"{'loss': 2.5, 'global_step/max_steps': '%d/100'}\n" % step)
                index.append(at_s, file.tell())
        index.close()
    found = read_job(tmp_path, SETTINGS)
    groups = trainings(found.logs, is_one=True)
    report = training_of(groups[0], is_local=True).report
    assert report.runs == 2
    assert report.median_step_time_s == pytest.approx(2.0)


def test_of_many_ranks_a_few_are_watched_and_all_have_their_times(tmp_path):
    for rank in range(40):
        base_s = 1.1 if rank == 30 else 1.0
        (tmp_path / f"rank-{rank}.log").write_text(megatron(times(100, base_s=base_s, seed=rank)))
    report = only(read(tmp_path))
    assert (report.iteration_lines, len(report.ranks)) == (100, 40)
    assert [one.ranks for one in report.stragglers] == [(30,)]


def test_a_log_that_was_not_watched_can_still_count(tmp_path):
    for rank in range(
        20
    ):  # the number of the job is that of the rank: names alone do not tell them apart at once
        (tmp_path / f"job-{rank}-rank-{rank}.log").write_text(megatron(times(40), stamp=""))
        (tmp_path / f"job-7-rank-{rank}.log").write_text(megatron(times(60)))
    groups = trainings(read(tmp_path).logs)
    assert all(training_of(group).report.median_step_time_s for group in groups)
