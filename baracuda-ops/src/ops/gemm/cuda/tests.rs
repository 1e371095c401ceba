//! Choices for devices that are not there, and where the kernels go with them.

use super::*;
use crate::backend::cuda::Props;
use crate::ops::activation::Activation;
use crate::ops::gemm::GemmFactor;
use crate::options::PlanOptions;
use crate::plan::Descriptor;
use crate::tensor::TensorDesc;

fn dense(dtype: DType, dims: &[u64]) -> TensorDesc {
    TensorDesc::contiguous(dtype, dims).unwrap()
}

fn device(name: &str) -> Props {
    Props::examples().find(|props| props.name == name).unwrap()
}

fn h200() -> DeviceProps {
    DeviceProps::Cuda(device("H200"))
}

fn chosen<D: Descriptor>(descriptor: &D) -> &'static str {
    h200().supports(descriptor, &PlanOptions::default()).unwrap()
}

fn refusal<D: Working>(form: &GemmForm, descriptor: &D, options: PlanOptions) -> String {
    let ask = if options.kernel.is_some() { Ask::Pinned } else { Ask::Chosen };
    form.accept(descriptor, &options, &h200(), ask).err().unwrap().to_string()
}

fn limits(props: &Props) -> Limits<'_> {
    Limits { props, math: Math::Strict, workspace_bytes: u64::MAX, is_pinned: true, is_invariant: false }
}

fn silu(forward: GemmDescriptor) -> GemmDescriptor {
    forward.activation(Activation::Silu).unwrap()
}

#[test]
fn the_vendor_serves_bare_products_and_long_sums_and_mma_the_rest() {
    let forward =
        |dtype, [m, k, n]: [u64; 3]| GemmDescriptor::new(dense(dtype, &[m, k]), dense(dtype, &[k, n])).unwrap();
    assert_eq!(chosen(&forward(DType::BF16, [64, 32, 64])), "gemm_cublaslt");
    assert_eq!(chosen(&forward(DType::BF16, [64, 32, 64]).bias(DType::BF16).unwrap()), "gemm_cublaslt");
    assert_eq!(chosen(&silu(forward(DType::BF16, [4096, 4096, 4096]))), "gemm_wgmma");
    assert_eq!(chosen(&silu(forward(DType::BF16, [256, 4096, 4096]))), "gemm_cublaslt");
    assert_eq!(chosen(&silu(forward(DType::BF16, [4096, 4100, 4096]))), "gemm_wgmma");
    assert_eq!(chosen(&silu(forward(DType::BF16, [4096, 252, 4096]))), "gemm_wgmma");
    assert_eq!(chosen(&silu(forward(DType::F32, [64, 32, 64]))), "gemm_simt");
    // Sums of 2 GB: the pass for them is not spent.
    let long = silu(forward(DType::F16, [32768, 4100, 16384]));
    let without = PlanOptions::default().workspace_limit(0);
    assert_eq!(h200().supports(&long, &without).unwrap(), "gemm_mma");
    // A factor without a stride of 1.
    let spread = TensorDesc::strided(DType::BF16, &[64, 32], &[64, 2]).unwrap();
    assert_eq!(chosen(&GemmDescriptor::new(spread, dense(DType::BF16, &[32, 64])).unwrap()), "gemm_mma");
}

#[test]
fn refusals_name_the_limit() {
    let factors = |dtype| (dense(dtype, &[64, 32]), dense(dtype, &[32, 64]));
    let (a, b) = factors(DType::F32);
    let forward = GemmDescriptor::new(a, b).unwrap();
    assert!(refusal(&GemmForm::Mma, &forward, PlanOptions::default()).contains("tf32"));
    let rounded =
        GemmForm::Mma.accept(&forward, &PlanOptions::default().math(Math::Tf32), &h200(), Ask::Chosen).unwrap();
    assert_eq!(rounded.math, Math::Tf32);
    let (a, b) = factors(DType::F64);
    assert!(refusal(&GemmForm::Mma, &GemmDescriptor::new(a, b).unwrap(), PlanOptions::default()).contains("f64"));
    let (a, b) = factors(DType::BF16);
    let forward = GemmDescriptor::new(a, b).unwrap();
    let wide = forward.clone().bias(DType::F32).unwrap();
    assert!(refusal(&GemmForm::CublasLt, &wide, PlanOptions::default()).contains("f32"));
    let near = dense(DType::BF16, &[64]).align(2).unwrap();
    let near = forward.clone().bias(DType::BF16).unwrap().layout("bias", near).unwrap();
    assert!(refusal(&GemmForm::CublasLt, &near, PlanOptions::default()).contains("multiple of 16"));
    assert!(refusal(&GemmForm::CublasLt, &silu(forward.clone()), PlanOptions::default()).contains("k = 320"));
    let limited = PlanOptions::default().kernel("gemm_cublaslt").workspace_limit(1000);
    assert!(refusal(&GemmForm::CublasLt, &silu(forward), limited).contains("16384 bytes"));
    let heads = dense(DType::BF16, &[2, 5, 3, 8]).permute(&[0, 2, 1, 3]).unwrap();
    let scores = GemmDescriptor::new(heads, GemmFactor::transposed(heads)).unwrap();
    assert!(refusal(&GemmForm::CublasLt, &scores, PlanOptions::default()).contains("batch"));
    let many = dense(DType::BF16, &[65, 5, 66, 8]).permute(&[0, 2, 1, 3]).unwrap();
    let many = GemmDescriptor::new(many, GemmFactor::transposed(many)).unwrap();
    assert!(refusal(&GemmForm::CublasLt, &many, PlanOptions::default().kernel("gemm_cublaslt")).contains("65 calls"));
    // Rows at multiples of 2 bytes.
    let odd = GemmDescriptor::new(dense(DType::BF16, &[17, 33]), dense(DType::BF16, &[33, 15])).unwrap();
    assert_eq!(chosen(&odd), "gemm_cublaslt");
    let odd = odd.bias(DType::BF16).unwrap();
    assert_eq!(chosen(&odd), "gemm_mma");
    assert!(refusal(&GemmForm::CublasLt, &odd, PlanOptions::default()).contains("a has them at 2"));
}

#[test]
fn wgmma_takes_what_the_copy_engine_does() {
    let pinned = || PlanOptions::default().kernel("gemm_wgmma");
    let (a, b) = (dense(DType::BF16, &[64, 32]), dense(DType::BF16, &[32, 64]));
    let forward = silu(GemmDescriptor::new(a, b).unwrap()).bias(DType::F32).unwrap().pre(DType::F32).unwrap();
    assert!(GemmForm::Wgmma.accept(&forward, &pinned(), &h200(), Ask::Pinned).is_ok());
    for name in ["A100", "B200"] {
        let props = DeviceProps::Cuda(device(name));
        let refused = GemmForm::Wgmma.accept(&forward, &pinned(), &props, Ask::Pinned).err().unwrap().to_string();
        assert!(refused.contains("compute capability 9.0"), "{refused}");
    }
    let single = GemmDescriptor::new(dense(DType::F32, &[64, 32]), dense(DType::F32, &[32, 64])).unwrap();
    assert!(refusal(&GemmForm::Wgmma, &single, pinned()).contains("the options do not allow"));
    let spread = TensorDesc::strided(DType::BF16, &[64, 32], &[64, 2]).unwrap();
    let spread = GemmDescriptor::new(spread, b).unwrap();
    assert!(refusal(&GemmForm::Wgmma, &spread, pinned()).contains("a has 64 and 2"));
    let wide = TensorDesc::strided(DType::BF16, &[64, 64], &[128, 2]).unwrap();
    let wide = GemmDescriptor::new(a, b).unwrap().layout("out", wide).unwrap();
    assert!(refusal(&GemmForm::Wgmma, &wide, pinned()).contains("out has 128 and 2"));
    let by_columns = TensorDesc::strided(DType::BF16, &[64, 64], &[1, 64]).unwrap();
    let by_columns = GemmDescriptor::new(a, b).unwrap().layout("out", by_columns).unwrap();
    assert!(GemmForm::Wgmma.accept(&by_columns, &pinned(), &h200(), Ask::Pinned).is_ok());
    let by_columns = by_columns.bias(DType::BF16).unwrap();
    assert!(refusal(&GemmForm::Wgmma, &by_columns, pinned()).contains("rows are contiguous"));
}

#[test]
fn wgmma_copies_rows_that_begin_anywhere() {
    let props = device("H200");
    let of = |forward: &GemmDescriptor| Planned::new(GemmForm::Wgmma, &forward.product(), &limits(&props)).unwrap();
    let bf16 = |dims: &[u64]| dense(DType::BF16, dims);
    let lines = |copy: Option<FactorCopy>| {
        copy.map(|copy| (copy.params.lines, copy.params.length, copy.params.stride, copy.bytes()))
    };

    let odd = of(&GemmDescriptor::new(bf16(&[64, 33]), bf16(&[33, 72])).unwrap());
    assert_eq!(odd.copies.map(lines), [Some((64, 33, 33, 64 * 40 * 2)), None]);
    assert_eq!((odd.params.left.matrix.row, odd.params.left.matrix.column), (40, 1));
    // Only its address.
    let near = of(&GemmDescriptor::new(bf16(&[64, 32]).align(2).unwrap(), bf16(&[32, 64])).unwrap());
    assert_eq!(near.copies.map(lines), [Some((64, 32, 32, 64 * 32 * 2)), None]);
    // Lines along n; a batch.
    let batch = of(&GemmDescriptor::new(bf16(&[2, 8, 16]), bf16(&[2, 16, 7])).unwrap());
    assert_eq!(batch.copies.map(lines), [None, Some((16, 7, 7, 2 * 16 * 8 * 2))]);
    assert_eq!((batch.params.right.matrix.row, batch.params.right.matrix.batch[0]), (8, 128));

    // What the language models' head of 50257 words takes, forward and backward; the gradients share the copy of dout.
    let head = GemmDescriptor::new(bf16(&[8192, 768]), GemmFactor::transposed(bf16(&[50257, 768]))).unwrap();
    assert_eq!(chosen(&head), "gemm_wgmma");
    assert_eq!(chosen(&GemmDescriptor::new(bf16(&[64, 769]), bf16(&[769, 64])).unwrap()), "gemm_cublaslt");
    let gradients = head.backward(&["a", "b"]).unwrap();
    assert_eq!(chosen(&gradients), "gemm_backward_wgmma");
    let candidate = GemmForm::Wgmma.accept(&gradients, &PlanOptions::default(), &h200(), Ask::Chosen).unwrap();
    assert_eq!((candidate.workspace.bytes, candidate.launches), (8192 * 50264 * 2, 3));
    let limited = PlanOptions::default().kernel("gemm_backward_wgmma").workspace_limit(1000);
    assert!(refusal(&GemmForm::Wgmma, &gradients, limited).contains("823525376 bytes"));
}

#[test]
fn few_rows_or_columns_are_served_where_blocks_keep_the_device_busy() {
    let bf16 = |dims: &[u64]| dense(DType::BF16, dims);
    let forward = |[m, n, k]: [u64; 3]| GemmDescriptor::new(bf16(&[m, k]), bf16(&[k, n])).unwrap();
    assert_eq!(chosen(&silu(forward([16, 4096, 128]))), "gemm_few_rows");
    assert_eq!(chosen(&silu(forward([1, 64, 64]))), "gemm_few_rows");
    assert_eq!(chosen(&silu(forward([17, 4096, 128]))), "gemm_mma");
    let idle = GemmDescriptor::new(bf16(&[16, 4096]), bf16(&[4096, 256])).unwrap();
    assert!(refusal(&GemmForm::FewRows, &idle, PlanOptions::default()).contains("idle"));
    assert!(refusal(&GemmForm::FewRows, &forward([0, 64, 64]), PlanOptions::default()).contains("got 0 and 64"));
    assert!(refusal(&GemmForm::FewRows, &forward([16, 64, 0]), PlanOptions::default()).contains("got 0"));
    let columns = GemmDescriptor::new(bf16(&[4096, 1024]), GemmFactor::transposed(bf16(&[4, 1024]))).unwrap();
    assert!(GemmForm::FewRows.accept(&columns, &PlanOptions::default(), &h200(), Ask::Chosen).is_ok());
    let props = device("H200");
    let of = |forward: &GemmDescriptor| match Planned::new(GemmForm::FewRows, &forward.product(), &limits(&props))
        .unwrap()
        .first
    {
        Some(First::FewRows(choice)) => (choice.columns, choice.right_across),
        other => panic!("{other:?}"),
    };
    assert_eq!(of(&forward([16, 4096, 4096])), (32, 1));
    assert_eq!(of(&forward([16, 2048, 4096])), (16, 1));
    assert_eq!(of(&forward([16, 4098, 64])), (16, 1));
    assert_eq!(of(&columns), (32, 0));
    let pinned = || PlanOptions::default().kernel("gemm_few_rows");
    assert!(refusal(&GemmForm::FewRows, &forward([17, 17, 8]), pinned()).contains("17 and 17"));
    assert!(refusal(&GemmForm::FewRows, &forward([1, 64, 12]), pinned()).contains("got 12"));
    assert!(refusal(&GemmForm::FewRows, &forward([1, 63, 16]), pinned()).contains("63"));
}

#[test]
fn large_factors_beside_few_rows_or_columns_are_streamed() {
    let bf16 = |dims: &[u64]| dense(DType::BF16, dims);
    let forward = |[m, n, k]: [u64; 3]| GemmDescriptor::new(bf16(&[m, k]), bf16(&[k, n])).unwrap();
    assert_eq!(chosen(&forward([16, 4096, 4096])), "gemm_few_rows_stream");
    assert_eq!(chosen(&silu(forward([1, 11008, 4096])).bias(DType::F32).unwrap()), "gemm_few_rows_stream");
    assert_eq!(chosen(&forward([17, 4096, 4096])), "gemm_cublaslt");
    assert_eq!(chosen(&forward([16, 1024, 1024])), "gemm_cublaslt");
    let columns = GemmDescriptor::new(bf16(&[8192, 4096]), GemmFactor::transposed(bf16(&[4, 4096]))).unwrap();
    assert_eq!(chosen(&columns), "gemm_few_rows_stream");
    let idle = forward([16, 256, 65536]);
    assert!(refusal(&GemmForm::FewRowsStream, &idle, PlanOptions::default()).contains("idle"));

    let props = device("H200");
    let of = |forward: &GemmDescriptor| {
        let planned = Planned::new(GemmForm::FewRowsStream, &forward.product(), &limits(&props)).unwrap();
        let Some(First::FewRowsStream(choice)) = planned.first else { panic!("{planned:?}") };
        [choice.splits, choice.stages, choice.quads, choice.right_across]
    };
    assert_eq!(of(&forward([16, 4096, 4096])), [2, 10, 1, 1]);
    assert_eq!(of(&forward([16, 1024, 4096])), [4, 8, 1, 1]);
    assert_eq!(of(&forward([16, 11008, 4096])), [1, 5, 1, 1]);
    assert_eq!(of(&columns), [1, 10, 0, 0]);
    assert_eq!(of(&forward([16, 64, 8])), [1, 1, 1, 1]);
    let pinned = || PlanOptions::default().kernel("gemm_few_rows_stream");
    assert!(refusal(&GemmForm::FewRowsStream, &forward([17, 24, 8]), pinned()).contains("17 and 24"));
    assert!(refusal(&GemmForm::FewRowsStream, &forward([16, 24, 0]), pinned()).contains("got 0"));
    assert!(refusal(&GemmForm::FewRowsStream, &forward([16, 20, 8]), pinned()).contains("b has"));
    let along_m = GemmDescriptor::new(GemmFactor::transposed(bf16(&[64, 8])), bf16(&[64, 64])).unwrap();
    assert!(refusal(&GemmForm::FewRowsStream, &along_m, pinned()).contains("the few rows along k"));
}

#[test]
fn wgmma_takes_factors_of_f32_that_may_be_rounded() {
    let f32 = |dims: &[u64]| dense(DType::F32, dims);
    let tf32 = || PlanOptions::default().math(Math::Tf32);
    let chosen = |forward: &GemmDescriptor| h200().supports(forward, &tf32()).unwrap();
    let [m, k, n] = [8192, 4096, 4096];
    let gemm = GemmDescriptor::new(f32(&[m, k]), f32(&[k, n])).unwrap();
    let linear = GemmDescriptor::new(f32(&[m, k]), GemmFactor::transposed(f32(&[n, k]))).unwrap();
    assert_eq!([&gemm, &linear].map(chosen), ["gemm_cublaslt"; 2]);
    let [gemm, linear] = [gemm, linear].map(silu);
    assert_eq!([&gemm, &linear].map(chosen), ["gemm_wgmma"; 2]);
    assert_eq!(h200().supports(&linear, &PlanOptions::default()).unwrap(), "gemm_cublaslt");

    let props = device("H200");
    let of = |forward: &GemmDescriptor| {
        let limits = Limits { math: Math::Tf32, ..limits(&props) };
        let planned = Planned::new(GemmForm::Wgmma, &forward.product(), &limits).unwrap();
        let Some(First::WgmmaWords(choice)) = planned.first else { panic!("{planned:?}") };
        assert!(planned.rounds_to_tf32);
        (choice.rows, choice.splits, planned.copies.map(|copy| copy.map_or(0, |copy| copy.bytes())))
    };
    assert_eq!(of(&gemm), (192, 1, [0, k * n * 4]));
    assert_eq!(of(&linear), (192, 1, [0, 0]));
    let low = GemmDescriptor::new(f32(&[256, k]), f32(&[k, n])).unwrap();
    assert_eq!(of(&low), (128, 2, [0, k * n * 4]));
    // Few rows are not worth a copy of the other factor.
    assert_eq!(chosen(&silu(low)), "gemm_cublaslt");
    let along_m = GemmDescriptor::new(GemmFactor::transposed(f32(&[30, 64])), f32(&[30, 68])).unwrap();
    assert_eq!(of(&along_m), (128, 1, [64 * 32 * 4, 68 * 32 * 4]));
    let odd = GemmDescriptor::new(f32(&[64, 64]), GemmFactor::transposed(f32(&[66, 64]))).unwrap();
    assert!(refusal(&GemmForm::Wgmma, &odd, tf32().kernel("gemm_wgmma")).contains("got 66 elements"));
}

#[test]
fn wgmma_takes_wide_tiles_where_the_copy_engine_stores_and_they_take_less_time() {
    let props = device("H200");
    let bf16 = |dims: &[u64]| dense(DType::BF16, dims);
    let choice = |product: &Product| {
        let Some(First::Wgmma(choice)) = Planned::new(GemmForm::Wgmma, product, &limits(&props)).unwrap().first else {
            panic!("{product:?}")
        };
        (choice.columns, choice.splits, [choice.wide, choice.copies, choice.reads])
    };
    let forward = |[m, k, n]: [u64; 3]| silu(GemmDescriptor::new(bf16(&[m, k]), bf16(&[k, n])).unwrap());
    assert_eq!(choice(&forward([16384, 768, 3072]).product()), (192, 1, [1, 1, 0]));
    // Six rounds of 192 columns against eight of 128.
    assert_eq!(choice(&forward([4096, 1024, 4096]).product()), (128, 1, [1, 1, 0]));
    // Chunks of 16 bytes are written as a whole.
    let padded = TensorDesc::strided(DType::BF16, &[16384, 3068], &[3072, 1]).unwrap();
    let padded_b = TensorDesc::strided(DType::BF16, &[768, 3068], &[3072, 1]).unwrap();
    let padded = GemmDescriptor::new(bf16(&[16384, 768]), padded_b).unwrap().layout("out", padded).unwrap();
    assert_eq!(choice(&padded.product()), (128, 1, [1, 0, 0]));
    let pre = forward([16384, 768, 3072]).pre(DType::F32).unwrap();
    assert_eq!(choice(&pre.product()), (128, 1, [1, 0, 0]));
    // Eight steps a block.
    assert_eq!(choice(&forward([128, 16384, 256]).product()), (128, 32, [1, 0, 0]));
    let again = forward([16384, 768, 3072]).backward_all().unwrap().geometry();
    let Some(Dpre::Recomputed(recomputed)) = again.dpre else { panic!() };
    assert_eq!(choice(&recomputed), (128, 1, [1, 1, 1]));
}

#[test]
fn numbers_beyond_31_bits_are_not_for_the_vendor() {
    const FAR: u64 = 1 << 31;
    let f32 = |dims: &[u64]| dense(DType::F32, dims);
    let strided = |dims: &[u64], strides: &[u64]| TensorDesc::strided(DType::F32, dims, strides).unwrap();
    for (a, b, told) in [
        (f32(&[FAR, 2]), f32(&[2, 3]), "m is 2147483648"),
        (f32(&[3, 2]), f32(&[2, FAR]), "n is 2147483648"),
        (f32(&[2, FAR]), f32(&[FAR, 3]), "k is 2147483648"),
        (strided(&[2, 8], &[FAR, 1]), f32(&[8, 3]), "the leading stride of a is 2147483648"),
        (strided(&[4, 8], &[FAR / 2, 1]), f32(&[8, 3]), "of a = 1073741824 * 4 + 0 * (1 - 1) is 4294967296"),
        (f32(&[2, 4, 8]), strided(&[2, 8, 3], &[FAR, 3, 1]), "the batch stride of b is 2147483648"),
        (f32(&[3, 4, 8]), strided(&[3, 8, 3], &[FAR / 2, 3, 1]), "of b = 3 * 8 + 1073741824 * (3 - 1) is 2147483672"),
    ] {
        let forward = GemmDescriptor::new(a, b).unwrap();
        let reason = refusal(&GemmForm::CublasLt, &forward, PlanOptions::default().kernel("gemm_cublaslt"));
        assert!(reason.contains("numbers up to 2147483647") && reason.contains(told), "{reason}");
        assert_eq!(chosen(&forward), "gemm_simt");
    }
    // No launch of our own has blocks for as many matrices either.
    let many = GemmDescriptor::new(f32(&[FAR, 1, 2]), f32(&[FAR, 2, 2])).unwrap();
    let reason = refusal(&GemmForm::CublasLt, &many, PlanOptions::default());
    assert!(reason.contains("the number of matrices is 2147483648"), "{reason}");
    // Strides of extents of 1 are told to nobody.
    let once = GemmDescriptor::new(strided(&[1, 8], &[1 << 60, 1]), f32(&[8, 3])).unwrap();
    assert_eq!(chosen(&once), "gemm_cublaslt");
}

#[test]
fn a_batch_of_several_strides_is_several_calls() {
    let heads = dense(DType::BF16, &[3, 2048, 16, 128]).permute(&[0, 2, 1, 3]).unwrap();
    let scores = GemmDescriptor::new(heads, GemmFactor::transposed(heads)).unwrap();
    assert_eq!(chosen(&scores), "gemm_cublaslt");
    let props = device("H200");
    let planned = Planned::new(GemmForm::CublasLt, &scores.product(), &limits(&props)).unwrap();
    let Some(First::Vendor(problem)) = planned.first else { panic!("{planned:?}") };
    assert_eq!((problem.batch, problem.first.batch, problem.out.batch), (16, 128, 2048 * 2048));
    assert_eq!(planned.launches(), 3);
    let [of_factor, of_out] = [2 * 2048 * 16 * 128, 2 * 16 * 2048 * 2048];
    let starts: Vec<_> = (0..3).map(|sample| [sample * of_factor, sample * of_factor, sample * of_out]).collect();
    assert_eq!(planned.calls, starts);
}

#[test]
fn the_workspace_holds_every_region() {
    let bf16 = |dims: &[u64]| dense(DType::BF16, dims);
    let forward = silu(GemmDescriptor::new(bf16(&[300, 64]), bf16(&[64, 200])).unwrap()).bias(DType::F32).unwrap();
    fn accepted<'d>(form: &GemmForm, backward: &'d GemmBackwardDescriptor) -> Candidate<'d> {
        form.accept(backward, &PlanOptions::default(), &h200(), Ask::Pinned).unwrap()
    }
    let saved = forward.clone().pre(DType::BF16).unwrap().backward_all().unwrap();
    let choice = accepted(&GemmForm::Mma, &saved);
    // dpre, ten rows of column sums, as the tiles are few; no product is long enough to be shared.
    assert_eq!((choice.workspace.bytes, choice.launches), (regions(300 * 200 * 2) + regions(10 * 200 * 4), 4));
    let again = forward.backward_all().unwrap();
    let choice = accepted(&GemmForm::Mma, &again);
    // Tiles of 64 rows, since those of 128 would leave most SMs idle.
    assert_eq!((choice.workspace.bytes, choice.launches), (regions(300 * 200 * 2) + regions(5 * 200 * 4), 4));
    let choice = accepted(&GemmForm::CublasLt, &again);
    let scratch = regions(300 * 200 * 4) + (32 << 20);
    let sums = regions(10 * 200 * 4); // Of 32 rows.
    assert_eq!((choice.workspace.bytes, choice.launches), (regions(300 * 200 * 2) + sums + scratch, 5));
}

#[test]
fn long_sums_are_shared_by_blocks() {
    let props = device("H200");
    let bf16 = |dims: &[u64]| dense(DType::BF16, dims);
    let long = GemmDescriptor::new(bf16(&[128, 16384]), bf16(&[16384, 256])).unwrap().product();
    let planned = Planned::new(GemmForm::Mma, &long, &limits(&props)).unwrap();
    let Some(First::Mma(choice)) = planned.first else { panic!("{planned:?}") };
    assert_eq!((choice.tile, choice.splits, choice.quads, planned.launches()), (64, 16, 1, 2));
    assert_eq!(planned.scratch_bytes, 16 * 128 * 256 * 4);
    let without = Limits { workspace_bytes: 0, ..limits(&props) };
    let Some(First::Mma(choice)) = Planned::new(GemmForm::Mma, &long, &without).unwrap().first else { panic!() };
    assert_eq!((choice.tile, choice.splits), (64, 1));
    let none = GemmDescriptor::new(bf16(&[8, 0]), bf16(&[0, 8])).unwrap().product();
    let planned = Planned::new(GemmForm::Simt, &none, &limits(&props)).unwrap();
    assert_eq!((planned.first.is_none(), planned.launches(), planned.scratch_bytes), (true, 1, 0));
}

#[test]
fn accesses_are_as_wide_as_the_strides_allow() {
    let props = device("H200");
    let widths = |a: GemmFactor, b: GemmFactor| {
        let product = GemmDescriptor::new(a, b).unwrap().product();
        let Some(First::Mma(choice)) = Planned::new(GemmForm::Mma, &product, &limits(&props)).unwrap().first else {
            panic!()
        };
        ([choice.left_bytes, choice.right_bytes], [choice.left_across, choice.right_across])
    };
    let bf16 = |dims: &[u64]| dense(DType::BF16, dims);
    let transposed = |dims: &[u64]| GemmFactor::transposed(bf16(dims));
    assert_eq!(widths(bf16(&[64, 32]).into(), bf16(&[32, 48]).into()), ([16, 16], [0, 1]));
    assert_eq!(widths(bf16(&[64, 36]).into(), bf16(&[36, 50257]).into()), ([8, 2], [0, 1]));
    assert_eq!(widths(bf16(&[64, 34]).into(), transposed(&[48, 34])), ([4, 4], [0, 0]));
    assert_eq!(widths(transposed(&[32, 64]), bf16(&[32, 48]).into()), ([16, 16], [1, 1]));
    // The transposed product: left is what b was.
    assert_eq!(widths(transposed(&[32, 66]), transposed(&[48, 32])), ([16, 4], [0, 1]));
    let spread = TensorDesc::strided(DType::BF16, &[64, 32], &[64, 2]).unwrap();
    assert_eq!(widths(spread.into(), bf16(&[32, 48]).into()), ([2, 16], [0, 1]));
}

/// Where an element of out and of the bias lies, as the kernels see it from the slow and the fast index.
#[test]
fn kernels_write_what_the_product_says_whichever_way_they_walk() {
    let bf16 = |dims: &[u64]| dense(DType::BF16, dims);
    let plain = GemmDescriptor::new(bf16(&[5, 7]), bf16(&[7, 3])).unwrap().bias(DType::BF16).unwrap();
    let laid = plain.clone().layout("out", TensorDesc::strided(DType::BF16, &[5, 3], &[1, 8]).unwrap()).unwrap();
    let column = GemmDescriptor::new(bf16(&[5, 7]), bf16(&[7, 1])).unwrap().bias(DType::BF16).unwrap();
    let again = silu(plain.clone()).backward_all().unwrap().geometry();
    let column_again = silu(column.clone()).backward_all().unwrap().geometry();
    let recomputed = |geometry: BackwardGeometry| match geometry.dpre {
        Some(Dpre::Recomputed(product)) => product,
        other => panic!("{other:?}"),
    };
    let products = [plain.product(), laid.product(), column.product(), recomputed(again), recomputed(column_again)];
    for (product, is_swapped) in products.iter().flat_map(|product| [(product, false), (product, true)]) {
        let mut planned = Planned::bare(product, is_swapped).unwrap();
        planned.finish(product, product::Sums { splits: 1, source: Source::Scratch }, is_swapped).unwrap();
        let (params, (choice, _)) = (planned.params, planned.finish.unwrap());
        let walk = |m: &sys::bops_gemm_matrix| if choice.across != 0 { [m.column, m.row] } else { [m.row, m.column] };
        let [slow_extent, fast_extent] = if choice.across != 0 { [params.n, params.m] } else { [params.m, params.n] };
        let sums_over_m = product.epilogue.is_derivative();
        assert!(!sums_over_m || slow_extent == product.m, "column sums are over the slow index");
        let mut seen = Vec::new();
        for slow in 0..slow_extent {
            for fast in 0..fast_extent {
                let at = |m: &sys::bops_gemm_matrix| {
                    let [of_slow, of_fast] = walk(m);
                    slow * of_slow + fast * of_fast
                };
                assert_eq!(at(&choice.source), slow * fast_extent + fast);
                seen.push((at(&params.out), at(&params.bias)));
            }
        }
        let mut wanted: Vec<_> = (0..product.m)
            .flat_map(|m| (0..product.n).map(move |n| (m, n)))
            .map(|(m, n)| (m * product.out.rows + n * product.out.cols, n))
            .collect();
        seen.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(seen, wanted, "{product:?} {is_swapped}");
    }
}

#[test]
fn the_vendor_multiplies_in_reverse_order_unless_out_lies_column_after_column() {
    let props = device("H200");
    let problem = |forward: &GemmDescriptor| {
        let planned = Planned::new(GemmForm::CublasLt, &forward.product(), &limits(&props)).unwrap();
        let Some(First::Vendor(problem)) = planned.first else { panic!("{planned:?}") };
        (problem, planned.left, planned.right)
    };
    let bf16 = |dims: &[u64]| dense(DType::BF16, dims);
    let plain = GemmDescriptor::new(bf16(&[5, 7]), GemmFactor::transposed(bf16(&[3, 7]))).unwrap();
    let (rows, left, right) = problem(&plain);
    assert_eq!((left, right), (MatrixPlace::Operand(0), MatrixPlace::Operand(1)));
    assert_eq!((rows.rows, rows.columns, rows.depth), (3, 5, 7));
    assert_eq!((rows.first.is_transposed, rows.first.leading), (true, 7));
    assert_eq!((rows.second.is_transposed, rows.second.leading), (false, 7));
    assert_eq!((rows.out.is_transposed, rows.out.leading), (false, 3));
    let laid = TensorDesc::strided(DType::BF16, &[5, 3], &[1, 8]).unwrap();
    let (columns, left, right) = problem(&plain.layout("out", laid).unwrap());
    assert_eq!((left, right), (MatrixPlace::Operand(1), MatrixPlace::Operand(0)));
    assert_eq!((columns.rows, columns.columns, columns.depth), (5, 3, 7));
    assert_eq!((columns.first.is_transposed, columns.first.leading), (true, 7));
    assert_eq!((columns.second.is_transposed, columns.second.leading), (false, 7));
    assert_eq!((columns.out.is_transposed, columns.out.leading), (false, 8));
}
