"""Sends notifications by e-mail over SMTP, as text and HTML; all messages about one incident form one thread.

The id of a message is derived from the notification and its version, so many servers drop a message sent
twice.

source: RFC 5322, 3.6.4 (Message-ID, In-Reply-To, References); RFC 3834, 5 (Auto-Submitted)
"""

import hashlib
import html
import smtplib
import ssl
from collections.abc import Callable
from email.message import EmailMessage
from email.utils import formatdate

from msgspec import Struct

from holdfast.core.notify.outbox import Send
from holdfast.notify.config import ChannelConfig, ConfigRefused
from holdfast.notify.forms import Shown, Tongue, cut, shown
from holdfast.notify.sender import Plain, Rejected, Sent, TryLater

TIMEOUT_S = 20.0
PORTS = {"starttls": 587, "tls": 465, "none": 25}
SUBJECT_MAX = 180
ID_CHARACTERS = 32
DOMAIN = "holdfast.invalid"  # never resolves. source: RFC 2606


class Server(Struct, frozen=True, kw_only=True):
    """Settings of the SMTP server. `tls`: "starttls", "tls" (from the first byte) or "none".

    `user`: user name for the login; empty means no login.
    """

    host: str
    port: int
    tls: str
    user: str
    password: str


class Mail(Plain):
    """Sender by e-mail. Connects anew for each message, because minutes or days lie between them."""

    def __init__(
        self,
        server: Server,
        sender: str,
        receivers: tuple[str, ...],
        language: Tongue,
        context: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    ) -> None:
        self._server, self._sender, self._receivers = server, sender, receivers
        self._language, self._context = language, context

    def send(self, send: Send) -> Sent:
        """Sends a message. Raises Rejected and TryLater."""
        message = self._message(send)
        try:
            with self._connected() as connection:
                connection.send_message(message)  # where only some receivers are refused, the others have it
        except smtplib.SMTPNotSupportedError as error:
            raise Rejected(f"the server does not support a requested feature: {error}") from error
        except smtplib.SMTPAuthenticationError as error:
            raise Rejected(f"user or password is wrong: {_words(error.smtp_error)}") from error
        except smtplib.SMTPRecipientsRefused as error:
            raise _refusal(min(code for code, _ in error.recipients.values()), str(error)) from error
        except smtplib.SMTPResponseException as error:
            raise _refusal(error.smtp_code, _words(error.smtp_error)) from error
        except ssl.SSLCertVerificationError as error:
            raise Rejected(f"the mail server's certificate is not valid: {error.verify_message}") from error
        except (OSError, smtplib.SMTPException) as error:
            raise TryLater(f"the mail server cannot be reached: {error or type(error).__name__}") from error
        return Sent(reference=send.reference or str(message["Message-ID"]))

    def _connected(self) -> smtplib.SMTP:
        """Connects to the SMTP server. Raises OSError and SMTPException."""
        server = self._server
        if server.tls == "tls":
            connection: smtplib.SMTP = smtplib.SMTP_SSL(
                server.host, server.port, timeout=TIMEOUT_S, context=self._context()
            )
        else:
            connection = smtplib.SMTP(server.host, server.port, timeout=TIMEOUT_S)
        try:
            if server.tls == "starttls":
                connection.starttls(context=self._context())
            if server.user:
                connection.login(server.user, server.password)
        except BaseException:
            connection.close()
            raise
        return connection

    def _message(self, send: Send) -> EmailMessage:
        one = shown(send.notice, self._language)
        message = EmailMessage()
        message["Subject"] = cut(one.title.replace("\n", " "), SUBJECT_MAX)
        message["From"] = self._sender
        message["To"] = ", ".join(self._receivers)
        message["Date"] = formatdate(send.notice.at_s, localtime=False)
        message["Message-ID"] = _id(send.key)
        if send.reference:
            message["In-Reply-To"] = message["References"] = send.reference
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(one.text + "\n")
        message.add_alternative(_html(one), subtype="html")
        return message


def _id(key: str) -> str:
    return f"<{hashlib.sha256(key.encode()).hexdigest()[:ID_CHARACTERS]}@{DOMAIN}>"


def _html(one: Shown) -> str:
    def safe(text: str) -> str:
        return html.escape(text).replace("\n", "<br>")

    rows = "".join(
        f'<tr><th align="left" valign="top">{safe(name)}</th><td>{safe(text)}</td></tr>'
        for name, text in one.facts
    )
    link = f'<p><a href="{html.escape(one.link, quote=True)}">{safe(one.button)}</a></p>' if one.link else ""
    return (
        f"<html><body><h3>{safe(one.title)}</h3><p>{safe(one.sentence)}</p>"
        f'<table cellpadding="4">{rows}</table>{link}</body></html>\n'
    )


def _refusal(code: int, words: str) -> Rejected | TryLater:
    """Returns the error for an SMTP reply: codes below 500 are temporary. source: RFC 5321, 4.2.1"""
    why = f"the mail server replied {code}: {words[:200]}"
    return TryLater(why) if code < 500 else Rejected(why)


def _words(raw: bytes | str) -> str:
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw


def mail(channel: ChannelConfig) -> Mail:
    """Creates the sender of a channel. Raises ConfigRefused."""
    tls = channel.text("tls", "starttls")
    if tls not in PORTS:
        raise ConfigRefused(f"tls of channel {channel.name} must be one of {', '.join(PORTS)}, not {tls!r}")
    port = channel.options.get("port", PORTS[tls])
    if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 1 << 16:
        raise ConfigRefused(f"port of channel {channel.name} must be a number from 1 to 65535, not {port!r}")
    server = Server(
        host=channel.text("host"),
        port=port,
        tls=tls,
        user=channel.text("user", ""),
        password=channel.text("password", ""),
    )
    receivers = channel.texts("to")
    if any("\n" in one or "\r" in one for one in (channel.text("from"), *receivers)):
        raise ConfigRefused(f"an address of channel {channel.name} contains a line break")
    return Mail(server, channel.text("from"), receivers, channel.language)
