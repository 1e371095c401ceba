//! How kernels see the op: forward and the gradients of the data and of the weight are one contraction, whose first factor is gathered by
//! windows and whose second is a matrix with strides; the gradient of the bias is a sum for each channel.

use super::backward_data::DataFields;
use super::backward_weight::WeightFields;
use super::forward::ForwardFields;
use super::{MAX_AXES, Pass, is_channels_last, table};
use crate::dtype::DType;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
use crate::error::Reason;
use crate::narrow::signed;
use crate::ops::activation::Activation;
use crate::ops::gemm::geometry::{Extent, Fused};
use crate::ops::valid::Valid;
use crate::plan::Descriptor;
use crate::slots::{Slot, Slots};
use crate::tensor::TensorDesc;

/// The ops that compute a contraction.
pub(super) trait Contracting: Descriptor {
    /// What the kernels compute.
    fn contraction(&self) -> Contraction;
}

/// `out[g, m, n]` is the [epilogue](Epilogue) of `sum over t of gathered[g, m, t] * plain[g, t, n]`, for each group g.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Contraction {
    pub(crate) pass: Pass,
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
    pub(crate) epilogue: Epilogue,
}

/// Digits of an index tuple: the lead and the axes.
pub(super) const DIGITS: usize = 1 + MAX_AXES;

/// Index tuples: a sample or a channel of a group, and a spatial position of y, of x or of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Indices {
    /// Samples, or channels of a group.
    pub(crate) lead: u64,
    /// Spatial extents, the last of which is the fastest.
    pub(crate) axes: [u64; MAX_AXES],
    /// Whether lead is the fastest of the tuple, else the slowest.
    pub(crate) lead_last: bool,
}

impl Indices {
    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.axes.iter().product::<u64>() * self.lead
    }

    /// What belongs to the digits of a tuple, the slowest first.
    pub(super) fn in_order<T>(&self, lead: T, [a, b, c]: [T; MAX_AXES]) -> [T; DIGITS] {
        if self.lead_last { [a, b, c, lead] } else { [lead, a, b, c] }
    }

    /// The extents of the digits.
    pub(super) fn digits(&self) -> [u64; DIGITS] {
        self.in_order(self.lead, self.axes)
    }

    /// The digits with their strides in some tensors.
    pub(super) fn extents<const N: usize>(&self, strides: [[u64; DIGITS]; N]) -> impl Iterator<Item = Extent<N>> {
        let digits = self.digits().into_iter().enumerate();
        digits.map(move |(digit, extent)| Extent { extent, strides: strides.map(|of| of[digit]) })
    }
}

/// Strides of an operand in elements, 0 along extents of 1. Of [`Contraction::plain`] the column is n, and lead and axes are those of the
/// terms; of [`Contraction::out`] and `pre` the column is n, and lead and axes are those of the rows.
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

/// The factor that windows gather. Its strides are in elements, 0 along extents of 1; an element that any [`Axis`] places outside is not a
/// term, and kernels that multiply it take 0 for it.
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

/// The coordinate along one spatial extent is `(of_row * row + of_term * term + offset) / divisor`, for the indices of that axis of the row and
/// of the term; it is outside where that is not whole, negative, or `extent` or more. Every number fits into 64 bits with a sign, and but for
/// the extents of the tensors each is below 2^31.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Axis {
    pub(crate) extent: u64,
    pub(crate) stride: u64,
    pub(crate) of_row: i64,
    pub(crate) of_term: i64,
    pub(crate) offset: i64,
    pub(crate) divisor: u64,
}

/// A vector over the columns of each group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vector {
    pub(crate) position: usize,
    pub(crate) dtype: DType,
    /// The promised alignment of its first element.
    pub(crate) align_bytes: u64,
    pub(crate) group: u64,
    pub(crate) column: u64,
}

/// What becomes of a sum before it is rounded and stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Epilogue {
    /// `pre = acc + bias[g, n]`, `out = act(pre)`; pre is written if there is one.
    Forward { bias: Option<Vector>, activation: Activation, pre: Option<Strided> },
    /// `out = acc + beta * out`; with beta 0 out is never read.
    Gradient { beta: f64 },
}

impl Epilogue {
    /// The parts of it.
    pub(super) fn fused(&self) -> Fused<Strided, Vector> {
        match *self {
            Self::Forward { bias, activation, pre } => Fused { bias, activation, beside: pre, beta: 0.0 },
            Self::Gradient { beta } => Fused { bias: None, activation: Activation::Identity, beside: None, beta },
        }
    }
}

/// `dbias[c] = sum over samples and axes of dy[sample, c, axes] + beta * dbias[c]`; with beta 0 dbias is never read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ChannelSums {
    pub(crate) channels: u64,
    pub(crate) samples: u64,
    /// Spatial extents.
    pub(crate) axes: [u64; MAX_AXES],
    /// Its column is the channel, its lead the sample, and its group 0.
    pub(crate) dy: Strided,
    /// Its column is the channel, and its group 0.
    pub(crate) dbias: Vector,
    pub(crate) beta: f64,
}

impl Contraction {
    /// Whether nothing is written.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.count() == 0 || self.n == 0
    }

    /// The positions that windows have, which are those of y but for the gradient of the data, and the elements of the kernel.
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    pub(super) fn positions_and_taps(&self) -> (&Indices, &Indices) {
        if self.pass == Pass::Weight { (&self.terms, &self.rows) } else { (&self.rows, &self.terms) }
    }

    /// Refuses three spatial extents.
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    pub(super) fn check_is_image(&self) -> Result<(), Reason> {
        let first = &self.gathered.axes[0];
        if [self.rows.axes[0], self.terms.axes[0], first.extent] != [1; 3] || first.offset != 0 {
            return Err("it has one or two spatial extents, here there are three".into());
        }
        Ok(())
    }

    /// Multiplications of all sums.
    pub(crate) fn products(&self) -> u64 {
        [self.groups, self.rows.count(), self.n, self.terms.count()].into_iter().fold(1, u64::saturating_mul)
    }

    /// `y[n, g, k, o]`, whose rows are (n, o), terms (c, r) and columns k.
    pub(super) fn forward(valid: &Valid<ForwardFields>) -> Self {
        let Valid { fields, derived: shape, slots, .. } = valid;
        let [x, weight, y] = [table::X, table::WEIGHT, table::Y].map(|index| View::new(slots, index));
        let (y_axes, kernel) = (shape.axes.map(|axis| axis.output), shape.axes.map(|axis| axis.kernel));
        let axes = shape.axes.map(|axis| Axis {
            extent: axis.input,
            of_row: signed(axis.stride),
            of_term: signed(axis.dilation),
            offset: -signed(axis.before),
            divisor: 1,
            stride: 0,
        });
        let (channels, filters) = (shape.channels_in, shape.channels_out);
        Self {
            pass: Pass::Forward,
            groups: shape.groups,
            rows: Indices { lead: shape.samples, axes: y_axes, lead_last: false },
            terms: Indices { lead: channels, axes: kernel, lead_last: x.is_channels_last() },
            n: filters,
            gathered: x.gathered([CHANNELS, SAMPLES, CHANNELS], channels, axes),
            plain: weight.strided([FILTERS, FILTERS, CHANNELS], filters),
            out: y.strided([CHANNELS, CHANNELS, SAMPLES], filters),
            epilogue: Epilogue::Forward {
                bias: slots.at(table::BIAS).map(|slot| vector(slot, filters)),
                activation: fields.activation,
                pre: slots
                    .at(table::PRE)
                    .map(|slot| View { slot: Some(slot) }.strided([CHANNELS, CHANNELS, SAMPLES], filters)),
            },
        }
    }

    /// `dx[n, g, c, i]`, whose rows are (n, i), terms (k, r) and columns c.
    pub(super) fn backward_data(valid: &Valid<DataFields>) -> Self {
        let Valid { fields, derived: shape, slots, .. } = valid;
        let [dy, weight, dx] = [table::DY, table::WEIGHT, table::DX].map(|index| View::new(slots, index));
        let (x_axes, kernel) = (shape.axes.map(|axis| axis.input), shape.axes.map(|axis| axis.kernel));
        let axes = shape.axes.map(|axis| Axis {
            extent: axis.output,
            of_row: 1,
            of_term: -signed(axis.dilation),
            offset: signed(axis.before),
            divisor: axis.stride,
            stride: 0,
        });
        let (channels, filters) = (shape.channels_in, shape.channels_out);
        Self {
            pass: Pass::Data,
            groups: shape.groups,
            rows: Indices { lead: shape.samples, axes: x_axes, lead_last: false },
            terms: Indices { lead: filters, axes: kernel, lead_last: dy.is_channels_last() },
            n: channels,
            gathered: dy.gathered([CHANNELS, SAMPLES, CHANNELS], filters, axes),
            plain: weight.strided([FILTERS, CHANNELS, FILTERS], filters),
            out: dx.strided([CHANNELS, CHANNELS, SAMPLES], channels),
            epilogue: Epilogue::Gradient { beta: fields.beta.get() },
        }
    }

    /// `dweight[g, k, c, r]`, whose rows are (c, r), terms (n, o) and columns k.
    pub(super) fn backward_weight(valid: &Valid<WeightFields>) -> Self {
        let Valid { fields, derived: shape, slots, .. } = valid;
        let [x, dy, dweight] = [table::X, table::DY, table::DWEIGHT].map(|index| View::new(slots, index));
        let (y_axes, kernel) = (shape.axes.map(|axis| axis.output), shape.axes.map(|axis| axis.kernel));
        let axes = shape.axes.map(|axis| Axis {
            extent: axis.input,
            of_row: signed(axis.dilation),
            of_term: signed(axis.stride),
            offset: -signed(axis.before),
            divisor: 1,
            stride: 0,
        });
        let (channels, filters) = (shape.channels_in, shape.channels_out);
        Self {
            pass: Pass::Weight,
            groups: shape.groups,
            rows: Indices { lead: channels, axes: kernel, lead_last: dweight.is_channels_last() },
            terms: Indices { lead: shape.samples, axes: y_axes, lead_last: false },
            n: filters,
            gathered: x.gathered([CHANNELS, CHANNELS, SAMPLES], channels, axes),
            plain: dy.strided([CHANNELS, CHANNELS, SAMPLES], filters),
            out: dweight.strided([FILTERS, FILTERS, CHANNELS], filters),
            epilogue: Epilogue::Gradient { beta: fields.beta.get() },
        }
    }
}

impl ChannelSums {
    pub(super) fn new(desc: &TensorDesc, slots: &Slots, beta: f64) -> Self {
        let mut axes = [1; MAX_AXES];
        let spatial = &desc.dims()[2..];
        axes[MAX_AXES - spatial.len()..].copy_from_slice(spatial);
        Self {
            channels: desc.dims()[1],
            samples: desc.dims()[0],
            axes,
            dy: Strided { group: 0, ..View::new(slots, table::DY).strided([CHANNELS, CHANNELS, SAMPLES], 0) },
            dbias: slots.at(table::DBIAS).map_or(NOWHERE, |slot| vector(slot, 0)),
            beta,
        }
    }
}

/// Extents of x, y and their gradients in front of the spatial ones.
const SAMPLES: usize = 0;
const CHANNELS: usize = 1;
/// The first extent of the weight; its second are the channels of a group.
const FILTERS: usize = 0;

/// A vector that is not declared.
const NOWHERE: Vector = Vector { position: usize::MAX, dtype: DType::F32, align_bytes: 4, group: 0, column: 0 };

/// A tensor `[.., .., spatial..]`.
struct View<'s> {
    /// Every operand that a contraction has is declared.
    slot: Option<&'s Slot>,
}

impl<'s> View<'s> {
    fn new(slots: &'s Slots, index: usize) -> Self {
        Self { slot: slots.at(index) }
    }

    fn is_channels_last(&self) -> bool {
        self.slot.is_some_and(|slot| is_channels_last(&slot.desc))
    }

    /// The stride of an extent, 0 if that is 1.
    fn stride(&self, extent: usize) -> u64 {
        let wide = |slot: &&Slot| slot.desc.dims()[extent] > 1;
        self.slot.filter(wide).map_or(0, |slot| slot.desc.strides()[extent])
    }

    /// The strides of the spatial extents, with 0 in front.
    fn axes(&self) -> [u64; MAX_AXES] {
        let rank = self.slot.map_or(2, |slot| slot.desc.rank());
        let missing = 2 + MAX_AXES - rank;
        std::array::from_fn(|axis| if axis < missing { 0 } else { self.stride(2 + axis - missing) })
    }

    fn place(&self) -> (usize, DType, u64) {
        self.slot.map_or((usize::MAX, DType::F32, 4), |slot| (slot.index, slot.desc.dtype(), slot.desc.align_bytes()))
    }

    /// With the extents that groups, columns and lead belong to, and how many of the first a group has.
    fn strided(&self, [groups, column, lead]: [usize; 3], of_group: u64) -> Strided {
        let (position, dtype, align_bytes) = self.place();
        Strided {
            position,
            dtype,
            align_bytes,
            group: of_group.saturating_mul(self.stride(groups)),
            column: self.stride(column),
            lead: self.stride(lead),
            axes: self.axes(),
        }
    }

    /// With the extents that groups and the leads of rows and terms belong to, and how many of the first a group has; `axes` have no strides.
    fn gathered(&self, [groups, row, term]: [usize; 3], of_group: u64, mut axes: [Axis; MAX_AXES]) -> Gathered {
        let (position, dtype, align_bytes) = self.place();
        for (axis, stride) in axes.iter_mut().zip(self.axes()) {
            axis.stride = stride;
        }
        Gathered {
            position,
            dtype,
            align_bytes,
            group: of_group.saturating_mul(self.stride(groups)),
            row_lead: self.stride(row),
            term_lead: self.stride(term),
            axes,
        }
    }
}

fn vector(slot: &Slot, of_group: u64) -> Vector {
    let desc = &slot.desc;
    let stride = if desc.dims()[0] > 1 { desc.strides()[0] } else { 0 };
    Vector {
        position: slot.index,
        dtype: desc.dtype(),
        align_bytes: desc.align_bytes(),
        group: of_group.saturating_mul(stride),
        column: stride,
    }
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
        assert!(matches!(forward.epilogue, Epilogue::Forward { bias: Some(Vector { group: 5, column: 1, .. }), .. }));

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
