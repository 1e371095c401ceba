//! The PTX in a fat binary, which is what the compiler hands to the CUDA runtime.

use std::fmt;
use std::io::Read;
use std::slice;

const MAGIC: u32 = 0xba55_ed50;
const KIND_PTX: u16 = 1;
const KIND_MACHINE_CODE: u16 = 2;
/// The entry's text is compressed with zstd.
const COMPRESSED: u64 = 0x8000;

/// Why a fat binary has no text to interpret.
#[derive(Debug, PartialEq)]
pub(crate) enum Problem {
    /// What a device would run is not there as PTX: it is machine code, or compiled for other architectures alone.
    NoPtx,
    Broken(String),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPtx => f.write_str("no PTX of the code that this device would run"),
            Self::Broken(why) => f.write_str(why),
        }
    }
}

impl From<&str> for Problem {
    fn from(why: &str) -> Self {
        Self::Broken(why.into())
    }
}

/// The text for the highest architecture that is not above `capability`. A device prefers machine code of its generation for a higher
/// architecture: the text for a lower one may do something else, or nothing. Machine code of several architectures beside one text is made of that
/// text.
///
/// # Safety
/// `image` points to a whole fat binary.
pub(crate) unsafe fn text(image: *const u8, capability: u32) -> Result<String, Problem> {
    // SAFETY: the caller's promise; a header has 16 bytes.
    let header = unsafe { slice::from_raw_parts(image, 16) };
    if word(header, 0) != MAGIC {
        return Err("not a fat binary".into());
    }
    let (start, bytes) = (half(header, 6) as usize, long(header, 8) as usize);
    // SAFETY: the caller's promise; the header says how long it is.
    let mut rest = unsafe { slice::from_raw_parts(image.add(start), bytes) };
    let mut best: Option<(u32, &[u8], bool)> = None;
    let mut machine_code = 0;
    let (mut texts, mut machine_codes) = (0, 0);
    while rest.len() >= 64 {
        let (kind, header_bytes, padded) = (half(rest, 0), word(rest, 4) as usize, long(rest, 8) as usize);
        let (packed, arch, flags) = (word(rest, 16) as usize, word(rest, 28), long(rest, 40));
        let entry = rest.get(header_bytes..header_bytes + padded).ok_or("a fat binary that ends early")?;
        let is_better = best.is_none_or(|(best, ..)| best < arch);
        if kind == KIND_PTX && arch <= capability && is_better {
            let is_packed = flags & COMPRESSED != 0;
            best = Some((arch, if is_packed { &entry[..packed.min(padded)] } else { entry }, is_packed));
        }
        if kind == KIND_MACHINE_CODE && arch <= capability && arch / 10 == capability / 10 {
            machine_code = machine_code.max(arch);
        }
        texts += usize::from(kind == KIND_PTX);
        machine_codes += usize::from(kind == KIND_MACHINE_CODE);
        rest = &rest[header_bytes + padded..];
    }
    let is_all_code = texts == 1 && machine_codes > 1;
    let (_, entry, is_packed) = best.filter(|&(arch, ..)| arch >= machine_code || is_all_code).ok_or(Problem::NoPtx)?;
    let mut text = Vec::new();
    if is_packed {
        let mut decoder = ruzstd::decoding::StreamingDecoder::new(entry).map_err(broken)?;
        decoder.read_to_end(&mut text).map_err(broken)?;
    } else {
        text.extend_from_slice(entry);
    }
    text.truncate(text.iter().position(|&byte| byte == 0).unwrap_or(text.len()));
    String::from_utf8(text).map_err(broken)
}

fn broken(why: impl fmt::Display) -> Problem {
    Problem::Broken(why.to_string())
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A fat binary of uncompressed entries, each with its kind, its architecture and its text.
    fn image(entries: &[(u16, u32, &str)]) -> Vec<u8> {
        let mut body = Vec::new();
        for &(kind, arch, text) in entries {
            let mut header = [0u8; 64];
            header[0..2].copy_from_slice(&kind.to_le_bytes());
            header[4..8].copy_from_slice(&64u32.to_le_bytes());
            header[8..16].copy_from_slice(&(text.len() as u64).to_le_bytes());
            header[28..32].copy_from_slice(&arch.to_le_bytes());
            body.extend(header);
            body.extend(text.as_bytes());
        }
        let mut image = MAGIC.to_le_bytes().to_vec();
        image.extend([1, 0, 16, 0]);
        image.extend((body.len() as u64).to_le_bytes());
        image.extend(body);
        image
    }

    fn text_of(entries: &[(u16, u32, &str)]) -> Result<String, Problem> {
        let image = image(entries);
        // SAFETY: a whole fat binary.
        unsafe { text(image.as_ptr(), 90) }
    }

    #[test]
    fn takes_the_text_for_the_highest_architecture_that_the_device_has() {
        let found = text_of(&[(KIND_PTX, 80, "of 80"), (KIND_PTX, 90, "of 90"), (KIND_PTX, 100, "of 100")]);
        assert_eq!(found, Ok("of 90".into()));
        let both =
            [(KIND_MACHINE_CODE, 80, ""), (KIND_MACHINE_CODE, 90, ""), (KIND_PTX, 80, "80"), (KIND_PTX, 90, "90")];
        assert_eq!(text_of(&both), Ok("90".into()));
        let one = [(KIND_MACHINE_CODE, 80, ""), (KIND_MACHINE_CODE, 90, ""), (KIND_PTX, 80, "of both")];
        assert_eq!(text_of(&one), Ok("of both".into()));
        // A device of 9.0 runs no machine code for 8.0, and starts from its PTX.
        assert_eq!(text_of(&[(KIND_MACHINE_CODE, 86, ""), (KIND_PTX, 80, "of 80")]), Ok("of 80".into()));
    }

    #[test]
    fn refuses_code_that_is_there_as_machine_code_alone() {
        assert_eq!(text_of(&[(KIND_MACHINE_CODE, 90, "")]), Err(Problem::NoPtx));
        assert_eq!(text_of(&[(KIND_PTX, 100, "of 100")]), Err(Problem::NoPtx));
        // Kernels for 9.0 alone have a text for 8.0, too, which does nothing.
        assert_eq!(text_of(&[(KIND_MACHINE_CODE, 90, ""), (KIND_PTX, 80, "of 80")]), Err(Problem::NoPtx));
    }
}
