//! The WGSL forms: what each takes, and its dispatches. They are those of CUDA, but for `tile`.
//!
//! | form | who owns what | taken first for |
//! |---|---|---|
//! | `walk` | a thread some positions, and walks over channels with the window in registers | neighbouring positions, sizes 3, 5, 7 and 9 |
//! | `rows` | a row of threads all channels of a position, in registers | neighbouring channels, sizes 3, 5, 7 and 9 |
//! | `direct` | a thread an element, and reads its whole window again | the rest |

use super::{Geometry, LocalResponseNormDescriptor, UNROLLED, Valid, backward, forward};
use crate::backend::wgpu::{
    Binding, Place, Props, ShaderType, StepBuilder, Variants, Work, check_reach, check_workspace, groups, padded,
    params,
};
use crate::dtype::DType;
use crate::error::{Reason, Result};
use crate::kernel::{Ask, Choice};
use crate::narrow::{single, stride, word};
use crate::ops::valid::Direction;
use crate::slots::{Access, Slot};
use crate::tensor::TensorDesc;

/// What `walk` chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Walk {
    workgroup_threads: u32,
    /// Neighbouring positions that a thread reads at a time.
    width: u32,
    /// Channels that a workgroup gives results for.
    chunk_channels: u32,
}

/// What `rows` chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rows {
    workgroup_threads: u32,
}

/// What `direct` chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Direct {
    workgroup_threads: u32,
}

/// Threads of a workgroup of `walk`: as many as every device offers. A chunk of channels has whole workgroups, so that larger ones would have more
/// threads without a position.
const WALK_WORKGROUP: u64 = 128;
/// Threads of a workgroup of `rows` and `direct`: the most that WebGPU promises. The more a workgroup of `rows` has, the longer the positions that it
/// takes.
const WORKGROUP: u64 = 256;
/// Threads that keep an H200 busy: 1024 on each of its 132 SMs, half of those that it has room for.
const BUSY_INVOCATIONS: u64 = 132 * 1024;

/// A descriptor as the forms take it.
struct Norm<'d> {
    norm: &'d Valid,
    props: &'d Props,
    dtype: ShaderType,
    geometry: Geometry,
}

/// How elements are given to workgroups, in which the dispatches of a form differ.
struct Spread {
    workgroup: u64,
    /// Elements of an access: 4, or 1.
    width: u64,
    /// Fields of the params, by name.
    vectors: u64,
    blocks: u64,
    chunk: u64,
    workgroups: u64,
}

impl<'d> Norm<'d> {
    fn new(norm: &'d Valid, props: &'d Props) -> Result<Self, Reason> {
        let dtype = ShaderType::of(norm.fields.x.dtype())?;
        let geometry = Geometry::new(norm)?;
        check_reach(norm.slots.iter(), &[], props)?;
        Ok(Self { norm, props, dtype, geometry })
    }

    fn is_forward(&self) -> bool {
        self.norm.op.kind == Direction::Forward
    }

    /// Whether accesses of four elements along an axis are whole and start at multiples of four, if the operands do; that is checked by each run.
    fn has_quads(&self, axis: usize, extent: u64) -> bool {
        let others = self.geometry.strides.iter().all(|s| (0..3).all(|a| a == axis || s[a].is_multiple_of(4)));
        extent.is_multiple_of(4) && others
    }

    fn workgroup(&self, threads: u64) -> u64 {
        threads.min(u64::from(self.props.max_threads))
    }

    fn params(&self, spread: &Spread, groups_x: u32) -> Vec<u8> {
        let (fields, geometry) = (&self.norm.fields, &self.geometry);
        let Geometry { batch, channels, spatial, size, before, scale, half_powers, .. } = *geometry;
        let (beta, k) = (fields.beta.get(), fields.k.get());
        let strides = |position: usize| geometry.strides[position].map(stride);
        // The params that both passes have, in the order of the WGSL structs.
        let extents = [word(batch), word(channels), word(spatial), 0];
        let powers = [scale, beta, k].map(single);
        let [vectors, blocks, chunk] = [spread.vectors, spread.blocks, spread.chunk].map(word);
        let spread = [half_powers, vectors, blocks, chunk, u32::from(geometry.prefers_channels()), groups_x];
        if self.is_forward() {
            params! {
                extents: [u32; 4] = extents,
                x: [u32; 4] = padded(strides(forward::X)),
                y: [u32; 3] = strides(forward::Y),
                size: u32 = word(size),
                scale_beta_k: [f32; 3] = powers,
                half_powers_to_groups_x: [u32; 6] = spread,
                before: u32 = word(before),
                end: [u32; 2] = [0; 2],
            }
        } else {
            params! {
                extents: [u32; 4] = extents,
                dy: [u32; 4] = padded(strides(backward::DY)),
                x: [u32; 4] = padded(strides(backward::X)),
                dx: [u32; 3] = strides(backward::DX),
                size: u32 = word(size),
                scale_beta_k: [f32; 3] = powers,
                slope: f32 = single(2.0 * scale * beta),
                half_powers_to_groups_x: [u32; 6] = spread,
                before: u32 = word(before),
                end: u32 = 0,
            }
        }
    }

    /// The operands of some rows of the family's table.
    fn bindings(&self, operands: &[usize], width: u64) -> Vec<Binding> {
        let [input, output] = match (width == 4, self.dtype.is_half()) {
            (true, false) => [["chunks_f32_in", "fours_f32_in"], ["chunks_f32_out", "fours_f32_out"]],
            (true, true) => [["pairs_half_in", "fours_half_in"], ["pairs_half_out", "fours_half_out"]],
            (false, false) => [["elements_f32_in"; 2], ["elements_f32_out"; 2]],
            (false, true) => [["elements_half_in"; 2], ["elements_half_out"; 2]],
        };
        let binding = |slot: &Slot| {
            let accessors = if slot.access == Access::In { input } else { output };
            Binding { name: slot.name, place: Some(Place::Operand(slot.index)), accessors }
        };
        self.norm.slots.all_at(operands).map(binding).collect()
    }

    /// A dispatch of a form: `files` come after those that all dispatches of the pass have.
    fn step(
        &self,
        entry: &'static str,
        files: &[&'static str],
        bindings: Vec<Binding>,
        spread: &Spread,
    ) -> Result<StepBuilder, Reason> {
        let Geometry { size, half_powers, .. } = self.geometry;
        let is_quad = spread.width == 4;
        let mut all = if self.dtype.is_half() { vec![self.dtype.file()] } else { Vec::new() };
        all.push("common/power");
        all.push(match is_quad {
            true => "norm/local_response/local_response_quad",
            false => "norm/local_response/local_response_single",
        });
        all.push("norm/local_response/local_response");
        all.push(match self.is_forward() {
            true => "norm/local_response/local_response_norm",
            false => "norm/local_response/local_response_norm_backward",
        });
        all.extend(files);
        let grid = groups(spread.workgroups, self.props)?;
        let window = if UNROLLED.contains(&size) { word(size) } else { 1 };
        Ok(StepBuilder {
            constants: vec![("WORKGROUP", word(spread.workgroup)), ("SIZE", window)],
            flags: vec![("ROOTS", half_powers > 0)],
            bindings,
            can_chunk: is_quad,
            ..StepBuilder::new(entry, all, self.params(spread, grid[0]), grid)
        })
    }

    /// A form of one dispatch, without a dispatch if there are no elements.
    fn work<C: Choice + 'static>(
        &self,
        choice: C,
        entries: [&'static str; 2],
        files: [&[&'static str]; 2],
        spread: &Spread,
    ) -> Result<Work<C>, Reason> {
        let mut work = Work::none(choice, self.props);
        if self.geometry.elements() > 0 {
            let pass = usize::from(!self.is_forward());
            let operands: [&[usize]; 2] = [&[forward::X, forward::Y], &[backward::DY, backward::X, backward::DX]];
            let bindings = self.bindings(operands[pass], spread.width);
            work.steps.push(self.step(entries[pass], files[pass], bindings, spread)?);
        }
        Ok(work)
    }
}

pub(super) fn walk(norm: &Valid, props: &Props, ask: Ask) -> Result<Work<Walk>, Reason> {
    let norm = Norm::new(norm, props)?;
    norm.geometry.check_unrolled()?;
    let Geometry { batch, channels, spatial, size, position_bytes, .. } = norm.geometry;
    Reason::unless(position_bytes > 0, || "it needs a spatial stride of 1 in every tensor")?;
    if ask == Ask::Chosen && norm.geometry.prefers_channels() {
        return Err("channels are neighbours, for which rows and direct read memory in wider accesses".into());
    }
    let width = if norm.has_quads(2, spatial) { 4 } else { 1 };
    let (workgroup, vectors) = (norm.workgroup(WALK_WORKGROUP), spatial / width);
    let blocks = (batch * vectors).div_ceil(workgroup);
    let halo = if norm.is_forward() { size - 1 } else { 2 * (size - 1) };
    // Chunks that are each at least four times as long as their halo, so that halos are at most a fifth of what is read.
    let most = (channels / (4 * halo)).max(1);
    let chunks = BUSY_INVOCATIONS.div_ceil((batch * vectors).max(1)).clamp(1, most);
    let chunk = channels.div_ceil(chunks).max(1);
    let workgroups = blocks * channels.div_ceil(chunk);
    let choice = Walk { workgroup_threads: word(workgroup), width: word(width), chunk_channels: word(chunk) };
    let spread = Spread { workgroup, width, vectors, blocks, chunk, workgroups };
    norm.work(choice, ["local_response_norm_walk", "local_response_norm_backward_walk"], [&[], &[]], &spread)
}

pub(super) fn rows(norm: &Valid, props: &Props, _: Ask) -> Result<Work<Rows>, Reason> {
    let norm = Norm::new(norm, props)?;
    norm.geometry.check_unrolled()?;
    let Geometry { batch, channels, spatial, channel_bytes, .. } = norm.geometry;
    if channel_bytes == 0 || channels == 0 || !norm.has_quads(1, channels) {
        return Err("it reads four neighbouring channels at a time, here rows of channels are not whole fours".into());
    }
    let (workgroup, vectors) = (norm.workgroup(WORKGROUP), channels / 4);
    Reason::unless(vectors <= workgroup, || format!("a position has {vectors} invocations, the limit is {workgroup}"))?;
    let blocks = workgroup / vectors;
    let workgroups = (batch * spatial).div_ceil(blocks);
    let spread = Spread { workgroup, width: 4, vectors, blocks, chunk: channels, workgroups };
    let entries = ["local_response_norm_rows", "local_response_norm_backward_rows"];
    let files: [&[&str]; 2] = [
        &["norm/local_response/local_response_rows", "norm/local_response/local_response_norm_rows"],
        &["norm/local_response/local_response_rows", "norm/local_response/local_response_norm_backward_rows"],
    ];
    norm.work(Rows { workgroup_threads: word(workgroup) }, entries, files, &spread)
}

pub(super) fn direct(norm: &Valid, props: &Props, _: Ask) -> Result<Work<Direct>, Reason> {
    let norm = Norm::new(norm, props)?;
    let workgroup = norm.workgroup(WORKGROUP);
    let elements = norm.geometry.elements();
    let workgroups = elements.div_ceil(workgroup);
    let spread = Spread { workgroup, width: 1, vectors: 1, blocks: 1, chunk: norm.geometry.channels, workgroups };
    let choice = Direct { workgroup_threads: word(workgroup) };
    let window = "norm/local_response/local_response_direct";
    if norm.is_forward() || elements == 0 {
        let files = [window, "norm/local_response/local_response_norm_direct"];
        return norm.work(choice, ["local_response_norm_direct"; 2], [&files; 2], &spread);
    }
    // First the terms of all elements and the roots of their d, then dx.
    let bytes = elements * 4;
    check_workspace(bytes, props)?;
    let roots_start = bytes.next_multiple_of(props.workspace_align());
    let partials = |accessor| {
        [("terms", 0), ("roots", roots_start)].map(|(name, offset)| Binding::partials(name, offset, bytes, accessor))
    };
    let mut of_terms = norm.bindings(&[backward::DY, backward::X], 1);
    of_terms.push(Binding::absent("dx", "absent_elements"));
    of_terms.extend(partials("elements_f32_out"));
    let mut of_dx = norm.bindings(&[backward::DY, backward::X, backward::DX], 1);
    of_dx.extend(partials("elements_f32_in"));
    let terms = [window, "norm/local_response/local_response_norm_backward_direct_terms"];
    let dx = [window, "norm/local_response/local_response_norm_backward_direct"];
    let mut work = Work::none(choice, props);
    work.workspace_bytes = roots_start + bytes;
    work.steps = vec![
        norm.step("local_response_norm_backward_direct_terms", &terms, of_terms, &spread)?,
        norm.step("local_response_norm_backward_direct", &dx, of_dx, &spread)?,
    ];
    Ok(work)
}

/// # Errors
/// A descriptor that is not valid.
pub(in crate::ops) fn add_variants(variants: &mut Variants) -> Result<()> {
    for props in &Variants::devices() {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            for (dims, is_last) in [([2, 16, 8, 8], false), ([2, 16, 3, 3], false), ([2, 16, 3, 3], true)] {
                let x = if is_last {
                    TensorDesc::channels_last(dtype, &dims)?
                } else {
                    TensorDesc::contiguous(dtype, &dims)?
                };
                for (size, beta) in [(3, 0.5), (5, 0.75), (7, 1.0), (9, 2.0), (4, 0.75), (4, 2.0)] {
                    let forward = LocalResponseNormDescriptor::new(x, size)?.beta(beta)?;
                    let backward = forward.backward()?;
                    for norm in [&forward.0, &backward.0] {
                        let name = format!("{dtype} {dims:?} size {size} beta {beta} channels last {is_last}");
                        variants.add_work(&name, walk(norm, props, Ask::Pinned), props);
                        variants.add_work(&name, rows(norm, props, Ask::Pinned), props);
                        variants.add_work(&name, direct(norm, props, Ask::Pinned), props);
                    }
                }
            }
        }
    }
    Ok(())
}
