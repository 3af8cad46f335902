//! Network interfaces of the calling thread's namespace.

use std::ffi::CStr;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

use crate::cpu::check;

/// Kinds of hardware whose packets begin with IP (linux/if_arp.h): of tun, WireGuard and others without
/// any (ARPHRD_NONE), PPP, tunnels of IP, SIT, GRE, GRE over IPv6, and cellular modems (ARPHRD_RAWIP).
const WITHOUT_ETHERNET: [u16; 8] = [0xfffe, 512, 768, 769, 776, 778, 823, 519];
/// The request for the numbers of queues; linux/ethtool.h.
const ETHTOOL_GCHANNELS: u32 = 0x3c;
/// The column of /proc/net/dev that counts drops, behind bytes, packets and errors.
const RECEIVE_DROPS: usize = 3;

/// An interface cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// No interface has this name.
    #[error("no interface {name:?} in this network namespace (`ip link` lists them)")]
    Missing {
        /// The name asked for.
        name: String,
    },
    /// The interface does not carry Ethernet frames.
    #[error("interface {name} is not Ethernet: choose another one")]
    NotEthernet {
        /// The interface.
        name: String,
    },
    /// The interface is down.
    #[error("interface {name} is down: bring it up with `ip link set {name} up`")]
    Down {
        /// The interface.
        name: String,
    },
    /// The system refused.
    #[error("cannot ask the kernel about interface {name}: {source}")]
    System {
        /// The interface.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name when it was looked up.
    pub name: String,
    /// Its index, which names it for as long as it exists.
    pub index: i32,
    /// The most bytes that a frame may carry after its Ethernet header.
    pub mtu: usize,
    /// Whether it is up.
    pub up: bool,
    /// Whether its packets are frames of Ethernet; else they begin with IP.
    pub ethernet: bool,
}

/// The queues that an interface sends through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queues {
    /// How many.
    pub queues: usize,
    /// How many it may be given.
    pub most: usize,
    /// Whether they receive as well.
    pub combined: bool,
}

impl Interface {
    /// Looks an interface up by name. Fails when there is none or it is not Ethernet.
    pub fn find(name: &str) -> Result<Self, InterfaceError> {
        let found = Self::find_any(name)?;
        if !found.ethernet {
            return Err(InterfaceError::NotEthernet { name: name.into() });
        }
        Ok(found)
    }

    /// Like [`Interface::find`], and packets may begin with IP as well.
    fn find_any(name: &str) -> Result<Self, InterfaceError> {
        let system = |source| InterfaceError::System { name: name.into(), source };
        let missing = || InterfaceError::Missing { name: name.into() };
        if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains('\0') {
            return Err(missing());
        }
        let socket = control_socket().map_err(system)?;
        let ask = |request| ask(&socket, name, request);
        // SAFETY (all three): each request fills the member of the union that is read.
        let index = match netdevice::name_to_index(&socket, name) {
            Ok(index) => index as i32,
            Err(Errno::NODEV) => return Err(missing()),
            Err(error) => return Err(system(error.into())),
        };
        let hardware = ask(libc::SIOCGIFHWADDR).map_err(system)?;
        let hardware = unsafe { hardware.ifr_ifru.ifru_hwaddr.sa_family };
        let ethernet = hardware == libc::ARPHRD_ETHER;
        if !ethernet && !WITHOUT_ETHERNET.contains(&hardware) {
            return Err(InterfaceError::NotEthernet { name: name.into() });
        }
        let mtu = ask(libc::SIOCGIFMTU).map_err(system)?;
        let flags = ask(libc::SIOCGIFFLAGS).map_err(system)?;
        Ok(Self {
            name: name.into(),
            index,
            mtu: unsafe { mtu.ifr_ifru.ifru_mtu } as usize,
            up: unsafe { flags.ifr_ifru.ifru_flags } as libc::c_int & libc::IFF_UP != 0,
            ethernet,
        })
    }

    /// Like [`Interface::find`], and the interface must be up.
    pub fn find_up(name: &str) -> Result<Self, InterfaceError> {
        Self::find(name)?.must_be_up()
    }

    /// Like [`Interface::find_up`], and packets may begin with IP as well.
    pub fn find_any_up(name: &str) -> Result<Self, InterfaceError> {
        Self::find_any(name)?.must_be_up()
    }

    fn must_be_up(self) -> Result<Self, InterfaceError> {
        if !self.up {
            return Err(InterfaceError::Down { name: self.name });
        }
        Ok(self)
    }

    /// Packets for the interface that the kernel has dropped before anybody received them; none
    /// when it is gone.
    pub fn dropped(&self) -> Option<u64> {
        let table = std::fs::read_to_string("/proc/thread-self/net/dev").ok()?;
        let (_, columns) = table
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.trim() == self.name)?;
        columns.split_whitespace().nth(RECEIVE_DROPS)?.parse().ok()
    }

    /// Whether it has a link at this moment. (IFF_RUNNING follows up to a second later.)
    pub fn has_link(&self) -> io::Result<bool> {
        let mut first = std::ptr::null_mut();
        // SAFETY: the list that it makes is walked until it is freed, and not afterwards.
        unsafe {
            check(libc::getifaddrs(&raw mut first))?;
            let mut next: *const libc::ifaddrs = first;
            let mut linked = false;
            while let Some(entry) = next.as_ref() {
                linked |= CStr::from_ptr(entry.ifa_name).to_bytes() == self.name.as_bytes()
                    && entry.ifa_flags & libc::IFF_LOWER_UP as u32 != 0;
                next = entry.ifa_next;
            }
            libc::freeifaddrs(first);
            Ok(linked)
        }
    }

    /// The queues that it sends through. One that does not say so has one.
    pub fn queues(&self) -> Result<Queues, InterfaceError> {
        // struct ethtool_channels of linux/ethtool.h: the command, four maxima, and the numbers of queues
        // that receive, send, do neither and do both.
        let mut channels = [0u32; 9];
        channels[0] = ETHTOOL_GCHANNELS;
        let system = |source| InterfaceError::System { name: self.name.clone(), source };
        let socket = control_socket().map_err(system)?;
        // SAFETY: the request reads and writes a structure of nine words.
        let told = unsafe { with_data(&socket, &self.name, libc::SIOCETHTOOL, &mut channels) };
        let [_, _, most_send, _, most_both, _, send, _, both] = channels;
        Ok(match told {
            Ok(()) => Queues {
                queues: (send + both) as usize,
                most: (most_send + most_both) as usize,
                combined: most_both > 0,
            },
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                Queues { queues: 1, most: 1, combined: true }
            }
            Err(error) => return Err(system(error)),
        })
    }

    /// Whether the interface still exists in this namespace, under whatever name.
    pub fn exists(&self) -> bool {
        control_socket().is_ok_and(|fd| netdevice::index_to_name(fd, self.index as u32).is_ok())
    }
}

/// A socket to ask the kernel about interfaces.
pub(crate) fn control_socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
}

/// Brings an interface of any kind up.
pub(crate) fn bring_up(name: &str) -> io::Result<()> {
    let socket = control_socket()?;
    let mut answer = ask(&socket, name, libc::SIOCGIFFLAGS)?;
    // SAFETY: the request above filled the flags, and this one reads them.
    unsafe { answer.ifr_ifru.ifru_flags |= libc::IFF_UP as libc::c_short };
    // SAFETY: the request reads one ifreq.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const answer) })?;
    Ok(())
}

fn ask(socket: &OwnedFd, name: &str, request: libc::Ioctl) -> io::Result<libc::ifreq> {
    let mut question = question(name);
    // SAFETY: the requests used here read and write one ifreq.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut question) })?;
    Ok(question)
}

/// A request that reads and writes `data`.
///
/// # Safety
/// The request must be one whose ifreq points to a T.
pub(crate) unsafe fn with_data<T>(
    socket: &OwnedFd,
    name: &str,
    request: libc::Ioctl,
    data: &mut T,
) -> io::Result<()> {
    let mut question = question(name);
    question.ifr_ifru.ifru_data = std::ptr::from_mut(data).cast();
    // SAFETY: the caller's promise.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut question) })?;
    Ok(())
}

fn question(name: &str) -> libc::ifreq {
    // SAFETY: an ifreq of zeroes is valid; the caller checked that the name fits with its NUL.
    let mut question: libc::ifreq = unsafe { zeroed() };
    for (slot, byte) in question.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = byte as libc::c_char;
    }
    debug_assert_eq!(
        unsafe { CStr::from_ptr(question.ifr_name.as_ptr()) }.to_bytes(),
        name.as_bytes()
    );
    question
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_cannot_exist_are_missing() {
        for name in ["", "tt-no-such", "longer-than-any-interface", "a\0b"] {
            let error = Interface::find(name).expect_err("no such interface");
            assert!(matches!(error, InterfaceError::Missing { .. }), "{error}");
        }
    }

    #[test]
    fn links_are_those_that_the_kernel_has() {
        let linked = |name: &str| {
            let (name, index, mtu, up, ethernet) = (name.into(), 0, 0, true, true);
            Interface { name, index, mtu, up, ethernet }.has_link().expect("asked")
        };
        assert!(!linked("tt-no-such"));
        // One that is down says nothing.
        let told = std::fs::read_to_string("/sys/class/net/lo/carrier").unwrap_or_default();
        assert_eq!(linked("lo"), told.trim() == "1");
    }

    #[test]
    fn loopback_is_not_ethernet() {
        let error = Interface::find("lo").expect_err("not Ethernet");
        assert!(matches!(error, InterfaceError::NotEthernet { .. }), "{error}");
    }
}
