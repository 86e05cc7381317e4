"""Inference methods, each a frozen dataclass of settings, and ``fit``, which takes any of them."""

from bnnzoo.core.fit_warnings import (
    BiasedDrawsWarning,
    ChainsApartWarning,
    DegenerateWeightsWarning,
    DivergenceWarning,
    FewEffectiveDrawsWarning,
    FewRoundTripsWarning,
    FitWarning,
    JointModeWarning,
    NotConvergedWarning,
    ParetoKWarning,
    PrecisionWarning,
    RejectedPointsWarning,
    SeveralModesWarning,
    StillImprovingWarning,
    TooNarrowWarning,
    TreeDepthWarning,
    UnreadableLikelihoodWarning,
)
from bnnzoo.inference.ensembles.adversarial import FGSM, VirtualAdversarial
from bnnzoo.inference.ensembles.deep_ensemble import DeepEnsemble
from bnnzoo.inference.ensembles.map import MAP
from bnnzoo.inference.ensembles.mixture import MixtureOf
from bnnzoo.inference.ensembles.repulsion import FunctionRepulsion
from bnnzoo.inference.ensembles.swag import SWAG, MultiSWAG
from bnnzoo.inference.fit import fit
from bnnzoo.inference.laplace.diagonal import DiagonalLaplace
from bnnzoo.inference.laplace.evidence import log_marginal_likelihood, maximise_evidence
from bnnzoo.inference.laplace.hierarchical_laplace import HierarchicalLaplace
from bnnzoo.inference.laplace.kfac import KFACLaplace
from bnnzoo.inference.laplace.laplace import Laplace
from bnnzoo.inference.laplace.low_rank import LowRankLaplace
from bnnzoo.inference.laplace.subset_laplace import LastLayerLaplace, SubsetLaplace
from bnnzoo.inference.many import fit_many
from bnnzoo.inference.markov.hamiltonian.hmc import HMC
from bnnzoo.inference.markov.hamiltonian.nuts import NUTS
from bnnzoo.inference.markov.lockstep.chees_hmc import ChEESHMC
from bnnzoo.inference.markov.lockstep.mams import MAMS
from bnnzoo.inference.markov.lockstep.mclmc import MCLMC
from bnnzoo.inference.markov.stochastic.cyclical import CyclicalSGMCMC
from bnnzoo.inference.markov.stochastic.psgld import PSGLD
from bnnzoo.inference.markov.stochastic.sghmc import SGHMC
from bnnzoo.inference.markov.stochastic.sgld import SGLD
from bnnzoo.inference.markov.stochastic.stochastic_mclmc import StochasticMCLMC
from bnnzoo.inference.markov.tempering.tempered import Tempered
from bnnzoo.inference.variational.concrete_dropout import ConcreteDropout
from bnnzoo.inference.variational.flow_vi import FlowVI
from bnnzoo.inference.variational.full_rank_vi import FullRankVI
from bnnzoo.inference.variational.low_rank_vi import LowRankVI
from bnnzoo.inference.variational.mc_dropout import MCDropout
from bnnzoo.inference.variational.mean_field_vi import MeanFieldVI
from bnnzoo.inference.variational.partial_vi import LastLayerVI, SubsetVI
from bnnzoo.inference.variational.pathfinder_vi import Pathfinder
from bnnzoo.inference.variational.svi import SVI

__all__ = [
    "FGSM",
    "HMC",
    "MAMS",
    "MAP",
    "MCLMC",
    "NUTS",
    "PSGLD",
    "SGHMC",
    "SGLD",
    "SVI",
    "SWAG",
    "BiasedDrawsWarning",
    "ChEESHMC",
    "ChainsApartWarning",
    "ConcreteDropout",
    "CyclicalSGMCMC",
    "DeepEnsemble",
    "DegenerateWeightsWarning",
    "DiagonalLaplace",
    "DivergenceWarning",
    "FewEffectiveDrawsWarning",
    "FewRoundTripsWarning",
    "FitWarning",
    "FlowVI",
    "FullRankVI",
    "FunctionRepulsion",
    "HierarchicalLaplace",
    "JointModeWarning",
    "KFACLaplace",
    "Laplace",
    "LastLayerLaplace",
    "LastLayerVI",
    "LowRankLaplace",
    "LowRankVI",
    "MCDropout",
    "MeanFieldVI",
    "MixtureOf",
    "MultiSWAG",
    "NotConvergedWarning",
    "ParetoKWarning",
    "Pathfinder",
    "PrecisionWarning",
    "RejectedPointsWarning",
    "SeveralModesWarning",
    "StillImprovingWarning",
    "StochasticMCLMC",
    "SubsetLaplace",
    "SubsetVI",
    "Tempered",
    "TooNarrowWarning",
    "TreeDepthWarning",
    "UnreadableLikelihoodWarning",
    "VirtualAdversarial",
    "fit",
    "fit_many",
    "log_marginal_likelihood",
    "maximise_evidence",
]
