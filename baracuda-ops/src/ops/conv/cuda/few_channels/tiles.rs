//! Forward and the gradient of the weight: tiles of positions of y. The patch of x that a tile sees is in shared memory.

use baracuda_ops_sys as sys;

use super::{AddUp, CHUNK_BYTES, GROUP, POSITIONS, Roles, places};
use crate::error::Reason;
use crate::narrow::word;
use crate::ops::activation::Activation;
use crate::ops::conv::cuda::depthwise::extent;
use crate::ops::conv::cuda::product::merged;
use crate::ops::conv::geometry::Contraction;
use crate::ops::gemm::cuda::product::{Limits, bounded_blocks};
use crate::ops::gemm::geometry::Epilogue;

/// Filters of a block.
const FILTERS: u64 = sys::BOPS_CONV_FEW_CHANNELS_FILTERS as u64;
/// Chunks of the windows that a block of the gradient of the weight has sums for, at most.
const CHUNKS: u64 = sys::BOPS_CONV_FEW_CHANNELS_CHUNKS as u64;

/// The most blocks of an SM, forward, which registers limit: the kernel's `__launch_bounds__`.
const BLOCKS_FORWARD: u64 = 3;
/// The most blocks of an SM in the gradient of the weight.
const BLOCKS_WEIGHT: u64 = 2;

pub(super) fn forward(
    of: &Contraction,
    roles: &Roles,
    params: &sys::bops_conv_few_channels_params,
    limits: &Limits<'_>,
) -> Result<sys::bops_conv_few_channels_choice, Reason> {
    let Epilogue { activation, beside: other, .. } = &of.epilogue;
    let (y, dtype) = (&roles.y, of.gathered.dtype);
    let quads = roles.in_runs(y, 4) && other.as_ref().is_none_or(|pre| roles.in_runs(pre, 4));
    let each = 16 / dtype.size_bytes();
    let has_whole_runs = if roles.is_across() {
        params.y_extents[1].is_multiple_of(4)
    } else {
        roles.shape.channels_out.is_multiple_of(each) && roles.in_runs(y, each)
    };
    let is_light = quads
        && y.dtype == dtype
        && other.is_none()
        && matches!(activation, Activation::Identity | Activation::Relu)
        && has_whole_runs;
    let choice = sys::bops_conv_few_channels_choice {
        padded: padded(roles, params, dtype.size_bytes()),
        across: u32::from(roles.is_across()),
        quads: u32::from(quads),
        light: u32::from(is_light),
        ..Default::default()
    };
    let sizes = Sizes { params, element_bytes: dtype.size_bytes(), is_weight: false };
    sizes.with_tiles(choice, BLOCKS_FORWARD, limits)
}

pub(super) fn weight(
    roles: &Roles,
    params: &sys::bops_conv_few_channels_params,
    limits: &Limits<'_>,
) -> Result<sys::bops_conv_few_channels_choice, Reason> {
    let element_bytes = roles.y.dtype.size_bytes();
    let choice = sys::bops_conv_few_channels_choice {
        padded: padded(roles, params, element_bytes),
        across: u32::from(roles.is_across()),
        eights: u32::from(roles.in_runs(&roles.y, 8)),
        ..Default::default()
    };
    Sizes { params, element_bytes, is_weight: true }.with_tiles(choice, BLOCKS_WEIGHT, limits)
}

/// What adds up the parts of the gradient of the weight. Sets their strides, which are those of the dense gradient, and lowers their number to what the
/// workspace holds.
pub(super) fn in_parts(
    of: &Contraction,
    params: &mut sys::bops_conv_few_channels_params,
    choice: &mut sys::bops_conv_few_channels_choice,
    limits: &Limits<'_>,
) -> Result<AddUp, Reason> {
    let Contraction { n, rows, out, .. } = of;
    let extents: Vec<u64> = [*n].into_iter().chain(rows.digits()).collect();
    let strides: Vec<u64> = [out.column].into_iter().chain(out.digits(rows)).collect();
    let Some(stride) = merged(&extents, &strides) else { return Err("the gradient has to be dense".into()) };
    let count = n.saturating_mul(rows.count());
    let bytes = count.saturating_mul(4);
    let most = limits.workspace_bytes / bytes;
    Reason::unless(most != 0, || format!("it needs {bytes} bytes of workspace for each of its parts"))?;
    choice.parts = word(u64::from(choice.parts).min(most));
    let [height, width] = params.kernel.map(u64::from);
    params.weight_filter = rows.count();
    (params.weight_channel, params.weight_axes) =
        if rows.lead_last { (1, [width * rows.lead, rows.lead]) } else { (height * width, [width, 1]) };
    let sums = sys::bops_gemm_dbias_params { rows: choice.parts.into(), n: count, stride, beta: of.epilogue.beta };
    Ok(AddUp { sums, dtype: out.dtype, dweight: out.position })
}

/// Elements of a pixel in shared memory: with 4 the distance between positions may be no whole number of chunks.
fn padded(roles: &Roles, params: &sys::bops_conv_few_channels_params, element_bytes: u64) -> u32 {
    let is_whole = (u64::from(params.stride[1]) * 4 * element_bytes).is_multiple_of(CHUNK_BYTES);
    if roles.shape.channels_in <= 4 && is_whole { 4 } else { 8 }
}

/// What the sizes in shared memory depend on besides the choice.
struct Sizes<'p> {
    params: &'p sys::bops_conv_few_channels_params,
    element_bytes: u64,
    is_weight: bool,
}

impl Sizes<'_> {
    /// Chooses the widest tiles that fit into shared memory: a row of y, or equal parts of it, and several rows if they are short. As many blocks as run at
    /// once share the tiles.
    fn with_tiles(
        &self,
        mut choice: sys::bops_conv_few_channels_choice,
        most_blocks: u64,
        limits: &Limits<'_>,
    ) -> Result<sys::bops_conv_few_channels_choice, Reason> {
        let [rows, columns] = self.params.y_extents.map(u64::from);
        let limit = u64::from(limits.props.shared_bytes);
        let mut least = u64::MAX;
        let mut most = POSITIONS;
        while most >= GROUP {
            let wide = columns.div_ceil(columns.div_ceil(most)).next_multiple_of(GROUP);
            for high in [(POSITIONS / wide).min(rows), 1] {
                (choice.rows, choice.columns) = (word(high), word(wide));
                let bytes = self.shared_bytes(&choice);
                if bytes <= limit {
                    choice.parts = self.parts(&choice, places(bytes, most_blocks, limits))?;
                    return Ok(choice);
                }
                least = least.min(bytes);
            }
            most /= 2;
        }
        let [height, width] = self.params.kernel;
        Err(format!(
            "windows and weights of a kernel of {height} by {width} take {least} bytes of shared memory at least, a block has {limit}"
        )
        .into())
    }

    /// Blocks that share the tiles. Each set of 64 filters and, for the gradient of the weight, each slice of the chunks has as many of its own.
    fn parts(&self, choice: &sys::bops_conv_few_channels_choice, places: u64) -> Result<u32, Reason> {
        let Self { params, .. } = self;
        let down = u64::from(params.y_extents[0].div_ceil(choice.rows));
        let across = u64::from(params.y_extents[1].div_ceil(choice.columns));
        let tiles = (down * across).saturating_mul(params.samples.into());
        let tiles = u64::from(extent(tiles, "tiles")?);
        let slices = if self.is_weight { self.chunks(choice)[1].div_ceil(CHUNKS) } else { 1 };
        let alike = u64::from(params.filters).div_ceil(FILTERS) * slices;
        let parts = (places / alike).clamp(1, tiles);
        bounded_blocks([parts, alike])?;
        Ok(word(parts))
    }

    fn pixel_bytes(&self, choice: &sys::bops_conv_few_channels_choice) -> u64 {
        u64::from(choice.padded) * self.element_bytes
    }

    /// Chunks of the pixels under one row of the kernel, and under all its rows.
    fn chunks(&self, choice: &sys::bops_conv_few_channels_choice) -> [u64; 2] {
        let [height, width] = self.params.kernel.map(u64::from);
        let of_row = (width * self.pixel_bytes(choice)).div_ceil(CHUNK_BYTES);
        [of_row, of_row.saturating_mul(height)]
    }

    /// Shared memory of a block, as `patch_shape`, `forward_places` and `weight_places` of `csrc/conv` count it.
    fn shared_bytes(&self, choice: &sys::bops_conv_few_channels_choice) -> u64 {
        let [height, _] = self.params.kernel.map(u64::from);
        let [stride_down, stride_across] = self.params.stride.map(u64::from);
        let [of_row, all] = self.chunks(choice);
        let pitch = (u64::from(choice.columns) - 1) * stride_across * self.pixel_bytes(choice) + of_row * CHUNK_BYTES;
        let down = u64::from(choice.rows) * stride_down;
        let rows = down - stride_down + height;
        let ring = (rows + rows.min(down)).saturating_mul(pitch);
        let [slow, fast] = if choice.across == 1 { [FILTERS, POSITIONS] } else { [POSITIONS, FILTERS] };
        let other_bytes = if self.is_weight {
            2 * slow * (fast / 8 + 1) * CHUNK_BYTES
        } else {
            let weights = (all.next_multiple_of(2) + 1).saturating_mul(FILTERS * CHUNK_BYTES);
            let stage = if choice.light == 1 { 0 } else { slow * (fast + 4) * 4 };
            weights.saturating_add(4 * FILTERS + stage)
        };
        CHUNK_BYTES.saturating_add(ring).saturating_add(other_bytes)
    }
}
