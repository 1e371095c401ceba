//! How tensors lie, as kernels see them, but for the reference: `[batch, channels, spatial]` with one stride each.

use super::ChannelShape;
use crate::error::Reason;
use crate::ops::norm::spatial::spatial_stride;
use crate::slots::Slot;
use crate::slots::Slots;

/// What lies next to each other in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum ChannelOrder {
    /// The elements of a segment: the spatial stride of every tensor is 1.
    #[default]
    Contiguous,
    /// The channels: the channel stride of every tensor is 1.
    ChannelsLast,
}

/// Strides of one tensor, in elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ChannelStrides {
    pub(crate) batch: u64,
    pub(crate) channel: u64,
    pub(crate) spatial: u64,
}

/// The most tensors of a call: dy, x, residual, y, dx, dresidual.
const TENSORS: usize = 6;

/// Tensors of one call. The element `(n, c, s)` of a tensor lies `n * batch + c * channel + s * spatial` elements after its first.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(any(feature = "cuda", feature = "wgpu")), allow(dead_code, reason = "only GPU kernels need all of it"))]
pub(crate) struct ChannelGeometry {
    pub(crate) shape: ChannelShape,
    pub(crate) order: ChannelOrder,
    /// The widest vector in bytes, at most 16, in which every run of adjacent elements of every tensor can be moved: contiguous a segment,
    /// channels last the channels of one position. Runs start at multiples of it and are a whole number of it.
    pub(crate) vector_bytes: u64,
    /// Strides by the operand's index, of those that are declared.
    strides: [Option<(usize, ChannelStrides)>; TENSORS],
}

#[cfg_attr(not(any(feature = "cuda", feature = "wgpu")), allow(dead_code, reason = "only GPU kernels need all of it"))]
impl ChannelGeometry {
    /// Of those tensors that are declared.
    ///
    /// # Errors
    /// Why the layouts are neither contiguous nor channels last.
    pub(super) fn new(shape: ChannelShape, slots: &Slots, operands: &[usize]) -> Result<Self, Reason> {
        let mut strides = [None; TENSORS];
        for (entry, slot) in strides.iter_mut().zip(slots.all_at(operands)) {
            let spatial = spatial_stride(&slot.desc).map_err(|why| format!("{}: {why}", slot.name))?;
            let steps = slot.desc.strides();
            *entry = Some((slot.index, ChannelStrides { batch: steps[0], channel: steps[1], spatial }));
        }
        let is_contiguous = shape.spatial <= 1 || strides.iter().flatten().all(|(_, s)| s.spatial == 1);
        let is_channels_last = shape.channels <= 1 || strides.iter().flatten().all(|(_, s)| s.channel == 1);
        // Segments of one element say nothing; the channels beside each other do.
        let order = match (is_contiguous, is_channels_last) {
            (true, true) if shape.spatial <= 1 => ChannelOrder::ChannelsLast,
            (true, _) => ChannelOrder::Contiguous,
            (false, true) => ChannelOrder::ChannelsLast,
            (false, false) => {
                let layout = |slot: &Slot| format!("{} {:?}", slot.name, slot.desc.strides());
                let layouts: Vec<String> = slots.all_at(operands).map(layout).collect();
                return Err(format!(
                    "neither the spatial extents nor the channels have stride 1 in every tensor, so copy them to one layout, contiguous or channels-last: {}",
                    layouts.join(", ")
                )
                .into());
            }
        };
        for (_, strides) in strides.iter_mut().flatten() {
            // The stride of an extent of 1 addresses nothing; the kernels take the form of the order.
            match order {
                ChannelOrder::Contiguous => strides.spatial = 1,
                ChannelOrder::ChannelsLast => strides.channel = 1,
            }
        }
        // One alignment of all: that of the addresses, of the runs' lengths and of the steps between runs.
        let (run, run_extent) = match order {
            ChannelOrder::Contiguous => (shape.spatial, shape.channels),
            ChannelOrder::ChannelsLast => (shape.channels, shape.spatial),
        };
        let size = slots.all_at(operands).next().map_or(1, |slot| slot.desc.dtype().size_bytes());
        let mut common = 16 | run.wrapping_mul(size);
        for (slot, (_, strides)) in slots.all_at(operands).zip(strides.iter().flatten()) {
            common |= slot.desc.align_bytes();
            if shape.batch > 1 {
                common |= strides.batch.wrapping_mul(size);
            }
            if run_extent > 1 {
                let step = match order {
                    ChannelOrder::Contiguous => strides.channel,
                    ChannelOrder::ChannelsLast => strides.spatial,
                };
                common |= step.wrapping_mul(size);
            }
        }
        Ok(Self { shape, order, vector_bytes: 1 << common.trailing_zeros(), strides })
    }

    /// Channels last: whether the rows of channels of all samples lie at one stride in every tensor.
    pub(crate) fn is_merged(&self) -> bool {
        let ChannelShape { batch, spatial, .. } = self.shape;
        let follows = |s: &ChannelStrides| s.spatial.checked_mul(spatial) == Some(s.batch);
        batch <= 1 || spatial <= 1 || self.strides.iter().flatten().all(|(_, strides)| follows(strides))
    }

    /// With the rows of channels of all samples as those of one, if they lie at one stride and a channel of all samples shares statistics.
    pub(super) fn merged(mut self) -> Self {
        if self.order == ChannelOrder::ChannelsLast && self.shape.groups == 0 && self.is_merged() {
            for (_, strides) in self.strides.iter_mut().flatten().filter(|_| self.shape.spatial == 1) {
                strides.spatial = strides.batch;
            }
            self.shape = ChannelShape { batch: 1, spatial: self.shape.batch * self.shape.spatial, ..self.shape };
        }
        self
    }

    /// The strides of a tensor, if it is declared.
    pub(crate) fn declared_strides(&self, index: usize) -> Option<ChannelStrides> {
        self.strides.iter().flatten().find(|(at, _)| *at == index).map(|(_, strides)| *strides)
    }

    /// The strides of a tensor; zeros where it is not declared.
    pub(crate) fn strides(&self, index: usize) -> ChannelStrides {
        self.declared_strides(index).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::forward;
    use super::*;
    use crate::dtype::DType;
    use crate::slots::{Layouts, SlotsBuilder};
    use crate::tensor::TensorDesc;

    fn geometry(descs: &[TensorDesc], groups: u64) -> Result<ChannelGeometry, Reason> {
        let mut layouts = Layouts::new();
        let mut slots = SlotsBuilder::new("test", forward::TABLE, &["x", "y"], &mut layouts);
        for (operand, desc) in [forward::X, forward::Y].into_iter().zip(descs) {
            slots.declare(operand, *desc).unwrap();
        }
        let dims = descs[0].dims();
        let shape = ChannelShape { batch: dims[0], channels: dims[1], spatial: dims[2..].iter().product(), groups };
        ChannelGeometry::new(shape, &slots.finish().unwrap(), &[forward::X, forward::Y])
    }

    fn strided(dtype: DType, dims: &[u64], strides: &[u64]) -> TensorDesc {
        TensorDesc::strided(dtype, dims, strides).unwrap()
    }

    #[test]
    fn dense_tensors_have_segments() {
        let x = TensorDesc::contiguous(DType::BF16, &[2, 6, 4, 5, 2]).unwrap();
        let found = geometry(&[x, x], 3).unwrap();
        assert_eq!((found.order, found.shape.spatial), (ChannelOrder::Contiguous, 40));
        assert_eq!(found.strides(forward::Y), ChannelStrides { batch: 240, channel: 40, spatial: 1 });
        assert_eq!(found.vector_bytes, 16);
        assert_eq!(found.strides(forward::RESIDUAL), ChannelStrides::default());
        let odd = TensorDesc::contiguous(DType::BF16, &[2, 6, 7, 7]).unwrap();
        assert_eq!(geometry(&[odd, odd], 3).unwrap().vector_bytes, 2);
    }

    #[test]
    fn channels_last_tensors_have_rows_of_channels() {
        let x = TensorDesc::channels_last(DType::F16, &[2, 24, 5, 7]).unwrap();
        let found = geometry(&[x, x], 0).unwrap();
        assert_eq!(found.order, ChannelOrder::ChannelsLast);
        assert_eq!(found.strides(forward::X), ChannelStrides { batch: 24 * 35, channel: 1, spatial: 24 });
        assert_eq!(found.vector_bytes, 16);
        assert!(found.is_merged());
        let padded = strided(DType::F16, &[2, 24, 5, 7], &[24 * 36, 1, 24 * 7, 24]);
        assert!(!geometry(&[x, padded], 0).unwrap().is_merged());
        let flat = TensorDesc::contiguous(DType::F32, &[8, 12]).unwrap();
        let found = geometry(&[flat, flat], 4).unwrap();
        assert_eq!((found.order, found.vector_bytes), (ChannelOrder::ChannelsLast, 16));
    }

    #[test]
    fn slices_keep_their_strides() {
        let slice = strided(DType::F32, &[2, 3, 4, 4], &[100, 32, 4, 1]);
        let dense = TensorDesc::contiguous(DType::F32, &[2, 3, 4, 4]).unwrap();
        let found = geometry(&[slice, dense], 3).unwrap();
        assert_eq!(found.strides(forward::X), ChannelStrides { batch: 100, channel: 32, spatial: 1 });
        assert_eq!(found.vector_bytes, 16);
        let shifted = dense.for_offset(4).unwrap();
        assert_eq!(geometry(&[dense, shifted], 3).unwrap().vector_bytes, 4);
    }

    #[test]
    fn says_why_a_layout_is_neither() {
        let dense = TensorDesc::contiguous(DType::F32, &[2, 3, 4, 5]).unwrap();
        let last = TensorDesc::channels_last(DType::F32, &[2, 3, 4, 5]).unwrap();
        assert!(geometry(&[dense, last], 0).unwrap_err().to_string().contains("stride 1"));
        let transposed = strided(DType::F32, &[2, 3, 4, 5], &[60, 20, 1, 4]);
        assert!(geometry(&[transposed, dense], 0).unwrap_err().to_string().contains("x: the spatial extents"));
    }
}
