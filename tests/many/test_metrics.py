"""Metrics of a job on many nodes: the controller's, and those of each agent at a port of its own."""

import re
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from many.whole_job import WholeJob
from metrics.servers import free_port
from run.place import wait_for

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def job(tmp_path, cache_home):
    one = WholeJob(tmp_path, cache_home)
    yield one
    one.end()


def scraped(port):
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            return answer.read().decode()
    except (URLError, OSError):
        return ""


def values(text, metric):
    return {
        labels: float(value) for labels, value in re.findall(rf"^{metric}{{(.*)}} (\S+)$", text, re.MULTILINE)
    }


def test_controller_and_agents(job):
    port, folder = free_port(), job.path / "textfiles"
    folder.mkdir()
    flags = ("--metrics-address", f"127.0.0.1:{port}", "--metrics-textfile", folder / "holdfast.prom")
    job.train(*flags, workers=2, spares=0)
    job.trains()
    wait_for("the controller", lambda: 'phase="running"} 1.0' in scraped(port))
    text = scraped(port)
    assert values(text, "holdfast_job_agents_connected") == {'job_name="t"': 2.0}
    assert values(text, "holdfast_job_nodes")['job_name="t",state="working"'] == 2.0

    def agents():
        files = sorted(folder.glob("holdfast-*.prom"))
        return files if len(files) == 2 else None

    texts = [file.read_text() for file in wait_for("the agents' files", agents)]
    nodes = set()
    for told in texts:
        (labels,) = values(told, "holdfast_agent_info")
        nodes.add(re.search(r'node="([^"]+)"', labels)[1])
        assert set(values(told, "holdfast_link_connected").values()) == {1.0}
        assert set(values(told, "holdfast_link_spool_lost_total").values()) == {0.0}
    assert nodes == set(job.placed())
    # Simulated nodes share one machine: each agent has taken the next free port.
    served = [scraped(port + number) for number in range(1, 20)]
    assert len([one for one in served if "holdfast_agent_info" in one]) >= 2
    job.ends_well()
    assert 'outcome="succeeded"} 1.0' in (folder / "holdfast.prom").read_text()
