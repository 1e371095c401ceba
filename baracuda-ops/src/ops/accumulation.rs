//! Gradients that are added to what is there.
//!
//! One of the op's own kernels computes them into the workspace, where they lie as their operands do, and a program adds each to its operand, in place. So every
//! kernel of every backward serves, with the bits that it has alone; ops whose kernels add as they write say so by a `beta` of their own ([`by_beta`]).

use crate::dtype::Real;
use crate::error::Result;
use crate::ops::fields::{is_one, is_zero, require};
use crate::ops::pointwise::map::{INPUTS, OUTPUTS};
use crate::ops::pointwise::{Function, PointwiseDescriptor};
use crate::ops::valid::{Accumulate, Fields, Valid};
use crate::plan::Descriptor;
use crate::sequence::{Sequence, Tensor};
use crate::tensor::DEFAULT_ALIGN_BYTES;

/// The op without what is there, then an addition for each gradient that is added to it.
pub(super) fn sequence<F: Fields, D: Descriptor>(valid: &Valid<F>, descriptor: fn(Valid<F>) -> D) -> Result<Sequence> {
    let (mut sequence, mut fields) = (Sequence::default(), valid.fields.clone());
    let added = std::mem::take(fields.accumulate_mut());
    let (mut operands, mut sums) = (Vec::new(), Vec::new());
    for slot in valid.slots.iter() {
        let operand = Tensor::operand(slot);
        let mut tensor = operand;
        if added.contains(slot.name) {
            // No promise of an operand holds for the workspace beyond its own alignment.
            tensor = sequence.place(slot.desc.align(slot.desc.align_bytes().min(DEFAULT_ALIGN_BYTES))?)?;
            fields.layouts().insert(slot.name.into(), tensor.desc);
            sums.push([operand, tensor]);
        }
        operands.push((slot.name, tensor));
    }
    let fresh = descriptor(Valid::new(valid.op, fields)?);
    sequence.lead(fresh, &operands);
    for [operand, tensor] in sums {
        let add = PointwiseDescriptor::binary(Function::Add, operand.desc, tensor.desc)?;
        let add = add.layout(OUTPUTS[0], operand.desc)?;
        sequence.push(add, &[(INPUTS[0], operand), (INPUTS[1], tensor), (OUTPUTS[0], operand)]);
    }
    Ok(sequence)
}

/// Says by a beta of 1 that a gradient is added to what is there, if it is to be.
///
/// # Errors
/// A beta that says otherwise.
pub(super) fn by_beta(op: &'static str, added: &mut Accumulate, gradient: &'static str, beta: &mut Real) -> Result<()> {
    if !added.remove(gradient) {
        return Ok(());
    }
    require(op, "accumulate", is_zero(beta) || is_one(beta), || {
        let beta = beta.get();
        format!("adds {gradient} to what is there, and its beta is {beta}: leave one of them out")
    })?;
    *beta = super::fields::one();
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::memory::{Mem, MemMut, Workspace};
    use crate::slots::Access;
    use crate::{
        AnyDescriptor, AttentionBackwardDescriptor, ConvBackwardBiasDescriptor, ConvDescriptor, ConvWindow, DType,
        Descriptor, Device, Error, GemmBackwardDescriptor, LayerNormBackwardArgs, LayerNormBackwardDescriptor,
        LayerNormDescriptor, Plan, PlanOptions, Result, SoftmaxDescriptor, TensorDesc,
    };

    fn of(dims: &[u64]) -> TensorDesc {
        TensorDesc::contiguous(DType::F32, dims).unwrap()
    }

    fn layer_norm() -> Result<LayerNormBackwardDescriptor> {
        LayerNormDescriptor::new(of(&[3, 8]), 1)?.weight(DType::F32)?.bias(DType::F32)?.stats()?.backward_all()
    }

    #[test]
    fn gradients_of_one_name_are_added_and_others_are_written() -> Result<()> {
        let device = Device::cpu();
        let (dy, x) = ([1.0f32, -2.0, 0.5, 3.0, 0.25, -1.0, 2.0, 4.0].repeat(3), [0.5f32, 1.0, -3.0, 2.0].repeat(6));
        let (weight, mean, rstd) = ([2.0f32; 8], [0.125f32; 3], [0.5f32; 3]);
        let run = |descriptor: LayerNormBackwardDescriptor, before: f32| -> Result<[Vec<f32>; 3]> {
            let plan = Plan::new(&device, descriptor, &PlanOptions::default())?;
            let [mut dx, mut dweight, mut dbias] = [24, 8, 8].map(|elements| vec![before; elements]);
            let scratch = device.alloc(plan.workspace().bytes)?;
            let args = LayerNormBackwardArgs::new(&dy, &x, &mean, &rstd).weight(&weight).dx(&mut dx);
            let args = args.dweight(&mut dweight).dbias(&mut dbias);
            plan.run(&mut device.queue(), args, Workspace::new(&scratch))?;
            Ok([dx, dweight, dbias])
        };
        let fresh = run(layer_norm()?, f32::NAN)?;
        let added = run(layer_norm()?.accumulate(&["dweight", "dbias"])?, 8.0)?;
        assert_eq!(added[0], fresh[0]);
        for (added, fresh) in added[1..].iter().zip(&fresh[1..]) {
            assert!(added.iter().zip(fresh).all(|(added, fresh)| *added == fresh + 8.0), "{added:?} {fresh:?}");
        }
        Ok(())
    }

    #[test]
    fn what_is_added_lies_in_the_place_of_nothing_else() -> Result<()> {
        let backward = SoftmaxDescriptor::new(of(&[2, 8]), 1)?.backward()?;
        let partner =
            |slots: &[crate::Slot]| slots.iter().find(|slot| slot.name == "dx").and_then(|slot| slot.in_place);
        assert!(partner(backward.slots()).is_some());
        let added = backward.accumulate(&["dx"])?;
        assert_eq!(partner(added.slots()), None);
        let device = Device::cpu();
        let plan = AnyDescriptor::new(added).plan(&device, &PlanOptions::default())?;
        let (y, shared) = (device.upload(&[0.125f32; 16])?, device.upload(&[1f32; 16])?);
        let scratch = device.alloc(plan.workspace().bytes)?;
        let mut operands = [(&y).into(), (&shared).into(), MemMut::from(&shared).into()];
        let names: Vec<_> = plan.slots().iter().map(|slot| slot.name).collect();
        if names == ["dy", "y", "dx"] {
            operands.swap(0, 1);
        }
        let refused = plan.run(&mut device.queue(), &mut operands, Workspace::new(&scratch));
        assert!(matches!(refused, Err(Error::Overlap { .. })), "{names:?} {refused:?}");
        let mut operands = [Mem::from(&y).into(), Mem::from(&y).into(), MemMut::from(&shared).into()];
        plan.run(&mut device.queue(), &mut operands, Workspace::new(&scratch))
    }

    #[test]
    fn a_beta_of_one_says_it_where_there_is_a_beta() -> Result<()> {
        let conv = ConvDescriptor::new(of(&[2, 3, 8]), of(&[4, 3, 3]), ConvWindow::new())?;
        assert_eq!(conv.backward_data()?.accumulate(&["dx"])?, conv.backward_data()?.beta(1.0)?);
        assert_eq!(conv.backward_weight()?.accumulate(&["dweight"])?, conv.backward_weight()?.beta(1.0)?);
        let bias = ConvBackwardBiasDescriptor::new(of(&[2, 4, 6]))?;
        assert_eq!(bias.clone().accumulate(&["dbias"])?, bias.clone().beta(1.0)?);
        assert_eq!(bias.clone().beta(1.0)?.accumulate(&["dbias"])?, bias.beta(1.0)?);
        let gemm = || GemmBackwardDescriptor::new(of(&[4, 5]), of(&[5, 6]), &["a", "b"]);
        assert_eq!(gemm()?.accumulate(&["db"])?, gemm()?.db(DType::F32, 1.0)?);
        let [q, k] = [of(&[1, 2, 3, 8]), of(&[1, 2, 5, 8])];
        let attention = || AttentionBackwardDescriptor::new(q, k, k, &["q", "k", "v"]);
        assert_eq!(attention()?.accumulate(&["dk", "dv"])?, attention()?.dk(1.0)?.dv(1.0)?);
        assert!(conv.backward_data()?.beta(0.5)?.accumulate(&["dx"]).is_err());
        assert!(gemm()?.accumulate(&["dbias"]).is_err());
        Ok(())
    }

    #[test]
    fn equal_requests_are_equal_and_read_back() -> Result<()> {
        let both = layer_norm()?.accumulate(&["dweight", "dbias"])?;
        assert_eq!(both, layer_norm()?.accumulate(&["dbias"])?.accumulate(&["dweight", "dbias"])?);
        let any = AnyDescriptor::new(both.clone());
        assert_eq!(AnyDescriptor::parse_line(&any.line())?, any);
        assert_eq!(AnyDescriptor::new(layer_norm()?).accumulate(&["dbias", "dweight"])?, any);
        let access: Vec<Access> = both.slots().iter().map(|slot| slot.access).collect();
        assert_eq!(access.iter().filter(|access| **access == Access::InOut).count(), 2);
        assert!(layer_norm()?.accumulate(&["dx", "mean"]).is_err());
        Ok(())
    }

    #[test]
    fn the_kernel_of_the_op_is_asked_for_by_its_name() -> Result<()> {
        let device = Device::cpu();
        let options = PlanOptions::default().kernel("layer_norm_backward_reference");
        let plan = Plan::new(&device, layer_norm()?.accumulate(&["dx"])?, &options)?;
        assert_eq!(plan.info().kernel, "layer_norm_backward_reference");
        let bytes = plan.workspace().bytes;
        assert!(bytes >= 4 * 24);
        let limited =
            |limit| Plan::new(&device, layer_norm()?.accumulate(&["dx"])?, &options.clone().workspace_limit(limit));
        assert!(limited(bytes).is_ok() && limited(bytes - 1).is_err());
        Ok(())
    }
}
