"""Inference methods, each a frozen dataclass of settings, and ``fit``, which takes any of them."""

from bnnzoo.inference.ensembles.map import MAP
from bnnzoo.inference.fit import fit
from bnnzoo.inference.laplace.diagonal import DiagonalLaplace
from bnnzoo.inference.laplace.evidence import log_marginal_likelihood, maximise_evidence
from bnnzoo.inference.laplace.hierarchical import HierarchicalLaplace
from bnnzoo.inference.laplace.kfac import KFACLaplace
from bnnzoo.inference.laplace.laplace import Laplace
from bnnzoo.inference.laplace.low_rank import LowRankLaplace
from bnnzoo.inference.laplace.partial import LastLayerLaplace, SubsetLaplace
from bnnzoo.inference.markov.hamiltonian.hmc import HMC
from bnnzoo.inference.markov.hamiltonian.nuts import NUTS
from bnnzoo.inference.markov.lockstep.chees_hmc import ChEESHMC
from bnnzoo.inference.markov.lockstep.mams import MAMS
from bnnzoo.inference.markov.lockstep.mclmc import MCLMC
from bnnzoo.inference.variational.concrete_dropout import ConcreteDropout
from bnnzoo.inference.variational.flow_vi import FlowVI
from bnnzoo.inference.variational.full_rank_vi import FullRankVI
from bnnzoo.inference.variational.low_rank_vi import LowRankVI
from bnnzoo.inference.variational.mc_dropout import MCDropout
from bnnzoo.inference.variational.mean_field_vi import MeanFieldVI
from bnnzoo.inference.variational.partial import LastLayerVI, SubsetVI
from bnnzoo.inference.variational.svi import SVI

__all__ = [
    "HMC",
    "MAMS",
    "MAP",
    "MCLMC",
    "NUTS",
    "SVI",
    "ChEESHMC",
    "ConcreteDropout",
    "DiagonalLaplace",
    "FlowVI",
    "FullRankVI",
    "HierarchicalLaplace",
    "KFACLaplace",
    "Laplace",
    "LastLayerLaplace",
    "LastLayerVI",
    "LowRankLaplace",
    "LowRankVI",
    "MCDropout",
    "MeanFieldVI",
    "SubsetLaplace",
    "SubsetVI",
    "fit",
    "log_marginal_likelihood",
    "maximise_evidence",
]
