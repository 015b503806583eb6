"""Requests of senders: certificates that do not fit, and proxies of the environment."""

import json
import os
import ssl
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from holdfast.notify.http import post_json
from holdfast.notify.sender import Rejected

SEND = (
    "import sys; from holdfast.notify.http import post_json\n"
    "print(post_json(sys.argv[1], {'text': 'x'}, now_s=0.0).status)"
)


@pytest.fixture
def serve():
    """serve(context): a server that notes the paths it is asked for, over TLS where there is a context."""
    servers = []

    def start(context=None):
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                self.server.paths.append(self.path)
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.paths = []
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def context(tmp_path_factory):
    """Of a server whose certificate nobody has signed."""
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    words += ["-keyout", str(key), "-out", str(cert), "-days", "1", "-subj", "/CN=elsewhere.example"]
    subprocess.run(words, check=True, capture_output=True)
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found.load_cert_chain(cert, key)
    return found


def test_a_certificate_that_does_not_fit_is_refused_and_gets_nothing(serve, context):
    server = serve(context)
    with pytest.raises(Rejected, match="certificate is not valid"):
        post_json(f"https://127.0.0.1:{server.server_port}/hook?key=secret", {"text": "x"}, now_s=0.0)
    assert server.paths == []


def sent(url, **env):
    clean = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    done = subprocess.run(
        [sys.executable, "-c", SEND, url], capture_output=True, text=True, env={**clean, **env}, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_proxy_of_the_environment_is_used(serve):
    proxy = serve()
    url = "http://receiver.invalid/hook"
    assert sent(url, http_proxy=f"http://127.0.0.1:{proxy.server_port}") == 200
    assert proxy.paths == [url]


def test_hosts_in_no_proxy_are_asked_directly(serve):
    proxy, receiver = serve(), serve()
    env = {"http_proxy": f"http://127.0.0.1:{proxy.server_port}", "no_proxy": "127.0.0.1"}
    assert sent(f"http://127.0.0.1:{receiver.server_port}/hook", **env) == 200
    assert (proxy.paths, receiver.paths) == ([], ["/hook"])
