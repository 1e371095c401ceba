//! Forward: groups on chip, or moments of their parts, merged, then applied; or the running statistics applied.

use super::super::forward::{BIAS, MEAN, NUM_BATCHES, RESIDUAL, RSTD, RUNNING_MEAN, RUNNING_VAR, WEIGHT, X, Y};
use super::super::{ChannelNorm, ChannelOrder, ForwardFields, Valid};
use super::team::{Ahead, Form, GaplessTile, MULTIPROCESSORS, Mergers, Spread, Tile, merge_team, resident_team};
use super::{Held, Operands, Quads, Segments, Share, check};
use crate::backend::wgpu::team::{Keep, Team};
use crate::backend::wgpu::{Binding, Props, StepBuilder, Work, check_bindings, groups, padded, params};
use crate::error::Reason;
use crate::narrow::{single, word};

/// Threads of a workgroup where channels are last, and as many workgroups as a large GPU takes in one turn: for the moments, and to apply them.
const MOMENTS_COLUMNS: Spread = Spread { workgroup: 128, resident: 5 * MULTIPROCESSORS, rows: 96 };
const APPLY_COLUMNS: Spread = Spread { workgroup: 256, resident: 8 * MULTIPROCESSORS, rows: 64 };

/// Threads and chunks of each where chunks span channels, to apply the statistics.
const APPLY_GAPLESS: (u32, u32) = (256, 2);

/// Groups below which they are split although workgroups could hold them, if they are long: too few workgroups would be at work.
const FEW_GROUPS: u64 = 48;
/// Chunks from which on a group counts as long.
const LONG_GROUP: u64 = 2048;

/// The weight `m` of a batch in running statistics, and `1 - m`, as the kernels take both in one number: the smaller of the two, negative where
/// that is `1 - m`. Of an `m` near 1 rounded to f32, `1 - m` would have few bits left.
fn running_weight(momentum: f64) -> f32 {
    if momentum <= 0.5 { single(momentum) } else { -single(1.0 - momentum) }
}

/// What a dispatch binds; the others of the family are absent.
#[derive(Clone, Copy, Default)]
struct Uses {
    x: bool,
    affine: bool,
    y: bool,
    saved: bool,
    running: Option<&'static str>,
    num_batches: Option<&'static str>,
    moments: Option<&'static str>,
    statistics: Option<&'static str>,
}

struct Forward<'d> {
    norm: &'d Valid<ForwardFields>,
    segments: Segments,
    operands: Operands<'d>,
    /// Parts that the moments of a group are merged from.
    group_parts: u64,
    moments: Quads,
    statistics: Quads,
}

impl Forward<'_> {
    fn bindings(&self, uses: Uses) -> Vec<Binding> {
        let operands = &self.operands;
        // Channels last, a thread takes those of its chunk.
        let parameter = |operand| match self.segments.order {
            ChannelOrder::Contiguous => operands.parameter(operand).bound_if(uses.affine, "absent_elements"),
            ChannelOrder::ChannelsLast => operands.parameter_quads(operand).bound_if(uses.affine, "absent_quads"),
        };
        let saved = |operand| {
            operands.other(operand, "statistics_out", "absent_statistics").bound_if(uses.saved, "absent_statistics")
        };
        let elements = |operand, accessor: Option<&'static str>| {
            let absent = operands.binder.absent(operand, "absent_elements");
            accessor.map_or(absent, |a| operands.other(operand, a, "absent_elements"))
        };
        let counter = uses.num_batches.map_or(operands.binder.absent(NUM_BATCHES, "absent_counter"), |accessor| {
            operands.other(NUM_BATCHES, accessor, "absent_counter")
        });
        vec![
            operands.input(X).bound_if(uses.x, "absent_in"),
            operands.input(RESIDUAL).bound_if(uses.affine, "absent_in"),
            parameter(WEIGHT),
            parameter(BIAS),
            operands.output(Y).bound_if(uses.y, "absent_out"),
            saved(MEAN),
            saved(RSTD),
            elements(RUNNING_MEAN, uses.running),
            elements(RUNNING_VAR, uses.running),
            counter,
            self.moments.binding(uses.moments),
            self.statistics.binding(uses.statistics),
        ]
    }

    fn params(&self, share: Share, groups_x: u32) -> Vec<u8> {
        let (fields, segments) = (&self.norm.fields, &self.segments);
        let elements = segments.group_elements();
        params! {
            batch: u32 = word(segments.batch),
            channels: u32 = word(segments.channels),
            spatial: u32 = word(segments.spatial),
            groups: u32 = word(segments.groups),
            x: [u32; 4] = padded(segments.strides(X)),
            residual: [u32; 4] = padded(segments.strides(RESIDUAL)),
            y: [u32; 3] = segments.strides(Y),
            // Groups without elements have mean 0 and rstd NaN.
            eps: f32 = if elements == 0 { f32::NAN } else { single(fields.eps.get()) },
            momentum: f32 = fields.momentum.map_or(0.0, |momentum| running_weight(momentum.get())),
            slices: u32 = share.slices,
            group_channels: u32 = word(segments.group_channels),
            group_segments: u32 = word(segments.group_segments),
            group_parts: u32 = word(self.group_parts),
            group_count: u32 = word(segments.group_count),
            reciprocal_count: f32 = if elements == 0 { 0.0 } else { single(1.0 / elements as f64) },
            // The variance of a population from that of a sample; over samples, InstanceNorm's.
            unbiased: f32 = single(elements as f64 / (elements as f64 - 1.0)),
            groups_x: u32 = groups_x,
            column_blocks: u32 = share.column_blocks,
            slice_rows: u32 = share.slice_rows,
            columns: u32 = share.columns,
        }
    }

    fn step(
        &self,
        files: &[&'static str],
        mut constants: Vec<(&'static str, u32)>,
        uses: Uses,
        (share, grid): (Share, [u32; 2]),
    ) -> StepBuilder {
        let fields = &self.norm.fields;
        constants.push(("ACTIVATION", fields.activation as u32));
        let flags = vec![("USES_RUNNING", fields.inference), ("COUNTS_BATCH", fields.cumulative)];
        let params = self.params(share, grid[0]);
        let step = self.segments.step(self.norm.op.kind, "norm/channel/channel_norm", files, params, grid);
        StepBuilder { constants, flags, bindings: self.bindings(uses), ..step }
    }

    /// As [`step`](Self::step), of teams.
    fn team_step(&self, team: Team, files: &[&'static str], uses: Uses, grid: (Share, [u32; 2])) -> StepBuilder {
        self.step(&[&team.files(), files].concat(), team.constants(), uses, grid)
    }

    /// Of a dispatch that does all.
    fn whole_uses(&self) -> Uses {
        let running = self.norm.fields.momentum.map(|_| "elements_f32_out");
        Uses { x: true, affine: true, y: true, saved: true, running, ..Uses::default() }
    }

    /// Whole groups in registers.
    fn resident(&self, team: Team, props: &Props) -> Result<StepBuilder, Reason> {
        let grid = groups(self.segments.group_count.div_ceil(team.rows()), props)?;
        let files = [
            "norm/channel/channel_norm_update",
            "norm/channel/channel_norm_moments",
            "norm/channel/channel_norm_place",
            "norm/channel/channel_norm_resident",
        ];
        let is_alone = self.segments.group_count <= MULTIPROCESSORS;
        let mut step = self.team_step(team, &files, self.whole_uses(), (Share::WHOLE, grid));
        step.flags.extend([("UNPACKED", team.keep == Keep::Values), ("PARAMETERS_FIRST", is_alone)]);
        Ok(step)
    }

    /// Whole groups in registers, one after the other in each workgroup.
    fn resident_ahead(&self, ahead: Ahead) -> StepBuilder {
        let Ahead { team, workgroups } = ahead;
        let files = [
            "norm/channel/channel_norm_update",
            "norm/channel/channel_norm_place",
            "norm/channel/channel_norm_resident_ahead",
        ];
        let mut step = self.team_step(team, &files, self.whole_uses(), (Share::WHOLE, [workgroups, 1]));
        step.flags.push(("PREFETCH", self.segments.group_count > u64::from(workgroups)));
        step
    }

    /// Whole groups in registers, channels last.
    fn columns_resident(&self, tile: Tile, props: &Props) -> Result<StepBuilder, Reason> {
        let grid = groups(self.segments.batch * tile.blocks, props)?;
        let files = [
            "common/team",
            tile.team.reduce.file(),
            "norm/channel/channel_norm_update",
            "norm/channels_last/channels_last_norm_resident",
        ];
        let uses = Uses { x: true, affine: true, y: true, saved: true, ..Uses::default() };
        let share = Share { column_blocks: word(tile.blocks), ..Share::WHOLE };
        Ok(self.step(&files, tile.constants(), uses, (share, grid)))
    }

    /// Whole channels in registers, of which several share chunks.
    fn gapless_resident(&self, tile: GaplessTile, props: &Props) -> Result<StepBuilder, Reason> {
        let grid = groups(self.segments.channels / tile.channels, props)?;
        let files = [
            "norm/channel/channel_norm_update",
            "norm/channel/channel_norm_gapless",
            "norm/channel/channel_norm_gapless_terms",
            "norm/channel/channel_norm_gapless_tile",
            "norm/channel/channel_norm_gapless_resident",
        ];
        let share = Share { columns: word(tile.columns), ..Share::WHOLE };
        let step = self.step(&files, tile.constants(), self.whole_uses(), (share, grid));
        Ok(StepBuilder { can_chunk: true, ..step })
    }

    /// The dispatch that does all, where whole groups find room in registers.
    fn whole(&self, props: &Props) -> Result<Option<(StepBuilder, Held)>, Reason> {
        let (segments, fields) = (&self.segments, &self.norm.fields);
        // The count of batches is written when all have read it, and the running statistics of InstanceNorm are those of all samples.
        if fields.cumulative || (fields.momentum.is_some() && self.norm.op.kind != ChannelNorm::Batch) {
            return Ok(None);
        }
        let is_contiguous = segments.order == ChannelOrder::Contiguous;
        let chunks = segments.group_segments * segments.segment_chunks();
        let is_split = !is_contiguous || (segments.group_count < FEW_GROUPS && chunks >= LONG_GROUP);
        let team = resident_team(chunks, segments.group_count, segments.is_half(), props).filter(|_| !is_split);
        let (step, held) = if let Some(tile) = GaplessTile::new(segments, 1, props) {
            (self.gapless_resident(tile, props)?, tile.held())
        } else if let Some(ahead) = Ahead::new(segments, props).filter(|_| !is_split) {
            let (Team { workgroup, chunks, .. }, workgroups) = (ahead.team, ahead.workgroups);
            (self.resident_ahead(ahead), Held::Ahead { workgroup, workgroups, chunks })
        } else if let Some(team) = team {
            (self.resident(team, props)?, Held::of(team))
        } else if let Some((segments, tile)) = Tile::best(segments, |segments| Tile::new(segments, props)) {
            let operands = Operands::new(&self.norm.slots, &segments);
            (Forward { segments, operands, ..*self }.columns_resident(tile, props)?, tile.held())
        } else {
            return Ok(None);
        };
        Ok(check_bindings(std::slice::from_ref(&step), props).is_ok().then_some((step, held)))
    }

    /// Moments of slices, contiguous or of columns.
    fn moments(&self, form: Form, props: &Props) -> Result<StepBuilder, Reason> {
        let uses = Uses { x: true, moments: Some("partials_out"), ..Uses::default() };
        let grid = form.grid(&self.segments, props)?;
        let share = form.share(&self.segments);
        Ok(match form {
            Form::Slices(team) => {
                let files = [
                    "norm/channel/channel_norm_slice",
                    "norm/channel/channel_norm_moments",
                    "norm/channel/channel_norm_split_moments",
                ];
                let mut step = self.team_step(team, &files, uses, (share, grid));
                step.flags.push(("UNPACKED", team.keep == Keep::Values));
                step
            }
            Form::Columns(columns) => {
                let mut constants = columns.constants();
                constants.extend(columns.held.map(|rows| ("CHUNKS", rows)));
                let file = match columns.held {
                    Some(_) => "norm/channels_last/channels_last_norm_moments",
                    None => "norm/channels_last/channels_last_norm_stream",
                };
                let files =
                    ["norm/channels_last/channels_last_norm", "norm/channels_last/channels_last_norm_sum", file];
                self.step(&files, constants, uses, (share, grid))
            }
        })
    }

    /// Statistics of the groups from the moments of their parts.
    fn merge(&self, props: &Props) -> Result<StepBuilder, Reason> {
        let fields = &self.norm.fields;
        let team = merge_team(self.group_parts, props);
        let grid = groups(self.segments.group_count.div_ceil(team.rows()), props)?;
        let files = [
            "norm/channel/channel_norm_update",
            "norm/channel/channel_norm_merge",
            "norm/channel/channel_norm_split_merge",
        ];
        let updates = self.norm.op.kind == ChannelNorm::Batch && !self.segments.is_empty();
        let has_running = fields.momentum.is_some() || fields.cumulative;
        let uses = Uses {
            saved: true,
            running: (updates && has_running).then_some("elements_f32_out"),
            num_batches: (updates && fields.cumulative).then_some("counter_in"),
            moments: Some("partials_in"),
            statistics: Some("partials_out"),
            ..Uses::default()
        };
        Ok(self.team_step(team, &files, uses, (Share::WHOLE, grid)))
    }

    /// Running statistics over samples.
    fn running(&self, props: &Props) -> Result<StepBuilder, Reason> {
        let team = merge_team(self.segments.batch, props);
        let grid = groups(self.segments.channels.div_ceil(team.rows()), props)?;
        let files = ["norm/channel/channel_norm_running_over_samples"];
        let uses = Uses { running: Some("elements_f32_out"), statistics: Some("partials_in"), ..Uses::default() };
        Ok(self.team_step(team, &files, uses, (Share::WHOLE, grid)))
    }

    /// The count of batches alone.
    fn count(&self) -> StepBuilder {
        let uses = Uses { num_batches: Some("counter_out"), ..Uses::default() };
        self.step(&["norm/channel/channel_norm_count_batch"], Vec::new(), uses, (Share::WHOLE, [1, 1]))
    }

    /// y from statistics that are known.
    fn apply_known(&self, form: Form, props: &Props) -> Result<StepBuilder, Reason> {
        if !self.segments.is_gapless {
            return self.apply(form, None, props);
        }
        let (threads, chunks) = APPLY_GAPLESS;
        let threads = threads.min(props.max_threads);
        let elements = self.segments.segment_count() * self.segments.spatial;
        let grid = groups((elements / self.segments.elements).div_ceil(u64::from(threads * chunks)), props)?;
        let files = [
            "norm/channel/channel_norm_gapless",
            "norm/channel/channel_norm_gapless_terms",
            "norm/channel/channel_norm_count_batch",
            "norm/channel/channel_norm_apply_gapless",
        ];
        let constants = vec![("WORKGROUP", threads), ("CHUNKS", chunks)];
        let step = self.step(&files, constants, self.apply_uses(false), (Share::WHOLE, grid));
        Ok(StepBuilder { can_chunk: true, ..step })
    }

    fn apply_uses(&self, is_merging: bool) -> Uses {
        let fields = &self.norm.fields;
        let running = match is_merging {
            true => fields.momentum.map(|_| "elements_f32_out"),
            false => fields.inference.then_some("elements_f32_in"),
        };
        Uses {
            x: true,
            affine: true,
            y: true,
            saved: is_merging,
            running,
            num_batches: fields.cumulative.then_some("counter_out"),
            moments: is_merging.then_some("partials_in"),
            statistics: (!fields.inference && !is_merging).then_some("partials_in"),
        }
    }

    /// y from statistics.
    /// With mergers it merges the parts of groups itself.
    fn apply(&self, form: Form, mergers: Option<Mergers>, props: &Props) -> Result<StepBuilder, Reason> {
        let uses = self.apply_uses(mergers.is_some());
        let grid = form.grid(&self.segments, props)?;
        let share = form.share(&self.segments);
        Ok(match form {
            Form::Slices(team) => {
                let mut files = vec!["common/team", team.reduce.file(), "norm/channel/channel_norm_slice"];
                let mut constants = team.constants();
                if let Some(mergers) = mergers {
                    files.extend(["norm/channel/channel_norm_update", "norm/channel/channel_norm_merge_held"]);
                    files.push("norm/channel/channel_norm_apply_merging");
                    constants.push(mergers.constant());
                } else {
                    files.push("norm/channel/channel_norm_apply_known");
                }
                files.extend(["norm/channel/channel_norm_count_batch", "norm/channel/channel_norm_apply"]);
                self.step(&files, constants, uses, (share, grid))
            }
            Form::Columns(columns) => {
                let mut files = vec!["norm/channels_last/channels_last_norm"];
                let mut constants = columns.constants();
                if let Some(mergers) = mergers {
                    files.extend(["common/team", mergers.team.reduce.file(), "norm/channel/channel_norm_update"]);
                    files.extend([
                        "norm/channel/channel_norm_merge_held",
                        "norm/channels_last/channels_last_norm_merging",
                    ]);
                    constants.extend(mergers.team.team_constants());
                    constants.push(mergers.constant());
                } else {
                    files.push("norm/channels_last/channels_last_norm_known");
                }
                files.extend(["norm/channel/channel_norm_count_batch", "norm/channels_last/channels_last_norm_apply"]);
                self.step(&files, constants, uses, (share, grid))
            }
        })
    }
}

pub(in super::super) fn forward_work(norm: &Valid<ForwardFields>, props: &Props) -> Result<Work<Held>, Reason> {
    let fields = &norm.fields;
    let dtype = check(
        &norm.slots,
        &[WEIGHT, BIAS, MEAN, RSTD, RUNNING_MEAN, RUNNING_VAR, NUM_BATCHES],
        fields.x.dtype(),
        props,
    )?;
    let segments = Segments::new(&norm.geometry()?, dtype, &[X, RESIDUAL, Y]);
    let has_running = fields.momentum.is_some() || fields.cumulative;

    let first = Form::of_moments(&segments, MOMENTS_COLUMNS, props);
    let last = Form::new(&segments, APPLY_COLUMNS, if fields.residual { 2 } else { 1 }, props);
    let group_parts = if segments.is_empty() { 0 } else { segments.group_segments * first.slices(&segments) };
    let mut workspace_bytes = 0;
    let moments = Quads::after(&mut workspace_bytes, "moments", group_parts * segments.group_count, props)?;
    let statistics = Quads::after(&mut workspace_bytes, "statistics", segments.group_count, props)?;
    let operands = Operands::new(&norm.slots, &segments);
    let forward = Forward { norm, segments, operands, group_parts, moments, statistics };
    let segments = &forward.segments;

    let mut work = Work::none(Held::Apart, props);
    if segments.group_count == 0 {
        if fields.cumulative && segments.batch > 0 && segments.spatial > 0 {
            work.steps.push(forward.count());
        }
        return Ok(work);
    }
    if fields.inference {
        if !segments.is_empty() {
            work.steps.push(forward.apply_known(last, props)?);
        }
        check_bindings(&work.steps, props)?;
        return Ok(work);
    }
    if segments.is_empty() {
        if fields.stats {
            work.steps.push(forward.merge(props)?);
            work.workspace_bytes = workspace_bytes;
        }
        return Ok(work);
    }
    if let Some((step, choice)) = forward.whole(props)? {
        return Ok(Work { steps: vec![step], choice, ..work });
    }
    work.choice = Held::Split { group_parts: word(group_parts), slices: word(first.slices(segments)) };
    work.steps.push(forward.moments(first, props)?);
    let can_merge = !fields.cumulative && (norm.op.kind == ChannelNorm::Batch || !has_running);
    let merging = last.merging(segments, group_parts, fields.activation, props).filter(|_| can_merge);
    if let Some((form, mergers)) = merging {
        let step = forward.apply(form, Some(mergers), props)?;
        if check_bindings(std::slice::from_ref(&step), props).is_ok() {
            work.steps.push(step);
            work.workspace_bytes = moments.bytes;
            return Ok(work);
        }
    }
    work.steps.push(forward.merge(props)?);
    if has_running && norm.op.kind == ChannelNorm::Instance {
        work.steps.push(forward.running(props)?);
    }
    work.steps.push(forward.apply_known(last, props)?);
    work.workspace_bytes = workspace_bytes;
    check_bindings(&work.steps, props)?;
    Ok(work)
}
