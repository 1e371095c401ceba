//! Backward: groups held in registers by one dispatch, or sums of slices, merged to means of groups and gradients of parameters, then applied.

use super::super::backward::{
    BIAS, DBIAS, DRESIDUAL, DWEIGHT, DX, DY, MEAN, RESIDUAL, RSTD, RUNNING_MEAN, RUNNING_VAR, WEIGHT, X, Y,
};
use super::super::{BackwardFields, Valid};
use super::team::{
    ColumnSpread, FEW_CHANNEL_PARTS, GaplessResident, MULTIPROCESSORS, Mergers, SUM_LANES, Spread, Tile, merge_team,
    resident_backward_team, sum_columns,
};
use super::{ChannelsLastTile, Parts, Pass, Resident, Segments, Share, Split, Task, WgslForm};
use crate::backend::wgpu::team::Team;
use crate::backend::wgpu::{Binding, Props, ShaderType, StepBuilder, check_reach, groups, padded, params};
use crate::error::Reason;
use crate::kernel::{Accepted, Ask, Choice};
use crate::narrow::{single, word};

/// The sums of channels that are last. Three workgroups of 256 threads on each SM leave a thread 80 registers, for chunks of three tensors. The
/// rows of a thread are a chain of additions.
const SUMS_COLUMNS: ColumnSpread =
    ColumnSpread { workgroup_threads: 256, wave_workgroups: 3 * MULTIPROCESSORS, most_thread_rows: 32 };
/// What computes dx of channels that are last. Four workgroups of 256 threads on each SM leave a thread 64 registers. Nothing is added up: with
/// more rows, one load of a thread's parameters would serve more of them, but the last workgroups would end later.
const APPLY_COLUMNS: ColumnSpread =
    ColumnSpread { workgroup_threads: 256, wave_workgroups: 4 * MULTIPROCESSORS, most_thread_rows: 64 };

/// What a dispatch binds. Operands of the family that it does not use are absent.
#[derive(Clone, Copy, Default)]
struct Uses {
    inputs: bool,
    weight: bool,
    statistics: bool,
    outputs: bool,
    parameters: bool,
    sums: Option<&'static str>,
    means: Option<&'static str>,
}

impl Uses {
    /// What the one dispatch of a form binds that holds groups.
    const WHOLE: Self =
        Self { inputs: true, weight: true, statistics: true, outputs: true, parameters: true, sums: None, means: None };
}

/// What a dispatch merges of the sums of slices.
#[derive(Clone, Copy)]
struct Merged {
    means: bool,
    parameters: bool,
}

/// Threads of a channel's team for each that a group's team has, from which on most of those in front of a group would be idle; and the other way
/// around.
const IDLE_MERGERS: u32 = 8;
/// Most threads in front of groups, or of channels, most of them idle, that cost less than a further dispatch: sixteen times as many as a GPU of 132
/// SMs holds at once take some tens of microseconds. An estimate, not measured.
const MOST_MERGING_THREADS: u64 = 1 << 22;

type Backward<'d> = Task<'d, BackwardFields>;

/// The file of the chunks that a thread holds, which the split forms and `channels_last_tile` include.
const HELD: &str = "norm/channel/channel_norm_backward_held";

impl Pass for BackwardFields {
    fn accept(form: WgslForm, norm: &Valid<Self>, props: &Props, ask: Ask) -> Accepted<'static> {
        let fields = &norm.fields;
        let dense = [WEIGHT, BIAS, MEAN, RSTD, RUNNING_MEAN, RUNNING_VAR, DWEIGHT, DBIAS];
        let dtype = ShaderType::of(fields.x.dtype())?;
        check_reach(norm.slots.iter().filter(|slot| !slot.desc.is_empty()), &dense, props)?;
        let geometry = norm.geometry()?;
        form.check_order(geometry.order)?;
        let saved = if fields.from_y { Y } else { RESIDUAL };
        let segments = Segments::new(&geometry, dtype, &[DY, X, saved, DX, DRESIDUAL]);
        let sums = Spread::new(&segments, SUMS_COLUMNS, 2, props);
        let slices = if segments.is_empty() { 0 } else { sums.slices(&segments) };
        let backward = Backward::new(norm, segments, Parts::of(slices, ["sums", "means"]), props, ask);
        match form {
            WgslForm::GaplessResident => backward.gapless_resident(),
            WgslForm::Resident => backward.resident(),
            WgslForm::ChannelsLastTile => backward.channels_last_tile(),
            WgslForm::SplitFused | WgslForm::ChannelsLastSplitFused => backward.split_fused(sums),
            WgslForm::SplitMerge | WgslForm::ChannelsLastSplitMerge => backward.split(sums),
            WgslForm::Persistent | WgslForm::Apply | WgslForm::ChannelsLastApply => {
                Err("it is a form of forward".into())
            }
        }
    }
}

impl Backward<'_> {
    fn bindings(&self, uses: Uses) -> Vec<Binding> {
        let (fields, operands) = (&self.norm.fields, &self.operands);
        let statistics =
            |operand, accessor, absent| operands.other(operand, uses.statistics.then_some(accessor), absent);
        // What the activation's gradient is made from.
        let saved = Binding { name: "saved", ..operands.input(if fields.from_y { Y } else { RESIDUAL }) };
        let recomputes = uses.inputs && fields.recomputes();
        vec![
            operands.input(DY).bound_if(uses.inputs, "absent_in"),
            operands.input(X).bound_if(uses.inputs, "absent_in"),
            saved.bound_if(uses.inputs, "absent_in"),
            operands.parameter(WEIGHT).bound_if(uses.weight || recomputes, "absent_elements"),
            operands.parameter(BIAS).bound_if(recomputes, "absent_elements"),
            statistics(MEAN, "elements_f32_in", "absent_elements"),
            statistics(RSTD, "elements_f32_in", "absent_elements"),
            statistics(RUNNING_MEAN, "elements_f32_in", "absent_elements"),
            statistics(RUNNING_VAR, "elements_f32_in", "absent_elements"),
            operands.output(DX).bound_if(uses.outputs, "absent_out"),
            operands.output(DRESIDUAL).bound_if(uses.outputs, "absent_out"),
            operands.gradient(DWEIGHT).bound_if(uses.parameters, "absent_elements"),
            operands.gradient(DBIAS).bound_if(uses.parameters, "absent_elements"),
            self.parts.of_slices.binding(uses.sums),
            self.parts.of_groups.binding(uses.means),
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
            dy: [u32; 4] = padded(segments.strides(DY)),
            x: [u32; 4] = padded(segments.strides(X)),
            residual: [u32; 4] = padded(segments.strides(RESIDUAL)),
            y: [u32; 4] = padded(segments.strides(Y)),
            dx: [u32; 4] = padded(segments.strides(DX)),
            dresidual: [u32; 3] = segments.strides(DRESIDUAL),
            eps: f32 = fields.eps.map_or(0.0, |eps| single(eps.get())),
            slices: u32 = share.slices,
            sum_slices: u32 = word(self.parts.slices),
            group_channels: u32 = word(segments.group_channels),
            group_segments: u32 = word(segments.group_segments),
            group_parts: u32 = word(self.group_parts()),
            group_count: u32 = word(segments.group_count),
            reciprocal_count: f32 = if elements == 0 { 0.0 } else { single(1.0 / elements as f64) },
            groups_x: u32 = groups_x,
            column_blocks: u32 = share.column_blocks,
            slice_rows: u32 = share.slice_rows,
            columns: u32 = share.columns,
            first_workgroup: u32 = share.first_workgroup,
        }
    }

    fn step(
        &self,
        files: &[&'static str],
        (mut constants, has_means): (Vec<(&'static str, u32)>, bool),
        uses: Uses,
        (share, grid): (Share, [u32; 2]),
    ) -> StepBuilder {
        let fields = &self.norm.fields;
        constants.push(("ACTIVATION", fields.activation as u32));
        let flags = vec![
            ("USES_RUNNING", fields.inference),
            ("SAVED_IS_Y", fields.from_y),
            ("HAS_MEANS", has_means),
            ("WANTS_MEANS", self.wants_means()),
            ("WANTS_PARAMETERS", self.wants_parameters()),
            ("PARTS_ARE_FEW", self.are_parts_few()),
        ];
        let params = self.params(share, grid[0]);
        let step = self.segments.step(self.norm.op.kind, "norm/channel/channel_norm_backward", files, params, grid);
        StepBuilder { constants, flags, bindings: self.bindings(uses), ..step }
    }

    /// Whether a table holds the means over groups that dx takes, beside the statistics.
    fn wants_means(&self) -> bool {
        wants_means(&self.norm.fields) && !self.segments.is_empty()
    }

    fn wants_parameters(&self) -> bool {
        self.norm.fields.dweight || self.norm.fields.dbias
    }

    /// Refuses what no form serves that takes the means over groups in the dispatch that writes dx.
    fn check_means(&self) -> Result<(), Reason> {
        Reason::unless(self.norm.fields.dx, || "it takes means for dx, which is not asked for")?;
        Reason::unless(!self.norm.fields.inference, || "it takes means over groups, in inference dx depends on none")?;
        Reason::unless(!self.segments.is_empty(), || "it takes means of elements, here are none")
    }

    /// A form that is one dispatch.
    fn whole(&self, step: StepBuilder, choice: impl Choice + 'static) -> Accepted<'static> {
        // No workgroup may lie past the last, as it could in a grid of two dimensions: in place it would compute parameters again.
        if step.grid[1] > 1 {
            return Err(format!("it needs {} rows of workgroups, the limit is one", step.grid[1]).into());
        }
        self.candidate(choice, vec![step], 0)
    }

    /// Whole channels of all samples in registers, of which several share chunks.
    fn gapless_resident(self) -> Accepted<'static> {
        self.check_means()?;
        let tile = GaplessResident::new(&self.segments, 2, self.props)?;
        let grid = tile.grid(&self.segments, self.props)?;
        let files = ["norm/channel/channel_norm_gapless", "norm/channel/channel_norm_backward_gapless_resident"];
        let share = Share { columns: tile.columns, ..Share::WHOLE };
        let step = self.step(&files, (tile.constants(), true), Uses::WHOLE, (share, grid));
        self.whole(StepBuilder { can_chunk: true, ..step }, tile)
    }

    /// Whole groups in registers, and the parameters beside them.
    fn resident(self) -> Accepted<'static> {
        self.check_means()?;
        let segments = &self.segments;
        let team = resident_backward_team(segments, self.norm.fields.activation, self.props, self.ask)?;
        let is_apart = self.wants_parameters() && !segments.groups_are_channels;
        let workgroups = segments.group_count.div_ceil(team.rows());
        let remaining = if is_apart { segments.channels.div_ceil(channels_of(team)) } else { 0 };
        let files = ["norm/channel/channel_norm_place", "norm/channel/channel_norm_backward_resident"];
        let files = [&team.files(), &files[..]].concat();
        let mut constants = team.constants();
        constants.push(("CHANNELS", word(channels_of(team))));
        let step = self.with_parameters(&files, constants, Share::WHOLE, [workgroups, remaining])?;
        self.whole(step, Resident::of(team))
    }

    /// Whole groups of a sample in registers, channels last, and the parameters beside them.
    fn channels_last_tile(self) -> Accepted<'static> {
        self.check_means()?;
        let (props, ask) = (self.props, self.ask);
        let (backward, tile) = self.tiled(|segments| Tile::of_gradients(segments, props, ask))?;
        let segments = &backward.segments;
        let row_chunks = segments.channels.div_ceil(segments.elements);
        let columns = sum_columns(segments);
        let remaining = if backward.wants_parameters() { row_chunks.div_ceil(u64::from(columns)) } else { 0 };
        let files = [
            HELD,
            "norm/channels_last/channels_last_norm_backward",
            "norm/channels_last/channels_last_norm_backward_tile",
        ];
        let files = [&tile.team.files(), &files[..]].concat();
        let mut constants = tile.constants();
        constants.extend([("SUM_COLUMNS", columns), ("SUM_LANES", SUM_LANES)]);
        let share = Share { column_blocks: word(tile.blocks), ..Share::WHOLE };
        let step = backward.with_parameters(&files, constants, share, [segments.batch * tile.blocks, remaining])?;
        backward.whole(step, ChannelsLastTile::of(tile))
    }

    /// Workgroups for dx, and after them those for the parameters, for which they read dy and x again. In place dx overwrites dy: then the
    /// parameters come first, in a dispatch of their own.
    fn with_parameters(
        &self,
        files: &[&'static str],
        constants: Vec<(&'static str, u32)>,
        share: Share,
        [workgroups, remaining]: [u64; 2],
    ) -> Result<StepBuilder, Reason> {
        let grid = groups(workgroups + remaining, self.props)?;
        let mut step = self.step(files, (constants, true), Uses::WHOLE, (share, grid));
        if remaining > 0 {
            for (first, count) in [(workgroups, remaining), (0, workgroups)] {
                let grid = groups(count, self.props)?;
                let share = Share { first_workgroup: word(first), ..share };
                step.in_place.push((self.params(share, grid[0]), grid));
            }
        }
        Ok(step)
    }

    /// Whether a thread adds up the parts of a channel.
    fn are_parts_few(&self) -> bool {
        self.segments.batch * self.parts.slices <= FEW_CHANNEL_PARTS
    }

    /// Whether the sums of slices are needed: for gradients of parameters, and for the means of groups.
    fn has_sums(&self) -> bool {
        self.wants_parameters() || (self.norm.fields.dx && !self.norm.fields.inference)
    }

    /// With the workspace of a split form.
    fn split_in_parts(self) -> Result<Self, Reason> {
        let (segments, slices) = (&self.segments, self.parts.slices);
        let sums = if self.has_sums() { segments.segment_count() * slices } else { 0 };
        let means = if wants_means(&self.norm.fields) && slices > 0 { segments.group_count } else { 0 };
        self.with_parts([sums, means])
    }

    fn apply_spread(&self) -> Spread {
        Spread::new(&self.segments, APPLY_COLUMNS, 2, self.props)
    }

    /// How a dispatch that merges spreads the segments, and by which teams it merges.
    fn merging(&self) -> Result<(Spread, Mergers), Reason> {
        self.check_means()?;
        let activation = self.norm.fields.activation;
        self.apply_spread().merging(&self.segments, self.group_parts(), activation, self.props, self.ask)
    }

    /// How the sums are spread: as the activation's spread does it, if what merges takes that and as many parts remain.
    fn sums_spread(&self, sums: Spread, is_merging: bool) -> Spread {
        let shorter = sums.of_activation(self.norm.fields.activation, self.props);
        let has_same_parts = shorter.slices(&self.segments) == sums.slices(&self.segments);
        if is_merging && has_same_parts { shorter } else { sums }
    }

    /// Sums of slices; then every workgroup merges those of its groups and writes dx, and further workgroups write the parameters.
    fn split_fused(self, sums: Spread) -> Accepted<'static> {
        let (last, mergers) = self.merging()?;
        let backward = self.split_in_parts()?;
        let first = backward.sums_spread(sums, true);
        let steps = vec![backward.sums(first)?, backward.apply(last, Some(mergers))?];
        backward.candidate(Split::of(&backward), steps, backward.parts.of_slices.bytes)
    }

    /// Sums of slices, merged by a dispatch of its own to means of groups and gradients of parameters; then dx and dresidual.
    fn split(self, sums: Spread) -> Accepted<'static> {
        let backward = self.split_in_parts()?;
        let (fields, segments) = (&backward.norm.fields, &backward.segments);
        let mut steps = Vec::new();
        if segments.channels > 0 {
            if backward.has_sums() && !segments.is_empty() {
                let first = backward.sums_spread(sums, backward.merging().is_ok());
                steps.push(backward.sums(first)?);
            }
            if backward.wants_parameters() || backward.wants_means() {
                steps.extend(backward.merges()?);
            }
            if (fields.dx || fields.dresidual) && !segments.is_empty() {
                steps.push(backward.apply(backward.apply_spread(), None)?);
            }
        }
        backward.candidate(Split::of(&backward), steps, backward.parts.bytes)
    }

    /// Sums of slices.
    fn sums(&self, spread: Spread) -> Result<StepBuilder, Reason> {
        let uses = Uses { inputs: true, statistics: true, sums: Some("partials_out"), ..Uses::default() };
        let grid = (spread.share(&self.segments), spread.grid(&self.segments, self.props)?);
        let (mut files, constants) = spread.files_and_constants(None);
        files.extend(holding_files(spread));
        files.extend(match spread {
            Spread::Slices(_) => ["norm/channel/channel_norm_backward_split_sums"].as_slice(),
            Spread::Columns(_) => &[
                "norm/channels_last/channels_last_norm_backward_known",
                "norm/channels_last/channels_last_norm_backward_sums",
            ],
        });
        Ok(self.step(&files, (constants, false), uses, grid))
    }

    /// Means of the groups and gradients of the parameters: by one dispatch, or by two if teams as large as a channel needs would be too many for groups,
    /// or the other way around.
    fn merges(&self) -> Result<Vec<StepBuilder>, Reason> {
        let segments = &self.segments;
        let parts = self.group_parts();
        let wanted = Merged { means: self.wants_means(), parameters: self.wants_parameters() };
        let channel_parts = if wanted.parameters { segments.batch * self.parts.slices } else { 0 };
        let [of_group, of_channel] = [parts, channel_parts].map(|parts| merge_team(parts, self.props));
        if segments.groups_are_channels {
            return Ok(vec![self.merge(of_group, wanted)?]);
        }
        let is_wasteful = |large: Team, small: Team, count: u64| {
            let threads = count.saturating_mul(large.threads.into());
            large.threads >= IDLE_MERGERS * small.threads && threads > MOST_MERGING_THREADS
        };
        let are_many = is_wasteful(of_channel, of_group, segments.group_count)
            || is_wasteful(of_group, of_channel, segments.channels);
        if wanted.means && wanted.parameters && are_many {
            let [means, parameters] = [true, false].map(|means| Merged { means, parameters: !means });
            return Ok(vec![self.merge(of_group, means)?, self.merge(of_channel, parameters)?]);
        }
        let team = if parts > channel_parts { of_group } else { of_channel };
        Ok(vec![self.merge(team, wanted)?])
    }

    /// What a dispatch merges by teams of one size.
    fn merge(&self, team: Team, merged: Merged) -> Result<StepBuilder, Reason> {
        let segments = &self.segments;
        let group_teams = if merged.means { segments.group_count } else { 0 };
        let channel_teams = if merged.parameters { segments.channels } else { 0 };
        let teams = if segments.groups_are_channels { segments.channels } else { group_teams + channel_teams };
        let grid = groups(teams.div_ceil(team.rows()), self.props)?;
        let files =
            ["norm/channel/channel_norm_backward_channel_sums", "norm/channel/channel_norm_backward_split_merge"];
        let files = [&team.files(), &files[..]].concat();
        let uses = Uses {
            weight: merged.means,
            statistics: merged.means,
            parameters: merged.parameters,
            sums: Some("partials_in"),
            means: merged.means.then_some("partials_out"),
            ..Uses::default()
        };
        let mut step = self.step(&files, (team.constants(), false), uses, (Share::WHOLE, grid));
        for (flag, is_set) in &mut step.flags {
            match *flag {
                "WANTS_MEANS" => *is_set = merged.means,
                "WANTS_PARAMETERS" => *is_set = merged.parameters,
                _ => {}
            }
        }
        Ok(step)
    }

    /// dx and dresidual. With mergers this dispatch adds up the parts of groups itself, and writes the parameters too.
    fn apply(&self, spread: Spread, mergers: Option<Mergers>) -> Result<StepBuilder, Reason> {
        let (mut files, mut constants) = spread.files_and_constants(mergers);
        let mut grid = spread.grid(&self.segments, self.props)?;
        if let Some(mergers) = mergers {
            files.extend([
                "norm/channel/channel_norm_backward_channel_sums",
                "norm/channel/channel_norm_backward_merge_held",
            ]);
            constants.push(("CHANNELS", word(channels_of(mergers.team))));
            if self.wants_parameters() {
                let of_workgroup = match self.are_parts_few() {
                    true => u64::from(mergers.team.workgroup),
                    false => channels_of(mergers.team),
                };
                let remaining = self.segments.channels.div_ceil(of_workgroup);
                grid = groups(spread.workgroups(&self.segments) + remaining, self.props)?;
            }
        }
        files.push(match (spread, mergers.is_some()) {
            (Spread::Slices(_), true) => "norm/channel/channel_norm_backward_apply_merging",
            (Spread::Slices(_), false) => "norm/channel/channel_norm_backward_apply_known",
            (Spread::Columns(_), true) => "norm/channels_last/channels_last_norm_backward_merging",
            (Spread::Columns(_), false) => "norm/channels_last/channels_last_norm_backward_known",
        });
        files.extend(holding_files(spread));
        files.push(match spread {
            Spread::Slices(_) => "norm/channel/channel_norm_backward_apply",
            Spread::Columns(_) => "norm/channels_last/channels_last_norm_backward_apply",
        });
        let uses = Uses {
            inputs: true,
            weight: self.norm.fields.dx,
            statistics: mergers.is_some() || !self.wants_means(),
            outputs: true,
            parameters: mergers.is_some(),
            sums: mergers.map(|_| "partials_in"),
            means: (self.wants_means() && mergers.is_none()).then_some("partials_in"),
        };
        Ok(self.step(&files, (constants, self.wants_means()), uses, (spread.share(&self.segments), grid)))
    }
}

/// Channels whose sums a workgroup adds up, the members of `team` each.
fn channels_of(team: Team) -> u64 {
    u64::from(team.workgroup) / team.members()
}

/// Means and statistics in one table save a binding: with all operands of inference, devices with 8 bindings would lack one.
fn wants_means(fields: &BackwardFields) -> bool {
    let has_all =
        fields.dx && fields.dresidual && fields.recomputes() && fields.weight.is_some() && fields.bias.is_some();
    if fields.inference { has_all } else { fields.dx }
}

/// The files of a dispatch over all segments that say what its threads hold.
fn holding_files(spread: Spread) -> &'static [&'static str] {
    match spread {
        Spread::Slices(_) => &[HELD, "norm/channel/channel_norm_backward_slice"],
        Spread::Columns(_) => &[
            HELD,
            "norm/channels_last/channels_last_norm_backward",
            "norm/channels_last/channels_last_norm_backward_rows",
        ],
    }
}
