//! The reference backend: the documented formulas in f64, on the host.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use half::{bf16, f16};

use super::Located;
use crate::dtype::{Bool, DType, Element, F8E4M3, F8E5M2};
use crate::error::{Error, Result};
use crate::narrow::{single, to_usize};
use crate::slots::{Access, MAX_SLOTS, Slot};
use crate::tensor::TensorDesc;

mod loans;
mod scratch;
pub(crate) mod threads;

pub(crate) use loans::Wishes;
pub(crate) use scratch::{Ended, Outcome, Shortage, held, room};

/// Alignment of owned memory in bytes: a cache line.
const ALIGN: usize = 64;

/// Owned host memory. Who uses a range of it holds a loan of that range.
#[derive(Clone)]
pub(crate) struct Memory(Arc<Allocation>);

struct Allocation {
    start: NonNull<u8>,
    bytes: usize,
    lent: loans::Lent,
}

// SAFETY: each byte is reached only under a loan of a range with it, which admits many readers or one writer.
unsafe impl Send for Allocation {}
// SAFETY: as for Send.
unsafe impl Sync for Allocation {}

impl Memory {
    pub(crate) fn zeroed(bytes: u64) -> Result<Self> {
        let out_of_memory = || Error::OutOfMemory { device: "cpu".into(), bytes };
        let size = usize::try_from(bytes).map_err(|_| out_of_memory())?;
        let layout = Layout::from_size_align(size.max(1), ALIGN).map_err(|_| out_of_memory())?;
        // SAFETY: the layout's size is at least 1.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(out_of_memory)?;
        Ok(Self(Arc::new(Allocation { start, bytes: size, lent: loans::Lent::default() })))
    }

    pub(crate) fn address(&self) -> u64 {
        self.0.start.as_ptr() as u64
    }

    /// Writes `bytes` at `offset`; the caller has checked that they fit.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let wishes = Wishes::of_buffer(self, offset, bytes.len() as u64, true);
        let _loan = wishes.grant("write")?;
        assert!(offset.saturating_add(bytes.len() as u64) <= self.0.bytes as u64);
        // SAFETY: the range lies in the allocation and the loan keeps others out.
        unsafe {
            let start = self.0.start.as_ptr().add(to_usize(offset));
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len());
        }
        Ok(())
    }

    /// Reads from `offset` on; the caller has checked that the bytes exist.
    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let wishes = Wishes::of_buffer(self, offset, bytes.len() as u64, false);
        let _loan = wishes.grant("download")?;
        assert!(offset.saturating_add(bytes.len() as u64) <= self.0.bytes as u64);
        // SAFETY: the range lies in the allocation and the loan keeps writers out.
        unsafe {
            let start = self.0.start.as_ptr().add(to_usize(offset));
            std::ptr::copy_nonoverlapping(start, bytes.as_mut_ptr(), bytes.len());
        }
        Ok(())
    }

    fn lent(&self) -> &loans::Lent {
        &self.0.lent
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("address", &self.0.start).field("bytes", &self.0.bytes).finish()
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this very layout, which was valid there.
        unsafe { dealloc(self.start.as_ptr(), Layout::from_size_align_unchecked(self.bytes.max(1), ALIGN)) }
    }
}

/// The operands of a run on the CPU.
pub(crate) struct Operands<'a> {
    located: &'a Located<'a>,
    slots: &'a [Slot],
}

impl<'a> Operands<'a> {
    pub(crate) fn new(slots: &'a [Slot], located: &'a Located<'a>) -> Self {
        Self { located, slots }
    }

    /// Where the operands and the workspace lie.
    pub(crate) fn located(&self) -> &'a Located<'a> {
        self.located
    }

    /// Whether an operand of the family's table begins at an address.
    fn begins_at(&self, index: usize, start: NonNull<u8>) -> bool {
        index < MAX_SLOTS && self.located.at(index).address() == start.as_ptr() as u64
    }

    /// The operand of a row of the family's table, or of a slot of another set, if it is declared and not empty.
    pub(crate) fn get(&self, index: usize) -> Option<Tensor<'a>> {
        let slot = match index.checked_sub(MAX_SLOTS) {
            None => self.slots.iter().find(|slot| slot.index == index)?,
            Some(at) => {
                // They follow one another.
                let first = self.slots.iter().position(Slot::is_further)?;
                self.slots.get(first + at).filter(|_| at < self.located.further.len())?
            }
        };
        let start = NonNull::new(self.located.at(index).address() as *mut u8)?;
        let is_streamed = cfg!(target_arch = "x86_64")
            && slot.access == Access::Out
            && slot.span_bytes >= STREAMED_BYTES
            // Those of other sets lie in the place of inputs, as optimizers update parameters.
            && !slot.is_further()
            && !self.slots.iter().any(|other| other.index != index && self.begins_at(other.index, start));
        Some(Tensor {
            start,
            desc: &slot.desc,
            elements: slot.span_bytes / slot.desc.dtype().size_bytes(),
            is_streamed,
            borrow: PhantomData,
        })
    }
}

/// Outputs of at least so many bytes are written past the caches: the first elements have left most caches when a later run reads them.
const STREAMED_BYTES: u64 = 16 << 20;
/// Tensors of fewer bytes are likely to be in a near cache.
#[cfg(target_arch = "x86_64")]
const PREFETCHED_BYTES: u64 = 256 << 10;
/// Bytes of a line of a cache.
pub(crate) const LINE_BYTES: usize = 64;

/// Orders stores past the caches before all that this thread does next.
#[inline(always)]
pub(crate) fn settle() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// Elements of one operand, read and written as f64, or integers and Bool as i64, which holds every value of theirs.
#[derive(Clone, Copy)]
pub(crate) struct Tensor<'a> {
    start: NonNull<u8>,
    desc: &'a TensorDesc,
    elements: u64,
    is_streamed: bool,
    borrow: PhantomData<&'a [u8]>,
}

// SAFETY: reads and writes from several threads are disjoint or both reads, by the contract of `store`.
unsafe impl Send for Tensor<'_> {}
// SAFETY: as for Send.
unsafe impl Sync for Tensor<'_> {}

impl<'a> Tensor<'a> {
    /// A tensor in memory that a run has for itself.
    pub(crate) fn scratch(desc: &'a TensorDesc, memory: &'a mut [f64]) -> Self {
        assert!(desc.span_bytes() <= size_of_val(memory) as u64);
        // A slice is never null.
        let start = NonNull::from(memory).cast();
        let elements = desc.span_bytes() / desc.dtype().size_bytes();
        Self { start, desc, elements, is_streamed: false, borrow: PhantomData }
    }

    /// The same tensor, whose elements are read again soon after they were written.
    pub(crate) fn kept(self) -> Self {
        Self { is_streamed: false, ..self }
    }
}

impl Tensor<'_> {
    pub(crate) fn desc(&self) -> &TensorDesc {
        self.desc
    }

    /// Whether its elements, each of which is written once and not read, go to memory past the caches: a store to a line that no cache has would read it first,
    /// and what is read soon would make room for it. Whoever writes so calls [`settle`] before another thread may read.
    pub(crate) fn is_streamed(&self) -> bool {
        self.is_streamed
    }

    /// Asks for elements that are read soon, so that they arrive while others are computed. Beyond the tensor nothing is read.
    #[inline(always)]
    pub(crate) fn prefetch(&self, first: u64, count: usize) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let size = to_usize(self.desc.dtype().size_bytes());
            if first >= self.elements || self.elements < PREFETCHED_BYTES / size as u64 {
                return;
            }
            let start = self.start.as_ptr().wrapping_add(to_usize(first) * size);
            for at in (0..count * size).step_by(LINE_BYTES) {
                // SAFETY: a prefetch reads nothing.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(at).cast_const().cast()) };
            }
        }
    }

    /// Whether both begin at one address.
    pub(crate) fn starts_at(&self, other: &Tensor<'_>) -> bool {
        self.start == other.start
    }

    /// What begins at an element of the tensor.
    pub(crate) fn starting_at(self, offset: u64) -> Self {
        assert!(offset < self.elements);
        // SAFETY: the element lies in the tensor's memory.
        let start = unsafe { self.start.byte_add(to_usize(offset * self.desc.dtype().size_bytes())) };
        Self { start, elements: self.elements - offset, ..self }
    }

    /// The element `offset` elements after the first, for code that addresses elements by itself: none but those of the tensor.
    pub(crate) fn element<T: Element>(&self, offset: u64) -> *mut T {
        assert!(T::DTYPE == self.desc.dtype() && offset < self.elements);
        self.start.cast::<T>().as_ptr().wrapping_add(to_usize(offset))
    }

    /// As [`element`](Self::element), where elements are bits of their size.
    pub(crate) fn bits<T>(&self, offset: u64) -> *mut T {
        assert!(size_of::<T>() as u64 == self.desc.dtype().size_bytes() && offset < self.elements);
        self.start.cast::<T>().as_ptr().wrapping_add(to_usize(offset))
    }

    /// The element `offset` elements after the first.
    pub(crate) fn load(&self, offset: u64) -> f64 {
        assert!(offset < self.elements);
        let at = to_usize(offset);
        // SAFETY: the generic check proved that `elements` elements lie at `start`, aligned for their type, and
        // every bit pattern is a value.
        unsafe {
            match self.desc.dtype() {
                DType::F64 => *self.start.cast::<f64>().as_ptr().add(at),
                DType::F32 => f64::from(*self.start.cast::<f32>().as_ptr().add(at)),
                DType::F16 => (*self.start.cast::<f16>().as_ptr().add(at)).to_f64(),
                DType::BF16 => (*self.start.cast::<bf16>().as_ptr().add(at)).to_f64(),
                DType::I64 => *self.start.cast::<i64>().as_ptr().add(at) as f64,
                DType::I32 => f64::from(*self.start.cast::<i32>().as_ptr().add(at)),
                DType::U32 => f64::from(*self.start.cast::<u32>().as_ptr().add(at)),
                DType::Bool => f64::from((*self.start.cast::<Bool>().as_ptr().add(at)).get()),
                DType::U8 => f64::from(*self.start.as_ptr().add(at)),
                DType::I8 => f64::from(*self.start.cast::<i8>().as_ptr().add(at)),
                DType::F8E4M3 => (*self.start.cast::<F8E4M3>().as_ptr().add(at)).to_f64(),
                DType::F8E5M2 => (*self.start.cast::<F8E5M2>().as_ptr().add(at)).to_f64(),
            }
        }
    }

    /// The element `offset` elements after the first of a tensor of integers or Bool, of which true is 1.
    pub(crate) fn load_integer(&self, offset: u64) -> i64 {
        assert!(offset < self.elements);
        let at = to_usize(offset);
        // SAFETY: as in `load`.
        unsafe {
            match self.desc.dtype() {
                DType::I64 => *self.start.cast::<i64>().as_ptr().add(at),
                DType::I32 => i64::from(*self.start.cast::<i32>().as_ptr().add(at)),
                DType::U32 => i64::from(*self.start.cast::<u32>().as_ptr().add(at)),
                DType::Bool => i64::from((*self.start.cast::<Bool>().as_ptr().add(at)).get()),
                DType::U8 => i64::from(*self.start.as_ptr().add(at)),
                DType::I8 => i64::from(*self.start.cast::<i8>().as_ptr().add(at)),
                other => unreachable!("{other} is no type of integers"),
            }
        }
    }

    /// Writes the element `offset` elements after the first, rounded to nearest even; to an integer type cut to a whole number and to the range of the type,
    /// NaN as 0; to Bool whether it is not 0.
    ///
    /// # Safety
    /// - No other thread reads or writes that element meanwhile.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "casts of floating-point numbers to integers cut and saturate"
    )]
    pub(crate) unsafe fn store(&self, offset: u64, value: f64) {
        assert!(offset < self.elements);
        let at = to_usize(offset);
        // SAFETY: as in `load`; the operand is an output, hence writable, and the caller is alone at this element.
        unsafe {
            match self.desc.dtype() {
                DType::F64 => *self.start.cast::<f64>().as_ptr().add(at) = value,
                DType::F32 => *self.start.cast::<f32>().as_ptr().add(at) = single(value),
                DType::F16 => *self.start.cast::<f16>().as_ptr().add(at) = f16::from_f32(to_odd(value)),
                DType::BF16 => *self.start.cast::<bf16>().as_ptr().add(at) = bf16::from_f32(to_odd(value)),
                DType::I64 => *self.start.cast::<i64>().as_ptr().add(at) = value as i64,
                DType::I32 => *self.start.cast::<i32>().as_ptr().add(at) = value as i32,
                DType::U32 => *self.start.cast::<u32>().as_ptr().add(at) = value as u32,
                DType::Bool => *self.start.cast::<Bool>().as_ptr().add(at) = Bool::new(value != 0.0),
                DType::U8 => *self.start.as_ptr().add(at) = value as u8,
                DType::I8 => *self.start.cast::<i8>().as_ptr().add(at) = value as i8,
                DType::F8E4M3 => *self.start.cast::<F8E4M3>().as_ptr().add(at) = F8E4M3::from_f64(value),
                DType::F8E5M2 => *self.start.cast::<F8E5M2>().as_ptr().add(at) = F8E5M2::from_f64(value),
            }
        }
    }

    /// Writes the element `offset` elements after the first: of integers the low bits of a number, of Bool whether it is not 0, and of floating-point types
    /// the nearest number, ties to even.
    ///
    /// # Safety
    /// - No other thread reads or writes that element meanwhile.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "casts between integers keep the low bits"
    )]
    pub(crate) unsafe fn store_integer(&self, offset: u64, value: i64) {
        assert!(offset < self.elements);
        let at = to_usize(offset);
        // SAFETY: as in `store`.
        unsafe {
            match self.desc.dtype() {
                DType::I64 => *self.start.cast::<i64>().as_ptr().add(at) = value,
                DType::I32 => *self.start.cast::<i32>().as_ptr().add(at) = value as i32,
                DType::U32 => *self.start.cast::<u32>().as_ptr().add(at) = value as u32,
                DType::Bool => *self.start.cast::<Bool>().as_ptr().add(at) = Bool::new(value != 0),
                DType::U8 => *self.start.as_ptr().add(at) = value as u8,
                DType::I8 => *self.start.cast::<i8>().as_ptr().add(at) = value as i8,
                DType::F64 => *self.start.cast::<f64>().as_ptr().add(at) = value as f64,
                DType::F32 => *self.start.cast::<f32>().as_ptr().add(at) = value as f32,
                DType::F16 => *self.start.cast::<f16>().as_ptr().add(at) = f16::from_f32(to_odd(odd(value))),
                DType::BF16 => *self.start.cast::<bf16>().as_ptr().add(at) = bf16::from_f32(to_odd(odd(value))),
                DType::F8E4M3 => *self.start.cast::<F8E4M3>().as_ptr().add(at) = F8E4M3::from_f64(odd(value)),
                DType::F8E5M2 => *self.start.cast::<F8E5M2>().as_ptr().add(at) = F8E5M2::from_f64(odd(value)),
            }
        }
    }
}

/// Rounds to the nearest value of a floating-point type, ties to even, as a store would.
pub(crate) fn rounded(dtype: DType, value: f64) -> f64 {
    match dtype {
        DType::F32 => f64::from(single(value)),
        DType::F16 => f16::from_f32(to_odd(value)).to_f64(),
        DType::BF16 => bf16::from_f32(to_odd(value)).to_f64(),
        DType::F8E4M3 => F8E4M3::from_f64(value).to_f64(),
        DType::F8E5M2 => F8E5M2::from_f64(value).to_f64(),
        _ => value,
    }
}

/// Rounds to f32 towards the neighbour with an odd significand, after which rounding to a type with fewer than half the bits gives
/// what one rounding from f64 would (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
fn to_odd(value: f64) -> f32 {
    let nearest = single(value);
    let (back, bits) = (f64::from(nearest), nearest.to_bits());
    if back == value || !nearest.is_finite() || bits & 1 == 1 {
        return nearest;
    }
    f32::from_bits(if back.abs() > value.abs() { bits - 1 } else { bits + 1 })
}

/// A number of f64 that rounds to types with at most 40 bits as an integer does: beyond 2^53 bits that are lost set the last one that is kept.
pub(crate) fn odd(value: i64) -> f64 {
    let magnitude = value.unsigned_abs();
    const LOST: u64 = (1 << 11) - 1;
    let kept = match magnitude >> 53 {
        0 => magnitude,
        _ => magnitude & !LOST | if magnitude & LOST == 0 { 0 } else { LOST + 1 },
    };
    if value < 0 { -(kept as f64) } else { kept as f64 }
}

/// A sum that carries the rounding errors along (Neumaier 1974), so that f64 results are good to the last bits.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sum {
    sum: f64,
    lost: f64,
}

impl Sum {
    pub(crate) fn add(&mut self, term: f64) {
        let sum = self.sum + term;
        let (large, small) = if self.sum.abs() >= term.abs() { (self.sum, term) } else { (term, self.sum) };
        self.lost += (large - sum) + small;
        self.sum = sum;
    }

    /// This sum, or an empty one at the start of another.
    pub(crate) fn after(self, starts: bool) -> Self {
        if starts { Self::default() } else { self }
    }

    /// The sum of the terms of both.
    pub(crate) fn plus(mut self, other: Self) -> Self {
        self.add(other.sum);
        self.lost += other.lost;
        self
    }

    pub(crate) fn total(self) -> f64 {
        // The correction of an infinite or NaN sum is NaN, which carries no information.
        if self.sum.is_finite() { self.sum + self.lost } else { self.sum }
    }
}

impl Extend<f64> for Sum {
    fn extend<I: IntoIterator<Item = f64>>(&mut self, terms: I) {
        terms.into_iter().for_each(|term| self.add(term));
    }
}

impl FromIterator<f64> for Sum {
    fn from_iter<I: IntoIterator<Item = f64>>(terms: I) -> Self {
        let mut sum = Self::default();
        sum.extend(terms);
        sum
    }
}

/// Sums of products with what rounding lost of them (Knuth's TwoSum), each by itself.
#[derive(Clone)]
pub(crate) struct Sums<const N: usize> {
    sums: [f64; N],
    lost: [f64; N],
}

impl<const N: usize> Default for Sums<N> {
    fn default() -> Self {
        Self { sums: [0.0; N], lost: [0.0; N] }
    }
}

impl<const N: usize> Sums<N> {
    /// Adds `factor` times each of `factors`; `IS_F64` says that the products are not exact in f64 by themselves.
    pub(crate) fn add<const IS_F64: bool>(&mut self, factor: f64, factors: &[f64]) {
        for ((sum, lost), other) in self.sums.iter_mut().zip(&mut self.lost).zip(factors) {
            let term = factor * other;
            let total = *sum + term;
            let of_term = total - *sum;
            *lost += (*sum - (total - of_term)) + (term - of_term);
            if IS_F64 {
                *lost += factor.mul_add(*other, -term);
            }
            *sum = total;
        }
    }

    pub(crate) fn total(&self, n: usize) -> f64 {
        // What an infinite or NaN sum lost is NaN, which carries no information.
        if self.sums[n].is_finite() { self.sums[n] + self.lost[n] } else { self.sums[n] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_keeps_what_plain_addition_loses() {
        let terms = [1.0, 1e100, 1.0, -1e100];
        assert_eq!(terms.into_iter().collect::<Sum>().total(), 2.0);
        assert!([f64::INFINITY, 1.0].into_iter().collect::<Sum>().total() == f64::INFINITY);
    }

    #[test]
    fn stores_round_once() {
        // Just above the middle of two f16 neighbours: rounding to f32 first would hit the middle and then the even one below.
        let above_middle = 1.0 + 1.0 / 2048.0 + 1e-12;
        assert_eq!(rounded(DType::F16, above_middle), 1.0 + 1.0 / 1024.0);
        assert_eq!(rounded(DType::F16, 1.0 + 1.0 / 2048.0), 1.0);
        assert_eq!(rounded(DType::BF16, -1.0 - 1.0 / 256.0 - 1e-12), -1.0 - 1.0 / 128.0);
        assert_eq!(rounded(DType::F16, 1e-12), 0.0);
    }

    #[test]
    fn elements_keep_their_own_values() {
        let of = |dtype| TensorDesc::contiguous(dtype, &[2]).unwrap();
        let stored = |dtype, value: f64| {
            let (desc, mut memory) = (of(dtype), [0.0; 2]);
            let tensor = Tensor::scratch(&desc, &mut memory);
            // SAFETY: this thread is alone.
            unsafe { tensor.store(1, value) };
            (tensor.load(0), tensor.load(1))
        };
        for (dtype, value, expected) in [
            (DType::I64, 1e19, i64::MAX as f64),
            (DType::I32, -2.9, -2.0),
            (DType::U32, -1.0, 0.0),
            (DType::U8, 300.0, 255.0),
            (DType::I8, f64::NAN, 0.0),
            (DType::Bool, f64::NAN, 1.0),
            (DType::Bool, -0.0, 0.0),
            (DType::F8E4M3, 1000.0, 448.0),
            (DType::F8E5M2, 1e9, f64::INFINITY),
        ] {
            assert_eq!(stored(dtype, value), (0.0, expected), "{dtype} {value}");
        }
        // i64 beyond f64's whole numbers.
        let (desc, mut memory) = (of(DType::I64), [0.0; 2]);
        let tensor = Tensor::scratch(&desc, &mut memory);
        for value in [(1 << 53) + 1, i64::MAX, i64::MIN + 1] {
            // SAFETY: this thread is alone.
            unsafe { tensor.store_integer(0, value) };
            assert_eq!(tensor.load_integer(0), value);
        }
        // Bytes of a caller.
        let (desc, mut memory) = (of(DType::Bool), [f64::from_bits(0x0200); 2]);
        let tensor = Tensor::scratch(&desc, &mut memory);
        assert_eq!((tensor.load_integer(0), tensor.load_integer(1), tensor.load(1)), (0, 1, 1.0));
    }
}
