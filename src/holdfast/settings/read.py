"""Resolves every setting: a flag overrides the environment, then the settings file, the policy, and the
default.

No other module reads settings. An unknown or invalid setting is never ignored: the error names the setting,
where it was set, and the valid values.
"""

import difflib
import os
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.job.presets.preset import BadPreset, Preset
from holdfast.core.job.presets.translate import translate
from holdfast.model.settings import RunSettings
from holdfast.model.step_forms import StepForm
from holdfast.observe.search.step_form_store import all_forms, package_forms
from holdfast.parsers.steps.forms import StepFormError, from_pattern
from holdfast.settings.table import BY_ENV, BY_KEY, PREFIX, SETTINGS, Setting, Value
from holdfast.settings.values import BadValue, read, read_foreign

CONFIG_ENV = "HOLDFAST_CONFIG"
FILE_HERE = "holdfast.toml"
FORMS_FILE = ".toml"  # how a step-pattern ends that names a file of forms
# Holdfast gives these to the command it runs. Where the second is met, the first is not meant for us.
_JOB_ENV, _ATTEMPT_ENV = "HOLDFAST_JOB", "HOLDFAST_ATTEMPT"
# Variables for agents of many nodes; read by `holdfast agent`, no settings.
_OF_AGENTS = ("NODE", "ADDRESS", "JOB_FOLDER", "CONTROLLER", "SECRET_FILE", "LOCAL_NODE")
_LIKE_A_SETTING = (
    0.7  # closer than this (0..1) to a setting's name: a misspelling, not another program's name
)
FLEET = "fleet"  # in the state folder


class SettingsRefused(ValueError):
    """Raised for an unknown setting or an invalid value. The message is one line: which setting, where it was
    set, and what is valid.
    """


class Settled(Struct, frozen=True, kw_only=True):
    """All settings of one run. `values` and `sources`: value and source of each setting, by its key.

    `notes`: parts of a policy that could not be translated to settings.
    """

    run: RunSettings
    values: dict[str, Value]
    sources: dict[str, str]
    notes: tuple[str, ...] = ()


class _Found(Struct, frozen=True):
    """The value of a setting, and where it comes from."""

    value: Value
    source: str


class _Layers(Struct, frozen=True, kw_only=True):
    """The sources of settings in one process."""

    flags: Mapping[str, object]  # by key; None: not given
    environ: Mapping[str, str]
    file: Path | None
    table: Mapping[str, object]  # of the file, by key


def settle(
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    *,
    config: str | None = None,
    command: Sequence[str] = (),
) -> Settled:
    """Resolves all settings for one run. Raises SettingsRefused."""
    _refuse_unknown_names(environ)
    layers = _layers(flags, environ, config)
    _refuse_unknown_keys(layers)
    found = {setting.key: _found(setting, layers) for setting in SETTINGS}
    preset = _preset(found["policy"])
    start = RunSettings(
        command=tuple(command),
        state_dir=str(default_state_dir(environ)),
        notify=_default_notify(environ),
    )
    chosen = {
        setting.key: found[setting.key]
        or _from_preset(setting, preset, found["policy"])
        or _default(setting, start)
        for setting in SETTINGS
    }
    name = chosen["policy"].value
    chosen["step-pattern"] = _usable_pattern(chosen["step-pattern"])
    _refuse_odd_options(chosen["check-options"])
    return Settled(
        run=_run_settings(start, chosen, same_error_fails=_same_error_fails(preset, chosen)),
        values={key: one.value for key, one in chosen.items()},
        sources={key: one.source for key, one in chosen.items()},
        notes=tuple(f"policy {name}: {note}" for note in preset.notes) if preset else (),
    )


def state_root(flag: str | None, environ: Mapping[str, str]) -> Path:
    """Returns the state folder alone, for commands that only read, so that other invalid settings do not
    matter to them.

    Raises SettingsRefused.
    """
    found = _found(BY_KEY["state-dir"], _layers({"state-dir": flag}, environ, None))
    return Path(str(found.value)) if found else default_state_dir(environ)


def state_places(root: Path) -> tuple[Path, ...]:
    """Returns the folders in which jobs may be recorded: the state folder `root`, then fallback folders that
    are nearly always writable.
    """
    try:
        temporary = [Path(tempfile.gettempdir()) / f"holdfast-{os.getuid()}"]
    except OSError:  # a container whose root is read-only may have none
        temporary = []
    return root, *temporary, Path("/dev/shm")


def fleet_folder(settings: RunSettings) -> Path:
    """Returns the folder of the node book for a run."""
    return Path(settings.fleet_dir) if settings.fleet_dir else Path(settings.state_dir, FLEET)


def fleet_root(flag: str | None, state_dir: str | None, environ: Mapping[str, str]) -> Path:
    """Returns the folder of the node book, for commands that read no other settings.

    Raises SettingsRefused.
    """
    found = _found(BY_KEY["fleet-dir"], _layers({"fleet-dir": flag}, environ, None))
    if found is not None and found.value is not None:
        return Path(str(found.value))
    return state_root(state_dir, environ) / FLEET


def site_signatures(flag: str | None, environ: Mapping[str, str]) -> Path | None:
    """Returns the folder with the site's own signatures; None if it is not set. Raises SettingsRefused."""
    found = _found(BY_KEY["signatures"], _layers({"signatures": flag}, environ, None))
    return Path(str(found.value)) if found and found.value is not None else None


def prometheus_url(flag: str | None, environ: Mapping[str, str]) -> str | None:
    """Returns the URL of the Prometheus server with device metrics; None if it is not set.

    Raises SettingsRefused.
    """
    found = _found(BY_KEY["prometheus"], _layers({"prometheus": flag}, environ, None))
    return str(found.value) if found and found.value is not None else None


def step_forms(pattern: str | None) -> tuple[StepForm, ...]:
    """Returns all formats of step lines (step forms): first the user's own, then those of the package.

    `pattern`: a regular expression, or the path of a TOML file; None: only those of the package.

    raises: StepFormError
    """
    if pattern is None:
        return package_forms()
    if pattern.endswith(FORMS_FILE):
        return all_forms(Path(pattern))
    return (from_pattern(pattern), *package_forms())


def cache_dir(environ: Mapping[str, str]) -> Path:
    """Returns the folder for caches, whose files can be deleted at any time."""
    return Path(environ.get("XDG_CACHE_HOME") or Path(_home(environ), ".cache"), "holdfast")


def default_state_dir(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_STATE_HOME") or Path(_home(environ), ".local", "state")
    return Path(base, "holdfast")


def notify_file(flag: str | None, environ: Mapping[str, str]) -> Path | None:
    """Returns the configuration file of notifications; None if there is none. Raises SettingsRefused."""
    found = _found(BY_KEY["notify"], _layers({"notify": flag}, environ, None))
    value = found.value if found is not None else _default_notify(environ)
    return Path(str(value)) if value is not None else None


def _default_notify(environ: Mapping[str, str]) -> str | None:
    """Returns the path of `notify.toml` beside the user's settings file, if it exists."""
    path = Path(_config_home(environ), "holdfast", "notify.toml")
    return str(path) if os.path.isfile(path) else None


# Layers --------------------------------------------------------------------------------------------------


def _layers(flags: Mapping[str, object], environ: Mapping[str, str], config: str | None) -> _Layers:
    file = _file(environ, config)
    return _Layers(flags=flags, environ=environ, file=file, table=_table(file) if file else {})


def _file(environ: Mapping[str, str], config: str | None) -> Path | None:
    named = config or environ.get(CONFIG_ENV)
    if named:
        return Path(named).expanduser()
    places = (Path(FILE_HERE), Path(_config_home(environ), "holdfast", "config.toml"))
    return next(
        (path for path in places if os.path.isfile(path)), None
    )  # another user's home: no file for us


def _config_home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("XDG_CONFIG_HOME") or Path(_home(environ), ".config"))


def _home(environ: Mapping[str, str]) -> str:
    return environ.get("HOME") or str(Path.home())


def _table(file: Path) -> dict[str, object]:
    try:
        table: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsRefused(
            f"the settings file {file} cannot be read: {error.strerror or error}"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsRefused(f"the settings file {file} is not valid TOML: {error}") from error
    return {key.replace("_", "-"): value for key, value in table.items()}


def _found(setting: Setting, layers: _Layers) -> _Found | None:
    """Returns the value of the first source that has one; None if no source has one.

    Raises SettingsRefused.
    """
    given = layers.flags.get(setting.key)
    if given is not None:
        return _read(setting, given, setting.flag_name, f"flag {setting.flag_name}")
    foreign = setting.foreign
    own = layers.environ.get(setting.env_name, "").strip()
    if own and not (setting.env_name == _JOB_ENV and _ATTEMPT_ENV in layers.environ):
        return _read(setting, own, setting.env_name, f"environment {setting.env_name}")
    theirs = layers.environ.get(foreign.name, "").strip() if foreign else ""
    if foreign and theirs:
        return _read(setting, theirs, foreign.name, f"environment {foreign.name}", foreign=True)
    if setting.key in layers.table:
        where = f"{setting.key} in {layers.file}"
        return _read(setting, layers.table[setting.key], where, f"file {layers.file}")
    return None


def _read(setting: Setting, raw: object, name: str, source: str, *, foreign: bool = False) -> _Found:
    try:
        value = read_foreign(setting, str(raw)) if foreign else read(setting, raw)
    except BadValue as error:
        raise SettingsRefused(f"{name} {error}") from error
    if setting.kind == "path" and value is not None:
        value = os.path.abspath(os.path.expanduser(str(value)))
    return _Found(value, source)


def _usable_pattern(found: _Found) -> _Found:
    """Checks a step pattern, and makes the path of a file absolute, because a job may be resumed from another
    folder.

    Raises SettingsRefused.
    """
    if not isinstance(found.value, str):
        return found
    is_file = found.value.endswith(FORMS_FILE)
    pattern = os.path.abspath(os.path.expanduser(found.value)) if is_file else found.value
    try:
        step_forms(pattern)
    except StepFormError as error:
        raise SettingsRefused(f"{found.source.partition(' ')[2]}: {error}") from error
    return _Found(pattern, found.source)


def _refuse_odd_options(found: _Found) -> None:
    """Raises SettingsRefused if an option of a check is not of the form CHECK.KEY=VALUE."""
    options = found.value if isinstance(found.value, tuple) else ()
    for option in options:
        name, has_value, _ = option.partition("=")
        if not has_value or "." not in name:
            raise SettingsRefused(f"check-options cannot be {option!r}; allowed: CHECK.KEY=VALUE")


def _preset(named: _Found | None) -> Preset | None:
    if named is None or named.value is None:
        return None
    try:
        return translate(str(named.value))
    except BadPreset as error:
        raise SettingsRefused(f"{named.source.partition(' ')[2]}: {error}") from error


def _from_preset(setting: Setting, preset: Preset | None, named: _Found | None) -> _Found | None:
    name = setting.field.rpartition(".")[2]
    if preset is None or named is None or name not in preset.fields:
        return None
    holder: object = preset.policy if setting.field.startswith("policy.") else preset
    return _Found(getattr(holder, name), f"policy {named.value}")


def _default(setting: Setting, start: RunSettings) -> _Found:
    if not setting.field:
        return _Found(None, "default")
    holder: object = start.policy if setting.field.startswith("policy.") else start
    return _Found(getattr(holder, setting.field.rpartition(".")[2]), "default")


def _same_error_fails(preset: Preset | None, chosen: Mapping[str, _Found]) -> bool:
    """Returns whether two equal errors fail the job: as the policy says, unless the user sets
    unconditional restarts.
    """
    by_policy = chosen["unconditional-restart"].source.startswith("policy ")
    return preset is not None and preset.policy.same_error_fails and by_policy


def _run_settings(start: RunSettings, chosen: Mapping[str, _Found], *, same_error_fails: bool) -> RunSettings:
    run: dict[str, Value] = {}
    policy: dict[str, Value] = {"same_error_fails": same_error_fails}
    for setting in SETTINGS:
        where, _, name = setting.field.rpartition(".")
        if name:
            (policy if where else run)[name] = chosen[setting.key].value
    return replace(start, policy=replace(start.policy, **policy), **run)


# Refusals ------------------------------------------------------------------------------------------------


def _refuse_unknown_keys(layers: _Layers) -> None:
    for key in layers.table:
        if key not in BY_KEY:
            near = difflib.get_close_matches(key, list(BY_KEY), n=1, cutoff=0.4)
            hint = f"did you mean {near[0]}?" if near else "see holdfast config"
            raise SettingsRefused(f"there is no setting {key} (in {layers.file}): {hint}")


def _refuse_unknown_names(environ: Mapping[str, str]) -> None:
    """Raises SettingsRefused for a misspelt HOLDFAST_ variable, except in processes of a job, which have
    others.
    """
    if _ATTEMPT_ENV in environ:
        return
    known = {name.removeprefix(PREFIX): name for name in (*BY_ENV, CONFIG_ENV)}
    for name in environ:
        plain = name.removeprefix(PREFIX)
        if plain == name or plain in known or plain in _OF_AGENTS:
            continue
        near = difflib.get_close_matches(plain, list(known), n=1, cutoff=_LIKE_A_SETTING)
        if near:
            raise SettingsRefused(
                f"there is no setting {name} (in the environment): did you mean {known[near[0]]}?"
            )
