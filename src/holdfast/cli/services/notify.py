"""Implements `holdfast notify`: lists channels, sends samples, and shows to which channels a notification
would go.
"""

import os
import time
from pathlib import Path
from typing import Annotated, Any

from msgspec.structs import replace

from holdfast.cli.line.flags import App, BadParameter, Exit, Option
from holdfast.cli.line.output import put, put_json, say
from holdfast.core.notify.routes import channels_of
from holdfast.model.documents.notices import NOTICE_EVENTS, SEVERITIES, Notice
from holdfast.notify.config import ChannelConfig, ConfigRefused, NotifyConfig, read_config
from holdfast.notify.delivering import moment
from holdfast.notify.registry import MAKERS
from holdfast.notify.secrets import shown
from holdfast.notify.trying import Tried, sample, tried
from holdfast.settings.read import SettingsRefused, notify_file

FAILED, REFUSED = 1, 2

app = App()

File = Annotated[
    str | None,
    Option(
        "--notify",
        metavar="FILE",
        help="File of channels and rules; default: ~/.config/holdfast/notify.toml. [HOLDFAST_NOTIFY]",
    ),
]
Json = Annotated[bool, Option("--json", help="Print one JSON document instead of text.")]
Only = Annotated[list[str] | None, Option("--channel", metavar="NAME", help="Only this channel; repeatable.")]


@app.callback()
def notify() -> None:
    """Notifications: lists channels, tests them, explains the routing rules."""


@app.command("list")
def list_(file: File = None, json: Json = False) -> None:
    """Lists the channels. Secrets are masked."""
    config = _config(file)
    found = [_document(channel) for channel in config.channels]
    if json:
        put_json({"channels": found, "rules": len(config.rules)})
        return
    for channel, one in zip(config.channels, found, strict=True):
        options = ", ".join(f"{key} {_spelled(value)}" for key, value in one["options"].items())
        put(f"{channel.name:<16} {channel.kind:<13} {channel.language:<5} {options}")
    if not found:
        put("no channel")


@app.command()
def test(channel: Only = None, file: File = None, json: Json = False) -> None:
    """Sends a sample to each channel. Exits with 1 if one fails."""
    config = _config(file)
    results = tried(_chosen(config, channel), sample(config.page, time.time()))
    if json:
        put_json({"channels": results})
    else:
        for one in results:
            put(f"{one.channel:<16} {_result(one)}")
    if not all(one.is_sent for one in results):
        raise Exit(FAILED)


@app.command()
def rules(
    event: Annotated[
        str | None, Option("--event", metavar="EVENT", help=f"One of {', '.join(NOTICE_EVENTS)}.")
    ] = None,
    severity: Annotated[
        str | None, Option("--severity", metavar="SEVERITY", help=f"One of {', '.join(SEVERITIES)}.")
    ] = None,
    job: Annotated[str, Option("--job", metavar="NAME", help="Name of the job.")] = "job",
    category: Annotated[str, Option("--category", metavar="NAME", help="Category of the verdict.")] = "",
    label: Annotated[
        list[str] | None, Option("--label", metavar="KEY=VALUE", help="Label of the job; repeatable.")
    ] = None,
    file: File = None,
    json: Json = False,
) -> None:
    """Shows to which channels a notification would go now. Without --event: for each event."""
    config = _config(file)
    events = NOTICE_EVENTS if event is None else (_one_of(event, NOTICE_EVENTS, "--event"),)
    severities = SEVERITIES if severity is None else (_one_of(severity, SEVERITIES, "--severity"),)
    at_s = time.time()
    start = replace(sample(config.page, at_s), job=job, category=category, labels=_labels(config, label))
    rows = []
    for name in events:
        for weight in severities:
            notice = replace(start, event=name, severity=weight)
            rows.append({"event": name, "severity": weight, "channels": _channels(config, notice, at_s)})
    if json:
        put_json({"rules": rows})
        return
    for row in rows:
        put(f"{row['event']:<17} {row['severity']:<9} {', '.join(row['channels']) or 'no channel'}")


def _channels(config: NotifyConfig, notice: Notice, at_s: float) -> tuple[str, ...]:
    return channels_of(notice, config.rules, moment(at_s, config.zone))


def _labels(config: NotifyConfig, given: list[str] | None) -> dict[str, str]:
    found = dict(config.labels)
    for one in given or ():
        key, equals, value = one.partition("=")
        if not key or not equals:
            raise BadParameter(f"{one!r} is not of the form KEY=VALUE", param_hint="--label")
        found[key] = value
    return found


def _one_of(value: str, allowed: tuple[Any, ...], flag: str) -> Any:
    if value not in allowed:
        raise BadParameter(f"{value!r} is not one of {', '.join(allowed)}", param_hint=flag)
    return value


def _config(flag: str | None) -> NotifyConfig:
    """Returns the configuration of notifications. Raises Exit after printing what is wrong."""
    try:
        path = notify_file(flag, os.environ)
        if path is None:
            say(
                "there is no file of channels: create ~/.config/holdfast/notify.toml, or give one with "
                "--notify"
            )
            raise Exit(REFUSED)
        config = read_config(Path(path), os.environ)
        for channel in config.channels:
            MAKERS[channel.kind](channel)
    except (SettingsRefused, ConfigRefused) as error:
        say(str(error))
        raise Exit(REFUSED) from error
    return config


def _chosen(config: NotifyConfig, names: list[str] | None) -> list[ChannelConfig]:
    known = [channel.name for channel in config.channels]
    for name in names or ():
        if name not in known:
            say(f"there is no channel {name!r}: {', '.join(known) or 'none is configured'}")
            raise Exit(REFUSED)
    return [channel for channel in config.channels if not names or channel.name in names]


def _document(channel: ChannelConfig) -> dict[str, Any]:
    options = {key: shown(key, value) for key, value in channel.options.items()}
    return {"name": channel.name, "kind": channel.kind, "language": channel.language, "options": options}


def _spelled(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _result(one: Tried) -> str:
    if one.is_sent:
        return f"sent in {one.took_s:.2f} s"
    return f"{'refused' if one.is_final else 'not sent'}: {one.why}"
