//! The comparison of outputs with expected values, in units of the accuracy contract.

use anyhow::{Result, bail};
use baracuda_ops::{AnyPlan, Backend, DType, Math, Slot};

use crate::values::greatest;

/// What computed the outputs: budgets may depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct By {
    /// Where.
    pub backend: Backend,
    /// The kernel.
    pub kernel: &'static str,
    /// How exactly it multiplies.
    pub math: Math,
}

impl By {
    /// What a plan runs.
    pub fn of(plan: &AnyPlan) -> Self {
        let info = plan.info();
        Self { backend: plan.device().backend(), kernel: info.kernel, math: info.math }
    }

    /// Whether tensor cores multiply, of the kernels of products and convolutions.
    pub fn has_tensor_cores(&self) -> bool {
        let is_plain = ["_simt", "_depthwise"].iter().any(|form| self.kernel.ends_with(form));
        self.backend == Backend::Cuda && !is_plain
    }

    /// How a kernel of products and convolutions adds up the terms of an element.
    pub fn chains(&self) -> Chains {
        let is_product = !self.kernel.starts_with("conv") || self.kernel.contains("_gemm_");
        let has_form = |form: &str| self.kernel.ends_with(form);
        match self.backend {
            Backend::Cpu => Chains::Short { most: 64 },
            Backend::Wgpu => Chains::Balanced,
            Backend::Cuda if has_form("_simt") && is_product => Chains::Short { most: 64 },
            Backend::Cuda if has_form("_simt") || has_form("_depthwise") => Chains::Short { most: 256 },
            Backend::Cuda => Chains::One,
        }
    }
}

/// Which terms of a product or convolution are added up one after another: docs/numerics.md, Sums of products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chains {
    /// Chains of at most `most` terms, chains of up to 64 sums of those, and one chain of theirs.
    Short {
        /// Terms of a chain.
        most: u32,
    },
    /// As many chains as they have terms, about.
    Balanced,
    /// All of them, as on tensor cores and in vendors' kernels.
    One,
}

/// What one output should be, and how far from it an implementation may be.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The operand's name.
    pub name: String,
    /// Values of the formula, in f64.
    pub values: Vec<f64>,
    /// Budget of each element; infinite of a NaN in whose place an infinity will do.
    pub budgets: Vec<f64>,
}

impl Expected {
    /// Values with the [budget] of allowances, which are 0 where they are no numbers.
    pub fn within(
        name: &str,
        output: DType,
        accumulator: DType,
        values: Vec<f64>,
        allowance: impl Fn(usize) -> f64,
    ) -> Self {
        let own = |(i, &value)| budget(output, accumulator, value, finite(allowance(i)));
        let budgets = values.iter().enumerate().map(own).collect();
        Self { name: name.into(), values, budgets }
    }
}

/// The budget that every op shares: `u_o |y| + u_A allowance`, and underflow. The allowance depends on the op and the output (docs/numerics.md,
/// Budgets). For f64 it counts twice, since expected values are computed in f64 and have as large an error as those of a kernel.
pub fn budget(output: DType, accumulator: DType, y: f64, allowance: f64) -> f64 {
    let underflow = f64::from(f32::MIN_POSITIVE) + output.smallest_subnormal() / 2.0;
    let both = if accumulator == DType::F64 { 2.0 } else { 1.0 };
    output.unit_roundoff() * y.abs() + both * accumulator.unit_roundoff() * allowance + underflow
}

/// An allowance, or 0 if it is infinite or NaN: the value is then exact, or not a number.
pub fn finite(allowance: f64) -> f64 {
    if allowance.is_finite() { allowance } else { 0.0 }
}

/// The largest error of an output in units of its budget, where it is, and what was found there.
#[derive(Clone, Debug, Default)]
pub struct Worst {
    /// Error divided by budget.
    pub units: f64,
    /// The words for it.
    pub words: String,
    /// Elements over their budget.
    pub over: usize,
    /// The largest of each output.
    pub outputs: Vec<(String, f64)>,
}

impl Worst {
    /// Takes in what was found in one more output.
    pub fn take(&mut self, output: &str, found: Self) {
        self.outputs.push((output.into(), found.units));
        self.over += found.over;
        if found.units > self.units {
            (self.units, self.words) = (found.units, found.words);
        }
    }
}

/// Error of one element in units of its budget; infinite where the class of number is wrong.
pub fn units(dtype: DType, actual: f64, expected: f64, budget: f64) -> f64 {
    if expected.is_nan() && actual.is_infinite() && budget == f64::INFINITY {
        return 0.0;
    }
    if expected.is_nan() || actual.is_nan() {
        return if expected.is_nan() && actual.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if expected.is_infinite() {
        return if actual == expected { 0.0 } else { f64::INFINITY };
    }
    if actual.is_infinite() {
        // Right where the budget reaches what rounds to infinity.
        let reaches = expected * actual.signum() + budget >= greatest(dtype);
        return if reaches { 0.0 } else { f64::INFINITY };
    }
    (actual - expected).abs() / budget
}

/// Compares an output with what it should be.
///
/// # Errors
/// A length that differs, or a finite value whose budget is infinite, negative or NaN: such a budget judges nothing.
pub fn compare(slot: &Slot, actual: &[f64], expected: &Expected) -> Result<Worst> {
    if actual.len() != expected.values.len() || actual.len() != expected.budgets.len() {
        bail!("{}: {} elements, {} expected", slot.name, actual.len(), expected.values.len());
    }
    let (mut worst, mut at) = (Worst::default(), None);
    for (i, (&a, (&e, &b))) in actual.iter().zip(expected.values.iter().zip(&expected.budgets)).enumerate() {
        if e.is_finite() && !(b.is_finite() && b >= 0.0) {
            bail!("{}[{i}], expected {e:e}, has a budget of {b:e}, which judges nothing", slot.name);
        }
        let found = units(slot.desc.dtype(), a, e, b);
        // An error of 0 in a budget of 0.
        let units = if found.is_nan() { 0.0 } else { found };
        worst.over += usize::from(units > 1.0);
        if units > worst.units {
            (worst.units, at) = (units, Some(i));
        }
    }
    if let Some(i) = at {
        let (a, e, b, place) = (actual[i], expected.values[i], expected.budgets[i], place(slot.desc.dims(), i));
        let units = in_digits(worst.units);
        worst.words = format!("{}{place:?} is {a:e}, expected {e:e} within {b:.3e}: {units} units", slot.name);
    }
    if worst.over > 0 {
        let (over, all) = (worst.over, actual.len());
        worst.words = format!("{over} of {all} elements of {} are over budget; the worst, {}", slot.name, worst.words);
    }
    Ok(worst)
}

/// Units in words: of large numbers only the magnitude matters.
fn in_digits(units: f64) -> String {
    if units.is_finite() && units > 1e6 { format!("{units:.2e}") } else { format!("{units:.2}") }
}

/// The place along each dimension of the `i`th element in row-major order.
fn place(dims: &[u64], mut i: usize) -> Vec<usize> {
    let mut place = vec![0; dims.len()];
    for (at, &dim) in place.iter_mut().zip(dims).rev() {
        (*at, i) = (i % dim as usize, i / dim as usize);
    }
    place
}

/// Whether more than nine tenths of the elements are one and the same number: such an output proves nothing.
pub fn is_nearly_constant(values: &[f64]) -> bool {
    if values.len() < 16 {
        return false;
    }
    // The only number that more than half of the elements can be: what remains when others cancel it one by one (Boyer and Moore 1981).
    let (mut majority, mut lead) = (0, 0usize);
    for bits in values.iter().map(|v| v.to_bits()) {
        match (bits == majority, lead) {
            (true, _) => lead += 1,
            (false, 0) => (majority, lead) = (bits, 1),
            (false, _) => lead -= 1,
        }
    }
    let count = values.iter().filter(|v| v.to_bits() == majority).count();
    count * 10 > values.len() * 9
}

/// Whether elements are as random ones are, so that the errors of their sums cancel: neither their sum nor that of the products of neighbours is more
/// than a quarter of what it would be if all had one sign.
pub fn is_random(values: &[f64]) -> bool {
    let is_small = |terms: &mut dyn Iterator<Item = f64>| {
        let (sum, magnitude) = terms.fold((0.0, 0.0), |(sum, all), v| (sum + v, all + v.abs()));
        sum.abs() < magnitude / 4.0
    };
    is_small(&mut values.iter().copied()) && is_small(&mut values.windows(2).map(|pair| pair[0] * pair[1]))
}
