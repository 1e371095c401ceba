//! Errors of baracuda-ops inside of candle's.

use std::error::Error as StdError;
use std::fmt;

use candle_core::{DType, Error};

/// What baracuda-ops refused, as candle's [`Error::WrappedContext`] carries it: it shows as the refusal's own words, and has it as its
/// [`source`](StdError::source).
#[derive(Clone)]
pub struct Refusal(baracuda_ops::Error);

impl fmt::Debug for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl StdError for Refusal {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.0)
    }
}

/// The error of baracuda-ops from which an error of candle comes, if there is one.
///
/// ```
/// use candle_core::{Device, Tensor};
/// let x = Tensor::zeros((2, 3), candle_core::DType::F32, &Device::Cpu)?;
/// let refused = baracuda_candle::ops::layer_norm_with(&x, 1, None, None, -1.0).unwrap_err();
/// let cause = baracuda_candle::cause(&refused);
/// assert!(matches!(cause, Some(baracuda_ops::Error::InvalidDescriptor { field: "eps", .. })));
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn cause(error: &Error) -> Option<&baracuda_ops::Error> {
    match error {
        Error::WrappedContext { wrapped, .. } => wrapped.downcast_ref::<Refusal>().map(|refusal| &refusal.0),
        Error::Context { inner, .. } | Error::WithPath { inner, .. } | Error::WithBacktrace { inner, .. } => {
            cause(inner)
        }
        _ => None,
    }
}

/// A refusal as an error of candle. `op`: the function that was called.
pub(crate) fn refused(op: &'static str) -> impl Fn(baracuda_ops::Error) -> Error {
    move |error| {
        let context = format!("baracuda-candle {op}");
        Error::WrappedContext { wrapped: Box::new(Refusal(error)), context }.bt()
    }
}

/// The element types that both have.
const DTYPES: [(DType, baracuda_ops::DType); 8] = [
    (DType::F64, baracuda_ops::DType::F64),
    (DType::F32, baracuda_ops::DType::F32),
    (DType::F16, baracuda_ops::DType::F16),
    (DType::BF16, baracuda_ops::DType::BF16),
    (DType::I64, baracuda_ops::DType::I64),
    (DType::I32, baracuda_ops::DType::I32),
    (DType::U32, baracuda_ops::DType::U32),
    (DType::U8, baracuda_ops::DType::U8),
];

/// An element type of candle as one of baracuda-ops.
///
/// # Errors
/// [`Error::UnsupportedDTypeForOp`] of the types that baracuda-ops does not have.
pub(crate) fn dtype(op: &'static str, dtype: DType) -> candle_core::Result<baracuda_ops::DType> {
    let found = DTYPES.iter().find(|(stored, _)| *stored == dtype);
    found.map(|(_, dtype)| *dtype).ok_or_else(|| Error::UnsupportedDTypeForOp(dtype, op).bt())
}

/// The element type of candle's storage for one of baracuda-ops.
///
/// # Errors
/// candle does not have it.
pub(crate) fn stored_dtype(op: &'static str, dtype: baracuda_ops::DType) -> candle_core::Result<DType> {
    let found = DTYPES.iter().find(|(_, own)| *own == dtype);
    found
        .map(|(stored, _)| *stored)
        .ok_or_else(|| Error::msg(format!("baracuda-candle {op}: candle has no {dtype}")).bt())
}
