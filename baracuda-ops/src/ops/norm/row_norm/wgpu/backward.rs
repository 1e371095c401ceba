//! The forms of backward: dx of rows on chip or split over workgroups, and the gradients of the parameters from sums in the workspace.
//!
//! The numbers are those that were fastest, of those that were timed, on an H200 through Vulkan; docs/rejected.md has some that were slower.

use super::super::backward::{DBIAS, DH, DWEIGHT, DX, DY, MEAN, RSTD, WEIGHT, X};
use super::super::{BackwardFields, Valid};
use super::{Rows, parameter};
use crate::backend::wgpu::team::{Keep, Team, TeamNumbers, Teams, chain_of_partials, lanes_of_partials, teams};
use crate::backend::wgpu::{
    Binder, Binding, LEAST_WORKGROUP_BYTES, Props, ShaderType, StepBuilder, Work, check_bindings, check_workspace,
    groups, padded, params,
};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::Ask;
use crate::narrow::{single, word};

/// The workgroup that takes a slice of a row for the sums, of 32-bit and of 16-bit elements.
const SUM_SLICE_TEAMS: [TeamNumbers; 2] = teams![Words: 256 x 4, 256 x 2];
/// The workgroup that takes a slice of a row for dx, of 32-bit and of 16-bit elements.
const SLICE_TEAMS: [TeamNumbers; 2] = teams![Values: 128 x 2; ValuesAhead: 128 x 1];
/// The workgroup for the sums of 32-bit and of 16-bit elements if slices are many: dx merges the sums of a row again in every workgroup, so fewer
/// slices are better.
const WIDE_SLICE_TEAMS: [TeamNumbers; 2] = teams![Nothing: 256 x 16, 256 x 8];
/// Workgroups of wide slices from which on slices are wide: four for each of 132 SMs keep a large GPU busy.
const MANY_SLICES: u64 = 132 * 4;
/// Teams that hold a row of 32-bit and of 16-bit elements: a thread holds chunks of dy and x, and the sums of its columns.
const RESIDENT: [&Teams; 2] = [
    &teams![Words: 8 x 1, 16 x 1, 32 x 1, 32 x 2, 32 x 4, 64 x 4, 128 x 4, 256 x 4, 512 x 4],
    &teams![
        ValuesAhead: 8 x 1, 16 x 1, 32 x 1, 64 x 1, 128 x 1, 128 x 2, 256 x 2, 1024 x 1, 512 x 2;
        Words: 256 x 4;
        WordsAhead: 1024 x 2;
        Words: 512 x 4
    ],
];
/// As `RESIDENT`, for longer rows: a thread keeps only the sums.
const RELOADING: &Teams = &teams![Nothing: 1024 x 4, 512 x 8];
/// Most quads of sums for each chunk that leave a thread of `RELOADING` enough registers.
const RELOADING_SUMS: u64 = 2;

/// Workgroups that keep a large GPU busy: 132 SMs with as many threads as registers allow. Of the 65536 registers of an SM each of 1024, 896, 768 or 512
/// threads has 64, 72, 80 or 128. If more threads were counted than an SM holds, the last workgroups would start late, and if fewer, it would have fewer
/// threads at work.
const fn busy_groups(team: Team, is_half: bool, is_split: bool) -> u64 {
    let resident_threads = match (is_half, is_split, team.chunks) {
        (true, true, 1) | (false, false, 1 | 2) => 1024,
        (true, false, 1) => 896,
        (false, true, _) => 768,
        _ => 512,
    };
    let per_multiprocessor = resident_threads / team.workgroup;
    132 * if per_multiprocessor == 0 { 1 } else { per_multiprocessor as u64 }
}

/// Most additions that follow each other in a parameter's gradient (docs/numerics.md).
pub(super) const LONGEST_CHAIN: u64 = 48;
/// Most rows that a thread adds up: 16 blocks of 16 rounds make chains of 31 additions, which leaves 17 of `LONGEST_CHAIN` for the sums over threads and
/// over partial sums.
const MOST_ROUNDS: u64 = 256;
/// Chunks of dy up to which `few_rows` is chosen: 1 MiB. Its one dispatch reads dy and x a second time for the gradients of the parameters. With
/// more chunks the second reading takes longer than the further dispatch of `resident`. Asked for by name the form takes more.
const FEW_CHUNKS: u64 = 1 << 16;
/// Chunks of columns side by side in a workgroup of `few_rows` that adds up rows: 128 bytes of each row, which are whole lines of the cache. With more,
/// fewer threads share a column, and each adds up more rows.
const FEW_COLUMNS: u32 = 8;
/// Most rows that a thread of `few_rows` adds up, unless the form is asked for by name.
const FEW_LANE_ROWS: u64 = 8;
/// Most rows that a thread of `few_rows` may add up: its lanes meet in at most 7 more additions.
const MOST_LANE_ROWS: u64 = LONGEST_CHAIN - 7;
/// Threads of the workgroups that sum the parameters' gradients: the most that WebGPU promises.
const PARAMETER_WORKGROUP: u32 = 256;

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
        let per_group = turns.div_ceil(wanted).clamp(1, MOST_ROUNDS);
        // Additions that follow each other: of a thread's rows, of the teams, of the blocks and of the partial sums.
        let chain = |&blocks: &u64| {
            let rounds = per_group.div_ceil(blocks);
            let of_teams = if teams > 1 { teams / 2 + 1 } else { 0 };
            rounds + of_teams + (blocks - 1) + chain_of_partials(turns.div_ceil(rounds * blocks))
        };
        let choices = 1..=per_group;
        let blocks = choices.clone().find(|blocks| chain(blocks) <= LONGEST_CHAIN);
        let blocks = blocks.or_else(|| choices.min_by_key(chain)).unwrap_or(1);
        let rounds = per_group.div_ceil(blocks);
        Self { rounds, blocks, partials: turns.div_ceil(rounds * blocks) }
    }
}

/// A form of backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backward {
    /// One dispatch, in which some workgroups compute dx of rows and others gradients of parameters; in place it is two dispatches.
    FewRows,
    /// A dispatch whose workgroups hold rows and sum the parameters' gradients, and one that adds up these sums.
    Resident,
    /// A dispatch that sums slices of rows, one whose workgroups hold slices and sum the parameters' gradients, and one that adds up these sums.
    Split,
}

impl Backward {
    /// In the order in which they are tried.
    pub(super) const ALL: [Self; 3] = [Self::FewRows, Self::Resident, Self::Split];

    /// How the form runs: its dispatches, and what it chose.
    ///
    /// # Errors
    /// Why it does not serve.
    pub(super) fn work(self, norm: &Valid<BackwardFields>, props: &Props, ask: Ask) -> Result<Work<Shared>, Reason> {
        let Valid { fields, slots, .. } = norm;
        let dense = [WEIGHT, MEAN, RSTD, DWEIGHT, DBIAS];
        let rows = Rows::new((&fields.x, fields.normalized_dims), slots, [DY, X, DH, DX], &dense, props)?;
        let (row_count, cols) = (rows.geometry.rows, rows.geometry.cols);
        let gradients = u64::from(fields.dweight) + u64::from(fields.dbias.is_some());
        let has_parameters = gradients > 0;
        if self == Self::FewRows {
            if !fields.dx || !has_parameters || row_count == 0 || cols == 0 {
                return Err("it takes dx and a parameter's gradient of rows that are not empty".into());
            }
            ask.leave_if(row_count * rows.chunks > FEW_CHUNKS, "resident is faster: it reads so many elements once")?;
        }

        let kind = usize::from(rows.is_half());
        let is_split = self == Self::Split;
        let team = if is_split {
            Team::of_slices(SLICE_TEAMS[kind], props)
        } else {
            let can_reload = gradients * rows.elements / 4 <= RELOADING_SUMS;
            rows.team(ask, |holds| holds(RESIDENT[kind]).or_else(|| holds(RELOADING).filter(|_| can_reload)), props)?
        };
        let slices_of = |team: Team| rows.chunks.div_ceil(team.slice_chunks()).max(1);
        let wide_team = Team::of_slices(WIDE_SLICE_TEAMS[kind], props);
        let has_many = ask.samples(row_count) * slices_of(wide_team) >= MANY_SLICES;
        let sum_team = if has_many { wide_team } else { Team::of_slices(SUM_SLICE_TEAMS[kind], props) };
        let (slices, sum_slices) = (slices_of(team), slices_of(sum_team));
        // All at once: workgroups beyond one wave would take as long as a whole wave.
        let wanted = (busy_groups(team, rows.is_half(), is_split) / slices).max(1);
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
        let params = |grid: [u32; 2], first_workgroup| {
            params! {
                rows: u32 = word(row_count),
                cols: u32 = word(cols),
                extents: [u32; 2] = rows.geometry.extents.map(word),
                dy: [u32; 4] = padded(rows.strides(DY)),
                x: [u32; 4] = padded(rows.strides(X)),
                dh: [u32; 4] = padded(rows.strides(DH)),
                dx: [u32; 3] = rows.strides(DX),
                weight_offset: f32 = single(fields.weight_offset.get()),
                reciprocal_cols: f32 = if cols == 0 { 0.0 } else { single(1.0 / cols as f64) },
                rounds: u32 = word(partition.rounds),
                blocks: u32 = word(partition.blocks),
                slices: u32 = word(slices),
                sum_slices: u32 = word(sum_slices),
                groups_x: u32 = grid[0],
                partials: u32 = word(partition.partials),
                sums_first: u32 = word(sum_quads),
                first_workgroup: u32 = word(first_workgroup),
                padding: [u32; 3] = [0; 3],
            }
        };
        let [slice_count, rounds, blocks, partials] =
            [slices, partition.rounds, partition.blocks, partition.partials].map(word);
        let Team { workgroup, threads, chunks, .. } = team;
        let choice = Shared { workgroup, threads, chunks, slices: slice_count, rounds, blocks, partials };
        let work = Work { workspace_bytes, ..Work::none(choice, props) };
        let mut work = work.batch_invariant_if(ask.is_invariant() && !has_parameters);
        if cols == 0 {
            return Ok(work);
        }

        let operands = Binder { slots };
        let input = |operand| operands.operand(operand, rows.dtype.chunks_in(), "absent_in");
        let weight = operands.operand(WEIGHT, parameter(fields.weight.unwrap_or(DType::F32))?, "absent_quads");
        let statistics = |operand| operands.operand(operand, ["elements_f32_in"; 2], "absent_elements");
        let workspace = |accessor| Binding::partials("work", 0, workspace_bytes, accessor);
        let step = |entry, files: &[&'static str], team: Team, flags, grid, bindings| {
            let step = rows.step(
                entry,
                [&["norm/row/row_norm_parameters"], files],
                (norm.op.kind, team),
                params(grid, 0),
                grid,
            );
            StepBuilder { flags, bindings, ..step }
        };
        let has_next = partition.rounds * partition.blocks > 1;
        let flags = |keep: Keep, has_next, dx, dweight, dbias| {
            let mut flags = vec![
                ("WANTS_DX", dx),
                ("WANTS_DWEIGHT", dweight),
                ("WANTS_DBIAS", dbias),
                ("SPLIT", is_split),
                ("RELOADS", keep == Keep::Nothing),
            ];
            flags.extend(keep.flags(has_next));
            flags
        };
        let [mean, rstd] = [MEAN, RSTD].map(statistics);
        let read = [input(DY), input(X), weight, mean, rstd];
        let (dh, dx) = (input(DH), operands.operand(DX, rows.dtype.chunks_out(), "absent_out"));
        if self == Self::FewRows {
            let lane_rows = row_count.div_ceil(u64::from(team.workgroup / FEW_COLUMNS));
            let most_lane_rows = if ask.is_pinned() { MOST_LANE_ROWS } else { FEW_LANE_ROWS };
            // `lane_sums` of row_norm_backward_few_rows.wgsl: for each quad of a chunk 16 bytes of half of the threads.
            let memory = u64::from(team.workgroup) * 8 * (rows.elements / 4) + team.reduce_bytes();
            if lane_rows > most_lane_rows || memory > LEAST_WORKGROUP_BYTES {
                let why = format!("a thread adds up {lane_rows} rows in {memory} bytes of workgroup memory");
                return Err(format!("{why}, the limits are {most_lane_rows} and {LEAST_WORKGROUP_BYTES}").into());
            }
            let row_groups = row_count.div_ceil(team.rows());
            let parameter_groups = rows.chunks.div_ceil(FEW_COLUMNS.into()) * gradients;
            let grid = groups(row_groups + parameter_groups, props)?;
            if grid[1] > 1 {
                // No workgroup may lie past the last, as it could in a grid of two dimensions: in place it would take parameters again.
                return Err(format!("it needs {} rows of workgroups, the limit is one", grid[1]).into());
            }
            let gradient = |operand| {
                let dtype = slots.at(operand).map_or(DType::F32, |slot| slot.desc.dtype());
                let accessors =
                    if dtype == DType::F32 && rows.is_half() { ["words_out"; 2] } else { rows.dtype.chunks_out() };
                operands.operand(operand, accessors, "absent_out")
            };
            let work_absent = Binding::absent("work", "absent_partials");
            let rest = [dh, dx, work_absent, gradient(DWEIGHT), gradient(DBIAS)];
            let bindings = [&read[..], &rest].concat();
            let is_wide =
                fields.weight.filter(|_| fields.dweight).or(fields.dbias) == Some(DType::F32) && rows.is_half();
            let mut flags = flags(team.keep, false, true, false, false);
            flags.push(("WIDE_PARAMETERS", is_wide));
            let files = ["norm/row/row_norm_backward", "norm/row/row_norm_backward_few_rows"];
            let mut step = step("row_norm_backward_few_rows", &files, team, flags, grid, bindings);
            step.constants.push(("COLUMNS", FEW_COLUMNS));
            for (first, count) in [(row_groups, parameter_groups), (0, row_groups)] {
                let grid = groups(count, props)?;
                step.in_place.push((params(grid, first), grid));
            }
            check_bindings(std::slice::from_ref(&step), props)?;
            work.steps.push(step);
            work.workspace_bytes = 0;
            return Ok(work);
        }
        if row_count > 0 {
            if has_sums {
                let absent = [operands.absent(DH, "absent_in"), operands.absent(DX, "absent_out")];
                let bindings = [&read[..], &absent, &[workspace("partials_out")]].concat();
                let flags = flags(sum_team.keep, has_next, true, false, false);
                let files = ["norm/row/row_norm_backward", "norm/row/row_norm_backward_split_sums"];
                work.steps.push(step("row_norm_backward_split_sums", &files, sum_team, flags, sums_grid, bindings));
            }
            let bindings = [&read[..], &[dh, dx, workspace("partials_out")]].concat();
            // Without dx nothing is read twice.
            let keep = if fields.dx { team.keep } else { Keep::Words };
            let flags = flags(keep, has_next, fields.dx, fields.dweight, fields.dbias.is_some());
            let files = ["norm/row/row_norm_backward"];
            work.steps.push(step("row_norm_backward_rows", &files, team, flags, rows_grid, bindings));
        }
        if has_parameters {
            let sums = Sums { cols, partials: partition.partials, quads, first: sum_quads };
            work.steps.push(parameters_step(norm, &sums, &operands, workspace("partials_in"), props)?);
        }
        check_bindings(&work.steps, props)?;
        Ok(work)
    }
}

/// How a form runs, or why it does not serve.
type Answer = Result<Work<Shared>, Reason>;

pub(in crate::ops::norm) fn few_rows(norm: &Valid<BackwardFields>, props: &Props, ask: Ask) -> Answer {
    Backward::FewRows.work(norm, props, ask)
}

pub(in crate::ops::norm) fn resident(norm: &Valid<BackwardFields>, props: &Props, ask: Ask) -> Answer {
    Backward::Resident.work(norm, props, ask)
}

pub(in crate::ops::norm) fn split(norm: &Valid<BackwardFields>, props: &Props, ask: Ask) -> Answer {
    Backward::Split.work(norm, props, ask)
}

/// How rows are held: threads of a workgroup, threads of a row or a slice, chunks of a thread, and slices of a row. And how rows are shared out, by
/// the fields of [`Partition`], which the form `few_rows` does not use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops::norm) struct Shared {
    pub(super) workgroup: u32,
    pub(super) threads: u32,
    chunks: u32,
    pub(super) slices: u32,
    pub(super) rounds: u32,
    pub(super) blocks: u32,
    pub(super) partials: u32,
}

/// The sums of columns in the workspace.
struct Sums {
    cols: u64,
    partials: u64,
    /// Quads of one gradient in a partial sum.
    quads: u64,
    /// The first quad of the partial sums in the workspace.
    first: u64,
}

/// dweight and dbias from the sums in the workspace; zeros if there are no rows.
fn parameters_step(
    norm: &Valid<BackwardFields>,
    sums: &Sums,
    operands: &Binder<'_>,
    workspace: Binding,
    props: &Props,
) -> Result<StepBuilder, Reason> {
    let fields = &norm.fields;
    let dtype = fields.weight.filter(|_| fields.dweight).or(fields.dbias).unwrap_or(DType::F32);
    let elements = 16 / dtype.size_bytes();
    let chunks = sums.cols.div_ceil(elements);
    let gradients = u64::from(fields.dweight) + u64::from(fields.dbias.is_some());
    let workgroup = PARAMETER_WORKGROUP.min(props.max_threads);
    let columns = workgroup / lanes_of_partials(sums.partials).min(workgroup);
    let grid = groups(chunks.div_ceil(u64::from(columns)) * gradients, props)?;
    let params = params! {
        cols: u32 = word(sums.cols),
        partials: u32 = word(sums.partials),
        quads: u32 = word(sums.quads),
        sums_first: u32 = word(sums.first),
        groups_x: u32 = grid[0],
        padding: [u32; 3] = [0; 3],
    };
    let dtype = ShaderType::of(dtype)?;
    let (accessors, mut files) = (dtype.chunks_out(), dtype.prelude());
    files.push("norm/row/row_norm_backward_parameters");
    Ok(StepBuilder {
        constants: vec![("WORKGROUP", workgroup), ("COLUMNS", columns)],
        bindings: vec![
            operands.operand(DWEIGHT, accessors, "absent_out"),
            operands.operand(DBIAS, accessors, "absent_out"),
            workspace,
        ],
        can_chunk: sums.cols.is_multiple_of(elements),
        ..StepBuilder::new("row_norm_backward_parameters", files, params, grid)
    })
}
