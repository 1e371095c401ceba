//! Operands of one plan, several times over, with random data.

use anyhow::Result;
use baracuda_ops::{Access, AnyPlan, Buffer, DType, Device, Mem, MemMut, Operand, Workspace};
use half::{bf16, f16};

/// Bytes of random data that are made once and written again and again.
const BLOCK_BYTES: usize = 16 << 20;

/// Sets of operands that share one workspace.
pub struct Sets {
    sets: Vec<Vec<Buffer>>,
    workspace: Option<Buffer>,
    access: Vec<Access>,
    /// Whether an operand lies where its partner does: what indices name in a base is changed in place, as others do.
    in_place: Vec<bool>,
}

impl Sets {
    /// `count` sets for a plan.
    ///
    /// # Errors
    /// The device's.
    pub fn new(plan: &AnyPlan, count: usize) -> Result<Self> {
        let device = plan.device();
        let mut random = fastrand::Rng::with_seed(1);
        let mut blocks: Vec<(DType, f64, Vec<u8>)> = Vec::new();
        let mut sets = Vec::new();
        for _ in 0..count {
            let mut set = Vec::new();
            for slot in plan.slots() {
                if slot.name == "base" {
                    set.push(device.alloc(4)?);
                    continue;
                }
                let buffer = device.alloc(slot.span_bytes.next_multiple_of(4))?;
                if slot.access != Access::Out {
                    // rstd and variances near 1, logsumexp as of a thousand classes or keys, and the rest standard normal: no infinities on the way.
                    let dtype = slot.desc.dtype();
                    if matches!(slot.name, "rstd" | "running_var" | "logsumexp" | "lse" | "divisor") {
                        let value = if matches!(slot.name, "logsumexp" | "lse") { 8.0 } else { 1.0 };
                        let ones = block(dtype, slot.span_bytes as usize, || value);
                        device.write(&buffer, 0, &ones)?;
                    } else if matches!(slot.name, "indices" | "targets") {
                        let extent = extent(plan) as f64;
                        let data = block(dtype, slot.span_bytes as usize, || (extent * random.f64()).floor());
                        device.write(&buffer, 0, &data[..slot.span_bytes as usize])?;
                    } else if slot.name == "offsets" {
                        // Places of windows of three by three; a byte is a hundred times the number.
                        let bytes = (slot.span_bytes as usize).min(BLOCK_BYTES);
                        let data = block(dtype, bytes, || ((9.0 * random.f64()).floor() + 0.5) / 100.0);
                        fill(device, &buffer, slot.span_bytes, &data, &mut random)?;
                    } else {
                        // Sums of products of standard normal numbers, as forward saves them.
                        let deviation = if slot.name == "pre" { terms(plan).sqrt() } else { 1.0 };
                        let is_like = |b: &&(DType, f64, Vec<u8>)| (b.0, b.1) == (dtype, deviation);
                        if !blocks.iter().any(|b| is_like(&b)) {
                            let data = block(dtype, BLOCK_BYTES, || deviation * normal(&mut random));
                            blocks.push((dtype, deviation, data));
                        }
                        if let Some((_, _, data)) = blocks.iter().find(is_like) {
                            fill(device, &buffer, slot.span_bytes, data, &mut random)?;
                        }
                    }
                } else {
                    let poison = vec![0xFF; (slot.span_bytes as usize).min(BLOCK_BYTES)];
                    fill(device, &buffer, slot.span_bytes, &poison, &mut random)?;
                }
                set.push(buffer);
            }
            sets.push(set);
        }
        let bytes = plan.workspace().bytes;
        let workspace = if bytes > 0 { Some(device.alloc(bytes)?) } else { None };
        device.queue().finish()?;
        let in_place = plan.slots().iter().map(|slot| slot.name == "base").collect();
        Ok(Self { sets, workspace, access: plan.slots().iter().map(|s| s.access).collect(), in_place })
    }

    /// The operands of each set, in slot order.
    pub fn operands(&self) -> Vec<Vec<Operand<'_>>> {
        self.sets.iter().map(|set| set.iter().zip(&self.access).zip(&self.in_place).map(lent).collect()).collect()
    }

    /// The workspace.
    pub fn workspace(&self) -> Workspace<'_> {
        self.workspace.as_ref().map_or(Workspace::none(), Workspace::new)
    }
}

/// The memory of an operand, or that of its partner.
fn lent<'a>(((buffer, access), is_in_place): ((&'a Buffer, &Access), &bool)) -> Operand<'a> {
    match access {
        Access::In if *is_in_place => Mem::in_place().into(),
        Access::In => Mem::from(buffer).into(),
        _ => MemMut::from(buffer).into(),
    }
}

/// Columns of the first factor of a product.
fn terms(plan: &AnyPlan) -> f64 {
    let a = plan.slots().iter().find(|slot| slot.name == "a");
    a.and_then(|slot| slot.desc.dims().last().copied()).unwrap_or(1) as f64
}

/// Positions that an index may name.
fn extent(plan: &AnyPlan) -> u64 {
    let line = plan.descriptor().line();
    let json = line.split_once(' ').and_then(|(_, json)| serde_json::from_str::<serde_json::Value>(json).ok());
    let axis = json.and_then(|json| json["axis"].as_u64()).unwrap_or(0) as usize;
    let is_sum = matches!(plan.descriptor().name(), "index_add" | "scatter");
    let named = if is_sum { "y" } else { "x" };
    let tensor = plan.slots().iter().find(|slot| slot.name == named);
    tensor.and_then(|slot| slot.desc.dims().get(axis).copied()).unwrap_or(1)
}

fn normal(random: &mut fastrand::Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.f64()).cos()
}

fn block(dtype: DType, bytes: usize, mut value: impl FnMut() -> f64) -> Vec<u8> {
    let mut data = Vec::with_capacity(bytes + 8);
    while data.len() < bytes {
        match dtype {
            DType::F64 => data.extend(value().to_le_bytes()),
            DType::F16 => data.extend(f16::from_f64(value()).to_le_bytes()),
            DType::BF16 => data.extend(bf16::from_f64(value()).to_le_bytes()),
            DType::F32 => data.extend((value() as f32).to_le_bytes()),
            DType::I64 => data.extend((value() as i64).to_le_bytes()),
            DType::I32 => data.extend((value() as i32).to_le_bytes()),
            DType::U32 => data.extend((value() as u32).to_le_bytes()),
            DType::Bool => data.push(u8::from(value() > 0.0)),
            DType::U8 => data.push((100.0 * value().abs()) as u8),
            DType::I8 => data.push((30.0 * value()) as i8 as u8),
            other => unreachable!("no bench has elements of {other}"),
        }
    }
    data
}

/// Writes the block again and again, each time from another place on.
fn fill(device: &Device, buffer: &Buffer, bytes: u64, data: &[u8], random: &mut fastrand::Rng) -> Result<()> {
    let mut at = 0;
    while at < bytes {
        let skip = if data.len() > 4096 { random.usize(0..64) * 16 } else { 0 };
        let part = &data[skip..data.len().min(skip + (bytes - at) as usize)];
        device.write(buffer, at, part)?;
        at += part.len() as u64;
    }
    Ok(())
}
