//! Forward: groups held in registers by one dispatch, or moments of their parts, merged, then applied; in inference the running statistics
//! applied.

use super::super::forward::{BIAS, MEAN, NUM_BATCHES, RESIDUAL, RSTD, RUNNING_MEAN, RUNNING_VAR, WEIGHT, X, Y};
use super::super::{ChannelNorm, ChannelOrder, ForwardFields, Valid};
use super::team::{
    ColumnSpread, GaplessResident, MULTIPROCESSORS, Mergers, PersistentTeam, Spread, Tile, merge_team, resident_team,
};
use super::{ChannelsLastTile, Parts, Pass, Persistent, Resident, Segments, Share, Split, Task, WgslForm};
use crate::backend::wgpu::team::{Keep, Team};
use crate::backend::wgpu::{Binding, Props, ShaderType, StepBuilder, check_reach, groups, padded, params};
use crate::error::Reason;
use crate::kernel::{Accepted, Ask};
use crate::narrow::{single, word};

/// The moments of channels that are last. Five workgroups of 128 threads on each SM leave a thread 96 registers. A thread merges its rows in
/// fours, so that 96 of them are a chain of 24.
const MOMENTS_COLUMNS: ColumnSpread =
    ColumnSpread { workgroup_threads: 128, wave_workgroups: 5 * MULTIPROCESSORS, most_thread_rows: 96 };
/// What applies the moments of channels that are last. A wave is counted as twice the four workgroups of 256 threads that an SM holds at once with
/// 64 registers a thread, so that slices get about half as many rows as with a wave that is counted once, as backward counts it. Nothing is
/// added up: with more rows, one load of a thread's parameters would serve more of them, but the last workgroups would end later.
const APPLY_COLUMNS: ColumnSpread =
    ColumnSpread { workgroup_threads: 256, wave_workgroups: 8 * MULTIPROCESSORS, most_thread_rows: 64 };

/// Threads of a workgroup that applies statistics if chunks span channels: the most that WebGPU promises.
const GAPLESS_APPLY_THREADS: u32 = 256;
/// Chunks of a thread that applies statistics if chunks span channels. With a residual it has four loads in flight; with more chunks it would have more, and
/// take more registers for the terms of two channels.
const GAPLESS_APPLY_CHUNKS: u32 = 2;

/// The weight `m` of a batch in running statistics, and `1 - m`, as the kernels take both in one number: the smaller of the two, negative where
/// that is `1 - m`. Of an `m` near 1 rounded to f32, `1 - m` would have few bits left.
fn running_weight(momentum: f64) -> f32 {
    if momentum <= 0.5 { single(momentum) } else { -single(1.0 - momentum) }
}

/// What a dispatch binds. Operands of the family that it does not use are absent.
#[derive(Clone, Copy, Default)]
struct Uses {
    x: bool,
    /// y, and what it is made of besides x.
    y: bool,
    saved: bool,
    running: Option<&'static str>,
    num_batches: Option<&'static str>,
    moments: Option<&'static str>,
    statistics: Option<&'static str>,
}

type Forward<'d> = Task<'d, ForwardFields>;

impl Pass for ForwardFields {
    fn accept(form: WgslForm, norm: &Valid<Self>, props: &Props, ask: Ask) -> Accepted<'static> {
        let fields = &norm.fields;
        let dense = [WEIGHT, BIAS, MEAN, RSTD, RUNNING_MEAN, RUNNING_VAR, NUM_BATCHES];
        let dtype = ShaderType::of(fields.x.dtype())?;
        check_reach(norm.slots.iter().filter(|slot| !slot.desc.is_empty()), &dense, props)?;
        let geometry = norm.geometry()?;
        form.check_order(geometry.order)?;
        let segments = Segments::new(&geometry, dtype, &[X, RESIDUAL, Y]);
        let slices = if segments.is_empty() { 0 } else { moments_spread(&segments, props).slices(&segments) };
        let forward = Forward::new(norm, segments, Parts::of(slices, ["moments", "statistics"]), props, ask);
        match form {
            WgslForm::GaplessResident => forward.gapless_resident(),
            WgslForm::Persistent => forward.persistent(),
            WgslForm::Resident => forward.resident(),
            WgslForm::ChannelsLastTile => forward.channels_last_tile(),
            WgslForm::SplitFused | WgslForm::ChannelsLastSplitFused => forward.split_fused(),
            WgslForm::SplitMerge | WgslForm::ChannelsLastSplitMerge => forward.split(),
            WgslForm::Apply | WgslForm::ChannelsLastApply => forward.inference(),
        }
    }
}

impl Forward<'_> {
    fn bindings(&self, uses: Uses) -> Vec<Binding> {
        let operands = &self.operands;
        // If channels are last, a thread reads the parameters of its chunk's channels.
        let parameter = |operand| match self.segments.order {
            ChannelOrder::Contiguous => operands.parameter(operand).bound_if(uses.y, "absent_elements"),
            ChannelOrder::ChannelsLast => operands.parameter_quads(operand).bound_if(uses.y, "absent_quads"),
        };
        let saved = |operand| operands.other(operand, uses.saved.then_some("elements_f32_out"), "absent_elements");
        vec![
            operands.input(X).bound_if(uses.x, "absent_in"),
            operands.input(RESIDUAL).bound_if(uses.y, "absent_in"),
            parameter(WEIGHT),
            parameter(BIAS),
            operands.output(Y).bound_if(uses.y, "absent_out"),
            saved(MEAN),
            saved(RSTD),
            operands.other(RUNNING_MEAN, uses.running, "absent_elements"),
            operands.other(RUNNING_VAR, uses.running, "absent_elements"),
            operands.other(NUM_BATCHES, uses.num_batches, "absent_counter"),
            self.parts.of_slices.binding(uses.moments),
            self.parts.of_groups.binding(uses.statistics),
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
            group_parts: u32 = word(self.group_parts()),
            group_count: u32 = word(segments.group_count),
            reciprocal_count: f32 = if elements == 0 { 0.0 } else { single(1.0 / elements as f64) },
            // n / (n - 1): turns the mean of squared differences into the unbiased variance, of which running statistics are made.
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

    /// As [`step`](Self::step), for dispatches of teams.
    fn team_step(&self, team: Team, files: &[&'static str], uses: Uses, grid: (Share, [u32; 2])) -> StepBuilder {
        self.step(&[&team.files(), files].concat(), team.constants(), uses, grid)
    }

    /// What the one dispatch of a form that holds groups binds.
    fn whole_uses(&self) -> Uses {
        let running = self.norm.fields.momentum.map(|_| "elements_f32_out");
        Uses { x: true, y: true, saved: true, running, ..Uses::default() }
    }

    fn has_running(&self) -> bool {
        self.norm.fields.momentum.is_some() || self.norm.fields.cumulative
    }

    /// Refuses what no form serves that finishes statistics in the dispatch that writes y.
    fn check_statistics(&self) -> Result<(), Reason> {
        let fields = &self.norm.fields;
        Reason::unless(!fields.inference, || "it takes statistics, in inference there are none to take")?;
        Reason::unless(!self.segments.is_empty(), || "it takes statistics of elements, here are none")?;
        if fields.cumulative {
            return Err("all of its workgroups would read the count of batches while one of them writes it".into());
        }
        if fields.momentum.is_some() && self.norm.op.kind != ChannelNorm::Batch {
            return Err("it has one sample in a group, running statistics are those of all samples".into());
        }
        Ok(())
    }

    /// Whole channels of all samples in registers, of which several share chunks.
    fn gapless_resident(self) -> Accepted<'static> {
        self.check_statistics()?;
        let tile = GaplessResident::new(&self.segments, 1, self.props)?;
        let grid = tile.grid(&self.segments, self.props)?;
        let files = [
            "norm/channel/channel_norm_update",
            "norm/channel/channel_norm_gapless",
            "norm/channel/channel_norm_gapless_output",
            "norm/channel/channel_norm_gapless_resident",
        ];
        let share = Share { columns: tile.columns, ..Share::WHOLE };
        let step = self.step(&files, tile.constants(), self.whole_uses(), (share, grid));
        self.candidate(tile, vec![StepBuilder { can_chunk: true, ..step }], 0)
    }

    /// Whole groups in registers, one after the other in each workgroup.
    fn persistent(self) -> Accepted<'static> {
        self.check_statistics()?;
        let PersistentTeam { team, workgroups } = PersistentTeam::new(&self.segments, self.props, self.ask)?;
        let files = [
            "norm/channel/channel_norm_update",
            "norm/channel/channel_norm_place",
            "norm/channel/channel_norm_persistent",
        ];
        let mut step = self.team_step(team, &files, self.whole_uses(), (Share::WHOLE, [workgroups, 1]));
        step.flags.push(("PREFETCH", self.segments.group_count > u64::from(workgroups)));
        let choice = Persistent { workgroup_threads: team.workgroup, workgroups, thread_chunks: team.chunks };
        self.candidate(choice, vec![step], 0)
    }

    /// Whole groups in the registers of teams.
    fn resident(self) -> Accepted<'static> {
        self.check_statistics()?;
        let team = resident_team(&self.segments, self.props, self.ask)?;
        let grid = groups(self.segments.group_count.div_ceil(team.rows()), self.props)?;
        let files = [
            "norm/channel/channel_norm_update",
            "norm/moments",
            "norm/channel/channel_norm_moments",
            "norm/channel/channel_norm_place",
            "norm/channel/channel_norm_resident",
        ];
        let mut step = self.team_step(team, &files, self.whole_uses(), (Share::WHOLE, grid));
        let is_alone = self.segments.group_count <= MULTIPROCESSORS;
        step.flags.extend([("UNPACKED", team.keep == Keep::Values), ("PARAMETERS_FIRST", is_alone)]);
        self.candidate(Resident::of(team), vec![step], 0)
    }

    /// Whole groups of a sample in registers, channels last.
    fn channels_last_tile(self) -> Accepted<'static> {
        self.check_statistics()?;
        let props = self.props;
        let (forward, tile) = self.tiled(|segments| Tile::new(segments, props))?;
        let grid = groups(forward.segments.batch * tile.blocks, props)?;
        let files = ["norm/channel/channel_norm_update", "norm/channels_last/channels_last_norm_tile"];
        let files = [&tile.team.files(), &files[..]].concat();
        let share = Share { column_blocks: word(tile.blocks), ..Share::WHOLE };
        let step = forward.step(&files, tile.constants(), forward.whole_uses(), (share, grid));
        forward.candidate(ChannelsLastTile::of(tile), vec![step], 0)
    }

    /// How the dispatch that applies statistics is spread.
    fn apply_spread(&self) -> Spread {
        let tensors = if self.norm.fields.residual { 2 } else { 1 };
        Spread::new(&self.segments, APPLY_COLUMNS, tensors, self.props)
    }

    /// With the workspace of a split form.
    fn split_in_parts(self) -> Result<Self, Reason> {
        let groups = self.segments.group_count;
        let parts = self.group_parts() * groups;
        self.with_parts([parts, groups])
    }

    /// Moments of parts; then every workgroup merges those of its groups and writes y.
    fn split_fused(self) -> Accepted<'static> {
        self.check_statistics()?;
        let forward = self.split_in_parts()?;
        let (parts, activation) = (forward.group_parts(), forward.norm.fields.activation);
        let spread = forward.apply_spread();
        let (last, mergers) = spread.merging(&forward.segments, parts, activation, forward.props, forward.ask)?;
        let steps = vec![forward.moments()?, forward.apply(last, Some(mergers))?];
        forward.candidate(Split::of(&forward), steps, forward.parts.of_slices.bytes)
    }

    /// Moments of parts, merged by a dispatch of its own, then applied. Without elements there are at most statistics.
    fn split(self) -> Accepted<'static> {
        Reason::unless(!self.norm.fields.inference, || "it takes statistics, in inference there are none to take")?;
        let wants_statistics = self.norm.fields.stats && self.segments.group_count > 0;
        if self.segments.is_empty() && !wants_statistics {
            return self.candidate(Split::of(&self), Vec::new(), 0);
        }
        let forward = self.split_in_parts()?;
        let Self { norm, segments, .. } = &forward;
        let mut steps = Vec::new();
        if segments.is_empty() {
            steps.push(forward.merge()?);
        } else {
            steps.push(forward.moments()?);
            steps.push(forward.merge()?);
            if forward.has_running() && norm.op.kind == ChannelNorm::Instance {
                steps.push(forward.running()?);
            }
            steps.push(forward.apply_known()?);
        }
        forward.candidate(Split::of(&forward), steps, forward.parts.bytes)
    }

    /// y from the running statistics.
    fn inference(self) -> Accepted<'static> {
        Reason::unless(self.norm.fields.inference, || "it applies running statistics, which inference alone reads")?;
        let steps = if self.segments.is_empty() { Vec::new() } else { vec![self.apply_known()?] };
        self.candidate((), steps, 0)
    }

    /// Moments of slices.
    fn moments(&self) -> Result<StepBuilder, Reason> {
        let spread = moments_spread(&self.segments, self.props);
        let uses = Uses { x: true, moments: Some("partials_out"), ..Uses::default() };
        let grid = (spread.share(&self.segments), spread.grid(&self.segments, self.props)?);
        let (mut files, mut constants) = spread.files_and_constants(None);
        let mut flags = Vec::new();
        match spread {
            Spread::Slices(team) => {
                files.extend(["norm/moments", "norm/channel/channel_norm_moments"]);
                files.push("norm/channel/channel_norm_split_moments");
                flags.push(("UNPACKED", team.keep == Keep::Values));
            }
            Spread::Columns(columns) => {
                files.push("norm/channels_last/channels_last_norm_slices");
                files.push(match columns.held_rows {
                    Some(_) => "norm/channels_last/channels_last_norm_moments",
                    None => "norm/channels_last/channels_last_norm_stream",
                });
                constants.extend(columns.held_rows.map(|rows| ("CHUNKS", rows)));
            }
        }
        let mut step = self.step(&files, constants, uses, grid);
        step.flags.extend(flags);
        Ok(step)
    }

    /// Statistics of the groups from the moments of their parts.
    fn merge(&self) -> Result<StepBuilder, Reason> {
        let team = merge_team(self.group_parts(), self.props);
        let grid = groups(self.segments.group_count.div_ceil(team.rows()), self.props)?;
        let files = ["norm/channel/channel_norm_update", "norm/channel/channel_norm_split_merge"];
        let updates = self.norm.op.kind == ChannelNorm::Batch && !self.segments.is_empty();
        let uses = Uses {
            saved: true,
            running: (updates && self.has_running()).then_some("elements_f32_out"),
            num_batches: (updates && self.norm.fields.cumulative).then_some("counter_in"),
            moments: Some("partials_in"),
            statistics: Some("partials_out"),
            ..Uses::default()
        };
        Ok(self.team_step(team, &files, uses, (Share::WHOLE, grid)))
    }

    /// Running statistics over samples.
    fn running(&self) -> Result<StepBuilder, Reason> {
        let team = merge_team(self.segments.batch, self.props);
        let grid = groups(self.segments.channels.div_ceil(team.rows()), self.props)?;
        let files = ["norm/channel/channel_norm_running_over_samples"];
        let uses = Uses { running: Some("elements_f32_out"), statistics: Some("partials_in"), ..Uses::default() };
        Ok(self.team_step(team, &files, uses, (Share::WHOLE, grid)))
    }

    /// y from statistics that are known.
    fn apply_known(&self) -> Result<StepBuilder, Reason> {
        if !self.segments.is_gapless {
            return self.apply(self.apply_spread(), None);
        }
        let threads = GAPLESS_APPLY_THREADS.min(self.props.max_threads);
        let elements = self.segments.segment_count() * self.segments.spatial;
        let workgroup_chunks = u64::from(threads * GAPLESS_APPLY_CHUNKS);
        let grid = groups((elements / self.segments.elements).div_ceil(workgroup_chunks), self.props)?;
        let files = [
            "norm/channel/channel_norm_gapless",
            "norm/channel/channel_norm_gapless_output",
            "norm/channel/channel_norm_count_batch",
            "norm/channel/channel_norm_apply_gapless",
        ];
        let constants = vec![("WORKGROUP", threads), ("CHUNKS", GAPLESS_APPLY_CHUNKS)];
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
            y: true,
            saved: is_merging,
            running,
            num_batches: fields.cumulative.then_some("counter_out"),
            moments: is_merging.then_some("partials_in"),
            statistics: (!fields.inference && !is_merging).then_some("partials_in"),
        }
    }

    /// y from statistics that are known, or from moments that `mergers` merge.
    fn apply(&self, spread: Spread, mergers: Option<Mergers>) -> Result<StepBuilder, Reason> {
        let (mut files, constants) = spread.files_and_constants(mergers);
        if mergers.is_some() {
            files.extend(["norm/channel/channel_norm_update", "norm/channel/channel_norm_merge_held"]);
        }
        files.push(match (spread, mergers.is_some()) {
            (Spread::Slices(_), true) => "norm/channel/channel_norm_apply_merging",
            (Spread::Slices(_), false) => "norm/channel/channel_norm_apply_known",
            (Spread::Columns(_), true) => "norm/channels_last/channels_last_norm_merging",
            (Spread::Columns(_), false) => "norm/channels_last/channels_last_norm_known",
        });
        files.push("norm/channel/channel_norm_count_batch");
        files.push(match spread {
            Spread::Slices(_) => "norm/channel/channel_norm_apply",
            Spread::Columns(_) => "norm/channels_last/channels_last_norm_apply",
        });
        let grid = spread.grid(&self.segments, self.props)?;
        Ok(self.step(&files, constants, self.apply_uses(mergers.is_some()), (spread.share(&self.segments), grid)))
    }
}

/// How the moments are spread.
fn moments_spread(segments: &Segments, props: &Props) -> Spread {
    Spread::of_moments(segments, MOMENTS_COLUMNS, props)
}
