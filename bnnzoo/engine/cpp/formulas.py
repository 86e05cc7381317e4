"""Operations entry by entry, as C++."""

import math
from collections.abc import Callable
from typing import Any

import torch

from bnnzoo.engine.cpp.values import TYPES, Cannot

__all__ = ["COMPARISONS", "FORMULAS", "HEADER", "TRANSCENDENTAL", "literal"]

aten, prims = torch.ops.aten, torch.ops.prims

HEADER = r"""
#include <stdint.h>
#include <stdlib.h>

#ifdef _WIN32
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED
#endif

// Headers of C alone: some compilers build the library of C++ first, which takes minutes.
namespace m {
#define OF_ONE(name) \
  static inline float name(float x) { return __builtin_##name##f(x); } \
  static inline double name(double x) { return __builtin_##name(x); }
#define OF_TWO(name) \
  static inline float name(float x, float y) { return __builtin_##name##f(x, y); } \
  static inline double name(double x, double y) { return __builtin_##name(x, y); }
OF_ONE(exp2) OF_ONE(log2) OF_ONE(sin) OF_ONE(cos) OF_ONE(tan) OF_ONE(asin)
OF_ONE(acos) OF_ONE(atan) OF_ONE(acosh) OF_ONE(atanh) OF_ONE(erf) OF_ONE(erfc)
OF_ONE(sqrt) OF_ONE(floor) OF_ONE(ceil) OF_ONE(trunc) OF_ONE(nearbyint)
OF_TWO(atan2) OF_TWO(fmod) OF_TWO(pow)
template <typename T> static inline T floor(T x) { return x; }
template <typename T> static inline T ceil(T x) { return x; }
template <typename T> static inline T trunc(T x) { return x; }
template <typename T> static inline T nearbyint(T x) { return x; }
template <typename T> static inline T pow(T x, T n) {
  if (n < 0) return x == 1 ? 1 : x == -1 ? (n % 2 ? -1 : 1) : 0;
  T found = 1;
  for (; n; n /= 2, x *= x) if (n % 2) found *= x;
  return found;
}
static inline bool isinf(float x) { return __builtin_isinf(x); }
static inline bool isinf(double x) { return __builtin_isinf(x); }
template <typename T> static inline bool isinf(T) { return false; }
}
template <typename T> static inline T infinity_() { return (T)__builtin_inf(); }
template <typename T> static inline T nan_() { return (T)__builtin_nan(""); }

static inline float two_to_(int32_t n) { float f; const int32_t a = (n + 127) << 23; __builtin_memcpy(&f, &a, 4); return f; }
static inline double two_to_(int64_t n) { double f; const int64_t a = (n + 1023) << 52; __builtin_memcpy(&f, &a, 8); return f; }
// The whole number, of a few thousand at most, that was rounded to by adding 1.5 2^52, and half of it, rounded down: processors
// without 512 bits have neither conversions nor shifts of signed numbers for registers of 64 bits.
static inline int64_t whole_(double t) { uint64_t a; __builtin_memcpy(&a, &t, 8); return (int64_t)(a - 0x4338000000000000u); }
static inline int64_t half_(int64_t n) { return (int64_t)((uint64_t)(n + 4096) >> 1) - 2048; }

template <typename T> static inline T exp_(T x);

// exp(x) = 2^n exp(r) with |r| <= log(2) / 2 and the Taylor polynomial of exp(r); compilers vectorise it.
template <> inline float exp_(float x) {
  float c = x < -104.0f ? -104.0f : x;
  c = c > 89.0f ? 89.0f : c;
  const float n = __builtin_nearbyintf(c * 0x1.715476p+0f);
  const float r = (c - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720; p = p * r + 1.0f / 120; p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6; p = p * r + 0.5f; p = p * r + 1.0f; p = p * r + 1.0f;
  const int32_t k = (int32_t)n, low = k >> 1, high = k - low;
  return p * two_to_(low) * two_to_(high);
}
template <> inline double exp_(double x) {
  double c = x < -746.0 ? -746.0 : x;
  c = c > 710.0 ? 710.0 : c;
  const double t = c * 0x1.71547652b82fep+0 + 0x1.8p+52, n = t - 0x1.8p+52;
  const double r = (c - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33;
  double p = 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600; p = p * r + 1.0 / 39916800; p = p * r + 1.0 / 3628800; p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320; p = p * r + 1.0 / 5040; p = p * r + 1.0 / 720; p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24; p = p * r + 1.0 / 6; p = p * r + 0.5; p = p * r + 1.0; p = p * r + 1.0;
  const int64_t k = whole_(t), low = half_(k), high = k - low;
  return p * two_to_(low) * two_to_(high);
}

// log(x) = k log(2) + log(1 + f) with 1 + f between the roots of 1 / 2 and 2; with s = f / (2 + f), log(1 + f) is
// f - f^2 / 2 + s (f^2 / 2 + 2 s^2 / 3 + 2 s^4 / 5 + ...). Subnormal numbers are scaled first.
template <typename T> static inline T log_(T x);
template <> inline float log_(float x) {
  const bool tiny = x < 0x1p-126f;
  const float scaled = tiny ? x * 0x1p25f : x;
  uint32_t bits;
  __builtin_memcpy(&bits, &scaled, 4);
  bits += 0x3f800000u - 0x3f3504f3u;
  const float k = (float)((int32_t)(bits >> 23) - 127) - (tiny ? 25.0f : 0.0f);
  bits = (bits & 0x007fffffu) + 0x3f3504f3u;
  float f;
  __builtin_memcpy(&f, &bits, 4);
  f -= 1;
  const float s = f / (2 + f), z = s * s, half = 0.5f * f * f;
  const float p = z * (2.0f / 3 + z * (2.0f / 5 + z * (2.0f / 7 + z * (2.0f / 9 + z * (2.0f / 11)))));
  float found = k * 0x1.62e4p-1f - ((half - (s * (half + p) + k * 0x1.7f7d1cp-20f)) - f);
  found = x < infinity_<float>() ? found : x;
  found = x == 0 ? -infinity_<float>() : found;
  return x < 0 ? nan_<float>() : found;
}
template <> inline double log_(double x) {
  const bool tiny = x < 0x1p-1022;
  const double scaled = tiny ? x * 0x1p54 : x;
  uint64_t bits;
  __builtin_memcpy(&bits, &scaled, 8);
  bits += 0x3ff0000000000000u - 0x3fe6a09e667f3bcdu;
  const uint64_t whole = (bits >> 52) | 0x4330000000000000u;  // 2^52 + k + 1023
  double k;
  __builtin_memcpy(&k, &whole, 8);
  k -= 0x1p52 + 1023 + (tiny ? 54.0 : 0.0);
  bits = (bits & 0x000fffffffffffffu) + 0x3fe6a09e667f3bcdu;
  double f;
  __builtin_memcpy(&f, &bits, 8);
  f -= 1;
  const double s = f / (2 + f), z = s * s, half = 0.5 * f * f;
  double p = 2.0 / 23;
  p = p * z + 2.0 / 21; p = p * z + 2.0 / 19; p = p * z + 2.0 / 17; p = p * z + 2.0 / 15; p = p * z + 2.0 / 13;
  p = p * z + 2.0 / 11; p = p * z + 2.0 / 9; p = p * z + 2.0 / 7; p = p * z + 2.0 / 5; p = p * z + 2.0 / 3;
  double found = k * 0x1.62e42feep-1 - ((half - (s * (half + p * z) + k * 0x1.a39ef35793c76p-33)) - f);
  found = x < infinity_<double>() ? found : x;
  found = x == 0 ? -infinity_<double>() : found;
  return x < 0 ? nan_<double>() : found;
}
// What rounding takes from 1 + x is added back to first order.
template <typename T> static inline T log1p_(T x) {
  const T u = 1 + x, lost = (x - (u - 1)) / u;  // no number where u is zero or infinite
  return log_<T>(u) + (lost == lost ? lost : 0);
}

// tanh(x) = 1 - 2 / (2^t + 1) with t = 2 log2(e) x, where x needs no more than +-20 or +-40: the whole number n next to t is
// added to the exponent of 2^(t - n), the polynomial of this degree with the smallest relative error. What is added to round t
// leaves n in its last binary digits. One constant is enough: where x is large, the slope of tanh is small.
template <typename T> static inline T tanh_(T x);
template <> inline float tanh_(float x) {
  float c = x < -20.0f ? -20.0f : x;
  c = c > 20.0f ? 20.0f : c;
  const float t = c * 0x1.715476p+1f + 0x1.8p+23f, n = t - 0x1.8p+23f, r = c * 0x1.715476p+1f - n;
  float p = 0x1.41fbcap-13f;
  p = p * r + 0x1.5f3e52p-10f; p = p * r + 0x1.3b2d4ep-7f; p = p * r + 0x1.c6aee8p-5f;
  p = p * r + 0x1.ebfbdcp-3f; p = p * r + 0x1.62e430p-1f; p = p * r + 1.0f;
  uint32_t a, b;
  __builtin_memcpy(&a, &p, 4); __builtin_memcpy(&b, &t, 4);
  a += b << 23;
  __builtin_memcpy(&p, &a, 4);
  return 1 - 2 / (p + 1);
}
template <> inline double tanh_(double x) {
  double c = x < -40.0 ? -40.0 : x;
  c = c > 40.0 ? 40.0 : c;
  const double t = c * 0x1.71547652b82fep+1 + 0x1.8p+52, n = t - 0x1.8p+52, r = c * 0x1.71547652b82fep+1 - n;
  double p = 0x1.e798704147334p-32;
  p = p * r + 0x1.e61b5fc660803p-28; p = p * r + 0x1.b5267d4272996p-24; p = p * r + 0x1.62bfc790dd291p-20;
  p = p * r + 0x1.ffcbfbaa509afp-17; p = p * r + 0x1.4309130edf374p-13; p = p * r + 0x1.5d87fe78cd05ap-10;
  p = p * r + 0x1.3b2ab6fba00f1p-7; p = p * r + 0x1.c6b08d7049febp-5; p = p * r + 0x1.ebfbdff82c5a4p-3;
  p = p * r + 0x1.62e42fefa39efp-1; p = p * r + 1.0;
  uint64_t a, b;
  __builtin_memcpy(&a, &p, 8); __builtin_memcpy(&b, &t, 8);
  a += b << 52;
  __builtin_memcpy(&p, &a, 8);
  return 1 - 2 / (p + 1);
}
// exp(x) - 1 = 2^n q + (2^n - 1), where q = exp(r) - 1 keeps its digits near zero, times 2^k: half of it, for sinh and cosh, is
// finite as far as these are. In double precision the whole number n is read off the last binary digits, as in tanh.
template <typename T> static inline T expm1_(T x, int k = 0);
template <> inline float expm1_(float x, int k) {
  float c = x < -104.0f ? -104.0f : x;
  c = c > 95.0f ? 95.0f : c;
  const float n = __builtin_nearbyintf(c * 0x1.715476p+0f);
  const float r = (c - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720; p = p * r + 1.0f / 120; p = p * r + 1.0f / 24; p = p * r + 1.0f / 6; p = p * r + 0.5f;
  const int32_t m = (int32_t)n + k, low = m >> 1, high = m - low;
  const float q = r + r * r * p, f = two_to_(low);
  return (q * f + (f - two_to_(k - high))) * two_to_(high);
}
template <> inline double expm1_(double x, int k) {
  double c = x < -746.0 ? -746.0 : x;
  c = c > 720.0 ? 720.0 : c;
  const double t = c * 0x1.71547652b82fep+0 + 0x1.8p+52, n = t - 0x1.8p+52;
  const double r = (c - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33;
  double p = 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600; p = p * r + 1.0 / 39916800; p = p * r + 1.0 / 3628800; p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320; p = p * r + 1.0 / 5040; p = p * r + 1.0 / 720; p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24; p = p * r + 1.0 / 6; p = p * r + 0.5;
  const int64_t m = whole_(t) + k, low = half_(m), high = m - low;
  const double q = r + r * r * p, f = two_to_(low);
  return (q * f + (f - two_to_(k - high))) * two_to_(high);
}
// With h half of exp(|x|) - 1, sinh |x| = h + h / (2 h + 1), where the quotient is one half from some size on.
template <typename T> static inline T sinh_(T x) {
  const T h = expm1_<T>(x < 0 ? -x : x, -1), found = h + (h < (T)0x1p60 ? h / (2 * h + 1) : (T)0.5);
  return x < 0 ? -found : found;
}
template <typename T> static inline T cosh_(T x) {
  const T half = expm1_<T>(x < 0 ? -x : x, -1) + (T)0.5;
  return half + (T)0.25 / half;
}
// asinh |x| = log(1 + |x| + x^2 / (1 + sqrt(1 + x^2))), and log(2 |x|) where the square might be infinite.
template <typename T> static inline T asinh_(T x) {
  const T a = x < 0 ? -x : x;
  const bool large = a > (T)0x1p60;
  const T found = log1p_<T>(large ? a : a + a * a / (1 + m::sqrt(1 + a * a))) + (large ? (T)0x1.62e42fefa39efp-1 : (T)0);
  return x < 0 ? -found : found;
}
template <typename T> static inline T with_sign_(T r, T b) { return r != 0 && ((r < 0) != (b < 0)) ? r + b : r; }
template <typename T> static inline T mod_(T a, T b) { return with_sign_<T>(a % b, b); }
template <> inline float mod_(float a, float b) { return with_sign_(m::fmod(a, b), b); }
template <> inline double mod_(double a, double b) { return with_sign_(m::fmod(a, b), b); }
// The gamma function's logarithm and its derivative, by reflection below one half, by the recurrence Gamma(y + 8) = y (y + 1) ...
// (y + 7) Gamma(y) below eight, and by Stirling's series from there; without branches, so that compilers vectorise them.
struct gamma_ { double y, z, rest, product, slope, sine, cosine; };
static inline gamma_ gamma_of_(double x) {
  gamma_ g;
  g.y = x < 0.5 ? 1 - x : x;
  double p = g.y, d = 1;
  for (int k = 1; k < 8; ++k) { d = d * (g.y + k) + p; p = p * (g.y + k); }
  const bool few = g.y < 8;
  g.product = few ? p : 1; g.slope = few ? d / p : 0; g.z = few ? g.y + 8 : g.y;
  g.rest = 1 / (g.z * g.z);
  const double r = x - m::nearbyint(x), s = r * r * 9.869604401089358;  // sin(pi r), cos(pi r) with |r| <= 1 / 2
  double a = 0, b = 0;
  for (int n = 20; n > 0; n -= 2) { a = (1 - a) * s * (1.0 / (n * (n + 1))); b = (1 - b) * s * (1.0 / ((n - 1) * n)); }
  g.sine = 3.141592653589793238463 * r * (1 - a); g.cosine = 1 - b;
  return g;
}
template <typename T> static inline T lgamma_(T given) {
  const double x = given;
  const gamma_ g = gamma_of_(x);
  const double w = g.rest;
  double p = 1.0 / 156;
  p = p * w - 691.0 / 360360; p = p * w + 1.0 / 1188; p = p * w - 1.0 / 1680;
  p = p * w + 1.0 / 1260; p = p * w - 1.0 / 360; p = p * w + 1.0 / 12;
  const double above = (g.z - 0.5) * (log_<double>(g.z) - 1) + (0.41893853320467274178 + p / g.z);
  const double factor = x < 0.5 ? g.product * 3.141592653589793238463 / (g.sine < 0 ? -g.sine : g.sine) : g.product;
  const double found = (x < 0.5 ? -1 : 1) * (above - log_<double>(factor));
  return (T)(x == infinity_<double>() || x == -infinity_<double>() ? infinity_<double>() : found);
}
template <typename T> static inline T digamma_(T given) {
  const double x = given;
  const gamma_ g = gamma_of_(x);
  const double w = g.rest;
  double p = 691.0 / 32760;
  p = p * w - 1.0 / 132; p = p * w + 1.0 / 240; p = p * w - 1.0 / 252; p = p * w + 1.0 / 120; p = p * w - 1.0 / 12;
  const double above = log_<double>(g.z) - 0.5 / g.z + p * w - g.slope;
  const double below = above - 3.141592653589793238463 * g.cosine / g.sine;
  double found = x < 0.5 ? below : above;
  found = g.sine == 0 && x < 0.5 ? nan_<double>() : found;
  found = x == infinity_<double>() ? x : found;
  return (T)(x == 0 ? -__builtin_copysign(infinity_<double>(), x) : found);
}
template <typename T> static inline T most_(T a, T b) { return a != a || a > b ? a : b; }
template <typename T> static inline T least_(T a, T b) { return a != a || a < b ? a : b; }
"""
"""What every file begins with. Constants are log2(e) and log(2) in two parts, the first of which has few digits."""

type Formula = Callable[[str, list[str], Any], str]
"""``(type of the result, arguments converted to it, the arguments as they are in the graph) -> expression``."""


def literal(value: Any, dtype: torch.dtype) -> str:
    """Return a number in C++."""
    name = TYPES[dtype]
    if not dtype.is_floating_point:
        if isinstance(value, float) and not value.is_integer():
            raise Cannot(f"{value} as {dtype}")
        return f"({name})({int(value)}LL)" if int(value) > -(1 << 63) else f"({name})INT64_MIN"
    value = float(value)
    if math.isnan(value):
        return f"nan_<{name}>()"
    if math.isinf(value):
        return f"({'-' if value < 0 else ''}infinity_<{name}>())"
    return f"({name})({value.hex()})"


def _of(template: str) -> Formula:
    return lambda t, a, raw: template.format(*a, t=t)


def _power(t: str, a: list[str], raw: Any) -> str:
    exponent = raw[1] if isinstance(raw[1], int | float) else None
    simple: dict[Any, str] = {
        2: "{0} * {0}",
        1: "{0}",
        0: "({t})1",
        3: "{0} * {0} * {0}",
        0.5: "m::sqrt({0})",
        -1: "1 / {0}",
        -2: "1 / ({0} * {0})",
        -0.5: "1 / m::sqrt({0})",
    }
    return simple[exponent].format(*a, t=t) if exponent in simple else f"m::pow({a[0]}, {a[1]})"


TRANSCENDENTAL: dict[Any, Formula] = {
    aten.exp.default: _of("exp_<{t}>({0})"),
    aten.expm1.default: _of("expm1_<{t}>({0})"),
    aten.log.default: _of("log_<{t}>({0})"),
    aten.log1p.default: _of("log1p_<{t}>({0})"),
    aten.log2.default: _of("m::log2({0})"),
    aten.sin.default: _of("m::sin({0})"),
    aten.cos.default: _of("m::cos({0})"),
    aten.tan.default: _of("m::tan({0})"),
    aten.atan.default: _of("m::atan({0})"),
    aten.sinh.default: _of("sinh_<{t}>({0})"),
    aten.cosh.default: _of("cosh_<{t}>({0})"),
    aten.tanh.default: _of("tanh_<{t}>({0})"),
    aten.sigmoid.default: _of("1 / (exp_<{t}>(-{0}) + 1)"),
    aten.erf.default: _of("m::erf({0})"),
    aten.erfc.default: _of("m::erfc({0})"),
    aten.lgamma.default: _of("lgamma_<{t}>({0})"),
    aten.digamma.default: _of("digamma_<{t}>({0})"),
    aten.asin.default: _of("m::asin({0})"),
    aten.acos.default: _of("m::acos({0})"),
    aten.asinh.default: _of("asinh_<{t}>({0})"),
    aten.acosh.default: _of("m::acosh({0})"),
    aten.atanh.default: _of("m::atanh({0})"),
    aten.atan2.default: _of("m::atan2({0}, {1})"),
    aten.exp2.default: _of("m::exp2({0})"),
    aten.pow.Tensor_Scalar: _power,
    aten.pow.Tensor_Tensor: _of("m::pow({0}, {1})"),
    aten.pow.Scalar: _of("m::pow({0}, {1})"),
}

COMPARISONS: dict[Any, Formula] = {
    getattr(getattr(aten, name), kind): _of(f"{{0}} {sign} {{1}}")
    for name, sign in {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items()
    for kind in ("Scalar", "Tensor")
} | {
    aten.isnan.default: _of("{0} != {0}"),
    aten.isinf.default: _of("m::isinf({0})"),
    aten.logical_not.default: _of("!{0}"),
    aten.logical_and.default: _of("({0} != 0) & ({1} != 0)"),
    aten.logical_or.default: _of("({0} != 0) | ({1} != 0)"),
    aten.logical_xor.default: _of("({0} != 0) != ({1} != 0)"),
}
"""Operations whose arguments meet in a type of their own."""

FORMULAS: dict[Any, Formula] = {
    **TRANSCENDENTAL,
    aten.add.Tensor: _of("{0} + {1}"),
    aten.add.Scalar: _of("{0} + {1}"),
    aten.sub.Tensor: _of("{0} - {1}"),
    aten.sub.Scalar: _of("{0} - {1}"),
    aten.mul.Tensor: _of("{0} * {1}"),
    aten.mul.Scalar: _of("{0} * {1}"),
    aten.div.Tensor: _of("{0} / {1}"),
    aten.div.Scalar: _of("{0} / {1}"),
    aten.neg.default: _of("-{0}"),
    aten.reciprocal.default: _of("1 / {0}"),
    aten.sqrt.default: _of("m::sqrt({0})"),
    aten.rsqrt.default: _of("1 / m::sqrt({0})"),
    aten.abs.default: _of("({0} < 0 ? -{0} : {0} + 0)"),
    aten.sign.default: _of("({t})(({0} > 0) - ({0} < 0))"),
    aten.floor.default: _of("m::floor({0})"),
    aten.ceil.default: _of("m::ceil({0})"),
    aten.trunc.default: _of("m::trunc({0})"),
    aten.round.default: _of("m::nearbyint({0})"),
    aten.relu.default: _of("({0} < 0 ? ({t})0 : {0})"),
    aten.maximum.default: _of("most_<{t}>({0}, {1})"),
    aten.minimum.default: _of("least_<{t}>({0}, {1})"),
    aten.clamp_min.default: _of("most_<{t}>({0}, {1})"),
    aten.clamp_max.default: _of("least_<{t}>({0}, {1})"),
    aten.remainder.Scalar: _of("mod_<{t}>({0}, {1})"),
    aten.remainder.Tensor: _of("mod_<{t}>({0}, {1})"),
    aten.clone.default: _of("{0}"),
    aten.alias.default: _of("{0}"),
    aten._to_copy.default: _of("{0}"),
    prims.convert_element_type.default: _of("{0}"),
    aten.bitwise_not.default: lambda t, a, raw: f"!{a[0]}" if t == "bool" else f"~{a[0]}",
    **{
        getattr(getattr(aten, name), kind): _of(f"{{0}} {sign} {{1}}")
        for name, sign in {
            "bitwise_and": "&",
            "bitwise_or": "|",
            "bitwise_xor": "^",
            "__rshift__": ">>",
            "__lshift__": "<<",
        }.items()
        for kind in ("Scalar", "Tensor")
    },
}
"""Operations whose arguments are converted to the type of the result."""
