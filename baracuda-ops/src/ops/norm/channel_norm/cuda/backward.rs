//! Backward at the C ABI, and which function chooses for which form.

use baracuda_ops_sys as sys;

use super::super::backward::{
    BIAS, DBIAS, DRESIDUAL, DWEIGHT, DX, DY, MEAN, RESIDUAL, RSTD, RUNNING_MEAN, RUNNING_VAR, WEIGHT, X, Y,
};
use super::{
    BackwardFields, ChannelGeometry, ChannelShape, Form, Located, Pass, Problem, Take, Valid, c_strides, channels_last,
    choices, contiguous,
};
use crate::backend::cuda::c_activation;
use crate::dtype::DType;
use crate::error::Reason;

choices! { BackwardFields:
    bops_channel_norm_backward_stripe(bops_channel_norm_stripe_choice):
        bops_channel_norm_backward_stripe_prepare, bops_channel_norm_backward_stripe_launch;
    bops_channel_norm_backward_segment(bops_channel_norm_segment_choice):
        bops_channel_norm_backward_segment_prepare, bops_channel_norm_backward_segment_launch;
    bops_channel_norm_backward_relay(bops_channel_norm_backward_relay_choice):
        bops_channel_norm_backward_relay_prepare, bops_channel_norm_backward_relay_launch;
    bops_channel_norm_backward_single(bops_channel_norm_backward_single_choice):
        bops_channel_norm_backward_single_prepare, bops_channel_norm_backward_single_launch;
    bops_channel_norm_backward_single_masked(bops_channel_norm_backward_single_masked_choice):
        bops_channel_norm_backward_single_masked_prepare, bops_channel_norm_backward_single_masked_launch;
    bops_channel_norm_backward_held(bops_channel_norm_backward_held_choice):
        bops_channel_norm_backward_held_prepare, bops_channel_norm_backward_held_launch;
    bops_channel_norm_backward_split(bops_channel_norm_split_choice):
        bops_channel_norm_backward_split_prepare, bops_channel_norm_backward_split_launch;
    bops_channels_last_norm_backward_rows(bops_channels_last_norm_rows_choice):
        bops_channels_last_norm_backward_rows_prepare, bops_channels_last_norm_backward_rows_launch;
    bops_channels_last_norm_backward_cluster(bops_channels_last_norm_cluster_choice):
        bops_channels_last_norm_backward_cluster_prepare, bops_channels_last_norm_backward_cluster_launch;
    bops_channels_last_norm_backward_slabs(bops_channels_last_norm_slabs_choice):
        bops_channels_last_norm_backward_slabs_prepare, bops_channels_last_norm_backward_slabs_launch;
    bops_channels_last_norm_backward_cooperative(bops_channels_last_norm_cooperative_choice):
        bops_channels_last_norm_backward_cooperative_prepare, bops_channels_last_norm_backward_cooperative_launch;
    bops_channels_last_norm_backward_split(bops_channels_last_norm_split_choice):
        bops_channels_last_norm_backward_split_prepare, bops_channels_last_norm_backward_split_launch;
}

impl Pass for BackwardFields {
    type Params = sys::bops_channel_norm_backward_params;
    type Operands = sys::bops_channel_norm_backward_operands;
    const DENSE: &'static [usize] = &[WEIGHT, BIAS, MEAN, RSTD, RUNNING_MEAN, RUNNING_VAR, DWEIGHT, DBIAS];

    fn x(&self) -> DType {
        self.x.dtype()
    }

    fn parameters(&self) -> Option<DType> {
        self.weight.or(self.bias)
    }

    fn has_residual(&self) -> bool {
        self.dresidual
    }

    fn kinds(&self) -> [u32; 3] {
        [c_activation(self.activation), u32::from(self.inference), 0]
    }

    fn geometry(norm: &Valid<Self>) -> Result<ChannelGeometry, Reason> {
        norm.geometry()
    }

    fn problem(norm: &Valid<Self>, of_both: Problem) -> Problem {
        let fields = &norm.fields;
        Problem {
            inference: fields.inference,
            activation: fields.activation,
            has_extra: norm.slots.all_at(&[RESIDUAL, Y]).next().is_some() || fields.dresidual,
            has_dx: fields.dx,
            has_element_gradients: fields.dx || fields.dresidual,
            has_parameter_gradients: fields.dweight || fields.dbias,
            ..of_both
        }
    }

    fn params(norm: &Valid<Self>, geometry: &ChannelGeometry) -> Self::Params {
        let (fields, shape) = (&norm.fields, geometry.shape);
        let strides = |index| c_strides(geometry, index);
        sys::bops_channel_norm_backward_params {
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
        }
    }

    fn operands(located: &Located<'_>) -> Self::Operands {
        sys::bops_channel_norm_backward_operands {
            dy: located.pointer(DY),
            x: located.pointer(X),
            residual: located.pointer(RESIDUAL),
            y: located.pointer(Y),
            weight: located.pointer(WEIGHT),
            bias: located.pointer(BIAS),
            mean: located.pointer(MEAN),
            rstd: located.pointer(RSTD),
            running_mean: located.pointer(RUNNING_MEAN),
            running_var: located.pointer(RUNNING_VAR),
            dx: located.pointer(DX),
            dresidual: located.pointer(DRESIDUAL),
            dweight: located.pointer(DWEIGHT),
            dbias: located.pointer(DBIAS),
        }
    }

    fn has_work(&self, shape: &ChannelShape) -> bool {
        shape.has_elements() || (self.dweight || self.dbias) && shape.channels > 0
    }

    fn choose<T: Take<Self>>(form: Form, p: &Problem, with: T) -> Result<T::Out, Reason> {
        Ok(match form {
            Form::Stripe => with.take(contiguous::stripe::backward(p)?),
            Form::Segment => with.take(contiguous::segment::backward(p)?),
            Form::Relay => with.take(contiguous::relay::backward(p)?),
            Form::Single => with.take(contiguous::single::backward(p)?),
            Form::SingleMasked => with.take(contiguous::single::masked_backward(p)?),
            Form::Held => with.take(contiguous::held::backward(p)?),
            Form::Split => with.take(contiguous::split::backward(p)?),
            Form::ChannelsLastRows => with.take(channels_last::rows::backward(p)?),
            Form::ChannelsLastCluster => with.take(channels_last::cluster::backward(p)?),
            Form::ChannelsLastSlabs => with.take(channels_last::slabs::backward(p)?),
            Form::ChannelsLastCooperative => with.take(channels_last::passes::cooperative_backward(p)?),
            Form::ChannelsLastSplit => with.take(channels_last::passes::split_backward(p)?),
            Form::ChannelsLastResident => return Err("it computes forward".into()),
        })
    }
}
