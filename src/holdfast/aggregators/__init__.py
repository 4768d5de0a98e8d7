"""Rules that combine rows [n, d], some of them bad, into one vector [d]."""

from holdfast.aggregators._aggregator import Aggregate, Aggregator, as_rule, rules
from holdfast.aggregators._bad_row_limit import BadRowLimit
from holdfast.aggregators._blockwise import Blockwise
from holdfast.aggregators._bucketing import Bucketing
from holdfast.aggregators._bulyan import Bulyan
from holdfast.aggregators._call import CallArguments, CallContext, StepArguments
from holdfast.aggregators._centered_clipping import CenteredClipping
from holdfast.aggregators._coordinate_median import CoordinateMedian
from holdfast.aggregators._covariance_filter import CovarianceFilter
from holdfast.aggregators._families import CoordinateAggregator, GramAggregator, LengthAggregator
from holdfast.aggregators._geometric_median import GeometricMedian
from holdfast.aggregators._krum import Krum
from holdfast.aggregators._majority_vote import MajorityVote
from holdfast.aggregators._mean import Mean
from holdfast.aggregators._mean_around_median import MeanAroundMedian
from holdfast.aggregators._medoid import Medoid
from holdfast.aggregators._minimum_diameter import MinimumDiameter
from holdfast.aggregators._minimum_variance import MinimumVariance
from holdfast.aggregators._multi_krum import MultiKrum
from holdfast.aggregators._nearest_neighbor_mixing import NearestNeighborMixing
from holdfast.aggregators._neighbor_mean import NeighborMean
from holdfast.aggregators._norm_clipping import NormClipping
from holdfast.aggregators._norm_filter import NormFilter
from holdfast.aggregators._norm_trim import NormTrim
from holdfast.aggregators._radius_filter import RadiusFilter
from holdfast.aggregators._resilience_filter import ResilienceFilter
from holdfast.aggregators._sign_majority import SignMajority
from holdfast.aggregators._sketched import Sketched
from holdfast.aggregators._spectral_filter import SpectralFilter
from holdfast.aggregators._trimmed_mean import TrimmedMean
from holdfast.aggregators._trusted_reference import TrustedReference
from holdfast.aggregators._wrapper import MixingWrapper, Wrapper
from holdfast.aggregators._zeno import Zeno

__all__ = [
    "Aggregate",
    "Aggregator",
    "BadRowLimit",
    "Blockwise",
    "Bucketing",
    "Bulyan",
    "CallArguments",
    "CallContext",
    "CenteredClipping",
    "CoordinateAggregator",
    "CoordinateMedian",
    "CovarianceFilter",
    "GeometricMedian",
    "GramAggregator",
    "Krum",
    "LengthAggregator",
    "MajorityVote",
    "Mean",
    "MeanAroundMedian",
    "Medoid",
    "MinimumDiameter",
    "MinimumVariance",
    "MixingWrapper",
    "MultiKrum",
    "NearestNeighborMixing",
    "NeighborMean",
    "NormClipping",
    "NormFilter",
    "NormTrim",
    "RadiusFilter",
    "ResilienceFilter",
    "SignMajority",
    "Sketched",
    "SpectralFilter",
    "StepArguments",
    "TrimmedMean",
    "TrustedReference",
    "Wrapper",
    "Zeno",
    "as_rule",
    "rules",
]
