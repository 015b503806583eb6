"""Builds the package, and puts into it what its signatures become when they are read: observe/ready_made.py.

All else about the package is in pyproject.toml.
"""

import os
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class WithSignaturesRead(build_py):
    """Also for an editable install, where it lies beside the sources until the signatures change."""

    def run(self) -> None:
        super().run()
        root = Path("src" if self.editable_mode else self.build_lib).resolve()
        paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
        made = subprocess.run(
            [sys.executable, "-m", "holdfast.observe.ready_made", str(root / "holdfast" / "signatures")],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"},
        )
        if made.returncode != 0:
            self.warn("the signatures could not be made ready; the first diagnosis will do it")


setup(cmdclass={"build_py": WithSignaturesRead})
