//! Runs untrusted work (a chat template) within bounds of stack, memory and time.
//!
//! The work runs on a thread of its own with a large stack, since values that a template nests
//! deeply are dropped recursively. An allocation beyond the memory budget parks that thread for
//! good: stable Rust can neither fail such an allocation nor unwind out of the allocator. A thread
//! that exceeds its time is given up until it ends. While `MAX_GIVEN_UP` threads are parked or late,
//! all work is refused.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const STACK_BYTES: usize = 256 << 20; // address space; pages are used on demand
const MAX_GIVEN_UP: usize = 4;
const CHECK_PERIOD: Duration = Duration::from_millis(20);

/// Bounds of one piece of work.
#[derive(Clone, Copy)]
pub struct Bounds {
    pub memory_bytes: usize,
    pub time: Duration,
}

/// Why work has no result.
pub enum Failure {
    /// It failed, or was stopped.
    Failed(String),
    /// It was not started, since too many threads are given up.
    Busy,
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self::Failed(message)
    }
}

impl From<Failure> for String {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Failed(message) => message,
            Failure::Busy => "too many chat templates exceed their time or memory".into(),
        }
    }
}

/// Allocated bytes of a confined thread, and where it reports that it exceeds its budget.
struct Budget {
    used: Cell<usize>,
    limit: Cell<usize>,
    exceeded: Cell<*const AtomicBool>, // null: the thread is not confined
}

thread_local! {
    static BUDGET: Budget = const {
        Budget { used: Cell::new(0), limit: Cell::new(0), exceeded: Cell::new(ptr::null()) }
    };
}

struct BudgetedAllocator;

#[global_allocator]
static ALLOCATOR: BudgetedAllocator = BudgetedAllocator;

fn charge(bytes: usize) {
    _ = BUDGET.try_with(|budget| {
        let exceeded = budget.exceeded.get();
        if exceeded.is_null() {
            return;
        }
        budget.used.set(budget.used.get().saturating_add(bytes));
        if budget.used.get() > budget.limit.get() {
            // SAFETY: run() leaks the flag of a thread that it gives up.
            unsafe { &*exceeded }.store(true, Ordering::Release);
            loop {
                thread::sleep(Duration::from_secs(3600));
            }
        }
    });
}

fn refund(bytes: usize) {
    _ = BUDGET.try_with(|budget| budget.used.set(budget.used.get().saturating_sub(bytes)));
}

// SAFETY: every call is passed on to the system's allocator.
unsafe impl GlobalAlloc for BudgetedAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        charge(layout.size());
        System.alloc(layout)
    }
    unsafe fn dealloc(&self, data: *mut u8, layout: Layout) {
        refund(layout.size());
        System.dealloc(data, layout);
    }
    unsafe fn realloc(&self, data: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        charge(size);
        refund(layout.size());
        System.realloc(data, layout, size)
    }
}

/// Threads that were given up: parked, or still running behind their deadline.
static GIVEN_UP: AtomicUsize = AtomicUsize::new(0);

/// Whether work is refused.
pub fn busy() -> bool {
    GIVEN_UP.load(Ordering::Acquire) >= MAX_GIVEN_UP
}

/// Of a thread, between `run` and the thread itself: whoever comes second knows what the first did.
const RUNNING: u8 = 0;
const ENDED: u8 = 1;
const LATE: u8 = 2;

/// Returns the slot of a thread that was given up, however the thread ends.
struct EndGuard(Arc<AtomicU8>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        if self.0.swap(ENDED, Ordering::AcqRel) == LATE {
            GIVEN_UP.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Runs `work` and returns its result, or why there is none. A panic is a failure.
pub fn run<T, F>(bounds: Bounds, work: F) -> Result<T, Failure>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, String> + Send + 'static,
{
    if busy() {
        return Err(Failure::Busy);
    }
    let exceeded: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    let state = Arc::new(AtomicU8::new(RUNNING));
    let (send, receive) = mpsc::sync_channel(1);
    let guard = EndGuard(Arc::clone(&state));
    let confined = move || {
        let _guard = guard; // the last to be dropped
        let send = send;
        BUDGET.with(|budget| {
            budget.limit.set(bounds.memory_bytes);
            budget.exceeded.set(exceeded);
        });
        let result = work();
        BUDGET.with(|budget| budget.exceeded.set(ptr::null()));
        _ = send.send(result);
    };
    let builder = thread::Builder::new().name("template".into()).stack_size(STACK_BYTES);
    let thread = builder.spawn(confined).map_err(|error| format!("no thread: {error}"))?;
    let end = Instant::now() + bounds.time;
    let finish = |result| {
        _ = thread.join();
        // SAFETY: the thread, which alone uses the flag, has ended.
        drop(unsafe { Box::from_raw(ptr::from_ref(exceeded).cast_mut()) });
        result
    };
    let reason = loop {
        match receive.recv_timeout(CHECK_PERIOD.min(bounds.time)) {
            Ok(result) => return finish(result.map_err(Failure::Failed)),
            Err(RecvTimeoutError::Disconnected) => {
                return finish(Err(Failure::Failed("the template engine failed".into()))); // it panicked
            }
            Err(RecvTimeoutError::Timeout) if exceeded.load(Ordering::Acquire) => {
                let mebibytes = bounds.memory_bytes >> 20;
                break format!("the template needs more than {mebibytes} MiB");
            }
            Err(RecvTimeoutError::Timeout) if Instant::now() > end => {
                let seconds = bounds.time.as_secs_f64();
                break format!("the template takes longer than {seconds} s");
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    };
    GIVEN_UP.fetch_add(1, Ordering::AcqRel);
    if state.swap(LATE, Ordering::AcqRel) == ENDED {
        GIVEN_UP.fetch_sub(1, Ordering::AcqRel);
    }
    Err(Failure::Failed(reason))
}
