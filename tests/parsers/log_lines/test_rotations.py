"""Files that are parts of one log."""

from holdfast.parsers.log_lines.rotations import streams


def test_the_oldest_part_comes_first():
    names = ["w/a.log", "w/a.log.10.gz", "w/a.log.2.gz", "w/a.log.1", "w/b.log"]
    assert streams(names) == [["w/a.log.10.gz", "w/a.log.2.gz", "w/a.log.1", "w/a.log"]]


def test_parts_with_dates():
    names = [
        "a.log",
        "a.log-20310203.gz",
        "a.log-20301231",
        "a.log.2031-02-04",
        "a.log.2031-02-05_10-11-12.zst",
    ]
    assert streams(names) == [
        ["a.log-20301231", "a.log-20310203.gz", "a.log.2031-02-04", "a.log.2031-02-05_10-11-12.zst", "a.log"]
    ]


def test_numbers_of_ranks_are_no_parts():
    assert streams(["out.0", "out.1", "rank.log.3", "stdout.2031"]) == []
