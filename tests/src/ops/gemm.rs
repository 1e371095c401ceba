//! Matrix products with bias and activation, forward and backward.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use baracuda_ops::{
    Activation, AnyDescriptor, Backend, DType, Error, GemmArgs, GemmBackwardArgs, GemmBackwardDescriptor,
    GemmDescriptor, GemmFactor, GemmSaved, Math, PlanOptions, Slot, TensorDesc,
};
use serde_json::{Value, json};

use super::channel_norm::curvature;
use super::{CHAIN, Contract, FLOATS, Subject, TypedRun, dense, existing, features, json_of, run_in_f64, strided};
use crate::case::{Case, Data, Huge, Random, Wide, distinct, equal_factor};
use crate::judge::{By, Chains, Expected, finite, is_random};
use crate::values::Tensors;

pub(super) const FORWARD: Subject = Subject {
    name: "gemm",
    cases: || cases(forward),
    is_cpu_only: |_| false,
    may_be_constant,
    input,
    expect: expect_forward,
    contracts: FORWARD_CONTRACTS,
    run_typed: run_forward,
    features: || features(asked_for, forward),
};

pub(super) const BACKWARD: Subject = Subject {
    name: "gemm_backward",
    cases: || cases(backward),
    is_cpu_only: |_| false,
    may_be_constant,
    input,
    expect: expect_backward,
    contracts: BACKWARD_CONTRACTS,
    run_typed: run_backward,
    features: || features(asked_for, backward),
};

/// Every input that may have a gradient.
const INPUTS: [&str; 3] = ["a", "b", "bias"];

/// A forward, and what its backward is asked for.
#[derive(Clone)]
struct Form {
    forward: GemmDescriptor,
    /// Otherwise than by default.
    saved: Option<GemmSaved>,
    /// Inputs of which forward may have others.
    wanted: Vec<&'static str>,
    /// The type of the gradients, if not that of what they belong to, and their beta.
    gradients: Option<(DType, f64)>,
    /// Layouts of backward's operands.
    layouts: Vec<(&'static str, TensorDesc)>,
}

impl From<GemmDescriptor> for Form {
    fn from(forward: GemmDescriptor) -> Self {
        Self { forward, saved: None, wanted: INPUTS.into(), gradients: None, layouts: Vec::new() }
    }
}

fn forward(form: &Form) -> Result<AnyDescriptor, Error> {
    Ok(AnyDescriptor::new(form.forward.clone()))
}

fn backward(form: &Form) -> Result<AnyDescriptor, Error> {
    let mut descriptor = form.forward.backward(&existing(&form.forward, &form.wanted))?;
    if let Some(saved) = form.saved {
        descriptor = descriptor.saved(saved)?;
    }
    if let Some((dtype, beta)) = form.gradients {
        let has =
            |name: &str, d: &GemmBackwardDescriptor| baracuda_ops::Descriptor::slots(d).iter().any(|s| s.name == name);
        if has("da", &descriptor) {
            descriptor = descriptor.da(dtype, beta)?;
        }
        if has("db", &descriptor) {
            descriptor = descriptor.db(dtype, beta)?;
        }
        if has("dbias", &descriptor) {
            descriptor = descriptor.dbias(dtype, beta)?;
        }
    }
    for (name, desc) in &form.layouts {
        descriptor = descriptor.layout(name, *desc)?;
    }
    Ok(AnyDescriptor::new(descriptor))
}

/// A tensor stored as it is or transposed.
fn factor(desc: TensorDesc, is_transposed: bool) -> GemmFactor {
    if is_transposed { GemmFactor::transposed(desc) } else { desc.into() }
}

/// The factors of an `m` by `n` product over `k`, dense, with the transposes of two bits.
fn pair(dtype: DType, [m, n, k]: [u64; 3], transposes: usize) -> [GemmFactor; 2] {
    let (transpose_a, transpose_b) = (transposes & 1 != 0, transposes & 2 != 0);
    let a = dense(dtype, &if transpose_a { [k, m] } else { [m, k] });
    let b = dense(dtype, &if transpose_b { [n, k] } else { [k, n] });
    [factor(a, transpose_a), factor(b, transpose_b)]
}

fn gemm(factors: [GemmFactor; 2]) -> GemmDescriptor {
    let [a, b] = factors;
    GemmDescriptor::new(a, b).expect("a valid product")
}

/// Extents that every vector width and small tile divides, and prime ones.
const EVEN: [u64; 3] = [32, 64, 48];
const ODD: [u64; 3] = [37, 29, 61];

/// Every form with the data it runs on, and whether it runs in every mode.
fn forms() -> Vec<(Form, Data, bool)> {
    let mut forms = Vec::new();
    for dtype in FLOATS {
        let mut add = |form: Form, data: Data, core: bool| forms.push((form, data, core));
        pairs(dtype, &mut add);
        sizes(dtype, &mut add);
        batches(dtype, &mut add);
        layouts(dtype, &mut add);
        tiles(dtype, &mut add);
        few_rows(dtype, &mut add);
        factors(dtype, &mut add);
        for data in Data::ALL.into_iter().filter(|data| *data != Data::Normal) {
            let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
            let linear = gemm(pair(dtype, [33, 40, 96], 2)).bias(wide).expect("a bias");
            add(Form { gradients: Some((wide, 0.0)), ..linear.clone().out(wide).expect("a type").into() }, data, false);
            for activation in [Activation::Relu, Activation::GeluErf, Activation::Silu] {
                let form = linear.clone().activation(activation).expect("an activation");
                add(form.clone().pre(dtype).expect("a type").into(), data, false);
                add(Form { saved: Some(GemmSaved::Recompute), ..form.into() }, data, false);
            }
        }
        hard_factors(dtype, &mut add);
        structured(dtype, &mut add);
        interleaved(dtype, &mut add);
    }
    forms
}

/// Factors that are mostly 0, factors whose neighbours are far apart, and factors that are small beside the bias.
fn hard_factors(dtype: DType, add: &mut impl FnMut(Form, Data, bool)) {
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    for data in Data::OF_FACTORS {
        let plain = gemm(pair(dtype, [33, 40, 96], 2)).out(wide);
        let plain = if data == Data::LargeBias { plain.and_then(|d| d.bias(wide)) } else { plain };
        add(Form { gradients: Some((wide, 0.0)), ..plain.expect("a form").into() }, data, true);
        for transposes in [0, 1, 3] {
            let biased = gemm(pair(dtype, [40, 37, 61], transposes)).bias(dtype).and_then(|d| d.pre(dtype));
            let form = biased.and_then(|d| d.activation(Activation::ALL[2 * transposes])).expect("a form");
            add(form.clone().into(), data, false);
            add(Form { saved: Some(GemmSaved::Recompute), gradients: Some((dtype, 0.5)), ..form.into() }, data, false);
        }
        let long = gemm(pair(dtype, [24, 16, 1032], 2)).activation(Activation::Silu).expect("an activation");
        add(long.into(), data, false);
        let batch = GemmDescriptor::new(dense(dtype, &[5, 16, 24]), dense(dtype, &[5, 24, 40])).expect("a product");
        add(batch.into(), data, false);
    }
}

/// Long sums whose roundings have one sign: over k, over the rows of a matrix, over a batch that has one b, also over matrices that no stride joins; in
/// each tile of wgpu's kernel. Outputs of f32 show what is lost before they are rounded.
fn structured(dtype: DType, add: &mut impl FnMut(Form, Data, bool)) {
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let recomputed = gemm(pair(dtype, [5, 7, 1024], 0)).bias(dtype).and_then(|d| d.activation(Activation::Silu));
    let saved = Some(GemmSaved::Recompute);
    add(Form { saved, gradients: Some((wide, 0.0)), ..recomputed.expect("a form").into() }, Data::Ramp, false);
    let mut add = |forward: Result<GemmDescriptor, Error>, wanted: &[&'static str], data: Data| {
        let forward = forward.and_then(|d| d.out(wide)).expect("a form");
        add(Form { wanted: wanted.into(), gradients: Some((wide, 0.0)), ..forward.into() }, data, false);
    };
    let product = |extents, transposes| Ok(gemm(pair(dtype, extents, transposes)));
    let [da, db]: [&[_]; 2] = [&["a"], &["b", "bias"]];
    for data in Data::STRUCTURED {
        add(product([2, 3, 16384], 1), da, data);
        add(product([4096, 3, 2], 0).and_then(|d| d.bias(dtype)), db, data);
        add(product([33, 40, 320], 1), &INPUTS, data);
    }
    add(product([1, 1, 1024], 0), da, Data::Halves);
    add(product([2, 2048, 3], 0), da, Data::Blocks);
    let apart = GemmDescriptor::new(strided(dtype, &[96, 33, 3], &[100, 3, 1]), dense(dtype, &[3, 2]));
    add(apart, &["b"], Data::Stripes);
    if dtype == DType::F32 {
        add(product([1, 1, 16384], 0), da, Data::Halves);
        let rows = GemmDescriptor::new(dense(dtype, &[65536, 3, 1]), dense(dtype, &[1, 2]));
        add(rows.and_then(|d| d.bias(dtype)), db, Data::Stripes);
        for (batch, [m, n, k]) in [(100, [65, 67, 200]), (160, [33, 35, 200])] {
            let tiles = GemmDescriptor::new(dense(dtype, &[batch, m, k]), dense(dtype, &[batch, k, n]));
            add(tiles, da, Data::Halves);
        }
    }
}

/// Batches whose matrices lie between those of another batch extent, whose rows lie between those of other matrices, or whose elements do; b for each
/// matrix and for all. Only inputs may lie between one another: outputs take the last two.
fn interleaved(dtype: DType, add: &mut impl FnMut(Form, Data, bool)) {
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    // Strides of a matrix of `rows` by `cols` in `[2, 3, rows, cols]`.
    let matrices =
        |rows: u64, cols: u64| strided(dtype, &[2, 3, rows, cols], &[3 * rows * cols, 2 * rows * cols, cols, 1]);
    let rows = |dtype, rows: u64, cols: u64| strided(dtype, &[2, 3, rows, cols], &[cols, 2 * cols, 6 * cols, 1]);
    let elements = |dtype, rows: u64, cols: u64| strided(dtype, &[2, 3, rows, cols], &[3, 1, 6 * cols, 6]);
    let [m, n, k] = [17, 40, 24];
    let products: [(GemmFactor, GemmFactor, bool); 8] = [
        (matrices(m, k).into(), dense(dtype, &[2, 3, k, n]).into(), true),
        (matrices(m, k).into(), matrices(k, n).into(), true),
        (matrices(m, k).into(), dense(dtype, &[k, n]).into(), false),
        (GemmFactor::transposed(matrices(k, m)), GemmFactor::transposed(matrices(n, k)), false),
        (rows(dtype, m, k).into(), matrices(k, n).into(), false),
        (rows(dtype, m, k).into(), GemmFactor::transposed(rows(dtype, n, k)), true),
        (elements(dtype, m, k).into(), elements(dtype, k, n).into(), false),
        (dense(dtype, &[2, 3, m, k]).into(), matrices(k, n).into(), false),
    ];
    for (i, (a, b, core)) in products.into_iter().enumerate() {
        let form = GemmDescriptor::new(a, b).and_then(|d| d.bias(dtype)).and_then(|d| d.pre(wide));
        let form = form.and_then(|d| d.activation(Activation::ALL[i % 7]));
        let form = form.and_then(|d| d.layout("bias", strided(dtype, &[n], &[2])));
        let form =
            form.and_then(|d| d.layout("out", rows(dtype, m, n))).and_then(|d| d.layout("pre", elements(wide, m, n)));
        let form = form.expect("a form");
        let saved = [GemmSaved::Recompute, GemmSaved::Pre][i % 2];
        let layouts = vec![("dout", [matrices(m, n), elements(dtype, m, n)][i / 2 % 2])];
        add(form.clone().into(), Data::Normal, core);
        add(Form { saved: Some(saved), layouts, ..form.into() }, Data::Normal, core);
    }
}

/// Activations with transposes; the other options so that any two of their values meet in some form.
fn pairs(dtype: DType, add: &mut impl FnMut(Form, Data, bool)) {
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let types = [None, Some(dtype), Some(wide)];
    for (i, activation) in Activation::ALL.into_iter().enumerate() {
        for transposes in 0..4 {
            let at = i * 4 + transposes;
            let extents = if at % 3 == 1 { EVEN } else { ODD };
            // Sums of products of standard normal numbers, scaled to about one.
            let descriptor = gemm(pair(dtype, extents, transposes)).alpha([0.125, -0.25][at % 2]);
            let descriptor = descriptor.and_then(|d| d.activation(activation));
            let bias = types[(i + transposes) % 3];
            let descriptor = descriptor.and_then(|d| bias.map_or(Ok(d.clone()), |dtype| d.bias(dtype)));
            let out = [dtype, wide][(i / 2 + transposes) % 2];
            let pre = types[(i + 2 * transposes) % 3];
            let descriptor = descriptor.and_then(|d| d.out(out));
            let forward = descriptor.and_then(|d| pre.map_or(Ok(d.clone()), |dtype| d.pre(dtype))).expect("a form");
            let is_core = i % 4 == transposes;
            let wanted = [&INPUTS[..], &["a"], &["b", "bias"], &INPUTS, &["a", "bias"]];
            let gradients = [None, Some((dtype, 0.5)), Some((wide, 0.0)), Some((wide, -1.0))][(at + i) % 4];
            let form = Form { wanted: wanted[at % 5].into(), gradients, ..forward.into() };
            add(form.clone(), Data::Normal, is_core);
            let saved = [GemmSaved::Recompute, GemmSaved::Pre, GemmSaved::Out][at % 3];
            if saved != GemmSaved::Out || activation.is_identity() || activation.has_gradient_from_output() {
                add(Form { saved: Some(saved), wanted: INPUTS.into(), ..form }, Data::Normal, is_core && at % 3 == 0);
            }
        }
    }
}

/// Extents of 0 and 1, around tiles of 16 to 128, primes, long sums.
fn sizes(dtype: DType, add: &mut impl FnMut(Form, Data, bool)) {
    let sizes = [
        ([1, 1, 1], true),
        ([1, 61, 37], true),
        ([61, 1, 37], false),
        ([37, 61, 1], true),
        ([1, 257, 64], false),
        ([2, 3, 5], false),
        ([16, 16, 16], true),
        ([17, 15, 33], true),
        ([64, 128, 32], false),
        ([65, 127, 31], false),
        ([128, 64, 64], false),
        ([129, 130, 67], false),
        ([257, 66, 40], false),
        ([37, 29, 1], true),
        ([131, 1, 1], false),
        ([127, 109, 103], false),
        ([7, 8, 1021], true),
        ([5, 131, 4099], false),
        ([24, 16, 8192], false),
    ];
    for (i, (extents, core)) in sizes.into_iter().enumerate() {
        let forward = gemm(pair(dtype, extents, i % 4)).bias(dtype).expect("a bias");
        let forward = forward.activation(Activation::ALL[i % 7]).expect("an activation");
        add(forward.into(), Data::Normal, core);
    }
    // More tiles than the SMs of any GPU, also of a batch, and few sums long enough to be shared.
    if matches!(dtype, DType::F32 | DType::BF16) {
        for (extents, transposes) in [([1700, 1664, 40], 0), ([1281, 1537, 17], 2), ([64, 48, 12000], 1)] {
            let forward = gemm(pair(dtype, extents, transposes)).bias(dtype).expect("a bias");
            let forward = forward.activation(Activation::GeluErf).and_then(|d| d.pre(dtype)).expect("a form");
            add(forward.into(), Data::Normal, false);
        }
        let batch = GemmDescriptor::new(dense(dtype, &[200, 64, 48]), dense(dtype, &[200, 48, 72]));
        add(batch.expect("a product").into(), Data::Normal, false);
    }
    for (i, extents) in [[37, 29, 0], [0, 29, 61], [37, 0, 61], [0, 0, 0], [0, 29, 0]].into_iter().enumerate() {
        let forward = gemm(pair(dtype, extents, i % 4)).bias(dtype).expect("a bias");
        let forward = forward.activation(Activation::GeluTanh).and_then(|d| d.pre(dtype)).expect("a form");
        add(Form { gradients: Some((dtype, 0.5)), ..forward.clone().into() }, Data::Normal, i < 2);
        add(Form { saved: Some(GemmSaved::Recompute), ..forward.into() }, Data::Normal, i < 2);
    }
}

/// Batches with a b for each, and with one for all, in its three spellings.
fn batches(dtype: DType, add: &mut impl FnMut(Form, Data, bool)) {
    let a = dense(dtype, &[2, 3, 17, 24]);
    let transposed = GemmFactor::transposed(dense(dtype, &[2, 3, 24, 17]));
    let own = dense(dtype, &[2, 3, 24, 40]);
    let own_transposed = GemmFactor::transposed(dense(dtype, &[2, 3, 40, 24]));
    let shared = dense(dtype, &[24, 40]);
    let ones = dense(dtype, &[1, 1, 24, 40]);
    let repeated = strided(dtype, &[2, 3, 24, 40], &[0, 0, 40, 1]);
    let mixed = strided(dtype, &[1, 3, 24, 40], &[960, 0, 40, 1]);
    // Heads beside positions: [B, S, H, D] seen as [B, H, S, D].
    let heads = dense(dtype, &[2, 17, 3, 24]).permute(&[0, 2, 1, 3]).expect("axes");
    let keys = GemmFactor::transposed(dense(dtype, &[2, 40, 3, 24]).permute(&[0, 2, 1, 3]).expect("axes"));
    let padded = strided(dtype, &[2, 3, 17, 24], &[2000, 600, 32, 1]);
    // Queries and keys side by side in one tensor, from any element of it on.
    let part = |rows: u64| {
        let part = strided(dtype, &[2, 3, rows, 24], &[216 * rows, 24, 216, 1]);
        part.align(dtype.size_bytes()).expect("a promise")
    };
    let products: [(GemmFactor, GemmFactor, bool); 19] = [
        (a.into(), own.into(), true),
        (transposed, own.into(), false),
        (a.into(), own_transposed, false),
        (transposed, own_transposed, false),
        (a.into(), shared.into(), true),
        (transposed, shared.into(), true),
        (a.into(), ones.into(), false),
        (transposed, repeated.into(), false),
        (a.into(), repeated.into(), false),
        (heads.into(), keys, true),
        (padded.into(), shared.into(), true),
        (padded.into(), own.into(), false),
        (a.into(), mixed.into(), false),
        (part(17).into(), GemmFactor::transposed(part(40)), true),
        // Strides of extents of 1, which no address has a part of.
        (
            strided(dtype, &[1, 3, 1, 24], &[1 << 60, 24, 1 << 40, 1]).into(),
            strided(dtype, &[1, 3, 24, 40], &[u64::MAX, 960, 40, 1]).into(),
            false,
        ),
        // More matrices than a tile has rows, each smaller than it.
        (dense(dtype, &[250, 1, 3]).into(), dense(dtype, &[250, 3, 2]).into(), false),
        (dense(dtype, &[250, 1, 3]).into(), dense(dtype, &[3, 2]).into(), false),
        // Where rows of the batch can become rows of one product, and where they must not.
        (dense(dtype, &[6, 1, 24]).into(), dense(dtype, &[6, 24, 40]).into(), false),
        (dense(dtype, &[6, 1, 24]).into(), shared.into(), false),
    ];
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    for (i, (a, b, core)) in products.into_iter().enumerate() {
        let plain = GemmDescriptor::new(a, b).expect("a product").bias(wide).expect("a bias");
        let beta = if i % 2 == 0 { 0.0 } else { 1.0 };
        add(Form { gradients: Some((wide, beta)), ..plain.clone().into() }, Data::Normal, core);
        let silu = plain.activation(Activation::Silu).expect("an activation");
        let saved = if i % 2 == 0 { GemmSaved::Recompute } else { GemmSaved::Pre };
        add(Form { saved: Some(saved), ..silu.into() }, Data::Normal, false);
    }
    let none = [
        (dense(dtype, &[0, 3, 5, 7]), dense(dtype, &[7, 4])),
        (dense(dtype, &[0, 3, 5, 7]), dense(dtype, &[0, 3, 7, 4])),
        (dense(dtype, &[2, 5, 0]), dense(dtype, &[0, 40])),
        (dense(dtype, &[2, 5, 0]), dense(dtype, &[2, 0, 40])),
        (dense(dtype, &[1, 5, 7]), dense(dtype, &[1, 7, 40])),
    ];
    for (a, b) in none {
        let forward = GemmDescriptor::new(a, b).expect("a product").bias(dtype).expect("a bias");
        add(Form { gradients: Some((dtype, 0.5)), ..forward.into() }, Data::Normal, false);
    }
    broadcast(dtype, add);
    // Six batch extents that nothing joins.
    let dims = [2, 1, 2, 2, 1, 3, 5, 8];
    let scattered = strided(dtype, &dims, &[2000, 1, 900, 400, 1, 100, 16, 1]);
    let forward = GemmDescriptor::new(scattered, dense(dtype, &[2, 1, 2, 2, 1, 3, 8, 9])).expect("a product");
    add(forward.into(), Data::Normal, false);
}

/// Factors that share batch extents, each others of them: groups of heads, one head for all samples, weights of each head; matrices whose rows overlap.
fn broadcast(dtype: DType, add: &mut impl FnMut(Form, Data, bool)) {
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let [m, n, k] = [17, 40, 24];
    let a = |batch: &[u64]| dense(dtype, &[batch, &[m, k]].concat());
    let b = |batch: &[u64]| dense(dtype, &[batch, &[k, n]].concat());
    let (transposed_a, transposed_b) = (dense(dtype, &[3, 1, k, m]), dense(dtype, &[1, 2, n, k]));
    // Frames of a signal, [batch, frames, samples of a frame].
    let frames = |step: u64| strided(dtype, &[2, m, k], &[400, step, 1]);
    let products: [(GemmFactor, GemmFactor, bool); 22] = [
        (a(&[2, 3, 2]).into(), b(&[2, 3, 1]).into(), true),
        (GemmFactor::transposed(dense(dtype, &[2, 3, 2, k, m])), b(&[2, 3, 1]).into(), false),
        (a(&[2, 3, 2]).into(), strided(dtype, &[2, 3, 2, k, n], &[3 * k * n, k * n, 0, n, 1]).into(), true),
        (a(&[]).into(), b(&[5]).into(), true),
        (a(&[1]).into(), b(&[5]).into(), false),
        (strided(dtype, &[5, m, k], &[0, k, 1]).into(), b(&[5]).into(), false),
        (a(&[3]).into(), b(&[2, 3]).into(), true),
        (a(&[3, 1]).into(), b(&[1, 2]).into(), true),
        (GemmFactor::transposed(transposed_a), GemmFactor::transposed(transposed_b), true),
        (a(&[2, 1, 3]).into(), b(&[1, 2, 1]).into(), false),
        (a(&[1, 2, 1]).into(), b(&[2, 1, 3]).into(), false),
        (a(&[2, 3]).into(), b(&[1, 3]).into(), true),
        (a(&[2, 3]).into(), b(&[2, 1]).into(), false),
        (a(&[1, 1]).into(), b(&[2, 3]).into(), false),
        // One row for each matrix: rows of weights that belong to heads, and to samples.
        (dense(dtype, &[6, 3, 1, k]).into(), b(&[3]).into(), true),
        (dense(dtype, &[6, 3, 1, k]).into(), b(&[6, 1]).into(), false),
        (frames(1).into(), b(&[]).into(), true),
        (frames(8).into(), b(&[2]).into(), false),
        (GemmFactor::transposed(frames(3)), GemmFactor::transposed(strided(dtype, &[n, m], &[2, 1])), true),
        (strided(dtype, &[2, m, k], &[1, 0, 0]).into(), strided(dtype, &[k, n], &[0, 1]).into(), false),
        // A batch extent along which both factors are repeated: all its products are the same.
        (strided(dtype, &[2, m, k], &[0, k, 1]).into(), b(&[]).into(), true),
        (strided(dtype, &[3, 2, m, k], &[m * k, 0, k, 1]).into(), strided(dtype, &[2, k, n], &[0, n, 1]).into(), false),
    ];
    for (i, (a, b, core)) in products.into_iter().enumerate() {
        let plain = GemmDescriptor::new(a, b).expect("a product").bias(dtype).expect("a bias");
        let beta = [0.0, 1.0, -0.5][i % 3];
        add(Form { gradients: Some((wide, beta)), ..plain.clone().into() }, Data::Normal, core);
        let curved = plain.activation(Activation::ALL[i % 7]).and_then(|d| d.pre(dtype)).expect("a form");
        let saved = if i % 2 == 0 { GemmSaved::Recompute } else { GemmSaved::Pre };
        add(Form { saved: Some(saved), gradients: Some((dtype, beta)), ..curved.into() }, Data::Normal, false);
    }
    // Sums over nothing, and outputs of nothing.
    for (of_a, of_b) in [(vec![0, 1], vec![1, 2]), (vec![2, 1], vec![1, 0]), (vec![0], vec![])] {
        let forward = GemmDescriptor::new(a(&of_a), b(&of_b)).and_then(|d| d.bias(dtype)).expect("a product");
        add(Form { gradients: Some((dtype, 0.5)), ..forward.into() }, Data::Normal, false);
    }
}

/// As many outputs as the larger tiles of wgpu's kernel are made for: of 128 rows and columns, and of 64.
fn tiles(dtype: DType, add: &mut impl FnMut(Form, Data, bool)) {
    for (batch, [m, n, k]) in [(100, [65, 67, 20]), (100, [68, 72, 36]), (160, [33, 35, 20]), (160, [36, 40, 12])] {
        let forward = GemmDescriptor::new(dense(dtype, &[batch, m, k]), dense(dtype, &[batch, k, n]));
        let forward = forward.and_then(|d| d.bias(dtype)).and_then(|d| d.activation(Activation::Tanh)).expect("a form");
        add(Form { saved: Some(GemmSaved::Recompute), ..forward.into() }, Data::Normal, false);
    }
}

/// Factors far from 1, 0 and subnormal ones, of products and of what gradients are added to.
fn factors(dtype: DType, add: &mut impl FnMut(Form, Data, bool)) {
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let extremes = [(1e30, 1e20), (-1e-30, -1e-20), (65536.0, 1e30), (1e-40, 1e-42), (-1e-44, 0.5), (0.0, 0.0)];
    for (alpha, beta) in extremes {
        let forward = gemm(pair(dtype, ODD, 2)).alpha(alpha).and_then(|d| d.out(wide)).expect("a form");
        add(Form { gradients: Some((wide, beta)), ..forward.into() }, Data::Normal, false);
    }
    // Without a product, whatever the factors hold.
    for (i, data) in [Data::Normal, Data::Nan, Data::Inf].into_iter().enumerate() {
        let forward = gemm(pair(dtype, ODD, i)).alpha(0.0).and_then(|d| d.bias(dtype)).and_then(|d| d.pre(dtype));
        let forward = forward.and_then(|d| d.activation(Activation::Silu)).expect("a form");
        add(Form { gradients: Some((dtype, 0.5)), ..forward.clone().into() }, data, i == 0);
        add(Form { saved: Some(GemmSaved::Recompute), ..forward.into() }, data, false);
    }
}

/// Padded rows, strides [1, ld], low promises, outputs that lie otherwise.
fn layouts(dtype: DType, add: &mut impl FnMut(Form, Data, bool)) {
    let [m, n, k] = [37, 40, 24];
    let narrow = |desc: TensorDesc| desc.align(dtype.size_bytes()).expect("a promise");
    let (a, b) = (dense(dtype, &[m, k]), dense(dtype, &[k, n]));
    let forms = [
        (strided(dtype, &[m, k], &[k + 3, 1]), strided(dtype, &[k, n], &[n + 8, 1]), vec![]),
        (strided(dtype, &[m, k], &[1, m]), strided(dtype, &[k, n], &[1, k]), vec![]),
        (strided(dtype, &[m, k], &[1, m + 3]), strided(dtype, &[k, n], &[1, k + 8]), vec![]),
        (narrow(a), narrow(b), vec![]),
        (strided(dtype, &[m, k], &[3 * k, 2]), strided(dtype, &[k, n], &[3 * n, 3]), vec![]),
        (a, b, vec![("out", strided(dtype, &[m, n], &[n + 5, 1]))]),
        (a, b, vec![("out", strided(dtype, &[m, n], &[1, m])), ("pre", strided(dtype, &[m, n], &[1, m + 3]))]),
        (a, b, vec![("out", strided(dtype, &[m, n], &[2 * n, 2])), ("bias", strided(dtype, &[n], &[2]))]),
        (a, b, vec![("bias", strided(dtype, &[n], &[0]))]),
    ];
    for (i, (a, b, outputs)) in forms.into_iter().enumerate() {
        let forward = GemmDescriptor::new(a, b).and_then(|d| d.bias(dtype)).and_then(|d| d.pre(dtype));
        let forward = forward.and_then(|d| d.activation(Activation::GeluTanh)).expect("a form");
        let laid = |d: GemmDescriptor, (name, desc): &(&str, TensorDesc)| d.layout(name, *desc).expect("a layout");
        let forward = outputs.iter().fold(forward, laid);
        add(forward.clone().into(), Data::Normal, i < 3);
        let gradients = vec![
            ("da", strided(dtype, &[m, k], &[k + 5, 1])),
            ("db", strided(dtype, &[k, n], &[1, k])),
            ("dbias", strided(dtype, &[n], &[3])),
        ];
        let recomputed = Form { saved: Some(GemmSaved::Recompute), ..forward.into() };
        add(Form { layouts: gradients, ..recomputed }, Data::Normal, i == 1);
    }
    // Extents of 1, whose strides say nothing.
    for (a, b) in [
        (strided(dtype, &[1, 6], &[1000, 1]), strided(dtype, &[6, 1], &[1, 1000])),
        (strided(dtype, &[14, 1], &[1, 77]), strided(dtype, &[1, 15], &[77, 1])),
    ] {
        add(gemm([a.into(), b.into()]).into(), Data::Normal, false);
    }
    // The gradient of a sum over the output.
    let expanded = vec![("dout", strided(dtype, &[m, n], &[0, 0]))];
    add(Form { layouts: expanded, ..gemm([a.into(), b.into()]).into() }, Data::Normal, false);
}

/// At most 16 rows of 16-bit factors that lie in runs of whole vectors, with b read along its columns or along its rows: k and n that end within
/// a step or a tile, sums that warps and blocks share, batches, derivatives.
fn few_rows(dtype: DType, add: &mut impl FnMut(Form, Data, bool)) {
    if !matches!(dtype, DType::F16 | DType::BF16) {
        return;
    }
    let sizes = [
        ([1, 64, 32], 0, true),
        ([16, 200, 1000], 0, true),
        ([7, 72, 40], 2, true),
        ([3, 64, 2048], 2, true),
        ([16, 136, 4096], 0, false),
        ([5, 8, 8], 0, false),
        ([9, 1000, 72], 0, false),
        ([4, 37, 264], 2, false),
        ([13, 129, 520], 2, false),
        ([16, 16, 2080], 2, false),
    ];
    for (i, (extents, transposes, core)) in sizes.into_iter().enumerate() {
        let forward = gemm(pair(dtype, extents, transposes)).alpha(0.125).expect("a factor");
        let forward = forward.bias([dtype, DType::F32][i % 2]).and_then(|d| d.out([DType::F32, dtype][i / 2 % 2]));
        let forward = forward.and_then(|d| d.activation(Activation::ALL[(i + 3) % 7]));
        let forward = if i % 3 == 0 { forward.and_then(|d| d.pre(dtype)) } else { forward }.expect("a form");
        let saved = (i % 3 == 1).then_some(GemmSaved::Recompute);
        add(Form { saved, wanted: vec!["a", "bias"], ..forward.into() }, Data::Normal, core);
    }
    let batch = gemm([dense(dtype, &[2, 3, 5, 64]).into(), factor(dense(dtype, &[2, 3, 72, 64]), true)]);
    add(batch.into(), Data::Normal, true);
    let padded = gemm([strided(dtype, &[5, 64], &[80, 1]).into(), strided(dtype, &[64, 72], &[88, 1]).into()]);
    add(padded.into(), Data::Normal, false);
    // Matrices of one batch extent between those of the other.
    let between = |rows: u64| strided(dtype, &[2, 3, rows, 64], &[3 * rows * 64, 2 * rows * 64, 64, 1]);
    add(gemm([between(5).into(), GemmFactor::transposed(between(72))]).into(), Data::Normal, true);
    for data in Data::OF_FACTORS {
        add(gemm(pair(dtype, [5, 72, 200], 2)).into(), data, true);
    }
}

/// The cases of a pass over every form.
fn cases(pass: fn(&Form) -> Result<AnyDescriptor, Error>) -> Vec<Case> {
    let of = |(form, data, core): &(Form, Data, bool)| {
        let descriptor = pass(form).expect("the case lists hold valid descriptors");
        Case::new(descriptor, *data).core(*core)
    };
    let mut cases: Vec<Case> = forms().iter().map(of).collect();
    let is_telling = |data| {
        matches!(
            data,
            Data::Constant | Data::Nan | Data::Inf | Data::Huge | Data::Sparse | Data::Wide | Data::LargeBias
        ) || data.is_structured()
    };
    let pinned: Vec<Case> =
        cases.iter().filter(|case| case.is_core || is_telling(case.data)).flat_map(pinned).collect();
    cases.extend(pinned);
    let few: Vec<Case> = few().iter().map(of).filter(|case| case.descriptor.name() == "gemm").collect();
    cases.extend(few.into_iter().map(|case| case.with(PlanOptions::default().kernel("gemm_few_rows"))));
    cases.extend(copied().iter().map(|form| {
        let case = of(form);
        let kernel = format!("{}_wgmma", case.descriptor.name());
        case.with(PlanOptions::default().kernel(kernel))
    }));
    let streamed: Vec<Case> = streamed().iter().map(of).filter(|case| case.descriptor.name() == "gemm").collect();
    cases.extend(streamed.into_iter().map(|case| case.with(PlanOptions::default().kernel("gemm_few_rows_stream"))));
    cases.extend(words().iter().map(|form| {
        let case = of(form);
        let kernel = format!("{}_wgmma", case.descriptor.name());
        case.with(PlanOptions::default().kernel(kernel).math(Math::Tf32))
    }));
    distinct(cases)
}

/// Few rows or columns that the copy engine takes: what [`few_rows`] lists, k and n that end within a step or a box, clusters that share k, batches with
/// a b for each and with one for all, outputs that lie otherwise.
fn streamed() -> Vec<(Form, Data, bool)> {
    let mut forms = Vec::new();
    let mut add = |form: Form, data: Data, core: bool| forms.push((form, data, core));
    for dtype in [DType::F16, DType::BF16] {
        few_rows(dtype, &mut add);
        for (i, (extents, transposes)) in
            [([200, 9, 72], 2), ([1000, 16, 40], 3), ([72, 1, 3000], 2), ([16, 4200, 1032], 0), ([2, 8200, 264], 2)]
                .into_iter()
                .enumerate()
        {
            let forward = gemm(pair(dtype, extents, transposes)).alpha(0.25).and_then(|d| d.bias(DType::F32));
            let forward = forward.and_then(|d| d.activation(Activation::ALL[i + 2])).and_then(|d| d.pre(dtype));
            add(forward.expect("a form").into(), Data::Normal, i == 0);
        }
        for (b, core) in
            [(dense(dtype, &[3, 2, 40, 72]), true), (strided(dtype, &[3, 2, 40, 72], &[0, 0, 72, 1]), false)]
        {
            let batch = gemm([strided(dtype, &[3, 2, 5, 40], &[1000, 400, 48, 1]).into(), b.into()]);
            add(batch.into(), Data::Normal, core);
        }
        let columns = gemm(pair(dtype, [11, 200, 520], 0)).bias(dtype).and_then(|d| d.activation(Activation::Tanh));
        let columns = columns.and_then(|d| d.layout("out", strided(dtype, &[11, 200], &[1, 13])));
        add(columns.expect("a form").into(), Data::Normal, false);
        for data in [Data::Constant, Data::Nan, Data::Inf, Data::Huge, Data::Sparse, Data::Wide, Data::LargeBias] {
            add(gemm(pair(dtype, [16, 1056, 200], 0)).into(), data, false);
        }
        for (i, data) in Data::STRUCTURED.into_iter().enumerate() {
            let forward = gemm(pair(dtype, [[16, 8, 4096], [8, 16, 1024]][i % 2], 2 * (i / 2))).out(DType::F32);
            add(forward.expect("a form").into(), data, false);
        }
    }
    forms
}

/// Factors of f32 whose strides are multiples of 16 bytes, like those of out: extents in and around tiles, every transposition and epilogue, batches, long
/// sums of few outputs, more tiles than SMs.
fn words() -> Vec<(Form, Data, bool)> {
    let f32 = DType::F32;
    let mut forms = Vec::new();
    let mut add = |form: Form, data: Data, core: bool| forms.push((form, data, core));
    let sizes = [
        [128, 128, 32],
        [64, 256, 64],
        [132, 140, 36],
        [4, 4, 4],
        [120, 248, 28],
        [264, 200, 68],
        [24, 1000, 260],
        [200, 264, 4],
        [72, 132, 1032],
        [256, 136, 4100],
    ];
    for (i, extents) in sizes.into_iter().enumerate() {
        for transposes in 0..4 {
            let at = 4 * i + transposes;
            let forward = gemm(pair(f32, extents, transposes)).alpha([0.125, 1.0][i % 2]).expect("a factor");
            let forward = forward.bias(f32).and_then(|d| d.activation(Activation::ALL[at % 7]));
            let forward = if at % 3 == 0 { forward.and_then(|d| d.pre(f32)) } else { forward };
            let gradients = [None, Some((f32, 0.5)), Some((f32, 1.0))][at % 3];
            let saved = (at % 3 != 0).then_some(GemmSaved::Recompute);
            let form = Form { saved, gradients, ..forward.expect("a form").into() };
            add(form, Data::Normal, i % 4 == transposes);
        }
    }
    // A row; no bias; rows of out apart from one another.
    add(gemm(pair(f32, [1, 264, 72], 0)).into(), Data::Normal, true);
    for ([m, n], transposes, step) in
        [([129, 132], 2, 136), ([131, 260], 0, 264), ([65, 124], 2, 124), ([33, 132], 0, 144)]
    {
        let forward = gemm(pair(f32, [m, n, 72], transposes)).bias(f32).and_then(|d| d.pre(f32));
        let forward = forward.and_then(|d| d.activation(Activation::Tanh));
        let forward = forward.and_then(|d| d.layout("out", strided(f32, &[m, n], &[step, 1]))).expect("a form");
        let (saved, wanted) = (Some(GemmSaved::Recompute), vec!["bias"]);
        add(Form { saved, wanted, ..forward.into() }, Data::Normal, step == 136);
    }
    // Columns of out one after the other.
    for transposes in [2, 3] {
        let forward = gemm(pair(f32, [200, 136, 72], transposes)).activation(Activation::Silu);
        let forward = forward.and_then(|d| d.layout("out", strided(f32, &[200, 136], &[1, 200]))).expect("a form");
        add(Form { saved: Some(GemmSaved::Pre), ..forward.into() }, Data::Normal, transposes == 3);
    }
    aligned_batches(f32, &mut add);
    for (extents, transposes) in
        [([1704, 1664, 40], 0), ([2312, 1544, 136], 3), ([64, 48, 12000], 1), ([64, 48, 12000], 2)]
    {
        let forward = gemm(pair(f32, extents, transposes)).bias(f32).expect("a bias");
        let forward = forward.activation(Activation::GeluTanh).and_then(|d| d.pre(f32)).expect("a form");
        add(forward.into(), Data::Normal, false);
    }
    for (i, data) in Data::STRUCTURED.into_iter().enumerate() {
        add(gemm(pair(f32, [8, 12, [1024, 4096][i % 2]], i)).into(), data, false);
    }
    for data in [Data::Constant, Data::Nan, Data::Inf, Data::Huge, Data::Sparse, Data::Wide, Data::LargeBias] {
        let forward = gemm(pair(f32, [72, 136, 72], 2)).bias(f32).expect("a bias");
        let forward = forward.activation(Activation::Relu).expect("an activation");
        add(Form { saved: Some(GemmSaved::Recompute), ..forward.into() }, data, false);
    }
    forms
}

/// Batches whose strides are multiples of 16 bytes; one b for all; heads beside positions, whose two strides nothing joins; matrices of one batch extent
/// between those of the other.
fn aligned_batches(dtype: DType, add: &mut impl FnMut(Form, Data, bool)) {
    let a = dense(dtype, &[6, 72, 136]);
    let heads = dense(dtype, &[2, 72, 3, 64]).permute(&[0, 2, 1, 3]).expect("axes");
    let keys = dense(dtype, &[2, 136, 3, 64]).permute(&[0, 2, 1, 3]).expect("axes");
    let apart = strided(dtype, &[6, 72, 136], &[72 * 136 + 8, 136, 1]);
    let between = strided(dtype, &[2, 3, 72, 136], &[3 * 72 * 136, 2 * 72 * 136, 136, 1]);
    let products: [[GemmFactor; 2]; 6] = [
        [a.into(), dense(dtype, &[6, 136, 200]).into()],
        [a.into(), dense(dtype, &[136, 200]).into()],
        [GemmFactor::transposed(dense(dtype, &[6, 136, 72])), dense(dtype, &[136, 200]).into()],
        [apart.into(), dense(dtype, &[136, 200]).into()],
        [heads.into(), GemmFactor::transposed(keys)],
        [between.into(), GemmFactor::transposed(between)],
    ];
    for (i, factors) in products.into_iter().enumerate() {
        let forward = gemm(factors).bias(dtype).and_then(|d| d.activation(Activation::GeluErf)).expect("a form");
        let saved = Some([GemmSaved::Recompute, GemmSaved::Pre][i % 2]);
        add(Form { saved, ..forward.into() }, Data::Normal, i < 3 || i == 5);
    }
}

/// What [`few_rows`] lists, few columns as well, and batches.
fn few() -> Vec<(Form, Data, bool)> {
    let mut forms = Vec::new();
    let mut add = |form: Form, data: Data, core: bool| forms.push((form, data, core));
    for dtype in [DType::F16, DType::BF16] {
        few_rows(dtype, &mut add);
        for (i, (extents, transposes)) in
            [([200, 9, 72], 0), ([1000, 16, 40], 1), ([34, 1, 264], 3)].into_iter().enumerate()
        {
            let b = factor(dense(dtype, &[extents[1], extents[2]]), true);
            let [a, _] = pair(dtype, extents, transposes);
            let forward = gemm([a, b]).bias(dtype).and_then(|d| d.activation(Activation::ALL[2 * i + 1]));
            add(forward.expect("a form").into(), Data::Normal, i == 0);
        }
        let batch = gemm([dense(dtype, &[3, 2, 5, 40]).into(), dense(dtype, &[3, 2, 40, 36]).into()]);
        add(batch.into(), Data::Normal, true);
        let one = gemm([dense(dtype, &[16, 64]).into(), dense(dtype, &[64, 1056]).into()]);
        for data in Data::STRUCTURED {
            let forward = gemm(pair(dtype, [7, 16, 2048], 2)).out(DType::F32).expect("a form");
            add(forward.into(), data, false);
        }
        add(one.clone().into(), Data::Nan, false);
        add(one.into(), Data::Huge, false);
    }
    forms
}

/// Factors of 16 bits whose strides are multiples of 16 bytes: extents in and around tiles of 64 to 256, every transposition and epilogue, batches, long
/// sums of few outputs, more tiles than SMs, outputs whose rows begin anywhere.
fn copied() -> Vec<(Form, Data, bool)> {
    let mut forms = Vec::new();
    let mut add = |form: Form, data: Data, core: bool| forms.push((form, data, core));
    for dtype in [DType::F16, DType::BF16] {
        let types = [dtype, DType::F32];
        let sizes = [
            [128, 128, 64],
            [64, 256, 128],
            [136, 136, 72],
            [8, 8, 8],
            [120, 248, 56],
            [264, 200, 136],
            [24, 1000, 520],
            [200, 264, 8],
            [72, 192, 1032],
            [192, 72, 328],
            [256, 136, 4104],
        ];
        for (i, extents) in sizes.into_iter().enumerate() {
            for transposes in 0..4 {
                let at = 4 * i + transposes;
                let forward = gemm(pair(dtype, extents, transposes)).alpha([0.125, 1.0][i % 2]).expect("a factor");
                let forward = forward.bias(types[at % 2]).and_then(|d| d.out(types[(i + transposes / 2) % 2]));
                let forward = forward.and_then(|d| d.activation(Activation::ALL[at % 7]));
                let forward = if at % 3 == 0 { forward.and_then(|d| d.pre(types[i % 2])) } else { forward };
                let gradients = [None, Some((dtype, 0.5)), Some((DType::F32, 1.0))][at % 3];
                let saved = (at % 3 != 0).then_some(GemmSaved::Recompute);
                let form = Form { saved, gradients, ..forward.expect("a form").into() };
                add(form, Data::Normal, i % 4 == transposes);
            }
        }
        // A row; no bias; rows of out at odd places, and at those of pairs.
        let row = gemm(pair(dtype, [1, 264, 72], 0));
        add(row.into(), Data::Normal, true);
        for (m, n, step, transposes) in [(129, 131, 133, 3), (131, 258, 258, 1), (65, 127, 127, 0)] {
            let (lda, ldb) = (if transposes & 1 == 0 { 80 } else { 136 }, 264);
            let a = if transposes & 1 == 0 {
                strided(dtype, &[m, 72], &[lda, 1])
            } else {
                strided(dtype, &[72, m], &[lda, 1])
            };
            let b = if transposes & 2 == 0 {
                strided(dtype, &[72, n], &[ldb, 1])
            } else {
                strided(dtype, &[n, 72], &[ldb, 1])
            };
            let forward = gemm([factor(a, transposes & 1 != 0), factor(b, transposes & 2 != 0)]).bias(dtype);
            let forward = forward.and_then(|d| d.pre(dtype)).and_then(|d| d.activation(Activation::Tanh));
            let out = strided(dtype, &[m, n], &[step, 1]);
            let forward = forward.and_then(|d| d.layout("out", out)).expect("a form");
            let wanted = vec!["bias"];
            add(Form { wanted, ..forward.into() }, Data::Normal, step == 133);
        }
        // Columns of out one after the other.
        let column_major = gemm(pair(dtype, [200, 136, 72], 2)).activation(Activation::Silu);
        let column_major = column_major.and_then(|d| d.layout("out", strided(dtype, &[200, 136], &[1, 200])));
        let (saved, wanted) = (Some(GemmSaved::Pre), vec!["a"]);
        add(Form { saved, wanted, ..column_major.expect("a form").into() }, Data::Normal, true);
        aligned_batches(dtype, &mut add);
        for (extents, transposes) in [([1704, 1664, 40], 0), ([2312, 1544, 136], 3), ([64, 48, 12000], 1)] {
            let forward = gemm(pair(dtype, extents, transposes)).bias(dtype).expect("a bias");
            let forward = forward.activation(Activation::GeluTanh).and_then(|d| d.pre(dtype)).expect("a form");
            add(forward.into(), Data::Normal, false);
        }
        for (i, data) in Data::STRUCTURED.into_iter().enumerate() {
            let forward = gemm(pair(dtype, [8, 16, [1024, 4096][i % 2]], i)).out(DType::F32).expect("a form");
            add(Form { gradients: Some((DType::F32, 0.0)), ..forward.into() }, data, false);
        }
        for data in [Data::Constant, Data::Nan, Data::Inf, Data::Huge, Data::Sparse, Data::Wide, Data::LargeBias] {
            let forward = gemm(pair(dtype, [72, 136, 72], 2)).bias(DType::F32).expect("a bias");
            let forward = forward.activation(Activation::Relu).expect("an activation");
            add(Form { saved: Some(GemmSaved::Recompute), ..forward.into() }, data, false);
        }
    }
    for dtype in [DType::F16, DType::BF16] {
        unaligned(dtype, &mut add);
    }
    forms
}

/// Factors whose rows begin anywhere, which are copied first: lines shorter and longer than a warp's, both ways along, batches, sums over a batch,
/// gradients that share a copy.
fn unaligned(dtype: DType, add: &mut impl FnMut(Form, Data, bool)) {
    let sizes = [[65, 47, 33], [129, 1, 7], [3, 257, 130], [1, 1, 1], [31, 300, 515], [140, 9, 1001]];
    for (i, extents) in sizes.into_iter().enumerate() {
        for transposes in 0..4 {
            let forward = gemm(pair(dtype, extents, transposes)).alpha(0.25).and_then(|d| d.bias(dtype));
            let forward = forward.and_then(|d| d.activation(Activation::ALL[(i + transposes) % 7])).expect("a form");
            let saved = (transposes % 2 == 1).then_some(GemmSaved::Recompute);
            add(Form { saved, ..forward.into() }, Data::Normal, i == 0);
        }
    }
    let batch = gemm([dense(dtype, &[2, 3, 5, 33]).into(), factor(dense(dtype, &[2, 3, 7, 33]), true)]);
    add(batch.into(), Data::Normal, true);
    // A b that serves the batch, whose gradient sums over what no stride joins.
    let apart = gemm([strided(dtype, &[3, 5, 33], &[200, 33, 1]).into(), dense(dtype, &[33, 7]).into()]);
    add(apart.into(), Data::Normal, false);
    let promises = [dense(dtype, &[40, 64]), dense(dtype, &[64, 24])].map(|d| d.align(2).expect("a promise").into());
    add(gemm(promises).into(), Data::Normal, false);
    let wide = [strided(dtype, &[40, 64], &[65, 1]).into(), strided(dtype, &[64, 24], &[1, 67]).into()];
    add(gemm(wide).into(), Data::Inf, false);
}

/// The case by each kernel that serves it whatever else is installed.
fn pinned(case: &Case) -> Vec<Case> {
    let named = |form: &str| PlanOptions::default().kernel(format!("{}_{form}", case.descriptor.name()));
    let of = |options| case.clone().core(false).with(options);
    let mut cases = vec![of(named("simt"))];
    match json_of(&case.descriptor)
        .and_then(|json| Ok(serde_json::from_value::<TensorDesc>(json["a"].clone())?.dtype()))
        .expect("a product has a first factor")
    {
        DType::F16 | DType::BF16 => cases.push(of(named("mma"))),
        DType::F32 => cases.extend([of(named("mma").math(Math::Tf32)), of(named("reference"))]),
        _ => cases.push(of(named("reference"))),
    }
    cases
}

/// What the harness reads back from a descriptor.
struct Fields {
    json: Value,
    /// The batch extents of the output.
    batch: Vec<u64>,
    /// The type of the factors.
    dtype: DType,
    a: Factor,
    b: Factor,
    m: u64,
    n: u64,
    k: u64,
    alpha: f64,
    activation: Activation,
    saved: GemmSaved,
}

/// A factor, whose elements the harness has as often as they are repeated.
struct Factor {
    dims: Vec<u64>,
    /// With 1 for each batch extent whose stride is 0.
    once: Vec<u64>,
}

impl Factor {
    fn of(desc: &TensorDesc) -> Self {
        let is_repeated = |axis: usize| axis + 2 < desc.rank() && desc.strides()[axis] == 0 && !desc.is_empty();
        let once = |(axis, dim): (usize, &u64)| if is_repeated(axis) { 1 } else { *dim };
        Self { dims: desc.dims().to_vec(), once: desc.dims().iter().enumerate().map(once).collect() }
    }

    /// Its elements, each once.
    fn own(&self, values: &[f64]) -> Vec<f64> {
        let is_first = |place: usize| {
            let mut rest = place as u64;
            self.dims.iter().zip(&self.once).rev().all(|(&dim, &once)| {
                let index = rest % dim;
                rest /= dim;
                once == dim || index == 0
            })
        };
        values.iter().enumerate().filter(|&(place, _)| is_first(place)).map(|(_, value)| *value).collect()
    }

    /// The descriptor of its elements in f64, each once and one after the other, which is repeated as it is.
    fn in_f64(&self) -> Value {
        let mut strides = vec![0; self.dims.len()];
        let mut step = 1;
        for ((stride, &dim), &once) in strides.iter_mut().zip(&self.dims).zip(&self.once).rev() {
            *stride = if once == dim { step } else { 0 };
            step *= once.max(1);
        }
        json!({"dtype": "f64", "dims": self.dims, "strides": strides})
    }

    /// How many matrices of the batch share each of its own.
    fn shares(&self, batch: &[u64]) -> u64 {
        let own: u64 = self.once[..self.once.len() - 2].iter().product();
        batch.iter().product::<u64>() / own.max(1)
    }
}

/// An alpha or beta of a descriptor: the nearest number of the type in which products of these factors are computed.
fn computed_with(factors: DType, number: Option<&Value>, default: f64) -> f64 {
    let number = number.and_then(Value::as_f64).unwrap_or(default);
    if factors == DType::F64 { number } else { f64::from(number as f32) }
}

impl Fields {
    fn of(descriptor: &AnyDescriptor) -> Result<Self> {
        let json = json_of(descriptor)?;
        let tensor = |name: &str| serde_json::from_value::<TensorDesc>(json[name].clone());
        let (a, b) = (tensor("a")?, tensor("b")?);
        let stored = |desc: &TensorDesc, name: &str| {
            let [rows, cols] = [desc.dims()[desc.rank() - 2], desc.dims()[desc.rank() - 1]];
            if json[name] == true { [cols, rows] } else { [rows, cols] }
        };
        let ([m, k], [_, n]) = (stored(&a, "transpose_a"), stored(&b, "transpose_b"));
        let extent = |desc: &TensorDesc, back: usize| desc.dims().iter().rev().nth(back).copied().unwrap_or(1);
        let both = |back: usize| if extent(&a, back) == 1 { extent(&b, back) } else { extent(&a, back) };
        let batch = (2..a.rank().max(b.rank())).rev().map(both).collect();
        let activation =
            json.get("activation").map_or(Ok(Activation::Identity), |v| serde_json::from_value(v.clone()))?;
        let saved = json.get("saved").map_or(Ok(GemmSaved::Pre), |v| serde_json::from_value(v.clone()))?;
        let alpha = computed_with(a.dtype(), json.get("alpha"), 1.0);
        let dtype = a.dtype();
        Ok(Self { batch, dtype, a: Factor::of(&a), b: Factor::of(&b), m, n, k, alpha, activation, saved, json })
    }

    /// The beta of a gradient.
    fn beta(&self, gradient: &Value) -> f64 {
        computed_with(self.dtype, gradient.get("beta"), 0.0)
    }

    /// Whether backward computes the product again.
    fn recomputes(&self) -> bool {
        self.saved == GemmSaved::Recompute && !self.activation.is_identity()
    }

    /// Terms of each sum of an output.
    fn terms(&self, output: &str) -> f64 {
        let terms = match output {
            "da" => self.n * self.a.shares(&self.batch),
            "db" => self.m * self.b.shares(&self.batch),
            _ => self.k,
        };
        terms as f64
    }

    /// The JSON of the same product over f64 operands, without options.
    fn product(&self, alpha: f64) -> Value {
        let mut json = json!({"a": self.a.in_f64(), "b": self.b.in_f64(), "alpha": alpha});
        for name in ["transpose_a", "transpose_b"] {
            if self.json[name] == true {
                json[name] = json!(true);
            }
        }
        json
    }

    /// The JSON of the same op over f64 operands.
    fn in_f64(&self) -> Value {
        let mut json = self.product(self.alpha);
        for name in ["activation", "saved"] {
            if let Some(value) = self.json.get(name) {
                json[name] = value.clone();
            }
        }
        if self.json.get("bias").is_some() {
            json["bias"] = json!("f64");
        }
        for name in ["da", "db", "dbias"] {
            if let Some(gradient) = self.json.get(name) {
                json[name] = json!({"dtype": "f64", "beta": self.beta(gradient)});
            }
        }
        json
    }

    /// A factor that is repeated once.
    fn own(&self, name: &str, values: &[f64]) -> Vec<f64> {
        match name {
            "a" => self.a.own(values),
            "b" => self.b.own(values),
            _ => values.to_vec(),
        }
    }

    fn inputs<'t>(&self, inputs: &'t Tensors) -> Given<'t> {
        Given(inputs.0.iter().map(|t| (t.name.as_str(), self.own(&t.name, &t.values))).collect())
    }
}

/// Inputs by their names.
struct Given<'t>(BTreeMap<&'t str, Vec<f64>>);

impl Given<'_> {
    fn run(&self, name: &str, json: &Value) -> Result<BTreeMap<String, Vec<f64>>> {
        run_in_f64(name, json, &self.0.iter().map(|(name, values)| (*name, &values[..])).collect())
    }
}

/// Few elements may all lie on one side of a ReLU; sums over nothing are equal.
fn may_be_constant(descriptor: &AnyDescriptor) -> bool {
    Fields::of(descriptor).is_ok_and(|f| f.k == 0 || f.alpha == 0.0 || f.batch.iter().product::<u64>() * f.m * f.n < 64)
}

fn input(case: &Case, slot: &Slot, random: &mut Random, _: &Tensors) -> Result<Vec<f64>> {
    let fields = Fields::of(&case.descriptor)?;
    let (dtype, elements) = (slot.desc.dtype(), slot.desc.elements());
    let cols = slot.desc.dims().last().copied().unwrap_or(1).max(1);
    // Sums of that many products of such a number and one that a normal distribution has; of f64, budgets in units of u_A are finite, too.
    let terms = ["out", "da", "db"].map(|output| fields.terms(output)).into_iter().fold(1.0, f64::max);
    let largest = if dtype == DType::F64 { 2f64.powi(940) } else { 2f64.powi(118) };
    let huge = Huge::of(dtype).at_most(largest / terms, largest / terms);
    let rows = |data: Data, random: &mut Random| data.rows_within(huge, dtype, elements / cols, cols, random);
    let values = match (slot.name, case.data) {
        ("a", data) => rows(data, random),
        // Sums of terms whose signs alternate, all of one magnitude.
        ("b", Data::Constant) => {
            let is_along_rows = fields.json["transpose_b"] == true;
            let index = |i: u64| if is_along_rows { i % cols } else { i / cols };
            (0..elements).map(|i| if index(i) % 2 == 0 { 1000.1 } else { -1000.1 }).collect()
        }
        ("b", data @ (Data::Nan | Data::Inf | Data::NegInf | Data::LargeMean | Data::Large | Data::LargeBias)) => {
            rows(data, random)
        }
        ("bias", Data::LargeBias) => (0..elements).map(|_| 1000.0 * random.normal()).collect(),
        ("b", data) if data.is_structured() => vec![equal_factor(dtype); elements as usize],
        ("dout", data) if data.is_structured() => rows(data, random),
        (_, Data::Sparse) if slot.name != "pre" && slot.name != "out" => rows(Data::Sparse, random),
        ("b" | "dout", Data::Wide) => Wide::second(dtype).rows(elements / cols, cols, random),
        ("dout", Data::Nan) => rows(Data::Nan, random),
        ("pre", data @ (Data::Large | Data::Tiny | Data::Sparse)) => rows(data, random),
        ("pre", _) => rows(Data::Normal, random).into_iter().map(|v| 2.0 * v).collect(),
        // What forward gives.
        ("out", _) => rows(Data::Normal, random).into_iter().map(|v| fields.activation.apply(2.0 * v)).collect(),
        _ => rows(Data::Normal, random),
    };
    Ok(values)
}

const FORWARD_CONTRACTS: &[Contract] = &[
    Contract {
        outputs: &["pre"],
        budget: "u_o |pre| + u_A p, p = (8 + K/4) |alpha| sum|a b| + 2 |bias|; where the elements of a factor have no common sign, 2 sqrt(K) \
                 for K/4 if that is less",
        why: "It lets the roundings of a plain running sum have one sign.",
    },
    Contract {
        outputs: &["out"],
        budget: "u_o |out| + u_A (|act'| p + u_A max|act''| p^2 / 2 + 8 |out|), with p as for pre; on wgpu 16 for 8; u_o |out| + u_A p for \
                 identity and relu",
        why: "As for pre; far out an activation has less error than its bound.",
    },
];

const BACKWARD_CONTRACTS: &[Contract] = &[
    Contract {
        outputs: &["da", "db"],
        budget: "u_o |grad| + |alpha| sum((u_A (8 + L/4) |dpre| + e + r) |factor|) + 2 u_A |beta grad|, L terms a sum (2 sqrt(L) for L/4 as for \
                 pre); e, the error of dpre, is that of an activation's gradient, recomputing u_A |dout| (max|act''| p + 8), for relu |dout| where \
                 |pre| <= u_A p; of f16 and bf16 r = u |dpre| + half the least subnormal, the rounding of dpre",
        why: "It lets the roundings of a plain running sum have one sign; act'' is far below its maximum nearly everywhere.",
    },
    Contract {
        outputs: &["dbias"],
        budget: "u_o |dbias| + u_A (8 + 48/4) sum|dpre| + sum(e) + 2 u_A |beta dbias|",
        why: "It allows for 48 additions one after the other, with roundings of one sign.",
    },
];

/// Factors of an activation's own budget on a backend.
pub(super) fn looseness(backend: Backend) -> f64 {
    if backend == Backend::Wgpu { 2.0 } else { 1.0 }
}

/// What the sum of `terms` products may be off by, in units of `u_A` of the sum of their magnitudes: docs/numerics.md, Sums of products. Factors that are
/// rounded to tf32 are each off by up to 2^-11, their product and what a tensor core drops of it by less than 2^-9.
pub(super) fn chain(terms: f64, is_random: bool, by: By) -> f64 {
    let random = 2.0 * terms.sqrt();
    let structured = match by.chains() {
        Chains::Short { most } => {
            let chain = f64::from(most);
            (terms.min(chain) + (terms / chain).min(64.0) + terms / (64.0 * chain)) / 4.0
        }
        Chains::Balanced => random.min(terms / 4.0),
        Chains::One => terms / 2.0,
    };
    let rounded = if by.math == Math::Tf32 { 2f64.powi(-9) / DType::F32.unit_roundoff() } else { 0.0 };
    8.0 + rounded + if is_random { structured.min(random) } else { structured }
}

/// How large the elements of a factor count. Tensor cores do not normalize a subnormal factor of f16 before they align products: what they drop
/// is that of a product with 2^-14. The rounding of a subnormal factor to tf32 is that of 2^-126. Through wgpu a subnormal factor of f32 and bf16 may
/// count as 0: an error of the whole of it, where 8 `u_A` of it are allowed.
pub(super) fn magnitudes(values: &[f64], dtype: DType, by: By) -> Vec<f64> {
    let normal = f64::from(f32::MIN_POSITIVE);
    let is_f32_like = matches!(dtype, DType::F32 | DType::BF16);
    let magnitude = |v: f64| match v.abs() {
        0.0 => 0.0,
        size if dtype == DType::F16 && by.has_tensor_cores() => size.max(2f64.powi(-14)),
        size if by.math == Math::Tf32 && dtype == DType::F32 => size.max(normal),
        size if by.backend == Backend::Wgpu && is_f32_like && size < normal => {
            size / (8.0 * DType::F32.unit_roundoff())
        }
        size => size,
    };
    values.iter().map(|&v| magnitude(v)).collect()
}

/// What a sum of `terms` products may be off by since a device takes subnormal numbers of f32 as 0, in units of `u_A`: through wgpu that can be
/// each product, or each sum of some of them, and so it can where processors multiply tiles of bf16.
pub(super) fn flushed(terms: f64, dtype: DType, by: By) -> f64 {
    let flushes = match by.backend {
        Backend::Wgpu => matches!(dtype, DType::F32 | DType::BF16),
        Backend::Cpu => dtype == DType::BF16 && by.kernel.contains("_fast"),
        Backend::Cuda => false,
    };
    if flushes { terms * f64::from(f32::MIN_POSITIVE) / DType::F32.unit_roundoff() } else { 0.0 }
}

/// `p`: what each pre-activation may be off by, in units of `u_A`.
fn errors_of_pre(fields: &Fields, inputs: &Tensors, by: By) -> Result<Vec<f64>> {
    let [a, b] = ["a", "b"].map(|name| inputs.values(name).context("a factor"));
    let (a, b) = (fields.own("a", a?), fields.own("b", b?));
    let dtype = fields.dtype;
    let is_random = is_random(&a) || is_random(&b);
    let sums = {
        let (a, b) = (magnitudes(&a, dtype, by), magnitudes(&b, dtype, by));
        run_in_f64("gemm", &fields.product(fields.alpha.abs()), &BTreeMap::from([("a", &a[..]), ("b", &b[..])]))?
    };
    let factor = chain(fields.k as f64, is_random, by);
    let flushed = fields.alpha.abs().max(1.0) * flushed(fields.k as f64, dtype, by);
    let bias = |i: usize| inputs.values("bias").map_or(0.0, |bias| bias[i % fields.n as usize].abs());
    Ok(sums["out"].iter().enumerate().map(|(i, sum)| factor * sum + 2.0 * bias(i) + flushed).collect())
}

/// Expected values and budgets of forward: docs/numerics.md, Budgets, "gemm".
fn expect_forward(descriptor: &AnyDescriptor, inputs: &Tensors, outputs: &Tensors, by: By) -> Result<Vec<Expected>> {
    let fields = Fields::of(descriptor)?;
    let accumulator = fields.dtype.accumulator();
    let mut json = fields.in_f64();
    json["pre"] = json!("f64");
    let mut found = fields.inputs(inputs).run("gemm", &json)?;
    let errors = errors_of_pre(&fields, inputs, by)?;
    let (pre, values) = (found.remove("pre").context("pre")?, found.remove("out").context("out")?);
    Ok(activated(fields.activation, accumulator, by, [("pre", pre), ("out", values)], &errors, outputs))
}

/// The pre-activation and what an activation makes of it, each where it is an output: `errors` are what the pre-activation may be off by, in units
/// of `u_A`.
pub(super) fn activated(
    activation: Activation,
    accumulator: DType,
    by: By,
    [(pre_name, pre), (name, values)]: [(&str, Vec<f64>); 2],
    errors: &[f64],
    outputs: &Tensors,
) -> Vec<Expected> {
    let unit = accumulator.unit_roundoff();
    let own = |i: usize| match activation {
        Activation::Identity | Activation::Relu => errors[i],
        _ => {
            let slope = activation.gradient(pre[i], 1.0).abs();
            // No activation is steeper anywhere than 1.2.
            let bent = (slope + curvature(activation) / 2.0 * unit * errors[i]).min(1.2);
            bent * errors[i] + 8.0 * looseness(by.backend) * values[i].abs()
        }
    };
    let within = |name: &str, values: &[f64], allowance: &dyn Fn(usize) -> f64| {
        let output = outputs.get(name)?.dtype;
        Some(Expected::within(name, output, accumulator, values.to_vec(), allowance))
    };
    [within(pre_name, &pre, &|i| errors[i]), within(name, &values, &own)].into_iter().flatten().collect()
}

/// The gradient of the pre-activation, and what it may be off by before it is rounded, in units of `u_A`.
fn dpre(fields: &Fields, inputs: &Tensors, unit: f64, by: By) -> Result<(Vec<f64>, Vec<f64>)> {
    let dout = inputs.values("dout").context("no dout")?;
    let activation = fields.activation;
    if activation.is_identity() {
        return Ok((dout.to_vec(), vec![0.0; dout.len()]));
    }
    if let Some(out) = inputs.values("out") {
        let dpre: Vec<f64> = out.iter().zip(dout).map(|(&y, &dy)| activation.gradient_from_output(y, dy)).collect();
        let is_exact = activation == Activation::Relu;
        let errors = dpre.iter().map(|v| if is_exact { 0.0 } else { 8.0 * v.abs() * looseness(by.backend) }).collect();
        return Ok((dpre, errors));
    }
    let (pre, off) = if fields.recomputes() {
        let mut json = fields.in_f64();
        let object = json.as_object_mut().context("an object")?;
        object.retain(|name, _| !matches!(name.as_str(), "saved" | "da" | "db" | "dbias" | "activation"));
        let mut given = fields.inputs(inputs);
        given.0.retain(|name, _| matches!(*name, "a" | "b" | "bias"));
        let pre = given.run("gemm", &json)?.remove("out").context("out")?;
        (pre, errors_of_pre(fields, inputs, by)?)
    } else {
        let pre = inputs.values("pre").context("no pre")?.to_vec();
        let exact = vec![0.0; pre.len()];
        (pre, exact)
    };
    let gradients = pre.iter().zip(dout).map(|(&x, &dy)| activation.gradient(x, dy)).collect();
    let errors = pre.iter().zip(dout).zip(&off).map(|((&x, &dy), &off)| match activation {
        // Either branch.
        Activation::Relu if x.is_finite() && off > 0.0 && x.abs() <= unit * off => dy.abs() / unit,
        Activation::Relu => 0.0,
        _ => {
            let own = (8.0 + 4.0 * x.abs().min(16.0) * curvature(activation)) * looseness(by.backend);
            // No derivative of an activation moves by more than 1.5.
            dy.abs() * ((curvature(activation) * off).min(1.5 / unit) + own)
        }
    });
    Ok((gradients, errors.map(finite).collect()))
}

/// Expected values and budgets of backward: docs/numerics.md, Budgets, "gemm, da, db" and "gemm, dbias".
fn expect_backward(descriptor: &AnyDescriptor, inputs: &Tensors, outputs: &Tensors, by: By) -> Result<Vec<Expected>> {
    let fields = Fields::of(descriptor)?;
    let dtype = fields.dtype;
    let accumulator = dtype.accumulator();
    let unit = accumulator.unit_roundoff();
    let mut found = fields.inputs(inputs).run("gemm_backward", &fields.in_f64())?;
    let (dpre, errors) = dpre(&fields, inputs, unit, by)?;
    let dout = inputs.get("dout").context("no dout")?;
    let is_rounded = dtype != accumulator && !(fields.activation.is_identity() && dout.dtype == dtype);
    let rounding = |v: f64| match is_rounded {
        true => (dtype.unit_roundoff() * v.abs() + dtype.smallest_subnormal() / 2.0) / unit,
        false => 0.0,
    };
    let before = |name: &str, i: usize| {
        let beta = fields.beta(&fields.json[name]);
        inputs.values(name).map_or(0.0, |values| 2.0 * (beta * values[i]).abs())
    };
    let mut expected = Vec::new();
    for (name, factor) in [("da", "b"), ("db", "a")] {
        let Some(output) = outputs.get(name) else { continue };
        let values = found.remove(name).context("a gradient")?;
        let given = fields.own(factor, inputs.values(factor).context("a factor")?);
        let sum = chain(fields.terms(name), is_random(&dpre) || is_random(&given), by);
        let counted = magnitudes(&dpre, dtype, by);
        let off = counted.iter().zip(&dpre).zip(&errors).map(|((size, v), e)| sum * size + e + rounding(*v));
        let left: Vec<f64> = off.collect();
        let mut json = fields.product(fields.alpha.abs());
        json[name] = json!({"dtype": "f64"});
        let given = magnitudes(&given, dtype, by);
        let off = run_in_f64("gemm_backward", &json, &BTreeMap::from([(factor, &given[..]), ("dout", &left[..])]))?;
        let flushed = fields.alpha.abs().max(1.0) * flushed(fields.terms(name), dtype, by);
        let own = |i: usize| off[name][i] + before(name, i) + flushed;
        expected.push(Expected::within(name, output.dtype, accumulator, values, own));
    }
    if let Some(output) = outputs.get("dbias") {
        let values = found.remove("dbias").context("dbias")?;
        let mut off = vec![0.0; values.len()];
        for (i, (v, e)) in dpre.iter().zip(&errors).enumerate() {
            off[i % fields.n as usize] += (8.0 + CHAIN / 4.0) * v.abs() + e;
        }
        let own = |i: usize| off[i] + before("dbias", i);
        expected.push(Expected::within("dbias", output.dtype, accumulator, values, own));
    }
    Ok(expected)
}

fn run_forward(run: TypedRun<'_, '_>) -> Result<(), Error> {
    let mut args = GemmArgs::new(run.input("a"), run.input("b"), run.output("out"));
    if let Some(bias) = run.named.mem("bias") {
        args = args.bias(bias);
    }
    if let Some(pre) = run.named.mem_mut("pre") {
        args = args.pre(pre);
    }
    run.plan::<GemmDescriptor>(args)
}

fn run_backward(run: TypedRun<'_, '_>) -> Result<(), Error> {
    let mut args = GemmBackwardArgs::new(run.input("dout"));
    args.a = run.named.mem("a");
    args.b = run.named.mem("b");
    args.bias = run.named.mem("bias");
    args.out = run.named.mem("out");
    args.pre = run.named.mem("pre");
    args.da = run.named.mem_mut("da");
    args.db = run.named.mem_mut("db");
    args.dbias = run.named.mem_mut("dbias");
    run.plan::<GemmBackwardDescriptor>(args)
}

/// What the support table asks for.
fn asked_for(dtype: DType) -> Vec<(&'static str, Form)> {
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let linear = |activation| {
        let forward = gemm(pair(dtype, [512, 768, 256], 2)).bias(dtype).expect("a bias");
        forward.activation(activation).expect("an activation")
    };
    let batched = GemmDescriptor::new(dense(dtype, &[8, 64, 96]), dense(dtype, &[8, 96, 128])).expect("a product");
    let shared = GemmDescriptor::new(dense(dtype, &[8, 64, 96]), dense(dtype, &[96, 128])).expect("a product");
    let broadcast = |of_a: &[u64], of_b: &[u64]| {
        let [a, b] = [[of_a, &[64, 96]], [of_b, &[96, 128]]].map(|dims| dense(dtype, &dims.concat()));
        GemmDescriptor::new(a, b).expect("a product")
    };
    let frames = strided(dtype, &[64, 96], &[24, 1]);
    let frames = GemmDescriptor::new(frames, dense(dtype, &[96, 128])).expect("a product");
    let columns = strided(dtype, &[96, 128], &[1, 96]);
    let columns = GemmDescriptor::new(dense(dtype, &[64, 96]), columns).expect("a product");
    let ragged = gemm(pair(dtype, [1, 1021, 509], 0));
    let mut forms: Vec<(&'static str, Form)> =
        Activation::ALL.map(|activation| (activation.name(), linear(activation).into())).into();
    forms.extend([
        ("silu, pre-activation saved", linear(Activation::Silu).pre(dtype).expect("a type").into()),
        ("tanh, gradient recomputed", Form { saved: Some(GemmSaved::Recompute), ..linear(Activation::Tanh).into() }),
        ("outputs of f32, gradients added up", {
            let forward = linear(Activation::Identity).out(wide).expect("a type");
            Form { gradients: Some((wide, 1.0)), ..forward.into() }
        }),
        ("transposed a", gemm(pair(dtype, [512, 768, 256], 1)).into()),
        ("strides [1, ld]", columns.into()),
        ("batch", batched.into()),
        ("batch that shares b", shared.into()),
        ("a shared by a batch of b", broadcast(&[], &[8]).into()),
        ("b shared by groups", broadcast(&[2, 4, 3], &[2, 4, 1]).into()),
        ("factors of other batch extents", broadcast(&[4, 1], &[1, 2]).into()),
        ("rows of a that overlap", frames.into()),
        ("odd extents", ragged.into()),
    ]);
    forms
}
