//! The texts of a family's shaders, made without a device, for the tests that validate them.

use std::collections::HashSet;

use super::device::Props;
use super::program::StepBuilder;
use super::text::{Numbers, Source};
use super::work::Work;
use crate::error::Reason;

/// Collects the texts of dispatches, each once.
#[derive(Default)]
pub(crate) struct Variants {
    known: HashSet<(Source, bool, Numbers)>,
    /// Each with what it is for; the name of one for a device without subgroups ends in "no subgroups".
    pub(crate) texts: Vec<(String, String)>,
}

impl Variants {
    /// Devices whose shaders differ: with subgroups of 32 threads, of 8, of 8 to 32, and without subgroups.
    pub(crate) fn devices() -> [Props; 4] {
        [Some((32, 32)), Some((8, 8)), Some((8, 32)), None].map(Self::device)
    }

    /// A device with subgroups of these widths, from and to, and with immediates; or one with neither, few bindings and small workgroups.
    pub(crate) fn device(subgroup_sizes: Option<(u32, u32)>) -> Props {
        let is_able = subgroup_sizes.is_some();
        Props {
            adapter: String::new(),
            api: String::new(),
            driver: String::new(),
            is_cpu: false,
            subgroup_sizes,
            immediate_bytes: if is_able { 128 } else { 0 },
            max_binding_bytes: u64::from(u32::MAX),
            max_buffer_bytes: u64::from(u32::MAX),
            max_storage_buffers: if is_able { 16 } else { 8 },
            max_workgroup_bytes: 16 << 10,
            max_threads: if is_able { 1024 } else { 256 },
            max_groups: 65535,
            binding_align: 256,
        }
    }

    /// Adds every text that a plan would compile for one of its dispatches on a device: one for aligned chunks, if layouts can have them, and one
    /// for any address; each with inputs that are only read, and with all operands bound for reading and writing. `name` says what they are for.
    fn add(&mut self, name: &str, step: &StepBuilder, props: &Props) {
        let subgroups =
            props.subgroup_sizes.map_or("no subgroups".into(), |(from, to)| format!("subgroups of {from} to {to}"));
        for is_chunked in [true, false].into_iter().filter(|chunked| !chunked || step.can_chunk) {
            let source = step.source(is_chunked);
            let numbers = source.numbers(props);
            for is_shared in [false, true] {
                if self.known.insert((source.clone(), is_shared, numbers)) {
                    let form = if is_chunked { "chunks" } else { "words" };
                    let shared = if is_shared { ", all bound alike" } else { "" };
                    let name = format!("{name}: {}, {form}{shared}, {subgroups}", step.entry);
                    self.texts.push((name, source.assemble(is_shared, numbers)));
                }
            }
        }
    }

    /// As [`add`](Self::add), all dispatches of a plan, if there is such a plan.
    pub(crate) fn add_work<C>(&mut self, name: &str, work: Result<Work<C>, Reason>, props: &Props) {
        self.add_steps(name, &work.map(|work| work.steps).unwrap_or_default(), props);
    }

    /// As [`add`](Self::add), some dispatches.
    pub(crate) fn add_steps(&mut self, name: &str, steps: &[StepBuilder], props: &Props) {
        for step in steps {
            self.add(name, step, props);
        }
    }
}
