"""Reads the configuration file of notifications (TOML): channels, rules, and the secrets that it refers to.

Anything unknown in it is an error.

    language = "zh"
    zone = "Asia/Shanghai"
    page = "https://holdfast.example.org"

    [[channel]]
    name = "oncall"
    kind = "feishu"
    url = "env:FEISHU_URL"          # or "file:/run/secrets/feishu"
    secret = "env:FEISHU_SECRET"

    [[rule]]
    channels = ["oncall"]
    severity = "warning"
    quiet = [{ start = "22:00", end = "08:00", passes = "critical" }]

Secrets are never stored in a job's files, process arguments or messages; the file may name where they are.
"""

import difflib
import re
import tomllib
from collections.abc import Mapping
from datetime import UTC, tzinfo
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from msgspec import Struct

from holdfast.core.notify.routes import OnCall, Quiet, Rule
from holdfast.core.verdict import categories
from holdfast.model.documents.notices import NOTICE_EVENTS, SEVERITIES
from holdfast.notify.forms import Tongue

FILE_BYTES_MAX = 256 << 10
SECRET_BYTES_MAX = 64 << 10
TOP = ("language", "zone", "page", "silence_s", "checkpoint_age_s", "labels", "channel", "rule")
SECONDS_MAX = 366 * 86_400
XID = re.compile(r"xid_\d+")
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
COMMON = ("name", "kind", "language", "every")
# What a channel of each kind may have beside those, in order; what it must have is checked where its sender is made.
KINDS: Mapping[str, tuple[str, ...]] = {
    "feishu": ("url", "secret", "app_id", "app_secret", "chat", "chat_type", "base_url"),
    "lark": ("url", "secret", "app_id", "app_secret", "chat", "chat_type", "base_url"),
    "dingtalk": ("url", "secret"),
    "wecom": ("url",),
    "slack": ("url", "token", "channel", "base_url"),
    "teams": ("url",),
    "discord": ("url",),
    "email": ("host", "port", "tls", "user", "password", "from", "to"),
    "pagerduty": ("key", "url"),
    "opsgenie": ("key", "url"),
    "alertmanager": ("url",),
    "webhook": ("url", "secret"),
    "apprise": ("url",),
}
LANGUAGES = ("en", "zh", "both")
CLOCK = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")


class ConfigRefused(ValueError):
    """Raised when the configuration file is invalid. The message names the file, the key, and what is
    allowed.
    """


class ChannelConfig(Struct, frozen=True, kw_only=True):
    """The configuration of one channel. `options`: those of its kind, with secrets already read.

    `every`: send each notification as its own message, even if there are many at once; for programs.
    """

    name: str
    kind: str
    language: Tongue = "en"
    every: bool = False
    options: dict[str, Any] = {}

    def text(self, key: str, default: str | None = None) -> str:
        """Returns an option that is a text. Raises ConfigRefused if it is missing and there is no default."""
        value = self.options.get(key, default)
        if not isinstance(value, str) or not value and default is None:
            raise ConfigRefused(f"channel {self.name} of kind {self.kind} needs the option {key!r}, a text")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Returns an option that is a text or a list of texts. Raises ConfigRefused if it is missing."""
        value = self.options.get(key)
        found = [value] if isinstance(value, str) else value
        if not isinstance(found, list) or not found or not all(isinstance(one, str) and one for one in found):
            raise ConfigRefused(
                f"channel {self.name} of kind {self.kind} needs the option {key!r}: a text, or a list "
                "of texts"
            )
        return tuple(found)


class NotifyConfig(Struct, frozen=True, kw_only=True):
    """The configuration of notifications.

    `page`: address of the server's page, for links. `silence_s`: notify after so many seconds without output;
    `checkpoint_age_s`: after so many seconds without a new checkpoint; 0 means never.
    """

    channels: tuple[ChannelConfig, ...] = ()
    rules: tuple[Rule, ...] = ()
    zone: tzinfo = UTC
    page: str = ""
    silence_s: float = 300.0
    checkpoint_age_s: float = 0.0
    labels: dict[str, str] = {}


def read_config(path: Path, env: Mapping[str, str]) -> NotifyConfig:
    """Reads a configuration file. Raises ConfigRefused."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise ConfigRefused(f"{path} has more than {FILE_BYTES_MAX} bytes")
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigRefused(f"{path} cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigRefused(f"{path} is not valid TOML: {error}") from error
    return _Reader(path, env).config(raw)


class _Reader:
    """Parser of a configuration file. `_where`: the part being read, for messages."""

    def __init__(self, path: Path, env: Mapping[str, str]) -> None:
        self._path, self._env = path, env

    def config(self, raw: dict[str, Any]) -> NotifyConfig:
        self._only(raw, TOP, "")
        language = raw.get("language", "en")
        self._one_of(language, LANGUAGES, "language")
        channels = tuple(self._channel(one, language) for one in self._tables(raw, "channel"))
        names = [one.name for one in channels]
        if len(set(names)) != len(names):
            raise self._refused(
                f"two channels have the name {next(n for n in names if names.count(n) > 1)!r}"
            )
        rules = tuple(self._rule(one, names) for one in self._tables(raw, "rule"))
        if channels and not rules:
            rules = (Rule(channels=tuple(names), severity="warning"),)
        try:
            return NotifyConfig(
                channels=channels,
                rules=rules,
                zone=self._zone(raw.get("zone", "UTC")),
                page=str(raw.get("page", "")).rstrip("/"),
                silence_s=self._seconds(raw, "silence_s", 300.0),
                checkpoint_age_s=self._seconds(raw, "checkpoint_age_s", 0.0),
                labels={str(key): str(value) for key, value in dict(raw.get("labels", {})).items()},
            )
        except (TypeError, ValueError) as error:
            raise self._refused(str(error)) from error

    def _channel(self, raw: dict[str, Any], language: str) -> ChannelConfig:
        name, kind = raw.get("name"), raw.get("kind")
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", name):
            raise self._refused(
                f"the name of a channel must consist of letters, digits, dots and dashes, not {name!r}"
            )
        self._one_of(kind, tuple(KINDS), f"kind of channel {name}")
        own = raw.get("language", language)
        self._one_of(own, LANGUAGES, f"language of channel {name}")
        self._only(raw, (*COMMON, *KINDS[str(kind)]), f"of channel {name} of kind {kind}")
        options = {key: self._option(name, key, value) for key, value in raw.items() if key not in COMMON}
        every = raw.get("every", False)
        if not isinstance(every, bool):
            raise self._refused(f"every of channel {name} is true or false, not {every!r}")
        return ChannelConfig(name=name, kind=str(kind), language=own, every=every, options=options)

    def _option(self, channel: str, key: str, value: Any) -> Any:
        if isinstance(value, list):
            return [self._option(channel, key, one) for one in value]
        if not isinstance(value, str):
            return value
        scheme, _, rest = value.partition(":")
        if scheme == "env" and rest:
            found = self._env.get(rest)
            if found is None:
                raise self._refused(f"{key} of channel {channel}: the environment variable {rest} is not set")
            return found.strip()
        if scheme == "file" and rest:
            try:
                with open(rest, encoding="utf-8") as file:
                    return file.read(SECRET_BYTES_MAX).strip()
            except (OSError, UnicodeDecodeError) as error:
                raise self._refused(f"{key} of channel {channel}: {rest} cannot be read: {error}") from error
        return value

    def _rule(self, raw: dict[str, Any], names: list[str]) -> Rule:
        known = (
            "channels", "on_call", "events", "not_events", "severity", "jobs", "categories", "labels", "quiet", "last",
        )  # fmt: skip
        self._only(raw, known, "of a rule")
        for channel in raw.get("channels", ()):
            self._one_of(channel, tuple(names), "channel of a rule")
        for key in ("events", "not_events"):
            for event in raw.get(key, ()):
                self._one_of(event, NOTICE_EVENTS, f"{key} of a rule")
        for category in raw.get("categories", ()):
            self._category(category)
        self._one_of(raw.get("severity", "info"), SEVERITIES, "severity of a rule")
        plain = {key: value for key, value in raw.items() if key not in ("on_call", "quiet", "last")}
        try:
            rule = msgspec.convert(plain, Rule)
        except msgspec.ValidationError as error:
            raise self._refused(f"a rule: {error}") from error
        return msgspec.structs.replace(
            rule,
            is_last=bool(raw.get("last", False)),
            quiet=tuple(self._quiet(one) for one in raw.get("quiet", ())),
            on_call=tuple(self._on_call(one, names) for one in raw.get("on_call", ())),
        )

    def _category(self, pattern: Any) -> None:
        """Checks that a rule's category, or pattern of categories, exists (docs/words.md)."""
        names = tuple(categories.KINDS)
        if not isinstance(pattern, str) or not (
            XID.fullmatch(pattern) or any(fnmatchcase(name, pattern) for name in names)
        ):
            raise self._refused(f"no category matches {pattern!r} in a rule{_near(str(pattern), names)}")

    def _seconds(self, raw: Mapping[str, Any], key: str, default: float) -> float:
        value = raw.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= SECONDS_MAX:
            raise self._refused(f"{key} must be a number of seconds of at least 0, not {value!r}")
        return float(value)

    def _quiet(self, raw: dict[str, Any]) -> Quiet:
        self._only(raw, ("start", "end", "passes", "days"), "of quiet hours")
        self._one_of(raw.get("passes", "critical"), SEVERITIES, "passes of quiet hours")
        return Quiet(
            start_min=self._minute(raw.get("start")),
            end_min=self._minute(raw.get("end")),
            passes=raw.get("passes", "critical"),
            days=self._days(raw.get("days", ())),
        )

    def _on_call(self, raw: dict[str, Any], names: list[str]) -> OnCall:
        self._only(raw, ("channel", "start", "end", "days"), "of on_call")
        self._one_of(raw.get("channel"), tuple(names), "channel of on_call")
        return OnCall(
            channel=raw["channel"],
            start_min=self._minute(raw.get("start")),
            end_min=self._minute(raw.get("end")),
            days=self._days(raw.get("days", ())),
        )

    def _minute(self, text: Any) -> int:
        match = CLOCK.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise self._refused(f"a time must have the form 22:00, not {text!r}")
        return 60 * int(match[1]) + int(match[2])

    def _days(self, names: Any) -> tuple[int, ...]:
        for name in names:
            self._one_of(name, DAYS, "days")
        return tuple(DAYS.index(name) for name in names)

    def _zone(self, name: Any) -> tzinfo:
        try:
            return UTC if name == "UTC" else ZoneInfo(str(name))
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise self._refused(f"zone {name!r} is unknown: use a name such as Asia/Shanghai") from error

    def _tables(self, raw: dict[str, Any], key: str) -> list[dict[str, Any]]:
        found = raw.get(key, [])
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            raise self._refused(f"{key} must be written as [[{key}]]")
        return found

    def _only(self, raw: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
        for key in raw:
            if key not in known:
                raise self._refused(f"there is no key {key!r} {where}".rstrip() + _near(key, known))

    def _one_of(self, value: Any, allowed: tuple[str, ...], what: str) -> None:
        if value not in allowed:
            raise self._refused(
                f"{what} is {', '.join(allowed) or 'none yet'}, not {value!r}{_near(str(value), allowed)}"
            )

    def _refused(self, text: str) -> ConfigRefused:
        return ConfigRefused(f"{self._path}: {text}")


def _near(name: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
