"""Validation by refitting: cross-validation, stacking, calibration by simulation, and simulation studies."""

from bnnzoo.validation.connectivity import mode_connectivity
from bnnzoo.validation.cross_validation import kfold, leave_future_out, reloo
from bnnzoo.validation.monitor import monitor
from bnnzoo.validation.ranks import sbc_again, sbc_verdict
from bnnzoo.validation.sbc import sbc, sbc_merged
from bnnzoo.validation.stacking import stack, stack_chains, stacking_weights
from bnnzoo.validation.studies import study

__all__ = [
    "kfold",
    "leave_future_out",
    "mode_connectivity",
    "monitor",
    "reloo",
    "sbc",
    "sbc_again",
    "sbc_merged",
    "sbc_verdict",
    "stack",
    "stack_chains",
    "stacking_weights",
    "study",
]
