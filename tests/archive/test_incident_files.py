"""What files hold of an incident: read as far as they can be, and never from outside of the job's folder."""

import msgspec

from core.flight.flight_kit import Layout, training
from holdfast.archive.incident_files import bundle_of, read_scene, wait_edges
from holdfast.archive.lines_around import SEARCHED_BYTES_MAX, inside, surroundings
from holdfast.core.job.story import IncidentStory
from holdfast.journal.jobdir import JobDir
from holdfast.model.flight.thread_stacks import RankStacks, ThreadStack
from holdfast.model.state import HangFault
from holdfast.model.verdicts import UNKNOWN, Evidence
from holdfast.observe.logs.bundles import Member, write_bundle

LOG = "attempt-001/worker-0/rank-0.log"


def hang(**more):
    fields = {"number": 1, "attempt": 1, "found_at_s": 9.0, "found": "it hangs", "nodes": {0: "n0"}}
    return IncidentStory(faults=(HangFault("quiet", (1,), "it stands"),), **(fields | more))


def job_in(path):
    job = JobDir(path / "t")
    job.worker(1, 0).mkdir(parents=True)
    job.incidents.mkdir()
    return job


def stacks(rank, frame):
    thread = ThreadStack(is_main=True, frames=(frame, "train.py:3 main"))
    return RankStacks(
        rank=rank, pid=100 + rank, threads=(thread,), source="py-spy", state="S", wait_channel="futex_wait"
    )


def test_stacks_are_grouped(tmp_path):
    job = job_in(tmp_path)
    told = [
        stacks(0, "dist.py:1 all_reduce"),
        stacks(1, "data.py:88 load"),
        stacks(2, "dist.py:1 all_reduce"),
    ]
    (job.worker(1, 0) / "hang-stacks.json").write_bytes(msgspec.json.encode(told))
    groups = read_scene(job, hang()).stacks
    assert [(group.ranks, group.frames[0]) for group in groups] == [
        ((1,), "data.py:88 load"),
        ((0, 2), "dist.py:1 all_reduce"),
    ]


def test_what_is_damaged_costs_nothing_else(tmp_path):
    job = job_in(tmp_path)
    (job.worker(1, 0) / "hang-stacks.json").write_bytes(b"{not json")
    (job.worker(1, 0) / "rank-0.flight.pickle").write_bytes(b"\x80\x04 no pickle")
    bundle_of(job, 1).write_bytes(b"no archive")
    scene = read_scene(job, hang())
    assert (scene.stacks, scene.waits, scene.kernel, scene.has_bundle) == ((), (), (), True)


def test_kernel_lines_come_from_the_bundle(tmp_path):
    job = job_in(tmp_path)
    line = "NVRM: Xid (PCI:0000:5d:00): 79, GPU has fallen off the bus."
    write_bundle(
        bundle_of(job, 1), [Member("verdict.json", b"{}"), Member("kernel.log", f"{line}\n\n".encode())], 9.0
    )
    (row,) = read_scene(job, hang()).kernel
    assert (row.text, row.kind, row.who.node) == (line, "kernel", "n0")


def test_the_first_error_is_found_again_with_the_lines_around_it(tmp_path):
    job = job_in(tmp_path)
    text = "".join(f"line {number}\n" for number in range(1000))
    (job.path / LOG).write_text(text)
    first = Evidence(text="line 500", file=LOG, offset=text.index("line 500"))
    verdict = msgspec.structs.replace(UNKNOWN, first_error=first)
    found = read_scene(job, hang(verdict=verdict)).surroundings[LOG, "line 500"]
    assert found.offset == text.index("line 500")
    assert found.before == ("line 497", "line 498", "line 499")
    assert found.after == ("line 501", "line 502", "line 503")
    assert surroundings(job.path, LOG, "line 500") == found
    assert surroundings(job.path, LOG, "line 500", offset=7) == found  # it does not stand there
    assert surroundings(job.path, LOG, "no such line") is None
    assert surroundings(job.path, LOG, "") is None


def test_the_first_line_of_a_log_has_nothing_before_it(tmp_path):
    job = job_in(tmp_path)
    (job.path / LOG).write_text("alpha\nbeta")
    found = surroundings(job.path, LOG, "alpha", 0)
    assert (found.offset, found.before, found.after) == (0, (), ())


def test_of_a_huge_log_the_end_is_searched(tmp_path):
    job = job_in(tmp_path)
    with (job.path / LOG).open("wb") as log:
        log.truncate(SEARCHED_BYTES_MAX * 4)
        log.seek(0, 2)
        log.write(b"\nbefore\nthe error\nafter\nmore\n")
    found = surroundings(job.path, LOG, "the error")
    assert (found.before[-1], found.after) == ("before", ("after", "more"))


def test_no_name_leads_out_of_the_folder(tmp_path):
    job = job_in(tmp_path)
    (tmp_path / "secret").write_text("the secret")
    (job.path / "link").symlink_to(tmp_path / "secret")
    for name in ("../secret", str(tmp_path / "secret"), "link", "..", "a\0b", "attempt-001/../../secret"):
        assert inside(job.path, name) is None
        assert surroundings(job.path, name, "the secret") is None


def test_ranks_that_wait_in_the_same_collective_are_one_edge():
    job = training(
        Layout(1, 1, 4), 6, change=lambda rank, step, calls: [] if (rank, step) == (2, 4) else calls
    )
    (edge,) = wait_edges(job.run().digests())
    assert (edge.ranks, edge.awaits) == ((0, 1, 3), (2,))
    assert (edge.collective, edge.sequence, edge.group) == ("all_reduce", 6, "DP_GROUP")
    assert wait_edges(()) == ()
