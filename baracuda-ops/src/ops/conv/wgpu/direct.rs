//! Contractions of groups with few channels: one thread for each quad of the output.

use super::super::geometry::Contraction;
use super::output::{Output, Params, Terms, check_coordinates, divided, sums_step};
use crate::backend::wgpu::{Binding, Props, StepBuilder, elements_in, groups, prelude};
use crate::error::Reason;
use crate::narrow::{stride, word};
use crate::ops::gemm::wgpu::{CHAIN, chain};

/// The most columns of a group: four fill an eighth of the narrowest tile, which has 32.
const MOST_COLUMNS: u64 = 4;
/// Threads of a workgroup: as many as every device offers.
const WORKGROUP: u32 = 128;
/// Threads that keep a device busy: half of those that a GPU of 132 SMs holds.
const BUSY: u64 = 132 * 1024;
/// The fewest terms of a part. A part costs a sum that is written and read again: with fewer terms this weighs more against the products, with more there
/// are fewer parts to keep a device busy.
const LEAST_TERMS: u64 = 64;

/// The dispatches, if anything is written, and the bytes of workspace between them.
pub(super) fn steps(contraction: &Contraction, props: &Props) -> Result<(Vec<StepBuilder>, u64), Reason> {
    Reason::unless(contraction.groups != 1 && contraction.n <= MOST_COLUMNS, || {
        let (groups, n) = (contraction.groups, contraction.n);
        format!("it serves several groups of at most {MOST_COLUMNS} channels, got {groups} with {n}")
    })?;
    if contraction.is_empty() {
        return Ok((Vec::new(), 0));
    }
    check_coordinates(contraction)?;
    let Contraction { groups: channel_groups, rows, gathered, plain, .. } = contraction;
    // Columns are counted through all groups, as channels are.
    let whole = Contraction { groups: 1, n: contraction.n * channel_groups, ..*contraction };
    let output = Output::new(&whole);
    let terms = Terms::of(contraction);
    let quads = output.quads(&whole);
    let (parts, part_terms) = divided(terms.count, BUSY / quads.max(1), LEAST_TERMS, props);
    let (sums, bytes) = if parts > 1 { output.of_parts(&whole, parts) } else { (output, 0) };

    let count = quads.saturating_mul(parts).div_ceil(WORKGROUP.into());
    let grid = groups(count, props)?;
    let params = Params {
        m: word(rows.count()),
        n: word(whole.n),
        part_terms: word(part_terms),
        parts: word(parts),
        channel_groups: word(*channel_groups),
        groups: word(count),
        groups_x: grid[0],
        chain: word(chain(part_terms, CHAIN)),
        plain_strides: plain.digits(&contraction.terms).map(stride),
        ..sums.params(terms.params(contraction, 1))
    };
    let factor = |name, position, dtype| elements_in(name, terms.place(position, &sums), dtype);
    let mut bindings =
        vec![factor("gathered", gathered.position, gathered.dtype), factor("plain", plain.position, plain.dtype)];
    let spare = (terms.place(plain.position, &sums), plain.dtype);
    // Single accesses: four neighbouring elements share a cache line anyway.
    bindings.extend(sums.bindings(spare).map(|binding| Binding { accessors: [binding.accessors[1]; 2], ..binding }));
    let mut files = prelude([gathered.dtype, plain.dtype].into_iter().chain(sums.dtypes()))?;
    files.extend(["common/activation", "conv/conv_output", "gemm/gemm_output", "conv/conv_gather", "conv/conv_direct"]);
    let mut steps = vec![StepBuilder {
        constants: vec![("WORKGROUP", WORKGROUP)],
        bindings,
        ignores_layouts: true,
        ..StepBuilder::new("conv_direct", files, bytemuck::bytes_of(&params).to_vec(), grid)
    }];
    if parts > 1 {
        steps.push(sums_step(&whole, &output, &sums, parts, props)?);
    }
    Ok((steps, bytes))
}
