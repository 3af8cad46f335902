//! Captures of two clocks give what those of one clock would, if every stamp were brought over.

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tailtap_analysis::clocks::Clocks;
use tailtap_analysis::evaluate::{Evaluation, Options, evaluate, plan};
use tailtap_analysis::stamps::{Clock, Header, Stamp};

/// Far enough from the beginning of time for any shift.
const START: u64 = 1 << 40;

fn write(folder: &Path, name: &str, packets: &[(u64, u32)]) -> PathBuf {
    let header = Header { clock: Clock::Monotonic, counts: None, link: "link".into() };
    let mut bytes = header.encode().to_vec();
    for &(time_ns, id) in packets {
        bytes.extend(Stamp { time_ns, id, frame_len: 60 }.encode());
    }
    let path = folder.join(name);
    std::fs::write(&path, bytes).expect("writes");
    path
}

/// Ids and distinct latencies with their counts as people see them.
fn shown(found: &Evaluation) -> Vec<(i64, u64)> {
    let excess = found.excess.latency_ns;
    found.latencies.counts().map(|(v, n)| (v.wrapping_sub(excess).cast_signed(), n)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The clock behind the device is ahead by an offset, so that one clock shows all latencies. The
    /// others may be below nothing by up to what they may be off by.
    #[test]
    fn two_clocks_are_one_when_the_difference_is_known(
        latencies in proptest::collection::vec(-2_000i64..20_000, 1..200),
        offset in 0..1u64 << 50,
        within in 0..1_000u64,
        trim_ns in prop_oneof![Just(0), 1..50_000u64],
        gap in 1..400u64,
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let before: Vec<_> =
            (0..latencies.len()).map(|i| (START + i as u64 * gap, i as u32)).collect();
        let mut after: Vec<_> = latencies
            .iter()
            .zip(&before)
            .map(|(&latency, &(time, id))| (time.saturating_add_signed(latency), id))
            .collect();
        after.sort();
        // What one clock shows with all latencies longer by what they may be off by.
        let longer: Vec<_> = after.iter().map(|&(time, id)| (time + within, id)).collect();
        let theirs: Vec<_> = after.iter().map(|&(time, id)| (time + offset, id)).collect();
        let ingress = write(folder.path(), "ingress", &before);
        let one = write(folder.path(), "one", &longer);
        let two = write(folder.path(), "two", &theirs);
        let clocks = Clocks::new(vec![(START + offset, START)], within);
        let window_ns = 10_000;
        let options = Options { trim_ns, window_ns, clocks, ..Options::default() };
        let alone = Options { clocks: None, window_ns: window_ns + 2 * within, ..options.clone() };
        let true_one = evaluate(&ingress, &one, &alone, &|| false);
        let found = evaluate(&ingress, &two, &options, &|| false);
        let (Ok(true_one), Ok(found)) = (&true_one, &found) else {
            // Swapped, trimmed away, or nothing in common: both say so.
            prop_assert!(true_one.is_err() && found.is_err());
            return Ok(());
        };
        prop_assert_eq!(found.counts, true_one.counts);
        let expected: Vec<_> = true_one
            .latencies
            .counts()
            .map(|(value, count)| (value.cast_signed() - within.cast_signed(), count))
            .collect();
        prop_assert_eq!(shown(found), expected);
        let excess = found.excess;
        let worst: Vec<_> = found.worst.iter().map(|packet| packet.ingress_ns - excess.ingress_ns).collect();
        let true_worst: Vec<_> = true_one.worst.iter().map(|packet| packet.ingress_ns).collect();
        prop_assert_eq!(worst, true_worst);
        prop_assert_eq!(
            found.egress.intake.first_ns - excess.egress_ns + within,
            true_one.egress.intake.first_ns
        );
        let mean = true_one.mean().expect("packets") - within as f64;
        prop_assert!((found.mean().expect("packets") - mean).abs() < 1e-6);
        prop_assert_eq!(plan(&ingress, &two, &options, 100).expect("a plan").len(), 1);
    }
}
