"""The file of channels and rules: what it means, and what is refused, with the nearest that is allowed."""

import pytest

from holdfast.notify.config import ConfigRefused, read_config
from holdfast.notify.secrets import MASK, secret_words, shown, without_secrets

WHOLE = """
language = "zh"
zone = "Asia/Shanghai"
page = "https://hf.example.org/"
silence_s = 600
checkpoint_age_s = 7200
labels = { team = "vision" }

[[channel]]
name = "oncall"
kind = "feishu"
url = "env:FEISHU_URL"
secret = "file:{file}"
language = "both"

[[channel]]
name = "mail"
kind = "email"
host = "mail.example.org"
from = "a@example.org"
to = ["b@example.org", "env:BOSS"]

[[rule]]
channels = ["oncall"]
severity = "warning"
categories = ["gpu_*", "xid_79"]
quiet = [{{ start = "22:00", end = "08:00", passes = "critical", days = ["sat", "sun"] }}]
on_call = [{{ channel = "mail", start = "08:00", end = "20:00" }}]
last = true
"""
CHANNEL = '[[channel]]\nname = "a"\nkind = "webhook"\nurl = "http://x"\n'


@pytest.fixture
def config(tmp_path):
    def make(text, **env):
        path = tmp_path / "notify.toml"
        path.write_text(text)
        return read_config(path, env)

    return make


def test_a_whole_file(config, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    found = config(
        WHOLE.replace("{file}", str(secret)).replace("{{", "{").replace("}}", "}"),
        FEISHU_URL="http://f/x",
        BOSS="c@x.org",
    )
    oncall, mail = found.channels
    assert oncall.options == {"url": "http://f/x", "secret": "s3cret"}
    assert (oncall.language, mail.language) == ("both", "zh")
    assert mail.options["to"] == ["b@example.org", "c@x.org"]
    assert (found.page, found.silence_s, found.checkpoint_age_s) == ("https://hf.example.org", 600.0, 7_200.0)
    assert found.labels == {"team": "vision"}
    (rule,) = found.rules
    assert rule.is_last and rule.quiet[0].days == (5, 6) and rule.on_call[0].channel == "mail"


def test_without_rules_every_channel_gets_trouble(config):
    found = config(CHANNEL)
    assert found.rules[0].channels == ("a",) and found.rules[0].severity == "warning"
    assert config("").channels == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("languge = 'en'", "no key 'languge'; did you mean 'language'?"),
        ("language = 'fr'", "language is en, zh, both, not 'fr'"),
        ("zone = 'Asia/Shangai'", "write it as Asia/Shanghai"),
        ("silence_s = 'long'", "silence_s is a number of seconds"),
        ("checkpoint_age_s = -1", "checkpoint_age_s is a number of seconds"),
        ("channel = 3", r"written as \[\[channel\]\]"),
        ("x = [", "is not TOML"),
        ('[[channel]]\nname = "a"\nkind = "feishuu"', "did you mean 'feishu'?"),
        ('[[channel]]\nname = "a b"\nkind = "feishu"', "a channel has a name of letters"),
        (CHANNEL + 'secrt = "x"', "no key 'secrt' of channel a of kind webhook; did you mean 'secret'?"),
        (CHANNEL + CHANNEL, "two channels have the name 'a'"),
        (
            CHANNEL.replace("http://x", "env:NO_SUCH"),
            "url of channel a: the environment variable NO_SUCH is not set",
        ),
        (CHANNEL.replace("http://x", "file:/no/such"), "url of channel a: /no/such cannot be read"),
        (CHANNEL + '[[rule]]\nchannels = ["b"]', "channel of a rule is a, not 'b'"),
        (CHANNEL + '[[rule]]\nevents = ["verdikt"]', "did you mean 'verdict'?"),
        (CHANNEL + '[[rule]]\nnot_events = ["job-don"]', "did you mean 'job-done'?"),
        (
            CHANNEL + '[[rule]]\ncategories = ["gpu_omm"]',
            "no category matches 'gpu_omm' in a rule; did you mean 'gpu_oom'?",
        ),
        (CHANNEL + '[[rule]]\ncategories = ["gqu_*"]', "no category fits 'gqu_*'"),
        (CHANNEL + '[[rule]]\nseverity = "warn"', "did you mean 'warning'?"),
        (CHANNEL + '[[rule]]\nchanels = ["a"]', "did you mean 'channels'?"),
        (CHANNEL + "[[rule]]\njobs = 3", "a rule: Expected `array`"),
        (
            CHANNEL + '[[rule]]\nquiet = [{ start = "22", end = "08:00" }]',
            "a time must have the form 22:00, not '22'",
        ),
        (CHANNEL + '[[rule]]\nquiet = [{ start = "22:00", end = "24:00" }]', "not '24:00'"),
        (
            CHANNEL
            + '[[rule]]\non_call = [{ channel = "a", start = "08:00", end = "20:00", days = ["mo"] }]',
            "days is mon",
        ),
    ],
)
def test_what_is_not_understood_is_refused(config, text, words):
    with pytest.raises(ConfigRefused) as caught:
        config(text)
    message = str(caught.value)
    assert "notify.toml" in message
    assert words.replace("\\", "") in message


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigRefused, match="cannot be read: No such file"):
        read_config(tmp_path / "none.toml", {})


def test_secrets_are_masked_in_errors_and_lists():
    options = {
        "url": "https://hooks.example.org/services/T0/B0/veryLongToken?key=abcdef",
        "secret": "s3cret",
        "host": "mail.example.org",
        "password": "hunter22",
    }
    text = f"GET {options['url']} failed: token veryLongToken, s3cret, hunter22; host mail.example.org"
    masked = without_secrets(text, secret_words(options))
    assert not [word for word in ("veryLongToken", "s3cret", "hunter22", "abcdef") if word in masked]
    assert "host mail.example.org" in masked
    assert {key: shown(key, value) for key, value in options.items()} == {
        "url": f"https://hooks.example.org/{MASK}",
        "secret": MASK,
        "host": "mail.example.org",
        "password": MASK,
    }
    assert shown("url", ["tgram://123:abc/456"]) == [f"tgram://{MASK}"]
    assert shown("url", "http://127.0.0.1:9093") == "http://127.0.0.1:9093"
