"""Translates the fault-tolerance settings of other systems into a policy: `--policy NAME[:key=value,…]`.

Each system is a table of its own setting names, with the defaults its public documents give, and one
function from their values to a policy. What has no counterpart becomes a note, never silence. Never reads
a file or the environment.
"""

import difflib
from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from holdfast.model.policy import Policy

RESTARTS_MAX = 128
YES = frozenset(("true", "yes", "on", "1"))
NO = frozenset(("false", "no", "off", "0"))

Value = int | float | bool | str | None


class BadPreset(ValueError):
    """The text after --policy cannot be understood; the text of the error says why and what would do."""


class Key(Struct, frozen=True, kw_only=True):
    """One setting of a system. `kind`: whole, seconds, minutes, yes or text. `low`, `high`: the range of numbers.

    `default`: what its documents say; None: off, or not said.
    """

    name: str
    kind: str
    meaning: str
    default: Value = None
    low: float = 0
    high: float = 0
    words: tuple[str, ...] = ()  # of a text: the only ones allowed


class Preset(Struct, frozen=True, kw_only=True):
    """`fields` names the settings that the preset decides: fields of Policy, and the two kept beside it here."""

    policy: Policy
    fields: frozenset[str]
    notes: tuple[str, ...] = ()
    platform_hang_min: float | None = None
    termination_wait_s: float | None = None


class _Told:
    """The values given for one system, with its defaults behind them."""

    def __init__(self, keys: tuple[Key, ...], given: Mapping[str, Value]) -> None:
        self.given = given
        self._defaults = {key.name: key.default for key in keys}

    def whole(self, name: str) -> int | None:
        value = self.given.get(name, self._defaults[name])
        return None if value is None else int(value)

    def number(self, name: str) -> float | None:
        value = self.given.get(name, self._defaults[name])
        return None if value is None else float(value)

    def yes(self, name: str) -> bool:
        return bool(self.given.get(name, self._defaults[name]))

    def text(self, name: str) -> str:
        return str(self.given.get(name, self._defaults[name]) or "")


class System(Struct, frozen=True, kw_only=True):
    name: str
    who: str
    keys: tuple[Key, ...]
    translate: Callable[[_Told], Preset]


def translate(text: str) -> Preset:
    """`modelarts`, or `modelarts:job-retry-num=3,hang-retry=true`. raises: BadPreset"""
    name, _, rest = text.strip().partition(":")
    system = SYSTEMS.get(name.strip().lower())
    if system is None:
        raise BadPreset(
            f"there is no policy {name!r}{_nearest(name.lower(), SYSTEMS)}; known: {', '.join(SYSTEMS)}"
        )
    given: dict[str, Value] = {}
    for part in filter(None, (part.strip() for part in rest.split(","))):
        key, value = _one(system, part)
        given[key.name] = value
    return system.translate(_Told(system.keys, given))


# Reading -------------------------------------------------------------------------------------------------


def _one(system: System, part: str) -> tuple[Key, Value]:
    name, equals, raw = part.partition("=")
    key = _key(system, name.strip())
    if not equals:
        if key.kind != "yes":
            raise BadPreset(f"{system.name}: {key.name} needs a value: {key.name}={_range(key)}")
        return key, True
    return key, _value(system, key, raw.strip().strip("\"'"))


def _key(system: System, name: str) -> Key:
    """The key of this name: without its annotation prefix, the folder it stands in, or a flag's hyphens."""
    plain = _plain(name)
    for key in system.keys:
        if _plain(key.name) == plain:
            return key
    names = [key.name for key in system.keys]
    near = _nearest(plain, {_plain(known): known for known in names})
    raise BadPreset(f"{system.name} has no setting {name!r}{near}; known: {', '.join(names)}")


def _plain(name: str) -> str:
    return name.lstrip("-").rpartition("/")[2].rpartition(".")[2].lower().replace("_", "-")


def _nearest(name: str, known: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    if not close:
        return ""
    value = known[close[0]]
    return f" (did you mean {value if isinstance(value, str) else close[0]}?)"


def _value(system: System, key: Key, raw: str) -> Value:
    match key.kind:
        case "yes":
            if raw.lower() in YES or raw.lower() in NO:
                return raw.lower() in YES
        case "text":
            found = [word for word in key.words if word.lower() == raw.lower()]
            if found or not key.words:
                return found[0] if found else raw
        case _:
            number = _number(raw, key)
            if number is not None:
                return number
    raise BadPreset(f"{system.name}: {key.name} cannot be {raw!r}: {_range(key)} is allowed")


def _number(raw: str, key: Key) -> int | float | None:
    try:
        number = int(raw) if key.kind == "whole" else float(raw)
    except ValueError:
        return None
    return number if key.low <= number <= key.high else None


def _range(key: Key) -> str:
    match key.kind:
        case "yes":
            return "true or false"
        case "text":
            return " or ".join(key.words) or "a text"
        case "whole":
            return f"{key.low:g} to {key.high:g}"
        case kind:
            return f"{key.low:g} to {key.high:g} ({kind})"


def _preset(policy: dict[str, Value], notes: list[str], **beside: float | None) -> Preset:
    """Every field named is decided by the preset, also where it says what the default says."""
    return Preset(
        policy=replace(Policy(), **policy), fields=frozenset((*policy, *beside)), notes=tuple(notes), **beside
    )


def _notes(told: _Told, notes: dict[str, str]) -> list[str]:
    """The notes of those settings that were given."""
    return [f"{name}: {text}" for name, text in notes.items() if name in told.given]


# Holdfast ------------------------------------------------------------------------------------------------

_OWN = (
    Key(
        name="max-restarts",
        kind="whole",
        low=1,
        high=RESTARTS_MAX,
        default=8,
        meaning="restarts of the whole job",
    ),
    Key(name="unconditional-restart", kind="yes", default=True, meaning="restart on every non-zero exit"),
    Key(name="hang-restart", kind="yes", default=True, meaning="restart when a hang is confirmed"),
    Key(name="replace-workers", kind="whole", low=1, high=RESTARTS_MAX, meaning="single workers made anew"),
)


def _own(told: _Told) -> Preset:
    fields: dict[str, Value] = {
        "max_restarts": told.whole("max-restarts"),
        "unconditional_restart": told.yes("unconditional-restart"),
        "hang_restart": told.yes("hang-restart"),
        "replace_workers": told.whole("replace-workers"),
        "same_error_fails": "unconditional-restart" not in told.given,  # who asks for it gets every restart
    }
    return _preset(fields, [])


# Huawei ModelArts ----------------------------------------------------------------------------------------

_MODELARTS = (
    Key(
        name="fault-tolerance/job-retry-num",
        kind="whole",
        low=1,
        high=RESTARTS_MAX,
        meaning="restarts on environment faults; restarts in place and after a hang are not counted",
    ),
    Key(
        name="fault-tolerance/job-unconditional-retry",
        kind="yes",
        default=False,
        meaning="build the job anew on every non-zero exit, at most 3 in a row",
    ),
    Key(
        name="fault-tolerance/hang-retry",
        kind="yes",
        default=False,
        meaning="restart in the container on a hang, at most 3 in a row",
    ),
    Key(
        name="fault-tolerance/pod-retry-num",
        kind="whole",
        low=1,
        high=RESTARTS_MAX,
        meaning="replace only the failed pod, this many times",
    ),
    Key(
        name="MA_HANG_DETECT_TIME",
        kind="minutes",
        low=1,
        high=10_080,
        default=30,
        meaning="how long the processes' input and output must stand still",
    ),
    Key(
        name="MA_FAILOVER_TERMINATION_GRACE_PERIOD_SECONDS",
        kind="seconds",
        low=-1,
        high=86_400,
        default=-1,
        meaning="a reschedule waits this long for the old worker to end; -1: until it has ended",
    ),
    Key(
        name="PERF_BASELINE_SKIP_STEPS",
        kind="whole",
        low=0,
        high=10**6,
        default=20,
        meaning="alarm on step times",
    ),
    Key(
        name="PERF_BASELINE_STEPS", kind="whole", low=1, high=10**6, default=20, meaning="alarm on step times"
    ),
)


def _modelarts(told: _Told) -> Preset:
    fields: dict[str, Value] = {
        "max_restarts": told.whole("fault-tolerance/job-retry-num"),
        "unconditional_restart": told.yes("fault-tolerance/job-unconditional-retry"),
        "hang_restart": told.yes("fault-tolerance/hang-retry"),
        "replace_workers": told.whole("fault-tolerance/pod-retry-num"),
    }
    wait_s = told.number("MA_FAILOVER_TERMINATION_GRACE_PERIOD_SECONDS")
    learned = "not translated: what a usual step is is learned from the run itself"
    notes = _notes(told, {"PERF_BASELINE_SKIP_STEPS": learned, "PERF_BASELINE_STEPS": learned})
    if fields["unconditional_restart"] and fields["max_restarts"] is None:
        notes.append("job-unconditional-retry restarts nothing unless job-retry-num is given too")
    if not any(fields.values()):
        notes.append(
            "every fault-tolerance annotation is off by default: nothing is restarted; give job-retry-num=…"
        )
    return _preset(
        fields,
        notes,
        platform_hang_min=told.number("MA_HANG_DETECT_TIME"),
        termination_wait_s=wait_s if wait_s is not None and wait_s >= 0 else None,
    )


# Infinigence AIStudio ------------------------------------------------------------------------------------

_AISTUDIO = (
    Key(
        name="fault-tolerance",
        kind="yes",
        default=False,
        meaning="reschedule on a hardware fault and restart",
    ),
    Key(name="max-restarts", kind="whole", low=1, high=RESTARTS_MAX, meaning="maximum restarts"),
    Key(name="slowdown-detection", kind="yes", default=False, meaning="warn of slow steps"),
    Key(
        name="slowdown-threshold",
        kind="ratio",
        low=0,
        high=100,
        default=0.8,
        meaning="ratio above which it warns",
    ),
)
_AISTUDIO_RESTARTS = 3  # no document states a default; this is ours


def _aistudio(told: _Told) -> Preset:
    on = told.yes("fault-tolerance")
    restarts = told.whole("max-restarts")
    notes = _notes(
        told,
        {
            "slowdown-detection": "not translated: --slowdown-rule aistudio warns by this rule",
            "slowdown-threshold": "not translated: the threshold of --slowdown-rule aistudio is 0.8",
        },
    )
    if on and restarts is None:
        restarts = _AISTUDIO_RESTARTS
        notes.append(f"max-restarts: the documents name no default; {restarts} is taken")
    if not on:
        restarts = None
        notes.append(
            "task fault tolerance is off by default: nothing is restarted; give fault-tolerance=true"
        )
    return _preset({"max_restarts": restarts, "unconditional_restart": False, "hang_restart": False}, notes)


# Alibaba PAI AIMaster ------------------------------------------------------------------------------------

_AIMASTER = (
    Key(
        name="job-execution-mode",
        kind="text",
        words=("Sync", "Async"),
        default="Sync",
        meaning="restart the whole job, or only the failed instance",
    ),
    Key(name="enable-job-restart", kind="yes", default=False, meaning="restart at all"),
    Key(
        name="max-num-of-job-restart", kind="whole", low=1, high=RESTARTS_MAX, default=3, meaning="how often"
    ),
    Key(name="enable-job-hang-detection", kind="yes", default=False, meaning="restart on a hang"),
    Key(
        name="job-hang-interval",
        kind="seconds",
        low=1,
        high=604_800,
        default=1800,
        meaning="stdout and stderr of all instances silent this long: a hang",
    ),
    Key(
        name="enable-job-exit-hang-detection",
        kind="yes",
        default=False,
        meaning="restart on a hang at the end",
    ),
    Key(
        name="job-exit-hang-interval",
        kind="seconds",
        low=1,
        high=604_800,
        meaning="one instance succeeded and the job does not end for this long",
    ),
)


def _aimaster(told: _Told) -> Preset:
    on = told.yes("enable-job-restart")
    restarts = told.whole("max-num-of-job-restart") if on else None
    hangs, exit_hangs = told.yes("enable-job-hang-detection"), told.yes("enable-job-exit-hang-detection")
    notes = _notes(
        told,
        {"job-exit-hang-interval": "not translated: Holdfast finds a hang at the end by what the ranks do"},
    )
    if not on:
        notes.append(
            "enable-job-restart is off by default: no failure is restarted; give enable-job-restart=true"
        )
    if exit_hangs and not hangs:
        notes.append(
            "enable-job-exit-hang-detection: other hangs are restarted as well, there is one switch for both"
        )
    if hangs:
        notes.append("job-hang-interval: Holdfast looks for any sign of life, not only at stdout and stderr")
    if hangs or exit_hangs:
        notes.append("restarts after a hang do not count as restarts; after 3 in a row the job fails")
    alone = told.text("job-execution-mode") == "Async"
    if alone:
        notes.append(
            "job-execution-mode=Async: one instance is replaced on a node or device fault; else all restart"
        )
    fields: dict[str, Value] = {
        "max_restarts": restarts,
        "unconditional_restart": on,
        "hang_restart": hangs or exit_hangs,
        "replace_workers": restarts if alone else None,
        "hang_timeout_s": told.number("job-hang-interval") if hangs else None,
    }
    return _preset(fields, notes)


# AWS SageMaker HyperPod ----------------------------------------------------------------------------------

_HYPERPOD = (
    Key(name="jobMaxRetryCount", kind="whole", low=0, high=10**6, default=50, meaning="restarts of the job"),
    Key(
        name="restartPolicy.numRestartBeforeFullJobRestart",
        kind="whole",
        low=0,
        high=10**6,
        default=3,
        meaning="restarts of processes within the period before the whole job restarts",
    ),
    Key(
        name="restartPolicy.evalPeriodSeconds",
        kind="seconds",
        low=1,
        high=10**8,
        default=21_600,
        meaning="the period",
    ),
    Key(
        name="restartPolicy.maxFullJobRestarts",
        kind="whole",
        low=0,
        high=10**6,
        default=1,
        meaning="restarts of the whole job",
    ),
    Key(name="logMonitoringConfiguration.logPattern", kind="text", meaning="the line a healthy job writes"),
    Key(
        name="logMonitoringConfiguration.expectedStartCutOffInSeconds",
        kind="seconds",
        low=1,
        high=604_800,
        meaning="by when it must first be seen",
    ),
    Key(
        name="logMonitoringConfiguration.expectedRecurringFrequencyInSeconds",
        kind="seconds",
        low=1,
        high=604_800,
        meaning="how often it must be seen; else the job hangs",
    ),
    Key(
        name="logMonitoringConfiguration.metricThreshold",
        kind="text",
        meaning="a bound on a number in that line",
    ),
)


def _hyperpod(told: _Told) -> Preset:
    retries = told.whole("jobMaxRetryCount") or 0
    hang_s = told.number("logMonitoringConfiguration.expectedRecurringFrequencyInSeconds")
    in_place = (
        "not translated: Holdfast restarts the command in all workers, and does not count processes apart"
    )
    notes = _notes(
        told,
        {
            "restartPolicy.numRestartBeforeFullJobRestart": in_place,
            "restartPolicy.evalPeriodSeconds": in_place,
            "restartPolicy.maxFullJobRestarts": in_place,
            "logMonitoringConfiguration.logPattern": "not translated: Holdfast reads the steps itself",
            "logMonitoringConfiguration.expectedStartCutOffInSeconds": "not translated: the start has its own rule",
            "logMonitoringConfiguration.metricThreshold": "not translated: a bad number never restarts a job",
        },
    )
    if "jobMaxRetryCount" not in told.given:
        notes.append("jobMaxRetryCount: the documents show 50 as a sample; it is taken as the default")
    if retries > RESTARTS_MAX:
        notes.append(f"jobMaxRetryCount={retries}: at most {RESTARTS_MAX} restarts are possible")
    if hang_s is not None:
        notes.append(
            "expectedRecurringFrequencyInSeconds: any sign of life counts, not only lines of logPattern"
        )
    fields: dict[str, Value] = {
        "max_restarts": min(retries, RESTARTS_MAX) or None,
        "unconditional_restart": retries > 0,
        "hang_restart": hang_s is not None,
        "hang_timeout_s": hang_s,
    }
    return _preset(fields, notes)


# SenseTime SenseCore -------------------------------------------------------------------------------------

_SENSECORE = (
    Key(
        name="max-restarts", kind="whole", low=-1, high=99, meaning="maximum restarts; -1: for ever, 0: none"
    ),
    Key(name="exit-codes", kind="text", meaning="restart on these, e.g. 1-255 or 1+137+200-210"),
    Key(name="anti-affinity", kind="text", meaning="avoid the node after these exit codes, e.g. 137+139"),
)
_EVERY_CODE = frozenset(range(1, 256))


def _sensecore(told: _Told) -> Preset:
    restarts = told.whole("max-restarts")
    codes = _codes(told.text("exit-codes"), "exit-codes")
    _codes(told.text("anti-affinity"), "anti-affinity")
    notes = _notes(
        told, {"anti-affinity": "not translated: a node is avoided after a fault of it, not after a code"}
    )
    if restarts is None:
        notes.append("max-restarts has no documented default: nothing is restarted; give max-restarts=…")
    if restarts == -1:
        notes.append(f"max-restarts=-1: for ever is not possible; {RESTARTS_MAX} is taken")
    if restarts and not codes:
        notes.append(
            "no exit-codes given: only environment faults are restarted; give exit-codes=1-255 for every exit"
        )
    if codes and codes != _EVERY_CODE:
        notes.append("exit-codes: every non-zero exit code is restarted, there is no list of codes")
    fields: dict[str, Value] = {
        "max_restarts": RESTARTS_MAX if restarts == -1 else restarts or None,
        "unconditional_restart": bool(codes),
        "hang_restart": False,
    }
    return _preset(fields, notes)


def _codes(text: str, name: str) -> frozenset[int]:
    """The exit codes of `1+137+200-210`. raises: BadPreset"""
    found: set[int] = set()
    for part in filter(None, text.split("+")):
        first, _, last = part.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()):
            raise BadPreset(f"sensecore: {name} cannot be {part!r}: codes 1 to 255, such as 1+137+200-210")
        low, high = int(first), int(last or first)
        if not 1 <= low <= high <= 255:
            raise BadPreset(f"sensecore: {name} cannot be {part!r}: 1 to 255 is allowed")
        found.update(range(low, high + 1))
    return frozenset(found)


_ALL = (
    System(name="holdfast", who="our own recommendation", keys=_OWN, translate=_own),
    System(name="modelarts", who="Huawei ModelArts", keys=_MODELARTS, translate=_modelarts),
    System(name="aistudio", who="Infinigence AIStudio", keys=_AISTUDIO, translate=_aistudio),
    System(name="aimaster", who="Alibaba PAI AIMaster", keys=_AIMASTER, translate=_aimaster),
    System(name="hyperpod", who="AWS SageMaker HyperPod", keys=_HYPERPOD, translate=_hyperpod),
    System(name="sensecore", who="SenseTime SenseCore ACP", keys=_SENSECORE, translate=_sensecore),
)
SYSTEMS = {system.name: system for system in _ALL}
