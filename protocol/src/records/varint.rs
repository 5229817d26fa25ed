//! Kafka's zigzag varints: seven bits a byte, lowest first, at most 5 bytes for 32 bits and 10 for
//! 64. A longer one is malformed. As in Kafka, surplus bits of the last byte are dropped.

/// What stopped reading a varint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum VarintError {
    /// The bytes ended.
    End,
    /// The last byte that the type allows says that more follow.
    TooLong,
}

fn take_unsigned(bytes: &mut &[u8], max_bytes: usize) -> Result<u64, VarintError> {
    // One byte is by far the most frequent case.
    if let Some((&first, rest)) = bytes.split_first()
        && first < 0x80
    {
        *bytes = rest;
        return Ok(u64::from(first));
    }
    let mut value = 0u64;
    for i in 0..max_bytes {
        let byte = *bytes.get(i).ok_or(VarintError::End)?;
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            *bytes = &bytes[i + 1..];
            return Ok(value);
        }
    }
    Err(VarintError::TooLong)
}

/// The value of an unsigned 32-bit pattern read as zigzag.
pub(super) const fn unzigzag_i32(raw: u32) -> i32 {
    (raw >> 1) as i32 ^ -((raw & 1) as i32)
}

/// The value of an unsigned 64-bit pattern read as zigzag.
pub(super) const fn unzigzag_i64(raw: u64) -> i64 {
    (raw >> 1) as i64 ^ -((raw & 1) as i64)
}

/// Takes a 32-bit varint off the front of `bytes`, which stay as they are on an error.
#[inline]
pub(super) fn take_i32(bytes: &mut &[u8]) -> Result<i32, VarintError> {
    take_unsigned(bytes, 5).map(|raw| unzigzag_i32(raw as u32))
}

/// Takes a 64-bit varint off the front of `bytes`, which stay as they are on an error.
#[inline]
pub(super) fn take_i64(bytes: &mut &[u8]) -> Result<i64, VarintError> {
    take_unsigned(bytes, 10).map(unzigzag_i64)
}

/// Appends a varint of any width.
pub(super) fn put(out: &mut Vec<u8>, value: i64) {
    let mut raw = ((value << 1) ^ (value >> 63)) as u64;
    while raw >= 0x80 {
        out.push(raw as u8 | 0x80);
        raw >>= 7;
    }
    out.push(raw as u8);
}

/// How many bytes [`put`] appends.
pub(super) const fn size(value: i64) -> usize {
    let raw = ((value << 1) ^ (value >> 63)) as u64;
    let bits = 64 - (raw | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_read_back_at_the_edges() {
        for value in [0, -1, 1, 63, -64, 64, 8191, 8192, i64::from(i32::MAX), i64::from(i32::MIN)] {
            let mut out = Vec::new();
            put(&mut out, value);
            assert_eq!(out.len(), size(value), "{value}");
            assert_eq!(take_i32(&mut out.as_slice()), Ok(value as i32));
            assert_eq!(take_i64(&mut out.as_slice()), Ok(value));
        }
        for value in [i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            put(&mut out, value);
            assert_eq!((out.len(), size(value)), (10, 10));
            assert_eq!(take_i64(&mut out.as_slice()), Ok(value));
        }
    }

    #[test]
    fn varints_that_end_or_never_end_are_refused() {
        assert_eq!(take_i32(&mut [0x80u8, 0x80].as_slice()), Err(VarintError::End));
        assert_eq!(take_i32(&mut [0x80u8; 6].as_slice()), Err(VarintError::TooLong));
        assert_eq!(take_i64(&mut [0xffu8; 11].as_slice()), Err(VarintError::TooLong));
        assert_eq!(take_i32(&mut [].as_slice()), Err(VarintError::End));
    }
}
