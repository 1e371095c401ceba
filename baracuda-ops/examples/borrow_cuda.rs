//! Inside a framework that has its own cudarc context, stream and slices: the first run is captured into a CUDA graph, and the framework
//! replays the graph with new data.
//!
//! `cargo run --release --features cuda --example borrow_cuda`

use std::error::Error;

use baracuda_ops::cudarc::driver::{CudaContext, sys};
use baracuda_ops::{
    DType, Device, Mem, MemMut, Plan, PlanOptions, Queue, RmsNormArgs, RmsNormDescriptor, TensorDesc, Workspace,
};

const ROWS: usize = 64;
const COLS: usize = 512;

fn main() -> Result<(), Box<dyn Error>> {
    // cudarc panics where there is no driver; the library says what is missing.
    if let Err(error) = Device::cuda(0) {
        println!("no CUDA device on this machine: {error}");
        return Ok(());
    }
    // What the framework has. Graphs cannot wait for the events by which cudarc orders streams.
    let context = CudaContext::new(0)?;
    // SAFETY: all work is on one stream.
    unsafe { context.disable_event_tracking() };
    let stream = context.new_stream()?;
    let mut x = stream.alloc_zeros::<f32>(ROWS * COLS)?;
    let weight = stream.clone_htod(&vec![2f32; COLS])?;
    let mut y = stream.alloc_zeros::<f32>(ROWS * COLS)?;

    // Plan once, which loads the kernels. The library's handle stands for the framework's context; clone it, do not make it twice.
    let ops = Device::cudarc(&context)?;
    let desc = TensorDesc::contiguous(DType::F32, &[ROWS as u64, COLS as u64])?;
    let plan = Plan::new(&ops, RmsNormDescriptor::new(desc, 1)?.weight(DType::F32)?, &PlanOptions::default())?;
    println!("{ops}: {} needs {} bytes of workspace", plan.info().kernel, plan.workspace().bytes);
    let mut scratch = stream.alloc_zeros::<u8>(plan.workspace().bytes.max(1) as usize)?;
    let mut queue = Queue::cudarc(&ops, &stream)?;

    // Record into the framework's graph; nothing is launched here. What ran wrong is known after the capture has ended.
    stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL)?;
    let ran = {
        let (x, weight) = (Mem::cudarc(&x, &stream), Mem::cudarc(&weight, &stream));
        let (mut y, mut scratch) = (MemMut::cudarc(&mut y, &stream), MemMut::cudarc(&mut scratch, &stream));
        plan.run(&mut queue, RmsNormArgs::new(&x, &mut y).weight(&weight), Workspace::new(&mut scratch))
    };
    let graph = stream.end_capture(sys::CUgraphInstantiate_flags(0))?;
    ran?;
    let graph = graph.ok_or("the stream captured no graph")?;

    for replay in 0..3 {
        let data: Vec<f32> = (0..ROWS * COLS).map(|i| ((i * 7 + replay * 3) % 11) as f32 - 5.0).collect();
        stream.memcpy_htod(&data, &mut x)?;
        graph.launch()?;
        let results = stream.clone_dtoh(&y)?;
        stream.synchronize()?;
        for (row, results) in data.chunks(COLS).zip(results.chunks(COLS)) {
            let mean_square = row.iter().map(|x| f64::from(x * x)).sum::<f64>() / COLS as f64;
            let is_right = |(x, y): (&f32, &f32)| {
                (f64::from(*y) - 2.0 * f64::from(*x) / (mean_square + 1e-5).sqrt()).abs() <= 1e-5
            };
            if !row.iter().zip(results).all(is_right) {
                return Err(format!("replay {replay}: {row:?} became {results:?}").into());
            }
        }
        println!("replayed with new data: {:.3?}", &results[..7]);
    }
    Ok(())
}
