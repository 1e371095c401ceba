//! What was asked for last.

use std::collections::HashMap;
use std::hash::Hash;

/// Values by key, which many ask for at once and which take long to make. Beyond `capacity` those leave that nobody has asked for longest.
pub(super) struct Recent<K, V> {
    known: HashMap<K, Held<V>>,
    capacity: usize,
    /// Counts the requests.
    clock: u64,
}

struct Held<V> {
    value: V,
    /// The clock of the last request.
    used: u64,
}

impl<K: Hash + Eq, V: Clone> Recent<K, V> {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self { known: HashMap::new(), capacity, clock: 0 }
    }

    /// The value of each key, where it is known.
    pub(super) fn get(&mut self, keys: &[K]) -> Vec<Option<V>> {
        self.clock += 1;
        let used = self.clock;
        let value = |key| {
            let held = self.known.get_mut(key)?;
            held.used = used;
            Some(held.value.clone())
        };
        keys.iter().map(value).collect()
    }

    /// Adds values. Returns those that make room, a quarter of the capacity at once, so that this happens seldom.
    #[must_use]
    pub(super) fn insert(&mut self, values: impl IntoIterator<Item = (K, V)>) -> Vec<V> {
        self.clock += 1;
        let used = self.clock;
        self.known.extend(values.into_iter().map(|(key, value)| (key, Held { value, used })));
        if self.known.len() <= self.capacity {
            return Vec::new();
        }
        let mut clocks: Vec<u64> = self.known.values().map(|held| held.used).collect();
        let surplus = self.known.len() - self.capacity * 3 / 4;
        let (_, &mut last_to_leave, _) = clocks.select_nth_unstable(surplus - 1);
        let leaves = |held: &mut Held<V>| held.used <= last_to_leave && held.used < used;
        self.known.extract_if(|_, held| leaves(held)).map(|(_, held)| held.value).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_unused_for_longest_leave() {
        let mut recent = Recent::with_capacity(8);
        assert!(recent.insert((0..8).map(|n| (n, 10 * n))).is_empty());
        assert_eq!(recent.get(&[3, 5, 9]), [Some(30), Some(50), None]);
        let mut left = recent.insert([(8, 80)]);
        left.sort_unstable();
        assert_eq!(left, [0, 10, 20, 40, 60, 70]);
        assert_eq!(recent.get(&[3, 5, 8]), [Some(30), Some(50), Some(80)]);
    }

    #[test]
    fn a_request_of_more_than_the_capacity_stays_whole() {
        let mut recent = Recent::with_capacity(4);
        assert!(recent.insert((0..9).map(|n| (n, n))).is_empty());
        assert_eq!(recent.get(&[0, 8]), [Some(0), Some(8)]);
    }
}
