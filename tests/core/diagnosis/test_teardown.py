"""Work that was done, and a job that did not end."""

import pytest

from core.diagnosis.candidate_kit import knowing, match, search, signature
from holdfast.core.diagnosis.teardown import teardown_hangs

DONE = signature("done", "none", role="end-ok")
LIMIT = signature("limit", "time_limit")
KNOWN = knowing(DONE, LIMIT)


@pytest.mark.parametrize(
    ("done_s", "limit_s", "last_step", "hangs"),
    [
        (1000.0, 1300.0, 5, True),
        (1000.0, 1300.0, None, True),
        (1000.0, 1010.0, 5, False),  # it was about to end
        (1000.0, 1300.0, 40, False),  # another trial had begun
        (None, 1300.0, 5, False),
        (1000.0, 1000.0 + 2 * 3600 + 5, 5, False),  # another time zone, or hours: nobody can tell
        (1000.0, 9e8, 5, False),  # clocks that cannot be compared
    ],
)
def test_minutes_between_the_last_word_and_the_limit(done_s, limit_s, last_step, hangs):
    done, limit = match(DONE, offset=10, at_s=done_s), match(LIMIT, offset=50, at_s=limit_s)
    found = teardown_hangs(search(done, limit, last_steps={0: last_step}), KNOWN)
    assert [one.category for one in found.values()] == (["teardown_hang"] if hangs else [])
