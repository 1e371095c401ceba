//! Where runs are recorded: the recorder of the owned layer, or an encoder or pass of the caller.

use std::fmt;

use super::device::Device;
use crate::error::Result;

/// Dispatches after which the recorder submits, so that the device starts early and a long recording holds little memory.
const DISPATCHES_PER_SUBMIT: u32 = 256;

pub(crate) struct Queue<'q>(Kind<'q>);

enum Kind<'q> {
    Owned(Device),
    Encoder(Box<::wgpu::ComputePass<'q>>),
    Pass(&'q mut ::wgpu::ComputePass<'static>),
}

impl<'q> Queue<'q> {
    pub(super) fn owned(device: Device) -> Self {
        Self(Kind::Owned(device))
    }

    /// One pass for all runs, ended when the queue is dropped.
    pub(crate) fn encoder(encoder: &'q mut ::wgpu::CommandEncoder) -> Self {
        let descriptor = ::wgpu::ComputePassDescriptor { label: Some("baracuda-ops"), timestamp_writes: None };
        Self(Kind::Encoder(Box::new(encoder.begin_compute_pass(&descriptor))))
    }

    pub(crate) fn pass(pass: &'q mut ::wgpu::ComputePass<'static>) -> Self {
        Self(Kind::Pass(pass))
    }

    /// Records `dispatches` dispatches.
    pub(super) fn record(&mut self, dispatches: u32, record: impl FnOnce(&mut ::wgpu::ComputePass<'_>)) -> Result<()> {
        match &mut self.0 {
            Kind::Owned(device) => {
                let mut recorder = device.recorder();
                record(recorder.pass(device)?);
                recorder.dispatches += dispatches;
                if recorder.dispatches >= DISPATCHES_PER_SUBMIT {
                    return recorder.submit(device).map(|_| ());
                }
            }
            Kind::Encoder(pass) => record(pass),
            Kind::Pass(pass) => record(pass),
        }
        Ok(())
    }

    /// Whether what it records is the caller's to submit.
    pub(crate) fn is_borrowed(&self) -> bool {
        !matches!(self.0, Kind::Owned(_))
    }

    /// Submits and waits. What is recorded for the caller is the caller's to submit.
    pub(crate) fn finish(&mut self) -> Result<()> {
        match &self.0 {
            Kind::Owned(device) => device.finish(),
            Kind::Encoder(_) | Kind::Pass(_) => Ok(()),
        }
    }
}

impl Drop for Queue<'_> {
    fn drop(&mut self) {
        if let Kind::Owned(device) = &self.0 {
            // What went wrong here is reported by the next call that waits, or the device is gone and nobody asks.
            let _ = device.recorder().submit(device);
        }
    }
}

impl fmt::Debug for Queue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Kind::Owned(_) => "Queue(owned)",
            Kind::Encoder(_) => "Queue(encoder)",
            Kind::Pass(_) => "Queue(pass)",
        })
    }
}

/// What the owned layer has recorded and not yet submitted.
#[derive(Default)]
pub(super) struct Recorder {
    // Declared in the order in which they must end.
    pass: Option<::wgpu::ComputePass<'static>>,
    encoder: Option<::wgpu::CommandEncoder>,
    dispatches: u32,
}

impl Recorder {
    fn pass(&mut self, device: &Device) -> Result<&mut ::wgpu::ComputePass<'static>> {
        let encoder = match &mut self.encoder {
            Some(encoder) => encoder,
            none => none.insert(device.new_encoder()?),
        };
        Ok(self.pass.get_or_insert_with(|| {
            let descriptor = ::wgpu::ComputePassDescriptor { label: Some("baracuda-ops"), timestamp_writes: None };
            // The encoder is finished only after the pass has been dropped.
            encoder.begin_compute_pass(&descriptor).forget_lifetime()
        }))
    }

    /// Submits what is recorded, if anything, followed by what `then` encodes.
    pub(super) fn submit_with(
        &mut self,
        device: &Device,
        then: impl FnOnce(&mut ::wgpu::CommandEncoder),
    ) -> Result<::wgpu::SubmissionIndex> {
        self.pass = None;
        self.dispatches = 0;
        let mut encoder = match self.encoder.take() {
            Some(encoder) => encoder,
            None => device.new_encoder()?,
        };
        device.guarded("submit", || {
            then(&mut encoder);
            device.queue.submit([encoder.finish()])
        })
    }

    /// Submits what is recorded, if anything.
    pub(super) fn submit(&mut self, device: &Device) -> Result<Option<::wgpu::SubmissionIndex>> {
        if self.encoder.is_none() {
            return Ok(None);
        }
        self.submit_with(device, |_| {}).map(Some)
    }
}
