//! Element types and exact real numbers.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use bytes::{Bool, F8E4M3, F8E5M2};

use crate::error::Error;
use crate::json;

mod bytes;

/// Type of the elements of a tensor.
///
/// ```
/// use baracuda_ops::{DType, Error};
/// let dtype: DType = "bf16".parse()?;
/// assert_eq!((dtype, dtype.to_string()), (DType::BF16, "bf16".into()));
/// assert!(matches!("f8".parse::<DType>(), Err(Error::UnknownDType { .. })));
/// # Ok::<(), Error>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// IEEE binary64.
    F64,
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// The upper half of a binary32.
    BF16,
    /// Two's complement, 64 bits.
    I64,
    /// Two's complement, 32 bits.
    I32,
    /// Unsigned, 32 bits.
    U32,
    /// One byte: 0 is false, 1 is true. Of what is read every other byte is true as well; it is never written.
    Bool,
    /// Unsigned, 8 bits.
    U8,
    /// Two's complement, 8 bits.
    I8,
    /// 4 bits of exponent and 3 of fraction, without infinities (OCP 8-bit floating point, E4M3). No op computes in it: it is stored and cast.
    F8E4M3,
    /// The upper half of a binary16 (OCP 8-bit floating point, E5M2). No op computes in it: it is stored and cast.
    F8E5M2,
}

impl DType {
    /// Every type, in declaration order.
    pub const ALL: [Self; 12] = [
        Self::F64,
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::I64,
        Self::I32,
        Self::U32,
        Self::Bool,
        Self::U8,
        Self::I8,
        Self::F8E4M3,
        Self::F8E5M2,
    ];

    /// Bytes of one element.
    pub const fn size_bytes(self) -> u64 {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::Bool | Self::U8 | Self::I8 | Self::F8E4M3 | Self::F8E5M2 => 1,
        }
    }

    /// The name used in JSON, errors and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::I64 => "i64",
            Self::I32 => "i32",
            Self::U32 => "u32",
            Self::Bool => "bool",
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::F8E4M3 => "f8e4m3",
            Self::F8E5M2 => "f8e5m2",
        }
    }

    /// Whether the type is a floating-point type.
    pub const fn is_float(self) -> bool {
        self.is_computed() || matches!(self, Self::F8E4M3 | Self::F8E5M2)
    }

    /// Whether the type is a floating-point type that ops compute with: f64, f32, f16 or bf16.
    pub(crate) const fn is_computed(self) -> bool {
        matches!(self, Self::F64 | Self::F32 | Self::F16 | Self::BF16)
    }

    /// Whether the type is an integer type. [`Bool`](Self::Bool) is none.
    pub const fn is_integer(self) -> bool {
        matches!(self, Self::I64 | Self::I32 | Self::U32 | Self::U8 | Self::I8)
    }

    /// The type in which ops on this type accumulate: f64 for f64, f32 for the narrower floats, itself for others.
    pub const fn accumulator(self) -> Self {
        match self {
            Self::F16 | Self::BF16 | Self::F8E4M3 | Self::F8E5M2 => Self::F32,
            other => other,
        }
    }

    /// Half the distance between 1 and the next representable number; 0 for types other than floating-point types.
    pub const fn unit_roundoff(self) -> f64 {
        match self {
            Self::F64 => f64::EPSILON / 2.0,
            Self::F32 => f32::EPSILON as f64 / 2.0,
            Self::F16 => 1.0 / 2048.0,
            Self::BF16 => 1.0 / 256.0,
            Self::F8E4M3 => 1.0 / 16.0,
            Self::F8E5M2 => 1.0 / 8.0,
            Self::I64 | Self::I32 | Self::U32 | Self::Bool | Self::U8 | Self::I8 => 0.0,
        }
    }

    /// The smallest positive subnormal; 0 for types other than floating-point types.
    pub fn smallest_subnormal(self) -> f64 {
        match self {
            Self::F64 => f64::from_bits(1),
            Self::F32 => f64::from(f32::from_bits(1)),
            Self::F16 => half::f16::from_bits(1).to_f64(),
            Self::BF16 => half::bf16::from_bits(1).to_f64(),
            Self::F8E4M3 => F8E4M3::from_bits(1).to_f64(),
            Self::F8E5M2 => F8E5M2::from_bits(1).to_f64(),
            Self::I64 | Self::I32 | Self::U32 | Self::Bool | Self::U8 | Self::I8 => 0.0,
        }
    }
}

json::named!(DType);

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// From the name that is displayed.
///
/// # Errors
/// [`Error::UnknownDType`] with the names that exist.
impl FromStr for DType {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::ALL
            .into_iter()
            .find(|dtype| dtype.name() == name)
            .ok_or_else(|| Error::UnknownDType { name: name.into(), known: Self::ALL.map(Self::name).into() })
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type whose slices can be uploaded, downloaded and passed as operands. Those of 16 bits are the types of the crate `half`, 2.x;
/// [`Bool`], [`F8E4M3`] and [`F8E5M2`] are bytes, of which every one is a value.
pub trait Element: bytemuck::Pod + sealed::Sealed {
    /// The matching element type.
    const DTYPE: DType;
}

/// Ties a Rust type to its [`DType`].
macro_rules! element {
    ($($rust:ty => $dtype:ident),* $(,)?) => {
        $(impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const DTYPE: DType = DType::$dtype;
        })*
    };
}
element!(f64 => F64, f32 => F32, half::f16 => F16, half::bf16 => BF16, i64 => I64, i32 => I32, u32 => U32);
element!(Bool => Bool, u8 => U8, i8 => I8, F8E4M3 => F8E4M3, F8E5M2 => F8E5M2);

/// A finite f64 that compares and hashes by its bits, so that descriptors can be keys.
///
/// `-0.0` becomes `0.0`.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Real(f64);

impl Real {
    /// A real number, or `None` for NaN and the infinities.
    pub fn new(value: f64) -> Option<Self> {
        // Adding +0 turns -0 into +0 and keeps everything else.
        value.is_finite().then_some(Self(value + 0.0))
    }

    /// The value.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Real {
    type Error = String;

    fn try_from(value: f64) -> Result<Self, String> {
        Self::new(value).ok_or_else(|| format!("{value} is not finite"))
    }
}

impl From<Real> for f64 {
    fn from(real: Real) -> Self {
        real.0
    }
}

impl PartialEq for Real {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Real {}

impl Hash for Real {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

impl fmt::Debug for Real {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_refuses_what_is_not_finite_and_has_one_zero() {
        assert!(Real::new(f64::NAN).is_none());
        assert!(Real::new(f64::INFINITY).is_none());
        assert_eq!(Real::new(-0.0), Real::new(0.0));
    }

    #[test]
    fn names_are_those_of_the_json() {
        for dtype in DType::ALL {
            assert_eq!(serde_json::to_string(&dtype).unwrap(), format!("\"{dtype}\""));
            assert_eq!(dtype.to_string().parse(), Ok(dtype));
        }
        for name in ["", "F32", " f32", "float"] {
            let error = name.parse::<DType>().unwrap_err();
            assert!(
                error.to_string().contains("the types are f64, f32, f16, bf16, i64, i32, u32, bool, u8, i8"),
                "{error}"
            );
        }
    }
}
