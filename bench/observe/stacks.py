"""What one stack dump costs: milliseconds a process, by tool, for ranks that run, are stopped, hold the GIL, are blocked.

A state "D" is made by posix_spawn, whose parent waits in the kernel until the child has opened a pipe nobody writes.
Where torch is installed, each process has it imported: native frames cost by the size of the libraries.

    .venv/bin/python -m bench.observe.stacks [ROUNDS]
"""

import importlib.util
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from holdfast.observe.processes import stacks
from holdfast.observe.processes.pyspy import Ask, collect, tool_path

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 15
DEADLINE_S = 30.0
HEAD = """import faulthandler, json, os, signal, sys, threading
{torch}
folder, rank = sys.argv[1:]
faulthandler.register(signal.SIGUSR2, file=open(f"{{folder}}/rank-{{rank}}.stacks", "ab"), all_threads=True)
with open(f"{{folder}}/rank-{{rank}}.shim.json", "w") as note:
    json.dump({{"pid": os.getpid(), "stack_signal": int(signal.SIGUSR2)}}, note)
for _ in range(4): threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ready", flush=True)
"""
BODIES = {
    "waits": "threading.Event().wait()",
    "loops": "while True: pass",
    "stopped": "threading.Event().wait()",
    # A signal ends a sleep of C early: what faulthandler's signal does to code that does not expect one.
    "holds the GIL": "import ctypes\nwhile True: ctypes.PyDLL(None).sleep(1000)",
    "state D": (
        "os.mkfifo(f'{folder}/pipe'); "
        "os.posix_spawn('/bin/true', ['true'], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, f'{folder}/pipe', 0, 0)])"
    ),
}


def main() -> None:
    torch = "import torch" if importlib.util.find_spec("torch") else ""
    print(f"py-spy: {tool_path()}; {torch or 'no torch'}; {ROUNDS} rounds; median (largest) ms of a process")
    print(f"{'':14} {'faulthandler':>22} {'py-spy':>22} {'with native frames':>22}")
    with tempfile.TemporaryDirectory() as name:
        ranks = {}
        try:
            for number, (what, body) in enumerate(BODIES.items()):
                ranks[what] = _start(HEAD.format(torch=torch) + body, name, number)
            for number, (what, rank) in enumerate(ranks.items()):
                cells = (
                    _times(lambda n=number, r=rank: _signal(Path(name), n, r.pid)),
                    _times(lambda r=rank: _tool(r.pid, native=False)),
                    _times(lambda r=rank: _tool(r.pid, native=True)),
                )
                print(f"{what:14} " + " ".join(f"{cell:>22}" for cell in cells), flush=True)
        finally:
            for rank in ranks.values():
                _end(rank)


def _start(program: str, folder: str, number: int) -> "subprocess.Popen[bytes]":
    words = [sys.executable, "-c", program, folder, str(number)]
    rank = subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)
    assert rank.stdout is not None
    rank.stdout.readline()
    what = list(BODIES)[number]
    if what == "stopped":
        rank.send_signal(signal.SIGSTOP)
    until_s = time.monotonic() + DEADLINE_S
    expected = {"stopped": "T", "state D": "D", "loops": "R"}.get(what, "S")
    while _state(rank.pid) != expected and time.monotonic() < until_s:
        time.sleep(0.01)
    return rank


def _end(rank: "subprocess.Popen[bytes]") -> None:
    os.killpg(rank.pid, signal.SIGKILL)
    rank.wait()


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _signal(folder: Path, number: int, pid: int) -> str:
    """Its answer is looked for without a pause: the time is that of the dump."""
    asked = stacks.ask(folder, number, pid)
    if asked is None:
        return "not asked"
    until_s = time.monotonic() + 1
    found = stacks.collect([asked], until_s, time.monotonic, lambda _: time.sleep(0.0005))
    return "" if found else "no answer"


def _tool(pid: int, *, native: bool) -> str:
    (found,) = collect([Ask(0, pid)], DEADLINE_S, native=native)
    if native and found.source != "native":
        return found.why_not
    return "" if found.threads else found.why_not


def _times(dump: Callable[[], str]) -> str:
    """`12.3 (40.1)`; why there is no dump, where there is none."""
    times_ms = []
    for _ in range(ROUNDS):
        before_s = time.perf_counter()
        why = dump()
        if why:
            return str(why).removeprefix("no native frames: ")[:22]
        times_ms.append((time.perf_counter() - before_s) * 1000)
    return f"{statistics.median(times_ms):.1f} ({max(times_ms):.1f})"


if __name__ == "__main__":
    main()
