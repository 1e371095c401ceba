//! The WGSL kernels: what they bind, and their dispatches.

mod backward;
mod product;
mod variants;

use super::geometry::{Matrix, Product};
use super::{GemmBackwardDescriptor, GemmDescriptor, geometry};
use crate::backend::wgpu::{
    Binding, Place, Props, StepBuilder, Work, check_bindings, check_reach, lines_in, lines_out,
};
use crate::dtype::DType;
use crate::error::Reason;
use crate::kernel::{Accepted, Ask};
use crate::plan::Descriptor;
use crate::slots::Slot;

pub(in crate::ops) use backward::{sums_step, tree_workgroup};
pub(in crate::ops) use product::{CHAIN, DEPTH, MOST_STEPS_IN_SOFTWARE, Tile, chain};
pub(in crate::ops) use variants::add_variants;

/// The kernel of the product.
pub(super) fn forward<'d>(descriptor: &'d GemmDescriptor, props: &Props, ask: Ask) -> Accepted<'d> {
    let work = product_work(&descriptor.product(), descriptor.slots(), (props, ask))?;
    Ok(work.batch_invariant_if(ask.is_invariant()).candidate())
}

/// The kernels of the gradients.
pub(super) fn backward<'d>(descriptor: &'d GemmBackwardDescriptor, props: &Props, _: Ask) -> Accepted<'d> {
    Ok(backward_work(descriptor, props)?.candidate())
}

fn forward_work(descriptor: &GemmDescriptor, props: &Props) -> Result<Work<()>, Reason> {
    product_work(&descriptor.product(), descriptor.slots(), (props, Ask::Chosen))
}

/// One product of operands, whichever op's it is.
pub(in crate::ops) fn product_work(
    product: &Product,
    slots: &[Slot],
    (props, ask): (&Props, Ask),
) -> Result<Work<()>, Reason> {
    check_operands(slots, props)?;
    let regions = Regions { dpre_bytes: 0, partial_bytes: 0, align: props.workspace_align() };
    let steps = product::step(product, &regions, false, (props, ask))?.into_iter().collect();
    finished(steps, &regions, props)
}

fn backward_work(descriptor: &GemmBackwardDescriptor, props: &Props) -> Result<Work<()>, Reason> {
    check_operands(descriptor.slots(), props)?;
    backward::work(&descriptor.geometry(), props)
}

/// # Errors
/// Operands that shaders have no arithmetic for, or that are too long for their indices. One without elements bounds nothing: sums of its elements
/// have no terms, of which the params say no more.
pub(in crate::ops) fn check_operands(slots: &[Slot], props: &Props) -> Result<(), Reason> {
    Reason::unless(
        slots.iter().all(|slot| slot.desc.dtype() != DType::F64),
        || "WGSL has no arithmetic of f64 to rely on",
    )?;
    check_reach(slots.iter().filter(|slot| slot.desc.elements() > 0), &[], props)
}

fn finished(steps: Vec<StepBuilder>, regions: &Regions, props: &Props) -> Result<Work<()>, Reason> {
    check_bindings(&steps, props)?;
    Ok(Work { steps, workspace_bytes: regions.bytes(), ..Work::none((), props) })
}

/// The workspace of backward: the gradient of the pre-activation, then the partial sums of its columns.
#[derive(Clone, Copy)]
struct Regions {
    /// A multiple of 16, or 0.
    dpre_bytes: u64,
    /// A multiple of 16, or 0.
    partial_bytes: u64,
    align: u64,
}

impl Regions {
    fn dpre(&self) -> Place {
        Place::Workspace { offset: 0, bytes: self.dpre_bytes }
    }

    fn partials(&self) -> Place {
        Place::Workspace { offset: self.partials_offset(), bytes: self.partial_bytes }
    }

    fn partials_offset(&self) -> u64 {
        self.dpre_bytes.next_multiple_of(self.align)
    }

    fn bytes(&self) -> u64 {
        if self.partial_bytes == 0 { self.dpre_bytes } else { self.partials_offset() + self.partial_bytes }
    }

    fn place(&self, place: geometry::MatrixPlace) -> Place {
        match place {
            geometry::MatrixPlace::Operand(position) => Place::Operand(position),
            geometry::MatrixPlace::Dpre => self.dpre(),
        }
    }

    /// A matrix that is read in lines.
    fn input(&self, name: &'static str, matrix: &Matrix) -> Binding {
        Binding { name, place: Some(self.place(matrix.place)), accessors: lines_in(matrix.dtype) }
    }

    /// A matrix that is written in lines.
    fn output(&self, name: &'static str, matrix: &Matrix) -> Binding {
        Binding { name, place: Some(self.place(matrix.place)), accessors: lines_out(matrix.dtype) }
    }
}

/// An extent and a stride of one matrix.
type Axis = (u64, u64);

/// The axes of extents, with the strides of one matrix.
fn axes<'a>(extents: &'a [u64], strides: &'a [u64]) -> impl Iterator<Item = Axis> + 'a {
    extents.iter().copied().zip(strides.iter().copied())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::product::Tile;
    use super::*;
    use crate::backend::wgpu::Variants;
    use crate::ops::activation::Activation;
    use crate::ops::gemm::{GemmFactor, GemmSaved};
    use crate::tensor::TensorDesc;

    fn able() -> Props {
        Props { max_workgroup_bytes: 48 << 10, ..Variants::device(Some((32, 32))) }
    }

    fn dense(dims: &[u64]) -> TensorDesc {
        TensorDesc::contiguous(DType::BF16, dims).unwrap()
    }

    fn gemm([m, n, k]: [u64; 3]) -> GemmDescriptor {
        GemmDescriptor::new(dense(&[m, k]), dense(&[k, n])).unwrap()
    }

    #[test]
    fn tiles_are_as_large_as_leaves_no_multiprocessor_idle() {
        let rows = |extents, props: &Props| Tile::of(&gemm(extents).product(), props).rows;
        let expected = [
            ([4096, 4096, 4096], 128),
            ([8192, 768, 3072], 128),
            ([1024, 1024, 1024], 64),
            ([256, 256, 16384], 32),
            ([16, 50257, 768], 32),
            ([1, 1, 1], 32),
        ];
        for (extents, largest) in expected {
            assert_eq!(rows(extents, &able()), largest, "{extents:?}");
        }
        let least = Variants::device(None);
        assert_eq!((rows([4096; 3], &least), least.max_workgroup_bytes), (64, 16 << 10));
        let batch = GemmDescriptor::new(dense(&[200, 100, 20]), dense(&[200, 20, 100])).unwrap();
        assert_eq!(Tile::of(&batch.product(), &able()).rows, 128);
    }

    #[test]
    fn a_combination_of_types_has_few_shaders() {
        let extents =
            [[2048, 2048, 64], [1024, 1024, 64], [64, 64, 64], [2047, 2049, 33], [1023, 1025, 5], [63, 65, 0]];
        let mut forward = HashSet::new();
        let mut recomputed = HashSet::new();
        let mut steps_of = |descriptor: &GemmDescriptor| {
            let with_words = |step: &StepBuilder| [true, false].map(|chunks| step.source(chunks && step.can_chunk));
            let work = forward_work(descriptor, &able()).unwrap();
            forward.extend(work.steps.iter().flat_map(with_words));
            let wanted = descriptor.backward_all().unwrap().saved(GemmSaved::Recompute).unwrap();
            let work = backward_work(&wanted, &able()).unwrap();
            let (products, others): (Vec<_>, Vec<_>) = work
                .steps
                .iter()
                .partition(|step| step.entry == "gemm_tiled" && !step.files.contains(&"gemm/gemm_backward_recomputed"));
            // Gradients are products like any other.
            forward.extend(products.into_iter().flat_map(with_words));
            recomputed.extend(others.into_iter().filter(|s| s.entry == "gemm_tiled").flat_map(with_words));
        };
        for [m, n, k] in extents {
            let factor = |rows, cols, is_transposed| match is_transposed {
                true => GemmFactor::transposed(dense(&[cols, rows])),
                false => dense(&[rows, cols]).into(),
            };
            for transposes in 0..4 {
                let (a, b) = (factor(m, k, transposes & 1 != 0), factor(k, n, transposes & 2 != 0));
                let plain = GemmDescriptor::new(a, b).unwrap();
                for activation in Activation::ALL {
                    let plain = plain.clone().activation(activation).unwrap();
                    let biased = plain.clone().bias(DType::BF16).unwrap();
                    let columns = TensorDesc::strided(DType::BF16, &[m, n], &[1, m]).unwrap();
                    steps_of(&plain);
                    steps_of(&biased);
                    steps_of(&biased.pre(DType::BF16).unwrap().layout("out", columns).unwrap());
                }
            }
        }
        assert_eq!((forward.len(), recomputed.len()), (6, 6));
    }

    #[test]
    fn the_workspace_holds_dpre_and_one_sum_of_a_column_for_each_workgroup_along_the_rows() {
        let bytes = |descriptor: &GemmBackwardDescriptor| backward_work(descriptor, &able()).unwrap().workspace_bytes;
        let linear = gemm([640, 66, 64]).bias(DType::BF16).unwrap();
        let factors = &["a", "b"];
        // dout is dpre.
        assert_eq!(bytes(&linear.backward(factors).unwrap()), 0);
        // 17 quads of sums, of 128 rows each.
        assert_eq!(bytes(&linear.backward_all().unwrap()), 5 * 17 * 16);
        let silu = linear.activation(Activation::Silu).unwrap();
        let dpre = 640 * 66 * 2;
        assert_eq!(bytes(&silu.backward(factors).unwrap()), dpre);
        // Of tiles of 32 rows.
        assert_eq!(bytes(&silu.backward_all().unwrap()), dpre + 20 * 17 * 16);
    }

    #[test]
    fn refuses_what_has_no_arithmetic_and_what_indices_do_not_reach() {
        let of = |dtype, dims: [u64; 2]| TensorDesc::contiguous(dtype, &dims).unwrap();
        let wide = GemmDescriptor::new(of(DType::F64, [4, 4]), of(DType::F64, [4, 4])).unwrap();
        assert!(forward_work(&wide, &able()).is_err());
        let long = GemmDescriptor::new(of(DType::F32, [1 << 16, 1]), of(DType::F32, [1, 1 << 16])).unwrap();
        let reason = forward_work(&long, &able()).err().unwrap().to_string();
        assert!(reason.contains("4294967296"), "{reason}");
    }

    #[test]
    fn sums_that_a_driver_for_processors_would_cut_short_are_refused_there() {
        let [a, b] = [dense(&[1, 600_000]), dense(&[600_000, 1])];
        let forward = GemmDescriptor::new(a, b).unwrap();
        let refused = forward_work(&forward, &Props { is_cpu: true, ..able() }).err().unwrap().to_string();
        assert!(refused.contains("at most 512000 terms") && refused.contains("600000"), "{refused}");
        assert!(forward_work(&forward, &Props { is_cpu: false, ..able() }).is_ok());
    }
}
