"""What is sampled, kept in files of bounded size, and read by others meanwhile."""

import os
import subprocess
import sys
import threading

import pytest

from holdfast.agent.watch import sample_ring
from holdfast.agent.watch.sample_ring import HEAD, NEW, OLD, SampleRing, read_samples
from holdfast.model.nodes.samples import DeviceSample, Moment, NodeSample
from holdfast.model.samples import RankSample


def moment(at_s, ranks=2):
    return Moment(
        at_s=at_s,
        ranks=tuple(
            RankSample(at_s=at_s, rank=rank, pid=1000 + rank, state="S", io_bytes=int(at_s) * 7919 + rank)
            for rank in range(ranks)
        ),
        node=NodeSample(dirty_bytes=int(at_s)),
        devices=(DeviceSample(index=0, power_w=71.5),),
    )


@pytest.fixture
def ring(tmp_path):
    """Makes rings in one folder; closes them."""
    made = []

    def make(**settings):
        made.append(SampleRing(tmp_path, **settings))
        return made[-1]

    yield make
    for one in made:
        one.close()


def times(folder, since_s=float("-inf")):
    return [one.at_s for one in read_samples(folder, since_s)]


def test_what_is_added_is_read_back_whole(ring, tmp_path):
    one = ring()
    for at_s in range(5):
        one.add(moment(float(at_s)))
    one.flush()
    assert list(read_samples(tmp_path)) == [moment(float(at_s)) for at_s in range(5)]
    assert times(tmp_path, since_s=3.0) == [3.0, 4.0]
    assert one.dropped == 0


def test_it_stays_within_its_size_and_keeps_the_newest(ring, tmp_path):
    one = ring(segment_bytes=4000)
    for at_s in range(300):
        one.add(moment(float(at_s)))
        one.flush()
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 8000
    kept = times(tmp_path)
    assert kept == [float(at_s) for at_s in range(300 - len(kept), 300)]
    assert len(kept) > 10


def test_another_process_reads_it_while_it_is_written(ring, tmp_path):
    one = ring(segment_bytes=3000)
    program = f"""import sys
from pathlib import Path
from holdfast.agent.watch.sample_ring import read_samples
for line in sys.stdin:
    print(*[one.at_s for one in read_samples(Path({str(tmp_path)!r}))][-1:], flush=True)"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as reader:
        for at_s in range(60):
            one.add(moment(float(at_s)))
            one.flush()
            reader.stdin.write("now\n")
            reader.stdin.flush()
            assert float(reader.stdout.readline()) == at_s
        reader.stdin.close()
        assert reader.wait() == 0


def test_a_reader_beside_the_writer_never_sees_a_gap_or_half_a_moment(ring, tmp_path):
    one = ring(segment_bytes=3000)
    over = threading.Event()
    wrong = []

    def read():
        while not over.is_set():
            seen = times(tmp_path)
            if seen and seen != [seen[0] + number for number in range(len(seen))]:
                wrong.append(seen)

    reader = threading.Thread(target=read)
    reader.start()
    for at_s in range(400):
        one.add(moment(float(at_s), ranks=1))
        one.flush()
    over.set()
    reader.join()
    assert wrong == []


@pytest.mark.parametrize("left", [1, HEAD.size - 1, HEAD.size, HEAD.size + 3])
def test_half_a_record_is_not_read_and_is_cut_off_by_the_next_agent(ring, tmp_path, left):
    first = ring()
    for at_s in range(3):
        first.add(moment(float(at_s)))
    first.close()
    path = tmp_path / NEW
    with path.open("ab") as file:
        file.write(path.read_bytes()[:left])
    assert times(tmp_path) == [0.0, 1.0, 2.0]
    second = ring()
    second.add(moment(3.0))
    second.flush()
    assert times(tmp_path) == [0.0, 1.0, 2.0, 3.0]


def test_no_damage_raises(ring, tmp_path):
    one = ring()
    for at_s in range(3):
        one.add(moment(float(at_s)))
    one.close()
    whole = (tmp_path / NEW).read_bytes()
    for at in range(0, len(whole), 3):
        (tmp_path / NEW).write_bytes(whole[:at] + bytes([whole[at] ^ 0x5A]) + whole[at + 1 :])
        assert times(tmp_path) == [float(number) for number in range(len(times(tmp_path)))]
    (tmp_path / NEW).write_bytes(HEAD.pack(2**32 - 1, 0) + b"x")
    assert times(tmp_path) == []
    (tmp_path / NEW).unlink()
    assert times(tmp_path) == [] == times(tmp_path / "not there")


def test_a_frame_that_would_unpack_to_too_much_is_not_unpacked(tmp_path):
    content = sample_ring.zstandard.ZstdCompressor().compress(bytes(64 << 20))
    record = HEAD.pack(len(content), sample_ring.zlib.crc32(content)) + content
    (tmp_path / OLD).write_bytes(record)
    assert times(tmp_path) == []


def test_a_link_is_not_followed(ring, tmp_path):
    (tmp_path / "elsewhere").write_bytes(b"precious")
    (tmp_path / NEW).symlink_to(tmp_path / "elsewhere")
    one = ring()
    one.add(moment(0.0))
    one.flush()
    assert one.dropped == 1 and NEW in one.why_not
    assert (tmp_path / "elsewhere").read_bytes() == b"precious"


def test_a_folder_that_is_gone_costs_samples_and_comes_back(ring, tmp_path):
    one = ring()
    one.add(moment(0.0))
    one.flush()
    one._folder = tmp_path / "later"
    one._fd, fd = None, one._fd
    os.close(fd)
    one.add(moment(1.0))
    one.flush()
    assert one.dropped == 1 and "No such file" in one.why_not
    (tmp_path / "later").mkdir()
    one.add(moment(2.0))
    one.flush()
    assert times(tmp_path / "later") == [2.0]


FULL = """import sys
from pathlib import Path
import subprocess
from holdfast.agent.watch.sample_ring import SampleRing, read_samples
sys.path.insert(0, sys.argv[2])
from agent.watch.test_sample_ring import moment
folder = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], check=True)
(folder / "filler").write_bytes(bytes(48 << 10))
ring = SampleRing(folder)
for at_s in range(200):
    ring.add(moment(float(at_s)))
    ring.flush()
assert ring.dropped > 50, ring.dropped
assert "no room" in ring.why_not, ring.why_not
kept = [one.at_s for one in read_samples(folder)]
assert kept == [float(number) for number in range(len(kept))] and kept
(folder / "filler").unlink()
ring.add(moment(999.0))
ring.close()
assert [one.at_s for one in read_samples(folder)] == [*kept, 999.0]
print("held")
"""


def test_a_full_disk_costs_samples_and_no_more(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a small disk")
    tests = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    ran = subprocess.run(
        ["unshare", "--mount", sys.executable, "-c", FULL, str(tmp_path), tests],
        capture_output=True,
        text=True,
    )
    if ran.returncode != 0 and "mount" in ran.stderr:
        pytest.skip(f"cannot mount a disk here: {ran.stderr.strip().splitlines()[-1]}")
    assert ran.stdout == "held\n", ran.stderr


HOLDER = """import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
fd = os.open(sys.argv[1], os.O_RDONLY | os.O_CREAT)
fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_disk_that_does_not_answer_never_holds_up_the_agent(ring, tmp_path):
    """Opening a file to write waits while another process holds a lease on it (fcntl(2))."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / NEW)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        if holder.stdout.readline() != b"held\n":
            pytest.skip("this file system knows no leases")
        one = ring()
        added = 3 * sample_ring.WAITING_MAX
        for at_s in range(added):
            one.add(moment(float(at_s)))
        assert one.dropped >= added - sample_ring.WAITING_MAX - 1
        assert times(tmp_path) == []
        holder.stdin.close()
    one.flush()
    kept = times(tmp_path)
    assert len(kept) == added - one.dropped and kept == sorted(kept)
