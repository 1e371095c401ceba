//! The forms of forward: rows on chip, or split over workgroups with their moments in the workspace.
//!
//! The numbers are those that were fastest, of those that were timed, on an H200 through Vulkan; docs/rejected.md has some that were slower.

use super::super::forward::{BIAS, H, MEAN, RESIDUAL, RSTD, WEIGHT, X, Y};
use super::super::{ForwardFields, Valid};
use super::{Rows, parameter};
use crate::backend::wgpu::team::{AHEAD_GROUPS, Keep, ROW_TEAMS, Team, TeamNumbers, teams};
use crate::backend::wgpu::{
    Binder, Binding, Props, StepBuilder, Work, check_bindings, check_workspace, groups, padded, params,
};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::Ask;
use crate::narrow::{single, word};

/// The workgroup that holds a slice of a row, of 32-bit and of 16-bit elements.
const SLICE_TEAMS: [TeamNumbers; 2] = teams![Values: 256 x 4, 256 x 3];

/// A form of forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forward {
    /// One dispatch, whose workgroups hold rows.
    Resident,
    /// Two dispatches, whose workgroups hold slices of rows: the moments, then the output, which reads x again.
    Split,
}

impl Forward {
    /// In the order in which they are tried.
    pub(super) const ALL: [Self; 2] = [Self::Resident, Self::Split];

    /// How the form runs: its dispatches, and what it chose.
    ///
    /// # Errors
    /// Why it does not serve.
    pub(super) fn work(self, norm: &Valid<ForwardFields>, props: &Props, ask: Ask) -> Result<Work<Held>, Reason> {
        let Valid { fields, slots, .. } = norm;
        let dense = [WEIGHT, BIAS, MEAN, RSTD];
        let rows = Rows::new((&fields.x, fields.normalized_dims), slots, [X, RESIDUAL, Y, H], &dense, props)?;
        let (row_count, cols) = (rows.geometry.rows, rows.geometry.cols);

        let kind = usize::from(rows.is_half());
        let (team, slices) = match self {
            Self::Resident => (rows.team(ask, |holds| holds(ROW_TEAMS[kind]), props)?, 1),
            Self::Split if cols == 0 => return Err("rows without columns have no slices".into()),
            Self::Split => {
                let team = Team::of_slices(SLICE_TEAMS[kind], props);
                (team, rows.chunks.div_ceil(team.slice_chunks()))
            }
        };
        let slice_cols = team.slice_chunks() * rows.elements;
        let turns = row_count.div_ceil(team.rows());
        // Teams that read ahead have shaders of their own where they take several rows.
        let is_ahead = team.keep == Keep::ValuesAhead && !fields.residual && !ask.is_invariant();
        let rounds = if is_ahead { turns.div_ceil(AHEAD_GROUPS).max(1) } else { 1 };
        let group_count = turns.div_ceil(rounds) * slices;
        let grid = groups(group_count, props)?;
        // `x` is the operand that is normalised.
        let params = |x| {
            params! {
                rows: u32 = word(row_count),
                cols: u32 = word(cols),
                extents: [u32; 2] = rows.geometry.extents.map(word),
                x: [u32; 4] = padded(rows.strides(x)),
                residual: [u32; 4] = padded(rows.strides(RESIDUAL)),
                y: [u32; 4] = padded(rows.strides(Y)),
                h: [u32; 3] = rows.strides(H),
                // Rows without columns have mean 0 and rstd NaN.
                eps: f32 = if cols == 0 { f32::NAN } else { single(fields.eps.get()) },
                weight_offset: f32 = single(fields.weight_offset.get()),
                reciprocal_cols: f32 = if cols == 0 { 0.0 } else { single(1.0 / cols as f64) },
                slices: u32 = word(slices),
                groups_x: u32 = grid[0],
                tail_cols: u32 = word(cols.saturating_sub((slices - 1) * slice_cols)),
                rounds: u32 = word(rounds),
                padding: [u32; 2] = [0; 2],
            }
        };
        let Team { workgroup, threads, chunks, .. } = team;
        let mut work = Work::none(Held { workgroup, threads, chunks, slices: word(slices) }, props)
            .batch_invariant_if(ask.is_invariant());
        if row_count == 0 {
            return Ok(work);
        }

        let operands = Binder { slots };
        let input = |operand| operands.operand(operand, rows.dtype.chunks_in(), "absent_in");
        let output = |operand| operands.operand(operand, rows.dtype.chunks_out(), "absent_out");
        let weight = operands.operand(WEIGHT, parameter(fields.weight.unwrap_or(DType::F32))?, "absent_quads");
        let bias = operands.operand(BIAS, parameter(fields.bias.unwrap_or(DType::F32))?, "absent_quads");
        let statistics = |operand| operands.operand(operand, ["elements_f32_out"; 2], "absent_elements");
        let absent_weights = [WEIGHT, BIAS].map(|operand| operands.absent(operand, "absent_quads"));
        let absent_statistics = [MEAN, RSTD].map(|operand| operands.absent(operand, "absent_elements"));
        let step = |entry, files: &[&'static str], keep: Keep, params, bindings| {
            let files = [&["common/number", "norm/moments", "norm/row/row_norm_parameters"][..], files];
            let flags = keep.flags(rounds > 1).to_vec();
            StepBuilder { flags, bindings, ..rows.step(entry, files, (norm.op.kind, team), params, grid) }
        };
        let [mean, rstd] = [MEAN, RSTD].map(statistics);
        if self == Self::Resident {
            let bindings = vec![input(X), input(RESIDUAL), weight, bias, output(Y), output(H), mean, rstd];
            work.steps.push(step("row_norm_resident", &["norm/row/row_norm"], team.keep, params(X), bindings));
        } else {
            let bytes = row_count * slices * 16;
            check_workspace(bytes, props)?;
            work.workspace_bytes = bytes;
            let moments = |accessor| Binding::partials("moments", 0, bytes, accessor);
            let mut bindings = vec![input(X), input(RESIDUAL), output(H), moments("partials_out")];
            bindings.push(operands.absent(Y, "absent_out"));
            bindings.extend(absent_weights);
            bindings.extend(absent_statistics);
            let files = ["norm/row/row_norm", "norm/row/row_norm_split_moments"];
            work.steps.push(step("row_norm_split_moments", &files, team.keep, params(X), bindings));
            // With a residual, the second dispatch normalises the sum, which lies in h.
            let sum = if fields.residual { H } else { X };
            let normalized = Binding { name: "x", ..input(sum) };
            let mut bindings = vec![normalized, weight, bias, output(Y), mean, rstd, moments("partials_in")];
            bindings.push(operands.absent(RESIDUAL, "absent_in"));
            bindings.push(operands.absent(H, "absent_out"));
            // An element is used once after the moments are merged, so that threads keep words.
            let files = ["norm/row/row_norm", "norm/row/row_norm_split_apply"];
            work.steps.push(step("row_norm_split_apply", &files, Keep::Words, params(sum), bindings));
        }
        check_bindings(&work.steps, props)?;
        Ok(work)
    }
}

/// How a form runs, or why it does not serve.
type Answer = Result<Work<Held>, Reason>;

pub(in crate::ops::norm) fn resident(norm: &Valid<ForwardFields>, props: &Props, ask: Ask) -> Answer {
    Forward::Resident.work(norm, props, ask)
}

pub(in crate::ops::norm) fn split(norm: &Valid<ForwardFields>, props: &Props, ask: Ask) -> Answer {
    Forward::Split.work(norm, props, ask)
}

/// How rows are held: threads of a workgroup and of a row or a slice, chunks of a thread, and slices of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops::norm) struct Held {
    workgroup: u32,
    threads: u32,
    chunks: u32,
    slices: u32,
}
