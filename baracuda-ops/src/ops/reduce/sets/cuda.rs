//! On CUDA each set is reduced to one number in the workspace; then these are.

use std::ffi::c_void;

use super::{Set, Valid};
use crate::backend::cuda::{Launch, Props, Start};
use crate::backend::{Device, Located, Location};
use crate::error::{BuildError, Reason};
use crate::kernel::{Accepted, Ask, Built, Candidate, Exec};
use crate::narrow::word;
use crate::ops::reduce::OUTPUT;
use crate::ops::reduce::cuda::{ALIGN, along_rows, of_lines, of_program, with_finish};
use crate::options::WorkspaceReq;

/// How sets are launched.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Choice {
    /// Sets that are launches of their own.
    alone: u32,
    /// Numbers that they become.
    parts: u64,
}

pub(in crate::ops::reduce) fn on_cuda(valid: &Valid, props: &Props, ask: Ask) -> Accepted<'static> {
    let sets = &valid.derived.sets;
    Reason::unless(!sets.is_empty(), || "it reduces several sets of operands, the descriptor has one")?;
    let size = valid.derived.computing.size_bytes();
    let (mut alone, mut launches, mut scratch) = (Vec::new(), 0, 0);
    let mut parts = 0;
    for (number, set) in sets.iter().enumerate().filter(|(_, set)| set.has_elements()) {
        let of_set = &set.valid;
        let served = along_rows(of_set, props, ask)
            .or_else(|_| of_lines(of_set, props, ask))
            .or_else(|_| of_program(of_set, props, ask));
        let candidate = served.map_err(|reason| Reason::from(format!("set {number}: {reason}")))?;
        launches += candidate.launches;
        scratch = scratch.max(candidate.workspace.bytes);
        alone.push((parts * size, indices(set), candidate.build));
        parts += 1;
    }
    let of_parts = valid.of_parts(parts).map_err(|error| Reason::from(error.to_string()))?;
    let last = with_finish(along_rows, &of_parts, props, ask)?;
    let begin = (parts * size).next_multiple_of(ALIGN);
    let bytes = begin + scratch.max(last.workspace.bytes);
    let choice = Choice { alone: word(alone.len() as u64), parts };
    let launches = launches + last.launches;
    let build = move |device: &Device| -> Result<Built, BuildError> {
        let mut starts: Vec<Box<Start>> = Vec::with_capacity(alone.len() + 1);
        for (offset, indices, build) in alone {
            if let Built(Exec::Cuda(launch)) = build.on(device)? {
                starts.push(Box::new(alone_at(offset, begin, indices, launch)));
            }
        }
        if let Built(Exec::Cuda(launch)) = last.build.on(device)? {
            starts.push(Box::new(move |located: &Located<'_>, stream| {
                let mut of_parts = Located::default();
                let (start, end) = (located.workspace.start, located.workspace.end);
                of_parts.operands[0] = place(start, start + begin);
                (of_parts.operands[OUTPUT], of_parts.workspace) = (located.operands[OUTPUT], place(start + begin, end));
                (launch.launch)(&of_parts, stream)
            }));
        }
        let run = move |located: &Located<'_>, stream: *mut c_void| {
            starts.iter().map(|start| start(located, stream)).find(|&status| status != 0).unwrap_or(0)
        };
        Ok(Launch::new("bops_reduce_sets", run).into())
    };
    Ok(Candidate { workspace: WorkspaceReq::new(bytes, ALIGN), launches, ..Candidate::new(choice, build) })
}

fn place(start: u64, end: u64) -> Location<'static> {
    Location { start, end, ..Location::default() }
}

/// Of each input of a set the index in the descriptor of all sets.
fn indices(set: &Set) -> Vec<usize> {
    set.places.iter().map(|&(index, _)| index).collect()
}

/// Launches one set with its inputs where a descriptor of this set alone would have them; its output lies at an offset in the workspace, of which it uses what
/// begins at `begin`.
fn alone_at(
    offset: u64,
    begin: u64,
    indices: Vec<usize>,
    launch: Launch,
) -> impl Fn(&Located<'_>, *mut c_void) -> i32 + Send + Sync {
    move |located, stream| {
        let mut of_set = Located::default();
        of_set.operands.iter_mut().zip(&indices).for_each(|(operand, &index)| *operand = *located.at(index));
        let (start, end) = (located.workspace.start, located.workspace.end);
        of_set.operands[OUTPUT] = place(start + offset, start + begin);
        of_set.workspace = place(start + begin, end);
        (launch.launch)(&of_set, stream)
    }
}
