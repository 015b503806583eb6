"""Settings: which layer wins, where it came from, and what is refused with what would do."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.model.policy import Policy
from holdfast.model.settings import RunSettings
from holdfast.settings.read import SettingsRefused, cache_dir, settle, site_signatures, state_root, step_forms
from holdfast.settings.table import BY_KEY, SETTINGS
from holdfast.settings.values import BadValue, allowed, read, spelled
from holdfast.supervise.live_signatures import cache_for

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"
NOWHERE = {"HOME": "/home/ada"}


def test_without_any_setting_everything_is_the_default():
    settled = settle({}, NOWHERE, command=["train"])
    assert settled.run == RunSettings(command=("train",), state_dir="/home/ada/.local/state/holdfast")
    assert set(settled.sources.values()) == {"default"}


def test_each_layer_gives_way_to_the_one_above(place):
    file = place / "holdfast.toml"
    policy = {"policy": "aimaster:enable-job-restart,max-num-of-job-restart=3"}

    def found(flags, environ):
        settled = settle(flags, {**NOWHERE, **environ})
        return settled.run.policy.max_restarts, settled.sources["max-restarts"]

    assert found({}, {}) == (None, "default")
    assert found(policy, {}) == (3, f"policy {policy['policy']}")
    file.write_text("max-restarts = 4\n")
    assert found(policy, {}) == (4, "file holdfast.toml")
    assert found(policy, {"HOLDFAST_MAX_RESTARTS": "5"}) == (5, "environment HOLDFAST_MAX_RESTARTS")
    assert found({**policy, "max-restarts": "6"}, {"HOLDFAST_MAX_RESTARTS": "5"}) == (
        6,
        "flag --max-restarts",
    )
    assert found({**policy, "max-restarts": "none"}, {}) == (None, "flag --max-restarts")


def test_the_file_named_then_the_one_here_then_the_one_at_home(place):
    home = place / "home" / ".config" / "holdfast"
    home.mkdir(parents=True)
    environ = {"HOME": str(place / "home")}
    (home / "config.toml").write_text('grace = "3s"')
    assert settle({}, environ).run.grace_s == 3
    (place / "holdfast.toml").write_text('grace = "2s"')
    assert settle({}, environ).run.grace_s == 2
    (place / "other.toml").write_text('grace = "1s"\nhang_timeout = "1h30min"')
    settled = settle({}, environ, config="other.toml")
    assert (settled.run.grace_s, settled.run.policy.hang_timeout_s) == (1, 5_400)
    assert settle({}, {**environ, "HOLDFAST_CONFIG": "other.toml"}).run.grace_s == 1


def test_what_platforms_set_in_the_environment():
    theirs = {"MA_HANG_DETECT_TIME": "15", "MA_FAILOVER_TERMINATION_GRACE_PERIOD_SECONDS": "20"}
    settled = settle({}, {**NOWHERE, **theirs})
    assert (settled.run.platform_hang_min, settled.run.termination_wait_s) == (15, 20)
    assert settled.sources["platform-hang"] == "environment MA_HANG_DETECT_TIME"
    settled = settle({}, {**NOWHERE, **theirs, "HOLDFAST_PLATFORM_HANG": "10min"})
    assert settled.run.platform_hang_min == 10
    settled = settle({}, {**NOWHERE, "MA_FAILOVER_TERMINATION_GRACE_PERIOD_SECONDS": "-1"})
    assert settled.run.termination_wait_s is None
    assert settled.sources["termination-wait"].startswith("environment MA_")


def test_a_policy_also_sets_what_stands_beside_the_ladder():
    settled = settle(
        {"policy": "modelarts:job-retry-num=3,MA_HANG_DETECT_TIME=7,PERF_BASELINE_STEPS=5"}, NOWHERE
    )
    assert settled.run.platform_hang_min == 7
    assert settled.run.policy == replace(settle({}, NOWHERE).run.policy, max_restarts=3)
    assert len(settled.notes) == 1
    assert "PERF_BASELINE_STEPS: not translated" in settled.notes[0]


def test_labels_are_pairs():
    settled = settle({"labels": "team=vision, run=a=b,empty="}, NOWHERE)
    assert settled.run.labels == ("team=vision", "run=a=b", "empty=")


@pytest.mark.parametrize(
    ("flags", "environ", "says"),
    [
        ({"max-restarts": "0"}, {}, "--max-restarts cannot be '0'; allowed: 1 to 128"),
        ({"max-restarts": "129"}, {}, "1 to 128"),
        ({"max-restarts": "three"}, {}, "1 to 128"),
        ({"grace": "90"}, {}, "'90' has no unit: write 90s or 90min"),
        ({"hang-timeout": "soon"}, {}, "--hang-timeout"),
        ({"hang-timeout": "0s"}, {}, "1s to 366d, or auto"),
        ({"policy": "modelart"}, {}, "did you mean modelarts?"),
        ({"slowdown-rule": "on"}, {}, "--slowdown-rule cannot be 'on'; allowed: auto, aistudio or off"),
        ({"step-pattern": "step ("}, {}, "--step-pattern: the step pattern 'step (' cannot be used"),
        ({"step-pattern": r"(?P<time>\d+)"}, {}, "it has no group (?P<step>...). For the line "),
        ({}, {"HOLDFAST_STEP_PATTERN": "gone.toml"}, "HOLDFAST_STEP_PATTERN: the step forms in "),
        ({}, {"HOLDFAST_SHADOW": "perhaps"}, "HOLDFAST_SHADOW cannot be 'perhaps'; allowed: true or false"),
        ({"labels": "team"}, {}, "at most 64 KEY=VALUE with commas between"),
        ({"labels": ",".join(f"k{n}=v" for n in range(65))}, {}, "at most 64 KEY=VALUE"),
        ({}, {"HOLDFAST_MAX_RESTART": "3"}, "did you mean HOLDFAST_MAX_RESTARTS?"),
        ({}, {"HOLDFAST_CONFG": "x"}, "did you mean HOLDFAST_CONFIG?"),
        ({}, {"MA_HANG_DETECT_TIME": "0"}, "MA_HANG_DETECT_TIME cannot be '0'; allowed: 1 to 10080"),
        ({}, {"MA_FAILOVER_TERMINATION_GRACE_PERIOD_SECONDS": "-2"}, "0 to 86400, or -1"),
        ({}, {"HOLDFAST_CONFIG": "gone.toml"}, "gone.toml cannot be read"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(flags, environ, says):
    with pytest.raises(SettingsRefused, match=re.escape(says)) as refused:
        settle(flags, {**NOWHERE, **environ})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("max-restart = 3", "there is no setting max-restart (in holdfast.toml): did you mean max-restarts?"),
        ("max-restarts = 0", "max-restarts in holdfast.toml cannot be 0; allowed: 1 to 128"),
        ("max-restarts = true", "cannot be True; allowed: 1 to 128"),
        ("grace = 90", "'90' has no unit: write 90s"),
        ("shadow = 3", "true or false"),
        ("user-caused-codes = [1]", "comma-separated texts"),
        ("[policy]\nx = 1", "policy in holdfast.toml cannot be {'x': 1}; allowed: a text"),
        ("grace = ", "holdfast.toml is not valid TOML"),
    ],
)
def test_a_file_is_refused_with_its_name_and_the_key(place, text, says):
    (place / "holdfast.toml").write_text(text)
    with pytest.raises(SettingsRefused, match=re.escape(says)):
        settle({}, NOWHERE)


def test_names_that_are_nobodys_misspelling_are_left_alone():
    settle({}, {**NOWHERE, "HOLDFAST_TEAM_COLOUR": "blue"})


def test_inside_a_job_its_own_names_are_no_settings():
    inside = {"HOLDFAST_JOB": "llama", "HOLDFAST_ATTEMPT": "2", "HOLDFAST_STANDBYS": "1"}
    assert settle({}, {**NOWHERE, **inside}).run.job is None
    assert settle({}, {**NOWHERE, "HOLDFAST_JOB": "llama"}).run.job == "llama"


def test_what_agents_receive_is_no_misspelling():
    settle({}, {**NOWHERE, "HOLDFAST_NODE": "n1", "HOLDFAST_JOB_FOLDER": "/j", "HOLDFAST_CONTROLLER": "a:1"})


@pytest.mark.parametrize(
    ("flags", "alone"),
    [
        ({}, True),
        ({"nnodes": "1", "spares": "0", "engine": "local"}, True),
        ({"nnodes": "2"}, False),
        ({"spares": "1"}, False),
        ({"hosts": "netns"}, False),
        ({"engine": "slurm"}, False),
    ],
)
def test_one_machine_is_one_worker_here_and_nothing_beside_it(flags, alone):
    assert settle(flags, NOWHERE).run.is_one_machine is alone


def test_the_state_folder_is_absolute_and_found_whatever_else_is_wrong(place, monkeypatch):
    monkeypatch.setenv("HOME", str(place))
    assert settle({"state-dir": "here"}, NOWHERE).run.state_dir == str(place / "here")
    assert settle({"state-dir": "~/here"}, NOWHERE).run.state_dir == str(place / "here")
    assert str(state_root(None, {"XDG_STATE_HOME": "/var/state"})) == "/var/state/holdfast"
    assert str(state_root(None, {**NOWHERE, "HOLDFAST_STATE_DIR": "/a", "HOLDFAST_GRACE": "x"})) == "/a"
    assert str(state_root("/b", {**NOWHERE, "HOLDFAST_STATE_DIR": "/a"})) == "/b"


def test_the_folder_of_signatures_is_a_flag_a_name_or_a_key(place):
    environ = {**NOWHERE, "HOLDFAST_SIGNATURES": "/a"}
    assert site_signatures(None, NOWHERE) is None
    assert str(site_signatures(None, environ)) == "/a"
    assert str(site_signatures("b", environ)) == str(place / "b")
    assert site_signatures("none", environ) is None
    (place / "holdfast.toml").write_text('signatures = "mine"')
    assert str(site_signatures(None, NOWHERE)) == str(place / "mine")
    assert settle({}, NOWHERE).values["signatures"] == str(place / "mine")


def test_a_pattern_for_steps_is_an_expression_or_a_file_wherever_the_job_is_taken_up(place):
    assert settle({"step-pattern": "none"}, NOWHERE).run.step_pattern is None
    own = r"at (?P<step>\d+) took (?P<time>[\d.]+)"
    assert settle({"step-pattern": own}, NOWHERE).run.step_pattern == own
    assert step_forms(own)[0].pattern == own
    assert step_forms(own)[1:] == step_forms(None)
    (place / "ours.toml").write_text(
        f"[[form]]\nid = 'ours'\nframework = 'Ours'\nliteral = 'at'\npattern = '{own}'\n"
    )
    settled = settle({}, {**NOWHERE, "HOLDFAST_STEP_PATTERN": "ours.toml"}).run.step_pattern
    assert settled == str(place / "ours.toml")
    assert step_forms(settled)[0].framework == "Ours"


def test_the_cache_is_where_caches_are():
    assert str(cache_dir(NOWHERE)) == "/home/ada/.cache/holdfast"
    assert str(cache_dir({"XDG_CACHE_HOME": "/c"})) == "/c/holdfast"


@pytest.mark.parametrize(
    ("flags", "fails"),
    [
        ({"policy": "holdfast"}, True),
        ({"policy": "holdfast", "max-restarts": 3}, True),
        ({"policy": "holdfast", "unconditional-restart": True}, False),
        ({"policy": "holdfast:unconditional-restart=true"}, False),
        ({"policy": "hyperpod"}, False),
        ({"unconditional-restart": True, "max-restarts": 3}, False),
    ],
)
def test_the_same_error_fails_the_job_unless_unconditional_restarts_are_asked_for(flags, fails):
    assert settle(flags, NOWHERE).run.policy.same_error_fails is fails


def test_every_field_of_the_policy_and_the_run_has_its_setting():
    of_policy = {s.field.removeprefix("policy.") for s in SETTINGS if s.field.startswith("policy.")}
    of_run = {s.field for s in SETTINGS if s.field and "." not in s.field}
    # launcher_restarts is read off the command itself, same_error_fails is the policy's.
    assert of_policy == set(Policy.__struct_fields__) - {"launcher_restarts", "same_error_fails"}
    assert of_run == set(RunSettings.__struct_fields__) - {"policy", "command"}


def test_a_value_as_it_is_shown_is_read_back_the_same():
    settled = settle({}, NOWHERE)
    for setting in SETTINGS:
        value = settled.values[setting.key]
        if value is not None or setting.word:
            assert read(setting, spelled(setting, value)) == value, setting.key


@given(
    st.sampled_from(SETTINGS),
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.lists(st.text(max_size=3)),
)
def test_anything_is_read_or_refused(setting, raw):
    try:
        value = read(setting, raw)
    except BadValue as error:
        assert str(error)
    else:
        assert value is not None or setting.word


def test_config_prints_each_value_and_its_source(holdfast, golden, place, monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setenv("MA_HANG_DETECT_TIME", "15")
    (place / "holdfast.toml").write_text("shadow = true\n")
    code, out, err = holdfast("config", "--policy", "hyperpod")
    golden("config.txt", out)
    assert code == 0
    assert (
        err
        == "holdfast: policy hyperpod: jobMaxRetryCount: the documents show 50 as a sample; it is taken as the default\n"
    )
    code, out, _ = holdfast("config", "--json")
    assert json.loads(out)["shadow"] == {"value": "true", "source": "file holdfast.toml"}


def test_a_refused_setting_is_a_usage_error(holdfast, place):
    (place / "holdfast.toml").write_text("max-restart = 3\n")
    assert holdfast("config") == (
        2,
        "",
        "holdfast: there is no setting max-restart (in holdfast.toml): did you mean max-restarts?\n",
    )


def test_every_setting_is_in_the_docs(request):
    """Written by pytest --golden; read the diff."""
    table = "\n".join(map(_row, SETTINGS))
    head, _, rest = PAGE.read_text().partition("<!-- table -->\n")
    _, _, tail = rest.partition("<!-- end -->\n")
    page = f"{head}<!-- table -->\n| key | flag | environment | allowed | default | meaning |\n|---|---|---|---|---|---|\n{table}\n<!-- end -->\n{tail}"
    if request.config.getoption("--golden"):
        PAGE.write_text(page)
    assert page == PAGE.read_text(), (
        "docs/settings.md differs from the table: pytest --golden, and read the diff"
    )


def _row(setting):
    names = [setting.env_name] + ([setting.foreign.name] if setting.foreign else [])
    flag = f"`{setting.flag_name}`" if setting.flag else "–"
    if setting.also:
        flag += f", `{setting.also}`"
    if setting.flag and setting.kind == "yes":
        flag += f", `--no-{setting.key}`"
    default = spelled(setting, settle({}, {"XDG_STATE_HOME": "~/.local/state"}).values[setting.key])
    cells = (
        f"`{setting.key}`",
        flag,
        ", ".join(f"`{name}`" for name in names),
        allowed(setting),
        default,
        setting.help,
    )
    return f"| {' | '.join(cells)} |"


def test_every_key_can_be_found_by_its_name():
    assert len(BY_KEY) == len(SETTINGS)


def test_a_node_without_a_cache_of_its_own_shares_that_of_the_job(tmp_path):
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    own, shared = tmp_path / "cache" / "holdfast", tmp_path / "state" / "signatures"
    assert cache_for(env, None) == own
    assert cache_for(env, shared) == shared
    own.mkdir(parents=True)
    assert cache_for(env, shared) == own
