//! Filters of tc, for kernels before 6.6, which have no tcx.

use std::io;
use std::mem::size_of;
use std::os::fd::AsFd;

use libbpf_rs::{Program, TC_EGRESS, TC_INGRESS, TcHook, TcHookBuilder};

use super::Hook;
use crate::interface::Interface;

/// The place of a program among the filters of a hook: before all others.
const PRIORITY: u32 = 1;

/// In the handle of a filter whose tap made the queueing discipline as well: what a tap that was killed
/// left can be told from this alone (`host/net/tap_filters.py`).
const MADE: u32 = 1 << 16;

/// Names a program within its priority: the first two letters of its own name. Of several the
/// last one that came is the first to see a packet.
fn handle(program: &Program<'_>) -> u32 {
    let name = program.name().as_encoded_bytes();
    name.iter().take(2).fold(0, |handle, &letter| handle << 8 | u32::from(letter))
}

/// A program on a hook of tc. It stays when this process is killed.
#[derive(Debug)]
pub(crate) struct Filter {
    hook: TcHook,
    // After the hook: dropped last.
    _qdisc: Qdisc,
}

impl Filter {
    pub(super) fn attach(
        program: &Program<'_>,
        interface: &Interface,
        hook: Hook,
    ) -> libbpf_rs::Result<Self> {
        let qdisc = Qdisc::ensure(interface.index)?;
        let at = |handle| {
            TcHookBuilder::new(program.as_fd())
                .ifindex(interface.index)
                .priority(PRIORITY)
                .handle(handle)
                .hook(match hook {
                    Hook::Ingress => TC_INGRESS,
                    Hook::Egress => TC_EGRESS,
                })
        };
        let made = if qdisc.made { MADE } else { 0 };
        if !qdisc.made && at(handle(program) | MADE).query().is_ok() {
            return Err(io::Error::from(io::ErrorKind::AlreadyExists).into());
        }
        let mut hook = at(handle(program) | made);
        hook.attach()?;
        Ok(Self { hook, _qdisc: qdisc })
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        // Fails when the interface is gone, and the program with it.
        let _ = self.hook.detach();
    }
}

/// The clsact queueing discipline that tc programs hang on; removed again if it was made here.
#[derive(Debug)]
struct Qdisc {
    hook: libbpf_sys::bpf_tc_hook,
    made: bool,
}

impl Qdisc {
    fn ensure(index: i32) -> io::Result<Self> {
        let mut hook = libbpf_sys::bpf_tc_hook {
            sz: size_of::<libbpf_sys::bpf_tc_hook>() as u64,
            ifindex: index,
            attach_point: libbpf_sys::BPF_TC_INGRESS,
            ..Default::default()
        };
        // libbpf_rs::TcHook does not tell whether the qdisc was there before.
        // SAFETY: `hook` says its own size.
        let made = match unsafe { libbpf_sys::bpf_tc_hook_create(&raw mut hook) } {
            0 => true,
            error if error == -libc::EEXIST => false,
            error => return Err(io::Error::from_raw_os_error(-error)),
        };
        Ok(Self { hook, made })
    }
}

impl Drop for Qdisc {
    fn drop(&mut self) {
        if self.made {
            // Both directions together stand for the qdisc itself.
            self.hook.attach_point = libbpf_sys::BPF_TC_INGRESS | libbpf_sys::BPF_TC_EGRESS;
            // SAFETY: as above. Fails when the interface is gone.
            unsafe { libbpf_sys::bpf_tc_hook_destroy(&raw mut self.hook) };
        }
    }
}
