"""A second device for machines that have none: its tensors lie in main memory, but torch does not know that.

Every operation computes what it computes on the CPU, and refuses tensors on two devices as an accelerator does. So a tensor
that bnnzoo makes in the wrong place is seen without a GPU. Kernels of accelerators and their compilers are not.
"""

import os
from functools import cache
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import ninja
import torch
from torch.utils import rename_privateuse1_backend

__all__ = ["NAME", "register_elsewhere"]

NAME = "elsewhere"


@cache
def register_elsewhere() -> torch.device:
    """Compile the device, once a machine and version of torch (a minute), register it, and return it."""
    from torch.utils import cpp_extension  # noqa: PLC0415 - it looks for CUDA and says so, in runs that never come here too

    name = f"bnnzoo_elsewhere_{torch.__version__.partition('+')[0].replace('.', '_')}"
    with patch.dict(
        os.environ, PATH=os.pathsep.join([ninja.BIN_DIR, os.environ["PATH"]])
    ):  # its environment may be inactive
        cpp_extension.load(name, [str(Path(__file__).with_name("elsewhere.cpp"))])
    rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, _module())
    return torch.device(NAME)


def _module() -> ModuleType:
    """Return ``torch.elsewhere``, which torch asks about a device that it does not know."""
    module = ModuleType(f"torch.{NAME}")
    module.is_available = lambda: True
    module.is_initialized = lambda: True
    module.device_count = lambda: 1
    module.current_device = lambda: 0
    module.manual_seed_all = lambda seed: None  # random numbers are the CPU's
    module.get_rng_state = lambda device: torch.get_rng_state()
    module.set_rng_state = lambda state, device: torch.set_rng_state(state)
    module._is_in_bad_fork = lambda: False
    return module
