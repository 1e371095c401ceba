//! Windows that overlap, which are a view whose strides say so, and places in them.

use std::array::from_fn;

use baracuda_ops::Device;

use crate::{on_devices, run};

/// `torch.nn.functional.max_unpool1d`, `max_unpool2d` and `max_unpool3d` of what `max_pool` gives, into tensors that have their spatial extents as one.
#[test]
fn max_unpool() {
    on_devices(|device| {
        let unpool = |x: &[f64], spatial: &str, kernel: &str, [windows, positions]: [usize; 2]| {
            let line = format!(
                r#"pool {{"x":{{"dtype":"f32","dims":[1,1,{spatial}]}},"pooling":"max","kernel":[{kernel}],"indices":true}}"#
            );
            let [pooled, indices] = run(device, &line, &[("x", x)], ["y", "indices"]);
            let line = format!(
                r#"scatter {{"y":{{"dtype":"f32","dims":[1,1,{positions}]}},"axis":2,"indices":{{"dtype":"i64","dims":[1,1,{windows}]}},"combine":"set"}}"#
            );
            let [y] = run(device, &line, &[("indices", &indices), ("source", &pooled)], ["y"]);
            y
        };
        let kept = |positions: usize, kept: &[usize]| -> Vec<f64> {
            (0..positions).map(|at| if kept.contains(&at) { at as f64 + 1.0 } else { 0.0 }).collect()
        };
        let x: [f64; 16] = from_fn(|at| at as f64 + 1.0);
        // With an output_size of 9 the last element is nobody's.
        assert_eq!(unpool(&x[..8], "8", "2", [4, 9]), kept(9, &[1, 3, 5, 7]));
        assert_eq!(unpool(&x, "4,4", "2,2", [4, 16]), kept(16, &[5, 7, 13, 15]));
        assert_eq!(unpool(&x, "2,2,4", "2,2,2", [2, 16]), kept(16, &[13, 15]));
    });
}

/// The windows of an image of 4 by 5 padded by a row and a column of a number, 2 by 3 at every second place: `[2, 2]` windows of `[2, 3]`. A program that has
/// the padded image on the device describes it by the strides alone.
fn windows(device: &Device, x: &[f64; 12], value: &str) -> Vec<f64> {
    let line = format!(r#"pad {{"x":{{"dtype":"f32","dims":[3,4]}},"before":[1,1],"after":[0,0],"value":{value}}}"#);
    let [padded] = run(device, &line, &[("x", x)], ["y"]);
    let at = |[oy, ox, ky, kx]: [usize; 4]| padded[(2 * oy + ky) * 5 + 2 * ox + kx];
    let of_window = |window: usize| (0..6).map(move |place| [window / 2, window % 2, place / 3, place % 3]);
    (0..4).flat_map(of_window).map(at).collect()
}

const IMAGE: [f64; 12] = [1.0, 5.0, -2.0, 3.0, 4.0, -1.0, 2.0, 6.0, 0.5, 7.0, -3.0, 2.5];

/// `jax.lax.reduce_window` for each monoid of the table: padding is its identity.
#[test]
fn reduce_window() {
    on_devices(|device| {
        for (reduce, identity, expected) in [
            ("max", r#""-inf""#, [5.0, 5.0, 7.0, 7.0]),
            ("min", r#""inf""#, [1.0, -2.0, -1.0, -3.0]),
            ("sum", "0", [6.0, 6.0, 10.5, 13.5]),
            ("prod", "1", [5.0, -30.0, -14.0, 630.0]),
        ] {
            let views = windows(device, &IMAGE, identity);
            let line = format!(
                r#"reduce {{"inputs":[{{"dtype":"f32","dims":[2,2,2,3],"strides":[10,2,5,1]}}],"axes":[2,3],"reduce":"{reduce}"}}"#
            );
            let [y] = run(device, &line, &[("in0", &views)], ["out0"]);
            assert_eq!(y, expected, "{reduce}");
        }
    });
}

/// The number, in the padded image, of the extreme of each window; of equals the first.
fn selected(device: &Device, views: &[f64], extreme: &str) -> Vec<f64> {
    let line = format!(
        r#"reduce {{"inputs":[{{"dtype":"f32","dims":[2,2,2,3],"strides":[10,2,5,1]}}],"axes":[2,3],"reduce":"{extreme}","output":"i32"}}"#
    );
    let [places] = run(device, &line, &[("in0", views)], ["out0"]);
    let number = r#"pointwise {"program":{"inputs":["p"],"let":[["oy","index",0],["ox","index",1],["ky","div_trunc","p",3],["kx","remainder","p",3],
        ["ty","mul","oy",2],["y","add","ty","ky"],["tx","mul","ox",2],["x","add","tx","kx"],["r","mul","y",5],["n","add","r","x"]],"outputs":["n"]},
        "inputs":[{"dtype":"i32","dims":[2,2]}]}"#;
    let [numbers] = run(device, &number.replace('\n', ""), &[("in0", &places)], ["out0"]);
    numbers
}

/// `jax.lax.select_and_gather_add`: what a second tensor, padded with 0, has where each window has its extreme.
#[test]
fn select_and_gather_add() {
    on_devices(|device| {
        let tangents: [f64; 12] = from_fn(|at| at as f64 + 10.0);
        let pad = r#"pad {"x":{"dtype":"f32","dims":[3,4]},"before":[1,1],"after":[0,0]}"#;
        let [padded] = run(device, pad, &[("x", &tangents)], ["y"]);
        for (extreme, value, expected) in
            [("argmax", r#""-inf""#, [11.0, 11.0, 19.0, 19.0]), ("argmin", r#""inf""#, [10.0, 12.0, 15.0, 20.0])]
        {
            let numbers = selected(device, &windows(device, &IMAGE, value), extreme);
            let select =
                r#"index_select {"x":{"dtype":"f32","dims":[20]},"axis":0,"indices":{"dtype":"i32","dims":[2,2]}}"#;
            let [y] = run(device, select, &[("x", &padded), ("indices", &numbers)], ["y"]);
            assert_eq!(y, expected, "{extreme}");
        }
    });
}

/// `jax.lax.select_and_scatter`: where each window has its extreme, what a source has for it, combined by a sum or a product; last the padding goes.
#[test]
fn select_and_scatter() {
    on_devices(|device| {
        let numbers = selected(device, &windows(device, &IMAGE, r#""-inf""#), "argmax");
        for (combine, init, [first, second]) in [("add", 0.0, [3.0, 7.0]), ("multiply", 1.0, [2.0, 12.0])] {
            let line = format!(
                r#"index_add {{"y":{{"dtype":"f32","dims":[20]}},"axis":0,"indices":{{"dtype":"i32","dims":[2,2]}},"combine":"{combine}","base":true}}"#
            );
            let operands: [(&str, &[f64]); 3] =
                [("indices", &numbers), ("source", &[1.0, 2.0, 3.0, 4.0]), ("base", &[init; 20])];
            let [padded] = run(device, &line, &operands, ["y"]);
            let crop = r#"copy {"x":{"dtype":"f32","dims":[4,5]},"starts":[1,1],"extents":[3,4]}"#;
            let [y] = run(device, crop, &[("x", &padded)], ["y"]);
            let mut expected = [init; 12];
            (expected[1], expected[9]) = (first, second);
            assert_eq!(y, expected, "{combine}");
        }
    });
}

/// `torch.grid_sampler_3d(mode="bilinear", padding_mode="zeros", align_corners=False)`: eight corners of each place, each with its number in the volume, or -1
/// outside of it, and its weight.
#[test]
fn grid_sampler_3d() {
    const EXTENTS: [usize; 3] = [2, 3, 4];
    let volume: [f64; 24] = from_fn(|at| ((at * 7) % 11) as f64 - 4.0);
    // z, y and x of five places.
    let grid = [[-1.0, 0.25, 0.9, 1.5, -3.0], [-0.5, 0.0, 1.0, -0.75, 0.0], [0.125, -0.5, 0.75, 0.0, 1.0]];
    // At a place the sum of the elements whose distances along every axis are below 1, each times what they lack of it.
    let expected: [f64; 5] = from_fn(|at| {
        let weight = |axis: usize, position: usize| {
            let place = (grid[axis][at] + 1.0) * EXTENTS[axis] as f64 / 2.0 - 0.5;
            (1.0 - (place - position as f64).abs()).max(0.0)
        };
        let of = |n: usize| volume[n] * weight(0, n / 12) * weight(1, n / 4 % 3) * weight(2, n % 4);
        (0..24).map(of).sum()
    });
    on_devices(|device| {
        let axis = |name: &str, extent: usize| {
            // Beside the position of the corner its weight, and whether it is inside.
            [
                format!(r#"["a{name}","add","g{name}",1],["b{name}","mul","a{name}",{}]"#, extent as f64 / 2.0),
                format!(r#"["i{name}","sub","b{name}",0.5],["f{name}","floor","i{name}"]"#),
                format!(r#"["{name}","add","f{name}","d{name}"],["s{name}","sub","i{name}","{name}"]"#),
                format!(r#"["m{name}","abs","s{name}"],["w{name}","sub",1,"m{name}"],["l{name}","ge","{name}",0]"#),
                format!(r#"["h{name}","lt","{name}",{extent}],["in{name}","logical_and","l{name}","h{name}"]"#),
            ]
            .join(",")
        };
        let axes = [axis("z", 2), axis("y", 3), axis("x", 4)].join(",");
        let corners = format!(
            r#"pointwise {{"program":{{"inputs":["gz","gy","gx"],"let":[
            ["c","index",0],["q","mul","c",0.25],["dz","floor","q"],["h","mul","c",0.5],["t","floor","h"],["dy","remainder","t",2],["dx","remainder","c",2],
            {axes},["v","mul","wz","wy"],["w","mul","v","wx"],["k","logical_and","inz","iny"],["in","logical_and","k","inx"],
            ["r","fma","z",3,"y"],["n","fma","r",4,"x"],["i","where","in","n",-1]],"outputs":["i","w"]}},
            "inputs":[{{"dtype":"f32","dims":[5]}},{{"dtype":"f32","dims":[5]}},{{"dtype":"f32","dims":[5]}}],"outputs":["i32","f32"],"dims":[8,5]}}"#
        );
        let [z, y, x] = &grid;
        let operands: [(&str, &[f64]); 3] = [("in0", z), ("in1", y), ("in2", x)];
        let [numbers, weights] = run(device, &corners.replace('\n', ""), &operands, ["out0", "out1"]);
        let select =
            r#"index_select {"x":{"dtype":"f32","dims":[24]},"axis":0,"indices":{"dtype":"i32","dims":[8,5]}}"#;
        let [found] = run(device, select, &[("x", &volume), ("indices", &numbers)], ["y"]);
        let blend = r#"reduce {"program":{"inputs":["v","w"],"let":[["t","mul","v","w"]],"outputs":["t"]},"inputs":[{"dtype":"f32","dims":[8,5]},{"dtype":"f32","dims":[8,5]}],"axes":[0],"reduce":"sum"}"#;
        let [sampled] = run(device, blend, &[("in0", &found), ("in1", &weights)], ["out0"]);
        assert!(sampled.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-5), "{sampled:?}");
    });
}

/// `torch.nn.functional.fractional_max_pool2d` of an image of 5 by 7 with windows of 2 by 3, to 3 by 3, and the places in it that its `return_indices` gives: windows
/// begin where a random number of each axis says, the last one at the end.
#[test]
fn fractional_max_pool2d() {
    on_devices(|device| {
        let x: [f64; 35] = from_fn(|at| ((at * 17) % 37) as f64);
        // A program draws them: `uniform`, for each channel of each sample and each axis one.
        let samples = [0.25, 0.75];
        let begin = |axis: usize, window: usize| {
            let (alpha, last) = ([1.5, 2.0][axis], [3, 4][axis]);
            let from = ((window as f64 + samples[axis]) * alpha).floor() - (samples[axis] * alpha).floor();
            if window == 2 { last } else { from as usize }
        };
        let places = r#"pointwise {"program":{"inputs":["u","v"],"let":[
            ["i","index",0],["j","index",1],["k","index",2],["l","index",3],
            ["ai","add","i","u"],["bi","mul","ai",1.5],["ci","floor","bi"],["di","mul","u",1.5],["ei","floor","di"],["fi","sub","ci","ei"],["zi","eq","i",2],["yi","where","zi",3,"fi"],
            ["aj","add","j","v"],["bj","mul","aj",2],["cj","floor","bj"],["dj","mul","v",2],["ej","floor","dj"],["fj","sub","cj","ej"],["zj","eq","j",2],["yj","where","zj",4,"fj"],
            ["r","add","yi","k"],["c","add","yj","l"],["n","fma","r",7,"c"]],"outputs":["n"]},
            "inputs":[{"dtype":"f32","dims":[]},{"dtype":"f32","dims":[]}],"outputs":["i32"],"dims":[3,3,2,3]}"#;
        let [numbers] =
            run(device, &places.replace('\n', ""), &[("in0", &samples[..1]), ("in1", &samples[1..])], ["out0"]);
        let select =
            r#"index_select {"x":{"dtype":"f32","dims":[35]},"axis":0,"indices":{"dtype":"i32","dims":[3,3,2,3]}}"#;
        let [views] = run(device, select, &[("x", &x), ("indices", &numbers)], ["y"]);
        let greatest = r#"reduce {"inputs":[{"dtype":"f32","dims":[9,6]}],"axes":[1],"reduce":"max"}"#;
        let [y] = run(device, greatest, &[("in0", &views)], ["out0"]);
        let place = r#"reduce {"inputs":[{"dtype":"f32","dims":[9,6]}],"axes":[1],"reduce":"argmax","keep":[1],"output":"i32"}"#;
        let [place] = run(device, place, &[("in0", &views)], ["out0"]);
        let gather = r#"gather {"x":{"dtype":"i32","dims":[9,6]},"axis":1,"indices":{"dtype":"i32","dims":[9,1]}}"#;
        let [indices] = run(device, gather, &[("x", &numbers), ("indices", &place)], ["y"]);
        for (window, found) in y.into_iter().zip(indices).enumerate() {
            let [top, left] = [begin(0, window / 3), begin(1, window % 3)];
            let inside = (0..6).map(|place| (top + place / 3) * 7 + left + place % 3);
            let best = inside.max_by(|&a, &b| x[a].total_cmp(&x[b])).unwrap();
            assert_eq!(found, (x[best], best as f64), "{window}");
        }
    });
}

/// `torch._upsample_bilinear2d_aa`, `interpolate(mode="bilinear", antialias=True)`, of two images of 5 by 7 to 3 by 10: along each axis a product with a matrix of triangles as
/// wide as a pixel of the result, or of the image if that is wider, whose rows have a sum of 1.
#[test]
fn upsample_antialiased() {
    let images: [f64; 70] = from_fn(|at| ((at * 13) % 31) as f64 / 8.0 - 1.5);
    let triangle = |[from, to]: [f64; 2], row: usize, at: usize| {
        let (scale, width) = (from / to, (from / to).max(1.0));
        (1.0 - (at as f64 + 0.5 - (row as f64 + 0.5) * scale).abs() / width).max(0.0)
    };
    let share = |sizes: [f64; 2], row: usize, at: usize| {
        triangle(sizes, row, at) / (0..sizes[0] as usize).map(|at| triangle(sizes, row, at)).sum::<f64>()
    };
    let expected: [f64; 60] = from_fn(|at| {
        let (image, row, column) = (at / 30, at % 30 / 10, at % 10);
        let of = |n: usize| share([5.0, 3.0], row, n / 7) * share([7.0, 10.0], column, n % 7) * images[image * 35 + n];
        (0..35).map(of).sum()
    });
    on_devices(|device| {
        let weights = |from: usize, to: usize| {
            let (scale, inverse_width) = (from as f64 / to as f64, (to as f64 / from as f64).min(1.0));
            let triangles = format!(
                r#"pointwise {{"program":{{"inputs":[],"let":[["i","index",0],["j","index",1],["r","add","i",0.5],["c","add","j",0.5],["m","mul","r",{scale}],["d","sub","c","m"],["s","abs","d"],["t","mul","s",{inverse_width}],["u","sub",1,"t"],["w","relu","u"]],"outputs":["w"]}},"inputs":[],"outputs":["f32"],"dims":[{to},{from}]}}"#
            );
            let [triangles] = run(device, &triangles, &[], ["out0"]);
            let sums = format!(
                r#"reduce {{"inputs":[{{"dtype":"f32","dims":[{to},{from}]}}],"axes":[1],"reduce":"sum","keep":[1]}}"#
            );
            let [sums] = run(device, &sums, &[("in0", &triangles)], ["out0"]);
            let divide = format!(
                r#"pointwise {{"program":{{"inputs":["w","s"],"let":[["y","div","w","s"]],"outputs":["y"]}},"inputs":[{{"dtype":"f32","dims":[{to},{from}]}},{{"dtype":"f32","dims":[{to},1]}}]}}"#
            );
            let [weights] = run(device, &divide, &[("in0", &triangles), ("in1", &sums)], ["out0"]);
            weights
        };
        let rows = r#"gemm {"a":{"dtype":"f32","dims":[3,5]},"b":{"dtype":"f32","dims":[2,5,7]}}"#;
        let [rows] = run(device, rows, &[("a", &weights(5, 3)), ("b", &images)], ["out"]);
        let columns =
            r#"gemm {"a":{"dtype":"f32","dims":[2,3,7]},"b":{"dtype":"f32","dims":[10,7]},"transpose_b":true}"#;
        let [y] = run(device, columns, &[("a", &rows), ("b", &weights(7, 10))], ["out"]);
        assert!(y.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-5), "{y:?}");
    });
}
