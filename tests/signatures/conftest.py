"""For logs that are diagnosed from end to end, by the package's own signatures."""

import pytest

from holdfast.core.diagnosis.diagnose import diagnose
from holdfast.observe.search.code_store import package_tables
from holdfast.observe.search.scan import search
from known import KNOWN, PACKAGE

TABLES = package_tables()


@pytest.fixture
def diagnosis(tmp_path, cache_home):
    def of(text):
        (tmp_path / "log.txt").write_text(text)
        return diagnose(search([tmp_path], PACKAGE, cache=cache_home / "holdfast"), KNOWN, TABLES)

    return of
