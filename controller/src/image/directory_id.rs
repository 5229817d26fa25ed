//! The ids of log directories that mean something else than a directory (KIP-858).

use protocol::types::Uuid;

/// A replica whose broker has not said where it lies, left from before directories had ids: it is
/// expected to exist somewhere already.
pub const MIGRATING: Uuid = reserved(0);
/// A new replica that its broker has not placed yet.
pub const UNASSIGNED: Uuid = reserved(1);
/// A replica in some directory that does not work.
pub const LOST: Uuid = reserved(2);

/// How many of the lowest ids are no directory's.
const RESERVED: u128 = 100;

const fn reserved(number: u8) -> Uuid {
    let mut bytes = [0; 16];
    bytes[15] = number;
    Uuid(bytes)
}

/// Whether no directory may have this id.
pub fn is_reserved(id: Uuid) -> bool {
    u128::from_be_bytes(id.0) < RESERVED
}

/// Whether a replica assigned to `id` may be used, on a broker whose working directories are
/// `online`. A broker that told no directories has none that it could lose.
pub fn is_online(id: Uuid, online: &[Uuid]) -> bool {
    match id {
        MIGRATING | UNASSIGNED => true,
        LOST => false,
        _ => online.is_empty() || online.contains(&id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserved_ids_are_those_of_kafka_kip_858() {
        assert_eq!(MIGRATING.to_base64(), "AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(UNASSIGNED.to_base64(), "AAAAAAAAAAAAAAAAAAAAAQ");
        assert_eq!(LOST.to_base64(), "AAAAAAAAAAAAAAAAAAAAAg");
        assert!(is_reserved(reserved(99)) && !is_reserved(reserved(100)));
    }

    #[test]
    fn only_a_lost_or_an_unlisted_directory_is_offline_kip_858() {
        let (here, gone) = (Uuid([1; 16]), Uuid([2; 16]));
        for id in [MIGRATING, UNASSIGNED, here] {
            assert!(is_online(id, &[here]));
        }
        assert!(!is_online(LOST, &[here]) && !is_online(LOST, &[]));
        assert!(!is_online(gone, &[here]));
        assert!(is_online(gone, &[]), "a broker that told no directories");
    }
}
