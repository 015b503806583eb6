"""Builds findings in one line of code each. Pure."""

from holdfast.model.checks import FAIL, NO_FAULT, PASS, SKIP, WARN, Finding
from holdfast.model.signatures import Words


def passed(measured: str, device: str = "", *, expected: str = "", whence: str = "") -> Finding:
    return Finding(status=PASS, measured=measured, device=device, expected=expected, whence=whence)


def skipped(why: str, device: str = "") -> Finding:
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
    """A warning. `en`, `zh`: what to do."""
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
    """A failure. `en`, `zh`: what to do. `fault`: its consequence for the run."""
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
    """`1610612736` -> "1.5 GiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} TiB" if count < 1000 else f"{count:.0f} TiB"
