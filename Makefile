# Everything a newcomer needs: `make demo` and `make test`. Both install what they need and say so first.
SHELL := /bin/bash
.DEFAULT_GOAL := help
export CARGO_TERM_COLOR ?= auto

.PHONY: help demo build test lint crash damage posix xfstests races sim sim-images soak kill test-cluster test-guest test-files test-images test-serve test-kernel test-s3 fuzz long bench bench-paper bench-scale bench-share bench-guest bench-fbs bench-files bench-units bench-images bench-serve bench-analyze corpus fmt clean

help: ## Shows this list.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: ## Stores real VM images in a pool, clones one a hundred times, boots one. IMAGES="a.qcow2 b.raw" takes yours.
	@IMAGES="$(IMAGES)" scripts/demo.sh

build: ## Builds the release binary, target/release/onefold.
	@scripts/install-deps.sh build
	@source scripts/lib.sh && use_rust_toolchain && cargo build --release --locked

test: ## Installs what is missing and runs the whole test suite (10 to 20 minutes from nothing, on two cores).
	@scripts/test.sh

lint: ## Formatting and lints, where the toolchain has them.
	@scripts/lint.sh

# Long targets: each ends with its verdict, its seed and its counts (scripts/long/target.sh). ONEFOLD_SEED=n repeats one.

crash: ## Tries a million crash images of a seed. ONEFOLD_SEED=n for given ones, ONEFOLD_CRASH_IMAGES=n for fewer.
	@scripts/long/target.sh crash

damage: ## Damages pools in every way, twenty times as often as `make test`, and checks and repairs them. ONEFOLD_EFFORT=n.
	@scripts/long/target.sh damage

races: ## Explores 20,000 orders of threads in each of a dozen scenarios. ONEFOLD_SCHEDULES=n.
	@scripts/long/target.sh races

sim: ## Simulates hosts that share one file system, on new seeds, for half an hour. ONEFOLD_SIM_SECONDS=n.
	@scripts/long/target.sh sim

sim-images: ## Simulates hosts that share one archive of images, on new seeds, for half an hour. ONEFOLD_SIM_SECONDS=n.
	@scripts/long/target.sh sim-images

soak: ## Works in a nearly full pool for hours, with restarts and kills, then compares all. ONEFOLD_SOAK_SECONDS=n.
	@scripts/long/target.sh soak

kill: ## Kills daemons, verbs of archives, and servers of images, hundreds of times each, and looks for what was promised.
	@scripts/long/target.sh kill

test-cluster: ## Boots three hosts with one OCFS2 and has them share while they lose power; 45 minutes or more. CLUSTER="facts --hosts 2".
	@scripts/long/target.sh test-cluster $(CLUSTER)

test-guest: ## Reads guests of all mkfs options, hundreds of dirty images, boots one full of noise, fuzzes. FUZZ_SECONDS=n.
	@scripts/long/target.sh test-guest

test-files: ## Shares files of guests while they work; kills each verb, has calls fail, fills disks. ONEFOLD_FILES_SECONDS=n.
	@scripts/long/target.sh test-files

test-images: ## Puts the corpus and thousands of small disks through an archive, over noise; checks, compares and boots them.
	@scripts/long/target.sh test-images

test-serve: ## Sends images to sixteen machines in namespaces, through losses, kills and filters; boots one. CASES=loss,bursts.
	@scripts/long/target.sh test-serve $(if $(CASES),--cases $(CASES))

test-kernel: ## Boots Debian 12's kernel (6.1) and runs POSIX, clone and kill tests there; half an hour. CASES="posix killed".
	@scripts/install-deps.sh build kernel
	@source scripts/lib.sh && use_rust_toolchain && cargo build --release --locked && tests/kernel/run.sh $(CASES)

test-s3: ## Tests archives in buckets of Ceph's gateway, and of MinIO if it is in PATH or MINIO names it; 3 minutes. ROUNDS=n kills.
	@scripts/install-deps.sh build s3
	@source scripts/lib.sh && use_rust_toolchain && cargo build --release --locked && tests/s3/run.sh

fuzz: ## Feeds hostile bytes to every decoder and whole pools, guided by coverage. FUZZ_SECONDS=n for each of 25 targets.
	@scripts/long/target.sh fuzz

posix: ## Public POSIX suites, fsx and stress-ng at length, under each kind of mount. FSX_SEEDS and others: scripts/posix.sh.
	@scripts/long/target.sh posix

long: ## Runs all long targets within HOURS=4, and writes docs/reliability.md's table of them. TARGETS="crash sim", RECORD=0.
	@python3 scripts/long/run.py --hours $${HOURS:-4} $$([[ $${RECORD:-1} == 0 ]] || echo --record) $(TARGETS)

xfstests: ## Runs an xfstests that you have built, DIR=/path/to/xfstests, on pools. CHECK="-g auto" or "generic/003".
	@scripts/xfstests.sh "$(DIR)" $(CHECK)

bench: ## Compares a pool with ext4 on the same disk, side by side. QUICK=1 takes under 3 minutes.
	@scripts/install-deps.sh build bench
	@source scripts/lib.sh && use_rust_toolchain && cargo build --release --locked && python3 bench/run.py

bench-paper: ## Repeats the LiveDFS paper's experiments with each of its variants. QUICK=1 takes under 4 minutes.
	@scripts/install-deps.sh build bench
	@source scripts/lib.sh && use_rust_toolchain && cargo build --release --locked && \
	  python3 bench/paper.py --charts target/paper-figures

bench-scale: ## Measures what size costs, on pools of up to 1 TiB of distinct blocks. QUICK=1 takes under 3 minutes.
	@scripts/install-deps.sh build bench
	@source scripts/lib.sh && use_rust_toolchain && cargo build --release --locked && python3 bench/scale.py

bench-share: ## Measures sharing on XFS and Btrfs, beside the kernel's calls and duperemove. QUICK=1 takes under 5 minutes.
	@scripts/install-deps.sh build bench
	@source scripts/lib.sh && use_rust_toolchain && cargo build --release --locked && python3 bench/share.py

bench-guest: ## Measures looks into images, beside mounts, libguestfs, fls and checkers. QUICK=1 takes under 3 minutes.
	@scripts/install-deps.sh build bench
	@source scripts/lib.sh && use_rust_toolchain && cargo build --release --locked && python3 bench/guest.py

bench-fbs: ## Repeats the FBS paper's experiments on 42 machines: an hour and 25 GB to build them. QUICK=1 takes six.
	@scripts/install-deps.sh build bench
	@bench/corpus/corpus.sh build $$([[ $${QUICK:-0} == 0 ]] && echo fbs42 || echo fbs6)
	@source scripts/lib.sh && use_rust_toolchain && cargo build --release --locked && \
	  python3 bench/fbs.py --charts target/fbs-figures

bench-files: ## Measures the sharing of guest files, on 42 machines and sets of the corpus that are built. QUICK=1 takes six.
	@scripts/install-deps.sh build bench
	@bench/corpus/corpus.sh build demo $$([[ $${QUICK:-0} == 0 ]] && echo fbs42 || echo fbs6)
	@source scripts/lib.sh && use_rust_toolchain && cargo build --release --locked && bench/files.py

bench-units: ## What archives of the corpus's sets that are built take with each kind of unit. QUICK=1 takes under 3 minutes.
	@scripts/install-deps.sh build
	@source scripts/lib.sh && use_rust_toolchain && cargo build --release --locked && bench/units.py

bench-images: ## Compares archives with restic, borg, casync, zstd, partclone and qemu-img. QUICK=1 takes under 4 minutes.
	@scripts/install-deps.sh build bench bench-images s3
	@bench/corpus/corpus.sh build $$([[ $${QUICK:-0} == 0 ]] && echo fbs distros builds || echo debian-12-base)
	@source scripts/lib.sh && use_rust_toolchain && cargo build --release --locked && \
	  cargo build --release --locked -p onefold-image --example index_speed && bench/images.py

bench-serve: ## Compares served images with udpcast, UFTP, partclone, casync, nginx and curl. QUICK=1 takes under 4 minutes.
	@scripts/install-deps.sh build bench bench-serve
	@source scripts/lib.sh && use_rust_toolchain && cargo build --release --locked && \
	  cargo build --release --locked -p onefold-image --example chunk_speed --example multicast_load && bench/serve.py

bench-analyze: ## How fast `analyze` reads, against cat and others. IMAGES="a.raw b.qcow2" takes yours, GIB=1024 a made-up TiB.
	@scripts/install-deps.sh build bench
	@source scripts/lib.sh && use_rust_toolchain && cargo build --release --locked && bench/analyze.sh $(IMAGES)

corpus: ## Builds sets of disk images, SETS="distros vdi fbs ntfs lvm" unless told: half an hour, 34 GiB. See bench/corpus/corpus.sh.
	@scripts/install-deps.sh corpus
	@bench/corpus/corpus.sh build $${SETS:-distros vdi fbs ntfs lvm}

fmt: ## Formats all Rust code.
	cargo fmt --all

clean: ## Removes build results and the demo's pool; the image cache stays.
	rm -rf target demo-run
