//! What can go wrong, with the operand and the numbers.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::dtype::DType;

/// Result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong. Nothing has been launched when one is returned, except for [`Error::Backend`] and
/// [`Error::DeviceLost`], which report what the driver said.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// A field of a descriptor breaks a rule.
    #[error("{op}: {field}: {rule}")]
    InvalidDescriptor {
        /// The op's name, `tensor` for a [`TensorDesc`](crate::TensorDesc), or `workspace` for a
        /// [`WorkspaceReq`](crate::WorkspaceReq).
        op: &'static str,
        /// The field.
        field: &'static str,
        /// The rule, with the numbers that break it.
        rule: String,
    },
    /// No kernel serves the descriptor on the device under the options.
    #[error("{op}: not supported on {device}{}", rejected(.tried))]
    Unsupported {
        /// The op's name.
        op: &'static str,
        /// The device.
        device: String,
        /// Every kernel tried, in order.
        tried: Vec<Rejection>,
    },
    /// No op has the name.
    #[error("no op is named {name:?}; the ops are {}", known.join(", "))]
    UnknownOp {
        /// The name asked for.
        name: String,
        /// The names that exist.
        known: Vec<&'static str>,
    },
    /// A JSON text is not a valid descriptor.
    #[error("{op}: the JSON is not a valid descriptor: {}", .source.beside(op))]
    InvalidJson {
        /// The op's name.
        op: &'static str,
        /// Why: an [`Error`] of this crate where a rule is broken, else a [`serde_json::Error`].
        source: Cause,
    },
    /// No element type has the name.
    #[error("no element type is named {name:?}; the types are {}", known.join(", "))]
    UnknownDType {
        /// The name asked for.
        name: String,
        /// The names that exist.
        known: Vec<&'static str>,
    },
    /// An op that has no backward: it is one itself, or all its results are positions.
    #[error("{op}: has no backward")]
    NoBackward {
        /// The op's name.
        op: &'static str,
    },
    /// A gradient that an op does not have.
    #[error("{op}: {operand:?} {why}{}{}", if known.is_empty() { "" } else { " " }, known.join(", "))]
    NoGradient {
        /// The op's name.
        op: &'static str,
        /// The operand named.
        operand: String,
        /// What it is not, before the list of those that are; or, where nothing could be named in its place, why it has no gradient and what to do.
        why: &'static str,
        /// The operands that could be named in its place, if any.
        known: Vec<&'static str>,
    },
    /// A backward that takes more than one op, or writes more than is asked for.
    #[error("{op}: one backward does not compute these gradients: {why}; `gradients` gives the steps that do ({})", steps.join(", "))]
    SeveralSteps {
        /// The op's name.
        op: &'static str,
        /// Why, and where forward could change that, how.
        why: &'static str,
        /// The ops of the steps.
        steps: Vec<&'static str>,
    },
    /// An operand that the descriptor declares is absent.
    #[error("{op}: operand {operand} is missing")]
    MissingOperand {
        /// The op's name.
        op: &'static str,
        /// The operand.
        operand: &'static str,
    },
    /// An operand that the descriptor does not declare is present.
    #[error("{op}: operand {operand} was passed, but the descriptor does not declare it")]
    UnexpectedOperand {
        /// The op's name.
        op: &'static str,
        /// The operand.
        operand: &'static str,
    },
    /// The number of operands passed in slot order is not the plan's.
    #[error("{op}: needs {need} operands in slot order, got {got}")]
    OperandCount {
        /// The op's name.
        op: &'static str,
        /// Operands that the plan declares.
        need: usize,
        /// Operands passed.
        got: usize,
    },
    /// An output was given memory that can only be read.
    #[error("{op}: operand {operand} is written, but was passed as read-only memory")]
    ReadOnly {
        /// The op's name.
        op: &'static str,
        /// The operand.
        operand: &'static str,
    },
    /// Typed memory of another element type.
    #[error("{op}: operand {operand} must be {expected}, got memory of {got}")]
    WrongDType {
        /// The op's name.
        op: &'static str,
        /// The operand.
        operand: &'static str,
        /// The descriptor's type.
        expected: DType,
        /// The memory's type.
        got: DType,
    },
    /// The memory is shorter than the operand.
    #[error("{op}: operand {operand} needs {need_bytes} bytes, got {got_bytes}{}", past_end(*offset, *need_bytes, *buffer_bytes))]
    TooSmall {
        /// The op's name.
        op: &'static str,
        /// The operand.
        operand: &'static str,
        /// Bytes that the operand spans.
        need_bytes: u64,
        /// Bytes passed, of which those past the end of a buffer do not count.
        got_bytes: u64,
        /// Where in its buffer the memory begins; 0 if it is no part of one.
        offset: u64,
        /// Bytes of the buffer, if the memory passed ends past its end.
        buffer_bytes: Option<u64>,
    },
    /// The memory does not start where the operand must.
    #[error("{op}: operand {operand} must start at a multiple of {need_bytes} bytes, got {start}{}", .detail)]
    Misaligned {
        /// The op's name.
        op: &'static str,
        /// The operand.
        operand: &'static str,
        /// The alignment needed.
        need_bytes: u64,
        /// Where it starts.
        start: Start,
        /// What would be allowed.
        detail: &'static str,
    },
    /// Two operands overlap and at least one is written.
    #[error("{op}: operands {a} and {b} overlap{}", .detail)]
    Overlap {
        /// The op's name.
        op: &'static str,
        /// One operand.
        a: &'static str,
        /// The other.
        b: &'static str,
        /// What would be allowed.
        detail: &'static str,
    },
    /// An operand said to be in place has no partner to be in place with.
    #[error("{op}: operand {operand} cannot be in place: {detail}")]
    NotInPlace {
        /// The op's name.
        op: &'static str,
        /// The operand.
        operand: &'static str,
        /// Why.
        detail: &'static str,
    },
    /// A queue or operand belongs to another device than the plan, or to another handle that is not a clone.
    #[error("{op}: {operand} {}", mismatch(.expected, .got))]
    WrongDevice {
        /// The op's name.
        op: &'static str,
        /// The operand, or `queue`.
        operand: &'static str,
        /// The plan's device, or where else it must be.
        expected: String,
        /// Where the operand is.
        got: String,
    },
    /// Another thread's run, write or download uses bytes of an operand's range, and one of the two writes them.
    #[error(
        "{op}: operand {operand} lies where another thread's run, write or download is at work, and one of the two writes there; \
         wait for the other, or write elsewhere"
    )]
    BufferInUse {
        /// The op's name.
        op: &'static str,
        /// The operand.
        operand: &'static str,
    },
    /// An operand's wgpu buffer that no shader can use.
    #[error("{op}: the buffer of operand {operand} {why}")]
    UnusableBuffer {
        /// The op's name.
        op: &'static str,
        /// The operand.
        operand: &'static str,
        /// What it lacks.
        why: &'static str,
    },
    /// What a borrowed encoder or pass holds has not been submitted, so that its results cannot be had yet.
    #[error(
        "{op}: the queue is a borrowed encoder or pass, which its owner submits; after that, take one from Device::queue"
    )]
    Unsubmitted {
        /// The operation.
        op: &'static str,
    },
    /// Memory that a [`Bound`](crate::Bound) cannot keep alive.
    #[error("{op}: bind keeps its operands alive; {operand} is borrowed {kind}, which only run accepts")]
    NotBindable {
        /// The op's name.
        op: &'static str,
        /// The operand.
        operand: &'static str,
        /// The kind of memory.
        kind: &'static str,
    },
    /// The device has too little free memory.
    #[error("{device}: out of memory allocating {bytes} bytes")]
    OutOfMemory {
        /// The device.
        device: String,
        /// Bytes asked for.
        bytes: u64,
    },
    /// The device has no buffers of that size, however much memory is free.
    #[error("{device}: a buffer of {bytes} bytes was asked for, the limit of the device is {limit_bytes}")]
    BufferTooLarge {
        /// The device.
        device: String,
        /// Bytes asked for.
        bytes: u64,
        /// The most that one buffer holds.
        limit_bytes: u64,
    },
    /// The kernels were compiled for other GPUs than this one.
    #[error(
        "{device} has compute capability {}.{}; the kernels were compiled for {compiled:?}: rebuild with BARACUDA_CUDA_ARCHS", capability / 10, capability % 10
    )]
    NoKernelImage {
        /// The device.
        device: String,
        /// Its compute capability, major times 10 plus minor.
        capability: u32,
        /// The architectures compiled.
        compiled: Vec<u32>,
    },
    /// A backend has no device here.
    #[error("no {backend} device: {reason}")]
    NoDevice {
        /// The backend.
        backend: &'static str,
        /// Why, and what to do.
        reason: String,
    },
    /// The device stopped working; nothing on it can be used any more.
    #[error("{device} is lost: {detail}")]
    DeviceLost {
        /// The device.
        device: String,
        /// The driver's words.
        detail: String,
    },
    /// A driver or library call failed.
    #[error("{call} failed{}: {detail}", with_code(*code))]
    Backend {
        /// The call.
        call: &'static str,
        /// Its code; 0 on wgpu, which has none.
        code: i64,
        /// The driver's words.
        detail: String,
    },
}

/// Where memory starts that an operand cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At an address, on the host or of CUDA.
    Address(u64),
    /// So many bytes after the first byte of a buffer.
    Offset(u64),
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "address {address:#x}"),
            Self::Offset(bytes) => write!(f, "offset {bytes}"),
        }
    }
}

impl Error {
    pub(crate) fn tensor(field: &'static str, rule: impl Into<String>) -> Self {
        Self::InvalidDescriptor { op: "tensor", field, rule: rule.into() }
    }

    /// The error of an input whose gradient is wanted, although no gradient arrives at the outputs that depend on it.
    pub(crate) fn independent(op: &'static str, input: &str, outputs: Vec<&'static str>) -> Self {
        let why = "has a gradient only if one arrives at an output that depends on it; these are";
        Self::NoGradient { op, operand: input.into(), why, known: outputs }
    }

    /// The error of a tensor that follows from the fields of the op `op`, as an error of the operand that it would be.
    pub(crate) fn of_operand(self, op: &'static str, operand: &'static str) -> Self {
        match self {
            Self::InvalidDescriptor { op: "tensor", field, rule } => {
                Self::InvalidDescriptor { op, field: operand, rule: format!("{field}: {rule}") }
            }
            other => other,
        }
    }
}

/// Why a JSON text is not a valid descriptor: behind the pointer is an [`Error`] of this crate where a rule is broken, else a
/// [`serde_json::Error`].
///
/// ```
/// use std::error::Error as _;
/// use baracuda_ops::{AnyDescriptor, Error};
/// let json = r#"{"x": {"dtype": "f32", "dims": [8, 64]}, "axis": 2}"#;
/// let error = AnyDescriptor::parse("softmax", json).unwrap_err();
/// let cause = error.source().and_then(|cause| cause.downcast_ref());
/// assert!(matches!(cause, Some(Error::InvalidDescriptor { field: "axis", .. })));
/// ```
#[derive(Clone, Debug)]
pub struct Cause {
    error: Arc<dyn std::error::Error + Send + Sync>,
    words: String,
}

impl Cause {
    /// An error in words of its own: with the place in the text.
    pub(crate) fn quoted(error: impl std::error::Error + Send + Sync + 'static, words: String) -> Self {
        Self { error: Arc::new(error), words }
    }

    /// Its words without the op's name, with which the words of a broken rule begin. A field may have the name of an op, too.
    fn beside(&self, op: &str) -> &str {
        let is_rule = matches!(self.downcast_ref(), Some(Error::InvalidDescriptor { op: named, .. }) if *named == op);
        let rest = self.words.strip_prefix(op).and_then(|rest| rest.strip_prefix(": "));
        rest.filter(|_| is_rule).unwrap_or(&self.words)
    }
}

impl Deref for Cause {
    type Target = dyn std::error::Error + Send + Sync;

    fn deref(&self) -> &Self::Target {
        &*self.error
    }
}

/// Equal causes say the same.
impl PartialEq for Cause {
    fn eq(&self, other: &Self) -> bool {
        self.words == other.words
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl From<Error> for Cause {
    fn from(error: Error) -> Self {
        Self { words: error.to_string(), error: Arc::new(error) }
    }
}

impl From<serde_json::Error> for Cause {
    fn from(error: serde_json::Error) -> Self {
        Self { words: error.to_string(), error: Arc::new(error) }
    }
}

/// A kernel that was tried and why it did not serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The kernel's name.
    pub kernel: &'static str,
    /// Why it refused, with the limit.
    pub reason: Reason,
}

/// Why a kernel refuses a descriptor, with the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    words: Cow<'static, str>,
    /// The kernel that the options ask for, where it is another one.
    asked: Option<String>,
}

impl Reason {
    /// The options ask for another kernel.
    pub(crate) fn asked(name: &str) -> Self {
        Self { words: format!("the options ask for kernel {name:?}").into(), asked: Some(name.into()) }
    }

    /// Whether the options ask for another kernel.
    pub(crate) fn is_of_options(&self) -> bool {
        self.asked.is_some()
    }

    /// Refuses unless a kernel's condition holds.
    pub(crate) fn unless<R: Into<Self>>(holds: bool, reason: impl FnOnce() -> R) -> Result<(), Self> {
        if holds { Ok(()) } else { Err(reason().into()) }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl From<&'static str> for Reason {
    fn from(words: &'static str) -> Self {
        Self { words: Cow::Borrowed(words), asked: None }
    }
}

impl From<String> for Reason {
    fn from(words: String) -> Self {
        Self { words: Cow::Owned(words), asked: None }
    }
}

/// Says each reason once, after the kernels that have it.
fn rejected(rejections: &[Rejection]) -> String {
    let Some(first) = rejections.first() else { return ": no kernel of this op is written for it".into() };
    let names = |of: &[&Rejection]| of.iter().map(|r| r.kernel).collect::<Vec<_>>().join(", ");
    if let Some(name) = &first.reason.asked {
        let known = names(&rejections.iter().collect::<Vec<_>>());
        return format!(": the options ask for kernel {name:?}, which is none of those there: {known}");
    }
    let mut by_reason: Vec<Vec<&Rejection>> = Vec::new();
    for rejection in rejections {
        match by_reason.iter_mut().find(|same| same[0].reason == rejection.reason) {
            Some(same) => same.push(rejection),
            None => by_reason.push(vec![rejection]),
        }
    }
    by_reason.iter().map(|same| format!("; {}: {}", names(same), same[0].reason)).collect()
}

/// What errors call memory of the host.
pub(crate) const HOST: &str = "the host";

/// Devices that print the same differ by their handles, or on CUDA by their contexts.
fn mismatch(expected: &str, got: &str) -> String {
    if expected == got {
        return format!("is of another handle of {got}: make one Device and clone it");
    }
    let help = if got == HOST { "; Device::upload copies it there" } else { "" };
    format!("is on {got}, must be on {expected}{help}")
}

/// Where memory ends that its buffer does not hold.
fn past_end(offset: u64, need_bytes: u64, buffer_bytes: Option<u64>) -> String {
    let words =
        |bytes| format!(": offset {offset} + {need_bytes} bytes is past the end of its buffer of {bytes} bytes");
    buffer_bytes.map(words).unwrap_or_default()
}

fn with_code(code: i64) -> String {
    if code == 0 { String::new() } else { format!(" with code {code}") }
}

/// Why a kernel could not be built.
pub(crate) enum BuildError {
    /// The device says no: the next kernel is tried.
    Refused(Reason),
    /// Something failed: the plan fails.
    Failed(Error),
}

impl From<Reason> for BuildError {
    fn from(reason: Reason) -> Self {
        Self::Refused(reason)
    }
}

impl From<Error> for BuildError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(tried: &[(&'static str, Reason)]) -> String {
        let tried = tried.iter().map(|(kernel, reason)| Rejection { kernel, reason: reason.clone() }).collect();
        Error::Unsupported { op: "op", device: "cpu".into(), tried }.to_string()
    }

    #[test]
    fn a_reason_of_several_kernels_is_said_once() {
        let [few, many] = ["too few", "too many"].map(Reason::from);
        let words = refused(&[("op_a", few.clone()), ("op_b", many), ("op_c", few)]);
        assert_eq!(words, "op: not supported on cpu; op_a, op_c: too few; op_b: too many");
        assert_eq!(refused(&[]), "op: not supported on cpu: no kernel of this op is written for it");
        let words = refused(&["op_a", "op_b"].map(|kernel| (kernel, Reason::asked("op_z"))));
        assert_eq!(
            words,
            "op: not supported on cpu: the options ask for kernel \"op_z\", which is none of those there: op_a, op_b"
        );
    }

    #[test]
    fn memory_of_the_host_is_told_the_way_to_a_device() {
        let error = Error::WrongDevice { op: "op", operand: "x", expected: "a GPU".into(), got: HOST.into() };
        assert_eq!(error.to_string(), "op: x is on the host, must be on a GPU; Device::upload copies it there");
    }

    #[test]
    fn a_buffer_in_use_is_told_what_to_do() {
        let error = Error::BufferInUse { op: "op", operand: "y" };
        assert!(error.to_string().ends_with("wait for the other, or write elsewhere"), "{error}");
    }
}
