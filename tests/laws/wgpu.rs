//! What only buffers, encoders and devices of the caller can show.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use baracuda_ops::{
    Device, Error, LayerNormArgs, LayerNormDescriptor, Mem, MemMut, Plan, PlanOptions, Queue, Workspace,
};
use baracuda_ops_tests::case::Case;
use baracuda_ops_tests::modes::{self, Mode, Outcome};
use baracuda_ops_tests::target::{full_device, plain_device, target};
use wgpu::BufferUsages;

use crate::x;

/// Bytes of an operand of `x(&[4, 8])`.
const BYTES: u64 = 4 * 8 * 4;

type Law = fn() -> Result<()>;

/// The laws and their names.
pub(crate) const LAWS: [(&str, Law); 6] = [
    ("buffers_that_cannot_be_bound_are_named", unusable_buffers),
    ("what_is_not_submitted_cannot_be_had", unsubmitted),
    ("offsets_without_immediates_are_for_bind", offsets),
    ("writes_of_half_words_leave_the_other_half", half_words),
    ("devices_without_compute_are_refused", no_compute),
    ("grids_of_two_dimensions_reach_every_workgroup", grids),
];

fn buffer(device: &wgpu::Device, size: u64, usage: BufferUsages) -> wgpu::Buffer {
    device.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false })
}

fn plan(device: &Device) -> Result<Plan<LayerNormDescriptor>> {
    Ok(Plan::new(device, LayerNormDescriptor::new(x(&[4, 8]), 1)?, &PlanOptions::default())?)
}

/// A device as applications that draw in browsers request it.
fn no_compute() -> Result<()> {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let adapters = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::PRIMARY));
    let adapter = adapters.first().context("no wgpu adapter")?;
    let required_limits = wgpu::Limits::downlevel_webgl2_defaults();
    let descriptor = wgpu::DeviceDescriptor { required_limits, ..Default::default() };
    let (device, queue) = pollster::block_on(adapter.request_device(&descriptor))?;
    let refused = Device::wgpu(&device, &queue);
    ensure!(matches!(&refused, Err(Error::NoDevice { reason, .. }) if reason.contains("limits")), "{refused:?}");
    Ok(())
}

/// Two devices of one instance: wgpu cannot tell the buffers of another from its own.
fn siblings() -> Result<[(wgpu::Device, wgpu::Queue); 2]> {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let adapters = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::PRIMARY));
    let adapter = adapters.first().context("no wgpu adapter")?;
    let descriptor = wgpu::DeviceDescriptor { required_limits: adapter.limits(), ..Default::default() };
    let device = || pollster::block_on(adapter.request_device(&descriptor));
    Ok([device()?, device()?])
}

fn unusable_buffers() -> Result<()> {
    let [(device, queue), (other, _other_queue)] = siblings()?;
    device.on_uncaptured_error(Arc::new(|error| panic!("outside of any scope: {error}")));
    let ops = Device::wgpu(&device, &queue)?;
    let plan = plan(&ops)?;
    let run = |x: &wgpu::Buffer, y: &wgpu::Buffer| {
        let args = LayerNormArgs::new(Mem::wgpu(x, 0, BYTES), MemMut::wgpu(y, 0, BYTES));
        plan.run(&mut ops.queue(), args, Workspace::none())
    };
    let storage = |size| buffer(&device, size, BufferUsages::STORAGE);
    let usable = storage(BYTES);
    // Larger than what one binding takes, of which the operand is a part.
    let limits = device.limits();
    let pool = storage((2 * limits.max_storage_buffer_binding_size).min(limits.max_buffer_size).min(1 << 28));
    run(&usable, &pool)?;
    let copied = buffer(&device, BYTES, BufferUsages::COPY_SRC | BufferUsages::COPY_DST);
    let destroyed = storage(BYTES);
    destroyed.destroy();
    let foreign = buffer(&other, BYTES, BufferUsages::STORAGE);
    for (y, says) in [
        (&copied, "layer_norm: the buffer of operand y lacks the usage STORAGE"),
        (&destroyed, "layer_norm: the buffer of operand y has been destroyed"),
        (&foreign, "layer_norm: y is on another wgpu device"),
    ] {
        for x in [&usable, &pool] {
            let error = run(x, y).map_or_else(|error| error.to_string(), |()| "accepted".into());
            ensure!(error.starts_with(says), "{error:?} is not {says:?}");
        }
    }
    ensure!(matches!(run(&copied, &usable), Err(Error::UnusableBuffer { operand: "x", .. })));
    let again = Device::wgpu(&device, &queue)?;
    let args = LayerNormArgs::new(Mem::wgpu(&usable, 0, BYTES), MemMut::wgpu(&pool, 0, BYTES));
    let error = plan.run(&mut again.queue(), args, Workspace::none()).unwrap_err().to_string();
    ensure!(error.contains("another handle") && error.contains("clone"), "{error}");
    Ok(ops.queue().finish()?)
}

fn unsubmitted() -> Result<()> {
    let (device, queue) = full_device()?;
    let ops = Device::wgpu(&device, &queue)?;
    let (input, output) = (ops.upload(&[1f32; 32])?, ops.upload(&[7f32; 32])?);
    let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    {
        let mut recorder = Queue::wgpu(&ops, &mut encoder)?;
        plan(&ops)?.run(&mut recorder, LayerNormArgs::new(&input, &output), Workspace::none())?;
        ensure!(matches!(recorder.download::<f32>(&output), Err(Error::Unsubmitted { .. })));
    }
    queue.submit([encoder.finish()]);
    ensure!(ops.queue().download::<f32>(&output)? == [0f32; 32]);
    let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    let error = Queue::wgpu(&Device::cpu(), &mut encoder).unwrap_err().to_string();
    ensure!(error == "queue: queue is on cpu, must be on a wgpu device", "{error}");
    Ok(())
}

fn offsets() -> Result<()> {
    let (device, queue) = plain_device()?;
    let ops = Device::wgpu(&device, &queue)?;
    let plan = plan(&ops)?;
    let pool = buffer(&device, 1024, BufferUsages::STORAGE);
    let args = || LayerNormArgs::new(Mem::wgpu(&pool, 4, BYTES), MemMut::wgpu(&pool, 512, BYTES));
    let error = plan.run(&mut ops.queue(), args(), Workspace::none()).unwrap_err();
    ensure!(matches!(error, Error::Misaligned { operand: "x", at: 4, .. }), "{error:?}");
    ensure!(error.to_string().contains("bind"), "{error}");
    plan.bind(args(), Workspace::none())?.run(&mut ops.queue())?;
    Ok(ops.queue().finish()?)
}

/// Cases whose dispatches all have more workgroups than `wgpu-plain` has in one dimension.
fn grids() -> Result<()> {
    let plain = target("wgpu-plain").context("no target wgpu-plain")?;
    for case in [
        // A workgroup a row.
        r#"softmax {"x":{"dtype":"f32","dims":[17,1000]},"axis":1}"#,
        r#"layer_norm {"x":{"dtype":"f32","dims":[17,1000]},"normalized_dims":1,"weight":"f32","eps":1e-5}"#,
        // 70 workgroups for the sums of 1105 segments and again for dx, 17 for the means of 17 groups of 65 parts.
        r#"group_norm_backward {"x":{"dtype":"f32","dims":[17,65,32]},"groups":1,"weight":"f32","dx":true}"#,
    ] {
        let outcome = modes::run(&Case::parse(case)?, Mode::Values, plain).context(case)?;
        ensure!(matches!(outcome, Outcome::Ran(_)), "{case}: {outcome:?}");
    }
    Ok(())
}

/// Threads that each write one half of a word, as uploads of 16-bit tensors to one pool do.
fn half_words() -> Result<()> {
    const HALVES: u16 = 8;
    let (device, queue) = full_device()?;
    let ops = Device::wgpu(&device, &queue)?;
    for _ in 0..10 {
        let pool = ops.alloc(2 * u64::from(HALVES))?;
        std::thread::scope(|scope| {
            let write = |half: u16| ops.write(&pool, 2 * u64::from(half), &(half + 1).to_le_bytes());
            let threads: Vec<_> = (0..HALVES).map(|half| scope.spawn(move || write(half))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("a write does not panic"))
        })?;
        let words = ops.queue().download::<u32>(&pool)?;
        let halves: Vec<u32> = words.iter().flat_map(|word| [word & 0xffff, word >> 16]).collect();
        ensure!(halves == [1, 2, 3, 4, 5, 6, 7, 8], "{halves:?}");
    }
    Ok(())
}
