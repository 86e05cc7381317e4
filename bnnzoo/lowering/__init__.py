"""From pure functions of tensors to native code; this floor knows nothing of models."""

__all__: list[str] = []
