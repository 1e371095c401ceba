//! Forward at the C ABI, and which function chooses for which form.

use baracuda_ops_sys as sys;

use super::super::forward;
use super::super::forward::{BIAS, MEAN, RESIDUAL, RSTD, RUNNING_MEAN, RUNNING_VAR, WEIGHT, X, Y};
use super::channels_last::{cluster, passes, resident, rows, slabs};
use super::contiguous::{relay, segment, single, split, stripe};
use super::{ChannelProblem, Form, ForwardFields, Located, Pass, Task, Valid, c_strides, specialisation};
use crate::backend::cuda::calls::calls;
use crate::backend::cuda::{Props, c_activation};
use crate::error::Reason;
use crate::kernel::Accepted;

type Calls<C> = super::Calls<ForwardFields, C>;

const STRIPE: Calls<stripe::Choice> = calls!(bops_channel_norm_stripe_prepare, bops_channel_norm_stripe_launch);
const SEGMENT: Calls<segment::Choice> = calls!(bops_channel_norm_segment_prepare, bops_channel_norm_segment_launch);
const RELAY: Calls<relay::Choice> = calls!(bops_channel_norm_relay_prepare, bops_channel_norm_relay_launch);
const SINGLE: Calls<single::Choice> = calls!(bops_channel_norm_single_prepare, bops_channel_norm_single_launch);
const SPLIT: Calls<split::Choice> = calls!(bops_channel_norm_split_prepare, bops_channel_norm_split_launch);
const CHANNELS_LAST_ROWS: Calls<rows::Choice> =
    calls!(bops_channels_last_norm_rows_prepare, bops_channels_last_norm_rows_launch);
const CHANNELS_LAST_CLUSTER: Calls<cluster::Choice> =
    calls!(bops_channels_last_norm_cluster_prepare, bops_channels_last_norm_cluster_launch);
const CHANNELS_LAST_SLABS: Calls<slabs::Choice> =
    calls!(bops_channels_last_norm_slabs_prepare, bops_channels_last_norm_slabs_launch);
const CHANNELS_LAST_RESIDENT: Calls<resident::Choice> =
    calls!(bops_channels_last_norm_resident_prepare, bops_channels_last_norm_resident_launch);
const CHANNELS_LAST_COOPERATIVE: Calls<passes::Choice> =
    calls!(bops_channels_last_norm_cooperative_prepare, bops_channels_last_norm_cooperative_launch);
const CHANNELS_LAST_SPLIT: Calls<passes::SplitChoice> =
    calls!(bops_channels_last_norm_split_prepare, bops_channels_last_norm_split_launch);

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
            Form::Stripe => task.candidate(&STRIPE, stripe::forward(p)?),
            Form::Segment => task.candidate(&SEGMENT, segment::forward(p)?),
            Form::Relay => task.candidate(&RELAY, relay::forward(p)?),
            Form::Single => task.candidate(&SINGLE, single::forward(p)?),
            Form::Split => task.candidate(&SPLIT, split::forward(p)?),
            Form::ChannelsLastRows => task.candidate(&CHANNELS_LAST_ROWS, rows::forward(p)?),
            Form::ChannelsLastCluster => task.candidate(&CHANNELS_LAST_CLUSTER, cluster::forward(p)?),
            Form::ChannelsLastSlabs => task.candidate(&CHANNELS_LAST_SLABS, slabs::forward(p)?),
            Form::ChannelsLastResident => task.candidate(&CHANNELS_LAST_RESIDENT, resident::forward(p)?),
            Form::ChannelsLastCooperative => {
                task.candidate(&CHANNELS_LAST_COOPERATIVE, passes::cooperative_forward(p)?)
            }
            Form::ChannelsLastSplit => task.candidate(&CHANNELS_LAST_SPLIT, passes::split_forward(p)?),
            Form::SingleMasked | Form::Held => return Err("it computes gradients".into()),
        })
    }
}
