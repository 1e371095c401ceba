//! Every kind of shader of the family, without a device.

use super::super::{BackwardFields, ForwardFields, Gradients, RowNorm, Valid};
use super::{Work, backward_work, forward_work};
use crate::backend::wgpu::Props;
use crate::dtype::DType;
use crate::error::{Reason, Result};
use crate::tensor::TensorDesc;

/// The text of every kind of shader of the family, with what it is for: for checks that need no device.
pub fn wgsl_variants() -> impl Iterator<Item = (String, String)> {
    let mut texts = Vec::new();
    for props in [Some(32), Some(8), None].map(variant_props) {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            for cols in [64, 1024, 40_000] {
                for (parameters, has_all) in [(None, false), (Some(dtype), true), (Some(DType::F32), true)] {
                    let mut add = |name: &str, work: Result<Work, Reason>| {
                        for step in work.into_iter().flat_map(|work| work.steps) {
                            let reduce =
                                props.subgroup_sizes.map_or("tree".into(), |(width, _)| format!("width {width}"));
                            for (is_chunked, is_shared) in [(true, false), (true, true), (false, false), (false, true)]
                            {
                                let name = format!(
                                    "{name} {} {dtype} cols {cols} parameters {parameters:?} {reduce} chunked {is_chunked} shared {is_shared}",
                                    step.entry
                                );
                                texts.push((name, step.source(is_chunked).assemble(is_shared, props.has_immediates())));
                            }
                        }
                    };
                    for kind in [RowNorm::Layer, RowNorm::Rms] {
                        if let Ok((forward, backward)) = variant(kind, dtype, cols, parameters, has_all) {
                            add("forward", forward_work(&forward, &props));
                            add("backward", backward_work(&backward, &props));
                        }
                    }
                }
            }
        }
    }
    texts.into_iter()
}

/// Properties of a device with subgroups of one width and immediates, or with neither.
pub(super) fn variant_props(subgroup: Option<u32>) -> Props {
    Props {
        adapter: String::new(),
        api: String::new(),
        driver: String::new(),
        is_cpu: false,
        subgroup_sizes: subgroup.map(|width| (width, width)),
        immediate_bytes: if subgroup.is_some() { 128 } else { 0 },
        max_binding_bytes: u64::from(u32::MAX),
        max_buffer_bytes: u64::from(u32::MAX),
        max_storage_buffers: 8,
        max_workgroup_bytes: 16 << 10,
        max_threads: if subgroup.is_some() { 1024 } else { 256 },
        max_groups: 65535,
        binding_align: 256,
    }
}

/// A forward and its backward, plain or with every option.
fn variant(
    kind: RowNorm,
    dtype: DType,
    cols: u64,
    parameters: Option<DType>,
    has_all: bool,
) -> Result<(Valid<ForwardFields>, Valid<BackwardFields>)> {
    let x = TensorDesc::contiguous(dtype, &[1000, cols])?;
    let forward = Valid::<ForwardFields>::plain(kind, "row_norm", x, 1)?.with("row_norm", |fields| {
        fields.weight = parameters;
        fields.bias = parameters.filter(|_| kind == RowNorm::Layer);
        fields.stats = has_all;
        fields.residual = has_all;
    })?;
    let backward = forward.backward("row_norm_backward", Gradients::ALL)?;
    Ok((forward, backward))
}
