"""Builds findings of checks: passed, skipped, warned, failed. Pure."""

from holdfast.model.checks import FAIL, NO_FAULT, PASS, SKIP, WARN, Finding
from holdfast.model.signatures import Words


def passed(measured: str, device: str = "", *, expected: str = "", whence: str = "") -> Finding:
    """Returns a finding with status pass."""
    return Finding(status=PASS, measured=measured, device=device, expected=expected, whence=whence)


def skipped(why: str, device: str = "") -> Finding:
    """Returns a finding with status skip. `why`: the reason."""
    return Finding(status=SKIP, why=why, device=device)


def warned(
    measured: str,
    expected: str,
    whence: str,
    *,
    why: str,
    en: str,
    zh: str,
    device: str = "",
    category: str = "",
) -> Finding:
    """Returns a finding with status warn. `en`, `zh`: advice."""
    return Finding(
        status=WARN,
        measured=measured,
        expected=expected,
        whence=whence,
        device=device,
        why=why,
        advice=Words(en=en, zh=zh),
        category=category,
    )


def failed(
    measured: str,
    expected: str,
    whence: str,
    *,
    why: str,
    en: str,
    zh: str,
    device: str = "",
    category: str = "",
    fault: str = NO_FAULT,
) -> Finding:
    """Returns a finding with status fail. `en`, `zh`: advice. `fault`: its consequence for the run."""
    return Finding(
        status=FAIL,
        measured=measured,
        expected=expected,
        whence=whence,
        device=device,
        why=why,
        advice=Words(en=en, zh=zh),
        fault=fault,
        category=category,
    )


def size(count: float) -> str:
    """Returns a number of bytes as text: "1.5 GiB" for 1610612736."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} TiB" if count < 1000 else f"{count:.0f} TiB"
