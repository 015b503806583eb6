"""The record of a job on a server: resumed after every cut, with nothing lost or doubled; its output asked for."""

import asyncio
import time
from pathlib import Path

import msgspec
import pytest
from websockets.exceptions import ConnectionClosed

from holdfast.archive.remote import STREAMED, NotTaken, opened, read_remote
from holdfast.journal.jobdir import JobDir
from holdfast.link.uplink_messages import ROWS_MAX, Begin, FileSent, PartSent, RowsSent
from holdfast.model.documents.output import OutputWanted
from holdfast.uplink.receiving import NotReached, Uplinks
from holdfast.uplink.session import Refused
from holdfast.uplink.source import source_name
from uplink.rig import Job, report, rows_of, serving, until

BEGIN = Begin(job="llama", source="h-1", host="h", identity="h:1.0", created_s=1.0, meta={})


def streamed(server: Path, job: Job) -> JobDir:
    return JobDir(server / STREAMED / source_name(job.dir.path.parents[1]) / "jobs" / job.dir.name)


def test_a_journal_arrives_whole(tmp_path: Path) -> None:
    async def run() -> None:
        job, uplinks = Job(tmp_path / "here"), Uplinks(tmp_path / "server", time.time, lambda _: None)
        job.write(1_200)
        job.end()
        async with serving(uplinks) as (url, _):
            await report(url, job)
        uplinks.close()
        there = streamed(tmp_path / "server", job)
        assert rows_of(there) == rows_of(job.dir)
        remote = read_remote(there)
        assert remote is not None and (remote.state, remote.job) == ("training", "llama")
        assert there.created_at_s() == 1000.5

    asyncio.run(run())


def test_cuts_at_any_moment_lose_and_double_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        job = Job(tmp_path / "here")
        seen: list[JobDir] = []

        def note(there: JobDir) -> None:
            if uplinks.is_connected(
                there
            ):  # not what the connection before leaves behind, while there is no other yet
                seen.append(there)

        uplinks = Uplinks(tmp_path / "server", time.time, note)
        async with serving(uplinks) as (url, server):
            for cut in range(12):
                job.write(3 * ROWS_MAX + 37 * cut)  # in more messages than are waited for
                task = asyncio.create_task(report(url, job))
                seen.clear()
                await until(lambda least=cut % 3: len(seen) > least)  # type: ignore[misc]
                for connection in list(server.connections):
                    await connection.close()
                with pytest.raises(ConnectionClosed):
                    await task
            job.end()
            await report(url, job)
        uplinks.close()
        assert rows_of(streamed(tmp_path / "server", job)) == rows_of(job.dir)

    asyncio.run(run())


def test_steps_bundles_and_the_ends_of_the_output_arrive(tmp_path: Path) -> None:
    async def run() -> None:
        job, uplinks = Job(tmp_path / "here"), Uplinks(tmp_path / "server", time.time, lambda _: None)
        worker = job.dir.worker(1, 0)
        worker.mkdir(parents=True)
        (worker / "steps.json").write_bytes(b'{"step": 7}')
        (worker / "stdout").write_bytes(b"a" * 400_000 + b"\nlast line\n")
        (worker / "secret").write_bytes(b"not to be sent")
        job.dir.incidents.mkdir()
        (job.dir.incidents / "incident-001.tar.zst").write_bytes(bytes(range(256)) * 5_000)
        job.end()
        async with serving(uplinks) as (url, _):
            await report(url, job)
        uplinks.close()
        there = streamed(tmp_path / "server", job)
        assert (there.worker(1, 0) / "steps.json").read_bytes() == b'{"step": 7}'
        assert (there.worker(1, 0) / "stdout").read_bytes()[-11:] == b"\nlast line\n"
        assert (there.worker(1, 0) / "stdout").stat().st_size == 400_011
        assert not (there.worker(1, 0) / "secret").exists()
        assert (there.incidents / "incident-001.tar.zst").read_bytes() == bytes(range(256)) * 5_000

    asyncio.run(run())


def test_output_is_read_on_the_jobs_host(tmp_path: Path) -> None:
    async def run() -> None:
        job = Job(tmp_path / "here")
        uplinks = Uplinks(tmp_path / "server", time.time, lambda _: None)
        worker = job.dir.worker(1, 0)
        worker.mkdir(parents=True)
        (worker / "rank-0.log").write_bytes(b"step 1\nstep 2\nBoom\n")
        there = streamed(tmp_path / "server", job)
        async with serving(uplinks) as (url, _):
            task = asyncio.create_task(report(url, job))
            await until(lambda: uplinks.is_connected(there))
            files = await asyncio.to_thread(uplinks.files, there)
            assert [(one.file, one.size_bytes) for one in files] == [("attempt-001/worker-0/rank-0.log", 19)]
            page = await asyncio.to_thread(uplinks.output, there, OutputWanted(pattern="step [2-9]"))
            assert [line.text for line in page.lines] == ["step 2"]
            with pytest.raises(ValueError, match="cannot be searched"):
                await asyncio.to_thread(uplinks.output, there, OutputWanted(pattern="("))
            job.end()
            await task
        with pytest.raises(NotReached, match="not connected"):
            uplinks.output(there, OutputWanted())
        uplinks.close()

    asyncio.run(run())


def test_another_job_of_the_same_name_gets_a_folder_of_its_own(tmp_path: Path) -> None:
    first = opened(tmp_path, BEGIN, time.time)
    first.take_rows(((1.0, "tick", b"{}", b"[]", "", 1),))
    first.close()
    again = opened(tmp_path, BEGIN, time.time)
    assert again.last_seq == 1
    again.close()
    second = opened(tmp_path, msgspec.structs.replace(BEGIN, identity="h:2.0"), time.time)
    assert (second.job.name, second.last_seq) == ("llama.2", 0)
    second.close()


@pytest.mark.parametrize(
    "begin",
    [
        msgspec.structs.replace(BEGIN, job="../x"),
        msgspec.structs.replace(BEGIN, source="a/b"),
        msgspec.structs.replace(BEGIN, source=".."),
        msgspec.structs.replace(BEGIN, protocol=99),
    ],
)
def test_names_that_leave_the_folder_and_other_protocols_are_refused(tmp_path: Path, begin: Begin) -> None:
    with pytest.raises(NotTaken):
        opened(tmp_path, begin, time.time)


def test_only_known_files_are_written_and_gaps_are_refused(tmp_path: Path) -> None:
    remote = opened(tmp_path, BEGIN, time.time)
    for name in ("../../x", "journal.db", "remote.json", "attempt-001/worker-0/secret", "/etc/passwd"):
        with pytest.raises(NotTaken):
            remote.take_file(FileSent(name=name, content=b""))
        with pytest.raises(NotTaken):
            remote.take_part(PartSent(name=name, offset=0, content=b"", size_bytes=0))
    with pytest.raises(NotTaken, match="row 2 does not follow row 0"):
        remote.take_rows(((1.0, "tick", b"{}", b"[]", "", 2),))
    with pytest.raises(NotTaken, match="gap"):
        remote.take_rows(((1.0, "tick", b"{}", b"[]", "", 1), (1.0, "tick", b"{}", b"[]", "", 3)))
    remote.close()


def test_a_first_message_that_names_no_job_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        uplinks = Uplinks(tmp_path / "server", time.time, lambda _: None)
        sent: list[bytes] = []

        class Socket:
            async def receive_bytes(self) -> bytes:
                return msgspec.msgpack.encode(RowsSent(rows=()))

            async def send_bytes(self, data: bytes) -> None:
                sent.append(data)

        await uplinks.serve(Socket())
        assert b"first message" in sent[0]
        uplinks.close()

    asyncio.run(run())


def test_a_job_that_is_refused_says_why(tmp_path: Path) -> None:
    async def run() -> None:
        job = Job(tmp_path / "here", "x")
        uplinks = Uplinks(tmp_path / "server", time.time, lambda _: None)
        (tmp_path / "server" / STREAMED).mkdir(parents=True)
        (tmp_path / "server" / STREAMED / source_name(tmp_path / "here")).write_text("in the way")
        async with serving(uplinks) as (url, _):
            with pytest.raises(Refused, match="Not a directory|File exists"):
                await report(url, job)
        uplinks.close()

    asyncio.run(run())
