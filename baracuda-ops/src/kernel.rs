//! A [`Kernel`] is one way to run an op: asked, it answers with a [`Candidate`], which is data and what builds it; built, it is an [`Exec`].

use crate::backend::{Backend, Device, DeviceProps, cpu};
pub(crate) use crate::error::BuildError;
use crate::error::Reason;
pub(crate) use crate::options::Choice;
use crate::options::{Determinism, Math, PlanOptions, WorkspaceReq};

#[cfg(feature = "cuda")]
use crate::backend::cuda;
#[cfg(feature = "wgpu")]
use crate::backend::{DeviceKind, wgpu};
#[cfg(feature = "wgpu")]
use crate::narrow::word;

/// What a kernel answers: how it would serve, or why it does not.
pub(crate) type Accepted<'d> = Result<Candidate<'d>, Reason>;

/// One way to run an op on one backend.
pub trait Kernel<D>: Sync {
    /// The name reported in [`PlanInfo`](crate::PlanInfo) and asked for in [`PlanOptions`].
    fn name(&self) -> &'static str;
    /// The backend it runs on.
    fn backend(&self) -> Backend;
    /// Whether and how it serves a descriptor: a pure function of its arguments, which is the same in every process. What only building
    /// needs is left to the candidate.
    ///
    /// # Errors
    /// The reason why it does not, with the limit.
    fn accept<'d>(&self, descriptor: &'d D, options: &PlanOptions, props: &DeviceProps, ask: Ask) -> Accepted<'d>;
    /// The vendor's library that serves it, with its version, once it has been built on a device.
    fn library(&self, _: &Device) -> Option<String> {
        None
    }
}

/// How a kernel is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// With the other kernels of the op, the first of which that accepts runs: it may leave to a later one what that one does better.
    Chosen,
    /// Alone, by its name: it refuses only what it cannot do.
    Pinned,
    /// As `Chosen`, for bits that no other sample has a part in: every choice is made as if there were many samples.
    ChosenInvariant,
    /// As `Pinned`, with choices as if there were many samples.
    PinnedInvariant,
}

/// What asks a kernel, from the options.
impl Ask {
    pub(crate) fn new(is_pinned: bool, determinism: Determinism) -> Self {
        match (is_pinned, determinism == Determinism::BatchInvariant) {
            (false, false) => Self::Chosen,
            (true, false) => Self::Pinned,
            (false, true) => Self::ChosenInvariant,
            (true, true) => Self::PinnedInvariant,
        }
    }
}

/// Samples by which a form chooses that is to choose as if there were many: more than any form has a number for.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
const MANY_SAMPLES: u64 = 1 << 30;

#[cfg(any(feature = "cuda", feature = "wgpu"))]
impl Ask {
    /// Leaves a problem to other kernels if they are better: refuses it unless the kernel is asked by its name.
    ///
    /// # Errors
    /// `why` they are better.
    pub(crate) fn leave_if(self, are_better: bool, why: &'static str) -> Result<(), Reason> {
        Reason::unless(self.is_pinned() || !are_better, || why)
    }

    /// Whether the kernel is asked alone, by its name.
    pub(crate) fn is_pinned(self) -> bool {
        matches!(self, Self::Pinned | Self::PinnedInvariant)
    }

    /// Whether choices are made as if there were many samples.
    pub(crate) fn is_invariant(self) -> bool {
        matches!(self, Self::ChosenInvariant | Self::PinnedInvariant)
    }

    /// The number of samples by which a form chooses, of so many.
    pub(crate) fn samples(self, count: u64) -> u64 {
        if self.is_invariant() { MANY_SAMPLES } else { count }
    }
}

/// How a kernel would serve a descriptor, and what builds it.
pub struct Candidate<'d> {
    /// Workspace of a run.
    pub(crate) workspace: WorkspaceReq,
    /// Launches of a run.
    pub(crate) launches: u32,
    /// Reproducibility of the result.
    pub(crate) determinism: Determinism,
    /// Exactness of the result.
    pub(crate) math: Math,
    /// The kernel's own numbers, for people who read them and for tests that hold them fast.
    pub(crate) choice: Box<dyn Choice>,
    pub(crate) build: Build<'d>,
}

/// Makes a kernel ready on a device; everything that is slow happens here.
type Builder<'d> = dyn FnOnce(&Device) -> Result<Built, BuildError> + Send + 'd;

/// How a kernel is made ready.
pub(crate) enum Build<'d> {
    /// From what it owns. Fails with a refusal that only the device could tell, or a failure.
    With(Box<Builder<'d>>),
    /// As a program of these dispatches.
    #[cfg(feature = "wgpu")]
    Dispatches(Vec<wgpu::StepBuilder>),
}

impl<'d> Candidate<'d> {
    /// Reproducible and exact, without workspace, in one launch.
    pub(crate) fn new(
        choice: impl Choice + 'static,
        build: impl FnOnce(&Device) -> Result<Built, BuildError> + Send + 'd,
    ) -> Self {
        Self {
            workspace: WorkspaceReq::NONE,
            launches: 1,
            determinism: Determinism::RunToRun,
            math: Math::Strict,
            choice: Box::new(choice),
            build: Build::With(Box::new(build)),
        }
    }

    /// Without a launch, for descriptors of which no output has elements.
    pub(crate) fn idle(backend: Backend) -> Self {
        let idle = Self::new((), |_| Ok(Built(Exec::Cpu(Box::new(|_| Ok(()))))));
        let build = match backend {
            #[cfg(feature = "cuda")]
            Backend::Cuda => Build::With(Box::new(|_| Ok(cuda::Launch::new("idle", |_, _| 0).into()))),
            #[cfg(feature = "wgpu")]
            Backend::Wgpu => Build::Dispatches(Vec::new()),
            _ => idle.build,
        };
        Self { launches: 0, determinism: Determinism::BatchInvariant, build, ..idle }
    }

    /// Promises [`Determinism::BatchInvariant`]: neither which form serves, nor its numbers, nor the order in which it adds up a sample depends on the other
    /// samples.
    pub(crate) fn batch_invariant(self) -> Self {
        self.batch_invariant_if(true)
    }

    /// As [`batch_invariant`](Self::batch_invariant), if a condition holds that does not depend on the number of samples.
    pub(crate) fn batch_invariant_if(self, holds: bool) -> Self {
        if holds { Self { determinism: Determinism::BatchInvariant, ..self } } else { self }
    }

    /// As [`new`](Self::new), on the CPU, where `kernel` makes what runs and there is nothing to choose.
    pub(crate) fn on_cpu<E: cpu::Ended, K: Fn(&cpu::Operands<'_>) -> E + Send + Sync + 'static>(
        kernel: impl FnOnce() -> K + Send + 'd,
    ) -> Self {
        Self::new((), move |_| {
            let kernel = kernel();
            Ok(Built(Exec::Cpu(Box::new(move |operands| {
                let outcome = kernel(operands).outcome();
                cpu::settle();
                outcome
            }))))
        })
    }
}

impl Build<'_> {
    pub(crate) fn on(self, device: &Device) -> Result<Built, BuildError> {
        match self {
            Self::With(build) => build(device),
            #[cfg(feature = "wgpu")]
            Self::Dispatches(steps) => match &device.0 {
                DeviceKind::Wgpu(device) => Ok(Built(Exec::Wgpu(wgpu::Program::new(device, steps)?))),
                _ => Err(BuildError::Refused("it runs on wgpu".into())),
            },
        }
    }

    /// The dispatches through wgpu, in words: entry, grid, constants, and the flags that are set.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::With(_) => String::new(),
            #[cfg(feature = "wgpu")]
            Self::Dispatches(steps) => steps.iter().map(|step| format!("; {}", step.words())).collect(),
        }
    }

    /// As [`AnyDescriptor::shader_forms`](crate::AnyDescriptor::shader_forms).
    pub(crate) fn shader_forms(&self) -> Vec<String> {
        match self {
            Self::With(_) => Vec::new(),
            #[cfg(feature = "wgpu")]
            Self::Dispatches(steps) => steps.iter().map(wgpu::StepBuilder::form).collect(),
        }
    }
}

#[cfg(feature = "wgpu")]
impl<C: Choice + 'static> wgpu::Work<C> {
    /// These dispatches as a kernel's answer. Those of which no output has elements are left out.
    pub(crate) fn candidate(self) -> Candidate<'static> {
        let workspace = self.workspace();
        let steps: Vec<_> = self.steps.into_iter().filter(wgpu::StepBuilder::writes).collect();
        Candidate {
            workspace,
            launches: word(steps.len() as u64),
            determinism: self.determinism,
            math: Math::Strict,
            choice: Box::new(self.choice),
            build: Build::Dispatches(steps),
        }
    }
}

/// A kernel ready to run.
pub(crate) struct Built(pub(crate) Exec);

impl Built {
    /// What runs use of the workspace that the candidate asked for, and their launches.
    pub(crate) fn measured(&self, workspace: WorkspaceReq, launches: u32) -> (WorkspaceReq, u32) {
        #[cfg(feature = "cuda")]
        if let Exec::Cuda(launch) = &self.0 {
            return (launch.workspace.unwrap_or(workspace), launch.launches.unwrap_or(launches));
        }
        (workspace, launches)
    }
}

/// What a run executes, on each backend.
pub(crate) enum Exec {
    Cpu(Box<dyn Fn(&cpu::Operands<'_>) -> cpu::Outcome + Send + Sync>),
    #[cfg(feature = "cuda")]
    Cuda(cuda::Launch),
    #[cfg(feature = "wgpu")]
    Wgpu(wgpu::Program),
}

#[cfg(feature = "cuda")]
impl From<cuda::Launch> for Built {
    fn from(launch: cuda::Launch) -> Self {
        Self(Exec::Cuda(launch))
    }
}
