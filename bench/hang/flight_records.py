"""How fast and how rightly flight records are judged, beside PyTorch's own analyser on the same files.

    python -m bench.hang.flight_records                                  # shared cases, 8 ranks, merge of 1,024 digests
    python -m bench.hang.flight_records --ranks 8,256,1024 --merge 16384 # the analyser alone takes minutes of CPU

Records are written as torch 2.13 writes those of NCCL: tensor-parallel groups of 8, data-parallel groups across them,
2,000 entries in a ring that has wrapped, one rank that never enqueues a collective of its tensor-parallel group. Both judge them in processes of
their own; CPU is counted from after their imports to their answer, reading included. "Exact": the ranks named are
the planted one and no other; of the analyser those it calls missing or culprits count. Merge: the digests of all
ranks, as bytes, to the answer, in a process of its own.
"""

import argparse
import json
import os
import pickle
import re
import resource
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.flight.digest import digest
from holdfast.core.flight.locate import locate
from holdfast.core.flight.members import runs
from holdfast.model.flight.digests import Digest, Members
from holdfast.observe.processes.flight_files import read_scene
from holdfast.parsers.flight.pickled import unpickled
from holdfast.parsers.flight.records import read_record

ENTRIES = 2000
TENSOR = 8  # ranks of a tensor-parallel group
STEP = 20  # operations: 18 in the tensor-parallel group, one in the data-parallel, one of all
QUIET = {  # size by name: groups that were used at the start
    "CONTEXT_PARALLEL": 16,
    "EXPERT_MODEL_PARALLEL": 32,
    "MODEL_PARALLEL": 64,
    "EXPERT_TENSOR_AND_MODEL_PARALLEL": 128,
    "TENSOR_AND_DATA_PARALLEL": 256,
    "EMBEDDING": 4,
}
START_NS = 1_790_000_000_000_000_000
GAP_NS = 1_500_000
PREFIX = "nccl_trace_rank_"
PEER_LIMIT_S = 1800.0
MERGE_CPU_S_MAX, MERGE_MIB_MAX, DIGEST_BYTES_MAX, DIGEST_MS_MAX = 5.0, 1024.0, 2048, 10.0
SAMPLED = 16  # ranks whose digest is timed
SHARED = Path(__file__).parents[3] / "shared" / "corpus" / "flight"
PEER = """
import resource, sys, time
from torch.distributed.flight_recorder import fr_trace
begun = time.process_time()
try:
    fr_trace.main([sys.argv[1], "-p", sys.argv[2], "--allow-incomplete-ranks"])
except (Exception, SystemExit) as error:
    print("ended:", repr(error)[:200])
print("cpu_s:", time.process_time() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, flush=True)
"""
MISSING = re.compile(r"missing ranks: \{([\d, ]+)\}|Culprit rank (\d+)")


class Judged(Struct, frozen=True):
    """`ranks`: who was named. `note`: why there is no answer."""

    ranks: tuple[int, ...]
    cpu_s: float
    rss_mib: float = 0.0
    note: str = ""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", default="8", help="sizes of the jobs that both judge")
    parser.add_argument("--merge", default="1024", help="sizes of the jobs of which only digests are merged")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--folder", type=Path, help="where records are written; a temporary one by default")
    parser.add_argument("--part", help=argparse.SUPPRESS)  # what a process of its own does
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        print(json.dumps(_part(arguments.part, arguments.path)))
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        _cases(peer=not arguments.no_peer)
        for ranks in _numbers(arguments.ranks):
            _whole(ranks, Path(name), peer=not arguments.no_peer)
        for ranks in _numbers(arguments.merge):
            _merge(ranks, Path(name))


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


# Whole records, both


def _cases(*, peer: bool) -> None:
    if not SHARED.is_dir():
        print("shared cases: not beside this checkout, left out")
        return
    print(f"{'shared case':24}{'wanted':>12}{'Holdfast':>14}{'PyTorch':>30}")
    ours_exact = peer_exact = cases = 0
    for case in sorted(SHARED.glob("*/case.json")):
        wanted = tuple(sorted(json.loads(case.read_text())["culprit_ranks"]))
        ours = _of_cli(case.parent)
        other = _of_peer(case.parent, _prefix(case.parent)) if peer else Judged((), 0.0, note="left out")
        cases += 1
        ours_exact += ours == wanted
        peer_exact += other.ranks == wanted
        print(
            f"{case.parent.name:24}{_said(wanted):>12}{_said(ours):>14}{_said(other.ranks) + _note(other):>30}"
        )
    print(f"exact: Holdfast {ours_exact} of {cases}" + (f", PyTorch {peer_exact} of {cases}" if peer else ""))


def _whole(ranks: int, folder: Path, *, peer: bool) -> None:
    place, culprit = folder / f"job-{ranks}", ranks // 3
    place.mkdir()
    size = 0
    for rank, data in _records(ranks, culprit):
        place.joinpath(f"{PREFIX}{rank}").write_bytes(data)
        size += len(data)
    ours = _of_part("files", place)
    print(f"\n{ranks} ranks, {ENTRIES} entries each, {size / 2**20:.0f} MiB, planted: rank {culprit}")
    _line("Holdfast", ours, culprit)
    if peer:
        _line("PyTorch", _of_peer(place, PREFIX), culprit)
    for path in place.iterdir():
        path.unlink()


def _line(name: str, judged: Judged, culprit: int) -> None:
    exact = "exact"
    if judged.ranks != (culprit,):
        exact = f"named {len(judged.ranks)} ranks, the planted one {'among them' if culprit in judged.ranks else 'not'}"
    print(f"  {name:10}{judged.cpu_s:9.2f} CPU s {judged.rss_mib:8.0f} MiB   {exact}{_note(judged)}")


def _said(ranks: Sequence[int]) -> str:
    named = ",".join(str(rank) for rank in ranks[:6])
    return named + (",..." if len(ranks) > 6 else "") or "nobody"


def _note(judged: Judged) -> str:
    return f" ({judged.note})" if judged.note else ""


def _of_part(part: str, path: Path) -> Judged:
    done = subprocess.run(
        [sys.executable, "-m", "bench.hang.flight_records", "--part", part, "--path", str(path)],
        capture_output=True,
        check=True,
    )
    return msgspec.json.decode(done.stdout, type=Judged)


def _part(part: str, path: Path) -> Any:
    begun_s = time.process_time()
    digests = read_scene([path]).digests if part == "files" else _digests_in(path)
    found = locate(digests)
    cpu_s = time.process_time() - begun_s
    rss_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"ranks": found.culprits if found else (), "cpu_s": cpu_s, "rss_mib": rss_mib}


def _of_cli(folder: Path) -> tuple[int, ...]:
    """What `holdfast diagnose` says, which reads the stacks and logs too; not the file with the answer."""
    with tempfile.TemporaryDirectory() as name:
        for path in folder.iterdir():
            if path.name != "case.json":
                Path(name, path.name).symlink_to(path)
        command = [str(Path(sys.executable).with_name("holdfast")), "diagnose", "--json", name]
        told = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return tuple(sorted(one["rank"] for one in told["culprits"] if one["rank"] is not None))


def _prefix(folder: Path) -> str:
    """The analyser wants files of one prefix: of the records as pickles those that are most."""
    prefixes = ("_dump_", "fr_rank_", "fr_exc_")
    return max(prefixes, key=lambda prefix: len(list(folder.glob(f"{prefix}*"))))


def _of_peer(folder: Path, prefix: str) -> Judged:
    with tempfile.TemporaryDirectory() as name:
        for path in folder.glob(f"{prefix}*"):
            _copy(path, Path(name, path.name), folder)
        command = [sys.executable, "-c", PEER, name, prefix]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=PEER_LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            return Judged((), 0.0, note=f"no answer within {PEER_LIMIT_S:.0f} s")
    text = done.stdout + done.stderr
    named = {int(rank) for found in MISSING.findall(text) for rank in re.findall(r"\d+", " ".join(found))}
    ended = re.search(r"^ended: (\w+)", text, re.MULTILINE)
    cost = re.search(r"^cpu_s: ([\d.e-]+) ([\d.]+)", text, re.MULTILINE)
    if cost is None:
        return Judged((), 0.0, note="it died")
    return Judged(tuple(sorted(named)), float(cost[1]), float(cost[2]), note=ended[1] if ended else "")


def _copy(path: Path, to: Path, folder: Path) -> None:
    """gloo's records lack the members of groups, without which the analyser fails: it is given them."""
    groups = folder / f"groups{path.name.rpartition('_')[2]}.json"
    if not groups.exists():
        to.symlink_to(path)
        return
    record = unpickled(path.read_bytes())
    record["pg_config"] = {
        name: {"name": name, "desc": group["desc"], "ranks": str(group["ranks"])}
        for name, group in json.loads(groups.read_text()).items()
    }
    to.write_bytes(pickle.dumps(record, 2))


# Digests


def _merge(ranks: int, folder: Path) -> None:
    """The digests of a few ranks are made from their records; the others do the same in groups of other names."""
    culprit = ranks // 3
    path = folder / f"digests-{ranks}"
    sample = sorted({*range(min(SAMPLED, ranks)), culprit})
    sizes, times_ms = [], []
    for rank in sample:
        record = read_record(_record(rank, ranks, culprit), rank)
        begun_s = time.process_time()
        made = digest(record)
        times_ms.append((time.process_time() - begun_s) * 1000)
        sizes.append(len(msgspec.msgpack.encode(made)))
    with path.open("wb") as file:
        for one in _all_digests(ranks, culprit):
            data = msgspec.msgpack.encode(one)
            file.write(struct.pack("<I", len(data)) + data)
    judged = _of_part("digests", path)
    path.unlink()
    print(f"\nmerge of {ranks} ranks, {ENTRIES} entries each, planted: rank {culprit}")
    _line("Holdfast", judged, culprit)
    print(f"  digest: {max(sizes)} bytes, {max(times_ms):.1f} ms CPU at most, of {len(sample)} ranks")
    for what, value, limit in (
        ("CPU s of the merge", judged.cpu_s, MERGE_CPU_S_MAX),
        ("MiB of the merge", judged.rss_mib, MERGE_MIB_MAX),
        ("bytes of a digest", max(sizes), DIGEST_BYTES_MAX),
        ("ms CPU of a digest", max(times_ms), DIGEST_MS_MAX),
    ):
        print(f"  {'ok ' if value <= limit else 'TOO MUCH'} {what}: {value:.1f} of {limit:g}")


def _digests_in(path: Path) -> list[Digest]:
    decoder = msgspec.msgpack.Decoder(Digest)
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        found.append(decoder.decode(data[at + 4 : at + 4 + size]))
        at += 4 + size
    return found


def _all_digests(ranks: int, culprit: int) -> Iterator[Digest]:
    of_kind: dict[str, Digest] = {}
    members: dict[str, Members] = {}
    for rank in range(ranks):
        yield digest_of(rank, ranks, culprit, of_kind, members)


def digest_of(
    rank: int, ranks: int, culprit: int, of_kind: dict[str, Digest], members: dict[str, Members]
) -> Digest:
    """Ranks that do the same differ only in the names and members of their groups.

    `of_kind`: one of each kind, so far; `members`: of the groups, so far.
    """
    kind = _kind(rank, culprit)
    if kind not in of_kind:
        of_kind[kind] = digest(read_record(_record(rank, ranks, culprit), rank))
    groups = {about: (name, ranks_in) for about, name, ranks_in in _groups(rank, ranks)}
    for name, ranks_in in groups.values():
        if name not in members:
            members[name] = runs(ranks_in)
    names = {about: name for about, (name, _) in groups.items()}
    told = tuple(
        replace(group, name=names[group.about], members=members[names[group.about]])
        for group in of_kind[kind].groups
    )
    return replace(of_kind[kind], rank=rank, groups=told)


# Records


def _kind(rank: int, culprit: int) -> str:
    if rank == culprit:
        return "culprit"
    return "beside it" if rank // TENSOR == culprit // TENSOR else "far"


def _groups(rank: int, ranks: int) -> list[tuple[str, str, range]]:
    """Description, name and members of the groups of a rank; the last of them have been quiet for long."""
    row, column = rank // TENSOR, rank % TENSOR
    rows = max(1, ranks // TENSOR)
    quiet = [
        (
            about,
            f"{place}{rank // size:05d}",
            range(rank // size * size, min(ranks, (rank // size + 1) * size)),
        )
        for place, (about, size) in enumerate(QUIET.items(), start=9)
    ]
    return [
        ("default_pg", "0", range(ranks)),
        ("TENSOR_PARALLEL", str(1 + row), range(row * TENSOR, min(ranks, (row + 1) * TENSOR))),
        ("DATA_PARALLEL", str(1 + rows + column), range(column, ranks, TENSOR)),
        *quiet,
    ]


def _records(ranks: int, culprit: int) -> Iterator[tuple[int, bytes]]:
    for rank in range(ranks):
        yield rank, _record(rank, ranks, culprit)


def _record(rank: int, ranks: int, culprit: int) -> bytes:
    """Where all stand: the culprit before the ninth collective of the last step, its group in it, the rest behind."""
    groups = _groups(rank, ranks)
    whole = ENTRIES // STEP - 1  # steps that all have done
    here = {"culprit": 8, "beside it": 9, "far": STEP}[_kind(rank, culprit)]
    counts = [0, 0, 0]
    entries: list[dict[str, Any]] = []
    first = 50 * STEP  # the ring has wrapped
    for number in range(whole * STEP + here):
        place = number % STEP
        local = 1 if place < STEP - 2 else 2 if place == STEP - 2 else 0
        # Far ranks wait for the culprit's row where they reduce across rows, and behind it in the reduction of all.
        stands = 8 if rank // TENSOR == culprit // TENSOR else STEP - 2
        is_open = number >= whole * STEP + stands
        counts[local] += 1
        entries.append(_entry(first + number, local, groups[local], counts[local], rank, is_open=is_open))
    status = {
        str(local): {
            "last_enqueued_collective": counts[local],
            "last_started_collective": counts[local] - _open(entries, local),
            "last_completed_collective": counts[local] - _open(entries, local),
        }
        for local in range(3)
    }
    for local in range(3, len(groups)):
        status[str(local)] = dict.fromkeys(status["0"], 7)
    config = {
        name: {"name": name, "desc": about, "ranks": str(list(members))} for about, name, members in groups
    }
    return torch_pickle(
        {
            "entries": entries,
            "pg_config": config,
            "comm_lib_version": "2.27.3",
            "version": "2.10",
            "pg_status": status,
        }
    )


def _open(entries: Sequence[dict[str, Any]], local: int) -> int:
    return sum(1 for one in entries[-STEP:] if one["pg_id"] == local and not one["retired"])


def _entry(
    number: int, local: int, group: tuple[str, str, range], sequence: int, rank: int, *, is_open: bool
) -> dict[str, Any]:
    about, name, _ = group
    kind = ("all_reduce", "_all_gather_base" if number % 2 else "_reduce_scatter_base", "all_reduce")[local]
    at_ns = START_NS + number * GAP_NS + 1000 * rank
    small, large = [4096 // TENSOR, 5120], [4096, 5120]
    sizes = {"_all_gather_base": (small, large), "_reduce_scatter_base": (large, small)}.get(
        kind, (large, large)
    )
    return {
        "record_id": number,
        "pg_id": local,
        "process_group": (name, about),
        "thread_name": "pt_main_thread",
        "thread_id": "140546712820608",
        "collective_seq_id": sequence,
        "p2p_seq_id": 0,
        "op_id": sequence,
        "profiling_name": f"nccl:{kind}",
        "time_created_ns": at_ns,
        "input_sizes": [sizes[0]],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [sizes[1]],
        "output_dtypes": ["BFloat16"],
        "state": "scheduled" if is_open else "completed",
        "time_discovered_started_ns": None if is_open else at_ns + 10_000,
        "time_discovered_completed_ns": None if is_open else at_ns + 900_000,
        "retired": not is_open,
        "timeout_ms": 600_000,
        "is_p2p": False,
    }


def torch_pickle(value: Any) -> bytes:
    """As torch's Pickler writes it: protocol 2, each text once, whole numbers of a clock in 8 bytes."""
    known: dict[str, bytes] = {}
    parts: list[bytes] = [b"\x80\x02"]

    def put(text: str) -> None:
        if text in known:
            parts.append(known[text])
            return
        number, raw = len(known), text.encode()
        known[text] = b"h" + bytes([number]) if number < 256 else b"j" + struct.pack("<I", number)
        memorised = b"q" + bytes([number]) if number < 256 else b"r" + struct.pack("<I", number)
        parts.append(b"X" + struct.pack("<I", len(raw)) + raw + memorised)

    def write(one: Any) -> None:
        if isinstance(one, str):
            put(one)
        elif one is None or isinstance(one, bool):
            parts.append({None: b"N", True: b"\x88", False: b"\x89"}[one])
        elif isinstance(one, int):
            parts.append(_number(one))
        elif isinstance(one, tuple):
            each(one)
            parts.append(b"\x86")
        elif isinstance(one, list):
            parts.append(b"](")
            each(one)
            parts.append(b"e")
        else:
            parts.append(b"}(")
            each([part for item in one.items() for part in item])
            parts.append(b"u")

    def each(several: Sequence[Any]) -> None:
        for one in several:
            write(one)

    write(value)
    return b"".join(parts) + b"."


def _number(value: int) -> bytes:
    if 0 <= value < 256:
        return b"K" + bytes([value])
    if 0 <= value < 65536:
        return b"M" + struct.pack("<H", value)
    return b"J" + struct.pack("<i", value) if abs(value) < 1 << 31 else b"\x8a\x08" + struct.pack("<q", value)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
