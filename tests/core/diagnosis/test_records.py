"""The node of a row of sacct, by its column, whatever stands between the columns."""

import pytest

from core.diagnosis.candidate_kit import candidate, signature
from holdfast.core.diagnosis.records import host_of_record

COLUMNS = signature("sacct-columns", "none", role="context", severity="info", area="scheduler")
ROW = signature("slurm-record-node", "slurm_node_fail", area="scheduler")


@pytest.mark.parametrize(
    ("head", "row", "host"),
    [
        ("JobID|State|NodeList|ExitCode", "7.0|NODE_FAIL|n-07|1:0", "n-07"),
        ("JobID|NodeList|State|ExitCode", "7|n[07-09]|NODE_FAIL|1:0", None),
        ("JobID|State|NodeList|ExitCode", "7.0|NODE_FAIL|", None),
        (
            "JobID           JobName      State ExitCode        NodeList    Elapsed",
            "7.batch           batch  NODE_FAIL      1:0            n-07   00:12:12",
            "n-07",
        ),
        (
            "JobID           JobName      State ExitCode NodeList",
            "7.batch           batch  NODE_FAIL      1:0 n-07",
            "n-07",
        ),
        (
            "JobID           JobName      State ExitCode        NodeList    Elapsed",
            "7                 train  NODE_FAIL      1:0       n[07-09]   00:12:12",
            None,
        ),
    ],
)
def test_the_node_of_a_row_is_in_the_column_of_that_title(head, row, host):
    told = candidate(ROW, offset=90, text=row)
    assert (
        host_of_record(told, [candidate(COLUMNS, text=head, captures={"column": "NodeList"}), told]) == host
    )
    assert host_of_record(told, [told]) is None
