//! Which packets are in a sample of one in `2^n`: those whose hash ends in `n` zeros.
//!
//! The hash is made of what is in the packets' key, so that it is the same on both sides of a device,
//! whatever that changes of the rest. It is computed where packets pass (`bpf/sample.h`), and again here:
//! where the two differ, a packet was in headers that the kernel's side does not pass.

use tailtap_wire::inner::Inner;
use tailtap_wire::link::Link;
use tailtap_wire::{ipv4, ipv6, tcp};

use super::packet::{ICMP, ICMPV6, Packet, SCTP, behind_tags, is_ip, payload};
use super::{Extract, Field, Keeps, KeyKind, Moonsniff, Place};
use crate::capture::Content;

const ADDRESSES: u32 = 2;
const IP_ID: u32 = 4;
const PAYLOAD: u32 = 8;
const ID: u32 = 16;
const START: u64 = 0x0074_6169_6c74_6170;
/// So much of a payload is in the hash.
const BYTES: usize = 32;
/// Samples of other keys than packets' are of ids of so many bytes at most.
const WIDEST_ID: usize = 4;

/// What a hash is made of: bits that `bpf/sample.h` knows, not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling(u32);

impl Sampling {
    /// That of a key; `None` where the kernel's side does not find what the key is made of.
    pub fn of(key: KeyKind) -> Option<Self> {
        match key {
            KeyKind::Packet(Packet { keeps, .. }) => Some(Self(match keeps {
                Keeps::All => ADDRESSES | IP_ID | PAYLOAD,
                Keeps::AcrossNat => IP_ID | PAYLOAD,
                Keeps::Flow => ADDRESSES | PAYLOAD,
                Keeps::Payload => PAYLOAD,
                Keeps::Id => ADDRESSES | IP_ID,
            })),
            KeyKind::Moonsniff => Some(Self(ID)),
            KeyKind::Field(Field { place: Place::Frame, width: ..=WIDEST_ID, .. }) => {
                Some(Self(ID))
            }
            _ => None,
        }
    }

    /// The bits.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// The hash of a packet with this key; 0, which is in every sample, of one without.
    pub fn hash(self, key: KeyKind, content: Content<'_>) -> u64 {
        let id = |found: Result<(u64, ()), _>| found.map_or(0, |(id, ())| mix(START, id));
        match (key, content) {
            (KeyKind::Packet(_), Content::Frame { bytes, link, .. }) => {
                self.of_packet(bytes, link).unwrap_or_default()
            }
            (KeyKind::Moonsniff, content) => id(Moonsniff.extract(content)),
            (KeyKind::Field(field), content) => id(field.extract(content)),
            _ => 0,
        }
    }

    fn of_packet(self, bytes: &[u8], link: Link) -> Option<u64> {
        let Some(inner) = Inner::of(bytes, link) else {
            let (ethertype, at) = behind_tags(bytes, link)?;
            let other = self.0 & PAYLOAD != 0 && !is_ip(ethertype);
            return other.then(|| mix_bytes(mix(START, u64::from(ethertype)), &bytes[at..]));
        };
        let mut hash = mix(START, u64::from(inner.protocol) << 8 | u64::from(inner.v6));
        if self.0 & ADDRESSES != 0 {
            let place = if inner.v6 { ipv6::ADDRESSES } else { ipv4::ADDRESSES };
            let addresses = bytes.get(inner.network + place.start..inner.network + place.end)?;
            hash = addresses.chunks_exact(8).fold(hash, |hash, word| mix(hash, number(word)));
        }
        if self.0 & IP_ID != 0 {
            hash = mix(hash, u64::from(inner.id.unwrap_or_default()));
        }
        if self.0 & PAYLOAD == 0 {
            return Some(hash);
        }
        hash = mix(hash, inner.fragment.map_or(0, |offset| 1 << 16 | u64::from(offset)));
        let (start, _) = payload(bytes, &inner)?;
        if inner.has_transport() {
            let header = &bytes[inner.transport..];
            hash = mix(
                hash,
                match inner.protocol {
                    tcp::PROTOCOL => number(header.get(4..12)?),
                    SCTP => number(header.get(4..8)?),
                    ICMP | ICMPV6 => number(header.get(..2)?) << 16 | number(header.get(6..8)?),
                    _ => 0,
                },
            );
        }
        let len = inner.end.saturating_sub(start);
        let content = &bytes[start..bytes.len().min(start + len)];
        Some(mix_bytes(mix(hash, len as u64), content))
    }
}

fn mix(hash: u64, word: u64) -> u64 {
    let hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ hash >> 32
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// The first bytes as words, with zeros behind them.
fn mix_bytes(hash: u64, bytes: &[u8]) -> u64 {
    let mut content = [0u8; BYTES];
    let len = bytes.len().min(BYTES);
    content[..len].copy_from_slice(&bytes[..len]);
    let words = content.chunks_exact(8);
    let words = words.map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
    words.fold(hash, mix)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet of UDP whose payload counts up.
    fn packet(number: u32) -> Vec<u8> {
        let mut bytes = vec![2u8; 12];
        bytes.extend([0x08, 0x00, 0x45, 0, 0, 48]);
        bytes.extend((number as u16).to_be_bytes());
        bytes.extend([0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        bytes.extend([0x10, 1, 0, 53, 0, 28, 0, 0]);
        bytes.extend(number.to_le_bytes());
        bytes.extend([0; 16]);
        bytes
    }

    fn hash(key: &str, bytes: &[u8]) -> u64 {
        let key: KeyKind = key.parse().expect("a key");
        let wire_len = bytes.len() as u32;
        let content = Content::Frame { bytes, wire_len, link: Link::Ethernet };
        Sampling::of(key).expect("sampled").hash(key, content)
    }

    #[test]
    fn each_thinner_sample_is_half_of_the_one_before() {
        for key in ["packet", "packet-nat", "packet-flow", "packet-payload", "packet-id", "42:4:le"]
        {
            for level in [1, 4, 8] {
                let mask = (1u64 << level) - 1;
                let chosen = (0..65536).filter(|&n| hash(key, &packet(n)) & mask == 0).count();
                let expected = 65536.0 / f64::from(1 << level);
                // Six standard deviations of a binomial distribution.
                let apart = (chosen as f64 - expected).abs();
                assert!(apart < 6.0 * expected.sqrt(), "{key} 1/2^{level}: {chosen}");
            }
        }
    }

    #[test]
    fn what_the_key_leaves_out_is_not_in_the_hash() {
        let plain = packet(7);
        let changed = |at: usize| {
            let mut bytes = plain.clone();
            bytes[at] ^= 1;
            bytes
        };
        let tagged = [&plain[..12], &[0x81, 0, 0, 5], &plain[12..]].concat();
        for (key, addresses, id, content) in [
            ("packet", true, true, true),
            ("packet-nat", false, true, true),
            ("packet-flow", true, false, true),
            ("packet-payload", false, false, true),
            ("packet-id", true, true, false),
        ] {
            let whole = hash(key, &plain);
            assert_eq!(hash(key, &tagged), whole);
            // The hardware's address, the class of service, the time to live, the checksums.
            for at in [0, 15, 22, 24, 40] {
                assert_eq!(hash(key, &changed(at)), whole, "{key}, byte {at}");
            }
            for (at, counts) in [(26, addresses), (19, id), (42, content)] {
                assert_eq!(hash(key, &changed(at)) != whole, counts, "{key}, byte {at}");
            }
        }
    }

    #[test]
    fn only_what_the_kernel_finds_is_sampled() {
        for key in ["signature", "packet-stream", "udp.payload+0:4:le", "42:8:le"] {
            assert_eq!(Sampling::of(key.parse().expect("a key")), None, "{key}");
        }
    }
}
