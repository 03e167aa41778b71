"""Emits exp and related functions of vectors of floats.

Polynomials and fractions are those of Cephes's single precision (expf, tanhf: S. Moshier, 1989) and
of Eigen (erf: a fraction of an odd and an even polynomial). Errors are the largest found against
float64 at some millions of values.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from waifu2x.backends.cpu.compile.isa import VECTOR
from waifu2x.backends.cpu.kernels.emit_floats import FloatEmitter
from waifu2x.backends.cpu.kernels.llvm_types import FLOATS, INTEGERS

_EXPONENTIAL = (
    *(1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3),
    *(4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1),
)
"""(exp(r) - 1 - r) / r**2 for r within half the logarithm of two, the highest power first."""
_POWER_OF_TWO = (
    *(1.535336188319500e-4, 1.339887440266574e-3, 9.618437357674640e-3),
    *(5.550332471162809e-2, 2.402264791363012e-1, 6.931472028550421e-1, 1.0),
)
"""2**x for x within +-0.5, by powers of x, as in Cephes's exp2f."""
_LARGEST_POWER = 88.3
"""The largest argument of exp: two to the power of 128 is no float."""
_SMALLEST_POWER = -87.3
_TANH = (
    *(-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2),
    *(1.33314422036e-1, -3.33332819422e-1),
)
"""(tanh(x) - x) / x**3 by powers of x**2, for x within +-0.625."""
_TANH_NEAR = 0.625
_ERF_ABOVE = (
    *(-2.72614225801306e-10, 2.77068142495902e-8, -2.10102402082508e-6, -5.69250639462346e-5),
    *(-7.34990630326855e-4, -2.95459980854025e-3, -1.60960333262415e-2),
)
_ERF_BELOW = (
    *(-1.45660718464996e-5, -2.13374055278905e-4, -1.68282697438203e-3),
    *(-7.37332916720468e-3, -1.42647390514189e-2),
)
"""erf(x) is x times the fraction of these two, by powers of x**2, for x within +-4."""
_ERF_FAR = 4.0


class FunctionEmitter(FloatEmitter):
    """Emits functions of vectors of floats."""

    def exp(self, a: ir.Value) -> ir.Value:
        """Returns exp(a) with a relative error of at most 1.2e-7; 2.2e38 from 88.3 on, 1.2e-38 up
        to -87.3."""
        return self._exp(self._clamped(a, _SMALLEST_POWER, _LARGEST_POWER))

    def power_of_two(self, a: ir.Value) -> ir.Value:
        """Returns 2 to the power of a, which must not be above 0, with a relative error of at most
        1.2e-7; 1.2e-38 up to -126."""
        builder = self._builder
        a = self.maximum(a, self.splat(-126.0))
        whole = self._call("llvm.rint", FLOATS, a)
        result = self._polynomial(_POWER_OF_TWO, self.minus(a, whole))
        power = builder.fptosi(whole, INTEGERS)
        power = builder.shl(power, ir.Constant(INTEGERS, [23] * VECTOR.lanes))
        # Adds to the exponent, in the bits of a float between 0.7 and 1.5.
        raised = builder.add(builder.bitcast(result, INTEGERS), power)
        return builder.bitcast(raised, FLOATS)

    def sigmoid(self, a: ir.Value) -> ir.Value:
        """Returns 1 / (1 + exp(-a)) with an error of at most 1e-7; clamped beyond +-87."""
        power = self._exp(self._clamped(self.times(a, -1.0), -87.0, 87.0))
        return self.divided(self.splat(1.0), self.plus(power, self.splat(1.0)))

    def tanh(self, a: ir.Value) -> ir.Value:
        """Returns tanh(a) with a relative error of at most 1.4e-7."""
        size = self.magnitude(a)
        square = self.times(a, a)
        near = self.fma(self.times(self._polynomial(_TANH, square), square), a, a)
        below = self.plus(self.exp(self.plus(size, size)), self.splat(1.0))
        far = self.minus(self.splat(1.0), self.divided(self.splat(2.0), below))
        far = self._call("llvm.copysign", FLOATS, far, a)
        is_far = self.minus(size, self.splat(_TANH_NEAR))
        return self.where(is_far, far, near)

    def erf(self, a: ir.Value) -> ir.Value:
        """Returns erf(a) with a relative error of at most 3.8e-7."""
        a = self._clamped(a, -_ERF_FAR, _ERF_FAR)
        square = self.times(a, a)
        above = self.times(a, self._polynomial(_ERF_ABOVE, square))
        return self.divided(above, self._polynomial(_ERF_BELOW, square))

    def _exp(self, a: ir.Value) -> ir.Value:
        """Returns exp of values whose result is a normal float."""
        builder, lanes = self._builder, VECTOR.lanes
        whole = self._call("llvm.rint", FLOATS, self.times(a, 1.44269504088896341))
        # The logarithm of two in two parts: the first has few enough bits for exact products.
        rest = self.fma(whole, -0.693359375, a)
        rest = self.fma(whole, 2.12194440e-4, rest)
        result = self._polynomial(_EXPONENTIAL, rest)
        result = self.fma(self.times(rest, rest), result, self.plus(rest, self.splat(1.0)))
        bias = ir.Constant(INTEGERS, [127] * lanes)
        power = builder.add(builder.fptosi(whole, INTEGERS), bias)
        power = builder.shl(power, ir.Constant(INTEGERS, [23] * lanes))
        return self.times(result, builder.bitcast(power, FLOATS))

    def _polynomial(self, factors: Sequence[float], a: ir.Value) -> ir.Value:
        """Returns the value of a polynomial; the factor of the highest power comes first."""
        result = self.splat(factors[0])
        for factor in factors[1:]:
            result = self.fma(result, a, self.splat(factor))
        return result

    def _clamped(self, a: ir.Value, least: float, most: float) -> ir.Value:
        """Clamps values to two bounds."""
        a = self.minimum(a, self.splat(most))
        return self.maximum(a, self.splat(least))
