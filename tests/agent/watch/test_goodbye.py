"""When a rank said goodbye: the last words of its status, which its shim leaves as the first thing of an orderly end."""

import pytest

from holdfast.agent.watch.hang_scene import goodbye_s


def test_the_status_of_a_rank_ends_with_the_time(tmp_path):
    (tmp_path / "rank-1.status.json").write_bytes(
        b'{"at": 812.25, "fr": {}, "exit_time": 1795345949.720061}\n'
    )
    assert goodbye_s(tmp_path, 1) == 1795345949.720061


@pytest.mark.parametrize("said", [b"", b"{", b'{"at": 812.25}\n', b'{"exit_time": 17', b"\x00" * 5000])
def test_what_is_not_whole_is_no_goodbye(tmp_path, said):
    (tmp_path / "rank-1.status.json").write_bytes(said)
    assert goodbye_s(tmp_path, 1) is None


def test_who_lives_has_said_none(tmp_path):
    assert goodbye_s(tmp_path, 1) is None
