"""Inference methods, each a frozen dataclass of settings, and ``fit``, which takes any of them."""

from bnnzoo.inference.chees_hmc import ChEESHMC
from bnnzoo.inference.diagonal_laplace import DiagonalLaplace
from bnnzoo.inference.evidence import maximise_evidence
from bnnzoo.inference.fit import fit
from bnnzoo.inference.flow_vi import FlowVI
from bnnzoo.inference.full_rank_vi import FullRankVI
from bnnzoo.inference.hierarchical_laplace import HierarchicalLaplace
from bnnzoo.inference.hmc import HMC
from bnnzoo.inference.kfac_laplace import KFACLaplace
from bnnzoo.inference.laplace import Laplace, log_marginal_likelihood
from bnnzoo.inference.last_layer_laplace import LastLayerLaplace, SubsetLaplace
from bnnzoo.inference.last_layer_vi import LastLayerVI, SubsetVI
from bnnzoo.inference.low_rank_laplace import LowRankLaplace
from bnnzoo.inference.low_rank_vi import LowRankVI
from bnnzoo.inference.mams import MAMS
from bnnzoo.inference.map import MAP
from bnnzoo.inference.mclmc import MCLMC
from bnnzoo.inference.mean_field_vi import MeanFieldVI
from bnnzoo.inference.nuts import NUTS
from bnnzoo.inference.svi import SVI

__all__ = [
    "HMC",
    "MAMS",
    "MAP",
    "MCLMC",
    "NUTS",
    "SVI",
    "ChEESHMC",
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
    "MeanFieldVI",
    "SubsetLaplace",
    "SubsetVI",
    "fit",
    "log_marginal_likelihood",
    "maximise_evidence",
]
