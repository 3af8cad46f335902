//! What the bytes of a captured packet begin with.

/// What the bytes of a captured packet begin with. Captures of Ethernet interfaces have whole frames;
/// those of others, and of all interfaces at once, have the packet that a frame would carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Link {
    /// The header of Ethernet.
    #[default]
    Ethernet,
    /// The header of the network protocol with this ethertype.
    Network(u16),
}
