//! Runs recorded for the caller: into one encoder with one submit, and into the caller's own pass, on the caller's buffers.

use std::sync::{LazyLock, Mutex, PoisonError};

use anyhow::{Context, Result, anyhow};
use baracuda_ops::{Access, AnyPlan, Device, Mem, MemMut, Operand, Queue, Slot, Workspace};

use crate::arena::{Arena, InPlace, Layout, POISON, Place};
use crate::case::Case;
use crate::exec::{Executor, OnDevice};
use crate::judge::Worst;
use crate::modes::same_bits;
use crate::target::{Target, full_device};

/// A device as a framework has it: its own, with what the adapter offers, and lent to the library.
struct Lender {
    device: wgpu::Device,
    queue: wgpu::Queue,
    handle: Device,
}

static LENDER: LazyLock<Result<Mutex<Lender>, String>> =
    LazyLock::new(|| lender().map(Mutex::new).map_err(|e| format!("{e:#}")));

fn lender() -> Result<Lender> {
    let (device, queue) = full_device()?;
    let handle = Device::wgpu(&device, &queue)?;
    Ok(Lender { device, queue, handle })
}

/// The caller's buffers.
struct Lent(Vec<wgpu::Buffer>);

impl Lent {
    fn new(lender: &Lender, arena: &Arena) -> Self {
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let buffers = arena.buffers.iter().map(|bytes| {
            let size = bytes.len() as u64;
            let descriptor = wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
            let buffer = lender.device.create_buffer(&descriptor);
            lender.queue.write_buffer(&buffer, 0, bytes);
            buffer
        });
        Self(buffers.collect())
    }

    fn operands<'a>(&'a self, arena: &Arena) -> Vec<Operand<'a>> {
        let of = |(slot, place): (&Slot, &Option<Place>)| match place {
            None => Mem::in_place().into(),
            Some(p) if slot.access == Access::In => Mem::wgpu(&self.0[p.buffer], p.offset, p.bytes).into(),
            Some(p) => MemMut::wgpu(&self.0[p.buffer], p.offset, p.bytes).into(),
        };
        arena.slots().iter().zip(&arena.operands).map(of).collect()
    }

    fn workspace<'a>(&'a self, arena: &Arena) -> Workspace<'a> {
        let of = |p: Place| Workspace::new(MemMut::wgpu(&self.0[p.buffer], p.offset, p.bytes));
        arena.workspace.map_or(Workspace::none(), of)
    }

    fn download(&self, lender: &Lender, arena: &mut Arena) -> Result<()> {
        for (buffer, bytes) in self.0.iter().zip(&mut arena.buffers) {
            let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
            let descriptor =
                wgpu::BufferDescriptor { label: None, size: buffer.size(), usage, mapped_at_creation: false };
            let staging = lender.device.create_buffer(&descriptor);
            let mut encoder = lender.device.create_command_encoder(&Default::default());
            encoder.copy_buffer_to_buffer(buffer, 0, &staging, 0, buffer.size());
            lender.queue.submit([encoder.finish()]);
            staging.map_async(wgpu::MapMode::Read, .., |_| {});
            lender.device.poll(wgpu::PollType::wait_indefinitely())?;
            bytes.copy_from_slice(&staging.get_mapped_range(..).map_err(|e| anyhow!("{e}"))?);
        }
        Ok(())
    }
}

/// Records a case into an encoder and into a pass and compares both with a plain run.
///
/// # Errors
/// Different bits, or writes outside the outputs.
pub(crate) fn run(case: &Case, _: &AnyPlan, target: &Target, _: &Device) -> Result<Worst> {
    let inputs = case.inputs(0)?;
    let _turn = target.turn();
    let lender = LENDER.as_ref().map_err(|why| anyhow!("{why}"))?.lock().unwrap_or_else(PoisonError::into_inner);
    let plan = case.plan(&lender.handle)?;
    let arena = || {
        let layout = Layout::Apart { shift: 0 };
        Arena::new(plan.slots(), plan.workspace(), &inputs, layout, InPlace::No, POISON)
    };
    let mut plain = arena();
    OnDevice(&plan).run(&mut plain)?;

    let (mut first, mut second, mut third) = (arena(), arena(), arena());
    let (a, b, c) = (Lent::new(&lender, &first), Lent::new(&lender, &second), Lent::new(&lender, &third));
    let mut encoder = lender.device.create_command_encoder(&Default::default());
    {
        // One pass holds both runs.
        let mut queue = Queue::wgpu(&lender.handle, &mut encoder)?;
        plan.run(&mut queue, &mut a.operands(&first), a.workspace(&first))?;
        plan.run(&mut queue, &mut b.operands(&second), b.workspace(&second))?;
    }
    {
        let mut pass = encoder.begin_compute_pass(&Default::default()).forget_lifetime();
        let mut queue = Queue::wgpu_pass(&lender.handle, &mut pass)?;
        plan.run(&mut queue, &mut c.operands(&third), c.workspace(&third))?;
    }
    // Nothing has been submitted yet: the outputs are still poison.
    let mut untouched = first.clone();
    a.download(&lender, &mut untouched)?;
    anyhow::ensure!(untouched.buffers == first.buffers, "a recorded run had an effect before the caller submitted it");
    lender.queue.submit([encoder.finish()]);
    for (what, lent, arena) in
        [("encoder", &a, &mut first), ("encoder, again", &b, &mut second), ("pass", &c, &mut third)]
    {
        lent.download(&lender, arena)?;
        arena.check_surroundings().context(what)?;
        same_bits(what, &plain, arena)?;
    }
    Ok(Worst::default())
}
