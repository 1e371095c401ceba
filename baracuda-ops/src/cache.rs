//! A cache of plans that the caller owns.

use std::any::Any;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

use crate::backend::Device;
use crate::error::Result;
use crate::lru::Lru;
use crate::options::PlanOptions;
use crate::plan::{Descriptor, Plan};

/// Plans by (device, descriptor, options). When full, the plan unused for longest makes room. A request takes as long however many plans
/// are held.
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

#[derive(Debug)]
struct State {
    requests: Lru<Request>,
    stats: CacheStats,
}

/// What was asked for, and its plan.
#[derive(Debug)]
struct Request {
    device: Device,
    options: PlanOptions,
    /// A `Plan<D>`, which holds the descriptor.
    plan: Box<dyn Any + Send>,
}

impl Request {
    fn get<D: Descriptor>(&self, device: &Device, descriptor: &D, options: &PlanOptions) -> Option<&Plan<D>> {
        let plan = self.plan.downcast_ref::<Plan<D>>()?;
        (self.device == *device && self.options == *options && plan.descriptor() == descriptor).then_some(plan)
    }
}

impl PlanCache {
    /// A cache of at most `capacity` plans; at least one.
    pub fn with_capacity(capacity: usize) -> Self {
        let state = State { requests: Lru::with_capacity(capacity), stats: CacheStats::default() };
        Self { hasher: RandomState::new(), state: Mutex::new(state) }
    }

    /// The cached plan, or a new one.
    ///
    /// # Errors
    /// As [`Plan::new`]; failures are not cached.
    pub fn plan<D: Descriptor>(&self, device: &Device, descriptor: &D, options: &PlanOptions) -> Result<Plan<D>> {
        let hash = self.hasher.hash_one((device, D::NAME, descriptor, options));
        if let Some(plan) = self.hit(hash, device, descriptor, options) {
            return Ok(plan);
        }
        // Built outside the lock: others may build or find meanwhile.
        let plan = Plan::new(device, descriptor.clone(), options)?;
        let request = Request { device: device.clone(), options: options.clone(), plan: Box::new(plan.clone()) };
        let mut state = self.lock();
        state.stats.misses += 1;
        let is_it = |request: &Request| request.get(device, descriptor, options).is_some();
        let left_over = if state.requests.get(hash, is_it).is_some() {
            Some(request)
        } else {
            let evicted = state.requests.insert(hash, request);
            state.stats.evictions += u64::from(evicted.is_some());
            state.stats.plans = state.requests.len();
            evicted
        };
        // Dropping a plan may free memory of its device, for which nobody has to wait.
        drop(state);
        drop(left_over);
        Ok(plan)
    }

    /// What the cache has done so far.
    pub fn stats(&self) -> CacheStats {
        self.lock().stats
    }

    /// Drops every plan.
    pub fn clear(&self) {
        let mut state = self.lock();
        let dropped = state.requests.take();
        state.stats.plans = 0;
        drop(state);
        drop(dropped);
    }

    fn hit<D: Descriptor>(&self, hash: u64, device: &Device, descriptor: &D, options: &PlanOptions) -> Option<Plan<D>> {
        let mut state = self.lock();
        let plan = state.requests.get(hash, |request| request.get(device, descriptor, options).is_some())?;
        let plan = plan.get(device, descriptor, options).cloned();
        state.stats.hits += 1;
        plan
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // No code runs under the lock that could leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::{DType, LayerNormDescriptor, TensorDesc};

    fn rows(rows: u64) -> LayerNormDescriptor {
        LayerNormDescriptor::new(TensorDesc::contiguous(DType::F32, &[rows, 4]).unwrap(), 1).unwrap()
    }

    fn request(plan: impl Any + Send) -> Request {
        Request { device: Device::cpu(), options: PlanOptions::default(), plan: Box::new(plan) }
    }

    #[test]
    fn the_plan_unused_for_longest_makes_room() {
        let (device, options, cache) = (Device::cpu(), PlanOptions::default(), PlanCache::with_capacity(2));
        for n in [1, 2, 1, 3, 1, 2] {
            cache.plan(&device, &rows(n), &options).unwrap();
        }
        let stats = cache.stats();
        assert_eq!((stats.hits, stats.misses, stats.evictions, stats.plans), (2, 4, 2, 2));
    }

    #[test]
    fn plans_are_dropped_while_the_cache_serves_others() {
        struct Probe(Arc<PlanCache>, Arc<AtomicUsize>);

        impl Drop for Probe {
            fn drop(&mut self) {
                let is_free = self.0.state.try_lock().is_ok();
                self.1.fetch_add(usize::from(is_free), Ordering::Relaxed);
            }
        }

        let (cache, dropped) = (Arc::new(PlanCache::with_capacity(1)), Arc::new(AtomicUsize::new(0)));
        let hold = || {
            let mut state = cache.lock();
            let evicted = state.requests.insert(7, request(Probe(cache.clone(), dropped.clone())));
            drop(state);
            drop(evicted);
        };
        hold();
        cache.plan(&Device::cpu(), &rows(1), &PlanOptions::default()).unwrap();
        assert_eq!((cache.stats().evictions, dropped.load(Ordering::Relaxed)), (1, 1));
        cache.clear();
        hold();
        cache.clear();
        assert_eq!((cache.stats().plans, dropped.load(Ordering::Relaxed)), (0, 2));
    }
}
