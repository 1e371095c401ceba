//! What other libraries have and this one makes of several plans, each once: every recipe runs on every device that is there, and its results are those of PyTorch 2.15,
//! from where they were copied, or those of its definition. docs/recipes.md names the functions of this folder.

use std::collections::BTreeMap;

use baracuda_ops::{AnyDescriptor, Device};
use baracuda_ops_tests::tape::Tape;
use baracuda_ops_tests::target::TARGETS;

mod losses;
mod numbers;
mod places;
mod systems;
mod transforms;
mod windows;

/// Runs a plan, given as a line of a case file with the values of its inputs in row-major order, and returns those of some outputs. A program that keeps what it
/// makes on the device hands one plan's buffers to the next.
fn run<const N: usize>(
    device: &Device,
    line: &str,
    inputs: &[(&'static str, &[f64])],
    outputs: [&str; N],
) -> [Vec<f64>; N] {
    let descriptor = AnyDescriptor::parse_line(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    let inputs: BTreeMap<_, _> = inputs.iter().map(|&(name, values)| (name, values.to_vec())).collect();
    let tape = Tape::new(device, &descriptor, &inputs).unwrap_or_else(|error| panic!("{line} on {device}: {error}"));
    tape.forward().unwrap_or_else(|error| panic!("{line} on {device}: {error}"));
    outputs.map(|name| tape.values(name).unwrap_or_else(|error| panic!("{line} on {device}: {error}")))
}

/// Tries a recipe on every device.
fn on_devices(recipe: impl Fn(&Device)) {
    for target in TARGETS.iter() {
        if let Ok(device) = &target.device {
            recipe(device);
        }
    }
}

/// Runs of equal neighbours among eight numbers: whether each begins one, and the number of the run that each belongs to.
fn runs(device: &Device, x: &[f64]) -> [Vec<f64>; 2] {
    // A program that has x on the device describes both operands with `TensorDesc::narrow`.
    let differ = r#"pointwise {"program":{"inputs":["a","b"],"let":[["n","ne","a","b"]],"outputs":["n"]},"inputs":[{"dtype":"f32","dims":[7]},{"dtype":"f32","dims":[7]}]}"#;
    let [changes] = run(device, differ, &[("in0", &x[1..]), ("in1", &x[..7])], ["out0"]);
    let first = r#"pad {"x":{"dtype":"bool","dims":[7]},"before":[1],"after":[0],"value":1}"#;
    let [begins] = run(device, first, &[("x", &changes)], ["y"]);
    let cast = r#"pointwise {"program":{"inputs":["b"],"outputs":["b"]},"inputs":[{"dtype":"bool","dims":[8]}],"outputs":["i32"]}"#;
    let [numbers] = run(device, cast, &[("in0", &begins)], ["out0"]);
    let sums = r#"scan {"x":{"dtype":"i32","dims":[8]},"axis":0,"scan":"sum","output":"i32"}"#;
    let [until] = run(device, sums, &[("x", &numbers)], ["y"]);
    let less = r#"pointwise {"program":{"inputs":["n"],"let":[["m","sub","n",1]],"outputs":["m"]},"inputs":[{"dtype":"i32","dims":[8]}]}"#;
    let [group] = run(device, less, &[("in0", &until)], ["out0"]);
    [begins, group]
}

/// The first number of each of eight that begin runs, how many runs there are, and how many numbers each has.
fn values_and_counts(device: &Device, x: &[f64], begins: &[f64], group: &[f64]) -> [Vec<f64>; 3] {
    let where_ = r#"nonzero {"x":{"dtype":"bool","dims":[8]},"indices":"i32","count":"u32"}"#;
    let [starts, count] = run(device, where_, &[("x", begins)], ["indices", "count"]);
    let select = r#"index_select {"x":{"dtype":"f32","dims":[8]},"axis":0,"indices":{"dtype":"i32","dims":[8]}}"#;
    let [values] = run(device, select, &[("x", x), ("indices", &starts)], ["y"]);
    let counts = r#"index_add {"y":{"dtype":"i32","dims":[8]},"axis":0,"indices":{"dtype":"i32","dims":[8]},"combine":"add","layouts":{"source":{"dtype":"i32","dims":[8],"strides":[0]}}}"#;
    let [counts] = run(device, counts, &[("indices", group), ("source", &[1.0; 8])], ["y"]);
    [values, count, counts]
}

/// `torch.unique(x, return_inverse=True, return_counts=True)`: behind as many as `count` says the results are 0.
#[test]
fn unique() {
    on_devices(|device| {
        let x = [3.0, 1.0, 2.0, 3.0, 1.0, 1.0, 5.0, 2.0];
        let sort = r#"sort {"x":{"dtype":"f32","dims":[8]},"axis":0,"values":true,"indices":"i32"}"#;
        let [sorted, order] = run(device, sort, &[("x", &x)], ["values", "indices"]);
        let [begins, group] = runs(device, &sorted);
        let [values, count, counts] = values_and_counts(device, &sorted, &begins, &group);
        let back =
            r#"scatter {"y":{"dtype":"i32","dims":[8]},"axis":0,"indices":{"dtype":"i32","dims":[8]},"combine":"set"}"#;
        let [inverse] = run(device, back, &[("indices", &order), ("source", &group)], ["y"]);
        assert_eq!((count, values), (vec![4.0], vec![1.0, 2.0, 3.0, 5.0, 0.0, 0.0, 0.0, 0.0]));
        assert_eq!(inverse, [2.0, 0.0, 1.0, 2.0, 0.0, 0.0, 3.0, 1.0]);
        assert_eq!(counts, [3.0, 2.0, 2.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
    });
}

/// `torch.unique_consecutive`, likewise.
#[test]
fn unique_consecutive() {
    on_devices(|device| {
        let x = [3.0, 3.0, 1.0, 2.0, 2.0, 2.0, 3.0, 3.0];
        let [begins, inverse] = runs(device, &x);
        let [values, count, counts] = values_and_counts(device, &x, &begins, &inverse);
        assert_eq!((count, &values[..4]), (vec![4.0], &[3.0, 1.0, 2.0, 3.0][..]));
        assert_eq!(inverse, [0.0, 0.0, 1.0, 2.0, 2.0, 2.0, 3.0, 3.0]);
        assert_eq!(counts[..4], [2.0, 1.0, 3.0, 2.0]);
    });
}

/// `torch.masked_select`, with as many elements as x has, of which the first `count` are selected.
#[test]
fn masked_select() {
    on_devices(|device| {
        let (x, mask) = ([1.0, -2.0, 3.0, f64::INFINITY, 5.0, 6.0], [1.0, 0.0, 0.0, 1.0, 0.0, 1.0]);
        let nonzero = r#"nonzero {"x":{"dtype":"bool","dims":[2,3]},"indices":"i32","count":"u32"}"#;
        let [at, count] = run(device, nonzero, &[("x", &mask)], ["indices", "count"]);
        let select = r#"index_select {"x":{"dtype":"f32","dims":[6]},"axis":0,"indices":{"dtype":"i32","dims":[6]}}"#;
        let [selected] = run(device, select, &[("x", &x), ("indices", &at)], ["y"]);
        assert_eq!((count, selected), (vec![3.0], vec![1.0, f64::INFINITY, 6.0, 0.0, 0.0, 0.0]));
    });
}

/// `torch.masked_scatter`.
#[test]
fn masked_scatter() {
    on_devices(|device| {
        let (mask, source) = ([1.0, 0.0, 1.0, 0.0, 1.0, 0.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let cast = r#"pointwise {"program":{"inputs":["b"],"outputs":["b"]},"inputs":[{"dtype":"bool","dims":[6]}],"outputs":["i32"]}"#;
        let [numbers] = run(device, cast, &[("in0", &mask)], ["out0"]);
        let before = r#"scan {"x":{"dtype":"i32","dims":[6]},"axis":0,"scan":"sum","exclusive":true,"output":"i32"}"#;
        let [before] = run(device, before, &[("x", &numbers)], ["y"]);
        let select = r#"index_select {"x":{"dtype":"f32","dims":[6]},"axis":0,"indices":{"dtype":"i32","dims":[6]}}"#;
        let [selected] = run(device, select, &[("x", &source), ("indices", &before)], ["y"]);
        let choose = r#"pointwise {"program":{"inputs":["m","s","x"],"let":[["y","where","m","s","x"]],"outputs":["y"]},"inputs":[{"dtype":"bool","dims":[6]},{"dtype":"f32","dims":[6]},{"dtype":"f32","dims":[6]}]}"#;
        let operands: [(&str, &[f64]); 3] = [("in0", &mask), ("in1", &selected), ("in2", &[0.0; 6])];
        let [y] = run(device, choose, &operands, ["out0"]);
        assert_eq!(y, [1.0, 0.0, 2.0, 0.0, 3.0, 0.0]);
    });
}

/// `torch.argwhere`, and `torch.tril_indices(3, 4, -1)`, which are those of a mask that a program makes; PyTorch has a row for each axis.
#[test]
fn tril_indices() {
    on_devices(|device| {
        let below = r#"pointwise {"program":{"inputs":[],"let":[["i","index",0],["j","index",1],["c","gt","i","j"],["m","where","c",1,0]],"outputs":["m"]},"inputs":[],"outputs":["i32"],"dims":[3,4]}"#;
        let [mask] = run(device, below, &[], ["out0"]);
        let positions = r#"nonzero {"x":{"dtype":"i32","dims":[3,4]},"per_axis":true,"indices":"i32","size":3}"#;
        let [indices] = run(device, positions, &[("x", &mask)], ["indices"]);
        assert_eq!(indices, [1.0, 0.0, 2.0, 0.0, 2.0, 1.0]);
    });
}

/// `torch.combinations` of four numbers by two: those that the positions above the diagonal name.
#[test]
fn combinations() {
    on_devices(|device| {
        let above = r#"pointwise {"program":{"inputs":[],"let":[["i","index",0],["j","index",1],["c","lt","i","j"],["m","where","c",1,0]],"outputs":["m"]},"inputs":[],"outputs":["i32"],"dims":[4,4]}"#;
        let [mask] = run(device, above, &[], ["out0"]);
        let positions = r#"nonzero {"x":{"dtype":"i32","dims":[4,4]},"per_axis":true,"indices":"i32","size":6}"#;
        let [indices] = run(device, positions, &[("x", &mask)], ["indices"]);
        let select = r#"index_select {"x":{"dtype":"f32","dims":[4]},"axis":0,"indices":{"dtype":"i32","dims":[6,2]}}"#;
        let [pairs] = run(device, select, &[("x", &[5.0, 6.0, 7.0, 8.0]), ("indices", &indices)], ["y"]);
        assert_eq!(pairs, [5.0, 6.0, 5.0, 7.0, 5.0, 8.0, 6.0, 7.0, 6.0, 8.0, 7.0, 8.0]);
    });
}

/// `torch.bincount`, with weights and without, with as many bins as are asked for; numbers beyond them are left out.
#[test]
fn bincount() {
    on_devices(|device| {
        let x = [1.0, 4.0, 1.0, 0.0, 4.0, 4.0];
        let weighted = r#"index_add {"y":{"dtype":"f32","dims":[5]},"axis":0,"indices":{"dtype":"i64","dims":[6]},"combine":"add"}"#;
        let weights = [1.0, 0.5, 2.0, 3.0, 0.25, 0.125];
        let [sums] = run(device, weighted, &[("indices", &x), ("source", &weights)], ["y"]);
        assert_eq!(sums, [3.0, 3.0, 0.0, 0.0, 0.875]);
        let plain = r#"index_add {"y":{"dtype":"i32","dims":[7]},"axis":0,"indices":{"dtype":"i64","dims":[6]},"combine":"add","layouts":{"source":{"dtype":"i32","dims":[6],"strides":[0]}}}"#;
        let [counts] = run(device, plain, &[("indices", &x), ("source", &[1.0; 6])], ["y"]);
        assert_eq!(counts, [1.0, 2.0, 0.0, 0.0, 3.0, 0.0, 0.0]);
    });
}

/// In which of three bins, of which the last has its upper edge as well, each of ten numbers lies: below the first edge -1, above the last 3, which are out of range.
fn bins_of(device: &Device, edges: &[f64], x: &[f64]) -> Vec<f64> {
    let search = |side: &str| {
        let line = format!(
            r#"search_sorted {{"sorted":{{"dtype":"f32","dims":[4]}},"values":{{"dtype":"f32","dims":[10]}},{side}"indices":"i32"}}"#
        );
        let [found] = run(device, &line, &[("sorted", edges), ("values", x)], ["indices"]);
        found
    };
    let (right, left) = (search(r#""right":true,"#), search(""));
    let bin = r#"pointwise {"program":{"inputs":["r","l"],"let":[["c","eq","r",4],["p","where","c","l","r"],["b","sub","p",1]],"outputs":["b"]},"inputs":[{"dtype":"i32","dims":[10]},{"dtype":"i32","dims":[10]}]}"#;
    let [bins] = run(device, bin, &[("in0", &right), ("in1", &left)], ["out0"]);
    bins
}

/// How many of ten numbers lie in each of three bins.
fn histogram_of(device: &Device, edges: &[f64], x: &[f64]) -> Vec<f64> {
    let bins = bins_of(device, edges, x);
    let count = r#"index_add {"y":{"dtype":"i32","dims":[3]},"axis":0,"indices":{"dtype":"i32","dims":[10]},"combine":"add","layouts":{"source":{"dtype":"i32","dims":[10],"strides":[0]}}}"#;
    let [counts] = run(device, count, &[("indices", &bins), ("source", &[1.0; 10])], ["y"]);
    counts
}

/// `torch.histogram` with edges, and `torch.histc(x, 3, -1, 2)`, whose edges are a program's.
#[test]
fn histogram() {
    on_devices(|device| {
        let x = [0.5, -1.0, 2.0, 0.5, 0.25, 1.0, 3.0, -0.5, 2.0, 1.99];
        assert_eq!(histogram_of(device, &[0.0, 0.5, 1.0, 2.0], &x), [1.0, 2.0, 4.0]);
        let edges = r#"pointwise {"program":{"inputs":[],"let":[["i","index",0],["e","sub","i",1]],"outputs":["e"]},"inputs":[],"outputs":["f32"],"dims":[4]}"#;
        let [edges] = run(device, edges, &[], ["out0"]);
        assert_eq!(histogram_of(device, &edges, &x), [2.0, 3.0, 4.0]);
    });
}

/// `torch.histogramdd` of two columns with weights: the bins of both are one number, -1 where either is out of range.
#[test]
fn histogramdd() {
    on_devices(|device| {
        let x = [0.5, -1.0, 2.0, 0.5, 0.25, 1.0, 3.0, -0.5, 2.0, 1.99];
        let y = [1.0, 0.0, 1.0, 0.0, 5.0, -1.0, 0.0, 1.0, 9.0, -1.0];
        let weights: Vec<f64> = (0..10).map(|at| f64::from(1 << at)).collect();
        let [rows, columns] =
            [([0.0, 0.5, 1.0, 2.0], x), ([-1.0, 0.0, 1.0, 5.0], y)].map(|(edges, x)| bins_of(device, &edges, &x));
        let both = r#"pointwise {"program":{"inputs":["i","j"],"let":[["t","mul","i",3],["n","add","t","j"],["m","minimum","i","j"],["g","maximum","i","j"],["a","ge","m",0],["b","lt","g",3],["c","logical_and","a","b"],["k","where","c","n",-1]],"outputs":["k"]},"inputs":[{"dtype":"i32","dims":[10]},{"dtype":"i32","dims":[10]}]}"#;
        let [bins] = run(device, both, &[("in0", &rows), ("in1", &columns)], ["out0"]);
        let add = r#"index_add {"y":{"dtype":"f32","dims":[9]},"axis":0,"indices":{"dtype":"i32","dims":[10]},"combine":"add"}"#;
        let [sums] = run(device, add, &[("indices", &bins), ("source", &weights)], ["y"]);
        assert_eq!(sums, [0.0, 0.0, 16.0, 0.0, 8.0, 1.0, 544.0, 0.0, 4.0]);
    });
}

/// `torch.index_put(accumulate=True)`: the numbers of elements are a program's.
#[test]
fn index_put() {
    on_devices(|device| {
        let number = r#"pointwise {"program":{"inputs":["i","j"],"let":[["t","mul","i",4],["n","add","t","j"]],"outputs":["n"]},"inputs":[{"dtype":"i32","dims":[3]},{"dtype":"i32","dims":[3]}]}"#;
        let [numbers] = run(device, number, &[("in0", &[0.0, 2.0, 0.0]), ("in1", &[1.0, 3.0, 1.0])], ["out0"]);
        let put = |combine: &str| {
            let line = format!(
                r#"index_add {{"y":{{"dtype":"f32","dims":[12]}},"axis":0,"indices":{{"dtype":"i32","dims":[3]}},"combine":"{combine}","base":true}}"#
            );
            let operands: [(&str, &[f64]); 3] =
                [("indices", &numbers), ("source", &[1.0, 2.0, 5.0]), ("base", &[0.5; 12])];
            let [y] = run(device, &line, &operands, ["y"]);
            y
        };
        let mut expected = [0.5; 12];
        (expected[1], expected[11]) = (6.5, 2.5);
        assert_eq!(put("add"), expected);
        (expected[1], expected[11]) = (5.0, 2.0);
        assert_eq!(put("set"), expected);
    });
}

/// `torch.index_fill`: one number that every source is.
#[test]
fn index_fill() {
    on_devices(|device| {
        let fill = r#"index_add {"y":{"dtype":"f32","dims":[3,4]},"axis":1,"indices":{"dtype":"i64","dims":[2]},"combine":"set","base":true,"layouts":{"source":{"dtype":"f32","dims":[3,2],"strides":[0,0]}}}"#;
        let x: Vec<f64> = (0..12).map(f64::from).collect();
        let operands: [(&str, &[f64]); 3] = [("indices", &[0.0, 2.0]), ("source", &[-1.0; 6]), ("base", &x)];
        let [y] = run(device, fill, &operands, ["y"]);
        assert_eq!(y, [-1.0, 1.0, -1.0, 3.0, -1.0, 5.0, -1.0, 7.0, -1.0, 9.0, -1.0, 11.0]);
    });
}

/// `jax.lax.dynamic_update_slice`: where the slice begins is an operand, and what would lie outside begins earlier.
#[test]
fn dynamic_update_slice() {
    on_devices(|device| {
        let numbers = r#"pointwise {"program":{"inputs":["r","c"],"let":[["rr","clamp","r",0,1],["cc","clamp","c",0,2],["i","index",0],["j","index",1],["y","add","rr","i"],["x","add","cc","j"],["t","mul","y",4],["n","add","t","x"]],"outputs":["n"]},"inputs":[{"dtype":"i32","dims":[]},{"dtype":"i32","dims":[]}],"dims":[2,2]}"#;
        let [numbers] = run(device, numbers, &[("in0", &[5.0]), ("in1", &[1.0])], ["out0"]);
        let put = r#"index_add {"y":{"dtype":"f32","dims":[12]},"axis":0,"indices":{"dtype":"i32","dims":[2,2]},"combine":"set","base":true}"#;
        let operands: [(&str, &[f64]); 3] =
            [("indices", &numbers), ("source", &[1.0, 2.0, 3.0, 4.0]), ("base", &[0.0; 12])];
        let [y] = run(device, put, &operands, ["y"]);
        assert_eq!(y, [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 0.0, 0.0, 3.0, 4.0, 0.0]);
    });
}

/// `torch.multinomial`, with and without replacement: the greatest of the probabilities divided by exponential numbers, as in PyTorch, one or several.
#[test]
fn multinomial() {
    on_devices(|device| {
        const DRAWS: usize = 4000;
        let weights = [1.0, 2.0, 0.0, 5.0];
        let keys = r#"pointwise {"program":{"inputs":["p","seed","step"],"let":[["e","exponential","seed","step",0],["k","div","p","e"]],"outputs":["k"]},"inputs":[{"dtype":"f32","dims":[4000,4],"strides":[0,1]},{"dtype":"u32","dims":[2]},{"dtype":"u32","dims":[]}]}"#;
        let operands: [(&str, &[f64]); 3] = [("in0", &weights.repeat(DRAWS)), ("in1", &[3.0, 4.0]), ("in2", &[0.0])];
        let [keys] = run(device, keys, &operands, ["out0"]);
        let greatest =
            r#"reduce {"inputs":[{"dtype":"f32","dims":[4000,4]}],"axes":[1],"reduce":"argmax","output":"i32"}"#;
        let [drawn] = run(device, greatest, &[("in0", &keys)], ["out0"]);
        for (class, weight) in weights.iter().enumerate() {
            let (share, draws) = (weight / 8.0, DRAWS as f64);
            let found = drawn.iter().filter(|&&drawn| drawn == class as f64).count() as f64;
            // Five standard deviations.
            assert!((found - share * draws).abs() <= 5.0 * (draws * share * (1.0 - share)).sqrt(), "{class}: {found}");
        }
        let first = r#"top_k {"x":{"dtype":"f32","dims":[4000,4]},"axis":1,"k":3,"indices":"i32"}"#;
        let [several] = run(device, first, &[("x", &keys)], ["indices"]);
        for (line, drawn) in several.chunks(3).zip(&drawn) {
            let mut classes = line.to_vec();
            classes.sort_by(f64::total_cmp);
            assert_eq!((line[0], &classes[..]), (*drawn, &[0.0, 1.0, 3.0][..]));
        }
    });
}

/// `torch.nn.functional.embedding_bag` with offsets: its sums and its means.
#[test]
fn embedding_bag() {
    on_devices(|device| {
        let table: Vec<f64> = (0..12).map(|i| f64::from(i) / 4.0).collect();
        let select = r#"index_select {"x":{"dtype":"f32","dims":[6,2]},"axis":0,"indices":{"dtype":"i32","dims":[7]}}"#;
        let tokens = [1.0, 2.0, 4.0, 5.0, 4.0, 3.0, 0.0];
        let [rows] = run(device, select, &[("x", &table), ("indices", &tokens)], ["y"]);
        let count = r#"pointwise {"program":{"inputs":[],"let":[["i","index",0]],"outputs":["i"]},"inputs":[],"outputs":["i32"],"dims":[7]}"#;
        let [numbers] = run(device, count, &[], ["out0"]);
        let search = r#"search_sorted {"sorted":{"dtype":"i32","dims":[4]},"values":{"dtype":"i32","dims":[7]},"right":true,"indices":"i32"}"#;
        let [behind] = run(device, search, &[("sorted", &[0.0, 3.0, 3.0, 5.0]), ("values", &numbers)], ["indices"]);
        let less = r#"pointwise {"program":{"inputs":["n"],"let":[["m","sub","n",1]],"outputs":["m"]},"inputs":[{"dtype":"i32","dims":[7]}]}"#;
        let [bags] = run(device, less, &[("in0", &behind)], ["out0"]);
        let add = r#"index_add {"y":{"dtype":"f32","dims":[4,2]},"axis":0,"indices":{"dtype":"i32","dims":[7]},"combine":"add"}"#;
        let [sums] = run(device, add, &[("indices", &bags), ("source", &rows)], ["y"]);
        assert_eq!(sums, [3.5, 4.25, 0.0, 0.0, 4.5, 5.0, 1.5, 2.0]);
        let counts = r#"index_add {"y":{"dtype":"f32","dims":[4]},"axis":0,"indices":{"dtype":"i32","dims":[7]},"combine":"add","layouts":{"source":{"dtype":"f32","dims":[7],"strides":[0]}}}"#;
        let [counts] = run(device, counts, &[("indices", &bags), ("source", &[1.0; 7])], ["y"]);
        let divide = r#"pointwise {"program":{"inputs":["s","n"],"let":[["m","maximum","n",1],["y","div","s","m"]],"outputs":["y"]},"inputs":[{"dtype":"f32","dims":[4,2]},{"dtype":"f32","dims":[4,1]}]}"#;
        let [means] = run(device, divide, &[("in0", &sums), ("in1", &counts)], ["out0"]);
        let expected = [3.5 / 3.0, 4.25 / 3.0, 0.0, 0.0, 2.25, 2.5, 0.75, 1.0];
        assert!(means.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-6), "{means:?}");
    });
}

/// `torch.nn.functional.grid_sample(mode="bilinear", padding_mode="zeros", align_corners=False)` of an image of two channels, 2 by 3: four corners of each place, each
/// with its number in the image, or -1 outside of it, and its weight.
#[test]
fn grid_sample() {
    on_devices(|device| {
        let image = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, -1.0, 0.0, 2.0, 3.0, 7.0, -4.0];
        // x and y of six places; a program that has them as pairs describes both with a stride of 2.
        let (x, y) = ([-1.0, 0.0, 0.5, 1.0, 1.25, -3.0], [-1.0, 0.0, -0.25, 1.0, 0.5, 0.0]);
        let corners = r#"pointwise {"program":{"inputs":["gx","gy"],"let":[
            ["c","index",0],["h","mul","c",0.5],["dy","floor","h"],["t","mul","dy",2],["dx","sub","c","t"],
            ["ax","add","gx",1],["bx","mul","ax",1.5],["ix","sub","bx",0.5],["fx","floor","ix"],["x","add","fx","dx"],
            ["ay","add","gy",1],["by","mul","ay",1],["iy","sub","by",0.5],["fy","floor","iy"],["y","add","fy","dy"],
            ["sx","sub","ix","x"],["mx","abs","sx"],["wx","sub",1,"mx"],["sy","sub","iy","y"],["my","abs","sy"],["wy","sub",1,"my"],["w","mul","wx","wy"],
            ["x0","ge","x",0],["x1","lt","x",3],["y0","ge","y",0],["y1","lt","y",2],
            ["inx","logical_and","x0","x1"],["iny","logical_and","y0","y1"],["in","logical_and","inx","iny"],
            ["r","mul","y",3],["n","add","r","x"],["i","where","in","n",-1]],"outputs":["i","w"]},
            "inputs":[{"dtype":"f32","dims":[6]},{"dtype":"f32","dims":[6]}],"outputs":["i32","f32"],"dims":[4,6]}"#;
        let [numbers, weights] = run(device, &corners.replace('\n', ""), &[("in0", &x), ("in1", &y)], ["out0", "out1"]);
        let gather = r#"gather {"x":{"dtype":"f32","dims":[2,6]},"axis":1,"indices":{"dtype":"i32","dims":[2,24],"strides":[0,1]}}"#;
        let [found] = run(device, gather, &[("x", &image), ("indices", &numbers.repeat(2))], ["y"]);
        let blend = r#"reduce {"program":{"inputs":["v","w"],"let":[["t","mul","v","w"]],"outputs":["t"]},"inputs":[{"dtype":"f32","dims":[2,4,6]},{"dtype":"f32","dims":[4,6]}],"axes":[1],"reduce":"sum"}"#;
        let [sampled] = run(device, blend, &[("in0", &found), ("in1", &weights)], ["out0"]);
        let expected = [0.25, 3.5, 3.5, 1.5, 0.75, 0.0, -0.25, 3.5, 0.8125, -1.0, -0.5, 0.0];
        assert!(sampled.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-5), "{sampled:?}");
    });
}

/// `torch.mode` along the last axis: of the numbers that come most often the least.
#[test]
fn mode() {
    on_devices(|device| {
        let x = [3.0, 1.0, 2.0, 3.0, 1.0, 1.0, 5.0, 2.0, 7.0, 7.0, 2.0, 2.0, 9.0, 2.0, 7.0, 0.0];
        let sort = r#"sort {"x":{"dtype":"f32","dims":[2,8]},"axis":1,"values":true}"#;
        let [sorted] = run(device, sort, &[("x", &x)], ["values"]);
        let search = |side: &str| {
            let line = format!(
                r#"search_sorted {{"sorted":{{"dtype":"f32","dims":[2,8]}},"values":{{"dtype":"f32","dims":[2,8]}},{side}"indices":"i32"}}"#
            );
            let [found] = run(device, &line, &[("sorted", &sorted), ("values", &sorted)], ["indices"]);
            found
        };
        let (right, left) = (search(r#""right":true,"#), search(""));
        let often = r#"reduce {"program":{"inputs":["r","l"],"let":[["n","sub","r","l"]],"outputs":["n"]},"inputs":[{"dtype":"i32","dims":[2,8]},{"dtype":"i32","dims":[2,8]}],"axes":[1],"reduce":"argmax","keep":[1],"output":"i32"}"#;
        let [at] = run(device, often, &[("in0", &right), ("in1", &left)], ["out0"]);
        let gather = r#"gather {"x":{"dtype":"f32","dims":[2,8]},"axis":1,"indices":{"dtype":"i32","dims":[2,1]}}"#;
        let [modes] = run(device, gather, &[("x", &sorted), ("indices", &at)], ["y"]);
        assert_eq!(modes, [1.0, 2.0]);
    });
}

/// Three rows of four numbers in order, NaN behind all others, and how many are not NaN.
fn sorted_and_counts(device: &Device, x: &[f64]) -> [Vec<f64>; 2] {
    let sort = r#"sort {"x":{"dtype":"f32","dims":[3,4]},"axis":1,"values":true}"#;
    let [sorted] = run(device, sort, &[("x", x)], ["values"]);
    let count = r#"reduce {"program":{"inputs":["x"],"let":[["n","isnan","x"],["c","logical_not","n"],["m","where","c",1.0,0.0]],"outputs":["m"]},"inputs":[{"dtype":"f32","dims":[3,4]}],"axes":[1],"reduce":"sum","keep":[1]}"#;
    let [counts] = run(device, count, &[("in0", x)], ["out0"]);
    [sorted, counts]
}

/// What three rows of four numbers have at a position of each, NaN where it is below 0.
fn at_positions(device: &Device, x: &[f64], positions: &[f64]) -> Vec<f64> {
    let gather =
        r#"gather {"x":{"dtype":"f32","dims":[3,4]},"axis":1,"indices":{"dtype":"i32","dims":[3,1]},"fill":"nan"}"#;
    let [found] = run(device, gather, &[("x", x), ("indices", positions)], ["y"]);
    found
}

/// The lower one of the middle numbers of three rows, of which NaN is none.
fn medians(device: &Device, x: &[f64]) -> Vec<f64> {
    let [sorted, counts] = sorted_and_counts(device, x);
    let middle = r#"pointwise {"program":{"inputs":["n"],"let":[["m","sub","n",1],["h","mul","m",0.5],["k","floor","h"]],"outputs":["k"]},"inputs":[{"dtype":"f32","dims":[3,1]}],"outputs":["i32"]}"#;
    let [at] = run(device, middle, &[("in0", &counts)], ["out0"]);
    at_positions(device, &sorted, &at)
}

/// `torch.nanmedian` along the last axis: NaN is sorted behind all numbers, which are counted.
#[test]
fn nanmedian() {
    on_devices(|device| {
        let nan = f64::NAN;
        let medians = medians(device, &[3.0, nan, 1.0, 2.0, nan, nan, 4.0, 9.0, nan, nan, nan, nan]);
        assert!(medians[..2] == [2.0, 4.0] && medians[2].is_nan(), "{medians:?}");
    });
}

/// `torch.masked.median` along the last axis: what the mask leaves out is NaN, and so is a row that it leaves out.
#[test]
fn masked_median() {
    on_devices(|device| {
        let x = [3.0, 8.0, 1.0, 2.0, 7.0, 5.0, 4.0, 9.0, 1.0, 2.0, 3.0, 4.0];
        let mask = [1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0];
        let choose = r#"pointwise {"program":{"inputs":["m","x"],"let":[["y","where","m","x","nan"]],"outputs":["y"]},"inputs":[{"dtype":"bool","dims":[3,4]},{"dtype":"f32","dims":[3,4]}]}"#;
        let [kept] = run(device, choose, &[("in0", &mask), ("in1", &x)], ["out0"]);
        let medians = medians(device, &kept);
        assert!(medians[..2] == [2.0, 4.0] && medians[2].is_nan(), "{medians:?}");
    });
}

/// `torch.nanquantile(x, 0.25)` along the last axis: between the numbers beside a position that is no whole number.
#[test]
fn nanquantile() {
    on_devices(|device| {
        let nan = f64::NAN;
        let x = [3.0, nan, 1.0, 2.0, 8.0, 2.0, 4.0, 6.0, nan, nan, nan, nan];
        let [sorted, counts] = sorted_and_counts(device, &x);
        let beside = r#"pointwise {"program":{"inputs":["n"],"let":[["m","sub","n",1],["p","mul","m",0.25],["f","floor","p"],["c","ceil","p"],["w","sub","p","f"]],"outputs":["f","c","w"]},"inputs":[{"dtype":"f32","dims":[3,1]}],"outputs":["i32","i32","f32"]}"#;
        let [below, above, weights] = run(device, beside, &[("in0", &counts)], ["out0", "out1", "out2"]);
        let [below, above] = [below, above].map(|positions| at_positions(device, &sorted, &positions));
        let between = r#"pointwise {"program":{"inputs":["a","b","w"],"let":[["y","lerp","a","b","w"]],"outputs":["y"]},"inputs":[{"dtype":"f32","dims":[3,1]},{"dtype":"f32","dims":[3,1]},{"dtype":"f32","dims":[3,1]}]}"#;
        let [quantiles] = run(device, between, &[("in0", &below), ("in1", &above), ("in2", &weights)], ["out0"]);
        assert!(quantiles[..2] == [1.5, 3.5] && quantiles[2].is_nan(), "{quantiles:?}");
    });
}
