//! Times ops: on the GPUs, on the CPU where there is none or it is asked for.

use std::io::{Write, stdout};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use baracuda_ops::{Error, PlanOptions, Rejection};
use baracuda_ops_benches::cells::{Cell, OPS, cells};
use baracuda_ops_benches::line::{HostLine, Line};
use baracuda_ops_benches::{cpu, host};
use baracuda_ops_tests::said;

use crate::check::progress;
use crate::warn;

pub(crate) struct Request {
    pub(crate) json: Option<PathBuf>,
    pub(crate) ops: Vec<String>,
    pub(crate) device: Option<String>,
    pub(crate) kernel: Option<String>,
    pub(crate) is_quick: bool,
    pub(crate) is_host: bool,
}

/// What can be timed.
enum Device {
    Cpu(cpu::Bench),
    #[cfg(feature = "cuda")]
    Cuda(baracuda_ops_benches::cuda::Bench),
    #[cfg(feature = "wgpu")]
    Wgpu(baracuda_ops_benches::wgpu::Bench),
}

impl Device {
    /// `None` of a cell that is too large for the device.
    fn cell(&self, cell: &Cell, options: &PlanOptions) -> Result<Option<Line>> {
        match *self {
            Self::Cpu(ref bench) => bench.cell(cell, options),
            #[cfg(feature = "cuda")]
            Self::Cuda(ref bench) => bench.cell(cell, options).map(Some),
            #[cfg(feature = "wgpu")]
            Self::Wgpu(ref bench) => bench.cell(cell, options).map(Some),
        }
    }

    fn copies(&self) -> Result<Vec<Line>> {
        match *self {
            Self::Cpu(ref bench) => bench.copies(),
            #[cfg(feature = "cuda")]
            Self::Cuda(ref bench) => bench.copies(),
            #[cfg(feature = "wgpu")]
            Self::Wgpu(ref bench) => bench.copies(),
        }
    }
}

struct Out {
    file: Option<std::fs::File>,
}

impl Out {
    fn write(&mut self, line: &impl serde::Serialize) -> Result<()> {
        if let Some(file) = &mut self.file {
            writeln!(file, "{}", serde_json::to_string(line)?)?;
        }
        Ok(())
    }

    fn line(&mut self, line: &Line) -> Result<()> {
        let shape = line.shape.iter().map(u64::to_string).collect::<Vec<_>>().join("x");
        let flops = if line.flops > 0 { format!(" {:8.1} TFLOP/s", line.tflops) } else { String::new() };
        let host = line.host_us.map_or(String::new(), |us| format!("  host {us:.2} us"));
        writeln!(
            stdout(),
            "{:14} {:12} {:3} {shape:14} {:9} {:10.2} us {:8.1} GB/s{flops}{host}",
            line.peer,
            line.op,
            line.pass,
            line.dtype,
            line.us,
            line.gbps
        )?;
        self.write(line)
    }

    fn host(&mut self, line: &HostLine) -> Result<()> {
        writeln!(stdout(), "{:14} {:10.1} ns  {}", line.peer, line.ns, line.what)?;
        self.write(line)
    }
}

pub(crate) fn run(request: &Request) -> Result<()> {
    if let Some(op) = request.ops.iter().find(|op| !OPS.contains(&op.as_str())) {
        bail!("unknown op {op:?}; the labels are {}", OPS.join(", "));
    }
    let file = match &request.json {
        Some(path) => {
            let file = std::fs::File::options().create(true).append(true).open(path);
            Some(file.with_context(|| format!("cannot write {}", path.display()))?)
        }
        None => None,
    };
    let mut out = Out { file };
    if request.is_host { host_lines(request, &mut out) } else { cell_lines(request, &mut out) }
}

fn is_wanted(request: &Request, name: &str) -> bool {
    request.device.as_deref().is_none_or(|d| d == name)
}

fn host_lines(request: &Request, out: &mut Out) -> Result<()> {
    let mut lines = Vec::new();
    if is_wanted(request, "cpu") {
        lines.extend(host::checks()?);
        lines.extend(host::products()?);
    }
    #[cfg(feature = "cuda")]
    if is_wanted(request, "cuda") {
        match host::cuda() {
            Ok(more) => {
                lines.extend(more);
                // A machine with a driver may lack the library.
                match host::cublaslt() {
                    Ok(more) => lines.extend(more),
                    Err(error) => warn(format_args!("cuBLASLt: {}", said(&error))),
                }
            }
            Err(error) if request.device.is_none() => warn(format_args!("cuda: {}", said(&error))),
            Err(error) => return Err(error),
        }
    }
    #[cfg(feature = "wgpu")]
    if is_wanted(request, "wgpu") {
        match host::wgpu() {
            Ok(more) => lines.extend(more),
            Err(error) if request.device.is_none() => warn(format_args!("wgpu: {}", said(&error))),
            Err(error) => return Err(error),
        }
    }
    lines.iter().try_for_each(|line| out.host(line))
}

fn devices(request: &Request) -> Result<Vec<Device>> {
    let mut devices = Vec::new();
    let mut absent: Vec<String> = Vec::new();
    #[cfg(feature = "cuda")]
    if is_wanted(request, "cuda") {
        match baracuda_ops_benches::cuda::Bench::new() {
            Ok(bench) => devices.push(Device::Cuda(bench)),
            Err(error) => absent.push(format!("cuda: {}", said(&error))),
        }
    }
    #[cfg(not(feature = "cuda"))]
    if is_wanted(request, "cuda") {
        absent.push("cuda: built without the feature cuda (add --features cuda)".into());
    }
    #[cfg(feature = "wgpu")]
    if is_wanted(request, "wgpu") {
        match baracuda_ops_benches::wgpu::Bench::new() {
            // An adapter that is a CPU is timed only when asked for by name.
            Ok(bench) if bench.has_hardware() || request.device.is_some() => devices.push(Device::Wgpu(bench)),
            Ok(bench) => absent.push(format!("wgpu: {} is a CPU; --device wgpu times it all the same", bench.device)),
            Err(error) => absent.push(format!("wgpu: {}", said(&error))),
        }
    }
    absent.iter().for_each(warn);
    if request.device.as_deref() == Some("cpu") || devices.is_empty() && request.device.is_none() {
        devices.push(Device::Cpu(cpu::Bench::new()));
    }
    if devices.is_empty() {
        bail!("nothing to time; {}", absent.join("; "));
    }
    Ok(devices)
}

/// Why each kernel refused a descriptor, if that is what the error is.
fn refusals(error: &anyhow::Error) -> Option<&[Rejection]> {
    match error.downcast_ref::<Error>()? {
        Error::Unsupported { tried, .. } => Some(tried),
        _ => None,
    }
}

fn label(cell: &Cell) -> String {
    let Cell { op, pass, shape, .. } = cell;
    format!("{op} {pass} {shape:?} {}", cell.dtype_name())
}

fn cell_lines(request: &Request, out: &mut Out) -> Result<()> {
    let all: Vec<String> = OPS.iter().map(|op| op.to_string()).collect();
    let ops = if request.ops.is_empty() { &all } else { &request.ops };
    let cells = cells(ops, request.is_quick)?;
    let devices = devices(request)?;
    let options = match &request.kernel {
        Some(name) => PlanOptions::default().kernel(name.clone()),
        None => PlanOptions::default(),
    };
    let bar = progress(cells.len() * devices.len());
    let (mut timed, mut large, mut failures) = (0, 0, 0);
    if ops.iter().any(|op| op == "copy") && request.kernel.is_none() {
        for device in &devices {
            for line in device.copies()? {
                bar.suspend(|| out.line(&line))?;
            }
        }
    }
    for cell in &cells {
        for device in &devices {
            match device.cell(cell, &options) {
                Ok(Some(line)) => {
                    timed += 1;
                    bar.suspend(|| out.line(&line))?;
                }
                Ok(None) => large += 1,
                // One cell that fails does not cost the others.
                Err(error) => {
                    let refusal = request.kernel.as_deref().and_then(|name| Some((name, refusals(&error)?)));
                    // Of a pinned kernel only what it says itself is of interest.
                    if let Some((name, tried)) = refusal {
                        if let Some(Rejection { reason, .. }) = tried.iter().find(|tried| tried.kernel == name) {
                            bar.suspend(|| warn(format_args!("{}: {name} does not serve it: {reason}", label(cell))));
                        }
                        bar.inc(1);
                        continue;
                    }
                    failures += 1;
                    bar.suspend(|| warn(format_args!("{}: {}", label(cell), said(&error))));
                }
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    if large > 0 {
        warn(format_args!("{large} cells are too large to be timed on the CPU"));
    }
    if let Some(name) = request.kernel.as_ref().filter(|_| timed + large + failures == 0) {
        bail!("no cell is timed: no device here has a kernel {name} that serves one");
    }
    if failures > 0 {
        bail!("{failures} cells failed");
    }
    Ok(())
}
