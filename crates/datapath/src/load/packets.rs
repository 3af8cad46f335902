//! Datagrams that the receive softirq of this CPU delivers to sockets that nobody reads.
//!
//! They go to the broadcast address of the loopback interface of a network namespace that only the
//! calling thread has. So they meet nobody else's packets, and all of it ends with the thread. The
//! datagrams of a burst are one packet until a socket has it (UDP GSO): the softirq, which nothing
//! but an interrupt can interrupt, has them all in one piece.

use std::io;
use std::mem::size_of;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::cpu::check;
use crate::interface::bring_up;
use crate::socket::set_option;

/// Sockets that have each datagram: what makes it take some microseconds.
pub const SOCKETS: usize = 16;
/// Datagrams of a burst, at most: UDP_MAX_SEGMENTS of all kernels (udp(7)).
pub const MOST_AT_ONCE: u64 = 64;
/// Bytes of a datagram: a frame of 60 without its headers.
const BYTES: usize = 18;
/// The only packets of the namespace need no port of their own; 9 is what discards (RFC 863).
const PORT: u16 = 9;
const BROADCAST: Ipv4Addr = Ipv4Addr::new(127, 255, 255, 255);

/// Sockets of both ends.
pub(super) struct Packets {
    sender: UdpSocket,
    content: Vec<u8>,
    /// Never read: full after the first datagrams.
    _receivers: Vec<OwnedFd>,
}

impl Packets {
    /// Moves the calling thread to a network namespace of its own, for ever.
    pub(super) fn new(at_once: u64) -> io::Result<Self> {
        // SAFETY: takes no pointers.
        check(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
        bring_up("lo")?;
        let receivers = (0..SOCKETS).map(|_| receiver()).collect::<io::Result<_>>()?;
        let sender = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        sender.set_broadcast(true)?;
        let socket = OwnedFd::from(sender);
        set_option(&socket, libc::SOL_UDP, libc::UDP_SEGMENT, &(BYTES as libc::c_int))?;
        let sender = UdpSocket::from(socket);
        sender.connect((BROADCAST, PORT))?;
        let content = vec![0; BYTES * at_once.clamp(1, MOST_AT_ONCE) as usize];
        Ok(Self { sender, content, _receivers: receivers })
    }

    /// Sends a burst, which is received before this returns; how many datagrams that was.
    pub(super) fn burst(&self) -> u64 {
        match self.sender.send(&self.content) {
            Ok(sent) => (sent / BYTES) as u64,
            Err(_) => 0,
        }
    }
}

/// A socket with the least room for datagrams.
fn receiver() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers; the descriptor is ours.
    let socket = unsafe {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
        OwnedFd::from_raw_fd(check(libc::socket(libc::AF_INET, kind, 0))?)
    };
    set_option(&socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, &1i32)?;
    set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &1i32)?;
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: PORT.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(BROADCAST).to_be() },
        sin_zero: [0; 8],
    };
    // SAFETY: pointer and length describe `address`.
    check(unsafe {
        let length = size_of::<libc::sockaddr_in>() as libc::socklen_t;
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length)
    })?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel counts of UDP in the calling thread's namespace, by its name in
    /// /proc/net/snmp.
    fn counted(name: &str) -> u64 {
        let text = std::fs::read_to_string("/proc/thread-self/net/snmp").expect("counters");
        let mut rows = text.lines().filter(|line| line.starts_with("Udp:"));
        let names = rows.next().expect("names").split_whitespace();
        let values = rows.next().expect("values").split_whitespace();
        let (_, value) = names.zip(values).find(|(one, _)| *one == name).expect("a counter");
        value.parse().expect("a number")
    }

    #[test]
    fn every_datagram_of_a_burst_comes_to_every_socket() {
        let done = std::thread::spawn(|| {
            let packets = match Packets::new(MOST_AT_ONCE) {
                Err(error) if error.raw_os_error() == Some(libc::EPERM) => return false,
                other => other.expect("a namespace"),
            };
            for _ in 0..3 {
                packets.burst(); // the sockets are full now
            }
            let before = counted("RcvbufErrors");
            let sent: u64 = (0..10).map(|_| packets.burst()).sum();
            assert_eq!(sent, 10 * MOST_AT_ONCE);
            assert_eq!(counted("RcvbufErrors") - before, sent * SOCKETS as u64);
            true
        });
        if !done.join().expect("joined") {
            eprintln!("skipped: network namespaces need root");
        }
    }
}
