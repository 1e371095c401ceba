//! The kernels' parameters of a contraction: a product of matrices as gemm's epilogue sees it, and the places of the factors' elements.

use baracuda_ops_sys as sys;

use super::wgmma::{self, Turn};
use crate::backend::cuda::c_dtype;
use crate::dtype::DType;
use crate::error::Reason;
use crate::narrow::{signed, word};
use crate::ops::conv::MAX_AXES;
use crate::ops::conv::geometry::{Axis, Contraction, DIGITS, Gathered, Indices, Strided};
use crate::ops::conv::product::unlaid;
use crate::ops::gemm::cuda::product::{self as gemm, Limits, TileSizes, Tiles};
use crate::ops::gemm::geometry::{Extent, Extents, MAX_BATCH, Matrix, Product, join};

/// Numbers that a coordinate is the sum of are below this if the kernel computes in 32 bits.
const REACH: i128 = 1 << 30;
/// Numbers that a coordinate is the sum of are below this if the kernel computes in 64 bits.
const LONG_REACH: i128 = 1 << 62;

/// How a contraction is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops::conv) enum OwnForm {
    Wgmma,
    Mma,
    Simt,
}

/// The launch that computes the sums, with its choice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum First {
    Wgmma(sys::bops_conv_wgmma_choice),
    Mma(sys::bops_conv_choice),
    Simt(sys::bops_conv_choice),
}

/// A contraction with its launches.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    /// The epilogue, the parts of the sums and `gemm_finish`.
    pub(super) product: gemm::Planned,
    pub(super) params: sys::bops_conv_params,
    /// `None` if there are no terms, or nothing is written.
    pub(super) choice: Option<First>,
    pub(super) rounds_to_tf32: bool,
    /// Copies that are read in place of the gathered and of the plain factor.
    pub(super) turns: [Option<Turn>; 2],
}

impl Planned {
    pub(super) fn new(form: OwnForm, contraction: &Contraction, limits: &Limits<'_>) -> Result<Self, Reason> {
        let Contraction { groups, n, gathered, plain, .. } = contraction;
        // The type of the call is that of the factors, of which one may be f32 beside another of 16 bits.
        let dtype = if plain.dtype.size_bytes() < gathered.dtype.size_bytes() { plain.dtype } else { gathered.dtype };
        let bare = |product, params| Self { product, params, choice: None, rounds_to_tf32: false, turns: [None; 2] };
        if contraction.is_empty() {
            let product = gemm::Planned::bare(&lowered(contraction, dtype), false)?;
            return Ok(bare(product, Default::default()));
        }
        if contraction.terms.count() == 0 {
            // All sums are 0: the columns of all groups become those of one group.
            let product = lowered(&Contraction { groups: 1, n: n * groups, ..*contraction }, dtype);
            return Ok(bare(gemm::Planned::without_terms(&product)?, Default::default()));
        }
        let product = lowered(contraction, dtype);
        let (params, reach) = params(contraction, &product)?;
        let is_long = reach >= REACH;
        let has_one_bias = contraction.groups == 1 || contraction.epilogue.bias.is_none();
        // `gemm_finish` knows no groups, so if each group has its own part of a bias, blocks do not share sums.
        let limits = &if has_one_bias { *limits } else { Limits { workspace_bytes: 0, ..*limits } };
        let mut planned = bare(gemm::Planned::bare(&product, false)?, params);
        let choice = match form {
            OwnForm::Wgmma => return wgmma::plan(contraction, dtype, limits),
            OwnForm::Simt if is_long || dtype != DType::F32 => {
                let mut sizes = TileSizes::simt(dtype);
                if is_long {
                    sizes.large = sizes.small;
                }
                let mut choice = planned.product.tiled(&product, Tiles::choose(&product, sizes, limits), false)?;
                let [rows, terms] = [&params.rows, &params.terms].map(|index| nearest(index, &index.gathered));
                choice.left_across = u32::from(rows <= terms);
                let terms = nearest(&params.terms, &params.plain_term.map(signed));
                choice.right_across = u32::from(plain.column != 0 && i128::from(plain.column) <= terms);
                choice
            }
            OwnForm::Simt => in_steps(&mut planned.product, contraction, &product, limits)?,
            OwnForm::Mma => {
                limits.check_tensor_cores(dtype)?;
                contraction.factor_type()?;
                Reason::unless(!is_long, || format!("it counts coordinates in 32 bits, their parts reach {reach}"))?;
                planned.rounds_to_tf32 = dtype == DType::F32;
                in_steps(&mut planned.product, contraction, &product, limits)?
            }
        };
        planned.params.product = planned.product.params;
        let choice = sys::bops_conv_choice { product: choice, is_long: u32::from(is_long) };
        planned.choice = Some(if form == OwnForm::Mma { First::Mma(choice) } else { First::Simt(choice) });
        Ok(planned)
    }

    pub(super) fn launches(&self) -> u32 {
        let turns = self.turns.iter().flatten().map(|_| 1).sum::<u32>();
        turns + u32::from(self.choice.is_some()) + u32::from(self.product.finish.is_some())
    }
}

/// The stride of digits that can be joined into one index; 1 if all their extents are 1.
pub(super) fn merged(extents: &[u64], strides: &[u64]) -> Option<u64> {
    let digits = extents.iter().zip(strides).map(|(&extent, &stride)| Extent { extent, strides: [stride] });
    match join(digits)[..] {
        [] => Some(1),
        [Extent { strides: [stride], .. }] => Some(stride),
        _ => None,
    }
}

/// The product whose rows are as many of the last digits of the contraction's rows as can be joined into one index, in out and in pre. Groups and the other
/// digits are its batch.
pub(super) fn lowered(contraction: &Contraction, dtype: DType) -> Product {
    let extents = contraction.rows.digits();
    let written: Vec<&Strided> = [&contraction.out].into_iter().chain(&contraction.epilogue.beside).collect();
    let is_one_index = |&first: &usize| {
        written.iter().all(|of| merged(&extents[first..], &of.digits(&contraction.rows)[first..]).is_some())
    };
    let first = (0..DIGITS).find(is_one_index).unwrap_or(DIGITS - 1);
    let outer: Vec<usize> = (0..first).filter(|&digit| extents[digit] != 1).collect();
    let matrix = |of: &Strided| {
        let strides = of.digits(&contraction.rows);
        let mut batch = [0; MAX_BATCH];
        batch[0] = if contraction.groups > 1 { of.group } else { 0 };
        for (to, &digit) in batch[1..].iter_mut().zip(&outer) {
            *to = strides[digit];
        }
        // `first` is a digit from which on merging succeeds.
        let rows = merged(&extents[first..], &strides[first..]).unwrap_or(0);
        Matrix { align_bytes: of.align_bytes, rows, cols: of.column, batch, ..unlaid(of.position, of.dtype) }
    };
    // The epilogue does not use the factors' strides.
    let factor = |position, align_bytes| Matrix { align_bytes, ..unlaid(position, dtype) };
    Product {
        m: extents[first..].iter().product(),
        n: contraction.n,
        k: contraction.terms.count(),
        batch: [contraction.groups].into_iter().chain(outer.iter().map(|&digit| extents[digit])).collect(),
        summed: Extents::default(),
        alpha: 1.0,
        left: factor(contraction.gathered.position, contraction.gathered.align_bytes),
        right: factor(contraction.plain.position, contraction.plain.align_bytes),
        out: matrix(&contraction.out),
        epilogue: contraction.epilogue.map(|pre| matrix(&pre)),
    }
}

/// The stride in memory of the fastest digit with an extent above 1; the greatest number if there is none.
fn nearest(index: &sys::bops_conv_index, moves: &[i64; DIGITS]) -> i128 {
    let fastest = index.extents.iter().zip(moves).rev().find(|&(&extent, _)| extent > 1);
    // If coordinates are divided, `moves` is 0 for them, which ranks them as near.
    fastest.map_or(i128::MAX, |(_, &by)| i128::from(by).abs())
}

/// The parameters without the product, and the greatest of the numbers that coordinates are the sums of.
pub(super) fn params(contraction: &Contraction, product: &Product) -> Result<(sys::bops_conv_params, i128), Reason> {
    let Contraction { gathered, plain, rows, terms, .. } = contraction;
    let axes = &gathered.axes;
    let is_divided = axes.iter().any(|axis| axis.divisor != 1);
    let mut reach = 0;
    let mut index = |indices: &Indices, lead: u64, of: fn(&Axis) -> i64, offset: fn(&Axis) -> i64| {
        for (axis, &extent) in axes.iter().zip(&indices.axes) {
            let first = i128::from(offset(axis));
            let last = first + i128::from(of(axis)) * (i128::from(extent) - 1);
            reach = reach.max(first.abs()).max(last.abs()).max(i128::from(extent)).max(i128::from(axis.extent));
        }
        reach = reach.max(i128::from(indices.lead));
        let mut moves = [0; MAX_AXES];
        for (to, axis) in moves.iter_mut().zip(axes) {
            *to = if is_divided { 0 } else { element(i128::from(of(axis)) * i128::from(axis.stride))? };
        }
        Ok::<_, Reason>(sys::bops_conv_index {
            extents: indices.digits(),
            gathered: indices.in_order(element(i128::from(lead))?, moves),
            coordinate: axes.each_ref().map(of),
            lead_last: u32::from(indices.lead_last),
        })
    };
    let of_rows = index(rows, gathered.row_lead, |axis| axis.of_row, |axis| axis.offset)?;
    let of_terms = index(terms, gathered.term_lead, |axis| axis.of_term, |_| 0)?;
    Reason::unless(reach < LONG_REACH, || format!("it counts coordinates in 64 bits, their parts reach {reach}"))?;
    let first: i128 = axes.iter().map(|axis| i128::from(axis.offset) * i128::from(axis.stride)).sum();
    let bias_group = contraction.epilogue.bias.map_or(0, |bias| bias.group);
    let params = sys::bops_conv_params {
        rows: of_rows,
        terms: of_terms,
        axes: axes.map(|axis| sys::bops_conv_axis {
            extent: signed(axis.extent),
            stride: signed(axis.stride),
            divisor: signed(axis.divisor),
        }),
        first_coordinate: axes.map(|axis| axis.offset),
        first_element: if is_divided { 0 } else { element(first)? },
        gathered_group: gathered.group,
        plain_group: plain.group,
        plain_column: plain.column,
        plain_term: plain.digits(terms),
        bias_group,
        gathered_dtype: c_dtype(gathered.dtype)?,
        plain_dtype: c_dtype(plain.dtype)?,
        is_divided: u32::from(is_divided),
        ..Default::default()
    };
    debug_assert_eq!(product.k, terms.count());
    Ok((params, reach))
}

/// A distance in memory, in elements.
fn element(number: i128) -> Result<i64, Reason> {
    i64::try_from(number).map_err(|_| format!("it counts elements in 64 bits, got a distance of {number}").into())
}

/// The choice of a form whose factors come to shared memory through asynchronous copies: in chunks of 16 bytes or element by element, and along the terms or
/// across.
fn in_steps(
    planned: &mut gemm::Planned,
    contraction: &Contraction,
    product: &Product,
    limits: &Limits<'_>,
) -> Result<sys::bops_gemm_choice, Reason> {
    let Contraction { groups, rows, terms, gathered, plain, .. } = contraction;
    let element_bytes = product.left.dtype.size_bytes();
    let each = 16 / element_bytes;
    // 1. The plain factor: along the terms, along the columns, or neither.
    let extents = terms.digits();
    let strides = plain.digits(terms);
    let of_group = if *groups > 1 { plain.group } else { 0 };
    let is_aligned = |stride: u64| stride.is_multiple_of(each);
    let starts = plain.align_bytes >= 16 && is_aligned(of_group);
    let (run, others) = run(&extents, &strides);
    let along = starts && is_aligned(run) && is_aligned(plain.column) && others.into_iter().all(is_aligned);
    let all = extents.iter().zip(&strides).filter(|&(&extent, _)| extent > 1).map(|(_, &stride)| stride);
    let across = plain.column == 1 && starts && all.into_iter().all(is_aligned);
    let plain_across = !along && plain.column == 1;
    // 2. The gathered factor: chunks are elements of the lead, which have equal coordinates along every axis.
    let Gathered { group, row_lead, term_lead, axes, align_bytes, .. } = *gathered;
    let of_group = if *groups > 1 { group } else { 0 };
    let starts = align_bytes >= 16 && is_aligned(of_group) && axes.iter().all(|axis| is_aligned(axis.stride));
    let is_fastest = |indices: &Indices, stride: u64| {
        stride == 1 && is_aligned(indices.lead) && (indices.lead_last || indices.axes == [1; MAX_AXES])
    };
    let along_terms = starts && is_fastest(terms, term_lead) && is_aligned(row_lead);
    let along_rows = starts && is_fastest(rows, row_lead) && is_aligned(term_lead);
    let gathered_across = along_rows && !along_terms && plain_across;
    // 3. The choice.
    let bytes = |in_chunks: bool| word(if in_chunks { 16 } else { element_bytes });
    let mut choice = planned.tiled(product, Tiles::choose(product, TileSizes::IN_STEPS, limits), false)?;
    choice.left_bytes = bytes(along_terms || gathered_across);
    choice.right_bytes = bytes(if plain_across { across } else { along });
    choice.left_across = u32::from(gathered_across);
    choice.right_across = u32::from(plain_across);
    Ok(choice)
}

/// The number of contiguous elements of the last digits, and the strides of the other digits.
fn run(extents: &[u64; DIGITS], strides: &[u64; DIGITS]) -> (u64, Vec<u64>) {
    let mut run = 1;
    let mut others = Vec::new();
    for (&extent, &stride) in extents.iter().zip(strides).rev().filter(|&(&extent, _)| extent > 1) {
        if others.is_empty() && stride == run {
            run *= extent;
        } else {
            others.push(stride);
        }
    }
    (run, others)
}
