//! Numbers of variable length: seven bits in each byte, the lowest first; the top bit is set in all bytes but the last
//! (LEB128). Zigzag maps a number x that is not negative to 2x, and a negative one to -2x - 1.

/// Returns the zigzag form of a number, which is negative if its top bit is set.
pub(super) fn zigzag(number: u64) -> u64 {
    (number << 1) ^ (number.cast_signed() >> 63).cast_unsigned()
}

/// Returns the number with a zigzag form.
pub(super) fn unzigzag(number: u64) -> u64 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}

/// Appends a number.
pub(super) fn push_number(mut number: u64, into: &mut Vec<u8>) {
    loop {
        let low = u8::try_from(number & 0x7f).expect("seven bits");
        number >>= 7;
        if number == 0 {
            return into.push(low);
        }
        into.push(low | 0x80);
    }
}

/// Takes a number; `None` if it is truncated, longer than 64 bits, or not in its shortest form.
pub(super) fn take_number(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = from.split_first()?;
        *from = rest;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return None;
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return (byte != 0 || shift == 0).then_some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_their_encoding() {
        for number in [0, 1, u64::MAX, 1 << 63, (1 << 63) - 1, u64::MAX - 1] {
            assert_eq!(unzigzag(zigzag(number)), number);
            let mut bytes = Vec::new();
            push_number(number, &mut bytes);
            assert_eq!(take_number(&mut &bytes[..]), Some(number));
        }
    }
}
