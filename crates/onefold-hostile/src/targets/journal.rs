//! Decoders of the journal's transactions.

use onefold_block::BlockNo;
use onefold_pool::format::journal::{
    JournalRecord, OPENING_BYTES, Opening, TransactionBuilder, TransactionIdentity, records,
};

use crate::Choices;

const LOG_BLOCKS: u64 = 254;

pub(super) fn run(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let mut transaction = if choices.below(2) == 0 {
        let mut any = vec![0; OPENING_BYTES];
        any.extend_from_slice(choices.clone().take_rest());
        any
    } else {
        sound()
    };
    while !choices.is_used_up() {
        let at = choices.index(transaction.len());
        transaction[at] = choices.byte();
    }
    if let Some(opening) = Opening::decode(&transaction, identity(), LOG_BLOCKS) {
        assert!(opening.block_count() <= LOG_BLOCKS);
        let _ = opening.matches(&transaction);
    }
    let mut given = 0;
    let _ = records(&transaction, |record| {
        given += match record {
            JournalRecord::Whole { content, .. } => content.len(),
            JournalRecord::Ranges { ranges, .. } => ranges
                .map(|(offset, bytes)| {
                    assert!(offset + bytes.len() <= onefold_block::BLOCK_BYTES, "a range outside its block");
                    bytes.len()
                })
                .sum(),
            JournalRecord::Forget { block } => {
                assert!(block <= BlockNo::MAX);
                0
            }
        };
    });
    assert!(given <= transaction.len(), "records hold more than the transaction");
}

fn identity() -> TransactionIdentity {
    TransactionIdentity::public(5)
}

/// Returns a small transaction with each kind of record.
fn sound() -> Vec<u8> {
    let content = [3; onefold_block::BLOCK_BYTES];
    let mut builder = TransactionBuilder::new(0);
    builder.ranges(BlockNo(197), &content, &[(100, 104), (4000, 4096)]);
    builder.forget(BlockNo(9));
    builder.ranges(BlockNo(198), &content, &[(4, 5)]);
    let (mut bytes, _) = builder.finish(identity(), 77, 12, 3);
    bytes.truncate(300);
    bytes
}
