//! Losses that compare the entries of a row with each other.

use crate::{on_devices, run};

fn assert_near(found: &[f64], expected: &[f64]) {
    let is_near = |(found, expected): (&f64, &f64)| (found - expected).abs() <= 1e-6 * expected.abs().max(1.0);
    assert!(found.len() == expected.len() && found.iter().zip(expected).all(is_near), "{found:?}, not {expected:?}");
}

/// `torch.nn.functional.pdist` with a p of 2 and of 1: the pairs that the positions above the diagonal name.
#[test]
fn pdist() {
    on_devices(|device| {
        let points = [0.0, 0.0, 3.0, 4.0, 3.0, 0.0];
        let above = r#"pointwise {"program":{"inputs":[],"let":[["i","index",0],["j","index",1],["c","lt","i","j"],["m","where","c",1,0]],"outputs":["m"]},"inputs":[],"outputs":["i32"],"dims":[3,3]}"#;
        let [mask] = run(device, above, &[], ["out0"]);
        let positions = r#"nonzero {"x":{"dtype":"i32","dims":[3,3]},"per_axis":true,"indices":"i32","size":3}"#;
        let [pairs] = run(device, positions, &[("x", &mask)], ["indices"]);
        let select =
            r#"index_select {"x":{"dtype":"f32","dims":[3,2]},"axis":0,"indices":{"dtype":"i32","dims":[3,2]}}"#;
        let [ends] = run(device, select, &[("x", &points), ("indices", &pairs)], ["y"]);
        // A program that has the ends on the device describes both with `TensorDesc::narrow`.
        let [first, second] =
            [0, 2].map(|from| ends.chunks(4).flat_map(|pair| pair[from..from + 2].to_vec()).collect::<Vec<_>>());
        for (norm, expected) in [("norm2", [5.0, 3.0, 4.0]), ("norm1", [7.0, 3.0, 4.0])] {
            let line = format!(
                r#"reduce {{"program":{{"inputs":["a","b"],"let":[["d","sub","a","b"]],"outputs":["d"]}},"inputs":[{{"dtype":"f32","dims":[3,2]}},{{"dtype":"f32","dims":[3,2]}}],"axes":[1],"reduce":"{norm}"}}"#
            );
            let [distances] = run(device, &line, &[("in0", &first), ("in1", &second)], ["out0"]);
            assert_near(&distances, &expected);
        }
    });
}

/// `torch.nn.functional.multi_margin_loss`, with weights of the classes: the class of a row has no part in its sum. The last result is the mean, the first the
/// losses of rows.
#[test]
fn multi_margin_loss() {
    on_devices(|device| {
        let (x, classes, weights) = ([0.1, 0.2, 0.4, 0.8, 1.0, -1.0, 0.5, 2.0], [3.0, 2.0], [1.0, 1.0, 0.5, 1.0]);
        let gather = r#"gather {"x":{"dtype":"f32","dims":[2,4]},"axis":1,"indices":{"dtype":"i32","dims":[2,1]}}"#;
        let [own] = run(device, gather, &[("x", &x), ("indices", &classes)], ["y"]);
        let hinge = r#"pointwise {"program":{"inputs":["x","t"],"let":[["d","sub","x","t"],["m","add","d",1],["h","relu","m"]],"outputs":["h"]},"inputs":[{"dtype":"f32","dims":[2,4]},{"dtype":"f32","dims":[2,1]}]}"#;
        let [all] = run(device, hinge, &[("in0", &x), ("in1", &own)], ["out0"]);
        let others = r#"scatter {"y":{"dtype":"f32","dims":[2,4]},"axis":1,"indices":{"dtype":"i32","dims":[2,1]},"combine":"set","base":true,"layouts":{"source":{"dtype":"f32","dims":[2,1],"strides":[0,0]}}}"#;
        let operands: [(&str, &[f64]); 3] = [("indices", &classes), ("source", &[0.0; 2]), ("base", &all)];
        let [others] = run(device, others, &operands, ["y"]);
        let weight = r#"index_select {"x":{"dtype":"f32","dims":[4]},"axis":0,"indices":{"dtype":"i32","dims":[2]}}"#;
        let [weight] = run(device, weight, &[("x", &weights), ("indices", &classes)], ["y"]);
        let loss = |axes: &str| {
            let line = format!(
                r#"reduce {{"program":{{"inputs":["h","w"],"let":[["y","mul","h","w"]],"outputs":["y"]}},"inputs":[{{"dtype":"f32","dims":[2,4]}},{{"dtype":"f32","dims":[2,1]}}],"axes":[{axes}],"reduce":"mean"}}"#
            );
            let [loss] = run(device, &line, &[("in0", &others), ("in1", &weight)], ["out0"]);
            loss
        };
        // (0.3 + 0.4 + 0.6) / 4, and half of (1.5 + 0 + 2.5) / 4.
        assert_near(&loss("1"), &[0.325, 0.5]);
        assert_near(&loss("0,1"), &[0.4125]);
    });
}

/// `torch.nn.functional.multilabel_margin_loss`: the targets of a row end at its first -1.
#[test]
fn multilabel_margin_loss() {
    on_devices(|device| {
        let x = [0.1, 0.2, 0.4, 0.8, 2.0, 0.5, 1.75, -1.0];
        let targets = [3.0, 0.0, -1.0, 1.0, 2.0, -1.0, -1.0, 0.0];
        let least = r#"scan {"x":{"dtype":"i32","dims":[2,4]},"axis":1,"scan":"min"}"#;
        let [least] = run(device, least, &[("x", &targets)], ["y"]);
        let until = r#"pointwise {"program":{"inputs":["t","m"],"let":[["c","ge","m",0],["k","where","c","t",-1]],"outputs":["k"]},"inputs":[{"dtype":"i32","dims":[2,4]},{"dtype":"i32","dims":[2,4]}]}"#;
        let [classes] = run(device, until, &[("in0", &targets), ("in1", &least)], ["out0"]);
        // What no target names is infinite, and so are targets in the place of others: their hinges are 0.
        let gather =
            r#"gather {"x":{"dtype":"f32","dims":[2,4]},"axis":1,"indices":{"dtype":"i32","dims":[2,4]},"fill":"inf"}"#;
        let [own] = run(device, gather, &[("x", &x), ("indices", &classes)], ["y"]);
        let mask = r#"scatter {"y":{"dtype":"f32","dims":[2,4]},"axis":1,"indices":{"dtype":"i32","dims":[2,4]},"combine":"set","base":true,"layouts":{"source":{"dtype":"f32","dims":[2,4],"strides":[0,0]}}}"#;
        let operands: [(&str, &[f64]); 3] = [("indices", &classes), ("source", &[f64::NEG_INFINITY; 8]), ("base", &x)];
        let [others] = run(device, mask, &operands, ["y"]);
        let loss = r#"reduce {"program":{"inputs":["t","x"],"let":[["d","sub","t","x"],["m","sub",1,"d"],["h","relu","m"],["y","mul","h",0.25]],"outputs":["y"]},"inputs":[{"dtype":"f32","dims":[2,4,1]},{"dtype":"f32","dims":[2,1,4]}],"axes":[1,2],"reduce":"sum"}"#;
        let [loss] = run(device, loss, &[("in0", &own), ("in1", &others)], ["out0"]);
        // (1.1 + 1.3 + 0.4 + 0.6) / 4, and (1.25 + 0 + 0) / 4.
        assert_near(&loss, &[0.85, 0.3125]);
    });
}
