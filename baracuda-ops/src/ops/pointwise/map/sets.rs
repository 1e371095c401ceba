//! Several sets of operands in one plan: their rules, and the kernels, which run what each set alone would.

use super::{FIRST_OUTPUT, Fields, INPUTS, OUTPUTS, PointwiseDescriptor, Valid, forward};
#[cfg(any(feature = "cuda", feature = "wgpu"))]
use crate::error::Reason;
use crate::error::{Error, Result};
use crate::ops::fields::{relay, require};
use crate::ops::valid::Described;
use crate::slots::{Layouts, MAX_SETS, MAX_SLOTS, SlotsBuilder, name_in_set};
use crate::tensor::TensorDesc;

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "wgpu")]
mod wgpu;

#[cfg(feature = "cuda")]
pub(super) use cuda::on_cuda;
#[cfg(all(test, feature = "cuda"))]
pub(super) use cuda::without_scalars;
#[cfg(feature = "wgpu")]
pub(super) use wgpu::through_wgpu;

/// One of several sets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Set {
    /// What a descriptor of this set alone would be.
    pub(super) valid: Valid,
    /// Of each of its slots the index in the descriptor of all sets, and the name there.
    pub(super) places: Vec<(usize, &'static str)>,
}

#[cfg(any(feature = "cuda", feature = "wgpu"))]
impl Set {
    /// Whether there is anything to compute.
    pub(super) fn has_elements(&self) -> bool {
        self.valid.derived.operands.last().is_some_and(|output| !output.is_empty())
    }
}

/// A set of operands for kernels that go from set to set.
pub(super) struct Tensors<'v> {
    /// What a descriptor of this set alone would be.
    pub(super) valid: &'v Valid,
    /// Indices of the operands, outputs first.
    pub(super) indices: Vec<usize>,
}

impl Valid {
    /// The sets, of which most descriptors have one.
    pub(super) fn tensors(&self) -> Vec<Tensors<'_>> {
        let (inputs, outputs) = (self.fields.program.inputs(), self.fields.program.outputs());
        if self.derived.sets.is_empty() {
            let indices = (FIRST_OUTPUT..FIRST_OUTPUT + outputs).chain(0..inputs).collect();
            return vec![Tensors { valid: self, indices }];
        }
        self.derived.sets.iter().map(Tensors::of).collect()
    }
}

impl<'v> Tensors<'v> {
    fn of(set: &'v Set) -> Self {
        let (of_inputs, of_outputs) = set.places.split_at(set.valid.fields.program.inputs());
        let indices = of_outputs.iter().chain(of_inputs).map(|&(index, _)| index).collect();
        Self { valid: &set.valid, indices }
    }
}

impl super::Geometry {
    /// # Errors
    /// There are several sets.
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    pub(super) fn one_set(&self) -> Result<(), Reason> {
        let sets = self.sets.len();
        Reason::unless(sets == 0, || format!("it runs one set of operands, the descriptor has {sets}"))
    }
}

/// The inputs of a set: its own, and those of the first that it shares.
pub(in crate::ops) fn inputs_of(own: &[TensorDesc], first: &[TensorDesc]) -> Vec<TensorDesc> {
    own.iter().chain(first.get(own.len()..).unwrap_or_default()).copied().collect()
}

/// Layouts of the inputs of further sets are those of their descriptors.
pub(in crate::ops) fn relay_sets(op: &'static str, layouts: &mut Layouts, sets: &mut [Vec<TensorDesc>]) -> Result<()> {
    let has_layouts = layouts.keys().any(|name| name.contains('.'));
    if !has_layouts || sets.len() >= MAX_SETS {
        return Ok(());
    }
    for (set, inputs) in (1..).zip(sets) {
        for (at, input) in (0..INPUTS.len()).zip(inputs) {
            relay(op, layouts, [(name_in_set(forward::TABLE, at, set), input)])?;
        }
    }
    Ok(())
}

/// How many inputs each set has for itself; the others, those of the first, are shared. There are further sets.
///
/// # Errors
/// Too many sets, sets of none, of different numbers or of too many inputs, or an input that is shared and no scalar.
pub(in crate::ops) fn check_inputs(op: &'static str, inputs: &[TensorDesc], sets: &[Vec<TensorDesc>]) -> Result<usize> {
    let count = sets.len();
    require(op, "sets", count < MAX_SETS, || {
        format!("must be at most {} besides the first; got {count}", MAX_SETS - 1)
    })?;
    let own = sets.first().map_or(inputs.len(), Vec::len);
    require(op, "sets", (1..=inputs.len()).contains(&own), || {
        format!("must have 1 to {} inputs each, those of the program; set 1 has {own}", inputs.len())
    })?;
    for (set, inputs) in (1..).zip(sets) {
        require(op, "sets", inputs.len() == own, || {
            format!("must have equally many inputs; set 1 has {own}, set {set} has {}", inputs.len())
        })?;
    }
    for (name, input) in INPUTS.iter().zip(inputs).skip(own) {
        require(op, name, input.rank() == 0, || {
            let dims = input.dims();
            format!("must be a scalar, of rank 0: the sets have {own} inputs of their own and share it; got {dims:?}")
        })?;
    }
    Ok(own)
}

impl Fields {
    /// The inputs that each set has for itself; the others are shared.
    #[cfg(feature = "cuda")]
    fn own_inputs(&self) -> usize {
        self.sets.first().map_or(self.inputs.len(), Vec::len)
    }

    /// Declares the operands of further sets, and returns all sets, if there are further ones.
    pub(super) fn declare_sets(&self, op: &'static str, slots: &mut SlotsBuilder<'_>) -> Result<Vec<Set>> {
        let Self { program, inputs, outputs, sets, .. } = self;
        if sets.is_empty() {
            return Ok(Vec::new());
        }
        require(op, "sets", program.sources().is_empty(), || {
            "must be of a program without sources (positions and random numbers); give each set a descriptor of its own"
                .into()
        })?;
        let own = check_inputs(op, inputs, sets)?;
        let is_shared = |index: usize| (own..FIRST_OUTPUT).contains(&index);
        let of_sets = |own: &[TensorDesc], layouts: Layouts| {
            let inputs = inputs_of(own, inputs);
            let fields = Self { outputs: outputs.clone(), layouts, ..Self::minimal(program.clone(), inputs) };
            Valid::new(PointwiseDescriptor::OP, fields)
        };
        let mut layouts = slots.layouts_of_sets();
        // Those of shared inputs remain, and no operand of these names is declared.
        for layouts in layouts.values_mut() {
            layouts.retain(|name, _| !INPUTS.iter().skip(own).any(|shared| shared == name));
        }
        let first = slots.layouts_of_first(&OUTPUTS);
        let first = of_sets(&inputs[..own], first)?;
        slots.keep_apart(is_shared);
        let places = first.slots.iter().map(|slot| (slot.index, slot.name)).collect();
        let mut all = vec![Set { valid: first, places }];
        let mut index = MAX_SLOTS;
        for (set, inputs) in (1..).zip(sets) {
            let valid =
                of_sets(inputs, layouts.remove(&set).unwrap_or_default()).map_err(|error| of_set(error, set))?;
            slots.declare_set(set, &valid.slots, &valid.fields.layouts, is_shared);
            let place = |slot: &crate::slots::Slot| {
                if is_shared(slot.index) {
                    return (slot.index, slot.name);
                }
                index += 1;
                (index - 1, name_in_set(forward::TABLE, slot.index, set))
            };
            let places = valid.slots.iter().map(place).collect();
            all.push(Set { valid, places });
        }
        Ok(all)
    }
}

/// An error that says in which set it is.
pub(in crate::ops) fn of_set(error: Error, set: usize) -> Error {
    match error {
        Error::InvalidDescriptor { op, field, rule } => {
            Error::InvalidDescriptor { op, field, rule: format!("of set {set}: {rule}") }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Device;
    use crate::dtype::DType;
    use crate::memory::{Mem, MemMut, Operand, Workspace};
    use crate::ops::pointwise::program::{Function, Program};
    use crate::ops::pointwise::{PointwiseArgs, PointwisePlan};
    use crate::options::PlanOptions;
    use crate::plan::Descriptor;

    fn dense(dims: &[u64]) -> TensorDesc {
        TensorDesc::contiguous(DType::F32, dims).unwrap()
    }

    /// `x = x by`, of `x` of these extents.
    fn scaled(dims: &[&[u64]]) -> PointwiseDescriptor {
        let sets = dims[1..].iter().map(|dims| vec![dense(dims)]).collect();
        PointwiseDescriptor::binary(Function::Mul, dense(dims[0]), dense(&[])).unwrap().sets(sets).unwrap()
    }

    #[test]
    fn operands_are_named_by_their_sets() {
        let descriptor = scaled(&[&[3], &[2, 2], &[]]);
        let slots = descriptor.slots();
        let names: Vec<_> = slots.iter().map(|slot| slot.name).collect();
        assert_eq!(names, ["in0", "in1", "out0", "in0.1", "out0.1", "in0.2", "out0.2"]);
        for (input, output) in [(0, 2), (3, 4), (5, 6)] {
            assert_eq!(slots[output].in_place, Some(slots[input].position), "{}", slots[output].name);
        }
        assert_eq!(slots[4].desc.dims(), [2, 2]);
        let json = serde_json::to_string(&descriptor).unwrap();
        assert_eq!(serde_json::from_str::<PointwiseDescriptor>(&json).unwrap(), descriptor);
        assert!(json.contains(r#""sets":[["#), "{json}");
        // Without further sets it is the descriptor of one.
        let one = scaled(&[&[3]]);
        assert_eq!(one, PointwiseDescriptor::binary(Function::Mul, dense(&[3]), dense(&[])).unwrap());
        assert!(descriptor.gradients_all().is_err());
    }

    #[test]
    fn layouts_and_types_are_those_of_each_set() {
        let turned = TensorDesc::strided(DType::F32, &[2, 2], &[1, 2]).unwrap();
        let laid = scaled(&[&[3], &[2, 2]]).layout("out0.1", turned).unwrap();
        assert_eq!(laid.slots()[4].desc, turned);
        assert_eq!(laid.clone().layout("out0.1", dense(&[2, 2])).unwrap(), scaled(&[&[3], &[2, 2]]));
        let laid = scaled(&[&[3], &[2, 2]]).layout("in0.1", turned).unwrap();
        assert_eq!((laid.slots()[3].desc, laid.slots()[4].desc), (turned, turned));
        let halves = TensorDesc::contiguous(DType::BF16, &[4]).unwrap();
        let mixed = PointwiseDescriptor::unary(Function::Neg, dense(&[3])).unwrap().sets(vec![vec![halves]]).unwrap();
        let types = |descriptor: &PointwiseDescriptor| {
            let outputs = descriptor.slots().iter().filter(|slot| slot.name.starts_with("out"));
            outputs.map(|slot| slot.desc.dtype()).collect::<Vec<_>>()
        };
        assert_eq!(types(&mixed), [DType::F32, DType::BF16]);
        assert_eq!(types(&mixed.outputs(vec![DType::F32]).unwrap()), [DType::F32, DType::F32]);
    }

    #[test]
    fn sets_that_do_not_fit_are_refused() {
        let of = |sets: Vec<Vec<TensorDesc>>| {
            PointwiseDescriptor::binary(Function::Mul, dense(&[3]), dense(&[])).unwrap().sets(sets)
        };
        let x = dense(&[5]);
        let layout = |name: &str, dims: &[u64]| scaled(&[&[3], &[2]]).layout(name, dense(dims));
        for (descriptor, words) in [
            (of(vec![vec![]]), "sets: must have 1 to 2 inputs each, those of the program; set 1 has 0"),
            (of(vec![vec![x; 3]]), "sets: must have 1 to 2 inputs each, those of the program; set 1 has 3"),
            (of(vec![vec![x; 2], vec![x]]), "must have equally many inputs; set 1 has 2, set 2 has 1"),
            (of(vec![vec![x]; MAX_SETS]), "must be at most 4095 besides the first; got 4096"),
            (of(vec![vec![x, dense(&[2])]]), "in1: of set 1: [2] does not broadcast with [5] of in0"),
            (
                PointwiseDescriptor::binary(Function::Mul, x, dense(&[1])).unwrap().sets(vec![vec![x]]),
                "in1: must be a scalar, of rank 0: the sets have 1 inputs of their own and share it; got [1]",
            ),
            (layout("in1.1", &[]), "in1.1 is not declared; declared are in0, in1, out0, and those of sets 1 to 1"),
            (layout("out0.2", &[2]), "out0.2 is not declared"),
            (layout("out0.01", &[2]), "out0.01 is not declared"),
            (layout("out0.1", &[3]), "of set 1: must be f32 [2]"),
            (layout("in0.1", &[3]), "in0.1: must be f32 [2]"),
        ] {
            let error = descriptor.unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        assert!(of(vec![vec![x]; MAX_SETS - 1]).is_ok());
    }

    #[test]
    fn operands_of_all_sets_are_checked() {
        let device = Device::cpu();
        let plan = PointwisePlan::new(&device, scaled(&[&[3], &[8]]), &PlanOptions::default()).unwrap();
        let values: Vec<f32> = (0u8..32).map(f32::from).collect();
        let (memory, by) = (device.upload(&values).unwrap(), device.upload(&[0.5f32]).unwrap());
        let run = |second: &mut [Operand<'_>]| {
            let first = MemMut::buffer(&memory, 0, 12);
            let args = PointwiseArgs::new([Mem::in_place(), Mem::from(&by)], [first]).sets(second);
            plan.run(&mut device.queue(), args, Workspace::none())
        };
        let of = |offset: u64| -> Operand<'_> { MemMut::buffer(&memory, offset, 32).into() };
        assert_eq!(run(&mut [of(16), of(64)]), Ok(()));
        let mut expected = values.clone();
        (0..3).for_each(|at| expected[at] *= 0.5);
        (0..8).for_each(|at| expected[16 + at] = 0.5 * values[4 + at]);
        assert_eq!(device.queue().download::<f32>(&memory).unwrap(), expected);
        // In place, by the identical range, or as the partner; reading what another set reads would do, too.
        assert_eq!(run(&mut [of(64), of(64)]), Ok(()));
        assert_eq!(run(&mut [Mem::in_place().into(), of(64)]), Ok(()));
        let overlap = |a, b| Err(Error::Overlap { op: "pointwise", a, b, detail: "" });
        assert_eq!(run(&mut [of(0), of(64)]), overlap("out0", "in0.1"));
        assert_eq!(run(&mut [of(48), of(64)]), overlap("in0.1", "out0.1"));
        assert_eq!(run(&mut [of(64), of(0)]), overlap("out0", "out0.1"));
        // Shared scalars are no place of an output.
        let shared = MemMut::buffer(&by, 0, 4);
        let tiny = PointwisePlan::new(&device, scaled(&[&[3], &[]]), &PlanOptions::default()).unwrap();
        let mut second: [Operand<'_>; 2] = [of(16), shared.into()];
        let args = PointwiseArgs::new([Mem::in_place(), Mem::from(&by)], [MemMut::buffer(&memory, 0, 12)]);
        let refused = tiny.run(&mut device.queue(), args.sets(&mut second), Workspace::none());
        assert_eq!(refused, overlap("in1", "out0.1"));
        let missing = Err(Error::MissingOperand { op: "pointwise", operand: "out0.1" });
        assert_eq!(run(&mut [of(64)]), missing);
        let unexpected = Err(Error::UnexpectedOperand { op: "pointwise", operand: "beyond the last" });
        assert_eq!(run(&mut [of(16), of(64), of(64)]), unexpected);
        let short: Operand<'_> = MemMut::buffer(&memory, 64, 4).into();
        assert!(run(&mut [of(16), short]).unwrap_err().to_string().contains("out0.1"));
        assert!(run(&mut [of(16), Mem::in_place().into()]).unwrap_err().to_string().contains("out0.1"));
        let read_only: Operand<'_> = Mem::buffer(&memory, 64, 32).into();
        assert_eq!(run(&mut [of(16), read_only]), Err(Error::ReadOnly { op: "pointwise", operand: "out0.1" }));
    }

    #[test]
    fn each_set_is_computed_and_bound() {
        let device = Device::cpu();
        // Sets that fill several tasks, and some without elements.
        let dims: Vec<Vec<u64>> =
            (0..40u64).map(|at| if at % 7 == 3 { vec![0] } else { vec![1 + at * at * 31] }).collect();
        let descriptor = scaled(&dims.iter().map(Vec::as_slice).collect::<Vec<_>>());
        for kernel in ["pointwise_fast", "pointwise_reference"] {
            let plan = PointwisePlan::new(&device, descriptor.clone(), &PlanOptions::default().kernel(kernel)).unwrap();
            let value = |set: usize, at: usize| single(set * 1000 + at);
            let of = |(set, dims): (usize, &Vec<u64>)| {
                let values: Vec<f32> = (0..crate::narrow::to_usize(dims[0])).map(|at| value(set, at)).collect();
                device.upload(&values).unwrap()
            };
            let memory: Vec<_> = dims.iter().enumerate().map(of).collect();
            let by = device.upload(&[2f32]).unwrap();
            let mut further: Vec<Operand<'_>> = Vec::new();
            memory[1..].iter().for_each(|memory| further.extend([Mem::in_place().into(), memory.into()]));
            let args = PointwiseArgs::new([Mem::in_place(), Mem::from(&by)], [&memory[0]]).sets(&mut further);
            let bound = plan.bind(args, Workspace::none()).unwrap();
            let mut queue = device.queue();
            bound.run(&mut queue).unwrap();
            bound.run(&mut queue).unwrap();
            for (set, memory) in memory.iter().enumerate() {
                let values = queue.download::<f32>(memory).unwrap();
                assert!(values.iter().enumerate().all(|(at, &got)| got == 4.0 * value(set, at)), "set {set}");
            }
            // In the order of the slots.
            let mut all: Vec<Operand<'_>> = vec![Mem::in_place().into(), Mem::from(&by).into(), (&memory[0]).into()];
            memory[1..].iter().for_each(|memory| all.extend([Mem::in_place().into(), memory.into()]));
            plan.erase().run(&mut queue, &mut all, Workspace::none()).unwrap();
            assert_eq!(queue.download::<f32>(&memory[39]).unwrap()[1], 8.0 * value(39, 1));
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "small numbers are exact")]
    fn single(number: usize) -> f32 {
        number as f32
    }

    #[test]
    fn programs_of_all_inputs_of_their_own_share_none() {
        let x = dense(&[2]);
        let descriptor = PointwiseDescriptor::new(Program::of(Function::Add), vec![x; 2]).unwrap();
        let descriptor = descriptor.sets(vec![vec![dense(&[3]), dense(&[1])]]).unwrap();
        let names: Vec<_> = descriptor.slots().iter().map(|slot| slot.name).collect();
        assert_eq!(names, ["in0", "in1", "out0", "in0.1", "in1.1", "out0.1"]);
    }
}
