//! TCP (RFC 9293), of which nothing but the checksum's place is needed.

use core::ops::Range;

/// The number of the protocol in IP headers.
pub const PROTOCOL: u8 = 6;
/// Where the checksum is in the header.
pub const CHECKSUM: Range<usize> = 16..18;
