"""Lists of jobs from the index, the same on both databases."""

import pytest

from archive.index.fleet import BEGIN_S, Fleet, listed, until, verdict
from holdfast.archive.index.entry import BadCursor
from holdfast.archive.index.queries import similar_incidents
from holdfast.archive.job import read

DAY_S = 86_400.0


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def six(request, tmp_path_factory, postgres_server):
    """Six jobs, a day apart, and the index that is made of them, for all tests that only read it."""
    url = ""
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres").new_database()
    with Fleet(tmp_path_factory.mktemp("six") / "state") as fleet:
        yield fleet, six_jobs(fleet, url)


def six_jobs(fleet, url):
    fleet.job("a-first", BEGIN_S).begins("n0", "n1").steps(1, 30).succeeds()
    fleet.job("b-oom", BEGIN_S + DAY_S).begins("n0").steps(1, 5).fails()
    fleet.job("c-oom", BEGIN_S + 2 * DAY_S).begins("n1").steps(1, 5).fails()
    fleet.job("d-disk", BEGIN_S + 3 * DAY_S).begins("n2").fails(
        verdict("disk_full", "the disk is full", "No space left: Größe ÄÖ 50%_x")
    )
    fleet.job("e-live", BEGIN_S + 4 * DAY_S).begins("n3").steps(1, 9).hold()
    fleet.job("f-dead", BEGIN_S + 5 * DAY_S).begins("n4").steps(1, 9)
    service = fleet.served(url)
    until(service, lambda service: listed(service).total == 6)
    return service


@pytest.fixture
def service(six):
    return six[1]


def names(page):
    return [row.name for row in page.jobs]


def test_all_jobs_the_newest_first_with_their_states(service):
    page = listed(service)
    assert names(page) == ["f-dead", "e-live", "d-disk", "c-oom", "b-oom", "a-first"]
    assert [row.state for row in page.jobs] == ["dead", "training", "failed", "failed", "failed", "succeeded"]
    assert page.states == {"dead": 1, "training": 1, "failed": 3, "succeeded": 1}
    assert (page.total, page.next, page.groups) == (6, "", ())


def test_a_row_is_the_one_that_is_read_from_the_folder(six):
    fleet, service = six
    for row in listed(service).jobs:
        assert row == read(fleet.jobs[row.name].dir).row()


def test_pages_end_where_the_list_does(service):
    found, cursor, sizes = [], "", []
    while True:
        page = listed(service, limit=2, cursor=cursor)
        found, cursor = found + names(page), page.next
        sizes.append(page.total)
        if not cursor:
            break
    assert found == names(listed(service))
    assert sizes == [6, 6, 6]


def test_jobs_of_the_same_second_are_on_one_page_each_once(fleet, url):
    made = [f"j{number}" for number in range(7)]
    for name in made:
        fleet.job(name).begins("n0").fails()
    service = fleet.served(url)
    until(service, lambda service: listed(service).total == 7)
    found, cursor = [], ""
    while not found or cursor:
        page = listed(service, limit=3, cursor=cursor)
        found, cursor = found + names(page), page.next
    assert found == made[::-1]


@pytest.mark.parametrize("cursor", ["x", "!", "W10", "WzEsMl0", "é", "bnVsbA", "A" * 5000])
def test_a_cursor_of_elsewhere_is_refused(service, cursor):
    with pytest.raises(BadCursor, match="start at the first page"):
        listed(service, cursor=cursor)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"states": ("failed",)}, ["d-disk", "c-oom", "b-oom"]),
        ({"states": ("failed", "dead")}, ["f-dead", "d-disk", "c-oom", "b-oom"]),
        ({"category": "gpu_oom"}, ["c-oom", "b-oom"]),
        ({"search": "oom"}, ["c-oom", "b-oom"]),
        ({"search": "C-OOM"}, ["c-oom"]),
        ({"search": "cuda out of MEMORY"}, ["c-oom", "b-oom"]),
        ({"search": "n1"}, ["c-oom", "a-first"]),
        ({"search": "train e-live.py"}, ["e-live"]),
        ({"search": "GRÖSSE äö"}, ["d-disk"]),
        ({"search": "50%_x"}, ["d-disk"]),
        ({"search": "%"}, ["d-disk"]),
        ({"search": "_"}, ["d-disk", "c-oom", "b-oom"]),
        ({"search": "oom nowhere"}, []),
        ({"search": "\x00"}, []),
        ({"search": "' OR 1=1 --"}, []),
        ({"since_s": BEGIN_S + 3.5 * DAY_S}, ["f-dead", "e-live"]),
        ({"labels": {"team": "speech"}}, []),
        ({"labels": {"team": "oom"}}, ["c-oom", "b-oom"]),
        ({"search": "team=disk"}, ["d-disk"]),
        ({"states": ("failed",), "search": "n0"}, ["b-oom"]),
    ],
)
def test_filters(service, wanted, found):
    page = listed(service, **wanted)
    assert names(page) == found
    assert page.total == len(found)


def test_states_are_counted_without_the_filter_of_states(service):
    page = listed(service, states=("failed",), search="n")
    assert page.total == 3
    assert page.states == {"dead": 1, "training": 1, "failed": 3, "succeeded": 1}


def test_jobs_of_the_same_cause_are_a_group(service):
    page = listed(service, grouped=True)
    [group] = page.groups
    assert (group.count, group.jobs, group.category) == (2, ("c-oom", "b-oom"), "gpu_oom")
    assert group.sentence == next(row.sentence for row in page.jobs if row.name == "c-oom")
    assert BEGIN_S + DAY_S < group.since_s < BEGIN_S + 1.1 * DAY_S
    assert BEGIN_S + 2 * DAY_S < group.until_s < BEGIN_S + 2.1 * DAY_S
    assert listed(service, grouped=True, search="b-oom").groups == ()


def test_similar_incidents_are_those_of_other_jobs_and_earlier_ones(service):
    cause = next(row.cause for row in listed(service).jobs if row.name == "c-oom")
    found = similar_incidents(service.database, cause, "c-oom", 1)
    assert [(one.job, one.incident) for one in found] == [("b-oom", 1)]
    assert similar_incidents(service.database, "", "c-oom", 1) == ()
    assert similar_incidents(service.database, "another", "c-oom", 1) == ()
