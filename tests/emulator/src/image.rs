//! The PTX in a fat binary, which is what the compiler hands to the CUDA runtime.

use std::io::Read;
use std::slice;

const MAGIC: u32 = 0xba55_ed50;
const KIND_PTX: u16 = 1;
/// The entry's text is compressed with zstd.
const COMPRESSED: u64 = 0x8000;

/// The text for the highest architecture that is not above `capability`.
///
/// # Safety
/// `image` points to a whole fat binary.
pub(crate) unsafe fn text(image: *const u8, capability: u32) -> Result<String, String> {
    // SAFETY: the caller's promise; a header has 16 bytes.
    let header = unsafe { slice::from_raw_parts(image, 16) };
    if word(header, 0) != MAGIC {
        return Err("not a fat binary".into());
    }
    let (start, bytes) = (half(header, 6) as usize, long(header, 8) as usize);
    // SAFETY: the caller's promise; the header says how long it is.
    let mut rest = unsafe { slice::from_raw_parts(image.add(start), bytes) };
    let mut best: Option<(u32, &[u8], bool)> = None;
    while rest.len() >= 64 {
        let (kind, header_bytes, padded) = (half(rest, 0), word(rest, 4) as usize, long(rest, 8) as usize);
        let (packed, arch, flags) = (word(rest, 16) as usize, word(rest, 28), long(rest, 40));
        let entry = rest.get(header_bytes..header_bytes + padded).ok_or("a fat binary that ends early")?;
        let is_better = best.is_none_or(|(best, ..)| best < arch);
        if kind == KIND_PTX && arch <= capability && is_better {
            let is_packed = flags & COMPRESSED != 0;
            best = Some((arch, if is_packed { &entry[..packed.min(padded)] } else { entry }, is_packed));
        }
        rest = &rest[header_bytes + padded..];
    }
    let (_, entry, is_packed) = best.ok_or("no PTX for this device")?;
    let mut text = Vec::new();
    if is_packed {
        let mut decoder = ruzstd::decoding::StreamingDecoder::new(entry).map_err(|e| e.to_string())?;
        decoder.read_to_end(&mut text).map_err(|e| e.to_string())?;
    } else {
        text.extend_from_slice(entry);
    }
    text.truncate(text.iter().position(|&byte| byte == 0).unwrap_or(text.len()));
    String::from_utf8(text).map_err(|e| e.to_string())
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from(half(bytes, at)) | u32::from(half(bytes, at + 2)) << 16
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}
