//! Attention, forward and backward. Expected values are the plain formulas, written here.

use anyhow::{Context, Result};
use baracuda_ops::{
    Access, AnyDescriptor, AttentionArgs, AttentionBackwardArgs, AttentionBackwardDescriptor, AttentionDescriptor,
    CausalMask, DType, Error, PlanOptions, Slot, TensorDesc,
};
use serde_json::Value;

use super::{Contract, FLOATS, Subject, TypedRun, dense, existing, features, json_of, strided};
use crate::case::{Case, Data, Random, distinct};
use crate::judge::{By, Expected, budget, finite};
use crate::values::Tensors;

pub(super) const FORWARD: Subject = Subject {
    name: "attention",
    cases: forward_cases,
    is_cpu_only: |_| false,
    may_be_constant,
    input,
    expect: expect_forward,
    contracts: FORWARD_CONTRACTS,
    run_typed: run_forward,
    features: || features(asked_for, forward),
};

pub(super) const BACKWARD: Subject = Subject {
    name: "attention_backward",
    cases: backward_cases,
    is_cpu_only: |_| false,
    may_be_constant,
    input,
    expect: expect_backward,
    contracts: BACKWARD_CONTRACTS,
    run_typed: run_backward,
    features: || features(asked_for, backward),
};

/// A forward before it is a descriptor, and what is asked of its backward.
#[derive(Clone)]
struct Setup {
    q: TensorDesc,
    k: TensorDesc,
    v: TensorDesc,
    scale: Option<f64>,
    causal: CausalMask,
    window: (Option<i64>, Option<i64>),
    soft_cap: Option<f64>,
    bias: Option<TensorDesc>,
    lengths: Option<DType>,
    /// The numbers of pages, of which k and v are then pools.
    pages: Option<TensorDesc>,
    stats: bool,
    wanted: &'static [&'static str],
    /// Of dq and dk; dv and dbias have half of it.
    beta: f64,
    /// Layouts of operands of forward.
    layouts: Vec<(&'static str, TensorDesc)>,
}

/// Samples, heads of q, heads of k, queries, keys, D and Dv.
type Extents = [u64; 7];

const ALL: &[&str] = &["q", "k", "v", "bias"];

impl Setup {
    fn of(q: TensorDesc, k: TensorDesc, v: TensorDesc) -> Self {
        Self {
            q,
            k,
            v,
            scale: None,
            causal: CausalMask::None,
            window: (None, None),
            soft_cap: None,
            bias: None,
            lengths: None,
            pages: None,
            stats: true,
            wanted: ALL,
            beta: 0.0,
            layouts: Vec::new(),
        }
    }

    fn plain(dtype: DType, [b, hq, hk, sq, sk, d, dv]: Extents) -> Self {
        Self::of(dense(dtype, &[b, hq, sq, d]), dense(dtype, &[b, hk, sk, d]), dense(dtype, &[b, hk, sk, dv]))
    }

    /// Of pools of pages: the extent of keys is that of a page. `pages`: of the pool and of each sample.
    fn paged(dtype: DType, [b, hq, hk, sq, page, d, dv]: Extents, pages: [u64; 2], numbers: DType) -> Self {
        let [pool, of_sample] = pages;
        let of = |depth| dense(dtype, &[pool, hk, page, depth]);
        Self { pages: Some(dense(numbers, &[b, of_sample])), ..Self::of(dense(dtype, &[b, hq, sq, d]), of(d), of(dv)) }
    }

    fn causal(self, causal: CausalMask) -> Self {
        Self { causal, ..self }
    }

    fn forward(&self) -> Result<AttentionDescriptor, Error> {
        let descriptor = match self.pages {
            Some(pages) => AttentionDescriptor::paged(self.q, self.k, self.v, pages)?,
            None => AttentionDescriptor::new(self.q, self.k, self.v)?,
        };
        let mut descriptor = descriptor.causal(self.causal)?;
        descriptor = descriptor.window(self.window.0, self.window.1)?;
        if let Some(scale) = self.scale {
            descriptor = descriptor.scale(scale)?;
        }
        if let Some(cap) = self.soft_cap {
            descriptor = descriptor.soft_cap(cap)?;
        }
        if let Some(bias) = self.bias {
            descriptor = descriptor.bias(bias)?;
        }
        if let Some(lengths) = self.lengths {
            descriptor = descriptor.lengths(lengths)?;
        }
        if self.stats {
            descriptor = descriptor.stats()?;
        }
        let laid = self.layouts.iter().filter(|(operand, _)| self.stats || *operand != "lse");
        laid.into_iter().try_fold(descriptor, |descriptor, (operand, desc)| descriptor.layout(operand, *desc))
    }
}

fn forward(setup: &Setup) -> Result<AnyDescriptor, Error> {
    setup.forward().map(AnyDescriptor::new)
}

fn backward(setup: &Setup) -> Result<AnyDescriptor, Error> {
    let forward = Setup { stats: true, ..setup.clone() }.forward()?;
    let has_numbers = setup.bias.is_some_and(|bias| bias.dtype() != DType::Bool);
    let wanted = existing(&forward, setup.wanted).into_iter().filter(|input| *input != "bias" || has_numbers);
    let wanted: Vec<&str> = wanted.collect();
    let mut descriptor = forward.backward(&wanted)?;
    if setup.beta != 0.0 {
        for input in wanted {
            descriptor = match input {
                "q" => descriptor.dq(setup.beta)?,
                "k" => descriptor.dk(setup.beta)?,
                "v" => descriptor.dv(setup.beta / 2.0)?,
                _ => descriptor.dbias(setup.beta / 2.0)?,
            };
        }
    }
    Ok(AnyDescriptor::new(descriptor))
}

/// Combinations of options, each given by how many choices it has, in which every two choices of two options occur together.
fn pairs(counts: &[usize]) -> Vec<Vec<usize>> {
    let total: usize = counts.iter().product();
    let of = |mut number: usize| -> Vec<usize> {
        let digit = |&count: &usize| {
            let digit = number % count;
            number /= count;
            digit
        };
        counts.iter().map(digit).collect()
    };
    let mut open = std::collections::BTreeSet::new();
    for (a, &of_a) in counts.iter().enumerate() {
        for (b, &of_b) in counts.iter().enumerate().skip(a + 1) {
            open.extend((0..of_a).flat_map(|x| (0..of_b).map(move |y| [a, x, b, y])));
        }
    }
    let mut chosen = Vec::new();
    let mut number = 0;
    while let Some(&[a, x, b, y]) = open.first() {
        // A step that shares no factor with the number of combinations visits all of them: of some that have the pair the best is taken.
        let mut best: (usize, Vec<usize>) = (0, Vec::new());
        for _ in 0..64 {
            number = (number + 7919) % total;
            let mut tried = of(number);
            (tried[a], tried[b]) = (x, y);
            let gain = open.iter().filter(|[a, x, b, y]| tried[*a] == *x && tried[*b] == *y).count();
            if gain > best.0 {
                best = (gain, tried);
            }
        }
        open.retain(|[a, x, b, y]| best.1[*a] != *x || best.1[*b] != *y);
        chosen.push(best.1);
    }
    chosen
}

/// Layouts of q, k and v: dense; heads beside each other; parts of one tensor; keys that all samples share.
fn laid(dtype: DType, [b, hq, hk, sq, sk, d, dv]: Extents, layout: usize) -> Setup {
    let side_by_side = |heads: u64, rows: u64, depth: u64| {
        strided(dtype, &[b, heads, rows, depth], &[rows * heads * depth, depth, heads * depth, 1])
    };
    let part = |heads: u64, rows: u64, depth: u64| {
        let pitch = (hq + 2 * hk) * d.max(dv) + 3;
        strided(dtype, &[b, heads, rows, depth], &[rows * pitch, depth, pitch, 1])
    };
    let shared = |depth: u64| strided(dtype, &[b, hk, sk, depth], &[0, sk * depth, 1, sk]);
    match layout {
        0 => Setup::plain(dtype, [b, hq, hk, sq, sk, d, dv]),
        1 => Setup {
            layouts: vec![
                ("y", side_by_side(hq, sq, dv)),
                ("lse", strided(dtype.accumulator(), &[b, hq, sq], &[hq * sq, 1, hq])),
            ],
            ..Setup::of(side_by_side(hq, sq, d), side_by_side(hk, sk, d), side_by_side(hk, sk, dv))
        },
        2 => Setup::of(part(hq, sq, d), part(hk, sk, d), part(hk, sk, dv)),
        _ => Setup::of(dense(dtype, &[b, hq, sq, d]), shared(d), shared(dv)),
    }
}

/// The bias of a kind for some scores, if the type of q allows it.
fn bias(dtype: DType, [b, hq, _, sq, sk, ..]: Extents, kind: usize) -> Option<TensorDesc> {
    let wide = if dtype == DType::F64 { dtype } else { DType::F32 };
    Some(match kind {
        0 => return None,
        1 => dense(DType::Bool, &[b, 1, 1, sk]),
        2 => dense(DType::Bool, &[sq, sk]),
        3 => dense(dtype, &[b, hq, sq, sk]),
        4 => dense(wide, &[hq, 1, sk]),
        5 => strided(wide, &[1, hq, sq, sk], &[0, 1, hq * sk, hq]),
        6 => strided(dtype, &[b, hq, sq, sk], &[0, 0, sk + 1, 1]),
        _ => dense(wide, &[sq, 1]),
    })
}

const BIASES: usize = 8;

/// Every form with the data it runs on, and whether it runs in every mode.
fn setups() -> Vec<(Setup, Data, bool)> {
    const CAUSAL: [CausalMask; 3] = CausalMask::ALL;
    const WINDOWS: [(Option<i64>, Option<i64>); 4] =
        [(None, None), (Some(3), None), (Some(2), Some(1)), (None, Some(i64::MAX))];
    const LENGTHS: [Option<DType>; 4] = [None, Some(DType::I32), Some(DType::I64), Some(DType::U32)];
    const WANTED: [&[&str]; 5] = [ALL, &["q"], &["k"], &["v", "bias"], &["q", "v"]];
    let mut setups = Vec::new();
    for dtype in FLOATS {
        let mut add = |setup: Setup, data: Data, core: bool| setups.push((setup, data, core));
        // Every two choices of two options.
        let shapes: [Extents; 3] = [[2, 4, 2, 7, 11, 16, 16], [3, 3, 3, 18, 6, 9, 20], [1, 6, 1, 5, 35, 33, 8]];
        let counts = [shapes.len(), 4, CAUSAL.len(), WINDOWS.len(), 2, BIASES, LENGTHS.len(), 2, WANTED.len(), 2, 2];
        for choice in pairs(&counts) {
            let extents = shapes[choice[0]];
            let setup = Setup {
                causal: CAUSAL[choice[2]],
                window: WINDOWS[choice[3]],
                soft_cap: [None, Some(1.5)][choice[4]],
                bias: bias(dtype, extents, choice[5]),
                lengths: LENGTHS[choice[6]],
                scale: [None, Some(-0.3)][choice[7]],
                wanted: WANTED[choice[8]],
                beta: [0.0, -0.5][choice[9]],
                stats: choice[10] == 0,
                ..laid(dtype, extents, choice[1])
            };
            // With a window that is a causal mask already, or dbias alone of no numbers, there may be nothing to ask for.
            add(setup, Data::Normal, false);
        }
        // Around the sides of tiles and the widths of accesses; few and many queries and keys.
        let extents: [(Extents, bool); 27] = [
            ([1, 1, 1, 1, 1, 1, 1], true),
            ([1, 1, 1, 1, 2, 8, 8], false),
            ([2, 1, 1, 3, 1, 8, 4], false),
            ([1, 2, 1, 15, 17, 4, 12], false),
            ([1, 2, 2, 16, 16, 64, 64], true),
            ([1, 2, 2, 17, 15, 31, 33], false),
            ([2, 2, 1, 31, 33, 32, 32], true),
            ([1, 1, 1, 32, 31, 65, 63], false),
            ([1, 2, 1, 33, 64, 64, 1], false),
            ([1, 1, 1, 63, 65, 96, 80], false),
            ([1, 2, 2, 64, 63, 80, 96], false),
            ([1, 1, 1, 65, 66, 128, 128], true),
            ([1, 1, 1, 20, 40, 127, 129], false),
            ([1, 1, 1, 40, 20, 129, 127], false),
            ([1, 2, 1, 33, 17, 256, 256], true),
            ([1, 1, 1, 9, 70, 200, 256], false),
            ([1, 8, 1, 1, 300, 64, 64], true),
            ([3, 1, 1, 1, 1025, 8, 8], false),
            ([1, 1, 1, 300, 1, 16, 16], false),
            ([1, 1, 1, 257, 129, 8, 8], false),
            ([1, 2, 2, 127, 255, 24, 40], false),
            ([5, 7, 7, 3, 4, 2, 3], false),
            ([2, 2, 1, 0, 5, 8, 8], true),
            ([2, 2, 1, 5, 0, 8, 8], true),
            ([0, 2, 1, 5, 5, 8, 8], false),
            ([2, 0, 0, 5, 5, 8, 8], false),
            ([2, 0, 2, 5, 5, 8, 8], true),
        ];
        for (extents, core) in extents {
            let setup = Setup::plain(dtype, extents);
            add(setup.clone(), Data::Normal, core);
            add(setup.clone().causal(CausalMask::BottomRight), Data::Normal, core);
            let masked = Setup { bias: bias(dtype, extents, 4), lengths: Some(DType::I32), beta: 0.75, ..setup };
            add(masked, Data::Normal, false);
        }
        let long: [Extents; 3] = [[1, 1, 1, 1, 8193, 16, 16], [1, 1, 1, 513, 514, 64, 64], [1, 2, 1, 1030, 70, 8, 8]];
        for extents in long {
            add(Setup::plain(dtype, extents).causal(CausalMask::TopLeft), Data::Normal, false);
            add(Setup { lengths: Some(DType::I64), ..Setup::plain(dtype, extents) }, Data::Normal, false);
        }
        decoding(dtype, &mut add);
        if matches!(dtype, DType::F16 | DType::BF16) {
            whole_chunks(dtype, &mut add);
        }
        paged(dtype, &mut add);
        // NaN and infinities, equal keys, large scores.
        for data in [Data::Nan, Data::Inf, Data::NegInf, Data::Constant, Data::Outlier, Data::Tiny, Data::Sparse] {
            for extents in [[1, 2, 1, 6, 20, 16, 16], [1, 1, 1, 40, 70, 64, 40]] {
                add(Setup::plain(dtype, extents), data, false);
            }
        }
    }
    setups
}

/// Few queries of many keys, which kernels split in parts: some beyond lengths, some outside windows.
fn decoding(dtype: DType, add: &mut impl FnMut(Setup, Data, bool)) {
    let shapes: [Extents; 4] = [
        [2, 4, 1, 1, 600, 16, 16],
        [1, 8, 2, 3, 700, 128, 128],
        [2, 2, 2, 1, 1100, 64, 40],
        [1, 3, 1, 4, 515, 33, 200],
    ];
    for (number, extents) in shapes.into_iter().enumerate() {
        let plain = Setup::plain(dtype, extents);
        let causal = plain.clone().causal(CausalMask::BottomRight);
        add(causal.clone(), Data::Normal, number == 1);
        let window = Setup { window: (Some(90), None), lengths: Some(DType::I32), ..causal.clone() };
        add(window, Data::Normal, number == 0);
        add(Setup { soft_cap: Some(1.5), bias: bias(dtype, extents, 4), ..causal }, Data::Normal, false);
        let masked =
            Setup { bias: bias(dtype, extents, 1), lengths: Some(DType::U32), ..laid(dtype, extents, 1 + number % 3) };
        add(masked, Data::Normal, false);
        if number == 0 {
            for data in [Data::Nan, Data::Inf, Data::NegInf, Data::Constant, Data::Outlier, Data::Sparse] {
                add(plain.clone(), data, false);
            }
        }
    }
}

/// Rows of whole vectors of 16 bytes, several tiles of queries and of keys: what tensor cores multiply.
fn whole_chunks(dtype: DType, add: &mut impl FnMut(Setup, Data, bool)) {
    let shapes: [Extents; 5] = [
        [2, 2, 1, 140, 200, 64, 64],
        [1, 2, 1, 129, 260, 128, 128],
        [1, 2, 2, 260, 65, 32, 24],
        [1, 2, 1, 65, 131, 256, 200],
        [2, 1, 1, 63, 300, 8, 120],
    ];
    for (number, extents) in shapes.into_iter().enumerate() {
        let plain = laid(dtype, extents, number % 2);
        let causal = plain.clone().causal(CausalMask::BottomRight);
        add(plain.clone(), Data::Normal, false);
        add(causal.clone(), Data::Normal, number < 2);
        add(plain.clone().causal(CausalMask::TopLeft), Data::Normal, false);
        let window = Setup { window: (Some(70), Some(9)), lengths: Some(DType::I32), beta: 0.5, ..plain.clone() };
        add(window, Data::Normal, number == 2);
        let sliding = Setup { window: (Some(40), None), lengths: Some(DType::I64), ..causal.clone() };
        add(sliding, Data::Normal, number == 3);
        add(Setup { scale: Some(-0.2), soft_cap: Some(1.5), ..causal.clone() }, Data::Normal, number == 4);
        add(Setup { bias: bias(dtype, extents, 3 + number % 3), ..causal }, Data::Normal, matches!(number, 0 | 2 | 3));
        add(Setup { bias: bias(dtype, extents, 1), lengths: Some(DType::U32), ..plain }, Data::Normal, false);
    }
}

/// Keys in pages: of one key and of many, more and fewer in the pool than samples name, some of them no pages at all.
fn paged(dtype: DType, add: &mut impl FnMut(Setup, Data, bool)) {
    let shapes: [(Extents, [u64; 2], bool); 9] = [
        ([2, 4, 2, 3, 5, 16, 16], [7, 4], true),
        ([3, 2, 1, 1, 16, 64, 64], [20, 20], true),
        ([1, 6, 3, 9, 1, 33, 20], [5, 17], false),
        ([2, 8, 2, 1, 64, 128, 128], [8, 6], false),
        ([2, 2, 2, 40, 16, 24, 40], [3, 4], true),
        ([1, 4, 1, 2, 128, 256, 9], [4, 5], false),
        ([2, 2, 1, 3, 5, 8, 8], [0, 3], false),
        ([2, 2, 1, 3, 5, 8, 8], [4, 0], true),
        ([2, 2, 1, 3, 0, 8, 8], [4, 3], false),
    ];
    const NUMBERS: [DType; 3] = [DType::I32, DType::I64, DType::U32];
    for (number, (extents, pages, core)) in shapes.into_iter().enumerate() {
        let [b, hq, hk, sq, page, d, dv] = extents;
        let keys = [b, hq, hk, sq, page * pages[1], d, dv];
        let plain = Setup::paged(dtype, extents, pages, NUMBERS[number % 3]);
        add(plain.clone(), Data::Normal, false);
        let causal =
            Setup { lengths: Some(NUMBERS[(number + 1) % 3]), ..plain.clone() }.causal(CausalMask::BottomRight);
        add(causal.clone(), Data::Normal, core);
        let window = (Some(7), Some(2));
        add(Setup { window, soft_cap: Some(1.5), bias: bias(dtype, keys, 3), ..plain }, Data::Normal, false);
        // The heads of a key beside each other, and the numbers of a sample apart.
        let of = |depth: u64| strided(dtype, &[pages[0], hk, page, depth], &[page * hk * depth, depth, hk * depth, 1]);
        let apart = strided(NUMBERS[(number + 2) % 3], &[b, pages[1]], &[1, b]);
        let turned = Setup { k: of(d), v: of(dv), pages: Some(apart), bias: bias(dtype, keys, 1), ..causal };
        add(turned, Data::Normal, false);
    }
}

/// Few keys, of which every two choices of two options occur together, by the forms that split them.
fn split(cases: &[Case]) -> Vec<Case> {
    let is_small = |case: &&Case| case.slots()[0].desc.elements() <= 2048 && case.data == Data::Normal;
    let pinned = |case: &Case, form| case.clone().core(false).with(PlanOptions::default().kernel(form));
    let simt = cases.iter().filter(is_small).step_by(3).map(|case| pinned(case, "attention_split"));
    let has_chunks = |slot: &Slot| {
        let (desc, width) = (&slot.desc, 16 / slot.desc.dtype().size_bytes());
        let [rest @ .., 1] = desc.strides() else { return false };
        width == 8 && desc.dims().ends_with(&[desc.dims()[3] / 8 * 8]) && rest.iter().all(|stride| stride % 8 == 0)
    };
    let is_taken = |case: &&Case| {
        is_small(case) && case.slots().iter().filter(|slot| ["k", "v"].contains(&slot.name)).all(has_chunks)
    };
    let mma = cases.iter().filter(is_taken).map(|case| pinned(case, "attention_split_mma"));
    simt.chain(mma).collect()
}

/// Cases that tensor cores would take, by the form that adds up in f32 alone.
fn simt(cases: &[Case], form: &'static str) -> Vec<Case> {
    let is_half = |case: &&Case| matches!(case.slots()[0].desc.dtype(), DType::F16 | DType::BF16);
    let pinned = |case: &Case| case.clone().core(false).with(PlanOptions::default().kernel(form));
    cases.iter().filter(is_half).step_by(4).map(pinned).collect()
}

fn cases(pass: fn(&Setup) -> Result<AnyDescriptor, Error>) -> Vec<Case> {
    let of = |(setup, data, core): &(Setup, Data, bool)| {
        let setup = match pass(setup) {
            // There are no gradients of pages.
            Err(Error::NoGradient { .. }) if setup.pages.is_some() => return None,
            // Of Bool there is no gradient, and of the others none was wanted.
            Err(Error::InvalidDescriptor { field: "wanted", .. }) => &Setup { wanted: ALL, ..setup.clone() },
            _ => setup,
        };
        Some(Case::new(pass(setup).expect("the case lists hold valid descriptors"), *data).core(*core))
    };
    distinct(setups().iter().filter_map(of).collect())
}

fn forward_cases() -> Vec<Case> {
    let mut cases = cases(forward);
    cases.extend([split(&cases), simt(&cases, "attention_simt")].concat());
    cases
}

fn backward_cases() -> Vec<Case> {
    let mut cases = cases(backward);
    cases.extend(simt(&cases, "attention_backward_simt"));
    cases
}

/// A descriptor as its JSON has it.
struct Fields {
    heads: usize,
    kv_heads: usize,
    queries: usize,
    keys: usize,
    samples: usize,
    depth: usize,
    value_depth: usize,
    /// Keys of a page, pages of the pool, and of a sample, if keys lie in pages.
    pages: Option<[usize; 3]>,
    scale: f64,
    causal: CausalMask,
    window: [Option<u64>; 2],
    soft_cap: Option<f64>,
    /// The bias's extents, as many as those of scores.
    bias: [usize; 4],
    is_bool: bool,
    json: Value,
}

impl Fields {
    fn of(descriptor: &AnyDescriptor) -> Result<Self> {
        let json: Value = json_of(descriptor)?;
        let dims = |name: &str| -> Result<Vec<usize>> {
            let slot = descriptor.slots().iter().find(|slot| slot.name == name).context("a slot")?;
            Ok(slot.desc.dims().iter().map(|&dim| dim as usize).collect())
        };
        let (q, k, v) = (dims("q")?, dims("k")?, dims("v")?);
        let mut bias = [1; 4];
        if let Ok(own) = dims("bias") {
            bias[4 - own.len()..].copy_from_slice(&own);
        }
        let pages = dims("pages").ok().map(|numbers| [k[2], k[0], numbers[1]]);
        let causal = match json["causal"].as_str() {
            Some("top_left") => CausalMask::TopLeft,
            Some("bottom_right") => CausalMask::BottomRight,
            _ => CausalMask::None,
        };
        Ok(Self {
            samples: q[0],
            heads: q[1],
            queries: q[2],
            depth: q[3],
            kv_heads: k[1],
            keys: pages.map_or(k[2], |[page, _, of_sample]| page * of_sample),
            pages,
            value_depth: v[3],
            scale: json["scale"].as_f64().unwrap_or_else(|| 1.0 / (q[3] as f64).sqrt()),
            causal,
            window: ["window_left", "window_right"].map(|field| json[field].as_u64()),
            soft_cap: json["soft_cap"].as_f64(),
            bias,
            is_bool: json["bias"]["dtype"] == "bool",
            json,
        })
    }

    fn beta(&self, gradient: &str) -> f64 {
        self.json[gradient]["beta"].as_f64().unwrap_or(0.0)
    }

    /// The element of the bias at a place of the scores.
    fn bias_at(&self, place: [usize; 4]) -> usize {
        place.iter().zip(self.bias).fold(0, |at, (&place, extent)| at * extent + if extent == 1 { 0 } else { place })
    }

    fn row(&self, b: usize, h: usize, i: usize) -> usize {
        (b * self.heads + h) * self.queries + i
    }

    /// The row of a key among those of k, unless it is in no page.
    fn kv_row(&self, inputs: &Tensors, b: usize, h: usize, j: usize) -> Option<usize> {
        let group = self.heads / self.kv_heads;
        let Some([page, pool, of_sample]) = self.pages else {
            return Some((b * self.kv_heads + h / group) * self.keys + j);
        };
        let number = inputs.values("pages")?[b * of_sample + j / page];
        let is_there = (0.0..pool as f64).contains(&number);
        is_there.then(|| (number as usize * self.kv_heads + h / group) * page + j % page)
    }

    /// The keys that a query sees, by the words of the documentation.
    fn sees(&self, inputs: &Tensors, [b, h, i, j]: [usize; 4]) -> bool {
        let length =
            inputs.values("lengths").map_or(self.keys as f64, |lengths| lengths[b].clamp(0.0, self.keys as f64));
        let own = if self.causal == CausalMask::TopLeft { i as f64 } else { i as f64 + length - self.queries as f64 };
        let key = j as f64;
        key < length
            && (self.causal == CausalMask::None || key <= own)
            && self.window[0].is_none_or(|left| key >= own - left as f64)
            && self.window[1].is_none_or(|right| key <= own + right as f64)
            && (!self.is_bool || inputs.values("bias").is_none_or(|bias| bias[self.bias_at([b, h, i, j])] != 0.0))
    }

    /// The scores of the keys that a query sees.
    fn scores(&self, inputs: &Tensors, b: usize, h: usize, i: usize, by: Products) -> Result<Vec<Score>> {
        let (q, k) = (inputs.values("q").context("q")?, inputs.values("k").context("k")?);
        let query = part(q, self.row(b, h, i), self.depth);
        let mut scores = Vec::new();
        // Of a pool without pages no key is there, however many the numbers of pages would name.
        if k.is_empty() {
            return Ok(scores);
        }
        for j in (0..self.keys).filter(|&j| self.sees(inputs, [b, h, i, j])) {
            let Some(row) = self.kv_row(inputs, b, h, j) else { continue };
            let key = part(k, row, self.depth);
            let products = || query.iter().zip(key).map(|(q, k)| q * k);
            let product = self.scale * products().sum::<f64>();
            let magnitude = self.scale.abs() * products().map(f64::abs).sum::<f64>();
            let mut score = Score {
                key: j,
                row,
                value: product,
                // An infinity is exact, also where the soft cap makes a number of it.
                error: if product.is_infinite() { 0.0 } else { by.of_rows(self.depth) * magnitude },
                tanh: 0.0,
                slope: 1.0,
                of_slope: 0.0,
            };
            if let Some(cap) = self.soft_cap {
                score.tanh = (product / cap).tanh();
                score.slope = 1.0 - score.tanh * score.tanh;
                score.of_slope = 2.0 * score.tanh.abs() * score.slope * score.error / cap + 24.0;
                score.value = cap * score.tanh;
                score.error = score.slope * score.error + 16.0 * score.value.abs();
            }
            if let Some(bias) = inputs.values("bias").filter(|_| !self.is_bool) {
                let bias = bias[self.bias_at([b, h, i, j])];
                score.error += if bias.is_finite() { score.value.abs() + bias.abs() } else { 0.0 };
                score.value += bias;
            }
            score.error += score.value.abs();
            scores.push(score);
        }
        Ok(scores)
    }
}

/// The score of a key.
struct Score {
    key: usize,
    /// That of k and v.
    row: usize,
    value: f64,
    /// What it may differ by, in units of the accumulator.
    error: f64,
    tanh: f64,
    /// The derivative of the soft cap, and what it may differ by.
    slope: f64,
    of_slope: f64,
}

/// A row of a tensor of rows.
fn part(values: &[f64], row: usize, depth: usize) -> &[f64] {
    &values[row * depth..(row + 1) * depth]
}

/// The largest score and the logarithm of the sum of exponentials.
fn largest_and_lse(scores: &[Score]) -> (f64, f64) {
    let larger = |a: f64, score: &Score| if score.value > a || score.value.is_nan() { score.value } else { a };
    let largest = scores.iter().fold(f64::NEG_INFINITY, larger);
    if largest == f64::NEG_INFINITY {
        return (largest, largest);
    }
    if !largest.is_finite() {
        return (largest, f64::NAN);
    }
    (largest, largest + scores.iter().map(|score| (score.value - largest).exp()).sum::<f64>().ln())
}

/// What so many terms may add to the error of a sum, of the sum of their magnitudes.
fn chains(terms: usize) -> f64 {
    24.0 + terms as f64 / 256.0
}

/// How a kernel multiplies, in units of the accumulator.
#[derive(Clone, Copy)]
struct Products {
    /// On tensor cores, which cut sums off instead of rounding them.
    has_cores: bool,
    /// What rounding a weight to the type of q may change: a part of it, and a number where it is subnormal.
    rounded: f64,
    lost: f64,
}

impl Products {
    const PLAIN: Self = Self { has_cores: false, rounded: 0.0, lost: 0.0 };

    fn of(descriptor: &AnyDescriptor, by: By) -> Self {
        let dtype = descriptor.slots()[0].desc.dtype();
        let unit = dtype.accumulator().unit_roundoff();
        if ["_mma", "_cudnn"].iter().any(|form| by.kernel.ends_with(form)) {
            Self {
                has_cores: true,
                rounded: dtype.unit_roundoff() / unit,
                lost: dtype.smallest_subnormal() / 2.0 / unit,
            }
        } else {
            Self::PLAIN
        }
    }

    /// What a product of two rows may differ by, of the sum of the magnitudes.
    fn of_rows(self, depth: usize) -> f64 {
        8.0 + depth as f64 / if self.has_cores { 2.0 } else { 4.0 }
    }

    /// What so many terms, weights times other numbers, may add to the error of their sum, of the sum of their magnitudes.
    fn of_weighted(self, terms: usize) -> f64 {
        if self.has_cores { self.rounded + 8.0 + terms as f64 / 2.0 } else { chains(terms) }
    }
}

/// What a weight may differ by beside the error of its score: the exponential, its argument, and the sum that divides.
fn of_weight(fields: &Fields) -> f64 {
    12.0 + chains(fields.keys)
}

/// y, lse, and what they may differ by.
struct Forward {
    y: Vec<f64>,
    of_y: Vec<f64>,
    lse: Vec<f64>,
    of_lse: Vec<f64>,
}

impl Forward {
    fn of(fields: &Fields, inputs: &Tensors, unit: f64, by: Products) -> Result<Self> {
        let v = inputs.values("v").context("v")?;
        let rows = fields.samples * fields.heads * fields.queries;
        let (mut y, mut of_y) = (vec![0.0; rows * fields.value_depth], vec![0.0; rows * fields.value_depth]);
        let (mut lse, mut of_lse) = (Vec::new(), Vec::new());
        for row in 0..rows {
            let (b, h, i) =
                (row / fields.queries / fields.heads, row / fields.queries % fields.heads, row % fields.queries);
            let scores = fields.scores(inputs, b, h, i, by)?;
            let (largest, of_row) = largest_and_lse(&scores);
            lse.push(of_row);
            if largest == f64::NEG_INFINITY {
                of_lse.push(0.0);
                continue;
            }
            let out = row * fields.value_depth..(row + 1) * fields.value_depth;
            let mut of_all = 0.0;
            for score in &scores {
                let weight = (score.value - of_row).exp();
                // A weight that vanishes in the accumulator.
                let lost = f64::from(f32::MIN_POSITIVE) / unit;
                let own = match weight {
                    0.0 => lost,
                    _ => weight * (score.error + (score.value - largest).abs() + of_weight(fields)) + lost,
                };
                of_all += own;
                let values = part(v, score.row, fields.value_depth);
                for ((y, of_y), value) in y[out.clone()].iter_mut().zip(&mut of_y[out.clone()]).zip(values) {
                    *y += weight * value;
                    *of_y += (own + by.of_weighted(fields.keys) * weight + by.lost) * value.abs();
                }
            }
            for (y, of_y) in y[out.clone()].iter().zip(&mut of_y[out.clone()]) {
                *of_y += of_all * y.abs();
            }
            of_lse.push(of_row.abs() + of_all + of_weight(fields));
        }
        Ok(Self { y, of_y, lse, of_lse })
    }
}

fn may_be_constant(descriptor: &AnyDescriptor) -> bool {
    let Ok(fields) = Fields::of(descriptor) else { return true };
    let hides = descriptor.slots().iter().any(|slot| ["lengths", "bias", "pages"].contains(&slot.name));
    let is_small = fields.keys.min(fields.queries) < 8 || fields.depth.min(fields.value_depth) < 4;
    hides || is_small || fields.window != [None; 2] || fields.causal != CausalMask::None
}

fn input(case: &Case, slot: &Slot, random: &mut Random, inputs: &Tensors) -> Result<Vec<f64>> {
    let fields = Fields::of(&case.descriptor)?;
    let (dtype, elements) = (slot.desc.dtype(), slot.desc.elements());
    let depth = slot.desc.dims().last().copied().unwrap_or(1).max(1);
    match slot.name {
        // Infinity in a value; else the data are those of queries, and of equal keys.
        "v" if case.data == Data::Inf => Ok(case.data.rows(dtype, elements / depth, depth, random)),
        "k" if case.data == Data::Constant => {
            let key: Vec<f64> = (0..depth).map(|_| random.normal()).collect();
            Ok((0..elements).map(|at| key[(at % depth) as usize]).collect())
        }
        "q" if !matches!(case.data, Data::Inf | Data::Constant) => {
            Ok(case.data.rows(dtype, elements / depth, depth, random))
        }
        "bias" if fields.is_bool => {
            // Of Bool a whole row may be false.
            Ok((0..elements).map(|at| f64::from(u8::from(at / depth % 5 != 1 && random.uniform() < 0.7))).collect())
        }
        "bias" => {
            let is_hidden = |at: u64, draw: f64| at / depth % 7 == 3 || draw < 0.1;
            let value = |at: u64| {
                let draw = random.uniform();
                if is_hidden(at, draw) { f64::NEG_INFINITY } else { random.normal() }
            };
            Ok((0..elements).map(value).collect())
        }
        "lengths" => {
            // From -1, of a type that has it, to one more than there are.
            let least = if dtype == DType::U32 { 0.0 } else { -1.0 };
            let count = fields.keys as f64 + 2.0 - least;
            let drawn = |at: u64| {
                let any = least + (count * random.uniform()).floor();
                if at == 0 && elements > 1 { fields.keys as f64 } else { any.min(fields.keys as f64 + 1.0) }
            };
            Ok((0..elements).map(drawn).collect())
        }
        "pages" => {
            // Some before the first, after the last, and far from both.
            let [_, pool, _] = fields.pages.context("pages")?;
            let far = if dtype == DType::I64 { 4_294_967_296.0 } else { 2_147_483_647.0 };
            let least = if dtype == DType::U32 { far } else { -1.0 };
            let drawn = |_| match (8.0 * random.uniform()).floor() {
                0.0 => [least, pool as f64, far][(3.0 * random.uniform()) as usize],
                _ => (pool as f64 * random.uniform()).floor(),
            };
            Ok((0..elements).map(drawn).collect())
        }
        "y" => Ok(Forward::of(&fields, inputs, 1.0, Products::PLAIN)?.y),
        "lse" => Ok(Forward::of(&fields, inputs, 1.0, Products::PLAIN)?.lse),
        _ => Ok((0..elements).map(|_| random.normal()).collect()),
    }
}

const FORWARD_CONTRACTS: &[Contract] = &[
    Contract {
        outputs: &["y"],
        budget: "u_o |y| + u_A (sum p |v| (e + |s - max| + 60 + Sk/128) + |y| sum p (e + |s - max| + 36 + Sk/256)) + 2^-126 (sum|v| + Sk |y|), e = (8 + D/4) |scale| \
                 sum|q k| + |s|, with a soft cap that times 1 - tanh^2 and 16 |cap tanh| more, with a bias the magnitudes of both summands more; on tensor cores D/2, and u_T sum p |v| for the rounding of weights, \
                 T the type of q, with u_A (8 + Sk/2) sum p |v| for sums that are cut off",
        why: "The bound lets the roundings of all scores have one sign, and allows for chains of 64 additions and for tiles one after the other.",
    },
    Contract {
        outputs: &["lse"],
        budget: "u_o |lse| + u_A (|lse| + sum p (e + |s - max|) + 72 + Sk/128)",
        why: "As for y; random roundings cancel.",
    },
];

const BACKWARD_CONTRACTS: &[Contract] = &[Contract {
    outputs: &["dq", "dk", "dv", "dbias"],
    budget: "the sum over the terms of u_A (error of the term + (24 + n/256) |term|), n their number, + u_A 2 |beta grad|; terms p dy: (e + |s - lse| + 16) |p dy|; ds k \
             and ds q: |k| or |q| times that of ds = p (dp - delta), which is p ((e + |s - lse| + 20) |dp - delta| + (8 + Dv/4) (sum|dy v| + sum|dy y|)), with a soft \
             cap times 1 - tanh^2, with |ds| (24 + 2 |tanh| (1 - tanh^2) e / cap) more; on tensor cores Dv/2, and u_T |term| for its rounding, T the type of q, with u_A (8 + n/2) \
             |term| for sums that are cut off",
    why: "As for y of attention; random roundings cancel.",
}];

/// Expected values and budgets of forward: docs/numerics.md, Budgets, "attention".
fn expect_forward(descriptor: &AnyDescriptor, inputs: &Tensors, _: &Tensors, by: By) -> Result<Vec<Expected>> {
    let fields = Fields::of(descriptor)?;
    let dtype = descriptor.slots()[0].desc.dtype();
    let accumulator = dtype.accumulator();
    let Forward { y, of_y, lse, of_lse } =
        Forward::of(&fields, inputs, accumulator.unit_roundoff(), Products::of(descriptor, by))?;
    let of = |values: &[f64], allowances: &[f64], dtype: DType| {
        let own = |(&value, &allowance): (&f64, &f64)| budget(dtype, accumulator, value, finite(allowance));
        values.iter().zip(allowances).map(own).collect()
    };
    let budgets = of(&y, &of_y, dtype);
    let mut expected = vec![Expected { name: "y".into(), values: y, budgets }];
    if fields.json["stats"] == true {
        let budgets = of(&lse, &of_lse, accumulator);
        expected.push(Expected { name: "lse".into(), values: lse, budgets });
    }
    Ok(expected)
}

/// Sums, and of each what it may differ by.
struct Sums {
    values: Vec<f64>,
    errors: Vec<f64>,
}

impl Sums {
    fn of(elements: usize) -> Self {
        Self { values: vec![0.0; elements], errors: vec![0.0; elements] }
    }

    /// Adds a factor with an error to a row, times other numbers.
    fn add(&mut self, row: usize, (factor, error): (f64, f64), others: &[f64], of_sum: f64) {
        for (d, other) in others.iter().enumerate() {
            let at = row * others.len() + d;
            self.values[at] += factor * other;
            self.errors[at] += (error + of_sum * factor.abs()) * other.abs();
        }
    }
}

/// Expected values and budgets of backward: docs/numerics.md, Budgets, "attention, gradients".
fn expect_backward(descriptor: &AnyDescriptor, inputs: &Tensors, _: &Tensors, by: By) -> Result<Vec<Expected>> {
    let fields = Fields::of(descriptor)?;
    let values = |name: &str| inputs.values(name).with_context(|| format!("no {name}"));
    let (q, k, v) = (values("q")?, values("k")?, values("v")?);
    let (y, lse, dy) = (values("y")?, values("lse")?, values("dy")?);
    let dtype = descriptor.slots()[0].desc.dtype();
    let accumulator = dtype.accumulator();
    let unit = accumulator.unit_roundoff();
    let bias_elements: usize = fields.bias.iter().product();
    let mut sums = [q.len(), k.len(), v.len(), bias_elements].map(Sums::of);
    let is_by_cudnn = by.kernel == "attention_backward_cudnn";
    let by = Products::of(descriptor, by);
    let per_key = fields.queries * (fields.heads / fields.kv_heads.max(1));
    let scores = fields.samples * fields.heads * fields.queries * fields.keys;
    // Where a number that is rounded before it is multiplied by `factor` is subnormal.
    let rounded = |(value, error): (f64, f64), factor: f64| (value, error + by.lost * factor.abs());
    for (row, &lse) in lse.iter().enumerate() {
        if lse == f64::NEG_INFINITY {
            continue;
        }
        let (b, h, i) =
            (row / fields.queries / fields.heads, row / fields.queries % fields.heads, row % fields.queries);
        let (query, of_y) = (part(q, row, fields.depth), part(dy, row, fields.value_depth));
        let dot = |others: &[f64]| of_y.iter().zip(others).map(|(a, b)| a * b).sum::<f64>();
        let magnitude = |others: &[f64]| of_y.iter().zip(others).map(|(a, b)| (a * b).abs()).sum::<f64>();
        let written = part(y, row, fields.value_depth);
        let (delta, of_delta) = (dot(written), magnitude(written));
        for score in fields.scores(inputs, b, h, i, by)? {
            let kv = score.row;
            let value = part(v, kv, fields.value_depth);
            let p = (score.value - lse).exp();
            let lost = f64::from(f32::MIN_POSITIVE) / unit;
            let of_p = if p == 0.0 { lost } else { p * (score.error + (score.value - lse).abs() + 16.0) + lost };
            let difference = dot(value) - delta;
            let of_products = by.of_rows(fields.value_depth) * (magnitude(value) + of_delta);
            let ds = p * difference;
            let of_ds = of_p * difference.abs() + p * of_products + 4.0 * ds.abs();
            let (sloped, of_sloped) = match fields.soft_cap {
                None => (ds, of_ds),
                Some(_) => (ds * score.slope, of_ds * score.slope + ds.abs() * score.of_slope),
            };
            let of_product =
                (fields.scale * sloped, fields.scale.abs() * of_sloped + 2.0 * (fields.scale * sloped).abs());
            sums[0].add(row, rounded(of_product, fields.scale), part(k, kv, fields.depth), by.of_weighted(fields.keys));
            sums[1].add(kv, rounded(of_product, fields.scale), query, by.of_weighted(per_key));
            sums[2].add(kv, rounded((p, of_p), 1.0), of_y, by.of_weighted(per_key));
            let at = fields.bias_at([b, h, i, score.key]);
            sums[3].add(at, (ds, of_ds), &[1.0], chains(scores / bias_elements.max(1)));
        }
    }
    let outputs = descriptor.slots().iter().filter(|slot| slot.access != Access::In);
    let of = |slot: &Slot| -> Result<Expected> {
        let at = ["dq", "dk", "dv", "dbias"].iter().position(|name| *name == slot.name).context("a gradient")?;
        let beta = fields.beta(slot.name);
        let before = if beta == 0.0 { None } else { inputs.values(slot.name) };
        let Sums { values, errors } = &sums[at];
        let value = |at: usize| before.map_or(0.0, |before| beta * before[at]) + values[at];
        let values: Vec<f64> = (0..values.len()).map(value).collect();
        let own = |(at, &value): (usize, &f64)| {
            if value.is_nan() && is_by_cudnn {
                return f64::INFINITY;
            }
            let allowance = errors[at] + before.map_or(0.0, |before| 2.0 * (beta * before[at]).abs());
            budget(slot.desc.dtype(), accumulator, value, finite(allowance))
        };
        let budgets = values.iter().enumerate().map(own).collect();
        Ok(Expected { name: slot.name.into(), values, budgets })
    };
    outputs.map(of).collect()
}

fn run_forward(run: TypedRun<'_, '_>) -> Result<(), Error> {
    let mut args = AttentionArgs::new(run.input("q"), run.input("k"), run.input("v"), run.output("y"));
    args.bias = run.named.mem("bias");
    args.lengths = run.named.mem("lengths");
    args.pages = run.named.mem("pages");
    args.lse = run.named.mem_mut("lse");
    run.plan::<AttentionDescriptor>(args)
}

fn run_backward(run: TypedRun<'_, '_>) -> Result<(), Error> {
    let [q, k, v, y, lse, dy] = ["q", "k", "v", "y", "lse", "dy"].map(|name| run.input(name));
    let mut args = AttentionBackwardArgs::new(q, k, v, y, lse, dy);
    args.bias = run.named.mem("bias");
    args.lengths = run.named.mem("lengths");
    args.dq = run.named.mem_mut("dq");
    args.dk = run.named.mem_mut("dk");
    args.dv = run.named.mem_mut("dv");
    args.dbias = run.named.mem_mut("dbias");
    run.plan::<AttentionBackwardDescriptor>(args)
}

/// What the support table asks for.
fn asked_for(dtype: DType) -> Vec<(&'static str, Setup)> {
    let extents = [2, 4, 4, 128, 128, 64, 64];
    let plain = Setup::plain(dtype, extents);
    let causal = plain.clone().causal(CausalMask::BottomRight);
    vec![
        ("causal", Setup::plain(dtype, [1, 2, 2, 64, 64, 32, 32]).causal(CausalMask::BottomRight)),
        ("all keys", plain.clone()),
        ("causal from the top left", plain.clone().causal(CausalMask::TopLeft)),
        ("a window", Setup { window: (Some(32), Some(32)), ..plain.clone() }),
        ("a soft cap", Setup { soft_cap: Some(30.0), ..plain.clone() }),
        ("a mask of bool", Setup { bias: bias(dtype, extents, 1), ..plain.clone() }),
        ("a bias of each head", Setup { bias: bias(dtype, extents, 3), ..plain.clone() }),
        ("lengths", Setup { lengths: Some(DType::I32), ..causal.clone() }),
        ("heads that share keys", Setup::plain(dtype, [2, 4, 1, 128, 128, 64, 64]).causal(CausalMask::BottomRight)),
        ("heads side by side", laid(dtype, extents, 1)),
        ("parts of one tensor", laid(dtype, extents, 2)),
        ("D 256", Setup::plain(dtype, [1, 2, 2, 128, 128, 256, 256])),
        ("one query", Setup::plain(dtype, [2, 4, 4, 1, 1024, 64, 64])),
        ("one query of heads that share keys", Setup::plain(dtype, [2, 8, 2, 1, 4096, 128, 128])),
        ("keys in pages", Setup::paged(dtype, [2, 8, 2, 1, 16, 64, 64], [80, 40], DType::I32)),
    ]
}
