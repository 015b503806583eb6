"""A whole job whose link is encrypted, and a command for its nodes by the same link."""

import json
import os
import subprocess

from many.test_exec import ask, job
from run.place import HOLDFAST

__all__ = ["job"]


def test_all_of_a_job_pins_the_certificate_that_was_made_for_it(job):
    job.train("--link-tls", workers=2, spares=0)
    job.trains()
    where = job.job() / "controller.json"
    told = json.loads(where.read_text())
    words = ("exec", "t", "--yes", "--json", "--", "sh", "-c", "echo $HOLDFAST_NODE")
    code, out, _ = ask(job, *words)
    assert code == 0 and len(json.loads(out)["groups"]) == 2
    assert len(told["fingerprint"]) == 64
    where.write_text(json.dumps(told | {"fingerprint": "0" * 64}))
    code, _, err = ask(job, *words)
    assert code == 1 and "certificate" in err, job.said()
    job.ends_well()


def test_without_openssl_it_is_said_and_the_name_can_be_used_again(tmp_path, cache_home):
    words = [
        HOLDFAST,
        "run",
        "--job",
        "t",
        "--nnodes",
        "2",
        "--link-tls",
        "--boot-check",
        "off",
        "--",
        "/bin/true",
    ]

    def run(path):
        env = {
            "PATH": path,
            "HOME": str(tmp_path),
            "XDG_CACHE_HOME": str(cache_home),
            "HOLDFAST_STATE_DIR": str(tmp_path / "state"),
        }
        return subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    refused = run(str(tmp_path))
    assert refused.returncode == 2 and "install the openssl tool, or disable TLS" in refused.stderr
    again = run(os.environ["PATH"])
    assert again.returncode == 0, again.stderr
