use super::*;
use crate::backend::{Buffer, Device};
use crate::dtype::DType;
use crate::memory::{Mem, MemMut, Workspace};
use crate::narrow::to_usize;
use crate::ops::pointwise::map::{PointwiseArgs, PointwiseDescriptor};
use crate::ops::pointwise::program::{Function, Program};
use crate::options::PlanOptions;
use crate::plan::{Descriptor, Plan};
use crate::tensor::TensorDesc;

const FORMS: [&str; 2] = ["pointwise_dense", "pointwise_strided"];

fn encode(dtype: DType, value: f64) -> Vec<u8> {
    match dtype {
        DType::F16 => half::f16::from_f64(value).to_le_bytes().to_vec(),
        DType::BF16 => half::bf16::from_f64(value).to_le_bytes().to_vec(),
        _ => crate::narrow::single(value).to_le_bytes().to_vec(),
    }
}

/// A form's operands, as bytes, after a run in which each input is written to a buffer before and starts at a byte of it. `shared`: which input each output
/// lies in the place of.
fn run(
    device: &Device,
    descriptor: &PointwiseDescriptor,
    form: Option<&'static str>,
    inputs: &[Vec<u8>],
    (offset, shared): (u64, &[Option<usize>]),
) -> crate::Result<Vec<Vec<u8>>> {
    let options = form.map_or(PlanOptions::default(), |form| PlanOptions::default().kernel(form));
    let plan = Plan::new(device, descriptor.clone(), &options)?;
    let slots = descriptor.slots();
    let whole = |bytes: u64| (offset + bytes).next_multiple_of(4) + 16;
    let place = |at: usize, contents: Option<&Vec<u8>>| {
        let buffer = device.alloc(whole(slots[at].span_bytes))?;
        let mut bytes = vec![0x3c; to_usize(buffer.bytes())];
        if let Some(contents) = contents {
            bytes[to_usize(offset)..][..contents.len()].copy_from_slice(contents);
        }
        device.write(&buffer, 0, &bytes)?;
        Ok(buffer)
    };
    let given =
        inputs.iter().enumerate().map(|(at, bytes)| place(at, Some(bytes))).collect::<crate::Result<Vec<_>>>()?;
    let outputs = (inputs.len()..slots.len())
        .map(|at| match shared.get(at - inputs.len()).copied().flatten() {
            Some(input) => Ok(given[input].clone()),
            None => place(at, None),
        })
        .collect::<crate::Result<Vec<Buffer>>>()?;
    let args = PointwiseArgs::new(
        given.iter().enumerate().map(|(at, buffer)| Mem::buffer(buffer, offset, slots[at].span_bytes)),
        outputs
            .iter()
            .enumerate()
            .map(|(at, buffer)| MemMut::buffer(buffer, offset, slots[inputs.len() + at].span_bytes)),
    );
    let mut queue = device.queue();
    plan.run(&mut queue, args, Workspace::none())?;
    outputs.iter().map(|buffer| Ok(bytemuck::cast_slice(&queue.download::<u32>(buffer)?).to_vec())).collect()
}

/// Contents of an operand: small integers everywhere, also between its elements.
fn integers(desc: &TensorDesc, seed: u64) -> Vec<u8> {
    let elements = desc.span_bytes() / desc.dtype().size_bytes();
    let value = |at: u64| f64::from(u32::try_from((at * 7 + seed * 3 + at / 5) % 9).unwrap()) - 4.0;
    (0..elements).flat_map(|at| encode(desc.dtype(), value(at))).collect()
}

/// The first adapter. Where there is none, tests have nothing to run on, which fails if `BOPS_REQUIRE` names wgpu.
fn device() -> Option<Device> {
    let found = Device::wgpu_all().into_iter().next();
    let required = std::env::var("BOPS_REQUIRE").unwrap_or_default();
    let is_required = required.split(',').any(|backend| backend == "wgpu");
    assert!(found.is_some() || !is_required, "BOPS_REQUIRE names wgpu, and there is no adapter");
    found
}

/// `x y + z`, x, `x y`: exact for small integers in every type.
fn several() -> Program {
    variants::programs().unwrap()[0].clone()
}

/// Outputs that start at a byte, the second with the extents and strides of `out`.
fn starting_at(descriptor: PointwiseDescriptor, offset: u64, out: Option<TensorDesc>) -> PointwiseDescriptor {
    let outputs: Vec<_> = descriptor.slots()[3..].iter().map(|slot| (slot.name, slot.desc)).collect();
    outputs.into_iter().fold(descriptor, |descriptor, (name, desc)| {
        let desc = match out {
            Some(out) if name == "out1" => TensorDesc::strided(desc.dtype(), out.dims(), out.strides()).unwrap(),
            _ => desc,
        };
        descriptor.layout(name, desc.for_offset(offset).unwrap()).unwrap()
    })
}

#[test]
fn every_layout_and_type_gives_the_bits_of_the_reference() {
    let Some(device) = device() else { return };
    let (half, other, single) = (DType::F16, DType::BF16, DType::F32);
    let dense = |dtype, dims: &[u64]| TensorDesc::contiguous(dtype, dims).unwrap();
    let strided = |dtype, dims: &[u64], strides: &[u64]| TensorDesc::strided(dtype, dims, strides).unwrap();
    let types = [[half, other, half], [single; 3], [other; 3], [single, half, other], [half; 3]];
    let (dims, gaps) = ([2, 3, 5, 2, 8], [1000, 2, 7, 500, 50]);
    type Inputs<'t> = &'t dyn Fn([DType; 3]) -> [TensorDesc; 3];
    let (rows, turned) = ([7, 64], [1, 7]);
    let of_shape = |dims: &'static [u64], [a, b, c]: [DType; 3], kind: usize| {
        let cols = &dims[dims.len() - 1..];
        [
            [dense(a, dims), dense(b, dims), dense(c, dims)],
            [dense(a, dims), dense(b, &[]), dense(c, dims)],
            [dense(a, dims), dense(b, cols), dense(c, &[])],
        ][kind]
    };
    let whole: Inputs<'_> = &|[a, b, c]| [dense(a, &rows), dense(b, &rows), dense(c, &rows)];
    let mut problems: Vec<([TensorDesc; 3], Option<TensorDesc>)> = Vec::new();
    // Each layout in one combination of types, each combination in several layouts.
    let mut combinations = types.into_iter().cycle();
    let mut next = || combinations.next().unwrap_or(types[0]);
    for dims in [&[3000][..], &[2999], &[1], &[7, 64], &[5, 33]] {
        problems.extend((0..3).map(|kind| (of_shape(dims, next(), kind), None)));
    }
    let layouts: [Inputs<'_>; 4] = [
        &|[a, b, c]| [dense(a, &rows), dense(b, &[7, 1]), strided(c, &rows, &turned)],
        &|[a, b, c]| [strided(a, &rows, &turned), dense(b, &rows), dense(c, &rows)],
        &|[a, b, c]| [strided(a, &dims, &gaps), dense(b, &[3, 1, 1, 8]), dense(c, &[5, 2, 1])],
        &|[a, b, c]| [dense(a, &dims), dense(b, &[3, 1, 1, 8]), dense(c, &[5, 2, 1])],
    ];
    problems.extend(layouts.map(|inputs| (inputs(next()), None)));
    let gapped = [[131, 2], [65, 1]].map(|strides| Some(strided(single, &rows, &strides)));
    problems.extend(gapped.map(|out| (whole(next()), out)));
    for (inputs, out) in problems {
        for offset in [0, 4] {
            let inputs: Vec<_> = inputs.iter().map(|desc| desc.for_offset(offset).unwrap()).collect();
            let descriptor = PointwiseDescriptor::new(several(), inputs.clone()).unwrap();
            let descriptor = starting_at(descriptor, offset, out);
            let contents: Vec<_> = (0..3).zip(&inputs).map(|(seed, desc)| integers(desc, seed)).collect();
            let expected = run(&Device::cpu(), &descriptor, None, &contents, (offset, &[])).unwrap();
            for form in FORMS {
                match run(&device, &descriptor, Some(form), &contents, (offset, &[])) {
                    Ok(got) => assert!(got == expected, "{form} at {offset} {descriptor:?}"),
                    Err(error) => assert!(form == FORMS[0] && error.to_string().contains("neither dense"), "{error}"),
                }
            }
        }
    }
}

#[test]
fn outputs_lie_in_the_place_of_any_input() {
    let Some(device) = device() else { return };
    for (dtype, dims) in
        [(DType::F32, &[3001][..]), (DType::BF16, &[3001]), (DType::F16, &[64, 64]), (DType::F16, &[5, 9])]
    {
        let x = TensorDesc::contiguous(dtype, dims).unwrap().for_offset(4).unwrap();
        let descriptor = starting_at(PointwiseDescriptor::new(several(), vec![x; 3]).unwrap(), 4, None);
        let contents: Vec<_> = (0..3).map(|seed| integers(&x, seed)).collect();
        for shared in [[Some(0), None, None], [Some(2), Some(1), Some(0)], [None, Some(2), None]] {
            let expected = run(&Device::cpu(), &descriptor, None, &contents, (4, &[])).unwrap();
            for form in FORMS {
                let got = run(&device, &descriptor, Some(form), &contents, (4, &shared)).unwrap();
                assert!(got == expected, "{form} {shared:?} {dtype} {dims:?}");
            }
        }
    }
}

/// Numbers at which functions lose digits, overflow or are special, and a sweep.
fn arguments() -> Vec<f32> {
    let mut values = vec![0.0, f32::INFINITY, f32::NAN, f32::MAX, f32::MIN_POSITIVE, 1e-40, 1e-45, 1.0, 1.000_000_1];
    values.extend([0.999_999_9, 0.99, 1.01, 0.5, 0.624, 0.626, 2.0, 10.0, 1e-10, 1e-20, 3e-38, 1e30, 1e37, 2e38]);
    values.extend([20.0, 80.0, 87.0, 87.3, 87.5, 88.0, 88.4, 88.7, 88.722_8, 88.73, 89.0, 100.0, 104.0, 1000.0]);
    values.extend([8191.9, 8192.1, 12_345.678, 1e6, 710.0, 4095.9, 4096.1, 13.5, 149.3]);
    values.extend((1..400u16).map(|at| f32::from(at) * 0.037));
    let mirrored: Vec<f32> = values.iter().map(|value| -value).collect();
    values.extend(mirrored);
    values
}

/// The magnitude of which a function's budget are ulps: of a sum that of its greatest term.
fn scale(function: Function, [x, y, z]: [f64; 3], exact: f64) -> f64 {
    let of_terms = |terms: [f64; 2]| terms[0].abs().max(terms[1].abs());
    match function {
        Function::Lerp => of_terms([x, y]).max(of_terms([y - x, (y - x) * z])),
        Function::Addcmul => of_terms([x, y * z]),
        Function::Addcdiv => of_terms([x, y / z]),
        Function::Fma => of_terms([x * y, z]),
        _ => exact.abs().max(function.scale([x, y, z])),
    }
}

/// Whether a result is within the budget of a function: twice its ulps, and 2^-126, below which a device may give 0, as it may take arguments below it.
fn is_within(function: Function, given: [f32; 3], got: f32) -> bool {
    let flushed = |value: f32| [value, if value.is_subnormal() { 0.0f32.copysign(value) } else { value }];
    let [x, y, z] = given.map(flushed);
    let corners = x.into_iter().flat_map(|x| y.into_iter().flat_map(move |y| z.into_iter().map(move |z| [x, y, z])));
    corners.map(|corner| corner.map(f64::from)).any(|corner| {
        let exact = function.value(corner);
        let scale = scale(function, corner, exact);
        if scale > f64::from(f32::MAX) && exact.is_finite() {
            // A term is beyond the greatest number.
            return true;
        }
        let nearest = crate::narrow::single(exact);
        if exact.is_nan() || nearest.is_infinite() || got.is_infinite() {
            // Within the budget of the greatest number a device may round to infinity, and back.
            let is_near = exact.abs() > f64::from(f32::MAX) * (1.0 - 1e-6) && got.abs() > f32::MAX * (1.0 - 1e-6);
            return (exact.is_nan() && got.is_nan()) || (is_near && exact.is_sign_negative() == got.is_sign_negative());
        }
        let ulp = scale.max(f64::from(f32::MIN_POSITIVE)) * f64::from(f32::EPSILON);
        let has_sign = exact != 0.0 || got.is_sign_negative() == exact.is_sign_negative();
        has_sign && (f64::from(got) - exact).abs() <= 2.0 * function.ulps() * ulp + f64::from(f32::MIN_POSITIVE)
    })
}

#[test]
fn functions_hold_their_budgets_at_extremes() {
    let Some(device) = device() else { return };
    let values = arguments();
    let is_of_numbers = |function: &Function| function.computes_in(DType::F32) && !function.takes_bool(0);
    for function in Function::ALL.into_iter().filter(is_of_numbers) {
        let some = || values.iter().step_by(5);
        let few = || values.iter().step_by(23);
        let of_type = function.row().of_type.map_or(0.0, |of_type| crate::narrow::single(of_type(DType::F32)));
        let given: Vec<[f32; 3]> = match function.arity() {
            1 => values.iter().map(|&x| [x, 0.0, 0.0]).collect(),
            2 => values.iter().flat_map(|&x| some().map(move |&y| [x, y, of_type])).collect(),
            _ => some().flat_map(|&x| few().flat_map(move |&y| few().map(move |&z| [x, y, z]))).collect(),
        };
        let x = TensorDesc::contiguous(DType::F32, &[given.len() as u64]).unwrap();
        let descriptor = PointwiseDescriptor::new(Program::of(function), vec![x; function.arity()]).unwrap();
        let descriptor = descriptor.outputs(vec![DType::F32]).unwrap();
        let contents: Vec<Vec<u8>> =
            (0..function.arity()).map(|at| given.iter().flat_map(|given| given[at].to_le_bytes()).collect()).collect();
        for form in FORMS {
            let got = run(&device, &descriptor, Some(form), &contents, (0, &[])).unwrap().remove(0);
            let mut worst = 0.0f64;
            for (&given, got) in given.iter().zip(got.as_chunks::<4>().0) {
                let got = f32::from_le_bytes(*got);
                if function.gives_bool() {
                    let exact = function.value([given[0], given[1], 0.0].map(f64::from));
                    assert_eq!(f64::from(got), exact, "{function:?} of {given:?} ({form})");
                    continue;
                }
                assert!(is_within(function, given, got), "{function:?} of {given:?} is {got:e} ({form})");
                let exact = function.value(given.map(f64::from));
                if exact.abs() > 1.2e-38 && exact.is_finite() && got.is_finite() {
                    worst = worst.max(((f64::from(got) - exact) / exact).abs() / f64::from(f32::EPSILON));
                }
            }
            println!("{} {form}: {worst:.2} ulp", function.name());
        }
    }
}

/// Bytes of any value; of floating-point types small integers, and what has no place in other types.
fn bytes_of(desc: &TensorDesc, seed: u64) -> Vec<u8> {
    let elements = desc.span_bytes() / desc.dtype().size_bytes();
    let special = [f64::NAN, f64::INFINITY, -1e10, 1e10, -0.5, 255.5, 3e38, 1e-40];
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let element = |at: u64| match desc.dtype() {
        DType::F32 | DType::F16 | DType::BF16 if at.is_multiple_of(3) => {
            encode(desc.dtype(), special[to_usize(at / 3 % 8)])
        }
        DType::F32 | DType::F16 | DType::BF16 => encode(desc.dtype(), f64::from((at * 7 + seed) as u32 % 19) - 9.0),
        // Half of them are 0; of the others most are no 1.
        DType::Bool => vec![if random() & 1 == 0 { 0 } else { random() as u8 }],
        dtype => match random() % 4 {
            0 => vec![0; to_usize(dtype.size_bytes())],
            1 => ((random() % 40) as u32).to_le_bytes()[..to_usize(dtype.size_bytes())].to_vec(),
            2 => vec![0xff; to_usize(dtype.size_bytes())],
            _ => (random() as u32 * 2).to_le_bytes()[..to_usize(dtype.size_bytes())].to_vec(),
        },
    };
    (0..elements).flat_map(element).collect()
}

/// Runs each form and compares all bytes, also those between elements, with the reference on the CPU.
fn agrees_with_the_reference(device: &Device, descriptor: &PointwiseDescriptor, inputs: &[TensorDesc], offset: u64) {
    let contents: Vec<_> = (0..).zip(inputs).map(|(seed, desc)| bytes_of(desc, seed)).collect();
    let reference = Some("pointwise_reference");
    let expected = run(&Device::cpu(), descriptor, reference, &contents, (offset, &[])).unwrap();
    assert!(run(&Device::cpu(), descriptor, None, &contents, (offset, &[])).unwrap() == expected, "{descriptor:?}");
    for form in FORMS {
        match run(device, descriptor, Some(form), &contents, (offset, &[])) {
            Ok(got) => {
                for (at, (got, expected)) in got.iter().zip(&expected).enumerate() {
                    let differing = got.iter().zip(expected).position(|(got, expected)| got != expected);
                    assert_eq!(differing, None, "{form} at {offset}: byte of output {at} of {descriptor:?}");
                }
            }
            Err(error) => assert!(form == FORMS[0] && error.to_string().contains("neither dense"), "{error}"),
        }
    }
}

const CASTS: [DType; 8] =
    [DType::Bool, DType::I32, DType::U32, DType::U8, DType::I8, DType::F32, DType::F16, DType::BF16];

#[test]
fn casts_and_bytes_in_every_layout_are_those_of_the_reference() {
    let Some(device) = device() else { return };
    let (dims, gaps) = ([2, 3, 5, 2, 8], [1000, 2, 7, 500, 50]);
    for from in CASTS {
        let dense = |dims: &[u64]| TensorDesc::contiguous(from, dims).unwrap();
        let turned = TensorDesc::strided(from, &[7, 64], &[1, 7]).unwrap();
        for x in
            [dense(&[1000]), dense(&[1003]), dense(&[5, 33]), turned, TensorDesc::strided(from, &dims, &gaps).unwrap()]
        {
            for offset in [0, 4] {
                let x = x.for_offset(offset).unwrap();
                let mut b = Program::builder();
                let same = b.input("x");
                let program = b.finish([same; 4]).unwrap();
                for outputs in CASTS.as_chunks::<4>().0 {
                    let descriptor = PointwiseDescriptor::new(program.clone(), vec![x]).unwrap();
                    let descriptor = descriptor.outputs(outputs.to_vec()).unwrap();
                    let laid: Vec<_> = descriptor.slots()[1..].iter().map(|slot| (slot.name, slot.desc)).collect();
                    let descriptor = laid.into_iter().fold(descriptor, |descriptor, (name, desc)| {
                        descriptor.layout(name, desc.for_offset(offset).unwrap()).unwrap()
                    });
                    // NaN may have other bits.
                    let has_nan = outputs[3] == DType::BF16 && matches!(from, DType::F32 | DType::F16 | DType::BF16);
                    if !has_nan {
                        agrees_with_the_reference(&device, &descriptor, &[x], offset);
                    }
                }
            }
        }
    }
}

#[test]
fn functions_of_integers_and_bools_are_those_of_the_reference() {
    let Some(device) = device() else { return };
    for dtype in [DType::I32, DType::U32, DType::U8, DType::I8] {
        for (dims, spread) in [([40, 33], [33, 1]), ([16, 64], [128, 2])] {
            let x = TensorDesc::contiguous(dtype, &dims).unwrap();
            for function in Function::ALL {
                let Some(inputs) = variants::inputs_of(function, x).unwrap() else { continue };
                let descriptor = PointwiseDescriptor::new(Program::of(function), inputs.clone()).unwrap();
                let out = descriptor.slots()[inputs.len()].desc;
                let spread = TensorDesc::strided(out.dtype(), &dims, &spread).unwrap();
                let descriptor = descriptor.layout("out0", spread).unwrap();
                agrees_with_the_reference(&device, &descriptor, &inputs, 0);
            }
        }
    }
    let logical = |function: &Function| function.takes_bool(0);
    for function in Function::ALL.into_iter().filter(logical) {
        let x = TensorDesc::contiguous(DType::F16, &[1003]).unwrap();
        let inputs = variants::inputs_of(function, x).unwrap().unwrap();
        let descriptor = PointwiseDescriptor::new(Program::of(function), inputs.clone()).unwrap();
        if !function.gives_bool() {
            // What it takes from is small integers alone.
            let contents: Vec<_> =
                (0..3).map(|seed| integers(&inputs[seed as usize].for_offset(0).unwrap(), seed)).collect();
            let contents = [vec![bytes_of(&inputs[0], 1)], contents[1..].to_vec()].concat();
            let expected = run(&Device::cpu(), &descriptor, None, &contents, (0, &[])).unwrap();
            for form in FORMS {
                assert!(run(&device, &descriptor, Some(form), &contents, (0, &[])).unwrap() == expected);
            }
        } else {
            agrees_with_the_reference(&device, &descriptor, &inputs, 0);
        }
    }
}

#[test]
fn types_that_shaders_lack_are_refused() {
    let props = crate::backend::wgpu::Variants::device(None);
    for (dtype, why) in [
        (DType::I64, "WGSL has no integers of 64 bits"),
        (DType::F8E5M2, "its shaders have no elements of f8e5m2"),
        (DType::F64, "WGSL has no arithmetic of f64"),
    ] {
        let x = TensorDesc::contiguous(dtype, &[64]).unwrap();
        let mut b = Program::builder();
        let same = b.input("x");
        let descriptor = PointwiseDescriptor::new(b.finish([same]).unwrap(), vec![x]).unwrap();
        for form in [dense, strided] {
            let reason = form(&descriptor.0, &props, Ask::Chosen).err().unwrap().to_string();
            assert!(reason.contains(why), "{reason}");
        }
    }
}

#[test]
fn numbers_keep_their_bits() {
    let Some(device) = device() else { return };
    let program = variants::programs().unwrap()[1].clone();
    let x = TensorDesc::contiguous(DType::F32, &[4]).unwrap();
    let descriptor = PointwiseDescriptor::new(program, vec![x]).unwrap();
    let contents = [1.0f32, -2.0, 0.0, 2e10].iter().flat_map(|value| value.to_le_bytes()).collect();
    let got = run(&device, &descriptor, Some(FORMS[0]), &[contents], (0, &[])).unwrap();
    let values: Vec<Vec<f32>> = got
        .iter()
        .map(|bytes| bytes.as_chunks::<4>().0[..4].iter().map(|&bytes| f32::from_le_bytes(bytes)).collect())
        .collect();
    let inf = f32::INFINITY;
    assert_eq!((&values[0][..2], values[0][2].is_nan(), values[0][3]), (&[inf, -inf][..], true, inf));
    assert_eq!((&values[1][..2], values[1][2].is_nan(), values[1][3]), (&[-inf, inf][..], true, -inf));
    assert!(values[2].iter().all(|value| value.is_nan()));
    let signs: Vec<bool> = values[3].iter().map(|value| value.is_sign_negative()).collect();
    assert_eq!((&values[3][..], &signs[..]), (&[0.0; 4][..], &[true, false, true, true][..]));
    assert_eq!(values[5], [0.1, -0.2, 0.0, 2e10 * 0.1]);
}

#[test]
fn a_number_is_one_line_and_what_is_used_again_is_rounded() {
    let program: Program = serde_json::from_str(
        r#"{"inputs": ["x", "y"], "let": [["a", "mul", "x", "nan"], ["b", "add", "a", "y"]], "outputs": ["b"]}"#,
    )
    .unwrap();
    let inputs = [DType::F16, DType::BF16].map(|dtype| TensorDesc::contiguous(dtype, &[64]).unwrap());
    let descriptor = PointwiseDescriptor::new(program, inputs.to_vec()).unwrap();
    let props = crate::backend::wgpu::Variants::device(Some((32, 32)));
    let step = dense(&descriptor.0, &props, Ask::Chosen).unwrap().steps.remove(0);
    for line in [
        "    let x0 = quad_f16(x.in0, part);",
        "    let x1 = quad_bf16(x.in1, part);",
        "    let t0 = rounded(f_mul(x0, literal(0x7fc00000u)));",
        "    let t1 = f_add(t0, x1);",
        "    return Results(t1);",
    ] {
        assert!(step.generated.lines().any(|known| known == line), "{line:?} is not in\n{}", step.generated);
    }
    let functions: Vec<_> = step.generated.lines().filter(|line| line.starts_with("fn f_")).collect();
    let signature = |name: &str| format!("fn f_{name}(x: vec4<f32>, y: vec4<f32>) -> vec4<f32> {{");
    assert_eq!(functions, [signature("add"), signature("mul")]);
}

#[test]
fn more_operands_than_the_device_binds_are_refused_with_both_numbers() {
    let mut b = Program::builder();
    let inputs: Vec<_> = (0..8).map(|at| b.input(format!("x{at}"))).collect();
    let x = TensorDesc::contiguous(DType::F32, &[64]).unwrap();
    let descriptor = PointwiseDescriptor::new(b.finish([inputs[0]]).unwrap(), vec![x; 8]).unwrap();
    for form in [dense, strided] {
        let props = crate::backend::wgpu::Variants::device(None);
        let reason = form(&descriptor.0, &props, Ask::Chosen).err().unwrap().to_string();
        assert_eq!(reason, "it binds 9 storage buffers, the limit of this device is 8");
    }
}
