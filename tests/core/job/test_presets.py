"""Other systems' settings become a policy; what does not translate is said."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.job.presets.preset import BadPreset, Key
from holdfast.core.job.presets.systems import SYSTEMS
from holdfast.core.job.presets.translate import translate
from holdfast.model.policy import Policy

PAGE = Path(__file__).parents[3] / "docs" / "policies.md"


def test_our_own_recommendation():
    preset = translate("holdfast")
    assert preset.policy == Policy(
        max_restarts=8, unconditional_restart=True, hang_restart=True, same_error_fails=True
    )
    assert preset.notes == ()


def test_who_asks_our_policy_for_unconditional_restarts_gets_every_one():
    assert not translate("holdfast:unconditional-restart=true").policy.same_error_fails


@pytest.mark.parametrize("name", sorted(set(SYSTEMS) - {"holdfast"}))
def test_the_policies_of_other_systems_keep_their_own_counts(name):
    assert not translate(name).policy.same_error_fails


@pytest.mark.parametrize("prefix", ["", "fault-tolerance/"])
def test_modelarts_annotations_with_and_without_their_prefix(prefix):
    text = f'modelarts:{prefix}job-retry-num=3,{prefix}hang-retry="true",{prefix}pod-retry-num=2'
    preset = translate(text)
    assert preset.policy == Policy(max_restarts=3, hang_restart=True, replace_workers=2)
    assert preset.platform_hang_min == 30.0
    assert preset.termination_wait_s is None
    assert preset.notes == ()


def test_modelarts_by_itself_restarts_nothing_and_says_so():
    preset = translate("modelarts")
    assert preset.policy == Policy()
    assert "nothing is restarted" in preset.notes[0]


def test_modelarts_hang_time_and_grace():
    preset = translate("modelarts:MA_HANG_DETECT_TIME=10,MA_FAILOVER_TERMINATION_GRACE_PERIOD_SECONDS=20")
    assert preset.platform_hang_min == 10.0
    assert preset.termination_wait_s == 20.0
    assert {"platform_hang_min", "termination_wait_s"} <= preset.fields


def test_aimaster_with_its_flags_as_they_are_written():
    preset = translate(
        "aimaster:--enable-job-restart=true,--max-num-of-job-restart=5,--enable-job-hang-detection,"
        "--job-hang-interval=900,--job-execution-mode=async"
    )
    assert preset.policy == Policy(
        max_restarts=5,
        unconditional_restart=True,
        hang_restart=True,
        hang_timeout_s=900.0,
        replace_workers=5,
    )
    assert any("Async" in note for note in preset.notes)


def test_aimaster_defaults_are_off_and_three():
    assert translate("aimaster").policy == Policy()
    assert translate("aimaster:enable-job-restart").policy.max_restarts == 3


def test_hyperpod_sample_is_called_a_sample():
    preset = translate("hyperpod")
    assert preset.policy == Policy(max_restarts=50, unconditional_restart=True)
    assert "sample" in preset.notes[0]


def test_hyperpod_rules_on_logs():
    preset = translate(
        "hyperpod:jobMaxRetryCount=500,expectedRecurringFrequencyInSeconds=300,evalPeriodSeconds=60"
    )
    assert preset.policy.max_restarts == 128
    assert (preset.policy.hang_restart, preset.policy.hang_timeout_s) == (True, 300.0)
    assert any(note.startswith("restartPolicy.evalPeriodSeconds: not translated") for note in preset.notes)
    assert any("at most 128" in note for note in preset.notes)
    assert translate("hyperpod:jobMaxRetryCount=0").policy == Policy()


def test_sensecore_for_ever_and_none():
    forever = translate("sensecore:max-restarts=-1,exit-codes=1-255")
    assert forever.policy == Policy(max_restarts=128, unconditional_restart=True)
    assert len(forever.notes) == 1
    assert translate("sensecore:max-restarts=0").policy == Policy()


def test_sensecore_a_list_of_codes_is_wider_here_and_said_to_be():
    preset = translate("sensecore:max-restarts=9,exit-codes=1+137+200-210,anti-affinity=137")
    assert preset.policy == Policy(max_restarts=9, unconditional_restart=True)
    assert [note.partition(":")[0] for note in preset.notes] == ["anti-affinity", "exit-codes"]


def test_aistudio():
    assert translate("aistudio").policy == Policy()
    preset = translate("aistudio:fault-tolerance=true,max-restarts=12,slowdown-threshold=0.5")
    assert preset.policy == Policy(max_restarts=12)
    assert "--slowdown-rule aistudio" in preset.notes[0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("modelart", "did you mean modelarts?"),
        ("", "known: holdfast, modelarts"),
        ("modelarts:job-rety-num=3", "did you mean fault-tolerance/job-retry-num?"),
        ("modelarts:job-retry-num=0", "1 to 128"),
        ("modelarts:job-retry-num=129", "1 to 128"),
        ("modelarts:job-retry-num", "needs a value"),
        ("modelarts:hang-retry=perhaps", "true or false"),
        ("modelarts:MA_HANG_DETECT_TIME=nan", "1 to 10080 (minutes)"),
        ("aimaster:job-execution-mode=both", "Sync or Async"),
        ("hyperpod:jobMaxRetryCuont=3", "did you mean jobMaxRetryCount?"),
        ("sensecore:max-restarts=100", "-1 to 99"),
        ("sensecore:max-restarts=1,exit-codes=0-3", "1 to 255"),
        ("sensecore:max-restarts=1,exit-codes=a", "codes 1 to 255"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(text, says):
    with pytest.raises(BadPreset, match=re.escape(says)):
        translate(text)


@given(
    st.text(max_size=60)
    | st.sampled_from(sorted(SYSTEMS)).flatmap(lambda name: st.text().map(f"{name}:".__add__))
)
def test_any_text_is_a_preset_or_refused(text):
    try:
        assert isinstance(translate(text).policy, Policy)
    except BadPreset as error:
        assert str(error)


def test_every_setting_and_default_of_every_system_is_in_the_docs():
    told = _defaults_told(PAGE.read_text())
    assert list(told) == list(SYSTEMS)
    for system in SYSTEMS.values():
        assert told[system.name] == {key.name: _default(key) for key in system.keys}


def _default(key: Key) -> str:
    if key.default is None:
        return "–"
    return str(key.default).lower() if key.kind == "yes" else str(key.default)


def _defaults_told(page: str) -> dict[str, dict[str, str]]:
    """The tables of the page: for each system its settings with their defaults."""
    told: dict[str, dict[str, str]] = {}
    for line in page.splitlines():
        if line.startswith("## "):
            rows = told[line.removeprefix("## ").split(" — ")[0]] = {}
        elif row := re.match(r"\| `(.+?)` \| (.+?) \| ", line):
            rows[row[1]] = row[2]
    return told
