//! Runs untrusted work (a chat template) within bounds of stack, memory and time.
//!
//! The work runs on a thread of its own with a large stack, since values that a template nests
//! deeply are dropped recursively. An allocation beyond the memory budget parks that thread for
//! good: stable Rust can neither fail such an allocation nor unwind out of the allocator. Its
//! memory, at most the budget, stays in use, so after `MAX_GIVEN_UP` such threads all work is
//! refused.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

const STACK_BYTES: usize = 256 << 20; // address space; pages are used on demand
const MEMORY_BYTES: usize = 256 << 20;
const MAX_GIVEN_UP: usize = 4;
const DEADLINE: Duration = Duration::from_secs(10);
const CHECK_PERIOD: Duration = Duration::from_millis(20);

/// Allocated bytes of a confined thread, and where it reports that it exceeds its budget.
struct Budget {
    used: Cell<usize>,
    exceeded: Cell<*const AtomicBool>, // null: the thread is not confined
}

thread_local! {
    static BUDGET: Budget =
        const { Budget { used: Cell::new(0), exceeded: Cell::new(ptr::null()) } };
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
        if budget.used.get() > MEMORY_BYTES {
            // SAFETY: run() leaks the flag if the thread does not end.
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

/// Runs `work` and returns its result, or why it was stopped. A panic is an error.
pub fn run<T, F>(work: F) -> Result<T, String>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, String> + Send + 'static,
{
    if GIVEN_UP.load(Ordering::Relaxed) >= MAX_GIVEN_UP {
        return Err("too many templates have exceeded their time or memory; restart this process".into());
    }
    let exceeded: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    let (send, receive) = mpsc::sync_channel(1);
    let confined = move || {
        BUDGET.with(|budget| budget.exceeded.set(exceeded));
        let result = work();
        BUDGET.with(|budget| budget.exceeded.set(ptr::null()));
        if send.send(result).is_err() {
            GIVEN_UP.fetch_sub(1, Ordering::Relaxed); // late, but not running any more
        }
    };
    let builder = thread::Builder::new().name("template".into()).stack_size(STACK_BYTES);
    let thread = builder.spawn(confined).map_err(|error| format!("no thread: {error}"))?;
    let end = Instant::now() + DEADLINE;
    let finish = |result| {
        _ = thread.join();
        // SAFETY: the thread, which alone uses the flag, has ended.
        drop(unsafe { Box::from_raw(ptr::from_ref(exceeded).cast_mut()) });
        result
    };
    loop {
        match receive.recv_timeout(CHECK_PERIOD) {
            Ok(result) => return finish(result),
            Err(RecvTimeoutError::Disconnected) => {
                return finish(Err("the template engine failed".into())); // it panicked
            }
            Err(RecvTimeoutError::Timeout) if exceeded.load(Ordering::Acquire) => {
                GIVEN_UP.fetch_add(1, Ordering::Relaxed);
                let mebibytes = MEMORY_BYTES >> 20;
                return Err(format!("the template needs more than {mebibytes} MiB"));
            }
            Err(RecvTimeoutError::Timeout) if Instant::now() > end => {
                GIVEN_UP.fetch_add(1, Ordering::Relaxed);
                let seconds = DEADLINE.as_secs();
                return Err(format!("the template takes longer than {seconds} s"));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}
