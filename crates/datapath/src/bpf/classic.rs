//! Turns a filter of libpcap's into instructions of eBPF.
//!
//! libpcap compiles filters for the classic machine of McCanne and Jacobson ("The BSD Packet Filter",
//! 1993): an accumulator, an index register and sixteen words of memory. The kernel takes such programs
//! for sockets only. Each of their instructions becomes a few of eBPF's; both have the same arithmetic on
//! 32 bits. A program that reads beyond the packet's end does not match, as in libpcap.
//!
//! Places count as on the wire: a VLAN tag that the kernel took out of the packet stands behind the
//! hardware addresses, as in a file of tcpdump's. So a filter says of a packet here what
//! `tcpdump -r FILE FILTER` says of it.

use libbpf_sys::{BPF_FUNC_skb_load_bytes, BPF_FUNC_tail_call, bpf_insn};

/// An instruction of the classic machine, as libpcap has it (`struct bpf_insn` of pcap/bpf.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classic {
    /// What it does.
    pub code: u16,
    /// How many instructions a jump skips where its condition holds.
    pub if_true: u8,
    /// And where it does not hold.
    pub if_false: u8,
    /// A number for it.
    pub k: u32,
}

/// A filter that cannot be turned into eBPF.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// An instruction is not known.
    #[error(
        "the filter has an instruction ({code:#06x}) that tailtap does not know: write it otherwise"
    )]
    Unknown {
        /// Its code.
        code: u16,
    },
    /// It is too long.
    #[error(
        "the filter has {0} instructions, which are too many: name fewer hosts and ports, or networks"
    )]
    Long(usize),
}

/// The filter is given a choice of programs; each is its place among them.
pub const MATCHES: i32 = 0;
/// See [`MATCHES`].
pub const DIFFERS: i32 = 1;
/// How many programs there are to choose from.
pub const CHOICES: u32 = 2;

// Registers of eBPF: those from 6 on survive calls.
const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const R4: u8 = 4;
const CONTEXT: u8 = 6;
const A: u8 = 7;
const X: u8 = 8;
/// Length of the tag that the kernel took out: 4 or 0.
const TAKEN: u8 = 9;
const FRAME: u8 = 10;

/// Places in `struct __sk_buff`.
const SKB_LEN: i16 = 0;
const SKB_VLAN_PRESENT: i16 = 20;
const SKB_VLAN_TCI: i16 = 24;
const SKB_VLAN_PROTO: i16 = 28;

/// Bytes before a tag, and those of a tag.
const ADDRESSES: i32 = 12;
const TAG: i32 = 4;

/// Places on the stack: what was loaded, the bytes of a number that are joined, the tag, and the words
/// of memory below.
const LOADED: i16 = -8;
const JOINED: i16 = -16;
const TAG_WORD: i16 = -24;
const MEMORY: i16 = -32;
const WORDS: u32 = 16;

// Classes, sizes, modes and operations (linux/bpf_common.h, linux/bpf.h).
const LDX: u8 = 0x61;
const STX: u8 = 0x63;
const ST: u8 = 0x62;
const ALU32: u8 = 0x04;
const ALU64: u8 = 0x07;
const JMP: u8 = 0x05;
const JMP32: u8 = 0x06;
const BY_X: u8 = 0x08;
const ADD: u8 = 0x00;
const MUL: u8 = 0x20;
const DIV: u8 = 0x30;
const OR: u8 = 0x40;
const AND: u8 = 0x50;
const LSH: u8 = 0x60;
const RSH: u8 = 0x70;
const NEG: u8 = 0x80;
const MOD: u8 = 0x90;
const XOR: u8 = 0xa0;
const MOV: u8 = 0xb0;
const JEQ: u8 = 0x10;
const JGT: u8 = 0x20;
const JLT: u8 = 0xa0;
const JNE: u8 = 0x50;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const LOAD_64: u8 = 0x18;
const PSEUDO_MAP_FD: u8 = 1;
const BYTE: u8 = 0x10;
const LOAD_BYTE: u8 = 0x60 | BYTE | 0x01;
const TO_BIG_ENDIAN: u8 = 0xdc;

/// Offsets above are no places of the packet but ask for something else (SKF_AD_OFF and the like).
const LAST_PLACE: u32 = 0x7fff_ffff;

/// Where an instruction goes on.
#[derive(Clone, Copy)]
enum Goal {
    /// The instruction of the filter.
    Instruction(usize),
    /// The filter matches.
    Matches,
    /// The filter does not match.
    Differs,
    /// A place in what was made.
    Place(usize),
}

#[derive(Default)]
struct Maker {
    made: Vec<bpf_insn>,
    /// Jumps whose distance is not known yet.
    jumps: Vec<(usize, Goal)>,
}

/// The filter as eBPF, which goes on with a program of the array of programs `choices`.
pub fn translate(filter: &[Classic], choices: i32) -> Result<Vec<bpf_insn>, FilterError> {
    let long = || FilterError::Long(filter.len());
    let mut maker = Maker::default();
    maker.begin();
    let mut starts = Vec::with_capacity(filter.len());
    for (place, &instruction) in filter.iter().enumerate() {
        starts.push(maker.made.len());
        maker.instruction(place, instruction)?;
    }
    // What runs off the end does not match.
    starts.push(maker.made.len());
    let differs = maker.made.len();
    maker.go_on(DIFFERS, choices);
    let matches = maker.made.len();
    maker.go_on(MATCHES, choices);
    for (at, goal) in std::mem::take(&mut maker.jumps) {
        let to = match goal {
            Goal::Instruction(place) => *starts.get(place).unwrap_or(&differs),
            Goal::Matches => matches,
            Goal::Differs => differs,
            Goal::Place(place) => place,
        };
        let distance = to as i64 - at as i64 - 1;
        maker.made[at].off = i16::try_from(distance).map_err(|_| long())?;
    }
    Ok(maker.made)
}

impl Maker {
    fn put(&mut self, code: u8, destination: u8, source: u8, off: i16, imm: i32) {
        let mut instruction = bpf_insn { code, off, imm, ..Default::default() };
        instruction.set_dst_reg(destination);
        instruction.set_src_reg(source);
        self.made.push(instruction);
    }

    fn put_k(&mut self, operation: u8, register: u8, k: u32) {
        self.put(ALU32 | operation, register, 0, 0, k as i32);
    }

    fn put_x(&mut self, operation: u8, register: u8, other: u8) {
        self.put(ALU32 | operation | BY_X, register, other, 0, 0);
    }

    fn jump(&mut self, code: u8, register: u8, k: i32, goal: Goal) {
        self.jumps.push((self.made.len(), goal));
        self.put(code, register, 0, 0, k);
    }

    fn always(&mut self, goal: Goal) {
        self.jump(JMP, 0, 0, goal);
    }

    /// Keeps the context, and what the kernel took out of the packet.
    fn begin(&mut self) {
        self.put(ALU64 | MOV | BY_X, CONTEXT, R1, 0, 0);
        self.put_k(MOV, A, 0);
        self.put_k(MOV, X, 0);
        // The kernel refuses what nothing leads to, and some filters match everything or nothing.
        self.jump(JMP32 | JEQ, X, 1, Goal::Differs);
        self.jump(JMP32 | JEQ, X, 1, Goal::Matches);
        for word in 0..WORDS {
            self.put(ST, FRAME, 0, memory(word), 0);
        }
        self.put(ST, FRAME, 0, TAG_WORD, 0);
        self.put(LDX, TAKEN, CONTEXT, SKB_VLAN_PRESENT, 0);
        let none = self.made.len() + 8;
        self.jump(JMP32 | JEQ, TAKEN, 0, Goal::Place(none));
        self.put_k(MOV, TAKEN, TAG as u32);
        self.put(LDX, R2, CONTEXT, SKB_VLAN_PROTO, 0);
        // The protocol is in the network's order.
        self.put(TO_BIG_ENDIAN, R2, 0, 0, 16);
        self.put_k(LSH, R2, 16);
        self.put(LDX, R3, CONTEXT, SKB_VLAN_TCI, 0);
        self.put_x(OR, R2, R3);
        self.put(STX, FRAME, R2, TAG_WORD, 0);
    }

    /// Goes on with a program.
    fn go_on(&mut self, choice: i32, choices: i32) {
        self.put(ALU64 | MOV | BY_X, R1, CONTEXT, 0, 0);
        self.put(LOAD_64, R2, PSEUDO_MAP_FD, 0, choices);
        self.put(0, 0, 0, 0, 0);
        self.put_k(MOV, R3, choice as u32);
        self.put(CALL, 0, 0, 0, BPF_FUNC_tail_call as i32);
        // Never comes here: the program is there.
        self.put(ALU64 | MOV, R0, 0, 0, -1);
        self.put(EXIT, 0, 0, 0, 0);
    }

    /// One instruction of the filter, the one at `place`.
    fn instruction(&mut self, place: usize, instruction: Classic) -> Result<(), FilterError> {
        let Classic { code, if_true, if_false, k } = instruction;
        let unknown = FilterError::Unknown { code };
        let next = |skipped: u32| Goal::Instruction(place + 1 + skipped as usize);
        // Class, and what is in the other bits (pcap/bpf.h).
        match (code & 0x07, code & !0x07) {
            // ld and ldx: 0x00 a constant, 0x20 a place, 0x40 a place behind X, 0x60 memory, 0x80 length.
            (0x00, mode @ (0x20 | 0x28 | 0x30)) if k <= LAST_PLACE => {
                self.load(size(mode), false, k)
            }
            (0x00, mode @ (0x40 | 0x48 | 0x50)) if k <= LAST_PLACE => {
                self.load(size(mode), true, k)
            }
            (0x00, 0x00) => self.put_k(MOV, A, k),
            (0x00, 0x60) if k < WORDS => self.put(LDX, A, FRAME, memory(k), 0),
            (0x00, 0x80) => self.length(A),
            (0x01, 0x00) => self.put_k(MOV, X, k),
            (0x01, 0x60) if k < WORDS => self.put(LDX, X, FRAME, memory(k), 0),
            (0x01, 0x80) => self.length(X),
            // 4 * ([k] & 0xf): the length of a header of IPv4.
            (0x01, 0xb0) if k <= LAST_PLACE => {
                self.put(STX, FRAME, A, JOINED - 4, 0);
                self.load(1, false, k);
                self.put_x(MOV, X, A);
                self.put_k(AND, X, 0xf);
                self.put_k(LSH, X, 2);
                self.put(LDX, A, FRAME, JOINED - 4, 0);
            }
            (0x02, 0x00) if k < WORDS => self.put(STX, FRAME, A, memory(k), 0),
            (0x03, 0x00) if k < WORDS => self.put(STX, FRAME, X, memory(k), 0),
            (0x04, operation) => self.arithmetic(operation as u8, k, unknown)?,
            (0x05, 0x00) => self.always(next(k)),
            (0x05, operation @ (0x10..=0x48)) => {
                let by_x = operation as u8 & BY_X;
                let what = operation as u8 & !BY_X;
                self.jumps.push((self.made.len(), next(u32::from(if_true))));
                let (other, k) = if by_x == 0 { (0, k as i32) } else { (X, 0) };
                self.put(JMP32 | what | by_x, A, other, 0, k);
                if if_false > 0 {
                    self.always(next(u32::from(if_false)));
                }
            }
            (0x06, 0x00) => self.always(if k == 0 { Goal::Differs } else { Goal::Matches }),
            (0x06, 0x10) => {
                self.jump(JMP32 | JEQ, A, 0, Goal::Differs);
                self.always(Goal::Matches);
            }
            (0x07, 0x00) => self.put_x(MOV, X, A),
            (0x07, 0x80) => self.put_x(MOV, A, X),
            _ => return Err(unknown),
        }
        Ok(())
    }

    fn arithmetic(&mut self, code: u8, k: u32, unknown: FilterError) -> Result<(), FilterError> {
        let (operation, by_x) = (code & !BY_X, code & BY_X != 0);
        match operation {
            NEG => self.put(ALU32 | NEG, A, 0, 0, 0),
            DIV | MOD if by_x => {
                self.jump(JMP32 | JEQ, X, 0, Goal::Differs);
                self.put_x(operation, A, X);
            }
            DIV | MOD if k == 0 => self.always(Goal::Differs),
            LSH | RSH if !by_x && k > 31 => return Err(unknown),
            ADD | 0x10 | MUL | DIV | OR | AND | LSH | RSH | MOD | XOR if by_x => {
                self.put_x(operation, A, X);
            }
            ADD | 0x10 | MUL | DIV | OR | AND | LSH | RSH | MOD | XOR => {
                self.put_k(operation, A, k)
            }
            _ => return Err(unknown),
        }
        Ok(())
    }

    /// The length of the packet on the wire.
    fn length(&mut self, register: u8) {
        self.put(LDX, register, CONTEXT, SKB_LEN, 0);
        self.put_x(ADD, register, TAKEN);
    }

    /// The number of `size` bytes at a place, or so far behind X, into A.
    fn load(&mut self, size: i32, behind_x: bool, k: u32) {
        self.put_k(MOV, R2, k);
        if behind_x {
            // On 64 bits, so that what is beyond the end stays there.
            self.put(ALU64 | ADD | BY_X, R2, X, 0, 0);
            self.put(LOAD_64, R3, 0, 0, LAST_PLACE as i32);
            self.put(0, 0, 0, 0, 0);
            self.jump_if_larger(R2, R3);
        }
        let k = k.min(LAST_PLACE) as i32;
        if behind_x || (k < ADDRESSES + TAG && k + size > ADDRESSES) {
            self.load_near_tag(size);
        } else {
            if k >= ADDRESSES + TAG {
                self.put_x(0x10, R2, TAKEN); // minus
            }
            self.load_at(size, LOADED);
            self.fetch(size);
        }
    }

    fn jump_if_larger(&mut self, one: u8, other: u8) {
        self.jumps.push((self.made.len(), Goal::Differs));
        self.put(JMP | JGT | BY_X, one, other, 0, 0);
    }

    /// Loads bytes at the place in R2 onto the stack.
    fn load_at(&mut self, size: i32, to: i16) {
        self.put(ALU64 | MOV | BY_X, R1, CONTEXT, 0, 0);
        self.put(ALU64 | MOV | BY_X, R3, FRAME, 0, 0);
        self.put(ALU64 | ADD, R3, 0, 0, i32::from(to));
        self.put_k(MOV, R4, size as u32);
        self.put(CALL, 0, 0, 0, BPF_FUNC_skb_load_bytes as i32);
        self.jump(JMP | JNE, R0, 0, Goal::Differs);
    }

    /// What was loaded, as a number.
    fn fetch(&mut self, size: i32) {
        match size {
            1 => self.put(LOAD_BYTE, A, FRAME, LOADED, 0),
            2 => {
                self.put(0x69, A, FRAME, LOADED, 0);
                self.put(TO_BIG_ENDIAN, A, 0, 0, 16);
            }
            _ => {
                self.put(LDX, A, FRAME, LOADED, 0);
                self.put(TO_BIG_ENDIAN, A, 0, 0, 32);
            }
        }
    }

    /// The number at the place in R2, of which bytes may be in the tag that the kernel took out.
    fn load_near_tag(&mut self, size: i32) {
        // Most packets have none.
        let mut ends = Vec::new();
        self.put(STX, FRAME, R2, JOINED, 0);
        let check = self.made.len();
        self.put(JMP32 | JNE, TAKEN, 0, 0, 0);
        self.load_at(size, LOADED);
        self.fetch(size);
        ends.push(self.made.len());
        self.put(JMP, 0, 0, 0, 0);
        self.made[check].off = (self.made.len() - check - 1) as i16;
        self.put(ST, FRAME, 0, JOINED + 4, 0);
        for byte in 0..size {
            self.put(LDX, R2, FRAME, JOINED, 0);
            self.put_k(ADD, R2, byte as u32);
            let before = self.made.len();
            self.put(JMP32 | JLT, R2, 0, 0, ADDRESSES);
            let within = self.made.len();
            self.put(JMP32 | JLT, R2, 0, 0, ADDRESSES + TAG);
            self.put_x(0x10, R2, TAKEN);
            self.made[before].off = (self.made.len() - before - 1) as i16;
            self.load_at(1, LOADED);
            self.put(LOAD_BYTE, R3, FRAME, LOADED, 0);
            let loaded = self.made.len();
            self.put(JMP, 0, 0, 0, 0);
            // Of the tag: its first byte is the highest of the word.
            self.made[within].off = (self.made.len() - within - 1) as i16;
            self.put(LDX, R3, FRAME, TAG_WORD, 0);
            self.put_k(MOV, R4, (ADDRESSES + TAG - 1) as u32);
            self.put_x(0x10, R4, R2);
            self.put_k(LSH, R4, 3);
            self.put_x(RSH, R3, R4);
            self.put_k(AND, R3, 0xff);
            self.made[loaded].off = (self.made.len() - loaded - 1) as i16;
            self.put(LDX, R4, FRAME, JOINED + 4, 0);
            self.put_k(LSH, R4, 8);
            self.put_x(OR, R4, R3);
            self.put(STX, FRAME, R4, JOINED + 4, 0);
        }
        self.put(LDX, A, FRAME, JOINED + 4, 0);
        for end in ends {
            self.made[end].off = (self.made.len() - end - 1) as i16;
        }
    }
}

fn memory(word: u32) -> i16 {
    MEMORY - 4 * word as i16
}

/// Bytes of a load: of a word, half of one, a byte.
fn size(mode: u16) -> i32 {
    match mode & 0x18 {
        0x08 => 2,
        0x10 => 1,
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::select;

    fn instruction(code: u16, if_true: u8, if_false: u8, k: u32) -> Classic {
        Classic { code, if_true, if_false, k }
    }

    /// The classic machine itself: whether a filter matches a packet of these bytes.
    fn run(filter: &[Classic], packet: &[u8]) -> bool {
        let (mut a, mut x, mut memory) = (0u32, 0u32, [0u32; WORDS as usize]);
        let load = |at: u64, size: usize| -> Option<u32> {
            let bytes = packet.get(usize::try_from(at).ok()?..)?.get(..size)?;
            Some(bytes.iter().fold(0, |number, &byte| number << 8 | u32::from(byte)))
        };
        let mut at = 0;
        while let Some(&Classic { code, if_true, if_false, k }) = filter.get(at) {
            at += 1;
            let operand = if code & 0x08 != 0 { x } else { k };
            let loaded = match code {
                0x20 | 0x28 | 0x30 => load(k.into(), size(code) as usize),
                0x40 | 0x48 | 0x50 => load(u64::from(x) + u64::from(k), size(code) as usize),
                0xb1 => load(k.into(), 1),
                _ => Some(0),
            };
            let Some(loaded) = loaded else { return false };
            match code {
                0x20 | 0x28 | 0x30 | 0x40 | 0x48 | 0x50 => a = loaded,
                0x00 => a = k,
                0x60 => a = memory[k as usize],
                0x80 => a = packet.len() as u32,
                0x01 => x = k,
                0x61 => x = memory[k as usize],
                0x81 => x = packet.len() as u32,
                0xb1 => x = 4 * (loaded & 0xf),
                0x02 => memory[k as usize] = a,
                0x03 => memory[k as usize] = x,
                0x04 | 0x0c => a = a.wrapping_add(operand),
                0x14 | 0x1c => a = a.wrapping_sub(operand),
                0x24 | 0x2c => a = a.wrapping_mul(operand),
                0x34 | 0x3c | 0x94 | 0x9c if operand == 0 => return false,
                0x34 | 0x3c => a /= operand,
                0x94 | 0x9c => a %= operand,
                0x44 | 0x4c => a |= operand,
                0x54 | 0x5c => a &= operand,
                0xa4 | 0xac => a ^= operand,
                0x64 => a <<= k,
                0x74 => a >>= k,
                0x84 => a = a.wrapping_neg(),
                0x07 => x = a,
                0x87 => a = x,
                0x05 => at += k as usize,
                0x06 => return k != 0,
                0x16 => return a != 0,
                _ => {
                    let holds = match code & 0xf0 {
                        0x10 => a == operand,
                        0x20 => a > operand,
                        0x30 => a >= operand,
                        _ => a & operand != 0,
                    };
                    at += usize::from(if holds { if_true } else { if_false });
                }
            }
        }
        false
    }

    /// Any instruction; its jumps stay near.
    fn any_instruction() -> impl Strategy<Value = Classic> {
        let loads = select(vec![0x20u16, 0x28, 0x30, 0x40, 0x48, 0x50, 0xb1]);
        let words = select(vec![0x60u16, 0x61, 0x02, 0x03]);
        let numbers = select(vec![
            0x00u16, 0x01, 0x04, 0x0c, 0x14, 0x1c, 0x24, 0x2c, 0x34, 0x3c, 0x94, 0x9c, 0x44, 0x4c,
            0x54, 0x5c, 0xa4, 0xac, 0x84, 0x07, 0x87, 0x80, 0x81,
        ]);
        let jumps = select(vec![0x15u16, 0x1d, 0x25, 0x2d, 0x35, 0x3d, 0x45, 0x4d]);
        let number = prop_oneof![0..70u32, any::<u32>()];
        prop_oneof![
            (loads, 0..70u32).prop_map(|(code, k)| instruction(code, 0, 0, k)),
            (words, 0..WORDS).prop_map(|(code, k)| instruction(code, 0, 0, k)),
            // A division by the constant zero would end the filter there.
            (numbers, number.clone()).prop_map(|(code, k)| {
                instruction(code, 0, 0, if matches!(code, 0x34 | 0x94) { k | 1 } else { k })
            }),
            (select(vec![0x64u16, 0x74]), 0..32u32)
                .prop_map(|(code, k)| instruction(code, 0, 0, k)),
            (jumps, 0..3u8, any::<bool>(), number).prop_map(|(code, far, where_true, k)| {
                let (if_true, if_false) = if where_true { (far, 0) } else { (0, far) };
                instruction(code, if_true, if_false, k)
            }),
        ]
    }

    /// A filter whose instructions are all reached, as libpcap's are.
    fn any_filter() -> impl Strategy<Value = Vec<Classic>> {
        proptest::collection::vec(any_instruction(), 1..20).prop_map(|mut filter| {
            let nothing = instruction(0x04, 0, 0, 0);
            filter.extend([nothing, nothing, instruction(0x16, 0, 0, 0)]);
            filter
        })
    }

    #[test]
    fn what_is_not_known_or_too_long_is_refused() {
        let refused = |code, k| translate(&[instruction(code, 0, 0, k)], 0).expect_err("refused");
        // Beyond the packet: a card's queue, say. A shift by 32. Codes of nothing.
        for (code, k) in [(0x28, 0xffff_f02c), (0x64, 32), (0x60, 16), (0x17, 0), (0xc4, 0)] {
            assert_eq!(refused(code, k), FilterError::Unknown { code });
        }
        let mut long = vec![instruction(0x48, 0, 0, 0); 1000];
        long.push(instruction(0x06, 0, 0, 1));
        assert_eq!(translate(&long, 0).err(), Some(FilterError::Long(1001)));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

        /// The kernel runs what was made of a filter, and comes to what the classic machine says.
        #[test]
        fn the_kernel_says_what_the_classic_machine_says(
            filter in any_filter(),
            packets in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 20..80), 4),
        ) {
            let Some(answers) = crate::tap::program_answers(&filter, &packets) else {
                return Ok(()); // only root may ask it
            };
            for (packet, matches) in packets.iter().zip(answers) {
                prop_assert_eq!(matches, run(&filter, packet), "{:?} of {:?}", filter, packet);
            }
        }
    }
}
