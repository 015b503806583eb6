"""HTTPS by files: the certificate is used, old versions are refused, the cookie is for HTTPS alone."""

import shutil
import ssl
import subprocess

import httpx
import pytest

from web.servers import Place, Server


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    words = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    more = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", cert]
    subprocess.run([*words, *more], check=True, capture_output=True)
    return cert, key


@pytest.fixture
def server(certificate, tmp_path):
    place = Place(tmp_path)
    running = Server(place.root, "--tls-cert", str(certificate[0]), "--tls-key", str(certificate[1]))
    running.token = place.token("viewer")
    yield running
    running.stop()


def test_https_with_the_certificate_and_a_secure_cookie(server, certificate):
    trusted = ssl.create_default_context(cafile=certificate[0])
    assert server.url.startswith("https://")
    with server.client(server.token, verify=trusted) as client:
        assert client.me().name == "the-viewer"
    with httpx.Client(base_url=server.url, verify=trusted) as http:
        answer = http.post(
            "api/v1/login", json={"token": server.token}, headers={"Origin": server.url.rstrip("/")}
        )
        assert "; secure" in answer.headers["set-cookie"].lower()
        assert "max-age" in answer.headers["strict-transport-security"]


def test_versions_before_tls_1_2_are_refused(server):
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    old.minimum_version = ssl.TLSVersion.TLSv1_2
    with httpx.Client(base_url=server.url, verify=old) as http:
        assert http.get("login").status_code == 200
    words = ["openssl", "s_client", "-connect", f"{server.address[0]}:{server.address[1]}", "-tls1_1"]
    done = subprocess.run(words, input=b"", capture_output=True, check=False)
    assert done.returncode != 0 and b"no peer certificate available" in done.stdout


def test_a_certificate_that_cannot_be_read_is_said(tmp_path):
    with pytest.raises(AssertionError, match="certificate .* cannot be read"):
        Server(tmp_path, "--tls-cert", str(tmp_path / "none.pem"))
