//! Shape, strides and element type of one operand.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::json::Object;
use crate::overlap;

/// Greatest rank of a tensor.
pub const MAX_RANK: usize = 8;

/// The alignment that a descriptor promises unless told otherwise, in bytes.
pub const DEFAULT_ALIGN_BYTES: u64 = 16;

/// Shape, strides, element type and promised alignment of one operand. It holds no memory.
///
/// Strides count elements. A stride of 0 repeats one element along an extent; only inputs may have it. The first element of the
/// tensor lies at the start of the memory passed for it.
///
/// ```
/// use baracuda_ops::{DType, TensorDesc};
/// let x = TensorDesc::contiguous(DType::BF16, &[32, 128, 768])?;
/// assert_eq!(x.span_bytes(), 32 * 128 * 768 * 2);
/// # Ok::<(), baracuda_ops::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Object<Json>", into = "Json")]
pub struct TensorDesc {
    dtype: DType,
    rank: u8,
    dims: [u64; MAX_RANK],
    strides: [u64; MAX_RANK],
    align_bytes: u64,
}

impl TensorDesc {
    /// A dense row-major tensor.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if there are more than [`MAX_RANK`] extents, or if the tensor exceeds `i64::MAX` bytes.
    pub fn contiguous(dtype: DType, dims: &[u64]) -> Result<Self> {
        check_rank(dims)?;
        Self::checked(dtype, dims, &dense_strides(dims, 0..dims.len())?[..dims.len()])
    }

    /// A dense tensor `[N, C, spatial..]` whose channels lie next to each other in memory.
    ///
    /// # Errors
    /// As [`contiguous`](Self::contiguous), and [`Error::InvalidDescriptor`] if the rank is below 2.
    pub fn channels_last(dtype: DType, dims: &[u64]) -> Result<Self> {
        let rank = dims.len();
        if rank < 2 {
            return Err(Error::tensor("rank", format!("must be at least 2 for channels-last, got {rank}")));
        }
        check_rank(dims)?;
        let order = std::iter::once(0).chain(2..rank).chain(std::iter::once(1));
        Self::checked(dtype, dims, &dense_strides(dims, order)?[..rank])
    }

    /// A tensor with strides in elements, one for each extent.
    ///
    /// # Errors
    /// As [`contiguous`](Self::contiguous), and [`Error::InvalidDescriptor`] if there are not as many strides as extents.
    pub fn strided(dtype: DType, dims: &[u64], strides: &[u64]) -> Result<Self> {
        if dims.len() != strides.len() {
            let rule = format!("must be one for each of the {} extents, got {}", dims.len(), strides.len());
            return Err(Error::tensor("strides", rule));
        }
        check_rank(dims)?;
        Self::checked(dtype, dims, strides)
    }

    /// A tensor of a rank that has been checked, with a stride for each extent.
    #[expect(clippy::cast_possible_truncation, reason = "the rank is at most MAX_RANK")]
    fn checked(dtype: DType, dims: &[u64], strides: &[u64]) -> Result<Self> {
        let mut desc = Self {
            dtype,
            rank: dims.len() as u8,
            dims: [0; MAX_RANK],
            strides: [0; MAX_RANK],
            align_bytes: DEFAULT_ALIGN_BYTES,
        };
        desc.dims[..dims.len()].copy_from_slice(dims);
        // The stride of an extent of 1 addresses nothing. It gets one fixed value, so that equal layouts compare equal.
        let mut dense = 1u64;
        for i in (0..dims.len()).rev() {
            desc.strides[i] = if dims[i] <= 1 { dense } else { strides[i] };
            dense = desc.strides[i].saturating_mul(dims[i].max(1));
        }
        let too_large = || {
            let rule = format!("{dims:?} of {dtype} with strides {strides:?} spans more than i64::MAX bytes");
            Error::tensor("dims", rule)
        };
        let product = dims.iter().try_fold(1u64, |n, &d| n.checked_mul(d.max(1)));
        product.filter(|&n| n <= i64::MAX as u64).ok_or_else(too_large)?;
        let mut last = 0u64;
        for (&dim, &stride) in dims.iter().zip(&desc.strides) {
            let reach = dim.saturating_sub(1).checked_mul(stride).ok_or_else(too_large)?;
            last = last.checked_add(reach).ok_or_else(too_large)?;
        }
        let bytes = last.checked_add(1).and_then(|n| n.checked_mul(dtype.size_bytes()));
        bytes.filter(|&b| b <= i64::MAX as u64).ok_or_else(too_large)?;
        Ok(desc)
    }

    /// Promises that the memory of this operand starts at a multiple of `bytes`; 16 by default. Kernels may take the width of their accesses
    /// from it, so that results never depend on addresses. A run refuses an offset in an owned buffer that breaks the promise, on every backend
    /// alike, and on CUDA an address. Host memory needs the alignment of an element only, a wgpu buffer of the caller's one of 4 bytes.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if `bytes` is not a power of two, below the element's size, or above 4096.
    pub fn align(mut self, bytes: u64) -> Result<Self> {
        if !bytes.is_power_of_two() || bytes < self.dtype.size_bytes() || bytes > 4096 {
            let rule = format!("must be a power of two from {} to 4096, got {bytes}", self.dtype.size_bytes());
            return Err(Error::tensor("align", rule));
        }
        self.align_bytes = bytes;
        Ok(self)
    }

    /// Lowers the alignment promise to what holds `bytes` after an address that keeps the present one: what a view into a larger
    /// allocation can promise.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if `bytes` is not a multiple of the element's size.
    pub fn for_offset(mut self, bytes: u64) -> Result<Self> {
        if !bytes.is_multiple_of(self.dtype.size_bytes()) {
            let rule = format!("must be a multiple of {} bytes, got {bytes}", self.dtype.size_bytes());
            return Err(Error::tensor("offset", rule));
        }
        if bytes > 0 {
            self.align_bytes = self.align_bytes.min(1 << bytes.trailing_zeros());
        }
        Ok(self)
    }

    /// The same memory with its extents in another order: that of `axes`, each of which is named once, as PyTorch's `permute`.
    ///
    /// ```
    /// use baracuda_ops::{DType, TensorDesc};
    /// let nhwc = TensorDesc::contiguous(DType::F32, &[2, 4, 5, 3])?;
    /// assert_eq!(nhwc.permute(&[0, 3, 1, 2])?, TensorDesc::channels_last(DType::F32, &[2, 3, 4, 5])?);
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if `axes` do not name each axis once.
    pub fn permute(self, axes: &[usize]) -> Result<Self> {
        let rank = self.rank();
        let mut is_named = [false; MAX_RANK];
        let names_another = |&axis: &usize| axis < rank && !std::mem::replace(&mut is_named[axis], true);
        if axes.len() != rank || !axes.iter().all(names_another) {
            return Err(Error::tensor("axes", format!("must name each of the {rank} axes once, got {axes:?}")));
        }
        self.with(axes.iter().map(|&axis| (self.dims[axis], self.strides[axis])))
    }

    /// The part of the tensor whose index along `axis` is from `start` to before `start + length`, as PyTorch's `narrow`, and how many
    /// bytes after the first byte of the tensor that part begins: at which the memory of the operand is passed. The promised alignment is
    /// what remains there of the tensor's, as [`for_offset`](Self::for_offset) lowers it. An empty part begins at 0.
    ///
    /// ```
    /// use baracuda_ops::{DType, Device, Mem, TensorDesc};
    /// let device = Device::cpu();
    /// let x = TensorDesc::contiguous(DType::F32, &[8, 3])?;
    /// let buffer = device.alloc(x.span_bytes())?;
    /// let (rows, offset) = x.narrow(0, 5, 2)?;
    /// assert_eq!((rows.dims(), rows.strides(), offset, rows.align_bytes()), (&[2, 3][..], &[3, 1][..], 60, 4));
    /// let operand = Mem::buffer(&buffer, offset, rows.span_bytes());
    /// # let _ = operand;
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if there is no such axis, or if the part ends past its extent.
    pub fn narrow(self, axis: usize, start: u64, length: u64) -> Result<(Self, u64)> {
        let rank = self.rank();
        if axis >= rank {
            return Err(Error::tensor("axis", format!("must be below the rank, {rank}; got {axis}")));
        }
        let extent = self.dims[axis];
        if start.checked_add(length).is_none_or(|end| end > extent) {
            let rule = format!("must end at most at the extent {extent} of axis {axis}, got {length} from {start} on");
            return Err(Error::tensor("length", rule));
        }
        let mut dims = self.dims;
        dims[axis] = length;
        let part = self.with(dims.into_iter().zip(self.strides).take(rank))?;
        // No overflow: where the part has elements, its first is one of the tensor's, whose span is at most i64::MAX bytes.
        let offset = if part.is_empty() { 0 } else { start * self.strides[axis] * self.dtype.size_bytes() };
        Ok((part.for_offset(offset)?, offset))
    }

    /// The same memory repeated along extents of 1 and along new ones in front, with strides of 0, as PyTorch's `expand` and NumPy's
    /// `broadcast_to`. Where it is repeated, it can only be read.
    ///
    /// ```
    /// use baracuda_ops::{DType, TensorDesc};
    /// let bias = TensorDesc::contiguous(DType::F32, &[3, 1])?;
    /// assert_eq!(bias.broadcast_to(&[2, 3, 4])?, TensorDesc::strided(DType::F32, &[2, 3, 4], &[0, 1, 0])?);
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if an extent is neither 1 nor that of `dims`, counted from the last, if `dims` are fewer than the
    /// extents or more than [`MAX_RANK`], or if they have more than `i64::MAX` elements.
    pub fn broadcast_to(self, dims: &[u64]) -> Result<Self> {
        let own = self.dims();
        let fits = |(&own, &wanted): (&u64, &u64)| own == wanted || own == 1;
        if own.len() > dims.len() || !own.iter().rev().zip(dims.iter().rev()).all(fits) {
            let rule = format!("must be {own:?} with extents of 1 replaced and others in front, got {dims:?}");
            return Err(Error::tensor("dims", rule));
        }
        check_rank(dims)?;
        let new = dims.len() - own.len();
        let stride = |axis: usize| match axis.checked_sub(new) {
            Some(own) if self.dims[own] == dims[axis] => self.strides[own],
            _ => 0,
        };
        self.with(dims.iter().enumerate().map(|(axis, &dim)| (dim, stride(axis))))
    }

    /// The same type and promise with other extents, each with its stride; at most [`MAX_RANK`].
    fn with(&self, axes: impl Iterator<Item = (u64, u64)>) -> Result<Self> {
        let (mut dims, mut strides, mut rank) = ([0; MAX_RANK], [0; MAX_RANK], 0);
        for (dim, stride) in axes {
            (dims[rank], strides[rank]) = (dim, stride);
            rank += 1;
        }
        let desc = Self::checked(self.dtype, &dims[..rank], &strides[..rank])?;
        Ok(Self { align_bytes: self.align_bytes, ..desc })
    }

    /// Why a JSON value with the fields of a tensor is none, if so.
    pub(crate) fn refusal(json: &serde_json::Value) -> Option<Error> {
        Self::try_from(Object(Json::deserialize(json).ok()?)).err()
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Number of extents.
    pub fn rank(&self) -> usize {
        usize::from(self.rank)
    }

    /// Extents.
    pub fn dims(&self) -> &[u64] {
        &self.dims[..self.rank()]
    }

    /// Strides in elements, one for each extent.
    pub fn strides(&self) -> &[u64] {
        &self.strides[..self.rank()]
    }

    /// The promised alignment of the operand's memory in bytes.
    pub fn align_bytes(&self) -> u64 {
        self.align_bytes
    }

    /// Whether another layout is this one with another promise of alignment.
    pub(crate) fn is_otherwise_aligned(&self, other: &Self) -> bool {
        self.align_bytes != other.align_bytes && Self { align_bytes: self.align_bytes, ..*other } == *self
    }

    /// Number of elements, counted with repetition where a stride is 0.
    pub fn elements(&self) -> u64 {
        self.dims().iter().product()
    }

    /// Whether an extent is 0.
    pub fn is_empty(&self) -> bool {
        self.dims().contains(&0)
    }

    /// Bytes from the first to past the last element; 0 for an empty tensor. The one size formula: memory passed for this operand
    /// must hold at least this.
    pub fn span_bytes(&self) -> u64 {
        if self.is_empty() {
            return 0;
        }
        let last: u64 = self.dims().iter().zip(self.strides()).map(|(&d, &s)| (d - 1) * s).sum();
        (last + 1) * self.dtype.size_bytes()
    }

    /// Bytes that hold each distinct element once: those of all indices, but for extents of stride 0, and at most the span.
    pub fn distinct_bytes(&self) -> u64 {
        let distinct = |(&dim, &stride): (&u64, &u64)| if stride == 0 { dim.min(1) } else { dim };
        let elements: u64 = self.dims().iter().zip(self.strides()).map(distinct).product();
        elements.saturating_mul(self.dtype.size_bytes()).min(self.span_bytes())
    }

    /// Whether the tensor is dense and row-major.
    pub fn is_contiguous(&self) -> bool {
        let mut dense = 1;
        self.dims().iter().zip(self.strides()).rev().all(|(&dim, &stride)| {
            let fits = dim <= 1 || stride == dense;
            dense *= dim.max(1);
            fits
        }) || self.is_empty()
    }

    /// Whether no two indices address the same element, as outputs must have it. Strides may lie between each other, as `[2, 3]` of extents `[3, 2]`; those
    /// of which it takes too long to tell, which have no common measure, count as not injective.
    pub fn is_injective(&self) -> bool {
        let mut axes = [(0, 0); MAX_RANK];
        for (axis, (&stride, &dim)) in axes.iter_mut().zip(self.strides().iter().zip(self.dims())) {
            *axis = if dim > 1 { (stride, dim) } else { (0, 0) };
        }
        axes.sort_unstable();
        // Most strides step over everything that the smaller ones reach.
        let mut reach = 0;
        let steps_over = axes.iter().filter(|&&(_, dim)| dim > 1).all(|&(stride, dim)| {
            let steps_over = stride > reach;
            reach += (dim - 1) * stride;
            steps_over
        });
        steps_over || overlap::is_injective(self.dims(), self.strides())
    }
}

impl fmt::Debug for TensorDesc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TensorDesc")
            .field("dtype", &self.dtype)
            .field("dims", &self.dims())
            .field("strides", &self.strides())
            .field("align_bytes", &self.align_bytes)
            .finish()
    }
}

fn check_rank(dims: &[u64]) -> Result<()> {
    if dims.len() > MAX_RANK {
        return Err(Error::tensor("rank", format!("must be at most {MAX_RANK}, got {}", dims.len())));
    }
    Ok(())
}

/// Row-major strides when the extents are walked from the outermost to the innermost in `order`.
fn dense_strides(
    dims: &[u64],
    order: impl IntoIterator<Item = usize, IntoIter: DoubleEndedIterator>,
) -> Result<[u64; MAX_RANK]> {
    let mut strides = [0; MAX_RANK];
    let mut step = 1u64;
    for axis in order.into_iter().rev() {
        strides[axis] = step;
        step = step
            .checked_mul(dims[axis].max(1))
            .ok_or_else(|| Error::tensor("dims", format!("{dims:?} has 2^64 elements or more")))?;
    }
    Ok(strides)
}

/// The JSON of a tensor; strides and alignment only where they are not the default.
#[derive(Serialize, Deserialize)]
#[serde(expecting = "a tensor such as {\"dtype\":\"f32\",\"dims\":[2,3]}", deny_unknown_fields)]
struct Json {
    dtype: DType,
    dims: Vec<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    strides: Option<Vec<u64>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    align: Option<u64>,
}

impl TryFrom<Object<Json>> for TensorDesc {
    type Error = Error;

    fn try_from(Object(json): Object<Json>) -> Result<Self> {
        let desc = match json.strides {
            Some(strides) => Self::strided(json.dtype, &json.dims, &strides)?,
            None => Self::contiguous(json.dtype, &json.dims)?,
        };
        json.align.map_or(Ok(desc), |bytes| desc.align(bytes))
    }
}

impl From<TensorDesc> for Json {
    fn from(desc: TensorDesc) -> Self {
        let dense = TensorDesc::contiguous(desc.dtype, desc.dims()).is_ok_and(|d| d.strides == desc.strides);
        Self {
            dtype: desc.dtype,
            dims: desc.dims().to_vec(),
            strides: (!dense).then(|| desc.strides().to_vec()),
            align: (desc.align_bytes != DEFAULT_ALIGN_BYTES).then_some(desc.align_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dense(dims: &[u64]) -> TensorDesc {
        TensorDesc::contiguous(DType::F16, dims).unwrap()
    }

    #[test]
    fn spans_from_the_first_to_past_the_last_element() {
        assert_eq!(dense(&[]).span_bytes(), 2);
        assert_eq!(dense(&[3, 5]).span_bytes(), 30);
        assert_eq!(dense(&[3, 0, 5]).span_bytes(), 0);
        let rows = TensorDesc::strided(DType::F32, &[3, 5], &[8, 1]).unwrap();
        assert_eq!(rows.span_bytes(), (2 * 8 + 5) * 4);
        let repeated = TensorDesc::strided(DType::F32, &[3, 5], &[0, 1]).unwrap();
        assert_eq!((repeated.span_bytes(), repeated.distinct_bytes()), (20, 20));
        let overlapping = TensorDesc::strided(DType::F64, &[1 << 31, 1 << 31], &[1, 1]).unwrap();
        assert_eq!(overlapping.distinct_bytes(), overlapping.span_bytes());
    }

    #[test]
    fn channels_last_puts_channels_innermost() {
        let x = TensorDesc::channels_last(DType::F32, &[2, 3, 4, 5]).unwrap();
        assert_eq!(x.strides(), [60, 1, 15, 3]);
    }

    #[test]
    fn refuses_what_does_not_fit_64_bits() {
        let huge = u64::MAX / 2;
        for dims in [&[huge, 3][..], &[huge], &[1 << 33, 1 << 33], &[0, huge, huge], &[1; 9]] {
            assert!(TensorDesc::contiguous(DType::F32, dims).is_err(), "{dims:?}");
        }
        assert!(TensorDesc::strided(DType::F32, &[2, 2], &[u64::MAX, u64::MAX]).is_err());
    }

    #[test]
    fn shows_as_many_extents_as_it_has() {
        let error = TensorDesc::contiguous(DType::F64, &[1 << 61, 3]).unwrap_err();
        assert!(error.to_string().contains("with strides [3, 1] spans"), "{error}");
        let shown = format!("{:?}", dense(&[3, 5]));
        assert_eq!(shown, "TensorDesc { dtype: F16, dims: [3, 5], strides: [5, 1], align_bytes: 16 }");
    }

    #[test]
    fn tells_layouts_that_address_an_element_twice() {
        let strided = |dims: &[u64], strides: &[u64]| TensorDesc::strided(DType::F32, dims, strides).unwrap();
        assert!(strided(&[4, 5], &[5, 1]).is_injective());
        assert!(strided(&[4, 5], &[1, 4]).is_injective());
        assert!(!strided(&[4, 5], &[4, 1]).is_injective());
        assert!(!strided(&[4, 5], &[0, 1]).is_injective());
        assert!(strided(&[1, 5], &[0, 1]).is_injective());
        assert!(strided(&[3, 2], &[2, 3]).is_injective() && !strided(&[4, 3], &[2, 3]).is_injective());
    }

    #[test]
    fn a_view_promises_what_its_offset_keeps() {
        assert_eq!(dense(&[8]).for_offset(0).unwrap().align_bytes(), 16);
        assert_eq!(dense(&[8]).for_offset(24).unwrap().align_bytes(), 8);
        assert_eq!(dense(&[8]).for_offset(6).unwrap().align_bytes(), 2);
        assert!(dense(&[8]).for_offset(3).is_err());
    }

    /// The byte at which each element lies, in the order of the indices.
    fn places(desc: &TensorDesc, offset: u64) -> Vec<u64> {
        let mut places = vec![offset];
        for (&dim, &stride) in desc.dims().iter().zip(desc.strides()) {
            let step = stride * desc.dtype().size_bytes();
            places = places.iter().flat_map(|place| (0..dim).map(move |i| place + i * step)).collect();
        }
        places
    }

    fn refused_field<T: fmt::Debug>(result: Result<T>) -> &'static str {
        match result {
            Err(Error::InvalidDescriptor { op: "tensor", field, .. }) => field,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_permuted_tensor_has_the_same_elements() {
        let x = dense(&[2, 3, 4]).align(64).unwrap();
        let y = x.permute(&[2, 0, 1]).unwrap();
        assert_eq!((y.dims(), y.strides(), y.align_bytes()), (&[4, 2, 3][..], &[1, 12, 4][..], 64));
        assert_eq!(y.permute(&[1, 2, 0]).unwrap(), x);
        assert_eq!(dense(&[]).permute(&[]).unwrap(), dense(&[]));
        for axes in [&[0, 1][..], &[0, 1, 1], &[0, 1, 3], &[0, 1, 2, 3], &[usize::MAX, 0, 1], &[0; 9]] {
            assert_eq!(refused_field(x.permute(axes)), "axes", "{axes:?}");
        }
    }

    #[test]
    fn a_narrowed_tensor_begins_at_its_offset_and_promises_what_it_keeps() {
        let x = TensorDesc::strided(DType::F16, &[4, 6], &[8, 1]).unwrap().align(64).unwrap();
        let all = places(&x, 0);
        for (axis, extent) in [(0, 4), (1, 6)] {
            for (start, length) in
                (0..=extent).flat_map(|start| (0..=extent - start).map(move |length| (start, length)))
            {
                let (part, offset) = x.narrow(axis, start, length).unwrap();
                let index = |i: usize| if axis == 0 { i as u64 / 6 } else { i as u64 % 6 };
                let is_inside = |i: &usize| (start..start + length).contains(&index(*i));
                let expected: Vec<u64> = (0..all.len()).filter(is_inside).map(|i| all[i]).collect();
                assert_eq!(places(&part, offset), expected, "{axis} {start} {length}");
                // Any memory that keeps x's promise keeps that of its part.
                assert!(offset.is_multiple_of(part.align_bytes()) && part.align_bytes() >= 2);
                assert!(part.is_empty() || offset + part.span_bytes() <= x.span_bytes());
            }
        }
        let (_, offset) = x.narrow(0, 1, 3).unwrap();
        assert_eq!((offset, x.narrow(0, 1, 3).unwrap().0), (16, x.narrow(0, 1, 3).unwrap().0.for_offset(16).unwrap()));
        assert_eq!(x.narrow(1, 3, 2).unwrap().0.align_bytes(), 2);
        assert_eq!(x.narrow(1, 0, 2).unwrap().0.align_bytes(), 64);
        assert_eq!(refused_field(x.narrow(2, 0, 1)), "axis");
        assert_eq!(refused_field(x.narrow(0, 3, 2)), "length");
        assert_eq!(refused_field(x.narrow(0, u64::MAX, 2)), "length");
        let largest = TensorDesc::strided(DType::F64, &[1 << 60], &[1]).unwrap_err();
        assert!(matches!(largest, Error::InvalidDescriptor { .. }));
        let far = TensorDesc::strided(DType::F32, &[2, 0], &[(1 << 61) - 2, 1 << 61]).unwrap();
        assert_eq!(far.narrow(0, 2, 0).unwrap().1, 0);
        let far = TensorDesc::strided(DType::F32, &[2, 1], &[(1 << 61) - 2, 1 << 61]).unwrap();
        assert_eq!(far.narrow(0, 1, 1).unwrap().1, (1 << 63) - 8);
    }

    #[test]
    fn a_broadcast_tensor_repeats_its_elements() {
        let x = dense(&[3, 1]).align(4).unwrap();
        let y = x.broadcast_to(&[2, 3, 4]).unwrap();
        assert_eq!((y.dims(), y.strides(), y.align_bytes()), (&[2, 3, 4][..], &[0, 1, 0][..], 4));
        assert!(!y.is_injective() && y.span_bytes() == x.span_bytes());
        assert_eq!(x.broadcast_to(&[3, 1]).unwrap(), x);
        assert_eq!(dense(&[]).broadcast_to(&[2, 2]).unwrap().strides(), [0, 0]);
        assert_eq!(x.broadcast_to(&[3, 0]).unwrap().elements(), 0);
        for dims in [&[3][..], &[], &[1, 1], &[4, 3], &[3, 1, 2], &[2, 2, 4]] {
            assert_eq!(refused_field(x.broadcast_to(dims)), "dims", "{dims:?}");
        }
        assert_eq!(refused_field(x.broadcast_to(&[1, 1, 1, 1, 1, 1, 1, 3, 1])), "rank");
        assert_eq!(refused_field(x.broadcast_to(&[1 << 62, 3, 4])), "dims");
    }

    #[test]
    fn json_round_trips_and_is_validated() {
        let descs = [
            dense(&[3, 5]),
            dense(&[]),
            TensorDesc::channels_last(DType::BF16, &[2, 3, 4, 5]).unwrap(),
            dense(&[4]).align(2).unwrap(),
        ];
        for desc in descs {
            let json = serde_json::to_string(&desc).unwrap();
            assert_eq!(serde_json::from_str::<TensorDesc>(&json).unwrap(), desc, "{json}");
        }
        assert_eq!(serde_json::to_string(&dense(&[3, 5])).unwrap(), r#"{"dtype":"f16","dims":[3,5]}"#);
        let overflowing = r#"{"dtype":"f32","dims":[9223372036854775807,4]}"#;
        assert!(serde_json::from_str::<TensorDesc>(overflowing).is_err());
    }
}
