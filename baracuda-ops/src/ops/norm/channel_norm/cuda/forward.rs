//! Forward at the C ABI, and which function chooses for which form.

use baracuda_ops_sys as sys;

use super::super::forward::{BIAS, MEAN, NUM_BATCHES, RESIDUAL, RSTD, RUNNING_MEAN, RUNNING_VAR, WEIGHT, X, Y};
use super::{
    ChannelGeometry, ChannelShape, Form, ForwardFields, Located, Pass, Problem, Take, Valid, c_strides, channels_last,
    choices, contiguous,
};
use crate::backend::cuda::c_activation;
use crate::dtype::DType;
use crate::error::Reason;

choices! { ForwardFields:
    bops_channel_norm_stripe(bops_channel_norm_stripe_choice):
        bops_channel_norm_stripe_prepare, bops_channel_norm_stripe_launch;
    bops_channel_norm_segment(bops_channel_norm_segment_choice):
        bops_channel_norm_segment_prepare, bops_channel_norm_segment_launch;
    bops_channel_norm_relay(bops_channel_norm_relay_choice):
        bops_channel_norm_relay_prepare, bops_channel_norm_relay_launch;
    bops_channel_norm_single(bops_channel_norm_single_choice):
        bops_channel_norm_single_prepare, bops_channel_norm_single_launch;
    bops_channel_norm_held(bops_channel_norm_held_choice):
        bops_channel_norm_held_prepare, bops_channel_norm_held_launch;
    bops_channel_norm_split(bops_channel_norm_split_choice):
        bops_channel_norm_split_prepare, bops_channel_norm_split_launch;
    bops_channels_last_norm_rows(bops_channels_last_norm_rows_choice):
        bops_channels_last_norm_rows_prepare, bops_channels_last_norm_rows_launch;
    bops_channels_last_norm_cluster(bops_channels_last_norm_cluster_choice):
        bops_channels_last_norm_cluster_prepare, bops_channels_last_norm_cluster_launch;
    bops_channels_last_norm_slabs(bops_channels_last_norm_slabs_choice):
        bops_channels_last_norm_slabs_prepare, bops_channels_last_norm_slabs_launch;
    bops_channels_last_norm_resident(bops_channels_last_norm_resident_choice):
        bops_channels_last_norm_resident_prepare, bops_channels_last_norm_resident_launch;
    bops_channels_last_norm_cooperative(bops_channels_last_norm_cooperative_choice):
        bops_channels_last_norm_cooperative_prepare, bops_channels_last_norm_cooperative_launch;
    bops_channels_last_norm_split(bops_channels_last_norm_split_choice):
        bops_channels_last_norm_split_prepare, bops_channels_last_norm_split_launch;
}

impl Pass for ForwardFields {
    type Params = sys::bops_channel_norm_params;
    type Operands = sys::bops_channel_norm_operands;
    const DENSE: &'static [usize] = &[WEIGHT, BIAS, MEAN, RSTD, RUNNING_MEAN, RUNNING_VAR];

    fn x(&self) -> DType {
        self.x.dtype()
    }

    fn parameters(&self) -> Option<DType> {
        self.weight.or(self.bias)
    }

    fn has_residual(&self) -> bool {
        self.residual
    }

    fn kinds(&self) -> [u32; 3] {
        [c_activation(self.activation), u32::from(self.inference), u32::from(self.cumulative)]
    }

    fn geometry(norm: &Valid<Self>) -> Result<ChannelGeometry, Reason> {
        norm.geometry()
    }

    fn problem(norm: &Valid<Self>, of_both: Problem) -> Problem {
        let fields = &norm.fields;
        Problem {
            inference: fields.inference,
            has_running: fields.momentum.is_some() || fields.cumulative,
            cumulative: fields.cumulative,
            activation: fields.activation,
            has_extra: fields.residual,
            ..of_both
        }
    }

    fn params(norm: &Valid<Self>, geometry: &ChannelGeometry) -> Self::Params {
        let (fields, shape) = (&norm.fields, geometry.shape);
        let strides = |index| c_strides(geometry, index);
        sys::bops_channel_norm_params {
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
        }
    }

    fn operands(located: &Located<'_>) -> Self::Operands {
        sys::bops_channel_norm_operands {
            x: located.pointer(X),
            residual: located.pointer(RESIDUAL),
            weight: located.pointer(WEIGHT),
            bias: located.pointer(BIAS),
            running_mean: located.pointer(RUNNING_MEAN),
            running_var: located.pointer(RUNNING_VAR),
            num_batches: located.pointer(NUM_BATCHES),
            y: located.pointer(Y),
            mean: located.pointer(MEAN),
            rstd: located.pointer(RSTD),
        }
    }

    fn has_work(&self, shape: &ChannelShape) -> bool {
        shape.has_elements() || self.stats && shape.group_count() > 0
    }

    fn choose<T: Take<Self>>(form: Form, p: &Problem, with: T) -> Result<T::Out, Reason> {
        Ok(match form {
            Form::Stripe => with.take(contiguous::stripe::forward(p)?),
            Form::Segment => with.take(contiguous::segment::forward(p)?),
            Form::Relay => with.take(contiguous::relay::forward(p)?),
            Form::Single => with.take(contiguous::single::forward(p)?),
            Form::Held => with.take(contiguous::held::forward(p)?),
            Form::Split => with.take(contiguous::split::forward(p)?),
            Form::ChannelsLastRows => with.take(channels_last::rows::forward(p)?),
            Form::ChannelsLastCluster => with.take(channels_last::cluster::forward(p)?),
            Form::ChannelsLastSlabs => with.take(channels_last::slabs::forward(p)?),
            Form::ChannelsLastResident => with.take(channels_last::resident::forward(p)?),
            Form::ChannelsLastCooperative => with.take(channels_last::passes::cooperative_forward(p)?),
            Form::ChannelsLastSplit => with.take(channels_last::passes::split_forward(p)?),
            Form::SingleMasked => return Err("it computes gradients".into()),
        })
    }
}
