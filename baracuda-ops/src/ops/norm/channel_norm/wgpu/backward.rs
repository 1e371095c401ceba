//! Backward: sums of slices, merged to means of groups and gradients of parameters, then applied.

use super::super::backward::{
    BIAS, DBIAS, DRESIDUAL, DWEIGHT, DX, DY, MEAN, RESIDUAL, RSTD, RUNNING_MEAN, RUNNING_VAR, WEIGHT, X, Y,
};
use super::super::{BackwardFields, Valid};
use super::team::{
    FEW_CHANNEL_PARTS, Form, GaplessTile, MULTIPROCESSORS, Mergers, SUM_LANES, Spread, Tile, merge_team,
    resident_backward_team, sum_columns,
};
use super::{Held, Operands, Quads, Segments, Share, check};
use crate::backend::wgpu::team::Team;
use crate::backend::wgpu::{Binding, Props, StepBuilder, Work, check_bindings, groups, padded, params};
use crate::error::Reason;
use crate::narrow::{single, word};

/// Threads of a workgroup where channels are last, and as many workgroups as a large GPU takes in one turn: for the sums, and to apply them.
const SUMS_COLUMNS: Spread = Spread { workgroup: 256, resident: 3 * MULTIPROCESSORS, rows: 32 };
const APPLY_COLUMNS: Spread = Spread { workgroup: 256, resident: 4 * MULTIPROCESSORS, rows: 64 };

/// What a dispatch binds; the others of the family are absent.
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
    /// Of a dispatch that does all.
    const WHOLE: Self =
        Self { inputs: true, weight: true, statistics: true, outputs: true, parameters: true, sums: None, means: None };
}

struct Backward<'d> {
    norm: &'d Valid<BackwardFields>,
    segments: Segments,
    operands: Operands<'d>,
    /// Slices of a segment that have sums.
    slices: u64,
    sums: Quads,
    means: Quads,
}

impl Backward<'_> {
    fn bindings(&self, uses: Uses) -> Vec<Binding> {
        let (fields, operands) = (&self.norm.fields, &self.operands);
        let statistics =
            |operand, accessor, absent| operands.other(operand, accessor, absent).bound_if(uses.statistics, absent);
        // Whichever the activation's gradient takes.
        let saved = Binding { name: "saved", ..operands.input(if fields.from_y { Y } else { RESIDUAL }) };
        let recomputes = uses.inputs && fields.recomputes();
        vec![
            operands.input(DY).bound_if(uses.inputs, "absent_in"),
            operands.input(X).bound_if(uses.inputs, "absent_in"),
            saved.bound_if(uses.inputs, "absent_in"),
            operands.parameter(WEIGHT).bound_if(uses.weight || recomputes, "absent_elements"),
            operands.parameter(BIAS).bound_if(recomputes, "absent_elements"),
            statistics(MEAN, "statistics_in", "absent_statistics"),
            statistics(RSTD, "statistics_in", "absent_statistics"),
            statistics(RUNNING_MEAN, "elements_f32_in", "absent_elements"),
            statistics(RUNNING_VAR, "elements_f32_in", "absent_elements"),
            operands.output(DX).bound_if(uses.outputs, "absent_out"),
            operands.output(DRESIDUAL).bound_if(uses.outputs, "absent_out"),
            operands.gradient(DWEIGHT).bound_if(uses.parameters, "absent_elements"),
            operands.gradient(DBIAS).bound_if(uses.parameters, "absent_elements"),
            self.sums.binding(uses.sums),
            self.means.binding(uses.means),
        ]
    }

    /// Parts that the means of a group are merged from.
    fn group_parts(&self) -> u64 {
        self.segments.group_segments * self.slices
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
            sum_slices: u32 = word(self.slices),
            group_channels: u32 = word(segments.group_channels),
            group_segments: u32 = word(segments.group_segments),
            group_parts: u32 = word(self.group_parts()),
            group_count: u32 = word(segments.group_count),
            reciprocal_count: f32 = if elements == 0 { 0.0 } else { single(1.0 / elements as f64) },
            groups_x: u32 = groups_x,
            column_blocks: u32 = share.column_blocks,
            slice_rows: u32 = share.slice_rows,
            columns: u32 = share.columns,
            first_group: u32 = share.first_group,
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

    /// Whole groups in registers, and the parameters beside them.
    fn resident(&self, team: Team, props: &Props) -> Result<StepBuilder, Reason> {
        let segments = &self.segments;
        let is_apart = self.wants_parameters() && !segments.groups_are_channels;
        let workgroups = segments.group_count.div_ceil(team.rows());
        let remaining = if is_apart { segments.channels.div_ceil(channels_of(team)) } else { 0 };
        let files = [
            "common/team",
            team.reduce.file(),
            "norm/channel/channel_norm_place",
            "norm/channel/channel_norm_backward_resident",
        ];
        let mut constants = team.constants();
        constants.push(("CHANNELS", word(channels_of(team))));
        self.with_parameters(&files, constants, Share::WHOLE, [workgroups, remaining], props)
    }

    /// Whole groups in registers, channels last, and the parameters beside them.
    fn columns_resident(&self, tile: Tile, props: &Props) -> Result<StepBuilder, Reason> {
        let segments = &self.segments;
        let row_chunks = segments.channels.div_ceil(segments.elements);
        let remaining = if self.wants_parameters() { row_chunks.div_ceil(u64::from(sum_columns(segments))) } else { 0 };
        let files = ["common/team", tile.team.reduce.file(), "norm/channels_last/channels_last_norm_backward_resident"];
        let mut constants = tile.constants();
        constants.extend([("SUM_COLUMNS", sum_columns(segments)), ("SUM_LANES", SUM_LANES)]);
        let share = Share { column_blocks: word(tile.blocks), ..Share::WHOLE };
        self.with_parameters(&files, constants, share, [segments.batch * tile.blocks, remaining], props)
    }

    /// Workgroups for dx, and after them those for the parameters, for which they read dy and x again: in place before.
    fn with_parameters(
        &self,
        files: &[&'static str],
        constants: Vec<(&'static str, u32)>,
        share: Share,
        [workgroups, remaining]: [u64; 2],
        props: &Props,
    ) -> Result<StepBuilder, Reason> {
        let grid = groups(workgroups + remaining, props)?;
        let mut step = self.step(files, (constants, true), Uses::WHOLE, (share, grid));
        if remaining > 0 {
            for (first, count) in [(workgroups, remaining), (0, workgroups)] {
                let grid = groups(count, props)?;
                let share = Share { first_group: word(first), ..share };
                step.in_place.push((self.params(share, grid[0]), grid));
            }
        }
        Ok(step)
    }

    /// Whole channels in registers, of which several share chunks.
    fn gapless_resident(&self, tile: GaplessTile, props: &Props) -> Result<StepBuilder, Reason> {
        let grid = groups(self.segments.channels / tile.channels, props)?;
        let files = [
            "norm/channel/channel_norm_gapless",
            "norm/channel/channel_norm_gapless_tile",
            "norm/channel/channel_norm_backward_gapless_resident",
        ];
        let share = Share { columns: word(tile.columns), ..Share::WHOLE };
        let step = self.step(&files, (tile.constants(), true), Uses::WHOLE, (share, grid));
        Ok(StepBuilder { can_chunk: true, ..step })
    }

    /// Whether a thread adds the parts of a channel up.
    fn are_parts_few(&self) -> bool {
        self.segments.batch * self.slices <= FEW_CHANNEL_PARTS
    }

    /// Sums of slices, contiguous or of columns.
    fn sums(&self, form: Form, props: &Props) -> Result<StepBuilder, Reason> {
        let uses = Uses { inputs: true, statistics: true, sums: Some("partials_out"), ..Uses::default() };
        let grid = form.grid(&self.segments, props)?;
        let share = form.share(&self.segments);
        Ok(match form {
            Form::Slices(team) => {
                let files = [
                    "common/team",
                    team.reduce.file(),
                    "norm/channel/channel_norm_slice",
                    "norm/channel/channel_norm_backward_split_sums",
                ];
                self.step(&files, (team.constants(), false), uses, (share, grid))
            }
            Form::Columns(columns) => {
                let files = [
                    "norm/channels_last/channels_last_norm",
                    "norm/channels_last/channels_last_norm_sum",
                    "norm/channels_last/channels_last_norm_backward_known",
                    "norm/channels_last/channels_last_norm_backward",
                    "norm/channels_last/channels_last_norm_backward_sums",
                ];
                self.step(&files, (columns.constants(), false), uses, (share, grid))
            }
        })
    }

    /// Means of the groups and gradients of the parameters.
    fn merge(&self, props: &Props) -> Result<StepBuilder, Reason> {
        let segments = &self.segments;
        let parts = self.group_parts();
        let of_channel = if self.wants_parameters() { segments.batch * self.slices } else { 0 };
        let team = merge_team(if segments.groups_are_channels { parts } else { parts.max(of_channel) }, props);
        let groups_of = if self.wants_means() { segments.group_count } else { 0 };
        let channels_of = if self.wants_parameters() { segments.channels } else { 0 };
        let teams = if segments.groups_are_channels { segments.channels } else { groups_of + channels_of };
        let grid = groups(teams.div_ceil(team.rows()), props)?;
        let files = [
            "common/team",
            team.reduce.file(),
            "norm/channel/channel_norm_backward_merge",
            "norm/channel/channel_norm_backward_split_merge",
        ];
        let uses = Uses {
            weight: self.wants_means(),
            statistics: self.wants_means(),
            parameters: true,
            sums: Some("partials_in"),
            means: self.wants_means().then_some("partials_out"),
            ..Uses::default()
        };
        Ok(self.step(&files, (team.constants(), false), uses, (Share::WHOLE, grid)))
    }

    /// dx and dresidual. With mergers it adds the parts of groups up itself, and takes the parameters too.
    fn apply(&self, form: Form, mergers: Option<Mergers>, props: &Props) -> Result<StepBuilder, Reason> {
        let fields = &self.norm.fields;
        let is_merging = mergers.is_some();
        let uses = Uses {
            inputs: true,
            weight: fields.dx,
            statistics: is_merging || !self.wants_means(),
            outputs: true,
            parameters: is_merging,
            sums: is_merging.then_some("partials_in"),
            means: (self.wants_means() && !is_merging).then_some("partials_in"),
        };
        let mut grid = form.grid(&self.segments, props)?;
        if let Some(mergers) = mergers.filter(|_| self.wants_parameters()) {
            let of_workgroup =
                if self.are_parts_few() { u64::from(mergers.team.workgroup) } else { channels_of(mergers.team) };
            let remaining = self.segments.channels.div_ceil(of_workgroup);
            grid = groups(form.group_count(&self.segments) + remaining, props)?;
        }
        let share = form.share(&self.segments);
        Ok(match form {
            Form::Slices(team) => {
                let mut files = vec!["common/team", team.reduce.file(), "norm/channel/channel_norm_slice"];
                let mut constants = team.constants();
                if let Some(mergers) = mergers {
                    files.extend([
                        "norm/channel/channel_norm_backward_merge",
                        "norm/channel/channel_norm_backward_merge_held",
                    ]);
                    files.extend([
                        "norm/channel/channel_norm_backward_remaining",
                        "norm/channel/channel_norm_backward_apply_merging",
                    ]);
                    constants.extend([mergers.constant(), ("CHANNELS", word(channels_of(mergers.team)))]);
                } else {
                    files.push("norm/channel/channel_norm_backward_apply_known");
                }
                files.push("norm/channel/channel_norm_backward_apply");
                self.step(&files, (constants, self.wants_means()), uses, (share, grid))
            }
            Form::Columns(columns) => {
                let mut files = vec!["norm/channels_last/channels_last_norm"];
                let mut constants = columns.constants();
                if let Some(mergers) = mergers {
                    files.extend([
                        "common/team",
                        mergers.team.reduce.file(),
                        "norm/channel/channel_norm_backward_merge",
                    ]);
                    files.extend([
                        "norm/channel/channel_norm_backward_merge_held",
                        "norm/channel/channel_norm_backward_remaining",
                    ]);
                    files.push("norm/channels_last/channels_last_norm_backward_merging");
                    constants.extend(mergers.team.team_constants());
                    constants.extend([mergers.constant(), ("CHANNELS", word(channels_of(mergers.team)))]);
                } else {
                    files.push("norm/channels_last/channels_last_norm_backward_known");
                }
                files.extend([
                    "norm/channels_last/channels_last_norm_backward",
                    "norm/channels_last/channels_last_norm_backward_apply",
                ]);
                self.step(&files, (constants, self.wants_means()), uses, (share, grid))
            }
        })
    }
}

/// Channels whose sums a workgroup adds up, the members of `team` each.
fn channels_of(team: Team) -> u64 {
    u64::from(team.workgroup) / team.members()
}

/// Beyond means, a table saves a binding: with all operands of inference, devices with 8 of them would lack one.
fn wants_means(fields: &BackwardFields) -> bool {
    let has_all =
        fields.dx && fields.dresidual && fields.recomputes() && fields.weight.is_some() && fields.bias.is_some();
    if fields.inference { has_all } else { fields.dx }
}

pub(in super::super) fn backward_work(norm: &Valid<BackwardFields>, props: &Props) -> Result<Work<Held>, Reason> {
    let fields = &norm.fields;
    let dtype = check(
        &norm.slots,
        &[WEIGHT, BIAS, MEAN, RSTD, RUNNING_MEAN, RUNNING_VAR, DWEIGHT, DBIAS],
        fields.x.dtype(),
        props,
    )?;
    let saved = if fields.from_y { Y } else { RESIDUAL };
    let tensors = [DY, X, saved, DX, DRESIDUAL];
    let segments = Segments::new(&norm.geometry()?, dtype, &tensors);
    let first = Form::new(&segments, SUMS_COLUMNS, 2, props);
    let last = Form::new(&segments, APPLY_COLUMNS, 2, props);
    let slices = if segments.is_empty() { 0 } else { first.slices(&segments) };
    let mut workspace_bytes = 0;
    let wants_parameters = fields.dweight || fields.dbias;
    let has_sums = wants_parameters || (fields.dx && !fields.inference);
    let sum_quads = if has_sums { segments.segment_count() * slices } else { 0 };
    let sums = Quads::after(&mut workspace_bytes, "sums", sum_quads, props)?;
    let mean_quads = if wants_means(fields) && slices > 0 { segments.group_count } else { 0 };
    let means = Quads::after(&mut workspace_bytes, "means", mean_quads, props)?;
    let operands = Operands::new(&norm.slots, &segments);
    let backward = Backward { norm, segments, operands, slices, sums, means };
    let segments = &backward.segments;

    let split = Held::Split { group_parts: word(backward.group_parts()), slices: word(slices) };
    let mut work = Work { workspace_bytes, ..Work::none(split, props) };
    if segments.channels == 0 {
        return Ok(work);
    }
    if fields.dx && !fields.inference {
        let tile = GaplessTile::new(segments, 2, props);
        let team = resident_backward_team(segments, fields.activation, props);
        let columns = Tile::best(segments, |segments| Tile::of_gradients(segments, props));
        let whole = match (tile, team, columns) {
            (Some(tile), ..) => Some((backward.gapless_resident(tile, props)?, tile.held())),
            (_, Some(team), _) => Some((backward.resident(team, props)?, Held::of(team))),
            (.., Some((segments, tile))) => {
                let operands = Operands::new(&norm.slots, &segments);
                Some((Backward { segments, operands, ..backward }.columns_resident(tile, props)?, tile.held()))
            }
            (None, None, None) => None,
        };
        // No workgroup may lie past the last, as it could in a grid of two dimensions: in place it would take parameters again.
        let fits = |step: &StepBuilder| step.grid[1] == 1 && check_bindings(std::slice::from_ref(step), props).is_ok();
        if let Some((step, choice)) = whole.filter(|(step, _)| fits(step)) {
            return Ok(Work { steps: vec![step], ..Work::none(choice, props) });
        }
    }
    let can_merge = backward.wants_means() && !fields.inference;
    let merging = last.merging(segments, backward.group_parts(), fields.activation, props).filter(|_| can_merge);
    if has_sums && !segments.is_empty() {
        let shorter = first.of_activation(fields.activation, props);
        let has_same_parts = shorter.slices(segments) == first.slices(segments);
        let first = if merging.is_some() && has_same_parts { shorter } else { first };
        work.steps.push(backward.sums(first, props)?);
    }
    if let Some((form, mergers)) = merging {
        let step = backward.apply(form, Some(mergers), props)?;
        if check_bindings(std::slice::from_ref(&step), props).is_ok() {
            work.steps.push(step);
            work.workspace_bytes = sums.bytes;
            return Ok(work);
        }
    }
    if wants_parameters || backward.wants_means() {
        work.steps.push(backward.merge(props)?);
    }
    if (fields.dx || fields.dresidual) && !segments.is_empty() {
        work.steps.push(backward.apply(last, None, props)?);
    }
    check_bindings(&work.steps, props)?;
    Ok(work)
}
