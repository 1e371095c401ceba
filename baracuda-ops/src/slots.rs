//! How descriptors declare their operands.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Deserializer, Serialize};

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::json;
use crate::tensor::TensorDesc;

/// Rows of a table whose operands a run finds by their index. Operands of rows behind them, and those of sets after the first, are further ones: they come
/// in a list.
pub(crate) const MAX_SLOTS: usize = 24;

/// The most sets of operands of a plan.
pub(crate) const MAX_SETS: usize = 4096;

/// The name of an operand of a set of operands other than the first, which has the names of the table.
pub(crate) fn name_in_set(table: &[OperandEntry], index: usize, set: usize) -> &'static str {
    /// By the name in the table and the set. They are made once and kept: at most as many as [`MAX_SETS`] sets have.
    static NAMES: Mutex<BTreeMap<(&'static str, usize), &'static str>> = Mutex::new(BTreeMap::new());
    let name = table[index].name;
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    names.entry((name, set)).or_insert_with(|| Box::leak(format!("{name}.{set}").into_boxed_str()))
}

/// What errors call the workspace.
pub(crate) const WORKSPACE: &str = "workspace";

/// How a run uses an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Read.
    In,
    /// Written in full, never read.
    Out,
    /// Read and written.
    InOut,
}

/// An operand that a descriptor declares: its shape, layout and type follow from the descriptor's fields.
#[non_exhaustive]
#[derive(Clone, Debug, Serialize)]
pub struct Slot {
    /// The operand's name.
    pub name: &'static str,
    /// Its position among all names of the op, declared or not.
    pub position: usize,
    /// How a run uses it.
    pub access: Access,
    /// Its shape, layout and element type.
    pub desc: TensorDesc,
    /// [`TensorDesc::span_bytes`] of `desc`.
    pub span_bytes: u64,
    /// The position of the operand that may lie at the identical range; it has the identical `desc`.
    pub in_place: Option<usize>,
    /// The position of the operand that could lie at the identical range if both promised the same alignment.
    #[serde(skip)]
    pub(crate) otherwise_aligned: Option<usize>,
    /// The index of the operand's row in the family's table, where a run finds it; of sets after the first, [`MAX_SLOTS`] and its number among the further
    /// operands.
    #[serde(skip)]
    pub(crate) index: usize,
    /// The set of operands that it belongs to: 0 for all ops but those that have several.
    #[serde(skip)]
    pub(crate) set: usize,
    /// Whether each element of it is used at one position alone, so that it may lie in the place of any operand of that kind with the identical
    /// `desc`, of which one is read and the other written.
    #[serde(skip)]
    pub(crate) is_of_positions: bool,
}

impl Slot {
    /// Whether it is one of the further operands, which come in a list.
    pub(crate) fn is_further(&self) -> bool {
        self.index >= MAX_SLOTS
    }

    /// Whether the two may lie at the identical range, of which one is written.
    pub(crate) fn shares_place_with(&self, other: &Self) -> bool {
        let is_mapped =
            self.is_of_positions && other.is_of_positions && self.access != other.access && self.set == other.set;
        self.in_place == Some(other.position) || (is_mapped && self.desc == other.desc)
    }

    /// Whether they could, if both promised the same alignment.
    pub(crate) fn would_share_place_with(&self, other: &Self) -> bool {
        let is_mapped =
            self.is_of_positions && other.is_of_positions && self.access != other.access && self.set == other.set;
        self.otherwise_aligned == Some(other.position) || (is_mapped && self.desc.is_otherwise_aligned(&other.desc))
    }
}

/// A row of a family's table of operands.
#[derive(Clone, Copy, Debug)]
pub struct OperandEntry {
    pub(crate) name: &'static str,
    /// How a run uses it, unless a descriptor's fields say otherwise.
    pub(crate) access: Access,
    /// `always`, or by which field it is declared: `if stats`, `unless from_y`. Operands that say the same come together.
    pub(crate) declared: &'static str,
    /// The operand that may lie at the identical range where the layouts agree.
    pub(crate) in_place: Option<&'static str>,
}

/// The index of the row with a name.
pub(crate) const fn index_of(table: &[OperandEntry], name: &str) -> usize {
    let mut index = 0;
    while !is_same(table[index].name, name) {
        index += 1;
    }
    index
}

pub(crate) const fn is_same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

/// What errors name: an op and, by the indices of its table, its operands.
#[derive(Clone, Copy)]
pub(crate) struct Names {
    pub(crate) op: &'static str,
    pub(crate) table: &'static [OperandEntry],
}

/// Layouts that replace an operand's default, by the operand's name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct Layouts(BTreeMap<String, TensorDesc>);

impl Layouts {
    pub(crate) fn new() -> Self {
        Self::default()
    }
}

impl<const N: usize> From<[(String, TensorDesc); N]> for Layouts {
    fn from(layouts: [(String, TensorDesc); N]) -> Self {
        Self(layouts.into())
    }
}

impl Deref for Layouts {
    type Target = BTreeMap<String, TensorDesc>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Layouts {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl<'de> Deserialize<'de> for Layouts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        json::unique(deserializer).map(Self)
    }
}

/// The slots of a descriptor, derived from its fields.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    declared: Arc<[Slot]>,
    table: &'static [OperandEntry],
}

impl Deref for Slots {
    type Target = [Slot];

    fn deref(&self) -> &[Slot] {
        &self.declared
    }
}

/// Slots follow from the fields beside them, so equal fields have equal slots.
impl PartialEq for Slots {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Slots {}

impl Hash for Slots {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Slots {
    /// The slot of a row of the family's table, if declared.
    pub(crate) fn at(&self, index: usize) -> Option<&Slot> {
        self.iter().find(|slot| slot.index == index)
    }

    /// The slot of a row of the family's table that every descriptor of the op declares. Builds with assertions stop where that is not so.
    pub(crate) fn always(&self, index: usize) -> &Slot {
        let slot = self.at(index);
        debug_assert!(slot.is_some(), "{} is not declared", self.table[index].name);
        slot.unwrap_or(&self[0])
    }

    /// The name of a row of the family's table, declared or not.
    #[cfg(feature = "wgpu")]
    pub(crate) fn name(&self, index: usize) -> &'static str {
        self.table[index].name
    }

    /// Refuses operands of those rows that are not dense.
    #[cfg(feature = "cuda")]
    pub(crate) fn check_dense(&self, indices: &[usize]) -> Result<(), crate::error::Reason> {
        match self.all_at(indices).find(|slot| !slot.desc.is_contiguous()) {
            Some(slot) => Err(format!("{} is not dense: strides {:?}", slot.name, slot.desc.strides()).into()),
            None => Ok(()),
        }
    }

    /// The slots of those rows that are declared, in the order given.
    pub(crate) fn all_at(&self, indices: &[usize]) -> impl Iterator<Item = &Slot> {
        indices.iter().filter_map(|&index| self.at(index))
    }
}

/// Collects the slots of one descriptor.
pub(crate) struct SlotsBuilder<'l> {
    op: &'static str,
    table: &'static [OperandEntry],
    names: &'static [&'static str],
    layouts: &'l mut Layouts,
    slots: Vec<Slot>,
    /// Pairs of indices that may lie at the identical range.
    partners: Vec<[usize; 2]>,
}

impl<'l> SlotsBuilder<'l> {
    /// Slots for the op `op` with the operands `names` of a table. A layout that says what the default says is dropped from `layouts`, so that equal
    /// requests compare equal.
    pub(crate) fn new(
        op: &'static str,
        table: &'static [OperandEntry],
        names: &'static [&'static str],
        layouts: &'l mut Layouts,
    ) -> Self {
        let partner = |(index, row): (usize, &OperandEntry)| row.in_place.map(|name| [index, index_of(table, name)]);
        let partners = table.iter().enumerate().filter_map(partner).collect();
        Self { op, table, names, layouts, slots: Vec::with_capacity(names.len()), partners }
    }

    /// Declares the operand of a row of the table, with its default layout or the caller's.
    pub(crate) fn declare(&mut self, index: usize, default: TensorDesc) -> Result<TensorDesc> {
        self.declare_as(self.table[index].access, index, default)
    }

    /// As [`declare`](Self::declare), with an access that follows from a field.
    pub(crate) fn declare_as(&mut self, access: Access, index: usize, default: TensorDesc) -> Result<TensorDesc> {
        let name = self.table[index].name;
        let desc = match self.layouts.get(name) {
            Some(desc) if *desc == default => {
                self.layouts.remove(name);
                default
            }
            Some(desc) => {
                if desc.dtype() != default.dtype() || desc.dims() != default.dims() {
                    let rule = format!(
                        "must be {} {:?}, as the other fields say; got {} {:?}",
                        default.dtype(),
                        default.dims(),
                        desc.dtype(),
                        desc.dims()
                    );
                    return Err(self.invalid(name, rule));
                }
                *desc
            }
            None => default,
        };
        if access != Access::In && !desc.is_injective() {
            let rule = format!("strides {:?} of {:?} write an element twice", desc.strides(), desc.dims());
            return Err(self.invalid(name, rule));
        }
        let position = self.names.iter().position(|&n| n == name);
        let position = position.ok_or_else(|| self.invalid(name, "an operand of this op".into()))?;
        let at = self.slots.partition_point(|slot| slot.position < position);
        let span_bytes = desc.span_bytes();
        self.slots.insert(
            at,
            Slot {
                name,
                position,
                access,
                desc,
                span_bytes,
                in_place: None,
                otherwise_aligned: None,
                index,
                set: 0,
                is_of_positions: false,
            },
        );
        Ok(desc)
    }

    /// A layout that follows from the fields, or an error that names the operand of the row.
    pub(crate) fn derived(&self, index: usize, desc: Result<TensorDesc>) -> Result<TensorDesc> {
        desc.map_err(|error| error.of_operand(self.op, self.table[index].name))
    }

    /// As [`declare`](Self::declare), if a field says so.
    pub(crate) fn declare_if(&mut self, is_declared: bool, index: usize, default: TensorDesc) -> Result<()> {
        if is_declared { self.declare(index, default).map(drop) } else { Ok(()) }
    }

    /// Declares the operands that have a type, dense and of these extents.
    pub(crate) fn declare_dense<const N: usize>(
        &mut self,
        dims: &[u64],
        operands: [(usize, Option<DType>); N],
    ) -> Result<()> {
        for (index, dtype) in operands {
            if let Some(dtype) = dtype {
                self.declare(index, self.derived(index, TensorDesc::contiguous(dtype, dims))?)?;
            }
        }
        Ok(())
    }

    /// Lets each declared output lie at the range of any declared input with the identical descriptor: the op reads an element only to compute those at
    /// its position. The first input that is no other output's is the partner that is named.
    pub(crate) fn share_places(&mut self, is_read_alike: impl Fn(usize) -> bool) {
        let is_shared = |slot: &Slot| slot.access == Access::Out || is_read_alike(slot.index);
        self.slots.iter_mut().for_each(|slot| slot.is_of_positions = is_shared(slot));
        let shared = self.slots.iter().filter(|slot| slot.is_of_positions);
        let (inputs, outputs): (Vec<&Slot>, Vec<&Slot>) = shared.partition(|slot| slot.access == Access::In);
        let mut pairs: Vec<[usize; 2]> = Vec::new();
        for output in outputs {
            let is_free = |input: &&&Slot| input.desc == output.desc && pairs.iter().all(|pair| pair[0] != input.index);
            if let Some(input) = inputs.iter().find(is_free) {
                pairs.push([input.index, output.index]);
            }
        }
        self.partners.extend(pairs);
    }

    /// The layouts of the operands of sets after the first, by their sets, under the names of the table.
    pub(crate) fn layouts_of_sets(&self) -> BTreeMap<usize, Layouts> {
        let mut sets: BTreeMap<usize, Layouts> = BTreeMap::new();
        for (name, desc) in self.layouts.iter() {
            let Some((name, set)) = name.rsplit_once('.') else { continue };
            let number = set.parse::<usize>().ok().filter(|number| number.to_string() == set);
            if let Some(number) = number {
                sets.entry(number).or_default().insert(name.into(), *desc);
            }
        }
        sets
    }

    /// The layouts of those operands of the first set.
    pub(crate) fn layouts_of_first(&self, names: &[&str]) -> Layouts {
        let of_first = self.layouts.iter().filter(|(name, _)| names.contains(&name.as_str()));
        Layouts(of_first.map(|(name, desc)| (name.clone(), *desc)).collect())
    }

    /// Declares the operands of a set after the first, which are those of a descriptor of this set alone without the inputs that the sets share. `layouts`:
    /// of that descriptor, those other than the default.
    pub(crate) fn declare_set(
        &mut self,
        set: usize,
        of_set: &[Slot],
        layouts: &Layouts,
        is_shared: impl Fn(usize) -> bool,
    ) {
        let first = self.slots.last().map_or(0, |slot| slot.index + 1).max(MAX_SLOTS);
        for (index, slot) in (first..).zip(of_set.iter().filter(|slot| !is_shared(slot.index))) {
            let name = name_in_set(self.table, slot.index, set);
            if !layouts.contains_key(slot.name) {
                self.layouts.remove(name);
            }
            let position = |of_one: usize| set * self.names.len() + of_one;
            let in_place = slot
                .in_place
                .filter(|partner| of_set.iter().any(|other| other.position == *partner && !is_shared(other.index)));
            self.slots.push(Slot {
                name,
                position: position(slot.position),
                in_place: in_place.map(position),
                otherwise_aligned: slot.otherwise_aligned.map(position),
                index,
                set,
                ..slot.clone()
            });
        }
    }

    /// Takes inputs that several sets share out of those in whose place an output may lie.
    pub(crate) fn keep_apart(&mut self, is_shared: impl Fn(usize) -> bool) {
        self.slots.iter_mut().filter(|slot| is_shared(slot.index)).for_each(|slot| slot.is_of_positions = false);
        self.partners.retain(|pair| !pair.iter().any(|&index| is_shared(index)));
    }

    /// Makes outputs of these names operands that are read as well, which lie in the place of no other.
    pub(crate) fn accumulate(&mut self, names: &BTreeSet<String>) -> Result<()> {
        for name in names {
            let is_gradient = |slot: &&mut Slot| slot.access == Access::Out && slot.desc.dtype().is_float();
            let found = self.slots.iter_mut().filter(is_gradient).find(|slot| slot.name == name);
            let Some(slot) = found else {
                let gradients = |slot: &&Slot| slot.access != Access::In && slot.desc.dtype().is_float();
                let known: Vec<&str> = self.slots.iter().filter(gradients).map(|slot| slot.name).collect();
                let rule = format!("{name} is no gradient that is declared; these are {}", known.join(", "));
                return Err(self.invalid("accumulate", rule));
            };
            (slot.access, slot.is_of_positions) = (Access::InOut, false);
            let index = slot.index;
            self.partners.retain(|pair| !pair.contains(&index));
        }
        Ok(())
    }

    /// Lets `b` lie at the range of `a`, in place of the partner that the table names.
    pub(crate) fn in_place_instead(&mut self, a: usize, b: usize) {
        self.partners.retain(|pair| !pair.contains(&b));
        self.partners.push([a, b]);
    }

    /// The slots, once every layout has found its operand.
    pub(crate) fn finish(mut self) -> Result<Slots> {
        let declared: HashSet<&str> = self.slots.iter().map(|slot| slot.name).collect();
        if let Some(name) = self.layouts.keys().find(|name| !declared.contains(name.as_str())) {
            let of_one: Vec<&str> = self.slots.iter().filter(|slot| slot.set == 0).map(|slot| slot.name).collect();
            let sets = self.slots.last().map_or(0, |slot| slot.set);
            let more = if sets > 0 { format!(", and those of sets 1 to {sets}") } else { String::new() };
            let rule = format!("{name} is not declared; declared are {}{more}", of_one.join(", "));
            return Err(self.invalid("layouts", rule));
        }
        for pair in &self.partners {
            let [Some(a), Some(b)] = pair.map(|index| self.slots.iter().position(|slot| slot.index == index)) else {
                continue;
            };
            if self.slots[a].desc == self.slots[b].desc {
                self.slots[a].in_place = Some(self.slots[b].position);
                self.slots[b].in_place = Some(self.slots[a].position);
            } else if self.slots[a].desc.is_otherwise_aligned(&self.slots[b].desc) {
                self.slots[a].otherwise_aligned = Some(self.slots[b].position);
                self.slots[b].otherwise_aligned = Some(self.slots[a].position);
            }
        }
        Ok(Slots { declared: self.slots.into(), table: self.table })
    }

    fn invalid(&self, field: &'static str, rule: String) -> Error {
        Error::InvalidDescriptor { op: self.op, field, rule }
    }
}
