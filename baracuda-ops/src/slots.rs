//! How descriptors declare their operands.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

use crate::error::{Error, Result};
use crate::json;
use crate::plan::{Access, Slot};
use crate::tensor::TensorDesc;

/// Layouts that replace an operand's default, by the operand's name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct Layouts(BTreeMap<String, TensorDesc>);

impl Layouts {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
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
pub(crate) struct Slots(Arc<[Slot]>);

impl Deref for Slots {
    type Target = [Slot];

    fn deref(&self) -> &[Slot] {
        &self.0
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
    /// The slot with a name, if declared.
    pub(crate) fn named(&self, name: &str) -> Option<&Slot> {
        self.0.iter().find(|slot| slot.name == name)
    }
}

/// Collects the slots of one descriptor.
pub(crate) struct SlotsBuilder<'l> {
    op: &'static str,
    names: &'static [&'static str],
    layouts: &'l mut Layouts,
    slots: Vec<Slot>,
}

impl<'l> SlotsBuilder<'l> {
    /// For the op `op` with operands `names`. A layout that says what the default says is dropped from `layouts`, so that equal
    /// requests compare equal.
    pub(crate) fn new(op: &'static str, names: &'static [&'static str], layouts: &'l mut Layouts) -> Self {
        Self { op, names, layouts, slots: Vec::with_capacity(names.len()) }
    }

    /// Declares an operand, with its default layout or the caller's.
    pub(crate) fn declare(&mut self, name: &'static str, access: Access, default: TensorDesc) -> Result<TensorDesc> {
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
        self.slots.insert(at, Slot { name, position, access, desc, span_bytes, in_place: None });
        Ok(desc)
    }

    /// Lets two operands lie at the identical range, if both are declared with the identical layout.
    pub(crate) fn in_place(&mut self, a: &str, b: &str) {
        let find = |name| self.slots.iter().position(|slot| slot.name == name);
        let (Some(a), Some(b)) = (find(a), find(b)) else { return };
        if self.slots[a].desc == self.slots[b].desc {
            self.slots[a].in_place = Some(self.slots[b].position);
            self.slots[b].in_place = Some(self.slots[a].position);
        }
    }

    /// The slots, once every layout has found its operand.
    pub(crate) fn finish(self) -> Result<Slots> {
        let is_declared = |name: &str| self.slots.iter().any(|slot| slot.name == name);
        if let Some(name) = self.layouts.keys().find(|name| !is_declared(name)) {
            let declared: Vec<&str> = self.slots.iter().map(|slot| slot.name).collect();
            return Err(
                self.invalid("layouts", format!("{name} is not declared; declared are {}", declared.join(", ")))
            );
        }
        Ok(Slots(self.slots.into()))
    }

    fn invalid(&self, field: &'static str, rule: String) -> Error {
        Error::InvalidDescriptor { op: self.op, field, rule }
    }
}
