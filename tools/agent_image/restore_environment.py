"""Restores the training's environment variables that the launcher of the agent's folder hid from this Python.

Installed as sitecustomize.py of the agent's folder: Python imports it at each start, once it has read its own variables.
"""

import os

_OUTSIDE = "HOLDFAST_OUTSIDE_"
for _name in ("PYTHONSAFEPATH", "PYTHONNOUSERSITE", "PYTHONDONTWRITEBYTECODE"):
    os.environ.pop(_name, None)
for _name in [_one for _one in os.environ if _one.startswith(_OUTSIDE)]:
    os.environ[_name.removeprefix(_OUTSIDE)] = os.environ.pop(_name)
