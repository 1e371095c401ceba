//! The formulas of every op once more, plainly and in f64: what random trials are compared with, so that the CPU backend is not compared
//! with itself.
//!
//! Of tensors of f64 nothing is said: their own roundings would be those of these formulas. Nor is anything of programs, reductions and moves, whose
//! expected values are plain formulas as they are (`program.rs`, `ops/reduce.rs`, `ops/scan.rs`, `ops/fft.rs`, `ops/copy.rs`, `ops/lookup.rs`, `ops/scatter.rs`, `ops/order.rs`, `ops/search_sorted.rs`,
//! `ops/nonzero.rs`, `ops/attention.rs`, `ops/conv_transpose.rs`, `ops/cross_entropy.rs`, `ops/linear_cross_entropy.rs`, `ops/pool.rs`,
//! `ops/resize.rs`, `ops/triangular_solve.rs`, `ops/cholesky.rs`).

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use baracuda_ops::DType;
use serde_json::Value;

use crate::case::{Case, Data};
use crate::judge::{By, compare};
use crate::ops::{has_elements, subject};
use crate::values::Tensors;

type Values = BTreeMap<&'static str, Vec<f64>>;

/// Compares outputs with these formulas, by the budgets of the contract.
///
/// # Errors
/// An error over budget.
pub fn judge(case: &Case, by: By, inputs: &Tensors, outputs: &Tensors) -> Result<()> {
    let descriptor = &case.descriptor;
    let is_plain = [
        "pointwise",
        "reduce",
        "scan",
        "fft",
        "rfft",
        "irfft",
        "copy",
        "pad",
        "concat",
        "index_select",
        "gather",
        "index_add",
        "scatter",
        "nonzero",
        "sort",
        "top_k",
        "search_sorted",
        "attention",
        "attention_backward",
        "conv_transpose",
        "triangular_solve",
        "cholesky",
        "cross_entropy",
        "cross_entropy_backward",
        "linear_cross_entropy",
        "linear_cross_entropy_backward",
        "pool",
        "pool_backward",
        "resize",
        "resize_backward",
    ]
    .contains(&descriptor.name());
    if case.dtype() == DType::F64 || is_plain || !has_elements(descriptor) {
        return Ok(());
    }
    let line = descriptor.line();
    let json: Value = serde_json::from_str(line.split_once(' ').context("a repro line has a JSON")?.1)?;
    let op = Op { name: descriptor.name(), json, dims: descriptor.slots()[0].desc.dims(), inputs, outputs };
    let mut values = op.values()?;
    for mut expected in subject(descriptor.name())?.expected(descriptor, inputs, outputs, by)? {
        let Some(slot) = descriptor.slots().iter().find(|slot| slot.name == expected.name) else { continue };
        let actual = outputs.values(slot.name).context("an output")?;
        expected.values = values.remove(slot.name).with_context(|| format!("no formula of {}", slot.name))?;
        let found = compare(slot, actual, &expected)?;
        ensure!(found.units <= 1.0, "by the plain formula, {}", found.words);
    }
    Ok(())
}

/// The most elements of an operand of a listed case that is compared with these formulas, some of which take a loop for each element.
const MOST_ELEMENTS: u64 = 1 << 12;

/// Whether a listed case is compared with these formulas, too: of few elements, whose data ask nothing of the order of operations.
pub fn is_cheap(case: &Case) -> bool {
    let is_small = |slot: &baracuda_ops::Slot| slot.desc.elements() <= MOST_ELEMENTS;
    case.data == Data::Normal && case.slots().iter().all(is_small)
}

/// Where the elements of a norm belong.
struct Groups {
    /// Index of the statistics of each element.
    of: Vec<usize>,
    /// Index of the parameters of each element.
    parameter: Vec<usize>,
    count: usize,
    parameters: usize,
}

impl Groups {
    /// The sum over each group.
    fn sums(&self, value: impl Fn(usize) -> f64) -> Vec<f64> {
        let mut sums = vec![0.0; self.count];
        self.of.iter().enumerate().for_each(|(i, group)| sums[*group] += value(i));
        sums
    }

    /// The sum over all elements that share a parameter.
    fn parameter_sums(&self, value: impl Fn(usize) -> f64) -> Vec<f64> {
        let mut sums = vec![0.0; self.parameters];
        self.parameter.iter().enumerate().for_each(|(i, at)| sums[*at] += value(i));
        sums
    }
}

/// The extents of a product of matrices, and where elements of its dense operands lie.
struct Matrices {
    /// The batch extents of the output, of a and of b.
    batch: Vec<usize>,
    of_a: Vec<usize>,
    of_b: Vec<usize>,
    m: usize,
    n: usize,
    k: usize,
    ta: bool,
    tb: bool,
    alpha: f64,
}

impl Matrices {
    fn count(&self) -> usize {
        self.batch.iter().product()
    }

    /// Every product of elements; there is none if alpha is 0, whatever the elements are.
    fn each(&self, mut visit: impl FnMut(usize, usize, usize, usize)) {
        // Any number of matrices may have no elements.
        let is_empty = self.alpha == 0.0 || [self.m, self.n, self.k].contains(&0);
        let matrices = if is_empty { 0 } else { self.count() };
        for z in 0..matrices {
            for m in 0..self.m {
                for n in 0..self.n {
                    (0..self.k).for_each(|k| visit(z, m, n, k));
                }
            }
        }
    }

    /// Which matrix of a factor belongs to matrix z of the output.
    fn matrix(&self, of_factor: &[usize], z: usize) -> usize {
        let (mut rest, mut step, mut place) = (z, 1, 0);
        for (back, extent) in self.batch.iter().rev().enumerate() {
            if let Some(own) = of_factor.iter().rev().nth(back) {
                place += if *own == 1 { 0 } else { rest % extent * step };
                step *= own;
            }
            rest /= extent;
        }
        place
    }

    fn a(&self, z: usize, m: usize, k: usize) -> usize {
        self.matrix(&self.of_a, z) * self.m * self.k + if self.ta { k * self.m + m } else { m * self.k + k }
    }

    fn b(&self, z: usize, k: usize, n: usize) -> usize {
        self.matrix(&self.of_b, z) * self.k * self.n + if self.tb { n * self.k + k } else { k * self.n + n }
    }

    fn out(&self, z: usize, m: usize, n: usize) -> usize {
        (z * self.m + m) * self.n + n
    }
}

/// The extents of a convolution, each spatial one as often as it is there, and where elements of its dense operands lie.
struct Windows {
    x: Vec<usize>,
    weight: Vec<usize>,
    y: Vec<usize>,
    stride: Vec<usize>,
    dilation: Vec<usize>,
    before: Vec<usize>,
    groups: usize,
}

/// Each index tuple of some extents, the last of which is the fastest.
fn positions(extents: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for &extent in extents {
        all = all.iter().flat_map(|head| (0..extent).map(move |i| [&head[..], &[i]].concat())).collect();
    }
    all
}

/// Where an index tuple lies in a dense tensor.
fn place(extents: &[usize], index: &[usize]) -> usize {
    index.iter().zip(extents).fold(0, |at, (i, extent)| at * extent + i)
}

impl Windows {
    /// Visits the places in x, weight and y of the factors and the sum of each product.
    fn each(&self, mut visit: impl FnMut(usize, usize, usize)) {
        // No samples of any size, or any number of samples without elements.
        if self.y.contains(&0) || self.weight.contains(&0) {
            return;
        }
        let (outputs, kernel) = (positions(&self.y[2..]), positions(&self.weight[2..]));
        let (of_filters, of_channels) = (self.y[1] / self.groups, self.weight[1]);
        for n in 0..self.y[0] {
            for k in 0..self.y[1] {
                for c in 0..of_channels {
                    // The channel of x that meets this one of the weight in the group of this filter.
                    let channel = k / of_filters * of_channels + c;
                    for o in &outputs {
                        for r in &kernel {
                            let along = |axis: usize| {
                                let padded = o[axis] * self.stride[axis] + r[axis] * self.dilation[axis];
                                padded.checked_sub(self.before[axis]).filter(|i| *i < self.x[2 + axis])
                            };
                            let Some(i) = (0..o.len()).map(along).collect::<Option<Vec<usize>>>() else { continue };
                            visit(
                                place(&self.x, &[&[n, channel], &i[..]].concat()),
                                place(&self.weight, &[&[k, c], &r[..]].concat()),
                                place(&self.y, &[&[n, k], &o[..]].concat()),
                            );
                        }
                    }
                }
            }
        }
    }
}

struct Op<'a> {
    name: &'a str,
    json: Value,
    dims: &'a [u64],
    inputs: &'a Tensors,
    outputs: &'a Tensors,
}

impl Op<'_> {
    fn values(&self) -> Result<Values> {
        match self.name {
            "softmax" => self.softmax(),
            "softmax_backward" => self.softmax_backward(),
            "activation" => self.activated(),
            "activation_backward" => self.activated_backward(),
            "gemm" => self.gemm(),
            "gemm_backward" => self.gemm_backward(),
            "conv" => self.conv(),
            "conv_backward_data" => self.conv_backward("dx"),
            "conv_backward_weight" => self.conv_backward("dweight"),
            "conv_backward_bias" => self.conv_backward_bias(),
            "local_response_norm" => self.response(),
            "local_response_norm_backward" => self.response_backward(),
            name if name.ends_with("_backward") => self.norm_backward(),
            _ => self.norm(),
        }
    }

    fn input(&self, name: &str) -> Result<&[f64]> {
        self.inputs.values(name).with_context(|| format!("no input {name}"))
    }

    fn number(&self, name: &str, default: f64) -> f64 {
        self.json[name].as_f64().unwrap_or(default)
    }

    fn is_set(&self, name: &str) -> bool {
        self.json[name].as_bool().unwrap_or(false)
    }

    fn index(&self, name: &str) -> usize {
        self.json[name].as_u64().unwrap_or(0) as usize
    }

    fn activation(&self) -> &str {
        self.json["activation"].as_str().unwrap_or("identity")
    }

    fn groups(&self) -> Groups {
        let elements = self.dims.iter().product::<u64>() as usize;
        let product = |dims: &[u64]| dims.iter().product::<u64>() as usize;
        if self.name.starts_with("layer_norm") || self.name.starts_with("rms_norm") {
            let (outer, inner) = self.dims.split_at(self.dims.len() - self.index("normalized_dims"));
            let (rows, cols) = (product(outer), product(inner));
            let all = 0..elements;
            let (of, parameter) = (all.clone().map(|i| i / cols).collect(), all.map(|i| i % cols).collect());
            return Groups { of, parameter, count: rows, parameters: cols };
        }
        let (channels, spatial) = (self.dims[1] as usize, product(&self.dims[2..]));
        let parameter: Vec<usize> = (0..elements).map(|i| i / spatial % channels).collect();
        let groups = match self.name.trim_end_matches("_backward") {
            "group_norm" => self.index("groups"),
            "instance_norm" if !self.is_set("inference") => channels,
            _ => return Groups { of: parameter.clone(), parameter, count: channels, parameters: channels },
        };
        let size = channels / groups * spatial;
        let of = (0..elements).map(|i| i / size).collect();
        Groups { of, parameter, count: self.dims[0] as usize * groups, parameters: channels }
    }

    /// Factor and summand of each parameter.
    fn affine(&self, parameters: usize) -> (Vec<f64>, Vec<f64>) {
        let offset = self.number("weight_offset", 0.0);
        let weight = self.inputs.values("weight").map(|w| w.iter().map(|w| w + offset).collect());
        let bias = self.inputs.values("bias").map(<[f64]>::to_vec);
        (weight.unwrap_or_else(|| vec![1.0; parameters]), bias.unwrap_or_else(|| vec![0.0; parameters]))
    }

    fn norm(&self) -> Result<Values> {
        let groups = self.groups();
        let is_row_norm = self.outputs.get("h").is_some();
        let residual = self.inputs.values("residual").filter(|_| !is_row_norm);
        let x = self.outputs.values("h").map_or_else(|| self.input("x"), Ok)?;
        let counts = groups.sums(|_| 1.0);
        let over_count = |sums: Vec<f64>| sums.iter().zip(&counts).map(|(sum, n)| sum / n).collect::<Vec<f64>>();
        let (mean, var) = if self.is_set("inference") {
            (self.input("running_mean")?.to_vec(), self.input("running_var")?.to_vec())
        } else {
            let mean = match self.name {
                "rms_norm" => vec![0.0; groups.count],
                // Of infinities it is NaN.
                _ => {
                    let mean = over_count(groups.sums(|i| if x[i].is_finite() { x[i] } else { f64::NAN }));
                    // Groups of nothing have a mean of 0.
                    mean.iter().zip(&counts).map(|(mean, n)| if *n == 0.0 { 0.0 } else { *mean }).collect()
                }
            };
            let var = over_count(groups.sums(|i| (x[i] - mean[groups.of[i]]).powi(2)));
            (mean, var)
        };
        let eps = self.number("eps", 1e-5);
        // A variance that is computed and infinite is that of an infinity, or of squares that overflow: it counts as NaN.
        let counted = |v: f64| if v == f64::INFINITY && !self.is_set("inference") { f64::NAN } else { v };
        let rstd: Vec<f64> = var.iter().map(|v| (counted(*v) + eps).sqrt().recip()).collect();
        let (weight, bias) = self.affine(groups.parameters);
        let y = x.iter().enumerate().map(|(i, x)| {
            let (group, at) = (groups.of[i], groups.parameter[i]);
            let more = residual.map_or(0.0, |residual| residual[i]);
            activation(self.activation(), (x - mean[group]) * rstd[group] * weight[at] + bias[at] + more)
        });
        let mut values = Values::from([("y", y.collect())]);
        if is_row_norm {
            let (x, residual) = (self.input("x")?, self.input("residual")?);
            values.insert("h", x.iter().zip(residual).map(|(x, r)| x + r).collect());
        }
        if !self.is_set("inference")
            && let (Some(mean_before), Some(var_before)) =
                (self.inputs.values("running_mean"), self.inputs.values("running_var"))
        {
            let batches = self.inputs.values("num_batches").map(|t| t[0]);
            let m = batches.map_or(self.number("momentum", 0.0), |t| 1.0 / (t + 1.0));
            let channels = mean_before.len();
            let samples = (groups.count / channels) as f64;
            let mean_of = |values: &dyn Fn(usize) -> f64, c: usize| {
                (c..groups.count).step_by(channels).map(values).sum::<f64>() / samples
            };
            // A batch of nothing leaves them as they are.
            let is_empty = x.is_empty();
            let running = |before: &[f64], batch: &dyn Fn(usize) -> f64| {
                if is_empty {
                    return before.to_vec();
                }
                before.iter().enumerate().map(|(c, b)| b - m * b + m * mean_of(batch, c)).collect()
            };
            values.insert("running_mean", running(mean_before, &|group| mean[group]));
            let unbiased = |group: usize| var[group] * counts[group] / (counts[group] - 1.0);
            values.insert("running_var", running(var_before, &unbiased));
            if let Some(t) = batches {
                values.insert("num_batches", vec![if is_empty { t } else { t + 1.0 }]);
            }
        }
        values.insert("mean", mean);
        values.insert("rstd", rstd);
        Ok(values)
    }

    fn norm_backward(&self) -> Result<Values> {
        let groups = self.groups();
        let (dy, x) = (self.input("dy")?, self.input("x")?);
        let is_inference = self.is_set("inference");
        let (mean, rstd) = if is_inference {
            let eps = self.number("eps", 1e-5);
            let rstd = self.input("running_var")?.iter().map(|v| (v + eps).sqrt().recip()).collect();
            (self.input("running_mean")?.to_vec(), rstd)
        } else {
            let mean = self.inputs.values("mean").map_or_else(|| vec![0.0; groups.count], <[f64]>::to_vec);
            (mean, self.input("rstd")?.to_vec())
        };
        let (weight, bias) = self.affine(groups.parameters);
        let residual = self.inputs.values("residual");
        let xhat: Vec<f64> = (0..x.len()).map(|i| (x[i] - mean[groups.of[i]]) * rstd[groups.of[i]]).collect();
        let dpre: Vec<f64> = (0..x.len())
            .map(|i| {
                let at = groups.parameter[i];
                let pre = xhat[i] * weight[at] + bias[at] + residual.map_or(0.0, |residual| residual[i]);
                let pre = self.inputs.values("y").map_or(pre, |y| y[i]);
                match self.activation() {
                    "relu" if pre <= 0.0 => 0.0,
                    "relu" => dy[i],
                    name => dy[i] * derivative(name, pre),
                }
            })
            .collect();
        let g = |i: usize| dpre[i] * weight[groups.parameter[i]];
        let (sum_g, sum_gx) = (groups.sums(g), groups.sums(|i| g(i) * xhat[i]));
        let counts = groups.sums(|_| 1.0);
        let is_centered = !self.name.starts_with("rms_norm");
        let dh = self.inputs.values("dh");
        let dx = (0..x.len()).map(|i| {
            let group = groups.of[i];
            let n = counts[group];
            let own = match is_inference {
                true => g(i) * rstd[group],
                false => {
                    let sum = if is_centered { sum_g[group] } else { 0.0 };
                    (n * g(i) - sum - xhat[i] * sum_gx[group]) / n * rstd[group]
                }
            };
            own + dh.map_or(0.0, |dh| dh[i])
        });
        Ok(Values::from([
            ("dx", dx.collect()),
            ("dweight", groups.parameter_sums(|i| dpre[i] * xhat[i])),
            ("dbias", groups.parameter_sums(|i| dpre[i])),
            ("dresidual", dpre.clone()),
        ]))
    }

    /// Indices of the elements of each line along an axis.
    fn lines(&self, axis: usize) -> Vec<Vec<usize>> {
        // A tensor of rank 0 is a line of one element.
        let dims = if self.dims.is_empty() { &[1][..] } else { self.dims };
        let product = |dims: &[u64]| dims.iter().product::<u64>() as usize;
        let (outer, dim, inner) = (product(&dims[..axis]), dims[axis] as usize, product(&dims[axis + 1..]));
        let line = |o: usize, i: usize| (0..dim).map(|d| (o * dim + d) * inner + i).collect();
        (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i))).map(|(o, i)| line(o, i)).collect()
    }

    fn activated(&self) -> Result<Values> {
        let y = self.input("x")?.iter().map(|&x| activation(self.activation(), x)).collect();
        Ok(Values::from([("y", y)]))
    }

    fn activated_backward(&self) -> Result<Values> {
        let dy = self.input("dy")?;
        let gradient = |(i, &dy): (usize, &f64)| -> Result<f64> {
            if self.is_set("from_y") {
                let y = self.input("y")?[i];
                return Ok(match self.activation() {
                    "relu" if y <= 0.0 => 0.0,
                    "relu" => dy,
                    "sigmoid" => dy * y - dy * y * y,
                    _ => dy - dy * y * y,
                });
            }
            Ok(match self.activation() {
                "identity" => dy,
                "relu" if self.input("x")?[i] <= 0.0 => 0.0,
                "relu" => dy,
                name => dy * derivative(name, self.input("x")?[i]),
            })
        };
        let dx = dy.iter().enumerate().map(gradient).collect::<Result<_>>()?;
        Ok(Values::from([("dx", dx)]))
    }

    fn matrices(&self) -> Result<Matrices> {
        let dims = |name: &str| -> Result<Vec<usize>> {
            let dims = self.json[name]["dims"].as_array().context("dims")?;
            Ok(dims.iter().map(|dim| dim.as_u64().unwrap_or(0) as usize).collect())
        };
        let (a, b) = (dims("a")?, dims("b")?);
        let stored = |dims: &[usize], transposed: bool| {
            let [rows, cols] = [dims[dims.len() - 2], dims[dims.len() - 1]];
            if transposed { [cols, rows] } else { [rows, cols] }
        };
        let (ta, tb) = (self.is_set("transpose_a"), self.is_set("transpose_b"));
        let ([m, k], [_, n]) = (stored(&a, ta), stored(&b, tb));
        let (of_a, of_b) = (a[..a.len() - 2].to_vec(), b[..b.len() - 2].to_vec());
        let extent = |of: &[usize], back: usize| of.iter().rev().nth(back).copied().unwrap_or(1);
        let both = |back: usize| match extent(&of_a, back) {
            1 => extent(&of_b, back),
            extent => extent,
        };
        let batch = (0..of_a.len().max(of_b.len())).rev().map(both).collect();
        let alpha = in_f32(self.number("alpha", 1.0));
        Ok(Matrices { batch, of_a, of_b, m, n, k, ta, tb, alpha })
    }

    fn pre_activation(&self, of: &Matrices) -> Result<Vec<f64>> {
        let (a, b, bias) = (self.input("a")?, self.input("b")?, self.inputs.values("bias"));
        let mut pre = vec![0.0; of.count() * of.m * of.n];
        of.each(|z, m, n, k| pre[of.out(z, m, n)] += a[of.a(z, m, k)] * b[of.b(z, k, n)]);
        let with_bias = |(i, sum): (usize, f64)| of.alpha * sum + bias.map_or(0.0, |bias| bias[i % of.n]);
        Ok(pre.into_iter().enumerate().map(with_bias).collect())
    }

    fn gemm(&self) -> Result<Values> {
        let pre = self.pre_activation(&self.matrices()?)?;
        let out = pre.iter().map(|&x| activation(self.activation(), x)).collect();
        Ok(Values::from([("pre", pre), ("out", out)]))
    }

    fn gemm_backward(&self) -> Result<Values> {
        let (of, dout, name) = (self.matrices()?, self.input("dout")?, self.activation());
        let again = match self.json["saved"].as_str() {
            Some("recompute") if name != "identity" => Some(self.pre_activation(&of)?),
            _ => None,
        };
        let pre = again.as_deref().or_else(|| self.inputs.values("pre"));
        let dpre = |(i, &dout): (usize, &f64)| match (name, self.inputs.values("out").map(|out| out[i])) {
            ("identity", _) => dout,
            ("relu", out) if out.or_else(|| pre.map(|pre| pre[i])).is_some_and(|x| x <= 0.0) => 0.0,
            ("relu", _) => dout,
            ("sigmoid", Some(out)) => dout * out - dout * out * out,
            (_, Some(out)) => dout - dout * out * out,
            (name, None) => dout * pre.map_or(f64::NAN, |pre| derivative(name, pre[i])),
        };
        let dpre: Vec<f64> = dout.iter().enumerate().map(dpre).collect();
        let mut values = Values::new();
        for name in ["da", "db", "dbias"] {
            let beta = in_f32(self.json[name]["beta"].as_f64().unwrap_or(0.0));
            let Some(elements) = self.outputs.values(name).map(<[f64]>::len) else { continue };
            let mut gradient = vec![0.0; elements];
            match name {
                "da" => {
                    let b = self.input("b")?;
                    of.each(|z, m, n, k| {
                        gradient[of.a(z, m, k)] += of.alpha * dpre[of.out(z, m, n)] * b[of.b(z, k, n)]
                    });
                }
                "db" => {
                    let a = self.input("a")?;
                    of.each(|z, m, n, k| {
                        gradient[of.b(z, k, n)] += of.alpha * dpre[of.out(z, m, n)] * a[of.a(z, m, k)]
                    });
                }
                _ => dpre.iter().enumerate().for_each(|(i, dpre)| gradient[i % of.n] += dpre),
            }
            if let Some(before) = self.inputs.values(name) {
                gradient.iter_mut().zip(before).for_each(|(g, before)| *g += beta * before);
            }
            values.insert(name, gradient);
        }
        Ok(values)
    }

    fn windows_of_conv(&self, x: &str, weight: &str, y: Option<&str>) -> Result<Windows> {
        let numbers = |list: &Value| -> Vec<usize> {
            list.as_array().into_iter().flatten().map(|number| number.as_u64().unwrap_or(0) as usize).collect()
        };
        let dims = |name: &str| numbers(&self.json[name]["dims"]);
        let (x, weight) = (dims(x), dims(weight));
        let rank = x.len() - 2;
        let or_ones = |list: Vec<usize>| if list.is_empty() { vec![1; rank] } else { list };
        let (stride, dilation) = (or_ones(numbers(&self.json["stride"])), or_ones(numbers(&self.json["dilation"])));
        let padding: Vec<Vec<usize>> = self.json["padding"].as_array().into_iter().flatten().map(numbers).collect();
        let padding = if padding.is_empty() { vec![vec![0; 2]; rank] } else { padding };
        let y = match y {
            Some(name) => dims(name),
            None => {
                let outputs = (0..rank).map(|axis| {
                    let padded = x[2 + axis] + padding[axis][0] + padding[axis][1];
                    (padded - dilation[axis] * (weight[2 + axis] - 1) - 1) / stride[axis] + 1
                });
                [x[0], weight[0]].into_iter().chain(outputs).collect()
            }
        };
        let before = padding.iter().map(|sides| sides[0]).collect();
        Ok(Windows { x, weight, y, stride, dilation, before, groups: self.index("groups").max(1) })
    }

    fn conv(&self) -> Result<Values> {
        let windows = self.windows_of_conv("x", "weight", None)?;
        let (x, weight, bias) = (self.input("x")?, self.input("weight")?, self.inputs.values("bias"));
        let spatial: usize = windows.y[2..].iter().product();
        let filters = windows.y[1];
        let mut pre = vec![0.0; windows.y.iter().product()];
        windows.each(|i, r, o| pre[o] += x[i] * weight[r]);
        pre.iter_mut().enumerate().for_each(|(i, pre)| *pre += bias.map_or(0.0, |bias| bias[i / spatial % filters]));
        let y = pre.iter().map(|&x| activation(self.activation(), x)).collect();
        Ok(Values::from([("pre", pre), ("y", y)]))
    }

    fn conv_backward(&self, output: &'static str) -> Result<Values> {
        let dy = self.input("dy")?;
        let elements = self.outputs.values(output).context("a gradient")?.len();
        let mut gradient = vec![0.0; elements];
        if output == "dx" {
            let weight = self.input("weight")?;
            self.windows_of_conv("dx", "weight", Some("dy"))?.each(|i, r, o| gradient[i] += dy[o] * weight[r]);
        } else {
            let x = self.input("x")?;
            self.windows_of_conv("x", "dweight", Some("dy"))?.each(|i, r, o| gradient[r] += dy[o] * x[i]);
        }
        Ok(Values::from([(output, self.added(output, gradient))]))
    }

    fn conv_backward_bias(&self) -> Result<Values> {
        let dy = self.input("dy")?;
        let (channels, spatial) = (self.dims[1] as usize, self.dims[2..].iter().product::<u64>() as usize);
        let mut gradient = vec![0.0; channels];
        dy.iter().enumerate().for_each(|(i, dy)| gradient[i / spatial % channels] += dy);
        Ok(Values::from([("dbias", self.added("dbias", gradient))]))
    }

    /// A gradient and beta times what was there.
    fn added(&self, name: &str, mut gradient: Vec<f64>) -> Vec<f64> {
        if let Some(before) = self.inputs.values(name) {
            gradient.iter_mut().zip(before).for_each(|(g, before)| *g += in_f32(self.number("beta", 0.0)) * before);
        }
        gradient
    }

    fn softmax(&self) -> Result<Values> {
        let (x, scale) = (self.input("x")?, self.number("scale", 1.0));
        let mut y = vec![0.0; x.len()];
        // Scaled before anything is subtracted, which costs f64 no more than its own roundings.
        let mut t: Vec<f64> = x.iter().map(|x| scale * x).collect();
        let has_mask = self.is_set("causal") || !self.json["bias"].is_null();
        if let Some(bias) = self.inputs.values("bias") {
            let dims: Vec<u64> = serde_json::from_value(self.json["bias"]["dims"].clone())?;
            let new = self.dims.len() - dims.len();
            for (i, t) in t.iter_mut().enumerate() {
                // The place in the bias, from the last extent on.
                let (mut rest, mut at, mut step) = (i, 0, 1);
                for (axis, &dim) in self.dims.iter().enumerate().rev() {
                    let own = axis.checked_sub(new).map_or(1, |axis| dims[axis] as usize);
                    at += if own == 1 { 0 } else { rest % dim as usize * step };
                    step *= own;
                    rest /= dim as usize;
                }
                *t += bias[at];
            }
        }
        let is_hidden = |i: usize| {
            let Some(&[queries, keys]) = self.dims.last_chunk().filter(|_| self.is_set("causal")) else { return false };
            let (query, key) = (i as u64 / keys % queries, i as u64 % keys);
            key + queries > query + keys
        };
        for line in self.lines(self.index("axis")) {
            let (hidden, shown): (Vec<usize>, Vec<usize>) = line.iter().partition(|&&i| is_hidden(i));
            let largest = shown.iter().map(|&i| t[i]).fold(f64::NEG_INFINITY, f64::max);
            let log_sum = shown.iter().map(|&i| (t[i] - largest).exp()).sum::<f64>().ln();
            let is_blank = has_mask && shown.iter().all(|&i| t[i] == f64::NEG_INFINITY);
            for &i in &line {
                let is_masked = is_blank || hidden.contains(&i);
                let log = if is_masked { f64::NEG_INFINITY } else { t[i] - largest - log_sum };
                y[i] = if self.is_set("log") { log } else { log.exp() };
            }
        }
        Ok(Values::from([("y", y)]))
    }

    fn softmax_backward(&self) -> Result<Values> {
        let (y, dy, scale) = (self.input("y")?, self.input("dy")?, self.number("scale", 1.0));
        let mut dx = vec![0.0; y.len()];
        for line in self.lines(self.index("axis")) {
            // A column of the Jacobian after the other: of log-softmax delta - exp(y), of softmax y (delta - y).
            let log = self.is_set("log");
            let is_masked = |i: usize| log && self.is_set("masked") && y[i] == f64::NEG_INFINITY;
            let counted = line.iter().filter(|&&j| !is_masked(j));
            let sum: f64 = counted.map(|&j| if log { dy[j] } else { y[j] * dy[j] }).sum();
            for i in line {
                dx[i] = if is_masked(i) {
                    0.0
                } else if log {
                    scale * dy[i] - scale * y[i].exp() * sum
                } else {
                    scale * y[i] * dy[i] - scale * y[i] * sum
                };
            }
        }
        Ok(Values::from([("dx", dx)]))
    }

    /// The window of channel c, and its `d` among the elements of a line.
    fn windows(&self, x: &[f64], line: &[usize]) -> Vec<(std::ops::Range<usize>, f64)> {
        let size = self.index("size");
        let (scale, k) = (self.number("alpha", 0.0) / size as f64, self.number("k", 1.0));
        let before = if self.is_set("longer_after") { (size - 1) / 2 } else { size / 2 };
        let window = |c: usize| c.saturating_sub(before)..(c + size - before).min(line.len());
        let d = |c: usize| k + scale * window(c).map(|j| x[line[j]].powi(2)).sum::<f64>();
        // An infinite d counts as NaN.
        let counted = |d: f64| if d == f64::INFINITY { f64::NAN } else { d };
        (0..line.len()).map(|c| (window(c), counted(d(c)))).collect()
    }

    fn response(&self) -> Result<Values> {
        let (x, beta) = (self.input("x")?, self.number("beta", 0.75));
        let mut y = vec![0.0; x.len()];
        for line in self.lines(1) {
            for (&i, (_, d)) in line.iter().zip(self.windows(x, &line)) {
                y[i] = x[i] / d.powf(beta);
            }
        }
        Ok(Values::from([("y", y)]))
    }

    fn response_backward(&self) -> Result<Values> {
        let (x, dy, beta) = (self.input("x")?, self.input("dy")?, self.number("beta", 0.75));
        let slope = 2.0 * self.number("alpha", 0.0) * beta / self.index("size") as f64;
        let mut dx = vec![0.0; x.len()];
        for line in self.lines(1) {
            // Every output passes its gradient to the inputs of its window.
            for (&i, (window, d)) in line.iter().zip(self.windows(x, &line)) {
                dx[i] += dy[i] / d.powf(beta);
                for j in window {
                    dx[line[j]] -= slope * x[line[j]] * (dy[i] * x[i] / d.powf(beta + 1.0));
                }
            }
        }
        Ok(Values::from([("dx", dx)]))
    }
}

/// An alpha or beta of a product of f32, f16 or bf16, which computes in f32.
fn in_f32(x: f64) -> f64 {
    f64::from(x as f32)
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// `2 / sqrt(pi)` times the integral of `exp(-t^2)` from x on: by a series of positive terms, far out by a continued fraction.
fn erfc(x: f64) -> f64 {
    let density = (-x * x).exp() / std::f64::consts::PI.sqrt();
    if x.abs() < 3.0 {
        let (mut term, mut sum) = (2.0 * x, 2.0 * x);
        for n in 1..80 {
            term *= 2.0 * x * x / f64::from(2 * n + 1);
            sum += term;
        }
        return 1.0 - density * sum;
    }
    let tail = (1..80).rev().fold(x.abs(), |below, n| x.abs() + f64::from(n) / 2.0 / below);
    let tail = if x.is_infinite() { 0.0 } else { density / tail };
    if x < 0.0 { 2.0 - tail } else { tail }
}

/// Twice the argument of the hyperbolic tangent of GELU, and its derivative.
fn gelu_argument(x: f64) -> (f64, f64) {
    let scale = 2.0 * std::f64::consts::FRAC_2_PI.sqrt();
    (scale * (x + 0.044715 * x.powi(3)), scale * (1.0 + 3.0 * 0.044715 * x * x))
}

fn activation(name: &str, x: f64) -> f64 {
    match name {
        "relu" if x <= 0.0 => 0.0,
        "gelu_erf" => x * erfc(-x / 2f64.sqrt()) / 2.0,
        "gelu_tanh" => x * sigmoid(gelu_argument(x).0),
        "silu" => x * sigmoid(x),
        "sigmoid" => sigmoid(x),
        "tanh" => x.tanh(),
        _ => x,
    }
}

/// Of every activation but ReLU.
fn derivative(name: &str, x: f64) -> f64 {
    // The limits, where products would be infinity times 0.
    let is_far = x.abs() > 30.0;
    match name {
        "sigmoid" => sigmoid(x) * sigmoid(-x),
        "tanh" => 4.0 * sigmoid(2.0 * x) * sigmoid(-2.0 * x),
        "silu" if x == f64::INFINITY => 1.0,
        "silu" if x.is_infinite() => 0.0,
        "silu" => sigmoid(x) + x * sigmoid(x) * sigmoid(-x),
        "gelu_erf" | "gelu_tanh" if is_far => f64::from(u8::from(x > 0.0)),
        "gelu_erf" => erfc(-x / 2f64.sqrt()) / 2.0 + x * (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt(),
        "gelu_tanh" => {
            let (u, slope) = gelu_argument(x);
            sigmoid(u) + x * sigmoid(u) * sigmoid(-u) * slope
        }
        _ => 1.0,
    }
}
