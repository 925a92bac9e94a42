//! Names of this machine's users.

use std::fs::File;
use std::io::Read;

use onefold_block::shown::ShownText;

const TABLE: &str = "/etc/passwd";
/// Larger than the table of any machine whose users are in it.
const TABLE_BYTES_MAX: u64 = 4 << 20;

/// Returns how messages call a user: by name and number if the machine's own table has the name.
pub(crate) fn shown(user: u32) -> String {
    let mut table = Vec::new();
    let read = File::open(TABLE).and_then(|file| file.take(TABLE_BYTES_MAX).read_to_end(&mut table));
    match read.ok().and_then(|_| name_in(&String::from_utf8_lossy(&table), user)) {
        Some(name) => format!("{} ({user})", ShownText::line(&name)),
        None => user.to_string(),
    }
}

/// Returns the name of a user in a table as in passwd(5).
fn name_in(table: &str, user: u32) -> Option<String> {
    table.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(user)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_number() {
        let table =
            "root:x:0:0:root:/root:/bin/bash\nbroken\nann:x:1000:100::/home/ann:/bin/sh\nbob:x:1000:100::/:/x\n";
        assert_eq!(name_in(table, 0).as_deref(), Some("root"));
        assert_eq!(name_in(table, 1000).as_deref(), Some("ann"));
        assert_eq!(name_in(table, 100), None);
    }
}
