//! The architecture on one screen: a [`Descriptor`] says what, a [`Kernel`] offers how, a [`Plan`] is the choice, built once and run
//! thousands of times; [`Bound`] is a plan with its operands.

use std::fmt::{self, Debug};
use std::hash::Hash;
use std::sync::{Arc, LazyLock};

use serde::{Serialize, de::DeserializeOwned};

use crate::any::AnyDescriptor;
use crate::backend::{Backend, Buffer, Device, DeviceProps, Located, Queue, QueueKind, cpu};
use crate::check::{Contract, Expected, check};
use crate::dtype::DType;
use crate::error::{Error, Reason, Rejection, Result};
#[cfg(feature = "cuda")]
use crate::families;
use crate::gradients::{self, Derivation, Differentiable, Step};
use crate::kernel::{Accepted, Ask, BuildError, Candidate, Exec, Kernel};
use crate::memory::{Operand, Operands, Place, View, Workspace};
use crate::options::{Determinism, PlanInfo, PlanOptions, WorkspaceReq};
use crate::sequence::Sequence;
use crate::slots::{Access, Names, OperandEntry, Slot, WORKSPACE};
use crate::tensor::TensorDesc;

#[cfg(feature = "cuda")]
use crate::backend::cuda;
#[cfg(feature = "wgpu")]
use crate::backend::wgpu;

pub(crate) mod sealed {
    pub trait Sealed {}
}

/// The operands of one op, as a named struct, which any thread may pass to a run.
pub trait Args<'a>: Send + sealed::Sealed {
    /// Lends the operands, at the indices of their rows, to what runs with them.
    #[doc(hidden)]
    fn lend<R>(self, to: impl FnOnce(&Operands<'_>) -> R) -> R;
}

/// An op with its shapes, element types and options: plain data, the request, the cache key, the test case and the repro line.
///
/// Serialised, fields that have their default are left out, so that the format has to name fields, as JSON does. Deserialising validates
/// as constructing does, and refuses fields that are unknown, named twice, or not named, as in an array of values.
///
/// Sealed: the ops are those of this crate.
pub trait Descriptor:
    Clone + Eq + Hash + Debug + Serialize + DeserializeOwned + Send + Sync + sealed::Sealed + 'static
{
    /// The op's name.
    const NAME: &'static str;
    /// Names of all operands, in the order of their positions.
    const OPERANDS: &'static [&'static str];
    /// The family's table, which has those operands among others.
    #[doc(hidden)]
    const TABLE: &'static [OperandEntry];
    /// The path of the module that declares it.
    #[doc(hidden)]
    const MODULE: &'static str;
    /// The operands of a run.
    type Args<'a>: Args<'a>;
    /// The operands that this descriptor declares, in the order of their positions.
    fn slots(&self) -> &[Slot];
    /// A descriptor from its JSON. Serde reads the same, but keeps of an [`Error`] only the words.
    ///
    /// # Errors
    /// [`Error::InvalidJson`] with what is wrong, and its type as the source.
    fn from_json(json: &str) -> Result<Self>;
    /// As [`from_json`](Self::from_json), of JSON that is no text, so that errors have no place in one.
    #[doc(hidden)]
    fn from_value(json: &serde_json::Value) -> Result<Self>;
    /// The steps that compute the gradients of the inputs `wanted`, in an order in which they can be run, if gradients arrive at the outputs
    /// `arriving`. Of an output that is not named the gradient is 0.
    ///
    /// The list is complete: what a gradient needs and this descriptor does not write, such as statistics or a pre-activation, is computed by
    /// a step of its own. The [roles](crate::Role) of the steps tell which operands of forward have to be kept, before forward runs.
    ///
    /// ```
    /// use baracuda_ops::{DType, Descriptor, RmsNormDescriptor, Role, TensorDesc};
    /// let x = TensorDesc::contiguous(DType::F32, &[8, 64])?;
    /// let forward = RmsNormDescriptor::new(x, 1)?.weight(DType::F32)?.residual()?.stats()?;
    /// let steps = forward.gradients(&["y", "h"], &["x", "residual", "weight"])?;
    /// assert_eq!(steps.len(), 1);
    /// assert_eq!(steps[0].descriptor.name(), "rms_norm_backward");
    /// assert_eq!(steps[0].role("x"), Some(&Role::Forward("h")));
    /// assert_eq!(steps[0].role("dh"), Some(&Role::GradientOf("h")));
    /// assert_eq!(steps[0].role("dx"), Some(&Role::GradientFor(vec!["x", "residual"])));
    /// # Ok::<(), baracuda_ops::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoGradient`] with the names that there are, if an operand has no gradient or is not declared, or if no gradient arrives at the
    /// outputs that depend on an input; [`Error::NoBackward`] if the op has no gradients, as a backward has none.
    fn gradients(&self, arriving: &[&str], wanted: &[&str]) -> Result<Vec<Step>> {
        gradients::gradients(self, arriving, wanted)
    }
    /// As [`gradients`](Self::gradients), of every input that has one, where a gradient arrives at every output that has one.
    ///
    /// # Errors
    /// As [`gradients`](Self::gradients).
    fn gradients_all(&self) -> Result<Vec<Step>> {
        gradients::gradients_all(self)
    }
    /// Which operands have gradients.
    #[doc(hidden)]
    const DIFFERENTIABLE: Differentiable = Differentiable::NOTHING;
    /// Adds the steps of a request to a derivation. At least one gradient arrives and one is wanted.
    #[doc(hidden)]
    fn derive(&self, _: &mut Derivation) -> Result<()> {
        Err(Error::NoBackward { op: Self::NAME })
    }
    /// The kernels of the op, in the order in which they are tried.
    #[doc(hidden)]
    fn kernels() -> &'static [&'static dyn Kernel<Self>];
    /// What runs in place of the kernels, led by one of them, if gradients are added to what is there.
    #[doc(hidden)]
    fn accumulation(&self) -> Result<Option<&Sequence>, Reason>;
    /// As [`AnyDescriptor::accumulate`].
    #[doc(hidden)]
    fn accumulated(&self, gradients: &[&str]) -> Result<Self>;
    /// Floating-point operations of the formula where they, not bytes, are what counts.
    fn flops(&self) -> u64 {
        0
    }
    /// The fewest bytes that any implementation moves: each input read once, each output written once.
    fn fewest_bytes(&self) -> u64 {
        let moved = |slot: &Slot| match slot.access {
            Access::InOut => 2 * slot.desc.distinct_bytes(),
            Access::In | Access::Out => slot.desc.distinct_bytes(),
        };
        self.slots().iter().map(moved).fold(0, u64::saturating_add)
    }
}

/// A kernel that is a function of a descriptor and the device, with any options: the op's only one on its backend, or a form with a name of its own,
/// which may leave to other forms what these do better.
pub(crate) enum Function<D> {
    Cpu(for<'d> fn(&'d D) -> Accepted<'d>),
    CpuForm(&'static str, for<'d> fn(&'d D) -> Accepted<'d>),
    #[cfg(feature = "cuda")]
    Cuda(for<'d> fn(&'d D, &cuda::Props) -> Accepted<'d>),
    #[cfg(feature = "cuda")]
    CudaForm(&'static str, for<'d> fn(&'d D, &cuda::Props, Ask) -> Accepted<'d>),
    /// Through a vendor's library, which the second function names with its version.
    #[cfg(feature = "cuda")]
    CudaVendor(
        &'static str,
        for<'d> fn(&'d D, &PlanOptions, &cuda::Props, Ask) -> Accepted<'d>,
        fn(&Device) -> Option<String>,
    ),
    #[cfg(feature = "wgpu")]
    Wgpu(for<'d> fn(&'d D, &wgpu::Props) -> Accepted<'d>),
    #[cfg(feature = "wgpu")]
    WgpuForm(&'static str, for<'d> fn(&'d D, &wgpu::Props, Ask) -> Accepted<'d>),
}

impl<D: Descriptor> Kernel<D> for Function<D> {
    fn name(&self) -> &'static str {
        match self {
            Self::Cpu(_) => KernelName::<D>::REFERENCE,
            Self::CpuForm(name, _) => name,
            #[cfg(feature = "cuda")]
            Self::Cuda(_) => KernelName::<D>::CUDA,
            #[cfg(feature = "wgpu")]
            Self::Wgpu(_) => KernelName::<D>::WGSL,
            #[cfg(feature = "cuda")]
            Self::CudaForm(name, _) | Self::CudaVendor(name, ..) => name,
            #[cfg(feature = "wgpu")]
            Self::WgpuForm(name, _) => name,
        }
    }

    fn backend(&self) -> Backend {
        match self {
            Self::Cpu(_) | Self::CpuForm(..) => Backend::Cpu,
            #[cfg(feature = "cuda")]
            Self::Cuda(_) | Self::CudaForm(..) | Self::CudaVendor(..) => Backend::Cuda,
            #[cfg(feature = "wgpu")]
            Self::Wgpu(_) | Self::WgpuForm(..) => Backend::Wgpu,
        }
    }

    #[cfg_attr(
        not(any(feature = "cuda", feature = "wgpu")),
        expect(unused_variables, reason = "the CPU has no properties")
    )]
    fn accept<'d>(&self, descriptor: &'d D, options: &PlanOptions, props: &DeviceProps, ask: Ask) -> Accepted<'d> {
        // Vendors' libraries alone take them.
        let _ = options;
        match self {
            Self::Cpu(accept) | Self::CpuForm(_, accept) => accept(descriptor),
            #[cfg(feature = "cuda")]
            Self::Cuda(accept) => accept(descriptor, cuda::Props::of(props)?),
            #[cfg(feature = "cuda")]
            Self::CudaForm(_, accept) => accept(descriptor, cuda::Props::of(props)?, ask),
            #[cfg(feature = "cuda")]
            Self::CudaVendor(_, accept, _) => accept(descriptor, options, cuda::Props::of(props)?, ask),
            #[cfg(feature = "wgpu")]
            Self::Wgpu(accept) => accept(descriptor, wgpu::Props::of(props)?),
            #[cfg(feature = "wgpu")]
            Self::WgpuForm(_, accept) => accept(descriptor, wgpu::Props::of(props)?, ask),
        }
    }

    #[cfg(feature = "cuda")]
    fn library(&self, device: &Device) -> Option<String> {
        match self {
            Self::CudaVendor(_, _, library) => library(device),
            _ => None,
        }
    }
}

/// Names of kernels: the op's, and what tells them apart.
pub(crate) struct KernelName<D>(std::marker::PhantomData<D>);

impl<D: Descriptor> KernelName<D> {
    pub(crate) const REFERENCE: &'static str = text(const { &joined(D::NAME, "_reference") });
    #[cfg(feature = "cuda")]
    pub(crate) const CUDA: &'static str = text(const { &joined(D::NAME, "_cuda") });
    #[cfg(feature = "wgpu")]
    pub(crate) const WGSL: &'static str = text(const { &joined(D::NAME, "_wgsl") });
}

/// The name of a form of an op: the op's name and the form's.
macro_rules! form_name {
    ($D:ty, $form:literal) => {
        const {
            $crate::plan::text(
                const { &$crate::plan::joined(<$D as $crate::plan::Descriptor>::NAME, concat!("_", $form)) },
            )
        }
    };
}
pub(crate) use form_name;

/// Two texts, one after the other, and how long they are together.
pub(crate) const fn joined(first: &str, second: &str) -> ([u8; 64], usize) {
    let (first, second) = (first.as_bytes(), second.as_bytes());
    let mut bytes = [0; 64];
    let mut at = 0;
    while at < first.len() + second.len() {
        bytes[at] = if at < first.len() { first[at] } else { second[at - first.len()] };
        at += 1;
    }
    (bytes, at)
}

pub(crate) const fn text((bytes, length): &'static ([u8; 64], usize)) -> &'static str {
    match std::str::from_utf8(bytes.split_at(*length).0) {
        Ok(text) => text,
        Err(_) => panic!("names are UTF-8"),
    }
}

/// Walks the kernels in order and returns what `use_kernel` makes of the name and candidate of the first that serves.
fn first_that_serves<'d, D: Descriptor, T>(
    props: &DeviceProps,
    descriptor: &'d D,
    options: &PlanOptions,
    mut use_kernel: impl FnMut(&'static dyn Kernel<D>, Candidate<'d>) -> Result<T, BuildError>,
) -> Result<T> {
    let mut tried = Vec::new();
    for &kernel in D::kernels().iter().filter(|k| k.backend() == props.backend()) {
        let outcome = admit(kernel, descriptor, options, props)
            .map_err(BuildError::Refused)
            .and_then(|candidate| use_kernel(kernel, candidate));
        match outcome {
            Ok(result) => return Ok(result),
            Err(BuildError::Refused(reason)) => tried.push(Rejection { kernel: kernel.name(), reason }),
            Err(BuildError::Failed(error)) => return Err(error),
        }
    }
    // The kernel that the options ask for refuses for a reason of its own, if there is one of that name.
    if tried.iter().any(|rejection| !rejection.reason.is_of_options()) {
        tried.retain(|rejection| !rejection.reason.is_of_options());
    }
    Err(Error::Unsupported { op: D::NAME, device: props.to_string(), tried })
}

/// Elements or products that the work of a run may consist of: more would keep any device busy for hours at least. Inputs can have them in memory of a
/// few bytes, where strides are 0.
pub(crate) const MAX_WORK: u64 = 1 << 48;

/// Refuses more than a run can go through, of the elements of any operand and of the products of the formula. An operand counts also beside one without
/// elements: a gradient may be summed over it. On the CPU extents of 0 make no work of the others; kernels of GPUs count threads and bytes from the
/// others all the same, and none of their products may overflow.
fn bounded<D: Descriptor>(descriptor: &D, backend: Backend) -> Result<(), Reason> {
    let least = if backend == Backend::Cpu { 0 } else { 1 };
    // At most i64::MAX, by the rules of a tensor.
    let counted = |desc: &TensorDesc| desc.dims().iter().fold(1u64, |count, &dim| count.saturating_mul(dim.max(least)));
    if let Some(Slot { name, desc, .. }) = descriptor.slots().iter().find(|slot| counted(&slot.desc) > MAX_WORK) {
        let (dims, elements) = (desc.dims(), counted(desc));
        return Err(format!("operand {name} of {dims:?} counts {elements} elements, the limit is {MAX_WORK}").into());
    }
    let products = descriptor.flops() / 2;
    Reason::unless(products <= MAX_WORK, || format!("it has {products} products, the limit is {MAX_WORK}"))?;
    Ok(())
}

/// Whether no kernel is asked: no output has elements, and neither has an operand whose other extents multiply to more than kernels of GPUs count in 32
/// bits. Those of wgpu have no f64, with or without elements.
fn is_idle(slots: &[Slot], backend: Backend) -> bool {
    const MOST: u64 = (1 << 31) - 2;
    // At most i64::MAX, by the rules of a tensor.
    let others = |desc: &TensorDesc| desc.dims().iter().map(|&dim| dim.max(1)).product::<u64>();
    let lacks_dtype = |slot: &Slot| backend == Backend::Wgpu && slot.desc.dtype() == DType::F64;
    backend != Backend::Cpu
        && slots.iter().any(|slot| slot.desc.is_empty() && others(&slot.desc) > MOST)
        && slots.iter().all(|slot| slot.access == Access::In || slot.desc.is_empty())
        && !slots.iter().any(lacks_dtype)
}

/// A kernel's candidate, if it meets every request.
fn admit<'d, D: Descriptor>(
    kernel: &dyn Kernel<D>,
    descriptor: &'d D,
    options: &PlanOptions,
    props: &DeviceProps,
) -> Result<Candidate<'d>, Reason> {
    let is_pinned = match options.kernel.as_deref() {
        None => false,
        Some(name) if name == kernel.name() => true,
        Some(name) => return Err(Reason::asked(name)),
    };
    let ask = Ask::new(is_pinned, options.determinism);
    if is_idle(descriptor.slots(), kernel.backend()) {
        return Ok(Candidate::idle(kernel.backend()));
    }
    #[cfg(feature = "cuda")]
    if kernel.backend() == Backend::Cuda {
        families::compiled(D::MODULE)?;
    }
    bounded(descriptor, kernel.backend())?;
    let candidate = match descriptor.accumulation()? {
        Some(sequence) => sequence.led_by(kernel, options, props, ask)?,
        None => kernel.accept(descriptor, options, props, ask)?,
    };
    if candidate.determinism < options.determinism {
        return Err(match candidate.determinism {
            Determinism::Any => "its results may differ from run to run".into(),
            _ => "the bits of a sample may depend on the others of its batch: ask for run_to_run, or run each sample alone".into(),
        });
    }
    if candidate.math < options.math {
        return Err("it rounds factors to tf32".into());
    }
    match options.workspace_limit {
        Some(limit) if candidate.workspace.bytes > limit => {
            Err(format!("it needs {} bytes of workspace, the limit is {limit}", candidate.workspace.bytes).into())
        }
        _ => Ok(candidate),
    }
}

impl DeviceProps {
    /// As [`Device::supports`]: kernels are chosen by these numbers alone.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with every kernel tried and its reason.
    pub fn supports<D: Descriptor>(&self, descriptor: &D, options: &PlanOptions) -> Result<&'static str> {
        first_that_serves(self, descriptor, options, |kernel, _| Ok(kernel.name()))
    }
}

impl Device {
    /// The name of the kernel that a plan would use, without building it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with every kernel tried and its reason.
    pub fn supports<D: Descriptor>(&self, descriptor: &D, options: &PlanOptions) -> Result<&'static str> {
        self.props().supports(descriptor, options)
    }
}

/// What would be run, in words: for tests that hold choices fast.
pub(crate) fn chosen<D: Descriptor>(props: &DeviceProps, descriptor: &D, options: &PlanOptions) -> Result<String> {
    first_that_serves(props, descriptor, options, |kernel, candidate| {
        let Candidate { workspace: WorkspaceReq { bytes, align }, launches, determinism, math, choice, build } =
            candidate;
        let dispatches = build.words();
        let name = kernel.name();
        let head = format!("{name} launches {launches} workspace {bytes}/{align} {determinism:?} {math:?}");
        Ok(format!("{head} {choice:?}{dispatches}"))
    })
}

/// The names and candidates of all kernels that serve, in the order in which a plan tries to build them.
///
/// # Errors
/// [`Error::Unsupported`] with every kernel tried and its reason, if none does.
pub(crate) fn candidates<'d, D: Descriptor>(
    props: &DeviceProps,
    descriptor: &'d D,
    options: &PlanOptions,
) -> Result<Vec<(&'static str, Candidate<'d>)>> {
    let mut serving = Vec::new();
    let outcome = first_that_serves(props, descriptor, options, |kernel, candidate| {
        serving.push((kernel.name(), candidate));
        // As if it could not be built, so that the next one is asked.
        Err::<(), _>(BuildError::Refused("it is one of several".into()))
    });
    if serving.is_empty() { outcome.map(|()| serving) } else { Ok(serving) }
}

/// As [`AnyDescriptor::shader_forms`], of the kernel that is chosen; none where none serves.
pub(crate) fn shader_forms<D: Descriptor>(props: &DeviceProps, descriptor: &D, options: &PlanOptions) -> Vec<String> {
    let forms = |_, candidate: Candidate<'_>| Ok(candidate.build.shader_forms());
    first_that_serves(props, descriptor, options, forms).unwrap_or_default()
}

/// A descriptor, a device and the kernel chosen for them: built once, run thousands of times, from any thread.
///
/// It owns no tensor memory and no stream. Cloning copies a handle.
///
/// ```
/// use baracuda_ops::{DType, Device, LayerNormArgs, LayerNormDescriptor, Plan, PlanOptions, TensorDesc, Workspace};
///
/// let device = Device::cpu();
/// let x = TensorDesc::contiguous(DType::F32, &[2, 3])?;
/// let plan = Plan::new(&device, LayerNormDescriptor::new(x, 1)?, &PlanOptions::default())?;
/// let (input, mut output) = (vec![1f32, 2.0, 3.0, 4.0, 6.0, 8.0], vec![0f32; 6]);
/// plan.run(&mut device.queue(), LayerNormArgs::new(&input, &mut output), Workspace::none())?;
/// assert!((output[5] - 1.2247).abs() < 1e-3);
/// # Ok::<(), baracuda_ops::Error>(())
/// ```
pub struct Plan<D: Descriptor> {
    descriptor: Arc<D>,
    core: Arc<Core>,
}

impl<D: Descriptor> Plan<D> {
    /// Chooses and builds the first kernel that serves the descriptor on the device under the options.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with every kernel tried and its reason; [`Error::OutOfMemory`], [`Error::DeviceLost`] or
    /// [`Error::Backend`] if building failed.
    pub fn new(device: &Device, descriptor: D, options: &PlanOptions) -> Result<Self> {
        let (kernel, chosen, built) = first_that_serves(&device.props(), &descriptor, options, |kernel, candidate| {
            let Candidate { workspace, launches, determinism, math, choice, build } = candidate;
            Ok((kernel, (workspace, launches, determinism, math, choice), build.on(device)?))
        })?;
        let (kernel, library) = (kernel.name(), kernel.library(device));
        let (asked, launches, determinism, math, choice) = chosen;
        let (workspace, launches) = built.measured(asked, launches);
        let descriptor = Arc::new(descriptor);
        let any = AnyDescriptor::shared(descriptor.clone());
        let for_repro = any.clone();
        let info = PlanInfo {
            op: D::NAME,
            kernel,
            library,
            device: device.to_string(),
            determinism,
            math,
            launches,
            fewest_bytes: descriptor.fewest_bytes(),
            flops: descriptor.flops(),
            choice,
            repro: LazyLock::new(Box::new(move || for_repro.line())),
        };
        tracing::debug!(
            target: "baracuda_ops",
            kernel,
            device = %device,
            workspace_bytes = workspace.bytes,
            choice = ?info.choice,
            repro = info.repro(),
            "plan built"
        );
        let core = Core {
            contract: Contract::new(Names { op: D::NAME, table: D::TABLE }, descriptor.slots(), device, workspace),
            slots: descriptor.slots().into(),
            descriptor: any,
            info,
            exec: built.0,
        };
        Ok(Self { descriptor, core: Arc::new(core) })
    }

    /// The descriptor.
    pub fn descriptor(&self) -> &D {
        &self.descriptor
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.core.contract.device
    }

    /// The workspace that every run needs, exactly.
    pub fn workspace(&self) -> WorkspaceReq {
        self.core.contract.workspace
    }

    /// What was chosen.
    pub fn info(&self) -> &PlanInfo {
        &self.core.info
    }

    /// Checks the operands and enqueues the work. No allocation of device memory, no synchronisation, no copy from the host, so that it
    /// can be captured in a CUDA graph or recorded in a wgpu pass. Memory of the host it allocates as follows: on CUDA none, through wgpu
    /// what wgpu's encoding of commands needs.
    ///
    /// On the CPU the work is done when it returns: on the thread that calls it and, where there is much, on threads of the library's
    /// own. They allocate memory for what they compute from, in f64.
    ///
    /// Operands of several sets, and the inputs of a concatenation from the 24th on, are checked in memory that the plan lends to one run at a time. Of runs at
    /// the same time the others allocate memory of the host for it, and so does every run through wgpu; a [`Bound`] does not.
    ///
    /// # Errors
    /// What [`Error`] lists for operands, workspace and queues, before anything is launched; [`Error::Backend`] if the launch failed;
    /// [`Error::OutOfMemory`] if a run on the CPU lacks memory, after which outputs may be written in part.
    // Inlined, so that operands go from where args are made to where they are checked without a stop in memory.
    #[inline(always)]
    pub fn run(&self, queue: &mut Queue<'_>, args: D::Args<'_>, workspace: Workspace<'_>) -> Result<()> {
        args.lend(|operands| self.core.run(queue, operands, &workspace))
    }

    /// Checks the operands once and keeps them alive, so that a replay costs next to nothing. For owned and wgpu buffers.
    ///
    /// # Errors
    /// As [`run`](Self::run), and [`Error::NotBindable`] for borrowed host or CUDA memory.
    pub fn bind(&self, args: D::Args<'_>, workspace: Workspace<'_>) -> Result<Bound> {
        args.lend(|operands| Core::bind(&self.core, operands, &workspace))
    }

    /// The plan without its type, for executors that hold plans of many ops.
    pub fn erase(self) -> AnyPlan {
        AnyPlan(self.core)
    }
}

impl<D: Descriptor> Clone for Plan<D> {
    fn clone(&self) -> Self {
        Self { descriptor: self.descriptor.clone(), core: self.core.clone() }
    }
}

impl<D: Descriptor> Debug for Plan<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan").field("descriptor", &self.descriptor).field("info", &self.core.info).finish()
    }
}

pub(crate) fn repro_line<D: Descriptor>(descriptor: &D) -> String {
    // A descriptor holds numbers, booleans and strings only, which always serialise.
    format!("{} {}", D::NAME, serde_json::to_string(descriptor).unwrap_or_default())
}

/// As in [`repro_line`], without the name.
pub(crate) fn json<D: Descriptor>(descriptor: &D) -> serde_json::Value {
    serde_json::to_value(descriptor).unwrap_or_default()
}

/// A plan of any op. Operands come in the order of its slots.
#[derive(Clone)]
pub struct AnyPlan(Arc<Core>);

impl AnyPlan {
    /// The descriptor; a clone of it is another handle.
    pub fn descriptor(&self) -> &AnyDescriptor {
        &self.0.descriptor
    }

    /// The declared operands, in the order in which [`run`](Self::run) takes them.
    pub fn slots(&self) -> &[Slot] {
        &self.0.slots
    }

    /// The place of an operand in that order, for a look-up once.
    pub fn slot_index(&self, name: &str) -> Option<usize> {
        self.0.slots.iter().position(|slot| slot.name == name)
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.0.contract.device
    }

    /// The workspace that every run needs, exactly.
    pub fn workspace(&self) -> WorkspaceReq {
        self.0.contract.workspace
    }

    /// What was chosen.
    pub fn info(&self) -> &PlanInfo {
        &self.0.info
    }

    /// As [`Plan::run`], with the operands in slot order. They are borrowed mutably because a run may write their memory; they stay as
    /// they are, for the next run.
    ///
    /// # Errors
    /// As [`Plan::run`], and [`Error::OperandCount`] if there are not as many operands as slots.
    pub fn run(&self, queue: &mut Queue<'_>, operands: &mut [Operand<'_>], workspace: Workspace<'_>) -> Result<()> {
        let mut arranged = Operands::none();
        self.arrange(&*operands, &mut arranged)?;
        self.0.run(queue, &arranged, &workspace)
    }

    /// As [`Plan::bind`], with the operands in slot order. Owned and wgpu buffers, which alone can be bound, need no exclusive borrow.
    ///
    /// # Errors
    /// As [`Plan::bind`], and [`Error::OperandCount`] if there are not as many operands as slots.
    pub fn bind(&self, operands: &[Operand<'_>], workspace: Workspace<'_>) -> Result<Bound> {
        let mut arranged = Operands::none();
        self.arrange(operands, &mut arranged)?;
        Core::bind(&self.0, &arranged, &workspace)
    }

    /// Puts operands in slot order at their indices; `arranged` holds none yet.
    #[inline]
    fn arrange<'a>(&self, operands: &'a [Operand<'a>], arranged: &mut Operands<'a>) -> Result<()> {
        let Contract { names: Names { op, .. }, expected, sets, .. } = &self.0.contract;
        let need = expected.len() + sets.expected.len();
        if operands.len() != need {
            return Err(Error::OperandCount { op, need, got: operands.len() });
        }
        let (before, rest) = operands.split_at(sets.before);
        let (further, behind) = rest.split_at(sets.expected.len());
        arranged.further = further;
        for (expected, operand) in expected.iter().zip(before.iter().chain(behind)) {
            arranged.put(expected.at(), operand.0);
        }
        Ok(())
    }
}

impl Debug for AnyPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AnyPlan").field(&self.0.info).finish()
    }
}

/// A plan with operands that it keeps alive, checked once.
///
/// ```
/// use baracuda_ops::{DType, Device, Plan, PlanOptions, SoftmaxArgs, SoftmaxDescriptor, TensorDesc, Workspace};
/// let device = Device::cpu();
/// let x = TensorDesc::contiguous(DType::F32, &[1, 2])?;
/// let plan = Plan::new(&device, SoftmaxDescriptor::new(x, 1)?, &PlanOptions::default())?;
/// let (input, output) = (device.upload(&[0f32, 0.0])?, device.alloc(8)?);
/// let bound = plan.bind(SoftmaxArgs::new(&input, &output), Workspace::none())?;
/// let mut queue = device.queue();
/// for _ in 0..3 {
///     bound.run(&mut queue)?;
/// }
/// assert_eq!(queue.download::<f32>(&output)?, [0.5, 0.5]);
/// # Ok::<(), baracuda_ops::Error>(())
/// ```
pub struct Bound {
    core: Arc<Core>,
    operands: BoundOperands,
}

enum BoundOperands {
    /// On the CPU, where every run borrows its buffers.
    Cpu { located: Box<Located<'static>>, wishes: cpu::Wishes },
    #[cfg(feature = "cuda")]
    Cuda {
        located: Box<Located<'static>>,
        #[expect(dead_code, reason = "keeps the memory alive")]
        buffers: Vec<Buffer>,
    },
    #[cfg(feature = "wgpu")]
    Wgpu(Vec<wgpu::BoundStep>),
}

impl Bound {
    /// Enqueues the work.
    ///
    /// # Errors
    /// [`Error::WrongDevice`] for a queue of another device, [`Error::BufferInUse`] and [`Error::OutOfMemory`] on the CPU,
    /// [`Error::Backend`] if the launch failed.
    pub fn run(&self, queue: &mut Queue<'_>) -> Result<()> {
        self.core.same_device(queue)?;
        match &self.operands {
            BoundOperands::Cpu { located, wishes } => {
                let _loan = wishes.grant(self.core.info.op)?;
                self.core.enqueue(queue, located)
            }
            #[cfg(feature = "cuda")]
            BoundOperands::Cuda { located, .. } => self.core.enqueue(queue, located),
            #[cfg(feature = "wgpu")]
            BoundOperands::Wgpu(steps) => match (&self.core.exec, &mut queue.kind) {
                (Exec::Wgpu(program), QueueKind::Wgpu(queue)) => {
                    wgpu::record(program, steps, queue);
                    Ok(())
                }
                _ => Err(self.core.wrong_queue(&queue.device)),
            },
        }
    }
}

impl Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bound").field(&self.core.info).finish()
    }
}

/// A plan without its type.
struct Core {
    contract: Contract,
    slots: Box<[Slot]>,
    descriptor: AnyDescriptor,
    info: PlanInfo,
    exec: Exec,
}

impl Core {
    fn run(&self, queue: &mut Queue<'_>, operands: &Operands<'_>, workspace: &Workspace<'_>) -> Result<()> {
        self.same_device(queue)?;
        let mut room = self.contract.sets.room(self.contract.device.backend());
        let mut located = Located::default();
        check(&self.contract, operands, workspace, (&mut located, &mut room))?;
        match &self.exec {
            Exec::Cpu(_) => {
                let wishes = self.wishes(operands, self.contract.scratch(workspace), &located);
                let _loan = wishes.grant(self.info.op)?;
                self.enqueue(queue, &located)
            }
            #[cfg(any(feature = "cuda", feature = "wgpu"))]
            _ => self.enqueue(queue, &located),
        }
    }

    fn enqueue(&self, queue: &mut Queue<'_>, located: &Located<'_>) -> Result<()> {
        match (&self.exec, &mut queue.kind) {
            // If nothing is written, loops over extents beside one of 0 could take any time.
            (Exec::Cpu(_), QueueKind::Cpu(_)) if self.writes_nothing() => Ok(()),
            (Exec::Cpu(kernel), QueueKind::Cpu(limit)) => {
                Ok(limit.hold(|| kernel(&cpu::Operands::new(&self.slots, located)))?)
            }
            #[cfg(feature = "cuda")]
            (Exec::Cuda(launch), QueueKind::Cuda(queue)) => launch.enqueue(queue, located),
            #[cfg(feature = "wgpu")]
            (Exec::Wgpu(program), QueueKind::Wgpu(queue)) => {
                wgpu::enqueue(program, queue, self.contract.names, located)
            }
            #[allow(unreachable_patterns, reason = "reachable with a GPU feature")]
            _ => Err(self.wrong_queue(&queue.device)),
        }
    }

    fn writes_nothing(&self) -> bool {
        self.slots.iter().all(|slot| slot.access == Access::In || slot.desc.is_empty())
    }

    fn bind(this: &Arc<Self>, operands: &Operands<'_>, workspace: &Workspace<'_>) -> Result<Bound> {
        let mut room = this.contract.sets.room(this.contract.device.backend());
        let mut located = Located::default();
        check(&this.contract, operands, workspace, (&mut located, &mut room))?;
        let (op, scratch) = (this.info.op, this.contract.scratch(workspace));
        let named = operands
            .views
            .iter()
            .enumerate()
            .filter_map(|(i, v)| v.as_ref().map(|v| (this.contract.names.table[i].name, v)));
        let further = this.contract.sets.expected.iter().map(Expected::name).zip(operands.further.iter().map(|o| &o.0));
        for (operand, view) in named.chain(further).chain(scratch.map(|v| (WORKSPACE, v))) {
            match view {
                View { place: Place::Host(_), .. } => {
                    return Err(Error::NotBindable { op, operand, kind: "host memory" });
                }
                #[cfg(feature = "cuda")]
                View { place: Place::Cuda(_), .. } => {
                    return Err(Error::NotBindable { op, operand, kind: "CUDA memory" });
                }
                _ => {}
            }
        }
        let operands = match &this.exec {
            Exec::Cpu(_) => BoundOperands::Cpu {
                located: Box::new(located.addresses()),
                wishes: this.wishes(operands, scratch, &located),
            },
            #[cfg(feature = "wgpu")]
            Exec::Wgpu(program) => BoundOperands::Wgpu(wgpu::bind(program, this.contract.names, &located)?),
            #[cfg(feature = "cuda")]
            Exec::Cuda(_) => {
                BoundOperands::Cuda { located: Box::new(located.addresses()), buffers: buffers(operands, scratch) }
            }
        };
        Ok(Bound { core: this.clone(), operands })
    }

    /// What a run on the CPU borrows. An operand in place lies where its partner does, which is written.
    fn wishes(&self, operands: &Operands<'_>, scratch: Option<&View<'_>>, located: &Located<'_>) -> cpu::Wishes {
        fn buffer<'a>(view: &View<'a>) -> Option<&'a Buffer> {
            if let Place::Buffer { buffer, .. } = view.place { Some(buffer) } else { None }
        }
        let declared = self.slots.iter().filter_map(|slot| {
            let buffer = buffer(operands.view(slot.index)?)?;
            Some((buffer, slot.name, *located.at(slot.index), slot.access != Access::In))
        });
        let workspace = scratch.and_then(buffer).map(|buffer| (buffer, WORKSPACE, located.workspace, true));
        cpu::Wishes::of_run(declared.chain(workspace))
    }

    fn same_device(&self, queue: &Queue<'_>) -> Result<()> {
        if queue.device == self.contract.device { Ok(()) } else { Err(self.wrong_queue(&queue.device)) }
    }

    #[cold]
    fn wrong_queue(&self, got: &Device) -> Error {
        Error::WrongDevice {
            op: self.info.op,
            operand: "queue",
            expected: self.contract.device.to_string(),
            got: got.to_string(),
        }
    }
}

/// Handles that keep the owned memory of operands alive.
#[cfg(feature = "cuda")]
fn buffers(operands: &Operands<'_>, scratch: Option<&View<'_>>) -> Vec<Buffer> {
    let further = operands.further.iter().map(|operand| &operand.0);
    let views = operands.views.iter().flatten().chain(further).chain(scratch);
    views
        .filter_map(|view| match view.place {
            Place::Buffer { buffer, .. } => Some(buffer.clone()),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::softmax::SoftmaxDescriptor;
    use crate::options::Math;

    /// A kernel that leaves the work to others where it may.
    struct Modest;

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Threads {
        threads: u32,
    }

    impl Kernel<SoftmaxDescriptor> for Modest {
        fn name(&self) -> &'static str {
            "softmax_modest"
        }

        fn backend(&self) -> Backend {
            Backend::Cpu
        }

        fn accept<'d>(&self, _: &'d SoftmaxDescriptor, _: &PlanOptions, _: &DeviceProps, ask: Ask) -> Accepted<'d> {
            match ask {
                Ask::Chosen | Ask::ChosenInvariant => Err("the next one is faster".into()),
                Ask::Pinned | Ask::PinnedInvariant => {
                    let candidate = Candidate::on_cpu(|| |_: &cpu::Operands<'_>| {});
                    Ok(Candidate { math: Math::Tf32, choice: Box::new(Threads { threads: 2 }), ..candidate })
                }
            }
        }
    }

    #[test]
    fn a_kernel_knows_whether_it_is_pinned() {
        let softmax = SoftmaxDescriptor::new(TensorDesc::contiguous(DType::F32, &[8, 64]).unwrap(), 1).unwrap();
        let asked = |options: PlanOptions| {
            let candidate =
                admit(&Modest, &softmax, &options, &DeviceProps::Cpu).map_err(|reason| reason.to_string())?;
            Ok::<_, String>(format!("{:?}", candidate.choice))
        };
        let tf32 = PlanOptions::default().math(Math::Tf32);
        assert_eq!(asked(tf32.clone()), Err("the next one is faster".into()));
        assert_eq!(asked(tf32.clone().kernel("softmax_modest")), Ok("Threads { threads: 2 }".into()));
        assert_eq!(asked(tf32.kernel("other")), Err("the options ask for kernel \"other\"".into()));
        // Pinned, it has to meet the other requests all the same.
        let strict = asked(PlanOptions::default().kernel("softmax_modest"));
        assert_eq!(strict, Err("it rounds factors to tf32".into()));
        let invariant = PlanOptions::default().determinism(Determinism::BatchInvariant);
        let refused = asked(invariant.math(Math::Tf32).kernel("softmax_modest")).unwrap_err();
        assert!(refused.contains("the others of its batch: ask for run_to_run"), "{refused}");
    }

    #[test]
    fn names_of_kernels_begin_with_the_op() {
        assert_eq!(KernelName::<SoftmaxDescriptor>::REFERENCE, "softmax_reference");
    }
}
