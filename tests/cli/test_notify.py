"""`holdfast notify`: lists, tests and explains, and shows no secret."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from notify.receiver import Receiver, Reply

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))


@pytest.fixture
def run(tmp_path):
    def started(*words, config="", **env):
        path = tmp_path / "notify.toml"
        path.write_text(config)
        known = {**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config"), **env}
        return subprocess.run(
            [HOLDFAST, "notify", *words, "--notify", str(path)],
            capture_output=True,
            text=True,
            env=known,
            check=False,
        )

    return started


def channel(name, url, kind="webhook", more=""):
    return f'[[channel]]\nname = "{name}"\nkind = "{kind}"\nurl = "{url}"\n{more}\n'


RULES = """
[[rule]]
channels = ["a"]
events = ["incident", "failed"]
[[rule]]
channels = ["b"]
severity = "critical"
jobs = ["llama*"]
labels = { team = "vision" }
"""


def test_list_masks_secrets(run):
    more = 'secret = "env:THE_SECRET"'
    config = channel("a", "https://x.example.org/hook/veryLongToken", more=more) + channel(
        "b", "ntfys://user:pass456@ntfy.example.org/topic", "apprise"
    )
    found = run("list", config=config, THE_SECRET="hunter22")
    assert found.returncode == 0, found.stderr
    assert (
        "veryLongToken" not in found.stdout
        and "hunter22" not in found.stdout
        and "pass456" not in found.stdout
    )
    assert "url https://x.example.org/***, secret ***" in found.stdout
    document = json.loads(run("list", "--json", config=config, THE_SECRET="hunter22").stdout)
    assert [one["name"] for one in document["channels"]] == ["a", "b"]
    assert document["channels"][0]["options"]["secret"] == "***"


def test_test_sends_a_sample_to_each_channel_and_says_what_came_of_it(run):
    def refuses(request):
        return Reply(403, {"error": "veryLongToken is wrong"})

    with Receiver() as good, Receiver(refuses) as bad:
        config = channel("a", good.url) + channel("b", bad.url + "/veryLongToken", more='language = "zh"')
        found = run("test", config=config)
        assert found.returncode == 1
        first, second = found.stdout.splitlines()
        assert first.startswith("a ") and "sent in" in first
        assert "refused: the receiver returned status 403" in second and "veryLongToken" not in second
        assert good.requests[0].body["notice"]["title"]["en"] == "Holdfast: sample notification"
        found = run("test", "--channel", "a", "--json", config=config)
        assert found.returncode == 0
        assert [one["is_sent"] for one in json.loads(found.stdout)["channels"]] == [True]
        assert (len(good.requests), len(bad.requests)) == (2, 1)


def test_rules_say_who_gets_what(run):
    config = channel("a", "http://x") + channel("b", "http://y") + RULES
    found = run("rules", "--event", "failed", "--severity", "critical", config=config)
    assert found.stdout.split() == ["failed", "critical", "a"]
    words = ["--event", "failed", "--severity", "critical", "--job", "llama-3", "--label", "team=vision"]
    found = run("rules", *words, "--json", config=config)
    assert json.loads(found.stdout)["rules"][0]["channels"] == ["a", "b"]
    found = run("rules", config=config)
    assert len(found.stdout.splitlines()) == 51 and "no channel" in found.stdout


@pytest.mark.parametrize(
    ("words", "config", "said"),
    [
        (["list"], "languge = 'en'", "did you mean 'language'?"),
        (["list"], '[[channel]]\nname = "a"\nkind = "slack"', "needs the option 'url', a text"),
        (["test", "--channel", "c"], channel("a", "http://x"), "there is no channel 'c': a"),
        (["rules", "--event", "x"], channel("a", "http://x"), "is not one of"),
        (["rules", "--label", "x"], channel("a", "http://x"), "is not of the form KEY=VALUE"),
    ],
)
def test_what_cannot_be_used_is_refused(run, words, config, said):
    found = run(*words, config=config)
    assert found.returncode == 2 and said in found.stderr


def test_without_a_file(tmp_path):
    env = {**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    words = [HOLDFAST, "notify", "list"]
    found = subprocess.run(words, capture_output=True, text=True, env=env, check=False)
    assert found.returncode == 2 and "there is no file of channels" in found.stderr
    (tmp_path / "holdfast").mkdir()
    (tmp_path / "holdfast" / "notify.toml").write_text(channel("a", "http://x"))
    found = subprocess.run(words, capture_output=True, text=True, env=env, check=False)
    assert found.returncode == 0 and found.stdout.startswith("a ")
    found = subprocess.run([*words, "--notify", "none"], capture_output=True, text=True, env=env, check=False)
    assert found.returncode == 2
