//! Activations and their derivatives on blocks of f32, for the CPU: loops without branches that compilers turn into vector instructions.
//!
//! Derivatives need no more than errors relative to 1, so that they compute in f32 throughout. Beyond a bound they are their limits.

use std::f32::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use super::lanes::{exp, sigmoid, tanh};
use super::single;
use crate::ops::activation::Activation;
use crate::ops::pointwise::map::fast::{Widest, widest};

/// `sqrt(2 / pi)`
const GELU_SCALE: f32 = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
/// The cubic term of the argument of `gelu_tanh`.
const GELU_CUBIC: f32 = 0.044715;

/// What a block of gradients is computed from.
#[derive(Clone, Copy)]
pub(in crate::ops) enum Saved<'a> {
    /// The arguments of the activation.
    Input(&'a [f32]),
    /// Its results.
    Output(&'a [f32]),
}

/// Each value becomes its activation.
#[inline(never)]
pub(in crate::ops) fn activate(activation: Activation, values: &mut [f32]) {
    widest(Activate { activation, values });
}

/// Each gradient of a result becomes that of the argument.
#[inline(never)]
pub(in crate::ops) fn gradient(activation: Activation, saved: Saved<'_>, gradients: &mut [f32]) {
    widest(Gradient { activation, saved, gradients });
}

struct Activate<'a> {
    activation: Activation,
    values: &'a mut [f32],
}

impl Widest for Activate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        match self.activation {
            Activation::Identity => {}
            Activation::Relu => each(self.values, |x| if x <= 0.0 { 0.0 } else { x }),
            Activation::GeluErf => each(self.values, single::gelu_erf::<FUSED>),
            Activation::GeluTanh => each(self.values, single::gelu_tanh::<FUSED>),
            Activation::Silu => each(self.values, single::silu::<FUSED>),
            Activation::Sigmoid => each(self.values, sigmoid::<FUSED>),
            Activation::Tanh => each(self.values, tanh::<FUSED>),
        }
    }
}

struct Gradient<'a> {
    activation: Activation,
    saved: Saved<'a>,
    gradients: &'a mut [f32],
}

impl Widest for Gradient<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let Self { activation, saved, gradients } = self;
        match (activation, saved) {
            (Activation::Identity, _) => {}
            (Activation::Relu, Saved::Input(x) | Saved::Output(x)) => {
                pairs(x, gradients, |x, dy| if x <= 0.0 { 0.0 } else { dy });
            }
            (Activation::GeluErf, Saved::Input(x)) => pairs(x, gradients, |x, dy| dy * gelu_erf_slope::<FUSED>(x)),
            (Activation::GeluTanh, Saved::Input(x)) => pairs(x, gradients, |x, dy| dy * gelu_tanh_slope::<FUSED>(x)),
            (Activation::Silu, Saved::Input(x)) => pairs(x, gradients, |x, dy| dy * silu_slope::<FUSED>(x)),
            (Activation::Sigmoid, Saved::Input(x)) => pairs(x, gradients, |x, dy| dy * slope(exp::<FUSED>(-x.abs()))),
            (Activation::Tanh, Saved::Input(x)) => {
                pairs(x, gradients, |x, dy| dy * (4.0 * slope(exp::<FUSED>(-2.0 * x.abs()))));
            }
            (Activation::Sigmoid, Saved::Output(y)) => pairs(y, gradients, |y, dy| dy * (y * (1.0 - y))),
            (Activation::Tanh, Saved::Output(y)) => pairs(y, gradients, |y, dy| dy * ((1.0 - y) * (1.0 + y))),
            // Their derivatives are no functions of the result.
            (Activation::GeluErf | Activation::GeluTanh | Activation::Silu, Saved::Output(_)) => {
                gradients.fill(f32::NAN);
            }
        }
    }
}

#[inline(always)]
fn each(values: &mut [f32], function: impl Fn(f32) -> f32) {
    for value in values {
        *value = function(*value);
    }
}

#[inline(always)]
fn pairs(saved: &[f32], gradients: &mut [f32], function: impl Fn(f32, f32) -> f32) {
    for (gradient, &saved) in gradients.iter_mut().zip(saved) {
        *gradient = function(saved, *gradient);
    }
}

/// `e / (1 + e)^2`
#[inline(always)]
fn slope(e: f32) -> f32 {
    let r = 1.0 / (1.0 + e);
    e * r * r
}

/// `1 / (1 + exp(-x))`, given `e = exp(-|x|)`.
#[inline(always)]
fn logistic(x: f32, e: f32) -> f32 {
    let r = 1.0 / (1.0 + e);
    if x < 0.0 { e * r } else { r }
}

#[inline(always)]
fn silu_slope<const FUSED: bool>(x: f32) -> f32 {
    let x = x.clamp(-150.0, 150.0);
    let e = exp::<FUSED>(-x.abs());
    logistic(x, e) + x * slope(e)
}

#[inline(always)]
fn gelu_tanh_slope<const FUSED: bool>(x: f32) -> f32 {
    // Where the slope is its limit, it is so exactly: what 0 is multiplied by may be infinite.
    let limit = if x < 0.0 { 0.0 } else { 1.0 };
    let is_limit = x.abs() > 10.0;
    let x = x.clamp(-10.0, 10.0);
    let square = x * x;
    let twice = 2.0 * GELU_SCALE * x * (1.0 + GELU_CUBIC * square);
    let e = exp::<FUSED>(-twice.abs());
    let slope = logistic(x, e) + 2.0 * GELU_SCALE * x * (1.0 + 3.0 * GELU_CUBIC * square) * slope(e);
    if is_limit { limit } else { slope }
}

#[inline(always)]
fn gelu_erf_slope<const FUSED: bool>(x: f32) -> f32 {
    let x = x.clamp(-20.0, 20.0);
    let e = exp::<FUSED>(-0.5 * x * x);
    let tail = 0.5 * e * single::scaled_erfc::<FUSED>(x.abs() * FRAC_1_SQRT_2);
    let below = if x < 0.0 { tail } else { 1.0 - tail };
    below + 0.5 * GELU_SCALE * x * e
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of every exponent and sign, and what is no number.
    fn arguments() -> Vec<f32> {
        (0..=u32::from(u16::MAX)).map(|high| f32::from_bits(high << 16 | high.wrapping_mul(0x9e37) & 0xffff)).collect()
    }

    /// Errors in units of u are at most `bound`; what is no number is what the formula says.
    fn assert_near(what: &str, x: f32, got: f32, expected: f64, bound: f64) {
        let error = (f64::from(got) - expected).abs();
        let is_near = f64::from(got) == expected
            || (got.is_nan() && expected.is_nan())
            || error <= bound / 16_777_216.0 + f64::from(f32::MIN_POSITIVE);
        assert!(is_near, "{what} of {x:e} is {got:e}, expected {expected:e}: {error:e}");
    }

    #[test]
    fn derivatives_keep_their_budget_over_all_exponents() {
        let x = arguments();
        for activation in Activation::ALL {
            for dy in [1.0f32, -3.0] {
                let mut gradients = vec![dy; x.len()];
                gradient(activation, Saved::Input(&x), &mut gradients);
                for (&x, got) in x.iter().zip(gradients) {
                    let expected = activation.gradient(f64::from(x), f64::from(dy));
                    assert_near(activation.name(), x, got, expected, 8.0 * f64::from(dy.abs()));
                }
            }
        }
    }

    #[test]
    fn derivatives_at_infinity_are_their_limits() {
        for activation in Activation::ALL {
            let mut gradients = [2.0f32; 2];
            gradient(activation, Saved::Input(&[f32::NEG_INFINITY, f32::INFINITY]), &mut gradients);
            let expected = [f64::NEG_INFINITY, f64::INFINITY].map(|x| activation.gradient(x, 2.0));
            assert_eq!(gradients.map(f64::from), expected, "{}", activation.name());
        }
    }

    #[test]
    fn derivatives_from_results_keep_their_budget() {
        let y: Vec<f32> = (-64..=64i16).map(|at| f32::from(at) / 64.0).chain([f32::NAN]).collect();
        for activation in Activation::ALL.into_iter().filter(|activation| activation.has_gradient_from_output()) {
            let mut gradients = vec![1.5; y.len()];
            gradient(activation, Saved::Output(&y), &mut gradients);
            for (&y, got) in y.iter().zip(gradients) {
                let expected = activation.gradient_from_output(f64::from(y), 1.5);
                assert_near(activation.name(), y, got, expected, 8.0 * expected.abs());
            }
        }
    }

    #[test]
    fn activations_keep_their_budget_over_all_exponents() {
        let x = arguments();
        for activation in Activation::ALL {
            let mut values = x.clone();
            activate(activation, &mut values);
            for (&x, got) in x.iter().zip(values) {
                let expected = activation.apply(f64::from(x));
                assert_near(activation.name(), x, got, expected, 8.0 * expected.abs());
            }
        }
    }
}
