//! A folder that keeps what nvcc made of a source file, found by a digest of everything that it was made from.
//!
//! An entry is one file: the digest of its key and of all that follows, the length of the log in 8 bytes, the log, the object. Entries are
//! written to a temporary file and renamed, so that other builds see a whole entry or none.

use blake3::{Hash, Hasher, OUT_LEN};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fs, io, process};

/// The extension of entries. Files that bear neither it nor `UNFINISHED` are never removed: the folder may hold others.
const ENTRY: &str = "kernels";
/// The extension of entries that are being written.
const UNFINISHED: &str = "kernels-unfinished";
/// A build that was killed leaves an unfinished entry behind; one that still runs is younger than this.
const ABANDONED: Duration = Duration::from_secs(24 * 60 * 60);

/// What nvcc made of one source file.
#[derive(Debug, PartialEq)]
pub(crate) struct Made {
    pub(crate) object: Vec<u8>,
    pub(crate) log: Vec<u8>,
}

pub(crate) struct Cache {
    folder: PathBuf,
}

impl Cache {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Cache { folder }
    }

    /// The folder of a build for which none is named: in the target folder, so that every profile and feature set finds it and
    /// `cargo clean` removes it. `out_dir` is `TARGET/[TRIPLE/]PROFILE/build/.../out`.
    pub(crate) fn folder_above(out_dir: &Path, triple: &str) -> PathBuf {
        let build = out_dir.ancestors().find(|dir| dir.file_name() == Some(OsStr::new("build")));
        let above_profile = build.and_then(|build| build.parent()?.parent());
        let target = match above_profile {
            Some(dir) if dir.file_name() == Some(OsStr::new(triple)) => dir.parent().unwrap_or(dir),
            Some(dir) => dir,
            None => out_dir,
        };
        target.join("baracuda-kernels")
    }

    fn entry(&self, key: &Hash) -> PathBuf {
        self.folder.join(format!("{}.{ENTRY}", key.to_hex()))
    }

    /// What was kept under `key`, whole; an entry that is not is removed.
    pub(crate) fn find(&self, key: &Hash) -> Option<Made> {
        let path = self.entry(key);
        let bytes = fs::read(&path).ok()?;
        let made = parse(key, &bytes);
        if made.is_some() {
            // The time of last use, by which `trim` chooses. Without it an entry only goes earlier.
            let _ = fs::File::options().append(true).open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        } else {
            println!("cargo::warning={} is spoiled: what it held is compiled anew", path.display());
            let _ = fs::remove_file(&path);
        }
        made
    }

    pub(crate) fn keep(&self, key: &Hash, made: &Made) -> io::Result<()> {
        let length = (made.log.len() as u64).to_le_bytes();
        let content = [&length[..], &made.log, &made.object].concat();
        fs::create_dir_all(&self.folder)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let unfinished = self.folder.join(format!("{}-{}-{now}.{UNFINISHED}", key.to_hex(), process::id()));
        let written = fs::write(&unfinished, [digest(key, &content).as_bytes(), &content[..]].concat())
            .and_then(|()| fs::rename(&unfinished, self.entry(key)));
        if written.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        written
    }

    /// Removes the entries that were used least recently until the others have at most `limit_bytes` together.
    pub(crate) fn trim(&self, limit_bytes: u64) {
        let mut entries = Vec::new();
        for file in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let path = file.path();
            let Ok(metadata) = file.metadata() else { continue };
            let used = metadata.modified().unwrap_or(UNIX_EPOCH);
            match path.extension().and_then(OsStr::to_str) {
                Some(ENTRY) => entries.push((used, metadata.len(), path)),
                Some(UNFINISHED) if used.elapsed().is_ok_and(|age| age > ABANDONED) => {
                    let _ = fs::remove_file(path);
                }
                _ => {}
            }
        }
        entries.sort();
        let mut bytes = 0;
        for (_, length, path) in entries.iter().rev() {
            bytes += length;
            if bytes > limit_bytes {
                let _ = fs::remove_file(path);
            }
        }
    }
}

/// The key is in it, so that an entry under another's name is none.
fn digest(key: &Hash, content: &[u8]) -> Hash {
    Hasher::new().update(key.as_bytes()).update(content).finalize()
}

fn parse(key: &Hash, bytes: &[u8]) -> Option<Made> {
    let (expected, content) = bytes.split_first_chunk::<OUT_LEN>()?;
    if digest(key, content) != Hash::from_bytes(*expected) {
        return None;
    }
    let (length, rest) = content.split_first_chunk::<8>()?;
    let (log, object) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    Some(Made { object: object.to_vec(), log: log.to_vec() })
}
