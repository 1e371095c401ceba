//! Choices for devices that are not there, and where the kernels go with them.

use super::product::merged;
use super::sums::First as SumsFirst;
use super::*;
use crate::backend::cuda::Props;
use crate::dtype::DType;
use crate::ops::activation::Activation;
use crate::ops::conv::{ConvDescriptor, ConvWindow};
use crate::plan::Descriptor;
use crate::tensor::TensorDesc;

fn dense(dtype: DType, dims: &[u64]) -> TensorDesc {
    TensorDesc::contiguous(dtype, dims).unwrap()
}

fn last(dtype: DType, dims: &[u64]) -> TensorDesc {
    TensorDesc::channels_last(dtype, dims).unwrap()
}

fn example() -> Props {
    Props::examples().find(|props| props.name == "H200").unwrap()
}

fn h200() -> DeviceProps {
    DeviceProps::Cuda(example())
}

fn planned(form: OwnForm, contraction: &Contraction) -> Planned {
    let options = PlanOptions::default().math(Math::Tf32);
    let props = h200();
    Planned::new(form, contraction, &Limits::new(&options, &props, Ask::Pinned).unwrap()).unwrap()
}

fn refusal<D: Contracting>(form: ConvForm, descriptor: &D) -> String {
    form.accept(descriptor, &PlanOptions::default(), &h200(), Ask::Chosen).err().unwrap().to_string()
}

/// The choice of a form with gemm's tiles.
fn tiled(planned: &Planned) -> sys::bops_conv_choice {
    match planned.choice {
        Some(First::Mma(choice) | First::Simt(choice)) => choice,
        other => panic!("{other:?}"),
    }
}

/// A kernel of 3 x 3 that keeps the extents.
fn same() -> ConvWindow {
    ConvWindow::new().padding(&[1, 1])
}

fn square(lie: fn(DType, &[u64]) -> TensorDesc, dtype: DType, [n, ci, co, extent]: [u64; 4]) -> ConvDescriptor {
    ConvDescriptor::new(lie(dtype, &[n, ci, extent, extent]), lie(dtype, &[co, ci, 3, 3]), same()).unwrap()
}

#[test]
fn products_of_matrices_of_f32_are_those_of_gemm() {
    let point = |lie: fn(DType, &[u64]) -> TensorDesc, dtype| {
        ConvDescriptor::new(lie(dtype, &[4, 64, 14, 14]), lie(dtype, &[32, 64, 1, 1]), ConvWindow::new()).unwrap()
    };
    let tf32 = PlanOptions::default().math(Math::Tf32);
    for lie in [dense as fn(DType, &[u64]) -> TensorDesc, last] {
        let forward = point(lie, DType::F32);
        assert_eq!(h200().supports(&forward, &PlanOptions::default()).unwrap(), "conv_gemm_cublaslt");
        assert_eq!(h200().supports(&forward, &tf32).unwrap(), "conv_cudnn");
        assert_eq!(h200().supports(&point(lie, DType::BF16), &PlanOptions::default()).unwrap(), "conv_cudnn");
        let data = forward.backward_data().unwrap();
        assert_eq!(h200().supports(&data, &PlanOptions::default()).unwrap(), "conv_backward_data_gemm_cublaslt");
        let weight = h200().supports(&forward.backward_weight().unwrap(), &PlanOptions::default()).unwrap();
        // Sums over images that lie apart.
        let form = if lie(DType::F32, &[4, 64, 14, 14]).strides()[1] == 1 { "cublaslt" } else { "simt" };
        assert_eq!(weight, format!("conv_backward_weight_gemm_{form}"));
        // cuBLASLt adds a bias to the columns of rows that lie one after the other.
        let biased = h200().supports(&forward.bias(DType::F32).unwrap(), &PlanOptions::default()).unwrap();
        assert_eq!(biased, if form == "simt" { "conv_cudnn" } else { "conv_gemm_cublaslt" });
    }
    let silu = point(last, DType::F32).activation(Activation::Silu).unwrap();
    assert_eq!(h200().supports(&silu, &PlanOptions::default()).unwrap(), "conv_gemm_simt");
    let silu = point(last, DType::BF16).activation(Activation::Silu).unwrap();
    assert_eq!(h200().supports(&silu, &PlanOptions::default()).unwrap(), "conv_gemm_wgmma");
}

#[test]
fn tensor_cores_serve_what_they_have_an_instruction_for_and_simt_the_rest() {
    let chosen = |forward: &ConvDescriptor| h200().supports(forward, &PlanOptions::default()).unwrap();
    // The vendor leaves it to them.
    let of = |dtype| square(last, dtype, [2, 16, 16, 8]).activation(Activation::Silu).unwrap();
    assert_eq!([DType::BF16, DType::F32].map(|dtype| chosen(&of(dtype))), ["conv_mma", "conv_simt"]);
    let tf32 = PlanOptions::default().math(Math::Tf32);
    let chosen_of_tf32 = [8, 16].map(|channels| {
        let of = square(last, DType::F32, [2, channels, 16, 8]).activation(Activation::Silu).unwrap();
        h200().supports(&of, &tf32).unwrap()
    });
    assert_eq!(chosen_of_tf32, ["conv_mma", "conv_wgmma"]);
    assert!(refusal(ConvForm::Own(OwnForm::Mma), &of(DType::F32)).contains("tf32"));
    assert!(refusal(ConvForm::Own(OwnForm::Mma), &of(DType::F64)).contains("f64"));
    let mixed = square(last, DType::F16, [2, 16, 16, 8]).y(DType::F32).unwrap().backward_data().unwrap();
    assert!(refusal(ConvForm::Own(OwnForm::Mma), &mixed).contains("f32 and f16"));
    assert_eq!(h200().supports(&mixed, &PlanOptions::default()).unwrap(), "conv_backward_data_simt");
    let long = dense(DType::F16, &[1, 1, (1 << 30) + 7]);
    let long = ConvDescriptor::new(long, dense(DType::F16, &[1, 1, 3]), ConvWindow::new()).unwrap();
    assert!(refusal(ConvForm::Own(OwnForm::Mma), &long).contains("32 bits"));
    let choice = tiled(&planned(OwnForm::Simt, &long.contraction()));
    assert_eq!((choice.is_long, choice.product.tile), (1, 32));
}

#[test]
fn rows_are_as_many_digits_as_lie_behind_one_another_where_they_are_written() {
    let shape = |contraction: Contraction| {
        let params = planned(OwnForm::Simt, &contraction).params.product;
        (params.m, params.n, params.k, params.batch[..to_usize(params.batch_rank)].to_vec())
    };
    fn to_usize(n: u32) -> usize {
        crate::narrow::to_usize(u64::from(n))
    }
    let nchw = square(dense, DType::F32, [2, 3, 5, 6]);
    assert_eq!(shape(nchw.contraction()), (36, 5, 27, vec![1, 2]));
    assert_eq!(shape(nchw.backward_weight().unwrap().contraction()), (27, 5, 72, vec![1]));
    let nhwc = square(last, DType::F32, [2, 3, 5, 6]);
    assert_eq!(shape(nhwc.contraction()), (72, 5, 27, vec![1]));
    assert_eq!(shape(nhwc.backward_data().unwrap().contraction()), (72, 3, 45, vec![1]));
    assert_eq!(shape(nhwc.backward_weight().unwrap().contraction()), (27, 5, 72, vec![1]));
    // pre is written where y is: sample by sample.
    let two = nhwc.pre(DType::F32).unwrap().layout("pre", dense(DType::F32, &[2, 5, 6, 6])).unwrap();
    assert_eq!(shape(two.contraction()), (36, 5, 27, vec![1, 2]));
    assert_eq!(merged(&[3, 1, 4], &[4, 99, 1]), Some(1));
    assert_eq!(merged(&[3, 4], &[8, 2]), Some(2));
    assert_eq!(merged(&[3, 4], &[9, 2]), None);
    assert_eq!(merged(&[1, 1], &[7, 7]), Some(1));
}

#[test]
fn chunks_of_16_bytes_come_of_channels_that_lie_next_to_each_other() {
    let accesses = |contraction: &Contraction| {
        let choice = tiled(&planned(OwnForm::Mma, contraction)).product;
        ([choice.left_bytes, choice.right_bytes], [choice.left_across, choice.right_across])
    };
    let all = |forward: ConvDescriptor| {
        let data = forward.backward_data().unwrap().contraction();
        let weight = forward.backward_weight().unwrap().contraction();
        [forward.contraction(), data, weight].map(|contraction| accesses(&contraction))
    };
    let nhwc = [([16, 16], [0, 0]), ([16, 16], [0, 1]), ([16, 16], [1, 1])];
    assert_eq!(all(square(last, DType::BF16, [2, 16, 24, 8])), nhwc);
    assert_eq!(all(square(last, DType::F32, [2, 4, 12, 8])), nhwc);
    // Rows of the weight are 12 * 9 elements, and y has 64 of each channel.
    let nchw = [([2, 2], [0, 0]), ([2, 2], [0, 0]), ([2, 16], [0, 0])];
    assert_eq!(all(square(dense, DType::F16, [2, 12, 16, 8])), nchw);
    // Channels by twelve, which are no whole number of chunks.
    assert_eq!(all(square(last, DType::F16, [2, 12, 20, 8])), [([2, 2], [0, 0]), ([2, 2], [0, 1]), ([2, 2], [0, 1])]);
    let near = square(last, DType::F16, [2, 16, 16, 8]);
    let x = last(DType::F16, &[2, 16, 8, 8]).align(8).unwrap();
    assert_eq!(accesses(&near.layout("x", x).unwrap().contraction()), ([2, 16], [0, 0]));
}

#[test]
fn long_sums_are_shared_by_blocks_unless_groups_have_biases() {
    let gradient = square(last, DType::BF16, [8, 64, 64, 28]).backward_weight().unwrap().contraction();
    let of_gradient = planned(OwnForm::Mma, &gradient);
    let splits = u64::from(tiled(&of_gradient).product.splits);
    assert!(splits > 1, "{of_gradient:?}");
    assert_eq!((of_gradient.product.scratch_bytes, of_gradient.launches()), (splits * 9 * 64 * 64 * 4, 2));
    let window = same().groups(2);
    let x = last(DType::BF16, &[1, 2048, 4, 4]);
    let grouped = ConvDescriptor::new(x, last(DType::BF16, &[16, 1024, 3, 3]), window).unwrap();
    assert!(tiled(&planned(OwnForm::Mma, &grouped.contraction())).product.splits > 1);
    let grouped = planned(OwnForm::Mma, &grouped.bias(DType::F32).unwrap().contraction());
    assert_eq!((tiled(&grouped).product.splits, grouped.params.bias_group), (1, 8));
}

#[test]
fn without_terms_the_groups_are_columns_of_one_product() {
    let x = dense(DType::F32, &[2, 0, 5, 5]);
    let forward = ConvDescriptor::new(x, dense(DType::F32, &[6, 0, 3, 3]), ConvWindow::new().groups(2)).unwrap();
    let planned = planned(OwnForm::Simt, &forward.bias(DType::F32).unwrap().contraction());
    assert!(planned.choice.is_none() && planned.launches() == 1);
    let params = planned.product.finish_params;
    assert_eq!((params.m, params.n, params.out.column, params.bias.column), (9, 6, 9, 1));
}

/// Where the kernels find the elements of row `row` and term `term` of a group: in the gathered factor, if there is one, and in the plain one.
fn found(params: &sys::bops_conv_params, group: u64, row: u64, term: u64) -> (Option<i64>, u64) {
    let digits = |index: &sys::bops_conv_index, mut value: u64| {
        let mut digits = [0; 4];
        for (to, extent) in digits.iter_mut().zip(&index.extents).rev() {
            (*to, value) = (signed(value % extent), value / extent);
        }
        digits
    };
    let element = |index: &sys::bops_conv_index, digits: &[i64; 4]| -> i64 {
        digits.iter().zip(&index.gathered).map(|(digit, by)| digit * by).sum()
    };
    let of_axis = |index: &sys::bops_conv_index, digits: &[i64; 4], axis: usize| {
        digits[if index.lead_last == 1 { axis } else { axis + 1 }] * index.coordinate[axis]
    };
    let (row, term) = (digits(&params.rows, row), digits(&params.terms, term));
    let mut place = signed(group * params.gathered_group) + params.first_element;
    place += element(&params.rows, &row) + element(&params.terms, &term);
    let mut is_there = true;
    for (axis, of) in params.axes.iter().enumerate() {
        let coordinate =
            params.first_coordinate[axis] + of_axis(&params.rows, &row, axis) + of_axis(&params.terms, &term, axis);
        is_there &= coordinate >= 0 && coordinate % of.divisor == 0 && coordinate / of.divisor < of.extent;
        place += if params.is_divided == 1 { coordinate / of.divisor * of.stride } else { 0 };
    }
    let plain = group * params.plain_group
        + term.iter().zip(&params.plain_term).map(|(&digit, stride)| digit.unsigned_abs() * stride).sum::<u64>();
    (is_there.then_some(place), plain)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap()
}

#[test]
fn kernels_find_the_elements_that_the_formulas_name() {
    let window = ConvWindow::new().stride(&[2, 1]).dilation(&[1, 3]).padding_per_side(&[[1, 0], [4, 5]]).groups(2);
    for lie in [dense, last] {
        let (x, weight) = (lie(DType::F32, &[2, 6, 5, 4]), lie(DType::F32, &[4, 3, 2, 3]));
        let forward = ConvDescriptor::new(x, weight, window.clone()).unwrap();
        let y = forward.slots()[2].desc;
        let [rows_out, columns_out] = [y.dims()[2], y.dims()[3]];
        // Every element of x that meets one of the weight, with that of y.
        let mut wanted = [Vec::new(), Vec::new(), Vec::new()];
        let at = |desc: &TensorDesc, [a, b, c, d]: [u64; 4]| {
            [a, b, c, d].iter().zip(desc.strides()).map(|(index, stride)| index * stride).sum::<u64>()
        };
        let all = |extents: [u64; 7]| {
            let count: u64 = extents.iter().product();
            (0..count).map(move |mut index| {
                let mut digits = [0; 7];
                for (to, extent) in digits.iter_mut().zip(&extents).rev() {
                    (*to, index) = (index % extent, index / extent);
                }
                digits
            })
        };
        for [n, k, c, o0, o1, r0, r1] in all([2, 4, 3, rows_out, columns_out, 2, 3]) {
            let (i0, i1) = ((2 * o0 + r0).wrapping_sub(1), (o1 + 3 * r1).wrapping_sub(4));
            if i0 < 5 && i1 < 4 {
                let x = at(&x, [n, k / 2 * 3 + c, i0, i1]);
                let (weight, y) = (at(&weight, [k, c, r0, r1]), at(&y, [n, k, o0, o1]));
                wanted[0].push([y, x, weight]);
                wanted[1].push([x, y, weight]);
                wanted[2].push([weight, x, y]);
            }
        }
        let data = forward.backward_data().unwrap().contraction();
        let weight = forward.backward_weight().unwrap().contraction();
        for (contraction, mut wanted) in [forward.contraction(), data, weight].iter().zip(wanted) {
            let params = planned(OwnForm::Simt, contraction).params;
            let product = &params.product;
            let mut seen = Vec::new();
            for z in 0..product.batch[0] * product.batch[1] {
                let (group, outer) = (z / product.batch[1], z % product.batch[1]);
                for [m, n, term, ..] in all([product.m, product.n, product.k, 1, 1, 1, 1]) {
                    let (gathered, plain) = found(&params, group, outer * product.m + m, term);
                    let out = group * product.out.batch[0] + outer * product.out.batch[1];
                    let out = out + m * product.out.row + n * product.out.column;
                    if let Some(place) = gathered {
                        seen.push([out, place.unsigned_abs(), plain + n * params.plain_column]);
                    }
                }
            }
            seen.sort_unstable();
            wanted.sort_unstable();
            assert_eq!(seen, wanted);
        }
    }
}

/// A channel each, of a square kernel that keeps the extents.
fn depthwise(
    lie: fn(DType, &[u64]) -> TensorDesc,
    dtype: DType,
    [n, channels, rows, cols, kernel]: [u64; 5],
) -> ConvDescriptor {
    let window = ConvWindow::new().padding(&[kernel / 2; 2]).groups(channels);
    ConvDescriptor::new(lie(dtype, &[n, channels, rows, cols]), dense(dtype, &[channels, 1, kernel, kernel]), window)
        .unwrap()
}

#[test]
fn groups_of_one_channel_of_x_have_kernels_of_their_own() {
    let chosen = |forward: &ConvDescriptor| h200().supports(forward, &PlanOptions::default()).unwrap();
    let of = |dtype| depthwise(last, dtype, [2, 8, 9, 12, 3]);
    assert_eq!([DType::F32, DType::BF16].map(|dtype| chosen(&of(dtype))), ["conv_depthwise"; 2]);
    let refused = |conv: &ConvDescriptor| {
        ConvForm::Depthwise.accept(conv, &PlanOptions::default(), &h200(), Ask::Chosen).err().unwrap().to_string()
    };
    assert!(refused(&of(DType::F64)).contains("f64"));
    assert!(refused(&square(last, DType::F32, [2, 3, 5, 6])).contains("got 3"));
    let solid = ConvWindow::new().groups(2);
    let solid =
        ConvDescriptor::new(dense(DType::F32, &[1, 2, 4, 5, 6]), dense(DType::F32, &[2, 1, 2, 2, 2]), solid).unwrap();
    assert!(refused(&solid).contains("three"));
    let window = ConvWindow::new().stride(&[2, 2]).padding(&[1, 1]).groups(8);
    let strided = ConvDescriptor::new(last(DType::F32, &[2, 8, 12, 12]), dense(DType::F32, &[8, 1, 3, 3]), window);
    assert!(refused(&strided.unwrap()).contains("without stride"));
    let wide = depthwise(dense, DType::F16, [2, 4, 16, 16, 7]).backward_weight().unwrap();
    let wide =
        ConvForm::Depthwise.accept(&wide, &PlanOptions::default(), &h200(), Ask::Pinned).err().unwrap().to_string();
    assert!(wide.contains("up to 5 by 5, got 7"), "{wide}");
}

#[test]
fn threads_of_depthwise_have_four_channels_or_four_columns() {
    use super::depthwise::Planned;
    let choices = |forward: &ConvDescriptor| {
        let options = PlanOptions::default();
        let props = h200();
        let limits = Limits::new(&options, &props, Ask::Pinned).unwrap();
        let data = forward.backward_data().unwrap().contraction();
        let weight = forward.backward_weight().unwrap().contraction();
        [forward.contraction(), data, weight].map(|contraction| {
            let choice = Planned::new(&contraction, &limits).unwrap().choice;
            (choice.channels, choice.lanes, choice.gathered_run, choice.out_run)
        })
    };
    assert_eq!(choices(&depthwise(last, DType::BF16, [2, 256, 56, 56, 3])), [(4, 32, 1, 1); 3]);
    assert_eq!(choices(&depthwise(dense, DType::F32, [2, 256, 56, 56, 3])), [(1, 1, 4, 4); 3]);
    assert_eq!(choices(&depthwise(dense, DType::BF16, [2, 256, 56, 56, 3])), [(1, 1, 8, 8); 3]);
    assert_eq!(choices(&depthwise(dense, DType::BF16, [2, 256, 28, 28, 5])), [(1, 1, 4, 4); 3]);
    assert_eq!(choices(&depthwise(dense, DType::F32, [2, 256, 55, 55, 3])), [(1, 1, 1, 1); 3]);
    // Channels that are no fours, and too many sums for four channels.
    assert_eq!(choices(&depthwise(last, DType::F16, [2, 30, 9, 9, 5])), [(1, 32, 1, 1); 3]);
    let [forward, data, weight] = choices(&depthwise(last, DType::F16, [2, 36, 9, 9, 5]));
    assert_eq!([forward, data], [(4, 4, 1, 1); 2]);
    assert_eq!(weight.0, 1);
}

#[test]
fn sums_of_channels_go_along_what_lies_next_to_each_other() {
    let sums = |dy: TensorDesc| {
        let descriptor = ConvBackwardBiasDescriptor::new(dy).unwrap();
        PlannedSums::new(&descriptor.channel_sums(), &example()).unwrap()
    };
    let runs = |dy| match sums(dy).first {
        Some(SumsFirst::Runs(params)) => (params.runs, params.run, params.vector),
        other => panic!("{other:?}"),
    };
    let columns = |dy| match sums(dy).first {
        Some(SumsFirst::Columns(params)) => (params.m, params.n, params.quads),
        other => panic!("{other:?}"),
    };
    assert_eq!(runs(dense(DType::F16, &[3, 5, 4, 6])), (3, 24, 8));
    assert_eq!(runs(dense(DType::F16, &[3, 5, 41])), (3, 41, 1));
    assert_eq!(runs(dense(DType::F32, &[3, 1, 4, 6])), (1, 72, 4));
    let vectors = |dy| match sums(dy).first {
        Some(SumsFirst::Vectors(params)) => (params.rows, params.channels, params.lanes, params.parts),
        other => panic!("{other:?}"),
    };
    assert_eq!(vectors(last(DType::F16, &[3, 8, 4, 6])), (72, 8, 1, 1));
    assert_eq!(vectors(last(DType::BF16, &[64, 256, 56, 56])), (64 * 3136, 256, 32, 2 * 132));
    assert_eq!(vectors(dense(DType::F32, &[3, 8, 1, 1])), (3, 8, 2, 1));
    assert_eq!(columns(last(DType::F16, &[3, 12, 4, 6])), (72, 12, 1));
    assert_eq!(columns(last(DType::F16, &[3, 5, 4, 6])), (72, 5, 0));
    // Sums over nothing, and nothing to sum.
    let none = sums(dense(DType::F32, &[0, 4, 7]));
    assert_eq!((none.first, none.launches(), none.part_bytes), (None, 1, 0));
    assert_eq!(sums(dense(DType::F32, &[2, 0, 7])).launches(), 0);
    let wide = sums(dense(DType::BF16, &[64, 3, 224, 224]));
    let parts = (64 * 224 * 224_u64).div_ceil(256 * 16 * 8);
    assert_eq!((wide.part_bytes, wide.launches()), (parts * 3 * 4, 2));
}

/// That of `conv_wgmma`, and how many blocks share a tile.
fn windowed(contraction: &Contraction) -> (Planned, sys::bops_conv_wgmma_choice) {
    let planned = planned(OwnForm::Wgmma, contraction);
    match planned.choice {
        Some(super::product::First::Wgmma(choice)) => (planned, choice),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_copy_engine_gathers_channels_that_are_neighbours() {
    let forward = square(last, DType::BF16, [64, 64, 128, 56]);
    let (planned, choice) = windowed(&forward.contraction());
    let product = &planned.params.product;
    assert_eq!((product.m, product.n, product.k, product.summed[0]), (64 * 56 * 56, 128, 64, 9));
    assert_eq!((product.right.matrix.row, product.right.summed[0], planned.params.plain_column), (1, 64, 9 * 64));
    assert_eq!((choice.splits, choice.light, choice.of_weight, choice.right_across), (1, 1, 0, 0));
    assert_eq!((planned.launches(), planned.product.scratch_bytes, planned.turns), (1, 0, [None; 2]));
    // The weight of the gradient of the data lies along its columns, the channels.
    let (planned, choice) = windowed(&forward.backward_data().unwrap().contraction());
    let product = &planned.params.product;
    assert_eq!((product.n, product.k, product.right.matrix.row, product.right.summed[0]), (64, 128, 9 * 64, 64));
    assert_eq!((choice.of_weight, choice.right_across), (0, 1));
    // Terms of the gradient of the weight are positions, of which dy has rows.
    let (planned, choice) = windowed(&forward.backward_weight().unwrap().contraction());
    let product = &planned.params.product;
    assert_eq!((product.m, product.n, product.k, product.summed[0]), (9 * 64, 128, 64 * 56 * 56, 1));
    assert_eq!((product.right.matrix.row, choice.of_weight, choice.right_across, choice.across), (128, 1, 1, 1));
    assert!(choice.splits > 10 && planned.launches() == 2);
}

#[test]
fn the_copy_engine_reads_copies_of_contiguous_operands() {
    let forward = square(dense, DType::F16, [8, 64, 128, 28]);
    let (planned, choice) = windowed(&forward.contraction());
    let [x, weight] = planned.turns.map(Option::unwrap);
    let of = |turn: super::wgmma::Turn| {
        let params = turn.params;
        ([params.outer, params.rows, params.columns], [params.outer_stride, params.row_stride], params.vector)
    };
    assert_eq!(of(x), ([8, 64, 784], [64 * 784, 784], 8));
    assert_eq!(of(weight), ([128, 64, 9], [64 * 9, 9], 1));
    // They lie behind the parts of the sums, one after the other.
    let parts = if choice.splits > 1 { u64::from(choice.splits) * 8 * 784 * 128 * 4 } else { 0 };
    let x_bytes = 8 * 64 * 784 * 2;
    assert_eq!([x.at, weight.at], [parts, parts + x_bytes]);
    assert_eq!(planned.product.scratch_bytes, parts + x_bytes + 128 * 64 * 9 * 2);
    assert_eq!(planned.params.rows.gathered[0], 784 * 64);
    // A row of a part is a kernel element and a channel; in dweight channels are the outer ones.
    let (planned, choice) = windowed(&forward.backward_weight().unwrap().contraction());
    let (finish, _) = planned.product.finish.unwrap();
    let params = &planned.product.finish_params;
    assert_eq!((params.m, params.n, &params.batch[..3]), (64, 128, &[1, 3, 3][..]));
    assert_eq!((params.out.row, params.out.column, &params.out.batch[..3]), (9, 9 * 64, &[0, 3, 1][..]));
    assert_eq!((finish.source.row, finish.source.column), (128, 1));
    assert_eq!(finish.source.batch[1..3], [3 * 64 * 128, 64 * 128]);
    assert_eq!((finish.split_stride, choice.across), (9 * 64 * 128, 0));
    assert_eq!((planned.params.product.m, planned.params.product.batch_rank), (9 * 64, 1));
}

#[test]
fn tiles_of_64_columns_serve_products_that_fill_no_others() {
    let columns = |contraction: Contraction| windowed(&contraction).1.columns;
    let few = square(last, DType::BF16, [64, 64, 64, 56]);
    assert_eq!(columns(few.contraction()), 64);
    assert_eq!(columns(few.backward_data().unwrap().contraction()), 64);
    assert_eq!(columns(few.backward_weight().unwrap().contraction()), 64);
    assert_eq!(columns(square(last, DType::BF16, [1, 512, 512, 128]).contraction()), 128);
}

#[test]
fn factors_of_f32_lie_along_the_terms() {
    let forward = square(last, DType::F32, [8, 64, 128, 28]);
    let (planned, choice) = windowed(&forward.contraction());
    assert_eq!((planned.turns, choice.right_across, planned.rounds_to_tf32), ([None; 2], 0, true));
    // The filters of the weight become neighbours, for which its other extents are one index.
    for (lie, column, tap) in [(last as fn(DType, &[u64]) -> TensorDesc, 1, 64), (dense, 9, 1)] {
        let data = square(lie, DType::F32, [8, 64, 128, 28]).backward_data().unwrap();
        let (planned, choice) = windowed(&data.contraction());
        let turn = planned.turns[1].unwrap().params;
        assert_eq!((turn.outer, turn.rows, turn.columns, turn.row_stride), (1, 128, 9 * 64, 9 * 64));
        assert_eq!((turn.pitch, turn.element_bytes, turn.vector), (128, 4, 4));
        let product = &planned.params.product;
        assert_eq!((product.right.matrix.row, product.right.summed[0]), (1, tap * 128));
        assert_eq!((planned.params.plain_column, choice.right_across), (column * 128, 0));
    }
    let tf32 = PlanOptions::default().math(Math::Tf32);
    let weight = forward.backward_weight().unwrap();
    let told = ConvForm::Own(OwnForm::Wgmma).accept(&weight, &tf32, &h200(), Ask::Chosen).err().unwrap().to_string();
    assert!(told.contains("tf32 along the terms"), "{told}");
    let silu = forward.activation(Activation::Silu).unwrap();
    assert_eq!(h200().supports(&silu, &tf32).unwrap(), "conv_wgmma");
}

#[test]
fn what_the_copy_engine_does_not_gather_is_refused() {
    let tell = |conv: &ConvDescriptor| refusal(ConvForm::Own(OwnForm::Wgmma), conv);
    assert!(tell(&square(last, DType::F32, [2, 64, 64, 8])).contains("tf32"));
    assert!(tell(&square(last, DType::BF16, [2, 12, 64, 8])).contains("there are 12"));
    let of = |x: &[u64], weight: &[u64], window: ConvWindow| {
        ConvDescriptor::new(last(DType::F16, x), last(DType::F16, weight), window).unwrap()
    };
    let plain = ConvWindow::new;
    assert!(tell(&of(&[1, 64, 4, 4], &[8, 32, 3, 3], plain().groups(2))).contains("got 2"));
    assert!(tell(&of(&[1, 64, 4, 4, 4], &[8, 64, 3, 3, 3], plain())).contains("three"));
    assert!(tell(&of(&[1, 64, 4, 4], &[8, 64, 3, 3], plain().padding(&[200, 0]))).contains("begin at -200"));
    assert!(tell(&of(&[1, 64, 900, 4], &[8, 64, 3, 3], plain().dilation(&[128, 1]))).contains("are 256 wide"));
    assert!(tell(&of(&[1, 64, 90, 4], &[8, 64, 3, 3], plain().stride(&[9, 1]))).contains("9 apart"));
    let strided = of(&[1, 64, 9, 9], &[64, 64, 3, 3], plain().stride(&[2, 2]));
    assert!(refusal(ConvForm::Own(OwnForm::Wgmma), &strided.backward_data().unwrap()).contains("strides"));
    let few = of(&[1, 40, 9, 9], &[64, 40, 3, 3], plain());
    assert!(refusal(ConvForm::Own(OwnForm::Wgmma), &few.backward_weight().unwrap()).contains("there are 40"));
    let relu = square(last, DType::BF16, [2, 64, 64, 8]).activation(Activation::Relu).unwrap();
    assert_eq!(h200().supports(&relu, &PlanOptions::default()).unwrap(), "conv_wgmma");
    let small = PlanOptions::default().workspace_limit(1000);
    let contiguous = square(dense, DType::BF16, [2, 64, 64, 8]);
    let told =
        ConvForm::Own(OwnForm::Wgmma).accept(&contiguous, &small, &h200(), Ask::Chosen).err().unwrap().to_string();
    assert!(told.contains("limit is 1000"), "{told}");
}

#[test]
fn few_channels_have_a_form_of_their_own() {
    use few_channels::Choice::{Data, Forward, Weight};
    let window = || ConvWindow::new().stride(&[2, 2]).padding(&[3, 3]);
    let stem = |lie: fn(DType, &[u64]) -> TensorDesc, dtype, channels, extent| {
        let x = lie(dtype, &[64, channels, extent, extent]);
        ConvDescriptor::new(x, lie(dtype, &[64, channels, 7, 7]), window()).unwrap()
    };
    for lie in [dense as fn(DType, &[u64]) -> TensorDesc, last] {
        let across = u32::from(lie(DType::BF16, &[1, 2, 3, 4]).strides()[1] != 1);
        let forward = stem(lie, DType::BF16, 3, 224);
        let (data, weight) = (forward.backward_data().unwrap(), forward.backward_weight().unwrap());
        let options = PlanOptions::default();
        assert_eq!(h200().supports(&forward, &options).unwrap(), "conv_few_channels");
        assert_eq!(h200().supports(&weight, &options).unwrap(), "conv_backward_weight_few_channels");
        assert_eq!(h200().supports(&data, &options).unwrap(), "conv_backward_data_few_channels");
        let plan = |contraction: &Contraction| {
            few_channels::Planned::new(contraction, &Limits::new(&options, &h200(), Ask::Chosen).unwrap()).unwrap()
        };
        let of_forward = |forward: &ConvDescriptor| match plan(&forward.contraction()).choice {
            Forward(choice) => choice,
            other => panic!("{other:?}"),
        };
        let choice = of_forward(&forward);
        assert_eq!((choice.rows, choice.columns, choice.padded, choice.light), (1, 112, 4, 1));
        assert_eq!((choice.parts, choice.across), (3 * 132, across));
        let weight = plan(&weight.contraction());
        let Weight(choice, add_up) = weight.choice else { panic!("{weight:?}") };
        assert_eq!((choice.parts, choice.eights, add_up.sums.n), (2 * 132, 1, 64 * 147));
        assert_eq!((weight.params.weight_filter, weight.params.channels), (147, 3));
        // Two rows and columns of dx to a cell, under which four of dy lie.
        let data = plan(&data.contraction());
        let Data(choice) = data.choice else { panic!("{data:?}") };
        assert_eq!((choice.lowest, choice.taps, choice.eights), ([-1; 2], [4; 2], 1));
        assert!(choice.positions >= choice.cells + 3 + 7 * across, "{choice:?}");
        // Of several rows where they are short, and of equal parts where they are long.
        let choice = of_forward(&square(lie, DType::BF16, [256, 3, 64, 32]));
        assert_eq!((choice.rows, choice.columns, choice.padded), (4, 32, 8));
        let choice = of_forward(&square(lie, DType::BF16, [16, 3, 64, 260]));
        assert_eq!((choice.rows, choice.columns), (1, 96));
        let words = |descriptor: &ConvDescriptor| refusal(ConvForm::FewChannels, descriptor);
        assert!(words(&stem(lie, DType::BF16, 8, 224)).contains("up to 4 channels"));
        assert!(words(&stem(lie, DType::BF16, 9, 224)).contains("at most 8 channels"));
        assert!(words(&stem(lie, DType::F32, 3, 224)).contains("tf32"));
        assert!(words(&stem(lie, DType::BF16, 3, 32)).contains("rows of 16"));
        let large =
            ConvDescriptor::new(lie(DType::BF16, &[1, 3, 90, 90]), lie(DType::BF16, &[64, 3, 51, 51]), window());
        let pinned = PlanOptions::default().kernel("conv_few_channels");
        let reason = h200().supports(&large.unwrap(), &pinned).unwrap_err().to_string();
        assert!(reason.contains("of shared memory at least, a block has 232448"), "{reason}");
        let wide = stem(lie, DType::BF16, 8, 64).backward_data().unwrap();
        let pinned = PlanOptions::default().kernel("conv_backward_data_few_channels");
        let reason = h200().supports(&wide, &pinned).unwrap_err().to_string();
        assert!(reason.contains("at most 64 columns, got 128"), "{reason}");
    }
    let grouped =
        ConvDescriptor::new(last(DType::F16, &[1, 4, 9, 9]), last(DType::F16, &[4, 2, 3, 3]), same().groups(2));
    assert!(refusal(ConvForm::FewChannels, &grouped.unwrap()).contains("one group, got 2"));
}
