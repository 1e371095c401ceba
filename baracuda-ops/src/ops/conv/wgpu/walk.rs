//! Contractions whose windows see mostly padding, or places between the elements of dy: one thread for each quad of the output, which visits the terms inside
//! the image alone.

use super::super::geometry::Contraction;
use super::output::{Output, Params, Terms, check_coordinates, divided, in_quad, sums_step};
use crate::backend::wgpu::{Binding, Props, StepBuilder, elements_in, groups, prelude};
use crate::error::Reason;
use crate::kernel::Ask;
use crate::narrow::{stride, word};

/// Products of the other forms for each product inside the image, from which on this one is preferred: tiles load each factor once for 32 products at least,
/// a thread of this form once for each. That half of this is what a load costs is an assumption, not measured.
const LEAST_PADDING: u64 = 16;
/// Threads of a workgroup: as many as every device offers.
const WORKGROUP: u32 = 128;
/// Threads that keep a device busy, as in `conv_direct`.
const BUSY: u64 = 132 * 1024;
/// The fewest terms of a part, as in `conv_direct`.
const LEAST_TERMS: u64 = 64;
/// Sums of a thread, one after the other.
const QUAD: u64 = 4;

/// The dispatches, if anything is written, and the bytes of workspace between them.
pub(super) fn steps(contraction: &Contraction, props: &Props, ask: Ask) -> Result<(Vec<StepBuilder>, u64), Reason> {
    let (products, inside) = (contraction.products(), contraction.products_inside());
    // Tiles count coordinates with a sign in 32 bits, also those outside the image.
    let is_left = check_coordinates(contraction).is_err() || products / LEAST_PADDING > inside;
    Reason::unless(ask == Ask::Pinned || is_left, || {
        format!(
            "tiles are faster: of {products} products {inside} are inside the image, more than one in {LEAST_PADDING}"
        )
    })?;
    if contraction.is_empty() {
        return Ok((Vec::new(), 0));
    }
    let Contraction { groups: channel_groups, rows, gathered, plain, .. } = contraction;
    // Columns are counted through all groups, as channels are.
    let whole = Contraction { groups: 1, n: contraction.n * channel_groups, ..*contraction };
    let output = Output::new(&whole);
    let terms = Terms::of(contraction);
    let quads = output.quads(&whole);
    let count = contraction.most_terms_inside().saturating_mul(QUAD);
    let (parts, of_part) = divided(count, BUSY / quads.max(1), LEAST_TERMS * QUAD, props);
    let (sums, bytes) = if parts > 1 { output.of_parts(&whole, parts) } else { (output, 0) };

    let count = quads.saturating_mul(parts).div_ceil(WORKGROUP.into());
    let grid = groups(count, props)?;
    let walks = contraction.walks();
    let params = Params {
        m: word(rows.count()),
        n: word(whole.n),
        part_terms: word(of_part.div_ceil(QUAD)),
        parts: word(parts),
        channel_groups: word(*channel_groups),
        groups: word(count),
        groups_x: grid[0],
        plain_strides: plain.digits(&contraction.terms).map(stride),
        steps: in_quad(walks.map(|walk| word(walk.step))),
        inverses: in_quad(walks.map(|walk| word(walk.inverse))),
        // Beyond 32 bits only the gradient of the data has one, which is compared with numbers of rows, below 2^32.
        tops: in_quad(walks.map(|walk| u32::try_from(walk.top()).unwrap_or(u32::MAX))),
        ..sums.params(terms.params(contraction, 1))
    };
    let factor = |name, position, dtype| elements_in(name, terms.place(position, &sums), dtype);
    let mut bindings =
        vec![factor("gathered", gathered.position, gathered.dtype), factor("plain", plain.position, plain.dtype)];
    let spare = (terms.place(plain.position, &sums), plain.dtype);
    // Single accesses: neighbouring elements share a cache line anyway.
    bindings.extend(sums.bindings(spare).map(|binding| Binding { accessors: [binding.accessors[1]; 2], ..binding }));
    let mut files = prelude([gathered.dtype, plain.dtype].into_iter().chain(sums.dtypes()))?;
    files.extend([
        "common/activation",
        "common/subnormal",
        "conv/conv_output",
        "gemm/gemm_output",
        "conv/conv_gather",
        "conv/conv_walk",
    ]);
    let mut steps = vec![StepBuilder {
        constants: vec![("WORKGROUP", WORKGROUP)],
        bindings,
        ignores_layouts: true,
        ..StepBuilder::new("conv_walk", files, bytemuck::bytes_of(&params).to_vec(), grid)
    }];
    if parts > 1 {
        steps.push(sums_step(&whole, &output, &sums, parts, props)?);
    }
    Ok((steps, bytes))
}
