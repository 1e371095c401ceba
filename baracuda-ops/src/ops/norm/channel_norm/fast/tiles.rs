//! How the work is divided: parts of whole groups, tiles of a part, blocks of a tile. All of it follows from the extents, so that results have the same bits
//! with any number of threads.

use std::ops::Range;

use super::super::{ChannelGeometry, ChannelOrder, ChannelShape, geometry::ChannelStrides};
use super::loops::Along;
use crate::backend::cpu::{Shortage, Tensor, held, room, threads};
use crate::dtype::DType;
use crate::narrow::to_usize;
use crate::ops::blocks::Run;

/// Elements of a block: a few blocks fit into the first cache together.
pub(super) const BLOCK: usize = 1024;
/// Elements of a tile. With fewer, handing tiles to threads takes a larger share of the time; with more, few threads are busy.
const TILE: u64 = 32 * 1024;
/// The most elements of a part that is read twice from the second cache: 512 KiB of f32, and as many of dy.
const PART: u64 = 128 * 1024;
/// The fewest parts that keep threads busy.
const PARTS: u64 = 16;
/// Elements that lie side by side in a part: with fewer, each cache line is read for several parts.
const RUN: u64 = 2 * 1024;
/// The most channels of a tile whose channels lie side by side: the numbers of as many stay in the first cache.
const CHANNELS: u64 = 512;
/// The fewest elements of a line over which the numbers of channels that lie side by side are repeated.
const WIDTH: u64 = 256;

/// Memory for a block.
pub(super) type Room = [f32; BLOCK];
/// Memory for a block before anything is in it.
pub(super) const EMPTY: Room = [0.0; BLOCK];

/// A tensor `[batch, channels, spatial]`.
#[derive(Clone, Copy)]
pub(super) struct Field<'a> {
    tensor: Tensor<'a>,
    order: ChannelOrder,
    strides: ChannelStrides,
}

impl<'a> Field<'a> {
    pub(super) fn new(tensor: Tensor<'a>, geometry: &ChannelGeometry, operand: usize) -> Self {
        Self { tensor, order: geometry.order, strides: geometry.strides(operand) }
    }

    /// The elements of a line of a block.
    fn run(&self, tile: &Tile, line: u64, at: u64) -> Run<'a> {
        let [channel, place] = match self.order {
            ChannelOrder::Contiguous => [line, at],
            ChannelOrder::ChannelsLast => [at, line],
        };
        let ChannelStrides { batch, channel: of_channel, spatial } = self.strides;
        let first =
            tile.sample * batch + (tile.channels.start + channel) * of_channel + (tile.places.start + place) * spatial;
        Run { tensor: self.tensor, first, step: 1 }
    }

    /// The first element of a channel of a tile.
    pub(super) fn first(&self, tile: &Tile, channel: u64) -> f64 {
        let ChannelStrides { batch, channel: of_channel, spatial } = self.strides;
        self.tensor.load(tile.sample * batch + channel * of_channel + tile.places.start * spatial)
    }

    /// Whether the lines of a block follow each other in memory.
    fn is_dense(&self, block: &Block) -> bool {
        let step = match self.order {
            ChannelOrder::Contiguous => self.strides.channel,
            ChannelOrder::ChannelsLast => self.strides.spatial,
        };
        block.lines == 1 || step == block.length as u64
    }

    /// A block, where it lies if it can be used there.
    pub(super) fn view<'r>(&self, tile: &Tile, block: &Block, room: &'r mut Room) -> &'r [f32]
    where
        'a: 'r,
    {
        let is_f32 = self.tensor.desc().dtype() == DType::F32;
        if is_f32 && self.is_dense(block) {
            let (run, count) = (self.run(tile, block.line, block.at), block.elements());
            run.prefetch(count as u64, count);
            return run.slice(count);
        }
        self.read(tile, block, room)
    }

    /// A copy of a block.
    pub(super) fn read<'r>(&self, tile: &Tile, block: &Block, room: &'r mut Room) -> &'r mut [f32] {
        let values = &mut room[..block.elements()];
        if self.is_dense(block) {
            self.run(tile, block.line, block.at).copy(0, values);
        } else {
            for (line, values) in (block.line..).zip(values.chunks_mut(block.length)) {
                self.run(tile, line, block.at).copy(0, values);
            }
        }
        values
    }

    /// Writes a block, each element rounded once. No other thread uses these elements.
    pub(super) fn write(&self, tile: &Tile, block: &Block, values: &[f32]) {
        if self.is_dense(block) {
            return self.run(tile, block.line, block.at).write(0, values);
        }
        for (line, values) in (block.line..).zip(values.chunks(block.length)) {
            self.run(tile, line, block.at).write(0, values);
        }
    }
}

/// Some lines of a tile, or a piece of one.
pub(super) struct Block {
    line: u64,
    lines: u64,
    at: u64,
    length: usize,
}

impl Block {
    fn elements(&self) -> usize {
        to_usize(self.lines) * self.length
    }
}

/// Some places of some channels of a sample.
pub(super) struct Tile {
    pub(super) sample: u64,
    pub(super) channels: Range<u64>,
    places: Range<u64>,
    order: ChannelOrder,
}

impl Tile {
    /// How many channels it has.
    pub(super) fn channel_count(&self) -> u64 {
        self.channels.end - self.channels.start
    }

    /// How many elements of each channel it has.
    pub(super) fn place_count(&self) -> u64 {
        self.places.end - self.places.start
    }

    /// How often the numbers of the channels are repeated over a line.
    fn repeats(&self) -> u64 {
        match self.order {
            ChannelOrder::Contiguous => 1,
            ChannelOrder::ChannelsLast => (WIDTH / self.channel_count()).max(1),
        }
    }

    /// What the numbers of the channels belong to.
    pub(super) fn along(&self) -> Along {
        match self.order {
            ChannelOrder::Contiguous => Along::Lines(to_usize(self.place_count().min(BLOCK as u64))),
            ChannelOrder::ChannelsLast => Along::Elements,
        }
    }

    /// Numbers of the channels, repeated as [`along`](Self::along) says.
    pub(super) fn numbers<const N: usize>(&self, of: impl Fn(u64) -> [f64; N]) -> Result<[Vec<f64>; N], Shortage> {
        let count = self.channel_count() * self.repeats();
        let mut numbers = [const { Vec::new() }; N];
        for numbers in &mut numbers {
            *numbers = room(count)?;
        }
        for channel in self.channels.clone() {
            numbers.iter_mut().zip(of(channel)).for_each(|(numbers, number)| numbers.push(number));
        }
        for numbers in &mut numbers {
            for _ in 1..self.repeats() {
                numbers.extend_from_within(..to_usize(self.channel_count()));
            }
        }
        Ok(numbers)
    }

    /// Zeros, one for each number of [`numbers`](Self::numbers).
    pub(super) fn zeros(&self) -> Result<Vec<f64>, Shortage> {
        held(self.channel_count() * self.repeats(), std::iter::repeat(0.0))
    }

    /// What the sums of a channel are together, which has as many as its numbers are repeated.
    pub(super) fn total(&self, sums: &[f64], channel: usize) -> f64 {
        sums.iter().skip(channel).step_by(to_usize(self.channel_count())).sum()
    }

    /// Which numbers belong to the lines of a block.
    pub(super) fn range(&self, block: &Block) -> Range<usize> {
        match self.order {
            ChannelOrder::Contiguous => to_usize(block.line)..to_usize(block.line + block.lines),
            ChannelOrder::ChannelsLast => 0..to_usize(self.channel_count() * self.repeats()),
        }
    }

    /// The blocks of the tile.
    pub(super) fn blocks(&self) -> impl Iterator<Item = Block> {
        let (lines, length) = match self.order {
            ChannelOrder::Contiguous => (self.channel_count(), self.place_count()),
            ChannelOrder::ChannelsLast => (self.place_count(), self.channel_count()),
        };
        // Whole lines over which the numbers are repeated, as many as there is room for.
        let of_repeats = length * self.repeats();
        let at_once = (BLOCK as u64 / of_repeats).max(1) * self.repeats();
        (0..lines).step_by(to_usize(at_once)).flat_map(move |line| {
            let lines = at_once.min(lines - line);
            (0..length).step_by(BLOCK).map(move |at| {
                let length = to_usize((length - at).min(BLOCK as u64));
                Block { line, lines, at, length }
            })
        })
    }
}

/// Some channels of some samples, which are whole groups.
pub(super) struct Part {
    pub(super) samples: Range<u64>,
    pub(super) channels: Range<u64>,
    /// Whether it is all there is, so that threads share its tiles.
    pub(super) is_whole: bool,
    shape: ChannelShape,
    order: ChannelOrder,
}

impl Part {
    /// All there is.
    pub(super) fn whole(geometry: &ChannelGeometry) -> Self {
        let ChannelGeometry { shape, order, .. } = *geometry;
        Self { samples: 0..shape.batch, channels: 0..shape.channels, is_whole: true, shape, order }
    }

    /// Channels and places of a tile.
    fn tile_extents(&self) -> [u64; 2] {
        let (channels, spatial) = (self.channels.end - self.channels.start, self.shape.spatial);
        match self.order {
            ChannelOrder::Contiguous if spatial >= TILE => [1, TILE],
            ChannelOrder::Contiguous => [(TILE / spatial).min(channels), spatial],
            ChannelOrder::ChannelsLast => {
                let channels = channels.min(CHANNELS);
                [channels, (TILE / channels).min(spatial)]
            }
        }
    }

    /// Tiles of a sample: along the channels, and along the places.
    fn grid(&self) -> [u64; 2] {
        let [channels, places] = self.tile_extents();
        [(self.channels.end - self.channels.start).div_ceil(channels), self.shape.spatial.div_ceil(places)]
    }

    fn tile(&self, index: u64) -> Tile {
        let ([channels, places], [rows, columns]) = (self.tile_extents(), self.grid());
        let first = [index / columns % rows * channels + self.channels.start, index % columns * places];
        Tile {
            sample: self.samples.start + index / columns / rows,
            channels: first[0]..self.channels.end.min(first[0] + channels),
            places: first[1]..self.shape.spatial.min(first[1] + places),
            order: self.order,
        }
    }

    /// What each tile makes, in order.
    pub(super) fn tiles<T: Send + Sync>(
        &self,
        make: impl Fn(&Tile) -> Result<T, Shortage> + Sync,
    ) -> Result<Vec<T>, Shortage> {
        let [rows, columns] = self.grid();
        let tiles = (self.samples.end - self.samples.start) * rows * columns;
        self.each(tiles, |index| make(&self.tile(index)))
    }

    /// What each of some tasks makes: those of a part that is not whole are done by the thread that does the part.
    pub(super) fn each<T: Send + Sync>(
        &self,
        tasks: u64,
        make: impl Fn(u64) -> Result<T, Shortage> + Sync,
    ) -> Result<Vec<T>, Shortage> {
        if self.is_whole {
            return threads::map(tasks, self.elements(), make);
        }
        let mut made = room(tasks)?;
        for task in 0..tasks {
            made.push(make(task)?);
        }
        Ok(made)
    }

    /// Of what the tiles made, a value for each of their channels, the values of a channel of a sample.
    pub(super) fn of_channel<'m, T>(
        &self,
        made: &'m [Vec<T>],
        sample: u64,
        channel: u64,
    ) -> impl Iterator<Item = &'m T> + Clone {
        let ([channels, _], [rows, columns]) = (self.tile_extents(), self.grid());
        let channel = channel - self.channels.start;
        let first = to_usize(((sample - self.samples.start) * rows + channel / channels) * columns);
        made[first..first + to_usize(columns)].iter().map(move |values| &values[to_usize(channel % channels)])
    }

    fn elements(&self) -> u64 {
        (self.samples.end - self.samples.start) * (self.channels.end - self.channels.start) * self.shape.spatial
    }

    /// The groups of the part: how many, and how many of them a sample has. A channel of all samples is one of one sample.
    pub(super) fn groups(&self) -> [u64; 2] {
        let of_sample = (self.channels.end - self.channels.start) / self.group_channels();
        let samples = if self.shape.groups == 0 { 1 } else { self.samples.end - self.samples.start };
        [samples * of_sample, of_sample]
    }

    fn group_channels(&self) -> u64 {
        self.shape.channels.checked_div(self.shape.groups).unwrap_or(1)
    }

    /// Which of the part's groups a channel of a sample belongs to.
    pub(super) fn group_of(&self, sample: u64, channel: u64) -> usize {
        let of_sample = (channel - self.channels.start) / self.group_channels();
        to_usize(match self.shape.groups {
            0 => of_sample,
            _ => (sample - self.samples.start) * self.groups()[1] + of_sample,
        })
    }

    /// Samples and channels of a group of the part.
    pub(super) fn segments(&self, group: u64) -> impl Iterator<Item = (u64, u64)> + Clone {
        let (of_sample, of_group) = (self.groups()[1], self.group_channels());
        let first = self.channels.start + group % of_sample * of_group;
        let samples = match self.shape.groups {
            0 => self.samples.clone(),
            _ => self.samples.start + group / of_sample..self.samples.start + group / of_sample + 1,
        };
        samples.flat_map(move |sample| (first..first + of_group).map(move |channel| (sample, channel)))
    }
}

/// The parts of tensors: small enough for the second cache, or one that is whole.
pub(super) struct Parts {
    shape: ChannelShape,
    order: ChannelOrder,
    /// Samples and channels of a part; none if there is one.
    of_part: Option<[u64; 2]>,
}

impl Parts {
    pub(super) fn new(geometry: &ChannelGeometry) -> Self {
        let ChannelGeometry { shape, order, .. } = *geometry;
        let ChannelShape { batch, channels, spatial, groups } = shape;
        let samples = if groups == 0 { batch } else { 1 };
        let of_group = channels.checked_div(groups).unwrap_or(1);
        let most = match order {
            ChannelOrder::Contiguous => {
                let of_run = RUN / (of_group * spatial);
                let of_part = PART / (samples * of_group * spatial);
                let busy = channels / of_group / PARTS.div_ceil(batch / samples);
                of_run.min(of_part).min(busy).max(1) * of_group
            }
            // Rows of channels are read whole.
            ChannelOrder::ChannelsLast => channels,
        };
        let parts = batch / samples * channels.div_ceil(most);
        let is_small = samples.saturating_mul(most * spatial) <= PART && parts >= PARTS;
        Self { shape, order, of_part: is_small.then_some([samples, most]) }
    }

    /// Whether there is one part.
    #[cfg(test)]
    pub(super) fn is_one(&self) -> bool {
        self.of_part.is_none()
    }

    /// What each part makes, in the order of their groups.
    pub(super) fn each<T: Send + Sync>(
        &self,
        geometry: &ChannelGeometry,
        make: impl Fn(&Part) -> Result<T, Shortage> + Sync,
    ) -> Result<Vec<T>, Shortage> {
        let ChannelShape { batch, channels, spatial, .. } = self.shape;
        let Some([samples, of_part]) = self.of_part else {
            return held(1, std::iter::once(make(&Part::whole(geometry))?));
        };
        let columns = channels.div_ceil(of_part);
        threads::map(batch / samples * columns, batch * channels * spatial, |index| {
            let (sample, channel) = (index / columns * samples, index % columns * of_part);
            make(&Part {
                samples: sample..sample + samples,
                channels: channel..channels.min(channel + of_part),
                is_whole: false,
                shape: self.shape,
                order: self.order,
            })
        })
    }
}
