//! Which packets a filter of libpcap's takes.
//!
//! libpcap compiles its words for the classic machine of McCanne and Jacobson ("The BSD Packet Filter",
//! 1993). What reads beyond the bytes that were captured does not match, as in libpcap.

use serde::{Deserialize, Serialize};
use tailtap_wire::ethernet;
use tailtap_wire::link::Link;

/// An instruction as libpcap has it (`struct bpf_insn` of pcap/bpf.h): code, how many instructions a jump
/// skips where its condition holds and where not, and a number.
pub type Instruction = (u16, u8, u8, u32);

/// A filter for frames of Ethernet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// Its words.
    pub text: String,
    /// What libpcap made of them.
    pub program: Vec<Instruction>,
}

/// The bytes of a packet; one that was captured without its Ethernet header has one of zeros.
#[derive(Clone, Copy)]
struct Bytes<'a> {
    bytes: &'a [u8],
    link: Link,
}

impl Bytes<'_> {
    fn at(self, place: usize) -> Option<u8> {
        let Link::Network(protocol) = self.link else { return self.bytes.get(place).copied() };
        match place.checked_sub(ethernet::LEN) {
            Some(place) => self.bytes.get(place).copied(),
            None if place < ethernet::ADDRESSES_LEN => Some(0),
            None => Some(protocol.to_be_bytes()[place - ethernet::ADDRESSES_LEN]),
        }
    }

    /// A number of some bytes, the most significant first.
    fn number(self, place: u32, bytes: usize) -> Option<u32> {
        let place = place as usize;
        let mut each = (place..place + bytes).map(|place| self.at(place));
        each.try_fold(0, |number, byte| Some(number << 8 | u32::from(byte?)))
    }
}

impl Filter {
    /// Whether it matches a packet of this length.
    pub(super) fn takes(&self, bytes: &[u8], wire_len: u32, link: Link) -> bool {
        let header = if link == Link::Ethernet { 0 } else { ethernet::LEN as u32 };
        self.run(Bytes { bytes, link }, wire_len + header).is_some_and(|answer| answer > 0)
    }

    /// The answer of the program; none where it reads beyond the packet, divides by zero or has an
    /// instruction that is not known. Jumps lead forward, so that it ends.
    fn run(&self, packet: Bytes<'_>, length: u32) -> Option<u32> {
        let (mut a, mut x, mut memory, mut next) = (0u32, 0u32, [0u32; 16], 0usize);
        loop {
            let &(code, if_true, if_false, k) = self.program.get(next)?;
            next += 1;
            let size = [4, 2, 1].get(usize::from(code >> 3 & 3)).copied();
            let operand = if code & 0x08 == 0 { k } else { x };
            match (code & 0x07, code & 0xf0) {
                // LD and LDX: a number, one of the packet's, a word of memory, the length.
                (0, _) => {
                    a = match code & 0xe0 {
                        0x00 => k,
                        0x20 => packet.number(k, size?)?,
                        0x40 => packet.number(x.checked_add(k)?, size?)?,
                        0x60 => *memory.get(k as usize)?,
                        0x80 => length,
                        _ => return None,
                    }
                }
                (1, _) => {
                    x = match code & 0xe0 {
                        0x00 => k,
                        0x60 => *memory.get(k as usize)?,
                        0x80 => length,
                        // Four times the low half of a byte: the length of IPv4's header.
                        0xa0 => 4 * (packet.number(k, 1)? & 0x0f),
                        _ => return None,
                    }
                }
                (2, _) => *memory.get_mut(k as usize)? = a,
                (3, _) => *memory.get_mut(k as usize)? = x,
                // ALU.
                (4, 0x00) => a = a.wrapping_add(operand),
                (4, 0x10) => a = a.wrapping_sub(operand),
                (4, 0x20) => a = a.wrapping_mul(operand),
                (4, 0x30) => a = a.checked_div(operand)?,
                (4, 0x40) => a |= operand,
                (4, 0x50) => a &= operand,
                (4, 0x60) => a = a.checked_shl(operand).unwrap_or(0),
                (4, 0x70) => a = a.checked_shr(operand).unwrap_or(0),
                (4, 0x80) => a = a.wrapping_neg(),
                (4, 0x90) => a = a.checked_rem(operand)?,
                (4, 0xa0) => a ^= operand,
                // JMP.
                (5, 0x00) => next = next.checked_add(k as usize)?,
                (5, jump @ 0x10..=0x40) => {
                    let holds = match jump {
                        0x10 => a == operand,
                        0x20 => a > operand,
                        0x30 => a >= operand,
                        _ => a & operand != 0,
                    };
                    next += usize::from(if holds { if_true } else { if_false });
                }
                // RET, of A or a number.
                (6, 0x10) => return Some(a),
                (6, _) => return Some(k),
                (7, 0x80) => a = x,
                (7, 0x00) => x = a,
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_program_ends_and_reads_within_the_packet(
            program in proptest::collection::vec(any::<Instruction>(), 0..40),
            bytes in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            let filter = Filter { text: String::new(), program };
            for link in [Link::Ethernet, Link::Network(0x0800)] {
                let _ = filter.takes(&bytes, bytes.len() as u32, link);
            }
        }
    }
}
