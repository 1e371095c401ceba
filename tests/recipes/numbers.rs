//! Sums of integers, bits of words and parts of numbers, and functions of a whole order.

use crate::{on_devices, run};

/// burn's `int_matmul`: sums of products, which wrap.
#[test]
fn int_matmul() {
    on_devices(|device| {
        let product = r#"reduce {"program":{"inputs":["a","b"],"let":[["p","mul","a","b"]],"outputs":["p"]},"inputs":[{"dtype":"i32","dims":[2,3,1]},{"dtype":"i32","dims":[3,2]}],"axes":[1],"reduce":"sum","output":"i32"}"#;
        let (a, b) = ([1.0, -2.0, 3.0, 65536.0, 5.0, 6.0], [7.0, 65536.0, 8.0, 9.0, -1.0, 2.0]);
        let [y] = run(device, product, &[("in0", &a), ("in1", &b)], ["out0"]);
        assert_eq!(y, [-12.0, 65524.0, 458_786.0, 57.0]);
    });
}

/// `jax.lax.reduce_xor`: of each bit how often it is set, of which the last bit counts.
#[test]
fn reduce_xor() {
    on_devices(|device| {
        let x = [5.0, -3.0, 1_073_741_824.0, 12.0, -2_147_483_648.0];
        let places = r#"pointwise {"program":{"inputs":[],"let":[["i","index",0]],"outputs":["i"]},"inputs":[],"outputs":["i32"],"dims":[32]}"#;
        let [places] = run(device, places, &[], ["out0"]);
        let count = r#"reduce {"program":{"inputs":["x","k"],"let":[["s","shift_right","x","k"],["b","bitwise_and","s",1]],"outputs":["b"]},"inputs":[{"dtype":"i32","dims":[5,1]},{"dtype":"i32","dims":[32]}],"axes":[0],"reduce":"sum","output":"i32"}"#;
        let [counts] = run(device, count, &[("in0", &x), ("in1", &places)], ["out0"]);
        let together = r#"reduce {"program":{"inputs":["n","k"],"let":[["b","bitwise_and","n",1],["s","shift_left","b","k"]],"outputs":["s"]},"inputs":[{"dtype":"i32","dims":[32]},{"dtype":"i32","dims":[32]}],"axes":[0],"reduce":"sum","output":"i32"}"#;
        let [y] = run(device, together, &[("in0", &counts), ("in1", &places)], ["out0"]);
        assert_eq!(y, [f64::from(5 ^ -3 ^ 0x4000_0000 ^ 12 ^ i32::MIN)]);
    });
}

/// `jax.lax.rng_bit_generator`: numbers from 0 to below 2^32 are whole words. Those of a seed and an offset of 0 are the first block of Philox 4x32-10, a vector of
/// its paper; the next state is an offset of 1 more.
#[test]
fn random_bits() {
    on_devices(|device| {
        let draw = r#"pointwise {"program":{"inputs":["seed","step"],"let":[["w","randint","seed","step",0,0,4294967296]],"outputs":["w"]},"inputs":[{"dtype":"u32","dims":[2]},{"dtype":"u32","dims":[]}],"outputs":["u32"],"dims":[4]}"#;
        let [bits] = run(device, draw, &[("in0", &[0.0; 2]), ("in1", &[0.0])], ["out0"]);
        assert_eq!(bits, [0x6627_e8d5u32, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8].map(f64::from));
        let next = r#"pointwise {"program":{"inputs":["step"],"let":[["n","add","step",1]],"outputs":["n"]},"inputs":[{"dtype":"u32","dims":[]}]}"#;
        let [step] = run(device, next, &[("in0", &[0.0])], ["out0"]);
        let [others] = run(device, draw, &[("in0", &[0.0; 2]), ("in1", &step)], ["out0"]);
        assert!(others != bits);
    });
}

/// `torch.polygamma` of x above 0, as `jax.lax.polygamma` with an order that is an operand, and with one that is a number: `(-1)^(n + 1) n! zeta(n + 1, x)`.
#[test]
fn polygamma() {
    on_devices(|device| {
        let assert_near = |found: &[f64], expected: &[f64]| {
            let is_near = |(found, expected): (&f64, &f64)| (found / expected - 1.0).abs() < 1e-5;
            assert!(found.iter().zip(expected).all(is_near), "{found:?}, not {expected:?}");
        };
        let orders = r#"pointwise {"program":{"inputs":["n","x"],"let":[["m","add","n",1],["z","zeta","m","x"],["l","lgamma","m"],["f","exp","l"],["a","mul","f","z"],["r","remainder","m",2],["c","eq","r",0],["o","neg","a"],["y","where","c","a","o"]],"outputs":["y"]},"inputs":[{"dtype":"f32","dims":[4]},{"dtype":"f32","dims":[4]}]}"#;
        let [y] = run(device, orders, &[("in0", &[1.0, 1.0, 2.0, 3.0]), ("in1", &[1.0, 0.5, 1.0, 2.5])], ["out0"]);
        let pi = std::f64::consts::PI;
        // Twice zeta(3), and six times the sum of (k + 1/2)^-4 without its first two terms.
        let expected = [pi * pi / 6.0, pi * pi / 2.0, -2.404_113_806_319_188_6, pi.powi(4) - 96.0 * (1.0 + 1.0 / 81.0)];
        assert_near(&y, &expected);
        let second = r#"pointwise {"program":{"inputs":["x"],"let":[["z","zeta",3,"x"],["y","mul","z",-2]],"outputs":["y"]},"inputs":[{"dtype":"f32","dims":[1]}]}"#;
        let [y] = run(device, second, &[("in0", &[1.0])], ["out0"]);
        assert_near(&y, &expected[2..3]);
    });
}

/// `torch.frexp`: an exponent that the rounding of the logarithm may leave one off, then the two parts.
#[test]
fn frexp() {
    on_devices(|device| {
        let parts = r#"pointwise {"program":{"inputs":["x"],"let":[
            ["s","abs","x"],["l","log2","s"],["f","floor","l"],["o","neg","f"],["t","ldexp","s","o"],
            ["a","ge","t",2],["b","lt","t",1],["up","where","a",2,1],["n","where","b",0,"up"],["e","add","f","n"],
            ["z","eq","s",0],["v","isfinite","x"],["w","logical_not","z"],["k","logical_and","v","w"],["exponent","where","k","e",0],
            ["p","neg","exponent"],["mantissa","ldexp","x","p"]],"outputs":["mantissa","exponent"]},
            "inputs":[{"dtype":"f32","dims":[10]}],"outputs":["f32","i32"]}"#;
        let infinity = f64::INFINITY;
        let below_1 = 1.0 - f64::from(f32::EPSILON) / 2.0;
        let x = [1.0, -3.0, 0.5, below_1, -1024.0, 0.0, 2f64.powi(-126), 1.5 * 2f64.powi(127), -infinity, f64::NAN];
        let [mantissas, exponents] = run(device, &parts.replace('\n', ""), &[("in0", &x)], ["out0", "out1"]);
        assert_eq!(mantissas[..9], [0.5, -0.75, 0.5, below_1, -0.5, 0.0, 0.5, 0.75, -infinity]);
        assert!(mantissas[9].is_nan());
        assert_eq!(exponents, [1.0, 2.0, 0.0, 0.0, 11.0, 0.0, -125.0, 128.0, 0.0, 0.0]);
    });
}
