//! Attention: each query's mean of values, weighted by the softmax of its scores with keys; forward and backward.
//!
//! For query `i` of head `h` of sample `b`, over the keys `j` that it sees, with the head `g = h / (Hq / Hk)` of keys and values:
//!
//! - `s[j] = scale * sum_d q[b, h, i, d] k[b, g, j, d]`; with a [soft cap](AttentionDescriptor::soft_cap) `s[j] = cap * tanh(s[j] / cap)`; then the bias is
//!   added;
//! - `lse = log(sum_j exp(s[j]))`, `p[j] = exp(s[j] - lse)`, `y[d] = sum_j p[j] v[b, g, j, d]`;
//! - backward: `dp[j] = sum_d dy[d] v[j, d]`, `delta = sum_d dy[d] y[d]`, `ds[j] = p[j] (dp[j] - delta)`, which is the gradient of the bias, summed over what is
//!   repeated. With a soft cap `ds[j]` is then multiplied by `1 - tanh^2`. `dq = scale * sum_j ds[j] k[j]`, and over all queries and heads that share it
//!   `dk[j] = scale * sum ds[j] q` and `dv[j] = sum p[j] dy`. Each gradient can be added to what is there: `grad = beta * grad + ..`, rounded once.
//!
//! Which keys a query sees: `lengths` says how many keys each sample has, of at most `Sk`: a number below 0 counts as 0, one beyond `Sk` as `Sk`. The own position
//! of query `i` is key `i + length - Sq`, so that the last query is at the last key and new queries see what came before them; where the causal mask is
//! [`TopLeft`](CausalMask::TopLeft) it is key `i`. A causal mask hides the keys after it, a [window](AttentionDescriptor::window) all but so many before and after
//! it. A bias of Bool hides keys where it is false.
//!
//! Keys and values may lie in [pages](AttentionDescriptor::paged), as a server keeps the caches of many samples: `k` and `v` are pools of P pages of `page` keys
//! each, and the operand `pages` names the M pages of each sample, so that `Sk = M page`. Key `j` of sample `b` is then
//! `k[pages[b, j / page], g, j % page]`, and so is its value of `v`. Samples may share pages. A number outside 0 to P - 1 names no page: nothing is read there, and
//! no query sees its keys, which count for positions and lengths as others do.
//!
//! | forward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `q` | `[B, Hq, Sq, D]`, D from 1 to 256 | T: f64, f32, f16 or bf16 | in | always |
//! | `k` | `[B, Hk, Sk, D]`, Hq a multiple of Hk | T | in | always |
//! | `v` | `[B, Hk, Sk, Dv]`, Dv from 1 to 256 | T | in | always |
//! | `bias` | broadcasts to `[B, Hq, Sq, Sk]` | Bool, T, or f32 where T is f16 or bf16 | in | the field |
//! | `lengths` | `[B]` | i64, i32, u32 | in | the field |
//! | `pages` | `[B, M]`; k is then `[P, Hk, page, D]`, v `[P, Hk, page, Dv]` | i64, i32, u32 | in | the field |
//! | `y` | `[B, Hq, Sq, Dv]` | T | out | always |
//! | `lse` | `[B, Hq, Sq]` | f32, of f64 f64 | out | `stats` |
//!
//! | backward operand | shape | type | access | declared by |
//! |---|---|---|---|---|
//! | `q`, `k`, `v` | as in forward | T | in | always |
//! | `bias` | as in forward | as in forward | in | the field |
//! | `lengths` | as in forward | as in forward | in | the field |
//! | `y` | `[B, Hq, Sq, Dv]` | T | in | always; what forward wrote |
//! | `lse` | `[B, Hq, Sq]` | f32, of f64 f64 | in | always; what forward wrote |
//! | `dy` | of y | T | in | always |
//! | `dq` | of q | T | out; with a beta other than 0 in and out | `dq` |
//! | `dk` | of k | T | out; as dq | `dk` |
//! | `dv` | of v | T | out; as dq | `dv` |
//! | `dbias` | of bias | of bias | out; as dq | `dbias`, of a bias of numbers |
//!
//! Units: all values are plain numbers; lengths and windows are numbers of keys.
//!
//! Layout and aliasing: any strides, of inputs also 0, so that a tensor `[B, S, H, D]` is described by its strides, and so is each part of one tensor of q, k and
//! v. `y`, `dy` and `lse` are dense unless `layout` says otherwise; `dq`, `dk`, `dv` and `dbias` lie as q, k, v and the bias, or densely where that addresses an
//! element twice. No operand may lie at another. No tensor of queries by keys is in memory, but that of `attention_backward_cudnn` in its workspace, of which a
//! plan with `Determinism::Any` has no need.
//!
//! Accumulation: f32, for f64 operands f64, in a fixed order; the same bits on the same device every time, unless `Determinism::Any` lets cuDNN add up in any
//! order. CUDA's tensor cores multiply weights, and what scores receive, that are rounded to T; the sum by which y is divided is that of weights before.
//!
//! NaN, infinity, empty: a query that sees no key, or whose scores are all -infinity, has `y = 0`, `lse = -infinity` and no gradients. A score that is NaN or
//! +infinity makes `y` and `lse` of its query NaN. Keys and values beyond a sample's length are not read. Those within it that a query does not see count with a
//! weight of 0, and where they are NaN or infinite `y` of that query may be NaN; so it is with gradients. Without keys `y` is 0 and `dq` is `beta * dq`.
//!
//! Out of scope: dropout, scores as an output, and gradients of attention to pages.
//!
//! Errors: [`Error::InvalidDescriptor`] names the field and the numbers that do not fit; [`Error::Unsupported`] says why each kernel refused.
//!
//! Source: A. Vaswani et al., "Attention Is All You Need", 2017; M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", 2018, and T. Dao et al.,
//! "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness", 2022, for scores that are never stored; J. Ainslie et al., "GQA: Training
//! Generalized Multi-Query Transformer Models from Multi-Head Checkpoints", 2023, for heads that share keys; Gemma Team, "Gemma 2", 2024, for the soft cap;
//! T. Dao et al., "Flash-Decoding for long-context inference", 2023, for parts of keys; W. Kwon et al., "Efficient Memory Management for Large Language Model Serving
//! with PagedAttention", 2023, for pages.
//!
//! Kernels: on CUDA `attention_split_mma` and `attention_split` for few queries, `attention_cudnn` and `attention_backward_cudnn` (`vendor.rs`) where cuDNN is
//! installed, `attention_mma` for f16 and bf16 on tensor cores, `attention_simt`, `attention_backward_mma` and `attention_backward_simt`
//! (`csrc/attention/*.cu`), through wgpu `attention_split` for few queries, `attention_tiled` and `attention_backward_tiled` (the `.wgsl` files there), on the
//! CPU `attention_fast` and `attention_backward_fast` (`fast.rs`) for types other than f64, and the reference in
//! `cpu.rs`.

use serde::{Deserialize, Serialize};

use crate::dtype::{DType, Real};
use crate::error::{Error, Result};
use crate::gradients::{Derivation, one_step};
use crate::json::{self, Object};
use crate::operands::{args, operands};
use crate::ops::accumulation::by_beta;
use crate::ops::fields::{beside, demand, float, in_range, is_zero, relay, require};
use crate::ops::valid::{Described, Op, Valid, descriptor, fields, kernels, shared_steps, steps};
use crate::slots::{Access, Layouts, SlotsBuilder};
use crate::tensor::TensorDesc;
use geometry::{Geometry, Mask, Pages};

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod fast;
mod geometry;
#[cfg(feature = "cuda")]
mod mma;
#[cfg(feature = "cuda")]
mod split;
#[cfg(feature = "cuda")]
mod vendor;
#[cfg(feature = "wgpu")]
mod wgpu;

#[cfg(feature = "wgpu")]
pub(super) use wgpu::add_variants;

operands! { $
    /// Operands of the forward op.
    mod forward {
        Q q: In, always => "Queries.";
        K k: In, always => "Keys.";
        V v: In, always => "Values.";
        BIAS bias: In, if bias => "Added to scores, or which keys are seen, if declared.", step "Where the bias lies.";
        LENGTHS lengths: In, if lengths => "The number of keys of each sample, if declared.",
            step "Where the numbers of keys lie.";
        PAGES pages: In, if pages => "The pages of each sample, if declared.", step "Where the numbers of pages lie.";
        Y y: Out, always => "Output.";
        LSE lse: Out, if stats => "Logarithm of the sum of exponentials of each query's scores, if declared.",
            step "Where lse goes.";
    }
}

operands! { $
    /// Operands of the backward op.
    mod backward {
        Q q: In, always => "Forward's queries.";
        K k: In, always => "Forward's keys.";
        V v: In, always => "Forward's values.";
        BIAS bias: In, if bias => "Forward's bias, if declared.", step "Forward's bias.";
        LENGTHS lengths: In, if lengths => "Forward's numbers of keys, if declared.", step "Forward's numbers of keys.";
        Y y: In, always => "What forward wrote.";
        LSE lse: In, always => "What forward wrote.";
        DY dy: In, always => "Gradient of y.";
        DQ dq: Out, if dq => "Gradient of q, if declared.", step "Where the gradient of q goes.";
        DK dk: Out, if dk => "Gradient of k, if declared.", step "Where the gradient of k goes.";
        DV dv: Out, if dv => "Gradient of v, if declared.", step "Where the gradient of v goes.";
        DBIAS dbias: Out, if dbias => "Gradient of the bias, if declared.", step "Where the gradient of the bias goes.";
    }
}

/// Whether queries see the keys after their own positions, and which positions these are.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CausalMask {
    /// They do.
    #[default]
    None,
    /// They do not, and the last query is at the last key of the sample.
    BottomRight,
    /// They do not, and the first query is at the first key, as with `is_causal` of PyTorch's `scaled_dot_product_attention`.
    TopLeft,
}

impl CausalMask {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::None, Self::BottomRight, Self::TopLeft];

    /// The name used in JSON and errors.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::BottomRight => "bottom_right",
            Self::TopLeft => "top_left",
        }
    }
}

json::named!(CausalMask);

/// One gradient of a backward: what is there is multiplied by beta and added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Object<GradientFields>")]
pub(crate) struct Gradient {
    #[serde(skip_serializing_if = "is_zero")]
    beta: Real,
}

impl Gradient {
    pub(crate) fn beta(self) -> f64 {
        self.beta.get()
    }
}

/// The JSON of a gradient.
#[derive(Deserialize)]
#[serde(expecting = "an object such as {\"beta\":1.0}, or {}", deny_unknown_fields)]
struct GradientFields {
    #[serde(default)]
    beta: Real,
}

impl From<Object<GradientFields>> for Gradient {
    fn from(Object(GradientFields { beta }): Object<GradientFields>) -> Self {
        Self { beta }
    }
}

/// The fields of forward, of which backward has all but `pages` and `stats`, and others behind them. In brackets: optional operands that fields describe,
/// and gradients.
macro_rules! attention_fields {
    ($(#[$doc:meta])* $Fields:ident [$($described:ident),*] [$($gradient:ident),*] { $($other:tt)* }) => {
        fields! {
            $(#[$doc])*
            $Fields: Fields<Kind = (), Derived = Geometry> + normalise {
                q: TensorDesc,
                k: TensorDesc,
                v: TensorDesc,
                /// `None` is the reciprocal of the root of D.
                scale: Option<Real> = default,
                causal: CausalMask = default,
                /// How many keys before its own position a query sees; `None` is all.
                window_left: Option<i64> = default,
                /// As many after it.
                window_right: Option<i64> = default,
                soft_cap: Option<Real> = default,
                bias: Option<TensorDesc> = default,
                lengths: Option<DType> = default,
                $($other)*
            }
        }

        impl $Fields {
            fn normalise(&mut self, op: &Op<()>) -> Result<()> {
                let Self { q, k, v, .. } = self;
                relay(op.name, &mut self.layouts, [("q", q), ("k", k), ("v", v)])?;
                $(
                    if let Some(desc) = &mut self.$described {
                        relay(op.name, &mut self.layouts, [(stringify!($described), desc)])?;
                    }
                )*
                let depth = self.q.dims().last().copied().unwrap_or(1);
                self.scale = self.scale.filter(|&scale| Some(scale) != default_scale(depth));
                // A window that ends at the own position is a causal mask, which says it already.
                if self.window_right == Some(0) && self.causal == CausalMask::None {
                    self.causal = CausalMask::BottomRight;
                }
                if self.causal != CausalMask::None {
                    self.window_right = self.window_right.filter(|&right| right < 0);
                }
                $(
                    if let Some(Gradient { beta }) = &mut self.$gradient {
                        by_beta(op.name, &mut self.accumulate, stringify!($gradient), beta)?;
                    }
                )*
                Ok(())
            }

            fn rules(&self) -> Rules<'_> {
                let Self { q, k, v, scale, causal, window_left, window_right, soft_cap, bias, lengths, .. } = self;
                Rules {
                    pages: None,
                    operands: [q, k, v],
                    scale: *scale,
                    causal: *causal,
                    window: [*window_left, *window_right],
                    soft_cap: *soft_cap,
                    bias: bias.as_ref(),
                    lengths: *lengths,
                }
            }
        }
    };
}

attention_fields! {
    /// The fields of a forward descriptor.
    ForwardFields [bias, pages] [] {
        pages: Option<TensorDesc> = default,
        stats: bool = default,
    }
}

attention_fields! {
    /// The fields of a backward descriptor.
    BackwardFields [bias] [dq, dk, dv, dbias] {
        dq: Option<Gradient> = default,
        dk: Option<Gradient> = default,
        dv: Option<Gradient> = default,
        dbias: Option<Gradient> = default,
    }
}

fn default_scale(depth: u64) -> Option<Real> {
    Real::new(1.0 / (depth as f64).sqrt())
}

/// The fields that both descriptors have.
struct Rules<'f> {
    /// The numbers of pages, of which k and v are then pools.
    pages: Option<&'f TensorDesc>,
    /// q, k and v.
    operands: [&'f TensorDesc; 3],
    scale: Option<Real>,
    causal: CausalMask,
    window: [Option<i64>; 2],
    soft_cap: Option<Real>,
    bias: Option<&'f TensorDesc>,
    lengths: Option<DType>,
}

/// The most elements of a query, of a key and of a value.
const MOST_DEPTH: u64 = 256;
/// The most keys that the pages of a sample hold, so that positions of keys can be subtracted.
const MOST_PAGED_KEYS: u64 = 1 << 62;

impl Rules<'_> {
    fn check_operands(&self, op: &'static str) -> Result<[[u64; 4]; 3]> {
        let [q, _, _] = self.operands;
        float(op, "q", q)?;
        let mut all = [[0; 4]; 3];
        for ((field, desc), dims) in ["q", "k", "v"].into_iter().zip(self.operands).zip(&mut all) {
            require(op, field, desc.dtype() == q.dtype(), || {
                format!("must be of the type of q, {}; got {}", q.dtype(), desc.dtype())
            })?;
            let shape = match (field, self.pages) {
                ("q", _) => "[B, Hq, Sq, D]",
                (_, None) => "[B, Hk, Sk, D]",
                (_, Some(_)) => "[P, Hk, page, D]",
            };
            *dims = desc.dims().try_into().map_err(|_| Error::InvalidDescriptor {
                op,
                field,
                rule: format!("must be {shape} of rank 4, got rank {}", desc.rank()),
            })?;
            require(op, field, (1..=MOST_DEPTH).contains(&dims[3]), || {
                format!("must have a last extent of 1 to {MOST_DEPTH}, got {}", dims[3])
            })?;
        }
        let [q, k, v] = all;
        if self.pages.is_none() {
            require(op, "k", k[0] == q[0], || format!("must have as many samples as q, {}; got {}", q[0], k[0]))?;
        }
        require(op, "k", k[3] == q[3], || format!("must have the last extent of q, {}; got {}", q[3], k[3]))?;
        let divides = if k[1] == 0 { q[1] == 0 } else { q[1].is_multiple_of(k[1]) };
        require(op, "k", divides, || format!("must have a number of heads that divides q's, {}; got {}", q[1], k[1]))?;
        require(op, "v", v[..3] == k[..3], || {
            let samples = if self.pages.is_some() { "pages" } else { "samples" };
            format!("must have {samples}, heads and keys of k, {:?}; got {:?}", &k[..3], &v[..3])
        })?;
        Ok(all)
    }

    /// The pages of a forward of so many samples, whose keys lie in a pool with these extents.
    fn check_pages(&self, op: &'static str, samples: u64, pool: &[u64; 4]) -> Result<Option<Pages>> {
        let Some(desc) = self.pages else { return Ok(None) };
        let dtype = desc.dtype();
        require(op, "pages", matches!(dtype, DType::I64 | DType::I32 | DType::U32), || {
            format!("must be i64, i32 or u32, the numbers of the pages of each sample; got {dtype}")
        })?;
        let &[of_samples, per_sample] = desc.dims() else {
            return Err(Error::InvalidDescriptor {
                op,
                field: "pages",
                rule: format!("must be [B, M] of rank 2, got rank {}", desc.rank()),
            });
        };
        require(op, "pages", of_samples == samples, || {
            format!("must have as many rows as q has samples, {samples}; got {of_samples}")
        })?;
        let page = pool[2];
        let keys = per_sample.checked_mul(page).filter(|&keys| keys <= MOST_PAGED_KEYS);
        require(op, "pages", keys.is_some(), || {
            format!("must name at most {MOST_PAGED_KEYS} keys of a sample; got {per_sample} pages of {page}")
        })?;
        Ok(Some(Pages { dtype, count: pool[0], page, per_sample }))
    }

    /// What the bias says, and its own extents.
    fn check_bias(&self, op: &'static str, scores: &[u64; 4]) -> Result<(Mask, Option<TensorDesc>, [u64; 4])> {
        let mut dims = [1; 4];
        let Some(bias) = self.bias else { return Ok((Mask::None, None, dims)) };
        let (of_q, of_bias) = (self.operands[0].dtype(), bias.dtype());
        let widens = of_bias == DType::F32 && of_q.size_bytes() == 2;
        require(op, "bias", of_bias == DType::Bool || of_bias == of_q || widens, || match of_q {
            DType::F16 | DType::BF16 => format!("must be bool, {of_q}, the type of q, or f32; got {of_bias}"),
            _ => format!("must be bool, or {of_q}, the type of q; got {of_bias}"),
        })?;
        let repeated = bias.broadcast_to(scores);
        require(op, "bias", bias.rank() <= 4 && repeated.is_ok(), || {
            format!(
                "must broadcast to [B, Hq, Sq, Sk], {scores:?}: counted from the last, extents must be equal or 1; got {:?}",
                bias.dims()
            )
        })?;
        dims[4 - bias.rank()..].copy_from_slice(bias.dims());
        let mask = if of_bias == DType::Bool { Mask::Bool } else { Mask::Bias(of_bias) };
        Ok((mask, Some(repeated?), dims))
    }

    fn geometry(&self, op: &'static str) -> Result<Geometry> {
        let [q, k, v] = self.check_operands(op)?;
        let [of_q, ..] = self.operands;
        if let Some(scale) = self.scale {
            in_range(op, "scale", scale, of_q)?;
        }
        if let Some(cap) = self.soft_cap {
            let is_normal = in_range(op, "soft_cap", cap, of_q).is_ok();
            require(op, "soft_cap", cap.get() > 0.0 && is_normal, || {
                let computed_in = of_q.dtype().accumulator();
                format!(
                    "must be above 0 and a normal number of {computed_in}, in which scores are computed; got {:e}",
                    cap.get()
                )
            })?;
        }
        for (field, keys) in ["window_left", "window_right"].into_iter().zip(self.window) {
            require(op, field, keys.is_none_or(|keys| keys >= 0), || {
                format!("must be a number of keys, 0 or more, or absent for all; got {}", keys.unwrap_or(0))
            })?;
        }
        if let Some(dtype) = self.lengths {
            require(op, "lengths", matches!(dtype, DType::I64 | DType::I32 | DType::U32), || {
                format!("must be i64, i32 or u32, the number of keys of each sample; got {dtype}")
            })?;
        }
        let pages = self.check_pages(op, q[0], &k)?;
        let keys = pages.map_or(k[2], |pages| pages.page * pages.per_sample);
        let (mask, bias, bias_dims) = self.check_bias(op, &[q[0], q[1], q[2], keys])?;
        // A pool without pages has no key, however many the numbers of pages would name: there is nothing to go over.
        let keys = if pages.is_some_and(|pages| pages.count == 0) { 0 } else { keys };
        let is_causal = self.causal != CausalMask::None;
        let [left, right] = self.window.map(|keys| keys.map(i64::unsigned_abs));
        Ok(Geometry {
            samples: q[0],
            heads: q[1],
            kv_heads: k[1],
            queries: q[2],
            keys,
            pages,
            depth: q[3],
            value_depth: v[3],
            scale: self.scale.or(default_scale(q[3])).unwrap_or_default(),
            soft_cap: self.soft_cap,
            mask,
            bias,
            bias_dims,
            lengths: self.lengths,
            left,
            right: if is_causal { Some(0) } else { right },
            from_end: self.causal != CausalMask::TopLeft,
        })
    }
}

impl ForwardFields {
    fn declare(&self, &Op { name: op, .. }: &Op<()>, slots: &mut SlotsBuilder<'_>) -> Result<Geometry> {
        let geometry = Rules { pages: self.pages.as_ref(), ..self.rules() }.geometry(op)?;
        let Geometry { samples, heads, queries, value_depth, .. } = geometry;
        let dtype = self.q.dtype();
        for (row, desc) in [
            (forward::Q, Some(self.q)),
            (forward::K, Some(self.k)),
            (forward::V, Some(self.v)),
            (forward::BIAS, self.bias),
        ] {
            if let Some(desc) = desc {
                slots.declare(row, desc)?;
            }
        }
        slots.declare_dense(&[samples], [(forward::LENGTHS, self.lengths)])?;
        if let Some(pages) = self.pages {
            slots.declare(forward::PAGES, pages)?;
        }
        slots.declare_dense(&[samples, heads, queries, value_depth], [(forward::Y, Some(dtype))])?;
        let lse = self.stats.then_some(dtype.accumulator());
        slots.declare_dense(&[samples, heads, queries], [(forward::LSE, lse)])?;
        Ok(geometry)
    }
}

impl BackwardFields {
    /// The gradients, each with the row of its operand and the operand that it lies beside.
    fn gradients(&self) -> [(&'static str, usize, Option<Gradient>, Option<TensorDesc>); 4] {
        [
            ("dq", backward::DQ, self.dq, Some(self.q)),
            ("dk", backward::DK, self.dk, Some(self.k)),
            ("dv", backward::DV, self.dv, Some(self.v)),
            ("dbias", backward::DBIAS, self.dbias, self.bias),
        ]
    }

    fn declare(&self, &Op { name: op, .. }: &Op<()>, slots: &mut SlotsBuilder<'_>) -> Result<Geometry> {
        let geometry = self.rules().geometry(op)?;
        let Geometry { samples, heads, queries, value_depth, .. } = geometry;
        let dtype = self.q.dtype();
        let rule = "must be asked for, or another gradient: none is";
        demand(op, "dq", self.gradients().iter().any(|(_, _, gradient, _)| gradient.is_some()), rule)?;
        let has_numbers = matches!(geometry.mask, Mask::Bias(_));
        require(op, "dbias", self.dbias.is_none() || has_numbers, || match self.bias {
            Some(bias) => format!("needs a bias of numbers; it is {}", bias.dtype()),
            None => "needs a bias".into(),
        })?;
        for (row, desc) in [
            (backward::Q, Some(self.q)),
            (backward::K, Some(self.k)),
            (backward::V, Some(self.v)),
            (backward::BIAS, self.bias),
        ] {
            if let Some(desc) = desc {
                slots.declare(row, desc)?;
            }
        }
        slots.declare_dense(&[samples], [(backward::LENGTHS, self.lengths)])?;
        let like_y = [(backward::Y, Some(dtype)), (backward::DY, Some(dtype))];
        slots.declare_dense(&[samples, heads, queries, value_depth], like_y)?;
        slots.declare_dense(&[samples, heads, queries], [(backward::LSE, Some(dtype.accumulator()))])?;
        for (field, row, gradient, of) in self.gradients() {
            let Some((gradient, of)) = gradient.zip(of) else { continue };
            in_range(op, field, gradient.beta, &self.q)?;
            let desc = slots.derived(row, beside(&of))?;
            let access = if is_zero(&gradient.beta) { Access::Out } else { Access::InOut };
            slots.declare_as(access, row, desc)?;
        }
        Ok(geometry)
    }
}

/// Derives the gradients of q, k, v and the bias. Without `stats` forward runs again, for its lse.
fn derive(forward: &AttentionDescriptor, derivation: &mut Derivation) -> Result<()> {
    if forward.0.fields.pages.is_some() {
        let operand = derivation.wanted().first().copied().unwrap_or("q").into();
        let why = "has no gradient where k and v are pools of pages: gather the pages of each sample into a tensor [B, Hk, Sk, D] first, and attend to that";
        return Err(Error::NoGradient { op: AttentionDescriptor::OP.name, operand, why, known: Vec::new() });
    }
    let mut roles = Vec::new();
    if !forward.0.fields.stats {
        derivation.explain("forward writes lse only with `stats`");
        let again = derivation.push(forward.clone().stats()?, &[]);
        roles.extend(again.role("lse").map(|role| ("lse", role.clone())));
    }
    let backward = forward.backward_of(derivation.wanted())?;
    derivation.push(backward, &roles);
    Ok(())
}

descriptor! {
    /// Attention of queries to keys and values. See the [formulas and operands](self).
    ///
    /// ```
    /// use baracuda_ops::{AttentionDescriptor, CausalMask, DType, TensorDesc};
    /// // Eight heads of queries share two of keys and values; a language model.
    /// let q = TensorDesc::contiguous(DType::BF16, &[2, 8, 1024, 64])?;
    /// let kv = TensorDesc::contiguous(DType::BF16, &[2, 2, 1024, 64])?;
    /// let attention = AttentionDescriptor::new(q, kv, kv)?.causal(CausalMask::BottomRight)?.stats()?;
    /// // Parts of one tensor [B, S, 3, H, D], by their strides.
    /// let part = TensorDesc::strided(DType::F32, &[2, 8, 1024, 64], &[1024 * 1536, 64, 1536, 1])?;
    /// let windowed = AttentionDescriptor::new(part, part, part)?.window(Some(128), Some(128))?.lengths(DType::I32)?;
    /// // A step of generating text: one query of each of 16 samples, whose keys lie in up to 64 pages of 16, of 4096 in a pool.
    /// let query = TensorDesc::contiguous(DType::BF16, &[16, 32, 1, 128])?;
    /// let pool = TensorDesc::contiguous(DType::BF16, &[4096, 8, 16, 128])?;
    /// let pages = TensorDesc::contiguous(DType::I32, &[16, 64])?;
    /// let step = AttentionDescriptor::paged(query, pool, pool, pages)?.causal(CausalMask::BottomRight)?.lengths(DType::I32)?;
    /// # let _ = (attention, windowed, step);
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    AttentionDescriptor(ForwardFields): "attention", ();
    args: AttentionArgs of forward;
    plan: AttentionPlan;
    kernels: kernels!(cuda: {"split_mma" => split::forward_mma, "split" => split::forward; "cudnn" => vendor::forward, of vendor::library; "mma" => mma::forward, "simt" => cuda::forward};
        wgpu: {"split" => wgpu::forward_split, "tiled" => wgpu::forward}; cpu: cpu::forward; before: {"fast" => fast::forward});
    gradients: ["y"] => ["q", "k", "v", "bias"], derive;
    flops: |valid: &Valid<ForwardFields>| valid.derived.flops([1, 1]);
    /// Attention of queries `q`, `[B, Hq, Sq, D]`, to keys `k`, `[B, Hk, Sk, D]`, and values `v`, `[B, Hk, Sk, Dv]`, all of which every query sees. Scores are
    /// scaled by the reciprocal of the root of D.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if an operand is not of rank 4 or not of q's type, which is a floating-point one; if D or Dv is not 1 to 256; if extents of k
    /// or v differ from those of the others, or the number of their heads does not divide q's.
    fn new(q: TensorDesc, k: TensorDesc, v: TensorDesc) = ForwardFields::minimal(q, k, v);
    /// As [`new`](Self::new), where the keys and values of all samples lie in pages: `k` is a pool `[P, Hk, page, D]` and `v` one of `[P, Hk, page, Dv]`. `pages`,
    /// `[B, M]`, describes the operand that names the pages of each sample in their order, so that a sample has up to M times `page` keys. A number outside 0 to
    /// P - 1 names no page: nothing is read there, and its keys are not seen. There is no backward; gather the pages into a tensor first where gradients are wanted.
    ///
    /// # Errors
    /// As for [`new`](Self::new), of whose rules that about samples holds for `pages`; [`Error::InvalidDescriptor`] if `pages` is not of rank 2, has not a row for
    /// each sample of q, is not i64, i32 or u32, or names more than 2^62 keys of a sample.
    fn paged(q: TensorDesc, k: TensorDesc, v: TensorDesc, pages: TensorDesc) = ForwardFields { pages: Some(pages), ..ForwardFields::minimal(q, k, v) };
}

impl AttentionDescriptor {
    /// The backward of a forward that writes [`stats`](Self::stats), with the same types, layouts and options, for the gradients of the `wanted` among `q`, `k`,
    /// `v` and `bias`: `dy` lies as `y`.
    ///
    /// # Errors
    /// [`Error::SeveralSteps`] without `stats`, [`Error::NoGradient`] for another name and where keys lie in [pages](Self::paged), [`Error::InvalidDescriptor`]
    /// if none is wanted.
    pub fn backward(&self, wanted: &[&str]) -> Result<AttentionBackwardDescriptor> {
        one_step(self, Some(wanted))
    }

    fn backward_of(&self, wanted: &[&str]) -> Result<AttentionBackwardDescriptor> {
        let ForwardFields { q, k, v, scale, causal, window_left, window_right, soft_cap, bias, lengths, .. } =
            self.0.fields.clone();
        let gradient = |input: &str| wanted.contains(&input).then(Gradient::default);
        let mut layouts = Layouts::new();
        for slot in self.0.slots.all_at(&[forward::LENGTHS, forward::Y, forward::LSE]) {
            layouts.insert(slot.name.into(), slot.desc);
            if slot.name == "y" {
                layouts.insert("dy".into(), slot.desc);
            }
        }
        let fields = BackwardFields {
            scale,
            causal,
            window_left,
            window_right,
            soft_cap,
            bias,
            lengths,
            dq: gradient("q"),
            dk: gradient("k"),
            dv: gradient("v"),
            dbias: gradient("bias"),
            layouts,
            ..BackwardFields::minimal(q, k, v)
        };
        Valid::new(AttentionBackwardDescriptor::OP, fields).map(AttentionBackwardDescriptor)
    }
}

/// The steps that both descriptors have.
macro_rules! attention_steps {
    ($Descriptor:ident) => {
        shared_steps! { $Descriptor: layout }

        steps! { $Descriptor
            /// Multiplies products of queries and keys, by the reciprocal of the root of D by default; it may be negative or 0.
            ///
            /// # Errors
            /// [`Error::InvalidDescriptor`] if it is, unless operands are f64, neither 0 nor a normal number of f32.
            scale(scale: f64) = |it| it.real("scale", scale, |f, scale| f.scale = Some(scale));
            /// Hides the keys after each query's own position.
            ///
            /// # Errors
            /// None; the type is that of every other step.
            causal(mask: CausalMask) = |it| it.with(|f| f.causal = mask);
            /// Hides all keys but so many before and after each query's own position; `None` is all of them.
            ///
            /// # Errors
            /// [`Error::InvalidDescriptor`] if a number is below 0.
            window(left: Option<i64>, right: Option<i64>) = |it| it.with(|f| (f.window_left, f.window_right) = (left, right));
            /// Bounds scores to less than this on both sides: `cap tanh(s / cap)`, before the bias is added.
            ///
            /// # Errors
            /// [`Error::InvalidDescriptor`] if it is not above 0 or, unless operands are f64, no normal number of f32.
            soft_cap(cap: f64) = |it| it.real("soft_cap", cap, |f, cap| f.soft_cap = Some(cap));
            /// Adds a tensor to the scores, or of Bool hides keys where it is false. Extents of 1 and missing ones in front are repeated.
            ///
            /// # Errors
            /// [`Error::InvalidDescriptor`] if it does not broadcast to `[B, Hq, Sq, Sk]`, or if its type is neither Bool nor q's nor, where q is of 16 bits, f32.
            bias(bias: TensorDesc) = |it| it.with(|f| f.bias = Some(bias));
            /// Takes the number of keys of each sample, of this type.
            ///
            /// # Errors
            /// [`Error::InvalidDescriptor`] if the type is not i64, i32 or u32.
            lengths(dtype: DType) = |it| it.with(|f| f.lengths = Some(dtype));
        }
    };
}

attention_steps!(AttentionDescriptor);

steps! { AttentionDescriptor
    /// Writes `lse`, which backward reads.
    ///
    /// # Errors
    /// None; the type is that of every other step.
    stats() = |it| it.with(|f| f.stats = true);
}

descriptor! {
    /// The gradients of [`AttentionDescriptor`]. See the [formulas and operands](self).
    AttentionBackwardDescriptor(BackwardFields): "attention_backward", ();
    args: AttentionBackwardArgs of backward;
    plan: AttentionBackwardPlan;
    kernels: kernels!(cuda: {; "cudnn" => vendor::backward, of vendor::library; "mma" => mma::backward, "simt" => cuda::backward}; wgpu: {"tiled" => wgpu::backward}; cpu: cpu::backward; before: {"fast" => fast::backward});
    flops: |valid: &Valid<BackwardFields>| {
        let BackwardFields { dq, dk, dv, dbias, .. } = &valid.fields;
        let needs_ds = dq.is_some() || dk.is_some() || dbias.is_some();
        let of_depth = 1 + u64::from(dq.is_some()) + u64::from(dk.is_some());
        valid.derived.flops([of_depth, u64::from(needs_ds) + u64::from(dv.is_some())])
    };
}

impl AttentionBackwardDescriptor {
    /// The gradients of the `wanted` among `q`, `k` and `v` for an attention of these operands, all of whose keys every query sees.
    ///
    /// # Errors
    /// As [`AttentionDescriptor::new`], and [`AttentionDescriptor::backward`].
    pub fn new(q: TensorDesc, k: TensorDesc, v: TensorDesc, wanted: &[&str]) -> Result<Self> {
        AttentionDescriptor::new(q, k, v)?.stats()?.backward(wanted)
    }
}

attention_steps!(AttentionBackwardDescriptor);
shared_steps! { AttentionBackwardDescriptor: accumulate_by_beta }

steps! { AttentionBackwardDescriptor
    /// Asks for the gradient of `q`, added to `beta` times what is there; a beta of 0 reads nothing.
    ///
    /// # Errors
    /// [`Error::InvalidDescriptor`] if beta is, unless operands are f64, neither 0 nor a normal number of f32.
    dq(beta: f64) = |it| it.real("dq", beta, |f, beta| f.dq = Some(Gradient { beta }));
    /// As [`dq`](Self::dq), the gradient of `k`.
    ///
    /// # Errors
    /// As [`dq`](Self::dq).
    dk(beta: f64) = |it| it.real("dk", beta, |f, beta| f.dk = Some(Gradient { beta }));
    /// As [`dq`](Self::dq), the gradient of `v`.
    ///
    /// # Errors
    /// As [`dq`](Self::dq).
    dv(beta: f64) = |it| it.real("dv", beta, |f, beta| f.dv = Some(Gradient { beta }));
    /// As [`dq`](Self::dq), the gradient of the bias.
    ///
    /// # Errors
    /// As [`dq`](Self::dq), and if there is no bias of numbers.
    dbias(beta: f64) = |it| it.real("dbias", beta, |f, beta| f.dbias = Some(Gradient { beta }));
}

args! {
    /// Operands of [`AttentionDescriptor`]; their shapes and types are in the [tables](self).
    AttentionArgs of forward {
        /// The operands that are always there.
        new(q, k, v, y);
        bias(bias); lengths(lengths); pages(pages); lse(lse);
    }
}

args! {
    /// Operands of [`AttentionBackwardDescriptor`]; their shapes and types are in the [tables](self).
    AttentionBackwardArgs of backward {
        /// The operands that are always there.
        new(q, k, v, y, lse, dy);
        bias(bias); lengths(lengths); dq(dq); dk(dk); dv(dv); dbias(dbias);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Descriptor;

    fn desc(dtype: DType, dims: &[u64]) -> TensorDesc {
        TensorDesc::contiguous(dtype, dims).unwrap()
    }

    fn of(dims: [[u64; 4]; 3]) -> Result<AttentionDescriptor> {
        let [q, k, v] = dims.map(|dims| desc(DType::F16, &dims));
        AttentionDescriptor::new(q, k, v)
    }

    fn small() -> AttentionDescriptor {
        of([[2, 4, 3, 8], [2, 2, 5, 8], [2, 2, 5, 6]]).unwrap()
    }

    #[track_caller]
    fn refused<T: std::fmt::Debug>(result: Result<T>, field: &str, rule: &str) {
        match result {
            Err(Error::InvalidDescriptor { field: got, rule: found, .. }) => {
                assert!(got == field && found.contains(rule), "{got}: {found}");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn refuses_operands_that_do_not_fit_each_other() {
        let q = [2, 4, 3, 8];
        refused(of([q, [2, 3, 5, 8], [2, 3, 5, 8]]), "k", "divides q's, 4; got 3");
        refused(of([q, [2, 0, 5, 8], [2, 0, 5, 8]]), "k", "divides q's, 4; got 0");
        refused(of([q, [1, 4, 5, 8], [1, 4, 5, 8]]), "k", "as many samples as q, 2; got 1");
        refused(of([q, [2, 4, 5, 7], [2, 4, 5, 8]]), "k", "the last extent of q, 8; got 7");
        refused(of([q, [2, 4, 5, 8], [2, 4, 6, 8]]), "v", "of k, [2, 4, 5]; got [2, 4, 6]");
        refused(of([q, [2, 4, 5, 8], [2, 4, 5, 257]]), "v", "1 to 256, got 257");
        refused(of([[2, 4, 3, 0], [2, 4, 5, 0], [2, 4, 5, 8]]), "q", "1 to 256, got 0");
        let (flat, half) = (desc(DType::F32, &[4, 3, 8]), desc(DType::F16, &q));
        refused(AttentionDescriptor::new(flat, flat, flat), "q", "[B, Hq, Sq, D] of rank 4, got rank 3");
        let single = desc(DType::F32, &q);
        refused(AttentionDescriptor::new(half, single, half), "k", "must be of the type of q, f16; got f32");
        let integers = desc(DType::I32, &q);
        refused(AttentionDescriptor::new(integers, integers, integers), "q", "floating-point");
        assert!(of([[2, 0, 3, 8], [2, 0, 5, 8], [2, 0, 5, 6]]).is_ok());
    }

    #[test]
    fn refuses_rules_that_do_not_fit() {
        refused(small().window(Some(-1), None), "window_left", "0 or more, or absent for all; got -1");
        refused(small().window(None, Some(-2)), "window_right", "got -2");
        refused(small().soft_cap(0.0), "soft_cap", "must be above 0 and a normal number of f32");
        refused(small().soft_cap(1e-46), "soft_cap", "got 1e-46");
        refused(small().soft_cap(1e-300), "soft_cap", "normal number of f32");
        refused(small().scale(f64::NAN), "scale", "finite");
        refused(
            small().lengths(DType::F32),
            "lengths",
            "must be i64, i32 or u32, the number of keys of each sample; got f32",
        );
        refused(small().bias(desc(DType::F16, &[4, 5])), "bias", "[2, 4, 3, 5]: counted from the last");
        refused(small().bias(desc(DType::F16, &[1, 2, 4, 3, 5])), "bias", "got [1, 2, 4, 3, 5]");
        refused(small().bias(desc(DType::BF16, &[5])), "bias", "must be bool, f16, the type of q, or f32; got bf16");
        let bias = desc(DType::Bool, &[5]);
        let masked = small().bias(bias).unwrap().stats().unwrap();
        refused(masked.backward(&["q"]).unwrap().dbias(0.0), "dbias", "needs a bias of numbers; it is bool");
        refused(small().stats().unwrap().backward(&["q"]).unwrap().dbias(0.0), "dbias", "needs a bias");
        let none: BackwardFields = BackwardFields::minimal(small().0.fields.q, small().0.fields.k, small().0.fields.v);
        refused(Valid::new(AttentionBackwardDescriptor::OP, none), "dq", "none is");
    }

    #[test]
    fn refuses_pages_that_do_not_fit_and_their_gradients() {
        let (q, pool) = (desc(DType::F16, &[2, 4, 3, 8]), desc(DType::F16, &[9, 2, 5, 8]));
        let of = |pages| AttentionDescriptor::paged(q, pool, pool, pages);
        let paged = of(desc(DType::I32, &[2, 3])).unwrap().stats().unwrap();
        assert_eq!(paged.0.derived.keys, 15);
        assert_eq!(of(desc(DType::I64, &[2, 0])).unwrap().0.derived.keys, 0);
        refused(
            of(desc(DType::F32, &[2, 3])),
            "pages",
            "must be i64, i32 or u32, the numbers of the pages of each sample; got f32",
        );
        refused(of(desc(DType::I32, &[6])), "pages", "[B, M] of rank 2, got rank 1");
        refused(of(desc(DType::I32, &[3, 2])), "pages", "as many rows as q has samples, 2; got 3");
        let many = TensorDesc::strided(DType::I32, &[2, 1 << 61], &[0, 0]).unwrap();
        refused(of(many), "pages", "at most 4611686018427387904 keys of a sample; got 2305843009213693952 pages of 5");
        refused(paged.clone().bias(desc(DType::F16, &[5])), "bias", "[2, 4, 3, 15]");
        let other = desc(DType::F16, &[8, 2, 5, 8]);
        refused(
            AttentionDescriptor::paged(q, pool, other, desc(DType::I32, &[2, 3])),
            "v",
            "pages, heads and keys of k",
        );
        let json = serde_json::to_string(&paged).unwrap();
        assert!(json.contains(r#""pages":{"dtype":"i32","dims":[2,3]}"#), "{json}");
        assert_eq!(serde_json::from_str::<AttentionDescriptor>(&json).unwrap(), paged);
        let names: Vec<_> = paged.slots().iter().map(|slot| slot.name).collect();
        assert_eq!(names, ["q", "k", "v", "pages", "y", "lse"]);
        for refusal in [paged.backward(&["k"]).map(drop), paged.gradients(&["y"], &["k"]).map(drop)] {
            let words = refusal.unwrap_err().to_string();
            assert!(
                words.contains("\"k\" has no gradient where k and v are pools of pages: gather the pages"),
                "{words}"
            );
        }
    }

    #[test]
    fn what_can_be_said_twice_is_said_once() {
        assert_eq!(small().scale(1.0 / 8f64.sqrt()).unwrap(), small());
        let causal = small().causal(CausalMask::BottomRight).unwrap();
        assert_eq!(small().window(None, Some(0)).unwrap(), causal);
        assert_eq!(causal.clone().window(None, Some(7)).unwrap(), causal);
        assert!(causal.window(None, Some(-7)).is_err());
    }

    #[test]
    fn backward_carries_options_and_layouts_over_and_needs_lse() {
        let lse = TensorDesc::strided(DType::F32, &[2, 4, 3], &[12, 1, 4]).unwrap();
        let bias = desc(DType::F32, &[4, 1, 5]);
        let forward = small().causal(CausalMask::TopLeft).unwrap().bias(bias).unwrap().lengths(DType::U32).unwrap();
        assert!(matches!(forward.backward(&["q"]), Err(Error::SeveralSteps { .. })));
        let steps = forward.gradients(&["y"], &["q", "bias"]).unwrap();
        assert_eq!(
            steps.iter().map(|step| step.descriptor.name()).collect::<Vec<_>>(),
            ["attention", "attention_backward"]
        );
        let forward = forward.stats().unwrap().layout("lse", lse).unwrap();
        let backward = forward.backward(&["q", "k", "bias"]).unwrap();
        let names: Vec<_> = backward.slots().iter().map(|slot| slot.name).collect();
        assert_eq!(names, ["q", "k", "v", "bias", "lengths", "y", "lse", "dy", "dq", "dk", "dbias"]);
        let json = serde_json::to_string(&backward).unwrap();
        assert_eq!(serde_json::from_str::<AttentionBackwardDescriptor>(&json).unwrap(), backward);
        assert!(
            json.contains(r#""causal":"top_left""#) && json.contains(r#""dq":{}"#) && json.contains("12,1,4"),
            "{json}"
        );
        let added = backward.dq(0.5).unwrap();
        assert_eq!(added.slots()[8].access, Access::InOut);
        assert_eq!(added.slots()[10].desc, bias);
    }
}
