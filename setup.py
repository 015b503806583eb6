"""Builds the package, and puts into it what its signatures become when they are read: observe/search/ready_made.py.

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
        # From within the tree: pip takes a path out of PYTHONPATH that an earlier editable install has named.
        made = subprocess.run(
            [
                sys.executable,
                "-m",
                "holdfast.observe.search.ready_made",
                str(root / "holdfast" / "signatures"),
            ],
            cwd=root,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )
        if made.returncode != 0:
            self.warn("the signatures could not be made ready; the first diagnosis will do it")


setup(cmdclass={"build_py": WithSignaturesRead})
