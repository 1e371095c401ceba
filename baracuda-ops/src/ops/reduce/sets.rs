//! Several sets of operands whose elements become one result: their rules, and the kernels, which reduce each set alone and then what these gave.

#[cfg(feature = "cuda")]
use super::OUTPUT;
#[cfg(feature = "cuda")]
use super::reduction::Combine;
use super::reduction::Finish;
use super::{Fields, INPUTS, ReduceDescriptor, Reduction, Valid, forward};
use crate::dtype::DType;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
use crate::error::Reason;
use crate::error::Result;
use crate::ops::fields::require;
use crate::ops::pointwise::map::Spread;
use crate::ops::pointwise::map::sets::{check_inputs, inputs_of, of_set};
use crate::ops::pointwise::program::Program;
use crate::ops::valid::Described;
use crate::slots::{Layouts, MAX_SLOTS, SlotsBuilder, name_in_set};
use crate::tensor::TensorDesc;

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "wgpu")]
mod wgpu;

#[cfg(feature = "cuda")]
pub(super) use cuda::on_cuda;
#[cfg(feature = "wgpu")]
pub(super) use wgpu::through_wgpu;

/// One of several sets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Set {
    /// The reduction of all elements of this set, whose result is of the computing type and as it is combined with those of others.
    pub(super) valid: Valid,
    /// Of each of its inputs the index in the descriptor of all sets, and the name there.
    pub(super) places: Vec<(usize, &'static str)>,
}

impl Set {
    fn new(mut valid: Valid, places: Vec<(usize, &'static str)>) -> Self {
        valid.derived.row.finish = Finish::Total;
        Self { valid, places }
    }

    /// Whether there is anything to reduce.
    pub(super) fn has_elements(&self) -> bool {
        self.valid.derived.count > 0
    }
}

impl super::Geometry {
    /// # Errors
    /// There are several sets.
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    pub(super) fn one_set(&self) -> Result<(), Reason> {
        let sets = self.sets.len();
        Reason::unless(sets == 0, || format!("it reduces one set of operands, the descriptor has {sets}"))
    }
}

impl Fields {
    /// All inputs of all sets.
    pub(super) fn all_inputs(&self) -> Vec<TensorDesc> {
        self.inputs.iter().chain(self.sets.iter().flatten()).copied().collect()
    }

    /// Declares the inputs of further sets, and returns all sets, if there are further ones. `rank`: of the first one's extents; `values`: the type of what
    /// is reduced.
    pub(super) fn declare_sets(
        &self,
        op: &'static str,
        slots: &mut SlotsBuilder<'_>,
        rank: usize,
        (computing, values): (DType, DType),
    ) -> Result<Vec<Set>> {
        let Self { inputs, axes, keep, sets, .. } = self;
        if sets.is_empty() {
            return Ok(Vec::new());
        }
        let (name, row) = (self.reduce.name(), self.reduce.row());
        require(op, "sets", row.combine.is_scalar() && values.is_float(), || {
            format!(
                "must be of sums, products, extremes or norms of floating-point numbers, of which one number is combined with others; got {name} of {values}"
            )
        })?;
        require(op, "axes", axes.len() == rank && keep.is_empty(), || {
            format!(
                "must be all {rank}, of which none is kept, since all sets become one number; got {axes:?}, kept {keep:?}"
            )
        })?;
        let own = check_inputs(op, inputs, sets)?;
        let is_shared = |index: usize| index >= own;
        let mut all =
            vec![Set::new(self.of_set(&inputs[..own], computing, 0)?, (0..).zip(INPUTS).take(inputs.len()).collect())];
        let mut index = MAX_SLOTS;
        for (set, inputs) in (1..).zip(sets) {
            let valid = self.of_set(inputs, computing, set)?;
            slots.declare_set(set, &valid.slots, &Layouts::new(), is_shared);
            let place = |input: usize| {
                if is_shared(input) {
                    return (input, INPUTS[input]);
                }
                index += 1;
                (index - 1, name_in_set(forward::TABLE, input, set))
            };
            all.push(Set::new(valid, (0..self.inputs.len()).map(place).collect()));
        }
        let has_elements = all.iter().any(Set::has_elements);
        require(op, "reduce", row.combine.is_of_none() || has_elements, || {
            format!("{name} has no result without elements, and no set has any")
        })?;
        Ok(all)
    }

    /// The reduction of all elements of a set.
    fn of_set(&self, own: &[TensorDesc], computing: DType, set: usize) -> Result<Valid> {
        let (op, inputs) = (ReduceDescriptor::OP.name, inputs_of(own, &self.inputs));
        let program = self.program.clone().unwrap_or_else(Program::identity);
        let spread = Spread::new(op, &program, &inputs, (None, None)).map_err(|error| of_set(error, set))?;
        require(op, "sets", spread.computing == computing, || {
            format!("must compute in one type; set {set} computes in {}, the first in {computing}", spread.computing)
        })?;
        // What is combined of no elements has a sum alone.
        let reduce = if inputs.iter().any(TensorDesc::is_empty) { Reduction::Sum } else { self.reduce };
        let axes = (0..spread.dims.len()).collect();
        let fields = Self { output: Some(computing), ..Self::of(self.program.clone(), inputs, axes, reduce) };
        Valid::new(ReduceDescriptor::OP, fields).map_err(|error| of_set(error, set))
    }
}

#[cfg(feature = "cuda")]
impl Valid {
    /// The reduction of what so many parts of all sets gave, dense and of the computing type, to the result.
    ///
    /// # Errors
    /// There are too many.
    pub(super) fn of_parts(&self, count: u64) -> Result<Self> {
        let parts = TensorDesc::contiguous(self.derived.computing, &[count])?;
        let out = self.slots.always(OUTPUT).desc;
        let reduce = match self.derived.row.combine {
            _ if count == 0 => Reduction::Sum,
            Combine::Multiply => Reduction::Prod,
            Combine::Greatest => Reduction::Max,
            Combine::Least => Reduction::Min,
            _ => Reduction::Sum,
        };
        let layouts = [(super::OUTPUTS[0].to_string(), out)].into();
        let finish = self.fields.finish.clone();
        let fields =
            Fields { finish, output: Some(out.dtype()), layouts, ..Fields::of(None, vec![parts], vec![0], reduce) };
        let mut valid = Self::new(ReduceDescriptor::OP, fields)?;
        (valid.derived.row.finish, valid.derived.divisor) = (self.derived.row.finish, self.derived.divisor);
        valid.derived.finish.clone_from(&self.derived.finish);
        Ok(valid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Device;
    use crate::error::Error;
    use crate::memory::{Mem, MemMut, Operand, Workspace};
    use crate::ops::pointwise::program::Function;
    use crate::ops::reduce::{ReduceArgs, ReducePlan};
    use crate::options::PlanOptions;
    use crate::plan::Descriptor;
    use crate::slots::MAX_SETS;

    fn dense(dims: &[u64]) -> TensorDesc {
        TensorDesc::contiguous(DType::F32, dims).unwrap()
    }

    #[test]
    fn all_elements_of_all_sets_become_one_number() {
        let device = Device::cpu();
        let dims: Vec<Vec<u64>> =
            (0..40u64).map(|at| if at % 7 == 3 { vec![0] } else { vec![1 + at * at * 31, 2] }).collect();
        let of = |dims: &[u64]| dense(dims);
        let sets: Vec<_> = dims[1..].iter().map(|dims| vec![of(dims)]).collect();
        let descriptor = ReduceDescriptor::of(of(&dims[0]), &[0, 1], Reduction::Sum).unwrap().sets(sets).unwrap();
        let memory: Vec<Vec<f32>> = (1u8..)
            .zip(&dims)
            .map(|(set, dims)| vec![f32::from(set); crate::narrow::to_usize(dims.iter().product())])
            .collect();
        let expected = crate::narrow::single(memory.iter().flatten().copied().map(f64::from).sum());
        for kernel in ["reduce_fast", "reduce_reference"] {
            let plan = ReducePlan::new(&device, descriptor.clone(), &PlanOptions::default().kernel(kernel)).unwrap();
            let mut sum = [f32::NAN];
            let mut further: Vec<Operand<'_>> = memory[1..].iter().map(|set| Mem::host(set).into()).collect();
            let args = ReduceArgs::new([Mem::host(&memory[0])], MemMut::host(&mut sum)).sets(&mut further);
            plan.run(&mut device.queue(), args, Workspace::none()).unwrap();
            assert_eq!(sum, [expected], "{kernel}");
        }
        let names: Vec<_> = descriptor.slots().iter().map(|slot| slot.name).take(4).collect();
        assert_eq!(names, ["in0", "out0", "in0.1", "in0.2"]);
        let json = serde_json::to_string(&descriptor).unwrap();
        assert_eq!(serde_json::from_str::<ReduceDescriptor>(&json).unwrap(), descriptor);
        assert!(matches!(descriptor.gradients_all(), Err(Error::NoGradient { .. })));
    }

    #[test]
    fn an_output_that_overlaps_an_input_of_a_set_is_refused() {
        let device = Device::cpu();
        let sum = ReduceDescriptor::of(dense(&[3]), &[0], Reduction::Sum).unwrap().sets(vec![vec![dense(&[2])]]);
        let plan = ReducePlan::new(&device, sum.unwrap(), &PlanOptions::default()).unwrap();
        let memory = device.upload(&[1f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 0.0]).unwrap();
        let run = |second: u64, output: u64| {
            let mut further: [Operand<'_>; 1] = [Mem::buffer(&memory, second, 8).into()];
            let args = ReduceArgs::new([Mem::buffer(&memory, 0, 12)], MemMut::buffer(&memory, output, 4));
            plan.run(&mut device.queue(), args.sets(&mut further), Workspace::none())
        };
        assert_eq!(run(16, 32), Ok(()));
        assert_eq!(device.queue().download::<f32>(&memory).unwrap()[8], 17.0);
        // Inputs that are read alone may overlap.
        assert_eq!(run(0, 32), Ok(()));
        assert_eq!(run(16, 16), Err(Error::Overlap { op: "reduce", a: "out0", b: "in0.1", detail: "" }));
        assert_eq!(run(16, 0), Err(Error::Overlap { op: "reduce", a: "out0", b: "in0", detail: "" }));
    }

    #[test]
    fn sets_that_do_not_fit_are_refused() {
        let x = dense(&[2, 3]);
        let of = |reduce, axes: &[usize], sets| ReduceDescriptor::of(x, axes, reduce)?.sets(sets);
        let one = || vec![vec![dense(&[5])]];
        let halves = |dtype| vec![vec![TensorDesc::contiguous(dtype, &[5]).unwrap()]];
        let pairs = |sets| {
            ReduceDescriptor::new(Program::of(Function::Mul), vec![x, dense(&[3])], vec![0, 1], Reduction::Sum)?
                .sets(sets)
        };
        for (refused, words) in [
            (
                of(Reduction::Sum, &[1], one()),
                "axes: must be all 2, of which none is kept, since all sets become one number; got [1]",
            ),
            (of(Reduction::ArgMax, &[0, 1], one()), "sets: must be of sums, products, extremes or norms"),
            (of(Reduction::Var, &[0, 1], one()), "got var of f32"),
            (
                of(Reduction::Sum, &[0, 1], halves(DType::F64)),
                "sets: must compute in one type; set 1 computes in f64, the first in f32",
            ),
            (of(Reduction::Sum, &[0, 1], halves(DType::I32)), "sets: must compute in one type"),
            (
                of(Reduction::Sum, &[0, 1], vec![vec![]]),
                "sets: must have 1 to 1 inputs each, those of the program; set 1 has 0",
            ),
            (of(Reduction::Sum, &[0, 1], vec![vec![x]; MAX_SETS]), "must be at most 4095 besides the first; got 4096"),
            (pairs(one()), "in1: must be a scalar, of rank 0"),
            (pairs(vec![vec![x, dense(&[2])]]), "in1: of set 1: [2] does not broadcast"),
        ] {
            let refused = refused.expect_err(words).to_string();
            assert!(refused.contains(words), "{refused}");
        }
        // Of sets without elements another one has the greatest.
        let of_empty = |dims: &str| {
            let empty = r#"{"dtype":"f32","dims":[0]}"#;
            let other = format!(r#"{{"dtype":"f32","dims":{dims}}}"#);
            let json = format!(r#"{{"inputs":[{empty}],"axes":[0],"reduce":"max","sets":[[{other}]]}}"#);
            serde_json::from_str::<ReduceDescriptor>(&json).map_err(|error| error.to_string())
        };
        assert!(of_empty("[2]").is_ok());
        assert!(of_empty("[3,0]").unwrap_err().contains("max has no result without elements, and no set has any"));
        // Types that compute in one mix: the output is of the computing type.
        let mixed = of(Reduction::Sum, &[0, 1], halves(DType::BF16)).unwrap();
        assert_eq!(mixed.slots()[1].desc.dtype(), DType::F32);
    }
}
