//! Backward at the C ABI, and which function chooses for which form.

use baracuda_ops_sys as sys;

use super::super::backward;
use super::super::backward::{
    BIAS, DBIAS, DRESIDUAL, DWEIGHT, DX, DY, MEAN, RESIDUAL, RSTD, RUNNING_MEAN, RUNNING_VAR, WEIGHT, X, Y,
};
use super::channels_last::{cluster, passes, rows, slabs};
use super::contiguous::{held, relay, segment, single, split, stripe};
use super::{BackwardFields, ChannelProblem, Form, Located, Pass, Task, Valid, c_strides, specialisation};
use crate::backend::cuda::{Props, c_activation};
use crate::error::Reason;
use crate::kernel::Accepted;
use crate::ops::calls::calls;

impl Pass for BackwardFields {
    type Params = sys::bops_channel_norm_backward_params;
    type Operands = sys::bops_channel_norm_backward_operands;

    fn task(norm: &Valid<Self>, props: &Props) -> Result<Task<Self>, Reason> {
        norm.slots.check_dense(&[WEIGHT, BIAS, MEAN, RSTD, RUNNING_MEAN, RUNNING_VAR, DWEIGHT, DBIAS])?;
        let geometry = norm.geometry()?;
        let (fields, shape) = (&norm.fields, geometry.shape);
        let problem = ChannelProblem {
            inference: fields.inference,
            activation: fields.activation,
            has_extra: norm.slots.all_at(&[RESIDUAL, Y]).next().is_some() || fields.dresidual,
            has_dx: fields.dx,
            has_element_gradients: fields.dx || fields.dresidual,
            has_parameter_gradients: fields.dweight || fields.dbias,
            ..ChannelProblem::of(fields.x.dtype(), &geometry, &norm.slots, props)
        };
        let strides = |index| c_strides(&geometry, index);
        let params = sys::bops_channel_norm_backward_params {
            batch: shape.batch,
            channels: shape.channels,
            spatial: shape.spatial,
            groups: shape.groups,
            dy: strides(DY),
            x: strides(X),
            residual: strides(RESIDUAL),
            y: strides(Y),
            dx: strides(DX),
            dresidual: strides(DRESIDUAL),
            eps: fields.eps.map_or(0.0, |eps| eps.get()),
            activation: c_activation(fields.activation),
            uses_running: u32::from(fields.inference),
        };
        let of = specialisation(fields.x.dtype(), fields.weight.or(fields.bias), fields.dresidual)?;
        let has_work = shape.has_elements() || (fields.dweight || fields.dbias) && shape.channels > 0;
        Ok(Task { problem, of, params, has_work })
    }

    fn operands(located: &Located<'_>) -> Self::Operands {
        backward::memory!(pointers sys::bops_channel_norm_backward_operands, located)
    }

    fn choose(form: Form, task: &Task<Self>) -> Accepted<'static> {
        let p = &task.problem;
        Ok(match form {
            Form::Stripe => task.candidate(calls!(bops_channel_norm_backward_stripe), stripe::backward(p)?),
            Form::Segment => task.candidate(calls!(bops_channel_norm_backward_segment), segment::backward(p)?),
            Form::Relay => task.candidate(calls!(bops_channel_norm_backward_relay), relay::backward(p)?),
            Form::Single => task.candidate(calls!(bops_channel_norm_backward_single), single::backward(p)?),
            Form::SingleMasked => {
                task.candidate(calls!(bops_channel_norm_backward_single_masked), single::masked_backward(p)?)
            }
            Form::Held => task.candidate(calls!(bops_channel_norm_backward_held), held::backward(p)?),
            Form::Split => task.candidate(calls!(bops_channel_norm_backward_split), split::backward(p)?),
            Form::ChannelsLastRows => task.candidate(calls!(bops_channels_last_norm_backward_rows), rows::backward(p)?),
            Form::ChannelsLastCluster => {
                task.candidate(calls!(bops_channels_last_norm_backward_cluster), cluster::backward(p)?)
            }
            Form::ChannelsLastSlabs => {
                task.candidate(calls!(bops_channels_last_norm_backward_slabs), slabs::backward(p)?)
            }
            Form::ChannelsLastCooperative => {
                task.candidate(calls!(bops_channels_last_norm_backward_cooperative), passes::cooperative_backward(p)?)
            }
            Form::ChannelsLastSplit => {
                task.candidate(calls!(bops_channels_last_norm_backward_split), passes::split_backward(p)?)
            }
            Form::ChannelsLastResident => return Err("it computes forward".into()),
        })
    }
}
