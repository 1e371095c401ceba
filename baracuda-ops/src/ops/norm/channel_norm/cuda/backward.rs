//! Backward at the C ABI, and which function chooses for which form.

use baracuda_ops_sys as sys;

use super::super::backward;
use super::super::backward::{
    BIAS, DBIAS, DRESIDUAL, DWEIGHT, DX, DY, MEAN, RESIDUAL, RSTD, RUNNING_MEAN, RUNNING_VAR, WEIGHT, X, Y,
};
use super::channels_last::{cluster, passes, rows, slabs};
use super::contiguous::{held, relay, segment, single, split, stripe};
use super::{BackwardFields, ChannelProblem, Form, Located, Pass, Task, Valid, c_strides, specialisation};
use crate::backend::cuda::calls::calls;
use crate::backend::cuda::{Props, c_activation};
use crate::error::Reason;
use crate::kernel::Accepted;

type Calls<C> = super::Calls<BackwardFields, C>;

const STRIPE: Calls<stripe::Choice> =
    calls!(bops_channel_norm_backward_stripe_prepare, bops_channel_norm_backward_stripe_launch);
const SEGMENT: Calls<segment::Choice> =
    calls!(bops_channel_norm_backward_segment_prepare, bops_channel_norm_backward_segment_launch);
const RELAY: Calls<relay::BackwardChoice> =
    calls!(bops_channel_norm_backward_relay_prepare, bops_channel_norm_backward_relay_launch);
const SINGLE: Calls<single::BackwardChoice> =
    calls!(bops_channel_norm_backward_single_prepare, bops_channel_norm_backward_single_launch);
const SINGLE_MASKED: Calls<single::MaskedChoice> =
    calls!(bops_channel_norm_backward_single_masked_prepare, bops_channel_norm_backward_single_masked_launch);
const HELD: Calls<held::Choice> =
    calls!(bops_channel_norm_backward_held_prepare, bops_channel_norm_backward_held_launch);
const SPLIT: Calls<split::Choice> =
    calls!(bops_channel_norm_backward_split_prepare, bops_channel_norm_backward_split_launch);
const CHANNELS_LAST_ROWS: Calls<rows::Choice> =
    calls!(bops_channels_last_norm_backward_rows_prepare, bops_channels_last_norm_backward_rows_launch);
const CHANNELS_LAST_CLUSTER: Calls<cluster::Choice> =
    calls!(bops_channels_last_norm_backward_cluster_prepare, bops_channels_last_norm_backward_cluster_launch);
const CHANNELS_LAST_SLABS: Calls<slabs::Choice> =
    calls!(bops_channels_last_norm_backward_slabs_prepare, bops_channels_last_norm_backward_slabs_launch);
const CHANNELS_LAST_COOPERATIVE: Calls<passes::Choice> =
    calls!(bops_channels_last_norm_backward_cooperative_prepare, bops_channels_last_norm_backward_cooperative_launch);
const CHANNELS_LAST_SPLIT: Calls<passes::SplitChoice> =
    calls!(bops_channels_last_norm_backward_split_prepare, bops_channels_last_norm_backward_split_launch);

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
            Form::Stripe => task.candidate(&STRIPE, stripe::backward(p)?),
            Form::Segment => task.candidate(&SEGMENT, segment::backward(p)?),
            Form::Relay => task.candidate(&RELAY, relay::backward(p)?),
            Form::Single => task.candidate(&SINGLE, single::backward(p)?),
            Form::SingleMasked => task.candidate(&SINGLE_MASKED, single::masked_backward(p)?),
            Form::Held => task.candidate(&HELD, held::backward(p)?),
            Form::Split => task.candidate(&SPLIT, split::backward(p)?),
            Form::ChannelsLastRows => task.candidate(&CHANNELS_LAST_ROWS, rows::backward(p)?),
            Form::ChannelsLastCluster => task.candidate(&CHANNELS_LAST_CLUSTER, cluster::backward(p)?),
            Form::ChannelsLastSlabs => task.candidate(&CHANNELS_LAST_SLABS, slabs::backward(p)?),
            Form::ChannelsLastCooperative => {
                task.candidate(&CHANNELS_LAST_COOPERATIVE, passes::cooperative_backward(p)?)
            }
            Form::ChannelsLastSplit => task.candidate(&CHANNELS_LAST_SPLIT, passes::split_backward(p)?),
            Form::ChannelsLastResident => return Err("it computes forward".into()),
        })
    }
}
