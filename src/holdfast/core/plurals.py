"""Counted things as English says them. Pure."""


def counted(count: int, one: str, many: str = "") -> str:
    """`1 GPU`, `8 GPUs`; `many`: where that is not `one` with an s."""
    return f"{count} {one if count == 1 else many or one + 's'}"
