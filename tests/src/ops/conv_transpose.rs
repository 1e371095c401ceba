//! Transposed convolution with bias and activation. Expected values are the formula, written here: each product is added where it goes.

use anyhow::{Context, Result};
use baracuda_ops::{
    Activation, AnyDescriptor, ConvTransposeArgs, ConvTransposeDescriptor, ConvWindow, DType, Error, Slot, TensorDesc,
};
use serde_json::Value;

use super::gemm::{activated, chain, flushed, magnitudes};
use super::{Contract, FLOATS, Subject, TypedRun, channels_last, dense, features, json_of, strided};
use crate::case::{Case, Data, Huge, Random, Wide, distinct, equal_factor};
use crate::judge::{By, Expected, is_random};
use crate::values::Tensors;

pub(super) const FORWARD: Subject = Subject {
    name: "conv_transpose",
    cases,
    is_cpu_only: |_| false,
    may_be_constant,
    input,
    expect,
    contracts: CONTRACTS,
    run_typed: run,
    features: || features(asked_for, any),
};

/// A kind of transposed convolution.
#[derive(Clone, Copy)]
struct Kind {
    samples: u64,
    /// Of x and of y.
    channels: [u64; 2],
    spatial: &'static [u64],
    kernel: &'static [u64],
    stride: &'static [u64],
    dilation: &'static [u64],
    padding: &'static [[u64; 2]],
    output_padding: &'static [u64],
    groups: u64,
}

/// A kind whose products overlap by the kernel less one, with nothing cut off.
const fn kind(samples: u64, channels: [u64; 2], spatial: &'static [u64], kernel: &'static [u64]) -> Kind {
    let (stride, dilation, padding, output_padding) = (&[], &[], &[], &[]);
    Kind { samples, channels, spatial, kernel, stride, dilation, padding, output_padding, groups: 1 }
}

/// Twice the extents of an image.
const UPSAMPLING: Kind =
    Kind { stride: &[2, 2], padding: &[[1, 1], [1, 1]], output_padding: &[1, 1], ..kind(2, [6, 5], &[4, 5], &[3, 3]) };

/// Two groups, another stride, dilation and padding along each axis.
const GROUPED: Kind = Kind {
    stride: &[2, 1],
    dilation: &[1, 3],
    padding: &[[1, 0], [2, 3]],
    output_padding: &[1, 2],
    groups: 2,
    ..kind(2, [6, 10], &[4, 6], &[2, 3])
};

/// Kinds, and whether they run in every mode.
const KINDS: &[(Kind, bool)] = &[
    (UPSAMPLING, true),
    (GROUPED, true),
    // One extent, with and without gaps between the products.
    (kind(2, [5, 4], &[17], &[3]), true),
    (Kind { stride: &[4], padding: &[[2, 1]], ..kind(2, [3, 4], &[9], &[8]) }, false),
    (Kind { stride: &[5], output_padding: &[4], ..kind(3, [4, 3], &[7], &[2]) }, false),
    // Of one pixel, and of whole images.
    (kind(3, [12, 20], &[4, 5], &[1, 1]), false),
    (kind(2, [9, 4], &[1, 1], &[5, 6]), false),
    (Kind { stride: &[2, 2], output_padding: &[1, 0], ..kind(2, [7, 5], &[3, 4], &[1, 1]) }, false),
    // Depthwise, and several channels of y for each of x.
    (Kind { stride: &[2, 2], padding: &[[1, 1], [1, 1]], groups: 6, ..kind(2, [6, 6], &[4, 5], &[4, 4]) }, true),
    (Kind { padding: &[[1, 1], [1, 1]], groups: 3, ..kind(2, [3, 9], &[5, 6], &[3, 3]) }, false),
    // Padding that cuts off all of some elements of x, and all but one element of y.
    (Kind { padding: &[[3, 4]], ..kind(2, [3, 4], &[9], &[2]) }, false),
    (Kind { stride: &[3], padding: &[[4, 5]], ..kind(3, [4, 20], &[4], &[1]) }, false),
    // Places behind what x reaches, by less than a stride and by more, so that a part of y or all of it is the bias alone.
    (Kind { stride: &[3], output_padding: &[2], padding: &[[0, 1]], ..kind(2, [3, 5], &[5], &[2]) }, false),
    (Kind { dilation: &[4], output_padding: &[3], ..kind(2, [3, 5], &[6], &[2]) }, true),
    (
        Kind {
            stride: &[2, 1],
            dilation: &[5, 3],
            output_padding: &[4, 2],
            padding: &[[1, 0], [0, 1]],
            groups: 2,
            ..kind(2, [4, 6], &[3, 4], &[2, 2])
        },
        false,
    ),
    (Kind { dilation: &[40], output_padding: &[39], padding: &[[2, 0]], ..kind(1, [2, 20], &[1], &[1]) }, false),
    // Three extents.
    (
        Kind {
            stride: &[1, 2, 2],
            padding: &[[1, 1], [0, 1], [1, 0]],
            output_padding: &[0, 1, 1],
            ..kind(1, [3, 4], &[3, 2, 3], &[3, 2, 3])
        },
        true,
    ),
    (Kind { dilation: &[2, 1, 1], groups: 2, ..kind(1, [4, 4], &[2, 3, 2], &[2, 1, 3]) }, false),
    // No samples, no channels of x or of y.
    (Kind { stride: &[2], ..kind(0, [4, 6], &[5], &[3]) }, true),
    (Kind { stride: &[2], ..kind(2, [0, 6], &[5], &[3]) }, true),
    (kind(2, [4, 0], &[5], &[3]), false),
];

/// How x and the weight lie.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    Contiguous,
    ChannelsLast,
    /// x channels-last, the weight contiguous.
    Mixed,
}

use Layout::{ChannelsLast, Contiguous, Mixed};

impl Kind {
    fn tensors(self, dtype: DType, layout: Layout) -> [TensorDesc; 2] {
        let x = [&[self.samples, self.channels[0]], self.spatial].concat();
        let weight = [&[self.channels[0], self.channels[1] / self.groups], self.kernel].concat();
        let lie = |is_last: bool, dims: &[u64]| if is_last { channels_last(dtype, dims) } else { dense(dtype, dims) };
        [lie(layout != Contiguous, &x), lie(layout == ChannelsLast, &weight)]
    }

    fn of(self, x: TensorDesc, weight: TensorDesc) -> ConvTransposeDescriptor {
        let Self { stride, dilation, padding, output_padding, groups, .. } = self;
        let window = ConvWindow::new().stride(stride).dilation(dilation).padding_per_side(padding).groups(groups);
        let form = ConvTransposeDescriptor::with_output_padding(x, weight, window, output_padding);
        form.expect("a valid transposed convolution")
    }

    fn plain(self, dtype: DType, layout: Layout) -> ConvTransposeDescriptor {
        let [x, weight] = self.tensors(dtype, layout);
        self.of(x, weight)
    }

    /// The `at`th of the combinations of bias, activation and types: any two values of two of them meet in some form.
    fn form(self, dtype: DType, layout: Layout, at: usize) -> ConvTransposeDescriptor {
        let wide = dtype.accumulator();
        let types = [None, Some(dtype), Some(wide)];
        let form = self.plain(dtype, layout).activation(Activation::ALL[at % 7]);
        let form = form.and_then(|d| types[(at / 2 + 1) % 3].map_or(Ok(d.clone()), |dtype| d.bias(dtype)));
        let form = form.and_then(|d| d.y([dtype, wide][(at / 3) % 2]));
        let form = form.and_then(|d| types[(at / 4 + at) % 3].map_or(Ok(d.clone()), |dtype| d.pre(dtype)));
        form.expect("a form")
    }
}

fn any(form: &ConvTransposeDescriptor) -> Result<AnyDescriptor, Error> {
    Ok(AnyDescriptor::new(form.clone()))
}

/// Every form with the data it runs on, and whether it runs in every mode.
fn forms() -> Vec<(ConvTransposeDescriptor, Data, bool)> {
    let mut forms = Vec::new();
    for (d, dtype) in FLOATS.into_iter().enumerate() {
        let mut add = |form, data: Data, core: bool| forms.push((form, data, core));
        let wide = dtype.accumulator();
        for (i, (kind, core)) in KINDS.iter().enumerate() {
            // Of f32 both layouts, of the others each kind in one of them; of each a product alone, too.
            let both = [Contiguous, ChannelsLast];
            let layouts = if dtype == DType::F32 { &both[..] } else { &both[(i + d) % 2..][..1] };
            for layout in layouts {
                let at = 2 * i + 3 * d + usize::from(*layout == ChannelsLast);
                add(kind.form(dtype, *layout, at), Data::Normal, *core);
            }
            add(kind.plain(dtype, layouts[0]), Data::Normal, false);
        }
        for at in 0..21 {
            let layout = [Contiguous, ChannelsLast, Mixed][(at + at / 3) % 3];
            let kind = if at % 2 == 0 { GROUPED } else { UPSAMPLING };
            add(kind.form(dtype, layout, at), Data::Normal, at % 9 == d);
        }
        for (at, data) in Data::every().filter(|data| *data != Data::Normal).enumerate() {
            let layout = [Contiguous, ChannelsLast][at % 2];
            let biased = UPSAMPLING.plain(dtype, layout).bias(wide).and_then(|d| d.y(wide)).expect("a form");
            add(biased, data, false);
            let activated = GROUPED.plain(dtype, layout).activation(Activation::ALL[1 + at % 6]);
            add(activated.and_then(|d| d.pre(dtype)).expect("a form"), data, false);
        }
        layouts(dtype, &mut add);
    }
    forms
}

/// Rows with gaps, low promises, repeated elements, outputs that lie otherwise than x.
fn layouts(dtype: DType, add: &mut impl FnMut(ConvTransposeDescriptor, Data, bool)) {
    let (x, weight, y) = ([2, 6, 4, 5], [6, 5, 3, 3], [2, 5, 8, 10]);
    let of = |x: TensorDesc, weight: TensorDesc| {
        let forward = UPSAMPLING.of(x, weight).bias(dtype).and_then(|d| d.activation(Activation::Silu));
        forward.and_then(|d| d.pre(dtype)).expect("a form")
    };
    let low = |desc: TensorDesc| desc.align(dtype.size_bytes()).expect("a promise");
    let laid =
        |form: ConvTransposeDescriptor, operand: &str, desc: TensorDesc| form.layout(operand, desc).expect("a layout");
    add(of(low(dense(dtype, &x)), low(dense(dtype, &weight))), Data::Normal, true);
    let gaps = of(strided(dtype, &x, &[600, 90, 12, 2]), strided(dtype, &weight, &[60, 11, 3, 1]));
    let gaps = laid(laid(gaps, "y", strided(dtype, &y, &[900, 170, 20, 2])), "bias", strided(dtype, &[5], &[3]));
    add(laid(gaps, "pre", channels_last(dtype, &y)), Data::Normal, true);
    let repeated = of(strided(dtype, &x, &[0, 20, 5, 1]), dense(dtype, &weight));
    add(laid(repeated, "bias", strided(dtype, &[5], &[0])), Data::Normal, false);
    let turned = dense(dtype, &[8, 5, 10, 2]).permute(&[3, 1, 0, 2]).expect("axes");
    let alone = UPSAMPLING.of(dense(dtype, &x), channels_last(dtype, &weight));
    add(laid(alone.clone(), "y", turned), Data::Normal, false);
    add(laid(alone.activation(Activation::Relu).expect("a form"), "y", turned), Data::Normal, false);
    // A part of y is the bias alone.
    let behind = Kind { dilation: &[4, 1], output_padding: &[3, 0], ..kind(2, [3, 5], &[6, 4], &[2, 2]) };
    let behind = behind.plain(dtype, Mixed).bias(dtype).expect("a form");
    add(laid(behind, "y", strided(dtype, &[2, 5, 13, 5], &[500, 90, 6, 1])), Data::Normal, false);
}

fn cases() -> Vec<Case> {
    let of = |(form, data, core): &(ConvTransposeDescriptor, Data, bool)| {
        Case::new(AnyDescriptor::new(form.clone()), *data).core(*core)
    };
    distinct(forms().iter().map(of).collect())
}

/// The numbers of a descriptor, as its JSON has them.
struct Fields {
    dtype: DType,
    activation: Activation,
    x: Vec<usize>,
    weight: Vec<usize>,
    y: Vec<usize>,
    stride: Vec<usize>,
    dilation: Vec<usize>,
    before: Vec<usize>,
    groups: usize,
}

impl Fields {
    fn of(descriptor: &AnyDescriptor) -> Result<Self> {
        let json = json_of(descriptor)?;
        let desc = |name: &str| {
            let slot = descriptor.slots().iter().find(|slot| slot.name == name);
            slot.map(|slot| slot.desc).with_context(|| format!("no {name}"))
        };
        let dims = |name: &str| Ok::<_, anyhow::Error>(desc(name)?.dims().iter().map(|&dim| dim as usize).collect());
        let (x, weight, y): (Vec<usize>, Vec<usize>, Vec<usize>) = (dims("x")?, dims("weight")?, dims("y")?);
        let number = |value: &Value| value.as_u64().map(|number| number as usize);
        let each = |field: &str, default: usize| -> Vec<usize> {
            (0..x.len() - 2).map(|axis| number(&json[field][axis]).unwrap_or(default)).collect()
        };
        let before = (0..x.len() - 2).map(|axis| number(&json["padding"][axis][0]).unwrap_or(0)).collect();
        let activation = json.get("activation").map_or(Ok(Activation::Identity), |v| serde_json::from_value(v.clone()));
        Ok(Self {
            dtype: desc("x")?.dtype(),
            activation: activation?,
            stride: each("stride", 1),
            dilation: each("dilation", 1),
            before,
            groups: number(&json["groups"]).unwrap_or(1),
            x,
            weight,
            y,
        })
    }

    /// Products of an element of y, at most.
    fn terms(&self) -> f64 {
        let per_axis = self.weight[2..].iter().product::<usize>();
        (self.x[1] / self.groups * per_axis) as f64
    }

    /// The channel of an element of y.
    fn channel(&self, at: usize) -> usize {
        at / self.y[2..].iter().product::<usize>() % self.y[1]
    }

    /// Adds up the products of two factors where they go.
    fn scattered(&self, x: &[f64], weight: &[f64]) -> Vec<f64> {
        let mut y = vec![0.0; self.y.iter().product()];
        let (spatial, kernel) = (positions(&self.x[2..]), positions(&self.weight[2..]));
        let (of_x, of_y) = (self.x[1] / self.groups, self.weight[1]);
        for sample in 0..self.x[0] {
            for channel in 0..self.x[1] {
                for (i, at) in spatial.iter().enumerate() {
                    let value = x[(sample * self.x[1] + channel) * spatial.len() + i];
                    for (r, tap) in kernel.iter().enumerate() {
                        let Some(place) = self.place(at, tap) else { continue };
                        for c in 0..of_y {
                            let to = sample * self.y[1] + channel / of_x * of_y + c;
                            let spatial_of_y = self.y[2..].iter().product::<usize>();
                            y[to * spatial_of_y + place] += value * weight[(channel * of_y + c) * kernel.len() + r];
                        }
                    }
                }
            }
        }
        y
    }

    /// Where in an image of y the product of an element and a tap goes, unless padding cuts it off.
    fn place(&self, at: &[usize], tap: &[usize]) -> Option<usize> {
        let mut place = 0;
        for axis in 0..at.len() {
            let extent = self.y[2 + axis];
            let along = at[axis] * self.stride[axis] + tap[axis] * self.dilation[axis];
            place = place * extent + along.checked_sub(self.before[axis]).filter(|&along| along < extent)?;
        }
        Some(place)
    }
}

/// Each index tuple of some extents, the last of which is the fastest.
fn positions(extents: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for &extent in extents {
        all = all.iter().flat_map(|head: &Vec<usize>| (0..extent).map(move |i| [&head[..], &[i]].concat())).collect();
    }
    all
}

/// Few elements may all lie on one side of a ReLU; sums over nothing are equal; between products that lie apart, and behind them, elements are the bias alone.
fn may_be_constant(descriptor: &AnyDescriptor) -> bool {
    let is_small = |slot: &Slot| slot.name == "y" && slot.desc.elements() < 64;
    let is_repeated = |slot: &Slot| slot.desc.elements() > 1 && slot.desc.strides().iter().all(|stride| *stride == 0);
    let has_gaps = Fields::of(descriptor).is_ok_and(|fields| {
        let products = |axis: usize| fields.x[2 + axis] * fields.weight[2 + axis];
        (0..fields.stride.len()).any(|axis| 2 * products(axis) < fields.y[2 + axis])
    });
    descriptor.slots().iter().any(|slot| slot.desc.is_empty() || is_small(slot) || is_repeated(slot)) || has_gaps
}

fn input(case: &Case, slot: &Slot, random: &mut Random, _: &Tensors) -> Result<Vec<f64>> {
    let fields = Fields::of(&case.descriptor)?;
    let (dtype, elements) = (slot.desc.dtype(), slot.desc.elements());
    let cols = slot.desc.dims().last().copied().unwrap_or(1).max(1);
    // Sums of that many products of such a number and one that a normal distribution has; of f64, budgets in units of u_A are finite, too.
    let largest = if dtype == DType::F64 { 2f64.powi(940) } else { 2f64.powi(118) };
    let huge = Huge::of(dtype).at_most(largest / fields.terms().max(1.0), largest / fields.terms().max(1.0));
    let rows = |data: Data, random: &mut Random| data.rows_within(huge, dtype, elements / cols, cols, random);
    let is_finite = !matches!(case.data, Data::Nan | Data::Inf | Data::NegInf);
    Ok(match (slot.name, case.data) {
        (_, Data::Sparse) => rows(Data::Sparse, random),
        ("bias", Data::LargeBias) => (0..elements).map(|_| 1000.0 * random.normal()).collect(),
        (_, Data::LargeBias) => rows(Data::LargeBias, random),
        ("weight", data) if data.is_structured() => vec![equal_factor(dtype); elements as usize],
        ("x", data) if data.is_structured() => rows(data, random),
        ("x", Data::Wide) => Wide::first(dtype).rows(elements / cols, cols, random),
        ("weight", Data::Wide) => Wide::second(dtype).rows(elements / cols, cols, random),
        // In the first group alone: nothing of it goes to others.
        ("x", data) if !is_finite => {
            let of_group = (fields.x[1] / fields.groups).max(1);
            let spatial = fields.x[2..].iter().product::<usize>();
            let (special, others) = (rows(data, random), rows(Data::Normal, random));
            let is_first = |i: usize| i / spatial % fields.x[1] < of_group;
            let choose = |(i, (value, other))| if is_first(i) { value } else { other };
            special.into_iter().zip(others).enumerate().map(choose).collect()
        }
        ("x", data) => rows(data, random),
        ("weight", data @ (Data::LargeMean | Data::Large)) => rows(data, random),
        _ => rows(Data::Normal, random),
    })
}

const CONTRACTS: &[Contract] = &[
    Contract {
        outputs: &["pre"],
        budget: "u_o |pre| + u_A p, p = (8 + K/4) sum|x weight| + 2 |bias|, K the products that an element can have; where the elements of a factor have no \
                 common sign, 2 sqrt(K) for K/4 if that is less",
        why: "It lets the roundings of a plain running sum have one sign, and counts products that padding cuts off or that lie between strides.",
    },
    Contract {
        outputs: &["y"],
        budget: "u_o |y| + u_A (|act'| p + u_A max|act''| p^2 / 2 + 8 |y|), with p as for pre; on wgpu 16 for 8; u_o |y| + u_A p for identity and relu",
        why: "As for pre; far out an activation has less error than its bound.",
    },
];

/// Expected values and budgets: docs/numerics.md, Budgets, "conv_transpose".
fn expect(descriptor: &AnyDescriptor, given: &Tensors, outputs: &Tensors, by: By) -> Result<Vec<Expected>> {
    let fields = Fields::of(descriptor)?;
    let (x, weight) = (given.values("x").context("no x")?, given.values("weight").context("no weight")?);
    let bias = |at: usize| given.values("bias").map_or(0.0, |bias| bias[fields.channel(at)]);
    let sums = fields.scattered(x, weight);
    let pre: Vec<f64> = sums.iter().enumerate().map(|(at, sum)| sum + bias(at)).collect();
    let y = pre.iter().map(|&pre| fields.activation.apply(pre)).collect();
    let factor = chain(fields.terms(), is_random(x) || is_random(weight), by);
    let sizes = fields.scattered(&magnitudes(x, fields.dtype, by), &magnitudes(weight, fields.dtype, by));
    let flushed = flushed(fields.terms(), fields.dtype, by);
    let errors: Vec<f64> =
        sizes.iter().enumerate().map(|(at, size)| factor * size + 2.0 * bias(at).abs() + flushed).collect();
    Ok(activated(fields.activation, fields.dtype.accumulator(), by, [("pre", pre), ("y", y)], &errors, outputs))
}

fn run(run: TypedRun<'_, '_>) -> Result<(), Error> {
    let mut args = ConvTransposeArgs::new(run.input("x"), run.input("weight"), run.output("y"));
    args.bias = run.named.mem("bias");
    args.pre = run.named.mem_mut("pre");
    run.plan::<ConvTransposeDescriptor>(args)
}

/// What the support table asks for.
fn asked_for(dtype: DType) -> Vec<(&'static str, ConvTransposeDescriptor)> {
    let wide = dtype.accumulator();
    let block = Kind { channels: [32, 16], spatial: &[14, 14], samples: 4, ..UPSAMPLING };
    let fused = |layout| block.plain(dtype, layout).bias(dtype).and_then(|d| d.activation(Activation::Relu));
    let silu = fused(Contiguous).and_then(|d| d.activation(Activation::Silu)?.pre(dtype)).expect("a form");
    let line = Kind { stride: &[4], padding: &[[2, 2]], ..kind(4, [32, 16], &[100], &[8]) };
    let solid = Kind { stride: &[2, 2, 2], ..kind(1, [16, 8], &[4, 6, 6], &[2, 2, 2]) };
    let behind = Kind { dilation: &[4, 4], output_padding: &[3, 3], ..kind(2, [16, 16], &[14, 14], &[3, 3]) };
    vec![
        ("3x3, stride 2, with bias and relu", fused(Contiguous).expect("a form")),
        ("3x3, stride 2, with bias and relu, channels-last", fused(ChannelsLast).expect("a form")),
        ("the products alone", block.plain(dtype, Contiguous)),
        ("silu, pre-activation saved", silu),
        ("outputs of f32", block.plain(dtype, Mixed).bias(wide).and_then(|d| d.y(wide)).expect("a form")),
        ("groups, dilation, padding on one side", GROUPED.plain(dtype, Contiguous)),
        ("output padding beyond a stride", behind.plain(dtype, Contiguous)),
        ("one extent", line.plain(dtype, Contiguous)),
        ("three extents", solid.plain(dtype, Contiguous)),
    ]
}
