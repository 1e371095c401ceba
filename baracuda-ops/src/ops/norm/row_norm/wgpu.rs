//! The WGSL kernels of the family: which serves which rows, and what they bind.

use bytemuck::{Pod, Zeroable};

use super::{Backward, BackwardFields, Forward, ForwardFields, RowGeometry, RowNorm, Valid, backward, forward};
use crate::backend::wgpu::{Binding, Place, Program, Props, StepBuilder, grid};
use crate::backend::{Backend, Device, DeviceKind, DeviceProps};
use crate::dtype::DType;
use crate::error::Reason;
use crate::options::{PlanOptions, WorkspaceReq};
use crate::plan::{BuildError, Built, Choice, Exec, Kernel, Slot};
use crate::tensor::TensorDesc;

/// The forward kernels.
pub(crate) struct Wgpu;

impl<D: Forward> Kernel<D> for Wgpu {
    fn name(&self) -> &'static str {
        match D::NAME {
            "layer_norm" => "layer_norm_wgsl",
            _ => "rms_norm_wgsl",
        }
    }

    fn backend(&self) -> Backend {
        Backend::Wgpu
    }

    fn accept(&self, descriptor: &D, _: &PlanOptions, props: &DeviceProps) -> Result<Choice, Reason> {
        let DeviceProps::Wgpu(props) = props else { return Err("it runs on wgpu".into()) };
        Ok(forward_work(descriptor.valid(), props)?.choice())
    }

    fn build(&self, descriptor: &D, _: Choice, device: &Device) -> Result<Built, BuildError> {
        build(device, |props| forward_work(descriptor.valid(), props))
    }
}

/// The kernels of the gradients.
pub(crate) struct WgpuBackward;

impl<D: Backward> Kernel<D> for WgpuBackward {
    fn name(&self) -> &'static str {
        match D::NAME {
            "layer_norm_backward" => "layer_norm_backward_wgsl",
            _ => "rms_norm_backward_wgsl",
        }
    }

    fn backend(&self) -> Backend {
        Backend::Wgpu
    }

    fn accept(&self, descriptor: &D, _: &PlanOptions, props: &DeviceProps) -> Result<Choice, Reason> {
        let DeviceProps::Wgpu(props) = props else { return Err("it runs on wgpu".into()) };
        Ok(backward_work(descriptor.valid(), props)?.choice())
    }

    fn build(&self, descriptor: &D, _: Choice, device: &Device) -> Result<Built, BuildError> {
        build(device, |props| backward_work(descriptor.valid(), props))
    }
}

fn build(device: &Device, work: impl FnOnce(&Props) -> Result<Work, Reason>) -> Result<Built, BuildError> {
    let DeviceKind::Wgpu(device) = &device.0 else { return Err(BuildError::Refused("it runs on wgpu".into())) };
    let work = work(device.props()).map_err(BuildError::Refused)?;
    Ok(Built(Exec::Wgpu(Program::new(device, work.steps)?)))
}

/// The dispatches of a plan, and the workspace between them.
struct Work {
    steps: Vec<StepBuilder>,
    workspace_bytes: u64,
    workspace_align: u64,
    tuning: [u32; 12],
}

impl Work {
    fn choice(&self) -> Choice {
        let (bytes, align) = (self.workspace_bytes, self.workspace_align);
        let workspace = if bytes == 0 { WorkspaceReq::NONE } else { WorkspaceReq { bytes, align } };
        Choice { workspace, launches: self.steps.len() as u32, tuning: self.tuning, ..Choice::PLAIN }
    }
}

/// How the threads of a row meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reduce {
    /// Within one subgroup.
    Lanes,
    /// Over the subgroups of a workgroup, of which there are at most this many.
    Subgroups(u32),
    /// In workgroup memory.
    Tree,
}

impl Reduce {
    fn file(self) -> &'static str {
        match self {
            Self::Lanes => "common/reduce_lanes",
            Self::Subgroups(_) => "common/reduce_subgroups",
            Self::Tree => "common/reduce_tree",
        }
    }
}

/// How a row is spread over threads: each holds `chunks` chunks of 16 bytes in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Team {
    threads: u32,
    chunks: u32,
    workgroup: u32,
    reduce: Reduce,
}

/// Threads of a workgroup that holds several rows.
const SHARED_WORKGROUP: u32 = 128;
/// Threads and chunks of a workgroup that holds a slice of a row, forward.
const SLICE_TEAM: (u32, u32) = (256, 8);
/// The same for the sums and for dx, backward.
const BACKWARD_SLICE_TEAMS: [(u32, u32); 2] = [(256, 4), (256, 2)];
/// Most chunks of a row held by (threads, chunks each), forward.
const RESIDENT: &[(u32, u32)] = &[
    (8, 1),
    (16, 1),
    (32, 1),
    (32, 2),
    (32, 4),
    (32, 8),
    (128, 4),
    (256, 4),
    (512, 4),
    (512, 8),
    (256, 8),
    (256, 16),
];
/// The same backward, where a thread holds chunks of two tensors and the sums of its columns besides.
const BACKWARD_RESIDENT: &[(u32, u32)] =
    &[(8, 1), (16, 1), (32, 1), (32, 2), (32, 4), (64, 4), (128, 4), (256, 4), (512, 4)];
/// As `BACKWARD_RESIDENT`, for rows of which a thread holds only the sums and reads dy and x twice.
const BACKWARD_RELOADING: (u32, u32) = (512, 8);
/// Most quads of sums for each chunk that leave such a thread enough registers.
const RELOADING_SUMS: u64 = 2;
/// Rows below which a long row is split although a workgroup could hold it: too few workgroups would be at work.
const FEW_ROWS: u64 = 96;
/// Chunks from which on a row counts as long.
const LONG_ROW: u64 = 2048;
/// Workgroups of `threads` threads that keep a large GPU busy, given the chunks that each thread holds: 132 multiprocessors with as
/// many threads as registers allow.
const fn busy_groups(threads: u32, chunks: u32) -> u64 {
    let resident_threads = if chunks > 2 { 512 } else { 1024 };
    let per_multiprocessor = resident_threads / threads;
    132 * if per_multiprocessor == 0 { 1 } else { per_multiprocessor as u64 }
}
/// Longest chain of additions of a parameter's gradient in one thread's registers.
const LONGEST_CHAIN: u64 = 22;
/// Most rows that a thread adds up.
const MOST_ROUNDS: u64 = 256;
/// Fewest rows that a thread adds up before it hands its sums on.
const FEWEST_ROUNDS: u64 = 4;
/// Threads of the workgroups that sum the parameters' gradients, and the chunks of columns that each has.
const PARAMETER_WORKGROUP: u32 = 256;
const PARAMETER_COLUMNS: u64 = 8;

impl Team {
    fn new((threads, chunks): (u32, u32), workgroup: u32, props: &Props) -> Self {
        let (threads, workgroup) = (threads.min(props.max_threads), workgroup.max(threads).min(props.max_threads));
        let reduce = match props.subgroup_sizes {
            Some((narrowest, _)) if threads <= narrowest => Reduce::Lanes,
            Some((narrowest, _)) if threads == workgroup => Reduce::Subgroups(workgroup.div_ceil(narrowest.max(1))),
            _ => Reduce::Tree,
        };
        Self { threads, chunks, workgroup, reduce }
    }

    /// The first of `table` that holds a row of `row_chunks` chunks on the device.
    fn resident(table: &[(u32, u32)], row_chunks: u64, props: &Props) -> Option<Self> {
        let fits = |&&(threads, chunks): &&(u32, u32)| {
            threads <= props.max_threads && u64::from(threads) * u64::from(chunks) >= row_chunks
        };
        let &(threads, chunks) = table.iter().find(fits)?;
        let workgroup = if threads <= 32 { SHARED_WORKGROUP } else { threads };
        Some(Self::new((threads, chunks), workgroup, props))
    }

    fn rows(self) -> u64 {
        u64::from(self.workgroup / self.threads)
    }

    fn slice_chunks(self) -> u64 {
        u64::from(self.threads) * u64::from(self.chunks)
    }

    fn constants(self) -> Vec<(&'static str, u32)> {
        let mut constants =
            vec![("WORKGROUP", self.workgroup), ("THREADS", self.threads), ("CHUNKS", self.chunks)];
        if let Reduce::Subgroups(most) = self.reduce {
            constants.push(("MOST_SUBGROUPS", most));
        }
        constants
    }
}

/// What all kernels of the family ask of their rows.
struct Rows {
    geometry: RowGeometry,
    /// Elements of a chunk of 16 bytes.
    elements: u64,
    /// Chunks of a row, the last perhaps cut.
    chunks: u64,
    /// Whether no chunk is cut and rows start at chunks.
    can_chunk: bool,
    dtype: &'static str,
}

impl Rows {
    fn new(x: &TensorDesc, tensors: &[&TensorDesc], normalized_dims: usize) -> Result<Self, Reason> {
        if x.dtype() == DType::F64 {
            return Err("WGSL has no arithmetic of f64 to rely on".into());
        }
        let geometry = RowGeometry::new(tensors, normalized_dims)?;
        let elements = 16 / x.dtype().size_bytes();
        let whole = |strides: &[u64; 3]| strides.iter().all(|stride| stride.is_multiple_of(elements));
        let can_chunk = geometry.cols.is_multiple_of(elements) && geometry.strides.iter().all(whole);
        let chunks = geometry.cols.div_ceil(elements);
        Ok(Self { geometry, elements, chunks, can_chunk, dtype: x.dtype().name() })
    }

    fn is_half(&self) -> bool {
        self.elements == 8
    }

    /// Strides of the tensor at `index` as the shader reads them.
    fn strides(&self, index: Option<usize>) -> [u32; 3] {
        index.map_or([0; 3], |i| self.geometry.strides[i].map(|stride| stride as u32))
    }

    fn prelude(&self) -> Vec<&'static str> {
        prelude(self.dtype)
    }

    /// The accessors of a tensor of rows, aligned and not.
    fn input(&self) -> [&'static str; 2] {
        ["chunks_in", if self.is_half() { "halves_in" } else { "words_in" }]
    }

    fn output(&self) -> [&'static str; 2] {
        ["chunks_out", if self.is_half() { "halves_out" } else { "words_out" }]
    }
}

fn prelude(dtype: &'static str) -> Vec<&'static str> {
    match dtype {
        "f32" => vec!["common/f32"],
        "f16" => vec!["common/f16", "common/half"],
        _ => vec!["common/bf16", "common/half"],
    }
}

/// The accessors of a parameter, aligned and not.
fn parameter(dtype: DType) -> [&'static str; 2] {
    match dtype {
        DType::F32 => ["quads_f32_in", "values_f32_in"],
        _ => ["quads_half_in", "values_half_in"],
    }
}

/// Refuses operands that u32 indices or the device's bindings do not reach, and small operands that are not dense.
fn check_reach(slots: &[Slot], dense: &[&str], props: &Props) -> Result<(), Reason> {
    let align = u64::from(props.binding_align.max(16));
    for slot in slots {
        let most = props.max_binding_bytes.min(u64::from(u32::MAX)).saturating_sub(align);
        if slot.span_bytes > most {
            let (name, span) = (slot.name, slot.span_bytes);
            return Err(format!("{name} spans {span} bytes, this device binds at most {most}").into());
        }
        if dense.contains(&slot.name) && !slot.desc.is_contiguous() {
            return Err(format!("{} is not contiguous: strides {:?}", slot.name, slot.desc.strides()).into());
        }
    }
    Ok(())
}

fn check_bindings(steps: &[StepBuilder], props: &Props) -> Result<(), Reason> {
    let bound = |step: &StepBuilder| step.bindings.iter().filter(|b| b.place.is_some()).count();
    let most = steps.iter().map(bound).max().unwrap_or(0);
    if most as u64 > u64::from(props.max_storage_buffers) {
        let limit = props.max_storage_buffers;
        return Err(format!("it binds {most} storage buffers, the limit of this device is {limit}").into());
    }
    Ok(())
}

fn check_workspace(bytes: u64, props: &Props) -> Result<(), Reason> {
    if bytes > props.max_binding_bytes {
        let limit = props.max_binding_bytes;
        return Err(format!("it needs {bytes} bytes of workspace, this device binds at most {limit}").into());
    }
    Ok(())
}

fn groups(count: u64, props: &Props) -> Result<[u32; 2], Reason> {
    grid(count, props).ok_or_else(|| {
        let most = u64::from(props.max_groups).pow(2);
        format!("it needs {count} workgroups, the limit of this device is {most}").into()
    })
}

/// Binds operands of one descriptor by name.
struct Binder<'s> {
    slots: &'s [Slot],
}

impl Binder<'_> {
    /// An operand at its position, if declared and not empty.
    fn operand(&self, name: &'static str, accessors: [&'static str; 2], absent: &'static str) -> Binding {
        match self.slots.iter().find(|slot| slot.name == name && !slot.desc.is_empty()) {
            Some(slot) => Binding { name, place: Some(Place::Operand(slot.position)), accessors },
            None => Binding::absent(name, absent),
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct ForwardParams {
    rows: u32,
    cols: u32,
    extents: [u32; 2],
    x: [u32; 4],
    residual: [u32; 4],
    y: [u32; 4],
    h: [u32; 3],
    eps: f32,
    weight_offset: f32,
    reciprocal_cols: f32,
    slices: u32,
    groups_x: u32,
    tail_cols: u32,
    padding: [u32; 3],
}

/// A stride triple in the place of a `vec3` that a `vec3` follows.
fn padded([s0, s1, s2]: [u32; 3]) -> [u32; 4] {
    [s0, s1, s2, 0]
}

fn forward_work(norm: &Valid<ForwardFields>, props: &Props) -> Result<Work, Reason> {
    let fields = &norm.fields;
    let slots: &[Slot] = &norm.slots;
    check_reach(slots, &["weight", "bias", "mean", "rstd"], props)?;
    let of_rows = [forward::X, forward::RESIDUAL, forward::Y, forward::H];
    let tensors: Vec<&Slot> = slots.iter().filter(|slot| of_rows.contains(&slot.position)).collect();
    let descs: Vec<&TensorDesc> = tensors.iter().map(|slot| &slot.desc).collect();
    let rows = Rows::new(&fields.x, &descs, fields.normalized_dims)?;
    let strides = |position| rows.strides(tensors.iter().position(|slot| slot.position == position));
    let (row_count, cols) = (rows.geometry.rows, rows.geometry.cols);

    let resident = Team::resident(RESIDENT, rows.chunks, props);
    let resident = resident.filter(|_| row_count >= FEW_ROWS || rows.chunks < LONG_ROW);
    let team = resident.unwrap_or_else(|| Team::new(SLICE_TEAM, SLICE_TEAM.0, props));
    let slices = if resident.is_some() { 1 } else { rows.chunks.div_ceil(team.slice_chunks()) };
    let slice_cols = team.slice_chunks() * rows.elements;
    let group_count = row_count.div_ceil(team.rows()) * slices;
    let grid = groups(group_count, props)?;
    let params = ForwardParams {
        rows: row_count as u32,
        cols: cols as u32,
        extents: rows.geometry.extents.map(|extent| extent as u32),
        x: padded(strides(forward::X)),
        residual: padded(strides(forward::RESIDUAL)),
        y: padded(strides(forward::Y)),
        h: strides(forward::H),
        // Rows without columns have mean 0 and rstd NaN.
        eps: if cols == 0 { f32::NAN } else { fields.eps.get() as f32 },
        weight_offset: fields.weight_offset.get() as f32,
        reciprocal_cols: if cols == 0 { 0.0 } else { (1.0 / cols as f64) as f32 },
        slices: slices as u32,
        groups_x: grid[0],
        tail_cols: (cols.saturating_sub((slices - 1) * slice_cols)) as u32,
        padding: [0; 3],
    };
    let mut tuning = [0; 12];
    tuning[..4].copy_from_slice(&[team.workgroup, team.threads, team.chunks, slices as u32]);
    let mut work = Work { steps: Vec::new(), workspace_bytes: 0, workspace_align: props.workspace_align(), tuning };
    if row_count == 0 {
        return Ok(work);
    }

    let operands = Binder { slots };
    let input = |name| operands.operand(name, rows.input(), "absent_in");
    let output = |name| operands.operand(name, rows.output(), "absent_out");
    let weight = operands.operand("weight", parameter(fields.weight.unwrap_or(DType::F32)), "absent_quads");
    let bias = operands.operand("bias", parameter(fields.bias.unwrap_or(DType::F32)), "absent_quads");
    let statistics = |name| operands.operand(name, ["statistics_out"; 2], "absent_statistics");
    let absent_weights = ["weight", "bias"].map(|name| Binding::absent(name, "absent_quads"));
    let absent_statistics = ["mean", "rstd"].map(|name| Binding::absent(name, "absent_statistics"));
    let step = |entry, file: Option<&'static str>, params: ForwardParams, bindings| {
        let mut files = rows.prelude();
        let kind = if norm.kind == RowNorm::Layer { "norm/layer_norm" } else { "norm/rms_norm" };
        files.extend(["common/number", "common/row", team.reduce.file(), kind, "norm/row_norm"]);
        files.extend(file);
        StepBuilder {
            entry,
            files,
            constants: team.constants(),
            flags: Vec::new(),
            bindings,
            can_chunk: rows.can_chunk,
            params: bytemuck::bytes_of(&params).to_vec(),
            grid,
        }
    };
    let [mean, rstd] = ["mean", "rstd"].map(statistics);
    if resident.is_some() {
        let bindings =
            vec![input("x"), input("residual"), weight, bias, output("y"), output("h"), mean, rstd];
        work.steps.push(step("row_norm_resident", None, params, bindings));
    } else {
        let bytes = row_count * slices * 16;
        check_workspace(bytes, props)?;
        work.workspace_bytes = bytes;
        let moments = |accessor| Binding {
            name: "moments",
            place: Some(Place::Workspace { offset: 0, bytes }),
            accessors: [accessor; 2],
        };
        let mut bindings = vec![input("x"), input("residual"), output("h"), moments("partials_out")];
        bindings.push(Binding::absent("y", "absent_out"));
        bindings.extend(absent_weights);
        bindings.extend(absent_statistics);
        work.steps.push(step("row_norm_split_moments", Some("norm/row_norm_split_moments"), params, bindings));
        // The sum with the residual is what the second dispatch normalises, and it lies in h.
        let mut normalized = input("x");
        let mut params = params;
        if fields.residual {
            normalized = Binding { name: "x", ..input("h") };
            params.x = padded(params.h);
        }
        let mut bindings = vec![normalized, weight, bias, output("y"), mean, rstd, moments("partials_in")];
        bindings.push(Binding::absent("residual", "absent_in"));
        bindings.push(Binding::absent("h", "absent_out"));
        work.steps.push(step("row_norm_split_apply", Some("norm/row_norm_split_apply"), params, bindings));
    }
    check_bindings(&work.steps, props)?;
    Ok(work)
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct BackwardParams {
    rows: u32,
    cols: u32,
    extents: [u32; 2],
    dy: [u32; 4],
    x: [u32; 4],
    dh: [u32; 4],
    dx: [u32; 3],
    weight_offset: f32,
    reciprocal_cols: f32,
    rounds: u32,
    blocks: u32,
    slices: u32,
    sum_slices: u32,
    groups_x: u32,
    partials: u32,
    sums_first: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct ParametersParams {
    cols: u32,
    partials: u32,
    quads: u32,
    sums_first: u32,
    groups_x: u32,
    padding: [u32; 3],
}

/// How many rows a thread adds up: `blocks` times `rounds`, in as many workgroups as there are partial sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Partition {
    rounds: u64,
    blocks: u64,
    partials: u64,
}

impl Partition {
    /// Rows of `teams` at a time, spread over about `wanted` workgroups.
    fn new(rows: u64, teams: u64, wanted: u64, has_parameters: bool) -> Self {
        let turns = rows.div_ceil(teams);
        if !has_parameters {
            return Self { rounds: 1, blocks: 1, partials: turns };
        }
        let per_group = turns.div_ceil(wanted).clamp(FEWEST_ROUNDS, MOST_ROUNDS);
        let blocks = per_group.div_ceil(LONGEST_CHAIN);
        let rounds = per_group.div_ceil(blocks);
        Self { rounds, blocks, partials: turns.div_ceil(rounds * blocks) }
    }
}

fn backward_work(norm: &Valid<BackwardFields>, props: &Props) -> Result<Work, Reason> {
    let fields = &norm.fields;
    let slots: &[Slot] = &norm.slots;
    check_reach(slots, &["weight", "mean", "rstd", "dweight", "dbias"], props)?;
    let of_rows = [backward::DY, backward::X, backward::DH, backward::DX];
    let tensors: Vec<&Slot> = slots.iter().filter(|slot| of_rows.contains(&slot.position)).collect();
    let descs: Vec<&TensorDesc> = tensors.iter().map(|slot| &slot.desc).collect();
    let rows = Rows::new(&fields.x, &descs, fields.normalized_dims)?;
    let strides = |position| rows.strides(tensors.iter().position(|slot| slot.position == position));
    let (row_count, cols) = (rows.geometry.rows, rows.geometry.cols);
    let gradients = u64::from(fields.dweight) + u64::from(fields.dbias.is_some());
    let has_parameters = gradients > 0;

    let mut reloads = false;
    let resident = Team::resident(BACKWARD_RESIDENT, rows.chunks, props).or_else(|| {
        reloads = gradients * rows.elements / 4 <= RELOADING_SUMS;
        Team::resident(&[BACKWARD_RELOADING], rows.chunks, props).filter(|_| reloads)
    });
    let resident = resident.filter(|_| row_count >= FEW_ROWS || rows.chunks < LONG_ROW);
    let reloads = reloads && resident.is_some();
    let is_split = resident.is_none();
    let team = resident.unwrap_or_else(|| Team::new(BACKWARD_SLICE_TEAMS[1], BACKWARD_SLICE_TEAMS[1].0, props));
    let sum_team = Team::new(BACKWARD_SLICE_TEAMS[0], BACKWARD_SLICE_TEAMS[0].0, props);
    let slices = rows.chunks.div_ceil(team.slice_chunks()).max(1);
    let sum_slices = rows.chunks.div_ceil(sum_team.slice_chunks()).max(1);
    let wanted = busy_groups(team.workgroup, team.chunks).div_ceil(slices);
    let partition = Partition::new(row_count, team.rows(), wanted, has_parameters);

    let has_sums = is_split && fields.dx;
    let quads = rows.chunks * rows.elements / 4;
    let sum_quads = if has_sums { row_count * sum_slices } else { 0 };
    let quad_count = sum_quads + gradients * partition.partials * quads;
    let workspace_bytes = 16 * quad_count;
    check_workspace(workspace_bytes, props)?;
    if quad_count > u64::from(u32::MAX) {
        return Err(format!("it needs {quad_count} quads of sums, its indices reach {}", u32::MAX).into());
    }
    let rows_grid = groups(partition.partials * slices, props)?;
    let sums_grid = groups(row_count * sum_slices, props)?;
    let params = BackwardParams {
        rows: row_count as u32,
        cols: cols as u32,
        extents: rows.geometry.extents.map(|extent| extent as u32),
        dy: padded(strides(backward::DY)),
        x: padded(strides(backward::X)),
        dh: padded(strides(backward::DH)),
        dx: strides(backward::DX),
        weight_offset: fields.weight_offset.get() as f32,
        reciprocal_cols: if cols == 0 { 0.0 } else { (1.0 / cols as f64) as f32 },
        rounds: partition.rounds as u32,
        blocks: partition.blocks as u32,
        slices: slices as u32,
        sum_slices: sum_slices as u32,
        groups_x: rows_grid[0],
        partials: partition.partials as u32,
        sums_first: sum_quads as u32,
    };
    let mut tuning = [0; 12];
    let numbers = [slices, partition.rounds, partition.blocks, partition.partials].map(|n| n as u32);
    tuning[..3].copy_from_slice(&[team.workgroup, team.threads, team.chunks]);
    tuning[3..7].copy_from_slice(&numbers);
    let workspace_align = props.workspace_align();
    let mut work = Work { steps: Vec::new(), workspace_bytes, workspace_align, tuning };
    if cols == 0 {
        return Ok(work);
    }

    let operands = Binder { slots };
    let input = |name| operands.operand(name, rows.input(), "absent_in");
    let weight = operands.operand("weight", parameter(fields.weight.unwrap_or(DType::F32)), "absent_quads");
    let statistics = |name| operands.operand(name, ["statistics_in"; 2], "absent_statistics");
    let workspace = |accessor| match workspace_bytes {
        0 => Binding::absent("work", "absent_partials"),
        bytes => Binding {
            name: "work",
            place: Some(Place::Workspace { offset: 0, bytes }),
            accessors: [accessor; 2],
        },
    };
    let step = |entry, file: Option<&'static str>, team: Team, flags, params: BackwardParams, grid, bindings| {
        let mut files = rows.prelude();
        let kind = if norm.kind == RowNorm::Layer { "norm/layer_norm" } else { "norm/rms_norm" };
        files.extend(["common/row", team.reduce.file(), kind, "norm/row_norm_backward"]);
        files.extend(file);
        StepBuilder {
            entry,
            files,
            constants: team.constants(),
            flags,
            bindings,
            can_chunk: rows.can_chunk,
            params: bytemuck::bytes_of(&params).to_vec(),
            grid,
        }
    };
    let flags = |dx, dweight, dbias, reloads| {
        vec![
            ("WANTS_DX", dx),
            ("WANTS_DWEIGHT", dweight),
            ("WANTS_DBIAS", dbias),
            ("SPLIT", is_split),
            ("RELOADS", reloads),
        ]
    };
    let [mean, rstd] = ["mean", "rstd"].map(statistics);
    if row_count > 0 {
        if has_sums {
            let params = BackwardParams { groups_x: sums_grid[0], ..params };
            let bindings = vec![
                input("dy"),
                input("x"),
                weight,
                mean,
                rstd,
                Binding::absent("dh", "absent_in"),
                Binding::absent("dx", "absent_out"),
                workspace("partials_out"),
            ];
            let flags = flags(true, false, false, false);
            let file = Some("norm/row_norm_backward_split_sums");
            work.steps.push(step("row_norm_backward_split_sums", file, sum_team, flags, params, sums_grid, bindings));
        }
        let bindings = vec![
            input("dy"),
            input("x"),
            weight,
            mean,
            rstd,
            input("dh"),
            operands.operand("dx", rows.output(), "absent_out"),
            workspace("partials_out"),
        ];
        let flags = flags(fields.dx, fields.dweight, fields.dbias.is_some(), reloads);
        work.steps.push(step("row_norm_backward_rows", None, team, flags, params, rows_grid, bindings));
    }
    if has_parameters {
        work.steps.push(parameters_step(norm, params, quads, &operands, workspace("partials_in"), props)?);
    }
    check_bindings(&work.steps, props)?;
    Ok(work)
}

/// dweight and dbias from the sums in the workspace; zeros if there are no rows.
fn parameters_step(
    norm: &Valid<BackwardFields>,
    rows: BackwardParams,
    quads: u64,
    operands: &Binder<'_>,
    workspace: Binding,
    props: &Props,
) -> Result<StepBuilder, Reason> {
    let fields = &norm.fields;
    let dtype = fields.weight.filter(|_| fields.dweight).or(fields.dbias).unwrap_or(DType::F32);
    let chunks = u64::from(rows.cols).div_ceil(16 / dtype.size_bytes());
    let gradients = u64::from(fields.dweight) + u64::from(fields.dbias.is_some());
    let grid = groups(chunks.div_ceil(PARAMETER_COLUMNS) * gradients, props)?;
    let params = ParametersParams {
        cols: rows.cols,
        partials: rows.partials,
        quads: quads as u32,
        sums_first: rows.sums_first,
        groups_x: grid[0],
        padding: [0; 3],
    };
    let accessors = ["chunks_out", if dtype == DType::F32 { "words_out" } else { "halves_out" }];
    let mut files = prelude(dtype.name());
    files.push("norm/row_norm_backward_parameters");
    Ok(StepBuilder {
        entry: "row_norm_backward_parameters",
        files,
        constants: vec![("WORKGROUP", PARAMETER_WORKGROUP.min(props.max_threads))],
        flags: Vec::new(),
        bindings: vec![
            operands.operand("dweight", accessors, "absent_out"),
            operands.operand("dbias", accessors, "absent_out"),
            workspace,
        ],
        can_chunk: u64::from(rows.cols).is_multiple_of(16 / dtype.size_bytes()),
        params: bytemuck::bytes_of(&params).to_vec(),
        grid,
    })
}

/// The text of every kind of shader of the family, with what it is for: for checks that need no device.
pub fn wgsl_variants() -> impl Iterator<Item = (String, String)> {
    let mut texts = Vec::new();
    for props in [Some(32), Some(8), None].map(variant_props) {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            for cols in [64, 1024, 40_000] {
                for (parameters, has_all) in [(None, false), (Some(dtype), true), (Some(DType::F32), true)] {
                    let mut add = |name: &str, work: Result<Work, Reason>| {
                        for step in work.into_iter().flat_map(|work| work.steps) {
                            let reduce = props.subgroup_sizes.map_or("tree".into(), |(width, _)| format!("width {width}"));
                            for (is_chunked, is_shared) in [(true, false), (true, true), (false, false), (false, true)] {
                                let name = format!(
                                    "{name} {} {dtype} cols {cols} parameters {parameters:?} {reduce} chunked {is_chunked} shared {is_shared}",
                                    step.entry
                                );
                                texts.push((name, step.source(is_chunked).assemble(is_shared, props.has_immediates())));
                            }
                        }
                    };
                    for kind in [RowNorm::Layer, RowNorm::Rms] {
                        if let Ok((forward, backward)) = variant(kind, dtype, cols, parameters, has_all) {
                            add("forward", forward_work(&forward, &props));
                            add("backward", backward_work(&backward, &props));
                        }
                    }
                }
            }
        }
    }
    texts.into_iter()
}

/// Properties of a device with subgroups of one width and immediates, or with neither.
fn variant_props(subgroup: Option<u32>) -> Props {
    Props {
        adapter: String::new(),
        api: String::new(),
        driver: String::new(),
        is_cpu: false,
        subgroup_sizes: subgroup.map(|width| (width, width)),
        immediate_bytes: if subgroup.is_some() { 128 } else { 0 },
        max_binding_bytes: u64::from(u32::MAX),
        max_buffer_bytes: u64::from(u32::MAX),
        max_storage_buffers: 8,
        max_workgroup_bytes: 16 << 10,
        max_threads: if subgroup.is_some() { 1024 } else { 256 },
        max_groups: 65535,
        binding_align: 256,
    }
}

/// A forward and its backward, plain or with every option.
fn variant(
    kind: RowNorm,
    dtype: DType,
    cols: u64,
    parameters: Option<DType>,
    has_all: bool,
) -> crate::error::Result<(Valid<ForwardFields>, Valid<BackwardFields>)> {
    let x = TensorDesc::contiguous(dtype, &[1000, cols])?;
    let forward = Valid::<ForwardFields>::plain(kind, "row_norm", x, 1)?.with("row_norm", |fields| {
        fields.weight = parameters;
        fields.bias = parameters.filter(|_| kind == RowNorm::Layer);
        fields.stats = has_all;
        fields.residual = has_all;
    })?;
    let backward = forward.backward("row_norm_backward", super::Gradients::ALL)?;
    Ok((forward, backward))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desc(dims: &[u64]) -> TensorDesc {
        TensorDesc::contiguous(DType::BF16, dims).unwrap()
    }

    fn forward(dims: &[u64]) -> Valid<ForwardFields> {
        Valid::<ForwardFields>::plain(RowNorm::Layer, "layer_norm", desc(dims), 1).unwrap()
    }

    fn backward(dims: &[u64]) -> Valid<BackwardFields> {
        let change = |fields: &mut BackwardFields| {
            (fields.weight, fields.dweight, fields.dbias) = (Some(DType::BF16), true, Some(DType::BF16));
        };
        let plain = Valid::<BackwardFields>::plain(RowNorm::Layer, "layer_norm_backward", desc(dims), 1).unwrap();
        plain.with("layer_norm_backward", change).unwrap()
    }

    #[test]
    fn a_row_stays_on_chip_while_it_fits() {
        let launches = |dims: &[u64], width| forward_work(&forward(dims), &variant_props(width)).unwrap().choice().launches;
        assert_eq!(launches(&[1000, 32768], Some(32)), 1);
        assert_eq!(launches(&[1000, 32769], Some(32)), 2);
        assert_eq!(launches(&[10, 32768], Some(32)), 2);
        assert_eq!(launches(&[1000, 32768], None), 1);
        assert_eq!(launches(&[0, 32768], Some(32)), 0);
    }

    #[test]
    fn threads_of_a_row_exchange_lanes_only_within_the_narrowest_subgroup() {
        let reduce = |row_chunks, width| Team::resident(RESIDENT, row_chunks, &variant_props(width)).unwrap().reduce;
        assert_eq!(reduce(30, Some(32)), Reduce::Lanes);
        assert_eq!(reduce(30, Some(8)), Reduce::Tree);
        assert_eq!(reduce(8, Some(8)), Reduce::Lanes);
        assert_eq!(reduce(512, Some(8)), Reduce::Subgroups(16));
        assert_eq!(reduce(512, None), Reduce::Tree);
    }

    #[test]
    fn the_workspace_holds_the_moments_and_the_sums_exactly() {
        let props = variant_props(Some(32));
        let split = forward_work(&forward(&[256, 262_144]), &props).unwrap();
        assert_eq!((split.choice().launches, split.workspace_bytes), (2, 256 * 16 * 16));
        let work = backward_work(&backward(&[16384, 4096]), &props).unwrap();
        let partials = u64::from(work.tuning[6]);
        assert_eq!(work.workspace_bytes, partials * 2 * 4096 * 4);
        let plain = Valid::<BackwardFields>::plain(RowNorm::Rms, "rms_norm_backward", desc(&[64, 64]), 1).unwrap();
        assert_eq!(backward_work(&plain, &props).unwrap().choice().workspace, WorkspaceReq::NONE);
    }

    #[test]
    fn gradients_of_parameters_add_up_in_short_chains() {
        for (rows, cols) in [(2048, 4096), (16384, 4096), (131_072, 128), (32_768, 1024), (262_144, 4096), (256, 262_144)] {
            let work = backward_work(&backward(&[rows, cols]), &variant_props(Some(32))).unwrap();
            let [workgroup, threads, _, _, rounds, blocks, partials] = work.tuning[..7] else { unreachable!() };
            let teams = (workgroup / threads).ilog2();
            let last = partials.div_ceil(4 * PARAMETER_WORKGROUP / PARAMETER_COLUMNS as u32) + 2 + 5;
            let chain = rounds + teams + (blocks - 1) + last;
            assert!(chain <= 48, "{rows}x{cols}: {chain}");
            assert!(u64::from(partials * rounds * blocks) * u64::from(workgroup / threads) >= rows, "{rows}x{cols}");
        }
    }

    #[test]
    fn refuses_with_both_numbers() {
        let props = Props { max_binding_bytes: 128 << 20, ..variant_props(None) };
        let reason = forward_work(&forward(&[1 << 16, 1 << 12]), &props).err().unwrap().to_string();
        assert!(reason.contains("536870912") && reason.contains("134217472"), "{reason}");
        let f64s = TensorDesc::contiguous(DType::F64, &[4, 4]).unwrap();
        let plain = Valid::<ForwardFields>::plain(RowNorm::Layer, "layer_norm", f64s, 1).unwrap();
        assert!(forward_work(&plain, &props).is_err());
    }
}
