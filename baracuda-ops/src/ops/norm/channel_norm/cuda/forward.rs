//! Forward at the C ABI, and which function chooses for which form.

use baracuda_ops_sys as sys;

use super::super::forward;
use super::super::forward::{BIAS, MEAN, RESIDUAL, RSTD, RUNNING_MEAN, RUNNING_VAR, WEIGHT, X, Y};
use super::channels_last::{cluster, passes, resident, rows, slabs};
use super::contiguous::{relay, segment, single, split, stripe};
use super::{ChannelProblem, Form, ForwardFields, Located, Pass, Task, Valid, c_strides, specialisation};
use crate::backend::cuda::{Props, c_activation};
use crate::error::Reason;
use crate::kernel::Accepted;
use crate::ops::calls::calls;

impl Pass for ForwardFields {
    type Params = sys::bops_channel_norm_params;
    type Operands = sys::bops_channel_norm_operands;

    fn task(norm: &Valid<Self>, props: &Props) -> Result<Task<Self>, Reason> {
        norm.slots.check_dense(&[WEIGHT, BIAS, MEAN, RSTD, RUNNING_MEAN, RUNNING_VAR])?;
        let geometry = norm.geometry()?;
        let (fields, shape) = (&norm.fields, geometry.shape);
        let problem = ChannelProblem {
            inference: fields.inference,
            has_running: fields.momentum.is_some() || fields.cumulative,
            cumulative: fields.cumulative,
            activation: fields.activation,
            has_extra: fields.residual,
            ..ChannelProblem::of(fields.x.dtype(), &geometry, &norm.slots, props)
        };
        let strides = |index| c_strides(&geometry, index);
        let params = sys::bops_channel_norm_params {
            batch: shape.batch,
            channels: shape.channels,
            spatial: shape.spatial,
            groups: shape.groups,
            x: strides(X),
            residual: strides(RESIDUAL),
            y: strides(Y),
            eps: fields.eps.get(),
            momentum: fields.momentum.map_or(0.0, |momentum| momentum.get()),
            activation: c_activation(fields.activation),
            uses_running: u32::from(fields.inference),
            is_cumulative: u32::from(fields.cumulative),
        };
        let of = specialisation(fields.x.dtype(), fields.weight.or(fields.bias), fields.residual)?;
        let has_work = shape.has_elements() || fields.stats && shape.group_count() > 0;
        Ok(Task { problem, of, params, has_work })
    }

    fn operands(located: &Located<'_>) -> Self::Operands {
        forward::memory!(pointers sys::bops_channel_norm_operands, located)
    }

    fn choose(form: Form, task: &Task<Self>) -> Accepted<'static> {
        let p = &task.problem;
        Ok(match form {
            Form::Stripe => task.candidate(calls!(bops_channel_norm_stripe), stripe::forward(p)?),
            Form::Segment => task.candidate(calls!(bops_channel_norm_segment), segment::forward(p)?),
            Form::Relay => task.candidate(calls!(bops_channel_norm_relay), relay::forward(p)?),
            Form::Single => task.candidate(calls!(bops_channel_norm_single), single::forward(p)?),
            Form::Split => task.candidate(calls!(bops_channel_norm_split), split::forward(p)?),
            Form::ChannelsLastRows => task.candidate(calls!(bops_channels_last_norm_rows), rows::forward(p)?),
            Form::ChannelsLastCluster => task.candidate(calls!(bops_channels_last_norm_cluster), cluster::forward(p)?),
            Form::ChannelsLastSlabs => task.candidate(calls!(bops_channels_last_norm_slabs), slabs::forward(p)?),
            Form::ChannelsLastResident => {
                task.candidate(calls!(bops_channels_last_norm_resident), resident::forward(p)?)
            }
            Form::ChannelsLastCooperative => {
                task.candidate(calls!(bops_channels_last_norm_cooperative), passes::cooperative_forward(p)?)
            }
            Form::ChannelsLastSplit => task.candidate(calls!(bops_channels_last_norm_split), passes::split_forward(p)?),
            Form::SingleMasked | Form::Held => return Err("it computes gradients".into()),
        })
    }
}
