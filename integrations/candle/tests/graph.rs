//! What a training step relies on, on every device: gradients that are there, twice the same, of the inputs that need one alone.

mod common;

use std::thread;

use baracuda_candle::{Conv1dConfig, LayerNorm, Linear, Module, RmsNorm, VarBuilder, VarMap, ops, rotary_emb};
use candle_core::{DType, Device, Error, Result, Tensor, Var};
use common::{devices, difference, evaluate, random};

const EPS: f64 = 1e-5;

/// Whether a parameter before the op gets a gradient.
fn reaches(device: &Device, op: impl Fn(&Tensor) -> Result<Tensor>) -> Result<bool> {
    let upstream = Var::from_tensor(&random((2, 4), 1)?.to_dtype(DType::F32)?.to_device(device)?)?;
    let hidden = (upstream.as_tensor() * 2.0)?;
    Ok(op(&hidden)?.sqr()?.sum_all()?.backward()?.get(&upstream).is_some())
}

/// If an assertion on candle's own op fails, candle has mended it: the README and this test then say too much.
#[test]
fn gradients_arrive_where_stock_ops_drop_them() -> Result<()> {
    devices()?.iter().try_for_each(gradients_arrive_on)
}

fn gradients_arrive_on(device: &Device) -> Result<()> {
    let [weight, bias] = [Tensor::ones(4, DType::F32, device)?, Tensor::zeros(4, DType::F32, device)?];
    let four = |x: &Tensor| x.reshape((1, 1, 2, 4));
    let angle = Tensor::ones((2, 2), DType::F32, device)?;
    let reaches = |op: &dyn Fn(&Tensor) -> Result<Tensor>| reaches(device, op);

    assert!(!reaches(&|x| candle_nn::ops::layer_norm(x, &weight, &bias, EPS as f32))?);
    assert!(!reaches(&|x| candle_nn::LayerNorm::new(weight.clone(), bias.clone(), EPS).forward(x))?);
    assert!(!reaches(&|x| candle_nn::ops::rms_norm(x, &weight, EPS as f32))?);
    assert!(!reaches(&|x| candle_nn::RmsNorm::new(weight.clone(), EPS).forward(x))?);
    assert!(!reaches(&candle_nn::ops::softmax_last_dim)?);
    assert!(!reaches(&|x| candle_nn::rotary_emb::rope(&four(x)?, &angle, &angle))?);

    assert!(reaches(&|x| ops::layer_norm(x, &weight, &bias, EPS as f32))?);
    assert!(reaches(&|x| LayerNorm::new(weight.clone(), bias.clone(), EPS).forward(x))?);
    assert!(reaches(&|x| ops::rms_norm(x, &weight, EPS as f32))?);
    assert!(reaches(&|x| RmsNorm::new(weight.clone(), EPS).forward(x))?);
    assert!(reaches(&ops::softmax_last_dim)?);
    assert!(reaches(&|x| rotary_emb::rope(&four(x)?, &angle, &angle))?);
    Ok(())
}

/// On the CPU. If this fails, candle has mended the gradient of the weight of `conv1d`: then `tests/functions.rs` can compare with it.
#[test]
fn stock_conv1d_has_another_gradient_than_finite_differences() -> Result<()> {
    let inputs = [random((2, 4, 9), 16)?, random((6, 4, 3), 17)?];
    let stock = |t: &[Tensor]| t[0].conv1d(&t[1], 1, 1, 1, 1);
    let config = Conv1dConfig { padding: 1, ..Default::default() };
    let ours = |t: &[Tensor]| ops::conv1d(&t[0], &t[1], None, &config, None);
    let (y, stock) = evaluate(&Device::Cpu, &stock, &inputs, DType::F64, common::Lying::Contiguous)?;
    let (expected, gradients) = evaluate(&Device::Cpu, &ours, &inputs, DType::F64, common::Lying::Contiguous)?;
    assert!(difference(&y, &expected)? < 1e-12);
    assert!(difference(&stock[1], &gradients[1])? > 0.1);
    common::differentiate_on(&Device::Cpu, "conv1d", &inputs, &ours)
}

#[test]
fn backward_twice_gives_the_same() -> Result<()> {
    for device in devices()? {
        let var = |tensor: Tensor| Var::from_tensor(&tensor.to_device(device)?);
        let (x, weight, bias) = (var(random((3, 8), 1)?)?, var(random(8, 2)?)?, var(random(8, 3)?)?);
        let loss = ops::layer_norm(&x, &weight, &bias, EPS as f32)?.sqr()?.sum_all()?;
        let (first, second) = (loss.backward()?, loss.backward()?);
        for var in [&x, &weight, &bias] {
            let bits = |gradients: &candle_core::backprop::GradStore| match gradients.get(var) {
                Some(gradient) => gradient.flatten_all()?.to_vec1::<f64>(),
                None => candle_core::bail!("a variable has no gradient"),
            };
            assert_eq!(bits(&first)?, bits(&second)?);
        }
    }
    Ok(())
}

#[test]
fn frozen_inputs_get_no_gradient() -> Result<()> {
    devices()?.iter().try_for_each(frozen_inputs_get_no_gradient_on)
}

fn frozen_inputs_get_no_gradient_on(device: &Device) -> Result<()> {
    let norm = |t: &[Tensor]| ops::layer_norm(&t[0], &t[1], &t[2], EPS as f32);
    let all = [random((3, 8), 1)?, random(8, 2)?, random(8, 3)?];
    let (_, expected) = evaluate(device, &norm, &all, DType::F64, common::Lying::Contiguous)?;
    let all = all.map(|tensor| tensor.to_device(device)).into_iter().collect::<Result<Vec<_>>>()?;
    for trained in 0..3 {
        let var = Var::from_tensor(&all[trained])?;
        let mut tensors = all.clone();
        tensors[trained] = var.as_tensor().clone();
        let y = norm(&tensors)?;
        let gradients = y.mul(&common::cotangent(&y)?)?.sum_all()?.backward()?;
        for (at, tensor) in tensors.iter().enumerate() {
            assert_eq!(gradients.get(tensor).is_some(), at == trained, "input {at} where {trained} is trained");
        }
        let Some(gradient) = gradients.get(&var) else { candle_core::bail!("no gradient") };
        assert!(difference(gradient, &expected[trained])? < 1e-14);
    }
    // Without a variable nothing is recorded.
    assert!(!norm(&all)?.track_op());
    Ok(())
}

#[test]
fn one_tensor_may_be_several_inputs() -> Result<()> {
    let x = random((4, 4), 1)?;
    let square = [x];
    let same = |t: &[Tensor]| ops::linear(&t[0], &t[0], None, None);
    common::compare("x x^T", &square, &same, &|t| t[0].matmul(&t[0].t()?))?;
    let gated = |t: &[Tensor]| ops::gated_silu(&t[0], &t[0]);
    common::compare("silu(x) x", &square, &gated, &|t| t[0].silu()? * &t[0])
}

#[test]
fn elements_that_are_read_repeatedly_add_up() -> Result<()> {
    let row = [random((1, 6), 1)?, random((4, 6), 2)?];
    let composed = |t: &[Tensor]| t[0].repeat((3, 1))?.matmul(&t[1].t()?);
    common::compare("linear", &row, &|t| ops::linear(&t[0].expand((3, 6))?, &t[1], None, None), &composed)?;
    let batch = |t: &[Tensor]| ops::linear(&t[0].unsqueeze(0)?.expand((2, 3, 6))?, &t[1], None, None);
    let composed = |t: &[Tensor]| t[0].repeat((3, 1))?.matmul(&t[1].t()?)?.unsqueeze(0)?.repeat((2, 1, 1));
    common::compare("linear of a batch", &row, &batch, &composed)?;
    let softmax = |t: &[Tensor]| ops::softmax(&t[0].expand((3, 6))?, 1);
    common::compare("softmax", &row[..1], &softmax, &|t| candle_nn::ops::softmax(&t[0].repeat((3, 1))?, 1))
}

#[test]
fn threads_share_plans() -> Result<()> {
    devices()?.iter().try_for_each(threads_share_plans_on)
}

fn threads_share_plans_on(device: &Device) -> Result<()> {
    let work = |seed: u64| -> Result<Vec<Vec<f64>>> {
        let inputs = [random((5, 16), seed)?, random(16, 2)?, random(16, 3)?];
        let norm = |t: &[Tensor]| ops::layer_norm(&t[0], &t[1], &t[2], EPS as f32);
        let (y, mut all) = evaluate(device, &norm, &inputs, DType::F32, common::Lying::BetweenColumns)?;
        all.push(y);
        all.iter().map(|tensor| tensor.flatten_all()?.to_vec1()).collect()
    };
    let alone = [work(1)?, work(2)?];
    let together = thread::scope(|scope| {
        let threads = [1, 2].map(|seed| scope.spawn(move || (0..50).map(|_| work(seed)).collect::<Result<Vec<_>>>()));
        threads.map(|thread| thread.join().unwrap_or_else(|_| Err(Error::msg("a thread panicked"))))
    });
    for (alone, together) in alone.iter().zip(together) {
        assert!(together?.iter().all(|run| run == alone));
    }
    Ok(())
}

#[test]
fn a_graph_may_end_on_another_thread() -> Result<()> {
    for device in devices()? {
        let x = Var::from_tensor(&random((3, 8), 1)?.to_device(device)?)?;
        let loss = ops::softmax_last_dim(&x)?.sqr()?.sum_all()?;
        // On CUDA each thread has a stream of its own: tensors go to another thread once the work on them is done.
        device.synchronize()?;
        let backward = || -> Result<_> {
            let gradients = loss.backward()?;
            device.synchronize()?;
            Ok(gradients)
        };
        let gradients = thread::scope(|scope| scope.spawn(backward).join());
        let gradients = gradients.unwrap_or_else(|_| Err(Error::msg("the thread panicked")))?;
        assert!(gradients.get(&x).is_some());
    }
    Ok(())
}

#[test]
fn empty_tensors_have_empty_gradients() -> Result<()> {
    for device in devices()? {
        let var = |tensor: Tensor| Var::from_tensor(&tensor.to_device(device)?);
        let (x, weight) = (var(random((0, 8), 1)?)?, var(random(8, 2)?)?);
        let y = ops::rms_norm(&x, &weight, EPS as f32)?;
        assert_eq!(y.dims(), [0, 8]);
        let gradients = y.sum_all()?.backward()?;
        let Some(gradient) = gradients.get(&weight) else { candle_core::bail!("no gradient") };
        assert_eq!(gradient.to_vec1::<f64>()?, [0.0; 8]);
    }
    Ok(())
}

#[test]
fn modules_have_candles_variables() -> Result<()> {
    use baracuda_candle as nn;
    let config = nn::Conv2dConfig { padding: 1, ..Default::default() };
    let names = |build: &dyn Fn(VarBuilder<'static>) -> Result<()>| -> Result<Vec<(String, Vec<usize>)>> {
        let map = VarMap::new();
        build(VarBuilder::from_varmap(&map, DType::F32, &Device::Cpu))?;
        let data = map.data().lock().map_err(|_| Error::msg("the map is poisoned"))?;
        let mut names: Vec<_> = data.iter().map(|(name, var)| (name.clone(), var.dims().to_vec())).collect();
        names.sort();
        Ok(names)
    };
    macro_rules! build {
        ($nn:ident) => {
            |vb: VarBuilder<'static>| -> Result<()> {
                $nn::layer_norm(8, 1e-5, vb.pp("a"))?;
                $nn::layer_norm_no_bias(8, 1e-5, vb.pp("b"))?;
                $nn::rms_norm(8, 1e-5, vb.pp("c"))?;
                $nn::group_norm(2, 8, 1e-5, vb.pp("d"))?;
                $nn::linear(8, 4, vb.pp("e"))?;
                $nn::linear_no_bias(8, 4, vb.pp("f"))?;
                $nn::linear_b(8, 4, true, vb.pp("g"))?;
                $nn::conv1d(8, 4, 3, Default::default(), vb.pp("h"))?;
                $nn::conv1d_no_bias(8, 4, 3, Default::default(), vb.pp("i"))?;
                $nn::conv2d(8, 4, 3, config, vb.pp("j"))?;
                $nn::conv2d_no_bias(8, 4, 3, config, vb.pp("k"))?;
                $nn::embedding(10, 8, vb.pp("l"))?;
                Ok(())
            }
        };
    }
    assert_eq!(names(&build!(nn))?, names(&build!(candle_nn))?);
    Ok(())
}

#[test]
fn modules_compute_what_candles_do() -> Result<()> {
    devices()?.iter().try_for_each(modules_compute_what_candles_do_on)
}

fn modules_compute_what_candles_do_on(device: &Device) -> Result<()> {
    use baracuda_candle as nn;
    let map = VarMap::new();
    let vb = VarBuilder::from_varmap(&map, DType::F32, device);
    let random = |shape: &[usize], seed| random(shape, seed)?.to_dtype(DType::F32)?.to_device(device);
    let same = |ours: &dyn Module, stock: &dyn Module, x: &Tensor| -> Result<()> {
        let apart = difference(&ours.forward(x)?, &stock.forward(x)?)?;
        assert!(apart <= 1e-5, "{apart:e} apart");
        Ok(())
    };
    let rows = random(&[2, 3, 8], 1)?;
    same(&nn::layer_norm(8, 1e-5, vb.pp("a"))?, &candle_nn::layer_norm(8, 1e-5, vb.pp("a"))?, &rows)?;
    same(&nn::rms_norm(8, 1e-5, vb.pp("b"))?, &candle_nn::rms_norm(8, 1e-5, vb.pp("b"))?, &rows)?;
    same(&nn::linear(8, 5, vb.pp("c"))?, &candle_nn::linear(8, 5, vb.pp("c"))?, &rows)?;
    let images = random(&[2, 8, 6, 6], 1)?;
    let config = nn::Conv2dConfig { padding: 1, stride: 2, groups: 2, ..Default::default() };
    same(&nn::group_norm(2, 8, 1e-5, vb.pp("d"))?, &candle_nn::group_norm(2, 8, 1e-5, vb.pp("d"))?, &images)?;
    same(&nn::conv2d(8, 4, 3, config, vb.pp("e"))?, &candle_nn::conv2d(8, 4, 3, config, vb.pp("e"))?, &images)?;
    let config = nn::Conv1dConfig { padding: 1, ..Default::default() };
    let signals = images.flatten_from(2)?;
    same(&nn::conv1d(8, 4, 3, config, vb.pp("f"))?, &candle_nn::conv1d(8, 4, 3, config, vb.pp("f"))?, &signals)?;
    let indices = Tensor::new(&[[1u32, 4], [0, 4]], device)?;
    same(&nn::embedding(5, 3, vb.pp("g"))?, &candle_nn::embedding(5, 3, vb.pp("g"))?, &indices)?;
    let linear = Linear::new(random(&[5, 8], 2)?, None);
    assert_eq!(linear.forward(&random(&[2, 8], 3)?)?.dims(), [2, 5]);
    Ok(())
}
