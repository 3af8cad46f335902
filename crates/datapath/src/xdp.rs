//! The redirecting forwarder: an XDP program on one interface, or on both, that sends every packet
//! out of the other. The kernel does the work; this side loads, waits and takes it away again.

use std::error::Error;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use libbpf_rs::{Object, ObjectBuilder};

use crate::cpu::check;
use crate::interface::{Interface, InterfaceError};
use crate::signals::StopSignals;
use crate::tap::OnReady;

/// libelf wants whole words.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

static OBJECT: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/redirect.bpf.o")));
/// How long to wait between two looks at the interfaces; signals end the wait.
const IDLE: Duration = Duration::from_millis(500);

/// Where the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver.
    Native,
    /// In the kernel's receive path, whatever the driver.
    Generic,
}

impl Mode {
    /// The mode of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "native" => Some(Self::Native),
            "generic" => Some(Self::Generic),
            _ => None,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic => "generic",
        }
    }

    fn flags(self) -> u32 {
        match self {
            Self::Native => libbpf_sys::XDP_FLAGS_DRV_MODE,
            Self::Generic => libbpf_sys::XDP_FLAGS_SKB_MODE,
        }
    }
}

/// Packets could not be redirected.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// An interface cannot be used.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// Input and output are the same.
    #[error("input and output are both {name}: choose two interfaces")]
    Same {
        /// The interface.
        name: String,
    },
    /// The program cannot be loaded.
    #[error("cannot load the XDP program: {0}: run as root on a kernel with CONFIG_BPF_SYSCALL")]
    Load(libbpf_rs::Error),
    /// The program cannot be attached.
    #[error("{name} takes no XDP program in {mode} mode: {source}: {remedy}")]
    Attach {
        /// The interface.
        name: String,
        /// The mode asked for.
        mode: &'static str,
        /// What the system said.
        source: io::Error,
        /// What helps.
        remedy: &'static str,
    },
    /// An interface was deleted.
    #[error("interface {name} vanished: whoever deleted it ended the forwarding")]
    Vanished {
        /// The interface.
        name: String,
    },
    /// The system refused something else.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The caller's function failed.
    #[error("{0}")]
    Ready(Box<dyn Error + Send + Sync>),
}

/// Redirects from `input` to `output`, and back if asked to, until SIGINT or SIGTERM.
pub fn redirect(
    input: &str,
    output: &str,
    both_ways: bool,
    mode: Mode,
    on_ready: Box<OnReady<'_>>,
) -> Result<(), XdpError> {
    let input = Interface::find_up(input)?;
    let output = Interface::find_up(output)?;
    if input.index == output.index {
        return Err(XdpError::Same { name: input.name });
    }
    let system = |what| move |source| XdpError::System { what, source };
    let signals = StopSignals::install().map_err(system("handle signals"))?;
    let mut links = vec![Link::attach(&input, Some(&output), mode)?];
    if both_ways {
        links.push(Link::attach(&output, Some(&input), mode)?);
    } else if mode == Mode::Native {
        // Some drivers (virtio_net) take redirected packets only where a program is attached; the
        // others need none, so that one that takes no program may still do.
        links.extend(Link::attach(&output, None, mode));
    }
    on_ready().map_err(XdpError::Ready)?;
    while !signals.requested() {
        signals.wait(None, IDLE);
        for interface in [&input, &output] {
            if !interface.exists() {
                return Err(XdpError::Vanished { name: interface.name.clone() });
            }
        }
    }
    Ok(())
}

/// The program on one interface; dropping it, or the end of this process, takes it away.
struct Link {
    _link: OwnedFd,
    _object: Object,
}

impl Link {
    /// Redirects what `from` receives, or lets it pass.
    fn attach(from: &Interface, to: Option<&Interface>, mode: Mode) -> Result<Self, XdpError> {
        libbpf_rs::set_print(None); // errors reach the user through our own messages
        let mut open = ObjectBuilder::default().open_memory(&OBJECT.0).map_err(XdpError::Load)?;
        for mut map in open.maps_mut() {
            if map.name().to_string_lossy().ends_with(".rodata") {
                let constants = map.initial_value_mut().expect("the program has a constant");
                let index = to.map_or(0, |to| to.index as u32);
                constants[..4].copy_from_slice(&index.to_ne_bytes());
            }
        }
        let object = open.load().map_err(XdpError::Load)?;
        let program = object.progs().next().expect("the object has a program");
        let options = libbpf_sys::bpf_link_create_opts {
            sz: size_of::<libbpf_sys::bpf_link_create_opts>() as u64,
            flags: mode.flags(),
            ..Default::default()
        };
        // SAFETY: `options` says its own size; the descriptor that comes back is ours.
        let link = unsafe {
            check(libbpf_sys::bpf_link_create(
                program.as_fd().as_raw_fd(),
                from.index,
                libbpf_sys::BPF_XDP,
                &raw const options,
            ))
            .map(|fd| OwnedFd::from_raw_fd(fd))
        };
        let link = link.map_err(|source| XdpError::Attach {
            name: from.name.clone(),
            mode: mode.name(),
            remedy: match (source.raw_os_error(), mode) {
                (Some(libc::EBUSY), _) => "another program is there: end its owner first",
                (Some(libc::EPERM), _) => "run as root",
                (_, Mode::Native) => "use generic mode, or a larger buffer than the frames",
                (_, Mode::Generic) => "this needs Linux 5.9",
            },
            source,
        })?;
        Ok(Self { _link: link, _object: object })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_have_names() {
        for mode in [Mode::Native, Mode::Generic] {
            assert_eq!(Mode::from_name(mode.name()), Some(mode));
        }
        assert_eq!(Mode::from_name("auto"), None);
    }

    #[test]
    fn missing_interfaces_are_named() {
        let error = redirect("tt-no-such", "lo", false, Mode::Generic, Box::new(|| Ok(())))
            .expect_err("refused");
        assert!(error.to_string().contains("tt-no-such"), "{error}");
    }
}
