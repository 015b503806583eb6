"""Which patterns cost the search the most: those without which quiet text is searched fastest.

    python -m bench.diagnosis.pattern_cost --patterns 5

Halves the set again and again, each time keeping the half without which the rest is faster, measured in turns on the
same text in one thread. One pattern that begins with any word, or repeats a group before its first fixed letters, has
cost a third of the speed; below a gain of 1.05 it is noise. Of a site's signatures: `--signatures FOLDER`.
"""

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import hyperscan

from bench.diagnosis.log_tree import write_tree
from holdfast.model.signatures import Signature
from holdfast.observe.search.byte_patterns import loosened
from holdfast.observe.search.signature_store import all_signatures

BLOCK_BYTES = 1 << 20
TEXT_GIB = 0.02
ROUNDS = 6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--patterns", type=int, default=5, help="how many are looked for")
    parser.add_argument("--log", type=Path, help="the text; a generated quiet log by default")
    parser.add_argument("--signatures", type=Path, metavar="FOLDER")
    arguments = parser.parse_args()
    text = arguments.log.read_bytes() if arguments.log else quiet_text()
    signatures = all_signatures(arguments.signatures)
    print(f"{len(signatures)} patterns, {len(text) / 1e6:.0f} MB of text")
    print("| pattern | GB/s with it | without | gain |")
    print("|---|---|---|---|")
    left = list(signatures)
    for _ in range(arguments.patterns):
        worst = slowest(left, text)
        rest = [one for one in left if one is not worst]
        speeds = race({"with": left, "without": rest}, text)
        gain = speeds["without"] / speeds["with"]
        print(f"| {worst.id} | {speeds['with']:.2f} | {speeds['without']:.2f} | {gain:.2f} |", flush=True)
        left = rest


def slowest(signatures: Sequence[Signature], text: bytes) -> Signature:
    suspects = list(signatures)
    while len(suspects) > 1:
        halves = suspects[::2], suspects[1::2]
        speeds = race(
            {
                str(number): [
                    one for one in signatures if all(one is not suspect for suspect in halves[number])
                ]
                for number in (0, 1)
            },
            text,
        )
        suspects = halves[0] if speeds["0"] > speeds["1"] else halves[1]
    return suspects[0]


def race(sets: Mapping[str, Sequence[Signature]], text: bytes) -> dict[str, float]:
    """GB a second of the thread's own time, the best of several rounds in turns."""
    databases = {name: database(signatures) for name, signatures in sets.items()}
    scratches = {name: hyperscan.Scratch(one) for name, one in databases.items()}
    best_s = dict.fromkeys(sets, float("inf"))
    for _ in range(ROUNDS):
        for name, one in databases.items():
            begun_s = time.thread_time()
            for at in range(0, len(text), BLOCK_BYTES):
                one.scan(memoryview(text)[at : at + BLOCK_BYTES], seen, scratch=scratches[name])
            best_s[name] = min(best_s[name], time.thread_time() - begun_s)
    return {name: len(text) / took_s / 1e9 for name, took_s in best_s.items()}


def seen(number: int, start: int, end: int, flags: int, context: object) -> None:
    pass


def database(signatures: Sequence[Signature]) -> hyperscan.Database:
    made = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    count = len(signatures)
    made.compile(
        expressions=[loosened(one.pattern).expression for one in signatures],
        ids=list(range(count)),
        elements=count,
        flags=[hyperscan.HS_FLAG_MULTILINE] * count,
    )
    return made


def quiet_text() -> bytes:
    with tempfile.TemporaryDirectory() as name:
        write_tree(Path(name), TEXT_GIB, 1, is_quiet=True)
        return b"".join(path.read_bytes() for path in Path(name).rglob("*.log"))


if __name__ == "__main__":
    main()
