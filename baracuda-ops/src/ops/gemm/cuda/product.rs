//! What a product becomes: parameters of the kernels, tiles, parts of the sums, widths of accesses.

use baracuda_ops_sys as sys;

use super::{few_rows, few_rows_stream, vendor, wgmma};
use crate::backend::DeviceProps;
use crate::backend::cuda::{self, c_activation, c_dtype, cublaslt};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::Ask;
use crate::narrow::word;
use crate::ops::gemm::geometry::{DprePass, Epilogue, Extents, Formula, MAX_BATCH, Matrix, MatrixPlace, Product};
use crate::options::{Math, PlanOptions};

/// The most blocks of a grid.
const MOST_BLOCKS: u64 = (1 << 31) - 1;
/// Columns of a tile of `gemm_finish`, along the fast index of out: `finish_columns` of `csrc/gemm/gemm.cu`, which says why.
const FINISH_COLUMNS: u64 = 128;
/// Most bytes of the parts of a product whose sums several blocks share. Parts should stay in the L2, of which an H200 has 50 MB, beside the factors.
pub(in crate::ops) const MOST_PART_BYTES: u64 = 32 << 20;

/// The large tile is taken if it makes blocks for at least so many quarters of the SMs. A smaller number would leave more SMs without work, a larger one
/// would take the small tile, which reads factors more often, for more products.
const LARGE_TILE_QUARTERS: u64 = 3;

/// How a product is computed. The forms for few rows serve forward only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) enum GemmForm {
    CublasLt,
    Wgmma,
    Mma,
    Simt,
    FewRows,
    FewRowsStream,
}

/// What a choice depends on besides the product.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Limits<'a> {
    pub(in crate::ops) props: &'a cuda::Props,
    pub(in crate::ops) math: Math,
    /// Workspace that may be used.
    pub(in crate::ops) workspace_bytes: u64,
    /// Whether the caller has pinned the form, so that preferences do not count.
    pub(in crate::ops) is_pinned: bool,
    /// Whether choices are made as if there were many rows and matrices.
    pub(in crate::ops) is_invariant: bool,
}

impl<'a> Limits<'a> {
    pub(in crate::ops) fn new(options: &PlanOptions, props: &'a DeviceProps, ask: Ask) -> Result<Self, Reason> {
        Ok(Self {
            props: cuda::Props::of(props)?,
            math: options.math,
            workspace_bytes: options.workspace_limit.unwrap_or(u64::MAX),
            is_pinned: ask.is_pinned(),
            is_invariant: ask.is_invariant(),
        })
    }

    /// Refuses factors that tensor cores do not multiply, or would round against the options.
    pub(in crate::ops) fn check_tensor_cores(&self, dtype: DType) -> Result<(), Reason> {
        match dtype {
            DType::F16 | DType::BF16 => Ok(()),
            DType::F32 if self.math == Math::Tf32 => Ok(()),
            DType::F32 => Err("it rounds factors of f32 to tf32, which the options do not allow".into()),
            _ => Err(format!("it has no instruction for {dtype}").into()),
        }
    }

    /// The same limits with less workspace.
    pub(in crate::ops) fn less(&self, bytes: u64) -> Self {
        Self { workspace_bytes: self.workspace_bytes.saturating_sub(bytes), ..*self }
    }
}

/// Which kernel computes the sums.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::ops) enum First {
    Simt(sys::bops_gemm_choice),
    Mma(sys::bops_gemm_choice),
    FewRows(sys::bops_gemm_few_rows_choice),
    FewRowsStream(sys::bops_gemm_few_rows_stream_choice),
    Wgmma(sys::bops_gemm_wgmma_choice),
    WgmmaWords(sys::bops_gemm_wgmma_words_choice),
    Vendor(cublaslt::ProductProblem),
}

/// Where `gemm_finish` finds the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) enum Source {
    /// In the scratch region of the workspace.
    Scratch,
    /// In out itself.
    Out,
    /// In pre.
    Other,
}

/// A copy of a factor in the workspace, whose lines or columns begin at multiples of 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::ops) struct FactorCopy {
    pub(in crate::ops) params: sys::bops_gemm_repack_params,
    /// Whether lines become columns, as those of f32 do.
    pub(in crate::ops) is_turned: bool,
    /// Where the copy begins in the region of the copies.
    pub(in crate::ops) at: u64,
}

impl FactorCopy {
    pub(in crate::ops) fn bytes(&self) -> u64 {
        let sys::bops_gemm_repack_params { lines, length, rank, outer, .. } = &self.params;
        let matrices: u64 = outer[..*rank as usize].iter().product();
        if self.is_turned {
            matrices * length * lines.next_multiple_of(4) * 4
        } else {
            matrices * lines * length.next_multiple_of(8) * 2
        }
    }
}

/// A product with its launches.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::ops) struct Planned {
    /// As the first launch sees them: m and n may have changed places.
    pub(in crate::ops) params: sys::bops_gemm_params,
    /// The product as `gemm_finish` sees it.
    pub(in crate::ops) finish_params: sys::bops_gemm_params,
    /// The type of the factors.
    pub(in crate::ops) dtype: DType,
    pub(in crate::ops) left: MatrixPlace,
    pub(in crate::ops) right: MatrixPlace,
    pub(in crate::ops) bias: Option<usize>,
    pub(in crate::ops) out: Option<MatrixPlace>,
    pub(in crate::ops) other: Option<MatrixPlace>,
    /// Copies of left and right that are read in their place.
    pub(in crate::ops) copies: [Option<FactorCopy>; 2],
    /// `None` if there are no terms.
    pub(in crate::ops) first: Option<First>,
    pub(in crate::ops) finish: Option<(sys::bops_gemm_finish_choice, Source)>,
    /// Where the operands of each call of a vendor's product begin, in bytes.
    pub(in crate::ops) calls: Vec<[u64; 3]>,
    /// Bytes of a vendor's product in the scratch region, behind which its own workspace lies.
    pub(in crate::ops) product_bytes: u64,
    /// Bytes of the scratch region.
    pub(in crate::ops) scratch_bytes: u64,
    /// Rows of partial column sums.
    pub(in crate::ops) sum_rows: u64,
    pub(in crate::ops) has_sums: bool,
    pub(in crate::ops) rounds_to_tf32: bool,
}

impl Planned {
    pub(in crate::ops) fn new(form: GemmForm, product: &Product, limits: &Limits<'_>) -> Result<Self, Reason> {
        let has_terms = product.terms() > 0;
        match form {
            GemmForm::FewRows => few_rows::plan(product, limits),
            GemmForm::FewRowsStream => few_rows_stream::plan(product, limits),
            _ if !has_terms => Self::without_terms(product),
            GemmForm::CublasLt => vendor::plan(product, limits),
            GemmForm::Wgmma => wgmma::plan(product, limits),
            GemmForm::Mma => Self::mma(product, limits),
            GemmForm::Simt => Self::simt(product, limits),
        }
    }

    pub(in crate::ops) fn launches(&self) -> u32 {
        let first = match self.first {
            Some(First::Vendor(_)) => word(self.calls.len() as u64),
            Some(_) => 1,
            None => 0,
        };
        first + u32::from(self.finish.is_some())
    }

    /// A product without launches. Its m and n may have changed places.
    pub(in crate::ops) fn bare(product: &Product, is_swapped: bool) -> Result<Self, Reason> {
        let product = &if is_swapped { product.transposed() } else { *product };
        let params = lowered(product, is_swapped)?;
        let Product { left, right, epilogue: Epilogue { bias, beside, .. }, .. } = product;
        Ok(Self {
            params,
            finish_params: params,
            dtype: left.dtype,
            left: left.place,
            right: right.place,
            bias: bias.map(|bias| bias.position),
            out: Some(product.out.place),
            other: beside.map(|other| other.place),
            copies: [None; 2],
            first: None,
            finish: None,
            calls: Vec::new(),
            product_bytes: 0,
            scratch_bytes: 0,
            sum_rows: 0,
            has_sums: false,
            rounds_to_tf32: false,
        })
    }

    /// Every sum is 0.
    pub(in crate::ops) fn without_terms(product: &Product) -> Result<Self, Reason> {
        let mut planned = Self::bare(product, false)?;
        planned.finish(product, Sums { splits: 0, source: Source::Scratch }, false)?;
        Ok(planned)
    }

    fn simt(product: &Product, limits: &Limits<'_>) -> Result<Self, Reason> {
        let dtype = product.left.dtype;
        let tiles = Tiles::choose(product, TileSizes::simt(dtype), limits);
        let mut planned = Self::bare(product, false)?;
        let choice = planned.tiled(product, tiles, false)?;
        planned.first = Some(First::Simt(choice));
        Ok(planned)
    }

    fn mma(product: &Product, limits: &Limits<'_>) -> Result<Self, Reason> {
        let dtype = product.left.dtype;
        limits.check_tensor_cores(dtype)?;
        let is_across = |rows: u64, k: u64| rows == 1 && k != 1;
        let left = is_across(product.left.rows, product.left.cols);
        let right = is_across(product.right.cols, product.right.rows);
        // There is no kernel for left along m with right along k, which the transposed product is not.
        let is_swapped = left && !right;
        let tiles = Tiles::choose(product, TileSizes::IN_STEPS, limits);
        let mut planned = Self::bare(product, is_swapped)?;
        let mut choice = planned.tiled(product, tiles, is_swapped)?;
        let widths = [
            access_bytes(&product.left, [product.left.rows, product.left.cols]),
            access_bytes(&product.right, [product.right.cols, product.right.rows]),
        ];
        let across = [u32::from(left), u32::from(right)];
        [choice.left_bytes, choice.right_bytes] = if is_swapped { [widths[1], widths[0]] } else { widths };
        [choice.left_across, choice.right_across] = if is_swapped { [across[1], across[0]] } else { across };
        planned.rounds_to_tf32 = dtype == DType::F32;
        planned.first = Some(First::Mma(choice));
        Ok(planned)
    }

    /// The part of a choice that our forms share; adds `gemm_finish` where several blocks share sums.
    pub(in crate::ops) fn tiled(
        &mut self,
        product: &Product,
        tiles: Tiles,
        is_swapped: bool,
    ) -> Result<sys::bops_gemm_choice, Reason> {
        let Tiles { tile, splits } = tiles;
        bounded_blocks([product.m.div_ceil(tile), product.n.div_ceil(tile), product.batch.count(), splits])?;
        let across = is_across(product, is_swapped);
        let mut choice = sys::bops_gemm_choice {
            tile: word(tile),
            splits: word(splits),
            across: u32::from(across),
            ..Default::default()
        };
        if splits == 1 {
            choice.quads = u32::from(out_in_quads(product, across != is_swapped));
            self.sum_rows = product.batch.count() * product.m.div_ceil(tile);
            return Ok(choice);
        }
        let fast = if across != is_swapped { product.m } else { product.n };
        choice.quads = u32::from(fast.is_multiple_of(4));
        self.scratch_bytes = splits * dense_bytes(product);
        self.finish(product, Sums { splits, source: Source::Scratch }, is_swapped)?;
        Ok(choice)
    }

    /// Adds `gemm_finish`.
    pub(in crate::ops) fn finish(&mut self, product: &Product, sums: Sums, is_swapped: bool) -> Result<(), Reason> {
        let across = is_across(product, is_swapped);
        let by_columns = across != is_swapped; // the fast index is that of m
        let (slow, fast) = if by_columns { (product.n, product.m) } else { (product.m, product.n) };
        bounded_blocks([
            slow.div_ceil(u64::from(sys::BOPS_GEMM_FINISH_ROWS)),
            fast.div_ceil(FINISH_COLUMNS),
            product.batch.count(),
        ])?;
        let (source, is_in_quads) = match sums.source {
            Source::Scratch => {
                let batch = product.dense_batch();
                let [row, column] = if across { [1, fast] } else { [fast, 1] };
                (sys::bops_gemm_matrix { row, column, batch }, fast.is_multiple_of(4))
            }
            // The sums lie in out itself or in pre, whose own `quads` counts below.
            Source::Out => (self.params.out, true),
            Source::Other => (self.params.other, true),
        };
        let choice = sys::bops_gemm_finish_choice {
            split_stride: product.batch.count() * product.m * product.n,
            source,
            splits: word(sums.splits),
            across: u32::from(across),
            quads: u32::from(is_in_quads && out_in_quads(product, by_columns)),
        };
        self.sum_rows = product.batch.count() * slow.div_ceil(u64::from(sys::BOPS_GEMM_FINISH_ROWS));
        self.finish = Some((choice, sums.source));
        Ok(())
    }
}

/// Where the sums of a product lie for `gemm_finish`.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Sums {
    pub(in crate::ops) splits: u64,
    pub(in crate::ops) source: Source,
}

/// The tiles that a form has kernels for, by their rows, which are as many as their columns.
#[derive(Clone, Copy)]
pub(in crate::ops) struct TileSizes {
    pub(in crate::ops) large: u64,
    pub(in crate::ops) small: u64,
    /// The fewest terms of a block's share of a sum. The parts of a sum are stored and loaded once more, whatever their number of terms. With fewer
    /// terms more SMs have work, with more terms the parts weigh less.
    pub(in crate::ops) least_terms: u64,
}

impl TileSizes {
    /// Forms whose factors come through asynchronous copies: `gemm_mma`, `conv_mma` and `conv_simt` of f32. For 512 terms a block loads at least four
    /// times as many bytes of factors as it stores of a part.
    pub(in crate::ops) const IN_STEPS: Self = Self { large: 128, small: 64, least_terms: 512 };

    /// `gemm_simt`, and `conv_simt` of other types. Without tensor cores, and without asynchronous copies, a term takes longer than in the forms of
    /// [`IN_STEPS`](Self::IN_STEPS), so that half as many terms make up for a part.
    pub(in crate::ops) fn simt(dtype: DType) -> Self {
        Self { large: if dtype == DType::F64 { 64 } else { 128 }, small: 32, least_terms: 256 }
    }
}

/// The tile of a block, and the blocks that share its sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) struct Tiles {
    pub(in crate::ops) tile: u64,
    pub(in crate::ops) splits: u64,
}

impl Tiles {
    /// The large tile if it keeps three quarters of the SMs busy, with several blocks a tile if k is long, else the small tile. For many rows and matrices
    /// the tile follows from n, and a block has whole sums.
    pub(in crate::ops) fn choose(product: &Product, sizes: TileSizes, limits: &Limits<'_>) -> Self {
        let TileSizes { large, small, least_terms } = sizes;
        if limits.is_invariant {
            return Self { tile: if product.n > small { large } else { small }, splits: 1 };
        }
        let sms = u64::from(limits.props.multiprocessors);
        let blocks = |tile: u64| tiles([product.m, product.n], [tile; 2], product);
        let shares = product.terms() / least_terms;
        let with = |tile: u64| Self { tile, splits: splits(product, blocks(tile), shares, limits) };
        let is_wide = product.m.min(product.n) > small;
        let chosen = with(large);
        if is_wide && 4 * blocks(large).saturating_mul(chosen.splits) >= LARGE_TILE_QUARTERS * sms {
            chosen
        } else {
            with(small)
        }
    }
}

/// Tiles with such extents of all matrices of a product, whose m and n may have changed places.
pub(super) fn tiles([m, n]: [u64; 2], [rows, columns]: [u64; 2], product: &Product) -> u64 {
    m.div_ceil(rows).saturating_mul(n.div_ceil(columns)).saturating_mul(product.batch.count())
}

/// Blocks that share the sums of each of so many tiles: several if there are fewer tiles than SMs. A sum has terms for at most `shares` parts that
/// are worth writing and reading.
pub(super) fn splits(product: &Product, tiles: u64, shares: u64, limits: &Limits<'_>) -> u64 {
    let most_bytes = limits.workspace_bytes.min(MOST_PART_BYTES);
    let wanted = u64::from(limits.props.multiprocessors) / tiles.max(1);
    wanted.min(shares).min(most_bytes / dense_bytes(product).max(1)).max(1)
}

/// Whether threads walk along the first index of the product that the kernel sees. Column sums of dpre are over m, whichever index that is.
fn is_across(product: &Product, is_swapped: bool) -> bool {
    let lies_across = product.out.rows == 1 && product.out.cols != 1 && !product.epilogue.is_derivative();
    lies_across != is_swapped
}

/// Bytes of all sums, of the accumulator type.
pub(in crate::ops) fn dense_bytes(product: &Product) -> u64 {
    [product.m, product.n, product.batch.count()]
        .into_iter()
        .fold(accumulator_bytes(product.left.dtype), u64::saturating_mul)
}

/// The most bytes of partial column sums of a product that makes dpre.
pub(super) fn most_sum_bytes(product: &Product) -> u64 {
    let rows = product.batch.count().saturating_mul(product.m.div_ceil(u64::from(sys::BOPS_GEMM_FINISH_ROWS)));
    rows.saturating_mul(product.n).saturating_mul(accumulator_bytes(product.left.dtype))
}

pub(in crate::ops) fn accumulator_bytes(dtype: DType) -> u64 {
    if dtype == DType::F64 { 8 } else { 4 }
}

/// The type that a pass computes in if no product says which: that of its narrowest operand.
pub(super) fn narrowest(pass: &DprePass) -> DType {
    let [dout, saved] = [pass.dout, pass.saved.unwrap_or(pass.dout)].map(|matrix| matrix.dtype);
    if saved.size_bytes() < dout.size_bytes() { saved } else { dout }
}

/// # Errors
/// More blocks than a launch can have.
pub(in crate::ops) fn bounded_blocks<const COUNT: usize>(factors: [u64; COUNT]) -> Result<(), Reason> {
    let blocks = factors.iter().fold(1u64, |blocks, &factor| blocks.saturating_mul(factor));
    Reason::unless(blocks <= MOST_BLOCKS, || format!("it needs {blocks} blocks, a launch has at most {MOST_BLOCKS}"))?;
    Ok(())
}

/// Whether four elements along the fast index, from any multiple of four on, are one access.
pub(in crate::ops) fn in_quads(matrix: &Matrix, fast: u64, slow: u64, batch: &Extents) -> bool {
    let bytes = (4 * matrix.dtype.size_bytes()).min(16);
    let strides = matrix.batch[..batch.len()].iter().chain([&slow]);
    fast == 1 && matrix.align_bytes >= bytes && strides.copied().all(|stride| stride.is_multiple_of(4))
}

pub(super) fn out_in_quads(product: &Product, by_columns: bool) -> bool {
    let is_in_quads = |matrix: &Matrix| {
        let (slow, fast) = if by_columns { (matrix.cols, matrix.rows) } else { (matrix.rows, matrix.cols) };
        in_quads(matrix, fast, slow, &product.batch)
    };
    is_in_quads(&product.out) && product.epilogue.beside.as_ref().is_none_or(is_in_quads)
}

/// The widest access to elements of a factor that lie one after the other, along its rows or along k.
fn access_bytes(matrix: &Matrix, [rows, k]: [u64; 2]) -> u32 {
    let element = matrix.dtype.size_bytes();
    let other = if k == 1 { rows } else { k };
    let mut bytes = 16.min(matrix.align_bytes);
    let strides = matrix.batch.iter().chain(&matrix.summed).chain([&other]);
    for stride in strides.filter(|&&stride| stride != 0) {
        bytes = bytes.min(1 << (stride * element).trailing_zeros().min(4));
    }
    word(if rows == 1 || k == 1 { bytes.max(element) } else { element })
}

pub(in crate::ops) fn padded(extents: &Extents) -> [u64; MAX_BATCH] {
    let mut all = [1; MAX_BATCH];
    all[..extents.len()].copy_from_slice(extents);
    all
}

pub(in crate::ops) fn matrix(matrix: &Matrix) -> sys::bops_gemm_matrix {
    sys::bops_gemm_matrix { row: matrix.rows, column: matrix.cols, batch: matrix.batch }
}

fn factor(of: &Matrix) -> sys::bops_gemm_factor {
    sys::bops_gemm_factor { matrix: matrix(of), summed: of.summed }
}

/// The kernels' parameters, of a product that may be the transposed one: then the bias is one of its rows.
fn lowered(product: &Product, is_transposed: bool) -> Result<sys::bops_gemm_params, Reason> {
    let Epilogue { formula, bias, activation, beside, beta } = product.epilogue;
    let bias_stride = bias.map_or(0, |bias| bias.stride);
    let [row, column] = if is_transposed { [bias_stride, 0] } else { [0, bias_stride] };
    let epilogue = match formula {
        Formula::Forward => sys::BOPS_GEMM_FORWARD,
        Formula::Derivative => sys::BOPS_GEMM_DERIVATIVE,
        Formula::Gradient => sys::BOPS_GEMM_GRADIENT,
    };
    let other = beside.unwrap_or(product.out);
    Ok(sys::bops_gemm_params {
        m: product.m,
        n: product.n,
        k: product.k,
        batch_rank: word(product.batch.len() as u64),
        summed_rank: word(product.summed.len() as u64),
        batch: padded(&product.batch),
        summed: padded(&product.summed),
        left: factor(&product.left),
        right: factor(&product.right),
        out: matrix(&product.out),
        other: matrix(&other),
        bias: sys::bops_gemm_matrix { row, column, batch: [0; MAX_BATCH] },
        out_dtype: c_dtype(product.out.dtype)?,
        other_dtype: c_dtype(other.dtype)?,
        bias_dtype: c_dtype(bias.map_or(product.out.dtype, |bias| bias.dtype))?,
        epilogue,
        activation: c_activation(activation),
        alpha: product.alpha,
        beta,
    })
}
