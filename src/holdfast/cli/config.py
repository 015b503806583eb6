"""Implements `holdfast config`: prints the value of every setting and its source. Only reads."""

import os
from typing import Annotated

from holdfast.cli.line.flags import App, Exit, Option
from holdfast.cli.line.output import put, put_json, say
from holdfast.settings.read import SettingsRefused, Settled, settle
from holdfast.settings.table import BY_KEY, SETTINGS
from holdfast.settings.values import spelled

REFUSED = 2

app = App()


@app.command()
def config(
    config: Annotated[str | None, Option("--config", metavar="FILE", help="Settings file (TOML).")] = None,
    policy: Annotated[str | None, Option("--policy", help=BY_KEY["policy"].help)] = None,
    json: Annotated[bool, Option("--json", help="One JSON document instead.")] = False,
) -> None:
    """Prints each setting, its value, and where the value came from."""
    try:
        settled = settle({"policy": policy}, os.environ, config=config)
    except SettingsRefused as error:
        say(str(error))
        raise Exit(REFUSED) from error
    for note in settled.notes:
        say(note)
    if json:
        put_json(document(settled))
        return
    values = {setting.key: spelled(setting, settled.values[setting.key]) for setting in SETTINGS}
    widths = max(map(len, values)), min(32, max(map(len, values.values())))
    for key, value in values.items():
        put(f"{key:<{widths[0]}}  {value:<{widths[1]}}  {settled.sources[key]}")


def document(settled: Settled) -> dict[str, dict[str, str]]:
    return {
        setting.key: {
            "value": spelled(setting, settled.values[setting.key]),
            "source": settled.sources[setting.key],
        }
        for setting in SETTINGS
    }
