//! The ways in which a case is run.

use anyhow::{Context, Result, bail, ensure};
use baracuda_ops::{Access, AnyPlan, Backend, Device, Error, Mem, MemMut, Slot, Workspace};

use crate::arena::{Arena, CANARY, InPlace, Layout, POISON, Place, Step};
use crate::case::Case;
use crate::exec::{Executor, OnDevice, Uploaded, refusal};
use crate::formula;
use crate::judge::{By, Worst, compare, is_nearly_constant};
use crate::ops::{Named, TypedRun, subject};
use crate::random::is_template;
use crate::target::Target;
use crate::values::Tensors;

/// A way of running a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Once, compared with the reference.
    Values,
    /// At every class of addresses that operands may have, together and each for itself, with different workspace contents: equal bits.
    Bitwise,
    /// All operands in one buffer, at odd multiples of what their alignment promises (wgpu: of 4 bytes).
    Pool,
    /// Inputs where their outputs are, said and by the identical range.
    InPlace,
    /// With exactly the workspace asked for, and with one byte less.
    Workspace,
    /// One plan on 8 threads, each with its own buffers: equal bits.
    Threads,
    /// Checked once, replayed, also with new data.
    Bind,
    /// The op's own arguments and the erased plan: equal bits.
    Erase,
    /// Recorded into the caller's encoder and pass, on the caller's buffers.
    Record,
    /// Captured into a CUDA graph in a fresh process, before any other launch, and replayed with new data.
    Capture,
    /// Once, small, on CUDA: the trials to run under compute-sanitizer.
    Sanitize,
    /// Once, compared with the reference and with the plain formulas of `formula.rs`: random cases, which no list holds.
    Random,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Self; 12] = [
        Self::Values,
        Self::Bitwise,
        Self::Pool,
        Self::InPlace,
        Self::Workspace,
        Self::Threads,
        Self::Bind,
        Self::Erase,
        Self::Record,
        Self::Capture,
        Self::Sanitize,
        Self::Random,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Values => "values",
            Self::Bitwise => "bitwise",
            Self::Pool => "pool",
            Self::InPlace => "in-place",
            Self::Workspace => "workspace",
            Self::Threads => "threads",
            Self::Bind => "bind",
            Self::Erase => "erase",
            Self::Record => "record",
            Self::Capture => "capture",
            Self::Sanitize => "sanitize",
            Self::Random => "random",
        }
    }

    /// The mode of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|m| m.name() == name)
    }

    /// Whether a case can be run in this mode on a target at all.
    ///
    /// # Errors
    /// Why not.
    pub fn is_possible(self, case: &Case, target: &Target) -> Result<(), &'static str> {
        let demand = |holds: bool, why| if holds { Ok(()) } else { Err(why) };
        match self {
            Self::InPlace => {
                let has_partner = case.slots().iter().any(|slot| slot.in_place.is_some());
                demand(has_partner, "since no operand of the case can be in place")
            }
            Self::Record => demand(target.name == "wgpu", "since encoders and passes of a caller are those of wgpu"),
            Self::Capture => demand(target.backend == Backend::Cuda, "since graphs are those of cuda"),
            _ => Ok(()),
        }
    }

    /// Whether a case of the lists has a trial in this mode on a target.
    pub fn applies(self, case: &Case, target: &Target) -> bool {
        if case.is_pinned_elsewhere(target.backend) || self.is_possible(case, target).is_err() {
            return false;
        }
        if target.name == "wgpu-plain" {
            return case.is_core && matches!(self, Self::Values | Self::Pool);
        }
        match self {
            Self::Values => true,
            Self::Random => false,
            Self::Bitwise => target.backend == Backend::Cuda || case.is_core,
            Self::Sanitize => case.is_core && target.backend == Backend::Cuda,
            _ => case.is_core,
        }
    }
}

/// How a trial ended, if it did not fail.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Ran; the largest error in units of the contract, where it was measured.
    Ran(Worst),
    /// The device refused the descriptor, as it should; why.
    Refused(String),
}

const APART: Layout = Layout::Apart { shift: 0 };

/// Steps by which `bitwise` shifts operands: all by the same, which in words of four bytes crosses every form that vectors have, and each
/// by its own, so that some lie as vectors and some do not.
const SHIFTS: [[u64; 4]; 6] = [[4; 4], [1; 4], [2; 4], [3; 4], [0, 1, 2, 3], [2, 0, 4, 0]];

/// Runs a case in a mode on a target.
///
/// # Errors
/// Whatever makes the trial fail.
pub fn run(case: &Case, mode: Mode, target: &Target) -> Result<Outcome> {
    let target = target.lane(case.dtype());
    let device = target.device.as_ref().map_err(|why| anyhow::anyhow!("{why}"))?;
    let must_refuse = case.must_be_refused_on(&device.props());
    let plan = match target.plan(case) {
        Ok(_) if must_refuse => bail!("{} must refuse this, and does not", target.name),
        Ok(plan) => plan,
        Err(error) => match refusal(&error) {
            Some(reason) if must_refuse || case.may_be_refused_on(&device.props(), reason) => {
                return Ok(Outcome::Refused(reason.to_string()));
            }
            _ => return Err(error),
        },
    };
    let trial = Trial { case, plan, target, device };
    match mode {
        Mode::Values | Mode::Sanitize => trial.values(),
        Mode::Bitwise => trial.bitwise(),
        Mode::Pool => trial.pool(),
        Mode::InPlace => trial.in_place(),
        Mode::Workspace => trial.workspace(),
        Mode::Threads => trial.threads(),
        Mode::Bind => trial.bind(),
        Mode::Erase => trial.erase(),
        Mode::Record => trial.record(),
        Mode::Capture => trial.capture(),
        Mode::Random => trial.random(),
    }
    .map(Outcome::Ran)
}

/// Runs an executor on an arena and judges everything it did.
///
/// # Errors
/// A write outside the outputs, an error over budget, or an output that proves nothing.
pub fn run_and_judge(
    case: &Case,
    by: By,
    inputs: &Tensors,
    arena: &mut Arena,
    executor: &dyn Executor,
) -> Result<Worst> {
    executor.run(arena)?;
    arena.check_surroundings()?;
    judge(case, by, inputs, &arena.outputs())
}

/// Judges outputs.
///
/// # Errors
/// As [`run_and_judge`].
pub fn judge(case: &Case, by: By, inputs: &Tensors, outputs: &Tensors) -> Result<Worst> {
    let expected = subject(case.descriptor.name())?.expected(&case.descriptor, inputs, outputs, by)?;
    let mut worst = Worst::default();
    for slot in case.slots().iter().filter(|s| s.access != Access::In) {
        let actual = outputs.values(slot.name).with_context(|| format!("no output {}", slot.name))?;
        let expected = expected.iter().find(|e| e.name == slot.name);
        let expected = expected.with_context(|| format!("nothing says what {} should be", slot.name))?;
        let found = compare(slot, actual, expected)?;
        ensure!(found.units <= 1.0, "{}", found.words);
        worst.take(slot.name, found);
        if !case.may_be_constant && is_nearly_constant(actual) {
            bail!("mistrusted: {} is nearly constant, so that its agreement proves nothing", slot.name);
        }
    }
    Ok(worst)
}

struct Trial<'t> {
    case: &'t Case,
    plan: AnyPlan,
    target: &'t Target,
    device: &'t Device,
}

impl Trial<'_> {
    fn arena(&self, inputs: &Tensors, layout: Layout, in_place: InPlace) -> Arena {
        Arena::new(self.plan.slots(), self.plan.workspace(), inputs, layout, in_place, POISON)
    }

    /// Runs on the device, alone.
    fn run(&self, arena: &mut Arena) -> Result<()> {
        let _turn = self.target.turn();
        OnDevice(&self.plan).run(arena)
    }

    fn judged(&self, inputs: &Tensors, mut arena: Arena) -> Result<Worst> {
        self.run(&mut arena)?;
        arena.check_surroundings()?;
        judge(self.case, By::of(&self.plan), inputs, &arena.outputs())
    }

    fn values(&self) -> Result<Worst> {
        let inputs = self.case.inputs(0)?;
        let mut arena = self.arena(&inputs, APART, InPlace::No);
        self.run(&mut arena)?;
        arena.check_surroundings()?;
        let (by, outputs) = (By::of(&self.plan), arena.outputs());
        let worst = judge(self.case, by, &inputs, &outputs)?;
        // What is expected was computed by the CPU backend.
        if self.target.backend == Backend::Cpu && formula::is_cheap(self.case) && is_template(self.case, self.target) {
            formula::judge(self.case, by, &inputs, &outputs)?;
        }
        Ok(worst)
    }

    fn random(&self) -> Result<Worst> {
        let inputs = self.case.inputs(0)?;
        let mut arena = self.arena(&inputs, APART, InPlace::No);
        self.run(&mut arena)?;
        arena.check_surroundings()?;
        // Of a few elements most may be one number.
        let case = Case { may_be_constant: true, ..self.case.clone() };
        let outputs = arena.outputs();
        let by = By::of(&self.plan);
        let worst = judge(&case, by, &inputs, &outputs)?;
        formula::judge(&case, by, &inputs, &outputs)?;
        Ok(worst)
    }

    fn bitwise(&self) -> Result<Worst> {
        let inputs = self.case.inputs(0)?;
        let mut first = self.arena(&inputs, APART, InPlace::No);
        self.run(&mut first)?;
        let step = match self.target.backend {
            Backend::Cpu | Backend::Cuda => Step::Promise,
            Backend::Wgpu => Step::Word,
        };
        for by in SHIFTS {
            let shifted = Layout::Shifted { step, by };
            let mut again = Arena::new(self.plan.slots(), self.plan.workspace(), &inputs, shifted, InPlace::No, 0);
            self.run(&mut again)?;
            again.check_surroundings()?;
            same_bits(&format!("a run with operands shifted by {by:?} times {step:?}"), &first, &again)?;
        }
        Ok(Worst::default())
    }

    fn pool(&self) -> Result<Worst> {
        let inputs = self.case.inputs(0)?;
        let align = if self.target.backend == Backend::Wgpu { 4 } else { 0 };
        let arena = self.arena(&inputs, Layout::Pool { align }, InPlace::No);
        match self.judged(&inputs, arena) {
            // A borrowed device without immediates runs at its adapter's offsets only; bind takes any.
            Err(error) if self.target.name == "wgpu-plain" && is_misaligned(&error) => self.pool_bound(&inputs),
            judged => judged,
        }
    }

    fn pool_bound(&self, inputs: &Tensors) -> Result<Worst> {
        let mut arena = self.arena(inputs, Layout::Pool { align: 4 }, InPlace::No);
        {
            let _turn = self.target.turn();
            let memory = Uploaded::new(self.device, &arena)?;
            let bound = self.plan.bind(&memory.operands(&arena), memory.workspace(&arena))?;
            let mut queue = self.device.queue();
            bound.run(&mut queue)?;
            memory.download(&mut queue, &mut arena)?;
        }
        arena.check_surroundings()?;
        judge(self.case, By::of(&self.plan), inputs, &arena.outputs())
    }

    fn in_place(&self) -> Result<Worst> {
        let inputs = self.case.inputs(0)?;
        let arena = self.arena(&inputs, APART, InPlace::Said);
        self.judged(&inputs, arena).context("said to be in place")?;
        let arena = self.arena(&inputs, Layout::Apart { shift: 1 }, InPlace::SameRange);
        self.judged(&inputs, arena).context("at the identical range")
    }

    fn workspace(&self) -> Result<Worst> {
        let inputs = self.case.inputs(0)?;
        let arena = self.arena(&inputs, APART, InPlace::No);
        if let Some(exact) = arena.workspace {
            let _turn = self.target.turn();
            let memory = Uploaded::new(self.device, &arena)?;
            let mut queue = self.device.queue();
            let short = Place { bytes: exact.bytes - 1, ..exact };
            let result = self.plan.run(&mut queue, &mut memory.operands(&arena), memory.part(short));
            let Err(Error::TooSmall { operand: "workspace", need_bytes, got_bytes, .. }) = result else {
                bail!("one byte of workspace less must be TooSmall, got {result:?}");
            };
            ensure!((need_bytes, got_bytes) == (exact.bytes, short.bytes), "{result:?} for {short:?}");
            let absent = self.plan.run(&mut queue, &mut memory.operands(&arena), Workspace::none());
            ensure!(matches!(absent, Err(Error::TooSmall { operand: "workspace", got_bytes: 0, .. })), "{absent:?}");
            let mut after = arena.clone();
            memory.download(&mut queue, &mut after)?;
            ensure!(after.buffers == arena.buffers, "a refused run wrote something");
        }
        self.judged(&inputs, arena)
    }

    fn threads(&self) -> Result<Worst> {
        let inputs = self.case.inputs(0)?;
        let mut first = self.arena(&inputs, APART, InPlace::No);
        self.run(&mut first)?;
        let _turn = self.target.turn();
        std::thread::scope(|scope| {
            let run = |shift| {
                let (first, inputs, plan) = (&first, &inputs, &self.plan);
                move || -> Result<()> {
                    for _ in 0..2 {
                        let layout = Layout::Apart { shift };
                        let mut arena = Arena::new(plan.slots(), plan.workspace(), inputs, layout, InPlace::No, CANARY);
                        OnDevice(plan).run(&mut arena)?;
                        arena.check_surroundings()?;
                        same_bits("another thread", first, &arena)?;
                    }
                    Ok(())
                }
            };
            let threads: Vec<_> = (0..8).map(|i| scope.spawn(run(i))).collect();
            threads.into_iter().try_for_each(|t| t.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?)
        })?;
        Ok(Worst::default())
    }

    fn bind(&self) -> Result<Worst> {
        let inputs = self.case.inputs(0)?;
        let other = self.case.inputs(1)?;
        let mut plain = self.arena(&inputs, APART, InPlace::No);
        let mut plain_other = self.arena(&other, APART, InPlace::No);
        self.run(&mut plain)?;
        self.run(&mut plain_other)?;

        let _turn = self.target.turn();
        let mut replayed = self.arena(&inputs, APART, InPlace::No);
        let mut replayed_other = self.arena(&other, APART, InPlace::No);
        let memory = Uploaded::new(self.device, &replayed)?;
        let bound = self.plan.bind(&memory.operands(&replayed), memory.workspace(&replayed))?;
        let mut queue = self.device.queue();
        bound.run(&mut queue)?;
        if self.plan.slots().iter().any(|s| s.access == Access::InOut) {
            // What is read and written is other data by now.
            queue.finish()?;
            memory.write(self.device, &replayed)?;
        }
        bound.run(&mut queue)?;
        memory.download(&mut queue, &mut replayed)?;
        replayed.check_surroundings()?;
        same_bits("a replay", &plain, &replayed)?;
        memory.write(self.device, &replayed_other)?;
        bound.run(&mut queue)?;
        memory.download(&mut queue, &mut replayed_other)?;
        replayed_other.check_surroundings()?;
        same_bits("a replay with new data", &plain_other, &replayed_other)?;
        Ok(Worst::default())
    }

    fn erase(&self) -> Result<Worst> {
        let inputs = self.case.inputs(0)?;
        let mut erased = self.arena(&inputs, APART, InPlace::No);
        let mut typed = erased.clone();
        self.run(&mut erased)?;
        {
            let _turn = self.target.turn();
            let memory = Uploaded::new(self.device, &typed)?;
            let mut queue = self.device.queue();
            let run_typed = subject(self.case.descriptor.name())?.run_typed;
            let named = ByName { arena: &typed, memory: &memory };
            run_typed(TypedRun {
                descriptor: &self.case.descriptor,
                device: self.device,
                options: &self.case.options,
                queue: &mut queue,
                named: &named,
                workspace: memory.workspace(&typed),
            })?;
            memory.download(&mut queue, &mut typed)?;
        }
        same_bits("the typed plan", &erased, &typed)?;
        for (i, slot) in self.plan.slots().iter().enumerate() {
            ensure!(self.plan.slot_index(slot.name) == Some(i), "slot_index of {}", slot.name);
        }
        Ok(Worst::default())
    }

    #[cfg(feature = "wgpu")]
    fn record(&self) -> Result<Worst> {
        crate::record::run(self.case, &self.plan, self.target, self.device)
    }

    #[cfg(not(feature = "wgpu"))]
    fn record(&self) -> Result<Worst> {
        bail!("built without the feature wgpu")
    }

    #[cfg(feature = "cuda")]
    fn capture(&self) -> Result<Worst> {
        crate::capture::in_fresh_process(self.case)
    }

    #[cfg(not(feature = "cuda"))]
    fn capture(&self) -> Result<Worst> {
        bail!("built without the feature cuda")
    }
}

fn is_misaligned(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<Error>(), Some(Error::Misaligned { .. }))
}

/// Compares the outputs of two arenas bit by bit.
///
/// # Errors
/// The first that differs.
pub fn same_bits(what: &str, a: &Arena, b: &Arena) -> Result<()> {
    for ((name, a), (_, b)) in a.output_bits().into_iter().zip(b.output_bits()) {
        let Some(at) = a.iter().zip(&b).position(|(a, b)| a != b) else { continue };
        let (a, b) = (f64::from_bits(a[at]), f64::from_bits(b[at]));
        bail!("{what} differs: {name}[{at}] is {b:e}, was {a:e}");
    }
    Ok(())
}

struct ByName<'a> {
    arena: &'a Arena,
    memory: &'a Uploaded,
}

impl ByName<'_> {
    fn find(&self, name: &str) -> Option<(&Slot, Place)> {
        let at = self.arena.slots().iter().position(|s| s.name == name)?;
        Some((&self.arena.slots()[at], self.arena.operands[at]?))
    }
}

impl Named for ByName<'_> {
    fn mem(&self, name: &str) -> Option<Mem<'_>> {
        self.find(name).map(|(slot, place)| self.memory.mem(slot, place))
    }

    fn mem_mut(&self, name: &str) -> Option<MemMut<'_>> {
        self.find(name).map(|(slot, place)| self.memory.mem_mut(slot, place))
    }
}
