"""Diagnoses a few pasted lines by approximate matching, because a user asks what they mean. Pure."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from holdfast.core.diagnosis.candidates import class_of, filled, kind_of
from holdfast.core.diagnosis.diagnose import diagnose
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.core.diagnosis.words.meanings import MEANINGS
from holdfast.core.diagnosis.words.no_cause import UNKNOWN_ADVICE
from holdfast.core.diagnosis.words.telling import denies, speaks_of_trouble
from holdfast.core.phrases.grams import without_ocr_errors
from holdfast.core.phrases.meanings import Found
from holdfast.core.verdict.categories import ADVICE, ADVICE_ZH
from holdfast.model.code_facts import CodeTables
from holdfast.model.diagnoses import Diagnosis, FirstError, Other
from holdfast.model.matches import Match, Search, Source
from holdfast.model.signatures import FIELD, Signature, Words

NAMED = 0.6  # from this score on, a meaning is the answer
NAMED_CALMLY = 0.68  # where no line speaks of trouble: healthy lines are near to many things
NEVER = 2.0
CODE_LINES_LEAST, CODE_SHARE_LEAST = 4, 0.6
FEW_LINES = 3  # more of them are rather a piece of a log than a question
NAMED_SURELY = 0.8  # where the line is an exception whose message is not known
NO_LINE = FirstError(file="", line=None, text="")
SURE_OF_CODE, SURE_OF_WORDS = 0.9, 0.75  # confidence at score 1
OTHERS_MAX = 4
OTHERS_LEAST = 0.4
MISSING = "\u2026"  # what a text says of the line, and a few words do not
NEAR_TITLE = Words(
    en="no signature matches these lines; the most similar known messages are listed",
    zh="所给日志行未收录，列出最接近的已知问题",
)
FAR_TITLE = Words(en="no signature matches these lines", zh="所给日志行未收录")
NEAR_EXPLANATION = Words(
    en="No known message is similar enough to be the answer.", zh="没有足够接近的已知信息可作为结论。"
)


def is_open(answer: Diagnosis) -> bool:
    """Returns whether the diagnosis by the rules for whole logs does not determine what a few pasted lines mean."""
    if answer.category in ("none", "unknown"):
        return True
    return answer.category == "python_exception" and answer.first_error is not None


def of_pasted(
    ordinary: Diagnosis,
    file: str,
    lines: Sequence[str],
    found: Sequence[Found],
    signatures: KnowledgeBase,
    tables: CodeTables,
    *,
    is_asked: bool = False,
    is_calm: bool = False,
) -> Diagnosis:
    """Returns the diagnosis of a few pasted lines.

    `ordinary`: their diagnosis by the rules for complete logs. `found`: possible meanings, the most probable
    first. `is_asked`: a person typed them as a question. `is_calm`: the lines are known to report no error.
    """
    given = [line for line in lines if line.strip()]
    frames = [line for line in given if signatures.says("stack-frame", line)]
    if not frames and _is_source_code(given, signatures):
        return ordinary
    troubled = [line for line in given if line in frames or _worries(line, signatures)]
    is_few = is_asked or len(given) <= FEW_LINES or len(frames) > len(given) / 2
    for at, one in enumerate(found):
        if denies(one.text, signatures) or signatures.says("echoed-settings", one.text):
            continue
        if is_open(ordinary) and ordinary.category == "python_exception" and _says_nothing(one, signatures):
            continue  # the exception says more
        if not is_few and one.text not in troubled and not frames:
            continue
        if one.score >= _least(
            one, ordinary, signatures, is_asked=is_asked, is_few=is_few, is_troubled=bool(troubled)
        ):
            rest = [*found[:at], *found[at + 1 :]]
            is_healthy = is_calm_line(signatures[one.near.signature])
            if is_healthy and (one.text in troubled or one.by == "code" and one.score < 1.0):
                continue  # the line says more than that something ended well
            return ordinary if is_healthy else _named(one, rest, file, signatures, tables)
    near = max((one.score for one in found if _is_failure(one, signatures)), default=0.0)
    is_question = is_few and (bool(troubled) or near >= NAMED or is_asked and not is_calm)
    return _not_known(ordinary, file, lines, found, signatures) if is_question else ordinary


def _says_nothing(one: Found, signatures: KnowledgeBase) -> bool:
    """Returns whether a meaning is that something ended, and neither how nor why, such as exit code 1."""
    signature = signatures[one.near.signature]
    return signature.category != "python_exception" and signatures.is_of(
        "no-cause-named", signature.id, signature.category
    )


def _worries(line: str, known: KnowledgeBase) -> bool:
    return speaks_of_trouble(line, known) or speaks_of_trouble(without_ocr_errors(line), known)


def _is_source_code(given: Sequence[str], known: KnowledgeBase) -> bool:
    """Returns whether the lines are source code, in which an error message is no error."""
    code = sum(known.says("source-code", line) for line in given)
    return len(given) >= CODE_LINES_LEAST and code >= CODE_SHARE_LEAST * len(given)


def _is_failure(one: Found, signatures: KnowledgeBase) -> bool:
    signature = signatures[one.near.signature]
    return signature.role in ("cause", "symptom") and signature.category != "none"


def _least(
    one: Found, ordinary: Diagnosis, known: KnowledgeBase, *, is_asked: bool, is_few: bool, is_troubled: bool
) -> float:
    """Returns the minimum score for a meaning to be the answer; higher, the less the lines look like a
    question.
    """
    if ordinary.category == "python_exception" and known.says(
        "named-exception", (ordinary.first_error or NO_LINE).text
    ):
        return NAMED_SURELY
    is_question = is_asked or is_few and is_troubled
    if one.by == "concept":
        return NAMED if is_question else NEVER
    if is_asked:
        return NAMED if is_troubled or ordinary.category != "none" else NAMED_CALMLY
    return NAMED if is_question else NAMED_SURELY


def explained(one: Found, file: str, signatures: KnowledgeBase, tables: CodeTables) -> Diagnosis:
    """Returns the diagnosis that one possible meaning of a pasted line gives, as if the line were in a log.

    Device error codes are judged by their tables.
    """
    known, captures = signatures[one.near.signature], dict(one.near.captures)
    first = FirstError(file=file, line=one.line, text=one.text)
    if not captures:
        return replace(_as_signature_says(known, captures), first_error=first)
    category = filled_category(known, captures)
    signature = replace(known, role="cause", severity="error", rank_from="none", category=category)
    match = Match(
        signature=known.id,
        category=category,
        source=0,
        offset=0,
        line=one.line,
        text=one.text,
        captures=captures,
    )
    source = Source(name=file, size_bytes=len(one.text), tail=(one.text,))
    answer = diagnose(
        Search(sources=(source,), matches=(match,)), signatures.with_signatures(signature), tables
    )
    if answer.category in ("none", "unknown"):  # a device code that ends no job
        answer = _as_signature_says(signature, captures)
    return replace(answer, culprits=(), first_error=first, evidence=(), also=(), not_found=(), notes=())


def filled_category(signature: Signature, captures: Mapping[str, str]) -> str:
    """Returns the category of a signature with captured fields filled in; "unknown" if a field is missing."""
    missing = [name for name in FIELD.findall(signature.category) if name not in captures]
    return "unknown" if missing else filled(signature.category, captures)


def _named(
    best: Found,
    others: Sequence[Found],
    file: str,
    signatures: KnowledgeBase,
    tables: CodeTables,
) -> Diagnosis:
    answer = explained(best, file, signatures, tables)
    confidence = round(min(1.0, best.score) * (SURE_OF_CODE if best.by == "code" else SURE_OF_WORDS), 2)
    return replace(
        answer,
        confidence=confidence,
        also=_others(others, answer.category, signatures, 1.0 - confidence),
        notes=(_how(best),),
    )


def _how(best: Found) -> Words:
    if best.by == "code":
        return Words(
            en=f"the line contains a known code: {best.near.phrase}",
            zh=f"该行包含已知代码：{best.near.phrase}",
        )
    phrase = best.near.phrase[:120]
    if best.by == "concept":
        return Words(
            en=f"a few pasted words, matched approximately by keywords: {phrase}",
            zh=f"所给文字较少，按关键词判断：{phrase}",
        )
    return Words(
        en=(
            f"a few pasted lines, matched approximately: {min(1.0, best.score):.0%} similar to the known "
            f"line '{phrase}'"
        ),
        zh=f"所给日志行较少，按近似匹配：与已知日志行“{phrase}”相似度 {min(1.0, best.score):.0%}",
    )


def _others(found: Sequence[Found], but: str, signatures: KnowledgeBase, left: float) -> tuple[Other, ...]:
    """Returns other categories that the lines may mean. `left`: the probability that they share."""
    best: dict[str, tuple[float, Words]] = {}
    for one in found:
        signature = signatures[one.near.signature]
        category = filled_category(signature, one.near.captures)
        if category not in (but, "none", "unknown") and one.score >= OTHERS_LEAST:
            best.setdefault(category, (one.score, _filled(signature.title, one.near.captures)))
    few = list(best.items())[:OTHERS_MAX]
    whole = sum(score for _, (score, _) in few) or 1.0
    return tuple(
        Other(category=category, confidence=round(left * score / max(whole, 1.0), 2), title=title)
        for category, (score, title) in few
    )


def _not_known(
    ordinary: Diagnosis,
    file: str,
    lines: Sequence[str],
    found: Sequence[Found],
    signatures: KnowledgeBase,
) -> Diagnosis:
    if ordinary.category not in ("none", "unknown"):
        return ordinary
    number, text = next(
        ((number, text) for number, text in enumerate(lines, 1) if _worries(text, signatures)),
        (found[0].line, found[0].text) if found else (1, lines[0]),
    )
    others = _others(found, "", signatures, 0.5)
    return Diagnosis(
        category="unknown",
        class_="unknown",
        confidence=0.3,
        title=NEAR_TITLE if others else FAR_TITLE,
        explanation=NEAR_EXPLANATION,
        advice=UNKNOWN_ADVICE,
        first_error=ordinary.first_error or FirstError(file=file, line=number, text=text),
        also=others,
    )


def is_calm_line(signature: Signature) -> bool:
    """Returns whether a signature describes a line that is not a problem by itself."""
    return signature.category == "none" or signature.role in ("harmless", "end-ok")


def _as_signature_says(signature: Signature, captures: Mapping[str, str]) -> Diagnosis:
    class_, action = class_of(signature.category), signature.action or kind_of(signature.category)[1]
    key = signature.category if signature.category in ADVICE else action
    meaning = MEANINGS.get(signature.category)
    advice = (
        signature.advice if signature.advice.en else Words(en=ADVICE.get(key, ""), zh=ADVICE_ZH.get(key, ""))
    )
    return Diagnosis(
        category=signature.category,
        class_=class_,
        confidence=signature.weight,
        title=_filled(signature.title, captures),
        explanation=_filled(
            signature.explanation if signature.explanation.en or not meaning else meaning, captures
        ),
        advice=_filled(advice, captures),
        action=action,
    )


def _filled(words: Words, captures: Mapping[str, str]) -> Words:
    return Words(en=filled(words.en, captures, MISSING), zh=filled(words.zh, captures, MISSING))
