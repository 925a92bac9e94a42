//! The features of an ext file system, under the names of its own tools.

/// The three sets of features of a superblock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::ext) struct Features {
    /// Features that any system may ignore.
    pub(in crate::ext) compatible: u32,
    /// Features that a system must know for reading.
    pub(in crate::ext) incompatible: u32,
    /// Features that a system must know for writing.
    pub(in crate::ext) read_only: u32,
}

/// A feature: its set, its bit and its name.
#[derive(Clone, Copy, Debug)]
pub(in crate::ext) struct Feature(FeatureSet, u32, &'static str);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FeatureSet {
    Compatible,
    Incompatible,
    ReadOnly,
}

macro_rules! features {
    ($($constant:ident = $set:ident, $bit:literal, $name:literal;)*) => {
        $(
            #[doc = concat!("The feature `", $name, "`.")]
            pub(in crate::ext) const $constant: Feature = Feature(FeatureSet::$set, $bit, $name);
        )*
        const KNOWN: &[Feature] = &[$($constant),*];
    };
}

features! {
    DIR_PREALLOC = Compatible, 0x1, "dir_prealloc";
    IMAGIC_INODES = Compatible, 0x2, "imagic_inodes";
    HAS_JOURNAL = Compatible, 0x4, "has_journal";
    EXT_ATTR = Compatible, 0x8, "ext_attr";
    RESIZE_INODE = Compatible, 0x10, "resize_inode";
    DIR_INDEX = Compatible, 0x20, "dir_index";
    LAZY_BG = Compatible, 0x40, "lazy_bg";
    SNAPSHOT_BITMAP = Compatible, 0x100, "snapshot_bitmap";
    SPARSE_SUPER2 = Compatible, 0x200, "sparse_super2";
    FAST_COMMIT = Compatible, 0x400, "fast_commit";
    STABLE_INODES = Compatible, 0x800, "stable_inodes";
    ORPHAN_FILE = Compatible, 0x1000, "orphan_file";
    COMPRESSION = Incompatible, 0x1, "compression";
    FILETYPE = Incompatible, 0x2, "filetype";
    NEEDS_RECOVERY = Incompatible, 0x4, "needs_recovery";
    JOURNAL_DEV = Incompatible, 0x8, "journal_dev";
    META_BG = Incompatible, 0x10, "meta_bg";
    EXTENT = Incompatible, 0x40, "extent";
    BITS_64 = Incompatible, 0x80, "64bit";
    MMP = Incompatible, 0x100, "mmp";
    FLEX_BG = Incompatible, 0x200, "flex_bg";
    EA_INODE = Incompatible, 0x400, "ea_inode";
    DIRDATA = Incompatible, 0x1000, "dirdata";
    METADATA_CSUM_SEED = Incompatible, 0x2000, "metadata_csum_seed";
    LARGE_DIR = Incompatible, 0x4000, "large_dir";
    INLINE_DATA = Incompatible, 0x8000, "inline_data";
    ENCRYPT = Incompatible, 0x1_0000, "encrypt";
    CASEFOLD = Incompatible, 0x2_0000, "casefold";
    SPARSE_SUPER = ReadOnly, 0x1, "sparse_super";
    LARGE_FILE = ReadOnly, 0x2, "large_file";
    HUGE_FILE = ReadOnly, 0x8, "huge_file";
    UNINIT_BG = ReadOnly, 0x10, "uninit_bg";
    DIR_NLINK = ReadOnly, 0x20, "dir_nlink";
    EXTRA_ISIZE = ReadOnly, 0x40, "extra_isize";
    SNAPSHOT = ReadOnly, 0x80, "snapshot";
    QUOTA = ReadOnly, 0x100, "quota";
    BIGALLOC = ReadOnly, 0x200, "bigalloc";
    METADATA_CSUM = ReadOnly, 0x400, "metadata_csum";
    REPLICA = ReadOnly, 0x800, "replica";
    READONLY = ReadOnly, 0x1000, "read-only";
    PROJECT = ReadOnly, 0x2000, "project";
    SHARED_BLOCKS = ReadOnly, 0x4000, "shared_blocks";
    VERITY = ReadOnly, 0x8000, "verity";
    ORPHAN_PRESENT = ReadOnly, 0x1_0000, "orphan_present";
}

/// Features that change how a file system is read, and that no reader here supports, with the text of the refusal.
const REFUSED: [(Feature, &str); 3] = [
    (COMPRESSION, "ext2 with compression"),
    (JOURNAL_DEV, "a journal device of ext4"),
    (DIRDATA, "ext4 with data in directory entries (dirdata)"),
];

/// Features that have a name but that no kernel writes: blocks may belong to a snapshot, a replica or several files.
const UNKNOWN_MAPS: [Feature; 3] = [SNAPSHOT, REPLICA, SHARED_BLOCKS];

impl Features {
    /// Returns whether a feature is set.
    pub(in crate::ext) fn has(self, Feature(set, bit, _): Feature) -> bool {
        self.set(set) & bit != 0
    }

    fn set(self, set: FeatureSet) -> u32 {
        match set {
            FeatureSet::Compatible => self.compatible,
            FeatureSet::Incompatible => self.incompatible,
            FeatureSet::ReadOnly => self.read_only,
        }
    }

    /// Returns the names of all features. Unknown ones have their bit as the name, like in `dumpe2fs`.
    pub(in crate::ext) fn names(self) -> Vec<String> {
        let known = KNOWN.iter().filter(|feature| self.has(**feature)).map(|feature| feature.2.to_owned());
        let sets = [(FeatureSet::Compatible, 'C'), (FeatureSet::Incompatible, 'I'), (FeatureSet::ReadOnly, 'R')];
        let unknown = sets.into_iter().flat_map(|(set, letter)| {
            let bits = self.unknown(set);
            (0..32).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| format!("FEATURE_{letter}{bit}"))
        });
        known.chain(unknown).collect()
    }

    fn unknown(self, set: FeatureSet) -> u32 {
        KNOWN.iter().filter(|feature| feature.0 == set).fold(self.set(set), |bits, feature| bits & !feature.1)
    }

    /// Returns the unsupported feature; `None` if the file system can be read.
    pub(in crate::ext) fn refusal(self) -> Option<&'static str> {
        let refused = REFUSED.iter().find(|(feature, _)| self.has(*feature)).map(|(_, text)| *text);
        refused.or((self.unknown(FeatureSet::Incompatible) != 0).then_some("ext4 with a feature that is unknown here"))
    }

    /// Returns whether it has features that a system must know for writing. The meaning of its maps may differ.
    pub(in crate::ext) fn has_unknown_maps(self) -> bool {
        self.unknown(FeatureSet::ReadOnly) != 0 || UNKNOWN_MAPS.iter().any(|feature| self.has(*feature))
    }

    /// Returns whether it has features that ext3 lacks.
    pub(in crate::ext) fn is_ext4(self) -> bool {
        let ext3 = FILETYPE.1 | NEEDS_RECOVERY.1 | JOURNAL_DEV.1 | META_BG.1;
        self.incompatible & !ext3 != 0 || self.read_only & !(SPARSE_SUPER.1 | LARGE_FILE.1 | 0x4) != 0
    }
}
