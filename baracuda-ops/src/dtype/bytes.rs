//! Elements of one byte that Rust has no type for: each byte is a value.

use std::fmt;

/// A [`Bool`](super::DType::Bool) element: false is the byte 0, true is 1. Any other byte is true, too, so that no byte is invalid.
///
/// ```
/// use baracuda_ops::Bool;
/// let bytes = [0u8, 1, 2].map(Bool::from_bits);
/// assert_eq!(bytes.map(Bool::get), [false, true, true]);
/// assert_eq!((Bool::from(true).to_bits(), bytes[2]), (1, Bool::new(true)));
/// ```
#[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct Bool(u8);

impl Bool {
    /// An element of this value.
    pub const fn new(value: bool) -> Self {
        Self(value as u8)
    }

    /// An element of this byte.
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// Whether it is true.
    pub const fn get(self) -> bool {
        self.0 != 0
    }

    /// The byte.
    pub const fn to_bits(self) -> u8 {
        self.0
    }
}

impl From<bool> for Bool {
    fn from(value: bool) -> Self {
        Self::new(value)
    }
}

impl From<Bool> for bool {
    fn from(element: Bool) -> Self {
        element.get()
    }
}

impl PartialEq for Bool {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for Bool {}

impl fmt::Debug for Bool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// Declares a floating-point type of 8 bits.
macro_rules! eight_bits {
    ($(#[$doc:meta])* $Name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
        #[repr(transparent)]
        pub struct $Name(u8);

        impl $Name {
            /// An element of these bits.
            pub const fn from_bits(bits: u8) -> Self {
                Self(bits)
            }

            /// The bits.
            pub const fn to_bits(self) -> u8 {
                self.0
            }

            /// The value, which f64 holds exactly.
            pub fn to_f64(self) -> f64 {
                f64::from(self.to_f32())
            }
        }

        impl PartialEq for $Name {
            fn eq(&self, other: &Self) -> bool {
                self.to_f32() == other.to_f32()
            }
        }

        impl fmt::Debug for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.to_f32().fmt(f)
            }
        }
    };
}

eight_bits! {
    /// An [`F8E4M3`](super::DType::F8E4M3) element: a sign, 4 bits of exponent with a bias of 7, 3 of fraction. The greatest number is 448, there are no
    /// infinities, and all ones but for the sign are NaN.
    ///
    /// Source: Open Compute Project, "OCP 8-bit Floating Point Specification (OFP8)", 2023.
    F8E4M3
}
eight_bits! {
    /// An [`F8E5M2`](super::DType::F8E5M2) element: a sign, 5 bits of exponent with a bias of 15, 2 of fraction; infinities and NaN as in IEEE 754. The greatest
    /// number is 57344.
    ///
    /// Source: Open Compute Project, "OCP 8-bit Floating Point Specification (OFP8)", 2023.
    F8E5M2
}

impl F8E4M3 {
    /// The value, which f32 holds exactly.
    pub fn to_f32(self) -> f32 {
        let (magnitude, sign) = (u16::from(self.0 & 0x7f), u16::from(self.0 & 0x80) << 8);
        if magnitude == 0x7f {
            return f32::NAN;
        }
        // As the bits of a binary16 it is 2^-8 times the value, also where it is subnormal: the biases differ by 8.
        half::f16::from_bits(magnitude << 7 | sign).to_f32() * 256.0
    }

    /// The nearest number, ties to even; beyond the greatest that one, and NaN of infinities and NaN.
    pub fn from_f64(value: f64) -> Self {
        let bits = if value.is_finite() { nearest::<3, 7>(value.abs()).min(0x7e) } else { 0x7f };
        Self(bits | sign(value))
    }
}

impl F8E5M2 {
    /// The value, which f32 holds exactly.
    pub fn to_f32(self) -> f32 {
        half::f16::from_bits(u16::from(self.0) << 8).to_f32()
    }

    /// The nearest number, ties to even; beyond the greatest infinity.
    pub fn from_f64(value: f64) -> Self {
        let bits = if value.is_nan() { 0x7e } else { nearest::<2, 15>(value.abs()).min(0x7c) };
        Self(bits | sign(value))
    }
}

fn sign(value: f64) -> u8 {
    if value.is_sign_negative() { 0x80 } else { 0 }
}

/// The bits of the nearest number of a type with so many bits of fraction and this bias, of a magnitude; beyond the bits of a byte the greatest byte.
fn nearest<const FRACTION: u32, const BIAS: u64>(magnitude: f64) -> u8 {
    let (shift, rebias) = (52 - FRACTION, (1023 - BIAS) << FRACTION);
    let bits = magnitude.to_bits();
    let rounded = (bits + (1 << (shift - 1)) - 1 + (bits >> shift & 1)) >> shift;
    // In the sum with 2^52 times the smallest subnormal, its multiples are the last bits.
    let unit = f64::from_bits((1023 + 52 + 1 - BIAS - u64::from(FRACTION)) << 52);
    let subnormal = (magnitude.min(1.0) + unit).to_bits() - unit.to_bits();
    let is_normal = bits >> 52 > 1023 - BIAS;
    u8::try_from(if is_normal { rounded - rebias } else { subnormal }).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each finite number is the nearest of itself; between two neighbours the nearer one is, in the middle the even one.
    fn check(value: fn(u8) -> f64, bits: fn(f64) -> u8, greatest: u8) {
        for low in 0..greatest {
            let (below, above) = (value(low), value(low + 1));
            assert!(below < above, "{low}");
            let middle = below.midpoint(above);
            let even = low + (low & 1);
            for (number, expected) in
                [(below, low), (middle, even), (middle.next_down(), low), (middle.next_up(), low + 1)]
            {
                assert_eq!((bits(number), bits(-number)), (expected, expected | 0x80), "{number:e}");
            }
            assert_eq!(value(low | 0x80), -below);
        }
        assert_eq!(bits(value(greatest)), greatest);
        assert_eq!(bits(f64::from_bits(1)), 0);
    }

    #[test]
    fn the_nearest_number_is_found() {
        check(|bits| F8E4M3::from_bits(bits).to_f64(), |value| F8E4M3::from_f64(value).to_bits(), 0x7e);
        check(|bits| F8E5M2::from_bits(bits).to_f64(), |value| F8E5M2::from_f64(value).to_bits(), 0x7b);
        assert_eq!((F8E4M3::from_bits(0x7e).to_f32(), F8E5M2::from_bits(0x7b).to_f32()), (448.0, 57344.0));
        assert_eq!((F8E4M3::from_bits(1).to_f64(), F8E5M2::from_bits(1).to_f64()), (2f64.powi(-9), 2f64.powi(-16)));
    }

    #[test]
    fn beyond_the_greatest_e4m3_saturates_and_e5m2_is_infinite() {
        for huge in [465.0, 1e300] {
            assert_eq!([huge, -huge].map(|value| F8E4M3::from_f64(value).to_f32()), [448.0, -448.0]);
        }
        for special in [f64::INFINITY, f64::NAN] {
            assert!(F8E4M3::from_f64(special).to_f32().is_nan());
        }
        let infinite = [61440.0, 1e300, f64::INFINITY, -1e300].map(|value| F8E5M2::from_f64(value).to_f32());
        assert_eq!(infinite, [f32::INFINITY, f32::INFINITY, f32::INFINITY, f32::NEG_INFINITY]);
        assert_eq!(F8E5M2::from_f64(61439.0).to_f32(), 57344.0);
        assert!(F8E5M2::from_f64(f64::NAN).to_f32().is_nan());
    }
}
