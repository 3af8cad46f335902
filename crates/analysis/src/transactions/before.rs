//! What may stand before the first request of a connection of TCP.
//!
//! The header of the PROXY protocol is passed over, and MySQL's packet that asks for encryption, for whose
//! answer nobody waits. Where a connection begins with something else, and then encryption is asked for
//! (STARTTLS of SMTP, IMAP, LDAP and others, PostgreSQL), or a proxy by SOCKS (RFC 1928), the client waits
//! for the answer. So what it asks then begins a segment.

use super::line::Shown;
use super::tls::Tls;

const V1: &[u8] = b"PROXY ";
const MOST_V1: usize = 107;
const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const V2_LEN: usize = 16;
/// The header of a packet of MySQL that asks for encryption, and how long it is with that.
const MYSQL: &[u8] = b"\x20\0\0\x01";
const MYSQL_LEN: usize = 36;

/// The length of what is passed over in front of the first bytes; `None` while it is not whole.
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
    if begins(MYSQL) {
        return (bytes.len() >= MYSQL_LEN).then_some(MYSQL_LEN);
    }
    Some(0)
}

/// Whether a segment begins with a ClientHello, or is its very first bytes.
pub(super) fn is_hello(bytes: &[u8]) -> bool {
    !bytes.is_empty() && !matches!(Tls::shown(bytes), Shown::No)
}

/// Whether the first bytes ask a proxy for a connection.
pub(super) fn is_socks(bytes: &[u8]) -> bool {
    matches!(bytes, [4, 1, ..] | [5, 1..=9, 0..=9, ..])
}
