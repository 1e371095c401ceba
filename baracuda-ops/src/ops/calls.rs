//! A form at the C ABI: two functions, of which one prepares kernels and the other launches them.

use std::ffi::c_void;
use std::fmt::Debug;

use baracuda_ops_sys::{bops_status, bops_stream};

use crate::backend::Located;
use crate::backend::cuda::{Device, Launch, Numbers};
use crate::error::{BuildError, Result};
use crate::kernel::{Built, Candidate};

/// The functions that `BOPS_FORM` of `csrc/bops.h` declares. `S` tells the compiled kernels of the form apart, besides its choice `C`; `P` are the
/// params and `O` the operands of a run.
pub(crate) struct Calls<S, P, C, O> {
    /// Their name without `_prepare` and `_launch`.
    pub(crate) name: &'static str,
    pub(crate) prepare: unsafe extern "C" fn(*const S, *const P, *const C) -> bops_status,
    pub(crate) launch:
        unsafe extern "C" fn(*const S, *const P, *const C, *const O, *mut c_void, bops_stream) -> bops_status,
}

/// The [`Calls`] of a form, by its name.
macro_rules! calls {
    ($form:ident) => {
        $crate::ops::calls::Calls {
            name: stringify!($form),
            prepare: ::baracuda_ops_sys::forms::$form::prepare,
            launch: ::baracuda_ops_sys::forms::$form::launch,
        }
    };
}
pub(crate) use calls;

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

    /// The candidate that [`build`](Self::build) builds: one launch without workspace, or none without work.
    pub(crate) fn candidate(
        self,
        has_work: bool,
        kernels: (S, P, C, impl Numbers),
        operands: impl Fn(&Located<'_>) -> O + Send + Sync + 'static,
    ) -> Candidate<'static>
    where
        C: Debug,
    {
        let (_, _, choice, _) = kernels;
        let build = move |device: &crate::backend::Device| self.build(device, has_work, kernels, operands);
        Candidate { launches: u32::from(has_work), ..Candidate::new(choice, build) }
    }
}
