"""Runs the demo and draws what it printed: `python -m bench.job.demo_picture docs/demo.svg`.

The training's own step lines are left out of the picture, nothing else.
"""

import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 132
TRAINING = re.compile(r"^\[rank\d\]|^W\d{4} |^\*{5}|^Setting OMP|^Traceback|^  |^torch\.distributed|^\s*$")


def main() -> None:
    target = Path(sys.argv[1])
    command = [sys.executable, "-m", "holdfast", "demo"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True)
    console = Console(record=True, width=WIDTH, file=sys.stderr)
    console.print(Text("$ holdfast demo"))
    for line in done.stdout.splitlines():
        if not TRAINING.match(line):
            console.print(
                Text.from_ansi(line.split(" job ")[0] + " job demo" if "; its record: " in line else line)
            )
    console.save_svg(str(target), title="holdfast demo")
    # No font from elsewhere: the picture is whole by itself.
    target.write_text(re.sub(r"\s*@font-face \{.*?\}", "", target.read_text(), flags=re.DOTALL))


if __name__ == "__main__":
    main()
