"""The demo where it cannot run. That it runs is tried by `make demo`."""

import subprocess
import sys

WITHOUT_TORCH = """
import sys
from holdfast.cli.demo import run_demo
sys.path.clear()  # what is imported stays; nothing new is found
sys.exit(run_demo(keep=False, state_dir=""))
"""


def test_without_torch_it_says_how_to_get_it():
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'holdfast[demo]'" in done.stderr
