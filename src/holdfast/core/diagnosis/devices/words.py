"""Builds titles and advice for device faults from the table of codes and the chosen action."""

from holdfast.core.diagnosis.candidates import filled
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.model.code_facts import CodeFact
from holdfast.model.signatures import Words


def title_of(fact: CodeFact | None, device: str, known: KnowledgeBase) -> Words | None:
    """Returns the title of a device fault; None if its code is unknown.

    Example: `Xid 79 on GPU 0000:1b:00: GPU is no longer reachable over PCIe`.
    """
    row = known.read("device-title", fact.kind) if fact else None
    if fact is None or row is None or row.says is None:
        return None
    captures = {"code": fact.code, "device": device}
    return Words(
        en=filled(row.says.en, {**captures, "meaning": fact.meaning.en}),
        zh=filled(row.says.zh, {**captures, "meaning": fact.meaning.zh}),
    )


def advice_of(fact: CodeFact | None, action: str, device: str, known: KnowledgeBase) -> Words | None:
    """Returns the advice for a device fault and an action; None if the signature's advice should be used."""
    row = known.read("device-advice", f"{fact.kind} {action}") if fact else None
    name = known.read("device-name", fact.kind) if fact else None
    if row is None or row.says is None or name is None or name.says is None:
        return None
    return Words(
        en=_advised(row.says.en, device, name.says.en), zh=_advised(row.says.zh, device, name.says.zh)
    )


def _advised(text: str, device: str, name: str) -> str:
    """Returns the advice with the device inserted.

    `name`: replaces the device if it is unknown, such as "the GPU"; inside code, DEVICE replaces it.
    """
    if device:
        return text.replace("{device}", device)
    parts = text.split("`")
    return "`".join(part.replace("{device}", "DEVICE" if at % 2 else name) for at, part in enumerate(parts))
