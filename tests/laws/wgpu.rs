//! What only buffers, encoders and devices of the caller can show.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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

/// Set in the process that only opens devices.
pub(crate) const OPEN: &str = "BOPS_OPEN_DEVICES";

/// The laws and their names.
pub(crate) const LAWS: [(&str, Law); 15] = [
    ("invalid_work_of_one_queue_takes_no_other_with_it", invalid_work),
    ("owned_queues_share_one_order", one_order),
    ("a_queue_that_is_not_the_devices_own_is_refused", foreign_queue),
    ("destroyed_devices_are_lost", destroyed_devices),
    ("buffers_above_the_limit_are_refused_with_it", large_buffers),
    ("the_largest_binding_is_bound", largest_binding),
    ("flushed_work_comes_before_the_callers", flushed),
    ("libraries_open_devices_without_a_word", quiet),
    ("buffers_that_cannot_be_bound_are_named", unusable_buffers),
    ("what_is_not_submitted_cannot_be_had", unsubmitted),
    ("offsets_without_immediates_are_for_bind", offsets),
    ("writes_of_half_words_leave_the_other_half", half_words),
    ("devices_without_compute_are_refused", no_compute),
    ("grids_of_two_dimensions_reach_every_workgroup", grids),
    ("a_run_inside_of_another_pass_fails_when_the_encoder_is_finished", inside_of_a_pass),
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
        ensure!(matches!(recorder.finish(), Err(Error::Unsubmitted { op: "finish" })));
        ensure!(matches!(recorder.flush(), Err(Error::Unsubmitted { op: "flush" })));
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

/// Runs of two queues, one of which uses a buffer that is destroyed before anything is submitted.
fn invalid_work() -> Result<()> {
    let (device, queue) = full_device()?;
    device.on_uncaptured_error(Arc::new(|error| panic!("outside of any scope: {error}")));
    let ops = Device::wgpu(&device, &queue)?;
    let plan = plan(&ops)?;
    let input = ops.upload(&[1f32; 32])?;
    let tells = |told: Result<(), Error>| match &told {
        Err(Error::Backend { detail, .. }) if detail.contains("destroyed") => Ok(()),
        _ => Err(anyhow::anyhow!("{told:?} says nothing of a destroyed buffer")),
    };
    for how in ["dropped", "finished", "flushed", "finished last", "another write"] {
        let (first, second) = (ops.upload(&[7f32; 32])?, ops.upload(&[7f32; 32])?);
        let lent = buffer(&device, BYTES, BufferUsages::STORAGE);
        let (mut valid, mut invalid) = (ops.queue(), ops.queue());
        plan.run(&mut valid, LayerNormArgs::new(&input, &first), Workspace::none())?;
        let bad = || LayerNormArgs::new(&input, MemMut::wgpu(&lent, 0, BYTES));
        plan.run(&mut invalid, bad(), Workspace::none())?;
        plan.run(&mut valid, LayerNormArgs::new(&first, &second), Workspace::none())?;
        lent.destroy();
        match how {
            "dropped" => {
                drop(invalid);
                tells(valid.finish())?;
            }
            "finished" => {
                tells(invalid.finish())?;
                invalid.finish()?;
            }
            "flushed" => {
                tells(invalid.flush())?;
                invalid.flush()?;
            }
            "finished last" => {
                valid.finish()?;
                tells(invalid.finish())?;
            }
            _ => {
                ops.write(&ops.alloc(4)?, 0, &[1; 4])?;
                tells(invalid.finish())?;
            }
        }
        valid.finish()?;
        for (name, output) in [("first", first), ("second", second)] {
            let found = valid.download::<f32>(&output)?;
            ensure!(found == [0f32; 32], "{how}: the {name} valid run is lost: {found:?}");
        }
    }
    // A queue that recorded both has lost the one alone.
    let output = ops.upload(&[7f32; 32])?;
    let mapped = buffer(&device, BYTES, BufferUsages::STORAGE);
    let mut both = ops.queue();
    plan.run(&mut both, LayerNormArgs::new(&input, MemMut::wgpu(&mapped, 0, BYTES)), Workspace::none())?;
    plan.run(&mut both, LayerNormArgs::new(&input, &output), Workspace::none())?;
    mapped.destroy();
    tells(both.download::<f32>(&output).map(|_| ()))?;
    ensure!(both.download::<f32>(&output)? == [0f32; 32]);
    Ok(())
}

/// A chain of runs, each on another queue than the one before, and more of them than one submission holds.
fn one_order() -> Result<()> {
    let (device, queue) = full_device()?;
    let ops = Device::wgpu(&device, &queue)?;
    let plan = plan(&ops)?;
    let ramp: Vec<f32> = (0..32).map(|i| (i % 8) as f32).collect();
    let (x, y) = (ops.upload(&ramp)?, ops.upload(&[7f32; 32])?);
    let mut queues = [ops.queue(), ops.queue(), ops.queue()];
    plan.run(&mut queues[0], LayerNormArgs::new(&x, &y), Workspace::none())?;
    let once = queues[0].download::<f32>(&y)?;
    let tensors: Vec<_> = (0..300).map(|_| ops.upload(&[7f32; 32])).collect::<Result<_, _>>()?;
    plan.run(&mut queues[2], LayerNormArgs::new(&x, &tensors[0]), Workspace::none())?;
    for (i, pair) in tensors.windows(2).enumerate() {
        plan.run(&mut queues[i % 3], LayerNormArgs::new(&pair[0], &pair[1]), Workspace::none())?;
    }
    let last = queues[1].download::<f32>(&tensors[299])?;
    let most = once.iter().zip(&last).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
    // What has mean 0 and variance 1 stays as it is, but for eps, which takes 5e-6 of it each time.
    ensure!(most < 4e-3, "{last:?} is not near {once:?}");
    Ok(())
}

fn foreign_queue() -> Result<()> {
    let [(device, queue), (other, other_queue)] = siblings()?;
    for device in [&device, &other] {
        device.on_uncaptured_error(Arc::new(|error| panic!("outside of any scope: {error}")));
    }
    let refused = Device::wgpu(&device, &other_queue);
    ensure!(matches!(refused, Err(Error::WrongDevice { operand: "queue", .. })), "{refused:?}");
    // Also where the other one is at work, and polled, all the while.
    let is_done = AtomicBool::new(false);
    let refused = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                other_queue.submit([]);
                let _ = other.poll(wgpu::PollType::Poll);
            }
        });
        let refused = Device::wgpu(&device, &other_queue);
        is_done.store(true, Ordering::Relaxed);
        refused
    });
    ensure!(matches!(refused, Err(Error::WrongDevice { operand: "queue", .. })), "{refused:?}");
    for (device, queue) in [(&device, &queue), (&other, &other_queue)] {
        let ops = Device::wgpu(device, queue)?;
        ensure!(ops.queue().download::<f32>(&ops.upload(&[1f32])?)? == [1f32]);
    }
    Ok(())
}

fn destroyed_devices() -> Result<()> {
    let (device, queue) = full_device()?;
    device.on_uncaptured_error(Arc::new(|error| panic!("outside of any scope: {error}")));
    let heard = Arc::new(AtomicBool::new(false));
    let hear = heard.clone();
    device.set_device_lost_callback(move |_, _| hear.store(true, Ordering::Relaxed));
    let ops = Device::wgpu(&device, &queue)?;
    let plan_of = || plan(&ops).map_err(|error| error.downcast::<Error>().expect("the library's"));
    let plan = plan_of()?;
    let (input, output) = (ops.upload(&[1f32; 32])?, ops.alloc(BYTES)?);
    let (mut idle, mut busy) = (ops.queue(), ops.queue());
    plan.run(&mut busy, LayerNormArgs::new(&input, &output), Workspace::none())?;
    device.destroy();
    let lost = |what: &str, told: Option<Error>| {
        ensure!(matches!(told, Some(Error::DeviceLost { .. })), "{what}: {told:?}");
        Ok(())
    };
    lost("alloc", ops.alloc(4).err())?;
    lost("plan", plan_of().err())?;
    lost("write", ops.write(&input, 0, &[0; 4]).err())?;
    lost("idle", idle.finish().err())?;
    // A run may know it or not; who waits for it does.
    let _ = plan.run(&mut busy, LayerNormArgs::new(&input, &output), Workspace::none());
    lost("busy", busy.finish().err())?;
    lost("download", busy.download::<f32>(&output).err())?;
    lost("upload", ops.upload(&[1f32]).err())?;
    lost("device", Device::wgpu(&device, &queue).err())?;
    ensure!(heard.load(Ordering::Relaxed), "the caller's callback has been displaced");
    Ok(())
}

fn large_buffers() -> Result<()> {
    let (device, queue) = plain_device()?;
    let ops = Device::wgpu(&device, &queue)?;
    let limit = device.limits().max_buffer_size;
    for bytes in [limit + 1, u64::MAX] {
        let error = ops.alloc(bytes).unwrap_err().to_string();
        ensure!(error.contains(&bytes.to_string()) && error.contains(&limit.to_string()), "{error}");
    }
    Ok(())
}

/// A tensor as large as a binding may be is bound where a binding can start, and refused with the reason elsewhere.
fn largest_binding() -> Result<()> {
    const LIMIT: u64 = 1 << 12;
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let adapters = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::PRIMARY));
    let adapter = adapters.first().context("no wgpu adapter")?;
    let descriptor = wgpu::DeviceDescriptor {
        required_features: adapter.features() & (wgpu::Features::SUBGROUP | wgpu::Features::IMMEDIATES),
        required_limits: wgpu::Limits { max_storage_buffer_binding_size: LIMIT, ..adapter.limits() },
        ..Default::default()
    };
    let (device, queue) = pollster::block_on(adapter.request_device(&descriptor))?;
    let ops = Device::wgpu(&device, &queue)?;
    let plan_of = |rows| -> Result<_> {
        Ok(Plan::new(&ops, LayerNormDescriptor::new(x(&[rows, 32]), 1)?, &PlanOptions::default())?)
    };
    let plan = plan_of(LIMIT / 128)?;
    let refused = plan_of(LIMIT / 128 + 1).unwrap_err().to_string();
    ensure!(refused.contains(&LIMIT.to_string()), "{refused}");
    let (input, output) = (ops.upload(&vec![1f32; 2 * LIMIT as usize / 4])?, ops.upload(&[7f32; LIMIT as usize / 4])?);
    let run = |offset| {
        let mut queue = ops.queue();
        plan.run(&mut queue, LayerNormArgs::new(Mem::buffer(&input, offset, LIMIT), &output), Workspace::none())?;
        queue.download::<f32>(&output)
    };
    ensure!(run(0)? == [0f32; LIMIT as usize / 4]);
    run(u64::from(device.limits().min_storage_buffer_offset_alignment))?;
    // Where a binding can start at any word, there is nothing to refuse.
    if device.limits().min_storage_buffer_offset_alignment > 4 {
        let error = run(4).unwrap_err();
        ensure!(matches!(error, Error::Misaligned { operand: "x", at: 4, .. }), "{error:?}");
    }
    Ok(())
}

/// What the caller submits after a flush comes after the runs, on a borrowed device and on one of the library.
fn flushed() -> Result<()> {
    let (device, queue) = full_device()?;
    for ops in [Device::wgpu(&device, &queue)?, Device::wgpu_default()?] {
        let (device, queue) = ops.wgpu_handles().context("no handles")?;
        let plan = plan(&ops)?;
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
        let (input, output) = (ops.upload(&[1f32; 32])?, buffer(device, BYTES, usage));
        queue.write_buffer(&output, 0, &[1; BYTES as usize]);
        let mut lent = ops.queue();
        plan.run(&mut lent, LayerNormArgs::new(&input, MemMut::wgpu(&output, 0, BYTES)), Workspace::none())?;
        lent.flush()?;
        let copy = buffer(device, BYTES, BufferUsages::MAP_READ | BufferUsages::COPY_DST);
        let mut encoder = device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(&output, 0, &copy, 0, BYTES);
        queue.submit([encoder.finish()]);
        copy.map_async(wgpu::MapMode::Read, .., |_| {});
        device.poll(wgpu::PollType::wait_indefinitely())?;
        ensure!(copy.get_mapped_range(..)?.iter().all(|byte| *byte == 0), "the copy came before the run");
    }
    ensure!(Device::cpu().wgpu_handles().is_none());
    Ok(Device::cpu().queue().flush()?)
}

/// Opens every device and says how many there are.
pub(crate) fn open() -> String {
    Device::wgpu_all().len().to_string()
}

fn inside_of_a_pass() -> Result<()> {
    let (device, queue) = full_device()?;
    let ops = Device::wgpu(&device, &queue)?;
    let (plan, input, output) = (plan(&ops)?, ops.upload(&[1f32; 32])?, ops.alloc(BYTES)?);
    let mut encoder = device.create_command_encoder(&Default::default());
    let pass = encoder.begin_compute_pass(&Default::default()).forget_lifetime();
    let mut inner = Queue::wgpu(&ops, &mut encoder)?;
    plan.run(&mut inner, LayerNormArgs::new(&input, &output), Workspace::none())?;
    drop(inner);
    let errors = device.push_error_scope(wgpu::ErrorFilter::Validation);
    drop(pass);
    let _ = encoder.finish();
    let error = pollster::block_on(errors.pop()).context("the encoder was finished without an error")?;
    ensure!(error.to_string().contains("pass"), "{error}");
    Ok(())
}

/// A machine without a desktop session sets none of its variables, of which drivers may complain.
fn quiet() -> Result<()> {
    let mut child = Command::new(std::env::current_exe()?);
    for variable in ["XDG_RUNTIME_DIR", "WAYLAND_DISPLAY", "DISPLAY"] {
        child.env_remove(variable);
    }
    let output = child.env(OPEN, "1").output()?;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success() && out.trim().parse::<usize>()? > 0, "{out} {err}");
    ensure!(err.is_empty(), "opening devices printed {err:?}");
    Ok(())
}
