//! Pieces of captures, evaluated one by one and merged in any grouping, are the evaluation of the
//! whole, bit for bit.

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tailtap_analysis::evaluate::{
    EvaluateError, Options, Partial, Piece, evaluate as evaluate_files, plan,
};
use tailtap_analysis::key::KeyKind;
use tailtap_analysis::stamps::{Clock, Header, Stamp, TapCounts};

const WINDOW_NS: u64 = 20_000;

/// A packet that two taps may have seen.
#[derive(Clone, Debug)]
struct Sent {
    id: u32,
    /// Since the packet before it.
    gap_ns: u64,
    latency_ns: i64,
    lost: bool,
    duplicated: bool,
    foreign: bool,
}

fn sent() -> impl Strategy<Value = Sent> {
    // Some ids repeat; some packets are stamped too early, some late by more than the window.
    let latency = prop_oneof![20 => 500..900i64, 4 => 900..9_000i64, 1 => -400..30_000i64];
    let gap = prop_oneof![30 => 0..400u64, 1 => 0..40_000u64, 1 => Just(1_100_000_000)];
    let odd = |one_in: u32| (0..one_in).prop_map(|chance| chance == 0);
    (0..4_000u32, gap, latency, odd(20), odd(20), odd(30)).prop_map(
        |(id, gap_ns, latency_ns, lost, duplicated, foreign)| Sent {
            id,
            gap_ns,
            latency_ns,
            lost,
            duplicated,
            foreign,
        },
    )
}

/// Captures of the packets before and after, as (time, id, foreign); ids count up if asked for.
type Seen = Vec<(u64, u32, bool)>;

fn seen(packets: &[Sent], counting: bool) -> (Seen, Seen) {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let mut time = 7_000_000_000;
    for (i, packet) in packets.iter().enumerate() {
        time += packet.gap_ns;
        let id = if counting { i as u32 } else { packet.id };
        before.push((time, id, packet.foreign));
        let left = time.saturating_add_signed(packet.latency_ns);
        if !packet.lost {
            after.push((left, id, packet.foreign));
        }
        if packet.duplicated {
            after.push((left + 700, id, packet.foreign));
        }
    }
    after.sort_by_key(|packet| packet.0);
    (before, after)
}

fn pcap(packets: &[(u64, u32, bool)]) -> Vec<u8> {
    snapped(packets, usize::MAX)
}

/// A capture that holds so many bytes of each packet at most.
fn snapped(packets: &[(u64, u32, bool)], snap: usize) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 65535, 1] {
        file.extend(word.to_le_bytes());
    }
    for &(time, id, foreign) in packets {
        // Records of various lengths.
        let mut frame = vec![0u8; 60 + id as usize % 7];
        frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
        frame[23] = 17;
        frame[42..46].copy_from_slice(&id.to_le_bytes());
        frame[46] = if foreign { 0 } else { 0x55 };
        let length = frame.len() as u32;
        frame.truncate(snap);
        let (seconds, rest) = ((time / 1_000_000_000) as u32, (time % 1_000_000_000) as u32);
        for word in [seconds, rest, frame.len() as u32, length] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    file
}

fn stamps(packets: &[(u64, u32, bool)]) -> Vec<u8> {
    let stored = packets.len() as u64;
    let counts = Some(TapCounts { seen: stored, stored, lost: 0, other: 0 });
    let header = Header { clock: Clock::Monotonic, counts, link: "link".into() };
    let record =
        |&(time_ns, id, _): &(u64, u32, bool)| Stamp { time_ns, id, frame_len: 60 }.encode();
    header.encode().into_iter().chain(packets.iter().flat_map(record)).collect()
}

struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    fn new(before: &[u8], after: &[u8]) -> Self {
        let files = Self { folder: tempfile::tempdir().expect("a folder") };
        std::fs::write(files.before(), before).expect("writes");
        std::fs::write(files.after(), after).expect("writes");
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::join(self.folder.path(), name)
    }

    fn before(&self) -> PathBuf {
        self.path("before")
    }

    fn after(&self) -> PathBuf {
        self.path("after")
    }

    fn plan(&self, options: &Options, chunk: u64) -> Vec<Piece> {
        plan(&self.before(), &self.after(), options, chunk).expect("captures")
    }

    fn whole(&self, options: &Options) -> Partial {
        let piece = Piece::whole(&self.before(), &self.after(), options).expect("captures");
        piece.evaluate(&|| false).expect("captures")
    }
}

fn evaluate(pieces: &[Piece]) -> Result<Vec<Partial>, EvaluateError> {
    pieces.iter().map(|piece| piece.evaluate(&|| false)).collect()
}

/// Merges neighbours, chosen at random, until one is left. On the way each becomes bytes.
fn merge(mut partials: Vec<Partial>, mut choices: impl Iterator<Item = usize>) -> Partial {
    while partials.len() > 1 {
        let at = choices.next().expect("endless") % (partials.len() - 1);
        let next = partials.remove(at + 1);
        let bytes = next.to_bytes();
        partials[at].merge(Partial::from_bytes(&bytes).expect("our own bytes"));
    }
    partials.remove(0)
}

/// Numbers that follow from a seed, by a linear congruential generator.
fn pseudo_random(seed: u64) -> impl Iterator<Item = usize> {
    let next = |x: &u64| Some(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    std::iter::successors(Some(seed), next).map(|x| (x >> 33) as usize)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn merged_pieces_are_the_whole(
        packets in proptest::collection::vec(sent(), 400..900),
        as_pcap in any::<bool>(),
        counting in any::<bool>(),
        signature in any::<bool>(),
        trim_ns in prop_oneof![Just(0), Just(30_000u64)],
        worst in 0..30usize,
        parts in 3..30usize,
        choices in any::<u64>(),
    ) {
        let (before, after) = seen(&packets, counting);
        let write = if as_pcap { pcap } else { stamps };
        let (before, after) = (write(&before), write(&after));
        let files = Files::new(&before, &after);
        let by = if signature && as_pcap { KeyKind::Signature } else { KeyKind::Moonsniff };
        let options =
            Options { key: Some(by), trim_ns, window_ns: WINDOW_NS, worst, ..Options::default() };
        let pieces = files.plan(&options, (before.len().max(after.len()) / parts) as u64);
        prop_assert!(pieces.len() > 1);
        let pieces: Vec<_> = pieces
            .iter()
            .map(|piece| Piece::from_bytes(&piece.to_bytes()).expect("our own bytes"))
            .collect();
        let found = match evaluate(&pieces) {
            // Ids that are there again within moments look like copies of a mirror port.
            Err(EvaluateError::NotSplittable) if !counting => return Ok(()),
            found => found.expect("in order"),
        };
        let merged = merge(found, pseudo_random(choices));
        let whole = files.whole(&options);
        prop_assert_eq!(&merged, &whole);
        prop_assert_eq!(merged.to_bytes(), whole.to_bytes());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Whatever is dropped, cut off, or not captured at the ends: every packet is counted once.
    #[test]
    fn counts_add_up(
        packets in proptest::collection::vec(sent(), 1..60),
        ends in proptest::array::uniform4(any::<proptest::sample::Index>()),
        snap in 40..70usize,
        by in prop_oneof![Just(KeyKind::Moonsniff), Just(KeyKind::Signature)],
        trim_ns in prop_oneof![Just(0), Just(2_000u64)],
        counting in any::<bool>(),
        throughout in any::<bool>(),
    ) {
        let (before, after) = seen(&packets, counting);
        let part = |packets: &Seen, from: &proptest::sample::Index, until: &proptest::sample::Index| {
            let (one, other) = (from.index(packets.len() + 1), until.index(packets.len() + 1));
            snapped(&packets[one.min(other)..one.max(other)], snap)
        };
        let files = Files::new(
            &part(&before, &ends[0], &ends[1]),
            &part(&after, &ends[2], &ends[3]),
        );
        let options = Options { key: Some(by), trim_ns, throughout, losses: true, ..options() };
        if let Ok(found) = evaluate_files(&files.before(), &files.after(), &options, &|| false) {
            let counts = found.counts;
            prop_assert_eq!(counts.entered(), counts.ingress);
            prop_assert_eq!(counts.left(), counts.egress);
            prop_assert!(found.lost.len() as u64 <= counts.lost);
            prop_assert!(!throughout || counts.outside_ingress + counts.outside_egress == 0);
        }
    }

    /// Of a device that keeps the order: what it forwarded is never lost, and what it dropped between
    /// packets that are in both captures always is.
    #[test]
    fn lost_is_what_the_device_lost(
        packets in proptest::collection::vec(sent(), 2..60),
        ends in proptest::array::uniform4(0..60_000u64),
    ) {
        let (mut time, mut left) = (7_000_000_000, 0);
        let mut passed = Vec::new();
        for (id, packet) in packets.iter().enumerate() {
            time += packet.gap_ns.min(3_000) + 1;
            left = left.max(time + packet.latency_ns.unsigned_abs().min(9_000)) + 1;
            passed.push((time, left, id as u32, packet.lost));
        }
        let ran = |one: u64, other: u64, time: u64| {
            (one.min(other)..=one.max(other)).contains(&(time - 7_000_000_000))
        };
        let before: Vec<_> = passed.iter().filter(|packet| ran(ends[0], ends[1], packet.0)).collect();
        let after = passed.iter().filter(|packet| !packet.3 && ran(ends[2], ends[3], packet.1));
        let after: Vec<_> = after.collect();
        let files = Files::new(
            &pcap(&before.iter().map(|packet| (packet.0, packet.2, false)).collect::<Vec<_>>()),
            &pcap(&after.iter().map(|packet| (packet.1, packet.2, false)).collect::<Vec<_>>()),
        );
        let options = Options { key: Some(KeyKind::Moonsniff), ..options() };
        if let Ok(found) = evaluate_files(&files.before(), &files.after(), &options, &|| false) {
            let both = |packet: &&&(u64, u64, u32, bool)| after.contains(*packet);
            let first = before.iter().position(|packet| both(&packet)).expect("matched");
            let last = before.iter().rposition(|packet| both(&packet)).expect("matched");
            let dropped = |some: &[&(u64, u64, u32, bool)]| {
                some.iter().filter(|packet| packet.3).count() as u64
            };
            prop_assert!(found.counts.lost >= dropped(&before[first..=last]));
            prop_assert!(found.counts.lost <= dropped(&before));
        }
    }
}

fn regular(count: u32) -> Vec<Sent> {
    let packet = |id| Sent {
        id,
        gap_ns: 100,
        latency_ns: 600,
        lost: false,
        duplicated: false,
        foreign: false,
    };
    (0..count).map(packet).collect()
}

fn options() -> Options {
    Options { window_ns: WINDOW_NS, ..Options::default() }
}

#[test]
fn a_piece_knows_what_repeats_the_packets_of_a_window_before_it() {
    // Every other one has the id of one 15 us before or after it, and leaves a window later, nearly.
    let id = |i: u32| if i.is_multiple_of(2) { 10_000 + i } else { i / 300 * 150 + i % 150 };
    let packets: Vec<_> = regular(1_800)
        .into_iter()
        .map(|packet| Sent { id: id(packet.id), latency_ns: 19_000, ..packet })
        .collect();
    let (before, after) = seen(&packets, false);
    let files = Files::new(&stamps(&before), &stamps(&after));
    let pieces = files.plan(&options(), 8_000);
    assert!(pieces.len() > 3);
    let whole = files.whole(&options());
    assert_eq!(merge(evaluate(&pieces).expect("in order"), 0..), whole);
    assert_eq!(whole.counted().counts.duplicate_ingress, 900);
}

/// What became of packets, in order: matched, non-causal, trimmed before the device and behind it.
fn fates(packets: &[Sent], options: &Options) -> [u64; 4] {
    let (before, after) = seen(packets, true);
    let files = Files::new(&stamps(&before), &stamps(&after));
    let counts = files.whole(options).conclude().expect("an evaluation").counts;
    [counts.matched, counts.noncausal, counts.trimmed_ingress, counts.trimmed_egress]
}

#[test]
fn limits_are_within() {
    let trimmed = Options { trim_ns: 300, ..options() };
    assert_eq!(fates(&regular(10), &trimmed), [7, 0, 3, 3]);
    // As many are non-causal as are not, by nearly a window.
    let mut packets = regular(2);
    (packets[1].gap_ns, packets[1].latency_ns) = (WINDOW_NS, 1_000 - WINDOW_NS.cast_signed());
    assert_eq!(fates(&packets, &options()), [1, 1, 0, 0]);
}

#[test]
fn a_cut_off_capture_is_split_up_all_the_same() {
    let (before, after) = seen(&regular(2_000), true);
    let after = pcap(&after);
    let files = Files::new(&pcap(&before), &after[..after.len() - 10]);
    let pieces = files.plan(&options(), 20_000);
    assert!(pieces.len() > 4);
    let merged = merge(evaluate(&pieces).expect("in order"), 0..);
    assert_eq!(merged, files.whole(&options()));
    let warnings = merged.conclude().expect("an evaluation").warnings;
    let damage = warnings.iter().find(|warning| warning.code == "capture-damaged");
    assert!(damage.is_some_and(|warning| warning.message.contains("after packet 1999")));
}

#[test]
fn captures_that_are_not_in_order_or_damaged_on_the_way_cannot_be_split_up() {
    let (before, after) = seen(&regular(2_000), true);
    let mut late = before.clone();
    late.swap(1_000, 1_020);
    let mut broken = pcap(&before);
    let record = pcap(&before[..1_000]).len();
    broken[record + 8..][..4].fill(0xff);
    for before in [pcap(&late), broken] {
        let files = Files::new(&before, &pcap(&after));
        let pieces = files.plan(&options(), 20_000);
        assert!(pieces.len() > 4);
        assert!(matches!(evaluate(&pieces), Err(EvaluateError::NotSplittable)));
        assert_eq!(files.plan(&options(), 0).len(), 1);
    }
}

#[test]
fn compressed_captures_are_one_piece() {
    let (before, after) = seen(&regular(2_000), true);
    let compress = |file: Vec<u8>| zstd::encode_all(&file[..], 1).expect("compresses");
    let files = Files::new(&compress(pcap(&before)), &compress(pcap(&after)));
    assert_eq!(files.plan(&options(), 1_000).len(), 1);
}
