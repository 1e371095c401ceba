//! What does not fit is an error of candle's that says what, with that of baracuda-ops as its cause.

mod common;

use baracuda_candle::{Conv2dConfig, baracuda_ops, cause, ops, rotary_emb};
use candle_core::{DType, Device, Error, Result, Tensor, Var};
use common::{devices, random};

/// The error of a call that has to be refused.
fn refusal(called: Result<Tensor>) -> Result<Error> {
    match called {
        Err(error) => Ok(error),
        Ok(tensor) => candle_core::bail!("it gave {:?}", tensor.shape()),
    }
}

#[test]
fn refusals_of_the_library_are_causes() -> Result<()> {
    let x = random((2, 8), 1)?;
    let error = refusal(ops::layer_norm_with(&x, 1, None, None, -1.0))?;
    let found = cause(&error);
    assert!(
        matches!(found, Some(baracuda_ops::Error::InvalidDescriptor { op: "layer_norm", field: "eps", .. })),
        "{error}"
    );
    assert!(error.to_string().contains("eps"), "{error}");
    // Through more context as well.
    assert!(cause(&error.context("in a block")).is_some());
    // An error of candle's own has none.
    assert!(cause(&refusal(x.matmul(&x))?).is_none());
    let image = random((1, 3, 4, 4), 1)?;
    let filters = random((2, 2, 3, 3), 1)?;
    let error = refusal(ops::conv2d(&image, &filters, None, &Conv2dConfig::default(), None))?;
    assert!(matches!(cause(&error), Some(baracuda_ops::Error::InvalidDescriptor { op: "conv", .. })), "{error}");
    Ok(())
}

#[test]
fn shapes_that_do_not_fit_are_named() -> Result<()> {
    let [x, weight] = [random((2, 8), 1)?, random(7, 2)?];
    let error = refusal(ops::rms_norm(&x, &weight, 1e-5))?.to_string();
    assert!(error.contains("rms_norm: weight") && error.contains("[8]") && error.contains("[7]"), "{error}");
    let targets = Tensor::new(&[0u32, 1, 2], &Device::Cpu)?;
    let error = refusal(ops::cross_entropy(&x, &targets, 1, ops::LossReduction::Mean, None))?.to_string();
    assert!(error.contains("targets") && error.contains("[2]") && error.contains("[3]"), "{error}");
    refusal(ops::softmax(&x, 2))?;
    refusal(ops::swiglu(&random((2, 7), 1)?))?;
    refusal(ops::gated_silu(&x, &random((1, 8), 1)?))?;
    refusal(ops::linear(&x, &weight, None, None))?;
    refusal(rotary_emb::rope(&random((1, 1, 2, 4), 1)?, &random((2, 3), 1)?, &random((2, 2), 1)?))?;
    refusal(ops::attention(
        &random((1, 2, 3, 4), 1)?,
        &random((1, 2, 2, 4), 1)?,
        &random((1, 2, 2, 4), 1)?,
        1.0,
        true,
    ))?;
    Ok(())
}

#[test]
fn indices_that_are_no_rows_are_refused_or_make_nan() -> Result<()> {
    for device in devices()? {
        let table = Var::from_tensor(&random((2, 3), 1)?.to_device(device)?)?;
        let indices = [Tensor::new(&[1i64, 2], device)?, Tensor::new(&[1i64, -1], device)?];
        for indices in indices {
            let rows = ops::embedding(&table, &indices);
            if device.is_cpu() {
                assert!(refusal(rows)?.to_string().contains("1 indices are no rows of a table of 2"));
                continue;
            }
            let rows = rows?;
            let numbers = rows.to_vec2::<f64>()?;
            assert!(
                numbers[0].iter().all(|number| number.is_finite()) && numbers[1].iter().all(|number| number.is_nan())
            );
            let gradients = rows.backward()?;
            let Some(gradient) = gradients.get(&table) else { candle_core::bail!("no gradient") };
            assert_eq!(gradient.to_vec2::<f64>()?, [[0.0; 3], [1.0; 3]]);
        }
    }
    Ok(())
}

#[test]
fn tensors_of_several_devices_are_refused() -> Result<()> {
    for device in devices()?.iter().filter(|device| !device.is_cpu()) {
        let [x, weight] = [random((2, 8), 1)?, random(8, 1)?];
        let error = refusal(ops::rms_norm(&x.to_device(device)?, &weight, 1e-5))?.to_string();
        assert!(error.contains("operand weight"), "{error}");
        refusal(ops::embedding(&x.to_device(device)?, &Tensor::new(&[0u32], &Device::Cpu)?))?;
    }
    Ok(())
}

#[test]
fn types_that_do_not_fit_are_named() -> Result<()> {
    let x = Tensor::new(&[[1u32, 2]], &Device::Cpu)?;
    let error = refusal(ops::softmax(&x, 1))?;
    assert!(matches!(cause(&error), Some(baracuda_ops::Error::InvalidDescriptor { field: "x", .. })), "{error}");
    let x = x.to_dtype(DType::F8E4M3)?;
    let error = refusal(ops::softmax(&x, 1))?.to_string();
    assert!(error.contains("F8E4M3"), "{error}");
    let [x, weight] = [random((2, 8), 1)?.to_dtype(DType::F32)?, random(8, 1)?];
    refusal(ops::rms_norm(&x, &weight, 1e-5))?;
    // f32 beside 16 bits is what mixed precision has.
    ops::rms_norm(&x.to_dtype(DType::BF16)?, &weight.to_dtype(DType::F32)?, 1e-5)?;
    Ok(())
}

#[test]
fn gradients_that_there_are_none_of_are_refused() -> Result<()> {
    let x = random((1, 1, 2, 4), 1)?;
    let cos = Var::from_tensor(&random((2, 2), 2)?)?;
    let error = refusal(rotary_emb::rope(&x, &cos, &random((2, 2), 2)?))?.to_string();
    assert!(error.contains("gradient of cos"), "{error}");
    rotary_emb::rope(&x, &cos.detach(), &random((2, 2), 2)?)?;
    Ok(())
}
