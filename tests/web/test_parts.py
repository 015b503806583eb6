"""Parts of the server by themselves: the table of the kernel, rates, the guard's last fence, tokens, addresses."""

import asyncio
import os
import socket

import httpx
import pytest

from holdfast.web.access.access import Access, cookie_name
from holdfast.web.access.loopback import (
    is_loopback,
    kernel_answer,
    peer_uid,
    request,
    uid_answered,
    uid_in,
)
from holdfast.web.access.rates import Rates
from holdfast.web.access.sessions import SESSIONS_MAX, Sessions
from holdfast.web.access.tokens import TokenFile, TokenRefused, TokensUnusable
from holdfast.web.actions.jobs import signature_for
from holdfast.web.guard import Guard
from holdfast.web.settings import ServerSettings

TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2116 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 249761 1
   1: 0100007F:DBA2 0100007F:2116 01 00000000:00000000 00:00000000 00000000  1001        0 249762 1
   2: 0100007F:2116 0100007F:DBA2 01 00000000:00000000 00:00000000 00000000  1000        0 249763 1
   3: 0100007F:DBA4 0100007F:2116 05 00000000:00000000 00:00000000 00000000     0        0 0 1
"""


def test_the_user_of_the_other_end_is_found_in_the_kernels_table():
    assert uid_in(TABLE, ("127.0.0.1", 0xDBA2), ("127.0.0.1", 0x2116)) == 1001
    assert uid_in(TABLE, ("127.0.0.1", 0xDBA3), ("127.0.0.1", 0x2116)) is None
    assert uid_in("", ("127.0.0.1", 1), ("127.0.0.1", 2)) is None
    assert uid_in(TABLE, ("no address", 1), ("127.0.0.1", 2)) is None
    assert uid_in(TABLE, ("127.0.0.1", 0xDBA4), ("127.0.0.1", 0x2116)) is None, "closed: the table says root"


@pytest.mark.parametrize(
    ("address", "seen"),
    [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("127.0.0.1", "::ffff:127.0.0.1")],
    ids=["IPv4", "IPv6", "IPv4 on a socket of both"],
)
def test_the_kernel_says_whose_the_other_end_is_until_it_is_closed(address, seen):
    family = socket.AF_INET6 if ":" in seen else socket.AF_INET
    both = seen.startswith("::ffff:")
    with socket.create_server(("" if both else address, 0), family=family, dualstack_ipv6=both) as listener:
        here = socket.create_connection((address, listener.getsockname()[1]))
        there, client = listener.accept()
        with there:
            client, server = client[:2], there.getsockname()[:2]
            assert client[0] == seen
            assert uid_answered(kernel_answer(request(client, server)), client, server) == os.getuid()
            assert peer_uid(client, server) == os.getuid()
            here.close()
            assert peer_uid(client, server) is None


def test_an_answer_about_no_connection_or_another_one_is_none():
    ends = ("127.0.0.1", 0xDBA2), ("127.0.0.1", 1)
    with pytest.raises(ValueError, match="does not know"):
        uid_answered(kernel_answer(request(*ends)), *ends)
    with pytest.raises(ValueError, match="no address"):
        request(("no address", 1), ends[1])
    with socket.create_server(("127.0.0.1", 0)) as listener:  # the kernel answers with what listens there
        ends = listener.getsockname(), ("127.0.0.1", 1)
        with pytest.raises(ValueError, match="does not know"):
            uid_answered(kernel_answer(request(*ends)), *ends)
        assert peer_uid(*ends) is None


@pytest.mark.parametrize(
    ("host", "is_it"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("0.0.0.0", False),
        ("x", False),
    ],
)
def test_loopback_addresses(host, is_it):
    assert is_loopback(host) is is_it


def test_a_bucket_is_empty_for_one_and_full_for_another():
    now = [100.0]
    rates = Rates(2.0, 3, lambda: now[0])
    assert [rates.wait_s("ana") for _ in range(3)] == [0.0] * 3
    assert rates.wait_s("ana") == 0.5 and rates.wait_s("ben") == 0.0
    now[0] += 0.5
    assert rates.wait_s("ana") == 0.0


def test_sessions_are_bounded_and_end():
    now = [100.0]
    sessions = Sessions(lambda: now[0])
    first, _ = sessions.begin("ana", "hash", 1e9)
    for _ in range(SESSIONS_MAX):
        last, _ = sessions.begin("ben", "hash", 200.0)
    assert sessions.session(first) is None and sessions.session(last)
    now[0] = 200.0
    assert sessions.session(last) is None


def test_a_cookie_is_named_after_the_port():
    assert [cookie_name(host) for host in ("localhost:8470", "[::1]:1", "jobs.example")] == [
        "holdfast-8470",
        "holdfast-1",
        "holdfast",
    ]


def test_a_file_of_tokens_that_others_can_read_is_not_trusted(tmp_path):
    tokens = TokenFile(tmp_path)
    secret = tokens.create("ana", "viewer", 0.0, 60.0)
    assert tokens.token(secret, 59.0) and tokens.token(secret, 60.0) is None
    with pytest.raises(TokenRefused):
        tokens.create("../x", "viewer", 0.0, 60.0)
    os.chmod(tokens.path, 0o644)
    fresh = TokenFile(tmp_path)
    with pytest.raises(TokensUnusable, match="chmod 600"):
        fresh.tokens()
    os.chmod(tokens.path, 0o600)
    tokens.path.write_text("[{]")
    with pytest.raises(TokensUnusable, match="damaged"):
        TokenFile(tmp_path).tokens()


def test_a_handler_that_fails_tells_no_more_than_that(tmp_path, caplog):
    async def fails(scope, receive, send):
        raise ZeroDivisionError("the secret of the handler")

    settings = ServerSettings(state_dirs=(tmp_path,), fleet_dir=tmp_path)
    failures = []
    access = Access(settings, TokenFile(tmp_path), lambda: 0.0)
    guard = Guard(fails, settings, access, lambda: failures.append(1))

    async def ask():
        transport = httpx.ASGITransport(guard)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            return await http.get("/api/v1/jobs")

    answer = asyncio.run(ask())
    assert answer.status_code == 500 and "secret" not in answer.text
    assert answer.json()["error"]["code"] == "failed" and "server" not in answer.headers
    assert "the secret of the handler" in caplog.text
    assert failures == [1]


def test_a_line_becomes_the_beginning_of_a_signature():
    text = signature_for('Error: shard[19] is "torn" \\ broken', "data_error")
    assert 'category = "data_error"' in text and "shard\\\\[19\\\\]" in text
