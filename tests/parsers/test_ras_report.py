"""NCCL's RAS reports, in the form its sources print."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.nodes.samples import RankRef, RasGroup
from holdfast.parsers.ras import NAMED_MAX, parse_report

HEAD = """NCCL version 2.26.2 compiled with CUDA 12.6
CUDA runtime version 12060, driver version 12060

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
"""
HEALTHY = f"""{HEAD}    0         1         4         8        32        32   RUNNING      OK

Errors
======

Warnings
========

"""
MISMATCH = f"""{HEAD}    0         1         4       7-8        32        32   RUNNING  INCOMPLETE,MISMATCH
    1         8         1         4         4        32      INIT      OK

Errors
======

INCOMPLETE
  Missing communicator data from 1 job process
  Process 3487984 on node 10.0.0.8 managing GPU 5 (NVML 1)

DEAD
  2 job processes are considered dead (unreachable via the RAS network)
  Process 71 on node 10.0.0.9 managing GPUs 0,1
  Process 72 on node fe80::1 managing GPU 3

#0-0 (00c0ffee00c0ffee) INCOMPLETE
  Missing communicator data from 2 ranks
  The missing ranks: 3,5

#1-0 (1234567890abcdef) ERROR
  Asynchronous error on 1 rank
  Rank 9 reported Remote process error -- GPU 1 managed by process 88 on node 10.0.0.7

Warnings
========

TIMEOUT
  Encountered 1 communication timeout while gathering communicator data

#0-0 (00c0ffee00c0ffee) MISMATCH
  Communicator ranks have different status
  31 ranks have status RUNNING
  Rank 4 has status FINALIZE -- GPU 4 managed by process 44 on node 10.0.0.7
  Communicator ranks have different AllGather operation counts
  29 ranks have launched up to operation 640
  2 ranks have launched up to operation 641
  Rank 12 -- GPU 4 managed by process 323032 on node 10.0.0.7
  Rank 13 -- [process information not found]
  Rank 14 has launched up to operation 639 -- GPU 6 (NVML 2) managed by process 323034 on node 10.0.0.7

"""


def test_a_healthy_job():
    report = parse_report(HEALTHY.encode())
    assert (report.nccl, report.processes, report.is_whole) == ("2.26.2", 32, True)
    assert report.groups == (RasGroup(communicators=1, nodes=4, ranks=32, status="RUNNING"),)
    assert report.troubles == ()


def test_all_kinds_of_trouble():
    report = parse_report(MISMATCH.encode())
    assert [one.errors for one in report.groups] == [("INCOMPLETE", "MISMATCH"), ()]
    assert [(one.kind, one.communicator, one.missing) for one in report.troubles] == [
        ("INCOMPLETE", "", 1),
        ("DEAD", "", 2),
        ("INCOMPLETE", "00c0ffee00c0ffee", 2),
        ("ERROR", "1234567890abcdef", 0),
        ("TIMEOUT", "", 0),
        ("MISMATCH", "00c0ffee00c0ffee", 0),
    ]
    silent, dead, missing, error, timeout, mismatch = report.troubles
    assert silent.who == (RankRef(pid=3487984, node="10.0.0.8", gpu=5),)
    assert [one.pid for one in dead.who] == [71, 72] and dead.who[1].node == "fe80::1"
    assert [one.rank for one in missing.who] == [3, 5]
    assert [(one.rank, one.pid) for one in error.who] == [(9, 88)]
    assert "Remote process error" in error.says[-1]
    assert "timeout" in timeout.says[0]
    assert [(one.rank, one.pid) for one in mismatch.who] == [(4, 44)]
    assert [(one.operation, one.count, one.ranks) for one in mismatch.launched] == [
        ("AllGather", 640, 29),
        ("AllGather", 641, 2),
        ("AllGather", 639, 1),
    ]
    assert [one.rank for one in mismatch.launched[1].who] == [12, 13]
    assert mismatch.launched[2].who == (RankRef(rank=14, pid=323034, node="10.0.0.7", gpu=6),)


def test_before_2_26_all_operations_are_counted_together():
    text = MISMATCH.replace("different AllGather operation", "different collective operation")
    launched = parse_report(text.encode()).troubles[-1].launched
    assert {one.operation for one in launched} == {""} and len(launched) == 3


def test_a_job_whose_nodes_differ():
    text = """Job summary
===========

  Nodes  Processes         GPUs
          per node  per process
      1          8            1
      1          2            1

  Nodes  Processes         GPUs
(total)    (total)      (total)
      2         10           10
"""
    assert parse_report(text.encode()).processes == 10


def test_what_was_cut_off_is_not_whole():
    for at in range(0, len(MISMATCH), 7):
        whole = parse_report(MISMATCH[:at].encode()).is_whole
        assert whole == ("Warnings\n" in MISMATCH[:at] or MISMATCH[:at].endswith("\nWarnings"))
    assert not parse_report(MISMATCH.encode(), is_cut=True).is_whole


def test_nonsense_is_bounded():
    many = ",".join(map(str, range(10_000)))
    text = HEALTHY + f"#0-0 (0) MISMATCH\n  The unknown ranks: {many}\n" + "  what\n" * 100 + "ODD\n" * 1000
    report = parse_report(text.encode())
    assert len(report.troubles) == 256
    assert len(report.troubles[0].who) == NAMED_MAX and len(report.troubles[0].says) == 16


@given(st.binary(max_size=400))
def test_no_bytes_raise(text):
    parse_report(text)
    parse_report(MISMATCH.encode() + text)
    parse_report(HEALTHY.encode() + b"#0-0 (0) MISMATCH\n  " + text)
