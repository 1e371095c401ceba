//! Triangular systems: both triangles, transposed and not, from both sides, diagonals that are read and that are 1, layouts, shared matrices, and extents around tiles.

use anyhow::{Context, Result};
use baracuda_ops::{AnyDescriptor, DType, Error, Slot, TensorDesc, TriangularSolveArgs, TriangularSolveDescriptor};

use super::movement::{index, is_few, number};
use super::{Contract, Subject, dense, json_of, strided};
use crate::case::{Case, Data, Huge, Random, distinct};
use crate::judge::{By, Expected};
use crate::values::Tensors;

pub(super) const TRIANGULAR_SOLVE: Subject = Subject {
    name: "triangular_solve",
    cases,
    is_cpu_only: |_| false,
    may_be_constant: |descriptor| {
        let b = &descriptor.slots()[1].desc;
        is_few(b) || b.strides().contains(&0)
    },
    input,
    expect,
    contracts: &[Contract {
        outputs: &["x"],
        budget: "u_A (N + 4) |op(A)^-1| |op(A)| |x|",
        why: "Each column solves a system whose matrix is within (N + 4) u_A |op(A)| of the given one (Higham, theorem 8.5); all roundings may have one sign.",
    }],
    run_typed: |run| {
        let args = TriangularSolveArgs::new(run.input("a"), run.input("b"), run.output("x"));
        run.plan::<TriangularSolveDescriptor>(args)
    },
    features,
};

/// The types in which systems are solved.
pub(super) const TYPES: [DType; 2] = [DType::F32, DType::F64];

/// A descriptor before it is one.
#[derive(Clone)]
struct Form {
    a: TensorDesc,
    b: TensorDesc,
    /// Upper, transposed, with a diagonal of 1, from the right.
    bits: u32,
    alpha: f64,
    x: Option<TensorDesc>,
}

impl Form {
    fn new(a: TensorDesc, b: TensorDesc, bits: u32) -> Self {
        Self { a, b, bits, alpha: 1.0, x: None }
    }

    /// Of dense operands.
    fn dense(dtype: DType, batch: &[u64], [n, systems]: [u64; 2], bits: u32) -> Self {
        let of = |rows: u64, columns: u64| dense(dtype, &[batch, &[rows, columns]].concat());
        let b = if bits & 8 == 0 { of(n, systems) } else { of(systems, n) };
        Self::new(of(n, n), b, bits)
    }

    fn descriptor(&self) -> Result<AnyDescriptor, Error> {
        let is = |bit: u32| self.bits & bit != 0;
        let new = if is(8) { TriangularSolveDescriptor::right } else { TriangularSolveDescriptor::new };
        let mut solve = new(self.a, self.b)?.alpha(self.alpha)?;
        if is(1) {
            solve = solve.upper()?;
        }
        if is(2) {
            solve = solve.transpose()?;
        }
        if is(4) {
            solve = solve.unit_diagonal()?;
        }
        if let Some(x) = self.x {
            solve = solve.layout("x", x)?;
        }
        Ok(AnyDescriptor::new(solve))
    }
}

/// The forms of a type with the data they run on, and whether each runs in every mode.
fn forms(dtype: DType) -> Vec<(Form, Data, bool)> {
    let mut forms = Vec::new();
    let mut add = |form: Form, data: Data, core: bool| forms.push((form, data, core));
    for bits in 0..16 {
        add(Form::dense(dtype, &[2], [5, 7], bits), Data::Normal, bits % 5 == 0);
        add(Form::dense(dtype, &[], [37, 9], bits), Data::Normal, bits == 9);
    }
    for data in [Data::Nan, Data::Inf, Data::Huge, Data::Large, Data::Tiny, Data::Ramp, Data::Sparse] {
        add(Form::dense(dtype, &[], [20, 6], 0), data, data == Data::Nan);
    }
    add(Form { alpha: -0.75, ..Form::dense(dtype, &[3], [9, 4], 3) }, Data::Normal, true);
    add(Form { alpha: 0.0, ..Form::dense(dtype, &[], [4, 3], 0) }, Data::Normal, false);
    // Around tiles, one system, and extents of 1 and 0.
    for (extents, bits) in [
        ([31, 33], 0),
        ([32, 32], 1),
        ([33, 31], 2),
        ([64, 1], 12),
        ([70, 40], 7),
        ([130, 3], 0),
        ([1, 50], 4),
        ([1, 1], 0),
    ] {
        add(Form::dense(dtype, &[], extents, bits), Data::Normal, extents == [33, 31]);
    }
    for (batch, extents) in [(&[][..], [0, 5]), (&[2], [5, 0]), (&[0], [5, 4])] {
        add(Form::dense(dtype, batch, extents, 0), Data::Normal, extents == [0, 5]);
    }
    // Layouts: a shared matrix, a repeated right-hand side, columns first, batches apart.
    let of = |dims: &[u64], strides: &[u64]| strided(dtype, dims, strides);
    add(Form::new(of(&[3, 6, 6], &[0, 6, 1]), dense(dtype, &[3, 6, 5]), 0), Data::Normal, true);
    add(Form::new(of(&[2, 3, 4, 4], &[16, 0, 4, 1]), dense(dtype, &[2, 3, 4, 8]), 5), Data::Normal, false);
    add(Form::new(dense(dtype, &[3, 6, 6]), of(&[3, 6, 5], &[0, 5, 1]), 2), Data::Normal, false);
    add(Form::new(of(&[40, 40], &[1, 40]), of(&[40, 9], &[1, 40]), 0), Data::Normal, true);
    add(Form::new(of(&[6, 6], &[14, 2]), of(&[5, 6], &[30, 3]), 8 + 1), Data::Normal, false);
    let x = Some(of(&[2, 6, 5], &[50, 1, 8]));
    add(Form { x, ..Form::dense(dtype, &[2], [6, 5], 6) }, Data::Normal, true);
    let a = of(&[2, 1, 2, 1, 2, 1, 3, 3], &[100, 1, 50, 1, 20, 1, 6, 2]);
    add(Form::new(a, dense(dtype, &[2, 1, 2, 1, 2, 1, 3, 4]), 1), Data::Normal, false);
    let narrow = |dims: &[u64]| dense(dtype, dims).align(dtype.size_bytes()).expect("a promise");
    add(Form::new(narrow(&[7, 7]), narrow(&[7, 3]), 0), Data::Normal, false);
    forms
}

fn cases() -> Vec<Case> {
    let of = |(form, data, core): (Form, Data, bool)| {
        Case::new(form.descriptor().expect("the case lists hold valid descriptors"), data).core(core)
    };
    distinct(TYPES.into_iter().flat_map(forms).map(of).collect())
}

/// A strong diagonal in the triangle and small numbers beside it; what is not read is NaN. Columns of right-hand sides grow and shrink as the data say.
fn input(case: &Case, slot: &Slot, random: &mut Random, _: &Tensors) -> Result<Vec<f64>> {
    let (dtype, dims) = (slot.desc.dtype(), slot.desc.dims());
    let &[.., rows, columns] = dims else { anyhow::bail!("{dims:?} are no matrices") };
    if slot.name == "b" {
        let largest = if dtype == DType::F64 { 900f64.exp2() } else { 100f64.exp2() };
        let huge = Huge::of(dtype).at_most(largest, largest);
        return Ok(case.data.rows_within(huge, dtype, slot.desc.elements() / columns.max(1), columns, random));
    }
    let json = json_of(&case.descriptor)?;
    let is = |field: &str| json[field] == true;
    let scale = 0.7 / (rows.max(1) as f64).sqrt();
    let element = |at: u64| {
        let (i, j) = (at / columns % rows, at % columns);
        let normal = random.normal();
        match i.cmp(&j) {
            std::cmp::Ordering::Equal if is("unit_diagonal") => f64::NAN,
            std::cmp::Ordering::Equal => (1.0 + normal.abs() / 2.0).copysign(normal),
            std::cmp::Ordering::Less if !is("upper") => f64::NAN,
            std::cmp::Ordering::Greater if is("upper") => f64::NAN,
            _ => scale * normal,
        }
    };
    Ok((0..slot.desc.elements()).map(element).collect())
}

/// Substitution in f64, and of each solution `|T^-1| |T| |x|`, with the inverse by substitution.
fn expect(descriptor: &AnyDescriptor, inputs: &Tensors, _: &Tensors, _: By) -> Result<Vec<Expected>> {
    let json = json_of(descriptor)?;
    let is = |field: &str| json[field] == true;
    let alpha = json["alpha"].as_f64().unwrap_or(1.0);
    let (a, b) = (inputs.values("a").context("a")?, inputs.values("b").context("b")?);
    let dims = descriptor.slots()[1].desc.dims();
    let dtype = descriptor.slots()[1].desc.dtype();
    let first = dims.len() - 2;
    let n = *descriptor.slots()[0].desc.dims().last().context("an extent")? as usize;
    let systems = dims[if is("right") { first } else { first + 1 }] as usize;
    let is_turned = is("transpose") != is("right");
    let is_lower = is("upper") == is_turned;
    let matrices: usize = dims[..first].iter().product::<u64>() as usize;
    let (mut values, mut allowances) = (vec![0.0; b.len()], vec![0.0; b.len()]);
    let order: Vec<usize> = if is_lower { (0..n).collect() } else { (0..n).rev().collect() };
    for matrix in 0..matrices {
        let whole = &a[matrix * n * n..][..n * n];
        let triangle = |i: usize, j: usize| match i == j && is("unit_diagonal") {
            true => 1.0,
            false => whole[if is_turned { j * n + i } else { i * n + j }],
        };
        // The rows of the triangle before row i in the order of substitution.
        let before = |at: usize| order[..at].iter().copied();
        let solve = |rhs: &dyn Fn(usize) -> f64| {
            let mut solved = vec![0.0; n];
            for (at, &i) in order.iter().enumerate() {
                let sum = before(at).fold(rhs(i), |sum, j| sum - triangle(i, j) * solved[j]);
                solved[i] = sum / triangle(i, i);
            }
            solved
        };
        let inverse: Vec<Vec<f64>> = (0..n).map(|column| solve(&|i| f64::from(u8::from(i == column)))).collect();
        for system in 0..systems {
            let place = |i: usize| {
                let mut at = index(&dims[..first], matrix as u64);
                at.extend(if is("right") { [system as u64, i as u64] } else { [i as u64, system as u64] });
                number(dims, &at)
            };
            let solved = solve(&|i| alpha * b[place(i)]);
            let magnitudes: Vec<f64> = order
                .iter()
                .enumerate()
                .map(|(at, &i)| before(at).chain([i]).map(|j| (triangle(i, j) * solved[j]).abs()).sum())
                .collect();
            for &i in &order {
                values[place(i)] = solved[i];
                let of_rows = order.iter().zip(&magnitudes).map(|(&j, magnitude)| inverse[j][i].abs() * magnitude);
                allowances[place(i)] = (n as f64 + 4.0) * of_rows.sum::<f64>();
            }
        }
    }
    Ok(vec![Expected::within("x", dtype, dtype.accumulator(), values, |at| allowances[at])])
}

fn features() -> Vec<(String, AnyDescriptor)> {
    let mut features = Vec::new();
    for dtype in TYPES {
        let plain = |n: u64, systems: u64, bits: u32| Form::dense(dtype, &[], [n, systems], bits);
        for (what, form) in [
            ("lower", plain(512, 256, 0)),
            ("upper, transposed, from the right", plain(512, 256, 11)),
            ("unit diagonal", plain(512, 256, 4)),
            ("one system", plain(1024, 1, 0)),
            ("a batch", Form::dense(dtype, &[64], [64, 16], 0)),
            ("a shared matrix", Form::new(strided(dtype, &[64, 64, 64], &[0, 64, 1]), dense(dtype, &[64, 64, 16]), 0)),
            ("columns first", Form::new(strided(dtype, &[512, 512], &[1, 512]), dense(dtype, &[512, 64]), 0)),
        ] {
            if let Ok(descriptor) = form.descriptor() {
                features.push((format!("{dtype}: {what}"), descriptor));
            }
        }
    }
    features
}
