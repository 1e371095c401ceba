//! On CUDA the sets of dense operands of f32 arithmetic go in as few launches as their addresses fit into parameters; each other set is a launch of its own.

use std::collections::BTreeMap;
use std::ffi::c_void;

use baracuda_ops_sys as sys;

use super::{Set, Valid};
use crate::backend::cuda::{Launch, Props, Start, c_element, number_of};
use crate::backend::{Device, Located};
use crate::dtype::DType;
use crate::error::{BuildError, Reason};
use crate::kernel::{Accepted, Ask, Built, Candidate, Exec};
use crate::narrow::word;
use crate::ops::calls::calls;
use crate::ops::pointwise::map::cuda::{self, Code, single_extent};
use crate::ops::pointwise::program::{Argument, Instruction, Program, Term};
use crate::slots::MAX_SLOTS;

const WORDS: usize = sys::BOPS_SETS_WORDS as usize;
const BLOCK: u64 = sys::BOPS_SETS_BLOCK as u64;
const SCALARS: usize = sys::BOPS_SETS_SCALARS as usize;
const NUMBERS: usize = sys::BOPS_SETS_NUMBERS as usize;
/// Elements of an access.
const WIDTH: u64 = 4;

/// How sets are launched.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Choice {
    /// Of several sets.
    launches: u32,
    /// Sets that are launches of their own.
    alone: u32,
}

pub(in crate::ops::pointwise::map) fn on_cuda<'d>(valid: &'d Valid, props: &Props, ask: Ask) -> Accepted<'d> {
    let sets = &valid.derived.sets;
    Reason::unless(!sets.is_empty(), || "it runs several sets of operands, the descriptor has one")?;
    let told = Told::new(valid);
    // Of sets of the same types; of the others the number.
    let mut together: BTreeMap<Vec<u32>, Vec<&Set>> = BTreeMap::new();
    let (mut alone, mut launches) = (Vec::new(), 0);
    for (number, set) in sets.iter().enumerate().filter(|(_, set)| set.has_elements()) {
        match told.as_ref().filter(|_| is_served(&set.valid, valid.fields.own_inputs())) {
            Some(told) => together.entry(told.types(&set.valid)).or_default().push(set),
            None => {
                let served = cuda::function(&set.valid, props, ask).or_else(|_| cuda::program(&set.valid, props, ask));
                let candidate = served.map_err(|reason| Reason::from(format!("set {number}: {reason}")))?;
                launches += candidate.launches;
                alone.push((set, candidate));
            }
        }
    }
    let groups: Vec<Group> =
        told.iter().flat_map(|told| together.values().flat_map(|sets| told.groups(sets))).collect();
    let choice = Choice { launches: word(groups.len() as u64), alone: word(alone.len() as u64) };
    let slots = told.map_or(0, |told| told.slots);
    let build = move |device: &Device| -> Result<Built, BuildError> {
        let mut starts: Vec<Box<Start>> = Vec::with_capacity(groups.len() + alone.len());
        for group in groups {
            let choice = sys::bops_pointwise_sets_choice { slots };
            let calls = calls!(bops_pointwise_sets);
            let params = group.params;
            // Some programs have kernels of their own.
            let of_program = number_of(&(params.inputs, params.outputs, params.instruction, params.result));
            let device = crate::backend::cuda::Device::of(device)?;
            let run = calls.prepare(device, sys::BOPS_F32, params, choice, of_program)?;
            starts.push(Box::new(move |located, stream| {
                run(&group.operands(located), located.workspace_pointer(), stream)
            }));
        }
        for (set, candidate) in alone {
            if let Built(Exec::Cuda(launch)) = candidate.build.on(device)? {
                starts.push(Box::new(alone_at(set, launch)));
            }
        }
        let run = move |located: &Located<'_>, stream: *mut c_void| {
            starts.iter().map(|start| start(located, stream)).find(|&status| status != 0).unwrap_or(0)
        };
        Ok(Launch::new("bops_pointwise_sets", run).into())
    };
    Ok(Candidate { launches: launches + choice.launches, ..Candidate::new(choice, build) })
}

/// Launches one set with its operands where a descriptor of this set alone would have them.
fn alone_at(set: &Set, launch: Launch) -> impl Fn(&Located<'_>, *mut c_void) -> i32 + Send + Sync + use<> {
    let rows: Vec<[usize; 2]> =
        set.valid.slots.iter().zip(&set.places).map(|(slot, &(index, _))| [slot.index, index]).collect();
    debug_assert!(rows.iter().all(|&[row, _]| row < MAX_SLOTS));
    move |located, stream| {
        let mut of_set = Located::default();
        rows.iter().for_each(|&[row, index]| of_set.operands[row] = *located.at(index));
        (launch.launch)(&of_set, stream)
    }
}

/// Whether the operands of a set lie next to each other in whole accesses, all in the same order.
fn is_served(valid: &Valid, own: usize) -> bool {
    let (inputs, outputs) = valid.derived.operands.split_at(valid.fields.program.inputs());
    let elements: u64 = outputs[0].dims().iter().product();
    let operands: Vec<_> = outputs.iter().chain(&inputs[..own]).copied().collect();
    elements > 0 && elements.div_ceil(BLOCK) < u64::from(u32::MAX) && single_extent(operands, WIDTH)
}

/// A program as the kernel is told it.
struct Told {
    params: sys::bops_pointwise_sets_params,
    slots: u32,
    /// The inputs that sets have for themselves and that count, and the scalars that count.
    inputs: Vec<usize>,
    scalars: Vec<usize>,
}

impl Told {
    /// None of a program that the kernel does not run.
    fn new(valid: &Valid) -> Option<Self> {
        let (program, own) = (&valid.fields.program, valid.fields.own_inputs());
        // Sets may have different types, on which some functions depend.
        let has_types = program.instructions().iter().any(|instruction| instruction.function.row().of_type.is_some());
        if valid.derived.computing != DType::F32 || has_types || cuda::has_integrals(program) {
            return None;
        }
        let without = without_scalars(program, own)?;
        let scalar = |number: f64| (0..program.inputs()).find(|&input| marker(input) == number);
        // A number of f32 has 32 bits.
        let bits = |number: f64| match scalar(number) {
            Some(input) => 1 << 32 | input as u64,
            None => cuda::bits(DType::F32, number),
        };
        let code = Code::new(&without, bits);
        if code.slots > 8 || code.literals.len() > NUMBERS {
            return None;
        }
        let mut params = sys::bops_pointwise_sets_params {
            inputs: word(code.inputs.len() as u64),
            outputs: word(program.outputs() as u64),
            instructions: word(code.instructions.len() as u64),
            ..Default::default()
        };
        params.result[..code.results.len()].copy_from_slice(&code.results);
        params.instruction[..code.instructions.len()].copy_from_slice(&code.instructions);
        let mut scalars = Vec::new();
        for (at, &bits) in code.literals.iter().enumerate() {
            if bits >> 32 == 0 {
                params.literal[at] = bits;
                continue;
            }
            let input = usize::try_from(bits & 0xff).ok()?;
            *params.number.get_mut(scalars.len())? = word(at as u64);
            params.scalar_dtype[scalars.len()] = c_element(valid.fields.inputs[input].dtype());
            scalars.push(input);
        }
        params.scalars = word(scalars.len() as u64);
        Some(Self { params, slots: if code.slots <= 4 { 4 } else { 8 }, inputs: code.inputs, scalars })
    }

    /// The types of the operands of a set, inputs first.
    fn types(&self, valid: &Valid) -> Vec<u32> {
        let (inputs, outputs) = valid.derived.operands.split_at(valid.fields.program.inputs());
        let all = self.inputs.iter().map(|&input| &inputs[input]).chain(outputs);
        all.map(|operand| c_element(operand.dtype())).collect()
    }

    /// The launches of sets of the same types.
    fn groups(&self, sets: &[&Set]) -> Vec<Group> {
        let of_set = 2 + self.inputs.len() + sets[0].valid.fields.program.outputs();
        let types = self.types(&sets[0].valid);
        let mut params = self.params;
        params.input[..self.inputs.len()].copy_from_slice(&types[..self.inputs.len()]);
        params.output[..types.len() - self.inputs.len()].copy_from_slice(&types[self.inputs.len()..]);
        let mut groups: Vec<Group> = Vec::new();
        for set in sets {
            let elements: u64 = set.valid.derived.operands[set.valid.fields.program.inputs()].dims().iter().product();
            let blocks = word(elements.div_ceil(BLOCK));
            let fits = |group: &Group| {
                (group.sets.len() + 1) * of_set <= WORDS
                    && i32::try_from(u64::from(group.blocks) + u64::from(blocks)).is_ok()
            };
            if !groups.last().is_some_and(fits) {
                let scalars = self.scalars.clone();
                groups.push(Group { params, scalars, sets: Vec::new(), blocks: 0 });
            }
            let Some(group) = groups.last_mut() else { continue };
            let inputs = self.inputs.iter().map(|&input| set.places[input].0);
            let outputs = set.places[set.valid.fields.program.inputs()..].iter().map(|&(index, _)| index);
            group.sets.push(Launched { first: group.blocks, elements, operands: inputs.chain(outputs).collect() });
            group.blocks += blocks;
        }
        groups
    }
}

/// A number that stands for a shared scalar: f32 has none of them.
fn marker(input: usize) -> f64 {
    f64::from_bits(f64::MAX.to_bits() - input as u64)
}

/// The program in which scalars are numbers; none if an output is one of them.
pub(in crate::ops::pointwise::map) fn without_scalars(program: &Program, own: usize) -> Option<Program> {
    let mut b = Program::builder();
    let inputs: Vec<Term> = (0..own).map(|at| b.input(format!("x{at}"))).collect();
    let mut results: Vec<Term> = Vec::new();
    let term = |results: &[Term], argument: &Argument| match *argument {
        Argument::Input(at) => inputs.get(at).copied().unwrap_or_else(|| marker(at).into()),
        Argument::Result(at) => results[at],
        Argument::Literal(literal) => literal.get().into(),
        // Programs of sets have none.
        Argument::Source(_) => f64::NAN.into(),
    };
    for Instruction { function, arguments } in program.instructions() {
        let arguments: Vec<Term> = arguments.iter().map(|argument| term(&results, argument)).collect();
        results.push(b.call(*function, arguments));
    }
    let outputs: Vec<Term> = program.results().iter().map(|output| term(&results, output)).collect();
    b.finish(outputs).ok()
}

/// Sets of one launch.
struct Group {
    params: sys::bops_pointwise_sets_params,
    /// Indices of the shared scalars.
    scalars: Vec<usize>,
    sets: Vec<Launched>,
    blocks: u32,
}

struct Launched {
    /// The first block.
    first: u32,
    elements: u64,
    /// Indices, inputs first.
    operands: Vec<usize>,
}

impl Group {
    fn operands(&self, located: &Located<'_>) -> sys::bops_pointwise_sets_operands {
        let mut operands = sys::bops_pointwise_sets_operands {
            sets: word(self.sets.len() as u64),
            blocks: self.blocks,
            ..Default::default()
        };
        for (to, &index) in operands.scalar[..SCALARS].iter_mut().zip(&self.scalars) {
            *to = located.pointer(index).cast_const();
        }
        let mut rest = &mut operands.word[..];
        for set in &self.sets {
            let (words, further) = rest.split_at_mut(2 + set.operands.len());
            (words[0], words[1]) = (set.first.into(), set.elements);
            for (to, &index) in words[2..].iter_mut().zip(&set.operands) {
                *to = located.at(index).address();
            }
            rest = further;
        }
        operands
    }
}
