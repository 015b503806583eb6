"""Trains a small transformer decoder on a device, and measures its step times."""

from __future__ import annotations

import statistics
import time
from typing import Any

from .devices import REPEATS_MIN, SEED, Laps, Shared, library, rates, take


def train(device: str, seconds: float, layers: int, width: int, length: int, batch: int) -> dict[str, Any]:
    """Trains a small transformer decoder (forward, backward, AdamW) and returns step times and losses.

    The element type is bf16 if the GPU supports it, else float32.
    """
    torch = library("torch")
    take(torch, device, 4 << 30)
    is_gpu = device.startswith("cuda")
    torch.manual_seed(SEED)
    torch.set_float32_matmul_precision("high" if is_gpu else "highest")
    model, words = _decoder(torch, layers, width, length)
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(0, words, (batch, length + 1)).to(device)
    half = is_gpu and torch.cuda.get_device_capability(device) >= (8, 0)
    shared, began_s = Shared(torch.get_num_threads()), time.monotonic()
    times_s: list[float] = []
    losses: list[Any] = []
    while len(times_s) < REPEATS_MIN + 2 or time.monotonic() < began_s + seconds:
        laps = Laps(torch, device)
        laps.begin()
        with torch.autocast("cuda" if is_gpu else "cpu", dtype=torch.bfloat16, enabled=half):
            loss = torch.nn.functional.cross_entropy(
                model(tokens[:, :-1]).flatten(0, 1).float(), tokens[:, 1:].flatten()
            )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        laps.end()
        times_s += laps.seconds()
        losses.append(loss.detach())
    steady_s = times_s[2:]  # the first two build what the others use
    return {
        "rates": rates(float(batch * length), steady_s),
        "step_s": statistics.median(steady_s),
        "repeats": len(steady_s),
        "is_finite": all(abs(float(loss)) < float("inf") for loss in losses),
        "type": "bf16" if half else "fp32",
        "had": 1.0 if is_gpu else shared.had(),
        "library": f"torch {torch.__version__}",
    }


def _decoder(torch: Any, layers: int, width: int, length: int, words: int = 4096) -> tuple[Any, int]:
    nn = torch.nn

    class Decoder(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
            self.layers = nn.ModuleList(
                nn.TransformerEncoderLayer(
                    width, max(1, width // 64), 4 * width, 0.0, batch_first=True, norm_first=True
                )
                for _ in range(layers)
            )
            self.head = nn.Linear(width, words, bias=False)
            mask = torch.full((length, length), float("-inf")).triu(1)
            self.register_buffer("mask", mask, persistent=False)
            self.register_buffer("order", torch.arange(length), persistent=False)

        def forward(self, tokens: Any) -> Any:
            state = self.words(tokens) + self.places(self.order)
            for layer in self.layers:
                state = layer(state, src_mask=self.mask, is_causal=True)
            return self.head(state)

    return Decoder(), words
