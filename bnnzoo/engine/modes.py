"""Modes in which every operation of torch passes through code of one's own."""

import sys

from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["DispatchMode"]


class DispatchMode(TorchDispatchMode):
    """A mode that does without torch's compiler.

    To keep its compiler out of the code of a mode, torch imports it at the first operation, which takes more than a second.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return "torch._dynamo" in sys.modules
