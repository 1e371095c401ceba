//! What the tests compare, on every device that is there: values and gradients of a function of tensors.

#![allow(dead_code, reason = "each file of tests uses a part")]

use std::io::Write;
use std::sync::LazyLock;

use candle_core::{D, DType, Device, Result, Shape, Tensor, Var};

/// A function of tensors.
pub(crate) type Function<'f> = &'f dyn Fn(&[Tensor]) -> Result<Tensor>;

/// The CPU and, with the feature `cuda`, the first GPU. Where there is none a line says so.
///
/// # Errors
/// There is none, and `BOPS_REQUIRE`, a list such as `cpu,cuda`, names it.
pub(crate) fn devices() -> Result<&'static [Device]> {
    static CUDA: LazyLock<Result<Device>> = LazyLock::new(|| {
        let cuda = Device::new_cuda(0);
        if let (true, Err(why)) = (cfg!(feature = "cuda"), &cuda) {
            let why = why.to_string();
            // Not `eprintln`, whose lines the test harness keeps.
            let line = format!("CUDA is left out: {}\n", why.lines().next().unwrap_or_default());
            drop(std::io::stderr().write_all(line.as_bytes()));
        }
        cuda
    });
    static DEVICES: LazyLock<Vec<Device>> =
        LazyLock::new(|| [Device::Cpu].into_iter().chain(CUDA.iter().cloned()).collect());
    let required = std::env::var("BOPS_REQUIRE").unwrap_or_default();
    match &*CUDA {
        Err(why) if required.split(',').any(|name| name.trim() == "cuda") => {
            candle_core::bail!("BOPS_REQUIRE={required}, but there is no CUDA device: {why}")
        }
        _ => Ok(&DEVICES),
    }
}

/// Numbers from -1 to 1, of f64 on the CPU, that depend on the seed alone.
pub(crate) fn random(shape: impl Into<Shape>, seed: u64) -> Result<Tensor> {
    let shape = shape.into();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let numbers: Vec<f64> = (0..shape.elem_count())
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
        })
        .collect();
    Tensor::from_vec(numbers, shape, &Device::Cpu)
}

/// How a tensor lies: the tensor that holds its elements, and the view of that with its values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Lying {
    Contiguous,
    /// The last two extents are swapped in memory.
    Transposed,
    /// Others lie before and behind each row.
    BetweenColumns,
    /// Others lie before the first row.
    BehindRows,
}

impl Lying {
    pub(crate) const ALL: [Self; 4] = [Self::Contiguous, Self::Transposed, Self::BetweenColumns, Self::BehindRows];

    fn holder(self, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Transposed if x.rank() >= 2 => x.transpose(D::Minus2, D::Minus1)?.contiguous(),
            Self::BetweenColumns if x.rank() >= 1 => x.pad_with_zeros(D::Minus1, 3, 2),
            Self::BehindRows if x.rank() >= 1 => x.pad_with_zeros(0, 1, 0),
            _ => x.contiguous(),
        }
    }

    /// The part of the holder, or of a gradient of it, that is x.
    fn view(self, holder: &Tensor) -> Result<Tensor> {
        match self {
            Self::Transposed if holder.rank() >= 2 => holder.transpose(D::Minus2, D::Minus1),
            Self::BetweenColumns if holder.rank() >= 1 => {
                holder.narrow(D::Minus1, 3, holder.dim(D::Minus1)?.saturating_sub(5))
            }
            Self::BehindRows if holder.rank() >= 1 => holder.narrow(0, 1, holder.dim(0)?.saturating_sub(1)),
            _ => Ok(holder.clone()),
        }
    }
}

/// The value of a function on a device, and the gradients of all inputs for a cotangent that depends on the shape alone, all as f64 on the CPU.
pub(crate) fn evaluate(
    device: &Device,
    function: Function<'_>,
    inputs: &[Tensor],
    dtype: DType,
    lying: Lying,
) -> Result<(Tensor, Vec<Tensor>)> {
    let var = |x| Var::from_tensor(&lying.holder(&of_type(x, dtype)?)?.to_device(device)?);
    let vars: Vec<Var> = inputs.iter().map(var).collect::<Result<_>>()?;
    let views: Vec<Tensor> = vars.iter().map(|var| lying.view(var)).collect::<Result<_>>()?;
    let y = function(&views)?;
    let gradients = y.mul(&cotangent(&y)?)?.sum_all()?.backward()?;
    let gradients = vars.iter().map(|var| match gradients.get(var) {
        Some(gradient) => lying.view(gradient)?.to_dtype(DType::F64)?.to_device(&Device::Cpu),
        None => candle_core::bail!("a variable has no gradient"),
    });
    Ok((y.detach().to_dtype(DType::F64)?.to_device(&Device::Cpu)?, gradients.collect::<Result<_>>()?))
}

/// Indices stay as they are.
fn of_type(x: &Tensor, dtype: DType) -> Result<Tensor> {
    if x.dtype().is_float() { x.to_dtype(dtype) } else { Ok(x.clone()) }
}

/// What arrives at y: numbers that all types have.
pub(crate) fn cotangent(y: &Tensor) -> Result<Tensor> {
    random(y.shape(), 77)?.to_dtype(DType::F16)?.to_dtype(y.dtype())?.to_device(y.device())
}

/// The greatest difference of two tensors, by the greatest element, which counts as 1 if it is smaller.
pub(crate) fn difference(got: &Tensor, expected: &Tensor) -> Result<f64> {
    if got.dims() != expected.dims() {
        candle_core::bail!("the shapes are {:?} and {:?}", got.dims(), expected.dims());
    }
    let list = |tensor: &Tensor| tensor.to_device(&Device::Cpu)?.flatten_all()?.to_dtype(DType::F64)?.to_vec1::<f64>();
    let [got, expected] = [got, expected].map(list);
    let (got, expected) = (got?, expected?);
    let scale = expected.iter().fold(1.0, |scale: f64, x| scale.max(x.abs()));
    let worst = got.iter().zip(&expected).map(|(a, b)| if a.is_nan() { f64::INFINITY } else { (a - b).abs() });
    Ok(worst.fold(0.0, f64::max) / scale)
}

/// Twice the last place of a type where one rounding is all, and room for sums in it.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-12,
        DType::F32 => 1e-5,
        DType::F16 => 4e-3,
        _ => 3e-2,
    }
}

/// Compares a function, on every device, with its composition of candle's single ops, which is computed on the CPU in f64 from the inputs as the type has them,
/// in every type and layout; and its gradients in f64 with finite differences.
pub(crate) fn compare(name: &str, inputs: &[Tensor], ours: Function<'_>, composed: Function<'_>) -> Result<()> {
    for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
        let rounded: Vec<Tensor> =
            inputs.iter().map(|x| of_type(&of_type(x, dtype)?, DType::F64)).collect::<Result<_>>()?;
        let (expected, gradients) = evaluate(&Device::Cpu, composed, &rounded, DType::F64, Lying::Contiguous)?;
        for (device, lying) in devices()?.iter().flat_map(|device| Lying::ALL.map(|lying| (device, lying))) {
            let name = format!("{name} of {dtype:?}, {lying:?}, on {:?}", device.location());
            let (y, ours) =
                evaluate(device, ours, inputs, dtype, lying).map_err(|error| error.context(name.clone()))?;
            let apart = difference(&y, &expected)?;
            assert!(apart <= tolerance(dtype), "{name}: values are {apart:e} apart");
            for (at, (gradient, expected)) in ours.iter().zip(&gradients).enumerate() {
                let apart = difference(gradient, expected)?;
                assert!(apart <= tolerance(dtype), "{name}: gradient {at} is {apart:e} apart");
            }
        }
    }
    differentiate(name, inputs, ours)
}

/// Compares gradients in f64 with finite differences, on every device.
pub(crate) fn differentiate(name: &str, inputs: &[Tensor], function: Function<'_>) -> Result<()> {
    devices()?.iter().try_for_each(|device| differentiate_on(device, name, inputs, function))
}

pub(crate) fn differentiate_on(device: &Device, name: &str, inputs: &[Tensor], function: Function<'_>) -> Result<()> {
    let (_, gradients) = evaluate(device, function, inputs, DType::F64, Lying::Contiguous)?;
    let on_device: Vec<Tensor> = inputs.iter().map(|x| x.to_device(device)).collect::<Result<_>>()?;
    let loss = |inputs: &[Tensor]| -> Result<f64> {
        let y = function(inputs)?;
        y.mul(&cotangent(&y)?)?.sum_all()?.to_dtype(DType::F64)?.to_scalar()
    };
    let step = 1e-5;
    for (input, gradient) in gradients.iter().enumerate() {
        let values = inputs[input].flatten_all()?.to_vec1::<f64>()?;
        let gradient = gradient.flatten_all()?.to_vec1::<f64>()?;
        for at in 0..values.len() {
            let moved = |by: f64| -> Result<f64> {
                let mut values = values.clone();
                values[at] += by;
                let mut moved = on_device.clone();
                moved[input] = Tensor::from_vec(values, inputs[input].shape(), device)?;
                loss(&moved)
            };
            let slope = (moved(step)? - moved(-step)?) / (2.0 * step);
            let apart = (slope - gradient[at]).abs();
            assert!(
                apart <= 1e-6 * slope.abs().max(1.0),
                "{name} on {:?}: gradient {input}[{at}] is {}, differences say {slope}",
                device.location(),
                gradient[at]
            );
        }
    }
    Ok(())
}
