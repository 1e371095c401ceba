//! The devices that trials run on.

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use baracuda_ops::{AnyDescriptor, AnyPlan, Backend, DType, Device, DeviceProps, PlanOptions};

use crate::case::Case;

/// The most workgroups of one dimension on `wgpu-plain`, which refuses the few cases that need more than the square of it.
#[cfg(feature = "wgpu")]
const PLAIN_GROUPS: u32 = 16;
/// Plans that a target keeps: of the cases that trials side by side are on.
const KEPT: usize = 16;

/// A device under the name that trials have.
pub struct Target {
    /// `cpu`, `cuda`, `wgpu`, or `wgpu-plain`: the same adapter without optional features and with limits that every adapter has.
    pub name: &'static str,
    /// The backend.
    pub backend: Backend,
    /// The device, or why there is none.
    pub device: Result<Device, String>,
    /// Held while a trial's operands are on a GPU, so that trials side by side do not exhaust its memory.
    turn: Mutex<()>,
    /// The plans made last: the modes of a case follow each other and share one.
    plans: Mutex<VecDeque<((AnyDescriptor, PlanOptions), KeptPlan)>>,
    /// A software adapter compiles and runs on one thread per device: there, these element types have devices of their own.
    lanes: Vec<(DType, Target)>,
}

/// A plan, once it has been made. Its lock is held meanwhile, so that nobody else makes the same one.
type KeptPlan = Arc<Mutex<Option<AnyPlan>>>;

/// Keeps libwayland quiet, which Vulkan drivers load without drawing: where no desktop session has set XDG_RUNTIME_DIR, it prints an error for
/// each instance of wgpu that callers of the library make, as tools and tests do. The library's own instance does without Wayland.
///
/// # Safety
/// - No other thread runs: this is the first call of `main`.
pub unsafe fn quiet_drivers() {
    const VARIABLE: &str = "XDG_RUNTIME_DIR";
    if std::env::var_os(VARIABLE).is_none() {
        // No folder at all: a file called `wayland-0` in one that everybody may write to would be a server to connect to.
        // SAFETY: nobody reads the environment meanwhile, since no other thread runs.
        unsafe { std::env::set_var(VARIABLE, "/nonexistent") };
    }
}

/// Every target, present or not.
pub static TARGETS: LazyLock<Vec<Target>> = LazyLock::new(|| {
    let of = |name, backend, device| Target {
        name,
        backend,
        device,
        turn: Mutex::default(),
        plans: Mutex::default(),
        lanes: Vec::new(),
    };
    let mut wgpu = of("wgpu", Backend::Wgpu, wgpu_device(Wgpu::Owned));
    if wgpu.is_software() {
        let lane = |dtype| (dtype, of("wgpu", Backend::Wgpu, wgpu_device(Wgpu::Full)));
        wgpu.lanes = [DType::F16, DType::BF16].map(lane).into();
    }
    vec![
        of("cpu", Backend::Cpu, Ok(Device::cpu())),
        wgpu,
        of("wgpu-plain", Backend::Wgpu, wgpu_device(Wgpu::Plain)),
        of("cuda", Backend::Cuda, cuda_device()),
    ]
});

/// The target of that name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|t| t.name == name)
}

impl Target {
    /// Whether shaders are compiled for a CPU, which takes a driver half a second each.
    pub fn is_software(&self) -> bool {
        self.backend == Backend::Wgpu && self.device.as_ref().is_ok_and(Device::is_software)
    }

    /// What the choice of kernels depends on where the adapter is software: its own numbers, or those of one like Mesa's.
    #[cfg(feature = "wgpu")]
    pub fn software_props(&self) -> Option<DeviceProps> {
        if self.is_software() {
            return self.device.as_ref().ok().map(Device::props);
        }
        let subgroup_sizes = match self.name {
            "wgpu" => Some((8, 8)),
            "wgpu-plain" => None,
            _ => return None,
        };
        let is_like = |props: &DeviceProps| matches!(props, DeviceProps::Wgpu(p) if p.subgroup_sizes == subgroup_sizes);
        DeviceProps::examples().into_iter().find(is_like)
    }

    /// There is no such adapter.
    #[cfg(not(feature = "wgpu"))]
    pub fn software_props(&self) -> Option<DeviceProps> {
        None
    }

    /// Where trials of an element type run.
    pub fn lane(&self, dtype: DType) -> &Self {
        self.lanes.iter().find(|(d, _)| *d == dtype).map_or(self, |(_, target)| target)
    }

    /// A plan of a case, the one that another trial has made of it if that was a short while ago.
    ///
    /// # Errors
    /// The library's, or that there is no device.
    pub fn plan(&self, case: &Case) -> anyhow::Result<AnyPlan> {
        let device = self.device.as_ref().map_err(|why| anyhow::anyhow!("{why}"))?;
        let kept = self.kept(case);
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plan) = &*kept {
            return Ok(plan.clone());
        }
        let plan = case.plan(device)?;
        *kept = Some(plan.clone());
        Ok(plan)
    }

    fn kept(&self, case: &Case) -> KeptPlan {
        let key = (&case.descriptor, &case.options);
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, kept)) = plans.iter().find(|((descriptor, options), _)| (descriptor, options) == key) {
            return kept.clone();
        }
        if plans.len() == KEPT {
            plans.pop_front();
        }
        plans.push_back(((case.descriptor.clone(), case.options.clone()), KeptPlan::default()));
        plans[plans.len() - 1].1.clone()
    }

    /// Waits for the device to be free of other trials; on the CPU, does not wait.
    pub fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        // A trial that failed under the lock leaves nothing half changed.
        (self.backend != Backend::Cpu).then(|| self.turn.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Backends whose absence fails, from `BOPS_REQUIRE`, a list such as `cpu,wgpu`.
///
/// # Errors
/// What is required and absent, or no backend at all.
pub fn require() -> Result<(), String> {
    let wanted = std::env::var("BOPS_REQUIRE").unwrap_or_default();
    let mut missing = Vec::new();
    for name in wanted.split(',').map(str::trim).filter(|n| !n.is_empty()) {
        match target(name) {
            None => missing.push(format!("{name} (no such backend)")),
            Some(Target { device: Err(why), .. }) => missing.push(format!("{name} ({why})")),
            Some(_) => {}
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(format!("BOPS_REQUIRE={wanted}, but missing: {}", missing.join("; "))) }
}

#[cfg(feature = "cuda")]
fn cuda_device() -> Result<Device, String> {
    Device::cuda(0).map_err(|e| e.to_string())
}

#[cfg(not(feature = "cuda"))]
fn cuda_device() -> Result<Device, String> {
    Err("built without the feature cuda".into())
}

/// Whose wgpu device, and with what.
enum Wgpu {
    /// The library's own.
    Owned,
    /// The caller's, as `full_device` has it.
    Full,
    /// The caller's, as `plain_device` has it.
    Plain,
}

#[cfg(feature = "wgpu")]
fn wgpu_device(which: Wgpu) -> Result<Device, String> {
    let lent = match which {
        Wgpu::Owned => return Device::wgpu_default().map_err(|e| e.to_string()),
        Wgpu::Full => full_device(),
        Wgpu::Plain => plain_device(),
    };
    let (device, queue) = lent.map_err(|e| format!("{e:#}"))?;
    Device::wgpu(&device, &queue).map_err(|e| e.to_string())
}

#[cfg(not(feature = "wgpu"))]
fn wgpu_device(_: Wgpu) -> Result<Device, String> {
    Err("built without the feature wgpu".into())
}

/// A device of the caller without optional features and with the default limits, but for the workgroups of one dimension: few, so that small
/// cases have the grids of two dimensions that else only the largest tensors have.
///
/// # Errors
/// wgpu's.
#[cfg(feature = "wgpu")]
pub fn plain_device() -> anyhow::Result<(wgpu::Device, wgpu::Queue)> {
    callers_device(|_| wgpu::DeviceDescriptor {
        required_limits: wgpu::Limits { max_compute_workgroups_per_dimension: PLAIN_GROUPS, ..Default::default() },
        ..Default::default()
    })
}

/// A device of the caller with what the library makes use of.
///
/// # Errors
/// wgpu's.
#[cfg(feature = "wgpu")]
pub fn full_device() -> anyhow::Result<(wgpu::Device, wgpu::Queue)> {
    callers_device(|adapter| wgpu::DeviceDescriptor {
        required_features: adapter.features() & (wgpu::Features::SUBGROUP | wgpu::Features::IMMEDIATES),
        required_limits: adapter.limits(),
        ..Default::default()
    })
}

/// A device of an instance of its own: on llvmpipe, two of one instance keep one core busy, two of two instances two.
#[cfg(feature = "wgpu")]
fn callers_device(
    describe: impl FnOnce(&wgpu::Adapter) -> wgpu::DeviceDescriptor<'static>,
) -> anyhow::Result<(wgpu::Device, wgpu::Queue)> {
    use anyhow::Context;
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let adapters = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::PRIMARY));
    let hardware = |a: &&wgpu::Adapter| a.get_info().device_type != wgpu::DeviceType::Cpu;
    let adapter = adapters.iter().find(hardware).or(adapters.first()).context("no wgpu adapter")?;
    Ok(pollster::block_on(adapter.request_device(&describe(adapter)))?)
}
