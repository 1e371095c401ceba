//! Laws that only a CUDA device can show.

use std::process::{Command, ExitCode};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use baracuda_ops::{
    Access, AnyDescriptor, AnyPlan, Buffer, DType, Device, Error, LayerNormArgs, LayerNormDescriptor, Mem, MemMut,
    Operand, Plan, PlanOptions, Queue, TensorDesc, Workspace,
};
use baracuda_ops_tests::capture::{Captured, make_current};
use baracuda_ops_tests::case::Case;
use baracuda_ops_tests::judge::By;
use baracuda_ops_tests::modes::judge;
use baracuda_ops_tests::target::target;
use baracuda_ops_tests::values::{Tensors, gather, scatter};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, CudaView, CudaViewMut, result, sys};

use super::Outcome;

/// Set in the process that prepares kernels before it captures any.
const PREPARE: &str = "BOPS_PREPARE_KERNELS";

/// Tries a law of the list in `main.rs`.
pub(super) fn law(name: &str) -> Outcome {
    let tried = match name {
        "more_than_2_to_the_31_elements" => more_than_2_to_the_31(),
        "products_of_more_than_2_to_the_31_elements" => {
            device().and_then(|device| super::products::more_than_2_to_the_31(&device))
        }
        "convolutions_of_more_than_2_to_the_31_elements" => {
            device().and_then(|device| super::convolutions::more_than_2_to_the_31(&device))
        }
        "late_blocks_give_what_others_give" => late_blocks(),
        "kernels_that_differ_by_columns_are_each_prepared" => in_fresh_process(),
        "memory_and_streams_of_cudarc" => interop(),
        _ => Err(anyhow::anyhow!("no law {name}")),
    };
    tried.map_err(|error| format!("{error:#}").into())
}

/// Whether the device's memory suffices for a law; why not.
pub(super) fn has_memory(law: &str) -> Result<(), String> {
    let need_bytes = if law.ends_with("more_than_2_to_the_31_elements") { 20 << 30 } else { 2 << 30 };
    let free = make_current().and_then(|()| Ok(result::mem_get_info()?.0)).map_err(|error| format!("{error:#}"))?;
    if free > need_bytes { Ok(()) } else { Err(format!("{free} bytes of the device are free, it takes {need_bytes}")) }
}

fn device() -> Result<Device> {
    target("cuda").context("no target")?.device.clone().map_err(anyhow::Error::msg)
}

/// A case whose rows are repeated: `descriptor` has `rows` rows, `case` the first of them.
struct Repeated {
    case: Case,
    inputs: Tensors,
    plan: AnyPlan,
    buffers: Vec<Buffer>,
    workspace: Buffer,
    periods: f64,
}

impl Repeated {
    /// The case of a line in whose every `[ROWS,` the number of rows belongs: `period` rows of data, repeated up to `rows`.
    fn new(device: &Device, line: &str, period: u64, rows: u64) -> Result<Self> {
        let with = |rows: u64| line.replace("ROWS", &rows.to_string());
        let case = Case::parse(&with(period))?;
        let inputs = case.inputs(0)?;
        let plan = AnyDescriptor::parse_line(&with(rows))?.plan(device, &PlanOptions::default())?;
        let mut buffers = Vec::new();
        for (slot, small) in plan.slots().iter().zip(case.slots()) {
            let buffer = device.alloc(slot.span_bytes)?;
            if let Some(values) = inputs.values(slot.name) {
                let mut bytes = vec![0; small.span_bytes as usize];
                scatter(&small.desc, values, &mut bytes);
                let mut at = 0;
                while at < slot.span_bytes {
                    let part = bytes.len().min((slot.span_bytes - at) as usize);
                    device.write(&buffer, at, &bytes[..part])?;
                    at += part as u64;
                }
            }
            buffers.push(buffer);
        }
        let workspace = device.alloc(plan.workspace().bytes)?;
        let periods = rows as f64 / period as f64;
        Ok(Self { case, inputs, plan, buffers, workspace, periods })
    }

    fn run(&self, queue: &mut Queue<'_>) -> Result<(), Error> {
        let of = |(slot, buffer): (&baracuda_ops::Slot, _)| match slot.access {
            Access::In => Operand::from(Mem::from(buffer)),
            _ => MemMut::from(buffer).into(),
        };
        let mut operands: Vec<Operand<'_>> = self.plan.slots().iter().zip(&self.buffers).map(of).collect();
        self.plan.run(queue, &mut operands, Workspace::new(&self.workspace))
    }

    /// Compares the first period with the reference and the others with the first, bit by bit. Outputs without rows are sums over all
    /// of them: as many times those of a period as there are periods.
    fn judge(&self, device: &Device) -> Result<()> {
        let mut queue = device.queue();
        let mut outputs = Tensors::default();
        let slots = self.plan.slots().iter().zip(self.case.slots());
        for ((slot, small), buffer) in slots.zip(&self.buffers).filter(|s| s.0.0.access != Access::In) {
            let words = queue.download::<half::bf16>(buffer)?;
            let bytes: &[u8] = bytemuck::cast_slice(&words);
            let first = &bytes[..small.span_bytes as usize];
            for (i, part) in bytes.chunks(first.len()).enumerate() {
                ensure!(part == &first[..part.len()], "{}: period {i} differs from the first", slot.name);
            }
            let is_sum = slot.desc.dims() == small.desc.dims();
            let share = if is_sum { self.periods } else { 1.0 };
            let values = gather(&small.desc, first).iter().map(|value| value / share).collect();
            outputs.push(slot.name, &small.desc, values);
        }
        judge(&self.case, By::of(&self.plan), &self.inputs, &outputs).map(drop)
    }
}

/// Rows repeat with a period that no power of two is a multiple of, so that a wrapped offset meets other data.
fn more_than_2_to_the_31() -> Result<()> {
    const COLS: u64 = 4096;
    const ROWS: u64 = (1 << 31) / COLS + 1;
    const PERIOD: u64 = 2047;
    let device = device()?;
    let x = format!(r#""x":{{"dtype":"bf16","dims":[ROWS,{COLS}]}},"normalized_dims":1"#);
    for line in [
        format!(r#"layer_norm {{{x},"weight":"f32","bias":"f32","eps":1e-5,"stats":true}}"#),
        format!(r#"layer_norm_backward {{{x},"weight":"f32","dx":true}}"#),
    ] {
        let case = Repeated::new(&device, &line, PERIOD, ROWS)?;
        case.run(&mut device.queue())?;
        case.judge(&device)?;
    }
    Ok(())
}

/// RMSNorm backward over more rows than a reference takes: the last of them are left to late blocks, whose dx is that of the same rows
/// elsewhere, bit by bit, and whose share of dweight is not lost. `row_norm/cuda/tests.rs` shows that these problems have late blocks.
fn late_blocks() -> Result<()> {
    const PERIOD: u64 = 97;
    let device = device()?;
    for (dtype, cols, periods) in [("f32", 4096, 127), ("f32", 8192, 65), ("bf16", 4096, 127)] {
        let x = format!(r#""x":{{"dtype":"{dtype}","dims":[ROWS,{cols}]}},"normalized_dims":1"#);
        let line = format!(r#"rms_norm_backward {{{x},"weight":"{dtype}","dx":true,"dweight":true}}"#);
        let case = Repeated::new(&device, &line, PERIOD, PERIOD * periods)?;
        case.run(&mut device.queue())?;
        case.judge(&device).with_context(|| line)?;
    }
    Ok(())
}

/// Plans whose choices are equal but for the columns, of which the first of each pair fills every thread and the second does not, so
/// that they launch different kernels.
fn pairs() -> Vec<String> {
    let mut lines = Vec::new();
    for cols in [65536, 65528, 4096, 4088] {
        let x = format!(r#""x":{{"dtype":"bf16","dims":[ROWS,{cols}]}},"normalized_dims":1,"weight":"bf16""#);
        lines.push(format!(r#"layer_norm {{{x},"bias":"bf16","eps":1e-5,"stats":true}}"#));
        lines.push(format!(r#"rms_norm {{{x},"eps":1e-5,"stats":true}}"#));
        lines.push(format!(r#"layer_norm_backward {{{x},"dx":true,"dweight":true,"dbias":"bf16"}}"#));
        lines.push(format!(r#"rms_norm_backward {{{x},"dx":true,"dweight":true}}"#));
    }
    lines
}

/// In a process where nothing else has been prepared.
fn in_fresh_process() -> Result<()> {
    let child = Command::new(std::env::current_exe()?).env(PREPARE, "1").output()?;
    let words = [child.stdout, child.stderr].map(|words| String::from_utf8_lossy(&words).trim().to_string());
    ensure!(child.status.success() && words[0].ends_with("all ran"), "{} {}", words[0], words[1]);
    Ok(())
}

/// In the child, prepares and captures. `None` in any other process.
pub(super) fn child_main() -> Option<ExitCode> {
    std::env::var_os(PREPARE)?;
    Some(match prepare_then_capture() {
        Ok(()) => {
            println!("all ran");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("{error:#}");
            ExitCode::FAILURE
        }
    })
}

/// Builds all plans of one device, then captures each. A kernel that its plan left unprepared, taking another's for it, would have to
/// be loaded or given shared memory now, which fails.
fn prepare_then_capture() -> Result<()> {
    const ROWS: u64 = 1024;
    const PERIOD: u64 = 8;
    let device = Device::cuda(0)?;
    make_current()?;
    let cases: Vec<Repeated> =
        pairs().iter().map(|line| Repeated::new(&device, line, PERIOD, ROWS)).collect::<Result<_>>()?;
    device.queue().finish()?;
    for case in &cases {
        let of_case = || case.plan.info().repro().to_string();
        // SAFETY: the buffers of the case outlive the graph.
        let captured = unsafe { Captured::new(&device, |queue| case.run(queue)) }.with_context(of_case)?;
        captured.replay().and_then(|()| case.judge(&device)).with_context(of_case)?;
    }
    Ok(())
}

/// A LayerNorm on memory and streams that cudarc owns.
struct OnCudarc {
    plan: Plan<LayerNormDescriptor>,
    elements: usize,
}

impl OnCudarc {
    const ROWS: u64 = 65536;
    const COLS: u64 = 1024;

    fn new(device: &Device) -> Result<Self> {
        let x = TensorDesc::contiguous(DType::F32, &[Self::ROWS, Self::COLS])?;
        let plan = Plan::new(device, LayerNormDescriptor::new(x, 1)?.weight(DType::F32)?, &PlanOptions::default())?;
        ensure!(plan.workspace().bytes == 0, "the rows stay on chip");
        Ok(Self { plan, elements: (Self::ROWS * Self::COLS) as usize })
    }

    /// Enqueues a run on a stream; nothing is waited for.
    fn run(
        &self,
        queue: &mut Queue<'_>,
        stream: &CudaStream,
        [x, weight]: [CudaView<'_, f32>; 2],
        mut y: CudaViewMut<'_, f32>,
    ) -> Result<()> {
        let (x, weight, mut y) =
            (Mem::cudarc(&x, stream), Mem::cudarc(&weight, stream), MemMut::cudarc(&mut y, stream));
        let args = LayerNormArgs::new(&x, &mut y).weight(&weight);
        Ok(self.plan.run(queue, args, Workspace::none())?)
    }

    /// Every row of x is -1, 1, -1, ..: xhat is x, but for eps.
    fn check(&self, y: &[f32], weight: f32) -> Result<()> {
        ensure!(y.len() == self.elements, "{} elements", y.len());
        let scale = f64::from(weight) / (1.0f64 + 1e-5).sqrt();
        let is_right = |(i, y): (usize, f32)| {
            let expected = if i.is_multiple_of(2) { -scale } else { scale };
            (f64::from(y) - expected).abs() <= 1e-6 * scale
        };
        let wrong = y.iter().copied().enumerate().find(|each| !is_right(*each));
        wrong.map_or(Ok(()), |(i, y)| Err(anyhow::anyhow!("element {i} is {y}, not {scale} or its negative")))
    }
}

fn interop() -> Result<()> {
    let context = CudaContext::new(0)?;
    let device = Device::cudarc(&context)?;
    ensure!(device == Device::cuda(0)?, "cudarc's primary context is that of Device::cuda");
    let on = OnCudarc::new(&device)?;
    let (ours, theirs) = (context.new_stream()?, context.new_stream()?);
    let mut queue = Queue::cudarc(&device, &ours)?;
    let alternating: Vec<f32> = (0..on.elements).map(|i| if i % 2 == 0 { -1.0 } else { 1.0 }).collect();
    let cols = OnCudarc::COLS as usize;

    // Slices and parts of them; what another stream uploads is waited for, and what it reads is there.
    let x = theirs.clone_htod(&alternating)?;
    let weights = theirs.clone_htod(&[vec![7.0; cols], vec![3.0; cols]].concat())?;
    let mut y = theirs.alloc_zeros::<f32>(on.elements)?;
    on.run(&mut queue, &ours, [x.as_view(), weights.slice(cols..)], y.as_view_mut())?;
    on.check(&theirs.clone_dtoh(&y)?, 3.0)?;
    on.run(&mut queue, &ours, [x.as_view(), weights.slice(..cols)], y.as_view_mut())?;
    on.check(&theirs.clone_dtoh(&y)?, 7.0)?;

    // Operands that are dropped, and whose memory others write, while runs on them are under way.
    let late = |x: CudaSlice<f32>, y: &mut CudaSlice<f32>, queue: &mut Queue<'_>| -> Result<()> {
        for _ in 0..50 {
            on.run(queue, &ours, [x.as_view(), weights.slice(cols..)], y.as_view_mut())?;
        }
        drop(x);
        Ok(())
    };
    late(x, &mut y, &mut queue)?;
    let other = theirs.clone_htod(&vec![f32::NAN; on.elements])?;
    on.check(&theirs.clone_dtoh(&y)?, 3.0)?;
    drop(other);

    refusals(&on, &device, &context, &ours)?;

    // The queue keeps its stream.
    let x = theirs.clone_htod(&alternating)?;
    on.run(&mut queue, &ours, [x.as_view(), weights.slice(cols..)], y.as_view_mut())?;
    drop(ours);
    queue.finish()?;
    on.check(&theirs.clone_dtoh(&y)?, 3.0)
}

/// A second context of the same GPU is another device: its streams are refused.
fn another_context(device: &Device) -> Result<()> {
    // By its symbol, since which of its forms the bindings have depends on the CUDA version that they are for.
    type Create = unsafe extern "C" fn(*mut sys::CUcontext, u32, sys::CUdevice) -> sys::CUresult;
    // SAFETY: the driver is loaded already and has this function of this type.
    let driver = unsafe { libloading::Library::new("libcuda.so.1") }?;
    // SAFETY: as above.
    let create = unsafe { driver.get::<Create>(b"cuCtxCreate_v2") }?;
    let mut context = std::ptr::null_mut();
    // SAFETY: the GPU exists and the pointer is valid. The context, current from here on, outlives what is made from it.
    unsafe { create(&mut context, 0, result::device::get(0)?) }.result()?;
    let stream = result::stream::create(result::stream::StreamKind::NonBlocking)?;
    // SAFETY: stream and context stay valid up to the end of this function.
    let (queue, stranger) = unsafe { (Queue::cuda(device, stream.cast()), Device::cuda_context(context.cast())) };
    ensure!(matches!(queue, Err(Error::WrongDevice { operand: "stream", .. })), "{queue:?}");
    let stranger = stranger?;
    ensure!(stranger != *device, "two contexts are two devices");
    // SAFETY: as above.
    unsafe { Queue::cuda(&stranger, stream.cast()) }?;
    drop(stranger);
    // SAFETY: nothing of the context is left.
    unsafe { sys::cuCtxDestroy_v2(context) }.result()?;
    Ok(())
}

/// What is refused before anything is launched.
fn refusals(on: &OnCudarc, device: &Device, context: &Arc<CudaContext>, stream: &Arc<CudaStream>) -> Result<()> {
    let queue = Queue::cudarc(&Device::cpu(), stream);
    ensure!(matches!(queue, Err(Error::WrongDevice { operand: "queue", .. })), "{queue:?}");
    another_context(device)?;
    context.bind_to_thread()?;

    // A view that is too short, and one that starts between the promised multiples of 16 bytes.
    let x = stream.alloc_zeros::<f32>(on.elements + 4)?;
    let weight = stream.alloc_zeros::<f32>(OnCudarc::COLS as usize)?;
    let mut y = stream.alloc_zeros::<f32>(on.elements)?;
    let mut queue = Queue::cudarc(device, stream)?;
    let mut with = |x: CudaView<'_, f32>| {
        let error = on.run(&mut queue, stream, [x, weight.as_view()], y.as_view_mut()).err().context("it ran")?;
        error.downcast::<Error>()
    };
    let error = with(x.slice(..on.elements - 1))?;
    ensure!(matches!(error, Error::TooSmall { operand: "x", .. }), "{error}");
    let error = with(x.slice(1..on.elements + 1))?;
    ensure!(matches!(error, Error::Misaligned { operand: "x", .. }), "{error}");
    Ok(())
}
