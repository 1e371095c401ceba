//! Reductions along any axes: every reduction in every type, layouts, odd extents, programs before the reduction, and broadcasting.

use anyhow::{Context, Result};
use baracuda_ops::{
    Access, AnyDescriptor, DType, Error, Mem, Operand, ReduceArgs, ReduceDescriptor, Reduction, Slot, TensorDesc,
};
use serde_json::Value;

use super::pointwise::{computing, integer, of_integer, places, set_of};
use super::{CHAIN, Contract, FLOATS, Subject, TypedRun, channels_last, dense, features, json_of, strided};
use crate::case::{Case, Data, Huge, Random, distinct};
use crate::judge::{By, Expected, budget, finite};
use crate::program::{Arithmetic, Program};
use crate::values::Tensors;

pub(super) const REDUCE: Subject = Subject {
    name: "reduce",
    cases,
    is_cpu_only: |_| false,
    may_be_constant,
    input,
    expect,
    contracts: CONTRACTS,
    run_typed,
    features: || features(asked_for, Form::descriptor),
};

/// Squares of differences.
const ERRORS: &str = r#"{"inputs":["x","y"],"let":[["d","sub","x","y"],["e","mul","d","d"]],"outputs":["e"]}"#;
/// A comparison.
const BELOW: &str = r#"{"inputs":["x","y"],"let":[["z","lt","x","y"]],"outputs":["z"]}"#;
/// Exponentials and products of three inputs, one of which is used twice.
const GATED: &str = r#"{"inputs":["x","y","z"],"let":[["s","sigmoid","x"],["t","mul","s","y"],["u","mul","t","z"],["v","add","u","x"]],"outputs":["v"]}"#;

/// Programs that kernels of reductions are compiled for: a product, a square, and the square of a difference in two forms.
const STOCK: [(&str, usize); 4] = [
    (r#"{"inputs":["x","y"],"let":[["z","mul","x","y"]],"outputs":["z"]}"#, 2),
    (r#"{"inputs":["x"],"let":[["z","mul","x","x"]],"outputs":["z"]}"#, 1),
    (r#"{"inputs":["x","y"],"let":[["d","sub","x","y"],["z","mul","d","d"]],"outputs":["z"]}"#, 2),
    (r#"{"inputs":["x","y"],"let":[["d","sub","x","y"],["z","square","d"]],"outputs":["z"]}"#, 2),
];

/// Cubes of magnitudes.
const CUBES: &str =
    r#"{"inputs":["x"],"let":[["a","abs","x"],["s","square","a"],["c","mul","s","a"]],"outputs":["c"]}"#;
const SQUARES: &str = r#"{"inputs":["x"],"let":[["s","square","x"]],"outputs":["s"]}"#;

const ROOT: &str = r#"{"inputs":["v"],"let":[["y","sqrt","v"]],"outputs":["y"]}"#;
/// Of cubes.
const CUBE_ROOT: &str = r#"{"inputs":["v"],"let":[["y","pow","v",0.3333333333333333]],"outputs":["y"]}"#;
/// Between -1 and 1, of a mean.
const BY_COUNT: &str = r#"{"inputs":["v"],"let":[["n","count"],["m","div","v","n"],["t","mul","m",0.1],["y","tanh","t"]],"outputs":["y"]}"#;
/// As many as there are.
const COUNTED: &str = r#"{"inputs":["v"],"let":[["n","count"]],"outputs":["n"]}"#;
/// A comparison.
const IS_FINITE: &str = r#"{"inputs":["v"],"let":[["y","isfinite","v"]],"outputs":["y"]}"#;

/// A descriptor before it is one.
#[derive(Clone)]
struct Form {
    /// JSON, or the input itself is reduced.
    program: Option<&'static str>,
    inputs: Vec<TensorDesc>,
    axes: Vec<usize>,
    reduce: Reduction,
    keep: Vec<usize>,
    /// The type of the output, if it is not the default.
    output: Option<DType>,
    /// The strides of the output, if it is not dense.
    strides: Option<Vec<u64>>,
    correction: Option<u64>,
    /// JSON, or results are as they are.
    finish: Option<&'static str>,
    /// The inputs of further sets.
    sets: Vec<Vec<TensorDesc>>,
}

/// Whether a reduction is refused without elements.
fn has_order(reduce: Reduction) -> bool {
    use Reduction::{ArgMax, ArgMin, Max, Min, NormInf};
    matches!(reduce, Max | Min | NormInf | ArgMax | ArgMin)
}

/// Whether results are numbers of the type of floating-point values.
fn gives_numbers(reduce: Reduction) -> bool {
    use Reduction::{All, Any, ArgMax, ArgMin, CountNonzero};
    !matches!(reduce, ArgMax | ArgMin | CountNonzero | Any | All)
}

impl Form {
    fn of(reduce: Reduction, x: TensorDesc, axes: &[usize]) -> Self {
        Self {
            program: None,
            inputs: vec![x],
            axes: axes.into(),
            reduce,
            keep: vec![],
            output: None,
            strides: None,
            correction: None,
            finish: None,
            sets: Vec::new(),
        }
    }

    fn finish(self, finish: &'static str) -> Self {
        Self { finish: Some(finish), ..self }
    }

    fn new(program: &'static str, inputs: impl Into<Vec<TensorDesc>>, axes: &[usize], reduce: Reduction) -> Self {
        let inputs = inputs.into();
        Self { program: Some(program), ..Self::of(reduce, inputs[0], axes) }.with(inputs)
    }

    fn with(self, inputs: Vec<TensorDesc>) -> Self {
        Self { inputs, ..self }
    }

    fn keep(self, keep: &[usize]) -> Self {
        Self { keep: keep.into(), ..self }
    }

    fn descriptor(&self) -> Result<AnyDescriptor, Error> {
        let mut descriptor = match self.program {
            Some(json) => {
                let program = serde_json::from_str(json).expect("the case lists hold valid programs");
                ReduceDescriptor::new(program, self.inputs.clone(), self.axes.clone(), self.reduce)?
            }
            None => ReduceDescriptor::of(self.inputs[0], &self.axes, self.reduce)?,
        };
        descriptor = descriptor.keep(self.keep.clone())?;
        if let Some(output) = self.output {
            descriptor = descriptor.output(output)?;
        }
        if let Some(correction) = self.correction {
            descriptor = descriptor.correction(correction)?;
        }
        if let Some(json) = self.finish {
            descriptor = descriptor.finish(serde_json::from_str(json).expect("the case lists hold valid programs"))?;
        }
        if !self.sets.is_empty() {
            descriptor = descriptor.sets(self.sets.clone())?;
        }
        if let Some(strides) = &self.strides {
            let any = AnyDescriptor::new(descriptor.clone());
            let out = any.slots().last().expect("an output").desc;
            descriptor = descriptor.layout("out0", TensorDesc::strided(out.dtype(), out.dims(), strides)?)?;
        }
        Ok(AnyDescriptor::new(descriptor))
    }
}

/// Every form with the data it runs on, and whether it runs in every mode.
fn forms() -> Vec<(Form, Data, bool)> {
    let mut forms = Vec::new();
    for dtype in FLOATS {
        let mut add = |form: Form, data: Data, core: bool| forms.push((form, data, core));
        for reduce in Reduction::ALL {
            // Rows, columns, and both with what is not a number.
            let x = dense(dtype, &[6, 40]);
            let has_order = has_order(reduce);
            for data in [Data::Nan, Data::Inf, Data::NegInf, Data::Tiny, Data::Huge, Data::Sparse, Data::Constant] {
                if data == Data::Huge || !matches!((reduce, data), (Reduction::Prod, Data::Tiny | Data::Constant)) {
                    add(Form::of(reduce, x, &[1]), data, false);
                    add(Form::of(reduce, x, &[0]), data, false);
                }
            }
            // Normal numbers are not 0.
            let counts = matches!(reduce, Reduction::CountNonzero | Reduction::Any | Reduction::All);
            let usual = if counts { Data::Sparse } else { Data::Normal };
            add(Form::of(reduce, dense(dtype, &[3, 5, 66]), &[0, 2]), usual, true);
            add(Form::of(reduce, dense(dtype, &[3, 5, 66]), &[1]), usual, reduce == Reduction::Sum);
            add(Form::of(reduce, dense(dtype, &[257, 19]), &[0]), usual, has_order);
            add(Form::of(reduce, dense(dtype, &[4099]), &[0]), usual, false);
            // None of the axes: each element by itself. No elements.
            add(Form::of(reduce, dense(dtype, &[7, 9]), &[]), usual, false);
            add(Form::of(reduce, dense(dtype, &[]), &[]), usual, reduce == Reduction::Mean);
            add(Form::of(reduce, dense(dtype, &[0, 5]), &[1]), usual, reduce == Reduction::Max);
            if !has_order {
                add(Form::of(reduce, dense(dtype, &[5, 0]), &[1]), usual, reduce == Reduction::Mean);
                add(Form::of(reduce, dense(dtype, &[0]), &[0]), usual, false);
            }
        }
        // Around the width of a vector, a team, a block and a piece, of rows and of columns.
        for n in [1, 2, 3, 7, 8, 31, 33, 64, 255, 256, 257, 1023, 1025, 4096, 4099] {
            let is_core = [7, 257, 4099].contains(&n);
            for reduce in [Reduction::Sum, Reduction::Max] {
                add(Form::of(reduce, dense(dtype, &[5, n]), &[1]), Data::Normal, is_core);
                add(Form::of(reduce, dense(dtype, &[n, 5]), &[0]), Data::Normal, is_core);
                add(Form::of(reduce, dense(dtype, &[3, n]), &[0]), Data::Normal, false);
                add(Form::of(reduce, dense(dtype, &[n, 3]), &[1]), Data::Normal, false);
            }
            for reduce in [Reduction::LogSumExp, Reduction::Var, Reduction::ArgMin, Reduction::CountNonzero] {
                add(Form::of(reduce, dense(dtype, &[5, n]), &[1]), Data::Normal, false);
                add(Form::of(reduce, dense(dtype, &[n, 5]), &[0]), Data::Normal, false);
            }
        }
        // Several pieces; roundings of one sign.
        for dims in [[1, 70_001], [3, 40_000], [40_000, 3], [20_000, 16]] {
            for data in [Data::Normal, Data::Constant, Data::LargeMean] {
                add(Form::of(Reduction::Sum, dense(dtype, &dims), &[1]), data, false);
                add(
                    Form::of(Reduction::Mean, dense(dtype, &dims), &[0]),
                    data,
                    data == Data::Normal && dims[0] == 40_000,
                );
            }
            add(Form::of(Reduction::Sum, dense(dtype, &dims), &[0, 1]), Data::Outlier, false);
        }
        // The same of what holds more than one number; means that are large beside the deviation, and equal values.
        for dims in [[1, 70_001], [40_000, 3]] {
            for (reduce, data) in [
                (Reduction::LogSumExp, Data::Normal),
                (Reduction::LogSumExp, Data::Ramp),
                (Reduction::Var, Data::Normal),
                (Reduction::Std, Data::LargeMean),
                (Reduction::Var, Data::Constant),
                (Reduction::Var, Data::Outlier),
                (Reduction::ArgMax, Data::Normal),
                (Reduction::ArgMin, Data::Sparse),
                (Reduction::ArgMax, Data::Constant),
                (Reduction::CountNonzero, Data::Sparse),
                (Reduction::Any, Data::Sparse),
                (Reduction::All, Data::Normal),
            ] {
                let axis = usize::from(dims[0] == 1);
                let is_core = reduce == Reduction::Std || data == Data::Normal;
                add(Form::of(reduce, dense(dtype, &dims), &[axis]), data, is_core);
            }
        }
        let x = dense(dtype, &[9, 48]);
        for correction in [0, 1, 2] {
            for reduce in [Reduction::Var, Reduction::Std] {
                for axes in [&[0][..], &[1]] {
                    let form = Form { correction: Some(correction), ..Form::of(reduce, x, axes) };
                    add(form, Data::LargeMean, correction == 0);
                }
            }
        }
        for (reduce, output) in [
            (Reduction::ArgMax, DType::I32),
            (Reduction::ArgMin, DType::U32),
            (Reduction::CountNonzero, DType::I32),
            (Reduction::CountNonzero, DType::U32),
            (Reduction::CountNonzero, DType::F32),
            (Reduction::CountNonzero, DType::BF16),
        ] {
            for axes in [&[0][..], &[1]] {
                let form = Form { output: Some(output), ..Form::of(reduce, x, axes) };
                add(form, Data::Sparse, output == DType::I32);
            }
        }
        // Positions count in row-major order of the axes, however the elements lie.
        let last = channels_last(dtype, &[2, 6, 4, 8]);
        for x in [last, dense(dtype, &[2, 6, 4, 8])] {
            for axes in [&[1][..], &[1, 2], &[0, 3], &[0, 1, 2, 3], &[3]] {
                add(Form::of(Reduction::ArgMax, x, axes), Data::Normal, axes.len() == 2);
                add(Form::of(Reduction::ArgMin, x, axes).keep(axes), Data::Sparse, false);
            }
        }
        let turned = strided(dtype, &[37, 66], &[1, 37]);
        for reduce in [Reduction::ArgMax, Reduction::LogSumExp, Reduction::Var, Reduction::All] {
            for axes in [&[0][..], &[1], &[0, 1]] {
                add(Form::of(reduce, turned, axes), Data::Normal, false);
                add(Form::of(reduce, strided(dtype, &[6, 40], &[0, 1]), axes), Data::Normal, false);
                add(Form::of(reduce, strided(dtype, &[7, 9], &[31, 3]), axes), Data::Normal, axes.len() == 2);
            }
        }
        for data in [Data::Halves, Data::Ramp, Data::Stripes, Data::Blocks, Data::Wide, Data::Step] {
            add(Form::of(Reduction::Sum, dense(dtype, &[4, 3000]), &[1]), data, false);
            add(Form::of(Reduction::Sum, dense(dtype, &[3000, 4]), &[0]), data, false);
        }
        // Every subset of four axes, of images in both orders, and kept axes.
        let (image, last) = (dense(dtype, &[2, 6, 4, 8]), channels_last(dtype, &[2, 6, 4, 8]));
        for subset in 0..16 {
            let axes: Vec<usize> = (0..4).filter(|axis| subset >> axis & 1 == 1).collect();
            let is_core = [1, 2, 8, 13, 15].contains(&subset);
            add(Form::of(Reduction::Sum, image, &axes), Data::Normal, is_core);
            add(Form::of(Reduction::Mean, last, &axes).keep(&axes), Data::Normal, is_core);
            if axes.len() > 1 {
                add(Form::of(Reduction::Max, image, &axes).keep(&axes[1..]), Data::Normal, false);
            }
        }
        // Other layouts: of the input, and of the output.
        let gaps = strided(dtype, &[6, 40], &[48, 1]);
        let turned = strided(dtype, &[37, 66], &[1, 37]);
        let repeated = strided(dtype, &[6, 40], &[0, 1]);
        let spread = strided(dtype, &[7, 9], &[31, 3]);
        let higher = dense(dtype, &[2, 3, 1, 2, 2, 3, 1, 5]);
        for (x, axes, is_core) in [
            (gaps, &[1][..], true),
            (gaps, &[0], false),
            (gaps, &[0, 1], false),
            (turned, &[0], true),
            (turned, &[1], true),
            (repeated, &[0], true),
            (repeated, &[1], false),
            (strided(dtype, &[6, 40], &[1, 0]), &[1], false),
            (spread, &[0], false),
            (spread, &[1], true),
            (higher, &[1, 3, 5, 7], true),
            (higher, &[0, 4, 6], false),
            (higher, &[0, 1, 2, 3, 4, 5, 6, 7], false),
        ] {
            add(Form::of(Reduction::Sum, x, axes), Data::Normal, is_core);
            add(Form::of(Reduction::Min, x, axes), Data::Normal, false);
        }
        let narrow = dense(dtype, &[3, 1024]).align(dtype.size_bytes()).expect("a promise");
        add(Form::of(Reduction::Sum, narrow, &[1]), Data::Normal, true);
        add(Form::of(Reduction::Sum, narrow, &[0]), Data::Normal, true);
        let of_output = |form: Form, strides: &[u64]| Form { strides: Some(strides.into()), ..form };
        add(of_output(Form::of(Reduction::Sum, dense(dtype, &[5, 3, 16]), &[1]), &[1, 5]), Data::Normal, true);
        add(of_output(Form::of(Reduction::Max, dense(dtype, &[5, 3, 16]), &[2]), &[7, 2]), Data::Normal, true);
        // Programs, of inputs that broadcast.
        let x = dense(dtype, &[9, 34]);
        for axes in [&[0][..], &[1], &[0, 1], &[]] {
            let is_core = axes.len() == 1;
            add(Form::new(ERRORS, [x, x], axes, Reduction::Mean), Data::Normal, is_core);
            add(
                Form::new(GATED, [x, dense(dtype, &[34]), dense(dtype, &[9, 1])], axes, Reduction::Sum),
                Data::Normal,
                is_core,
            );
            add(Form::new(ERRORS, [x, dense(dtype, &[])], axes, Reduction::Max), Data::Normal, false);
            add(
                Form::new(ERRORS, [dense(dtype, &[9, 1]), dense(dtype, &[34])], axes, Reduction::Sum),
                Data::Normal,
                false,
            );
        }
        add(Form::new(ERRORS, [dense(dtype, &[3, 20_001]); 2], &[1], Reduction::Sum), Data::Normal, true);
        add(Form::new(ERRORS, [dense(dtype, &[20_001, 3]); 2], &[0], Reduction::Sum), Data::Normal, true);
        add(Form::new(ERRORS, [turned, dense(dtype, &[37, 66])], &[1], Reduction::Norm2), Data::Normal, false);
        for reduce in [Reduction::LogSumExp, Reduction::Var, Reduction::ArgMax, Reduction::Prod, Reduction::NormInf] {
            add(Form::new(ERRORS, [x, x], &[1], reduce), Data::Normal, reduce == Reduction::Var);
            add(Form::new(ERRORS, [x, dense(dtype, &[9, 1])], &[0], reduce), Data::Normal, false);
        }
        // What becomes of results: p-norms, root mean squares, and others, of rows, of columns, of pieces, of no elements, kept, and laid otherwise.
        for (dims, axes, is_core) in [
            (&[9, 34][..], &[1][..], true),
            (&[40, 19], &[0], true),
            (&[3, 5, 66], &[0, 2], false),
            (&[2, 40_000], &[1], true),
            (&[20_000, 5], &[0], false),
            (&[70_001], &[0], false),
            (&[7, 9], &[], false),
            (&[], &[], false),
            (&[0, 5], &[1], false),
        ] {
            let x = dense(dtype, dims);
            add(Form::new(CUBES, [x], axes, Reduction::Sum).finish(CUBE_ROOT), Data::Normal, is_core);
            add(Form::new(SQUARES, [x], axes, Reduction::Mean).finish(ROOT).keep(axes), Data::Normal, is_core);
            add(Form::of(Reduction::Sum, x, axes).finish(BY_COUNT), Data::Normal, false);
            add(Form::of(Reduction::Sum, x, axes).finish(IS_FINITE), Data::Inf, dims.len() == 2 && is_core);
        }
        for reduce in Reduction::ALL.into_iter().filter(|&reduce| gives_numbers(reduce)) {
            add(Form::of(reduce, dense(dtype, &[9, 34]), &[1]).finish(BY_COUNT), Data::Normal, false);
            add(
                Form::of(reduce, dense(dtype, &[300, 70]), &[0]).finish(BY_COUNT),
                Data::Normal,
                reduce == Reduction::Var,
            );
            if !has_order(reduce) {
                add(
                    Form::of(reduce, dense(dtype, &[5, 0]), &[1]).finish(BY_COUNT),
                    Data::Normal,
                    reduce == Reduction::Sum,
                );
            }
        }
        let lines = dense(dtype, &[5, 3, 16]);
        for data in [Data::Nan, Data::Normal] {
            let form = Form::of(Reduction::Max, lines, &[2]).finish(BY_COUNT);
            add(of_output(form, &[1, 5]), data, data == Data::Normal);
        }
        add(Form::of(Reduction::Sum, dense(dtype, &[5, 3]), &[1]).finish(COUNTED), Data::Normal, true);
        let to = if dtype == DType::F32 { DType::BF16 } else { DType::F32 };
        if dtype != DType::F64 {
            let form = Form::new(SQUARES, [dense(dtype, &[6, 40])], &[1], Reduction::Mean).finish(ROOT);
            add(Form { output: Some(to), ..form }, Data::Normal, true);
        }
        // What is true of elements is counted.
        for reduce in [Reduction::Sum, Reduction::Prod, Reduction::Max, Reduction::Min, Reduction::All] {
            add(Form::new(BELOW, [x, x], &[1], reduce), Data::Normal, reduce == Reduction::Sum);
            add(Form::new(BELOW, [x, x], &[0], reduce), Data::Normal, false);
        }
        // Outputs of other types.
        for to in FLOATS.into_iter().filter(|to| *to != dtype) {
            let form = Form { output: Some(to), ..Form::of(Reduction::Sum, dense(dtype, &[5, 40]), &[1]) };
            add(form.clone(), Data::Normal, true);
            add(Form { axes: vec![0], ..form }, Data::Large, false);
        }
    }
    for (program, inputs) in STOCK {
        for dtype in FLOATS {
            for (x, axis) in [
                (dense(dtype, &[6, 80]), 1),
                (dense(dtype, &[70, 16]), 0),
                (strided(dtype, &[6, 80], &[96, 1]), 1),
                (strided(dtype, &[9, 34], &[1, 9]), 1),
            ] {
                let form = Form::new(program, vec![x; inputs], &[axis], Reduction::Sum);
                forms.push((form, Data::Normal, dtype == DType::F32 && axis == 0));
            }
        }
    }
    // Integers and bools.
    for dtype in [DType::I32, DType::U32, DType::I64, DType::U8, DType::I8, DType::Bool] {
        use Reduction::{All, Any, ArgMax, ArgMin, CountNonzero, Max, Min, Prod, Sum};
        for reduce in [Sum, Prod, Max, Min, CountNonzero, Any, All, ArgMax, ArgMin] {
            let mut add = |form: Form, core: bool| forms.push((form, Data::Normal, core));
            for (dims, axes, core) in [
                (&[6, 40][..], &[1][..], true),
                (&[40, 7], &[0], false),
                (&[3, 5, 66], &[0, 2], reduce == Sum),
                (&[3, 9001], &[1], reduce == Sum || reduce == ArgMax),
                (&[9001, 3], &[0], false),
                (&[7, 9], &[], false),
                (&[0, 5], &[1], false),
            ] {
                add(Form::of(reduce, dense(dtype, dims), axes), core);
            }
            add(Form::of(reduce, strided(dtype, &[37, 66], &[1, 37]), &[1]), false);
            if !has_order(reduce) {
                add(Form::of(reduce, dense(dtype, &[5, 0]), &[1]), false);
            }
            if matches!(reduce, Sum | Prod | CountNonzero | ArgMax | ArgMin) {
                for output in [DType::I32, DType::U32] {
                    add(Form { output: Some(output), ..Form::of(reduce, dense(dtype, &[6, 40]), &[1]) }, false);
                    add(
                        Form { output: Some(output), ..Form::of(reduce, dense(dtype, &[40, 6]), &[0]) },
                        reduce == Prod,
                    );
                }
            }
        }
        if dtype != DType::Bool {
            let x = dense(dtype, &[6, 40]);
            forms.push((Form::new(ERRORS, [x, dense(dtype, &[40])], &[1], Sum), Data::Normal, true));
            forms.push((Form::new(BELOW, [x, dense(dtype, &[40])], &[0], Sum), Data::Normal, false));
        }
    }
    // Types that differ.
    let [half, brain, single] = [DType::F16, DType::BF16, DType::F32].map(|dtype| dense(dtype, &[5, 48]));
    for (inputs, axes) in
        [([half, brain, single], &[1][..]), ([brain, brain, single], &[0]), ([single, single, half], &[0, 1])]
    {
        forms.push((Form::new(GATED, inputs, axes, Reduction::Sum), Data::Normal, true));
    }
    let row = dense(DType::F16, &[48]);
    let mixed = Form { output: Some(DType::BF16), ..Form::new(GATED, [brain, single, row], &[0], Reduction::Sum) };
    forms.push((mixed, Data::Normal, true));
    forms.extend(forms_of_sets());
    forms
}

/// Several sets of inputs: norms of all gradients and the like, of sets of one element, of many pieces, without elements, of other layouts and types.
fn forms_of_sets() -> Vec<(Form, Data, bool)> {
    use Reduction::{Max, Mean, Min, Norm1, Norm2, NormInf, Prod, Sum};
    let mut forms = Vec::new();
    for dtype in FLOATS {
        let of = |dims: &[u64]| vec![dense(dtype, dims)];
        let sets = || {
            let turned = vec![strided(dtype, &[37, 66], &[1, 37])];
            let repeated = vec![strided(dtype, &[6, 40], &[0, 1])];
            vec![of(&[]), of(&[3, 20_001]), of(&[0, 5]), turned, of(&[2, 3, 4]), repeated, of(&[257])]
        };
        let x = dense(dtype, &[9, 34]);
        for reduce in [Sum, Mean, Max, Min, Norm1, Norm2, NormInf] {
            let form = Form { sets: sets(), ..Form::of(reduce, x, &[0, 1]) };
            forms.push((form, Data::Normal, reduce == Norm2));
        }
        let few = |form: Form| Form { sets: vec![of(&[5]), of(&[2, 3])], ..form };
        forms.push((few(Form::of(Prod, dense(dtype, &[7]), &[0])), Data::Normal, false));
        let with_empty = Form { sets: vec![of(&[0]), of(&[5])], ..Form::of(Max, x, &[0, 1]) };
        forms.push((with_empty, Data::Normal, false));
        forms.push((few(Form::of(Norm2, x, &[0, 1])), Data::Inf, false));
        forms.push((few(Form::of(Sum, x, &[0, 1]).finish(IS_FINITE)), Data::Nan, false));
        forms.push((few(Form::of(Sum, x, &[0, 1]).finish(BY_COUNT)), Data::Normal, false));
        let empty = Form { sets: vec![of(&[0]), of(&[3, 0])], ..Form::of(Sum, dense(dtype, &[0]), &[0]) };
        forms.push((empty, Data::Normal, false));
        let squares = Form::new(SQUARES, [x], &[0, 1], Sum);
        let to = |form: Form| Form { output: (dtype != DType::F64).then_some(DType::F32), ..form };
        forms.push((to(Form { sets: sets(), ..squares.clone() }), Data::Normal, true));
        forms.push((to(Form { sets: sets(), ..squares.finish(ROOT) }), Data::Normal, false));
        // A scalar that all sets share.
        let errors = Form::new(ERRORS, [x, dense(dtype, &[])], &[0, 1], Mean);
        forms.push((Form { sets: sets(), ..errors }, Data::Normal, true));
        let pairs = Form::new(ERRORS, [x, dense(dtype, &[34])], &[0, 1], Sum);
        let of_pairs = vec![vec![dense(dtype, &[5, 1]), dense(dtype, &[7])], vec![dense(dtype, &[70_001]); 2]];
        forms.push((Form { sets: of_pairs, ..pairs }, Data::Normal, false));
    }
    let [half, brain, single] = [DType::F16, DType::BF16, DType::F32].map(|dtype| dense(dtype, &[5, 48]));
    forms.push((Form { sets: vec![vec![half], vec![single]], ..Form::of(Norm2, brain, &[0, 1]) }, Data::Normal, true));
    forms
}

fn cases() -> Vec<Case> {
    let of = |(form, data, core): &(Form, Data, bool)| {
        let descriptor = form.descriptor().expect("the case lists hold valid descriptors");
        Case::new(descriptor, *data).core(*core)
    };
    distinct(forms().iter().map(of).collect())
}

/// What is reduced, as the JSON of a descriptor has it.
struct Reduced {
    reduce: Reduction,
    /// The extents of the inputs, broadcast.
    dims: Vec<u64>,
    axes: Vec<usize>,
    correction: u64,
    finish: Option<Program>,
    /// Of each set what it reduces.
    sets: Vec<Set>,
}

/// The inputs that are reduced together.
struct Set {
    names: Vec<&'static str>,
    /// What is reduced of them.
    program: Option<Program>,
    /// Their extents, broadcast, and of each input the element at each position.
    dims: Vec<u64>,
    places: Vec<Vec<usize>>,
}

/// The extents that others broadcast to.
fn broadcast(inputs: &[&[u64]]) -> Vec<u64> {
    let rank = inputs.iter().map(|dims| dims.len()).max().unwrap_or(0);
    let extent = |back: usize| {
        let own = inputs.iter().filter_map(|dims| dims.iter().rev().nth(back));
        own.copied().find(|&extent| extent != 1).unwrap_or(1)
    };
    (0..rank).rev().map(extent).collect()
}

impl Set {
    fn new(slots: &[&Slot], program: Option<&Program>) -> Self {
        let types: Vec<DType> = slots.iter().map(|slot| slot.desc.dtype()).collect();
        let number = types.iter().copied().find(|&dtype| dtype != DType::Bool).unwrap_or(DType::F32);
        let program = program.map(|program| program.clone().typed(&types, computing(number)));
        let inputs: Vec<&[u64]> = slots.iter().map(|slot| slot.desc.dims()).collect();
        let dims = broadcast(&inputs);
        let places = inputs.iter().map(|own| places(own, &dims)).collect();
        Self { names: slots.iter().map(|slot| slot.name).collect(), program, dims, places }
    }
}

impl Reduced {
    fn of(descriptor: &AnyDescriptor) -> Result<Self> {
        let json = json_of(descriptor)?;
        let axes = json["axes"].as_array().context("axes")?.iter().filter_map(Value::as_u64);
        let [program, finish] = ["program", "finish"].map(|field| json.get(field).map(Program::of).transpose());
        let program = program?;
        let inputs: Vec<&Slot> = descriptor.slots().iter().filter(|slot| slot.access == Access::In).collect();
        let (first, further): (Vec<&Slot>, Vec<&Slot>) = inputs.into_iter().partition(|slot| set_of(slot) == 0);
        let mut sets = vec![Set::new(&first, program.as_ref())];
        for own in further.chunk_by(|a, b| set_of(a) == set_of(b)) {
            // The last inputs are those of all sets.
            let slots: Vec<&Slot> = own.iter().chain(first.iter().skip(own.len())).copied().collect();
            sets.push(Set::new(&slots, program.as_ref()));
        }
        Ok(Self {
            reduce: serde_json::from_value(json["reduce"].clone())?,
            dims: sets[0].dims.clone(),
            sets,
            axes: axes.map(|axis| axis as usize).collect(),
            finish: finish?,
            correction: json.get("correction").and_then(Value::as_u64).unwrap_or(1),
        })
    }

    /// How many values are reduced to one.
    fn count(&self) -> u64 {
        if self.sets.len() > 1 {
            return self.sets.iter().map(|set| set.dims.iter().product::<u64>()).sum();
        }
        self.axes.iter().map(|&axis| self.dims[axis]).product()
    }

    /// The output of each position, both in row-major order.
    fn outputs(&self, set: &Set) -> Vec<usize> {
        if self.sets.len() > 1 {
            return vec![0; set.dims.iter().product::<u64>() as usize];
        }
        let mut outputs = vec![0];
        for (axis, &dim) in self.dims.iter().enumerate() {
            let dim = dim as usize;
            let step = |of: &usize| match self.axes.contains(&axis) {
                true => vec![*of; dim],
                false => (0..dim).map(|i| of * dim + i).collect(),
            };
            outputs = outputs.iter().flat_map(step).collect();
        }
        outputs
    }
}

/// Few elements may agree by chance, and what is true of all or of any often is everywhere.
fn may_be_constant(descriptor: &AnyDescriptor) -> bool {
    let is_truth = |slot: &Slot| slot.access == Access::Out && slot.desc.dtype() == DType::Bool;
    descriptor.slots().iter().any(is_truth)
        || descriptor.slots().iter().any(|slot| slot.access == Access::Out && slot.desc.elements() < 64)
        || Reduced::of(descriptor).is_ok_and(|of| of.count() == 0)
        || descriptor.slots().iter().any(|slot| slot.desc.strides().contains(&0))
}

/// Values for which no kernel leaves the range of its type on the way.
fn input(case: &Case, slot: &Slot, random: &mut Random, _: &Tensors) -> Result<Vec<f64>> {
    let reduced = Reduced::of(&case.descriptor)?;
    let elements = slot.desc.elements();
    if !slot.desc.dtype().is_float() {
        return Ok((0..elements).map(|_| integer(slot.desc.dtype(), random)).collect());
    }
    let cols = slot.desc.dims().last().copied().unwrap_or(1).max(1);
    let powers = if slot.desc.dtype() == DType::F64 { 1000 } else { 120 };
    let n = reduced.count().max(1) as f64;
    let largest = match reduced.reduce {
        Reduction::Norm2 | Reduction::Var | Reduction::Std => 2f64.powi(powers / 2 - 1) / n.sqrt(),
        Reduction::Max | Reduction::Min | Reduction::NormInf | Reduction::ArgMax | Reduction::ArgMin => f64::INFINITY,
        Reduction::CountNonzero | Reduction::Any | Reduction::All | Reduction::LogSumExp => f64::INFINITY,
        _ => 2f64.powi(powers) / n,
    };
    let huge = Huge::of(slot.desc.dtype()).at_most(largest, largest);
    let mut values = case.data.rows_within(huge, slot.desc.dtype(), elements / cols, cols, random);
    if reduced.reduce == Reduction::Prod {
        // Factors near 1, whose products stay near it.
        values.iter_mut().filter(|value| value.is_finite() && **value != 0.0).for_each(|value| {
            *value = (1.0 + 0.5 * (value.abs() % 1.0) - 0.2).copysign(*value);
        });
    }
    Ok(values)
}

const CONTRACTS: &[Contract] = &[Contract {
    outputs: &["out0"],
    budget: "u_o |y| + u_A (8 + L/4) sum|terms|, for a mean divided by n; products (8 + n) |y|, norms of squares (8 + L/4) |y|; logsumexp 32 + L/4 + 2 |y| + sum(p |x - max|), p the terms' shares; variances (8 + L/4) (M + |mean| sqrt(n M) + u_A (8 + L/4) n mean^2) / (n - correction), M the sum of the squares; max, min, counts, positions and integers 0; and what the errors of the program make of it",
    why: "Sums of random terms err by the root of the number of additions, and means and norms are seldom near the largest error of their sum.",
}];

/// A sum that carries the rounding errors along; if a term is not finite, what IEEE arithmetic gives.
fn total(terms: &[f64]) -> f64 {
    let (mut sum, mut lost) = (0.0, 0.0);
    for &term in terms {
        let next: f64 = sum + term;
        let (large, small): (f64, f64) = if f64::abs(sum) >= f64::abs(term) { (sum, term) } else { (term, sum) };
        lost += (large - next) + small;
        sum = next;
    }
    if sum.is_finite() { sum + lost } else { sum }
}

/// Values that are reduced to one, each with how far it may be off.
#[derive(Default)]
struct Terms {
    values: Vec<f64>,
    errors: Vec<f64>,
}

/// Expected values and budgets: docs/numerics.md, Budgets, "reduce".
fn expect(descriptor: &AnyDescriptor, inputs: &Tensors, outputs: &Tensors, by: By) -> Result<Vec<Expected>> {
    let reduced = Reduced::of(descriptor)?;
    let slots = descriptor.slots();
    let of_inputs = || slots.iter().filter(|slot| slot.access == Access::In);
    let out = slots.iter().find(|slot| slot.access != Access::In).context("an output")?;
    let actual = outputs.get(out.name).context("an output")?;
    let number = of_inputs().map(|slot| slot.desc.dtype()).find(|&dtype| dtype != DType::Bool).unwrap_or(DType::F32);
    let tensors =
        |set: &Set| set.names.iter().map(|name| inputs.get(name).context("an input")).collect::<Result<Vec<_>>>();
    let count = out.desc.elements() as usize;
    let (mut values, mut budgets) = (Vec::new(), Vec::new());
    if number.is_integer() {
        let computing = if matches!(number, DType::U8 | DType::I8) { DType::I32 } else { number };
        let mut terms = vec![Vec::new(); count];
        let (set, places) = (&reduced.sets[0], &reduced.sets[0].places);
        let tensors = tensors(set)?;
        for (position, output) in reduced.outputs(set).into_iter().enumerate() {
            let mut here = places.iter().zip(&tensors).map(|(places, tensor)| match &tensor.integers {
                Some(integers) => i128::from(integers[places[position]]),
                None => tensor.values[places[position]] as i128,
            });
            terms[output].push(match &set.program {
                Some(program) => program.integers(computing, here)?.swap_remove(0),
                None => here.next().context("an input")?,
            });
        }
        for (position, terms) in terms.iter().enumerate() {
            let (value, budget) = of_integer(whole(reduced.reduce, terms)?, actual, position);
            values.push(value);
            budgets.push(budget);
        }
        return Ok(vec![Expected { name: out.name.into(), values, budgets }]);
    }
    let computing = number.accumulator();
    let arithmetic = Arithmetic { computing, backend: by.backend };
    // Of each output the terms, and how far each may be off.
    let mut terms: Vec<Terms> = (0..count).map(|_| Terms::default()).collect();
    for set in &reduced.sets {
        let tensors = tensors(set)?;
        for (position, output) in reduced.outputs(set).into_iter().enumerate() {
            let here = set.places.iter().zip(&tensors).map(|(places, tensor)| tensor.values[places[position]]);
            let (value, error) = match &set.program {
                Some(program) => {
                    let allowed = program.outputs(arithmetic, here)?.swap_remove(0);
                    arithmetic.expected(DType::F64, allowed, allowed.value)
                }
                None => (tensors[0].values[set.places[0][position]], 0.0),
            };
            terms[output].values.push(value);
            terms[output].errors.push(finite(error));
        }
    }
    for (terms, &found) in terms.iter().zip(&actual.values) {
        let (value, allowance) = of_terms(&reduced, computing, terms, found)?;
        if let Some(finish) = &reduced.finish {
            let off = finite(allowance) * computing.unit_roundoff();
            let allowed = finish.finished(arithmetic, value, off, reduced.count())?;
            let (value, budget) = arithmetic.expected(out.desc.dtype(), allowed, found);
            values.push(value);
            budgets.push(budget);
            continue;
        }
        let is_float = out.desc.dtype().is_float();
        values.push(value);
        budgets.push(if is_float { budget(out.desc.dtype(), computing, value, finite(allowance)) } else { 0.0 });
    }
    Ok(vec![Expected { name: out.name.into(), values, budgets }])
}

/// A reduction of integers, whose low 64 bits count.
fn whole(reduce: Reduction, terms: &[i128]) -> Result<i128> {
    // The first of those that none is better than.
    let position = |best: Option<&i128>| terms.iter().position(|term| Some(term) == best).map_or(0, |at| at as i128);
    let low = |number: i128| i128::from(number as i64);
    Ok(match reduce {
        Reduction::Sum => low(terms.iter().sum()),
        Reduction::Prod => terms.iter().fold(1, |product, term| low(product * term)),
        Reduction::Max => *terms.iter().max().context("a term")?,
        Reduction::Min => *terms.iter().min().context("a term")?,
        Reduction::CountNonzero => terms.iter().filter(|term| **term != 0).count() as i128,
        Reduction::Any => terms.iter().any(|term| *term != 0).into(),
        Reduction::All => terms.iter().all(|term| *term != 0).into(),
        Reduction::ArgMax => position(terms.iter().max()),
        Reduction::ArgMin => position(terms.iter().min()),
        other => anyhow::bail!("{} is not of integers", other.name()),
    })
}

/// The value to expect of floating-point terms, and the error that is allowed besides the rounding to the output, in units of the computing type's; `found`
/// is what an implementation found.
fn of_terms(reduced: &Reduced, computing: DType, of: &Terms, found: f64) -> Result<(f64, f64)> {
    let Terms { values: terms, errors } = of;
    let (n, unit) = (terms.len() as f64, computing.unit_roundoff());
    let flushed = if computing == DType::F64 { 2f64.powi(-511) } else { 2f64.powi(-63) };
    let magnitudes: f64 = terms.iter().map(|term| term.abs()).sum();
    let (error, worst) = (errors.iter().sum::<f64>(), errors.iter().copied().fold(0.0, f64::max));
    let length = 8.0 + CHAIN / 4.0;
    let of_sum = length * magnitudes + error / unit;
    let has_nan = terms.iter().any(|term| term.is_nan());
    let extreme = |pick: fn(f64, f64) -> f64, none: f64| {
        if has_nan { f64::NAN } else { terms.iter().copied().fold(none, pick) }
    };
    let count = |counts: fn(f64) -> bool| terms.iter().filter(|term| counts(**term)).count() as f64;
    // The first NaN, or the first of those that none is better than; or where one was found that the program's errors allow, that.
    let position = |best: f64| {
        let is_best = |term: &f64| if has_nan { term.is_nan() } else { *term == best };
        let expected = terms.iter().position(is_best).map_or(f64::NAN, |at| at as f64);
        let at = found as usize;
        let is_near = errors.get(at).is_some_and(|error| (terms[at] - best).abs() <= error + worst);
        if worst > 0.0 && is_near { found } else { expected }
    };
    let (mean, divisor) = (total(terms) / n, (n - reduced.correction as f64).max(0.0));
    let variance = || {
        let squares = total(&terms.iter().map(|term| (term - mean) * (term - mean)).collect::<Vec<_>>());
        let apart = terms.iter().zip(errors).map(|(term, error)| 2.0 * (term - mean).abs() * error).sum::<f64>();
        let of_mean = mean.abs() * (n * squares).sqrt() + unit * length * n * mean * mean;
        let allowance = length * (squares + of_mean) + (apart + worst * worst * n + 2.0 * n * flushed * flushed) / unit;
        (squares / divisor, finite(allowance / divisor))
    };
    Ok(match reduced.reduce {
        Reduction::Sum => (total(terms), of_sum),
        Reduction::Mean => (mean, (of_sum + magnitudes) / n),
        Reduction::Prod => {
            let product: f64 = terms.iter().product();
            let relative: f64 = terms.iter().zip(errors).map(|(term, error)| error / term.abs()).sum();
            (product, (8.0 + n + finite(relative) / unit) * product.abs())
        }
        Reduction::Max => (extreme(f64::max, f64::NEG_INFINITY), worst / unit),
        Reduction::Min => (extreme(f64::min, f64::INFINITY), worst / unit),
        Reduction::NormInf => (extreme(|most, term| most.max(term.abs()), 0.0), worst / unit),
        Reduction::Norm1 => (total(&terms.iter().map(|term| term.abs()).collect::<Vec<_>>()), of_sum),
        Reduction::Norm2 => {
            let squares: Vec<f64> = terms.iter().map(|term| term * term).collect();
            let norm = total(&squares).sqrt();
            // Squares that a kernel takes for 0, and errors of the terms, none of which moves the norm by more.
            (norm, length * norm + (n.sqrt() * flushed + error) / unit)
        }
        Reduction::LogSumExp => {
            let most = extreme(f64::max, f64::NEG_INFINITY);
            if !most.is_finite() {
                return Ok((most, 0.0));
            }
            let powers: Vec<f64> = terms.iter().map(|term| (term - most).exp()).collect();
            let sum = total(&powers);
            let value = most + sum.ln();
            let of_one = |((term, power), error): ((&f64, &f64), &f64)| {
                if *power > 0.0 { power / sum * ((term - most).abs() + error / unit) } else { 0.0 }
            };
            let of_terms: f64 = terms.iter().zip(&powers).zip(errors).map(of_one).sum();
            (value, 32.0 + CHAIN / 4.0 + 2.0 * value.abs() + of_terms)
        }
        Reduction::Var => variance(),
        Reduction::Std => {
            let (variance, allowance) = variance();
            let (root, error) = (variance.sqrt(), allowance * unit);
            (root, 4.0 * root + error.sqrt().min(error / (2.0 * root)) / unit)
        }
        Reduction::CountNonzero => (count(|term| term != 0.0), 0.0),
        Reduction::Any => (count(|term| term != 0.0).min(1.0), 0.0),
        Reduction::All => (f64::from(u8::from(count(|term| term == 0.0) == 0.0)), 0.0),
        Reduction::ArgMax => (position(extreme(f64::max, f64::NEG_INFINITY)), 0.0),
        Reduction::ArgMin => (position(extreme(f64::min, f64::INFINITY)), 0.0),
        other => anyhow::bail!("tests/src/ops/reduce.rs has no formula of {}", other.name()),
    })
}

fn run_typed(run: TypedRun<'_, '_>) -> Result<(), Error> {
    let inputs = run.descriptor.slots().iter().filter(|slot| slot.access == Access::In);
    let (first, further): (Vec<&Slot>, Vec<&Slot>) = inputs.partition(|slot| set_of(slot) == 0);
    let inputs: Vec<Mem<'_>> = first.iter().map(|slot| run.input(slot.name)).collect();
    let mut further: Vec<Operand<'_>> = further.iter().map(|slot| run.input(slot.name).into()).collect();
    let output = run.output("out0");
    run.plan::<ReduceDescriptor>(ReduceArgs::new(inputs, output).sets(&mut further))
}

/// What the support table asks for.
fn asked_for(dtype: DType) -> Vec<(String, Form)> {
    let (x, image) = (dense(dtype, &[32, 128, 768]), dense(dtype, &[8, 64, 28, 28]));
    let last = channels_last(dtype, &[8, 64, 28, 28]);
    let mut forms: Vec<(String, Form)> = Reduction::ALL
        .iter()
        .map(|&reduce| (format!("{}, last axis", reduce.name()), Form::of(reduce, x, &[2])))
        .collect();
    let mut add = |what: &str, form: Form| forms.push((what.into(), form));
    add("first axis", Form::of(Reduction::Sum, x, &[0]));
    add("middle axis", Form::of(Reduction::Sum, x, &[1]));
    add("all axes", Form::of(Reduction::Sum, x, &[0, 1, 2]));
    add("no axis", Form::of(Reduction::Sum, x, &[]));
    add("axes kept", Form::of(Reduction::Sum, x, &[0, 2]).keep(&[0, 2]));
    add("all but channels", Form::of(Reduction::Sum, image, &[0, 2, 3]));
    add("all but channels, channels-last", Form::of(Reduction::Sum, last, &[0, 2, 3]));
    add("rows apart", Form::of(Reduction::Sum, strided(dtype, &[32, 768], &[1024, 1]), &[1]));
    add("transposed", Form::of(Reduction::Sum, strided(dtype, &[32, 768], &[1, 32]), &[1]));
    add("a finish", Form::new(SQUARES, [x], &[2], Reduction::Mean).finish(ROOT));
    add("a program", Form::new(ERRORS, [x, x], &[2], Reduction::Mean));
    add(
        "several sets",
        Form { sets: vec![vec![image], vec![dense(dtype, &[768])]], ..Form::of(Reduction::Norm2, x, &[0, 1, 2]) },
    );
    add("a program with broadcasting", Form::new(ERRORS, [x, dense(dtype, &[768])], &[0, 1], Reduction::Sum));
    let to = if dtype == DType::F32 { DType::BF16 } else { DType::F32 };
    add("another output type", Form { output: Some(to), ..Form::of(Reduction::Sum, x, &[2]) });
    forms
}
