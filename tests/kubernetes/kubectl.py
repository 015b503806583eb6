"""Runs the real kubectl against the API server of tests."""

import json
import os
import shutil
import subprocess

import pytest

SLOW_S = 60


def kubectl(server, *words, given=""):
    """Its output. Skips the test where there is no kubectl: make kubectl installs Debian's."""
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("kubectl is not installed: make kubectl")
    env = {**os.environ, "KUBECONFIG": str(server.kubeconfig), "HOME": str(server.folder)}
    run = subprocess.run(
        [program, *map(str, words)], input=given, capture_output=True, text=True, timeout=SLOW_S, env=env
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def apply(server, text):
    """The lines about each object."""
    return kubectl(server, "apply", *_validation(server), "-f", "-", given=text).splitlines()


def _validation(server):
    """Older ones than 1.25 validate by themselves, by a description (OpenAPI v2) that the server of tests does not have."""
    version = json.loads(kubectl(server, "version", "--client", "-o", "json"))["clientVersion"]
    return () if int(version["minor"].rstrip("+")) >= 25 else ("--validate=false",)
