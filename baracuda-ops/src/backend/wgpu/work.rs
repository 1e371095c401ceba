//! What the glue of every family shares: the dispatches of a plan, what they bind, and the limits that refuse them.

use super::device::Props;
use super::program::{Binding, Place, StepBuilder};
use crate::backend::DeviceProps;
use crate::dtype::DType;
use crate::error::Reason;
use crate::narrow::word;
use crate::options::{Determinism, WorkspaceReq};
use crate::slots::{Slot, Slots};

impl Props {
    /// Those of a device that wgpu reaches.
    ///
    /// # Errors
    /// It is another device.
    pub(crate) fn of(props: &DeviceProps) -> Result<&Self, Reason> {
        match props {
            DeviceProps::Wgpu(props) => Ok(props),
            _ => Err("it runs on wgpu".into()),
        }
    }
}

/// The dispatches of a plan, the workspace between them, and what was chosen on the way.
pub(crate) struct Work<C> {
    pub(crate) steps: Vec<StepBuilder>,
    pub(crate) workspace_bytes: u64,
    pub(crate) workspace_align: u64,
    pub(crate) determinism: Determinism,
    pub(crate) choice: C,
}

impl<C> Work<C> {
    /// Without a dispatch.
    pub(crate) fn none(choice: C, props: &Props) -> Self {
        Self {
            steps: Vec::new(),
            workspace_bytes: 0,
            workspace_align: props.workspace_align(),
            determinism: Determinism::RunToRun,
            choice,
        }
    }

    /// Promises [`Determinism::BatchInvariant`], if a condition holds that does not depend on the number of samples: neither the shaders, nor their
    /// constants, nor the order in which a sample is added up depends on the other samples.
    pub(crate) fn batch_invariant_if(self, holds: bool) -> Self {
        if holds { Self { determinism: Determinism::BatchInvariant, ..self } } else { self }
    }

    pub(crate) fn workspace(&self) -> WorkspaceReq {
        WorkspaceReq::new(self.workspace_bytes, self.workspace_align)
    }
}

/// An element type that shaders have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShaderType {
    F32,
    F16,
    BF16,
}

impl ShaderType {
    /// # Errors
    /// Shaders have no such elements.
    pub(crate) fn of(dtype: DType) -> Result<Self, Reason> {
        match dtype {
            DType::F32 => Ok(Self::F32),
            DType::F16 => Ok(Self::F16),
            DType::BF16 => Ok(Self::BF16),
            DType::F64 => Err("WGSL has no arithmetic of f64 to rely on".into()),
            _ => Err(format!("its shaders have no elements of {dtype}").into()),
        }
    }

    pub(crate) fn is_half(self) -> bool {
        self != Self::F32
    }

    /// The file that says what an element is.
    pub(crate) fn file(self) -> &'static str {
        match self {
            Self::F32 => "common/f32",
            Self::F16 => "common/f16",
            Self::BF16 => "common/bf16",
        }
    }

    /// The accessors of a tensor that is read in chunks: for aligned ones, and for any address.
    pub(crate) fn chunks_in(self) -> [&'static str; 2] {
        ["chunks_in", if self.is_half() { "halves_in" } else { "words_in" }]
    }

    /// The accessors of a tensor that is written in chunks: for aligned ones, and for any address.
    pub(crate) fn chunks_out(self) -> [&'static str; 2] {
        ["chunks_out", if self.is_half() { "halves_out" } else { "words_out" }]
    }

    /// The files that say how elements are read and written.
    pub(crate) fn prelude(self) -> Vec<&'static str> {
        if self.is_half() { vec![self.file(), "common/half"] } else { vec![self.file()] }
    }
}

/// Most elements of an operand: shaders count them in u32, with room for a step past the last one. The largest dense operand, one of 16-bit
/// elements, has as many. An operand with strides of 0 could have more elements, and is refused if it has.
const MAX_ELEMENTS: u64 = (u32::MAX as u64 & !3) / 2;

/// Bytes that the device binds in one piece, and that word indices in u32 reach.
pub(crate) fn most_bytes(props: &Props) -> u64 {
    // Bindings are whole words.
    props.max_binding_bytes.min(u64::from(u32::MAX)) & !3
}

/// Refuses operands that u32 indices or the device's bindings do not reach, and those of the rows `dense` that are not dense. An operand as large
/// as a binding has to start where a binding can; that depends on the run, which checks it.
///
/// Families whose params hold no extent of a tensor without elements leave such operands out.
///
/// Of an accepted operand every extent, every product of extents, and every stride between two elements fits into u32. A stride that does not fit
/// is that of an extent of at most 1 or of an operand without elements, and is multiplied by no index but 0.
pub(crate) fn check_reach<'s>(
    slots: impl IntoIterator<Item = &'s Slot>,
    dense: &[usize],
    props: &Props,
) -> Result<(), Reason> {
    let most = most_bytes(props);
    for slot in slots {
        // At most i64::MAX, by the rules of a tensor.
        let elements: u64 = slot.desc.dims().iter().map(|&dim| dim.max(1)).product();
        if elements > MAX_ELEMENTS {
            let (name, dims) = (slot.name, slot.desc.dims());
            let reason =
                format!("{name} of {dims:?} counts {elements} elements, the limit of 32-bit indices is {MAX_ELEMENTS}");
            return Err(reason.into());
        }
        if slot.span_bytes > most {
            let (name, span) = (slot.name, slot.span_bytes);
            return Err(format!("{name} spans {span} bytes, this device binds at most {most}").into());
        }
        if dense.contains(&slot.index) && !slot.desc.is_contiguous() {
            return Err(format!("{} is not contiguous: strides {:?}", slot.name, slot.desc.strides()).into());
        }
    }
    Ok(())
}

/// Refuses dispatches that bind more than the device allows.
pub(crate) fn check_bindings(steps: &[StepBuilder], props: &Props) -> Result<(), Reason> {
    let bound = |step: &StepBuilder| step.bindings.iter().filter(|b| b.place.is_some()).count();
    let most = steps.iter().map(bound).max().unwrap_or(0);
    if most as u64 > u64::from(props.max_storage_buffers) {
        let limit = props.max_storage_buffers;
        return Err(format!("it binds {most} storage buffers, the limit of this device is {limit}").into());
    }
    Ok(())
}

/// Refuses a workspace that the device does not bind in one piece.
pub(crate) fn check_workspace(bytes: u64, props: &Props) -> Result<(), Reason> {
    let limit = most_bytes(props);
    if bytes > limit {
        return Err(format!("it needs {bytes} bytes of workspace, this device binds at most {limit}").into());
    }
    Ok(())
}

/// A grid of at least `count` workgroups, in two dimensions where one has no room for them. Shaders number workgroups in u32.
pub(crate) fn groups(count: u64, props: &Props) -> Result<[u32; 2], Reason> {
    let most = u64::from(props.max_groups);
    let x = count.clamp(1, most);
    let y = count.div_ceil(x);
    if y > most || x * y > u64::from(u32::MAX) {
        let limit = most.pow(2).min(u64::from(u32::MAX));
        return Err(format!("it needs {count} workgroups, the limit of this device is {limit}").into());
    }
    // `most` is a u32.
    Ok([word(x), word(y)])
}

/// Binds operands of one descriptor.
pub(crate) struct Binder<'s> {
    pub(crate) slots: &'s Slots,
}

impl Binder<'_> {
    /// The operand of a row of the family's table; absent if it is not declared or has no elements.
    pub(crate) fn operand(&self, index: usize, accessors: [&'static str; 2], absent: &'static str) -> Binding {
        match self.slots.at(index).filter(|slot| !slot.desc.is_empty()) {
            Some(slot) => Binding { name: slot.name, place: Some(Place::Operand(index)), accessors },
            None => self.absent(index, absent),
        }
    }

    /// An absent operand, under the name of that row.
    pub(crate) fn absent(&self, index: usize, accessor: &'static str) -> Binding {
        Binding::absent(self.slots.name(index), accessor)
    }
}

/// Three strides with the padding that WGSL puts behind a `vec3` if another `vec3` follows.
pub(crate) fn padded([s0, s1, s2]: [u32; 3]) -> [u32; 4] {
    [s0, s1, s2, 0]
}
