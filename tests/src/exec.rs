//! Runs the operands of an arena on a device.

use anyhow::Result;
use baracuda_ops::{Access, AnyPlan, Buffer, Device, Error, Mem, MemMut, Operand, Queue, Slot, Workspace};

use crate::arena::{Arena, Place};

/// What turns inputs into outputs: a plan on a device or, to show that the comparison works, a faulty one.
pub trait Executor {
    /// Runs once.
    ///
    /// # Errors
    /// The plan's or the driver's.
    fn run(&self, arena: &mut Arena) -> Result<()>;
}

/// A plan, run once on its device's own queue.
pub struct OnDevice<'p>(pub &'p AnyPlan);

impl Executor for OnDevice<'_> {
    fn run(&self, arena: &mut Arena) -> Result<()> {
        let device = self.0.device();
        let memory = Uploaded::new(device, arena)?;
        let mut queue = device.queue();
        self.0.run(&mut queue, &mut memory.operands(arena), memory.workspace(arena))?;
        memory.download(&mut queue, arena)
    }
}

/// An arena's bytes on a device.
pub struct Uploaded(pub Vec<Buffer>);

impl Uploaded {
    /// Copies the arena to the device.
    ///
    /// # Errors
    /// The device's.
    pub fn new(device: &Device, arena: &Arena) -> Result<Self> {
        let mut buffers = Vec::new();
        for bytes in &arena.buffers {
            let buffer = device.alloc(bytes.len() as u64)?;
            device.write(&buffer, 0, bytes)?;
            buffers.push(buffer);
        }
        Ok(Self(buffers))
    }

    /// Copies the arena to the device again.
    ///
    /// # Errors
    /// The device's.
    pub fn write(&self, device: &Device, arena: &Arena) -> Result<()> {
        for (buffer, bytes) in self.0.iter().zip(&arena.buffers) {
            device.write(buffer, 0, bytes)?;
        }
        Ok(())
    }

    /// The operands in slot order.
    pub fn operands<'a>(&'a self, arena: &Arena) -> Vec<Operand<'a>> {
        let of = |(slot, place): (&Slot, &Option<Place>)| match place {
            None => Mem::in_place().into(),
            Some(place) if slot.access == Access::In => self.mem(slot, *place).into(),
            Some(place) => self.mem_mut(slot, *place).into(),
        };
        arena.slots().iter().zip(&arena.operands).map(of).collect()
    }

    /// The range of an operand that is read. Through wgpu it is one of a buffer of the caller's where it breaks the operand's promise, to which owned
    /// buffers are held.
    pub fn mem(&self, slot: &Slot, Place { buffer, offset, bytes }: Place) -> Mem<'_> {
        let buffer = &self.0[buffer];
        #[cfg(feature = "wgpu")]
        if let Some(lent) = buffer.wgpu_buffer().filter(|_| !offset.is_multiple_of(slot.desc.align_bytes())) {
            return Mem::wgpu(lent, offset, bytes);
        }
        let _ = slot;
        Mem::buffer(buffer, offset, bytes)
    }

    /// As [`mem`](Self::mem), of an operand that is written.
    pub fn mem_mut(&self, slot: &Slot, Place { buffer, offset, bytes }: Place) -> MemMut<'_> {
        let buffer = &self.0[buffer];
        #[cfg(feature = "wgpu")]
        if let Some(lent) = buffer.wgpu_buffer().filter(|_| !offset.is_multiple_of(slot.desc.align_bytes())) {
            return MemMut::wgpu(lent, offset, bytes);
        }
        let _ = slot;
        MemMut::buffer(buffer, offset, bytes)
    }

    /// The workspace.
    pub fn workspace<'a>(&'a self, arena: &Arena) -> Workspace<'a> {
        arena.workspace.map_or(Workspace::none(), |p| self.part(p))
    }

    /// A range as workspace.
    pub fn part(&self, place: Place) -> Workspace<'_> {
        Workspace::new(MemMut::buffer(&self.0[place.buffer], place.offset, place.bytes))
    }

    /// Copies everything back.
    ///
    /// # Errors
    /// The device's.
    pub fn download(&self, queue: &mut Queue<'_>, arena: &mut Arena) -> Result<()> {
        for (buffer, bytes) in self.0.iter().zip(&mut arena.buffers) {
            let words = queue.download::<u32>(buffer)?;
            bytes.copy_from_slice(bytemuck::cast_slice(&words));
        }
        Ok(())
    }
}

/// The library's error inside one of the harness, if it is one.
pub fn refusal(error: &anyhow::Error) -> Option<&Error> {
    error.downcast_ref::<Error>().filter(|e| matches!(e, Error::Unsupported { .. }))
}
