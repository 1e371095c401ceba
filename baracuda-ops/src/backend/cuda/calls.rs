//! A form at the C ABI: two functions, of which one prepares kernels and the other launches them.

use std::any::Any;
use std::ffi::c_void;
use std::hash::{Hash, Hasher};

use baracuda_ops_sys::{bops_status, bops_stream};

use super::{Device, Launch};
use crate::backend::Located;
use crate::error::{BuildError, Result};
use crate::kernel::Built;

/// The functions that `BOPS_FORM` of `csrc/bops.h` declares. `S` tells the compiled kernels of the form apart, besides its choice `C`; `P` are the
/// params and `O` the operands of a run.
pub(crate) struct Calls<S, P, C, O> {
    /// Their name without `_prepare` and `_launch`.
    pub(crate) name: &'static str,
    pub(crate) prepare: unsafe extern "C" fn(*const S, *const P, *const C) -> bops_status,
    pub(crate) launch:
        unsafe extern "C" fn(*const S, *const P, *const C, *const O, *mut c_void, bops_stream) -> bops_status,
}

/// The [`Calls`] of a form, by its two functions.
macro_rules! calls {
    ($prepare:ident, $launch:ident) => {
        $crate::backend::cuda::calls::Calls {
            name: $crate::backend::cuda::calls::without_prepare(stringify!($prepare)),
            prepare: ::baracuda_ops_sys::$prepare,
            launch: ::baracuda_ops_sys::$launch,
        }
    };
}
pub(crate) use calls;

/// The name of a function without its ending `_prepare`.
pub(crate) const fn without_prepare(name: &'static str) -> &'static str {
    name.split_at(name.len() - "_prepare".len()).0
}

/// Numbers for C functions, which kernels may be told apart by.
pub(crate) trait Numbers: Copy + Hash + Eq + Send + Sync + 'static {}
impl<T: Copy + Hash + Eq + Send + Sync + 'static> Numbers for T {}

impl<S: Numbers, P: Copy + Send + Sync + 'static, C: Numbers, O: 'static> Calls<S, P, C, O> {
    /// Prepares the kernels of a choice, and returns what launches them with the operands of a run, the workspace and the stream, and returns the
    /// status. `also`: what else decides which kernels these are.
    pub(crate) fn prepare<K: Numbers>(
        &self,
        device: &Device,
        of: S,
        params: P,
        choice: C,
        also: K,
    ) -> Result<impl Fn(&O, *mut c_void, *mut c_void) -> bops_status + Send + Sync + use<S, P, C, O, K>> {
        // SAFETY: the structs live across the call and hold what the form allows.
        device.prepare(self.name, (of, choice, also), || unsafe { (self.prepare)(&of, &params, &choice) })?;
        let launch = self.launch;
        Ok(move |operands: &O, workspace, stream| {
            // SAFETY: the generic check proved every operand's span, alignment and device, and the workspace's.
            unsafe { launch(&of, &params, &choice, operands, workspace, stream) }
        })
    }

    /// What builds a kernel from the form, which runs with those `operands`. Without work it prepares and launches nothing.
    pub(crate) fn build(
        &self,
        device: &crate::backend::Device,
        has_work: bool,
        (of, params, choice, also): (S, P, C, impl Numbers),
        operands: impl Fn(&Located<'_>) -> O + Send + Sync + 'static,
    ) -> Result<Built, BuildError> {
        let device = Device::of(device)?;
        if !has_work {
            return Ok(Launch::new(self.name, |_, _| 0).into());
        }
        let run = self.prepare(device, of, params, choice, also)?;
        let start = move |located: &Located<'_>, stream| run(&operands(located), located.workspace_pointer(), stream);
        Ok(Launch::new(self.name, start).into())
    }
}

/// A set of prepared kernels, as a value that tells it from all others, of any type.
pub(super) trait Prepared: Any + Send {
    fn is(&self, other: &dyn Any) -> bool;
    fn hash_into(&self, state: &mut dyn Hasher);
}

impl<K: Hash + Eq + Send + 'static> Prepared for K {
    fn is(&self, other: &dyn Any) -> bool {
        other.downcast_ref() == Some(self)
    }

    fn hash_into(&self, mut state: &mut dyn Hasher) {
        self.type_id().hash(&mut state);
        self.hash(&mut state);
    }
}

impl PartialEq for dyn Prepared {
    fn eq(&self, other: &Self) -> bool {
        self.is(other)
    }
}

impl Eq for dyn Prepared {}

impl Hash for dyn Prepared {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash_into(state);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::Prepared;

    #[test]
    fn kernels_are_told_apart_by_type_and_value() {
        let mut prepared: HashSet<Box<dyn Prepared>> = HashSet::new();
        assert!(prepared.insert(Box::new(("a", [1u32, 2]))));
        assert!(prepared.insert(Box::new(("a", [1u32, 3]))));
        assert!(prepared.insert(Box::new(("b", [1u32, 2]))));
        assert!(prepared.insert(Box::new(("a", (1u32, 2u32)))));
        assert!(!prepared.insert(Box::new(("a", [1u32, 2]))));
    }
}
