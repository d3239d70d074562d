"""torch.special's names of what is in deft."""

from . import _C
from . import _compositions
from ._C import functions as _f

erf, erfc, erfinv, exp2, expm1, log1p, logsumexp, softmax, log_softmax, xlogy = (
    _f.erf, _f.erfc, _f.erfinv, _f.exp2, _f.expm1, _f.log1p, _f.logsumexp, _f.softmax, _f.log_softmax, _f.xlogy)
digamma, gammaln, multigammaln, polygamma = _compositions.digamma, _compositions.lgamma, _compositions.mvlgamma, _compositions.polygamma
psi = digamma
expit, logit, sinc, round = _f.sigmoid, _compositions.logit, _compositions.sinc, _compositions.round


def entr(input):
    """-x log x."""
    return -_f.xlogy(input, input)


def ndtr(input):
    """The distribution function of the normal distribution."""
    return 0.5 * _f.erfc(input * -(0.5**0.5))


def __getattr__(name):
    from ._nearest import module_getattr

    return module_getattr(__name__, lambda: globals())(name)
