//! What arithmetic instructions compute, on the bits of registers.
//!
//! Results are rounded as PTX says. The approximate instructions (`ex2.approx` and its like) are exact up to one rounding: their real errors, of
//! a few units in the last place, are not imitated. The limits that PTX gives them are: where `div.approx` is 0, and that an f64 has 20 bits of
//! fraction.

use std::cmp::Ordering;

use half::{bf16, f16};

use crate::ptx::Type;

/// Of up to three registers; 32-bit results fill the lower half.
pub(crate) type Function = fn(u64, u64, u64) -> u64;

fn f(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

fn d(bits: u64) -> f64 {
    f64::from_bits(bits)
}

/// Bits of a result. NaNs of arithmetic have one bit pattern.
fn of(value: f32) -> u64 {
    u64::from(if value.is_nan() { 0x7fff_ffff } else { value.to_bits() })
}

fn of64(value: f64) -> u64 {
    if value.is_nan() { 0xfff8_0000_0000_0000 } else { value.to_bits() }
}

/// Subnormal numbers become zeros of their sign.
fn flush(value: f32) -> f32 {
    if value.is_subnormal() { 0f32.copysign(value) } else { value }
}

/// Where results that are not exact are rounded to.
#[derive(Clone, Copy)]
enum Toward {
    Zero,
    Below,
    Above,
}

/// a b + c, rounded once.
fn fused_toward(toward: Toward, a: f32, b: f32, c: f32) -> f32 {
    // An f64 holds a product of two f32 numbers, and the exact sum is that of two f64 numbers, of which one is what the other was rounded by.
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    if !sum.is_finite() {
        return sum as f32;
    }
    let from_c = sum - product;
    let rest = (product - (sum - from_c)) + (c - from_c);
    if sum == 0.0 {
        let is_below = product.is_sign_negative() || c.is_sign_negative();
        return if matches!(toward, Toward::Below) && is_below { -0.0 } else { sum as f32 };
    }
    let nearest = sum as f32;
    // How far the exact sum is above it: where both are not the same f64 number, their difference is more than the rest.
    let above = sum - f64::from(nearest);
    let above = if above == 0.0 { rest } else { above };
    match toward {
        Toward::Below if above < 0.0 => nearest.next_down(),
        Toward::Above if above > 0.0 => nearest.next_up(),
        Toward::Zero if above < 0.0 && sum > 0.0 => nearest.next_down(),
        Toward::Zero if above > 0.0 && sum < 0.0 => nearest.next_up(),
        _ => nearest,
    }
}

/// `div.approx`: a times the reciprocal of b, which is 0 for numbers above 2^126.
fn quotient_approximate(a: f32, b: f32) -> f32 {
    if b.abs() > f32::powi(2.0, 126) { a * 0f32.copysign(b) } else { a / b }
}

/// An approximation in f64 that reads the upper halves of numbers and gives those of results. Subnormal numbers are zeros of their sign.
fn gross(a: u64, f: fn(f64) -> f64) -> u64 {
    const LOWER: u64 = 0xffff_ffff;
    let flush = |value: f64| if value.is_subnormal() { 0f64.copysign(value) } else { value };
    let result = of64(flush(f(flush(d(a & !LOWER)))));
    if d(result).is_finite() { (result + (LOWER / 2 + 1)) & !LOWER } else { result }
}

/// The lesser, or the other where one is NaN; -0 is less than 0.
macro_rules! extreme {
    ($a:expr, $b:expr, $is_first:ident) => {{
        let (a, b) = ($a, $b);
        if a.is_nan() {
            b
        } else if b.is_nan() || a.$is_first(&b) {
            a
        } else {
            b
        }
    }};
}

/// The lesser; NaN where one is.
fn least_or_nan(a: f32, b: f32) -> f32 {
    if a.is_nan() || b.is_nan() { f32::NAN } else { extreme!(a, b, is_less) }
}

trait Order {
    fn is_less(&self, other: &Self) -> bool;
    fn is_more(&self, other: &Self) -> bool;
}

macro_rules! order {
    ($ty:ty) => {
        impl Order for $ty {
            fn is_less(&self, other: &Self) -> bool {
                self.total_cmp(other).is_lt()
            }

            fn is_more(&self, other: &Self) -> bool {
                self.total_cmp(other).is_gt()
            }
        }
    };
}
order!(f32);
order!(f64);

fn shift(amount: u64, bits: u32) -> u32 {
    (amount as u32).min(bits)
}

fn permute(a: u64, b: u64, selector: u64) -> u64 {
    let bytes = (a & 0xffff_ffff) | (b << 32);
    (0..4).fold(0, |result, i| {
        let select = selector >> (4 * i);
        let byte = (bytes >> (8 * (select & 7))) as u8;
        let byte = if select & 8 != 0 { ((byte as i8) >> 7) as u8 } else { byte };
        result | u64::from(byte) << (8 * i)
    })
}

/// A function of each half of two registers.
fn halves(a: u64, b: u64, f: fn(u16, u16) -> u16) -> u64 {
    u64::from(f(a as u16, b as u16)) | u64::from(f((a >> 16) as u16, (b >> 16) as u16)) << 16
}

/// The function of an arithmetic instruction: its name, its modifiers without the type, and the type.
pub(crate) fn function(base: &str, modifiers: &[&str], ty: Type) -> Option<Function> {
    use Type::{Bits, F32, F64, Signed, Unsigned};
    let has = |modifier: &str| modifiers.contains(&modifier);
    // Only the approximate functions are asked to flush by this library's code.
    if has("ftz") && !has("approx") || has("sat") || has("cc") {
        return None;
    }
    if let Some(toward) = ["rz", "rm", "rp"].into_iter().find(|toward| has(toward)) {
        macro_rules! rounded {
            ($toward:expr) => {
                match base {
                    "add" => |a, b, _| of(fused_toward($toward, f(a), 1.0, f(b))),
                    "sub" => |a, b, _| of(fused_toward($toward, f(a), 1.0, -f(b))),
                    "fma" => |a, b, c| of(fused_toward($toward, f(a), f(b), f(c))),
                    _ => return None,
                }
            };
        }
        return Some(match (toward, ty) {
            ("rz", F32) => rounded!(Toward::Zero),
            ("rm", F32) => rounded!(Toward::Below),
            ("rp", F32) => rounded!(Toward::Above),
            _ => return None,
        });
    }
    Some(match (base, ty) {
        ("mov", _) => |a, _, _| a,
        ("add", F32) => |a, b, _| of(f(a) + f(b)),
        ("sub", F32) => |a, b, _| of(f(a) - f(b)),
        ("mul", F32) => |a, b, _| of(f(a) * f(b)),
        ("fma", F32) => |a, b, c| of(f(a).mul_add(f(b), f(c))),
        ("neg", F32) => |a, _, _| a ^ 0x8000_0000,
        ("abs", F32) => |a, _, _| a & 0x7fff_ffff,
        ("min", F32) if has("xorsign") && has("abs") && has("NaN") => {
            |a, b, _| (of(least_or_nan(f(a).abs(), f(b).abs())) & 0x7fff_ffff) | ((a ^ b) & 0x8000_0000)
        }
        ("min", F32) if has("NaN") => |a, b, _| of(least_or_nan(f(a), f(b))),
        ("max", F32) if has("NaN") => |a, b, _| of(-least_or_nan(-f(a), -f(b))),
        ("min", F32) => |a, b, _| of(extreme!(f(a), f(b), is_less)),
        ("max", F32) => |a, b, _| of(extreme!(f(a), f(b), is_more)),
        ("div", F32) if has("approx") && has("ftz") => {
            |a, b, _| of(flush(quotient_approximate(flush(f(a)), flush(f(b)))))
        }
        ("div", F32) if has("approx") => |a, b, _| of(quotient_approximate(f(a), f(b))),
        ("div", F32) => |a, b, _| of(f(a) / f(b)),
        ("rcp", F32) if has("ftz") => |a, _, _| of(flush(1.0 / flush(f(a)))),
        ("rcp", F32) => |a, _, _| of(1.0 / f(a)),
        ("sqrt", F32) if has("ftz") => |a, _, _| of(flush(f(a)).sqrt()),
        ("sqrt", F32) => |a, _, _| of(f(a).sqrt()),
        ("rsqrt", F32) if has("ftz") => |a, _, _| of((1.0 / f64::from(flush(f(a))).sqrt()) as f32),
        ("rsqrt", F32) => |a, _, _| of((1.0 / f64::from(f(a)).sqrt()) as f32),
        ("ex2", F32) if has("ftz") => |a, _, _| of(flush(f64::from(flush(f(a))).exp2() as f32)),
        ("ex2", F32) => |a, _, _| of(f64::from(f(a)).exp2() as f32),
        ("lg2", F32) if has("ftz") => |a, _, _| of(f64::from(flush(f(a))).log2() as f32),
        ("lg2", F32) => |a, _, _| of(f64::from(f(a)).log2() as f32),
        ("tanh", F32) => |a, _, _| of(f64::from(f(a)).tanh() as f32),
        ("copysign", F32) => |a, b, _| (a & 0x8000_0000) | (b & 0x7fff_ffff),
        ("add", F64) => |a, b, _| of64(d(a) + d(b)),
        ("sub", F64) => |a, b, _| of64(d(a) - d(b)),
        ("mul", F64) => |a, b, _| of64(d(a) * d(b)),
        ("fma", F64) => |a, b, c| of64(d(a).mul_add(d(b), d(c))),
        ("neg", F64) => |a, _, _| a ^ (1 << 63),
        ("abs", F64) => |a, _, _| a & !(1 << 63),
        ("min", F64) => |a, b, _| of64(extreme!(d(a), d(b), is_less)),
        ("max", F64) => |a, b, _| of64(extreme!(d(a), d(b), is_more)),
        ("div", F64) => |a, b, _| of64(d(a) / d(b)),
        ("rcp", F64) if has("approx") => |a, _, _| gross(a, |a| 1.0 / a),
        ("rcp", F64) => |a, _, _| of64(1.0 / d(a)),
        ("sqrt", F64) => |a, _, _| of64(d(a).sqrt()),
        ("rsqrt", F64) if has("ftz") => |a, _, _| gross(a, |a| 1.0 / a.sqrt()),
        ("rsqrt", F64) => |a, _, _| of64(1.0 / d(a).sqrt()),
        ("copysign", F64) => |a, b, _| (a & 1 << 63) | (b & !(1 << 63)),

        ("add", Signed(2) | Unsigned(2)) => |a, b, _| u64::from((a as u16).wrapping_add(b as u16)),
        ("sub", Signed(2) | Unsigned(2)) => |a, b, _| u64::from((a as u16).wrapping_sub(b as u16)),
        ("mul", Signed(2) | Unsigned(2)) if has("lo") => |a, b, _| u64::from((a as u16).wrapping_mul(b as u16)),
        ("mul", Unsigned(2)) if has("wide") => |a, b, _| u64::from(a as u16) * u64::from(b as u16),
        ("mul", Signed(2)) if has("wide") => |a, b, _| u64::from((i32::from(a as i16) * i32::from(b as i16)) as u32),
        ("mad", Signed(2) | Unsigned(2)) if has("lo") => {
            |a, b, c| u64::from((a as u16).wrapping_mul(b as u16).wrapping_add(c as u16))
        }
        ("add", Signed(4) | Unsigned(4)) => |a, b, _| u64::from((a as u32).wrapping_add(b as u32)),
        ("sub", Signed(4) | Unsigned(4)) => |a, b, _| u64::from((a as u32).wrapping_sub(b as u32)),
        ("mul", Signed(4) | Unsigned(4)) if has("lo") => |a, b, _| u64::from((a as u32).wrapping_mul(b as u32)),
        ("mul", Unsigned(4)) if has("hi") => |a, b, _| (u64::from(a as u32) * u64::from(b as u32)) >> 32,
        ("mul", Signed(4)) if has("hi") => {
            |a, b, _| u64::from(((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32)
        }
        ("mul", Unsigned(4)) if has("wide") => |a, b, _| u64::from(a as u32) * u64::from(b as u32),
        ("mul", Signed(4)) if has("wide") => |a, b, _| (i64::from(a as i32) * i64::from(b as i32)) as u64,
        ("mad", Signed(4) | Unsigned(4)) if has("lo") => {
            |a, b, c| u64::from((a as u32).wrapping_mul(b as u32).wrapping_add(c as u32))
        }
        ("mad", Unsigned(4)) if has("wide") => |a, b, c| (u64::from(a as u32) * u64::from(b as u32)).wrapping_add(c),
        ("mad", Signed(4)) if has("wide") => {
            |a, b, c| ((i64::from(a as i32) * i64::from(b as i32)) as u64).wrapping_add(c)
        }
        ("mad", Unsigned(4)) if has("hi") => {
            |a, b, c| u64::from((((u64::from(a as u32) * u64::from(b as u32)) >> 32) as u32).wrapping_add(c as u32))
        }
        ("div", Unsigned(4)) => |a, b, _| u64::from((a as u32).checked_div(b as u32).unwrap_or(u32::MAX)),
        ("rem", Unsigned(4)) => |a, b, _| u64::from((a as u32).checked_rem(b as u32).unwrap_or(a as u32)),
        ("div", Signed(4)) => |a, b, _| u64::from((a as i32).checked_div(b as i32).unwrap_or(-1) as u32),
        ("rem", Signed(4)) => |a, b, _| u64::from((a as i32).checked_rem(b as i32).unwrap_or(0) as u32),
        ("neg", Signed(2)) => |a, _, _| u64::from((a as u16).wrapping_neg()),
        ("neg", Signed(4)) => |a, _, _| u64::from((a as u32).wrapping_neg()),
        ("abs", Signed(4)) => |a, _, _| u64::from((a as i32).unsigned_abs()),
        ("min", Signed(2)) => |a, b, _| u64::from((a as i16).min(b as i16) as u16),
        ("max", Signed(2)) => |a, b, _| u64::from((a as i16).max(b as i16) as u16),
        ("min", Unsigned(2)) => |a, b, _| (a & 0xffff).min(b & 0xffff),
        ("max", Unsigned(2)) => |a, b, _| (a & 0xffff).max(b & 0xffff),
        ("min", Unsigned(4)) => |a, b, _| u64::from((a as u32).min(b as u32)),
        ("max", Unsigned(4)) => |a, b, _| u64::from((a as u32).max(b as u32)),
        ("min", Signed(4)) => |a, b, _| u64::from((a as i32).min(b as i32) as u32),
        ("max", Signed(4)) => |a, b, _| u64::from((a as i32).max(b as i32) as u32),
        ("add", Signed(8) | Unsigned(8)) => |a, b, _| a.wrapping_add(b),
        ("sub", Signed(8) | Unsigned(8)) => |a, b, _| a.wrapping_sub(b),
        ("mul", Signed(8) | Unsigned(8)) if has("lo") => |a, b, _| a.wrapping_mul(b),
        ("mul", Unsigned(8)) if has("hi") => |a, b, _| ((u128::from(a) * u128::from(b)) >> 64) as u64,
        ("mul", Signed(8)) if has("hi") => |a, b, _| ((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64,
        ("mad", Signed(8) | Unsigned(8)) if has("lo") => |a, b, c| a.wrapping_mul(b).wrapping_add(c),
        ("div", Unsigned(8)) => |a, b, _| a.checked_div(b).unwrap_or(u64::MAX),
        ("rem", Unsigned(8)) => |a, b, _| a.checked_rem(b).unwrap_or(a),
        ("div", Signed(8)) => |a, b, _| (a as i64).checked_div(b as i64).unwrap_or(-1) as u64,
        ("rem", Signed(8)) => |a, b, _| (a as i64).checked_rem(b as i64).unwrap_or(0) as u64,
        ("neg", Signed(8)) => |a, _, _| a.wrapping_neg(),
        ("abs", Signed(8)) => |a, _, _| (a as i64).unsigned_abs(),
        ("min", Unsigned(8)) => |a, b, _| a.min(b),
        ("max", Unsigned(8)) => |a, b, _| a.max(b),
        ("min", Signed(8)) => |a, b, _| (a as i64).min(b as i64) as u64,
        ("max", Signed(8)) => |a, b, _| (a as i64).max(b as i64) as u64,

        ("max", Type::F16Pair) if !has("NaN") => {
            |a, b, _| halves(a, b, |a, b| half16(extreme!(wide(a), wide(b), is_more)))
        }
        ("min", Type::F16Pair) if !has("NaN") => {
            |a, b, _| halves(a, b, |a, b| half16(extreme!(wide(a), wide(b), is_less)))
        }
        ("max", Type::Bf16Pair) if !has("NaN") => {
            |a, b, _| halves(a, b, |a, b| brain16(extreme!(wide_brain(a), wide_brain(b), is_more)))
        }
        ("min", Type::Bf16Pair) if !has("NaN") => {
            |a, b, _| halves(a, b, |a, b| brain16(extreme!(wide_brain(a), wide_brain(b), is_less)))
        }

        ("and", Bits(_)) => |a, b, _| a & b,
        ("or", Bits(_)) => |a, b, _| a | b,
        ("xor", Bits(_)) => |a, b, _| a ^ b,
        ("not", Bits(2)) => |a, _, _| !a & 0xffff,
        ("not", Bits(4)) => |a, _, _| !a & 0xffff_ffff,
        ("not", Bits(8)) => |a, _, _| !a,
        ("shl", Bits(2)) => |a, b, _| u64::from((a as u16).checked_shl(shift(b, 16)).unwrap_or(0)),
        ("shl", Bits(4)) => |a, b, _| u64::from((a as u32).checked_shl(shift(b, 32)).unwrap_or(0)),
        ("shl", Bits(8)) => |a, b, _| a.checked_shl(shift(b, 64)).unwrap_or(0),
        ("shr", Bits(2) | Unsigned(2)) => |a, b, _| u64::from((a as u16).checked_shr(shift(b, 16)).unwrap_or(0)),
        ("shr", Bits(4) | Unsigned(4)) => |a, b, _| u64::from((a as u32).checked_shr(shift(b, 32)).unwrap_or(0)),
        ("shr", Bits(8) | Unsigned(8)) => |a, b, _| a.checked_shr(shift(b, 64)).unwrap_or(0),
        ("shr", Signed(2)) => |a, b, _| u64::from((a as i16 >> shift(b, 15)) as u16),
        ("shr", Signed(4)) => |a, b, _| u64::from((a as i32 >> shift(b, 31)) as u32),
        ("shr", Signed(8)) => |a, b, _| ((a as i64) >> shift(b, 63)) as u64,
        ("clz", Bits(4)) => |a, _, _| u64::from((a as u32).leading_zeros()),
        ("clz", Bits(8)) => |a, _, _| u64::from(a.leading_zeros()),
        ("popc", Bits(4)) => |a, _, _| u64::from((a as u32).count_ones()),
        ("popc", Bits(8)) => |a, _, _| u64::from(a.count_ones()),
        ("brev", Bits(4)) => |a, _, _| u64::from((a as u32).reverse_bits()),
        ("prmt", Bits(4)) => permute,
        // 32 bits of the pair of b, the upper, and a.
        ("shf", Bits(4)) if has("wrap") && has("l") => |a, b, c| (((b << 32) | (a & 0xffff_ffff)) << (c & 31)) >> 32,
        ("shf", Bits(4)) if has("wrap") && has("r") => {
            |a, b, c| (((b << 32) | (a & 0xffff_ffff)) >> (c & 31)) & 0xffff_ffff
        }
        _ => return None,
    })
}

fn wide(half: u16) -> f32 {
    f16::from_bits(half).to_f32()
}

fn wide_brain(half: u16) -> f32 {
    bf16::from_bits(half).to_f32()
}

/// `lop3` with a table: every combination of bits of three operands.
pub(crate) fn lop3(a: u64, b: u64, c: u64, table: u64) -> u64 {
    (0..8).filter(|row| table >> row & 1 == 1).fold(0, |result, row| {
        let pick = |value: u64, bit: u64| if row >> bit & 1 == 1 { value } else { !value };
        result | (pick(a, 2) & pick(b, 1) & pick(c, 0) & 0xffff_ffff)
    })
}

/// The field of `bits` bits from `start` on of `b`, replaced by `a`.
pub(crate) fn insert(a: u64, b: u64, start: u64, bits: u64, width: u64) -> u64 {
    let (start, bits) = ((start & 0xff).min(width), (bits & 0xff).min(width));
    let bits = bits.min(width - start);
    if bits == 0 {
        return b;
    }
    let mask = (u64::MAX >> (64 - bits)) << start;
    (b & !mask) | (a << start & mask)
}

/// The field of `bits` bits from `start` on of `a`.
pub(crate) fn extract(a: u64, start: u64, bits: u64, ty: Type) -> u64 {
    let width = u64::from(ty.bytes()) * 8;
    let (start, bits) = ((start & 0xff).min(width), (bits & 0xff).min(width));
    let bits = bits.min(width - start);
    if bits == 0 {
        return 0;
    }
    let field = a >> start & (u64::MAX >> (64 - bits));
    match ty {
        Type::Signed(bytes) if field >> (bits - 1) & 1 == 1 => {
            (field | !(u64::MAX >> (64 - bits))) & (u64::MAX >> (64 - u64::from(bytes) * 8))
        }
        _ => field,
    }
}

/// The comparison of an instruction.
pub(crate) fn comparison(name: &str, ty: Type) -> Option<fn(u64, u64) -> bool> {
    macro_rules! ordered {
        ($of:expr) => {
            match name {
                "eq" => |a, b| $of(a) == $of(b),
                "ne" => |a, b| $of(a) < $of(b) || $of(a) > $of(b),
                "lt" => |a, b| $of(a) < $of(b),
                "le" => |a, b| $of(a) <= $of(b),
                "gt" => |a, b| $of(a) > $of(b),
                "ge" => |a, b| $of(a) >= $of(b),
                "equ" => |a, b| !($of(a) < $of(b) || $of(a) > $of(b)),
                "neu" => |a, b| $of(a) != $of(b),
                "ltu" => |a, b| !matches!($of(a).partial_cmp(&$of(b)), Some(Ordering::Equal | Ordering::Greater)),
                "leu" => |a, b| $of(a).partial_cmp(&$of(b)) != Some(Ordering::Greater),
                "gtu" => |a, b| !matches!($of(a).partial_cmp(&$of(b)), Some(Ordering::Equal | Ordering::Less)),
                "geu" => |a, b| $of(a).partial_cmp(&$of(b)) != Some(Ordering::Less),
                "num" => |a, b| !is_nan(f64::from($of(a))) && !is_nan(f64::from($of(b))),
                "nan" => |a, b| is_nan(f64::from($of(a))) || is_nan(f64::from($of(b))),
                _ => return None,
            }
        };
    }
    macro_rules! whole {
        ($to:ty) => {
            match name {
                "eq" => |a, b| a as $to == b as $to,
                "ne" => |a, b| a as $to != b as $to,
                "lt" | "lo" => |a, b| (a as $to) < b as $to,
                "le" | "ls" => |a, b| a as $to <= b as $to,
                "gt" | "hi" => |a, b| a as $to > b as $to,
                "ge" | "hs" => |a, b| a as $to >= b as $to,
                _ => return None,
            }
        };
    }
    fn is_nan(value: f64) -> bool {
        value.is_nan()
    }
    fn h(bits: u64) -> f32 {
        f16::from_bits(bits as u16).to_f32()
    }
    fn b(bits: u64) -> f32 {
        bf16::from_bits(bits as u16).to_f32()
    }
    Some(match ty {
        Type::F16 => ordered!(h),
        Type::Bf16 => ordered!(b),
        Type::F32 => ordered!(f),
        Type::F64 => ordered!(d),
        Type::Bits(2) | Type::Unsigned(2) => whole!(u16),
        Type::Bits(4) | Type::Unsigned(4) => whole!(u32),
        Type::Bits(8) | Type::Unsigned(8) => whole!(u64),
        Type::Signed(2) => whole!(i16),
        Type::Signed(4) => whole!(i32),
        Type::Signed(8) => whole!(i64),
        _ => return None,
    })
}

/// The conversion between two types under a rounding.
pub(crate) fn conversion(to: Type, from: Type, modifiers: &[&str]) -> Option<Function> {
    use Type::{Bf16, F16, F32, F64, Signed, Unsigned};
    let has = |modifier: &str| modifiers.contains(&modifier);
    if has("ftz") || has("sat") && modifiers != ["sat"] {
        return None;
    }
    Some(match (to, from) {
        // NaN gives 0.
        (F32, F32) if has("sat") => |a, _, _| of(if f(a) > 0.0 { f(a).min(1.0) } else { 0.0 }),
        _ if has("sat") => return None,
        (F32, F32) if has("rni") => |a, _, _| of(f(a).round_ties_even()),
        (F32, F32) if has("rzi") => |a, _, _| of(f(a).trunc()),
        (F32, F32) if has("rmi") => |a, _, _| of(f(a).floor()),
        (F32, F32) if has("rpi") => |a, _, _| of(f(a).ceil()),
        (F64, F64) if has("rni") => |a, _, _| of64(d(a).round_ties_even()),
        (F64, F64) if has("rzi") => |a, _, _| of64(d(a).trunc()),
        (F64, F64) if has("rmi") => |a, _, _| of64(d(a).floor()),
        (F64, F64) if has("rpi") => |a, _, _| of64(d(a).ceil()),
        (Signed(4), F32) if has("rzi") => |a, _, _| u64::from(f(a) as i32 as u32),
        (Signed(4), F32) if has("rni") => |a, _, _| u64::from(f(a).round_ties_even() as i32 as u32),
        (Signed(4), F32) if has("rmi") => |a, _, _| u64::from(f(a).floor() as i32 as u32),
        (Unsigned(4), F32) if has("rzi") => |a, _, _| u64::from(f(a) as u32),
        // NaN is the least number of 64 bits, and of an f64 that of 32.
        (Signed(4), F64) if has("rzi") => |a, _, _| if d(a).is_nan() { 1 << 31 } else { u64::from(d(a) as i32 as u32) },
        (Signed(4), F64) if has("rni") => {
            |a, _, _| if d(a).is_nan() { 1 << 31 } else { u64::from(d(a).round_ties_even() as i32 as u32) }
        }
        (Signed(8), F32) if has("rzi") => |a, _, _| if f(a).is_nan() { 1 << 63 } else { f(a) as i64 as u64 },
        (Signed(8), F64) if has("rzi") => |a, _, _| if d(a).is_nan() { 1 << 63 } else { d(a) as i64 as u64 },
        (Unsigned(4), F64) if has("rzi") => |a, _, _| if d(a).is_nan() { 1 << 31 } else { u64::from(d(a) as u32) },
        (F64, F32) => |a, _, _| of64(f64::from(f(a))),
        (F32, F64) if has("rn") => |a, _, _| of(d(a) as f32),
        (F32, F64) if has("rz") => |a, _, _| of(toward_zero(d(a))),
        (F32, Signed(4)) if has("rn") => |a, _, _| of(a as i32 as f32),
        (F32, Unsigned(4)) if has("rn") => |a, _, _| of(a as u32 as f32),
        (F32, Unsigned(2)) if has("rn") => |a, _, _| of(a as u16 as f32),
        (F32, Signed(2)) if has("rn") => |a, _, _| of(f32::from(a as i16)),
        (F64, Unsigned(2)) => |a, _, _| of64(f64::from(a as u16)),
        (F64, Signed(2)) => |a, _, _| of64(f64::from(a as i16)),
        (F32, Signed(8)) if has("rn") => |a, _, _| of(a as i64 as f32),
        (F32, Unsigned(8)) if has("rn") => |a, _, _| of(a as f32),
        (F64, Signed(4)) => |a, _, _| of64(f64::from(a as i32)),
        (F64, Unsigned(4)) => |a, _, _| of64(f64::from(a as u32)),
        (F64, Signed(8)) => |a, _, _| of64(a as i64 as f64),
        (F64, Unsigned(8)) => |a, _, _| of64(a as f64),
        (F32, F16) => |a, _, _| of(f16::from_bits(a as u16).to_f32()),
        (F32, Bf16) => |a, _, _| of(bf16::from_bits(a as u16).to_f32()),
        (F64, F16) => |a, _, _| of64(f16::from_bits(a as u16).to_f64()),
        (F16, F32) if has("rn") => |a, _, _| u64::from(half16(f(a))),
        (Bf16, F32) if has("rn") => |a, _, _| u64::from(brain16(f(a))),
        // Integers: the source is extended by its own sign, and cut to the result.
        (Signed(to) | Unsigned(to), from @ (Signed(_) | Unsigned(_))) => match (to, from) {
            (8, Signed(4)) => |a, _, _| i64::from(a as i32) as u64,
            (8, Signed(2)) => |a, _, _| i64::from(a as i16) as u64,
            (8, Signed(1)) => |a, _, _| i64::from(a as i8) as u64,
            (4, Signed(2)) => |a, _, _| u64::from(i32::from(a as i16) as u32),
            (4, Signed(1)) => |a, _, _| u64::from(i32::from(a as i8) as u32),
            (2, Signed(1)) => |a, _, _| u64::from(i16::from(a as i8) as u16),
            (8, Unsigned(4)) | (4, Unsigned(4) | Signed(4) | Unsigned(8) | Signed(8)) => |a, _, _| a & 0xffff_ffff,
            (8 | 4, Unsigned(2)) | (2, Unsigned(2..) | Signed(2..)) => |a, _, _| a & 0xffff,
            (8 | 4 | 2, Unsigned(1)) | (1, _) => |a, _, _| a & 0xff,
            (8, Unsigned(8) | Signed(8)) => |a, _, _| a,
            _ => return None,
        },
        _ => return None,
    })
}

/// Rounded towards zero.
fn toward_zero(value: f64) -> f32 {
    let nearest = value as f32;
    if f64::from(nearest).abs() > value.abs() { f32::from_bits(nearest.to_bits() - 1) } else { nearest }
}

/// Rounded to nearest even; NaN has one bit pattern.
pub(crate) fn half16(value: f32) -> u16 {
    if value.is_nan() { 0x7fff } else { f16::from_f32(value).to_bits() }
}

/// Rounded to nearest even; NaN has one bit pattern.
pub(crate) fn brain16(value: f32) -> u16 {
    if value.is_nan() { 0x7fff } else { bf16::from_f32(value).to_bits() }
}

/// Rounded to 10 bits of fraction, ties away from zero, as `cvt.rna.tf32.f32`.
pub(crate) fn tf32(bits: u32) -> u32 {
    if f32::from_bits(bits).is_finite() { bits.wrapping_add(0x1000) & !0x1fff } else { bits }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_compute_what_ptx_says() {
        let run = |base: &str, modifiers: &[&str], ty: &str, a: u64, b: u64, c: u64| {
            function(base, modifiers, Type::parse(ty).unwrap()).unwrap()(a, b, c)
        };
        assert_eq!(run("max", &[], "f32", of(-0.0), of(0.0), 0), of(0.0));
        assert_eq!(run("max", &[], "f32", u64::from(f32::NAN.to_bits()), of(-1.0), 0), of(-1.0));
        assert_eq!(run("mul", &["wide"], "s32", u64::from(u32::MAX), 3, 0), (-3i64) as u64);
        assert_eq!(run("prmt", &[], "b32", 0x3322_1100, 0x7766_5544, 0x7632), 0x7766_3322);
        assert_eq!(run("shl", &[], "b32", 1, 32, 0), 0);
        assert_eq!(run("shr", &[], "s32", 0x8000_0000, 99, 0), 0xffff_ffff);
        assert_eq!(run("shf", &["l", "wrap"], "b32", 0x8000_0001, 0x10, 36), 0x108);
        assert_eq!(run("shf", &["r", "wrap"], "b32", 0x10, 0x8000_0003, 4), 0x3000_0001);
        assert_eq!(insert(7, 0, 25, 7, 32), 7 << 25);
        assert_eq!(extract(0xf0, 4, 4, Type::Signed(4)), 0xffff_ffff);
        assert_eq!(lop3(0b1100, 0b1010, 0b0110, 0x96), 0b1100 ^ 0b1010 ^ 0b0110);
        assert_eq!(tf32(0x3f80_1000), 0x3f80_2000);
        assert!(comparison("gtu", Type::F32).unwrap()(of(1.0), u64::from(f32::NAN.to_bits())));
        assert!(!comparison("ne", Type::F32).unwrap()(of(1.0), u64::from(f32::NAN.to_bits())));
        assert_eq!(conversion(Type::Signed(4), Type::F32, &["rzi"]).unwrap()(of(-1.5), 0, 0), 0xffff_ffff);
        let toward_zero = conversion(Type::F32, Type::F64, &["rz"]).unwrap();
        assert_eq!(toward_zero(of64(-1.0 - 1.9 * f64::powi(2.0, -23)), 0, 0), of(-1.0 - f32::EPSILON));
        assert_eq!(toward_zero(of64(1e300), 0, 0), of(f32::MAX));
    }

    #[test]
    fn sums_are_rounded_in_a_direction() {
        let run = |base: &str, toward: &str, numbers: [f32; 3]| {
            let function = function(base, &[toward], Type::F32).unwrap();
            let [a, b, c] = numbers.map(|number| u64::from(number.to_bits()));
            f(function(a, b, c))
        };
        let all = |base: &str, numbers: [f32; 3]| ["rz", "rm", "rp"].map(|toward| run(base, toward, numbers).to_bits());
        let bits = |numbers: [f32; 3]| numbers.map(f32::to_bits);
        const LEAST: f32 = f32::from_bits(1);
        let (above, below) = (1f32.next_up(), 1f32.next_down());
        // What is added is far below the last place, of both signs.
        assert_eq!(all("add", [1.0, LEAST, 0.0]), bits([1.0, 1.0, above]));
        assert_eq!(all("add", [1.0, -LEAST, 0.0]), bits([below, below, 1.0]));
        assert_eq!(all("sub", [-1.0, LEAST, 0.0]), bits([-1.0, -above, -1.0]));
        // 0.75 of the last place: the nearest is above.
        assert_eq!(all("add", [1.0, 0.75 * f32::EPSILON, 0.0]), bits([1.0, 1.0, above]));
        assert_eq!(all("add", [-1.0, -0.75 * f32::EPSILON, 0.0]), bits([-1.0, -above, -1.0]));
        assert_eq!(all("add", [1.0, 2.0, 0.0]), bits([3.0; 3]));
        // (1 + e)^2 = 1 + 2 e + e^2, also without a rest that a sum of f64 numbers leaves out.
        assert_eq!(
            all("fma", [above, above, 0.0]),
            bits([1.0 + 2.0 * f32::EPSILON, 1.0 + 2.0 * f32::EPSILON, above.next_up().next_up()])
        );
        assert_eq!(
            all("fma", [above, above, -LEAST]),
            bits([1.0 + 2.0 * f32::EPSILON, 1.0 + 2.0 * f32::EPSILON, above.next_up().next_up()])
        );
        assert_eq!(all("fma", [LEAST, LEAST, 1.0]), bits([1.0, 1.0, above]));
        // Results beyond all numbers, and below the least.
        assert_eq!(all("add", [f32::MAX, f32::MAX, 0.0]), bits([f32::MAX, f32::MAX, f32::INFINITY]));
        assert_eq!(all("fma", [-f32::MAX, f32::MAX, 0.0]), bits([f32::MIN, f32::NEG_INFINITY, f32::MIN]));
        assert_eq!(all("fma", [LEAST, LEAST, 0.0]), bits([0.0, 0.0, LEAST]));
        assert_eq!(all("fma", [-LEAST, LEAST, 0.0]), bits([-0.0, -LEAST, -0.0]));
        // An exact 0 of two signs is -0 only below.
        assert_eq!(all("add", [1.0, -1.0, 0.0]), bits([0.0, -0.0, 0.0]));
        assert_eq!(all("add", [-0.0, 0.0, 0.0]), bits([0.0, -0.0, 0.0]));
        assert_eq!(all("add", [-0.0, -0.0, 0.0]), bits([-0.0; 3]));
        assert_eq!(all("add", [f32::INFINITY, -1.0, 0.0]), bits([f32::INFINITY; 3]));
        assert!(run("add", "rz", [f32::INFINITY, f32::NEG_INFINITY, 0.0]).is_nan());
        assert!(function("mul", &["rz"], Type::F32).is_none() && function("add", &["rm"], Type::F64).is_none());
    }

    #[test]
    fn approximations_have_the_limits_that_ptx_gives_them() {
        let run =
            |base: &str, modifiers: &[&str], ty: Type, a: u64, b: u64| function(base, modifiers, ty).unwrap()(a, b, b);
        let divide = |modifiers: &[&str], a: f32, b: f32| f(run("div", modifiers, Type::F32, of(a), of(b)));
        let large = f32::powi(2.0, 126);
        assert_eq!(divide(&["approx"], large, large), 1.0);
        assert_eq!(divide(&["approx"], f32::MAX, -large.next_up()).to_bits(), (-0f32).to_bits());
        assert!(divide(&["approx"], f32::INFINITY, large.next_up()).is_nan());
        assert_eq!(divide(&["full"], large, large.next_up()), 1.0 - f32::EPSILON);
        assert_eq!(divide(&["approx"], 1.0, f32::powi(2.0, -127)), f32::powi(2.0, 127));
        assert_eq!(divide(&["approx", "ftz"], 1.0, -f32::powi(2.0, -127)), f32::NEG_INFINITY);
        assert_eq!(divide(&["approx", "ftz"], f32::powi(2.0, -126), 2.0), 0.0);

        let reciprocal = |a: f64| d(run("rcp", &["approx", "ftz"], Type::F64, a.to_bits(), 0));
        assert_eq!(reciprocal(3.0).to_bits(), 0x3fd5_5555_0000_0000);
        assert_eq!(reciprocal(1.0 + f64::EPSILON), 1.0);
        assert_eq!(reciprocal(-f64::from_bits(1)), f64::NEG_INFINITY);
        assert_eq!(reciprocal(-f64::MAX).to_bits(), (-0f64).to_bits());
        assert!(reciprocal(f64::NAN).is_nan());
        let root = |a: f64| d(run("rsqrt", &["approx", "ftz"], Type::F64, a.to_bits(), 0));
        assert_eq!(root(2.0).to_bits(), 0x3fe6_a09e_0000_0000);
        assert_eq!([root(4.0), root(f64::from_bits(1))], [0.5, f64::INFINITY]);
        assert!(root(-1.0).is_nan());
    }

    #[test]
    fn conversions_bound_numbers_and_take_nan() {
        let saturate = |a: f32| conversion(Type::F32, Type::F32, &["sat"]).unwrap()(u64::from(a.to_bits()), 0, 0);
        for (number, bounded) in
            [(0.25, 0.25), (1.5, 1.0), (f32::INFINITY, 1.0), (-0.25, 0.0), (-0.0, 0.0), (f32::NAN, 0.0)]
        {
            assert_eq!(saturate(number), of(bounded), "{number}");
        }
        assert!(conversion(Type::Signed(4), Type::F32, &["rzi", "sat"]).is_none());
        let whole = |to: Type, from: Type, a: u64| conversion(to, from, &["rzi"]).unwrap()(a, 0, 0);
        let (nan, nan64) = (u64::from(f32::NAN.to_bits()), f64::NAN.to_bits());
        assert_eq!([Type::Signed(4), Type::Unsigned(4)].map(|to| whole(to, Type::F32, nan)), [0; 2]);
        assert_eq!([Type::Signed(4), Type::Unsigned(4)].map(|to| whole(to, Type::F64, nan64)), [1 << 31; 2]);
        assert_eq!([whole(Type::Signed(8), Type::F32, nan), whole(Type::Signed(8), Type::F64, nan64)], [1 << 63; 2]);
        assert_eq!(whole(Type::Signed(4), Type::F64, (-1e300f64).to_bits()), 1 << 31);
        assert_eq!(conversion(Type::Signed(4), Type::F64, &["rni"]).unwrap()(nan64, 0, 0), 1 << 31);
    }
}
