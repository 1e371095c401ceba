//! Convolutions too large for a reference, judged on runs of elements of their outputs. As of products, elements follow from their places, so that
//! what a sum should be is computed where it is judged, in f64.

use anyhow::{Context, Result, ensure};
use baracuda_ops::{
    Buffer, ConvArgs, ConvBackwardDataArgs, ConvBackwardWeightArgs, ConvDescriptor, ConvWindow, DType, Device,
    TensorDesc, Workspace,
};
use baracuda_ops_tests::judge::units;
use half::bf16;
use rayon::prelude::*;

use super::products::{element, plans, within};

/// Elements that are computed or copied at a time.
const PART: u64 = 1 << 24;
/// Elements of a run that is judged.
const RUN: u64 = 64;
/// Runs in even steps, besides those at marked places.
const RUNS: u64 = 60;

/// A tensor of bf16 whose elements follow from their places in memory.
#[derive(Clone, Copy)]
struct Tensor {
    seed: u64,
    /// Samples or filters, channels, two spatial extents.
    dims: [u64; 4],
    is_last: bool,
    /// One of so many elements is not 0: sums of many terms have few that count, so that their roundings do not hide a wrong one.
    one_of: u64,
}

impl Tensor {
    fn elements(&self) -> u64 {
        self.dims.iter().product()
    }

    fn desc(&self) -> Result<TensorDesc> {
        let lie = if self.is_last { TensorDesc::channels_last } else { TensorDesc::contiguous };
        Ok(lie(DType::BF16, &self.dims)?)
    }

    fn value(&self, offset: u64) -> f64 {
        let (value, other) = element(offset ^ (self.seed << 60));
        if other.is_multiple_of(self.one_of) { value } else { 0.0 }
    }

    fn at(&self, [n, c, h, w]: [u64; 4]) -> f64 {
        let [_, channels, height, width] = self.dims;
        let offset = match self.is_last {
            true => ((n * height + h) * width + w) * channels + c,
            false => ((n * channels + c) * height + h) * width + w,
        };
        self.value(offset)
    }

    /// The indices of what lies at an offset.
    fn place(&self, offset: u64) -> [u64; 4] {
        let [_, channels, height, width] = self.dims;
        if self.is_last {
            let pixel = offset / channels;
            return [pixel / width / height, offset % channels, pixel / width % height, pixel % width];
        }
        let row = offset / width;
        [row / height / channels, row / height % channels, row % height, offset % width]
    }

    fn upload(&self, device: &Device) -> Result<Buffer> {
        let buffer = device.alloc(2 * self.elements())?;
        for start in (0..self.elements()).step_by(PART as usize) {
            let offsets = start..self.elements().min(start + PART);
            let part: Vec<bf16> = offsets.into_par_iter().map(|offset| bf16::from_f64(self.value(offset))).collect();
            device.write(&buffer, 2 * start, bytemuck::cast_slice(&part))?;
        }
        Ok(buffer)
    }

    /// The places of what is not 0, by channels.
    fn places(&self) -> Vec<Vec<[u64; 4]>> {
        let found: Vec<[u64; 4]> = (0..self.elements())
            .into_par_iter()
            .filter(|&offset| self.value(offset) != 0.0)
            .map(|offset| self.place(offset))
            .collect();
        let mut places = vec![Vec::new(); self.dims[1] as usize];
        for place in found {
            places[place[1] as usize].push(place);
        }
        places
    }

    /// Runs of elements at the ends, where offsets of 32 bits wrap, and in even steps; all of a small tensor.
    fn runs(&self) -> Vec<u64> {
        let last = self.elements().saturating_sub(RUN);
        let marked = [0, (1 << 31) - RUN / 2, (1 << 32) - RUN / 2, last];
        let steps = if self.elements() <= 1 << 14 { self.elements().div_ceil(RUN) } else { RUNS };
        let even = (0..steps).map(|step| step * self.elements() / steps);
        marked.into_iter().chain(even).filter(|&start| start <= last).collect()
    }

    /// Compares runs of a tensor in memory with the sums that each element should be.
    fn judge<S: Iterator<Item = f64>>(
        &self,
        device: &Device,
        output: &Buffer,
        terms: impl Fn([u64; 4]) -> S + Sync,
    ) -> Result<()> {
        let mut queue = device.queue();
        for start in self.runs() {
            let mut found = vec![bf16::NAN; RUN.min(self.elements() - start) as usize];
            queue.download_range(output, 2 * start, &mut found)?;
            let wrong = found.par_iter().enumerate().find_map_any(|(at, found)| {
                let place = self.place(start + at as u64);
                let (sum, budget) = within(terms(place));
                let units = units(DType::BF16, found.to_f64(), sum, budget);
                (units.is_nan() || units > 1.0)
                    .then(|| format!("{place:?} is {found:e}, expected {sum:e} within {budget:.3e}: {units:.2} units"))
            });
            ensure!(wrong.is_none(), "{}", wrong.unwrap_or_default());
        }
        Ok(())
    }
}

/// A convolution with as much padding before as after.
#[derive(Clone, Copy, Debug)]
struct Conv {
    x: [u64; 4],
    filters: u64,
    kernel: [u64; 2],
    stride: u64,
    padding: [u64; 2],
    groups: u64,
    is_last: bool,
}

impl Conv {
    fn x(&self) -> Tensor {
        Tensor { seed: 1, dims: self.x, is_last: self.is_last, one_of: 1 }
    }

    fn weight(&self) -> Tensor {
        let dims = [self.filters, self.x[1] / self.groups, self.kernel[0], self.kernel[1]];
        Tensor { seed: 2, dims, is_last: self.is_last, one_of: 1 }
    }

    fn y(&self) -> Tensor {
        let extent = |axis: usize| (self.x[2 + axis] + 2 * self.padding[axis] - self.kernel[axis]) / self.stride + 1;
        let dims = [self.x[0], self.filters, extent(0), extent(1)];
        Tensor { seed: 3, dims, is_last: self.is_last, one_of: 1 }
    }

    fn descriptor(&self) -> Result<ConvDescriptor> {
        let window = ConvWindow::new().stride(&[self.stride; 2]).padding(&self.padding).groups(self.groups);
        Ok(ConvDescriptor::new(self.x().desc()?, self.weight().desc()?, window)?)
    }

    /// The places of the kernel.
    fn taps(self) -> impl Iterator<Item = [u64; 2]> {
        (0..self.kernel[0]).flat_map(move |r| (0..self.kernel[1]).map(move |s| [r, s]))
    }

    /// Where x meets a place of the kernel for a place of y.
    fn met(&self, y: [u64; 2], tap: [u64; 2]) -> Option<[u64; 2]> {
        let along = |axis: usize| {
            let at = (y[axis] * self.stride + tap[axis]).checked_sub(self.padding[axis])?;
            (at < self.x[2 + axis]).then_some(at)
        };
        Some([along(0)?, along(1)?])
    }

    /// The place of y whose window has x at a place of the kernel.
    fn meeting(&self, x: [u64; 2], tap: [u64; 2]) -> Option<[u64; 2]> {
        let along = |axis: usize| {
            let at = (x[axis] + self.padding[axis]).checked_sub(tap[axis])?;
            (at.is_multiple_of(self.stride) && at / self.stride < self.y().dims[2 + axis]).then(|| at / self.stride)
        };
        Some([along(0)?, along(1)?])
    }

    fn forward(self, device: &Device) -> Result<()> {
        let (x, weight, y) = (self.x(), self.weight(), self.y());
        let (of_x, of_weight) = (x.upload(device)?, weight.upload(device)?);
        let of_y = device.alloc(2 * y.elements())?;
        let [channels, filters] = [self.x[1] / self.groups, self.filters / self.groups];
        for plan in plans(device, "conv", &self.descriptor()?)? {
            let workspace = device.alloc(plan.workspace().bytes)?;
            plan.run(&mut device.queue(), ConvArgs::new(&of_x, &of_weight, &of_y), Workspace::new(&workspace))?;
            let terms = |[n, k, h, w]: [u64; 4]| {
                self.taps().filter_map(move |tap| Some((tap, self.met([h, w], tap)?))).flat_map(
                    move |([r, s], [i, j])| {
                        (0..channels)
                            .map(move |c| x.at([n, k / filters * channels + c, i, j]) * weight.at([k, c, r, s]))
                    },
                )
            };
            y.judge(device, &of_y, terms).with_context(|| format!("{}: y", plan.info().kernel))?;
        }
        Ok(())
    }

    fn backward_data(self, device: &Device) -> Result<()> {
        let (dx, weight, dy) = (self.x(), self.weight(), self.y());
        let (of_weight, of_dy) = (weight.upload(device)?, dy.upload(device)?);
        let of_dx = device.alloc(2 * dx.elements())?;
        let [channels, filters] = [self.x[1] / self.groups, self.filters / self.groups];
        for plan in plans(device, "conv_backward_data", &self.descriptor()?.backward_data()?)? {
            let workspace = device.alloc(plan.workspace().bytes)?;
            let args = ConvBackwardDataArgs::new(&of_weight, &of_dy, &of_dx);
            plan.run(&mut device.queue(), args, Workspace::new(&workspace))?;
            let terms = |[n, c, i, j]: [u64; 4]| {
                let group = c / channels;
                let met = move |tap| Some((tap, self.meeting([i, j], tap)?));
                self.taps().filter_map(met).flat_map(move |([r, s], [h, w])| {
                    let of_group = group * filters..(group + 1) * filters;
                    of_group.map(move |k| dy.at([n, k, h, w]) * weight.at([k, c % channels, r, s]))
                })
            };
            dx.judge(device, &of_dx, terms).with_context(|| format!("{}: dx", plan.info().kernel))?;
        }
        Ok(())
    }

    /// With a dy of which one of so many elements is not 0.
    fn backward_weight(self, device: &Device, one_of: u64) -> Result<()> {
        let (x, dweight, dy) = (self.x(), self.weight(), Tensor { one_of, ..self.y() });
        let (of_x, of_dy) = (x.upload(device)?, dy.upload(device)?);
        let of_dweight = device.alloc(2 * dweight.elements())?;
        let [channels, filters] = [self.x[1] / self.groups, self.filters / self.groups];
        let places = dy.places();
        for plan in plans(device, "conv_backward_weight", &self.descriptor()?.backward_weight()?)? {
            let workspace = device.alloc(plan.workspace().bytes)?;
            let args = ConvBackwardWeightArgs::new(&of_x, &of_dy, &of_dweight);
            plan.run(&mut device.queue(), args, Workspace::new(&workspace))?;
            let terms = |[k, c, r, s]: [u64; 4]| {
                places[k as usize].iter().filter_map(move |&[n, k, h, w]| {
                    let [i, j] = self.met([h, w], [r, s])?;
                    Some(dy.at([n, k, h, w]) * x.at([n, k / filters * channels + c, i, j]))
                })
            };
            dweight.judge(device, &of_dweight, terms).with_context(|| format!("{}: dweight", plan.info().kernel))?;
        }
        Ok(())
    }

    fn all(self, device: &Device, one_of: u64) -> Result<()> {
        let tried = self.forward(device).and_then(|()| self.backward_data(device));
        tried.and_then(|()| self.backward_weight(device, one_of)).with_context(|| format!("{self:?}"))
    }
}

/// A kernel of 3 by 3 that keeps the extents, of one group and contiguous.
const fn same(x: [u64; 4], filters: u64) -> Conv {
    Conv { x, filters, kernel: [3, 3], stride: 1, padding: [1, 1], groups: 1, is_last: false }
}

/// A kernel of one element.
const fn point(x: [u64; 4], filters: u64) -> Conv {
    Conv { kernel: [1, 1], padding: [0, 0], ..same(x, filters) }
}

/// Convolutions of more than `2^31` elements: in x and its gradient, in y and its gradient, in both; of odd widths and odd numbers of channels.
#[cfg(feature = "cuda")]
pub(super) fn more_than_2_to_the_31(device: &Device) -> Result<()> {
    const LARGE: [Conv; 8] = [
        same([2, 64, 4301, 4301], 8),
        Conv { is_last: true, ..same([2, 65, 4301, 4301], 8) },
        same([2, 8, 4301, 4301], 64),
        Conv { is_last: true, ..same([2, 8, 4301, 4301], 65) },
        Conv { stride: 2, ..same([2, 64, 4301, 4301], 8) },
        point([2, 64, 4301, 4301], 8),
        Conv { is_last: true, ..point([2, 8, 4301, 4301], 65) },
        // One long line, in groups of one channel.
        Conv { kernel: [1, 3], padding: [0, 1], groups: 4, ..same([1, 4, 1, 600_000_011], 4) },
    ];
    for conv in LARGE {
        assert!(conv.x().elements().max(conv.y().elements()) > 1 << 31);
        conv.all(device, 4096)?;
    }
    Ok(())
}

/// Small convolutions are judged in the same way, and one of other factors is noticed.
pub(super) fn sampled(device: &Device) -> Result<()> {
    let small = [
        same([2, 6, 13, 41], 9),
        Conv { is_last: true, ..same([2, 7, 13, 41], 8) },
        Conv { stride: 2, ..same([2, 6, 13, 41], 8) },
        point([2, 16, 23, 41], 24),
        Conv { is_last: true, ..point([2, 15, 23, 41], 24) },
        Conv { kernel: [1, 3], padding: [0, 1], groups: 4, ..same([1, 4, 1, 5011], 4) },
    ];
    for conv in small {
        conv.all(device, 8)?;
    }
    let (tensor, other) = (point([2, 6, 13, 41], 1).x(), point([2, 6, 13, 41], 1).y());
    let output = tensor.upload(device)?;
    tensor.judge(device, &output, |place| [tensor.at(place)].into_iter())?;
    let as_other = Tensor { dims: tensor.dims, ..other };
    let judged = tensor.judge(device, &output, |place| [as_other.at(place)].into_iter());
    ensure!(judged.is_err(), "another tensor passes");
    Ok(())
}
