//! Fourier transforms along several axes, of short pieces, and of spectra of real numbers.

use crate::{on_devices, run};

/// The transform of `rows` by `cols` pairs along both axes, by its definition.
fn transform(x: &[f64], rows: usize, cols: usize) -> Vec<f64> {
    let mut y = Vec::new();
    for (k, l) in (0..rows).flat_map(|k| (0..cols).map(move |l| (k, l))) {
        let (mut re, mut im) = (0.0, 0.0);
        for (i, j) in (0..rows).flat_map(|i| (0..cols).map(move |j| (i, j))) {
            let turns = (i * k) as f64 / rows as f64 + (j * l) as f64 / cols as f64;
            let (sine, cosine) = (-std::f64::consts::TAU * turns).sin_cos();
            let [a, b] = [0, 1].map(|part| x[2 * (i * cols + j) + part]);
            (re, im) = (re + a * cosine - b * sine, im + a * sine + b * cosine);
        }
        y.extend([re, im]);
    }
    y
}

fn assert_near(found: &[f64], expected: &[f64]) {
    let is_near = |(found, expected): (&f64, &f64)| (found - expected).abs() < 1e-5;
    assert!(found.len() == expected.len() && found.iter().zip(expected).all(is_near), "{found:?}, not {expected:?}");
}

fn numbers(count: u32) -> Vec<f64> {
    (0..count).map(|i| f64::from((i * 7 + 3) % 11) / 4.0 - 1.0).collect()
}

/// `torch.fft.fft2`, and back by `ifft2`.
#[test]
fn fft2() {
    on_devices(|device| {
        let x = numbers(24);
        let mut y = x.clone();
        for axis in [1, 0] {
            let along = format!(r#"fft {{"x":{{"dtype":"f32","dims":[3,4,2]}},"axis":{axis}}}"#);
            [y] = run(device, &along, &[("x", &y)], ["y"]);
        }
        assert_near(&y, &transform(&x, 3, 4));
        for (axis, scale) in [(1, 0.25), (0, 1.0 / 3.0)] {
            let back = format!(
                r#"fft {{"x":{{"dtype":"f32","dims":[3,4,2]}},"axis":{axis},"direction":"inverse","scale":{scale}}}"#
            );
            [y] = run(device, &back, &[("x", &y)], ["y"]);
        }
        assert_near(&y, &x);
    });
}

/// `torch.fft.rfft2`, and back by `irfft2`.
#[test]
fn rfft2() {
    on_devices(|device| {
        let x = numbers(12);
        let pairs: Vec<f64> = x.iter().flat_map(|&x| [x, 0.0]).collect();
        let rows = r#"rfft {"x":{"dtype":"f32","dims":[3,4]},"axis":1}"#;
        let [half] = run(device, rows, &[("x", &x)], ["y"]);
        let columns = r#"fft {"x":{"dtype":"f32","dims":[3,3,2]},"axis":0}"#;
        let [half] = run(device, columns, &[("x", &half)], ["y"]);
        let whole = transform(&pairs, 3, 4);
        let expected: Vec<f64> = whole.chunks(8).flat_map(|row| row[..6].to_vec()).collect();
        assert_near(&half, &expected);
        let columns =
            r#"fft {"x":{"dtype":"f32","dims":[3,3,2]},"axis":0,"direction":"inverse","scale":0.3333333333333333}"#;
        let [half] = run(device, columns, &[("x", &half)], ["y"]);
        let rows = r#"irfft {"x":{"dtype":"f32","dims":[3,3,2]},"axis":1,"length":4,"scale":0.25}"#;
        let [y] = run(device, rows, &[("x", &half)], ["y"]);
        assert_near(&y, &x);
    });
}

/// `torch.fft.hfft` with 6 points of the spectrum, and back by `ihfft`.
#[test]
fn hfft() {
    on_devices(|device| {
        let mut x = numbers(8);
        // Of a real spectrum the first number and the one in the middle are real.
        (x[1], x[7]) = (0.0, 0.0);
        let conjugate = r#"pointwise {"program":{"inputs":["x","s"],"let":[["y","mul","x","s"]],"outputs":["y"]},"inputs":[{"dtype":"f32","dims":[4,2]},{"dtype":"f32","dims":[2]}]}"#;
        let [turned] = run(device, conjugate, &[("in0", &x), ("in1", &[1.0, -1.0])], ["out0"]);
        let [spectrum] =
            run(device, r#"irfft {"x":{"dtype":"f32","dims":[4,2]},"axis":0,"length":6}"#, &[("x", &turned)], ["y"]);
        let whole = [&x[..], &[x[4], -x[5], x[2], -x[3]]].concat();
        let expected: Vec<f64> = transform(&whole, 1, 6).chunks(2).map(|pair| pair[0]).collect();
        assert_near(&spectrum, &expected);
        let back = r#"rfft {"x":{"dtype":"f32","dims":[6]},"axis":0,"scale":0.16666666666666666}"#;
        let [half] = run(device, back, &[("x", &spectrum)], ["y"]);
        let [y] = run(device, conjugate, &[("in0", &half), ("in1", &[1.0, -1.0])], ["out0"]);
        assert_near(&y, &x);
    });
}

/// `torch.stft` of 8 points with frames of 4, 2 apart, centred, with zeros at the ends, and back by `istft`.
#[test]
fn stft() {
    on_devices(|device| {
        let (x, window) = (numbers(8), [0.5, 1.0, 0.75, 0.25]);
        let pad = r#"pad {"x":{"dtype":"f32","dims":[8]},"before":[2],"after":[2],"value":0}"#;
        let [padded] = run(device, pad, &[("x", &x)], ["y"]);
        let frames = |line: &[f64]| -> Vec<f64> { (0..5).flat_map(|at| line[2 * at..2 * at + 4].to_vec()).collect() };
        let weigh = r#"pointwise {"program":{"inputs":["x","w"],"let":[["y","mul","x","w"]],"outputs":["y"]},"inputs":[{"dtype":"f32","dims":[5,4],"strides":[2,1]},{"dtype":"f32","dims":[4]}]}"#;
        let [weighed] = run(device, weigh, &[("in0", &frames(&padded)), ("in1", &window)], ["out0"]);
        let [half] = run(device, r#"rfft {"x":{"dtype":"f32","dims":[5,4]},"axis":1}"#, &[("x", &weighed)], ["y"]);
        let mut expected = Vec::new();
        for frame in frames(&padded).chunks(4) {
            let pairs: Vec<f64> = frame.iter().zip(window).flat_map(|(x, w)| [x * w, 0.0]).collect();
            expected.extend_from_slice(&transform(&pairs, 1, 4)[..6]);
        }
        assert_near(&half, &expected);
        let back = r#"irfft {"x":{"dtype":"f32","dims":[5,3,2]},"axis":1,"length":4,"scale":0.25}"#;
        let [back] = run(device, back, &[("x", &half)], ["y"]);
        let weigh = weigh.replace(r#","strides":[2,1]"#, "");
        let add = r#"index_add {"y":{"dtype":"f32","dims":[12]},"axis":0,"indices":{"dtype":"i32","dims":[20]},"combine":"add"}"#;
        let places: Vec<f64> = (0..5).flat_map(|at| (0..4).map(move |k| f64::from(2 * at + k))).collect();
        let mut sums = [Vec::new(), Vec::new()];
        for (sum, terms) in sums.iter_mut().zip([back, window.repeat(5)]) {
            let [terms] = run(device, &weigh, &[("in0", &terms), ("in1", &window)], ["out0"]);
            [*sum] = run(device, add, &[("indices", &places), ("source", &terms)], ["y"]);
        }
        let divide = r#"pointwise {"program":{"inputs":["x","w"],"let":[["y","div","x","w"]],"outputs":["y"]},"inputs":[{"dtype":"f32","dims":[12]},{"dtype":"f32","dims":[12]}]}"#;
        let [y] = run(device, divide, &[("in0", &sums[0]), ("in1", &sums[1])], ["out0"]);
        assert_near(&y[2..10], &x);
    });
}
