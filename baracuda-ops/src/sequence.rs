//! Ops whose kernel is a sequence of other ops' kernels: what runs, in which order, and where the operands of each lie.
//!
//! A [`Sequence`] follows from the fields of a descriptor alone, as its slots do, and serves all backends. Its parts are descriptors of other ops; their operands
//! are [`Tensor`]s: operands of the whole, tensors in the workspace, or pieces of either. A plan of it asks each part how it would serve under the same options.
//! The workspace is that of the tensors between the parts, one behind the other, and behind them the largest that a part asks for.

use std::fmt::{self, Debug};
use std::hash::{Hash, Hasher};
use std::sync::OnceLock;

use crate::any::AnyDescriptor;
use crate::backend::{Backend, Device, DeviceProps, Located, Location, cpu};
use crate::dtype::DType;
use crate::error::{Reason, Result};
use crate::kernel::{self, Accepted, Ask, Build, BuildError, Built, Candidate, Exec};
use crate::options::{Choice, Determinism, Math, PlanOptions, WorkspaceReq};
use crate::plan::{Descriptor, form_name};
use crate::slots::{Access, Slot};
use crate::tensor::{DEFAULT_ALIGN_BYTES, TensorDesc};

#[cfg(feature = "cuda")]
use crate::backend::cuda;
#[cfg(feature = "wgpu")]
use crate::backend::wgpu;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
use crate::plan::KernelName;

/// Tensors in the workspace, and their rows, begin at multiples of so many bytes: the largest alignment that a device of wgpu asks of a binding.
const ALIGN: u64 = 256;

/// Workspace that a part has, in bytes, unless no kernel of it does with less: some take the more the more there is, and tensors are to be most of the whole.
const SCRATCH: u64 = 16 << 20;

/// A tensor that parts read or write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tensor {
    pub(crate) desc: TensorDesc,
    base: Base,
    /// Bytes from the start of the base to the first element.
    offset: u64,
}

/// The memory that a tensor is a piece of.
#[derive(Clone, Copy, Debug)]
enum Base {
    /// The operand of a row of the table that the op of the sequence has.
    Operand(usize),
    Workspace,
}

impl Tensor {
    /// The operand of a slot of the op of the sequence.
    pub(crate) fn operand(slot: &Slot) -> Self {
        Self { desc: slot.desc, base: Base::Operand(slot.index), offset: 0 }
    }

    /// As [`TensorDesc::narrow`].
    pub(crate) fn narrow(self, axis: usize, start: u64, length: u64) -> Result<Self> {
        let (desc, offset) = self.desc.narrow(axis, start, length)?;
        Ok(Self { desc, offset: self.offset + offset, ..self })
    }

    /// The same bytes as elements of another type, extents or strides, which stay inside the tensor.
    pub(crate) fn view(self, dtype: DType, dims: &[u64], strides: &[u64]) -> Result<Self> {
        let align = self.desc.align_bytes().max(dtype.size_bytes());
        Ok(Self { desc: TensorDesc::strided(dtype, dims, strides)?.align(align)?, ..self })
    }

    /// So many bytes of it, as a place in the whole.
    #[cfg(feature = "wgpu")]
    fn piece(&self, offset: u64, bytes: u64) -> wgpu::Place {
        let offset = self.offset + offset;
        match self.base {
            Base::Operand(index) => wgpu::Place::Piece { index, offset, bytes },
            Base::Workspace => wgpu::Place::Workspace { offset, bytes },
        }
    }

    fn within<'a>(&self, whole: &Located<'a>) -> Location<'a> {
        if self.desc.is_empty() {
            return Location::default();
        }
        let base = match self.base {
            Base::Operand(index) => *whole.at(index),
            Base::Workspace => whole.workspace,
        };
        let start = base.start + self.offset;
        Location { start, end: start + self.desc.span_bytes(), ..base }
    }
}

/// Parts in the order in which they run, and the tensors between them.
#[derive(Clone, Debug, Default)]
pub struct Sequence {
    /// Each once, however often it runs.
    parts: Vec<AnyDescriptor>,
    runs: Vec<Run>,
    /// Bytes of the workspace that tensors have which may still be read.
    used: u64,
    /// The most that were used.
    room: u64,
}

/// A run of a part.
#[derive(Clone, Debug)]
struct Run {
    /// Among the parts.
    part: usize,
    /// By the indices of the rows of the part's table.
    operands: Vec<(usize, Tensor)>,
}

/// A place in the sequence, by what the workspace holds there.
#[derive(Clone, Copy)]
pub(crate) struct Mark(u64);

impl Sequence {
    /// A new dense tensor in the workspace.
    pub(crate) fn tensor(&mut self, dtype: DType, dims: &[u64]) -> Result<Tensor> {
        self.place(TensorDesc::contiguous(dtype, dims)?)
    }

    /// A new matrix in the workspace whose rows begin where those of a tensor may: each can be an operand.
    pub(crate) fn matrix(&mut self, dtype: DType, rows: u64, columns: u64) -> Result<Tensor> {
        let step = columns.div_ceil(ALIGN / dtype.size_bytes()).saturating_mul(ALIGN / dtype.size_bytes());
        self.place(TensorDesc::strided(dtype, &[rows, columns], &[step, 1])?)
    }

    /// A new tensor in the workspace that lies as told.
    pub(crate) fn place(&mut self, desc: TensorDesc) -> Result<Tensor> {
        let tensor = Tensor { desc, base: Base::Workspace, offset: self.used };
        self.used = self.used.saturating_add(desc.span_bytes()).div_ceil(ALIGN).saturating_mul(ALIGN);
        self.room = self.room.max(self.used);
        Ok(tensor)
    }

    /// What the workspace holds now.
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.used)
    }

    /// Lets later tensors take the memory of those that were made since a mark, which no later part reads.
    pub(crate) fn release(&mut self, Mark(used): Mark) {
        self.used = used;
    }

    /// Runs an op next. `operands` has one for each of its slots, which lies as the slot says, and may have others. An op that writes nothing is left out.
    pub(crate) fn push(&mut self, descriptor: impl Descriptor, operands: &[(&str, Tensor)]) {
        if !writes_nothing(Descriptor::slots(&descriptor)) {
            self.run(AnyDescriptor::new(descriptor), operands);
        }
    }

    /// Runs an op first, also if it writes nothing, by the kernel that [`led_by`](Self::led_by) is told.
    pub(crate) fn lead(&mut self, descriptor: impl Descriptor, operands: &[(&str, Tensor)]) {
        self.run(AnyDescriptor::new(descriptor), operands);
    }

    fn run(&mut self, descriptor: AnyDescriptor, operands: &[(&str, Tensor)]) {
        let part = self.parts.iter().position(|part| *part == descriptor).unwrap_or_else(|| {
            self.parts.push(descriptor);
            self.parts.len() - 1
        });
        let place = |slot: &Slot| {
            let found = operands.iter().find(|(name, _)| *name == slot.name).map(|&(_, tensor)| tensor);
            debug_assert_eq!(
                found.map(|tensor| tensor.desc),
                Some(slot.desc),
                "{} of {:?}",
                slot.name,
                self.parts[part]
            );
            found.map(|tensor| (slot.index, tensor))
        };
        let operands = self.parts[part].slots().iter().filter_map(place).collect();
        self.runs.push(Run { part, operands });
    }

    /// How it would serve, with the first kernel of each part that does.
    pub(crate) fn candidate<'d>(
        &'d self,
        call: &'static str,
        options: &PlanOptions,
        props: &DeviceProps,
    ) -> Accepted<'d> {
        let parts = self.asked(options, props, 0)?;
        self.candidate_of(parts, call, props)
    }

    /// How it would serve with this kernel of the first part, whose type of descriptor is `D`, and the first kernel of each other part that does.
    pub(crate) fn led_by<'d, D: Descriptor>(
        &'d self,
        kernel: &dyn kernel::Kernel<D>,
        options: &PlanOptions,
        props: &DeviceProps,
        ask: Ask,
    ) -> Accepted<'d> {
        let leading = self.parts.first().and_then(|first| Some((first, first.downcast::<D>()?)));
        let (descriptor, typed) = leading.ok_or_else(|| Reason::from("another op leads"))?;
        let form = kernel.accept(typed, &self.for_parts(options, None), props, ask)?;
        let mut parts = vec![Part { descriptor, name: kernel.name(), forms: vec![form] }];
        parts.extend(self.asked(options, props, 1)?);
        self.candidate_of(parts, kernel.name(), props)
    }

    /// What parts are asked: to leave room for the tensors between them, and to have no more than `most` of workspace.
    fn for_parts(&self, options: &PlanOptions, most: Option<u64>) -> PlanOptions {
        let limit = options.workspace_limit.map(|limit| limit.saturating_sub(self.room));
        PlanOptions { kernel: None, workspace_limit: limit.into_iter().chain(most).min(), ..options.clone() }
    }

    /// The parts from the one with a number on, as they would serve.
    fn asked<'d>(&'d self, options: &PlanOptions, props: &DeviceProps, from: usize) -> Result<Vec<Part<'d>>, Reason> {
        let (lean, rich) = (self.for_parts(options, Some(SCRATCH)), self.for_parts(options, None));
        let part = |part| Part::new(part, &lean, props).or_else(|_| Part::new(part, &rich, props));
        self.parts[from..].iter().map(part).collect()
    }

    fn candidate_of<'d>(&'d self, parts: Vec<Part<'d>>, call: &'static str, props: &DeviceProps) -> Accepted<'d> {
        let align = if props.backend() == Backend::Cpu { DEFAULT_ALIGN_BYTES } else { ALIGN };
        let scratch = parts.iter().map(Part::workspace).fold(WorkspaceReq { bytes: 0, align }, WorkspaceReq::max);
        let begin = self.room.checked_next_multiple_of(scratch.align);
        let bytes =
            begin.and_then(|begin| begin.checked_add(scratch.bytes)).filter(|bytes| i64::try_from(*bytes).is_ok());
        let (Some(begin), Some(bytes)) = (begin, bytes) else {
            return Err("the tensors between its parts are more than 2^63 bytes".into());
        };
        let each = || self.runs.iter().map(|run| parts[run.part].first());
        let choice = Parts(parts.iter().enumerate().map(|(at, part)| self.words(at, part)).collect());
        Ok(Candidate {
            workspace: WorkspaceReq::new(bytes, scratch.align),
            launches: each().map(|candidate| candidate.launches).sum(),
            determinism: each().map(|candidate| candidate.determinism).fold(Determinism::RunToRun, Ord::min),
            math: each().map(|candidate| candidate.math).fold(Math::Strict, Ord::min),
            choice: Box::new(choice),
            build: self.build(call, parts, begin, props.backend())?,
        })
    }
}

impl Sequence {
    /// What builds the parts and runs them in order. `begin`: where the workspace of parts begins in that of the whole.
    #[allow(unused_variables, reason = "launches on CUDA alone name what failed")]
    fn build<'d>(
        &self,
        call: &'static str,
        parts: Vec<Part<'d>>,
        begin: u64,
        on: Backend,
    ) -> Result<Build<'d>, Reason> {
        #[cfg(feature = "wgpu")]
        if on == Backend::Wgpu {
            return self.dispatches(&parts, begin);
        }
        let runs = self.runs.clone();
        Ok(Build::With(Box::new(move |device| {
            let parts = parts.into_iter().map(|part| part.build(device)).collect::<Result<Vec<_>, BuildError>>()?;
            match on {
                #[cfg(feature = "cuda")]
                Backend::Cuda => on_cuda(call, runs, parts, begin),
                _ => on_cpu(runs, parts, begin),
            }
        })))
    }

    /// The dispatches of all runs, one after the other.
    #[cfg(feature = "wgpu")]
    fn dispatches<'d>(&self, parts: &[Part<'_>], begin: u64) -> Result<Build<'d>, Reason> {
        let mut all = Vec::new();
        for run in &self.runs {
            let Build::Dispatches(steps) = &parts[run.part].first().build else {
                return Err(format!("{} is no list of dispatches", parts[run.part].name).into());
            };
            for step in steps {
                let mut step = step.clone();
                step.bindings
                    .iter_mut()
                    .for_each(|binding| binding.place = binding.place.and_then(|at| run.moved(at, begin)));
                all.push(step);
            }
        }
        Ok(Build::Dispatches(all))
    }

    /// How often a part runs, by which kernel and by which choice.
    fn words(&self, at: usize, part: &Part<'_>) -> String {
        let times = self.runs.iter().filter(|run| run.part == at).count();
        format!("{times} {} {:?}", part.name, part.first().choice)
    }
}

impl Run {
    /// The operands of the part, of those of the whole.
    fn located<'a>(&self, whole: &Located<'a>, begin: u64) -> Located<'a> {
        let mut located = Located::default();
        for (index, tensor) in &self.operands {
            located.operands[*index] = tensor.within(whole);
        }
        located.workspace = Location { start: whole.workspace.start + begin, ..whole.workspace };
        located
    }

    /// A place of the part in the whole.
    #[cfg(feature = "wgpu")]
    fn moved(&self, place: wgpu::Place, begin: u64) -> Option<wgpu::Place> {
        let operand = |index| self.operands.iter().find(|(at, _)| *at == index).map(|(_, tensor)| tensor);
        match place {
            wgpu::Place::Operand(index) => operand(index).map(|tensor| tensor.piece(0, tensor.desc.span_bytes())),
            wgpu::Place::Piece { index, offset, bytes } => operand(index).map(|tensor| tensor.piece(offset, bytes)),
            wgpu::Place::Workspace { offset, bytes } => Some(wgpu::Place::Workspace { offset: begin + offset, bytes }),
            // Parts of several sets there are none.
            wgpu::Place::OfSet(..) => None,
        }
    }
}

fn writes_nothing(slots: &[Slot]) -> bool {
    slots.iter().all(|slot| slot.access == Access::In || slot.desc.is_empty())
}

/// A part, and how it would serve.
struct Part<'d> {
    descriptor: &'d AnyDescriptor,
    name: &'static str,
    /// In the order in which they are tried: building tells whether a vendor's library is there. One at least.
    forms: Vec<Candidate<'d>>,
}

/// A part ready to run.
struct BuiltPart {
    descriptor: AnyDescriptor,
    built: Built,
    /// What runs need, where only building tells.
    #[cfg(feature = "cuda")]
    measured: (WorkspaceReq, u32),
}

impl<'d> Part<'d> {
    fn new(descriptor: &'d AnyDescriptor, options: &PlanOptions, props: &DeviceProps) -> Result<Self, Reason> {
        let forms = descriptor.candidates(props, options).map_err(|error| Reason::from(error.to_string()))?;
        let name = forms.first().map_or("", |(name, _)| name);
        Ok(Self { descriptor, name, forms: forms.into_iter().map(|(_, form)| form).collect() })
    }

    fn first(&self) -> &Candidate<'d> {
        &self.forms[0]
    }

    /// That of whichever form is built.
    fn workspace(&self) -> WorkspaceReq {
        self.forms.iter().map(|form| form.workspace).fold(WorkspaceReq::NONE, WorkspaceReq::max)
    }

    fn build(self, device: &Device) -> Result<BuiltPart, BuildError> {
        let mut refused = BuildError::Refused("it has no kernel".into());
        for form in self.forms {
            match form.build.on(device) {
                Ok(built) => {
                    return Ok(BuiltPart {
                        descriptor: self.descriptor.clone(),
                        #[cfg(feature = "cuda")]
                        measured: built.measured(form.workspace, form.launches),
                        built,
                    });
                }
                Err(BuildError::Refused(reason)) => refused = BuildError::Refused(reason),
                Err(failed) => return Err(failed),
            }
        }
        Err(refused)
    }
}

fn on_cpu(runs: Vec<Run>, parts: Vec<BuiltPart>, begin: u64) -> Result<Built, BuildError> {
    let kernel = |BuiltPart { descriptor, built, .. }| match built.0 {
        Exec::Cpu(kernel) => Ok((descriptor, kernel)),
        #[cfg(any(feature = "cuda", feature = "wgpu"))]
        _ => Err(BuildError::Refused("it runs on the CPU".into())),
    };
    let kernels = parts.into_iter().map(kernel).collect::<Result<Vec<_>, BuildError>>()?;
    Ok(Built(Exec::Cpu(Box::new(move |operands| {
        runs.iter().try_for_each(|run| {
            let (descriptor, kernel) = &kernels[run.part];
            kernel(&cpu::Operands::new(descriptor.slots(), &run.located(operands.located(), begin)))
        })
    }))))
}

#[cfg(feature = "cuda")]
fn on_cuda(call: &'static str, runs: Vec<Run>, parts: Vec<BuiltPart>, begin: u64) -> Result<Built, BuildError> {
    let mut scratch = WorkspaceReq { bytes: 0, align: ALIGN };
    let mut kernels = Vec::with_capacity(parts.len());
    for BuiltPart { built, measured: (workspace, launches), .. } in parts {
        scratch = scratch.max(workspace);
        match built.0 {
            Exec::Cuda(launch) => kernels.push((launch, launches)),
            _ => return Err(BuildError::Refused("it runs on CUDA".into())),
        }
    }
    let workspace = Some(WorkspaceReq::new(begin + scratch.bytes, scratch.align));
    let launches = Some(runs.iter().map(|run| kernels[run.part].1).sum());
    let launch = move |located: &Located<'_>, stream| {
        let mut statuses = runs.iter().map(|run| (kernels[run.part].0.launch)(&run.located(located, begin), stream));
        statuses.find(|&status| status != 0).unwrap_or(0)
    };
    Ok(cuda::Launch { workspace, launches, ..cuda::Launch::new(call, launch) }.into())
}

/// What the parts chose, in words.
struct Parts(Vec<String>);

impl Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{ {} }}", self.0.join(", "))
    }
}

impl Choice for Parts {}

/// The sequence of a descriptor, made when a kernel first asks for it. Like slots it follows from the fields beside it, so equal fields have equal ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lazy(OnceLock<Result<Sequence>>);

impl Lazy {
    /// # Errors
    /// Why a descriptor of a part is refused.
    pub(crate) fn get(&self, make: impl FnOnce() -> Result<Sequence>) -> Result<&Sequence, Reason> {
        self.0.get_or_init(make).as_ref().map_err(|error| Reason::from(error.to_string()))
    }
}

impl PartialEq for Lazy {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Lazy {}

impl Hash for Lazy {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// An op that runs as a sequence of others.
pub(crate) trait Sequenced: Descriptor {
    /// # Errors
    /// Why there is none.
    fn sequence(&self) -> Result<&Sequence, Reason>;
}

/// The kernel of such an op on a backend.
pub(crate) enum Kernel {
    Cpu,
    #[cfg(feature = "cuda")]
    Cuda,
    #[cfg(feature = "wgpu")]
    Wgpu,
}

impl<D: Sequenced> kernel::Kernel<D> for Kernel {
    fn name(&self) -> &'static str {
        match self {
            Self::Cpu => form_name!(D, "fast"),
            #[cfg(feature = "cuda")]
            Self::Cuda => KernelName::<D>::CUDA,
            #[cfg(feature = "wgpu")]
            Self::Wgpu => KernelName::<D>::WGSL,
        }
    }

    fn backend(&self) -> Backend {
        match self {
            Self::Cpu => Backend::Cpu,
            #[cfg(feature = "cuda")]
            Self::Cuda => Backend::Cuda,
            #[cfg(feature = "wgpu")]
            Self::Wgpu => Backend::Wgpu,
        }
    }

    fn accept<'d>(&self, descriptor: &'d D, options: &PlanOptions, props: &DeviceProps, _: Ask) -> Accepted<'d> {
        // Parts that write nothing are not asked.
        let has_f64 = descriptor.slots().iter().any(|slot| slot.desc.dtype() == DType::F64);
        Reason::unless(props.backend() != Backend::Wgpu || !has_f64, || "WGSL has no arithmetic of f64 to rely on")?;
        descriptor.sequence()?.candidate(kernel::Kernel::<D>::name(self), options, props)
    }
}
