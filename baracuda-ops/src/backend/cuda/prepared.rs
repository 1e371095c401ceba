//! Sets of prepared kernels, as a device remembers them.

use std::any::Any;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Numbers for C functions, which kernels may be told apart by.
pub(crate) trait Numbers: Copy + Hash + Eq + Send + Sync + 'static {}
impl<T: Copy + Hash + Eq + Send + Sync + 'static> Numbers for T {}

/// A number for what decides which kernels are prepared, where that has many words. If two agree by chance, kernels of one are loaded when they are first
/// launched, not before.
pub(crate) fn number_of(of: &impl Hash) -> u64 {
    let mut state = DefaultHasher::new();
    of.hash(&mut state);
    state.finish()
}

/// A set of prepared kernels, as a value that tells it from all others, of any type.
pub(super) trait Prepared: Any + Send {
    fn is(&self, other: &dyn Any) -> bool;
    fn hash_into(&self, state: &mut dyn Hasher);
}

impl<K: Hash + Eq + Send + 'static> Prepared for K {
    fn is(&self, other: &dyn Any) -> bool {
        other.downcast_ref() == Some(self)
    }

    fn hash_into(&self, mut state: &mut dyn Hasher) {
        self.type_id().hash(&mut state);
        self.hash(&mut state);
    }
}

impl PartialEq for dyn Prepared {
    fn eq(&self, other: &Self) -> bool {
        self.is(other)
    }
}

impl Eq for dyn Prepared {}

impl Hash for dyn Prepared {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash_into(state);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::Prepared;

    #[test]
    fn kernels_are_told_apart_by_type_and_value() {
        let mut prepared: HashSet<Box<dyn Prepared>> = HashSet::new();
        assert!(prepared.insert(Box::new(("a", [1u32, 2]))));
        assert!(prepared.insert(Box::new(("a", [1u32, 3]))));
        assert!(prepared.insert(Box::new(("b", [1u32, 2]))));
        assert!(prepared.insert(Box::new(("a", (1u32, 2u32)))));
        assert!(!prepared.insert(Box::new(("a", [1u32, 2]))));
    }
}
