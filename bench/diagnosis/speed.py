"""How fast `holdfast diagnose` reads logs: beside ripgrep with the same patterns, on quiet text, and live.

    python -m bench.diagnosis.speed --gib 2 --wait-quiet 60
    apt-get install ripgrep        # what it is compared with; without it that part is left out

Tree: a generated job of 1,024 ranks with one fault, end to end, in turns with `rg -c -f PATTERNS`, which only counts
lines; both read from the page cache if it holds the tree. Quiet: the same tree without a fault, bytes for each second
of CPU. Small: a folder of 20 logs, with start-up. Live: what it costs to watch 10,000 lines a second.
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from bench.diagnosis.log_tree import write_tree
from bench.job.trial import wait_quiet
from holdfast.observe.logs.follow import Chunk
from holdfast.observe.processes.watcher import Watcher
from holdfast.observe.search.byte_patterns import loosened
from holdfast.observe.search.signature_store import all_signatures

RANKS = 1024
RATIO_LIMIT, GB_PER_CORE_S_LIMIT, RSS_LIMIT_MIB, SMALL_LIMIT_S, LIVE_LIMIT = 1.0, 0.5, 300.0, 0.5, 0.01
SMALL_LOGS, SMALL_LINES = 20, 400
MUCH_BYTES = 4 << 20  # too much to be searched without compiling
LIVE_LINES_PER_S, LIVE_POLLS_PER_S, LIVE_S = 10_000, 10, 30
HOLDFAST = (str(Path(sys.executable).with_name("holdfast")), "diagnose", "--json")
RG_LIMITS = ("--regex-size-limit", "2G", "--dfa-size-limit", "2G")
NAMED_GROUP = re.compile(r"\(\?P<\w+>")
ESCAPED = re.compile(r"\\([ #&~\"'<>@!%,;:=/`-])")  # what Python escapes without need
LOOKAROUND = re.compile(r"\(\?[=!<](?!P)")


class Cost(Struct, frozen=True):
    wall_s: float
    cpu_s: float
    rss_mib: float


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gib", type=float, default=2.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--parts", default="tree,quiet,small,live")
    parser.add_argument("--wait-quiet", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--folder", type=Path, help="where the tree is made; a temporary one by default")
    arguments = parser.parse_args()
    parts = arguments.parts.split(",")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        env = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
        print("| what | figure | limit |\n|---|---|---|")
        if "small" in parts:
            small(folder / "small", env, arguments.runs)
        if "tree" in parts:
            tree(folder, arguments.gib, arguments.runs, env, arguments.wait_quiet)
        if "quiet" in parts:
            quiet(folder / "quiet", arguments.gib, arguments.runs, env)
    if "live" in parts:
        live()


def tree(folder: Path, gib: float, runs: int, env: Mapping[str, str], wait_s: float) -> None:
    size_bytes = write_tree(folder / "tree", gib, RANKS)
    patterns = folder / "patterns"
    kept, foreign = rg_patterns(patterns)
    rivals = {"holdfast": (*HOLDFAST, str(folder / "tree"))}
    if shutil.which("rg"):
        rivals["rg"] = ("rg", *RG_LIMITS, "-c", "-f", str(patterns), str(folder / "tree"))
        rivals["rg --no-unicode"] = (rivals["rg"][0], "--no-unicode", *rivals["rg"][1:])
    costs: dict[str, list[Cost]] = {name: [] for name in rivals}
    for command in rivals.values():
        cost(command, env)  # the tree comes into the page cache, and the signatures are compiled
    for _ in range(runs):
        wait_quiet(wait_s)
        for name, command in rivals.items():
            costs[name].append(cost(command, env))
    print(
        f"| tree of {size_bytes / 1e9:.1f} GB, {RANKS} logs; {kept} patterns, {foreign} rewritten for rg | | |"
    )
    for name, some in costs.items():
        wall = spread([one.wall_s for one in some], "s")
        speed = size_bytes / 1e9 / statistics.median(one.wall_s for one in some)
        memory = max(one.rss_mib for one in some)
        limit = f"{RSS_LIMIT_MIB:.0f} MiB" if name == "holdfast" else ""
        cpu = spread([one.cpu_s for one in some], "s")
        print(f"| {name}: time | {wall}, {speed:.2f} GB/s | |\n| {name}: CPU | {cpu} | |")
        print(f"| {name}: most memory | {memory:.0f} MiB | {limit} |")
        if name != "holdfast":
            ratios = [
                ours.wall_s / theirs.wall_s for ours, theirs in zip(costs["holdfast"], some, strict=True)
            ]
            print(f"| holdfast against {name}, ratio of times | {spread(ratios, '')} | {RATIO_LIMIT} |")


def quiet(folder: Path, gib: float, runs: int, env: Mapping[str, str]) -> None:
    size_bytes = write_tree(folder, gib, RANKS, is_quiet=True)
    costs = [cost((*HOLDFAST, str(folder)), env) for _ in range(runs + 1)][1:]
    speeds = [size_bytes / 1e9 / one.cpu_s for one in costs]
    print(f"| quiet text, for each second of CPU | {spread(speeds, 'GB/s')} | {GB_PER_CORE_S_LIMIT} GB/s |")


def small(folder: Path, env: Mapping[str, str], runs: int) -> None:
    write_tree(folder, SMALL_LOGS * SMALL_LINES * 130 / 2**30, SMALL_LOGS)
    command, much = (*HOLDFAST, str(folder)), folder.with_name("much.log")
    much.write_bytes(b"\n" * MUCH_BYTES)
    cold = [cost(command, env).wall_s]
    for _ in range(runs):
        shutil.rmtree(env["XDG_CACHE_HOME"], ignore_errors=True)
        cold.append(cost(command, env).wall_s)
    print(
        f"| {SMALL_LOGS} logs of {SMALL_LINES} lines, nothing in the cache | {spread(cold[1:], 's')} | {SMALL_LIMIT_S} s |"
    )
    cost((*HOLDFAST, str(much)), env)  # as any larger diagnosis or run does, it compiles all signatures
    warm = [cost(command, env).wall_s for _ in range(runs)]
    print(f"| the same once signatures were compiled | {spread(warm, 's')} | {SMALL_LIMIT_S} s |")


def live() -> None:
    watcher = Watcher(all_signatures())
    polls = list(live_polls())
    watcher.look(polls[0])
    begun_s = time.process_time()
    for chunks in polls:
        watcher.look(chunks)
    share = (time.process_time() - begun_s) / LIVE_S
    print(f"| watching {LIVE_LINES_PER_S} lines a second | {share:.2%} of a core | {LIVE_LIMIT:.0%} |")


def live_polls() -> Iterator[list[Chunk]]:
    """What a follower gives ten times a second, of eight ranks."""
    with tempfile.TemporaryDirectory() as name:
        write_tree(Path(name), LIVE_LINES_PER_S * LIVE_S * 140 / 2**30, 8, is_quiet=True)
        logs = [path.read_bytes().splitlines() for path in sorted(Path(name).rglob("*.log"))]
    each = LIVE_LINES_PER_S // LIVE_POLLS_PER_S // len(logs)
    for poll in range(LIVE_S * LIVE_POLLS_PER_S):
        yield [
            Chunk(f"rank-{rank}.log", float(poll), poll * 10_000, lines[poll * each % len(lines) :][:each])
            for rank, lines in enumerate(logs)
        ]


def rg_patterns(place: Path) -> tuple[int, int]:
    """Writes a file of patterns for rg; how many there are, and how many had to be made anew for it."""
    lines = []
    foreign = 0
    for signature in all_signatures():
        pattern = NAMED_GROUP.sub(
            "(?:", signature.pattern
        )  # rg joins the patterns: a name may be there only once
        if LOOKAROUND.search(pattern) or not rg_takes(pattern):
            pattern = "(?-u:" + ESCAPED.sub(r"\1", loosened(pattern).expression.decode("ascii")) + ")"
            foreign += 1
        lines.append(pattern)
    place.write_text("\n".join(lines) + "\n")
    return len(lines), foreign


def rg_takes(pattern: str) -> bool:
    commands = (("rg", "-e", pattern), ("rg", "--no-unicode", "-e", pattern))
    return all(subprocess.run(one, input=b"", capture_output=True).returncode != 2 for one in commands)


def cost(command: Sequence[str], env: Mapping[str, str]) -> Cost:
    begun_s = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=dict(env))
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - begun_s
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command[:4])} ... ended with {process.returncode}")
    return Cost(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def spread(values: Sequence[float], unit: str) -> str:
    return f"{statistics.median(values):.2f} {unit} [{min(values):.2f}–{max(values):.2f}]".replace("  ", " ")


if __name__ == "__main__":
    main()
