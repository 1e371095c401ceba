//! Normalises real images, 256 scanned digits of 8 x 8 pixels, on the best device of this machine, and compares with PyTorch.
//!
//! `cargo run --release --example quickstart`

use std::error::Error;
use std::time::Instant;

use baracuda_ops::{Device, LayerNormArgs, LayerNormDescriptor, Plan, PlanOptions, Workspace};
use safetensors::SafeTensors;

fn main() -> Result<(), Box<dyn Error>> {
    // A case file: the descriptor as JSON, the inputs, and what PyTorch computed from them in float64.
    let file = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/digits.safetensors"))?;
    let case = SafeTensors::deserialize(&file)?;
    let (_, header) = SafeTensors::read_metadata(&file)?;
    let json = &header.metadata().as_ref().ok_or("the case has no metadata")?["descriptor"];
    let input = |name: &str| -> Result<Vec<f32>, Box<dyn Error>> {
        let bytes = case.tensor(name)?.data().as_chunks::<4>().0.to_vec();
        Ok(bytes.into_iter().map(f32::from_le_bytes).collect())
    };

    // 1. Describe: LayerNorm over rows of 64 pixels, with weight and bias, saving mean and rstd for a backward pass.
    let descriptor: LayerNormDescriptor = serde_json::from_str(json)?;

    // 2. Plan, once: the kernel is chosen, everything slow happens here.
    let device = Device::best();
    let plan = Plan::new(&device, descriptor, &PlanOptions::default())?;
    println!("{device}: {} needs {} bytes of workspace", plan.info().kernel, plan.workspace().bytes);

    // 3. Run, many times: each run checks its operands and enqueues.
    let (x, weight, bias) = (input("in.x")?, input("in.weight")?, input("in.bias")?);
    let (x, weight, bias) = (device.upload(&x)?, device.upload(&weight)?, device.upload(&bias)?);
    let (y, mean, rstd) = (device.alloc(256 * 64 * 4)?, device.alloc(256 * 4)?, device.alloc(256 * 4)?);
    let scratch = device.alloc(plan.workspace().bytes)?;
    let mut queue = device.queue();
    let start = Instant::now();
    for _ in 0..1000 {
        let args = LayerNormArgs::new(&x, &y).weight(&weight).bias(&bias).stats(&mean, &rstd);
        plan.run(&mut queue, args, Workspace::new(&scratch))?;
    }
    queue.finish()?;
    println!("1000 runs in {:.1} ms", start.elapsed().as_secs_f64() * 1e3);

    let got = queue.download::<f32>(&y)?;
    let expected = case.tensor("out.y")?.data().as_chunks::<8>().0.to_vec();
    let error = |(got, want): (&f32, [u8; 8])| (f64::from(*got) - f64::from_le_bytes(want)).abs();
    let worst = got.iter().zip(expected).map(error).fold(0.0, f64::max);
    println!("largest difference from PyTorch in float64: {worst:.1e}");
    for row in got.chunks(64).take(1).flat_map(|image| image.chunks(8)) {
        println!(
            "{}",
            row.iter()
                .map(|v| [' ', '.', ':', 'o', '#'][((v + 1.0) * 2.0).clamp(0.0, 4.0) as usize])
                .collect::<String>()
        );
    }
    if worst < 1e-5 { Ok(()) } else { Err(format!("{worst} is too far off").into()) }
}
