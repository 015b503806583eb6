"""E-mail, against a real SMTP server: threads, both parts, encryption, logins, refusals."""

import asyncio
import ssl
import threading
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from email.policy import default
from ipaddress import ip_address

import pytest
from aiosmtpd.smtp import SMTP, AuthResult
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from msgspec.structs import replace

from holdfast.core.notify.outbox import Send
from holdfast.notify.config import ChannelConfig, ConfigRefused
from holdfast.notify.sender import Rejected, TryLater
from holdfast.notify.senders.mail import Mail, Server, mail
from notices_kit import made

FULL = made(link="https://hf.example.org/jobs/llama")


class Mailbox:
    """`answer`: to each message, and to each receiver."""

    def __init__(self):
        self.messages = []
        self.answer, self.receiver_answer = "250 OK", "250 OK"

    async def handle_RCPT(self, server, session, envelope, address, options):
        if self.receiver_answer.startswith("250"):
            envelope.rcpt_tos.append(address)
        return self.receiver_answer

    async def handle_DATA(self, server, session, envelope):
        if self.answer.startswith("250"):
            self.messages.append(message_from_bytes(envelope.content, policy=default))
        return self.answer


@pytest.fixture
def mailbox():
    return Mailbox()


@pytest.fixture
def certificate(tmp_path):
    """Makes a certificate for a name; returns the server's context, and one that trusts it."""

    def make(name):
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = x509.SubjectAlternativeName(
            [x509.IPAddress(ip_address(name))] if name[0].isdigit() else [x509.DNSName(name)]
        )
        now = datetime.now(UTC)
        signed = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(names, critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        cert_file, key_file = tmp_path / "cert.pem", tmp_path / "key.pem"
        cert_file.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        plain = serialization.NoEncryption()
        key_file.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        )
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(cert_file, key_file)
        return context, lambda: ssl.create_default_context(cafile=cert_file)

    return make


class Served:
    """An SMTP server in a loop of its own. `options`: of the server. `ssl_context`: TLS from the first byte."""

    def __init__(self, handler, *, ssl_context=None, **options):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        made = self._loop.create_server(
            lambda: SMTP(handler, hostname="mail.test", loop=self._loop, **options),
            "127.0.0.1",
            0,
            ssl=ssl_context,
        )
        self._server = asyncio.run_coroutine_threadsafe(made, self._loop).result(100)
        self.listens_at = self._server.sockets[0].getsockname()[1]

    def stop(self):
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(100)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self):
        self._server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
def serve():
    running = []

    def start(handler, **options):
        one = Served(handler, **options)
        running.append(one)
        return one.listens_at

    yield start
    for one in running:
        one.stop()


def sender(
    port, tls="none", user="", password="", context=ssl.create_default_context, to=("a@x.org", "b@x.org")
):
    server = Server(host="127.0.0.1", port=port, tls=tls, user=user, password=password)
    return Mail(server, "holdfast@x.org", to, "both", context)


def order(notice, reference=""):
    return Send(
        channel="c", notice=notice, reference=reference, count=1, key=f"{notice.id}/{notice.version}/c"
    )


def test_an_incident_is_a_thread_of_mails_with_text_and_html(mailbox, serve):
    one = sender(serve(mailbox))
    sent = one.send(order(FULL))
    again = one.send(order(replace(FULL, version=2, event="verdict"), sent.reference))
    assert again == sent
    first, second = mailbox.messages
    assert first["Message-ID"] == sent.reference and "References" not in first
    assert second["References"] == second["In-Reply-To"] == first["Message-ID"]
    assert second["Message-ID"] != first["Message-ID"]
    assert first["Auto-Submitted"] == "auto-generated"
    assert first["To"] == "a@x.org, b@x.org" and first["Subject"] == "llama: incident / llama：故障"
    text, html = (first.get_body((kind,)).get_content() for kind in ("plain", "html"))
    text = text.replace("\r\n", "\n")
    assert "rank 1 was killed.\nrank 1 被杀死。" in text and FULL.link in text
    assert f'<a href="{FULL.link}">' in html and "rank 1 被杀死。" in html


def test_a_mail_that_is_sent_twice_is_the_same_mail(mailbox, serve):
    one = sender(serve(mailbox))
    one.send(order(FULL))
    one.send(order(FULL))
    first, second = mailbox.messages
    assert first["Message-ID"] == second["Message-ID"]


def test_text_of_a_log_is_no_html_and_no_header(mailbox, serve):
    nasty = "<script>alert(1)</script>\nBcc: everyone@x.org"
    title = replace(FULL.title, en=nasty, zh=nasty)
    sender(serve(mailbox)).send(order(replace(FULL, title=title)))
    (message,) = mailbox.messages
    assert "<script>" not in message.get_body(("html",)).get_content()
    assert message["Bcc"] is None


def test_starttls_and_a_login(mailbox, serve, certificate):
    context, trusting = certificate("127.0.0.1")

    def authenticate(server, session, envelope, mechanism, data):
        is_right = (data.login, data.password) == (b"u", b"right")
        return AuthResult(success=is_right, handled=False)

    port = serve(
        mailbox, tls_context=context, require_starttls=True, authenticator=authenticate, auth_required=True
    )
    sender(port, "starttls", "u", "right", trusting).send(order(FULL))
    assert len(mailbox.messages) == 1
    with pytest.raises(Rejected, match="user or password is wrong"):
        sender(port, "starttls", "u", "wrong", trusting).send(order(FULL))
    with pytest.raises(Rejected, match="530"):
        sender(port, "none").send(order(FULL))


def test_tls_from_the_first_byte(mailbox, serve, certificate):
    context, trusting = certificate("127.0.0.1")
    sender(serve(mailbox, ssl_context=context), "tls", context=trusting).send(order(FULL))
    assert len(mailbox.messages) == 1


@pytest.mark.parametrize("tls", ["starttls", "tls"])
def test_a_certificate_that_does_not_fit_is_refused(mailbox, serve, certificate, tls):
    context, trusting = certificate("mail.example.org")
    port = serve(mailbox, **({"ssl_context": context} if tls == "tls" else {"tls_context": context}))
    for trust, words in ((trusting, "not valid for"), (ssl.create_default_context, "self-signed")):
        with pytest.raises(Rejected, match=f"certificate is not valid: .*{words}"):
            sender(port, tls, context=trust).send(order(FULL))
    assert mailbox.messages == []


def test_a_server_without_starttls_gets_nothing(mailbox, serve):
    with pytest.raises(Rejected, match="STARTTLS"):
        sender(serve(mailbox), "starttls", "u", "password").send(order(FULL))
    assert mailbox.messages == []


@pytest.mark.parametrize(
    ("answer", "error"),
    [("451 greylisted, come back later", TryLater), ("552 too large", Rejected), ("554 spam", Rejected)],
)
def test_what_an_answer_means(mailbox, serve, answer, error):
    port = serve(mailbox)
    mailbox.answer = answer
    with pytest.raises(error, match=answer[:3]):
        sender(port).send(order(FULL))
    mailbox.receiver_answer = answer
    with pytest.raises(error, match=answer[:3]):
        sender(port).send(order(FULL))


def test_nobody_listens_there(mailbox, serve):
    port = serve(mailbox)
    one = sender(1)
    with pytest.raises(TryLater, match="cannot be reached"):
        one.send(order(FULL))
    sender(port).send(order(FULL))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tls": "yes"}, "tls of channel c must be one of starttls, tls, none"),
        ({"port": "25"}, "port of channel c"),
        ({"port": 70_000}, "port of channel c"),
        ({"to": []}, "needs the option 'to'"),
        ({"to": ["a@x.org\nBcc: b@x.org"]}, "line break"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, words):
    known = {"host": "h", "from": "a@x.org", "to": "b@x.org", **options}
    with pytest.raises(ConfigRefused, match=words):
        mail(ChannelConfig(name="c", kind="email", options=known))
