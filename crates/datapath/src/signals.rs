//! Stopping cleanly on SIGINT and SIGTERM, also when called from Python's main thread.
//!
//! A handler sets a flag, for loops that spin, and writes to an eventfd, for those that wait.
//! Python's own handlers are put back afterwards.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

static REQUESTED: AtomicBool = AtomicBool::new(false);
static EVENT: AtomicI32 = AtomicI32::new(-1);
/// How many [`StopSignals`] live; the first installs, the last restores.
static LIVE: Mutex<Option<Installed>> = Mutex::new(None);

struct Installed {
    count: usize,
    event: Arc<OwnedFd>,
    previous: [(libc::c_int, libc::sigaction); 2],
}

/// While this lives, SIGINT and SIGTERM ask for a stop instead of ending the process.
#[derive(Debug)]
pub struct StopSignals(Arc<OwnedFd>);

extern "C" fn on_signal(_: libc::c_int) {
    REQUESTED.store(true, Ordering::Relaxed);
    let one = 1u64;
    // SAFETY: write(2) may be called in a handler; the descriptor is open while the handler is
    // installed. errno is put back for the code that was interrupted.
    unsafe {
        let errno = *libc::__errno_location();
        libc::write(EVENT.load(Ordering::Relaxed), (&raw const one).cast(), 8);
        *libc::__errno_location() = errno;
    }
}

impl StopSignals {
    /// Installs the handlers.
    pub fn install() -> io::Result<Self> {
        let mut live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(installed) = live.as_mut() {
            installed.count += 1;
            return Ok(Self(Arc::clone(&installed.event)));
        }
        let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        REQUESTED.store(false, Ordering::Relaxed);
        EVENT.store(event.as_raw_fd(), Ordering::Relaxed);
        *live = Some(Installed {
            count: 1,
            event: Arc::clone(&event),
            previous: [libc::SIGINT, libc::SIGTERM].map(|signal| (signal, replace(signal))),
        });
        Ok(Self(event))
    }

    /// Whether a stop was asked for.
    #[inline]
    pub fn requested(&self) -> bool {
        REQUESTED.load(Ordering::Relaxed)
    }

    /// Looks every `pause` whether something is missing still, and returns what was `missing` when
    /// the time was over: `None` as soon as nothing is, or a stop is asked for.
    pub(crate) fn wait_while<T>(
        &self,
        mut missing: impl FnMut() -> Option<T>,
        pause: Duration,
        limit: Duration,
    ) -> Option<T> {
        let deadline = Instant::now() + limit;
        loop {
            let found = missing()?;
            if self.requested() {
                return None;
            }
            if Instant::now() > deadline {
                return Some(found);
            }
            self.wait(None, pause);
        }
    }

    /// Waits until a stop is asked for, `readable` has something to read, or the time is over.
    pub fn wait(&self, readable: Option<BorrowedFd<'_>>, timeout: Duration) {
        self.wait_for_any(readable.as_slice(), timeout);
    }

    /// The same for several descriptors.
    pub(crate) fn wait_for_any(&self, readable: &[BorrowedFd<'_>], timeout: Duration) {
        let mut watched = vec![PollFd::new(&self.0, PollFlags::IN)];
        watched.extend(readable.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
        // A signal ends the wait as well, and a time that no clock reaches is none.
        let _ = poll(&mut watched, Timespec::try_from(timeout).ok().as_ref());
    }
}

impl Drop for StopSignals {
    fn drop(&mut self) {
        let mut live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(installed) = live.as_mut() {
            installed.count -= 1;
            if installed.count == 0 {
                for (signal, previous) in &installed.previous {
                    // SAFETY: `previous` came from the kernel.
                    unsafe { libc::sigaction(*signal, previous, std::ptr::null_mut()) };
                }
                EVENT.store(-1, Ordering::Relaxed);
                *live = None;
            }
        }
    }
}

impl std::fmt::Debug for Installed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Installed")
            .field("count", &self.count)
            .field("event", &self.event)
            .finish_non_exhaustive()
    }
}

/// Installs the handler for `signal` and returns the one before.
fn replace(signal: libc::c_int) -> libc::sigaction {
    // SAFETY: a zeroed sigaction has an empty mask and no flags; the handler is async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        let mut previous: libc::sigaction = zeroed();
        libc::sigaction(signal, &raw const action, &raw mut previous);
        previous
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_stops_wakes_and_is_forgotten_afterwards() {
        let outer = StopSignals::install().expect("eventfd");
        assert!(!outer.requested());
        let inner = StopSignals::install().expect("second one");
        drop(inner); // must not take the handler away
        let (soon, long) = (Duration::from_millis(1), Duration::from_secs(60));
        assert_eq!(outer.wait_while(|| Some("a link"), soon, soon), Some("a link"));
        let mut links = 0..3;
        assert_eq!(outer.wait_while(|| links.next(), soon, long), None);
        // SAFETY: the handler is installed.
        unsafe { libc::raise(libc::SIGTERM) };
        assert!(outer.requested());
        let start = Instant::now();
        outer.wait(None, long);
        assert_eq!(outer.wait_while(|| Some("a link"), long, long), None);
        assert!(start.elapsed() < Duration::from_secs(30));
        drop(outer);
        assert!(!StopSignals::install().expect("again").requested());
    }
}
