"""A whole job whose link is encrypted, and a command for its nodes by the same link."""

import json

from many.test_exec import ask, job

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
