//! Users of this host, by name.

use std::fs;

/// The table of users.
const TABLE: &str = "/etc/passwd";

/// Returns a user's number; `None` if the table lacks the user or cannot be read.
pub(super) fn number_of(name: &str) -> Option<u32> {
    number_in(&fs::read_to_string(TABLE).ok()?, name)
}

/// Returns the number from the table's first line with this name: `name:password:number:...`.
fn number_in(table: &str, name: &str) -> Option<u32> {
    table.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then_some(())?;
        fields.nth(1)?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_that_of_the_whole_name() {
        let table = "root:x:0:0:root:/root:/bin/sh\nqemu-guest:x:12::\nqemu:x:107:107:qemu user:/:/sbin/nologin\nodd:x\nbad:x:y:\n";
        for (name, expected) in [
            ("root", Some(0)),
            ("qemu", Some(107)),
            ("qemu-guest", Some(12)),
            ("qem", None),
            ("", None),
            ("odd", None),
            ("bad", None),
        ] {
            assert_eq!(number_in(table, name), expected, "{name}");
        }
        assert_eq!(number_of("root"), Some(0));
    }
}
