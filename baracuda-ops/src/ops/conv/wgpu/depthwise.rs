//! Depthwise convolutions: strips whose windows slide down the rows, and sums over strips for the gradient of the weight.

use super::super::depthwise::{self, lanes};
use super::super::geometry::{Axis, Contraction, Indices, Strided};
use super::super::{Pass, SpatialAxis};
use super::digits::Digits;
use crate::backend::wgpu::{
    Binding, Place, Props, StepBuilder, elements_in, groups, has_whole_lines, lines_in, lines_out, params, prelude,
};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::Ask;
use crate::narrow::{single, stride, word};
use crate::ops::gemm::geometry::Epilogue;
use crate::ops::gemm::wgpu::{CHAIN, sums_step};

/// Threads of a workgroup: as many as every device offers, and a power of two for the tree of its sums.
const WORKGROUP: u32 = 128;
/// The greatest extent of a kernel: `MOST_TAPS` in depthwise.wgsl.
const MOST_TAPS: u64 = 7;
/// The greatest extent of a kernel of which a thread has the gradients of four channels: the sums of its 25 taps take 100 registers; those of a kernel of
/// 7 by 7 would take 196.
const MOST_TAPS_OF_FOUR: u64 = 5;
/// The most neighbouring threads with different channels: with 16 of them the weight of the largest kernel fits into 16 KiB of workgroup memory.
const MOST_LANES: u64 = 16;
/// Strips are shortened until there are about this many threads, four times as many as a GPU of 132 SMs holds at once. Chosen on an H200, as were the numbers of
/// quads in [`Shares::of`].
const BUSY_THREADS: u64 = 1 << 20;
/// The fewest rows of a strip before strips are made about equally long, which may leave fewer. With 8, a thread loads 10 rows for a kernel of 3
/// rows, 4 of which others load as well, and 14 rows for a kernel of 7 rows, 12 of which others load as well.
const LEAST_ROWS: u64 = 8;
/// The most rows of a strip. With `MOST_ROUNDS` strips and the 6 further rows that a kernel of 7 rows sees, the loops of a thread have 32960 iterations in all:
/// drivers that run shaders on the CPU end loops after 65535.
const MOST_ROWS: u64 = 1024;
/// Workgroups of the gradient of the weight, each of which leaves a sum for every tap of its channels: their 2^18 threads are as many as a GPU of 132 SMs
/// holds at once. More would leave more sums to add up.
const WEIGHT_GROUPS: u64 = 2048;
/// Most terms that a thread of the gradient of the weight adds up one after another, in units of the square root of all terms of an element: an error of half
/// an ulp of the sum in each addition then stays below the budget of structured data (docs/numerics.md), which grows with twice that root. With
/// more a thread could miss it, with fewer there would be more sums to add up.
const CHAIN_ROOTS: u64 = 4;
/// The most strips of a thread in the gradient of the weight: twice as many would exceed the iterations that `MOST_ROWS` is about.
const MOST_ROUNDS: u64 = 32;
/// Coordinates are below this, so that negative ones wrap around to numbers greater than any extent.
const REACH: i128 = 1 << 30;

/// What quads lie along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Along {
    Columns,
    Channels,
}

/// How threads share the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    along: Along,
    /// Rows and columns of the kernel.
    kernel: [u64; 2],
    /// Neighbouring quads of a strip.
    strip: u64,
    /// Rows of a strip.
    rows: u64,
    /// Neighbouring threads with different channels.
    lanes: u64,
    /// Strips of a thread.
    rounds: u64,
}

/// The contraction as the shaders see it.
struct Depthwise<'c> {
    of: &'c Contraction,
    /// Samples, and rows and columns of the output; of dy for the gradient of the weight.
    samples: u64,
    extents: [u64; 2],
    /// The rows and columns of the gathered factor.
    axes: [&'c Axis; 2],
    /// The gathered factor; its `column` is the stride from channel to channel.
    gathered: Strided,
    /// The operand with `extents`.
    output: &'c Strided,
    channels: u64,
    /// Channels of the output for each of the gathered factor.
    repeats: u64,
    kernel: [u64; 2],
    /// Where the windows of the first row and column begin.
    first: [i64; 2],
    along: Along,
}

/// The dispatches, and the bytes of workspace between them.
type Steps = (Vec<StepBuilder>, u64);

/// The dispatches, and what was chosen.
pub(super) fn steps(contraction: &Contraction, props: &Props, ask: Ask) -> Result<(Steps, Choice), Reason> {
    let depthwise = Depthwise::new(contraction, ask)?;
    let shares = Shares::of(&depthwise);
    let are_idle = contraction.pass == Pass::Weight && shares.leave_threads_idle();
    ask.leave_if(
        are_idle,
        "most threads of its workgroups would be idle: there are many channels with few strips each",
    )?;
    let steps = match contraction.pass {
        Pass::Weight => depthwise.weight_steps(&shares, props)?,
        Pass::Forward | Pass::Data => depthwise.output_steps(&shares, props)?,
    };
    Ok((steps, shares.choice))
}

impl<'c> Depthwise<'c> {
    /// # Errors
    /// What the shaders do not serve and, unless the form is asked for by name, what other forms serve better.
    fn new(of: &'c Contraction, ask: Ask) -> Result<Self, Reason> {
        let Contraction { shape, groups, terms, n, gathered, plain, out, .. } = of;
        let pass = of.pass;
        let (positions, taps) = of.positions_and_taps();
        let output = if pass == Pass::Weight { plain } else { out };
        let filters = depthwise::filters(of)?;
        Reason::unless(pass != Pass::Data || filters == 1, || {
            format!("it serves gradients of the data of one filter for each channel, got {filters}")
        })?;
        if ask == Ask::Chosen {
            depthwise::check_filters(of, filters)?;
        }
        let [_, axes @ ..] = &gathered.axes;
        Reason::unless(
            !of.is_empty() && terms.count() != 0 && axes.iter().all(|axis| axis.extent != 0),
            || "there is nothing to add up",
        )?;
        of.check_is_image()?;
        let [extents, kernel] = [positions, taps].map(|Indices { axes: [_, rows, columns], .. }| [*rows, *columns]);
        Reason::unless(kernel.iter().all(|&extent| extent <= MOST_TAPS), || {
            let [height, width] = kernel;
            format!("it serves kernels of up to {MOST_TAPS} by {MOST_TAPS}, got {height} by {width}")
        })?;
        let mut first = [0; 2];
        for (at, axis) in axes.iter().enumerate() {
            let SpatialAxis { stride, dilation, .. } = shape.axes[1 + at];
            Reason::unless([stride, dilation] == [1; 2], || "it serves windows without stride and dilation")?;
            // In the gradient of the data the last tap has the lowest coordinate.
            let last = word(kernel[at]) - 1;
            first[at] = if pass == Pass::Data { axis.offset - i64::from(last) } else { axis.offset };
            let reach = i128::from(first[at]).abs() + i128::from(extents[at].max(axis.extent)) + i128::from(last);
            Reason::unless(reach < REACH, || format!("it counts coordinates in 30 bits, they reach {reach}"))?;
        }
        let channels = groups * n;
        // The stride of an extent of 1 is 0.
        let nearest = axes.iter().rev().map(|axis| axis.stride).find(|stride| *stride > 0);
        let has_near_channels = channels > 1 && nearest.is_none_or(|stride| gathered.group < stride);
        let repeats = if pass == Pass::Data { 1 } else { *n };
        Reason::unless(ask == Ask::Pinned || !has_near_channels || repeats <= 1, || {
            format!("if channels are contiguous, it serves one filter for each, got {repeats}")
        })?;
        let along = if has_near_channels && repeats == 1 { Along::Channels } else { Along::Columns };
        let depthwise = Self {
            of,
            samples: positions.lead,
            extents,
            axes: [&axes[0], &axes[1]],
            gathered: Strided { column: gathered.group, ..of.gathered_by_positions() },
            output,
            channels,
            repeats,
            kernel,
            first,
            along,
        };
        depthwise.check_windows()?;
        Ok(depthwise)
    }

    fn check_windows(&self) -> Result<(), Reason> {
        let Self { of, along, kernel: [height, width], first: [_, first], .. } = *self;
        match along {
            Along::Columns => {
                let last = first + i64::from(word(width)) - 1;
                Reason::unless(first >= -4 && last <= 4, || {
                    format!("it serves windows that reach at most 4 columns to each side, got {first} to {last}")
                })?;
            }
            Along::Channels => {
                Reason::unless(of.pass != Pass::Weight || height.max(width) <= MOST_TAPS_OF_FOUR, || {
                    format!(
                        "if channels are contiguous, it serves gradients of kernels of up to {MOST_TAPS_OF_FOUR} by {MOST_TAPS_OF_FOUR}, got {height} by {width}"
                    )
                })?;
            }
        }
        Ok(())
    }

    /// Whether the quads of a tensor are whole chunks of memory, by its rows and columns and its strides along samples, channels, rows and columns.
    fn has_whole_lines(&self, [rows, columns]: [u64; 2], [sample, channel, row, column]: [u64; 4]) -> bool {
        let others = [(self.samples, sample), (rows, row)];
        let [by_channel, by_column] = [(self.channels, channel), (columns, column)];
        match self.along {
            Along::Columns => has_whole_lines(by_column, others.into_iter().chain([by_channel])),
            Along::Channels => has_whole_lines(by_channel, others.into_iter().chain([by_column])),
        }
    }

    fn has_whole_output(&self, output: &Strided) -> bool {
        self.has_whole_lines(self.extents, strides_of(output))
    }

    fn has_whole_gathered(&self) -> bool {
        let [rows, columns] = self.axes;
        self.has_whole_lines([rows.extent, columns.extent], strides_of(&self.gathered))
    }

    /// The distance between the elements of a quad.
    fn step(&self, strided: &Strided) -> u64 {
        match self.along {
            Along::Columns => strided.axes[2],
            Along::Channels => strided.column,
        }
    }

    /// The files of what quads lie along: that of both entry points, that of the output, and that of the gradient of the weight.
    fn files(&self) -> [&'static str; 3] {
        match self.along {
            Along::Columns => {
                ["conv/depthwise_columns", "conv/conv_depthwise_columns", "conv/conv_depthwise_weight_columns"]
            }
            Along::Channels => {
                ["conv/depthwise_channels", "conv/conv_depthwise_channels", "conv/conv_depthwise_weight_channels"]
            }
        }
    }

    fn constants(&self, shares: &Shares) -> Vec<(&'static str, u32)> {
        let [rows, columns] = self.kernel.map(word);
        let mut constants = vec![
            ("WORKGROUP", WORKGROUP),
            ("LANES", word(shares.choice.lanes)),
            ("STRIP", word(shares.choice.strip)),
            ("KERNEL_ROWS", rows),
            ("KERNEL_COLUMNS", columns),
        ];
        if self.along == Along::Columns {
            // `check_windows` has proved that `first` is from -4 to 4. In the gradient of the data it is above 0 if the padding is
            // at least as wide as the kernel.
            constants.push(("SHIFT", u32::try_from(4 + self.first[1]).unwrap_or(0)));
        }
        constants
    }

    fn params(&self, shares: &Shares, grid: [u32; 2], part_length: u64) -> Vec<u8> {
        let Contraction { plain, epilogue, .. } = self.of;
        let Epilogue { bias, activation, beside: pre, beta, .. } = *epilogue;
        let [rows, columns] = self.axes;
        let is_data = self.of.pass == Pass::Data;
        let weight_axes = [plain.axes[1], plain.axes[2]].map(stride);
        let last = self.kernel.map(|extent| word(extent) - 1);
        let [weight_row, weight_column] = weight_axes.map(|step| if is_data { step.wrapping_neg() } else { step });
        let weight_first = if is_data {
            last[0].wrapping_mul(weight_axes[0]).wrapping_add(last[1].wrapping_mul(weight_axes[1]))
        } else {
            0
        };
        let beside = pre.unwrap_or(*self.output);
        params! {
            groups: u32 = word(shares.groups),
            groups_x: u32 = grid[0],
            tiles: u32 = word(shares.tiles),
            rounds: u32 = word(shares.choice.rounds),
            strips: u32 = word(shares.strips),
            across: u32 = word(shares.across),
            chunks: u32 = word(shares.chunks),
            chunk_rows: u32 = word(shares.choice.rows),
            inner_channels: u32 = word(shares.inner_channels),
            channels: u32 = word(self.channels),
            repeats: u32 = word(self.repeats),
            rows: u32 = word(self.extents[0]),
            columns: u32 = word(self.extents[1]),
            gathered_rows: u32 = word(rows.extent),
            gathered_columns: u32 = word(columns.extent),
            first_row: u32 = wrapped(self.first[0]),
            first_column: u32 = wrapped(self.first[1]),
            weight_first: u32 = weight_first,
            weight_channel: u32 = stride(if is_data { plain.group } else { plain.column }),
            weight_row: u32 = weight_row,
            weight_column: u32 = weight_column,
            out_n: u32 = stride(self.step(self.output)),
            beside_n: u32 = stride(self.step(&beside)),
            has_beside: u32 = pre.is_some().into(),
            has_bias: u32 = bias.is_some().into(),
            bias_channel: u32 = bias.map_or(0, |bias| stride(bias.stride)),
            activation: u32 = activation as u32,
            beta: f32 = single(beta),
            part_length: u32 = word(part_length),
            padding: [u32; 3] = [0; 3],
            gathered: [u32; 4] = strides_of(&self.gathered).map(stride),
            out: [u32; 4] = strides_of(self.output).map(stride),
            beside: [u32; 4] = strides_of(&beside).map(stride),
        }
    }

    fn output_steps(&self, shares: &Shares, props: &Props) -> Result<Steps, Reason> {
        let Contraction { gathered, plain, out, epilogue, .. } = self.of;
        let grid = groups(shares.groups, props)?;
        let Epilogue { bias, beside, .. } = epilogue;
        let beside = &beside.unwrap_or(*out);
        // In place of an absent operand another one is bound.
        let (bias_position, bias_dtype) =
            bias.map_or((plain.position, plain.dtype), |bias| (bias.position, bias.dtype));
        let operand = |name, position, accessors| Binding { name, place: Some(Place::Operand(position)), accessors };
        let bindings = vec![
            operand("gathered", gathered.position, lines_in(gathered.dtype)),
            elements_in("weight", Place::Operand(plain.position), plain.dtype),
            elements_in("bias", Place::Operand(bias_position), bias_dtype),
            operand("out", out.position, lines_out(out.dtype)),
            operand("pre", beside.position, lines_out(beside.dtype)),
        ];
        let mut files = prelude([gathered.dtype, plain.dtype, bias_dtype, out.dtype, beside.dtype])?;
        let [of_both, own, _] = self.files();
        files.extend([
            "common/activation",
            "common/subnormal",
            "conv/depthwise",
            of_both,
            "gemm/gemm_output",
            "conv/conv_depthwise",
            own,
        ]);
        let step = StepBuilder {
            constants: self.constants(shares),
            bindings,
            can_chunk: self.has_whole_gathered() && self.has_whole_output(out) && self.has_whole_output(beside),
            keeps_uniform: true,
            ..StepBuilder::new("conv_depthwise", files, self.params(shares, grid, 0), grid)
        };
        Ok((vec![step], 0))
    }

    fn weight_steps(&self, shares: &Shares, props: &Props) -> Result<Steps, Reason> {
        let Contraction { gathered, plain, out, epilogue, .. } = self.of;
        let [rows, columns] = self.kernel;
        let sums = Indices { lead: self.channels, axes: [1, rows, columns], lead_last: false };
        let by_tap = Strided { lead: out.column, ..*out };
        let digits = Digits::fewest(&sums, [&by_tap]);
        let count = sums.count();
        let (extent, step) = digits.fastest(0);
        Reason::unless(extent == count, || "the gradient has to be dense")?;
        let part_length = count.next_multiple_of(4);
        let parts = shares.groups / shares.tiles;
        let bytes = part_length.saturating_mul(parts).saturating_mul(4);
        let place = Place::Workspace { offset: 0, bytes };
        let grid = groups(shares.groups, props)?;
        let operand =
            |name, position, dtype| Binding { name, place: Some(Place::Operand(position)), accessors: lines_in(dtype) };
        let bindings = vec![
            operand("gathered", gathered.position, gathered.dtype),
            operand("dy", plain.position, plain.dtype),
            Binding { name: "partials", place: Some(place), accessors: ["elements_f32_out"; 2] },
        ];
        let mut files = prelude([gathered.dtype, plain.dtype])?;
        let [of_both, _, own] = self.files();
        files.extend(["conv/depthwise", of_both, own, "common/column_sums", "conv/conv_depthwise_weight"]);
        let first = StepBuilder {
            constants: self.constants(shares),
            bindings,
            can_chunk: self.has_whole_gathered() && self.has_whole_output(plain),
            keeps_uniform: true,
            ..StepBuilder::new("conv_depthwise_weight", files, self.params(shares, grid, part_length), grid)
        };
        let last = sums_step((out.position, out.dtype, step), epilogue.beta, count, (parts, place), props)?;
        Ok((vec![first, last], bytes))
    }
}

/// How the output is divided into strips, and the strips among threads.
struct Shares {
    choice: Choice,
    across: u64,
    chunks: u64,
    /// Channels of a tile whose strips are counted one after the other.
    inner_channels: u64,
    tiles: u64,
    /// Strips of each tile.
    strips: u64,
    /// Workgroups.
    groups: u64,
}

impl Shares {
    fn of(depthwise: &Depthwise<'_>) -> Self {
        let Depthwise { of, samples, extents: [rows, columns], channels, kernel, along, .. } = *depthwise;
        let is_weight = of.pass == Pass::Weight;
        let dtype = of.gathered.dtype;
        let (lanes, strip, tiles, inner_channels) = match along {
            // The strips of all channels are counted one after the other; in the gradient of the weight a workgroup has one channel. Two quads
            // of f32 were slower on an H200; two of 16 bits have as many bytes as one of f32.
            Along::Columns => {
                let strip = if is_weight || dtype == DType::F32 || columns <= 4 { 1 } else { 2 };
                if is_weight { (1, strip, channels, 1) } else { (1, strip, 1, channels) }
            }
            Along::Channels => {
                let quads = channels.div_ceil(4);
                let lanes = lanes(quads, MOST_LANES);
                // Measured on an H200 with kernels of 3 by 3; larger kernels need registers for more sums.
                let strip = if is_weight || kernel[0] > 3 { 2 } else { 4 };
                (lanes, strip, quads.div_ceil(lanes), 1)
            }
        };
        let quad_columns = if along == Along::Columns { 4 } else { 1 };
        let across = columns.div_ceil(strip * quad_columns);
        // Terms of a row of a strip, and most rows of all strips of a thread, in the gradient of the weight.
        let terms = samples.saturating_mul(rows).saturating_mul(columns);
        let row_terms = strip * quad_columns;
        let most_rows = (CHAIN.max(CHAIN_ROOTS * terms.isqrt()) / row_terms).max(1);
        // The longest strips that keep the device busy.
        let most_strip_rows = if is_weight { MOST_ROWS.min(most_rows) } else { MOST_ROWS };
        let threads = [samples, inner_channels, across, tiles, lanes].into_iter().fold(1, u64::saturating_mul);
        let chunks = (BUSY_THREADS / threads).max(rows.div_ceil(most_strip_rows)).max(1);
        let strip_rows = rows.div_ceil(chunks).max(LEAST_ROWS.min(rows));
        let chunks = rows.div_ceil(strip_rows);
        // Strips become as equally long as whole rows make them; the last one may still be much shorter.
        let strip_rows = rows.div_ceil(chunks);
        let strips = [samples, inner_channels, across, chunks].into_iter().fold(1, u64::saturating_mul);
        let workers = u64::from(WORKGROUP) / lanes;
        let rounds = if is_weight {
            let most_rounds = (most_rows / strip_rows.max(1)).clamp(1, MOST_ROUNDS);
            (strips.div_ceil(workers).saturating_mul(tiles) / WEIGHT_GROUPS).clamp(1, most_rounds)
        } else {
            1
        };
        let groups = strips.div_ceil(workers * rounds).saturating_mul(tiles);
        let choice = Choice { along, kernel, strip, rows: strip_rows, lanes, rounds };
        Self { choice, across, chunks, inner_channels, tiles, strips, groups }
    }
}

impl Shares {
    /// Whether more workgroups than a device holds at once have a strip for less than one thread in `IDLE` each.
    fn leave_threads_idle(&self) -> bool {
        const IDLE: u64 = 8;
        let workers = u64::from(WORKGROUP) / self.choice.lanes;
        self.groups > WEIGHT_GROUPS && self.strips * IDLE < workers
    }
}

/// Strides along samples, channels, rows and columns.
fn strides_of(of: &Strided) -> [u64; 4] {
    [of.lead, of.column, of.axes[1], of.axes[2]]
}

/// A number below 2^31 in magnitude; a negative one wraps around.
fn wrapped(number: i64) -> u32 {
    i32::try_from(number).unwrap_or(0).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::super::super::geometry::Contracting;
    use super::*;
    use crate::ConvDescriptor;
    use crate::backend::wgpu::Variants;
    use crate::ops::conv::ConvWindow;
    use crate::tensor::TensorDesc;

    type Layout = fn(DType, &[u64]) -> crate::Result<TensorDesc>;

    fn conv(lie: Layout, x: [u64; 4], [filters, height, width]: [u64; 3], window: ConvWindow) -> ConvDescriptor {
        let weight = TensorDesc::contiguous(DType::F32, &[filters, 1, height, width]).unwrap();
        ConvDescriptor::new(lie(DType::F32, &x).unwrap(), weight, window.groups(x[1])).unwrap()
    }

    fn steps_of<D: Contracting>(descriptor: &D, ask: Ask) -> Result<(Steps, Choice), Reason> {
        steps(&descriptor.contraction(), &Variants::device(None), ask)
    }

    #[test]
    fn quads_lie_along_what_is_dense() {
        let window = || ConvWindow::new().padding(&[1, 1]);
        let choice = |lie: Layout, x: [u64; 4]| {
            let ((steps, bytes), choice) = steps_of(&conv(lie, x, [x[1], 3, 3], window()), Ask::Chosen).unwrap();
            assert_eq!((steps.len(), bytes), (1, 0));
            (choice.along, choice.lanes, steps[0].can_chunk)
        };
        assert_eq!(choice(TensorDesc::contiguous, [2, 64, 56, 56]), (Along::Columns, 1, true));
        assert_eq!(choice(TensorDesc::contiguous, [2, 64, 56, 55]), (Along::Columns, 1, false));
        assert_eq!(choice(TensorDesc::channels_last, [2, 64, 56, 55]), (Along::Channels, 16, true));
        assert_eq!(choice(TensorDesc::channels_last, [2, 18, 56, 56]), (Along::Channels, 2, false));
        assert_eq!(choice(TensorDesc::channels_last, [2, 1, 56, 56]), (Along::Columns, 1, true));
    }

    #[test]
    fn strips_cover_the_output_and_keep_a_device_busy() {
        for lie in [TensorDesc::contiguous, TensorDesc::channels_last] {
            for x in [[64, 256, 56, 56], [1, 32, 512, 512], [3, 7, 13, 9], [1, 4, 1, 1]] {
                let forward = conv(lie, x, [x[1], 3, 3], ConvWindow::new().padding(&[1, 1]));
                let contraction = forward.contraction();
                let shares = Shares::of(&Depthwise::new(&contraction, Ask::Chosen).unwrap());
                let Shares { choice: Choice { rows, lanes, .. }, chunks, strips, groups, tiles, .. } = shares;
                assert!(rows * chunks >= x[2] && rows * (chunks - 1) < x[2], "{x:?}: {chunks} of {rows} rows");
                let threads = groups * u64::from(WORKGROUP);
                assert!(threads >= strips * tiles * lanes, "{x:?}: {threads}");
                assert!(x[0] < 64 || threads >= 1 << 18, "{x:?}: {threads}");
            }
        }
    }

    #[test]
    fn gradients_of_the_weight_leave_few_sums() {
        for lie in [TensorDesc::contiguous, TensorDesc::channels_last] {
            let forward = conv(lie, [64, 256, 56, 56], [256, 3, 3], ConvWindow::new().padding(&[1, 1]));
            let ((steps, bytes), _) = steps_of(&forward.backward_weight().unwrap(), Ask::Chosen).unwrap();
            assert_eq!(steps.len(), 2);
            // Beside x and dy of 200 MB each.
            assert!(bytes > 0 && bytes <= 8 << 20, "{bytes}");
        }
    }

    #[test]
    fn gradients_of_many_channels_add_up_in_short_chains() {
        for x in [[1, 1 << 20, 64, 4], [1, 1 << 20, 1024, 3], [64, 8192, 56, 56], [8, 64, 112, 112]] {
            let forward = conv(TensorDesc::contiguous, x, [x[1], 3, 3], ConvWindow::new().padding(&[1, 1]));
            let (_, choice) = steps_of(&forward.backward_weight().unwrap(), Ask::Pinned).unwrap();
            let [samples, _, rows, columns] = x;
            let chain = choice.rounds * choice.rows * 4 * choice.strip;
            let most = CHAIN.max(CHAIN_ROOTS * (samples * rows * columns).isqrt());
            assert!(chain <= most, "{x:?}: {chain} of {most}");
        }
    }

    #[test]
    fn what_does_not_slide_is_for_others() {
        let x = [2, 8, 9, 12];
        let reason = |filters, kernel: [u64; 2], window, lie: Layout| {
            let forward = conv(lie, x, [filters, kernel[0], kernel[1]], window);
            steps_of(&forward, Ask::Chosen).err().unwrap().to_string()
        };
        let (window, dense): (fn() -> ConvWindow, Layout) = (ConvWindow::new, TensorDesc::contiguous);
        for (found, words) in [
            (reason(8, [3, 3], window().stride(&[1, 2]), dense), "without stride and dilation"),
            (reason(8, [3, 3], window().dilation(&[2, 1]), dense), "without stride and dilation"),
            (reason(8, [8, 3], window(), dense), "got 8 by 3"),
            (reason(40, [3, 3], window(), dense), "there are 5"),
            (reason(8, [3, 3], window().padding(&[0, 5]), dense), "got -5 to -3"),
            (reason(16, [3, 3], window(), TensorDesc::channels_last), "got 2"),
        ] {
            assert!(found.contains(words), "{found}");
        }
        let wide = conv(TensorDesc::channels_last, x, [8, 7, 7], window()).backward_weight().unwrap();
        let found = steps_of(&wide, Ask::Pinned).err().unwrap().to_string();
        assert!(found.contains("got 7 by 7"), "{found}");
        let many = conv(dense, [1, 4096, 4, 4], [4096, 3, 3], window().padding(&[1, 1])).backward_weight().unwrap();
        let found = steps_of(&many, Ask::Chosen).err().unwrap().to_string();
        assert!(found.contains("few strips") && steps_of(&many, Ask::Pinned).is_ok(), "{found}");
        let narrow = conv(dense, x, [8, 7, 7], window().padding(&[3, 3])).backward_weight().unwrap();
        assert!(steps_of(&narrow, Ask::Pinned).is_ok());
        assert!(steps_of(&conv(dense, x, [40, 3, 3], window()), Ask::Pinned).is_ok());
    }

    #[test]
    fn gradients_with_gaps_are_for_others() {
        let forward = conv(TensorDesc::contiguous, [2, 8, 9, 12], [8, 3, 3], ConvWindow::new());
        let gaps = TensorDesc::strided(DType::F32, &[8, 1, 3, 3], &[10, 9, 3, 1]).unwrap();
        let of_weight = forward.backward_weight().unwrap().layout("dweight", gaps).unwrap();
        let found = steps_of(&of_weight, Ask::Pinned).err().unwrap().to_string();
        assert!(found.contains("dense"), "{found}");
    }
}
