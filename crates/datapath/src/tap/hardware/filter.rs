//! Tells a network card to stamp every packet that it receives, and takes that back.
//!
//! SIOCSHWTSTAMP of Documentation/networking/timestamping.rst. A driver may answer with another
//! filter than it was asked for; only "all" will do.

use std::io;

use libc::hwtstamp_config;

use crate::interface::{Interface, control_socket, with_data};

/// A card cannot stamp every packet.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// The driver stamps nothing, or not all packets.
    #[error(
        "interface {name} cannot stamp every received packet in hardware: {why} (`ethtool -T {name}` \
         tells what it can)"
    )]
    Unable {
        /// The interface.
        name: String,
        /// What the driver said.
        why: String,
    },
    /// The privilege is missing.
    #[error(
        "the kernel does not permit changing what interface {name} stamps: run as root (or with \
         CAP_NET_ADMIN)"
    )]
    NotPermitted {
        /// The interface.
        name: String,
    },
}

/// While this lives, the card stamps every packet that it receives.
#[derive(Debug)]
pub struct EveryPacket {
    interface: Interface,
    /// What it did before, if the driver tells and it was something else.
    before: Option<hwtstamp_config>,
}

impl EveryPacket {
    /// Asks for it and looks whether it is so.
    pub fn stamp(interface: &Interface) -> Result<Self, FilterError> {
        let name = || interface.name.clone();
        let mut config = hwtstamp_config { flags: 0, tx_type: 0, rx_filter: 0 };
        // Drivers of old cannot tell; then nothing is changed back.
        let before = exchange(interface, libc::SIOCGHWTSTAMP, &mut config).ok().map(|()| config);
        let mut wanted = hwtstamp_config {
            flags: 0,
            tx_type: before.map_or(0, |config| config.tx_type),
            rx_filter: libc::HWTSTAMP_FILTER_ALL as libc::c_int,
        };
        exchange(interface, libc::SIOCSHWTSTAMP, &mut wanted).map_err(|error| {
            let why = match error.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => {
                    return FilterError::NotPermitted { name: name() };
                }
                Some(libc::EOPNOTSUPP | libc::ENOTTY) => "its driver has no hardware stamps".into(),
                Some(libc::ERANGE) => "its driver has no filter for all packets".into(),
                _ => format!("its driver says: {error}"),
            };
            FilterError::Unable { name: name(), why }
        })?;
        let every = Self { interface: interface.clone(), before };
        if wanted.rx_filter != libc::HWTSTAMP_FILTER_ALL as libc::c_int {
            let why = format!("asked for all, its driver chose filter {}", wanted.rx_filter);
            return Err(FilterError::Unable { name: name(), why });
        }
        Ok(every)
    }
}

impl Drop for EveryPacket {
    fn drop(&mut self) {
        if let Some(mut before) = self.before {
            // Fails when the interface is gone, and its setting with it.
            let _ = exchange(&self.interface, libc::SIOCSHWTSTAMP, &mut before);
        }
    }
}

fn exchange(
    interface: &Interface,
    request: libc::c_ulong,
    config: &mut hwtstamp_config,
) -> io::Result<()> {
    // SAFETY: both requests read and write one hwtstamp_config.
    unsafe { with_data(&control_socket()?, &interface.name, request as libc::Ioctl, config) }
}
