"""Training that survives its machine: each epoch is saved, and the next attempt goes on from the last one, on whatever worker it runs.

It fits y = a*x + b with plain Python. With PyTorch the checkpoint is the path of a `torch.save`, because a checkpoint is small JSON.
"""

from __future__ import annotations

from tenure import Context, workflow


@workflow(stall=300, max_attempts=3)
def train(ctx: Context, points: list[tuple[float, float]], epochs: int, rate: float = 0.05) -> dict[str, float]:
    at = ctx.resume or {"epoch": 0, "a": 0.0, "b": 0.0}
    a, b = at["a"], at["b"]
    for epoch in range(at["epoch"], epochs):
        for x, y in points:
            error = a * x + b - y
            a, b = a - rate * error * x, b - rate * error
        ctx.checkpoint({"epoch": epoch + 1, "a": a, "b": b})
        ctx.beat(progress=(epoch + 1) / epochs, note=f"epoch {epoch + 1}, error {abs(error):.3f}")
    return {"a": round(a, 2), "b": round(b, 2)}
