//! CUDA graphs: a plan is captured at its first use in a fresh process, before any other launch, and replayed with new data.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use baracuda_ops::{Device, Queue};
use cudarc::driver::{result, sys};

use crate::arena::{Arena, InPlace, Layout, POISON};
use crate::case::Case;
use crate::exec::Uploaded;
use crate::judge::{By, Worst};
use crate::modes::judge;

/// The variable that carries the repro line to the child.
const LINE: &str = "BOPS_CAPTURE";

/// Captures a case in a child process of this binary.
///
/// # Errors
/// What the child says.
pub(crate) fn in_fresh_process(case: &Case) -> Result<Worst> {
    let child = Command::new(std::env::current_exe()?).env(LINE, case.line()).output()?;
    let words = String::from_utf8_lossy(&child.stdout).trim().to_string();
    if !child.status.success() {
        bail!("{} {}", words, String::from_utf8_lossy(&child.stderr).trim());
    }
    let units = words.lines().last().and_then(|l| l.strip_prefix("units ")).context("the child said nothing")?;
    Ok(Worst { units: units.parse()?, ..Worst::default() })
}

/// In the child, captures the case that the parent names and returns how that went. `None` in any other process.
pub fn child_main() -> Option<ExitCode> {
    let line = std::env::var(LINE).ok()?;
    Some(match Case::parse(&line).and_then(|case| capture(&case)) {
        Ok(units) => {
            println!("units {units}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("{error:#}");
            ExitCode::FAILURE
        }
    })
}

/// Makes the primary context current, for the driver calls below.
///
/// # Errors
/// The driver's.
pub fn make_current() -> Result<()> {
    let device = result::device::get(0)?;
    // SAFETY: the device exists; the context is retained for the life of the process.
    unsafe {
        let context = result::primary_ctx::retain(device)?;
        result::ctx::set_current(context)?;
    }
    Ok(())
}

fn capture(case: &Case) -> Result<f64> {
    let device = Device::cuda(0)?;
    make_current()?;
    let plan = case.plan(&device)?;
    let (inputs, other) = (case.inputs(0)?, case.inputs(1)?);
    let arena =
        |inputs| Arena::new(plan.slots(), plan.workspace(), inputs, Layout::Apart { shift: 0 }, InPlace::No, POISON);
    let (mut first, mut second) = (arena(&inputs), arena(&other));
    let memory = Uploaded::new(&device, &first)?;
    device.queue().finish()?;

    // SAFETY: the buffers outlive the replays.
    let captured = unsafe {
        Captured::new(&device, |queue| plan.run(queue, &mut memory.operands(&first), memory.workspace(&first)))
    }?;
    // Only a vendor's library may fill memory or copy it.
    let nodes = if plan.info().library.is_some() { captured.nodes()?.len() } else { captured.kernels()? };
    ensure!(nodes <= plan.info().launches as usize, "{nodes} nodes, {} launches", plan.info().launches);
    captured.replay()?;
    let mut queue = device.queue();
    memory.download(&mut queue, &mut first)?;
    first.check_surroundings()?;
    let worst = judge(case, By::of(&plan), &inputs, &first.outputs()).context("first replay")?;
    memory.write(&device, &second)?;
    queue.finish()?;
    captured.replay()?;
    memory.download(&mut queue, &mut second)?;
    second.check_surroundings()?;
    let other = judge(case, By::of(&plan), &other, &second.outputs()).context("replay with new data")?;
    Ok(worst.units.max(other.units))
}

/// Runs captured in a graph, on a stream that lives as long as the process.
pub struct Captured {
    stream: sys::CUstream,
    graph: sys::CUgraph,
    exec: sys::CUgraphExec,
}

impl Captured {
    /// Captures what `run` enqueues. Any call of this process that a capture forbids meanwhile, such as loading a module, makes it fail.
    /// The device's primary context has to be current.
    ///
    /// # Safety
    /// The memory that the runs use stays valid while the graph is replayed.
    ///
    /// # Errors
    /// The driver's and those of `run`.
    pub unsafe fn new(
        device: &Device,
        run: impl FnOnce(&mut Queue<'_>) -> Result<(), baracuda_ops::Error>,
    ) -> Result<Self> {
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking)?;
        // SAFETY: the stream was just created on the device's context and lives as long as the process.
        unsafe {
            result::stream::begin_capture(stream, sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL)?;
            let ran = Queue::cuda(device, stream.cast()).and_then(|mut queue| run(&mut queue));
            let graph = result::stream::end_capture(stream);
            ran?;
            let graph = graph?;
            let exec = result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0))?;
            Ok(Self { stream, graph, exec })
        }
    }

    /// Runs what was captured, and waits.
    ///
    /// # Errors
    /// The driver's.
    pub fn replay(&self) -> Result<()> {
        // SAFETY: graph and stream are alive, and so are the operands by the promise made to `new`.
        unsafe {
            result::graph::launch(self.exec, self.stream)?;
            result::stream::synchronize(self.stream)?;
        }
        Ok(())
    }

    /// The number of kernels in the graph.
    ///
    /// # Errors
    /// If it holds anything else.
    pub fn kernels(&self) -> Result<usize> {
        let nodes = self.nodes()?;
        let is_kernel = |ty: &sys::CUgraphNodeType| *ty == sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL;
        ensure!(nodes.iter().all(is_kernel), "the graph holds more than kernels: {nodes:?}");
        Ok(nodes.len())
    }

    /// The types of the graph's nodes.
    ///
    /// # Errors
    /// The driver's.
    pub fn nodes(&self) -> Result<Vec<sys::CUgraphNodeType>> {
        node_types(self.graph)
    }
}

/// The types of a graph's nodes.
fn node_types(graph: sys::CUgraph) -> Result<Vec<sys::CUgraphNodeType>> {
    let mut count = 0;
    // SAFETY: the graph is alive; a null pointer asks for the number of nodes.
    unsafe { sys::cuGraphGetNodes(graph, std::ptr::null_mut(), &mut count) }.result()?;
    if count == 0 {
        return Ok(Vec::new()); // the driver refuses to list none
    }
    let mut nodes = vec![std::ptr::null_mut(); count];
    // SAFETY: the vector holds `count` nodes.
    unsafe { sys::cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count) }.result()?;
    let mut types = Vec::new();
    for node in nodes {
        let mut ty = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY;
        // SAFETY: the node is one of the graph.
        unsafe { sys::cuGraphNodeGetType(node, &mut ty) }.result()?;
        types.push(ty);
    }
    Ok(types)
}
