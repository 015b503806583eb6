"""Which processes accompany a job: only those that its settings ask for."""

import importlib.util

from holdfast.model.settings import RunSettings
from holdfast.supervise.companions import companions_of


def modules(**settings):
    return [one.module for one in companions_of(RunSettings(command=("true",), state_dir="/tmp", **settings))]


def test_a_job_has_the_companions_that_its_settings_ask_for():
    assert modules() == []
    assert modules(checkpoint_advice=True) == ["holdfast.archive.checkpoint_advice"]
    assert importlib.util.find_spec("holdfast.archive.checkpoint_advice") is not None
