//! The checksum of IPv4, UDP and TCP: the complement of a one's complement sum (RFC 1071).

/// Sum of the big-endian 16-bit words. An odd last byte counts as if a zero followed.
#[inline]
pub fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks_exact(2);
    let last = words.remainder().first().map_or(0, |&byte| u32::from(byte) << 8);
    words.map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum::<u32>() + last
}

/// Folds the carries of a sum into 16 bits.
#[inline]
pub fn fold(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    ((once & 0xffff) + (once >> 16)) as u16
}

/// The checksum of words with this sum. The checksum field itself must have counted as zero.
#[inline]
pub fn of_sum(sum: u32) -> u16 {
    !fold(sum)
}

/// The checksum after words with the sum `before` were replaced by words with the sum `after`
/// (RFC 1624, equation 3). Both are folded sums or less: at most 16 bits.
#[inline]
pub fn update(checksum: u16, before: u16, after: u16) -> u16 {
    of_sum(u32::from(!checksum) + u32::from(!before) + u32::from(after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_example_of_rfc_1071_has_its_sum() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(fold(sum(&bytes)), 0xddf2);
        assert_eq!(of_sum(sum(&bytes)), 0x220d);
    }

    #[test]
    fn an_odd_byte_is_the_high_half_of_a_word() {
        assert_eq!(sum(&[0x12, 0x34, 0x56]), 0x1234 + 0x5600);
        assert_eq!(sum(&[]), 0);
    }

    proptest! {
        #[test]
        fn an_updated_checksum_is_the_one_that_is_worked_out_anew(
            words in proptest::collection::vec(any::<u16>(), 2..40), new: u16, at: usize,
        ) {
            let whole = |words: &[u16]| words.iter().map(|&word| u32::from(word)).sum::<u32>();
            let at = at % words.len();
            let mut changed = words.clone();
            changed[at] = new;
            let updated = update(of_sum(whole(&words)), words[at], new);
            // In one's complement, zero has two forms.
            let same = |one: u16, other: u16| one == other || !one == other && [one, other].contains(&0);
            prop_assert!(same(updated, of_sum(whole(&changed))));
        }
    }
}
