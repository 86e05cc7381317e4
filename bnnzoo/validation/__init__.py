"""Validation by refitting and by the density: cross-validation, stacking, evidence, calibration by simulation, studies."""

from bnnzoo.validation.connectivity import mode_connectivity
from bnnzoo.validation.cross_validation import kfold, leave_future_out, reloo
from bnnzoo.validation.joint_ranks import sbc_joint
from bnnzoo.validation.log_evidence import LogEvidence, log_evidence, model_probabilities
from bnnzoo.validation.moment_matching import moment_match
from bnnzoo.validation.monitor import monitor
from bnnzoo.validation.sbc import sbc
from bnnzoo.validation.sbc_ranks import sbc_again, sbc_verdict
from bnnzoo.validation.shared_calibrations import sbc_merged
from bnnzoo.validation.stacking import stack, stack_chains, stacking_weights
from bnnzoo.validation.studies import study

__all__ = [
    "LogEvidence",
    "kfold",
    "leave_future_out",
    "log_evidence",
    "mode_connectivity",
    "model_probabilities",
    "moment_match",
    "monitor",
    "reloo",
    "sbc",
    "sbc_again",
    "sbc_joint",
    "sbc_merged",
    "sbc_verdict",
    "stack",
    "stack_chains",
    "stacking_weights",
    "study",
]
