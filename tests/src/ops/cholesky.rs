//! Cholesky factors: both triangles, extents around tiles, layouts, and matrices that are not positive definite from some column on.

use anyhow::{Context, Result};
use baracuda_ops::{AnyDescriptor, CholeskyArgs, CholeskyDescriptor, DType, Error, Slot, TensorDesc};

use super::movement::exact;
use super::triangular_solve::TYPES;
use super::{Contract, Subject, dense, json_of, strided};
use crate::case::{Case, Data, Random, distinct};
use crate::judge::{By, Expected};
use crate::values::Tensors;

pub(super) const CHOLESKY: Subject = Subject {
    name: "cholesky",
    cases,
    is_cpu_only: |_| false,
    // Half of a factor is 0.
    may_be_constant: |_| true,
    input,
    expect,
    contracts: &[
        Contract {
            outputs: &["factor"],
            budget: "u_A (N + 2) |L| H, H the lower triangle of |L^-1| |L| |L^T| |L^-T| with half of its diagonal; likewise of U",
            why: "The factor is that of a matrix within (N + 2) u_A |L| |L^T| of A (Higham, theorem 10.3), and to first order L moves by L times half of what A moves by between the inverses; all roundings may have one sign.",
        },
        Contract {
            outputs: &["info"],
            budget: "0",
            why: "Matrices are far from singular, or have a leading minor that is far from positive.",
        },
    ],
    run_typed: |run| {
        let mut args = CholeskyArgs::new(run.input("a"), run.output("factor"));
        args.info = run.named.mem_mut("info");
        run.plan::<CholeskyDescriptor>(args)
    },
    features,
};

/// A descriptor before it is one.
#[derive(Clone)]
struct Form {
    a: TensorDesc,
    upper: bool,
    info: bool,
    factor: Option<TensorDesc>,
}

impl Form {
    fn new(a: TensorDesc, upper: bool, info: bool) -> Self {
        Self { a, upper, info, factor: None }
    }

    fn dense(dtype: DType, batch: &[u64], n: u64, upper: bool, info: bool) -> Self {
        Self::new(dense(dtype, &[batch, &[n, n]].concat()), upper, info)
    }

    fn descriptor(&self) -> Result<AnyDescriptor, Error> {
        let mut cholesky = CholeskyDescriptor::new(self.a)?;
        if self.upper {
            cholesky = cholesky.upper()?;
        }
        if self.info {
            cholesky = cholesky.with_info()?;
        }
        if let Some(factor) = self.factor {
            cholesky = cholesky.layout("factor", factor)?;
        }
        Ok(AnyDescriptor::new(cholesky))
    }
}

/// The forms of a type with the data they run on, and whether each runs in every mode. Of `Data::Outlier` every second matrix is not positive definite, of `Data::Nan`
/// every second one has a NaN.
fn forms(dtype: DType) -> Vec<(Form, Data, bool)> {
    let mut forms = Vec::new();
    let mut add = |form: Form, data: Data, core: bool| forms.push((form, data, core));
    for upper in [false, true] {
        for info in [false, true] {
            add(Form::dense(dtype, &[3], 6, upper, info), Data::Normal, upper != info);
            add(Form::dense(dtype, &[4], 40, upper, info), Data::Outlier, upper == info);
        }
        add(Form::dense(dtype, &[2], 40, upper, true), Data::Nan, false);
    }
    for n in [1, 31, 32, 33, 64, 100] {
        add(Form::dense(dtype, &[], n, n == 33, true), Data::Normal, n == 33);
    }
    for (batch, n) in [(&[][..], 0), (&[3], 0), (&[0], 4)] {
        add(Form::dense(dtype, batch, n, false, true), Data::Normal, n == 0);
    }
    let of = |dims: &[u64], strides: &[u64]| strided(dtype, dims, strides);
    add(Form::new(of(&[2, 3, 5, 5], &[25, 0, 5, 1]), false, true), Data::Normal, true);
    add(Form::new(of(&[35, 35], &[1, 35]), false, false), Data::Normal, false);
    add(Form::new(of(&[2, 1, 2, 1, 2, 1, 3, 3], &[100, 1, 50, 1, 20, 1, 6, 2]), true, true), Data::Normal, false);
    let factor = Some(of(&[2, 6, 6], &[60, 1, 8]));
    add(Form { factor, ..Form::dense(dtype, &[2], 6, false, false) }, Data::Normal, true);
    let narrow = dense(dtype, &[7, 7]).align(dtype.size_bytes()).expect("a promise");
    add(Form::new(narrow, true, false), Data::Normal, false);
    forms
}

fn cases() -> Vec<Case> {
    let of = |(form, data, core): (Form, Data, bool)| {
        Case::new(form.descriptor().expect("the case lists hold valid descriptors"), data).core(core)
    };
    distinct(TYPES.into_iter().flat_map(forms).map(of).collect())
}

/// `M M^T / n` plus the identity, of random M; in the triangle that does not matter NaN. In a matrix that is not positive definite one element of the diagonal is negative.
fn input(case: &Case, slot: &Slot, random: &mut Random, _: &Tensors) -> Result<Vec<f64>> {
    let &[.., n, _] = slot.desc.dims() else { anyhow::bail!("{:?} are no matrices", slot.desc.dims()) };
    let is_upper = json_of(&case.descriptor)?["upper"] == true;
    let n = n as usize;
    let matrices = (slot.desc.elements() as usize).checked_div(n * n).unwrap_or(0);
    let mut values = Vec::with_capacity(matrices * n * n);
    for matrix in 0..matrices {
        let m: Vec<f64> = (0..n * n).map(|_| random.normal()).collect();
        let spoiled = (random.uniform() * n as f64) as usize;
        for i in 0..n {
            for j in 0..n {
                let product: f64 = (0..n).map(|k| m[i * n + k] * m[j * n + k]).sum::<f64>() / n as f64;
                let is_spoiled = matrix % 2 == 1 && i == j && i == spoiled;
                values.push(match case.data {
                    _ if if is_upper { j < i } else { i < j } => f64::NAN,
                    Data::Outlier if is_spoiled => -3.0,
                    Data::Nan if is_spoiled => f64::NAN,
                    _ => product + f64::from(u8::from(i == j)),
                });
            }
        }
    }
    Ok(values)
}

/// The lower factor of a matrix in f64, and the order of the first leading minor that is not positive.
fn factorise(n: usize, a: impl Fn(usize, usize) -> f64) -> (Vec<f64>, usize) {
    let (mut l, mut failed) = (vec![0.0; n * n], 0);
    for j in 0..n {
        for i in j..n {
            let rest = (0..j).fold(a(i, j), |rest, k| rest - l[i * n + k] * l[j * n + k]);
            l[i * n + j] = if i > j {
                rest / l[j * n + j]
            } else if rest > 0.0 {
                rest.sqrt()
            } else {
                failed = if failed == 0 { j + 1 } else { failed };
                f64::NAN
            };
        }
    }
    (l, failed)
}

/// What an element of the factor may differ by, in units of `u_A`: `(n + 2) |L| H`; and the inverse of the factor.
fn allowance(n: usize, l: &[f64]) -> [Vec<f64>; 2] {
    let mut inverse = vec![0.0; n * n];
    for column in 0..n {
        for i in column..n {
            let rest = (column..i)
                .fold(f64::from(u8::from(i == column)), |rest, k| rest - l[i * n + k] * inverse[k * n + column]);
            inverse[i * n + column] = rest / l[i * n + i];
        }
    }
    let product = |x: &dyn Fn(usize, usize) -> f64, y: &dyn Fn(usize, usize) -> f64| {
        let element = |at: usize| (0..n).map(|k| x(at / n, k).abs() * y(k, at % n).abs()).sum::<f64>();
        (0..n * n).map(element).collect::<Vec<f64>>()
    };
    // G = |L^-1| |L|, and G G^T.
    let g = product(&|i, k| inverse[i * n + k], &|k, j| l[k * n + j]);
    let mut h = product(&|i, k| g[i * n + k], &|k, j| g[j * n + k]);
    for i in 0..n {
        for j in i..n {
            h[i * n + j] = if i == j { h[i * n + i] / 2.0 } else { 0.0 };
        }
    }
    let mut all = product(&|i, k| l[i * n + k], &|k, j| h[k * n + j]);
    all.iter_mut().for_each(|element| *element *= n as f64 + 2.0);
    [all, inverse]
}

fn expect(descriptor: &AnyDescriptor, inputs: &Tensors, _: &Tensors, _: By) -> Result<Vec<Expected>> {
    let json = json_of(descriptor)?;
    let is_upper = json["upper"] == true;
    let a = inputs.values("a").context("a")?;
    let desc = &descriptor.slots()[0].desc;
    let (dtype, n) = (desc.dtype(), *desc.dims().last().context("an extent")? as usize);
    let batch = &desc.dims()[..desc.rank() - 2];
    let (mut values, mut allowances, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for matrix in 0..batch.iter().product::<u64>() as usize {
        let whole = a.get(matrix * n * n..(matrix + 1) * n * n).unwrap_or_default();
        let turned = |i: usize, j: usize| if is_upper { j * n + i } else { i * n + j };
        let (l, order) = factorise(n, |i, j| whole[turned(i, j)]);
        // Of a matrix that is not positive definite, that of the leading minor.
        let good = if order == 0 { n } else { order - 1 };
        let minor: Vec<f64> = (0..good * good).map(|at| l[at / good * n + at % good]).collect();
        let [of_minor, inverse] = allowance(good, &minor);
        // Rows below the minor solve a system with its factor.
        let below = |i: usize, j: usize| {
            let of_row = |k: usize| {
                let lost = |m: usize| (n as f64 + 2.0) * minor[k * good + m].abs() + of_minor[k * good + m];
                (0..good).map(|m| l[i * n + m].abs() * lost(m)).sum::<f64>()
            };
            (0..=j).map(|k| of_row(k) * inverse[j * good + k].abs()).sum::<f64>()
        };
        for at in 0..n * n {
            let (row, column) = (at / n, at % n);
            let (i, j) = if is_upper { (column, row) } else { (row, column) };
            values.push(l[i * n + j]);
            allowances.push(match (i < good, j <= i && j < good) {
                (true, true) => of_minor[i * good + j],
                (false, true) => below(i, j),
                _ => 0.0,
            });
        }
        failed.push(order as f64);
    }
    let mut all = Vec::new();
    if !values.is_empty() {
        all.push(Expected::within("factor", dtype, dtype.accumulator(), values, |at| allowances[at]));
    } else {
        all.push(exact("factor", values));
    }
    if json["info"] == true {
        all.push(exact("info", failed));
    }
    Ok(all)
}

fn features() -> Vec<(String, AnyDescriptor)> {
    let mut features = Vec::new();
    for dtype in TYPES {
        for (what, form) in [
            ("lower", Form::dense(dtype, &[], 512, false, false)),
            ("upper, with info", Form::dense(dtype, &[], 512, true, true)),
            ("a batch", Form::dense(dtype, &[64], 64, false, true)),
            ("columns first", Form::new(strided(dtype, &[512, 512], &[1, 512]), false, false)),
        ] {
            if let Ok(descriptor) = form.descriptor() {
                features.push((format!("{dtype}: {what}"), descriptor));
            }
        }
    }
    features
}
