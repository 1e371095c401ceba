//! What a caller may ask of a plan, and what a plan reports.

use std::borrow::Cow;
use std::fmt::{self, Debug};
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::json::{self, Document};

/// How reproducible results must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Determinism {
    /// Results may differ in their last bits from run to run.
    Any,
    /// The same bits every time on the same device and build.
    #[default]
    RunToRun,
    /// As [`RunToRun`](Self::RunToRun), and the bits of a sample depend neither on how many others are in its batch nor on its place among them.
    ///
    /// The batch is numbered by the extents before those that are normalised (row norms), before the axis (softmax, scans; with a causal mask before the
    /// queries), before the first that is reduced (reductions, which have to keep the first extent), and before the classes and beside them
    /// (cross-entropy without a reduction of its losses); of a product it is M and the extents of its batch, of attention B. Ops that compute or move each
    /// element by itself have a batch of all extents. Two descriptors that differ in extents of the batch alone, not in types, strides, promised
    /// alignment or options, give a sample the same bits on the same device and build. The sign and the payload of a NaN are not promised, and what is counted
    /// over the batch, as indices that name nothing, is no sample's.
    ///
    /// A form that promises it makes its choice as if there were many samples, which for a few may be slower than the form that is chosen otherwise. What
    /// adds up over the batch, as gradients of parameters do, and every op that docs/numerics.md does not list under it, is refused.
    BatchInvariant,
}

/// How exactly f32 matrix products are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Math {
    /// f32 products may round their factors to tf32.
    Tf32,
    /// Every product in the operand's own precision.
    #[default]
    Strict,
}

impl Determinism {
    const ALL: [Self; 3] = [Self::Any, Self::RunToRun, Self::BatchInvariant];

    /// The name used in JSON and errors.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::RunToRun => "run_to_run",
            Self::BatchInvariant => "batch_invariant",
        }
    }
}

impl Math {
    const ALL: [Self; 2] = [Self::Tf32, Self::Strict];

    /// The name used in JSON and errors.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tf32 => "tf32",
            Self::Strict => "strict",
        }
    }
}

json::named!(Determinism, Math);

/// What a kernel chose, by name: its form, the threads of a block and the like.
pub(crate) trait Choice: Debug + Send + Sync {}

impl<T: Copy + PartialEq + Debug + Send + Sync> Choice for T {}

/// What a caller asks of a plan. A request is obeyed or refused with [`Error::Unsupported`](crate::Error::Unsupported).
///
/// Serialised, requests that have their default are left out.
///
/// ```
/// use baracuda_ops::{DType, Device, Error, PlanOptions, SoftmaxDescriptor, TensorDesc};
/// let softmax = SoftmaxDescriptor::new(TensorDesc::contiguous(DType::F32, &[8, 64])?, 1)?;
/// let options = PlanOptions::default().workspace_limit(0);
/// assert_eq!(Device::cpu().supports(&softmax, &options)?, "softmax_fast");
/// let refused = Device::cpu().supports(&softmax, &options.kernel("softmax_split"));
/// assert!(matches!(refused, Err(Error::Unsupported { .. })));
/// # Ok::<(), Error>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Document<OptionFields>")]
pub struct PlanOptions {
    /// The least reproducibility accepted.
    #[serde(skip_serializing_if = "is_default")]
    pub determinism: Determinism,
    /// The least exactness accepted.
    #[serde(skip_serializing_if = "is_default")]
    pub math: Math,
    /// The most workspace accepted, in bytes.
    #[serde(skip_serializing_if = "is_default")]
    pub workspace_limit: Option<u64>,
    /// The one kernel accepted, by name.
    #[serde(skip_serializing_if = "is_default")]
    pub kernel: Option<Cow<'static, str>>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl PlanOptions {
    /// Sets the least reproducibility accepted.
    pub fn determinism(mut self, determinism: Determinism) -> Self {
        self.determinism = determinism;
        self
    }

    /// Sets the least exactness accepted.
    pub fn math(mut self, math: Math) -> Self {
        self.math = math;
        self
    }

    /// Sets the most workspace accepted, in bytes.
    pub fn workspace_limit(mut self, bytes: u64) -> Self {
        self.workspace_limit = Some(bytes);
        self
    }

    /// Accepts one kernel only.
    pub fn kernel(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.kernel = Some(name.into());
        self
    }
}

/// The JSON of options.
#[derive(Default, Deserialize)]
#[serde(default, expecting = "an object with the options", deny_unknown_fields)]
struct OptionFields {
    determinism: Determinism,
    math: Math,
    workspace_limit: Option<u64>,
    kernel: Option<Cow<'static, str>>,
}

impl From<Document<OptionFields>> for PlanOptions {
    fn from(Document(fields): Document<OptionFields>) -> Self {
        let OptionFields { determinism, math, workspace_limit, kernel } = fields;
        Self { determinism, math, workspace_limit, kernel }
    }
}

/// The workspace of a plan: exact, and known before any run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Document<WorkspaceFields>")]
pub struct WorkspaceReq {
    /// Size in bytes; 0 if the plan needs none.
    pub bytes: u64,
    /// Alignment of the start in bytes, a power of two.
    pub align: u64,
}

impl WorkspaceReq {
    /// No workspace.
    pub const NONE: Self = Self { bytes: 0, align: 1 };

    /// So many bytes at a multiple of `align`; none if there are none.
    pub(crate) fn new(bytes: u64, align: u64) -> Self {
        if bytes == 0 { Self::NONE } else { Self { bytes, align } }
    }

    /// What serves either of two plans that run one after the other.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { bytes: self.bytes.max(other.bytes), align: self.align.max(other.align) }
    }
}

/// The JSON of a workspace.
#[derive(Deserialize)]
#[serde(expecting = "a workspace such as {\"bytes\":1024,\"align\":256}", deny_unknown_fields)]
struct WorkspaceFields {
    bytes: u64,
    align: u64,
}

impl TryFrom<Document<WorkspaceFields>> for WorkspaceReq {
    type Error = Error;

    fn try_from(Document(WorkspaceFields { bytes, align }): Document<WorkspaceFields>) -> Result<Self> {
        if !align.is_power_of_two() {
            let rule = format!("must be a power of two, got {align}");
            return Err(Error::InvalidDescriptor { op: "workspace", field: "align", rule });
        }
        Ok(Self { bytes, align })
    }
}

/// What a plan chose, and the least that its op costs.
#[non_exhaustive]
pub struct PlanInfo {
    /// The op's name.
    pub op: &'static str,
    /// The kernel chosen.
    pub kernel: &'static str,
    /// The vendor's library that the kernel runs through, with its version, if it is not the project's own.
    pub library: Option<String>,
    /// The device, as it prints.
    pub device: String,
    /// Reproducibility that the kernel promises. Where a choice depends on the number of samples it is [`BatchInvariant`](Determinism::BatchInvariant)
    /// only if the options asked for that.
    pub determinism: Determinism,
    /// Exactness achieved.
    pub math: Math,
    /// Kernel launches, dispatches or loops of one run; of a vendor's library also what it fills or copies.
    pub launches: u32,
    /// The fewest bytes that any implementation moves: each input read once, each output written once.
    pub fewest_bytes: u64,
    /// Floating-point operations of the formula, 0 where bytes are what counts.
    pub flops: u64,
    pub(crate) choice: Box<dyn Choice>,
    pub(crate) repro: LazyLock<String, Box<dyn FnOnce() -> String + Send + Sync>>,
}

impl PlanInfo {
    /// What the kernel chose for this descriptor and device, its own numbers by name, to be read and compared; `()` if nothing.
    pub fn choice(&self) -> String {
        format!("{:?}", self.choice)
    }

    /// Whether the kernel is the CPU's reference: the op's formula in f64, which other kernels are compared with and which is many times
    /// slower than they are.
    pub fn is_reference(&self) -> bool {
        self.kernel.strip_prefix(self.op) == Some("_reference")
    }

    /// The line that builds this plan again: the op's name and its descriptor's JSON, as `bops repro` and
    /// [`AnyDescriptor::parse_line`](crate::AnyDescriptor::parse_line) take it.
    pub fn repro(&self) -> &str {
        &self.repro
    }
}

impl fmt::Debug for PlanInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlanInfo")
            .field("op", &self.op)
            .field("kernel", &self.kernel)
            .field("library", &self.library)
            .field("device", &self.device)
            .field("determinism", &self.determinism)
            .field("math", &self.math)
            .field("launches", &self.launches)
            .field("fewest_bytes", &self.fewest_bytes)
            .field("flops", &self.flops)
            .field("choice", &self.choice)
            .field("repro", &self.repro())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_and_options_are_data() {
        let workspace = WorkspaceReq { bytes: 1024, align: 256 };
        let json = serde_json::to_string(&workspace).unwrap();
        assert_eq!(json, r#"{"bytes":1024,"align":256}"#);
        assert_eq!(serde_json::from_str::<WorkspaceReq>(&json).unwrap(), workspace);
        for json in [r#"{"bytes":8}"#, r#"{"bytes":8,"align":0}"#, r#"{"bytes":8,"align":12}"#] {
            assert!(serde_json::from_str::<WorkspaceReq>(json).is_err(), "{json}");
        }
        let options = PlanOptions::default().math(Math::Tf32).workspace_limit(7).kernel("softmax_split");
        let json = serde_json::to_string(&options).unwrap();
        assert_eq!(json, r#"{"math":"tf32","workspace_limit":7,"kernel":"softmax_split"}"#);
        assert_eq!(serde_json::from_str::<PlanOptions>(&json).unwrap(), options);
        assert_eq!(serde_json::to_string(&PlanOptions::default()).unwrap(), "{}");
        assert_eq!(serde_json::from_str::<PlanOptions>("{}").unwrap(), PlanOptions::default());
        assert!(serde_json::from_str::<PlanOptions>(r#"{"deterministic":true}"#).is_err());
    }
}
