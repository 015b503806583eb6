"""`holdfast stacks`, on a machine on which py-spy may have no time."""

import pytest

TRIES_MAX = 20
NO_TIME = ("did not finish within", "no stacks within", "did not respond")


@pytest.fixture
def stacks(holdfast):
    """stacks("--json"): as holdfast("stacks", "--json"), again while a stack did not come in time."""

    def run(*words: str) -> tuple[int, str, str]:
        for _ in range(TRIES_MAX):
            code, out, err = holdfast("stacks", *words)
            if not any(why in out for why in NO_TIME):
                break
        return code, out, err

    return run
