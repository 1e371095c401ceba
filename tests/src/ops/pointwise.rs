//! Programs of each element: every function in every type, layouts, broadcasting, mixed types, and programs of several instructions.

use anyhow::{Context, Result};
use baracuda_ops::{
    Access, AnyDescriptor, DType, Error, Function, Mem, MemMut, Operand, PointwiseArgs, PointwiseDescriptor, Slot,
    TensorDesc, stock,
};
use serde_json::json;

use super::{Contract, FLOATS, Subject, TypedRun, channels_last, dense, features, json_of, strided};
use crate::case::{Case, Data, Random, distinct};
use crate::judge::{By, Expected, budget};
use crate::program::{Arithmetic, Program, wrapped};
use crate::values::{Tensor, Tensors, rounded};

pub(super) const POINTWISE: Subject = Subject {
    name: "pointwise",
    cases,
    is_cpu_only: |_| false,
    may_be_constant,
    input,
    expect,
    contracts: CONTRACTS,
    run_typed,
    features: || features(asked_for, Form::descriptor),
};

/// `z = x sigmoid(x) y`.
const GATED: &str =
    r#"{"inputs":["x","y"],"let":[["s","sigmoid","x"],["t","mul","x","s"],["z","mul","t","y"]],"outputs":["z"]}"#;
/// No instruction: a cast.
const CAST: &str = r#"{"inputs":["x"],"outputs":["x"]}"#;
/// A difference, scaled and shifted, of three inputs that are used several times, and what led to it.
const SEVERAL: &str = r#"{"inputs":["x","y","z"],"let":[["d","sub","x","y"],["q","mul","d","d"],["r","mul","q","z"],["e","add","r",0.5]],"outputs":["e","d","x","d"]}"#;
/// Numbers that have no digits, and such that f32 does not hold.
const NUMBERS: &str = r#"{"inputs":["x"],"let":[["a","add","x","inf"],["b","mul","x","-inf"],["c","sub","nan","x"],["d","div","x",-0.0],["e","mul","x",1e-40],["f","mul",0.1,"x"],["g","div",1.0,3.0],["h","add","x","g"],["i","div","x",0]],"outputs":["a","b","c","d","e","f","h","i"]}"#;

/// A descriptor before it is one.
#[derive(Clone)]
struct Form {
    /// JSON.
    program: String,
    inputs: Vec<TensorDesc>,
    /// The types of the outputs, if they are not the default.
    outputs: Vec<DType>,
    /// The layout of the first output, if it is not the default.
    out: Option<TensorDesc>,
    /// The extents of the outputs, if inputs do not say them; `outputs` are given then.
    dims: Option<Vec<u64>>,
    /// The inputs of further sets.
    sets: Vec<Vec<TensorDesc>>,
}

impl Form {
    fn new(program: impl Into<String>, inputs: impl Into<Vec<TensorDesc>>) -> Self {
        let (program, inputs) = (program.into(), inputs.into());
        Self { program, inputs, outputs: Vec::new(), out: None, dims: None, sets: Vec::new() }
    }

    /// A function of inputs that lie alike.
    fn of(function: Function, x: TensorDesc) -> Self {
        let names = &["x", "y", "z"][..function.arity()];
        let call = [&["r", function.name()], names].concat();
        let input = |at| if function.takes_bool(at) { dense(DType::Bool, x.dims()) } else { x };
        let inputs: Vec<_> = (0..names.len()).map(input).collect();
        Self::new(json!({"inputs": names, "let": [call], "outputs": ["r"]}).to_string(), inputs)
    }

    fn descriptor(&self) -> Result<AnyDescriptor, Error> {
        let program = serde_json::from_str(&self.program).expect("the case lists hold valid programs");
        let mut descriptor = match &self.dims {
            Some(dims) => {
                PointwiseDescriptor::generated(program, self.inputs.clone(), dims.clone(), self.outputs.clone())?
            }
            None => PointwiseDescriptor::new(program, self.inputs.clone())?,
        };
        if !self.sets.is_empty() {
            descriptor = descriptor.sets(self.sets.clone())?;
        }
        if !self.outputs.is_empty() {
            descriptor = descriptor.outputs(self.outputs.clone())?;
        }
        if let Some(out) = self.out {
            descriptor = descriptor.layout("out0", out)?;
        }
        Ok(AnyDescriptor::new(descriptor))
    }
}

/// A chain of as many instructions as a program may have, whose numbers stay as large as those of its two inputs.
fn longest() -> String {
    let step = |at: usize| {
        let before = if at == 0 { "x".into() } else { format!("t{}", at - 1) };
        let call: [serde_json::Value; 2] = match at % 4 {
            0 => ["mul".into(), json!(0.5)],
            1 => ["add".into(), json!("y")],
            2 => ["sub".into(), json!(0.25)],
            _ => ["div".into(), json!(1.5)],
        };
        json!([format!("t{at}"), call[0], before, call[1]])
    };
    let last = baracuda_ops::Program::MAX_INSTRUCTIONS;
    let steps: Vec<_> = (0..last).map(step).collect();
    json!({"inputs": ["x", "y"], "let": steps, "outputs": [format!("t{}", last - 1)]}).to_string()
}

/// As many inputs and outputs as a program may have: each output is a sum of two inputs.
fn widest() -> String {
    use baracuda_ops::Program;
    let inputs: Vec<_> = (0..Program::MAX_INPUTS).map(|at| format!("x{at}")).collect();
    let outputs: Vec<_> = (0..Program::MAX_OUTPUTS).map(|at| format!("y{at}")).collect();
    let sum = |(at, y): (usize, &String)| json!([y, "add", inputs[at], inputs[Program::MAX_INPUTS - 1 - at]]);
    let sums: Vec<_> = outputs.iter().enumerate().map(sum).collect();
    json!({"inputs": inputs, "let": sums, "outputs": outputs}).to_string()
}

/// Every form with the data it runs on, and whether it runs in every mode.
fn forms() -> Vec<(Form, Data, bool)> {
    let mut forms = Vec::new();
    for dtype in FLOATS {
        let mut add = |form: Form, data: Data, core: bool| forms.push((form, data, core));
        let hard = [Data::Nan, Data::Inf, Data::NegInf, Data::Tiny, Data::Large, Data::Huge, Data::Sparse, Data::Wide];
        // 16-bit types differ from f32 only in how elements are read and written.
        let of_type = if dtype.size_bytes() == 2 { &[Data::Huge][..] } else { &hard };
        for function in functions_in(dtype) {
            let x = dense(dtype, &[12, 40]);
            add(Form::of(function, x), Data::Normal, false);
            of_type.iter().for_each(|&data| add(Form::of(function, x), data, false));
        }
        // Around a vector's width, a block's and a chunk's; none.
        for elements in [1, 2, 3, 7, 8, 9, 255, 1023, 65537] {
            let x = dense(dtype, &[elements]);
            let is_core = [7, 1023].contains(&elements);
            add(Form::of(Function::Exp, x), Data::Normal, is_core);
            add(Form::of(Function::Mul, x), Data::Normal, is_core);
            add(Form::new(GATED, [x, x]), Data::Normal, false);
        }
        // Ranks and orders of extents, promises below a vector, gaps, outputs that lie otherwise.
        let image = dense(dtype, &[2, 6, 4, 8]);
        let last = channels_last(dtype, &[2, 6, 4, 8]);
        let gaps = strided(dtype, &[6, 40], &[48, 1]);
        let repeated = strided(dtype, &[6, 40], &[0, 1]);
        for (x, y, is_core) in [
            (dense(dtype, &[3, 0, 5]), dense(dtype, &[3, 0, 5]), true),
            (dense(dtype, &[]), dense(dtype, &[]), true),
            (dense(dtype, &[2, 3, 1, 2, 2, 3, 1, 5]), dense(dtype, &[2, 3, 1, 2, 2, 3, 1, 5]), false),
            (last, last, true),
            (last, image, true),
            (image, last, false),
            (strided(dtype, &[5, 33], &[1, 5]), strided(dtype, &[5, 33], &[1, 5]), true),
            (strided(dtype, &[37, 66], &[1, 37]), dense(dtype, &[37, 66]), true),
            (strided(dtype, &[3, 4, 5, 6], &[1, 3, 12, 60]), dense(dtype, &[3, 4, 5, 6]), false),
            (gaps, gaps, true),
            (gaps, dense(dtype, &[6, 40]), false),
            (repeated, dense(dtype, &[6, 40]), false),
            (repeated, repeated, false),
            (strided(dtype, &[7, 9], &[31, 3]), strided(dtype, &[7, 9], &[2, 20]), false),
        ] {
            add(Form::of(Function::Add, x).with(y), Data::Normal, is_core);
        }
        let narrow = dense(dtype, &[3, 1021]).align(dtype.size_bytes()).expect("a promise");
        add(Form::new(GATED, [narrow, narrow]), Data::Normal, true);
        add(Form { out: Some(last), ..Form::new(GATED, [image, image]) }, Data::Normal, true);
        add(Form { out: Some(gaps), ..Form::of(Function::Neg, dense(dtype, &[6, 40])) }, Data::Normal, true);
        // Broadcasting of a scalar, rows, columns and channels, of both sides, and of more than two.
        for (x, y, is_core) in [
            (&[6, 40][..], &[][..], true),
            (&[], &[6, 40], false),
            (&[6, 40], &[40], true),
            (&[6, 40], &[6, 1], true),
            (&[33, 7], &[7], false),
            (&[2, 6, 4, 8], &[6, 1, 1], true),
            (&[2, 6, 4, 8], &[2, 1, 1, 8], false),
            (&[6, 1], &[1, 40], true),
            (&[1, 5, 1, 7], &[3, 1, 4, 1], false),
            (&[4, 1], &[0], false),
            (&[1, 1], &[1], false),
        ] {
            let [x, y] = [x, y].map(|dims| dense(dtype, dims));
            add(Form::of(Function::Sub, x).with(y), Data::Normal, is_core);
        }
        add(Form::of(Function::Mul, last).with(dense(dtype, &[6, 1, 1])), Data::Normal, true);
        add(Form::new(SEVERAL, [[5, 1, 7], [1, 3, 1], [1, 1, 7]].map(|dims| dense(dtype, &dims))), Data::Normal, false);
        // Programs.
        let x = dense(dtype, &[9, 33]);
        add(Form::new(GATED, [x, x]), Data::Normal, true);
        add(Form::new(GATED, [x, x]), Data::Large, false);
        add(Form::new(SEVERAL, [x, x, dense(dtype, &[33])]), Data::Normal, true);
        add(Form::new(NUMBERS, [x]), Data::Normal, true);
        add(Form::new(NUMBERS, [x]), Data::Sparse, false);
        add(Form::new(longest(), [x, x]), Data::Normal, true);
        add(Form::new(widest(), vec![x; baracuda_ops::Program::MAX_INPUTS]), Data::Normal, true);
        // Casts.
        for to in FLOATS.into_iter().filter(|to| *to != dtype) {
            let form = Form { outputs: vec![to], ..Form::new(CAST, [dense(dtype, &[12, 40])]) };
            [Data::Normal, Data::Nan, Data::Huge, Data::Wide]
                .iter()
                .for_each(|&data| add(form.clone(), data, data == Data::Normal));
        }
    }
    forms.extend(forms_of_integers_and_bools());
    forms.extend(forms_of_sources());
    forms.extend(forms_of_sets());
    forms.extend(forms_of_stock());
    // Types that differ.
    let [half, brain, single] = [DType::F16, DType::BF16, DType::F32].map(|dtype| dense(dtype, &[5, 48]));
    for (inputs, outputs) in [
        ([half, brain, single], vec![]),
        ([brain, brain, single], vec![DType::BF16; 4]),
        ([single, single, half], vec![DType::F16, DType::F32, DType::BF16, DType::F32]),
        ([brain, single, dense(DType::F16, &[48])], vec![DType::BF16, DType::F16, DType::F32, DType::F32]),
        ([half, half, half], vec![DType::F64, DType::F32, DType::F16, DType::BF16]),
    ] {
        forms.push((Form { outputs, ..Form::new(SEVERAL, inputs) }, Data::Normal, true));
    }
    forms
}

/// The type in which numbers of a type compute; bools beside no number are beside f32.
pub(crate) fn computing(dtype: DType) -> DType {
    match dtype {
        DType::U8 | DType::I8 => DType::I32,
        DType::Bool => DType::F32,
        other => other.accumulator(),
    }
}

/// The functions of numbers of a type.
fn functions_in(dtype: DType) -> impl Iterator<Item = Function> {
    Function::ALL.into_iter().filter(move |function| function.computes_in(computing(dtype)))
}

/// Where a number is neither above a limit nor NaN, itself, else the limit; and whether it was; of a number and a mask.
const LIMITED: &str = r#"{"inputs":["x","y","m"],"let":[["c","lt","x","y"],["n","ne","x","x"],["d","logical_or","c","n"],["e","logical_and","d","m"],["z","where","e","x","y"]],"outputs":["z","e","m"]}"#;

/// Integers and bools: every function, casts between all types, layouts.
fn forms_of_integers_and_bools() -> Vec<(Form, Data, bool)> {
    let mut forms: Vec<(Form, Data, bool)> = Vec::new();
    let add = |forms: &mut Vec<_>, form: Form, core: bool| forms.push((form, Data::Normal, core));
    let integers = [DType::I32, DType::U32, DType::I64, DType::U8, DType::I8];
    for dtype in integers {
        let x = dense(dtype, &[12, 40]);
        functions_in(dtype).for_each(|function| add(&mut forms, Form::of(function, x), function == Function::Add));
        let turned = strided(dtype, &[37, 66], &[1, 37]);
        let odd = dense(dtype, &[3, 1021]);
        add(&mut forms, Form::of(Function::Sub, turned).with(dense(dtype, &[37, 66])), true);
        add(&mut forms, Form::of(Function::Maximum, odd).with(dense(dtype, &[1021])), false);
        add(&mut forms, Form::of(Function::Lt, x).with(dense(dtype, &[12, 1])), true);
        let numbers = r#"{"inputs":["x"],"let":[["a","mul","x",3],["b","shift_right","a",1],["c","div_floor","b",7],["d","gt","c",2]],"outputs":["b","c","d"]}"#;
        add(&mut forms, Form::new(numbers, [x]), true);
    }
    for from in DType::ALL {
        for to in DType::ALL.into_iter().filter(|to| *to != from) {
            let is_new = !FLOATS.contains(&from) || !FLOATS.contains(&to);
            let form = Form { outputs: vec![to], ..Form::new(CAST, [dense(from, &[12, 40])]) };
            if is_new {
                let hard = [Data::Nan, Data::Inf, Data::NegInf, Data::Huge];
                let all = if from.is_float() { &hard[..] } else { &[] };
                [Data::Normal].iter().chain(all).for_each(|&data| forms.push((form.clone(), data, false)));
            }
        }
    }
    for dtype in FLOATS {
        let [x, mask] = [dtype, DType::Bool].map(|dtype| dense(dtype, &[9, 33]));
        add(&mut forms, Form::new(LIMITED, [x, dense(dtype, &[33]), mask]), true);
        add(&mut forms, Form { outputs: vec![dtype, dtype, DType::I32], ..Form::new(LIMITED, [x, x, mask]) }, false);
        let [x, turned] = [dense(dtype, &[66, 37]), strided(DType::Bool, &[66, 37], &[1, 66])];
        add(&mut forms, Form::new(LIMITED, [x, x, turned]), true);
        let long = dense(dtype, &[4096]);
        add(&mut forms, Form::new(LIMITED, [long, dense(dtype, &[]), dense(DType::Bool, &[4096])]), true);
        add(
            &mut forms,
            Form {
                out: Some(strided(DType::Bool, &[6, 40], &[96, 2])),
                ..Form::of(Function::Ge, dense(dtype, &[6, 40]))
            },
            true,
        );
    }
    for dims in [&[1001][..], &[], &[3, 0]] {
        let mask = dense(DType::Bool, dims);
        add(&mut forms, Form::of(Function::LogicalXor, mask), dims.len() == 1);
    }
    forms
}

/// Positions and random numbers, with every distribution, in every type, and in layouts other than the order by which numbers are drawn.
fn forms_of_sources() -> Vec<(Form, Data, bool)> {
    let mut forms: Vec<(Form, Data, bool)> = Vec::new();
    let mut add = |form: Form, core: bool| forms.push((form, Data::Normal, core));
    let generated = |program: &str, inputs: Vec<TensorDesc>, dims: &[u64], output: DType| Form {
        outputs: vec![output],
        dims: Some(dims.to_vec()),
        ..Form::new(program, inputs)
    };
    let keys = || vec![dense(DType::U32, &[2]), dense(DType::U32, &[])];
    let arange = r#"{"inputs":[],"let":[["i","index",0],["t","mul","i",2],["u","add","t",3]],"outputs":["u"]}"#;
    let eye = r#"{"inputs":[],"let":[["i","index",0],["j","index",1],["c","eq","i","j"],["u","where","c",1,0]],"outputs":["u"]}"#;
    let full = r#"{"inputs":[],"let":[["u","maximum",7,7]],"outputs":["u"]}"#;
    for dtype in [FLOATS[0], DType::F32, DType::F16, DType::I32, DType::U32, DType::I64, DType::U8] {
        add(generated(arange, vec![], &[61], dtype), dtype == DType::F32);
        add(generated(arange, vec![], &[5, 3, 4], dtype), false);
        add(generated(eye, vec![], &[7, 9], dtype), true);
        add(Form { out: Some(strided(dtype, &[7, 9], &[1, 7])), ..generated(eye, vec![], &[7, 9], dtype) }, false);
        add(generated(full, vec![], &[5, 7], dtype), false);
    }
    add(generated(arange, vec![], &[], DType::F32).without_axis(), false);
    let one_hot = r#"{"inputs":["x"],"let":[["j","index",1],["c","eq","x","j"]],"outputs":["c"]}"#;
    add(generated(one_hot, vec![dense(DType::I32, &[12, 1])], &[12, 16], DType::F32), true);
    let causal = r#"{"inputs":["x"],"let":[["i","index",0],["j","index",1],["c","ge","i","j"],["y","where","c","x","-inf"]],"outputs":["y"]}"#;
    let of_channel = r#"{"inputs":["x"],"let":[["i","index",1],["j","index",3],["t","mul","x","i"],["y","add","t","j"]],"outputs":["y"]}"#;
    let dropout = r#"{"inputs":["x","seed","offset"],"let":[["k","bernoulli","seed","offset",5,0.75],["t","mul","x",1.25],["y","where","k","t",0]],"outputs":["y"]}"#;
    let noisy = r#"{"inputs":["seed","x","offset"],"let":[["n","normal","seed","offset",0],["e","exponential","seed","offset",1],["u","uniform","seed","offset",1],["i","index",0],["a","mul","n","x"],["b","add","a","e"],["y","add","b","i"]],"outputs":["y","u"]}"#;
    for dtype in FLOATS {
        let layouts = [
            dense(dtype, &[9, 33]),
            dense(dtype, &[37, 64]),
            strided(dtype, &[37, 66], &[1, 37]),
            strided(dtype, &[6, 40], &[48, 1]),
            dense(dtype, &[3, 0]),
            dense(dtype, &[1, 1]),
        ];
        for (at, x) in layouts.into_iter().enumerate() {
            add(Form::new(causal, [x]), at == 0);
            add(Form::new(dropout, [vec![x], keys()].concat()), at != 2);
            add(Form::new(noisy, [keys()[0], x, keys()[1]]), at == 1);
        }
        let image = dense(dtype, &[2, 6, 4, 8]);
        let last = channels_last(dtype, &[2, 6, 4, 8]);
        add(Form::new(of_channel, [image]), false);
        add(Form::new(of_channel, [last]), true);
        add(Form::new(dropout, [vec![last], keys()].concat()), false);
        add(Form { out: Some(last), ..Form::new(dropout, [vec![image], keys()].concat()) }, false);
        let row = dense(dtype, &[1, 40]);
        let wide = Form { dims: Some(vec![6, 40]), outputs: vec![dtype], ..Form::new(causal, [row]) };
        add(wide, false);
        let apart = strided(DType::U32, &[2], &[3]);
        add(Form::new(dropout, [dense(dtype, &[4096]), apart, dense(DType::U32, &[])]), false);
    }
    let random = |of: &str| {
        format!(
            r#"{{"inputs":["seed","offset"],"let":[["u",{}]],"outputs":["u"]}}"#,
            of.replace('@', r#""seed","offset""#)
        )
    };
    for (of, types) in [
        (r#""uniform",@,0"#, &[DType::F32, DType::F64, DType::F16, DType::BF16][..]),
        (r#""uniform",@,7,5"#, &[DType::F32, DType::F16]),
        // More digits than the types have.
        (r#""uniform",@,7,53"#, &[DType::F32, DType::BF16]),
        (r#""normal",@,0"#, &[DType::F32, DType::F64, DType::F16, DType::BF16]),
        (r#""exponential",@,4000000000"#, &[DType::F32, DType::F64, DType::BF16]),
        (r#""bernoulli",@,1,0.3"#, &[DType::F32, DType::Bool, DType::I32, DType::I64, DType::F64]),
        (r#""bernoulli",@,1,1"#, &[DType::Bool]),
        (r#""bernoulli",@,1,0"#, &[DType::Bool]),
        (r#""randint",@,2,3,1000"#, &[DType::I32, DType::U32, DType::I64, DType::F32, DType::F64]),
        (r#""randint",@,2,-2147483648,2147483648"#, &[DType::I32, DType::I64]),
    ] {
        for &dtype in types {
            let program = random(of);
            add(generated(&program, keys(), &[1001], dtype), true);
            add(generated(&program, keys(), &[7, 64], dtype), false);
            let turned = strided(dtype, &[7, 66], &[1, 7]);
            add(Form { out: Some(turned), ..generated(&program, keys(), &[7, 66], dtype) }, false);
        }
    }
    forms
}

/// A program of [`stock`] whose first `inputs` have a value at each position, the others of which are scalars.
fn stock_form(program: &baracuda_ops::Program, inputs: &[TensorDesc]) -> Form {
    let scalar = dense(inputs[0].dtype(), &[]);
    let scalars = program.inputs() - inputs.len();
    Form::new(serde_json::to_string(program).expect("JSON"), [inputs, &vec![scalar; scalars]].concat())
}

/// The program of the gradients of a program of floating-point inputs that lie alike.
fn gradient_form(program: &baracuda_ops::Program, wanted: &[&str], inputs: Vec<TensorDesc>) -> Form {
    let forward = PointwiseDescriptor::new(program.clone(), inputs).expect("a stock program");
    let steps = AnyDescriptor::new(forward).gradients(&["out0"], wanted).expect("it has gradients");
    let json = json_of(&steps[0].descriptor).expect("JSON");
    let inputs: Vec<TensorDesc> = serde_json::from_value(json["inputs"].clone()).expect("layouts");
    Form::new(json["program"].to_string(), inputs)
}

/// The stock programs, those that kernels are compiled for among them, dense and with strides.
fn forms_of_stock() -> Vec<(Form, Data, bool)> {
    use baracuda_ops::stock::{Adagrad, Adam, Lion, RmsProp, Sgd};
    let valid = |program: Result<baracuda_ops::Program, Error>| program.expect("a stock program");
    let mut forms: Vec<(Form, Data, bool)> = Vec::new();
    // One after the other: a scale, a shift and bounds that are numbers.
    let scale_shift_clamp = r#"{"inputs":["x"],"let":[["a","mul","x",0.5],["b","add","a",1.0],["c","clamp","b",-1.0,2.0]],"outputs":["c"]}"#;
    let each = [
        (valid(stock::swiglu()), 2),
        (valid(stock::geglu()), 2),
        (valid(stock::geglu_tanh()), 2),
        (valid(stock::scale_shift()), 1),
        (valid(stock::clamp_scale(-1.0, 1.5)), 1),
        (valid(stock::mse()), 2),
        (valid(stock::l1()), 2),
        (valid(stock::huber(0.5)), 2),
        (valid(stock::bce_with_logits()), 2),
        (valid(stock::hinge()), 2),
        (valid(stock::rope(None)), 4),
        (valid(stock::rope_at(None)), 4),
        (valid(stock::nan_to_num(0.0, 100.0, -100.0)), 1),
        (baracuda_ops::Program::of(Function::Mul), 2),
        (baracuda_ops::Program::of(Function::Square), 1),
        (valid(Sgd { momentum: 0.9, weight_decay: 0.01, ..Sgd::default() }.program()), 3),
        (valid(Lion { scaled: true, ..Lion::default() }.program()), 3),
        (valid(RmsProp { momentum: 0.5, ..RmsProp::default() }.program()), 4),
        (valid(Adagrad::default().program()), 3),
        (valid(Adam { amsgrad: true, ..Adam::default() }.program()), 5),
    ];
    for dtype in FLOATS {
        let is_core = dtype == DType::F32;
        let layouts = [dense(dtype, &[9, 80]), strided(dtype, &[9, 80], &[96, 1]), strided(dtype, &[9, 33], &[1, 9])];
        for (at, x) in layouts.into_iter().enumerate() {
            for (program, own) in &each {
                forms.push((stock_form(program, &vec![x; *own]), Data::Normal, is_core && at == 0 && *own > 3));
            }
            forms.push((Form::new(scale_shift_clamp, [x]), Data::Normal, is_core && at == 0));
            let gradient = gradient_form(&valid(stock::swiglu()), &["in0", "in1"], vec![x; 2]);
            forms.push((gradient, Data::Normal, is_core && at == 0));
            let gradient = gradient_form(&valid(stock::rope(None)), &["in0", "in1"], vec![x; 4]);
            forms.push((gradient, Data::Normal, false));
            let keys = [dense(DType::U32, &[2]), dense(DType::U32, &[])];
            let dropout = valid(stock::dropout(0.25, 3));
            let of = [vec![x], keys.to_vec()].concat();
            forms.push((gradient_form(&dropout, &["in0"], of.clone()), Data::Normal, false));
            let json = serde_json::to_string(&dropout).expect("JSON");
            forms.push((Form::new(json, of), Data::Normal, false));
        }
        // Rotary embeddings of two samples of five positions of three heads: pairs in halves, and pairs of neighbours along an axis of the output.
        let of_positions = dense(DType::F32, &[5, 1, 1, 16]);
        let positions = [dense(DType::F32, &[2, 5, 1, 1, 1]), dense(DType::F32, &[16, 1])];
        let halves = strided(dtype, &[2, 5, 3, 2, 16], &[480, 96, 32, 0, 1]);
        let neighbours = strided(dtype, &[2, 5, 3, 16, 2], &[480, 96, 32, 2, 0]);
        if dtype != DType::F64 {
            for (program, inputs) in [
                (stock::rope(Some(3)), vec![halves, halves, of_positions, of_positions]),
                (stock::rope_at(Some(4)), [vec![neighbours; 2], positions.to_vec()].concat()),
            ] {
                let form = stock_form(&valid(program), &inputs);
                forms.push((Form { outputs: vec![dtype], ..form }, Data::Normal, is_core));
            }
        }
        // AdamW of 1, 3 and 9 sets of different shapes, in all of its forms that kernels are compiled for.
        for (scaled, copy) in [(false, false), (true, false), (false, true), (true, true)] {
            let adam = valid(Adam { scaled, copy, ..Adam::w(0.01) }.program());
            let of = |dims: &[u64]| vec![dense(dtype, dims); 4];
            let first = stock_form(&adam, &of(&[5, 33]));
            let shapes: [&[u64]; 8] = [&[64], &[1], &[3, 7, 5], &[2050], &[2], &[16, 16], &[1023], &[0]];
            for further in [0, 2, 8] {
                let sets = shapes.iter().take(further).map(|dims| of(dims)).collect();
                forms.push((Form { sets, ..first.clone() }, Data::Normal, is_core && further == 2));
            }
            let apart = vec![strided(dtype, &[6, 20], &[1, 6]); 4];
            forms.push((Form { sets: vec![apart, of(&[40])], ..first }, Data::Normal, false));
        }
    }
    forms
}

/// AdamW with a scale of gradients and a rounded copy of the parameter.
const ADAMW: &str = r#"{"inputs":["p","g","m","v","rate","root","kept","scale"],"let":[["h","mul","g","scale"],["m1","lerp","m","h",0.1],["s","square","h"],["w","abs","v"],["v1","lerp","w","s",0.001],["d","sqrt","v1"],["e","abs","root"],["f","add","e",0.5],["i","div","d","f"],["j","add","i",1e-8],["b","div","m1","j"],["k","mul","p","kept"],["t","mul","rate","b"],["q","sub","k","t"]],"outputs":["q","m1","v1","q"]}"#;

/// Several sets of operands.
fn forms_of_sets() -> Vec<(Form, Data, bool)> {
    let mut forms = Vec::new();
    let mut add = |form: Form, sets: Vec<Vec<TensorDesc>>, core: bool| {
        forms.push((Form { sets, ..form }, Data::Normal, core));
    };
    for dtype in FLOATS {
        let x = |dims: &[u64]| dense(dtype, dims);
        // Sizes around vectors and blocks, many small ones, none; shared scalars.
        let sizes = [7, 1, 1023, 8, 0, 4099, 64, 2];
        let of_sizes = || sizes.map(|size| vec![x(&[size]), x(&[size])]).to_vec();
        let addcmul = Form::of(Function::Addcmul, x(&[33]));
        let shared = Form { inputs: vec![x(&[33]), x(&[33]), x(&[])], ..addcmul };
        add(shared, of_sizes(), true);
        add(
            Form::of(Function::Mul, x(&[5, 9])).with(x(&[])),
            (0..100).map(|at| vec![x(&[1 + at % 9])]).collect(),
            false,
        );
        // Layouts and broadcasting of their own; all inputs of their own.
        let rows = vec![x(&[6, 40]), x(&[40])];
        let turned = vec![strided(dtype, &[5, 33], &[1, 5]), x(&[5, 33])];
        let narrow = vec![x(&[3, 21]).align(dtype.size_bytes()).expect("a promise"), x(&[3, 21])];
        add(Form::of(Function::Sub, x(&[2, 8])), vec![rows, turned, narrow, vec![x(&[]), x(&[])]], true);
        add(Form::new(SEVERAL, [x(&[9, 33]); 3]), vec![vec![x(&[64]); 3], vec![x(&[2, 3]); 3]], false);
        add(Form::of(Function::Erf, x(&[130])), vec![vec![x(&[3])], vec![x(&[700])]], false);
    }
    // Parameters of 16 bits beside those of f32, and sets of several types.
    for half in [DType::F16, DType::BF16] {
        let of = |dims: &[u64]| [DType::F32, half, DType::F32, DType::F32].map(|dtype| dense(dtype, dims)).to_vec();
        let scalars = vec![dense(DType::F32, &[]); 4];
        let form = Form::new(ADAMW, [of(&[48, 64]), scalars].concat());
        let outputs = vec![DType::F32, DType::F32, DType::F32, half];
        add(Form { outputs, ..form }, vec![of(&[64]), of(&[3, 5]), of(&[1]), of(&[2050])], half == DType::BF16);
        let mixed = vec![vec![dense(DType::F32, &[9])], vec![dense(half, &[20])], vec![dense(DType::F8E4M3, &[5])]];
        add(Form::of(Function::Exp, dense(half, &[40])), mixed, false);
    }
    for dtype in [DType::I32, DType::I64, DType::U8] {
        let [x, y] = [7, 300].map(|size| vec![dense(dtype, &[size]); 2]);
        add(Form::of(Function::Maximum, dense(dtype, &[12, 4])), vec![x, y], false);
    }
    forms
}

impl Form {
    /// A program of rank 0 that has no axis.
    fn without_axis(mut self) -> Self {
        self.program = r#"{"inputs":[],"let":[["u","maximum",7,7]],"outputs":["u"]}"#.into();
        self
    }

    /// With another second input.
    fn with(mut self, y: TensorDesc) -> Self {
        self.inputs[1] = y;
        self
    }
}

fn cases() -> Vec<Case> {
    let of = |(form, data, core): &(Form, Data, bool)| {
        let descriptor = form.descriptor().expect("the case lists hold valid descriptors");
        Case::new(descriptor, *data).core(*core)
    };
    distinct(forms().iter().map(of).collect())
}

/// The program of a descriptor.
fn program_of(descriptor: &AnyDescriptor) -> Result<Program> {
    Program::of(&json_of(descriptor)?["program"])
}

/// Few elements may agree by chance, repeated ones do, and what numbers without digits make of x is often one number.
fn may_be_constant(descriptor: &AnyDescriptor) -> bool {
    let is_few = |slot: &Slot| slot.desc.elements() < 64 || slot.desc.strides().contains(&0);
    let has_hard_numbers =
        program_of(descriptor).is_ok_and(|program| program.numbers().any(|n| !(1e-30..1e30).contains(&n.abs())));
    // Few numbers are NaN, and of bytes half are beyond the range of others.
    let has_other_types =
        descriptor.slots().iter().any(|slot| !slot.desc.dtype().is_float() || slot.desc.dtype().size_bytes() == 1);
    has_hard_numbers
        || has_other_types
        || descriptor.slots().iter().any(|slot| slot.access == Access::Out && is_few(slot))
}

fn input(case: &Case, slot: &Slot, random: &mut Random, _: &Tensors) -> Result<Vec<f64>> {
    let elements = slot.desc.elements();
    let cols = slot.desc.dims().last().copied().unwrap_or(1).max(1);
    if !slot.desc.dtype().is_float() {
        return Ok((0..elements).map(|_| integer(slot.desc.dtype(), random)).collect());
    }
    let mut values = case.data.rows(slot.desc.dtype(), elements / cols, cols, random);
    if case.data == Data::Normal {
        // Beyond the few that a normal distribution reaches.
        values.iter_mut().step_by(3).for_each(|value| *value *= 6.0);
    }
    if case.data == Data::Normal && case.descriptor.line().contains(r#""zeta""#) {
        // It is a number where both arguments are above 1: four of five are.
        let most = values.iter_mut().enumerate().filter(|(at, _)| at % 5 > 0);
        most.for_each(|(_, value)| *value = 1.0 + value.abs());
    }
    let line = case.descriptor.line();
    if case.data == Data::Normal && ["\"igamma", "\"betainc"].iter().any(|name| line.contains(name)) {
        // They are numbers where none is below 0, and the last argument of betainc at most 1: four of five are.
        let is_share = line.contains("betainc") && slot.name.starts_with("in2");
        let most = values.iter_mut().enumerate().filter(|(at, _)| at % 5 > 0);
        most.for_each(|(_, value)| *value = if is_share { value.abs().fract() } else { value.abs() });
    }
    if NEVER_NEGATIVE.contains(&name_of(&case.descriptor, slot)?.as_str()) {
        values.iter_mut().for_each(|value| *value = value.abs());
    }
    // Of the first input the element behind what is not finite is so, too, of the others one that is further on: both meet it alone and together.
    if let Some(at) = values.iter().position(|value| !value.is_finite()) {
        let further = at + 1 + slot.position % (baracuda_ops::Program::MAX_INPUTS + baracuda_ops::Program::MAX_OUTPUTS);
        if further < values.len() {
            values[further] = values[at];
        }
    }
    Ok(values)
}

/// Inputs of programs that are no negative numbers: means of squares, rates, and what corrects them.
const NEVER_NEGATIVE: [&str; 7] = ["v", "most", "s", "rate", "root", "kept", "lr"];

/// What the program of a descriptor calls an input.
fn name_of(descriptor: &AnyDescriptor, slot: &Slot) -> Result<String> {
    let in_one_set = slot.name.split('.').next().context("a name")?;
    let at: usize = in_one_set.trim_start_matches("in").parse()?;
    let name = json_of(descriptor)?["program"]["inputs"][at].as_str().map(String::from);
    name.context("an input of the program")
}

/// An element of an integer type or bool: mostly small, some of any size, some at the ends of the range.
pub(super) fn integer(dtype: DType, random: &mut Random) -> f64 {
    let bits = 8 * dtype.size_bytes() as i32;
    let (least, most) = match dtype {
        DType::Bool => return f64::from(u8::from(random.uniform() < 0.5)),
        DType::U32 | DType::U8 => (0.0, 2f64.powi(bits) - 1.0),
        _ => (-(2f64.powi(bits - 1)), (2f64.powi(bits - 1) - 1.0).min(2f64.powi(63).next_down())),
    };
    let share = random.uniform();
    let value = match random.uniform() {
        kind if kind < 0.6 => (random.normal() * 10.0).round(),
        kind if kind < 0.9 => (least + (most - least) * share).round(),
        _ if share < 0.5 => least,
        _ => most,
    };
    value.clamp(least, most)
}

const CONTRACTS: &[Contract] = &[Contract {
    outputs: &["out0", "out1", "out2", "out3", "out4", "out5", "out6", "out7"],
    budget: "u_o |y| + e, e the error that the program passes on, with 4 ulps of each function of few instructions, 8 of exponentials and logarithms, 16 of special functions; on wgpu twice e",
    why: "Sums, differences, products, quotients and roots are rounded correctly nearly everywhere, and errors of several functions seldom have one sign.",
}];

/// Expected values and budgets: docs/numerics.md, Budgets, "pointwise".
fn expect(descriptor: &AnyDescriptor, inputs: &Tensors, outputs: &Tensors, by: By) -> Result<Vec<Expected>> {
    let program = program_of(descriptor)?;
    let sets = sets_of(descriptor);
    let expected = sets.iter().map(|slots| expect_set(&program, slots, inputs, outputs, by));
    Ok(expected.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// The set that an operand belongs to.
pub(super) fn set_of(slot: &Slot) -> usize {
    slot.name.split_once('.').map_or(0, |(_, set)| set.parse().expect("operands of sets have numbers"))
}

/// The operands of each set, those that all of them share last among the inputs.
fn sets_of(descriptor: &AnyDescriptor) -> Vec<Vec<&Slot>> {
    let slots = descriptor.slots();
    let (first, further) = slots.split_at(slots.partition_point(|slot| set_of(slot) == 0));
    let mut sets = vec![first.iter().collect::<Vec<_>>()];
    for own in further.chunk_by(|a, b| set_of(a) == set_of(b)) {
        let inputs = own.iter().filter(|slot| slot.access == Access::In).count();
        let shared = first.iter().filter(|slot| slot.access == Access::In).skip(inputs);
        sets.push(own.iter().take(inputs).chain(shared).chain(own.iter().skip(inputs)).collect());
    }
    sets
}

/// As [`expect`], of one set.
fn expect_set(
    program: &Program,
    slots: &[&Slot],
    inputs: &Tensors,
    outputs: &Tensors,
    by: By,
) -> Result<Vec<Expected>> {
    let of = |access: Access| slots.iter().copied().filter(move |slot| slot.access == access);
    let values = of(Access::In).enumerate().filter(|(at, _)| !program.is_key(*at)).map(|(_, slot)| slot.desc.dtype());
    let types: Vec<DType> = of(Access::Out).map(|slot| slot.desc.dtype()).collect();
    let mut values = values.peekable();
    let is_number = |dtype: &DType| *dtype != DType::Bool;
    let number = match values.peek() {
        Some(_) => values.find(is_number),
        None => types.iter().copied().find(is_number),
    };
    let computing = computing(number.unwrap_or(DType::Bool));
    let arithmetic = Arithmetic { computing, backend: by.backend };
    let of_inputs: Vec<DType> = of(Access::In).map(|slot| slot.desc.dtype()).collect();
    let program = &program.clone().typed(&of_inputs, computing);
    let dims = of(Access::Out).next().context("an output")?.desc.dims();
    // Where each input has the element of a position: in row-major order of its own extents, counted from the last.
    let elements = dims.iter().product::<u64>() as usize;
    let places = of(Access::In).enumerate().map(|(at, slot)| match program.is_key(at) {
        true => vec![0; elements],
        false => places(slot.desc.dims(), dims),
    });
    let places: Vec<Vec<usize>> = places.collect();
    let tensors = of(Access::In).map(|slot| inputs.get(slot.name).context("an input")).collect::<Result<Vec<_>>>()?;
    let mut expected: Vec<Expected> = of(Access::Out)
        .map(|slot| Expected { name: slot.name.into(), values: Vec::new(), budgets: Vec::new() })
        .collect();
    let actual = of(Access::Out).map(|slot| outputs.get(slot.name).context("an output")).collect::<Result<Vec<_>>>()?;
    for position in 0..elements {
        let words = |input: usize| tensors[input].values.iter().map(|&word| word as u32).collect();
        let sources = program.sources(arithmetic, (dims, position as u64), &types, words);
        if !computing.is_float() {
            let here = places.iter().zip(&tensors).map(|(places, tensor)| match &tensor.integers {
                Some(integers) => i128::from(integers[places[position]]),
                None => tensor.values[places[position]] as i128,
            });
            for (value, (expected, actual)) in program
                .integers(computing, here.chain(sources.iter().map(|of| of.value as i128)))?
                .into_iter()
                .zip(expected.iter_mut().zip(&actual))
            {
                let (value, budget) = of_integer(value, actual, position);
                expected.values.push(value);
                expected.budgets.push(budget);
            }
            continue;
        }
        let here = places.iter().zip(&tensors).map(|(places, tensor)| tensor.values[places[position]]);
        for (allowed, (expected, actual)) in
            program.outputs_beside(arithmetic, here, sources)?.into_iter().zip(expected.iter_mut().zip(&actual))
        {
            let (value, budget) = arithmetic.expected(actual.dtype, allowed, actual.values[position]);
            expected.values.push(value);
            expected.budgets.push(budget);
        }
    }
    Ok(expected)
}

/// The value to expect of an output whose number is an integer, and its budget. What f64 does not tell apart is expected to differ if it does.
pub(super) fn of_integer(value: i128, actual: &Tensor, position: usize) -> (f64, f64) {
    let found = actual.values[position];
    match actual.dtype {
        DType::Bool => (f64::from(u8::from(value != 0)), 0.0),
        dtype if dtype.is_float() => {
            let value = rounded(dtype, value as f64);
            // What f64 rounds first may round to the other side.
            (value, if value.abs() > 2f64.powi(53) { budget(dtype, DType::F64, value, value.abs()) } else { 0.0 })
        }
        dtype => {
            let value = wrapped(dtype, value);
            match &actual.integers {
                Some(integers) if i128::from(integers[position]) != value => (found.next_up(), 0.0),
                Some(_) => (found, 0.0),
                None => (value as f64, 0.0),
            }
        }
    }
}

/// Where the element of each position of some extents is among those of an input that is repeated to them.
pub(super) fn places(own: &[u64], dims: &[u64]) -> Vec<usize> {
    if dims.contains(&0) {
        return Vec::new();
    }
    let mut places = vec![0];
    for (axis, &dim) in dims.iter().enumerate() {
        let extent = (axis + own.len()).checked_sub(dims.len()).map_or(1, |axis| own[axis]) as usize;
        let step = |place: &usize| {
            let first = place * extent;
            (0..dim as usize).map(move |i| first + if extent == 1 { 0 } else { i })
        };
        places = places.iter().flat_map(step).collect();
    }
    places
}

fn run_typed(run: TypedRun<'_, '_>) -> Result<(), Error> {
    let slots = run.descriptor.slots();
    let of = |access: Access| slots.iter().filter(move |slot| slot.access == access && set_of(slot) == 0);
    let operand = |slot: &Slot| match slot.access {
        Access::In => Operand::from(run.input(slot.name)),
        _ => Operand::from(run.output(slot.name)),
    };
    let mut further: Vec<Operand<'_>> = slots.iter().filter(|slot| set_of(slot) > 0).map(operand).collect();
    let inputs: Vec<Mem<'_>> = of(Access::In).map(|slot| run.input(slot.name)).collect();
    let outputs: Vec<MemMut<'_>> = of(Access::Out).map(|slot| run.output(slot.name)).collect();
    run.plan::<PointwiseDescriptor>(PointwiseArgs::new(inputs, outputs).sets(&mut further))
}

/// What the support table asks for.
fn asked_for(dtype: DType) -> Vec<(&'static str, Form)> {
    let x = dense(dtype, &[32, 128, 768]);
    let image = dense(dtype, &[8, 64, 28, 28]);
    let last = channels_last(dtype, &[8, 64, 28, 28]);
    let rows = dense(dtype, &[32, 768]);
    let binary = |x: TensorDesc, y: TensorDesc| Form::of(Function::Add, x).with(y);
    let cast = if dtype == DType::F32 { DType::BF16 } else { DType::F32 };
    vec![
        ("a function of one argument", Form::of(Function::Exp, x)),
        ("a function of two arguments", binary(x, x)),
        ("a function with a number", Form::new(r#"{"inputs":["x"],"let":[["y","mul","x",0.5]],"outputs":["y"]}"#, [x])),
        ("a program", Form::new(GATED, [dense(dtype, &[4, 128, 768]); 2])),
        ("a program of several outputs", Form::new(SEVERAL, [rows; 3])),
        ("64 instructions", Form::new(longest(), [x, x])),
        ("16 inputs, 8 outputs", Form::new(widest(), vec![rows; baracuda_ops::Program::MAX_INPUTS])),
        ("a cast", Form { outputs: vec![cast], ..Form::new(CAST, [x]) }),
        ("a scalar repeated", binary(x, dense(dtype, &[]))),
        ("a row repeated", binary(x, dense(dtype, &[768]))),
        ("a column repeated", binary(x, dense(dtype, &[32, 128, 1]))),
        ("channels repeated", binary(image, dense(dtype, &[64, 1, 1]))),
        ("both repeated", binary(dense(dtype, &[32, 1]), dense(dtype, &[768]))),
        ("channels-last", binary(last, last)),
        ("channels-last and not", binary(last, image)),
        ("rows apart", Form::of(Function::Exp, strided(dtype, &[32, 768], &[1024, 1]))),
        ("transposed", binary(strided(dtype, &[32, 768], &[1, 32]), rows)),
        ("several sets", Form { sets: vec![vec![image, image], vec![x, x]], ..binary(rows, rows) }),
        ("output transposed", Form { out: Some(strided(dtype, &[32, 768], &[1, 32])), ..binary(rows, rows) }),
    ]
}
