//! Elements at places that tensors name.

use baracuda_ops::Device;

use crate::{on_devices, run};

/// The numbers of elements of a matrix of 3 by 4 at four pairs of indices, and -1 where a mask is false.
fn masked_numbers(device: &Device) -> Vec<f64> {
    let numbers = r#"pointwise {"program":{"inputs":["m","i","j"],"let":[["t","mul","i",4],["n","add","t","j"],["k","where","m","n",-1]],"outputs":["k"]},"inputs":[{"dtype":"bool","dims":[4]},{"dtype":"i32","dims":[4]},{"dtype":"i32","dims":[4]}]}"#;
    // Where the mask is false indices may be anything.
    let operands: [(&str, &[f64]); 3] =
        [("in0", &[1.0, 0.0, 1.0, 1.0]), ("in1", &[2.0, -7.0, 0.0, 2.0]), ("in2", &[1.0, 9.0, 3.0, 1.0])];
    let [numbers] = run(device, numbers, &operands, ["out0"]);
    numbers
}

/// `torch._unsafe_masked_index`: what the indices name where a mask is true, else a number.
#[test]
fn masked_index() {
    on_devices(|device| {
        let x: Vec<f64> = (0..12).map(f64::from).collect();
        let select = r#"index_select {"x":{"dtype":"f32","dims":[12]},"axis":0,"indices":{"dtype":"i32","dims":[4]},"fill":0.5}"#;
        let [y] = run(device, select, &[("x", &x), ("indices", &masked_numbers(device))], ["y"]);
        assert_eq!(y, [9.0, 0.5, 3.0, 9.0]);
    });
}

/// `torch._unsafe_masked_index_put_accumulate`.
#[test]
fn masked_index_put_accumulate() {
    on_devices(|device| {
        let add = r#"index_add {"y":{"dtype":"f32","dims":[12]},"axis":0,"indices":{"dtype":"i32","dims":[4]},"combine":"add","base":true}"#;
        let numbers = masked_numbers(device);
        let operands: [(&str, &[f64]); 3] =
            [("indices", &numbers), ("source", &[1.0, 2.0, 4.0, 8.0]), ("base", &[0.5; 12])];
        let [y] = run(device, add, &operands, ["y"]);
        let mut expected = [0.5; 12];
        (expected[3], expected[9]) = (4.5, 9.5);
        assert_eq!(y, expected);
    });
}

/// burn's `float_select_assign`, `int_select_assign` and `bool_select_assign` along the second axis: with a sum, or as the last that comes; of Bool as the
/// disjunction, which of its bytes is the greatest.
#[test]
fn select_assign() {
    on_devices(|device| {
        let assign = |dtype: &str, combine: &str, source: &[f64], base: &[f64]| {
            let line = format!(
                r#"index_add {{"y":{{"dtype":"{dtype}","dims":[2,3]}},"axis":1,"indices":{{"dtype":"i32","dims":[3]}},"combine":"{combine}","base":true}}"#
            );
            let operands: [(&str, &[f64]); 3] = [("indices", &[2.0, 0.0, 2.0]), ("source", source), ("base", base)];
            let [y] = run(device, &line, &operands, ["y"]);
            y
        };
        let (source, base) = ([1.0, 2.0, 4.0, 8.0, 16.0, 32.0], [-1.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
        for dtype in ["f32", "i32"] {
            assert_eq!(assign(dtype, "add", &source, &base), [1.0, 5.0, 11.0, 23.0, 8.0, 49.0], "{dtype}");
            assert_eq!(assign(dtype, "set", &source, &base), [2.0, 5.0, 4.0, 16.0, 8.0, 32.0], "{dtype}");
        }
        let (source, base) = ([1.0, 0.0, 0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0, 1.0, 1.0]);
        assert_eq!(assign("bool", "set", &source, &base), [0.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
        // A Bool is a byte of 0 or 1, and so is the greatest of several: a program describes its Bool tensors as u8.
        assert_eq!(assign("u8", "max", &source, &base), [1.0, 0.0, 1.0, 0.0, 1.0, 1.0]);
    });
}

/// burn's `bool_scatter` with a disjunction, and `bool_scatter_nd`, whose indices are pairs that a program makes numbers of elements of.
#[test]
fn bool_scatter() {
    on_devices(|device| {
        let along = r#"scatter {"y":{"dtype":"u8","dims":[2,3]},"axis":1,"indices":{"dtype":"i32","dims":[2,2]},"combine":"max","base":true}"#;
        let base = [0.0, 1.0, 0.0, 0.0, 0.0, 1.0];
        let operands: [(&str, &[f64]); 3] =
            [("indices", &[2.0, 2.0, 0.0, 2.0]), ("source", &[1.0, 0.0, 0.0, 0.0]), ("base", &base)];
        let [y] = run(device, along, &operands, ["y"]);
        assert_eq!(y, [0.0, 1.0, 1.0, 0.0, 0.0, 1.0]);
        let number = r#"pointwise {"program":{"inputs":["i","j"],"let":[["t","mul","i",3],["n","add","t","j"]],"outputs":["n"]},"inputs":[{"dtype":"i32","dims":[3],"strides":[2]},{"dtype":"i32","dims":[3],"strides":[2]}]}"#;
        let [numbers] = run(device, number, &[("in0", &[1.0, 0.0, 1.0]), ("in1", &[1.0, 1.0, 2.0])], ["out0"]);
        for (dtype, combine, expected) in
            [("u8", "max", [0.0, 1.0, 0.0, 0.0, 1.0, 1.0]), ("bool", "set", [0.0, 0.0, 0.0, 0.0, 1.0, 0.0])]
        {
            let line = format!(
                r#"index_add {{"y":{{"dtype":"{dtype}","dims":[6]}},"axis":0,"indices":{{"dtype":"i32","dims":[3]}},"combine":"{combine}","base":true}}"#
            );
            let operands: [(&str, &[f64]); 3] = [("indices", &numbers), ("source", &[1.0, 0.0, 0.0]), ("base", &base)];
            let [y] = run(device, &line, &operands, ["y"]);
            assert_eq!(y, expected, "{combine}");
        }
    });
}

/// `torch.segment_reduce` by lengths, whose sums are where segments end: of each reduction, with its identity where a segment is empty.
#[test]
fn segment_reduce() {
    on_devices(|device| {
        let lengths = [2.0, 0.0, 3.0, 1.0];
        let ends = r#"scan {"x":{"dtype":"i32","dims":[4]},"axis":0,"scan":"sum","output":"i32"}"#;
        let [ends] = run(device, ends, &[("x", &lengths)], ["y"]);
        let rows = r#"pointwise {"program":{"inputs":[],"let":[["i","index",0]],"outputs":["i"]},"inputs":[],"outputs":["i32"],"dims":[6]}"#;
        let [rows] = run(device, rows, &[], ["out0"]);
        let search = r#"search_sorted {"sorted":{"dtype":"i32","dims":[4]},"values":{"dtype":"i32","dims":[6]},"right":true,"indices":"i32"}"#;
        let [segments] = run(device, search, &[("sorted", &ends), ("values", &rows)], ["indices"]);
        let data = [1.0, 5.0, 2.0, -3.0, -1.0, 4.0, 6.0, 0.5, 7.0, 2.0, 9.0, 8.0];
        let of_segments = |combine: &str, identity: f64| {
            let line = format!(
                r#"index_add {{"y":{{"dtype":"f32","dims":[4,2]}},"axis":0,"indices":{{"dtype":"i32","dims":[6]}},"combine":"{combine}","base":true}}"#
            );
            let operands: [(&str, &[f64]); 3] = [("indices", &segments), ("source", &data), ("base", &[identity; 8])];
            let [y] = run(device, &line, &operands, ["y"]);
            y
        };
        let infinity = f64::INFINITY;
        let sums = of_segments("add", 0.0);
        assert_eq!(sums, [3.0, 2.0, 0.0, 0.0, 12.0, 6.5, 9.0, 8.0]);
        assert_eq!(of_segments("multiply", 1.0), [2.0, -15.0, 1.0, 1.0, -42.0, 4.0, 9.0, 8.0]);
        assert_eq!(of_segments("max", -infinity), [2.0, 5.0, -infinity, -infinity, 7.0, 4.0, 9.0, 8.0]);
        assert_eq!(of_segments("min", infinity), [1.0, -3.0, infinity, infinity, -1.0, 0.5, 9.0, 8.0]);
        let divide = r#"pointwise {"program":{"inputs":["s","n"],"let":[["y","div","s","n"]],"outputs":["y"]},"inputs":[{"dtype":"f32","dims":[4,2]},{"dtype":"f32","dims":[4,1]}]}"#;
        let [means] = run(device, divide, &[("in0", &sums), ("in1", &lengths)], ["out0"]);
        assert!(means[2].is_nan() && means[3].is_nan(), "{means:?}");
        assert_eq!([&means[..2], &means[6..]].concat(), [1.5, 1.0, 9.0, 8.0]);
        assert!((means[4] - 4.0).abs() < 1e-6 && (means[5] - 6.5 / 3.0).abs() < 1e-6, "{means:?}");
    });
}
