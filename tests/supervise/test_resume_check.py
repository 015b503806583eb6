"""A real run that fails and resumes: the log says whether the repeated steps have the same losses."""

import subprocess
import sys

import pytest

from holdfast.archive.job import read_incident, read_job
from holdfast.journal.jobdir import StateDir

TRAIN = """import pathlib, sys
flag = pathlib.Path("flag")
again = flag.exists()
flag.touch()
for step in range(9 if again else 1, 26):
    loss = 2.5 - 0.01 * step + (float(sys.argv[1]) if again else 0.0)
    print(f"step {step}/25 loss: {loss:.4f}", flush=True)
    if step == 15 and not again:
        raise RuntimeError("planted")
"""


@pytest.mark.parametrize(("shift", "verdict"), [("0", "exact"), ("0.5", "different")])
def test_after_a_restart_the_losses_are_compared(tmp_path, shift, verdict):
    (tmp_path / "train.py").write_text(TRAIN)
    flags = ["--state-dir", "state", "--policy", "holdfast", "--boot-check", "off", "--no-standby", "--quiet"]
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "run", *flags, "--", sys.executable, "train.py", shift],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (job,) = StateDir(tmp_path / "state").jobs()
    incident = read_incident(job, 1)
    assert incident is not None and incident.resume is not None
    assert incident.resume_verdict == verdict
    assert incident.resume.en in done.stderr
    assert any(line.finding == "resume-check" for line in read_job(job).findings)
