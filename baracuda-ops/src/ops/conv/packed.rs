//! Convolutions of f32, f16 and bf16 on the CPU by the tiles of [`gemm::packed`](crate::ops::gemm::packed).
//!
//! Windows are copied straight into the packed form of a factor. If the elements of a window lie side by side, as in tensors whose channels are last, they
//! are rows of the left factor. If the same element of neighbouring windows does, they are columns of the right one, and the plain factor is the left one.

use std::ops::Range;

use half::bf16;

use super::MAX_AXES;
use super::cpu::At;
use super::geometry::{Contraction, Strided};
use super::walk::{Phase, Phases};
use super::windows::{Inside, Lines, Run, Windows};
use crate::backend::cpu::{Operands, Outcome, Tensor, threads};
use crate::narrow::to_usize;
use crate::ops::gemm::packed::{COLS, Finish, Line, Pack, Places, Right, Sums, Word, tile_of};
use crate::ops::pointwise::map::fast::{Widest, widest};

/// Computes one contraction.
pub(super) fn contract(contraction: &Contraction, operands: &Operands<'_>) -> Outcome {
    let Some(finish) = finish_of(contraction, operands).filter(|_| !contraction.is_empty()) else { return Ok(()) };
    let tiling = Tiling::of(contraction);
    // If a factor has no elements, there are no terms.
    let factors = operands.get(contraction.gathered.position).zip(operands.get(contraction.plain.position));
    let sums = |tile: &Tile, part: u64| {
        let mut sums = Sums::new(tile.extents(), [contraction.gathered.dtype, contraction.plain.dtype]);
        if let Some((gathered, plain)) = &factors {
            let terms = tiling.terms_of(tile, part);
            match sums.are_tiled() {
                true => tile.add_terms::<bf16>(&terms, gathered, plain, &mut sums),
                false => tile.add_terms::<f32>(&terms, gathered, plain, &mut sums),
            }
        }
        sums.end();
        sums
    };
    let (tiles, parts, work) = (tiling.tiles(), tiling.parts, contraction.products_inside());
    if parts == 1 {
        threads::for_each(tiles, work, |index| {
            let Some(tile) = tiling.tile(index) else { return };
            let sums = sums(&tile, 0);
            // SAFETY: each element is of one tile, and each tile is one task.
            widest(Finished { tile: &tile, finish: &finish, sums: |line, panel| sums.line(line, panel) });
        });
        return Ok(());
    }
    let of_parts = threads::map(tiles * parts, work, |task| {
        Ok(tiling.tile(task / parts).map(|tile| tile.copy(&sums(&tile, task % parts))).unwrap_or_default())
    })?;
    let elements = contraction.rows.count() * contraction.n * contraction.groups;
    threads::for_each(tiles, elements.saturating_mul(parts), |index| {
        let Some(tile) = tiling.tile(index) else { return };
        let of_tile = &of_parts[to_usize(index * parts)..to_usize((index + 1) * parts)];
        let mut all: Vec<f32> = of_tile[0].clone();
        for part in &of_tile[1..] {
            all.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
        }
        let [_, cols] = tile.extents();
        let sums = |line: usize, panel: usize| &all[line * cols..][panel * COLS..cols.min((panel + 1) * COLS)];
        // SAFETY: each element is of one tile, and each tile is one task.
        widest(Finished { tile: &tile, finish: &finish, sums });
    });
    Ok(())
}

/// The epilogue with its operands, unless the output has no elements.
pub(super) fn finish_of<'v>(contraction: &Contraction, operands: &Operands<'v>) -> Option<Finish<'v>> {
    let epilogue = &contraction.epilogue;
    Some(Finish {
        alpha: 1.0,
        out: operands.get(contraction.out.position)?,
        bias: epilogue.bias.and_then(|bias| operands.get(bias.position)),
        beside: epilogue.beside.as_ref().and_then(|pre| operands.get(pre.position)),
        activation: epilogue.activation,
        is_derivative: false,
        beta: epilogue.beta,
    })
}

/// The tiles of all phases and groups.
struct Tiling<'c> {
    phases: Phases<'c>,
    groups: u64,
    /// Whether windows are the right factor, so that rows of the contraction are columns of tiles.
    is_transposed: bool,
    /// Rows and columns of the largest phase, as tiles have them.
    extents: [u64; 2],
    /// Those of a tile.
    tile: [u64; 2],
    parts: u64,
    /// Terms of a part.
    terms: u64,
}

impl<'c> Tiling<'c> {
    /// The fewest columns of windows in the left factor, of which a vector has 16.
    const LEAST_COLS: u64 = 16;
    /// The number of tasks that keeps threads busy.
    const TASKS: u64 = 32;
    /// The tiles by which sums are found to be few.
    const OF_FEW: [u64; 2] = [56, 64];
    /// The fewest terms of a part of a sum.
    const LEAST_TERMS: u64 = 2048;

    fn of(contraction: &'c Contraction) -> Self {
        let phases = Phases::of(contraction);
        let largest = phases.largest();
        let windows = Windows { contraction: &largest, group: 0 };
        let is_transposed = !windows.is_along_terms() || contraction.n < Self::LEAST_COLS;
        let (rows, cols, terms) = (largest.rows.count(), largest.n, largest.terms.count());
        let extents = if is_transposed { [cols, rows] } else { [rows, cols] };
        let groups = contraction.groups;
        let matrices = groups.saturating_mul(phases.count);
        let few = extents[0].div_ceil(Self::OF_FEW[0]) * extents[1].div_ceil(Self::OF_FEW[1]);
        let parts = (Self::TASKS / few.saturating_mul(matrices).max(1)).min(terms / Self::LEAST_TERMS).max(1);
        let of_part = terms.div_ceil(parts).next_multiple_of(f32::BLOCK as u64).max(1);
        let parts = terms.div_ceil(of_part).max(1);
        let tile = if parts == 1 { tile_of(matrices, extents, terms) } else { Self::OF_FEW };
        Self { phases, groups, is_transposed, extents, tile, parts, terms: of_part }
    }

    fn tiles(&self) -> u64 {
        let [rows, cols] = self.of_matrix();
        (self.phases.count * self.groups).saturating_mul(rows * cols)
    }

    /// Tiles along the rows and along the columns of a group.
    fn of_matrix(&self) -> [u64; 2] {
        [0, 1].map(|axis| self.extents[axis].div_ceil(self.tile[axis]))
    }

    /// A tile, unless its phase has fewer.
    fn tile(&self, index: u64) -> Option<Tile> {
        let [row_tiles, col_tiles] = self.of_matrix();
        let phase = self.phases.at(index / (col_tiles * row_tiles * self.groups));
        let (rows, n) = (phase.contraction.rows.count(), phase.contraction.n);
        let extents = if self.is_transposed { [n, rows] } else { [rows, n] };
        let first = [index / col_tiles % row_tiles * self.tile[0], index % col_tiles * self.tile[1]];
        let [lines, across] = [0, 1].map(|axis| first[axis]..extents[axis].min(first[axis] + self.tile[axis]));
        if lines.start >= lines.end || across.start >= across.end {
            return None;
        }
        let (rows, cols) = if self.is_transposed { (across, lines) } else { (lines, across) };
        Some(Tile {
            group: index / (col_tiles * row_tiles) % self.groups,
            is_transposed: self.is_transposed,
            rows,
            cols,
            phase,
        })
    }

    /// The terms of a part of a sum.
    fn terms_of(&self, tile: &Tile, part: u64) -> Range<u64> {
        let terms = tile.phase.contraction.terms.count();
        (part * self.terms).min(terms)..((part + 1) * self.terms).min(terms)
    }
}

/// A tile of the output of a group, in a phase, by rows and columns of the contraction.
struct Tile {
    phase: Phase,
    group: u64,
    is_transposed: bool,
    rows: Range<u64>,
    cols: Range<u64>,
}

fn length(range: &Range<u64>) -> usize {
    to_usize(range.end - range.start)
}

impl Tile {
    /// Rows and columns of its sums.
    fn extents(&self) -> [usize; 2] {
        let [rows, cols] = [&self.rows, &self.cols].map(length);
        if self.is_transposed { [cols, rows] } else { [rows, cols] }
    }

    fn add_terms<W: Word>(&self, terms: &Range<u64>, gathered: &Tensor<'_>, plain: &Tensor<'_>, sums: &mut Sums) {
        let contraction = &self.phase.contraction;
        let windows = Windows { contraction, group: self.group };
        let (of_rows, of_terms) = (windows.rows(), windows.terms());
        let pack = sums.pack();
        let copy = |Inside { offset, stride, range }: Inside, line: &mut [W]| {
            pack.padded(gathered, offset, stride, range, line);
        };
        // Of the side that windows keep while they move along the other one.
        let (right, tuples, runs) = if self.is_transposed {
            (Right::Lines, Vec::new(), of_rows.runs(&self.rows))
        } else {
            (Right::Panels, self.rows.clone().map(|row| of_rows.indices.at(row)).collect(), Vec::new())
        };
        for first in terms.clone().step_by(W::BLOCK) {
            let block = first..terms.end.min(first + W::BLOCK as u64);
            let pitch = sums.line_pitch();
            let [left, to_right] = sums.packed::<W>(right);
            let (to_plain, of_block) = if self.is_transposed {
                let lines = Lines { to: to_right, pitch };
                let tuples = block.clone().map(|term| of_terms.indices.at(term));
                windows.gather((&of_terms, tuples), (&of_rows, &runs), lines, copy);
                (left, of_terms.runs(&block))
            } else {
                let of_block = of_terms.runs(&block);
                let (tuples, lines) = (tuples.iter().copied(), Lines { to: left, pitch: W::PITCH });
                windows.gather((&of_rows, tuples), (&of_terms, &of_block), lines, copy);
                (to_right, of_block)
            };
            self.pack_plain(pack, plain, &of_block, to_plain);
            sums.add(length(&block), right);
        }
    }

    /// Packs the plain factor of runs of terms.
    fn pack_plain<W: Word>(&self, pack: Pack, tensor: &Tensor<'_>, runs: &[Run], to: &mut [W]) {
        let Phase { contraction: Contraction { plain, terms, .. }, plain_start, .. } = &self.phase;
        let step = if terms.lead_last { plain.lead } else { plain.axes[MAX_AXES - 1] };
        let offset = |run: &Run| plain_start + plain.offset(self.group, run.first, self.cols.start);
        let cols = length(&self.cols);
        let (mut term, mut rest) = (0, runs);
        while let Some((first, mut after)) = rest.split_first() {
            // Runs that lie behind one another are one.
            let (start, mut count) = (offset(first), first.length);
            while let Some((next, others)) =
                after.split_first().filter(|(next, _)| offset(next) == start + count as u64 * step)
            {
                (count, after) = (count + next.length, others);
            }
            if self.is_transposed {
                pack.copy(tensor, start, [cols, count], [plain.column, step], &mut to[term..], W::PITCH);
            } else {
                pack.panels(tensor, start, [count, cols], [step, plain.column], term, to);
            }
            (term, rest) = (term + count, after);
        }
    }

    /// The sums, line by line.
    fn copy(&self, sums: &Sums) -> Vec<f32> {
        let [lines, cols] = self.extents();
        let mut all = Vec::with_capacity(lines * cols);
        for line in 0..lines {
            (0..cols.div_ceil(COLS)).for_each(|panel| all.extend_from_slice(sums.line(line, panel)));
        }
        all
    }

    /// Applies the epilogue to the sums of each line, a panel of columns at a time.
    ///
    /// # Safety
    /// No other thread uses these elements of the outputs meanwhile.
    #[inline(always)]
    unsafe fn finish<'s>(&self, finish: &Finish<'_>, sums: impl Fn(usize, usize) -> &'s [f32]) {
        let Phase { contraction: Contraction { rows, out, epilogue, .. }, out_start, .. } = &self.phase;
        let bias = |column: u64, stride: u64| {
            let of = |vector: crate::ops::gemm::geometry::Vector| Line {
                offset: self.group * vector.group + column * vector.stride,
                stride: vector.stride * stride,
            };
            epilogue.bias.map(of).unwrap_or_default()
        };
        let place = |of: &Strided, start: u64, at: At, column: u64, stride: u64| Line {
            offset: start + of.offset(self.group, at, column),
            stride,
        };
        let beside = |at: At, column: u64, stride: fn(&Strided) -> u64| {
            epilogue.beside.as_ref().map(|pre| place(pre, 0, at, column, stride(pre))).unwrap_or_default()
        };
        if !self.is_transposed {
            for (line, row) in self.rows.clone().enumerate() {
                let at = rows.at(row);
                for (panel, column) in self.cols.clone().step_by(COLS).enumerate() {
                    let places = Places {
                        out: place(out, *out_start, at, column, out.column),
                        bias: bias(column, 1),
                        beside: beside(at, column, |pre| pre.column),
                    };
                    // SAFETY: the caller is alone at these elements.
                    unsafe { finish.line(sums(line, panel), &places) };
                }
            }
            return;
        }
        // Outputs and pre-activations are images, whose lead is the slowest digit, but for gradients of weights whose channels are last.
        let stride = |of: &Strided| if rows.lead_last { of.lead } else { of.axes[MAX_AXES - 1] };
        let stride_beside = if rows.lead_last { |of: &Strided| of.lead } else { |of: &Strided| of.axes[MAX_AXES - 1] };
        let spans = self.spans();
        // Lines of outputs lie far apart, and spans of a line close together.
        for (line, column) in self.cols.clone().enumerate() {
            for span in &spans {
                let places = Places {
                    out: place(out, *out_start, span.at, column, stride(out)),
                    bias: bias(column, 0),
                    beside: beside(span.at, column, stride_beside),
                };
                // SAFETY: the caller is alone at these elements.
                unsafe { finish.line(&sums(line, span.panel)[span.columns.clone()], &places) };
            }
        }
    }

    /// The columns of a transposed tile, divided where a panel or a run ends.
    fn spans(&self) -> Vec<Span> {
        let contraction = &self.phase.contraction;
        let windows = Windows { contraction, group: self.group };
        let mut spans = Vec::new();
        for first in self.rows.clone().step_by(COLS) {
            let panel = to_usize(first - self.rows.start) / COLS;
            let mut start = 0;
            for run in windows.rows().runs(&(first..self.rows.end.min(first + COLS as u64))) {
                spans.push(Span { at: run.first, panel, columns: start..start + run.length });
                start += run.length;
            }
        }
        spans
    }
}

/// The sums of a tile, and what the epilogue does with them.
struct Finished<'t, F> {
    tile: &'t Tile,
    finish: &'t Finish<'t>,
    sums: F,
}

impl<'s, F: Fn(usize, usize) -> &'s [f32]> Widest for Finished<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        // SAFETY: who made this is alone at the elements of the tile.
        unsafe { self.tile.finish(self.finish, self.sums) };
    }
}

/// Columns of a panel whose outputs are at equal distances.
struct Span {
    at: At,
    panel: usize,
    columns: Range<usize>,
}
