//! The WGSL kernels: what they bind, and their dispatches.

mod bias;
mod depthwise;
mod digits;
mod direct;
mod output;
mod tiled;
mod variants;
mod walk;

use super::ConvBackwardBiasDescriptor;
use super::geometry::{Contracting, Contraction};
use crate::backend::wgpu::{Props, StepBuilder, Work, check_bindings, check_workspace};
use crate::error::Reason;
use crate::kernel::{Accepted, Ask};
use crate::ops::gemm::wgpu::{Tile, check_operands, product_work};
use crate::plan::Descriptor;
use crate::slots::Slot;

use output::bounded;

pub(in crate::ops) use variants::add_variants;

/// Contractions by tiles.
pub(super) fn tiled<'d, D: Contracting>(descriptor: &'d D, props: &Props, _: Ask) -> Accepted<'d> {
    Ok(tiled_work(descriptor, props)?.candidate())
}

/// Depthwise convolutions.
pub(super) fn depthwise<'d, D: Contracting>(descriptor: &'d D, props: &Props, ask: Ask) -> Accepted<'d> {
    Ok(depthwise_work(descriptor, props, ask)?.candidate())
}

/// Groups with few channels.
pub(super) fn direct<'d, D: Contracting>(descriptor: &'d D, props: &Props, _: Ask) -> Accepted<'d> {
    Ok(direct_work(descriptor, props)?.candidate())
}

/// Windows that see mostly padding.
pub(super) fn walk<'d, D: Contracting>(descriptor: &'d D, props: &Props, ask: Ask) -> Accepted<'d> {
    Ok(walk_work(descriptor, props, ask)?.candidate())
}

/// Convolutions that are products of matrices, by gemm's tiles.
pub(super) fn gemm<'d, D: Contracting>(descriptor: &'d D, props: &Props, ask: Ask) -> Accepted<'d> {
    Ok(gemm_work(&descriptor.contraction(), descriptor.slots(), props, ask)?.candidate())
}

/// The kernel of the gradient of the bias.
pub(super) fn backward_bias<'d>(descriptor: &'d ConvBackwardBiasDescriptor, props: &Props, _: Ask) -> Accepted<'d> {
    Ok(bias_work(descriptor, props)?.candidate())
}

fn tiled_work(descriptor: &impl Contracting, props: &Props) -> Result<Work<()>, Reason> {
    check_operands(descriptor.slots(), props)?;
    finished(tiled::steps(&bounded(&descriptor.contraction()), props)?, (), props)
}

fn direct_work(descriptor: &impl Contracting, props: &Props) -> Result<Work<()>, Reason> {
    check_operands(descriptor.slots(), props)?;
    finished(direct::steps(&bounded(&descriptor.contraction()), props)?, (), props)
}

fn walk_work(descriptor: &impl Contracting, props: &Props, ask: Ask) -> Result<Work<()>, Reason> {
    check_operands(descriptor.slots(), props)?;
    finished(walk::steps(&bounded(&descriptor.contraction()), props, ask)?, (), props)
}

fn depthwise_work(descriptor: &impl Contracting, props: &Props, ask: Ask) -> Result<Work<depthwise::Choice>, Reason> {
    check_operands(descriptor.slots(), props)?;
    let (steps, choice) = depthwise::steps(&descriptor.contraction(), props, ask)?;
    finished(steps, choice, props)
}

fn gemm_work(contraction: &Contraction, slots: &[Slot], props: &Props, ask: Ask) -> Result<Work<()>, Reason> {
    let product = contraction.product()?;
    // Gathering computes a place for each element. That this costs a quarter more is an assumption, not measured.
    let [time, of_windows] = [Tile::time_of(&product, props), tiled::time(contraction, props)];
    Reason::unless(ask == Ask::Pinned || time.saturating_mul(4) <= of_windows.saturating_mul(5), || {
        format!("its tiles cost {time}, a quarter more than the {of_windows} of conv_tiled")
    })?;
    product_work(&product, slots, (props, Ask::Chosen))
}

fn bias_work(descriptor: &ConvBackwardBiasDescriptor, props: &Props) -> Result<Work<()>, Reason> {
    check_operands(descriptor.slots(), props)?;
    finished(bias::steps(&descriptor.channel_sums(), props)?, (), props)
}

fn finished<C>((steps, bytes): (Vec<StepBuilder>, u64), choice: C, props: &Props) -> Result<Work<C>, Reason> {
    check_workspace(bytes, props)?;
    check_bindings(&steps, props)?;
    Ok(Work { steps, workspace_bytes: bytes, ..Work::none(choice, props) })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::backend::wgpu::Variants;
    use crate::dtype::DType;
    use crate::ops::activation::Activation;
    use crate::ops::conv::ConvWindow;
    use crate::tensor::TensorDesc;
    use crate::{ConvBackwardBiasDescriptor, ConvBackwardWeightDescriptor, ConvDescriptor};

    fn able() -> Props {
        Props { max_workgroup_bytes: 48 << 10, ..Variants::device(Some((32, 32))) }
    }

    type Layout = fn(DType, &[u64]) -> crate::Result<TensorDesc>;
    const LAYOUTS: [Layout; 2] = [TensorDesc::contiguous, TensorDesc::channels_last];

    fn conv(lie: Layout, x: [u64; 4], filters: u64, groups: u64) -> ConvDescriptor {
        let weight = lie(DType::BF16, &[filters, x[1] / groups, 3, 3]).unwrap();
        let window = ConvWindow::new().padding(&[1, 1]).groups(groups);
        ConvDescriptor::new(lie(DType::BF16, &x).unwrap(), weight, window).unwrap()
    }

    #[test]
    fn a_combination_of_types_has_few_shaders() {
        let mut shaders = HashSet::new();
        let mut add = |work: Result<Work<()>, Reason>| {
            let with_words = |step: &StepBuilder| [true, false].map(|chunks| step.source(chunks && step.can_chunk));
            shaders.extend(work.unwrap().steps.iter().flat_map(with_words));
        };
        let shapes: [([u64; 4], u64); 4] =
            [([32, 64, 64, 64], 128), ([4, 64, 64, 64], 128), ([1, 63, 7, 9], 63), ([2, 12, 5, 64], 12)];
        for (x, filters) in shapes {
            for (lie, groups) in LAYOUTS.into_iter().flat_map(|lie| [(lie, 1), (lie, 3)]) {
                if !x[1].is_multiple_of(groups) || !filters.is_multiple_of(groups) {
                    continue;
                }
                let linear = conv(lie, x, filters, groups);
                for activation in Activation::ALL {
                    let plain = linear.clone().activation(activation).unwrap();
                    let forward = plain.clone().bias(DType::BF16).unwrap().pre(DType::BF16).unwrap();
                    add(tiled_work(&plain, &able()));
                    add(tiled_work(&forward, &able()));
                    add(tiled_work(&linear.backward_data().unwrap().beta(1.0).unwrap(), &able()));
                    add(tiled_work(&linear.backward_weight().unwrap(), &able()));
                    if groups == 3 && x[1] == 12 {
                        add(direct_work(&forward, &able()));
                        add(direct_work(&linear.backward_data().unwrap(), &able()));
                        add(direct_work(&linear.backward_weight().unwrap(), &able()));
                    }
                }
            }
        }
        let of_entry = |entry| shaders.iter().filter(|source| source.entry == entry).count();
        // Of outputs, and of sums of parts, which are f32: each with three tiles, of whole lines and of any elements.
        assert!((7..=12).contains(&of_entry("conv_tiled")), "{}", of_entry("conv_tiled"));
        assert_eq!((of_entry("conv_direct"), of_entry("conv_sums")), (2, 1));
    }

    #[test]
    fn parts_of_the_terms_keep_a_device_busy() {
        let groups = |step: &StepBuilder| u64::from(step.grid[0]) * u64::from(step.grid[1]);
        let steps = |work: Result<Work<()>, Reason>| {
            let work = work.unwrap();
            (work.steps.iter().map(groups).collect::<Vec<_>>(), work.workspace_bytes)
        };
        for lie in LAYOUTS {
            // Many places and few channels, and the other way around: of the weight, whose sums are over places.
            let wide = conv(lie, [64, 64, 56, 56], 64, 1);
            let (of_weight, bytes) = steps(tiled_work(&wide.backward_weight().unwrap(), &able()));
            assert!(of_weight.len() == 2 && of_weight[0] >= 128, "{of_weight:?}");
            assert!(bytes > 4 * 64 * 64 * 9, "{bytes}");
            let deep = conv(lie, [1, 1024, 7, 7], 1024, 1);
            let (of_weight, bytes) = steps(tiled_work(&deep.backward_weight().unwrap(), &able()));
            assert!(of_weight.len() == 1 && of_weight[0] >= 132 && bytes == 0, "{of_weight:?}");
            // Of the output, whose sums are over channels.
            assert_eq!(steps(tiled_work(&wide, &able())).0.len(), 1);
            assert!(steps(tiled_work(&deep, &able())).0[0] >= 200);
            let depthwise = conv(lie, [64, 64, 56, 56], 64, 64);
            let (of_weight, _) = steps(direct_work(&depthwise.backward_weight().unwrap(), &able()));
            assert!(of_weight.len() == 2 && of_weight[0] * 128 >= 16_000, "{of_weight:?}");
        }
    }

    #[test]
    fn products_of_matrices_are_those_of_gemm_where_tiles_are_as_full() {
        let point = |lie: Layout, x: [u64; 4], filters| {
            let weight = lie(DType::BF16, &[filters, x[1], 1, 1]).unwrap();
            ConvDescriptor::new(lie(DType::BF16, &x).unwrap(), weight, ConvWindow::new()).unwrap()
        };
        let work = |contraction: &Contraction, slots: &[Slot], ask| gemm_work(contraction, slots, &able(), ask);
        for (lie, extent, expected) in [(LAYOUTS[0], 56, true), (LAYOUTS[1], 14, true), (LAYOUTS[0], 3, false)] {
            let forward = point(lie, [64, 256, extent, extent], 256);
            let chosen = work(&forward.contraction(), forward.slots(), Ask::Chosen);
            assert_eq!(chosen.is_ok(), expected, "{extent}: {:?}", chosen.err());
            assert!(work(&forward.contraction(), forward.slots(), Ask::Pinned).is_ok());
            // Long sums of few tiles, which workgroups of windows share.
            let weight = forward.backward_weight().unwrap();
            let reason = work(&weight.contraction(), weight.slots(), Ask::Chosen).err().unwrap().to_string();
            assert!(reason.contains("a quarter more"), "{reason}");
        }
    }

    #[test]
    fn windows_that_see_few_elements_are_walked() {
        let upsampling = |kernel: u64, stride: u64| {
            let x = TensorDesc::contiguous(DType::F32, &[1, 1, 7 * stride + kernel]).unwrap();
            let weight = TensorDesc::contiguous(DType::F32, &[8, 1, kernel]).unwrap();
            let forward = ConvDescriptor::new(x, weight, ConvWindow::new().stride(&[stride])).unwrap();
            forward.backward_data().unwrap()
        };
        assert!(walk_work(&upsampling(4096, 1024), &able(), Ask::Chosen).is_ok());
        let usual = upsampling(4, 2);
        let reason = walk_work(&usual, &able(), Ask::Chosen).err().unwrap().to_string();
        assert!(reason.contains("of 576 products 256 are inside"), "{reason}");
        assert!(walk_work(&usual, &able(), Ask::Pinned).is_ok());
    }

    #[test]
    fn coordinates_that_tiles_do_not_reach_are_walked() {
        const FAR: u64 = (1 << 31) - 1;
        let conv = |kernel, window| {
            let of = |dims: &[u64]| TensorDesc::contiguous(DType::F32, dims).unwrap();
            ConvDescriptor::new(of(&[1, 2, 5]), of(&[2, 2, kernel]), window).unwrap()
        };
        let strided = conv(3, ConvWindow::new().stride(&[FAR]).padding(&[FAR]));
        let dilated = conv(2, ConvWindow::new().dilation(&[FAR]).padding_per_side(&[[0, FAR]]));
        for forward in [strided, dilated] {
            assert!(tiled_work(&forward, &able()).is_err());
            assert!(walk_work(&forward, &able(), Ask::Chosen).is_ok());
            // Some of the gradients stay within what tiles count.
            let (data, weight) = (forward.backward_data().unwrap(), forward.backward_weight().unwrap());
            assert!(walk_work(&data, &able(), Ask::Chosen).is_ok() || tiled_work(&data, &able()).is_ok());
            assert!(walk_work(&weight, &able(), Ask::Chosen).is_ok() || tiled_work(&weight, &able()).is_ok());
        }
    }

    #[test]
    fn factors_without_elements_bound_nothing() {
        let of = |dims: &[u64]| TensorDesc::contiguous(DType::F32, dims).unwrap();
        for dims in [[(1 << 31) - 1, 2, 0], [0, 2, 1 << 40]] {
            let bias = ConvBackwardBiasDescriptor::new(of(&dims)).unwrap();
            assert_eq!(bias_work(&bias, &able()).unwrap().steps.len(), 1);
        }
        let extent = (1 << 31) - 1;
        let [x, dy, dweight] = [of(&[0, 2, extent]), of(&[0, 3, extent - 1]), of(&[3, 2, 2])];
        let weight = ConvBackwardWeightDescriptor::new(x, dy, dweight, ConvWindow::new()).unwrap();
        let point =
            ConvBackwardWeightDescriptor::new(x, of(&[0, 3, extent]), of(&[3, 2, 1]), ConvWindow::new()).unwrap();
        for gradient in [&weight, &point] {
            assert_eq!(tiled_work(gradient, &able()).unwrap().steps.len(), 1);
            assert_eq!(walk_work(gradient, &able(), Ask::Pinned).unwrap().steps.len(), 1);
        }
        assert_eq!(gemm_work(&point.contraction(), point.slots(), &able(), Ask::Pinned).unwrap().steps.len(), 1);
        // Channels that x does not have, beside the paddings of an extent that 32 bits do not reach.
        let window = ConvWindow::new().stride(&[1 << 30]).padding(&[1]);
        let forward = ConvDescriptor::new(of(&[1, 0, 1 << 40]), of(&[3, 0, 2]), window).unwrap();
        assert_eq!(tiled_work(&forward, &able()).unwrap().steps.len(), 1);
    }

    #[test]
    fn what_a_driver_for_processors_would_cut_short_is_divided_there() {
        let software = Props { is_cpu: true, ..able() };
        let x = TensorDesc::contiguous(DType::F32, &[1, 1, 2_000_000]).unwrap();
        let weight = TensorDesc::contiguous(DType::F32, &[1, 1, 1]).unwrap();
        let forward = ConvDescriptor::new(x, weight, ConvWindow::new()).unwrap();
        let work = tiled_work(&forward.backward_weight().unwrap(), &software).unwrap();
        assert!(work.steps.len() == 2 && work.steps[0].grid[0] > 3, "{:?}", work.steps[0].grid);
    }

    #[test]
    fn refuses_what_has_no_arithmetic_and_what_indices_do_not_reach() {
        let of = |dtype, dims: &[u64]| TensorDesc::contiguous(dtype, dims).unwrap();
        let reason = |x, weight, window: ConvWindow| {
            let forward = ConvDescriptor::new(x, weight, window).unwrap();
            tiled_work(&forward, &able()).err().unwrap().to_string()
        };
        let wide = reason(of(DType::F64, &[1, 1, 4]), of(DType::F64, &[1, 1, 1]), ConvWindow::new());
        assert!(wide.contains("f64"), "{wide}");
        let long = reason(of(DType::F32, &[1, 1, 1 << 16]), of(DType::F32, &[1 << 16, 1, 1]), ConvWindow::new());
        assert!(long.contains("4294967296"), "{long}");
        let window = ConvWindow::new().padding_per_side(&[[0, (1 << 31) - 1]]).stride(&[(1 << 30) + 2]);
        let padded = reason(of(DType::F32, &[1, 1, 9]), of(DType::F32, &[1, 1, 1]), window);
        assert!(padded.contains("2147483647"), "{padded}");
        let groups = conv(TensorDesc::contiguous, [1, 16, 4, 4], 16, 2);
        let many = direct_work(&groups, &able()).err().unwrap().to_string();
        assert!(many.contains("got 2 with 8"), "{many}");
    }
}
