//! Files of marks among the captures: their hashes are of one key, and their samples may differ.

use std::ops::Range;
use std::path::Path;

use super::EvaluateError;
use crate::capture::{CaptureError, Marked};
use crate::key::{KeyKind, Packet};
use crate::source::Source;

/// The key that the hashes of one or both captures are of, where there are any. Fails where they are of
/// two, or of another one than `asked`.
pub(super) fn key(
    names: [&Path; 2],
    marked: [Option<&Marked>; 2],
    asked: Option<KeyKind>,
) -> Result<Option<KeyKind>, EvaluateError> {
    let refuse =
        |path: &Path, why: String| Err(EvaluateError::NoKey { path: path.to_owned(), why });
    let whole = |marked: &Marked| match marked.key {
        KeyKind::Packet(Packet { keeps, .. }) => {
            KeyKind::Packet(Packet { keeps, most: marked.most })
        }
        other => other,
    };
    let [before, after] = marked.map(|marked| marked.map(whole));
    let found = match (before, after) {
        (Some(before), Some(after)) if before == after => before,
        (Some(before @ KeyKind::Field(_)), Some(after @ KeyKind::Field(_))) => {
            let both = before.and_after(after);
            return match both {
                Ok(both) => Ok(Some(both)),
                Err(error) => refuse(names[1], error.to_string()),
            };
        }
        (Some(before), Some(after)) => {
            let said = |key: KeyKind| match key {
                KeyKind::Packet(packet) => {
                    format!("{key} with {} B of the payload at most", packet.most)
                }
                other => other.to_string(),
            };
            let why = format!(
                "it holds hashes of {}, and {} those of {}, so that no packet is found again: give \
                 all links that are stamped the same --hash and --snap-length",
                said(after),
                names[0].display(),
                said(before)
            );
            return refuse(names[1], why);
        }
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => return Ok(None),
    };
    let is_asked = |asked: KeyKind| match (asked, found) {
        (KeyKind::Packet(asked), KeyKind::Packet(found)) => asked.keeps == found.keeps,
        (asked, found) => asked == found,
    };
    match asked {
        Some(asked) if !is_asked(asked) => {
            let holder = if before.is_some() { names[0] } else { names[1] };
            let why = format!(
                "it holds hashes of {found}, of which nobody can make {asked}: leave --key out, or \
                 capture with --hash {asked}"
            );
            refuse(holder, why)
        }
        _ => Ok(Some(found)),
    }
}

/// The level below which packets are in one of the samples only.
pub(super) fn least_level(marked: [Option<&Marked>; 2]) -> u8 {
    marked.into_iter().flatten().map(Marked::least_level).max().unwrap_or_default()
}

/// When packets behind the device may be without their like before it, as the sample changed.
pub(super) fn changes(source: &Source, shift_ns: u64) -> Result<Vec<Range<u64>>, CaptureError> {
    let mut found = Vec::new();
    for marked in source.marked()? {
        found.extend(
            marked.changes().map(|range| {
                range.start.saturating_add(shift_ns)..range.end.saturating_add(shift_ns)
            }),
        );
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(key: &str, most: u32) -> Marked {
        let key = key.parse().expect("a key");
        Marked { key, most, samples: Vec::new(), unsampled: 0, filtered: 0, thinned: 0 }
    }

    fn found(
        before: Option<&Marked>,
        after: Option<&Marked>,
        asked: &str,
    ) -> Result<String, String> {
        let asked = (asked != "auto").then(|| asked.parse().expect("a key"));
        let names = ["a", "b"].map(Path::new);
        match key(names, [before, after], asked) {
            Ok(key) => Ok(key.map_or_else(String::new, |key| key.to_string())),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn hashes_are_of_one_key() {
        let [nat, flow, short] = [("packet-nat", 160), ("packet-flow", 160), ("packet-nat", 96)]
            .map(|(k, m)| marked(k, m));
        for asked in ["auto", "packet-nat"] {
            assert_eq!(found(Some(&nat), Some(&nat), asked).as_deref(), Ok("packet-nat"));
            assert_eq!(found(None, Some(&nat), asked).as_deref(), Ok("packet-nat"));
        }
        assert_eq!(found(None, None, "auto").as_deref(), Ok(""));
        for (before, after, asked, said) in [
            (Some(&nat), Some(&flow), "auto", "b: it holds hashes of packet-flow with 160 B"),
            (Some(&nat), Some(&short), "auto", "and a those of packet-nat with 160 B"),
            (
                Some(&nat),
                None,
                "packet",
                "a: it holds hashes of packet-nat, of which nobody can make",
            ),
            (None, Some(&nat), "moonsniff", "b: it holds hashes of packet-nat"),
        ] {
            let error = found(before, after, asked).expect_err("refused");
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn ids_at_two_places_are_one_key() {
        let [before, after, wide] = ["42:4:le", "46:4:be", "46:8:be"].map(|key| marked(key, 0));
        let both = found(Some(&before), Some(&after), "auto").expect("one key");
        assert_eq!(both, "42:4:le before the device, 46:4:be after it");
        assert!(found(Some(&before), Some(&wide), "auto").is_err());
    }
}
