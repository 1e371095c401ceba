//! The CUDA kernels: which form takes a product, in which tiles, and the launches of a run.
//!
//! A product is one launch, or a launch and a second one, `gemm_finish`, that applies the epilogue to sums in memory: those of several blocks a
//! tile (split k), those of a vendor's product, and those of no terms, which are 0. Backward is the launches that make dpre, the sum of its
//! columns' partial sums, and the products of da and db, which share one scratch region of the workspace.
//!
//! The order of preference is one rule: tensor cores before the others, the vendor's library before our own. There are three exceptions: products with few
//! rows and a large other factor, which `gemm_few_rows_stream` takes; those that need a second launch for what `gemm_wgmma` does in one; and rows that
//! are not aligned, which take the library several times as long ([`wgmma::is_better`]). [`product`] has what each form takes, with the limits that it
//! names when it refuses.

use std::ffi::c_void;

use baracuda_ops_sys as sys;

use super::geometry::{BackwardGeometry, ColumnSums, Dpre, DprePass, Matrix, MatrixPlace, Product};
use super::{GemmBackwardDescriptor, GemmDescriptor};
use crate::backend::cuda::{self, Launch, c_activation, c_dtype, cublaslt};
use crate::backend::{Backend, Device, DeviceProps, Located};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::{Accepted, Ask, BuildError, Built, Candidate, Exec, Kernel};
use crate::narrow::{to_usize, word};
use crate::ops::calls::calls;
use crate::options::{Math, PlanOptions, WorkspaceReq};
use crate::plan::{Descriptor, form_name};

mod few_rows;
mod few_rows_stream;
pub(in crate::ops) mod launch;
pub(in crate::ops) mod product;
mod vendor;
mod wgmma;
mod wgmma_words;

use launch::{DBIAS_COLUMNS, Forms, ProductLaunch, prepare_dbias};
pub(in crate::ops) use product::GemmForm;
use product::{FactorCopy, First, Limits, Planned, Source, bounded_blocks};

/// Alignment of every region of the workspace.
pub(in crate::ops) const WORKSPACE_ALIGN: u64 = 256;

/// The fewest blocks of an SM in the pass for dpre, if there are enough rows: as many as its kernel leaves an SM room for.
const DPRE_BLOCKS: u64 = 4;

/// What differs between the product and its gradients.
trait Working: Descriptor {
    fn work(&self) -> Work;
}

impl Working for GemmDescriptor {
    fn work(&self) -> Work {
        Work::Product(Box::new(self.product()))
    }
}

impl Working for GemmBackwardDescriptor {
    fn work(&self) -> Work {
        Work::Backward(Box::new(self.geometry()))
    }
}

/// What is computed.
enum Work {
    Product(Box<Product>),
    Backward(Box<BackwardGeometry>),
}

/// The launches of a run and the workspace that they share.
#[derive(Default)]
struct Schedule {
    /// How dpre is made: element by element, or as a product.
    pass: Option<PlannedPass>,
    recomputed: Option<Planned>,
    dbias: Option<(sys::bops_gemm_dbias_params, DType, usize)>,
    products: Vec<Planned>,
    /// What the products read in the place of factors, and what these are copies of. Copies of operands are made first, copies of dpre once dpre
    /// is there.
    copies: Vec<(MatrixPlace, FactorCopy)>,
    at: Regions,
    bytes: u64,
    launches: u32,
}

struct PlannedPass {
    params: sys::bops_gemm_dpre_params,
    dtype: DType,
    dout: MatrixPlace,
    saved: Option<MatrixPlace>,
    is_stored: bool,
    has_sums: bool,
}

/// The workspace of a run that uses so many bytes.
pub(in crate::ops) fn workspace(bytes: u64) -> WorkspaceReq {
    WorkspaceReq::new(bytes, WORKSPACE_ALIGN)
}

fn regions(bytes: u64) -> u64 {
    bytes.next_multiple_of(WORKSPACE_ALIGN)
}

impl Schedule {
    fn new(form: GemmForm, work: &Work, limits: &Limits<'_>) -> Result<Self, Reason> {
        let mut schedule = Self::default();
        match work {
            Work::Product(product) => {
                if !product.is_empty() || matches!(form, GemmForm::FewRows | GemmForm::FewRowsStream) {
                    schedule.products.push(Planned::new(form, product, limits)?);
                }
            }
            Work::Backward(geometry) => schedule.backward(form, geometry, limits)?,
        }
        schedule.share_copies();
        let scratch = schedule.planned().map(|planned| planned.scratch_bytes).max().unwrap_or(0);
        schedule.bytes = schedule.at.scratch_start + scratch;
        schedule.launches += schedule.planned().map(Planned::launches).sum::<u32>();
        schedule.launches += word(schedule.copies.len() as u64);
        Ok(schedule)
    }

    /// Gives copies of factors their places, one to those of several products that are the same.
    fn share_copies(&mut self) {
        let Self { recomputed, products, copies, at, .. } = self;
        at.copies_start = at.scratch_start;
        for planned in recomputed.iter_mut().chain(products) {
            for (place, copy) in [planned.left, planned.right].into_iter().zip(&mut planned.copies) {
                let Some(copy) = copy else { continue };
                match copies.iter().find(|(of, made)| *of == place && FactorCopy { at: copy.at, ..*made } == *copy) {
                    Some((_, made)) => copy.at = made.at,
                    None => {
                        copy.at = at.scratch_start - at.copies_start;
                        at.scratch_start += regions(copy.bytes());
                        copies.push((place, *copy));
                    }
                }
            }
        }
    }

    fn planned(&self) -> impl Iterator<Item = &Planned> {
        self.recomputed.iter().chain(&self.products)
    }

    fn backward(&mut self, form: GemmForm, geometry: &BackwardGeometry, limits: &Limits<'_>) -> Result<(), Reason> {
        let products: Vec<&Product> = geometry.da.iter().chain(&geometry.db).filter(|p| !p.is_empty()).collect();
        let has_sums = geometry.dbias.is_some();
        let is_stored = !products.is_empty();
        let mut dpre_bytes = if is_stored { geometry.dpre_bytes } else { 0 };
        // 1. dpre and the sums of its columns.
        let (mut sum_rows, mut sum_bytes) = (0, 0);
        match &geometry.dpre {
            Some(Dpre::Recomputed(product)) if !product.is_empty() && (is_stored || has_sums) => {
                // The bytes of the sums and of dpre are not available for other uses. How many sums there are depends on the tile; the smallest tile
                // bounds it.
                let sums = if has_sums { product::most_sum_bytes(product) } else { 0 };
                let of_product = limits.less(regions(dpre_bytes).saturating_add(regions(sums)));
                let planned = Planned::new(form, product, &of_product)?;
                let planned = Planned { out: planned.out.filter(|_| is_stored), has_sums, ..planned };
                if has_sums {
                    sum_rows = planned.sum_rows;
                    sum_bytes =
                        sum_rows.saturating_mul(product.n).saturating_mul(product::accumulator_bytes(planned.dtype));
                }
                self.recomputed = Some(planned);
            }
            Some(Dpre::Elementwise(pass)) if pass.m > 0 && pass.n > 0 && pass.batch.count() > 0 => {
                let dtype = match geometry.da.as_ref().or(geometry.db.as_ref()) {
                    Some(product) => product.left.dtype,
                    None => pass.dpre.map_or(product::narrowest(pass), |dpre| dpre.dtype),
                };
                let planned = PlannedPass::new(pass, dtype, is_stored && pass.dpre.is_some(), has_sums, limits)?;
                if has_sums {
                    sum_rows = pass.batch.count() * pass.m.div_ceil(u64::from(planned.params.rows));
                    sum_bytes = sum_rows.saturating_mul(pass.n).saturating_mul(product::accumulator_bytes(dtype));
                }
                self.launches += 1;
                self.pass = Some(planned);
            }
            _ => dpre_bytes = 0,
        }
        self.at.sums_start = regions(dpre_bytes);
        self.at.scratch_start = self.at.sums_start + regions(sum_bytes);
        if let Some(ColumnSums { n, sums, beta }) = geometry.dbias.filter(|sums| sums.n > 0) {
            let params = sys::bops_gemm_dbias_params { rows: sum_rows, n, stride: sums.stride, beta };
            bounded_blocks([n.div_ceil(DBIAS_COLUMNS)])?;
            self.dbias = Some((params, sums.dtype, sums.position));
            self.launches += 1;
        }
        // 2. The products.
        let of_products = limits.less(self.at.scratch_start);
        for product in products {
            self.products.push(Planned::new(form, product, &of_products)?);
        }
        Ok(())
    }
}

impl PlannedPass {
    fn new(
        pass: &DprePass,
        dtype: DType,
        is_stored: bool,
        has_sums: bool,
        limits: &Limits<'_>,
    ) -> Result<Self, Reason> {
        // 1. The tallest tiles that keep all SMs busy: each writes a row of sums.
        let columns = pass.n.div_ceil(u64::from(sys::BOPS_GEMM_DPRE_COLUMNS)).saturating_mul(pass.batch.count());
        let wanted = DPRE_BLOCKS * u64::from(limits.props.multiprocessors);
        let is_busy = |&rows: &u64| pass.m.div_ceil(rows).saturating_mul(columns) >= wanted;
        let least = u64::from(sys::BOPS_GEMM_DPRE_ROWS);
        let rows = [4 * least, 2 * least].into_iter().find(is_busy).unwrap_or(least);
        bounded_blocks([pass.m.div_ceil(rows), columns])?;
        // 2. Accesses.
        let beside = pass.saved.unwrap_or(pass.dout);
        let quads = pass.n.is_multiple_of(4)
            && [pass.dout, beside].iter().all(|m| product::in_quads(m, m.cols, m.rows, &pass.batch));
        let vector = 16 / dtype.size_bytes();
        let is_in_vectors = |matrix: &Matrix| {
            let strides = matrix.batch[..pass.batch.len()].iter().chain([&matrix.rows]);
            matrix.dtype == dtype
                && matrix.cols == 1
                && matrix.align_bytes >= 16
                && strides.copied().all(|stride| stride.is_multiple_of(vector))
        };
        let vectors =
            dtype != DType::F64 && pass.n.is_multiple_of(vector) && [pass.dout, beside].iter().all(is_in_vectors);
        let params = sys::bops_gemm_dpre_params {
            m: pass.m,
            n: pass.n,
            batch_rank: word(pass.batch.len() as u64),
            batch: product::padded(&pass.batch),
            dout: product::matrix(&pass.dout),
            saved: product::matrix(&beside),
            dout_dtype: c_dtype(pass.dout.dtype)?,
            saved_dtype: c_dtype(beside.dtype)?,
            activation: c_activation(pass.activation),
            from_out: u32::from(pass.from_out),
            quads: u32::from(quads),
            vectors: u32::from(vectors),
            rows: word(rows),
        };
        let saved = pass.saved.map(|saved| saved.place);
        Ok(Self { params, dtype, dout: pass.dout.place, saved, is_stored, has_sums })
    }
}

impl GemmForm {
    /// Whether a row of a product, asked for as one of many, depends on no other: its tile follows from n, and its accesses from the strides of rows that lie
    /// along k.
    fn promises(self, work: &Work) -> bool {
        let Work::Product(product) = work else { return false };
        let lies_along_k = product.left.cols == 1 && product.left.rows >= product.k;
        matches!(self, Self::Mma | Self::Simt) && lies_along_k
    }
}

impl<D: Working> Kernel<D> for GemmForm {
    fn name(&self) -> &'static str {
        match self {
            GemmForm::CublasLt => form_name!(D, "cublaslt"),
            GemmForm::Wgmma => form_name!(D, "wgmma"),
            GemmForm::Mma => form_name!(D, "mma"),
            GemmForm::Simt => form_name!(D, "simt"),
            GemmForm::FewRows => form_name!(D, "few_rows"),
            GemmForm::FewRowsStream => form_name!(D, "few_rows_stream"),
        }
    }

    fn backend(&self) -> Backend {
        Backend::Cuda
    }

    fn library(&self, device: &Device) -> Option<String> {
        library(*self, device)
    }

    fn accept<'d>(&self, descriptor: &'d D, options: &PlanOptions, props: &DeviceProps, ask: Ask) -> Accepted<'d> {
        let work = descriptor.work();
        if ask == Ask::Chosen {
            let limits = Limits::new(options, props, ask)?;
            let is_better = match &work {
                Work::Product(product) => wgmma::is_better(product, &limits),
                Work::Backward(geometry) => {
                    let mut products = geometry.da.iter().chain(&geometry.db);
                    products.any(|product| wgmma::is_better(product, &limits))
                        && Schedule::new(GemmForm::Wgmma, &work, &limits).is_ok()
                }
            };
            match self {
                GemmForm::CublasLt if is_better => {
                    let reason =
                        "gemm_wgmma is faster: it needs no pass for the epilogue, and copies rows that are not aligned";
                    return Err(reason.into());
                }
                GemmForm::Wgmma if !is_better => {
                    let reason = "it is chosen, if that is faster, for forward with an activation or pre and, of 16 bits, for rows that are not at multiples of 16 bytes; there have to be as many tiles as SMs, of f32 three quarters as many";
                    return Err(reason.into());
                }
                _ => {}
            }
        }
        let candidate = candidate(*self, &work, options, props, ask)?;
        Ok(candidate.batch_invariant_if(ask.is_invariant() && self.promises(&work)))
    }
}

/// The vendor's library, if that is the form.
pub(in crate::ops) fn library(form: GemmForm, device: &Device) -> Option<String> {
    if form != GemmForm::CublasLt {
        return None;
    }
    let version = cuda::Device::of(device).ok()?.cublaslt().ok()?.version();
    Some(format!("cuBLASLt {}", cublaslt::version_words(version)))
}

/// How a form would serve one product of operands, whichever op's it is.
pub(in crate::ops) fn product_candidate<'d>(
    form: GemmForm,
    product: Product,
    options: &PlanOptions,
    props: &DeviceProps,
    ask: Ask,
) -> Accepted<'d> {
    candidate(form, &Work::Product(Box::new(product)), options, props, ask)
}

fn candidate<'d>(form: GemmForm, work: &Work, options: &PlanOptions, props: &DeviceProps, ask: Ask) -> Accepted<'d> {
    let limits = Limits::new(options, props, ask)?;
    if form == GemmForm::Wgmma {
        wgmma::runs_on(limits.props)?; // checked also if there is no product
    }
    let schedule = Schedule::new(form, work, &limits)?;
    let is_rounded = schedule.planned().any(|planned| planned.rounds_to_tf32);
    Ok(Candidate {
        workspace: workspace(schedule.bytes),
        launches: schedule.launches,
        math: if is_rounded { Math::Tf32 } else { Math::Strict },
        ..Candidate::new(schedule.choice(), move |device| schedule.build(device))
    })
}

/// What was chosen for the products, in the order in which they run.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Choice {
    products: [Option<Tiles>; 3],
}

/// What was chosen for a product.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Tiles {
    first: Option<First>,
    finish: Option<sys::bops_gemm_finish_choice>,
}

impl Schedule {
    fn choice(&self) -> Choice {
        let mut products = self
            .planned()
            .map(|planned| Tiles { first: planned.first, finish: planned.finish.map(|(choice, _)| choice) });
        Choice { products: std::array::from_fn(|_| products.next()) }
    }

    fn build(self, device: &Device) -> Result<Built, BuildError> {
        let device = cuda::Device::of(device)?;
        let Self { pass, recomputed, dbias, products, copies, at, launches: mut count, .. } = self;
        let mut launches: Vec<Box<Run>> = Vec::new();
        let mut product = |planned: Planned, at| {
            let calls = planned.calls.len() as u64;
            let (run, of_call) = prepare(planned, device, at)?;
            // The candidate counts one for a call.
            count += word(calls * u64::from(of_call.saturating_sub(1)));
            Ok::<_, BuildError>(run)
        };
        let (of_dpre, of_operands): (Vec<_>, Vec<_>) =
            copies.into_iter().partition(|(place, _)| *place == MatrixPlace::Dpre);
        for (place, copy) in of_operands {
            launches.push(copy.prepare(device, place, at)?);
        }
        if let Some(pass) = pass {
            launches.push(pass.prepare(device, at)?);
        }
        if let Some(planned) = recomputed {
            launches.push(product(planned, at)?);
        }
        if let Some((params, dtype, index)) = dbias {
            let add_up = prepare_dbias(device, params, dtype)?;
            launches.push(Box::new(move |located: &Located<'_>, stream| {
                let sums = (located.workspace.address() + at.sums_start) as *const c_void;
                add_up(sums, located.pointer(index), stream)
            }));
        }
        for (place, copy) in of_dpre {
            launches.push(copy.prepare(device, place, at)?);
        }
        for planned in products {
            launches.push(product(planned, at)?);
        }
        let start = move |located: &Located<'_>, stream: *mut c_void| {
            launches.iter().map(|launch| launch(located, stream)).find(|&status| status != 0).unwrap_or(0)
        };
        Ok(Built(Exec::Cuda(Launch { launches: Some(count), ..Launch::new("bops_gemm", start) })))
    }
}

/// Part of a run; returns the status of its launches.
type Run = dyn Fn(&Located<'_>, *mut c_void) -> i32 + Send + Sync;

/// Where the regions of the workspace begin; dpre is the first.
#[derive(Clone, Copy, Default)]
pub(in crate::ops) struct Regions {
    sums_start: u64,
    copies_start: u64,
    scratch_start: u64,
}

impl Regions {
    fn address(located: &Located<'_>, place: MatrixPlace) -> *mut c_void {
        match place {
            MatrixPlace::Operand(position) => located.pointer(position),
            MatrixPlace::Dpre => located.workspace_pointer(),
        }
    }
}

impl FactorCopy {
    fn prepare(self, device: &cuda::Device, of: MatrixPlace, at: Regions) -> Result<Box<Run>, BuildError> {
        let Self { params, is_turned, at: start } = self;
        let (name, prepare, launch): (_, unsafe extern "C" fn(_) -> _, unsafe extern "C" fn(_, _, _, _) -> _) =
            if is_turned {
                ("bops_gemm_turn", sys::bops_gemm_turn_prepare, sys::bops_gemm_turn_launch)
            } else {
                ("bops_gemm_repack", sys::bops_gemm_repack_prepare, sys::bops_gemm_repack_launch)
            };
        // SAFETY: the params live across the call.
        device.prepare(name, (), || unsafe { prepare(&params) })?;
        Ok(Box::new(move |located, stream| {
            let to = (located.workspace.address() + at.copies_start + start) as *mut c_void;
            // SAFETY: the generic check proved the operand's span and alignment, and that the workspace holds every region.
            unsafe { launch(&params, Regions::address(located, of), to, stream) }
        }))
    }
}

impl PlannedPass {
    fn prepare(self, device: &cuda::Device, at: Regions) -> Result<Box<Run>, BuildError> {
        let Self { params, dtype, dout, saved, is_stored, has_sums } = self;
        let dtype = c_dtype(dtype)?;
        device.prepare("bops_gemm_dpre", [dtype], || {
            // SAFETY: the params live across the call.
            unsafe { sys::bops_gemm_dpre_prepare(&params, dtype) }
        })?;
        Ok(Box::new(move |located, stream| {
            let address = |place| Regions::address(located, place);
            let saved = saved.map_or(std::ptr::null_mut(), address);
            let to = if is_stored { address(MatrixPlace::Dpre) } else { std::ptr::null_mut() };
            let sums = (located.workspace.address() + at.sums_start) as *mut c_void;
            let sums = if has_sums { sums } else { std::ptr::null_mut() };
            // SAFETY: the generic check proved every operand's span and alignment, and that the workspace holds every region.
            unsafe { sys::bops_gemm_dpre_launch(&params, dtype, address(dout), saved, to, sums, stream) }
        }))
    }
}

/// Makes a product ready to run, and counts the launches of each of the library's calls.
fn prepare(planned: Planned, device: &cuda::Device, at: Regions) -> Result<(Box<Run>, u32), BuildError> {
    let dtype = c_dtype(planned.dtype)?;
    let forms = Forms { device, params: planned.params, dtype };
    let mut of_call = 1;
    let prepared = planned.first.map(|first| match first {
        First::Simt(choice) => forms.prepare(&calls!(bops_gemm_simt), choice),
        First::Mma(choice) => forms.prepare(&calls!(bops_gemm_mma), choice),
        First::FewRows(choice) => forms.prepare(&calls!(bops_gemm_few_rows), choice),
        First::FewRowsStream(choice) => forms.prepare(&calls!(bops_gemm_few_rows_stream), choice),
        First::Wgmma(choice) => forms.prepare(&calls!(bops_gemm_wgmma), choice),
        First::WgmmaWords(choice) => forms.prepare(&calls!(bops_gemm_wgmma_words), choice),
        First::Vendor(problem) => {
            let plan = device.cublaslt()?.plan(device, &problem)?;
            of_call = plan.launches();
            Ok(planned.calls_of(plan))
        }
    });
    let first = prepared.transpose()?;
    let finish = planned.prepare_finish(device)?;
    let run = move |located: &Located<'_>, stream| {
        let operands = planned.operands(located, at);
        let launches = first.iter().chain(&finish);
        launches.map(|launch| launch(&operands, stream)).find(|&status| status != 0).unwrap_or(0)
    };
    Ok((Box::new(run), of_call))
}

impl Planned {
    /// The calls of the vendor's library.
    fn calls_of(&self, plan: cublaslt::Plan) -> Box<ProductLaunch> {
        let (calls, product_bytes) = (self.calls.clone(), to_usize(self.product_bytes));
        let source = self.finish.map(|(_, source)| source);
        Box::new(move |operands, stream| {
            let out = match source {
                Some(Source::Scratch) => operands.parts,
                Some(Source::Other) => operands.other,
                Some(Source::Out) | None => operands.out,
            };
            // Begins behind the product, if that lies in the scratch region.
            let work = operands.parts.wrapping_byte_add(product_bytes);
            let call = |starts: &[u64; 3]| {
                let [of_first, of_second, of_out] = starts.map(to_usize);
                // Column-major, the product is that of the factors in reverse order.
                let operands = cublaslt::Operands {
                    first: operands.right.wrapping_byte_add(of_first),
                    second: operands.left.wrapping_byte_add(of_second),
                    out: out.wrapping_byte_add(of_out),
                    bias: operands.bias,
                };
                // SAFETY: the generic check proved every operand's span and alignment, and the problem has the layouts of the operands.
                unsafe { plan.launch(operands, work, stream) }
            };
            calls.iter().map(call).find(|&status| status != 0).unwrap_or(0)
        })
    }

    pub(in crate::ops) fn operands(&self, located: &Located<'_>, at: Regions) -> sys::bops_gemm_operands {
        let address = |place: MatrixPlace| Regions::address(located, place);
        let optional = |place: Option<MatrixPlace>| place.map_or(std::ptr::null_mut(), address);
        let sums = (located.workspace.address() + at.sums_start) as *mut c_void;
        let scratch = (located.workspace.address() + at.scratch_start) as *mut c_void;
        let factor = |place, copy: Option<FactorCopy>| match copy {
            Some(copy) => (located.workspace.address() + at.copies_start + copy.at) as *mut c_void,
            None => address(place),
        };
        let [of_left, of_right] = self.copies;
        sys::bops_gemm_operands {
            left: factor(self.left, of_left),
            right: factor(self.right, of_right),
            bias: located.optional(self.bias),
            out: optional(self.out),
            other: optional(self.other),
            parts: scratch,
            column_sums: if self.has_sums { sums } else { std::ptr::null_mut() },
        }
    }
}

#[cfg(test)]
mod tests;
