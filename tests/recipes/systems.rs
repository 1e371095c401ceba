//! Systems of equations.

use baracuda_ops::Device;

use crate::{on_devices, run};

/// A lower triangular factor L; `L L^T` is [[4, 2, -2], [2, 10, 5], [-2, 5, 9]].
const FACTOR: [f64; 9] = [2.0, 0.0, 0.0, 1.0, 3.0, 0.0, -1.0, 2.0, 2.0];

/// `L L^T x = b` for right-hand sides of so many columns.
fn solve_with_factor(device: &Device, b: &[f64]) -> Vec<f64> {
    let columns = b.len() / 3;
    let line = |transpose: &str| {
        format!(
            r#"triangular_solve {{"a":{{"dtype":"f32","dims":[3,3]}},"b":{{"dtype":"f32","dims":[3,{columns}]}}{transpose}}}"#
        )
    };
    let [y] = run(device, &line(""), &[("a", &FACTOR), ("b", b)], ["x"]);
    let [x] = run(device, &line(r#","transpose":true"#), &[("a", &FACTOR), ("b", &y)], ["x"]);
    x
}

/// Whether results are these but for a few roundings.
fn assert_near(found: &[f64], expected: &[f64]) {
    let is_near = |(found, expected): (&f64, &f64)| (found - expected).abs() < 1e-5;
    assert!(found.len() == expected.len() && found.iter().zip(expected).all(is_near), "{found:?}, {expected:?}");
}

/// `torch.cholesky_solve`.
#[test]
fn cholesky_solve() {
    on_devices(|device| {
        // The columns of A times [1, 2, 3] and times [0, -1, 1].
        let b = [2.0, -4.0, 37.0, -5.0, 35.0, 4.0];
        assert_near(&solve_with_factor(device, &b), &[1.0, 0.0, 2.0, -1.0, 3.0, 1.0]);
    });
}

/// `torch.cholesky_inverse`: the solution for an identity.
#[test]
fn cholesky_inverse() {
    on_devices(|device| {
        let identity = r#"pointwise {"program":{"inputs":[],"let":[["i","index",0],["j","index",1],["d","eq","i","j"],["y","where","d",1,0]],"outputs":["y"]},"inputs":[],"outputs":["f32"],"dims":[3,3]}"#;
        let [identity] = run(device, identity, &[], ["out0"]);
        // det(A) is the square of 12, and the adjugate is symmetric.
        let expected = [65.0, -28.0, 30.0, -28.0, 32.0, -24.0, 30.0, -24.0, 36.0].map(|minor| minor / 144.0);
        assert_near(&solve_with_factor(device, &identity), &expected);
    });
}
