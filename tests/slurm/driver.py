"""The engine in a Slurm job, driven from outside: commands come by a file, news go to another.

python driver.py FOLDER [--no-kill]
"""

import os
import signal
import sys
import time
from pathlib import Path

import msgspec

from holdfast.engines.nodes import JobPlace
from holdfast.engines.slurm.engine import SlurmEngine
from holdfast.model.nodes.workers import EndAsked
from holdfast.slurm_names import allocation

# Stands for an agent: says that it runs, passes over SIGTERM for a moment, as one does that ends its ranks.
AGENT = """
env > "$HOLDFAST_JOB_FOLDER/env-$HOLDFAST_NODE"; echo $$ >> "$HOLDFAST_JOB_FOLDER/agents-$HOLDFAST_NODE"
trap 'sleep 0.3; exit 143' TERM
while :; do sleep 0.1; done
"""


def main() -> None:
    folder = Path(sys.argv[1])
    found = allocation(os.environ)
    assert found is not None
    engine = SlurmEngine(found, os.environ, agent=("sh", "-c", AGENT), no_kill="--no-kill" in sys.argv)
    signalled: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: signalled.append(number))
    place = JobPlace(
        job="t", folder=folder, addresses=(f"{engine.listen(folder)[0]}:1",), secret_file=folder / "secret"
    )
    (folder / "place").write_text(place.addresses[0])
    engine.begin(place)
    done = 0
    with (folder / "news").open("a") as news:
        while True:
            for one in engine.turn():
                news.write(f"{time.time():.3f} {type(one).__name__} {msgspec.json.encode(one).decode()}\n")
                news.flush()
                if isinstance(one, EndAsked):
                    engine.end(one.code)
                    sys.exit(one.code)
            while signalled:
                engine.signalled(signalled.pop())
            lines = (folder / "commands").read_text().splitlines() if (folder / "commands").exists() else []
            for line in lines[done:]:
                name, *words = line.split()
                if name == "more_nodes":
                    engine.more_nodes(int(words[0]), words[1:])
                elif name == "end":
                    engine.end(0)
                    sys.exit(0)
                else:
                    getattr(engine, name)(*words)
            done = len(lines)
            time.sleep(0.05)


main()
