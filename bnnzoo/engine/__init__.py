"""From pure functions of tensors to native code, independent of any model."""

__all__: list[str] = []
