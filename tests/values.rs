//! How the harness rounds numbers, finds elements, and tells random ones from others.

use baracuda_ops::{Backend, DType, TensorDesc};
use baracuda_ops_tests::case::{Data, Random};
use baracuda_ops_tests::judge::{is_random, units};
use baracuda_ops_tests::program::{Arithmetic, Program};
use baracuda_ops_tests::random::program;
use baracuda_ops_tests::values::{Tensors, offsets, rounded};
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
fn bytes_keep_all_bits_of_every_type() {
    for dtype in DType::ALL {
        let size = dtype.size_bytes() as usize;
        let desc = TensorDesc::strided(dtype, &[3, 5], &[1, 3]).unwrap();
        let mut bytes: Vec<u8> = (0..15 * size).map(|at| (at * 37 + 11) as u8 & 0x5f).collect();
        if dtype == DType::Bool {
            bytes.iter_mut().for_each(|byte| *byte &= 1);
        }
        let mut tensors = Tensors::default();
        tensors.push_bytes("x", &desc, &bytes);
        let mut again = vec![0; bytes.len()];
        tensors.0[0].scatter(&desc, &mut again);
        assert_eq!(again, bytes, "{dtype}");
    }
}

/// What a program of f32 inputs may give, of an output that has the value `actual`.
fn expected(text: &str, inputs: &[f64], backend: Backend, actual: f64) -> (f64, f64) {
    let program = Program::of(&serde_json::from_str(text).unwrap()).unwrap();
    let arithmetic = Arithmetic { computing: DType::F32, backend };
    let allowed = program.outputs(arithmetic, inputs.iter().copied()).unwrap();
    arithmetic.expected(DType::F32, allowed[0], actual)
}

/// Whether a number is within the budget of a program's output.
fn is_right(text: &str, inputs: &[f64], backend: Backend, actual: f64) -> bool {
    let (value, budget) = expected(text, inputs, backend, actual);
    let found = units(DType::F32, actual, value, budget);
    found.is_nan() || found <= 1.0
}

#[test]
fn programs_allow_their_errors_and_no_more() {
    let quotient = r#"{"inputs":["x","y"],"let":[["z","div","x","y"]],"outputs":["z"]}"#;
    let difference =
        r#"{"inputs":["x","y"],"let":[["a","exp","x"],["b","sub","a","y"],["c","div",1.0,"b"]],"outputs":["c"]}"#;
    let overflow = r#"{"inputs":["x"],"let":[["a","exp","x"],["b","log","a"]],"outputs":["b"]}"#;
    let scaled = r#"{"inputs":["x"],"let":[["y","mul","x",1e10]],"outputs":["y"]}"#;
    let (cpu, cuda, wgpu) = (Backend::Cpu, Backend::Cuda, Backend::Wgpu);
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let ulp = 2f64.powi(-23);
    for (is_allowed, text, inputs, backend, actual) in [
        (true, quotient, &[1.0, 3.0][..], cuda, 1.0 / 3.0),
        (true, quotient, &[1.0, 3.0], cuda, 1.0 / 3.0 + 0.9 * ulp),
        (false, quotient, &[1.0, 3.0], cuda, 1.0 / 3.0 + 1.3 * ulp),
        (true, quotient, &[1.0, 3.0], wgpu, 1.0 / 3.0 + 1.3 * ulp),
        (false, quotient, &[1.0, 3.0], wgpu, nan),
        // A zero has a sign, through wgpu either.
        (true, quotient, &[1.0, 0.0], cuda, inf),
        (false, quotient, &[1.0, 0.0], cuda, -inf),
        (true, quotient, &[1.0, 0.0], wgpu, -inf),
        (false, quotient, &[1.0, 0.0], wgpu, 1e30),
        (true, quotient, &[0.0, 0.0], wgpu, nan),
        (false, quotient, &[0.0, 0.0], cpu, 0.0),
        // A difference that may be 0.
        (true, difference, &[1.0, rounded(DType::F32, 1f64.exp())], cuda, -1e9),
        (true, difference, &[1.0, rounded(DType::F32, 1f64.exp())], cuda, inf),
        (false, difference, &[1.0, rounded(DType::F32, 1f64.exp())], cuda, nan),
        // What f32 does not hold.
        (true, overflow, &[100.0], cpu, 100.0),
        (true, overflow, &[100.0], cpu, inf),
        (true, overflow, &[100.0], cuda, inf),
        (false, overflow, &[100.0], cuda, 100.0),
        // Subnormal numbers count, and need not through wgpu.
        (true, scaled, &[1e-40], cuda, 1e-30),
        (false, scaled, &[1e-40], cuda, 0.0),
        (true, scaled, &[1e-40], wgpu, 0.0),
    ] {
        assert_eq!(
            is_right(text, inputs, backend, actual),
            is_allowed,
            "{text} of {inputs:?} on {backend:?}: {actual}"
        );
    }
}

/// Results that are rounded as well as f32 can have them are within the budgets, and what is a little off in the last instruction is not.
#[test]
fn programs_in_f32_hold_their_budgets_and_wrong_ones_do_not() {
    let mut draw = fastrand::Rng::with_seed(23);
    let mut random = Random::of("inputs of programs");
    let (mut programs, mut wrong, mut caught) = (0, 0, 0);
    while programs < 2000 {
        let Ok(case) = program(DType::F32, 64, &mut draw) else { continue };
        let line = case.descriptor.line();
        let json: serde_json::Value = serde_json::from_str(line.split_once(' ').unwrap().1).unwrap();
        let inputs = json["inputs"].as_array().unwrap();
        let of = |input: &serde_json::Value| serde_json::from_value(input["dtype"].clone()).unwrap();
        let types: Vec<DType> = inputs.iter().map(of).collect();
        let program = Program::of(&json["program"]).unwrap().typed(&types, DType::F32);
        programs += 1;
        for scale in [1.0, 10.0, 1e-20] {
            let mut value = |input: &serde_json::Value| match input["dtype"].as_str() {
                Some("bool") => f64::from(random.normal() > 0.0),
                _ => rounded(DType::F32, scale * random.normal()),
            };
            let inputs: Vec<f64> = inputs.iter().map(&mut value).collect();
            let last = program.instructions().saturating_sub(1);
            for (is_wrong, backend) in
                [(false, Backend::Cpu), (false, Backend::Cuda), (false, Backend::Wgpu), (true, Backend::Cuda)]
            {
                let change = |at: usize, value: f64| if is_wrong && at == last { value * (1.0 + 1e-4) } else { value };
                let arithmetic = Arithmetic { computing: DType::F32, backend };
                let allowed = program.outputs(arithmetic, inputs.iter().copied()).unwrap();
                let found = program.run(DType::F32, &inputs, change).unwrap();
                let (value, budget) = arithmetic.expected(DType::F32, allowed[0], found[0]);
                let units = units(DType::F32, found[0], value, budget);
                let is_right = units.is_nan() || units <= 1.0;
                if !is_wrong {
                    assert!(
                        is_right,
                        "{line} of {inputs:?} on {backend:?}: {} in place of {value} within {budget}",
                        found[0]
                    );
                } else if found[0].is_finite() && found[0].abs() > 1e-30 && program.instructions() > 0 {
                    (wrong, caught) = (wrong + 1, caught + usize::from(!is_right));
                }
            }
        }
    }
    assert!(wrong > 1000 && caught * 10 > wrong * 7, "{caught} of {wrong}");
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
