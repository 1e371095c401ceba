//! Activations: the functions that ops apply to each element of their result before it is rounded.
//!
//! | name | `act(x)` | `act'(x)` |
//! |---|---|---|
//! | `identity` | `x` | 1 |
//! | `relu` | `x`, where `x <= 0` 0 | 1, where `x <= 0` 0 |
//! | `gelu_erf` | `x erfc(-x / sqrt(2)) / 2` | `erfc(-x / sqrt(2)) / 2 + x exp(-x^2 / 2) / sqrt(2 pi)` |
//! | `gelu_tanh` | `x sigmoid(2u)`, `u = sqrt(2 / pi) (x + 0.044715 x^3)` | `(1 + t) / 2 + x (1 - t^2) u' / 2`, `t = tanh(u)` |
//! | `silu` | `x sigmoid(x)` | `s (1 + x (1 - s))`, `s = sigmoid(x)` |
//! | `sigmoid` | `1 / (1 + exp(-x))` | `e / (1 + e)^2`, `e = exp(-abs(x))` |
//! | `tanh` | `tanh(x)` | `4 e / (1 + e)^2`, `e = exp(-2 abs(x))` |
//!
//! NaN and infinity: a NaN stays one, through ReLU too. `act` is what the formula says: GELU and SiLU of -infinity are NaN. `act'` at the
//! infinities is its limit. The gradient through ReLU is 0 where `x <= 0` whatever arrives there, else what arrives, also for a NaN `x`.
//!
//! Source: D. Hendrycks, K. Gimpel, "Gaussian Error Linear Units", 2016, for GELU and SiLU. W. J. Cody, "Rational Chebyshev
//! Approximations for the Error Function", Mathematics of Computation 23 (1969), for the reference's erfc.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use crate::json;

/// A function applied to each element. See the [formulas](self).
///
/// ```
/// use baracuda_ops::Activation;
/// assert_eq!(serde_json::to_string(&Activation::GeluTanh)?, r#""gelu_tanh""#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Activation {
    /// Nothing.
    #[default]
    Identity,
    /// The positive part.
    Relu,
    /// GELU by the error function.
    GeluErf,
    /// GELU by the hyperbolic tangent.
    GeluTanh,
    /// `x sigmoid(x)`, also called swish.
    Silu,
    /// The logistic function.
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
}

json::named!(Activation);

/// `sqrt(2 / pi)`
const GELU_SCALE: f64 = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
/// The cubic term of GELU's argument.
const GELU_CUBIC: f64 = 0.044715;
/// Beyond it, the derivative of `gelu_tanh` is 0 or 1 to every bit of f64.
const GELU_LINEAR: f64 = 10.0;

impl Activation {
    /// Every activation, in declaration order.
    pub const ALL: [Self; 7] =
        [Self::Identity, Self::Relu, Self::GeluErf, Self::GeluTanh, Self::Silu, Self::Sigmoid, Self::Tanh];

    /// The name used in JSON and errors.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Relu => "relu",
            Self::GeluErf => "gelu_erf",
            Self::GeluTanh => "gelu_tanh",
            Self::Silu => "silu",
            Self::Sigmoid => "sigmoid",
            Self::Tanh => "tanh",
        }
    }

    /// Whether it changes nothing.
    pub const fn is_identity(self) -> bool {
        matches!(self, Self::Identity)
    }

    /// The function, in f64: what the reference computes.
    pub fn apply(self, x: f64) -> f64 {
        match self {
            Self::Identity => x,
            Self::Relu => select(x, 0.0, x),
            Self::GeluErf => 0.5 * x * erfc(-x * FRAC_1_SQRT_2),
            Self::GeluTanh => x * sigmoid(2.0 * gelu_argument(x)),
            Self::Silu => x * sigmoid(x),
            Self::Sigmoid => sigmoid(x),
            Self::Tanh => x.tanh(),
        }
    }

    /// What reaches `x` of a gradient `dy` of the result, in f64: `dy act'(x)`, for ReLU 0 or `dy`.
    pub fn gradient(self, x: f64, dy: f64) -> f64 {
        match self {
            Self::Identity => dy,
            Self::Relu => select(x, 0.0, dy),
            Self::GeluErf => {
                // The density is 0 long before its product with x could be infinity times 0.
                let density = (-0.5 * x * x).exp() * (0.5 * GELU_SCALE);
                let tail = if density == 0.0 { 0.0 } else { x * density };
                dy * (0.5 * erfc(-x * FRAC_1_SQRT_2) + tail)
            }
            Self::GeluTanh if x.abs() > GELU_LINEAR => dy * select(x, 0.0, 1.0),
            Self::GeluTanh => {
                let slope = GELU_SCALE * (1.0 + 3.0 * GELU_CUBIC * x * x);
                let u = gelu_argument(x);
                dy * (sigmoid(2.0 * u) + 0.5 * x * tanh_slope(u) * slope)
            }
            Self::Silu if x.is_infinite() => dy * select(x, 0.0, 1.0),
            Self::Silu => dy * (sigmoid(x) + x * sigmoid_slope(x)),
            Self::Sigmoid => dy * sigmoid_slope(x),
            Self::Tanh => dy * tanh_slope(x),
        }
    }

    /// Whether the derivative is a function of the result, so that [`gradient_from_output`](Self::gradient_from_output) has a value.
    pub const fn has_gradient_from_output(self) -> bool {
        matches!(self, Self::Relu | Self::Sigmoid | Self::Tanh)
    }

    /// As [`gradient`](Self::gradient), given the result `y` in place of x; NaN for activations whose derivative is no function of y.
    pub fn gradient_from_output(self, y: f64, dy: f64) -> f64 {
        match self {
            Self::Relu => select(y, 0.0, dy),
            Self::Sigmoid => dy * (y * (1.0 - y)),
            Self::Tanh => dy * ((1.0 - y) * (1.0 + y)),
            Self::Identity | Self::GeluErf | Self::GeluTanh | Self::Silu => f64::NAN,
        }
    }
}

/// `at_most_zero` if `x <= 0`, else `above`; a NaN counts as above.
fn select(x: f64, at_most_zero: f64, above: f64) -> f64 {
    if x <= 0.0 { at_most_zero } else { above }
}

fn gelu_argument(x: f64) -> f64 {
    GELU_SCALE * (x + GELU_CUBIC * x * x * x)
}

fn sigmoid(x: f64) -> f64 {
    // For a positive number exp would overflow.
    let e = (-x.abs()).exp();
    if x < 0.0 { e / (1.0 + e) } else { 1.0 / (1.0 + e) }
}

fn sigmoid_slope(x: f64) -> f64 {
    let e = (-x.abs()).exp();
    e / ((1.0 + e) * (1.0 + e))
}

fn tanh_slope(x: f64) -> f64 {
    let e = (-2.0 * x.abs()).exp();
    4.0 * e / ((1.0 + e) * (1.0 + e))
}

/// The complementary error function, good to a few of the last bits, relative to its value also where that is small.
fn erfc(x: f64) -> f64 {
    let z = x.abs();
    if z <= 0.46875 {
        let numerator = [
            0.185_777_706_184_603_15,
            3.161_123_743_870_565_5,
            113.864_154_151_050_16,
            377.485_237_685_302,
            3_209.377_589_138_469_4,
        ];
        let denominator =
            [1.0, 23.601_290_952_344_122, 244.024_637_934_444_17, 1_282.616_526_077_372_3, 2_844.236_833_439_171];
        return 1.0 - x * (polynomial(&numerator, x * x) / polynomial(&denominator, x * x));
    }
    let tail = if z.is_nan() {
        z
    } else if z <= 4.0 {
        let numerator = [
            2.153_115_354_744_038_3e-8,
            0.564_188_496_988_670_1,
            8.883_149_794_388_377,
            66.119_190_637_141_63,
            298.635_138_197_400_1,
            881.952_221_241_769,
            1_712.047_612_634_070_7,
            2_051.078_377_826_071_6,
            1_230.339_354_797_997_2,
        ];
        let denominator = [
            1.0,
            15.744_926_110_709_835,
            117.693_950_891_312_5,
            537.181_101_862_009_9,
            1_621.389_574_566_690_3,
            3_290.799_235_733_459_7,
            4_362.619_090_143_247,
            3_439.367_674_143_721_6,
            1_230.339_354_803_749_5,
        ];
        gaussian(z) * (polynomial(&numerator, z) / polynomial(&denominator, z))
    } else if z < 27.3 {
        let numerator = [
            0.016_315_387_137_302_097,
            0.305_326_634_961_232_36,
            0.360_344_899_949_804_45,
            0.125_781_726_111_229_26,
            0.016_083_785_148_742_275,
            0.000_658_749_161_529_837_8,
        ];
        let denominator = [
            1.0,
            2.568_520_192_289_822,
            1.872_952_849_923_460_4,
            0.527_905_102_951_428_5,
            0.060_518_341_312_441_32,
            0.002_335_204_976_268_691_8,
        ];
        let w = 1.0 / (z * z);
        let correction = w * (polynomial(&numerator, w) / polynomial(&denominator, w));
        gaussian(z) * ((0.5 * FRAC_2_SQRT_PI - correction) / z)
    } else {
        0.0
    };
    if x < 0.0 { 2.0 - tail } else { tail }
}

/// `exp(-z^2)`, with the square split so that its rounding does not grow in the exponential.
fn gaussian(z: f64) -> f64 {
    let coarse = (z * 16.0).trunc() / 16.0;
    let rest = (z - coarse) * (z + coarse);
    (-coarse * coarse).exp() * (-rest).exp()
}

/// A polynomial by Horner's rule, the highest power first.
fn polynomial(coefficients: &[f64], x: f64) -> f64 {
    coefficients.iter().fold(0.0, |value, coefficient| value * x + coefficient)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Points of every branch, from mpmath with 30 digits.
    const ERFC: [(f64, f64); 17] = [
        (-6.0, 2.0),
        (-3.0, 1.9999779095030015),
        (-1.0, 1.8427007929497148),
        (-0.25, 1.276326390168237),
        (0.0, 1.0),
        (0.125, 0.8596837951986662),
        (0.46875, 0.507386526782062),
        (0.5, 0.4795001221869535),
        (1.0, 0.15729920705028513),
        (2.0, 0.004677734981047266),
        (3.5, 7.430983723414128e-07),
        (4.0, 1.541725790028002e-08),
        (4.25, 1.8505741373867425e-09),
        (6.0, 2.1519736712498913e-17),
        (10.0, 2.088487583762545e-45),
        (20.0, 5.395865611607901e-176),
        (26.0, 5.663192408856143e-296),
    ];

    #[test]
    fn erfc_is_good_to_the_last_bits() {
        for (x, expected) in ERFC {
            let error = (erfc(x) - expected).abs() / expected;
            assert!(error < 1e-15, "erfc({x}) is {:e}, expected {expected:e}: {error:e}", erfc(x));
        }
    }

    #[test]
    fn gradients_are_those_of_the_functions() {
        for activation in Activation::ALL {
            for i in -80..80 {
                let (x, h) = (f64::from(i) / 8.0 + 0.03, 1e-5);
                let slope = (activation.apply(x + h) - activation.apply(x - h)) / (2.0 * h);
                let gradient = activation.gradient(x, 1.0);
                assert!((slope - gradient).abs() < 1e-9, "{activation:?} at {x}: {slope} {gradient}");
            }
        }
    }

    #[test]
    fn gradients_from_the_output_are_those_from_the_input() {
        for activation in Activation::ALL.into_iter().filter(|a| a.has_gradient_from_output()) {
            for i in -40..40 {
                let x = f64::from(i) / 8.0 + 0.03;
                let (gradient, from_y) =
                    (activation.gradient(x, 1.5), activation.gradient_from_output(activation.apply(x), 1.5));
                assert!((gradient - from_y).abs() < 1e-14, "{activation:?} at {x}: {gradient} {from_y}");
            }
        }
        assert_eq!(Activation::Relu.gradient_from_output(f64::NAN, 3.0), 3.0);
    }

    #[test]
    fn nan_passes_and_infinities_have_limits() {
        for activation in Activation::ALL {
            assert!(activation.apply(f64::NAN).is_nan(), "{activation:?}");
            let bounded = matches!(activation, Activation::Sigmoid | Activation::Tanh);
            assert_eq!(activation.gradient(f64::INFINITY, 1.0), if bounded { 0.0 } else { 1.0 }, "{activation:?}");
            let identity = activation.is_identity();
            assert_eq!(activation.gradient(f64::NEG_INFINITY, 1.0), if identity { 1.0 } else { 0.0 }, "{activation:?}");
        }
        assert_eq!(Activation::Relu.gradient(f64::NAN, 3.0), 3.0);
        assert_eq!(Activation::Relu.gradient(-1.0, f64::INFINITY), 0.0);
    }

    #[test]
    fn names_are_those_of_the_json() {
        for activation in Activation::ALL {
            assert_eq!(serde_json::to_string(&activation).unwrap(), format!("\"{}\"", activation.name()));
        }
    }
}
