//! A cache of plans that the caller owns.

use std::any::Any;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

use crate::backend::Device;
use crate::error::Result;
use crate::options::PlanOptions;
use crate::plan::{Descriptor, Plan};

/// Plans by (device, descriptor, options). When full, the plan unused for longest makes room.
///
/// A plan is cheap to hold: whoever runs one shape again and again keeps the plan itself.
///
/// ```
/// use baracuda_ops::{DType, Device, PlanCache, PlanOptions, RmsNormDescriptor, TensorDesc};
/// let (device, options, cache) = (Device::cpu(), PlanOptions::default(), PlanCache::with_capacity(64));
/// let descriptor = RmsNormDescriptor::new(TensorDesc::contiguous(DType::F32, &[8, 64])?, 1)?;
/// cache.plan(&device, &descriptor, &options)?;
/// cache.plan(&device, &descriptor, &options)?;
/// assert_eq!((cache.stats().hits, cache.stats().misses), (1, 1));
/// # Ok::<(), baracuda_ops::Error>(())
/// ```
#[derive(Debug)]
pub struct PlanCache {
    capacity: usize,
    hasher: RandomState,
    state: Mutex<State>,
}

/// What a cache has done.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Requests served from the cache.
    pub hits: u64,
    /// Requests that built a plan.
    pub misses: u64,
    /// Plans that made room.
    pub evictions: u64,
    /// Plans held.
    pub plans: usize,
}

#[derive(Debug, Default)]
struct State {
    /// Entries by hash; those of one bucket differ in their key.
    buckets: HashMap<u64, Vec<Entry>>,
    /// Counts requests, so that entries know when they were last used.
    clock: u64,
    stats: CacheStats,
}

#[derive(Debug)]
struct Entry {
    device: Device,
    options: PlanOptions,
    /// A `Plan<D>`, which holds the descriptor.
    plan: Box<dyn Any + Send>,
    used: u64,
}

impl Entry {
    fn get<D: Descriptor>(&self, device: &Device, descriptor: &D, options: &PlanOptions) -> Option<&Plan<D>> {
        let plan = self.plan.downcast_ref::<Plan<D>>()?;
        (self.device == *device && self.options == *options && plan.descriptor() == descriptor).then_some(plan)
    }
}

impl PlanCache {
    /// A cache of at most `capacity` plans; at least one.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), hasher: RandomState::new(), state: Mutex::default() }
    }

    /// The cached plan, or a new one.
    ///
    /// # Errors
    /// As [`Plan::new`]; failures are not cached.
    pub fn plan<D: Descriptor>(&self, device: &Device, descriptor: &D, options: &PlanOptions) -> Result<Plan<D>> {
        let key = self.key(device, descriptor, options);
        if let Some(plan) = self.hit(key, device, descriptor, options) {
            return Ok(plan);
        }
        // Built outside the lock: others may build or find meanwhile.
        let plan = Plan::new(device, descriptor.clone(), options)?;
        let mut state = self.lock();
        state.stats.misses += 1;
        let used = state.clock;
        let bucket = state.buckets.entry(key).or_default();
        if !bucket.iter().any(|entry| entry.get(device, descriptor, options).is_some()) {
            let (device, options) = (device.clone(), options.clone());
            bucket.push(Entry { device, options, plan: Box::new(plan.clone()), used });
            state.stats.plans += 1;
            if state.stats.plans > self.capacity {
                state.evict();
            }
        }
        Ok(plan)
    }

    /// What the cache has done so far.
    pub fn stats(&self) -> CacheStats {
        self.lock().stats
    }

    /// Drops every plan.
    pub fn clear(&self) {
        let mut state = self.lock();
        state.buckets.clear();
        state.stats.plans = 0;
    }

    fn hit<D: Descriptor>(&self, key: u64, device: &Device, descriptor: &D, options: &PlanOptions) -> Option<Plan<D>> {
        let mut state = self.lock();
        state.clock += 1;
        let now = state.clock;
        let bucket = state.buckets.get_mut(&key)?;
        let entry = bucket.iter_mut().find(|entry| entry.get(device, descriptor, options).is_some())?;
        entry.used = now;
        let plan = entry.get(device, descriptor, options)?.clone();
        state.stats.hits += 1;
        Some(plan)
    }

    fn key<D: Descriptor>(&self, device: &Device, descriptor: &D, options: &PlanOptions) -> u64 {
        self.hasher.hash_one((device, D::NAME, descriptor, options))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // No code runs under the lock that could leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn evict(&mut self) {
        let oldest = self.buckets.iter().flat_map(|(&key, bucket)| bucket.iter().map(move |e| (e.used, key))).min();
        let Some((used, key)) = oldest else { return };
        if let Some(bucket) = self.buckets.get_mut(&key) {
            bucket.retain(|entry| entry.used != used);
            if bucket.is_empty() {
                self.buckets.remove(&key);
            }
        }
        let plans = self.buckets.values().map(Vec::len).sum();
        self.stats.evictions += (self.stats.plans - plans) as u64;
        self.stats.plans = plans;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, LayerNormDescriptor, TensorDesc};

    #[test]
    fn the_plan_unused_for_longest_makes_room() {
        let (device, options, cache) = (Device::cpu(), PlanOptions::default(), PlanCache::with_capacity(2));
        let rows = |n| LayerNormDescriptor::new(TensorDesc::contiguous(DType::F32, &[n, 4]).unwrap(), 1).unwrap();
        for n in [1, 2, 1, 3, 1, 2] {
            cache.plan(&device, &rows(n), &options).unwrap();
        }
        let stats = cache.stats();
        assert_eq!((stats.hits, stats.misses, stats.evictions, stats.plans), (2, 4, 2, 2));
    }
}
