"""`python -m holdfast`: the same as the `holdfast` command."""

import gc
import importlib
import sys

if __name__ == "__main__":
    is_agent = sys.argv[1:] == ["agent"]  # on every node, beside the training: it is to be small
    gc.disable()  # until all is imported: see cli.main
    importlib.import_module("holdfast.cli.agent_main" if is_agent else "holdfast.cli.main").main()
