//! Inside a framework that has its own wgpu device, pool and encoder: every operand is a range of one buffer, the library records
//! into the framework's pass, and the framework submits.
//!
//! `cargo run --release --example borrow_wgpu`

use std::error::Error;

use baracuda_ops::wgpu::{self, util::DeviceExt};
use baracuda_ops::{
    DType, Mem, MemMut, Plan, PlanOptions, Queue, RmsNormArgs, RmsNormDescriptor, TensorDesc, Workspace,
};

fn main() -> Result<(), Box<dyn Error>> {
    // What the framework has.
    let instance = wgpu::Instance::default();
    let Ok(adapter) = pollster::block_on(instance.request_adapter(&wgpu::RequestAdapterOptions::default())) else {
        println!("no wgpu adapter on this machine: install a Vulkan driver (Mesa's works without a GPU)");
        return Ok(());
    };
    let request = wgpu::DeviceDescriptor {
        required_limits: adapter.limits(),
        required_features: adapter.features() & (wgpu::Features::IMMEDIATES | wgpu::Features::SUBGROUP),
        ..Default::default()
    };
    let (device, queue) = pollster::block_on(adapter.request_device(&request))?;

    // Plan once. The library's handle stands for the framework's device; clone it, do not make it twice.
    let ops = baracuda_ops::Device::wgpu(&device, &queue)?;
    let x = TensorDesc::contiguous(DType::F32, &[64, 512])?;
    let plan = Plan::new(&ops, RmsNormDescriptor::new(x, 1)?.weight(DType::F32)?, &PlanOptions::default())?;
    println!("{ops}: {} needs {} bytes of workspace", plan.info().kernel, plan.workspace().bytes);

    // One pool for everything: x, then weight, then y, then the workspace at its alignment.
    let (x_bytes, weight_bytes) = (x.span_bytes(), 512 * 4);
    let y_at = x_bytes + weight_bytes;
    let scratch_at = (y_at + x_bytes).next_multiple_of(plan.workspace().align);
    let mut contents = vec![1f32; (scratch_at + plan.workspace().bytes.max(4)) as usize / 4];
    contents[..64 * 512].iter_mut().enumerate().for_each(|(i, v)| *v = (i % 7) as f32 - 3.0);
    let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC;
    let init =
        wgpu::util::BufferInitDescriptor { label: Some("pool"), contents: bytemuck::cast_slice(&contents), usage };
    let pool = device.create_buffer_init(&init);

    // Record into the framework's encoder; nothing is submitted here.
    let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    {
        let mut recorder = Queue::wgpu(&ops, &mut encoder)?;
        let args = RmsNormArgs::new(Mem::wgpu(&pool, 0, x_bytes), MemMut::wgpu(&pool, y_at, x_bytes))
            .weight(Mem::wgpu(&pool, x_bytes, weight_bytes));
        let scratch = MemMut::wgpu(&pool, scratch_at, plan.workspace().bytes);
        plan.run(&mut recorder, args, Workspace::new(scratch))?;
    }
    let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
    let shown =
        device.create_buffer(&wgpu::BufferDescriptor { label: None, size: 28, usage, mapped_at_creation: false });
    encoder.copy_buffer_to_buffer(&pool, y_at, &shown, 0, 28);
    queue.submit([encoder.finish()]);
    shown.map_async(wgpu::MapMode::Read, .., |_| {});
    device.poll(wgpu::PollType::wait_indefinitely())?;
    let view = shown.get_mapped_range(..)?;
    println!("{:.3?}", bytemuck::cast_slice::<u8, f32>(&view));
    Ok(())
}
