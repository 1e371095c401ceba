//! Plans that own their workspace.

use std::fmt::{self, Debug};
use std::ops::Deref;

use crate::backend::{Buffer, Queue};
use crate::error::Result;
use crate::memory::{Operand, Workspace};
use crate::plan::{AnyPlan, Bound, Descriptor, Plan};

/// A plan with a workspace of its own, so that a run needs nothing but its operands. It is the plan in all else.
///
/// Runs that share a workspace must follow one another: those on one queue do, and all on queues of the owned layer. A run on another stream
/// of the caller's needs a `Ready` of its own, from a clone of the plan; on the CPU, a run on another thread at the same time is refused with
/// [`Error::BufferInUse`](crate::Error::BufferInUse) if the plan needs workspace. Who runs many plans one after the other needs less memory with one
/// workspace for all, of the size that [`WorkspaceReq::max`](crate::WorkspaceReq::max) gives.
///
/// ```
/// use baracuda_ops::{DType, Device, Plan, PlanOptions, SoftmaxArgs, SoftmaxDescriptor, TensorDesc};
/// let device = Device::cpu();
/// let x = TensorDesc::contiguous(DType::F32, &[1, 2])?;
/// let softmax = Plan::new(&device, SoftmaxDescriptor::new(x, 1)?, &PlanOptions::default())?.with_workspace()?;
/// let (input, output) = (device.upload(&[0f32, 0.0])?, device.alloc_for(&x)?);
/// let mut queue = device.queue();
/// softmax.run(&mut queue, SoftmaxArgs::new(&input, &output))?;
/// assert_eq!(queue.download::<f32>(&output)?, [0.5, 0.5]);
/// # Ok::<(), baracuda_ops::Error>(())
/// ```
#[derive(Clone)]
pub struct Ready<P> {
    plan: P,
    workspace: Buffer,
}

impl<D: Descriptor> Plan<D> {
    /// The plan with workspace that it owns, allocated on its device.
    ///
    /// # Errors
    /// As [`Device::alloc`](crate::Device::alloc).
    pub fn with_workspace(self) -> Result<Ready<Self>> {
        let workspace = self.device().alloc(self.workspace().bytes)?;
        Ok(Ready { plan: self, workspace })
    }
}

impl AnyPlan {
    /// As [`Plan::with_workspace`].
    ///
    /// # Errors
    /// As [`Plan::with_workspace`].
    pub fn with_workspace(self) -> Result<Ready<Self>> {
        let workspace = self.device().alloc(self.workspace().bytes)?;
        Ok(Ready { plan: self, workspace })
    }
}

impl<D: Descriptor> Ready<Plan<D>> {
    /// As [`Plan::run`].
    ///
    /// # Errors
    /// As [`Plan::run`].
    pub fn run(&self, queue: &mut Queue<'_>, args: D::Args<'_>) -> Result<()> {
        self.plan.run(queue, args, Workspace::new(&self.workspace))
    }

    /// As [`Plan::bind`].
    ///
    /// # Errors
    /// As [`Plan::bind`].
    pub fn bind(&self, args: D::Args<'_>) -> Result<Bound> {
        self.plan.bind(args, Workspace::new(&self.workspace))
    }
}

impl Ready<AnyPlan> {
    /// As [`AnyPlan::run`].
    ///
    /// # Errors
    /// As [`AnyPlan::run`].
    pub fn run(&self, queue: &mut Queue<'_>, operands: &mut [Operand<'_>]) -> Result<()> {
        self.plan.run(queue, operands, Workspace::new(&self.workspace))
    }

    /// As [`AnyPlan::bind`].
    ///
    /// # Errors
    /// As [`AnyPlan::bind`].
    pub fn bind(&self, operands: &[Operand<'_>]) -> Result<Bound> {
        self.plan.bind(operands, Workspace::new(&self.workspace))
    }
}

impl<P> Deref for Ready<P> {
    type Target = P;

    fn deref(&self) -> &P {
        &self.plan
    }
}

impl<P: Debug> Debug for Ready<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ready").field(&self.plan).finish()
    }
}
