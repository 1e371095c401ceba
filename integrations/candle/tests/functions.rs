//! Values and gradients of every function beside candle's composition of single ops and finite differences, in every type and layout, on every device.

mod common;

use baracuda_candle::{Activation, Conv1dConfig, Conv2dConfig, Module, ops, rotary_emb};
use candle_core::{D, DType, Device, IndexOp, Result, Tensor};
use common::{compare, devices, differentiate, random};

/// A tensor on the device of those that a function was given.
fn beside(tensor: &Tensor, given: &[Tensor]) -> Result<Tensor> {
    tensor.to_device(given[0].device())
}

/// LayerNorm, or with `remove_mean` off RMSNorm, of single ops.
fn composed_norm(x: &Tensor, weight: Option<&Tensor>, bias: Option<&Tensor>, remove_mean: bool) -> Result<Tensor> {
    let columns = x.dim(D::Minus1)? as f64;
    let x = match remove_mean {
        true => x.broadcast_sub(&(x.sum_keepdim(D::Minus1)? / columns)?)?,
        false => x.clone(),
    };
    let square = (x.sqr()?.sum_keepdim(D::Minus1)? / columns)?;
    let mut y = x.broadcast_div(&(square + 1e-5)?.sqrt()?)?;
    if let Some(weight) = weight {
        y = y.broadcast_mul(weight)?;
    }
    match bias {
        Some(bias) => y.broadcast_add(bias),
        None => Ok(y),
    }
}

#[test]
fn layer_norm() -> Result<()> {
    let inputs = [random((2, 3, 8), 1)?, random(8, 2)?, random(8, 3)?];
    compare("layer_norm", &inputs, &|t| ops::layer_norm_with(&t[0], 1, Some(&t[1]), Some(&t[2]), 1e-5), &|t| {
        composed_norm(&t[0], Some(&t[1]), Some(&t[2]), true)
    })?;
    compare(
        "layer_norm without parameters",
        &inputs[..1],
        &|t| ops::layer_norm_with(&t[0], 1, None, None, 1e-5),
        &|t| composed_norm(&t[0], None, None, true),
    )?;
    compare(
        "layer_norm of two extents",
        &[random((2, 3, 4), 1)?, random((3, 4), 2)?],
        &|t| ops::layer_norm_with(&t[0], 2, Some(&t[1]), None, 1e-5),
        &|t| composed_norm(&t[0].flatten_from(1)?, Some(&t[1].flatten_all()?), None, true)?.reshape((2, 3, 4)),
    )
}

#[test]
fn rms_norm() -> Result<()> {
    compare(
        "rms_norm",
        &[random((2, 3, 8), 4)?, random(8, 5)?],
        &|t| ops::rms_norm_with(&t[0], 1, Some(&t[1]), 1e-5),
        &|t| composed_norm(&t[0], Some(&t[1]), None, false),
    )
}

#[test]
fn group_norm() -> Result<()> {
    let composed = |t: &[Tensor]| {
        let (n, c, h, w) = t[0].dims4()?;
        let y = composed_norm(&t[0].reshape((n, 2, c / 2 * h * w))?, None, None, true)?.reshape((n, c, h, w))?;
        y.broadcast_mul(&t[1].reshape((c, 1, 1))?)?.broadcast_add(&t[2].reshape((c, 1, 1))?)
    };
    compare(
        "group_norm",
        &[random((2, 4, 3, 5), 6)?, random(4, 7)?, random(4, 8)?],
        &|t| ops::group_norm(&t[0], 2, Some(&t[1]), Some(&t[2]), 1e-5),
        &composed,
    )
}

#[test]
fn softmax() -> Result<()> {
    let x = [random((2, 3, 7), 9)?.affine(3.0, 0.0)?];
    for axis in 0..3 {
        compare("softmax", &x, &|t| ops::softmax(&t[0], axis), &|t| candle_nn::ops::softmax(&t[0], axis))?;
        compare("log_softmax", &x, &|t| ops::log_softmax(&t[0], axis), &|t| candle_nn::ops::log_softmax(&t[0], axis))?;
    }
    compare("softmax_last_dim", &x, &|t| ops::softmax_last_dim(&t[0]), &|t| candle_nn::ops::softmax(&t[0], D::Minus1))
}

#[test]
fn masked_softmax() -> Result<()> {
    let inputs = [random((2, 3, 4, 5), 10)?, random((3, 1, 5), 11)?];
    let composed = |t: &[Tensor]| candle_nn::ops::softmax(&(&t[0] * 0.5)?.broadcast_add(&t[1])?, D::Minus1);
    compare("masked_softmax", &inputs, &|t| ops::masked_softmax(&t[0], 0.5, false, Some(&t[1])), &composed)?;
    // Of four queries and five keys the last query sees all.
    let mask: Vec<f64> = (0..20).map(|at| if at % 5 <= at / 5 + 1 { 0.0 } else { f64::NEG_INFINITY }).collect();
    let mask = Tensor::from_vec(mask, (4, 5), &Device::Cpu)?;
    let composed = |t: &[Tensor]| candle_nn::ops::softmax(&t[0].broadcast_add(&mask)?, D::Minus1);
    compare("masked_softmax, causal", &inputs[..1], &|t| ops::masked_softmax(&t[0], 1.0, true, None), &composed)
}

#[test]
fn activations() -> Result<()> {
    use Activation::{Gelu, GeluPytorchTanh, LeakyRelu, NewGelu, Relu, Sigmoid, Silu, Swish};
    let x = [random((3, 4, 5), 12)?.affine(3.0, 0.1)?];
    for act in [Gelu, NewGelu, GeluPytorchTanh, Relu, Sigmoid, Silu, Swish, LeakyRelu(0.25)] {
        compare(&format!("{act:?}"), &x, &|t| ops::activation(&t[0], act), &|t| composed_act(&t[0], act))?;
    }
    compare("gelu_erf", &x, &|t| ops::gelu_erf(&t[0]), &|t| composed_act(&t[0], Gelu))?;
    compare("gelu", &x, &|t| ops::gelu(&t[0]), &|t| composed_gelu(&t[0]))?;
    compare("silu", &x, &|t| ops::silu(&t[0]), &|t| t[0].silu())?;
    compare("relu", &x, &|t| ops::relu(&t[0]), &|t| t[0].relu())?;
    compare("sigmoid", &x, &|t| ops::sigmoid(&t[0]), &|t| composed_act(&t[0], Sigmoid))?;
    compare("tanh", &x, &|t| ops::tanh(&t[0]), &|t| t[0].tanh())?;
    compare("swiglu", &[random((3, 4), 12)?], &|t| ops::activation(&t[0], Activation::Swiglu), &|t| {
        candle_nn::ops::swiglu(&t[0])
    })
}

#[test]
fn linear() -> Result<()> {
    let inputs = [random((2, 3, 6), 13)?, random((4, 6), 14)?, random(4, 15)?];
    let product = |t: &[Tensor]| t[0].broadcast_matmul(&t[1].t()?)?.broadcast_add(&t[2]);
    compare("linear", &inputs, &|t| ops::linear(&t[0], &t[1], Some(&t[2]), None), &product)?;
    for act in [Activation::Relu, Activation::NewGelu, Activation::Silu, Activation::LeakyRelu(0.5)] {
        compare(
            &format!("linear with {act:?}"),
            &inputs,
            &|t| ops::linear(&t[0], &t[1], Some(&t[2]), Some(act)),
            &|t| composed_act(&product(t)?, act),
        )?;
    }
    compare("linear without a bias", &inputs[..2], &|t| ops::linear(&t[0], &t[1], None, None), &|t| {
        t[0].broadcast_matmul(&t[1].t()?)
    })?;
    compare(
        "linear of one row",
        &[random(6, 13)?, inputs[1].clone(), inputs[2].clone()],
        &|t| ops::linear(&t[0], &t[1], Some(&t[2]), None),
        &|t| product(&[t[0].unsqueeze(0)?, t[1].clone(), t[2].clone()])?.squeeze(0),
    )
}

/// A convolution as a sum of products, since the gradients of candle's own are not those of finite differences (see `tests/graph.rs`).
fn composed_conv1d(x: &Tensor, weight: &Tensor, config: &Conv1dConfig) -> Result<Tensor> {
    let Conv1dConfig { padding, stride, dilation, groups, .. } = *config;
    let x = x.pad_with_zeros(2, padding, padding)?;
    let (filters, channels, kernel) = weight.dims3()?;
    let filters = filters / groups;
    let outputs = (x.dim(2)? - dilation * (kernel - 1) - 1) / stride + 1;
    let mut y = Vec::new();
    for group in 0..groups {
        let (x, weight) = (x.narrow(1, group * channels, channels)?, weight.narrow(0, group * filters, filters)?);
        let mut sum: Option<Tensor> = None;
        for place in 0..kernel {
            let seen: Vec<u32> = (0..outputs).map(|at| (at * stride + place * dilation) as u32).collect();
            let seen = x.contiguous()?.index_select(&Tensor::new(seen, &Device::Cpu)?, 2)?;
            let product = weight.narrow(2, place, 1)?.squeeze(2)?.broadcast_matmul(&seen)?;
            sum = Some(match sum {
                Some(sum) => (sum + product)?,
                None => product,
            });
        }
        y.extend(sum);
    }
    Tensor::cat(&y, 1)
}

/// GELU by the hyperbolic tangent: the gradient of candle's own has a constant of seven digits.
fn composed_gelu(x: &Tensor) -> Result<Tensor> {
    let argument = ((x + (x.powf(3.0)? * 0.044715)?)? * (2.0 / std::f64::consts::PI).sqrt())?;
    x * ((argument.tanh()? + 1.0)? * 0.5)?
}

/// An activation of single ops.
fn composed_act(x: &Tensor, act: Activation) -> Result<Tensor> {
    match act {
        Activation::NewGelu | Activation::GeluPytorchTanh => composed_gelu(x),
        Activation::Gelu => x * (((x * std::f64::consts::FRAC_1_SQRT_2)?.erf()? + 1.0)? * 0.5)?,
        Activation::Sigmoid => (x.neg()?.exp()? + 1.0)?.recip(),
        Activation::Silu | Activation::Swish => x * (x.neg()?.exp()? + 1.0)?.recip()?,
        other => other.forward(x),
    }
}

#[test]
fn conv1d() -> Result<()> {
    let inputs = [random((2, 4, 9), 16)?, random((6, 2, 3), 17)?, random(6, 18)?];
    let config = Conv1dConfig { padding: 2, stride: 2, dilation: 1, groups: 2, ..Default::default() };
    let composed = |t: &[Tensor]| composed_conv1d(&t[0], &t[1], &config)?.broadcast_add(&t[2].reshape((6, 1))?);
    compare("conv1d", &inputs, &|t| ops::conv1d(&t[0], &t[1], Some(&t[2]), &config, None), &composed)?;
    let config = Conv1dConfig { dilation: 2, ..Default::default() };
    let inputs = [random((2, 3, 9), 16)?, random((2, 3, 3), 17)?];
    let act = Activation::NewGelu;
    let composed = |t: &[Tensor]| composed_gelu(&composed_conv1d(&t[0], &t[1], &config)?);
    compare("conv1d with GELU", &inputs, &|t| ops::conv1d(&t[0], &t[1], None, &config, Some(act)), &composed)
}

#[test]
fn conv2d() -> Result<()> {
    let inputs = [random((2, 4, 6, 5), 19)?, random((6, 4, 3, 2), 20)?, random(6, 21)?];
    let config = Conv2dConfig { padding: 1, ..Default::default() };
    let composed = |t: &[Tensor]| t[0].conv2d(&t[1], 1, 1, 1, 1)?.broadcast_add(&t[2].reshape((6, 1, 1))?);
    compare("conv2d", &inputs, &|t| ops::conv2d(&t[0], &t[1], Some(&t[2]), &config, None), &composed)?;
    for act in [Activation::Relu, Activation::Silu] {
        compare(
            &format!("conv2d with {act:?}"),
            &inputs,
            &|t| ops::conv2d(&t[0], &t[1], Some(&t[2]), &config, Some(act)),
            &|t| composed_act(&composed(t)?, act),
        )?;
    }
    // Channels that lie next to each other in memory.
    let channels_last = |x: &Tensor| x.permute((0, 2, 3, 1))?.contiguous()?.permute((0, 3, 1, 2));
    compare(
        "conv2d, channels last",
        &inputs,
        &|t| ops::conv2d(&channels_last(&t[0])?, &t[1], Some(&t[2]), &config, Some(Activation::Silu)),
        &|t| composed(t)?.silu(),
    )
}

#[test]
fn gated_units() -> Result<()> {
    let (gate, up) = (random((2, 3, 4), 22)?, random((2, 3, 4), 23)?);
    let composed = |t: &[Tensor]| t[0].silu()? * &t[1];
    compare("gated_silu", &[gate, up], &|t| ops::gated_silu(&t[0], &t[1]), &composed)?;
    compare("swiglu", &[random((2, 3, 8), 24)?], &|t| ops::swiglu(&t[0]), &|t| candle_nn::ops::swiglu(&t[0]))
}

/// Pairs in halves turned by single ops, of `[batch, heads, positions, extent]`.
fn composed_rope(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    let half = x.dim(D::Minus1)? / 2;
    let [cos, sin] = [cos, sin].map(|angle| angle.narrow(0, 0, x.dim(2)?)?.to_dtype(x.dtype()));
    let (cos, sin) = (cos?, sin?);
    let (a, b) = (x.narrow(D::Minus1, 0, half)?, x.narrow(D::Minus1, half, half)?);
    let first = (a.broadcast_mul(&cos)? - b.broadcast_mul(&sin)?)?;
    Tensor::cat(&[first, (a.broadcast_mul(&sin)? + b.broadcast_mul(&cos)?)?], D::Minus1)
}

#[test]
fn rope() -> Result<()> {
    let x = [random((2, 3, 4, 6), 25)?];
    // More positions than x has, of numbers that every type holds.
    let angles =
        [random((5, 3), 26)?, random((5, 3), 27)?].map(|angle| angle.to_dtype(DType::BF16)?.to_dtype(DType::F64));
    let [cos, sin] = angles;
    let (cos, sin) = (cos?, sin?);
    let of = |angle: &Tensor, x: &Tensor| angle.to_dtype(x.dtype())?.to_device(x.device());
    let composed = |t: &[Tensor]| composed_rope(&t[0], &cos, &sin);
    compare("rope", &x, &|t| rotary_emb::rope(&t[0], &of(&cos, &t[0])?, &of(&sin, &t[0])?), &composed)?;
    // Positions before heads.
    let composed_thd = |t: &[Tensor]| composed_rope(&t[0].transpose(1, 2)?, &cos, &sin)?.transpose(1, 2);
    compare(
        "rope_thd",
        &[random((2, 4, 3, 6), 25)?],
        &|t| rotary_emb::rope_thd(&t[0], &of(&cos, &t[0])?, &of(&sin, &t[0])?),
        &composed_thd,
    )?;
    // Neighbours are halves of another order.
    let composed_i = |t: &[Tensor]| {
        let halves = t[0].reshape((2, 3, 4, 3, 2))?.transpose(3, 4)?.reshape((2, 3, 4, 6))?;
        composed_rope(&halves, &cos, &sin)?.reshape((2, 3, 4, 2, 3))?.transpose(3, 4)?.reshape((2, 3, 4, 6))
    };
    compare("rope_i", &x, &|t| rotary_emb::rope_i(&t[0], &of(&cos, &t[0])?, &of(&sin, &t[0])?), &composed_i)?;
    // Angles of each sample.
    let both = |angle: &Tensor| Tensor::stack(&[angle, &angle.neg()?], 0);
    let composed_batch = |t: &[Tensor]| {
        let second = composed_rope(&t[0].narrow(0, 1, 1)?, &cos.neg()?, &sin.neg()?)?;
        Tensor::cat(&[composed_rope(&t[0].narrow(0, 0, 1)?, &cos, &sin)?, second], 0)
    };
    compare(
        "rope by sample",
        &x,
        &|t| rotary_emb::rope(&t[0], &of(&both(&cos)?, &t[0])?, &of(&both(&sin)?, &t[0])?),
        &composed_batch,
    )
}

#[test]
fn cross_entropy() -> Result<()> {
    use ops::LossReduction::{Mean, None as Each, Sum};
    let x = [random((3, 5), 28)?.affine(2.0, 0.0)?];
    let targets = Tensor::new(&[4u32, 0, 2], &Device::Cpu)?;
    let each = |t: &[Tensor]| -> Result<Tensor> {
        let log = candle_nn::ops::log_softmax(&t[0], 1)?;
        log.gather(&targets.unsqueeze(1)?, 1)?.squeeze(1)?.neg()
    };
    compare("cross_entropy", &x, &|t| ops::cross_entropy(&t[0], &beside(&targets, t)?, 1, Mean, None), &|t| {
        each(t)?.mean_all()
    })?;
    compare("cross_entropy, sum", &x, &|t| ops::cross_entropy(&t[0], &beside(&targets, t)?, 1, Sum, None), &|t| {
        each(t)?.sum_all()
    })?;
    compare("cross_entropy, each", &x, &|t| ops::cross_entropy(&t[0], &beside(&targets, t)?, 1, Each, None), &each)?;
    compare("loss", &x, &|t| baracuda_candle::loss::cross_entropy(&t[0], &beside(&targets, t)?), &|t| {
        candle_nn::loss::cross_entropy(&t[0], &targets)
    })?;
    // The second line does not count.
    let kept = |t: &[Tensor]| each(t)?.gather(&Tensor::new(&[0u32, 2], &Device::Cpu)?, 0)?.mean_all();
    compare(
        "cross_entropy, ignored",
        &x,
        &|t| ops::cross_entropy(&t[0], &beside(&targets, t)?, 1, Mean, Some(0)),
        &kept,
    )?;
    // Classes along the first axis, targets of every type that they may have, one of them a view.
    for dtype in [DType::I64, DType::I32, DType::U8] {
        let targets = Tensor::stack(&[&targets, &targets], 1)?.to_dtype(dtype)?.i((.., 0))?;
        let swapped = |t: &[Tensor]| ops::cross_entropy(&t[0].t()?, &beside(&targets, t)?, 0, Mean, None);
        differentiate("cross_entropy along the first axis", &x, &swapped)?;
    }
    for device in devices()? {
        let (x, targets) = (x[0].to_dtype(DType::BF16)?.to_device(device)?, targets.to_device(device)?);
        assert_eq!(ops::cross_entropy(&x, &targets, 1, Mean, None)?.dtype(), DType::F32);
    }
    Ok(())
}

#[test]
fn embedding() -> Result<()> {
    let table = [random((5, 3), 29)?];
    for dtype in [DType::U32, DType::I64, DType::U8] {
        let indices = Tensor::new(&[[4u32, 0, 4], [1, 1, 2]], &Device::Cpu)?.to_dtype(dtype)?;
        let composed = |t: &[Tensor]| t[0].index_select(&indices.flatten_all()?, 0)?.reshape((2, 3, 3));
        compare("embedding", &table, &|t| ops::embedding(&t[0], &beside(&indices, t)?), &composed)?;
        // Indices that lie transposed.
        let composed = |t: &[Tensor]| t[0].index_select(&indices.t()?.flatten_all()?, 0)?.reshape((3, 2, 3));
        compare("embedding", &table, &|t| ops::embedding(&t[0], &beside(&indices, t)?.t()?), &composed)?;
    }
    Ok(())
}

/// Attention of single ops, of the extents that [`ops::attention`] takes, as many keys as queries.
fn composed_attention(t: &[Tensor], scale: f64, is_causal: bool) -> Result<Tensor> {
    let heads = t[0].dim(2)?;
    // Each head of keys and values as often as queries share it.
    let spread = |x: &Tensor| {
        let (batch, length, own, extent) = x.dims4()?;
        let x = x.transpose(1, 2)?.unsqueeze(2)?.repeat((1, 1, heads / own, 1, 1))?;
        x.reshape((batch, heads, length, extent))
    };
    let (q, k, v) = (spread(&t[0])?, spread(&t[1])?, spread(&t[2])?);
    let mut scores = (q.matmul(&k.t()?)? * scale)?;
    if is_causal {
        let (queries, keys) = (q.dim(2)?, k.dim(2)?);
        let hidden = |at: usize| if at % keys + queries > at / keys + keys { f64::NEG_INFINITY } else { 0.0 };
        let mask: Vec<f64> = (0..queries * keys).map(hidden).collect();
        scores = scores.broadcast_add(&Tensor::from_vec(mask, (queries, keys), &Device::Cpu)?)?;
    }
    candle_nn::ops::softmax(&scores, D::Minus1)?.matmul(&v)?.transpose(1, 2)
}

#[test]
fn attention() -> Result<()> {
    let inputs = [random((2, 4, 4, 8), 30)?, random((2, 5, 2, 8), 31)?, random((2, 5, 2, 6), 32)?];
    for is_causal in [false, true] {
        compare("attention", &inputs, &|t| ops::attention(&t[0], &t[1], &t[2], 0.5, is_causal), &|t| {
            composed_attention(t, 0.5, is_causal)
        })?;
    }
    // Queries, keys and values side by side in one tensor.
    let parts = |t: &[Tensor]| [0, 1, 2].map(|part| t[0].i((.., .., part)));
    let side_by_side = |t: &[Tensor]| {
        let [q, k, v] = parts(t);
        ops::attention(&q?, &k?, &v?, 0.5, true)
    };
    compare("attention in one tensor", &[random((2, 4, 3, 2, 8), 33)?], &side_by_side, &|t| {
        let [q, k, v] = parts(t);
        composed_attention(&[q?, k?, v?], 0.5, true)
    })
}
