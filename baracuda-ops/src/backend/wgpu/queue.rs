//! Where runs are recorded: the recorder of the owned layer, or an encoder or pass of the caller.

use std::borrow::Borrow;
use std::fmt;

use super::device::Device;
use super::program::{BoundStep, Program};
use crate::error::{Error, Result};

/// Dispatches after which the recorder submits, so that the device starts early and a long recording holds little memory. With fewer, the cost of a
/// submission is shared by fewer dispatches; with more, the device starts later.
const DISPATCHES_PER_SUBMIT: usize = 256;

pub(crate) struct Queue<'q> {
    kind: Kind<'q>,
    /// Room for the steps of a run, kept from one run to the next.
    pub(super) steps: Vec<BoundStep>,
}

enum Kind<'q> {
    Owned {
        device: Device,
        id: QueueId,
    },
    Encoder {
        device: Device,
        /// `None` once it has ended.
        pass: Option<Box<::wgpu::ComputePass<'q>>>,
    },
    Pass(&'q mut ::wgpu::ComputePass<'static>),
}

impl<'q> Queue<'q> {
    pub(super) fn owned(device: Device) -> Self {
        let id = device.recorder().new_queue();
        Self { kind: Kind::Owned { device, id }, steps: Vec::new() }
    }

    /// One pass for all runs, ended when the queue is dropped.
    pub(crate) fn encoder(device: &Device, encoder: &'q mut ::wgpu::CommandEncoder) -> Result<Self> {
        let descriptor = ::wgpu::ComputePassDescriptor { label: Some("baracuda-ops"), timestamp_writes: None };
        let pass = device.guarded("begin_compute_pass", || encoder.begin_compute_pass(&descriptor))?;
        let kind = Kind::Encoder { device: device.clone(), pass: Some(Box::new(pass)) };
        Ok(Self { kind, steps: Vec::new() })
    }

    pub(crate) fn pass(pass: &'q mut ::wgpu::ComputePass<'static>) -> Self {
        Self { kind: Kind::Pass(pass), steps: Vec::new() }
    }

    /// Records a run of a program.
    pub(super) fn record<S>(&mut self, program: &Program, steps: impl Iterator<Item = S>)
    where
        S: Borrow<BoundStep> + Into<BoundStep>,
    {
        match &mut self.kind {
            Kind::Owned { device, id } => device.recorder().record(device, *id, program, steps.map(Into::into)),
            Kind::Encoder { pass: Some(pass), .. } => program.encode(steps, pass),
            // Only dropping the queue ends it.
            Kind::Encoder { pass: None, .. } => {}
            Kind::Pass(pass) => program.encode(steps, pass),
        }
    }

    /// Whether what it records is the caller's to submit.
    pub(crate) fn is_borrowed(&self) -> bool {
        !matches!(self.kind, Kind::Owned { .. })
    }

    /// Submits what all owned queues of the device have recorded.
    pub(crate) fn flush(&mut self) -> Result<()> {
        match &self.kind {
            Kind::Owned { device, id } => {
                let mut recorder = device.recorder();
                recorder.submit(device);
                recorder.failure(*id)
            }
            Kind::Encoder { .. } | Kind::Pass(_) => Err(Error::Unsubmitted { op: "flush" }),
        }
    }

    /// Submits and waits.
    pub(crate) fn finish(&mut self) -> Result<()> {
        match &self.kind {
            Kind::Owned { device, id } => {
                let failure = {
                    let mut recorder = device.recorder();
                    recorder.submit(device);
                    recorder.failure(*id)
                };
                device.wait(None)?;
                failure
            }
            Kind::Encoder { .. } | Kind::Pass(_) => Err(Error::Unsubmitted { op: "finish" }),
        }
    }
}

impl Drop for Queue<'_> {
    fn drop(&mut self) {
        match &mut self.kind {
            Kind::Owned { device, id } => {
                let mut recorder = device.recorder();
                recorder.submit(device);
                recorder.disown(*id);
            }
            Kind::Encoder { device, pass } => {
                // Of an encoder that is in a state to refuse the end of a pass its owner hears when it is finished.
                let _ = device.guarded("end of a compute pass", || drop(pass.take()));
            }
            Kind::Pass(_) => {}
        }
    }
}

impl fmt::Debug for Queue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.kind {
            Kind::Owned { .. } => "Queue(owned)",
            Kind::Encoder { .. } => "Queue(encoder)",
            Kind::Pass(_) => "Queue(pass)",
        })
    }
}

/// An owned queue, among those of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct QueueId(u64);

impl QueueId {
    /// That of queues that have been dropped.
    const GONE: Self = Self(0);
}

/// What the owned layer has recorded and not yet submitted, in the order in which it will run.
///
/// Runs are kept until they have been submitted. wgpu refuses a command buffer as a whole if it uses a single buffer that has been
/// destroyed or mapped since; each run is then submitted alone, so that only those that do are lost.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    runs: Vec<Run>,
    /// The steps of all runs.
    steps: Vec<BoundStep>,
    /// The first error of each queue that has not been told of it.
    failures: Vec<(QueueId, Error)>,
    queues: u64,
}

#[derive(Debug)]
struct Run {
    program: Program,
    queue: QueueId,
    /// Where its steps end, which start where those of the run before end.
    steps_end: usize,
}

impl Recorder {
    fn new_queue(&mut self) -> QueueId {
        self.queues += 1;
        QueueId(self.queues)
    }

    fn record(&mut self, device: &Device, queue: QueueId, program: &Program, steps: impl Iterator<Item = BoundStep>) {
        self.steps.extend(steps);
        self.runs.push(Run { program: program.clone(), queue, steps_end: self.steps.len() });
        if self.steps.len() >= DISPATCHES_PER_SUBMIT {
            self.submit(device);
        }
    }

    /// Submits what is recorded, if anything. What wgpu refuses is told to the queue that recorded it.
    pub(super) fn submit(&mut self, device: &Device) {
        if let Some(last) = self.runs.len().checked_sub(1) {
            match self.submit_runs(device, 0, last) {
                Err(Error::Backend { .. }) if last > 0 => {
                    (0..=last).for_each(|at| self.note(at, self.submit_runs(device, at, at)));
                }
                // The device is gone. wgpu gives up a device that runs out of memory in a submission.
                Err(error) => (0..=last).for_each(|at| self.note(at, Err(error.clone()))),
                Ok(()) => {}
            }
        }
        self.runs.clear();
        self.steps.clear();
    }

    /// Submits some runs as one command buffer.
    fn submit_runs(&self, device: &Device, first: usize, last: usize) -> Result<()> {
        let mut start = first.checked_sub(1).map_or(0, |before| self.runs[before].steps_end);
        let submission = device.submit(|encoder| {
            let descriptor = ::wgpu::ComputePassDescriptor { label: Some("baracuda-ops"), timestamp_writes: None };
            let mut pass = encoder.begin_compute_pass(&descriptor);
            for run in &self.runs[first..=last] {
                run.program.encode(self.steps[start..run.steps_end].iter(), &mut pass);
                start = run.steps_end;
            }
        });
        submission.map(|_| ())
    }

    /// Keeps the error of a run for its queue.
    fn note(&mut self, run: usize, submitted: Result<()>) {
        let queue = self.runs[run].queue;
        if let Err(error) = submitted
            && !self.failures.iter().any(|(of, _)| *of == queue)
        {
            self.failures.push((queue, error));
        }
    }

    /// The first error of a queue, or else of those that have been dropped, which is told once.
    fn failure(&mut self, queue: QueueId) -> Result<()> {
        let of = |wanted: QueueId| self.failures.iter().position(|(queue, _)| *queue == wanted);
        match of(queue).or_else(|| of(QueueId::GONE)) {
            Some(at) => Err(self.failures.swap_remove(at).1),
            None => Ok(()),
        }
    }

    /// Keeps the error of a queue that is dropped for the next one that asks.
    fn disown(&mut self, queue: QueueId) {
        let is_kept = self.failures.iter().any(|(of, _)| *of == QueueId::GONE);
        match self.failures.iter().position(|(of, _)| *of == queue) {
            Some(at) if is_kept => drop(self.failures.swap_remove(at)),
            Some(at) => self.failures[at].0 = QueueId::GONE,
            None => {}
        }
    }
}
