//! The redirecting forwarder: an XDP program on one interface, or on both, that sends every packet
//! out of the other. The kernel does the work; this side loads, waits and takes it away again.

use std::error::Error;
use std::io;
use std::time::Duration;

use super::ports::{Ports, PortsError};
use crate::OnReady;
use crate::bpf::{BpfError, Redirection};
use crate::signals::StopSignals;

pub use crate::bpf::XdpMode;

/// How long to wait between two looks at the interfaces; signals end the wait.
const IDLE: Duration = Duration::from_millis(500);

/// Packets could not be redirected.
#[derive(Debug, thiserror::Error)]
pub enum RedirectError {
    /// The interfaces cannot be used.
    #[error(transparent)]
    Ports(#[from] PortsError),
    /// The program cannot be used.
    #[error(transparent)]
    Bpf(#[from] BpfError),
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
    mode: XdpMode,
    on_ready: Box<OnReady<'_>>,
) -> Result<(), RedirectError> {
    let ports = Ports::find(input, output)?;
    let Ports { input, output } = &ports;
    let system = |what| move |source| RedirectError::System { what, source };
    let signals = StopSignals::install().map_err(system("handle signals"))?;
    let mut links = vec![Redirection::attach(input, Some(output), Some(mode))?];
    if both_ways {
        links.push(Redirection::attach(output, Some(input), Some(mode))?);
    } else if mode == XdpMode::Native {
        // Some drivers (virtio_net) take redirected packets only where a program is attached; the
        // others need none, so that one that takes no program may still do.
        links.extend(Redirection::attach(output, None, Some(mode)));
    }
    on_ready().map_err(RedirectError::Ready)?;
    while !signals.requested() {
        signals.wait(None, IDLE);
        ports.check()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_have_names() {
        for mode in [XdpMode::Native, XdpMode::Generic] {
            assert_eq!(XdpMode::from_name(mode.name()), Some(mode));
        }
        assert_eq!(XdpMode::from_name("auto"), None);
    }

    #[test]
    fn missing_interfaces_are_named() {
        let error = redirect("tt-no-such", "lo", false, XdpMode::Generic, Box::new(|| Ok(())))
            .expect_err("refused");
        assert!(error.to_string().contains("tt-no-such"), "{error}");
    }
}
