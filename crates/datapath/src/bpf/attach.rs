//! Where programs are attached. The kernel takes them away when the [`Attachment`] is dropped and,
//! but for filters of tc, also when this process is killed.

use std::ffi::CString;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use libbpf_rs::ErrorKind;

use super::cost::program_info;
use super::filter::Filter;
use super::{BpfError, Loaded};
use crate::cpu::check;
use crate::interface::Interface;

/// Programs that can be told apart on one hook; nobody has as many.
const MAX_PROGRAMS: usize = 64;

/// The packets of an interface that a program sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Those that arrive.
    Ingress,
    /// Those that leave, but for those of senders that bypass the queueing discipline.
    Egress,
}

impl Hook {
    fn tcx(self) -> libbpf_sys::bpf_attach_type {
        match self {
            Self::Ingress => libbpf_sys::BPF_TCX_INGRESS,
            Self::Egress => libbpf_sys::BPF_TCX_EGRESS,
        }
    }
}

/// Where an XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver.
    Native,
    /// In the kernel's receive path, whatever the driver.
    Generic,
}

impl XdpMode {
    /// The mode of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Native, Self::Generic].into_iter().find(|mode| mode.name() == name)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic => "generic",
        }
    }
}

/// Where a program is attached to an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A tcx hook (Linux 6.6), before the programs that are there.
    Tcx(Hook),
    /// A hook of tc, as a filter before all others.
    Filter(Hook),
    /// XDP; without a mode in the driver if it can, else in the kernel's receive path.
    Xdp(Option<XdpMode>),
}

impl Place {
    /// What an interface has where this place is taken.
    fn taken_by(self) -> &'static str {
        match self {
            Self::Tcx(_) | Self::Filter(_) => "a tap",
            Self::Xdp(_) => "an XDP program",
        }
    }

    /// How that is removed, after a colon; empty where another of our programs does it.
    fn freed_by(self, name: &str) -> String {
        match self {
            Self::Tcx(_) | Self::Filter(_) => String::new(),
            Self::Xdp(_) => {
                format!(": stop its owner, or `ip link set dev {name} xdp off` ends it")
            }
        }
    }

    /// What an interface does not take, and what may help.
    fn refused_as(self) -> (&'static str, &'static str) {
        match self {
            Self::Tcx(_) | Self::Filter(_) => ("tap", ""),
            Self::Xdp(None) => ("XDP program", ""),
            Self::Xdp(Some(XdpMode::Native)) => (
                "XDP program in native mode",
                ": use generic mode, or a larger buffer than the frames",
            ),
            Self::Xdp(Some(XdpMode::Generic)) => {
                ("XDP program in generic mode", ": this needs Linux 5.9")
            }
        }
    }
}

/// A program that is attached; dropping it takes the program away.
#[derive(Debug)]
pub(crate) enum Attachment {
    /// By a link of the kernel.
    Link {
        /// The link.
        _link: OwnedFd,
    },
    /// By a filter of tc, which stays when this process is killed.
    Filter {
        /// The filter.
        _filter: Filter,
    },
}

impl Loaded {
    /// Attaches a program to an interface of this network namespace.
    pub(crate) fn attach(
        &self,
        program: &str,
        interface: &Interface,
        place: Place,
    ) -> Result<Attachment, BpfError> {
        let attached = match place {
            Place::Tcx(hook) => self.link(program, interface, hook.tcx(), libbpf_sys::BPF_F_BEFORE),
            Place::Filter(hook) => Filter::attach(&self.program(program), interface, hook)
                .map(|filter| Attachment::Filter { _filter: filter }),
            Place::Xdp(mode) => {
                let flags = match mode {
                    None => 0,
                    Some(XdpMode::Native) => libbpf_sys::XDP_FLAGS_DRV_MODE,
                    Some(XdpMode::Generic) => libbpf_sys::XDP_FLAGS_SKB_MODE,
                };
                self.link(program, interface, libbpf_sys::BPF_XDP, flags)
            }
        };
        attached.map_err(|error| not_attached(&error, interface, place))
    }

    /// Runs a program of type tp_btf at its tracepoint, or one of type raw_tp at that of this name.
    pub(crate) fn follow(
        &self,
        program: &str,
        raw: Option<&String>,
    ) -> Result<Attachment, BpfError> {
        let fd = self.program(program).as_fd().as_raw_fd();
        let name = raw.map(|name| CString::new(name.as_str()).expect("names have no zeros"));
        let name = name.as_ref().map_or(std::ptr::null(), |name| name.as_ptr());
        // SAFETY: the name lives until the call is over; the descriptor is ours.
        let link = unsafe {
            check(libbpf_sys::bpf_raw_tracepoint_open(name, fd)).map(|fd| OwnedFd::from_raw_fd(fd))
        };
        Ok(Attachment::Link { _link: link.map_err(|error| self.refused(error))? })
    }

    fn link(
        &self,
        program: &str,
        interface: &Interface,
        kind: libbpf_sys::bpf_attach_type,
        flags: u32,
    ) -> libbpf_rs::Result<Attachment> {
        let options = libbpf_sys::bpf_link_create_opts {
            sz: size_of::<libbpf_sys::bpf_link_create_opts>() as u64,
            flags,
            ..Default::default()
        };
        let fd = self.program(program).as_fd().as_raw_fd();
        // SAFETY: `options` says its own size; the descriptor that comes back is ours.
        let link = unsafe {
            let options = &raw const options;
            let created = libbpf_sys::bpf_link_create(fd, interface.index, kind, options);
            OwnedFd::from_raw_fd(check(created).map_err(taken)?)
        };
        Ok(Attachment::Link { _link: link })
    }
}

/// XDP says of a place that is taken that it is busy, tc that something exists.
fn taken(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::EBUSY) => io::ErrorKind::AlreadyExists.into(),
        _ => error,
    }
}

/// That there is a program already where only one can be.
pub(crate) fn busy(interface: &Interface, place: Place) -> BpfError {
    let name = interface.name.clone();
    BpfError::Busy { place: place.taken_by(), remedy: place.freed_by(&name), name }
}

fn not_attached(error: &libbpf_rs::Error, interface: &Interface, place: Place) -> BpfError {
    match error.kind() {
        ErrorKind::AlreadyExists => busy(interface, place),
        ErrorKind::PermissionDenied => BpfError::NotPermitted,
        _ => {
            let (place, remedy) = place.refused_as();
            let (name, reason) = (interface.name.clone(), error.to_string());
            BpfError::Attach { name, place, reason, remedy }
        }
    }
}

/// The names of the programs on a tcx hook; none when the kernel does not know tcx (before 6.6).
pub(crate) fn programs_on(interface: &Interface, hook: Hook) -> io::Result<Option<Vec<String>>> {
    let mut ids = [0u32; MAX_PROGRAMS];
    let mut options = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as u64,
        prog_ids: ids.as_mut_ptr(),
        ..Default::default()
    };
    options.__bindgen_anon_1.prog_cnt = MAX_PROGRAMS as u32;
    // SAFETY: `options` describes `ids`; the kernel writes their number into the union.
    let answer = check(unsafe {
        libbpf_sys::bpf_prog_query_opts(interface.index, hook.tcx(), &raw mut options)
    });
    let count = match answer {
        // SAFETY: as above.
        Ok(_) => unsafe { options.__bindgen_anon_1.prog_cnt as usize },
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(None),
        Err(error) => return Err(error),
    };
    let name_of = |&id: &u32| -> io::Result<String> {
        // SAFETY: takes no pointers; the descriptor is ours.
        let program =
            unsafe { OwnedFd::from_raw_fd(check(libbpf_sys::bpf_prog_get_fd_by_id(id))?) };
        let info = program_info(program.as_raw_fd())?;
        let name = info.name.iter().take_while(|&&byte| byte != 0).map(|&byte| byte as u8);
        Ok(String::from_utf8_lossy(&name.collect::<Vec<_>>()).into_owned())
    };
    // One that is taken away meanwhile is none that bothers us.
    Ok(Some(ids[..count].iter().filter_map(|id| name_of(id).ok()).collect()))
}
