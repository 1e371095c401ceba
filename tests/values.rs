//! How the harness rounds numbers, finds elements, and tells random ones from others.

use baracuda_ops::{DType, TensorDesc};
use baracuda_ops_tests::case::{Data, Random};
use baracuda_ops_tests::judge::is_random;
use baracuda_ops_tests::values::{offsets, rounded};
use half::{bf16, f16};

#[test]
fn rounds_as_the_hardware_does() {
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..100_000 {
        let bits = random.u64(..);
        let value = f64::from_bits(bits) * 0.0 + f64::from(f32::from_bits(bits as u32));
        let value = if value.is_finite() { value * (1.0 + random.f64() * 1e-9) } else { continue };
        assert_eq!(rounded(DType::F32, value), f64::from(value as f32), "{value:e}");
    }
}

#[test]
fn keeps_every_half() {
    for bits in 0..=u16::MAX {
        let (a, b) = (f16::from_bits(bits).to_f64(), bf16::from_bits(bits).to_f64());
        assert!(a.is_nan() || rounded(DType::F16, a).to_bits() == a.to_bits());
        assert!(b.is_nan() || rounded(DType::BF16, b).to_bits() == b.to_bits());
    }
    assert_eq!(rounded(DType::F16, 1.0 + 1.0 / 2048.0 + 1e-12), 1.0 + 1.0 / 1024.0);
    assert_eq!(rounded(DType::F16, 65519.9), 65504.0);
    assert_eq!(rounded(DType::F16, 65520.0), f64::INFINITY);
    assert_eq!(rounded(DType::BF16, 1e-45), 0.0);
}

#[test]
fn walks_strides_in_row_major_order() {
    let desc = TensorDesc::strided(DType::F32, &[2, 3], &[1, 4]).unwrap();
    assert_eq!(offsets(&desc), [0, 4, 8, 1, 5, 9]);
    let repeated = TensorDesc::strided(DType::F32, &[2, 2], &[0, 1]).unwrap();
    assert_eq!(offsets(&repeated), [0, 1, 0, 1]);
}

#[test]
fn structured_elements_are_not_random() {
    for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
        let values = |data: Data, rows, cols| data.rows(dtype, rows, cols, &mut Random::of("elements"));
        for (rows, cols) in [(1, 1024), (33, 320), (320, 33)] {
            assert!(is_random(&values(Data::Normal, rows, cols)), "normal {dtype}");
            for data in Data::STRUCTURED {
                assert!(!is_random(&values(data, rows, cols)), "{data:?} {dtype} {rows} {cols}");
            }
        }
    }
}
