"""Every route that reads, asked of a real server with the typed client."""

import pytest

from holdfast.client import NotThere


@pytest.fixture(scope="module")
def jobs(place):
    place.job("llama")


def test_the_list_of_jobs(serve, place, jobs):
    with serve().client() as client:
        page = client.jobs()
    assert [row.id for row in page.jobs] == ["llama"]


def test_a_job_that_is_not_there(serve, jobs):
    with serve().client() as client, pytest.raises(NotThere, match="no job lama"):
        client.job("lama")
