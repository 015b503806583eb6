"""Who may ask for what: tokens, roles, sessions, origins, hosts, proxies, rates. Each against a real server."""

import os
import subprocess
import sys
import time

import httpx
import pytest

from holdfast.client import Conflict, NotAllowed, NotLoggedIn, TooManyRequests
from holdfast.web.access.tokens import TokenFile
from web.servers import Place, Server, until

JOBS = "api/v1/jobs"
ACTION = {"X-Holdfast-Confirm": "yes", "Content-Type": "application/json"}


@pytest.fixture(scope="module")
def server(place):
    """With tokens, so that everybody needs one."""
    place.job("llama")
    for role in ("viewer", "operator", "admin", "reporter"):
        place.token(role)
    running = Server(place.root)
    yield running
    running.stop()


# Without tokens -------------------------------------------------------------------------------------------------


def test_without_tokens_only_this_user_is_served(tmp_path):
    running = Server(Place(tmp_path).root)
    try:
        with running.client() as client:
            me = client.me()
            assert (me.role, me.by) == ("admin", "loopback") and me.csrf
        if os.getuid() == 0:
            ask = (
                "import os, socket\n"
                "os.setgid(65534); os.setuid(65534)\n"
                "with socket.socket() as one:\n"
                f"    one.connect({running.address!r})\n"
                "    one.sendall(b'GET /api/v1/jobs HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n')\n"
                "    print(one.recv(100).split()[1].decode())"
            )
            done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=False)
            assert done.stdout.strip() == "401", done.stderr
    finally:
        running.stop()


def test_without_tokens_nobody_else_can_be_served(tmp_path, capfd):
    words = ["serve", "--state-dir", str(tmp_path), "--address", "0.0.0.0:0"]
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "holdfast serve token create NAME" in done.stderr and "without a token" in done.stderr


def test_a_request_that_a_proxy_passed_on_is_not_this_users(tmp_path):
    running = Server(tmp_path)
    try:
        with running.http(headers={"X-Forwarded-For": "10.0.0.9"}) as http:
            assert http.get(JOBS).status_code == 401
    finally:
        running.stop()


def test_the_first_token_ends_the_time_without(tmp_path):
    running = Server(tmp_path)
    try:
        with running.client() as client:
            client.jobs()
            TokenFile(tmp_path / "server").create("ana", "viewer", time.time(), 60.0)
            with pytest.raises(NotLoggedIn):
                client.jobs()
    finally:
        running.stop()


def test_actions_without_a_token_need_the_csrf_token(tmp_path):
    Place(tmp_path).job("llama")
    running = Server(tmp_path)
    try:
        with running.http() as http:
            answer = http.post(f"{JOBS}/llama/stop", headers=ACTION, content=b"{}")
            assert answer.status_code == 403 and "csrf" in answer.text
        with running.client() as client, pytest.raises(Conflict):  # the client sends it; the job does not run
            client.stop("llama")
    finally:
        running.stop()


# Tokens ---------------------------------------------------------------------------------------------------------


def test_a_token_is_needed_and_works(server, place):
    with server.http() as http:
        answer = http.get(JOBS)
        assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
        assert "holdfast serve token create" in answer.json()["error"]["text"]
    with server.client(place.token("viewer")) as client:
        assert client.me().by == "token"


@pytest.mark.parametrize("token", ["holdfast_" + "A" * 43, "x", "\N{SNOWMAN}".encode().hex()])
def test_a_wrong_token_is_refused(server, token):
    with server.http(token) as http:
        assert http.get(JOBS).status_code == 401


def test_what_roles_may(server, place):
    ask = {
        "viewer": {"jobs": True, "stop": False, "audit": False},
        "operator": {"jobs": True, "stop": True, "audit": False},
        "admin": {"jobs": True, "stop": True, "audit": True},
        "reporter": {"jobs": False, "stop": False, "audit": False},
    }
    for role, expected in ask.items():
        with server.client(place.token(role)) as client:
            for name, may in expected.items():
                call = {"jobs": client.jobs, "stop": lambda: client.stop("llama"), "audit": client.audit}[
                    name
                ]
                if may and name == "stop":
                    with pytest.raises(Conflict):  # the job does not run: it was not the role that refused
                        call()
                elif may:
                    call()
                else:
                    with pytest.raises(NotAllowed, match=role):
                        call()


def test_an_action_has_to_be_confirmed(server, place):
    with server.http(place.token("operator")) as http:
        answer = http.post(f"{JOBS}/llama/stop", content=b"{}", headers={"Content-Type": "application/json"})
    assert answer.status_code == 400 and "X-Holdfast-Confirm" in answer.text


def test_a_revoked_token_is_refused_at_once_and_an_expired_one_too(server, place):
    secret = place.token("viewer", name="soon-gone")
    short = place.token("viewer", name="short", expires_s=1.0)
    with server.client(secret) as client, server.client(short) as other:
        client.jobs()
        place.tokens.revoke("soon-gone")
        with pytest.raises(NotLoggedIn):
            client.jobs()

        def is_expired():
            try:
                other.jobs()
            except NotLoggedIn:
                return True
            return False

        assert until(is_expired)


def test_a_token_in_an_address_is_refused_and_not_logged(server, place):
    secret = place.token("viewer")
    with server.http() as http:
        for address in (
            f"{JOBS}?token={secret}",
            f"{JOBS}?search={secret}",
            f"{JOBS}/{secret}",
            f"{JOBS}?access_token=x",
            f"{JOBS}?search=%68oldfast_{secret[9:]}",
        ):
            answer = http.get(address)
            assert answer.status_code == 400 and secret not in answer.text, address
    audit = place.root / "server" / "audit.log"
    assert secret not in server.said() + (audit.read_text() if audit.exists() else "")


def test_tokens_are_kept_as_hashes_for_this_user_alone(place, server):
    path = place.root / "server" / "tokens.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert place.token("viewer") not in path.read_text()


# Sessions of browsers -------------------------------------------------------------------------------------------


@pytest.fixture
def browser(server, place):
    """Logged in as operator."""
    with server.http(headers={"Origin": server.url.rstrip("/")}) as http:
        answer = http.post("api/v1/login", json={"token": place.token("operator")})
        assert answer.status_code == 200, answer.text
        http.headers["X-Holdfast-CSRF"] = answer.json()["csrf"]
        yield http, answer


def test_a_login_gives_a_cookie_that_no_script_sees(browser):
    http, answer = browser
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie and "secure" not in cookie
    assert http.get("api/v1/me").json()["by"] == "cookie"


def test_a_session_needs_the_csrf_token_for_actions(browser):
    http, _ = browser
    assert http.post(f"{JOBS}/llama/stop", headers=ACTION, content=b"{}").status_code == 409
    del http.headers["X-Holdfast-CSRF"]
    assert http.get(JOBS).status_code == 200
    for csrf in ({}, {"X-Holdfast-CSRF": "old"}):
        assert http.post(f"{JOBS}/llama/stop", headers={**ACTION, **csrf}, content=b"{}").status_code == 403


def test_a_session_ends_with_logout_and_with_its_token(server, place, browser):
    http, _ = browser
    assert http.post("api/v1/logout").status_code == 200
    assert http.get(JOBS).status_code == 401
    secret = place.token("viewer", name="to-revoke")
    with server.http(headers={"Origin": server.url.rstrip("/")}) as other:
        other.post("api/v1/login", json={"token": secret})
        assert other.get(JOBS).status_code == 200
        place.tokens.revoke("to-revoke")
        assert other.get(JOBS).status_code == 401


def test_a_page_without_a_session_leads_to_the_login(server):
    with server.http() as http:
        answer = http.get("jobs/llama")
        assert answer.status_code == 303 and answer.headers["location"].startswith("/login")
        assert http.get("login").status_code == 200


# Origins and hosts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1"])
def test_a_page_of_another_site_gets_nothing(browser, origin):
    http, _ = browser
    assert http.get(JOBS, headers={"Origin": origin}).status_code == 403
    assert (
        http.post(f"{JOBS}/llama/stop", headers={**ACTION, "Origin": origin}, content=b"{}").status_code
        == 403
    )


def test_a_form_of_another_site_is_refused(browser):
    http, _ = browser
    for header in ({"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}):
        del_origin = {key: value for key, value in http.headers.items() if key.lower() != "origin"}
        answer = httpx.post(
            str(http.base_url) + f"{JOBS}/llama/stop",
            headers={**del_origin, **ACTION, **header},
            cookies=dict(http.cookies),
            content=b"{}",
        )
        assert answer.status_code == 403


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "a b", "localhost:99999999"])
def test_a_foreign_name_for_this_server_is_refused(server, place, host):
    with server.http(place.token("viewer")) as http:
        assert http.get(JOBS, headers={"Host": host}).status_code == 400


def test_names_and_addresses_of_this_machine_are_known(server, place):
    port = server.address[1]
    with server.http(place.token("viewer")) as http:
        for host in (f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}", "10.1.2.3"):
            assert http.get(JOBS, headers={"Host": host}).status_code == 200, host


# Proxies --------------------------------------------------------------------------------------------------------


def test_a_trusted_proxy_names_user_host_scheme_and_prefix(serve, place, server):
    proxied = serve(
        "--trusted-proxy", "127.0.0.1", "--user-header", "X-Forwarded-User", "--host-name", "jobs.example"
    )
    said = {
        "X-Forwarded-For": "10.0.0.7",
        "X-Forwarded-Host": "jobs.example",
        "X-Forwarded-Proto": "https",
        "X-Forwarded-Prefix": "/holdfast",
        "X-Forwarded-User": "ana",
    }
    with proxied.http(headers=said) as http:
        me = http.get("holdfast/api/v1/me").json()
        assert (me["name"], me["role"], me["by"]) == ("ana", "viewer", "proxy")
        assert http.get("api/v1/me").json()["name"] == "ana"  # a proxy that cuts the prefix off
        assert 'href="/holdfast' in http.get("login").text or "/holdfast/" in http.get("login").text
        assert http.get("api/v1/me", headers={"Origin": "https://jobs.example"}).status_code == 200
        assert http.get("api/v1/me", headers={"Origin": "http://jobs.example"}).status_code == 403
        answer = http.post(
            "api/v1/login", json={"token": place.token("viewer")}, headers={"Origin": "https://jobs.example"}
        )
        assert (
            "; secure" in answer.headers["set-cookie"].lower()
            and "path=/holdfast" in answer.headers["set-cookie"].lower()
        )


def test_nobody_else_is_believed_to_be_a_proxy(server):
    with server.http(headers={"X-Forwarded-User": "admin", "X-Forwarded-For": "10.0.0.7"}) as http:
        assert http.get("api/v1/me").status_code == 401


# Rates ----------------------------------------------------------------------------------------------------------


def test_too_many_requests_wait(serve, place, server):
    slow = serve("--rate", "1")
    with slow.client(place.token("viewer")) as client:
        with pytest.raises(TooManyRequests) as refused:
            for _ in range(50):
                client.me()
        assert refused.value.retry_after_s >= 1
    with slow.client(place.token("operator")) as client:
        client.me()  # another user is not held up


def test_many_wrong_tokens_wait_even_with_the_right_one_among_them(serve, place, server):
    fresh = serve()
    with fresh.http() as http:
        codes = [http.post("api/v1/login", json={"token": f"guess-{n}"}).status_code for n in range(15)]
        assert codes[:10] == [401] * 10 and codes[-1] == 429
        assert http.post("api/v1/login", json={"token": place.token("viewer")}).status_code == 429
