//! Tensors as f64 values in row-major order, and the bytes that hold them in any layout. What f64 does not hold, i64 beyond 2^53, is there as i64, too.
//!
//! Rounding and strides are written here anew, so that the library's own are not compared with themselves.

use std::ops::Range;

use baracuda_ops::{DType, TensorDesc};
use half::{bf16, f16};

/// The values of one operand, in row-major order of its extents.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// The operand's name.
    pub name: String,
    /// Element type in which the values are exact.
    pub dtype: DType,
    /// Extents.
    pub dims: Vec<u64>,
    /// Values; of i64 the nearest.
    pub values: Vec<f64>,
    /// The values of i64 themselves; of other types there are none.
    pub integers: Option<Vec<i64>>,
}

/// The operands of one case, by name.
#[derive(Clone, Debug, Default)]
pub struct Tensors(pub Vec<Tensor>);

impl Tensors {
    /// The operand of that name, if present.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.0.iter().find(|t| t.name == name)
    }

    /// The values of the operand of that name.
    pub fn values(&self, name: &str) -> Option<&[f64]> {
        self.get(name).map(|t| t.values.as_slice())
    }

    /// Adds an operand of values that f64 holds.
    pub fn push(&mut self, name: &str, desc: &TensorDesc, values: Vec<f64>) {
        let integers = (desc.dtype() == DType::I64).then(|| values.iter().map(|&value| value as i64).collect());
        self.0.push(Tensor { name: name.into(), dtype: desc.dtype(), dims: desc.dims().to_vec(), values, integers });
    }

    /// Adds an operand that starts at the front of `bytes`, with all bits of its elements.
    pub fn push_bytes(&mut self, name: &str, desc: &TensorDesc, bytes: &[u8]) {
        let integers = (desc.dtype() == DType::I64).then(|| elements(desc, bytes, i64::from_le_bytes));
        let values = gather(desc, bytes);
        self.0.push(Tensor { name: name.into(), dtype: desc.dtype(), dims: desc.dims().to_vec(), values, integers });
    }
}

impl Tensor {
    /// Writes the values into the tensor of these extents that starts at the front of `bytes`. Integers that are those of the values keep all their bits.
    pub fn scatter(&self, desc: &TensorDesc, bytes: &mut [u8]) {
        match &self.integers {
            Some(integers) if desc.dtype() == DType::I64 => {
                // Tests change the values alone.
                let own =
                    |(&integer, &value): (&i64, &f64)| if integer as f64 == value { integer } else { value as i64 };
                let integers: Vec<i64> = integers.iter().zip(&self.values).map(own).collect();
                set_elements(desc, &integers, bytes, i64::to_le_bytes);
            }
            _ => scatter(desc, &self.values, bytes),
        }
    }
}

/// Offsets in elements of a tensor's elements, in row-major order.
pub fn offsets(desc: &TensorDesc) -> Vec<u64> {
    if desc.is_empty() {
        return Vec::new();
    }
    let mut offsets = vec![0u64];
    for (&dim, &stride) in desc.dims().iter().zip(desc.strides()) {
        offsets = offsets.iter().flat_map(|&base| (0..dim).map(move |i| base + i * stride)).collect();
    }
    offsets
}

/// The values of a tensor that starts at the front of `bytes`.
pub fn gather(desc: &TensorDesc, bytes: &[u8]) -> Vec<f64> {
    match desc.dtype() {
        DType::F64 => elements(desc, bytes, f64::from_le_bytes),
        DType::F32 => elements(desc, bytes, |b| f64::from(f32::from_le_bytes(b))),
        DType::F16 => elements(desc, bytes, |b| f16::from_le_bytes(b).to_f64()),
        DType::BF16 => elements(desc, bytes, |b| bf16::from_le_bytes(b).to_f64()),
        DType::I64 => elements(desc, bytes, |b| i64::from_le_bytes(b) as f64),
        DType::I32 => elements(desc, bytes, |b| f64::from(i32::from_le_bytes(b))),
        DType::U32 => elements(desc, bytes, |b| f64::from(u32::from_le_bytes(b))),
        DType::Bool => elements(desc, bytes, |[b]| f64::from(b != 0)),
        DType::U8 => elements(desc, bytes, |[b]| f64::from(b)),
        DType::I8 => elements(desc, bytes, |b| f64::from(i8::from_le_bytes(b))),
        DType::F8E4M3 | DType::F8E5M2 => elements(desc, bytes, |[b]| eight_bits(desc.dtype(), b)),
        other => panic!("no way to load {other}"),
    }
}

fn elements<const N: usize, T>(desc: &TensorDesc, bytes: &[u8], load: impl Fn([u8; N]) -> T) -> Vec<T> {
    let (bytes, _) = bytes.as_chunks::<N>();
    if desc.is_contiguous() {
        return bytes[..desc.elements() as usize].iter().map(|b| load(*b)).collect();
    }
    offsets(desc).iter().map(|&at| load(bytes[at as usize])).collect()
}

/// Writes values, rounded to the tensor's type, into the tensor that starts at the front of `bytes`.
pub fn scatter(desc: &TensorDesc, values: &[f64], bytes: &mut [u8]) {
    let dtype = desc.dtype();
    match dtype {
        DType::F64 => set_elements(desc, values, bytes, f64::to_le_bytes),
        DType::F32 => set_elements(desc, values, bytes, |v| (v as f32).to_le_bytes()),
        DType::F16 => set_elements(desc, values, bytes, |v| f16::from_f32(rounded(dtype, v) as f32).to_le_bytes()),
        DType::BF16 => set_elements(desc, values, bytes, |v| bf16::from_f32(rounded(dtype, v) as f32).to_le_bytes()),
        DType::I64 => set_elements(desc, values, bytes, |v| (v as i64).to_le_bytes()),
        DType::I32 => set_elements(desc, values, bytes, |v| (v as i32).to_le_bytes()),
        DType::U32 => set_elements(desc, values, bytes, |v| (v as u32).to_le_bytes()),
        DType::Bool => set_elements(desc, values, bytes, |v| [u8::from(v != 0.0)]),
        DType::U8 => set_elements(desc, values, bytes, |v| [v as u8]),
        DType::I8 => set_elements(desc, values, bytes, |v| (v as i8).to_le_bytes()),
        DType::F8E4M3 | DType::F8E5M2 => {
            set_elements(desc, values, bytes, |v| [of_eight_bits(dtype, rounded(dtype, v))]);
        }
        other => panic!("no way to store {other}"),
    }
}

fn set_elements<const N: usize, T: Copy>(
    desc: &TensorDesc,
    values: &[T],
    bytes: &mut [u8],
    store: impl Fn(T) -> [u8; N],
) {
    let (bytes, _) = bytes.as_chunks_mut::<N>();
    if desc.is_contiguous() {
        bytes.iter_mut().zip(values).for_each(|(b, &value)| *b = store(value));
    } else {
        offsets(desc).iter().zip(values).for_each(|(&at, &value)| bytes[at as usize] = store(value));
    }
}

/// The value of a floating-point number of 8 bits: a fraction of whole numbers times a power of two.
fn eight_bits(dtype: DType, byte: u8) -> f64 {
    let (fraction, bias) = if dtype == DType::F8E4M3 { (3, 7) } else { (2, 15) };
    let (exponent, digits) = (i32::from(byte & 0x7f) >> fraction, f64::from(byte & ((1 << fraction) - 1)));
    let is_nan = if dtype == DType::F8E4M3 { byte & 0x7f == 0x7f } else { byte & 0x7f > 0x7c };
    let magnitude = match exponent {
        _ if is_nan => f64::NAN,
        31 => f64::INFINITY,
        0 => digits * 2f64.powi(1 - bias - fraction),
        _ => (digits + f64::from(1 << fraction)) * 2f64.powi(exponent - bias - fraction),
    };
    if byte & 0x80 == 0 { magnitude } else { -magnitude }
}

/// The byte of a value that the type has: the one that stands for it.
fn of_eight_bits(dtype: DType, value: f64) -> u8 {
    let is_it = |byte: &u8| {
        let known = eight_bits(dtype, *byte);
        known.is_nan() && value.is_nan() || known == value && known.is_sign_negative() == value.is_sign_negative()
    };
    (0..=u8::MAX).find(is_it).expect("a value of the type")
}

/// Sets every byte of a tensor's elements.
pub fn fill(desc: &TensorDesc, byte: u8, bytes: &mut [u8]) {
    visit(desc, |range| bytes[range].fill(byte));
}

/// Visits the bytes of a tensor's elements: of all at once where nothing lies between them, else of one after the other.
pub fn visit(desc: &TensorDesc, mut visitor: impl FnMut(Range<usize>)) {
    let size = desc.dtype().size_bytes() as usize;
    if desc.is_contiguous() {
        return visitor(0..desc.elements() as usize * size);
    }
    for at in offsets(desc) {
        visitor(at as usize * size..(at as usize + 1) * size);
    }
}

/// Fraction bits, exponent of the smallest normal number, greatest finite number.
const fn format(dtype: DType) -> Option<(i32, i32, f64)> {
    match dtype {
        DType::F32 => Some((23, -126, f32::MAX as f64)),
        DType::F16 => Some((10, -14, 65504.0)),
        DType::BF16 => Some((7, -126, 3.389_531_389_251_535_5e38)),
        DType::F8E4M3 => Some((3, -6, 448.0)),
        DType::F8E5M2 => Some((2, -14, 57344.0)),
        _ => None,
    }
}

/// The greatest finite number of a type.
pub fn greatest(dtype: DType) -> f64 {
    format(dtype).map_or(f64::MAX, |(_, _, max)| max)
}

/// The nearest value of a type, ties to even, beyond the greatest an infinity. E4M3 has none: it ends in its greatest number, and of infinities it has NaN.
pub fn rounded(dtype: DType, value: f64) -> f64 {
    let Some((fraction, min_exponent, max)) = format(dtype) else { return value };
    if value == 0.0 || !value.is_finite() {
        return if dtype == DType::F8E4M3 && value.is_infinite() { f64::NAN } else { value };
    }
    let beyond = if dtype == DType::F8E4M3 { max } else { f64::INFINITY };
    let exponent = ((value.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(min_exponent);
    // Powers of two well inside f64's range, so that scaling is exact. Beside 1.5 * 2^52, f64 holds integers alone.
    let two_to = |exponent: i32| f64::from_bits(((exponent + 1023) as u64) << 52);
    let integers = 1.5 * two_to(52);
    let nearest = ((value * two_to(fraction - exponent) + integers) - integers) * two_to(exponent - fraction);
    let nearest = nearest.copysign(value);
    if nearest.abs() > max { beyond.copysign(value) } else { nearest }
}
