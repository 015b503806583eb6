"""Formats counts with English plurals. Pure."""


def counted(count: int, one: str, many: str = "") -> str:
    """`1 GPU`, `8 GPUs`; `many`: an irregular plural."""
    return f"{count} {one if count == 1 else many or one + 's'}"
