"""Tables of codes and phrases that cannot be used say which line and why."""

import pytest

from holdfast.parsers.phrase_tables import (
    PhraseTableError,
    advice_by_category,
    code_entries,
    code_forms,
    concept_rows,
    phrase_rows,
)

CODES = "kind,code,names,category,action,meaning,meaning_zh,advice,advice_zh,source\n"
ROW = "errno,28,ENOSPC,disk_full,fix_env,no space,无空间,a,b,Linux\n"
KINDS, ACTIONS = {"disk_full"}, {"fix_env"}


def test_a_row_of_codes():
    (entry,) = code_entries(CODES + ROW, KINDS, ACTIONS)
    assert (entry.kind, entry.code, entry.names, entry.meaning.category) == (
        "errno",
        "28",
        ("ENOSPC",),
        "disk_full",
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("kind,code\n", "has the columns"),
        (CODES + ROW + ROW, "occurs twice"),
        (CODES + ROW.replace("disk_full", "disk_ful"), "unknown category"),
        (CODES + ROW.replace("Linux", ""), "source is missing"),
        (CODES + "errno,28\n", "columns"),
    ],
)
def test_codes_that_cannot_be_used(text, why):
    with pytest.raises(PhraseTableError, match=why):
        code_entries(text, KINDS, ACTIONS)


@pytest.mark.parametrize("pattern", ["(", "no group"])
def test_a_form_needs_a_pattern_with_a_code(pattern):
    with pytest.raises(PhraseTableError, match="line 2"):
        code_forms(f"kind,signature,capture,pattern\nexit,,,{pattern}\n")


def test_phrases_and_advice_name_what_is_known():
    assert phrase_rows("means,phrase\n#oom,no memory\nxid_79,fell off\n", {"oom"}, KINDS) == [
        ("#oom", "no memory"),
        ("xid_79", "fell off"),
    ]
    with pytest.raises(PhraseTableError, match="is unknown"):
        phrase_rows("means,phrase\n#ooms,no memory\n", {"oom"}, KINDS)
    with pytest.raises(PhraseTableError, match="docs/words.md"):
        advice_by_category("category,advice,advice_zh,source\ndisk,a,b,c\n", KINDS)
    with pytest.raises(PhraseTableError, match="concepts table, line 2"):
        concept_rows("category,thing,trouble\ndisk_full,(,full\n", KINDS)
