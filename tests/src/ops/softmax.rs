//! Softmax and log-softmax along any axis, forward and backward.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use baracuda_ops::{
    AnyDescriptor, DType, Error, PlanOptions, Slot, SoftmaxArgs, SoftmaxBackwardArgs, SoftmaxBackwardDescriptor,
    SoftmaxDescriptor, TensorDesc,
};
use serde_json::Value;

use super::{
    CHAIN, Contract, FLOATS, Subject, TypedRun, accumulating, channels_last, dense, features, json_of, run_in_f64,
    strided,
};
use crate::case::{Case, Data, Random, distinct};
use crate::judge::{By, Expected, budget};
use crate::values::Tensors;

pub(super) const FORWARD: Subject = Subject {
    name: "softmax",
    cases: || cases(forward),
    is_cpu_only,
    may_be_constant,
    input: forward_input,
    expect: expect_forward,
    contracts: FORWARD_CONTRACTS,
    run_typed: run_forward,
    features: || features(asked_for, forward),
};

pub(super) const BACKWARD: Subject = Subject {
    name: "softmax_backward",
    cases: || accumulating(cases(backward)),
    is_cpu_only,
    may_be_constant,
    input: backward_input,
    expect: expect_backward,
    contracts: BACKWARD_CONTRACTS,
    run_typed: run_backward,
    features: || features(asked_for, backward),
};

/// A forward before it is a descriptor.
#[derive(Clone)]
struct Setup {
    x: TensorDesc,
    axis: usize,
    log: bool,
    scale: f64,
    /// The type of y, if it is another one than that of x.
    output: Option<DType>,
    /// The layout of y, and of dy in backward.
    y: Option<TensorDesc>,
    causal: bool,
    bias: Option<TensorDesc>,
}

impl Setup {
    fn plain(x: TensorDesc, axis: usize) -> Self {
        Self { x, axis, log: false, scale: 1.0, output: None, y: None, causal: false, bias: None }
    }

    fn forward(&self) -> Result<SoftmaxDescriptor, Error> {
        let mut descriptor = SoftmaxDescriptor::new(self.x, self.axis)?.scale(self.scale)?;
        if self.log {
            descriptor = descriptor.log()?;
        }
        if self.causal {
            descriptor = descriptor.causal()?;
        }
        if let Some(bias) = self.bias {
            descriptor = descriptor.bias(bias)?;
        }
        if let Some(output) = self.output {
            descriptor = descriptor.output(output)?;
        }
        match self.y {
            Some(y) => descriptor.y(y),
            None => Ok(descriptor),
        }
    }
}

fn forward(setup: &Setup) -> Result<AnyDescriptor, Error> {
    setup.forward().map(AnyDescriptor::new)
}

fn backward(setup: &Setup) -> Result<AnyDescriptor, Error> {
    setup.forward()?.backward().map(AnyDescriptor::new)
}

/// Rows: around every vector width and tier, many rows, few rows, none.
fn row_shapes(dtype: DType) -> Vec<(u64, u64)> {
    if dtype == DType::F64 {
        return vec![(1, 1), (3, 4), (7, 17), (5, 128), (5, 1023), (2, 4097), (2, 65536), (4097, 3), (0, 16), (16, 0)];
    }
    let mut shapes = vec![(1, 1), (3, 1), (7, 17), (5, 127), (5, 128), (5, 129), (5, 1023), (2, 4097), (1, 16384)];
    shapes.extend([2, 3, 4, 5, 8, 9, 31, 32, 33, 63, 64, 65, 255, 256, 257, 511, 513].map(|cols| (3, cols)));
    shapes.extend([1024, 1025, 2047, 2048, 2049, 4096, 8192, 8193, 12288].map(|cols| (3, cols)));
    shapes.extend([(2, 16392), (1, 32768), (100, 32769), (100, 32776), (2, 65536), (2, 100_003)]);
    shapes.extend([(65537, 1), (65537, 3), (300, 64), (129, 1000), (1000, 33), (140, 4096)]);
    shapes.extend([(0, 16), (16, 0), (0, 0)]);
    if dtype != DType::F16 {
        shapes.extend([(1, 262144), (65537, 16)]);
    }
    shapes
}

fn is_core_row(shape: (u64, u64)) -> bool {
    [(7, 17), (5, 127), (5, 1023), (2, 4097), (2, 16392), (1, 32768), (129, 1000), (0, 16), (1, 1)].contains(&shape)
}

/// Shapes whose axis is not the last, and the axis: few and many channels, short, odd and long runs, every rank.
fn channel_shapes(dtype: DType) -> Vec<(Vec<u64>, usize, bool)> {
    let mut shapes = vec![
        (vec![2, 21, 16, 16], 1, true),
        (vec![3, 5, 7], 1, true),
        (vec![2, 300, 130], 1, true),
        (vec![1, 1000, 64], 1, true),
        (vec![33, 9], 0, true),
        (vec![2, 3, 0, 4], 1, true),
    ];
    if dtype != DType::F64 {
        shapes.extend([
            (vec![2, 64, 33], 1, false),
            (vec![2, 1, 40], 1, false),
            (vec![2, 2, 1025], 1, false),
            (vec![1, 4, 4096], 1, false),
            (vec![2, 8, 2048], 1, false),
            (vec![1, 16, 1000], 1, false),
            (vec![1, 17, 1001], 1, false),
            (vec![1, 33, 512], 1, false),
            (vec![2, 65, 256], 1, false),
            (vec![1, 128, 144], 1, false),
            (vec![2, 2048, 3], 1, false),
            (vec![1, 4096, 8], 1, false),
            (vec![1, 5000, 65], 1, false),
            (vec![1, 70001, 4], 1, false),
            (vec![600, 7, 2], 1, false),
            (vec![257, 40, 24], 1, false),
            // CUDA: every vector of every thread exists, of one, two and four warps.
            (vec![2, 64, 128], 1, true),
            (vec![1, 128, 96], 1, true),
            (vec![2, 256, 160], 1, true),
            (vec![1, 512, 32], 1, true),
            // More tiles than SMs, an odd number: CUDA takes two at once.
            (vec![1, 520, 4300], 1, false),
        ]);
        shapes.extend((0..4).map(|axis| (vec![2, 3, 5, 4, 6], axis, axis == 2)));
        shapes.extend((0..3).map(|axis| (vec![5, 6, 3, 8], axis, false)));
    } else {
        shapes.push((vec![2, 3, 5, 4, 6], 2, false));
    }
    shapes
}

/// A shape for each of CUDA's kernels: how large the scaled maximum of a line may be depends on how each subtracts it.
fn huge_shapes() -> Vec<Vec<u64>> {
    let rows = [[6, 17], [6, 34], [6, 2048], [6, 8192], [6, 12288], [300, 4096], [6, 32776], [6, 66_002]];
    let lines =
        [[2, 3, 40], [2, 7, 40], [1, 16, 64], [2, 24, 40], [2, 64, 128], [1, 300, 40], [1, 520, 40], [3, 65, 7]];
    let mut shapes: Vec<_> = rows.map(Vec::from).into();
    shapes.extend(lines.map(Vec::from));
    // Chunks of lines, and more tiles than SMs, which CUDA takes two at once.
    shapes.extend([vec![1, 5000, 24], vec![1, 520, 4300]]);
    shapes
}

/// Strides and alignment promises.
fn layouts(dtype: DType) -> Vec<(Setup, bool)> {
    let mut setups = Vec::new();
    let mut add = |x: TensorDesc, axis: usize, y: Option<TensorDesc>, core: bool| {
        setups.push((Setup { y, ..Setup::plain(x, axis) }, core));
    };
    // Rows further apart than they are long.
    for (cols, step) in [(64, 72), (64, 65), (17, 19), (256, 512), (2050, 2056)] {
        let (x, rows) = (dense(dtype, &[6, cols]), strided(dtype, &[6, cols], &[step, 1]));
        add(rows, 1, None, cols == 64);
        add(x, 1, Some(rows), false);
        add(rows, 1, Some(x), cols == 17);
    }
    // Heads: [batch, heads, sequence, head] in the memory order [batch, sequence, heads, head].
    let heads = strided(dtype, &[2, 3, 5, 32], &[480, 32, 96, 1]);
    add(heads, 3, None, true);
    add(heads, 3, Some(dense(dtype, &[2, 3, 5, 32])), false);
    add(heads, 1, None, false);
    add(heads, 2, None, true);
    // Channels-last, whose channels are rows.
    for dims in [vec![2, 21, 5, 3], vec![2, 64, 6, 6], vec![2, 8, 30], vec![2, 40, 2, 3, 4]] {
        let x = channels_last(dtype, &dims);
        add(x, 1, None, dims[1] == 21);
        add(x, 2, None, dims[1] == 64);
    }
    // Planes apart, runs apart.
    let apart = strided(dtype, &[3, 10, 4, 8], &[1000, 48, 12, 1]);
    add(apart, 1, None, true);
    add(dense(dtype, &[3, 10, 4, 8]), 1, Some(apart), false);
    add(strided(dtype, &[3, 10, 33], &[1001, 91, 1]), 1, None, true);
    add(
        strided(dtype, &[3, 10, 32], &[320, 32, 1]).align(4.max(dtype.size_bytes())).expect("a promise"),
        1,
        None,
        false,
    );
    // One line read by all; one run read for all channels.
    add(strided(dtype, &[6, 40], &[0, 1]), 1, None, true);
    add(strided(dtype, &[6, 40, 16], &[0, 16, 1]), 1, None, false);
    add(strided(dtype, &[2, 40, 16], &[16, 0, 1]), 1, None, false);
    // Neither the axis nor another dense in all: for the CPU.
    add(strided(dtype, &[5, 33], &[1, 5]), 1, Some(dense(dtype, &[5, 33])), true);
    add(strided(dtype, &[5, 33], &[66, 2]), 1, None, false);
    add(channels_last(dtype, &[2, 6, 4, 5]), 1, Some(dense(dtype, &[2, 6, 4, 5])), false);
    setups
}

/// x of 16 bits and y of f32: every kernel that reads the one, or writes dx, with every access of either.
fn widening(dtype: DType) -> Vec<(Setup, Data, bool)> {
    let mut setups = Vec::new();
    let mut add = |setup: Setup, data: Data, core: bool| {
        setups.push((Setup { output: Some(DType::F32), ..setup }, data, core));
    };
    for (x, axis) in [(dense(dtype, &[6, 256]), 1), (dense(dtype, &[2, 30, 34]), 1)] {
        for log in [false, true] {
            for scale in [1.0, 0.1118, -1.0, 0.0] {
                add(Setup { log, scale, ..Setup::plain(x, axis) }, Data::Normal, scale == 1.0 || scale == -1.0);
            }
        }
    }
    add(Setup::plain(dense(dtype, &[]), 0), Data::Normal, true);
    let rows = [[1, 1], [3, 2], [3, 9], [7, 17], [5, 127], [5, 128], [5, 1023], [3, 2048], [129, 1000], [140, 4096]];
    let long = [[2, 4097], [3, 12288], [1, 16384], [2, 16392], [100, 32776], [2, 100_003], [1, 262_144]];
    for dims in rows.into_iter().chain(long).chain([[65537, 3], [0, 16], [16, 0]]) {
        let core = [[7, 17], [5, 128], [2, 4097], [100, 32776], [0, 16]].contains(&dims);
        add(Setup::plain(dense(dtype, &dims), 1), Data::Normal, core);
        if [17, 2048, 32776].contains(&dims[1]) {
            add(Setup { log: true, ..Setup::plain(dense(dtype, &dims), 1) }, Data::Normal, false);
        }
    }
    let channels: [(&[u64], bool); 13] = [
        (&[2, 21, 16, 16], true),
        (&[3, 5, 7], true),
        (&[2, 300, 130], true),
        (&[2, 1, 40], false),
        (&[1, 4, 4096], false),
        (&[2, 8, 2048], false),
        (&[1, 16, 1000], false),
        (&[1, 17, 1001], false),
        (&[2, 64, 128], false),
        (&[1, 1000, 64], false),
        (&[1, 2048, 12], false),
        (&[1, 5000, 65], false),
        (&[1, 5000, 64], true),
    ];
    for (dims, core) in channels {
        for log in [false, true] {
            add(Setup { log, ..Setup::plain(dense(dtype, dims), 1) }, Data::Normal, core);
        }
    }
    // Layouts of one and of the other, promises that allow accesses of 4, 2 and 1 elements.
    let (x, apart) = (dense(dtype, &[6, 64]), strided(dtype, &[6, 64], &[72, 1]));
    let y = |strides: &[u64]| Some(strided(DType::F32, &[6, 64], strides));
    add(Setup::plain(apart, 1), Data::Normal, true);
    add(Setup { y: y(&[72, 1]), ..Setup::plain(x, 1) }, Data::Normal, true);
    add(Setup { y: y(&[65, 1]), ..Setup::plain(x, 1) }, Data::Normal, false);
    add(Setup::plain(strided(dtype, &[6, 64], &[66, 1]), 1), Data::Normal, false);
    for bytes in [8, 4, 2] {
        add(Setup::plain(x.align(bytes).expect("a promise"), 1), Data::Normal, bytes == 2);
        let y = y(&[64, 1]).map(|y| y.align(bytes.max(4)).expect("a promise"));
        add(Setup { y, ..Setup::plain(x, 1) }, Data::Normal, false);
    }
    add(Setup::plain(channels_last(dtype, &[2, 21, 5, 3]), 1), Data::Normal, true);
    add(Setup::plain(channels_last(dtype, &[2, 64, 6, 6]), 2), Data::Normal, false);
    add(Setup::plain(strided(dtype, &[3, 10, 4, 8], &[1000, 48, 12, 1]), 1), Data::Normal, true);
    add(Setup::plain(strided(dtype, &[6, 40], &[0, 1]), 1), Data::Normal, true);
    add(Setup::plain(strided(dtype, &[5, 33], &[66, 2]), 1), Data::Normal, false);
    for dims in huge_shapes() {
        add(Setup::plain(dense(dtype, &dims), 1), Data::Huge, false);
    }
    for data in Data::ALL.into_iter().filter(|data| *data != Data::Normal) {
        for dims in [&[4, 300][..], &[2, 21, 20], &[3, 40_001], &[1, 5000, 12]] {
            for log in [false, true] {
                add(Setup { log, ..Setup::plain(dense(dtype, dims), 1) }, data, false);
            }
        }
    }
    setups
}

/// Biases and causal masks: odd extents, more queries than keys and fewer, lines that a thread of CUDA holds and longer ones, layouts.
fn masks(dtype: DType) -> Vec<(Setup, Data, bool)> {
    let mut setups = Vec::new();
    let mut add = |setup: Setup, data: Data, core: bool| {
        setups.push((setup.clone(), data, core));
        setups.push((Setup { log: !setup.log, ..setup }, data, core));
    };
    let last = |dims: &[u64]| Setup::plain(dense(dtype, dims), dims.len() - 1);
    let causal = |dims: &[u64]| Setup { causal: true, ..last(dims) };
    let biased = |dims: &[u64], bias: &[u64]| Setup { bias: Some(dense(dtype, bias)), ..last(dims) };
    let shapes: [(&[u64], bool); 12] = [
        (&[2, 3, 17, 17], true),
        (&[5, 3], true),
        (&[3, 40], true),
        (&[2, 64, 64], false),
        (&[1, 1], false),
        (&[7, 1], false),
        (&[1, 9], false),
        (&[3, 0], false),
        (&[0, 3], false),
        (&[2, 9, 1032], false),
        (&[4, 8195], false),
        (&[2, 33_000], false),
    ];
    for (dims, core) in shapes {
        add(causal(dims), Data::Normal, core);
        add(
            Setup { scale: 0.1118, bias: Some(dense(dtype, &dims[dims.len() - 2..])), ..causal(dims) },
            Data::Normal,
            core,
        );
    }
    let biases: [(&[u64], &[u64], bool); 9] = [
        (&[2, 3, 8, 16], &[8, 16], true),
        (&[2, 3, 8, 16], &[1, 3, 1, 16], false),
        (&[2, 3, 8, 16], &[2, 3, 8, 16], false),
        (&[2, 3, 7, 9], &[2, 1, 1, 9], false),
        (&[2, 3, 7, 9], &[7, 1], false),
        (&[6, 33], &[], false),
        (&[6, 256], &[1, 256], false),
        (&[3, 5000], &[5000], false),
        (&[0, 4], &[4], false),
    ];
    for (dims, bias, core) in biases {
        add(biased(dims, bias), Data::Normal, core);
        add(Setup { scale: -0.7, ..biased(dims, bias) }, Data::Large, false);
    }
    let x = dense(dtype, &[6, 40]);
    // Layouts: columns as lines, repeated and padded rows, a promise that allows single elements alone.
    for axis in [0, 1] {
        let bias = Some(strided(dtype, &[6, 40], &[0, 2]));
        add(Setup { bias, ..Setup::plain(strided(dtype, &[6, 40], &[1, 6]), axis) }, Data::Normal, axis == 0);
        add(Setup { bias, y: Some(strided(dtype, &[6, 40], &[48, 1])), ..Setup::plain(x, axis) }, Data::Normal, false);
    }
    let least = x.align(dtype.size_bytes()).expect("a promise");
    add(Setup { causal: true, ..Setup::plain(least, 1) }, Data::Normal, false);
    add(Setup { causal: true, ..Setup::plain(strided(dtype, &[6, 40], &[0, 1]), 1) }, Data::Normal, false);
    let heads = strided(dtype, &[2, 3, 5, 32], &[480, 32, 96, 1]);
    let bias = Some(strided(dtype, &[3, 5, 32], &[0, 40, 1]));
    add(Setup { causal: true, bias, ..Setup::plain(heads, 3) }, Data::Normal, false);
    // NaN and infinities, which a mask may hide; equal and large numbers.
    for data in [Data::Nan, Data::Inf, Data::NegInf, Data::Constant, Data::Large] {
        for dims in [[8, 24], [3, 1500]] {
            add(causal(&dims), data, false);
            add(biased(&dims, &dims[1..]), data, false);
        }
    }
    if dtype.size_bytes() == 2 {
        let output = Some(DType::F32);
        for dims in [[6, 64], [7, 17]] {
            let bias = Some(dense(DType::F32, &dims));
            add(Setup { bias, causal: true, ..last(&dims) }, Data::Normal, dims[1] == 64);
            add(Setup { bias, output, ..last(&dims) }, Data::Normal, dims[1] == 64);
            add(Setup { causal: true, output, ..last(&dims) }, Data::Normal, false);
            add(Setup { output, ..biased(&dims, &dims[1..]) }, Data::Normal, false);
        }
    }
    setups
}

/// Every setup with the data it runs on, and whether it runs in every mode.
fn setups() -> Vec<(Setup, Data, bool)> {
    let mut setups = Vec::new();
    for dtype in FLOATS {
        let mut add = |setup: Setup, data: Data, core: bool| setups.push((setup, data, core));
        // Every option, over rows and channels.
        for (x, axis) in [(dense(dtype, &[6, 256]), 1), (dense(dtype, &[2, 30, 34]), 1)] {
            for log in [false, true] {
                for scale in [1.0, 0.125, 0.1118, -1.0, -0.7, 3.0, 0.0] {
                    add(Setup { log, scale, ..Setup::plain(x, axis) }, Data::Normal, scale == 0.1118 || scale == -1.0);
                }
            }
        }
        // Rank 0.
        for data in [Data::Normal, Data::Nan, Data::Inf, Data::NegInf, Data::Huge] {
            for log in [false, true] {
                add(Setup { log, ..Setup::plain(dense(dtype, &[]), 0) }, data, data == Data::Normal);
            }
        }
        for (rows, cols) in row_shapes(dtype) {
            let setup = Setup::plain(dense(dtype, &[rows, cols]), 1);
            add(setup.clone(), Data::Normal, is_core_row((rows, cols)));
            if [17, 1023, 4097, 1000, 32768, 32769, 100_003].contains(&cols) {
                add(Setup { log: true, ..setup }, Data::Normal, cols == 1023 || cols == 32768);
            }
        }
        for (dims, axis, core) in channel_shapes(dtype) {
            let setup = Setup::plain(dense(dtype, &dims), axis);
            add(setup.clone(), Data::Normal, core);
            if dims.len() == 3 {
                add(Setup { log: true, ..setup }, Data::Normal, core && dims[1] == 300);
            }
        }
        for (setup, core) in layouts(dtype) {
            add(setup, Data::Normal, core);
        }
        // The greatest magnitudes, a line or more of each kind.
        for (x, axis) in [(dense(dtype, &[6, 256]), 1), (dense(dtype, &[2, 30, 34]), 1)] {
            for log in [false, true] {
                // The larger scale makes elements of 16 bits huge, too; where f32 has no difference of elements, the others may leave one.
                for scale in [1.0, -0.7, 0.1118, 2e-38, 1e6, 0.0] {
                    let core = scale == 1.0 || scale == 0.1118;
                    add(Setup { log, scale, ..Setup::plain(x, axis) }, Data::Huge, core);
                }
            }
        }
        for dims in huge_shapes() {
            for log in [false, true] {
                // The largest take the harness long.
                for scale in if dims.iter().product::<u64>() > 1 << 20 { &[1.0][..] } else { &[1.0, 0.125] } {
                    let setup = Setup { log, scale: *scale, ..Setup::plain(dense(dtype, &dims), 1) };
                    add(setup, Data::Huge, false);
                }
            }
        }
        for (i, data) in Data::STRUCTURED.into_iter().enumerate() {
            let long = [&[3, 4099][..], &[2, 3000, 4], &[2, 32_768], &[3, 1024]][i];
            add(Setup { log: i % 2 == 1, ..Setup::plain(dense(dtype, long), 1) }, data, false);
        }
        for data in Data::ALL.into_iter().filter(|data| *data != Data::Normal) {
            let shapes: [(&[u64], usize); 5] =
                [(&[4, 300], 1), (&[3, 5000], 1), (&[3, 40_001], 1), (&[2, 21, 20], 1), (&[1, 3000, 12], 1)];
            for (dims, axis) in shapes {
                for log in [false, true] {
                    let setup = Setup { log, ..Setup::plain(dense(dtype, dims), axis) };
                    add(setup.clone(), data, false);
                    if dims.len() == 3 || dims[1] == 300 {
                        add(Setup { scale: -0.125, ..setup.clone() }, data, false);
                        add(Setup { scale: 0.0, ..setup }, data, false);
                    }
                }
            }
        }
    }
    for dtype in [DType::F16, DType::BF16] {
        setups.extend(widening(dtype));
    }
    setups.extend(FLOATS.into_iter().flat_map(masks));
    // f16 differs from bf16 only in how elements are read and written.
    let is_special = |data| matches!(data, Data::Large | Data::Huge);
    setups.retain(|(setup, data, core)| setup.x.dtype() != DType::F16 || *core || is_special(*data));
    setups
}

fn case(descriptor: AnyDescriptor, data: Data, core: bool) -> Case {
    let mut case = Case::new(descriptor, data);
    // One element leaves the others nothing.
    case.may_be_constant |= data == Data::Outlier;
    case.core(core)
}

/// The cases of a pass over every setup.
fn cases(pass: fn(&Setup) -> Result<AnyDescriptor, Error>) -> Vec<Case> {
    let of = |(setup, data, core): &(Setup, Data, bool)| {
        let descriptor = pass(setup).expect("the case lists hold valid descriptors");
        case(descriptor, *data, *core)
    };
    let mut cases: Vec<Case> = setups().iter().map(of).collect();
    for (setup, data, core, kernels) in pinned() {
        let case = of(&(setup, data, core));
        let name = case.descriptor.name();
        let is_backward = name.ends_with("_backward");
        let has = |kernel: &&&str| match **kernel {
            "rows_twice" => !is_backward,
            "channels_shared" => is_backward,
            // Its gradients are those of f32.
            "rows_shared" => !is_backward || case.slots()[0].desc.dtype() == DType::F32,
            _ => true,
        };
        let with = |kernel: &&str| case.clone().with(PlanOptions::default().kernel(format!("{name}_{kernel}")));
        cases.extend(kernels.iter().filter(has).map(with));
    }
    distinct(cases)
}

/// Small shapes, and kernels that serve them if asked for by name, whichever is chosen.
fn pinned() -> Vec<(Setup, Data, bool, &'static [&'static str])> {
    let mut pinned: Vec<(Setup, Data, bool, &[&str])> = Vec::new();
    const ROWS: &[&str] = &["rows_resident", "rows_shared", "rows_twice", "split"];
    const NARROW_ROWS: &[&str] = &["rows_resident", "rows_twice", "split"];
    const CHANNELS: &[&str] = &["channels_resident", "channels_shared", "split"];
    const NARROW_CHANNELS: &[&str] = &["channels_resident", "split"];
    for dtype in FLOATS {
        if dtype == DType::F64 {
            for (dims, core) in [([6, 256, 1], true), ([3, 1500, 1], false), ([2, 30, 34], false)] {
                pinned.push((Setup::plain(dense(dtype, &dims), 1), Data::Normal, core, &["split"]));
            }
            continue;
        }
        let shapes: [(&[u64], &[&str]); 6] = [
            (&[6, 256], ROWS),
            (&[5, 1032], ROWS),
            (&[7, 17], NARROW_ROWS),
            (&[2, 30, 32], CHANNELS),
            (&[1, 130, 24], CHANNELS),
            (&[3, 21, 7], NARROW_CHANNELS),
        ];
        for (dims, kernels) in shapes {
            let is_core = dims[1] == 256 || dims[1] == 30;
            let setup = Setup::plain(dense(dtype, dims), 1);
            pinned.push((setup.clone(), Data::Normal, is_core, kernels));
            pinned.push((Setup { log: true, scale: -0.7, ..setup.clone() }, Data::Normal, false, kernels));
            if is_core {
                let data = [Data::Nan, Data::Inf, Data::NegInf, Data::Huge, Data::Constant];
                pinned.extend(data.map(|data| (setup.clone(), data, false, kernels)));
            }
        }
        // Fewer vectors than the blocks of a cluster.
        pinned.push((Setup::plain(dense(dtype, &[3, 8]), 1), Data::Normal, false, ROWS));
        if dtype.size_bytes() == 2 {
            let wide = |dims: &[u64]| Setup { output: Some(DType::F32), ..Setup::plain(dense(dtype, dims), 1) };
            pinned.push((wide(&[6, 256]), Data::Normal, false, NARROW_ROWS));
            pinned.push((wide(&[2, 30, 32]), Data::Normal, false, CHANNELS));
        }
    }
    pinned
}

/// The fields that the harness reads back from a descriptor.
struct Fields {
    json: Value,
    /// Extents before the axis, of the axis, and after it.
    outer: usize,
    dim: usize,
    inner: usize,
    axis: usize,
    log: bool,
    scale: f64,
    /// Of forward a bias or a causal mask, of backward whether -infinity is a mask.
    masked: bool,
}

impl Fields {
    fn of(descriptor: &AnyDescriptor) -> Result<Self> {
        let json = json_of(descriptor)?;
        let axis = json["axis"].as_u64().context("axis")? as usize;
        let dims: Vec<usize> = descriptor.slots()[0].desc.dims().iter().map(|&dim| dim as usize).collect();
        let (outer, inner) = (dims.iter().take(axis).product(), dims.iter().skip(axis + 1).product());
        // A tensor of rank 0 is a line of one element.
        let dim = dims.get(axis).copied().unwrap_or(1);
        let (log, scale) = (json["log"].as_bool().unwrap_or(false), json["scale"].as_f64().unwrap_or(1.0));
        let is_set = |field: &str| json[field].as_bool().unwrap_or(false);
        let masked = is_set("causal") || !json["bias"].is_null() || (log && is_set("masked"));
        Ok(Self { outer, dim, inner, axis, log, scale, masked, json })
    }

    /// Indices of the elements of each line, in row-major order of the tensor.
    fn lines(&self) -> impl Iterator<Item = Vec<usize>> {
        let (dim, inner) = (self.dim, self.inner);
        (0..self.outer * inner).map(move |line| {
            let first = line / inner * dim * inner + line % inner;
            (0..dim).map(|i| first + i * inner).collect()
        })
    }

    /// The JSON of forward over dense f64 operands of these extents.
    fn forward_json(&self) -> Value {
        let first = if self.json["x"].is_null() { &self.json["y"] } else { &self.json["x"] };
        let mut json = serde_json::json!({
            "x": {"dtype": "f64", "dims": first["dims"]},
            "axis": self.axis,
            "log": self.log,
            "scale": self.scale,
            "causal": self.json["causal"].as_bool().unwrap_or(false),
        });
        if let Some(dims) = self.bias_dims() {
            json["bias"] = serde_json::json!({"dtype": "f64", "dims": dims});
        }
        json
    }

    fn bias_dims(&self) -> Option<Vec<u64>> {
        serde_json::from_value(self.json["bias"]["dims"].clone()).ok()
    }

    /// For each element the one of the bias that is added to it.
    fn bias_places(&self) -> Option<Vec<usize>> {
        let bias = self.bias_dims()?;
        let dims: Vec<u64> = serde_json::from_value(self.json["x"]["dims"].clone()).ok()?;
        let strides: Vec<u64> = (0..bias.len()).map(|axis| bias[axis + 1..].iter().product()).collect();
        let new = dims.len() - bias.len();
        let place = |element: u64| {
            let coordinate = |axis: usize| element / dims[axis + 1..].iter().product::<u64>() % dims[axis];
            let own = |axis: usize| if bias[axis] == 1 { 0 } else { coordinate(axis + new) * strides[axis] };
            (0..bias.len()).map(own).sum::<u64>() as usize
        };
        Some((0..dims.iter().product()).map(place).collect())
    }
}

fn may_be_constant(descriptor: &AnyDescriptor) -> bool {
    let is_repeated = |axis: usize| descriptor.slots()[0].desc.strides()[axis] == 0;
    Fields::of(descriptor).is_ok_and(|fields| {
        let has_no_mask = fields.json["bias"].is_null() && fields.json["causal"].is_null();
        fields.dim <= 1 || (has_no_mask && (fields.scale == 0.0 || is_repeated(fields.axis)))
    })
}

/// GPUs take lines whose elements lie side by side, and lines that lie side by side.
fn is_cpu_only(descriptor: &AnyDescriptor) -> bool {
    let Ok(fields) = Fields::of(descriptor) else { return false };
    // What serves masks takes any layout, and so does the gradient of softmax, whether or not there were masks.
    if fields.masked || (descriptor.name() == "softmax_backward" && !fields.log) {
        return false;
    }
    let is_dense = |axis: usize| descriptor.slots().iter().all(|slot| slot.desc.strides()[axis] == 1);
    let dims = descriptor.slots()[0].desc.dims();
    let others = || (0..dims.len()).filter(|&axis| axis != fields.axis && dims[axis] > 1);
    !dims.contains(&0) && fields.dim > 1 && !is_dense(fields.axis) && !others().any(is_dense)
}

/// Values of x: lines of the kind that is asked for; with -infinity also a line of nothing else.
fn lines_of(data: Data, dtype: DType, fields: &Fields, random: &mut Random) -> Vec<f64> {
    let lines = (fields.outer * fields.inner) as u64;
    let rows = data.rows(dtype, lines, fields.dim as u64, random);
    let mut values = vec![0.0; rows.len()];
    for (line, (row, at)) in rows.chunks(fields.dim.max(1)).zip(fields.lines()).enumerate() {
        for (value, at) in row.iter().zip(at) {
            values[at] = if data == Data::NegInf && line == 2 { f64::NEG_INFINITY } else { *value };
        }
    }
    values
}

fn forward_input(case: &Case, slot: &Slot, random: &mut Random, _: &Tensors) -> Result<Vec<f64>> {
    if slot.name == "bias" {
        let data = if case.data == Data::Large { Data::Large } else { Data::Normal };
        let mut values = data.rows(slot.desc.dtype(), 1, slot.desc.elements(), random);
        // About a quarter of the places are masked, and the first row.
        let (row, count) = (slot.desc.dims().last().copied().unwrap_or(1) as usize, values.len());
        for (i, value) in values.iter_mut().enumerate() {
            let is_masked = *value > 0.7 || (i < row && row < count);
            if is_masked && data == Data::Normal && count > 1 {
                *value = f64::NEG_INFINITY;
            }
        }
        return Ok(values);
    }
    Ok(lines_of(case.data, slot.desc.dtype(), &Fields::of(&case.descriptor)?, random))
}

fn backward_input(case: &Case, slot: &Slot, random: &mut Random, _: &Tensors) -> Result<Vec<f64>> {
    let fields = Fields::of(&case.descriptor)?;
    let dtype = slot.desc.dtype();
    if slot.name == "dy" {
        // Forward makes NaN of every infinity but one, so that infinities come in here.
        let is_there = matches!(case.data, Data::Nan | Data::Inf) || case.data.is_structured();
        let data = if is_there { case.data } else { Data::Normal };
        return Ok(lines_of(data, dtype, &fields, random));
    }
    let data = if matches!(case.data, Data::Nan | Data::Inf) { Data::Normal } else { case.data };
    let mut x = lines_of(data, dtype, &fields, random);
    if fields.masked && !x.is_empty() {
        // Every fifth element is masked, and all of the second line.
        for (number, line) in fields.lines().enumerate() {
            line.into_iter().filter(|at| number == 1 || at % 5 == 2).for_each(|at| x[at] = f64::NEG_INFINITY);
        }
    }
    let mut result = run_in_f64("softmax", &fields.forward_json(), &BTreeMap::from([("x", x.as_slice())]))?;
    let mut y = result.remove("y").context("no y")?;
    // A line of -infinity alone is NaN where there is no mask.
    y.iter_mut().filter(|y| fields.masked && y.is_nan()).for_each(|y| *y = f64::NEG_INFINITY);
    Ok(y)
}

const FORWARD_CONTRACTS: &[Contract] = &[Contract {
    outputs: &["y"],
    budget: "u_o |y| + u_A (12 + 48/4 + |t|) y, t = scale (x - max); log: u_o |y| + u_A (|t| + 48/4 + 16); with a bias or a mask and the \
             roundings r of scale x + bias: in place of |t| |t| + r + sum(y r)",
    why: "The bound lets the roundings of all exponentials have one sign and allows for 48 additions one after the other; |t| is there \
          for the subtraction, whose rounding is often 0.",
}];

const BACKWARD_CONTRACTS: &[Contract] = &[Contract {
    outputs: &["dx"],
    budget: "u_o |dx| + u_A |scale y| (8 |dy| + (8 + 48/4) sum|dy y|); log: u_o |dx| + u_A |scale| (8 |dy| + exp(y) (8 + 48/4 + |y|) sum|dy|)",
    why: "It adds the absolute values of terms that cancel, and allows for 48 additions one after the other with roundings of one sign.",
}];

/// Expected values and budgets of forward: docs/numerics.md, Budgets, "softmax" and "log-softmax".
fn expect_forward(descriptor: &AnyDescriptor, inputs: &Tensors, outputs: &Tensors, _: By) -> Result<Vec<Expected>> {
    let fields = Fields::of(descriptor)?;
    let x = inputs.values("x").context("no x")?;
    let dtype = outputs.get("y").context("no y")?.dtype;
    let accumulator = dtype.accumulator();
    let bias = inputs.values("bias");
    let mut operands = BTreeMap::from([("x", x)]);
    operands.extend(bias.map(|bias| ("bias", bias)));
    let mut reference = run_in_f64("softmax", &fields.forward_json(), &operands)?;
    let values = reference.remove("y").context("no y")?;
    if fields.masked {
        let budgets = masked_budgets(&fields, x, bias, &values).into_iter().zip(&values);
        let budgets = budgets.map(|(own, y)| budget(dtype, accumulator, *y, own)).collect();
        return Ok(vec![Expected { name: "y".into(), values, budgets }]);
    }
    let mut budgets = vec![0.0; values.len()];
    for line in fields.lines() {
        let scaled = |x: f64| fields.scale * x;
        let largest = line.iter().map(|at| x[*at]).reduce(if fields.scale < 0.0 { f64::min } else { f64::max });
        let largest = largest.unwrap_or_default();
        for at in &line {
            // x times the scale may leave f64, and so may a difference of signs that differ.
            let difference = x[*at] - largest;
            let is_finite = difference.is_finite() || !x[*at].is_finite();
            let t = if is_finite { scaled(difference) } else { scaled(x[*at]) - scaled(largest) }.abs();
            let y = values[*at];
            let own = match fields.log {
                true => t + CHAIN / 4.0 + 16.0,
                false if y == 0.0 => 0.0,
                false => (12.0 + CHAIN / 4.0 + t) * y,
            };
            budgets[*at] = budget(dtype, accumulator, y, own);
        }
    }
    Ok(vec![Expected { name: "y".into(), values, budgets }])
}

/// What the elements of y may differ by under a bias or a mask, in `u_A`: docs/numerics.md, Budgets, "softmax with a bias or a mask".
fn masked_budgets(fields: &Fields, x: &[f64], bias: Option<&[f64]>, y: &[f64]) -> Vec<f64> {
    let places = fields.bias_places();
    let added = |at: usize| places.as_ref().zip(bias).map(|(places, bias)| bias[places[at]]);
    let t = |at: usize| fields.scale * x[at] + added(at).unwrap_or(0.0);
    // The roundings of t.
    let of_t = |at: usize| {
        let product = if fields.scale == 1.0 { 0.0 } else { 2.0 * (fields.scale * x[at]).abs() };
        product + added(at).map_or(0.0, |_| t(at).abs())
    };
    let weight = |at: usize| if fields.log { y[at].exp() } else { y[at] };
    let mut budgets = vec![0.0; y.len()];
    for line in fields.lines() {
        let shown: Vec<usize> = line.into_iter().filter(|&at| weight(at) > 0.0 || y[at].is_finite()).collect();
        let largest = shown.iter().map(|&at| t(at)).fold(f64::NEG_INFINITY, f64::max);
        let of_sum: f64 = shown.iter().filter(|&&at| weight(at) > 0.0).map(|&at| weight(at) * of_t(at)).sum();
        for at in shown {
            let own = (t(at) - largest).abs() + CHAIN / 4.0 + of_t(at) + of_sum;
            budgets[at] = match fields.log {
                true => own + 16.0,
                false if y[at] == 0.0 => 0.0,
                false => (own + 12.0) * y[at],
            };
        }
    }
    budgets
}

/// Expected values and budgets of backward: docs/numerics.md, Budgets, "softmax, dx" and "log-softmax, dx".
fn expect_backward(descriptor: &AnyDescriptor, inputs: &Tensors, outputs: &Tensors, _: By) -> Result<Vec<Expected>> {
    let fields = Fields::of(descriptor)?;
    let (y, dy) = (inputs.values("y").context("no y")?, inputs.values("dy").context("no dy")?);
    let dtype = outputs.get("dx").context("no dx")?.dtype;
    let accumulator = dtype.accumulator();
    let mut json = fields.forward_json();
    let object = json.as_object_mut().context("the JSON of a descriptor is an object")?;
    let first = object.remove("x").context("x")?;
    object.insert("y".into(), first);
    object.remove("causal");
    object.insert("masked".into(), fields.masked.into());
    let mut reference = run_in_f64("softmax_backward", &json, &BTreeMap::from([("y", y), ("dy", dy)]))?;
    let values = reference.remove("dx").context("no dx")?;
    let mut budgets = vec![0.0; values.len()];
    for line in fields.lines() {
        let counted = line.iter().filter(|&&i| !fields.masked || y[i] != f64::NEG_INFINITY);
        let terms: f64 = counted.map(|&i| if fields.log { dy[i].abs() } else { (dy[i] * y[i]).abs() }).sum();
        for i in line {
            let own = match fields.log {
                true if y[i] == f64::NEG_INFINITY && fields.masked => 0.0,
                true if y[i] == f64::NEG_INFINITY => 8.0 * dy[i].abs(),
                true => 8.0 * dy[i].abs() + y[i].exp() * (8.0 + CHAIN / 4.0 + y[i].abs()) * terms,
                false => y[i].abs() * (8.0 * dy[i].abs() + (8.0 + CHAIN / 4.0) * terms),
            };
            budgets[i] = budget(dtype, accumulator, values[i], fields.scale.abs() * own);
        }
    }
    Ok(vec![Expected { name: "dx".into(), values, budgets }])
}

fn run_forward(run: TypedRun<'_, '_>) -> Result<(), Error> {
    let mut args = SoftmaxArgs::new(run.input("x"), run.output("y"));
    args.bias = run.named.mem("bias");
    run.plan::<SoftmaxDescriptor>(args)
}

fn run_backward(run: TypedRun<'_, '_>) -> Result<(), Error> {
    let (y, dy) = (run.input("y"), run.input("dy"));
    let args = SoftmaxBackwardArgs::new(y, dy, run.output("dx"));
    run.plan::<SoftmaxBackwardDescriptor>(args)
}

/// What the support table asks for.
fn asked_for(dtype: DType) -> Vec<(&'static str, Setup)> {
    let rows = Setup::plain(dense(dtype, &[64, 1024]), 1);
    let image = Setup::plain(dense(dtype, &[8, 21, 64, 64]), 1);
    let widening = [
        ("y of f32", Setup { output: Some(DType::F32), ..rows.clone() }),
        ("channels, y of f32", Setup { output: Some(DType::F32), ..image.clone() }),
    ];
    let mut setups = vec![
        ("last axis", rows.clone()),
        ("log, last axis", Setup { log: true, ..rows.clone() }),
        ("scale", Setup { scale: 0.125, ..rows.clone() }),
        ("causal", Setup { causal: true, ..rows.clone() }),
        ("bias", Setup { bias: Some(dense(dtype, &[1024])), ..rows.clone() }),
        ("negative scale", Setup { scale: -1.0, ..rows }),
        ("rows apart", Setup::plain(strided(dtype, &[64, 1024], &[2048, 1]), 1)),
        ("one row of 262144", Setup::plain(dense(dtype, &[1, 262144]), 1)),
        ("100000 rows of 8", Setup::plain(dense(dtype, &[100_000, 8]), 1)),
        ("channels", image.clone()),
        ("log, channels", Setup { log: true, ..image.clone() }),
        ("channels-last", Setup { x: channels_last(dtype, &[8, 21, 64, 64]), ..image.clone() }),
        ("first axis", Setup { axis: 0, ..image.clone() }),
        ("planes apart", Setup { x: strided(dtype, &[8, 21, 64, 60], &[90000, 4096, 64, 1]), ..image.clone() }),
        ("channels to channels-last", Setup { y: Some(channels_last(dtype, &[8, 21, 64, 64])), ..image }),
    ];
    if dtype.size_bytes() == 2 {
        setups.extend(widening);
    }
    setups
}
