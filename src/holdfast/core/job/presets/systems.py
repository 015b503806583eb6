"""Lists the fault-tolerance settings of known platforms, with their documented defaults, and translates them.

Pure.
"""

from holdfast.core.job.presets.preset import (
    RESTARTS_MAX,
    BadPreset,
    Given,
    Key,
    Preset,
    System,
    Value,
    notes_given,
    preset,
)

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
    Key(name="replace-workers", kind="whole", low=1, high=RESTARTS_MAX, meaning="single workers replaced"),
)


def _own(given: Given) -> Preset:
    fields: dict[str, Value] = {
        "max_restarts": given.whole("max-restarts"),
        "unconditional_restart": given.yes("unconditional-restart"),
        "hang_restart": given.yes("hang-restart"),
        "replace_workers": given.whole("replace-workers"),
        "same_error_fails": "unconditional-restart"
        not in given.values,  # given explicitly, it restarts always
    }
    return preset(fields, [])


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


def _modelarts(given: Given) -> Preset:
    fields: dict[str, Value] = {
        "max_restarts": given.whole("fault-tolerance/job-retry-num"),
        "unconditional_restart": given.yes("fault-tolerance/job-unconditional-retry"),
        "hang_restart": given.yes("fault-tolerance/hang-retry"),
        "replace_workers": given.whole("fault-tolerance/pod-retry-num"),
    }
    wait_s = given.number("MA_FAILOVER_TERMINATION_GRACE_PERIOD_SECONDS")
    learned = "not translated: what a usual step is is learned from the run itself"
    notes = notes_given(given, {"PERF_BASELINE_SKIP_STEPS": learned, "PERF_BASELINE_STEPS": learned})
    if fields["unconditional_restart"] and fields["max_restarts"] is None:
        notes.append("job-unconditional-retry restarts nothing unless job-retry-num is given too")
    if not any(fields.values()):
        notes.append(
            "every fault-tolerance annotation is off by default: nothing is restarted; give job-retry-num=…"
        )
    return preset(
        fields,
        notes,
        platform_hang_min=given.number("MA_HANG_DETECT_TIME"),
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
_AISTUDIO_RESTARTS = 3  # Holdfast's choice: no document states a default


def _aistudio(given: Given) -> Preset:
    on = given.yes("fault-tolerance")
    restarts = given.whole("max-restarts")
    notes = notes_given(
        given,
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
    return preset({"max_restarts": restarts, "unconditional_restart": False, "hang_restart": False}, notes)


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


def _aimaster(given: Given) -> Preset:
    on = given.yes("enable-job-restart")
    restarts = given.whole("max-num-of-job-restart") if on else None
    hangs, exit_hangs = given.yes("enable-job-hang-detection"), given.yes("enable-job-exit-hang-detection")
    notes = notes_given(
        given,
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
    alone = given.text("job-execution-mode") == "Async"
    if alone:
        notes.append(
            "job-execution-mode=Async: one instance is replaced on a node or device fault; else all restart"
        )
    fields: dict[str, Value] = {
        "max_restarts": restarts,
        "unconditional_restart": on,
        "hang_restart": hangs or exit_hangs,
        "replace_workers": restarts if alone else None,
        "hang_timeout_s": given.number("job-hang-interval") if hangs else None,
    }
    return preset(fields, notes)


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


def _hyperpod(given: Given) -> Preset:
    retries = given.whole("jobMaxRetryCount") or 0
    hang_s = given.number("logMonitoringConfiguration.expectedRecurringFrequencyInSeconds")
    in_place = (
        "not translated: Holdfast restarts the command in all workers, and does not count processes apart"
    )
    notes = notes_given(
        given,
        {
            "restartPolicy.numRestartBeforeFullJobRestart": in_place,
            "restartPolicy.evalPeriodSeconds": in_place,
            "restartPolicy.maxFullJobRestarts": in_place,
            "logMonitoringConfiguration.logPattern": "not translated: Holdfast reads the steps itself",
            "logMonitoringConfiguration.expectedStartCutOffInSeconds": "not translated: the start has its own rule",
            "logMonitoringConfiguration.metricThreshold": "not translated: a bad number never restarts a job",
        },
    )
    if "jobMaxRetryCount" not in given.values:
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
    return preset(fields, notes)


# SenseTime SenseCore -------------------------------------------------------------------------------------

_SENSECORE = (
    Key(
        name="max-restarts", kind="whole", low=-1, high=99, meaning="maximum restarts; -1: for ever, 0: none"
    ),
    Key(name="exit-codes", kind="text", meaning="restart on these, e.g. 1-255 or 1+137+200-210"),
    Key(name="anti-affinity", kind="text", meaning="avoid the node after these exit codes, e.g. 137+139"),
)
_EVERY_CODE = frozenset(range(1, 256))


def _sensecore(given: Given) -> Preset:
    restarts = given.whole("max-restarts")
    codes = _codes(given.text("exit-codes"), "exit-codes")
    _codes(given.text("anti-affinity"), "anti-affinity")
    notes = notes_given(
        given, {"anti-affinity": "not translated: a node is avoided after a fault of it, not after a code"}
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
    return preset(fields, notes)


def _codes(text: str, name: str) -> frozenset[int]:
    """Parses a list of exit codes: "1+137+200-210". raises: BadPreset"""
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
