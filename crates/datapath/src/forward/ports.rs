//! The two interfaces that a forwarder stands between.

use crate::interface::{Interface, InterfaceError};

/// Where packets come in and go out.
pub(super) struct Ports {
    pub input: Interface,
    pub output: Interface,
}

/// Two interfaces cannot be forwarded between.
#[derive(Debug, thiserror::Error)]
pub enum PortsError {
    /// An interface cannot be used.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// Input and output are the same.
    #[error("input and output are both {name}: choose two interfaces")]
    Same {
        /// The interface.
        name: String,
    },
    /// An interface was deleted.
    #[error("interface {name} vanished: whoever deleted it ended the forwarding")]
    Vanished {
        /// The interface.
        name: String,
    },
}

impl Ports {
    /// Finds two interfaces, which must be up.
    pub fn find(input: &str, output: &str) -> Result<Self, PortsError> {
        let (input, output) = (Interface::find_up(input)?, Interface::find_up(output)?);
        if input.index == output.index {
            return Err(PortsError::Same { name: input.name });
        }
        Ok(Self { input, output })
    }

    /// Fails when one of them is there no more.
    pub fn check(&self) -> Result<(), PortsError> {
        match [&self.input, &self.output].into_iter().find(|interface| !interface.exists()) {
            Some(gone) => Err(PortsError::Vanished { name: gone.name.clone() }),
            None => Ok(()),
        }
    }
}
