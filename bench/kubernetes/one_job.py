"""Runs a bench that brings many faults to one job on Kubernetes, and prints as one JSON document what was wrong."""

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.job.trial import compile_holdfast, end_on_sigterm
from bench.kubernetes.job import KubernetesJob
from bench.many_nodes.job import FOR_EVER


def many_faults(
    about: str | None, faults: int, run: Callable[[KubernetesJob, argparse.Namespace], list[str]]
) -> int:
    """Reads the command line, starts the job, calls `run`, and returns the exit code: 1 if anything was wrong.

    `about`: the text of --help. `faults`: how many if the command line does not say. `run`: returns what was wrong.
    """
    options = _options(about, faults)
    compile_holdfast()
    end_on_sigterm()
    with tempfile.TemporaryDirectory(prefix="kubernetes-", ignore_cleanup_errors=True) as folder:
        job = KubernetesJob(Path(folder), steps=FOR_EVER, kind=options.kind)
        try:
            wrong = run(job, options)
        finally:
            job.clear()
    print(json.dumps({"kind": options.kind, "seed": options.seed, "faults": options.faults, "wrong": wrong}))
    return 1 if wrong else 0


def _options(about: str | None, faults: int) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=faults)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", default="job", help="job, jobset, trainjob, volcano")
    return parser.parse_args()
