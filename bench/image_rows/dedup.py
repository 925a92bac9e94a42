"""Programs that store equal parts of images once: each at its defaults, and as it stores least."""

from .sides import FLUSH, PASSWORD, Side


class Restic(Side):
    """restic encrypts always; its own cache lies beside the repository and does not count."""

    name = "restic"
    settings = "defaults (compression `auto`)"
    needed = ("restic",)
    options = ""
    environment = (
        f"export RESTIC_PASSWORD={PASSWORD} RESTIC_REPOSITORY={{folder}}/store RESTIC_CACHE_DIR={{folder}}/cache;"
    )
    create_script = "restic init --quiet"
    restores_to_folder = True
    restore_script = "restic restore latest --quiet --tag {name} --target {target} && sync -f {target}"

    @property
    def store_script(self):
        return f"restic backup --quiet {self.options} --tag {{name}} {{image}}"

    def restored_file(self, image, target):
        return target / image.absolute().relative_to("/")


class ResticSmallest(Restic):
    """Slower, and smaller."""

    name = "restic-max"
    settings = "`--compression max`"
    options = "--compression max"
    is_default = False


class Borg(Side):
    """Without encryption."""

    name = "borg"
    settings = "defaults (buzhash, pieces of about 2 MiB, LZ4)"
    needed = ("borg",)
    options = ""
    environment = (
        "export BORG_REPO={folder}/store BORG_BASE_DIR={folder}/base BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK=yes"
        " BORG_RELOCATED_REPO_ACCESS_IS_OK=yes;"
    )
    create_script = "borg init --encryption none"
    restores_to_folder = True
    restore_script = "mkdir -p {target} && cd {target} && borg extract --sparse ::{name} && sync -f {target}"

    @property
    def store_script(self):
        return f"borg create {self.options} ::{{name}} {{image}}"

    def restored_file(self, image, target):
        return target / image.absolute().relative_to("/")


class BorgSmallest(Borg):
    """Pieces of about 128 KiB, and Zstandard."""

    name = "borg-zstd"
    settings = "`--chunker-params buzhash,15,19,17,4095 --compression zstd,6`"
    options = "--chunker-params buzhash,15,19,17,4095 --compression zstd,6"
    is_default = False


class BorgFixed(Borg):
    """Pieces at fixed places, as borg's manual recommends for disk images."""

    name = "borg-fixed"
    settings = "`--chunker-params fixed,4194304 --sparse`, LZ4"
    options = "--chunker-params fixed,4194304 --sparse"


class BorgFixedSmallest(Borg):
    """The same with Zstandard."""

    name = "borg-fixed-zstd"
    settings = "`--chunker-params fixed,4194304 --sparse --compression zstd,6`"
    options = "--chunker-params fixed,4194304 --sparse --compression zstd,6"
    is_default = False


class Casync(Side):
    """A file for each chunk, and an index for each image."""

    name = "casync"
    settings = "defaults (chunks of about 64 KiB, zstd)"
    needed = ("casync",)
    # As slow as all others together.
    in_quick = False
    options = ""
    places = "--store={folder}/store/castr {folder}/store/{name}.caibx"
    restore_script = f"casync extract {places} {{target}} && {FLUSH}"

    @property
    def store_script(self):
        return f"casync make {self.options} {self.places} {{image}} >/dev/null && {FLUSH}"


class CasyncSmallest(Casync):
    """Larger chunks compress better."""

    name = "casync-256k"
    settings = "`--chunk-size=256K`"
    options = "--chunk-size=256K"
    is_default = False


class Desync(Side):
    """The stores of casync, by another program."""

    name = "desync"
    settings = "defaults"
    needed = ("desync",)
    store_script = f"desync make -s {{folder}}/store {{folder}}/store/{{name}}.caibx {{image}} && {FLUSH}"
    restore_script = f"desync extract -s {{folder}}/store {{folder}}/store/{{name}}.caibx {{target}} && {FLUSH}"


class Rustic(Side):
    """The repositories of restic, by another program."""

    name = "rustic"
    settings = "defaults"
    needed = ("rustic",)
    environment = (
        f"export RUSTIC_PASSWORD={PASSWORD} RUSTIC_REPOSITORY={{folder}}/store RUSTIC_CACHE_DIR={{folder}}/cache;"
    )
    create_script = "rustic init"
    store_script = "rustic backup --tag {name} {image}"
    restores_to_folder = True
    restore_script = "rustic restore --filter-tags {name} latest {target} && sync -f {target}"

    def restored_file(self, image, target):
        return target / image.absolute().relative_to("/")


DEDUPLICATING = (
    Restic, ResticSmallest, Borg, BorgSmallest, BorgFixed, BorgFixedSmallest, Casync, CasyncSmallest, Desync, Rustic,
)  # fmt: skip
