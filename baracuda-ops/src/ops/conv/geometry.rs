//! How kernels see the op: forward and the gradients of the data and of the weight are one contraction, whose first factor is gathered by
//! windows and whose second is a matrix with strides; the gradient of the bias is a sum for each channel.

use super::conv_transpose;
use super::forward::ForwardFields;
use super::{MAX_AXES, Pass, Shape, is_channels_last, table};
use crate::dtype::{DType, Real};
use crate::error::Reason;
use crate::narrow::signed;
use crate::ops::gemm::geometry::{Epilogue, Extent, Vector};
use crate::ops::valid::{Described, Fields, Valid};
use crate::slots::{Slot, Slots};
use crate::tensor::TensorDesc;

/// The ops that compute a contraction.
pub(super) trait Contracting: Described {
    /// What the kernels compute.
    fn contraction(&self) -> Contraction;
}

/// `out[g, m, n]` is the [epilogue](Epilogue) of `sum over t of gathered[g, m, t] * plain[g, t, n]`, for each group g.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Contraction {
    pub(crate) pass: Pass,
    /// The extents of the convolution, equal in all passes.
    pub(crate) shape: Shape,
    pub(crate) groups: u64,
    /// What m runs over.
    pub(crate) rows: Indices,
    /// What t runs over.
    pub(crate) terms: Indices,
    pub(crate) n: u64,
    /// x in forward and for the weight, dy for the data.
    pub(crate) gathered: Gathered,
    /// The weight in forward and for the data, dy for the weight.
    pub(crate) plain: Strided,
    /// y, dx or dweight.
    pub(crate) out: Strided,
    /// Forward, or a gradient.
    pub(crate) epilogue: Epilogue<Strided>,
}

/// Digits of an index tuple: one for the lead and one for each axis.
pub(super) const DIGITS: usize = 1 + MAX_AXES;

/// Index tuples: a sample or a channel of a group, and a spatial position of y, of x or of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Indices {
    /// Samples, or channels of a group.
    pub(crate) lead: u64,
    /// Spatial extents, the last of which is the fastest.
    pub(crate) axes: [u64; MAX_AXES],
    /// Whether the lead is the digit that varies fastest; else it is the slowest.
    pub(crate) lead_last: bool,
}

impl Indices {
    /// The number of tuples.
    pub(crate) fn count(&self) -> u64 {
        self.axes.iter().product::<u64>() * self.lead
    }

    /// One value for each digit, the slowest first.
    pub(super) fn in_order<T>(&self, lead: T, [a, b, c]: [T; MAX_AXES]) -> [T; DIGITS] {
        if self.lead_last { [a, b, c, lead] } else { [lead, a, b, c] }
    }

    /// The extents of the digits, the slowest first.
    pub(super) fn digits(&self) -> [u64; DIGITS] {
        self.in_order(self.lead, self.axes)
    }

    /// The digits with their strides in N tensors.
    pub(super) fn extents<const N: usize>(&self, strides: [[u64; DIGITS]; N]) -> impl Iterator<Item = Extent<N>> {
        let digits = self.digits().into_iter().enumerate();
        digits.map(move |(digit, extent)| Extent { extent, strides: strides.map(|of| of[digit]) })
    }
}

/// An operand with strides in elements, which are 0 along extents of 1. The column is the index n. Lead and axes are those of the terms for
/// [`Contraction::plain`], and those of the rows for [`Contraction::out`] and `pre`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Strided {
    pub(crate) position: usize,
    pub(crate) dtype: DType,
    /// The promised alignment of its first element.
    pub(crate) align_bytes: u64,
    pub(crate) group: u64,
    pub(crate) column: u64,
    pub(crate) lead: u64,
    pub(crate) axes: [u64; MAX_AXES],
}

impl Strided {
    /// The strides of the digits of the tuples that its lead and axes belong to.
    pub(super) fn digits(&self, of: &Indices) -> [u64; DIGITS] {
        of.in_order(self.lead, self.axes)
    }
}

/// The factor that windows gather. Its strides are in elements, 0 along extents of 1. Where an [`Axis`] gives a coordinate outside the tensor, the sum
/// has no term; kernels may multiply a 0 there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gathered {
    pub(crate) position: usize,
    pub(crate) dtype: DType,
    /// The promised alignment of its first element.
    pub(crate) align_bytes: u64,
    pub(crate) group: u64,
    /// Stride of the lead of the rows.
    pub(crate) row_lead: u64,
    /// Stride of the lead of the terms.
    pub(crate) term_lead: u64,
    pub(crate) axes: [Axis; MAX_AXES],
}

/// One spatial axis of the gathered tensor. The coordinate is `(of_row * row + of_term * term + offset) / divisor`, of the indices along this axis of the
/// row and of the term. It is outside the tensor if it is not whole, is negative, or is `extent` or more. Every number fits into 64 bits with a sign, and
/// all but the extents of tensors are below 2^31.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Axis {
    pub(crate) extent: u64,
    pub(crate) stride: u64,
    pub(crate) of_row: i64,
    pub(crate) of_term: i64,
    pub(crate) offset: i64,
    pub(crate) divisor: u64,
}

/// `dbias[c] = sum over samples and axes of dy[sample, c, axes] + beta * dbias[c]`. If beta is 0, dbias is not read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ChannelSums {
    pub(crate) channels: u64,
    /// Samples and spatial extents.
    pub(crate) terms: Indices,
    /// Its column is the channel, its lead and axes those of the terms, and its group 0.
    pub(crate) dy: Strided,
    pub(crate) dbias: Vector,
    pub(crate) beta: f64,
}

impl Contraction {
    /// Whether nothing is written.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.count() == 0 || self.n == 0
    }

    /// The positions of the windows, which are positions of x in the gradient of the data and else of y, and the elements of the kernel.
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    pub(super) fn positions_and_taps(&self) -> (&Indices, &Indices) {
        if self.pass == Pass::Weight { (&self.terms, &self.rows) } else { (&self.rows, &self.terms) }
    }

    /// The type of both factors.
    ///
    /// # Errors
    /// Factors of two types.
    pub(super) fn factor_type(&self) -> Result<DType, Reason> {
        let [gathered, plain] = [self.gathered.dtype, self.plain.dtype];
        Reason::unless(gathered == plain, || format!("it multiplies factors of one type, got {gathered} and {plain}"))?;
        Ok(gathered)
    }

    /// # Errors
    /// Three spatial extents.
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    pub(super) fn check_is_image(&self) -> Result<(), Reason> {
        let first = &self.gathered.axes[0];
        Reason::unless(
            [self.rows.axes[0], self.terms.axes[0], first.extent] == [1; 3] && first.offset == 0,
            || "it serves one or two spatial extents, got three",
        )?;
        Ok(())
    }

    /// The number of multiplications, over all sums.
    pub(crate) fn products(&self) -> u64 {
        [self.groups, self.rows.count(), self.n, self.terms.count()].into_iter().fold(1, u64::saturating_mul)
    }

    /// Factors of a coordinate of the gathered tensor along an axis: that of the window's position, and that of the kernel element.
    #[cfg(feature = "cuda")]
    pub(super) fn position_and_tap_steps(&self, axis: &Axis) -> [i64; 2] {
        if self.pass == Pass::Weight { [axis.of_term, axis.of_row] } else { [axis.of_row, axis.of_term] }
    }

    /// The gathered factor by the index tuples of the windows' positions: the lead is the sample, the column is a channel of the kernel's elements.
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    pub(super) fn gathered_by_positions(&self) -> Strided {
        let Gathered { position, dtype, align_bytes, group, row_lead, term_lead, axes } = self.gathered;
        let [lead, column] = if self.pass == Pass::Weight { [term_lead, row_lead] } else { [row_lead, term_lead] };
        Strided { position, dtype, align_bytes, group, column, lead, axes: axes.map(|axis| axis.stride) }
    }

    /// `y[n, g, k, o]`, whose rows are (n, o), terms (c, r) and columns k.
    pub(super) fn forward(valid: &Valid<ForwardFields>) -> Self {
        let Valid { fields, derived: shape, slots, .. } = valid;
        let pre = slots.at(table::PRE).map(|slot| View { slot }.of_images(shape.channels_out));
        let bias = slots.at(table::BIAS).map(|slot| vector(slot, shape.channels_out));
        let epilogue = Epilogue::forward(bias, fields.activation, pre);
        Self::new(Pass::Forward, Pass::Forward.tensors(), shape, slots, epilogue)
    }

    /// `y[n, g, c, o]` of a transposed convolution: the gradient of the data with x in the place of dy, which ends as forward does.
    pub(super) fn transposed(valid: &conv_transpose::Valid) -> Self {
        let (fields, shape, slots) = (&valid.fields, &valid.derived.shape, &valid.slots);
        let pre = slots.at(table::PRE).map(|slot| View { slot }.of_images(shape.channels_in));
        let bias = slots.at(table::BIAS).map(|slot| vector(slot, shape.channels_in));
        let epilogue = Epilogue::forward(bias, fields.activation, pre);
        Self::new(Pass::Data, [table::Y, table::WEIGHT, table::X], shape, slots, epilogue)
    }

    /// `dx[n, g, c, i]`, whose rows are (n, i), terms (k, r) and columns c, or `dweight[g, k, c, r]`, whose rows are (c, r), terms (n, o) and columns k.
    pub(super) fn gradient<F: Fields<Kind = Pass, Derived = Shape>>(valid: &Valid<F>, beta: Real) -> Self {
        let pass = valid.op.kind;
        Self::new(pass, pass.tensors(), &valid.derived, &valid.slots, Epilogue::gradient(beta.get()))
    }

    /// `tensors`: the rows of what has the extents of x, of the weight and of y.
    fn new(pass: Pass, tensors: [usize; 3], shape: &Shape, slots: &Slots, epilogue: Epilogue<Strided>) -> Self {
        let [x, weight, y] = tensors.map(|index| View { slot: slots.always(index) });
        let (channels, filters) = (shape.channels_in, shape.channels_out);
        let axes = shape.axes.map(|axis| {
            let [stride, dilation, before] = [axis.stride, axis.dilation, axis.before].map(signed);
            let (extent, of_row, of_term, offset, divisor) = match pass {
                Pass::Forward => (axis.input, stride, dilation, -before, 1),
                Pass::Data => (axis.output, 1, -dilation, before, axis.stride),
                Pass::Weight => (axis.input, dilation, stride, -before, 1),
            };
            Axis { extent, stride: 0, of_row, of_term, offset, divisor }
        });
        let positions = |axes| Indices { lead: shape.samples, axes, lead_last: false };
        let taps = |lead, channels_of: &View<'_>| Indices {
            lead,
            axes: shape.axes.map(|axis| axis.kernel),
            lead_last: is_channels_last(&channels_of.slot.desc),
        };
        let [x_axes, y_axes] = [shape.axes.map(|axis| axis.input), shape.axes.map(|axis| axis.output)];
        let of_weight = |column, lead| weight.strided([FILTERS, column, lead], filters);
        let (rows, terms, n, gathered, plain, out) = match pass {
            Pass::Forward => (
                positions(y_axes),
                taps(channels, &x),
                filters,
                x.gathered([SAMPLES, CHANNELS], channels, axes),
                of_weight(FILTERS, CHANNELS),
                y.of_images(filters),
            ),
            Pass::Data => (
                positions(x_axes),
                taps(filters, &y),
                channels,
                y.gathered([SAMPLES, CHANNELS], filters, axes),
                of_weight(CHANNELS, FILTERS),
                x.of_images(channels),
            ),
            Pass::Weight => (
                taps(channels, &weight),
                positions(y_axes),
                filters,
                x.gathered([CHANNELS, SAMPLES], channels, axes),
                y.of_images(filters),
                of_weight(FILTERS, CHANNELS),
            ),
        };
        Self { pass, shape: *shape, groups: shape.groups, rows, terms, n, gathered, plain, out, epilogue }
    }
}

impl ChannelSums {
    pub(super) fn new(desc: &TensorDesc, slots: &Slots, beta: f64) -> Self {
        let mut axes = [1; MAX_AXES];
        let spatial = &desc.dims()[2..];
        axes[MAX_AXES - spatial.len()..].copy_from_slice(spatial);
        Self {
            channels: desc.dims()[1],
            terms: Indices { lead: desc.dims()[0], axes, lead_last: false },
            dy: View { slot: slots.always(table::DY) }.of_images(0),
            dbias: vector(slots.always(table::DBIAS), 0),
            beta,
        }
    }
}

/// The first two extents of x, y and their gradients; spatial extents follow.
const SAMPLES: usize = 0;
const CHANNELS: usize = 1;
/// The first extent of the weight; its second one is the channels of a group.
const FILTERS: usize = 0;

/// A tensor `[.., .., spatial..]`.
struct View<'s> {
    slot: &'s Slot,
}

impl View<'_> {
    /// The stride of an extent; 0 if the extent is 1.
    fn stride(&self, extent: usize) -> u64 {
        if self.slot.desc.dims()[extent] > 1 { self.slot.desc.strides()[extent] } else { 0 }
    }

    /// The strides of the spatial axes; those that the tensor lacks come first and are 0.
    fn axes(&self) -> [u64; MAX_AXES] {
        let missing = 2 + MAX_AXES - self.slot.desc.rank();
        std::array::from_fn(|axis| if axis < missing { 0 } else { self.stride(2 + axis - missing) })
    }

    /// Of x, y or a gradient of these, whose columns are channels and whose lead is the sample, with so many channels in each group.
    fn of_images(&self, of_group: u64) -> Strided {
        self.strided([CHANNELS, CHANNELS, SAMPLES], of_group)
    }

    /// With the extents that groups, columns and lead belong to, and how many of the first a group has.
    fn strided(&self, [groups, column, lead]: [usize; 3], of_group: u64) -> Strided {
        let desc = &self.slot.desc;
        Strided {
            position: self.slot.index,
            dtype: desc.dtype(),
            align_bytes: desc.align_bytes(),
            group: of_group.saturating_mul(self.stride(groups)),
            column: self.stride(column),
            lead: self.stride(lead),
            axes: self.axes(),
        }
    }

    /// With the extents that the leads of rows and terms belong to, and how many channels a group has; `axes` have no strides.
    fn gathered(&self, [row, term]: [usize; 2], of_group: u64, mut axes: [Axis; MAX_AXES]) -> Gathered {
        let desc = &self.slot.desc;
        for (axis, stride) in axes.iter_mut().zip(self.axes()) {
            axis.stride = stride;
        }
        Gathered {
            position: self.slot.index,
            dtype: desc.dtype(),
            align_bytes: desc.align_bytes(),
            group: of_group.saturating_mul(self.stride(CHANNELS)),
            row_lead: self.stride(row),
            term_lead: self.stride(term),
            axes,
        }
    }
}

/// A vector over channels, with so many in each group.
fn vector(slot: &Slot, of_group: u64) -> Vector {
    let (stride, desc) = (View { slot }.stride(0), &slot.desc);
    let (position, dtype, align_bytes) = (slot.index, desc.dtype(), desc.align_bytes());
    Vector { position, dtype, align_bytes, stride, group: of_group.saturating_mul(stride) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ConvDescriptor, ConvWindow, Result};

    fn dense(dims: &[u64]) -> TensorDesc {
        TensorDesc::contiguous(DType::F32, dims).unwrap()
    }

    fn channels_last(dims: &[u64]) -> TensorDesc {
        TensorDesc::channels_last(DType::F32, dims).unwrap()
    }

    /// Two groups, of a stride of 2 along the rows and a dilation of 3 along the columns.
    fn conv(lie: impl Fn(&[u64]) -> TensorDesc) -> ConvDescriptor {
        let window = ConvWindow::new().stride(&[2, 1]).dilation(&[1, 3]).padding_per_side(&[[1, 0], [4, 5]]).groups(2);
        ConvDescriptor::new(lie(&[2, 6, 7, 8]), lie(&[10, 3, 2, 3]), window).unwrap().bias(DType::F32).unwrap()
    }

    #[test]
    fn each_product_has_its_rows_terms_and_columns() {
        let forward = conv(dense).contraction();
        assert_eq!((forward.groups, forward.n), (2, 5));
        assert_eq!(forward.rows, Indices { lead: 2, axes: [1, 4, 11], lead_last: false });
        assert_eq!(forward.terms, Indices { lead: 3, axes: [1, 2, 3], lead_last: false });
        let Gathered { group, row_lead, term_lead, axes, .. } = forward.gathered;
        assert_eq!((group, row_lead, term_lead), (3 * 56, 6 * 56, 56));
        assert_eq!(axes[1], Axis { extent: 7, stride: 8, of_row: 2, of_term: 1, offset: -1, divisor: 1 });
        assert_eq!(axes[2], Axis { extent: 8, stride: 1, of_row: 1, of_term: 3, offset: -4, divisor: 1 });
        let Strided { group, column, lead, axes, .. } = forward.plain;
        assert_eq!((group, column, lead, axes), (5 * 18, 18, 6, [0, 3, 1]));
        let Strided { group, column, lead, axes, .. } = forward.out;
        assert_eq!((group, column, lead, axes), (5 * 44, 44, 440, [0, 11, 1]));
        assert!(matches!(forward.epilogue.bias, Some(Vector { group: 5, stride: 1, .. })));

        let data = conv(dense).backward_data().unwrap().contraction();
        assert_eq!((data.rows.axes, data.terms.lead, data.n), ([1, 7, 8], 5, 3));
        let Axis { of_row, of_term, offset, divisor, extent, .. } = data.gathered.axes[1];
        assert_eq!((of_row, of_term, offset, divisor, extent), (1, -1, 1, 2, 4));
        assert_eq!((data.plain.column, data.plain.lead, data.plain.group), (6, 18, 90));

        let weight = conv(dense).backward_weight().unwrap().contraction();
        assert_eq!((weight.rows.lead, weight.rows.axes, weight.n), (3, [1, 2, 3], 5));
        assert_eq!((weight.terms.lead, weight.terms.axes), (2, [1, 4, 11]));
        assert_eq!((weight.gathered.axes[2].of_row, weight.gathered.axes[2].of_term), (3, 1));
        assert_eq!((weight.out.column, weight.out.lead, weight.out.group), (18, 6, 90));
        assert!([&forward, &data, &weight].iter().all(|it| it.products() % (2 * 5 * 3 * 2 * 2 * 3) == 0));
    }

    #[test]
    fn channels_that_lie_next_to_each_other_are_the_fastest_of_their_tuple() {
        let forward = conv(channels_last);
        let contraction = forward.contraction();
        assert!(contraction.terms.lead_last && !contraction.rows.lead_last);
        assert_eq!((contraction.out.column, contraction.out.axes, contraction.out.lead), (1, [0, 110, 10], 440));
        assert_eq!(contraction.plain.axes, [0, 9, 3]);
        assert!(forward.backward_data().unwrap().contraction().terms.lead_last);
        let weight = forward.backward_weight().unwrap().contraction();
        assert!(weight.rows.lead_last && !weight.terms.lead_last);
    }

    #[test]
    fn extents_of_one_have_no_stride() -> Result<()> {
        let x = TensorDesc::strided(DType::F32, &[1, 4, 1, 9], &[u64::MAX, 9, u64::MAX, 1])?;
        let forward = ConvDescriptor::new(x, dense(&[1, 4, 1, 1]), ConvWindow::new())?.contraction();
        assert_eq!((forward.gathered.row_lead, forward.gathered.axes.map(|axis| axis.stride)), (0, [0, 0, 1]));
        assert_eq!((forward.plain.column, forward.plain.lead, forward.out.column), (0, 1, 0));
        Ok(())
    }
}
