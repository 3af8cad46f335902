//! The kernel's own stamps: when each packet was handed over to an interface, in the context of
//! whoever handed it over.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use crate::cpu::check;
use crate::interface::control_socket;

/// How long the kernel may take to begin: it patches its code in a work item of its own.
const BEGINNING: Duration = Duration::from_millis(10);

/// Makes the kernel stamp every packet of this machine that is handed to a network interface
/// (`skb->tstamp`), for as long as the socket is open. Each costs a reading of CLOCK_REALTIME.
///
/// SO_TIMESTAMPNS is documented in socket(7) and Documentation/networking/timestamping.rst; what it
/// switches on is not the socket's own.
pub fn ask_for_stamps() -> io::Result<OwnedFd> {
    let socket = control_socket()?;
    let on: libc::c_int = 1;
    // SAFETY: pointer and length describe `on`.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPNS,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    })?;
    // Nothing tells when it has begun. The taps count the packets that come too early.
    std::thread::sleep(BEGINNING);
    Ok(socket)
}
