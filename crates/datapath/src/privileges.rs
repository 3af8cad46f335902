//! What a thread of root may still do once all that it needs is open.
//!
//! Only the thread that calls gives its privileges up, and those that it starts later. There is no filter
//! of system calls (seccomp): every packet that is sent would pass it.

use std::io;

use rustix::thread::{
    CapabilitySet, CapabilitySets, Gid, Uid, capabilities, set_capabilities, set_keep_capabilities,
    set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

/// The user and the group that own nothing.
const NOBODY: u32 = 65534;

/// What entering a network namespace needs; setns(2).
pub const ENTER: CapabilitySet = CapabilitySet::SYS_ADMIN;
/// What having the kernel time eBPF programs needs; bpf(2), BPF_ENABLE_STATS.
pub const MEASURE: CapabilitySet = CapabilitySet::SYS_ADMIN;

/// What is done with the things that are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Send packets on open sockets. Those of AF_XDP are taken off their interface at the end.
    Send,
    /// Empty the rings of taps into files, open more of these, and detach the programs at the end.
    Tap {
        /// Whether some are in other network namespaces, which it enters for that.
        elsewhere: bool,
        /// Whether it is measured now and then what they cost.
        measured: bool,
    },
    /// Empty the rings of a trace into an open file, and name what is in it at the end.
    Trace {
        /// Whether it goes on in other files, which it opens.
        rotates: bool,
        /// Whether it is measured now and then what it costs.
        measured: bool,
    },
}

impl Work {
    /// What is kept of root's capabilities; capabilities(7).
    fn kept(self) -> CapabilitySet {
        match self {
            Self::Send => CapabilitySet::NET_ADMIN,
            Self::Tap { .. } => {
                CapabilitySet::NET_ADMIN
                    | CapabilitySet::BPF
                    | CapabilitySet::PERFMON
                    | CapabilitySet::DAC_OVERRIDE
            }
            // The kernel shows the addresses of its functions to SYSLOG alone.
            Self::Trace { rotates, .. } => {
                let all = CapabilitySet::BPF | CapabilitySet::PERFMON | CapabilitySet::SYSLOG;
                if rotates { all | CapabilitySet::DAC_OVERRIDE } else { all }
            }
        }
    }

    /// What is laid down, and taken up again for a moment by [`raised`].
    fn spared(self) -> CapabilitySet {
        match self {
            Self::Tap { elsewhere, measured } => {
                let mut spared = CapabilitySet::empty();
                spared.set(ENTER, elsewhere);
                if measured {
                    spared |= MEASURE;
                }
                spared
            }
            Self::Trace { measured: true, .. } => MEASURE,
            _ => CapabilitySet::empty(),
        }
    }

    /// Whether files are opened later, which are root's.
    fn opens_files(self) -> bool {
        matches!(self, Self::Tap { .. } | Self::Trace { rotates: true, .. })
    }
}

/// Gives up what the calling thread does not need for some work. It is nobody's then, but where it opens
/// files. Without root's privileges nothing happens.
///
/// # Errors
/// The system refuses it.
pub fn keep(work: Work) -> io::Result<()> {
    let had = capabilities(None)?;
    if !had.effective.contains(CapabilitySet::SETUID | CapabilitySet::SETGID) {
        return Ok(());
    }
    set_no_new_privs(true)?;
    if !work.opens_files() {
        let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
        set_keep_capabilities(true)?;
        set_thread_groups(&[])?;
        set_thread_res_gid(group, group, group)?;
        set_thread_res_uid(user, user, user)?;
    }
    let kept = work.kept() & had.permitted;
    let inheritable = CapabilitySet::empty();
    let permitted = kept | (work.spared() & had.permitted);
    set_capabilities(None, CapabilitySets { effective: kept, permitted, inheritable })?;
    Ok(())
}

/// Does something with capabilities that the calling thread may have and had laid down.
///
/// # Errors
/// The system refuses it.
pub fn raised<T>(more: CapabilitySet, work: impl FnOnce() -> T) -> io::Result<T> {
    let had = capabilities(None)?;
    let effective = had.effective | (more & had.permitted);
    if effective == had.effective {
        return Ok(work());
    }
    set_capabilities(None, CapabilitySets { effective, ..had })?;
    let done = work();
    set_capabilities(None, had)?;
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel says of a thread that kept what it needs for some work.
    fn status_of(work: Work) -> String {
        let thread = std::thread::spawn(move || {
            keep(work).expect("root may give up what it has");
            std::fs::read_to_string("/proc/thread-self/status").expect("proc is there")
        });
        thread.join().expect("no panic")
    }

    fn field<'a>(status: &'a str, name: &str) -> &'a str {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.expect("the kernel tells it").trim_start_matches(':').trim()
    }

    #[test]
    fn a_thread_keeps_what_it_needs_and_is_nobody_s() {
        let own = std::fs::read_to_string("/proc/thread-self/status").expect("proc is there");
        if !own.contains("Uid:\t0\t") {
            return; // only root has something to give up
        }
        let effective = |status: &str| u64::from_str_radix(field(status, "CapEff"), 16).unwrap();
        let permitted = |status: &str| u64::from_str_radix(field(status, "CapPrm"), 16).unwrap();
        let expected = |work: Work| work.kept().bits() & effective(&own);
        let tap = |elsewhere| Work::Tap { elsewhere, measured: false };
        let trace = |rotates, measured| Work::Trace { rotates, measured };
        let spares = [tap(true), trace(false, true)];
        for work in [Work::Send, tap(false), trace(false, false), trace(true, false)]
            .into_iter()
            .chain(spares)
        {
            let status = status_of(work);
            assert_eq!(effective(&status), expected(work), "{work:?}");
            let spared = work.spared().bits() & permitted(&own);
            assert_eq!(permitted(&status), expected(work) | spared, "{work:?}");
            assert_eq!(spared == 0, !spares.contains(&work));
            assert_eq!(field(&status, "NoNewPrivs"), "1");
            let user = if work.opens_files() { "0" } else { "65534" };
            assert!(field(&status, "Uid").split('\t').all(|id| id == user), "{work:?}: {status}");
        }
        // Other threads have what they had.
        let after = std::fs::read_to_string("/proc/thread-self/status").expect("proc is there");
        assert_eq!(effective(&after), effective(&own));
    }
}
