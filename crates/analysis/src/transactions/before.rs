//! What may stand before the first request of a connection of TCP.
//!
//! The header of the PROXY protocol is passed over. Where a connection begins with something else, and
//! then encryption is asked for (STARTTLS of SMTP, IMAP, LDAP and others, PostgreSQL, MySQL), or a proxy by
//! SOCKS (RFC 1928), the client waits for the answer. So what it asks then begins a segment.

use super::line::Shown;
use super::tls::Tls;

const V1: &[u8] = b"PROXY ";
const MOST_V1: usize = 107;
const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const V2_LEN: usize = 16;

/// The length of the header of the PROXY protocol in front of the first bytes; `None` while it is not
/// whole.
pub(super) fn header(bytes: &[u8]) -> Option<usize> {
    let begins = |sign: &[u8]| bytes.iter().zip(sign).all(|(one, other)| one == other);
    if begins(V1) {
        let line = bytes.windows(2).position(|pair| pair == b"\r\n").map(|at| at + 2);
        return line.or_else(|| (bytes.len() >= MOST_V1).then_some(0));
    }
    if begins(V2) {
        let &[high, low] = bytes.get(V2_LEN - 2..)?.first_chunk()?;
        let len = V2_LEN + usize::from(u16::from_be_bytes([high, low]));
        return (bytes.len() >= len).then_some(len);
    }
    Some(0)
}

/// Whether a segment begins with a ClientHello.
pub(super) fn is_hello(bytes: &[u8]) -> bool {
    matches!(Tls::shown(bytes), Shown::Yes)
}

/// Whether the first bytes ask a proxy for a connection.
pub(super) fn is_socks(bytes: &[u8]) -> bool {
    matches!(bytes, [4, 1, ..] | [5, 1..=9, 0..=9, ..])
}
